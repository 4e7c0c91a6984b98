//! What the documents promise, as cases; each is to run on every device.
//!
//! This crate holds, for now, the outermost ring of them: programs that nobody here wrote, unmodified, with `libvma.so`
//! preloaded (`tests/programs`). They are the same on the kernel and on Ringway, so that what a case expects is first
//! proven right on the kernel (`RINGWAY_PROGRAMS=kernel`), and then demanded of Ringway.
//!
//! [`reference`](mod@reference) holds the other way round: programs that nobody wrote, drawn at random, run call by call on Ringway in
//! the simulator and on the kernel's sockets (`tests/reference`).
//!
//! [`sentences`] holds the cases themselves: each sentence that promises something, run on every device that can be opened here
//! (`tests/sentences`), with the matrix of sentence by device.
//!
//! [`extra`] holds those of the VMA Extra API that are about the stack and its devices (`tests/extra`). `promises/*.toml` lists all that the
//! documents promise of that API, each promise with its cases by device: `cargo xtask conformance` prints them.
#![forbid(unsafe_code)]

pub mod extra;
pub mod reference;
pub mod sentences;
