//! The memory that frames are received into and sent from: chunks of a page, registered with the kernel (XDP_UMEM_REG).
//!
//! A chunk is the kernel's from when it is put into the fill queue, or a frame in it into the send queue, until it comes back by the receive queue, or the
//! completion queue. In between it is the process's, which may read it, and write it if nobody else has a handle on it.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_stack::device::{LendBuffer, RxBuffer};
use ringway_stack::wire::checksum;

/// Bytes of a chunk. (No smaller frame would do everywhere: in front of what it receives the kernel keeps 256 bytes, XDP_PACKET_HEADROOM.)
pub(crate) const CHUNK: usize = 4096;

/// The memory. Chunks are named by their numbers; the first `receives` of them are for what comes.
#[derive(Debug)]
pub(crate) struct Umem {
    base: NonNull<u8>,
    chunks: u32,
    receives: u32,
    /// How many handles there are on each chunk to receive into.
    holders: Box<[AtomicU32]>,
    /// Chunks whose last handle is gone, on their way to the fill queue.
    returned: Mutex<Vec<u32>>,
}

// SAFETY: the mapping lives as long as the value, and who may read or write which chunk when is said above; the counts are atomic.
unsafe impl Send for Umem {}
// SAFETY: as above.
unsafe impl Sync for Umem {}

impl Umem {
    /// Maps so many chunks.
    pub(crate) fn map(receives: u32, sends: u32) -> io::Result<Self> {
        let chunks = receives + sends;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE);
        // SAFETY: a new mapping, where the kernel likes.
        let base = unsafe { libc::mmap(core::ptr::null_mut(), chunks as usize * CHUNK, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(base) = NonNull::new(base.cast()) else { return Err(io::ErrorKind::OutOfMemory.into()) };
        let umem = Self {
            base,
            chunks,
            receives,
            holders: (0..receives).map(|_| AtomicU32::new(0)).collect(),
            returned: Mutex::new(Vec::with_capacity(receives as usize)),
        };
        // SAFETY: the range is the mapping. What a child has of it would be taken from the kernel's sight by the first write of either.
        unsafe { libc::madvise(base.as_ptr().cast(), umem.len(), libc::MADV_DONTFORK) };
        Ok(umem)
    }

    pub(crate) fn address(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.chunks as usize * CHUNK
    }

    /// Chunks to send from.
    pub(crate) fn sends(&self) -> core::ops::Range<u32> {
        self.receives..self.chunks
    }

    /// Chunks to receive into.
    pub(crate) fn receives(&self) -> core::ops::Range<u32> {
        0..self.receives
    }

    /// Bytes of a received frame, or of a part of it, where they are: `None` where the kernel named no place for one.
    pub(crate) fn received(&self, address: u64, len: u32) -> Option<(u32, u32)> {
        let (chunk, at) = (address / CHUNK as u64, address % CHUNK as u64);
        let fits = at + u64::from(len) <= CHUNK as u64 && chunk < u64::from(self.receives);
        fits.then_some((chunk as u32, at as u32))
    }

    /// The bytes of a chunk from there on.
    ///
    /// # Safety
    /// The chunk is not the kernel's, nobody writes to these bytes meanwhile, and they are the chunk's.
    pub(crate) unsafe fn bytes(&self, chunk: u32, at: u32, len: u32) -> &[u8] {
        debug_assert!(chunk < self.chunks && at as usize + len as usize <= CHUNK);
        // SAFETY: within the mapping, which was zeroes at first; and the caller's promise.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr().add(chunk as usize * CHUNK + at as usize), len as usize) }
    }

    /// A chunk to send from.
    ///
    /// # Safety
    /// The chunk is one of [`Umem::sends`], is not the kernel's, and the caller has no other reference to it.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that it is the only user of this chunk")]
    pub(crate) unsafe fn chunk_mut(&self, chunk: u32) -> &mut [u8] {
        debug_assert!(self.sends().contains(&chunk));
        // SAFETY: within the mapping; and the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(self.base.as_ptr().add(chunk as usize * CHUNK), CHUNK) }
    }

    /// The kernel has received a frame: the first handle on it.
    pub(crate) fn hold(self: &Arc<Self>, chunk: u32, at: u32, len: u32) -> Received {
        self.holders[chunk as usize].store(1, Ordering::Relaxed);
        debug_assert!(at as usize + len as usize <= CHUNK, "a part of the chunk");
        Received { umem: Arc::clone(self), chunk, at: at as u16, len: len as u16 }
    }

    /// Chunks that have come back.
    pub(crate) fn returned(&self) -> MutexGuard<'_, Vec<u32>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference into the mapping any more. (The kernel has its own on the pages.)
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len()) };
    }
}

/// A handle on received bytes.
#[derive(Debug)]
pub struct Received {
    umem: Arc<Umem>,
    chunk: u32,
    /// Both are within [`CHUNK`] bytes.
    at: u16,
    len: u16,
}

impl Received {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the handle keeps the chunk from the kernel. Who writes to it is the program that it was lent to, which is told that it may.
        unsafe { self.umem.bytes(self.chunk, self.at.into(), self.len.into()) }
    }
}

impl Clone for Received {
    fn clone(&self) -> Self {
        self.umem.holders[self.chunk as usize].fetch_add(1, Ordering::Relaxed);
        Self { umem: Arc::clone(&self.umem), ..*self }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        // (Release and acquire: what other handles' owners have read, they have read before the kernel writes there again.)
        if self.umem.holders[self.chunk as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
            self.umem.returned().push(self.chunk);
        }
    }
}

impl RxBuffer for Received {
    fn len(&self) -> usize {
        self.len.into()
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.bytes()[offset..offset + out.len()]);
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        checksum::sum(&self.bytes()[offset..offset + len])
    }

    fn slice(&self, offset: usize, len: usize) -> Self {
        self.clone().into_slice(offset, len)
    }

    fn into_slice(mut self, offset: usize, len: usize) -> Self {
        assert!(offset + len <= usize::from(self.len), "a part of the bytes");
        (self.at, self.len) = (self.at + offset as u16, len as u16);
        self
    }
}

impl LendBuffer for Received {
    fn for_each_piece(&self, mut piece: impl FnMut(*const u8, usize)) {
        if self.len > 0 {
            piece(self.bytes().as_ptr(), self.len.into());
        }
    }

    fn only_piece(&self) -> Option<(*const u8, usize)> {
        (self.len > 0).then(|| (self.bytes().as_ptr(), self.len.into()))
    }

    /// The memory is the process's own.
    fn make_writable(&mut self) {}

    fn take_written(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_comes_back_when_its_last_handle_is_gone() {
        let umem = Arc::new(Umem::map(4, 2).unwrap());
        let whole = umem.hold(2, 256, 100);
        let part = whole.slice(10, 20);
        assert_eq!((whole.len(), part.len(), part.at), (100, 20, 266));
        drop(whole);
        assert!(umem.returned().is_empty());
        let last = part.into_slice(5, 15);
        std::thread::spawn(move || drop(last)).join().unwrap();
        assert_eq!(*umem.returned(), [2]);
    }

    #[test]
    fn frames_lie_where_the_kernel_may_put_them_and_nowhere_else() {
        let umem = Umem::map(4, 2).unwrap();
        assert_eq!(umem.received(3 * 4096 + 256, 1514), Some((3, 256)));
        for (address, len) in [(4 * 4096, 1), (4095, 2), (u64::MAX, 1), (0, 4097)] {
            assert_eq!(umem.received(address, len), None);
        }
    }
}
