//! The release ring: flights (groups of the peer's buffers) handed back to their owner. Written by whichever thread drops the last
//! handle, read by the owner's device.
//!
//! It has as many entries as there can be flights, so a writer never waits: the entry it overwrites was read before
//! the flight that it now returns could be sent.

use super::{ReadWords, WriteWords};
use crate::layout::release_at;
use crate::sync::{AtomicU64, Ordering};

/// The end that hands back. Any thread.
#[derive(Debug)]
pub(crate) struct ReleaseWriter {
    position: AtomicU64,
}

impl ReleaseWriter {
    pub(crate) fn new() -> Self {
        Self { position: AtomicU64::new(0) }
    }

    /// How many were handed back so far.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Hands back `flight`; the caller has done its last read of its bytes.
    #[inline]
    pub(crate) fn push(&self, own: &impl WriteWords, flight: u16) {
        // The position only has to be unique. Two threads may fill their entries in either order; the reader waits at
        // the one that is still missing.
        let position = self.position.fetch_add(1, Ordering::Relaxed);
        own.store(release_at(position), (position.wrapping_add(1) & 0xffff_ffff) << 32 | u64::from(flight), Ordering::Release);
    }
}

/// The owner's end.
#[derive(Debug, Default)]
pub(crate) struct ReleaseReader {
    position: u64,
}

impl ReleaseReader {
    /// The next flight handed back, if any. Its number is the peer's claim, to be checked.
    #[inline]
    pub(crate) fn pop(&mut self, peer: &impl ReadWords) -> Option<u32> {
        let word = peer.load(release_at(self.position), Ordering::Acquire);
        if (word >> 32) as u32 != (self.position as u32).wrapping_add(1) {
            return None;
        }
        self.position += 1;
        Some(word as u32)
    }
}
