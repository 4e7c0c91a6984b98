//! All reads of peers' memory. The peer may change any byte at any time: every value is copied once, and checked from
//! the copy by whoever asked for it.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::copy;
use crate::memfd::Mapping;
use crate::protocol::ReadWords;

/// A peer's memory, mapped read-only. It cannot shrink (its seals were checked), so reading it cannot fault.
#[derive(Debug)]
pub(crate) struct View {
    mapping: Mapping,
}

impl View {
    /// Invariant: `mapping` is readable, and its memfd's seals were checked.
    pub(crate) fn new(mapping: Mapping) -> Self {
        Self { mapping }
    }

    /// Bytes mapped.
    pub(crate) fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Copies `out.len()` bytes from `offset` on. Out of range is a mistake of this crate's, not of the peer's.
    #[inline(always)]
    pub(crate) fn copy_out(&self, offset: usize, out: &mut [u8]) {
        let from = self.at(offset, out.len());
        // SAFETY: `at` checked the range; `out` is a live slice elsewhere.
        unsafe { copy::opaque(from.as_ptr(), out.as_mut_ptr(), out.len()) };
    }

    /// Brings the line at `offset` near, ahead of being read.
    #[inline(always)]
    pub(crate) fn prefetch(&self, offset: usize) {
        copy::prefetch(self.at(offset, 1).as_ptr());
    }

    /// Where `len` bytes from `offset` on are mapped. Out of range is a mistake of this crate's, not of the peer's.
    pub(crate) fn address(&self, offset: usize, len: usize) -> *const u8 {
        self.at(offset, len).as_ptr()
    }

    #[inline]
    fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        self.mapping.at(offset, len)
    }
}

impl ReadWords for View {
    #[inline]
    fn load(&self, offset: usize, order: Ordering) -> u64 {
        assert!(offset.is_multiple_of(8));
        let word = self.at(offset, 8).cast::<AtomicU64>();
        // SAFETY: in range and aligned (mappings begin on a page); the mapping lives as long as `self`. Atomic loads of
        // eight bytes are allowed on read-only pages.
        unsafe { word.as_ref() }.load(order)
    }
}
