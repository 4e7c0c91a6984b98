//! The C symbols. Each has the signature, the results and the errno of the libc function of its name.
//!
//! A call on a descriptor that is not ours costs a load or two before it reaches libc. No symbol is defined in unit tests:
//! the test harness itself would be interposed.

pub mod clone;
pub(crate) mod control;
pub mod ends;
pub mod epoll;
pub mod exec;
pub mod fd;
pub mod file;
pub mod means;
pub mod open;
pub mod poll;
pub mod positioned;
pub mod raw;
pub mod receive;
mod rights;
pub mod select;
pub mod send;
pub mod signal;
pub mod socket;
pub mod splice;
pub mod stdio;
pub mod thread;
mod timeout;
pub mod vfork;
