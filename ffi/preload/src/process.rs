//! The process's turning points: forks, execs, ends, and the giving up of means.

pub mod clone;
pub(crate) mod ends;
pub(crate) mod exec;
pub(crate) mod means;
pub mod vfork;
