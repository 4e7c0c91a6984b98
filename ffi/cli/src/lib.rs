//! What the commands `ringway` and `vma_stats` share.
//!
//! - [`columns`]: columns that fit a screen
//! - [`filter`]: filters of frames, as tcpdump has them
//! - [`members`]: the running processes, each asked over its control socket
//! - [`published`]: the files in which processes publish their statistics
//! - [`pipe`]: ending with who reads what they print
//! - [`table`]: tables for people
#![deny(unsafe_code)]

pub mod columns;
pub mod filter;
pub mod members;
pub mod pipe;
pub mod published;
pub mod table;
