//! Send buffers: two sizes, in the member's own segment, counted by the handles and flights that refer to them.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use ringway_stack::device::TxBuffer;

use crate::copy::Sum;
use crate::layout::{LARGE_BYTES, POOL_AT, SMALL_BYTES};
use crate::stores::SharedMemory;

/// No buffer.
const NONE: u32 = u32::MAX;

/// Takes one of the references that a count is of away; whether it was the last.
#[inline]
pub(crate) fn release(count: &AtomicU32) -> bool {
    // The only reference there is can't be duplicated by anyone else, so it needs no locked instruction.
    // Acquire and release: all uses of the buffer come before its next life.
    if count.load(Ordering::Acquire) == 1 {
        count.store(0, Ordering::Release);
        true
    } else {
        count.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// What handles and the device share.
#[derive(Debug)]
pub(crate) struct Pool {
    segment: Arc<SharedMemory>,
    small: u32,
    /// References to each buffer. Zero: it is free, or on its way there.
    counts: Box<[AtomicU32]>,
    /// The stack of buffers whose last handle was dropped, linked through `next`. Pushed to by any thread; taken whole by the
    /// allocator, so that no entry's successor can change under a pop.
    returned: AtomicU32,
    next: Box<[AtomicU32]>,
}

impl Pool {
    /// Bytes of a pool of that shape.
    pub(crate) fn bytes(small: u32, large: u32) -> usize {
        small as usize * SMALL_BYTES + large as usize * LARGE_BYTES
    }

    /// Offset of a buffer within the pool.
    #[inline]
    pub(crate) fn offset(&self, index: u32) -> usize {
        if index < self.small {
            index as usize * SMALL_BYTES
        } else {
            self.small as usize * SMALL_BYTES + (index - self.small) as usize * LARGE_BYTES
        }
    }

    #[inline]
    fn capacity(&self, index: u32) -> usize {
        if index < self.small { SMALL_BYTES } else { LARGE_BYTES }
    }

    /// Adds a reference to a buffer that the caller holds one to.
    #[inline]
    pub(crate) fn retain(&self, index: u32) {
        self.counts[index as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a reference away; whether it was the last.
    #[inline]
    fn release(&self, index: u32) -> bool {
        release(&self.counts[index as usize])
    }

    fn push_returned(&self, index: u32) {
        let mut head = self.returned.load(Ordering::Relaxed);
        loop {
            self.next[index as usize].store(head, Ordering::Relaxed);
            match self.returned.compare_exchange_weak(head, index, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

/// The device's end: hands buffers out.
#[derive(Debug)]
pub(crate) struct Allocator {
    pool: Arc<Pool>,
    large: u32,
    /// Last in, first out, so that few pages are touched and those stay in cache.
    free_small: Vec<u32>,
    free_large: Vec<u32>,
    /// Buffers below these were handed out at least once.
    fresh_small: u32,
    fresh_large: u32,
}

impl Allocator {
    pub(crate) fn new(segment: Arc<SharedMemory>, small: u32, large: u32) -> Self {
        let total = (small + large) as usize;
        let pool = Pool { segment, small, counts: zeroed(total), returned: AtomicU32::new(NONE), next: zeroed(total) };
        Self { pool: Arc::new(pool), large, free_small: Vec::new(), free_large: Vec::new(), fresh_small: 0, fresh_large: 0 }
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// A buffer of at least `len` bytes, or of the largest size.
    #[inline]
    pub(crate) fn alloc(&mut self, len: usize) -> Option<TxBuf> {
        self.reclaim();
        let small = if len <= SMALL_BYTES { self.take_small() } else { None };
        let index = small.or_else(|| self.take_large())?;
        Some(self.hand_out(index))
    }

    /// A small buffer, whatever was asked for: when no other is left.
    pub(crate) fn alloc_small(&mut self) -> Option<TxBuf> {
        let index = self.take_small()?;
        Some(self.hand_out(index))
    }

    fn hand_out(&self, index: u32) -> TxBuf {
        // Relaxed: the buffer reaches other threads only by handing over its handle.
        self.pool.counts[index as usize].store(1, Ordering::Relaxed);
        TxBuf::of(&self.pool, index)
    }

    /// Takes a flight's reference to a buffer away.
    #[inline]
    pub(crate) fn release(&mut self, index: u32) {
        if self.pool.release(index) {
            self.free(index);
        }
    }

    /// Collects buffers that handles gave back.
    #[inline]
    fn reclaim(&mut self) {
        if self.pool.returned.load(Ordering::Relaxed) == NONE {
            return;
        }
        let mut index = self.pool.returned.swap(NONE, Ordering::Acquire);
        while index != NONE {
            let next = self.pool.next[index as usize].load(Ordering::Relaxed);
            self.free(index);
            index = next;
        }
    }

    fn free(&mut self, index: u32) {
        if index < self.pool.small { self.free_small.push(index) } else { self.free_large.push(index) }
    }

    fn take_small(&mut self) -> Option<u32> {
        self.free_small.pop().or_else(|| {
            (self.fresh_small < self.pool.small).then(|| {
                self.fresh_small += 1;
                self.fresh_small - 1
            })
        })
    }

    fn take_large(&mut self) -> Option<u32> {
        self.free_large.pop().or_else(|| {
            (self.fresh_large < self.large).then(|| {
                self.fresh_large += 1;
                self.pool.small + self.fresh_large - 1
            })
        })
    }

    /// Bytes of the free buffers that may be taken where `len` are wanted.
    pub(crate) fn free_bytes(&mut self, len: usize) -> usize {
        self.reclaim();
        let large = (self.free_large.len() + (self.large - self.fresh_large) as usize) * LARGE_BYTES;
        if len > SMALL_BYTES {
            return large;
        }
        large + (self.free_small.len() + (self.pool.small - self.fresh_small) as usize) * SMALL_BYTES
    }

    /// Buffers that there are, whether or not they were ever used.
    pub(crate) fn all(&self) -> usize {
        (self.pool.small + self.large) as usize
    }

    /// Buffers that are handed out or in flight.
    pub(crate) fn in_use(&mut self) -> usize {
        self.reclaim();
        (self.fresh_small + self.fresh_large) as usize - self.free_small.len() - self.free_large.len()
    }
}

fn zeroed(len: usize) -> Box<[AtomicU32]> {
    // SAFETY: all zeroes is a valid AtomicU32. (Zeroed by the kernel, page by page, when it is first used.)
    unsafe { Box::new_zeroed_slice(len).assume_init() }
}

/// A counted handle on a send buffer.
#[derive(Debug)]
pub struct TxBuf {
    pool: Arc<Pool>,
    /// Invariant: this handle is one of the buffer's references.
    index: u32,
    capacity: u32,
    /// Where the buffer lies in the segment.
    place: usize,
}

impl TxBuf {
    /// A handle that has a reference, which was counted.
    #[inline]
    fn of(pool: &Arc<Pool>, index: u32) -> Self {
        Self { pool: pool.clone(), index, capacity: pool.capacity(index) as u32, place: POOL_AT + pool.offset(index) }
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    /// Where a part lies in the segment.
    #[inline(always)]
    pub(crate) fn segment_offset(&self, offset: usize, len: usize) -> usize {
        let capacity = self.capacity as usize;
        assert!(offset <= capacity && len <= capacity - offset, "{len} bytes at {offset} are outside of the send buffer");
        self.place + offset
    }
}

impl Clone for TxBuf {
    fn clone(&self) -> Self {
        self.pool.retain(self.index);
        Self::of(&self.pool, self.index)
    }
}

impl Drop for TxBuf {
    fn drop(&mut self) {
        if self.pool.release(self.index) {
            self.pool.push_returned(self.index);
        }
    }
}

impl TxBuffer for TxBuf {
    #[inline]
    fn capacity(&self) -> usize {
        self.capacity as usize
    }

    #[inline(always)]
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.pool.segment.write_to_pool(self.segment_offset(offset, bytes.len()), bytes);
    }

    #[inline]
    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        self.pool.segment.read(self.segment_offset(offset, out.len()), out);
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        Sum::over(len, |at, piece| self.copy_to(offset + at, piece))
    }
}
