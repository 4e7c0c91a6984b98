//! The orderings by which two processes share a ring, hand buffers back, wake each other, agree on who spins, and on who may still write to memory.
//!
//! Each is written over [`ReadWords`] and [`WriteWords`], which are a peer's memory and our own in life, and loom's atomics in
//! its models. Nothing here allocates, blocks, or trusts what it reads.

mod core_claims;
#[cfg(all(test, loom))]
mod loom_tests;
mod regions;
mod release;
mod returned;
mod slots;
#[cfg(all(test, not(loom)))]
mod tests;
mod wake;

pub(crate) use core_claims::CoreClaims;
pub(crate) use regions::{Place, Region, Write};
pub(crate) use release::{ReleaseReader, ReleaseWriter};
pub(crate) use returned::Returned;
pub(crate) use slots::{SlotReader, SlotWord, SlotWriter};
pub(crate) use wake::{Armer, Kicker};

use core::sync::atomic::Ordering;

/// Memory that a peer writes.
pub(crate) trait ReadWords {
    /// Loads the word at a byte offset that is a multiple of eight.
    fn load(&self, offset: usize, order: Ordering) -> u64;
}

/// Memory that we write.
pub(crate) trait WriteWords {
    /// Stores the word at a byte offset that is a multiple of eight.
    fn store(&self, offset: usize, value: u64, order: Ordering);
}
