//! All stores to shared memory. A test that ends the process before its k-th store covers every instant at which
//! a peer could see this process die, because there is no store elsewhere.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::copy;
use crate::memfd::Mapping;
use crate::protocol::WriteWords;

/// Memory of our own, which peers map read-only; or an area ([`crate::area`]), which its maker and one peer write, each without believing what it reads there.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    mapping: Mapping,
}

impl SharedMemory {
    /// Invariant: `mapping` is writable, and of a memfd that this process made, or of an area.
    pub(crate) fn new(mapping: Mapping) -> Self {
        Self { mapping }
    }

    /// Bytes mapped.
    pub(crate) fn len(&self) -> usize {
        self.mapping.len()
    }

    /// See [`Mapping::prefer_huge_pages`].
    pub(crate) fn prefer_huge_pages(&self) {
        self.mapping.prefer_huge_pages();
    }

    /// Copies `bytes` to `offset`.
    #[inline(always)]
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: `at` checked the range; `bytes` is a live slice and can't lie in a mapping, which no slice is made over.
        unsafe { store_bytes(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }

    /// Copies `bytes` to `offset`, which lies in a send buffer, or in an area.
    #[inline(always)]
    pub(crate) fn write_to_pool(&self, offset: usize, bytes: &[u8]) {
        let to = self.mapping.at_far(offset, bytes.len());
        // SAFETY: as in `write`.
        unsafe { store_bytes(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }

    /// Copies `len` bytes from `from_offset` of another segment of ours, which lie in a send buffer.
    #[inline(always)]
    pub(crate) fn write_from_pool(&self, offset: usize, from: &SharedMemory, from_offset: usize, len: usize) {
        debug_assert!(!core::ptr::eq(self, from));
        let to = self.at(offset, len);
        let source = from.mapping.at_far(from_offset, len);
        // SAFETY: both ranges were checked; different segments are different mappings.
        unsafe { store_bytes(source.as_ptr(), to.as_ptr(), len) };
    }

    /// Copies bytes of our own out again.
    #[inline]
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) {
        let from = self.at(offset, out.len());
        // SAFETY: `at` checked the range; `out` is a live slice elsewhere.
        unsafe { copy::opaque(from.as_ptr(), out.as_mut_ptr(), out.len()) };
    }

    /// Copies `bytes` to `offset` of a peer's area, if it has so many there, as the peer says.
    pub(crate) fn write_there(&self, offset: u64, bytes: &[u8]) -> bool {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let is_there = offset <= self.len() && bytes.len() <= self.len() - offset;
        if is_there {
            self.write_to_pool(offset, bytes);
        }
        is_there
    }

    /// Brings the line at `offset` into this core's cache for writing, ahead of its store.
    #[inline]
    pub(crate) fn prefetch_for_write(&self, offset: usize) {
        copy::prefetch_for_write(self.at(offset, 1).as_ptr());
    }

    #[inline]
    fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        self.mapping.at(offset, len)
    }
}

impl WriteWords for SharedMemory {
    #[inline]
    fn store(&self, offset: usize, value: u64, order: Ordering) {
        assert!(offset.is_multiple_of(8));
        #[cfg(test)]
        crate::store_hook::before_store();
        let word = self.at(offset, 8).cast::<AtomicU64>();
        // SAFETY: in range and aligned (mappings begin on a page); the mapping lives as long as `self`, and all accesses
        // of this word are atomic.
        unsafe { word.as_ref() }.store(value, order);
    }
}

/// # Safety
/// As [`copy::opaque`].
#[inline]
unsafe fn store_bytes(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(test)]
    if crate::store_hook::is_set() {
        let mut at = 0;
        while at < len {
            let piece = (len - at).min(8);
            crate::store_hook::before_store();
            // SAFETY: a part of the caller's range.
            unsafe { copy::opaque(from.add(at), to.add(at), piece) };
            at += piece;
        }
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { copy::opaque(from, to, len) };
}
