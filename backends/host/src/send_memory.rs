//! What connections have queued to send: memory of the process. A frame is put together when it is sent, headers and all, in a chunk that the kernel sends
//! from; so what is sent again needs no other headers than its own.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use ringway_stack::device::TxBuffer;
use ringway_stack::wire::checksum;

/// The longest buffer.
pub const BUFFER_MAX: usize = 32 << 10;

/// How much of it one ring has.
#[derive(Debug)]
pub struct SendMemory {
    most: usize,
    used: AtomicUsize,
}

impl SendMemory {
    /// So many bytes of it.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, used: AtomicUsize::new(0) })
    }

    /// Bytes that are left.
    pub fn free(&self) -> usize {
        self.most.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// A buffer of so many bytes. `None`: there are not as many left.
    pub fn take(self: &Arc<Self>, len: usize) -> Option<SendBuffer> {
        let len = len.clamp(1, BUFFER_MAX);
        if self.free() < len {
            return None;
        }
        self.used.fetch_add(len, Ordering::Relaxed);
        Some(SendBuffer(Arc::new(Bytes { bytes: UnsafeCell::new(vec![0; len].into()), len, of: Arc::clone(self) })))
    }
}

#[derive(Debug)]
struct Bytes {
    bytes: UnsafeCell<Box<[u8]>>,
    len: usize,
    of: Arc<SendMemory>,
}

// SAFETY: the handles of a ring's buffers are used by whoever has the ring, which is one thread at a time (`TxBuffer`: bytes are written once, before they are
// sent; and other threads have no handles). So no two of the accesses below happen at once.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.of.used.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// A handle on a buffer.
#[derive(Clone, Debug)]
pub struct SendBuffer(Arc<Bytes>);

impl SendBuffer {
    /// Bytes that were written.
    pub fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        // SAFETY: nobody writes meanwhile: see `Bytes`.
        let bytes = unsafe { &*self.0.bytes.get() };
        &bytes[offset..offset + len]
    }
}

impl TxBuffer for SendBuffer {
    fn capacity(&self) -> usize {
        self.0.len
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        // SAFETY: nobody else reads or writes meanwhile: see `Bytes`.
        let all = unsafe { &mut *self.0.bytes.get() };
        all[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(self.bytes(offset, out.len()));
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        checksum::sum(self.bytes(offset, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_handed_out_than_there_is() {
        let memory = SendMemory::new(100);
        let mut first = memory.take(60).unwrap();
        first.write(10, b"abc");
        let second = first.clone();
        assert!(memory.take(41).is_none() && memory.free() == 40);
        drop(first);
        let mut out = [0; 3];
        second.copy_to(10, &mut out);
        assert_eq!((&out, second.capacity(), memory.free()), (b"abc", 60, 40));
        drop(second);
        assert_eq!(memory.free(), 100);
    }
}
