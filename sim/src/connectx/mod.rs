//! A ConnectX in software, where a driver meets it: bytes in queues.
//!
//! The model reads what a driver wrote (work queue entries, doorbell records, registers) and writes what the card would (completions,
//! payload of receives). It knows no driver's code, and no backend: its numbers are its own ([`constants`]), compared with
//! infiniband/mlx5dv.h by a test. Whatever the driver wrote, the model does bounded work and does not panic; it says which rule was broken
//! ([`Violation`]) and does what hardware does then ([`Verdict`]).
//!
//! What is marked `guessed` is in no public header and not in what was seen under libmlx5; `GUESSES.md`, beside this file, lists all of it.
//!
//! - [`wqe`]: send entries, read and checked
//! - [`cqe`]: completions, built, read, compressed and expanded
//! - [`queues`]: send, receive, striding, shared and completion queues, and the registers; [`Card`](queues::Card) has them all
//! - [`packet`]: what the card sees in a frame; [`offload`]: what it does to frames on their way out and says of them on their way in
//! - [`steering`]: flow rules, and which queues a frame is for; [`rss`]: the hash that chooses one of several
//! - [`KeyTable`]: memory keys; [`Memory`]: what the card reaches

pub mod constants;
pub mod cqe;
mod keys;
mod memory;
pub mod offload;
pub mod packet;
pub mod queues;
pub mod rss;
pub mod steering;
mod violation;
pub mod wqe;

pub use keys::{Access, KeyTable, Region};
pub use memory::{HostMemory, Memory, Unmapped};
pub use violation::{Verdict, Violation};
