//! The C symbols: `ringway_preload` makes them, and [`Vma`] says what each does.
//!
//! A call on a descriptor that is not ours costs a load or two before it reaches libc. No symbol is defined in unit tests:
//! the test harness itself would be interposed.

mod clone;
pub(crate) mod control;
mod epoll;
mod exec;
mod fd;
mod file;
mod means;
mod open;
mod poll;
pub(crate) mod receive;
mod recvfrom;
mod rights;
mod select;
mod send;
mod short;
pub(crate) mod signal;
mod socket;
mod splice;
pub(crate) mod stdio;
mod vma;

/// This library, to `ringway_preload`.
pub struct Vma;

ringway_preload::interpose!(Vma);
