//! What the commands `ringway` and `vma_stats` share.
//!
//! - [`members`]: the running processes, each asked over its control socket
//! - [`published`]: the files in which processes publish their statistics
//! - [`table`]: tables for people
#![forbid(unsafe_code)]

pub mod members;
pub mod published;
pub mod table;
