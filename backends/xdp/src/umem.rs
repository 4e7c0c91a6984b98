//! The memory that frames are received into and sent from: chunks of a page, registered with the kernel (XDP_UMEM_REG).
//!
//! A chunk is the kernel's from when it is put into the fill queue, or a frame in it into the send queue, until it comes back by the receive queue, or the
//! completion queue. In between it is the process's, which may read it, and write it if nobody else has a handle on it.
//!
//! Behind those that are the kernel's at times lie others, of which it knows nothing: what came is copied there when programs leave so much unread that few chunks
//! would be left to receive into. They are not locked, and take memory once they are used.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_host::Fd;
use ringway_stack::device::{LendBuffer, RxBuffer};
use ringway_stack::wire::checksum;

/// Bytes of a chunk. (No smaller frame would do everywhere: in front of what it receives the kernel keeps 256 bytes, XDP_PACKET_HEADROOM.)
pub(crate) const CHUNK: usize = 4096;

/// The memory. Chunks are named by their numbers: the first `receives` of them are for what comes, those from `shared` on for copies of it.
#[derive(Debug)]
pub(crate) struct Umem {
    base: NonNull<u8>,
    receives: u32,
    shared: u32,
    chunks: u32,
    /// How many handles there are on each chunk to receive into, and then on each for copies.
    holders: Box<[AtomicU32]>,
    free: Mutex<Free>,
}

/// Chunks on which there is no handle any more.
#[derive(Debug)]
struct Free {
    /// To receive into: on their way to the fill queue.
    returned: Vec<u32>,
    /// For copies. (The last one that was used is used again first.)
    copies: Vec<u32>,
}

// SAFETY: the mapping lives as long as the value, and who may read or write which chunk when is said above; the counts are atomic.
unsafe impl Send for Umem {}
// SAFETY: as above.
unsafe impl Sync for Umem {}

impl Umem {
    /// Maps so many chunks, those that the kernel shares from a file that has as many.
    pub(crate) fn map_file(file: &Fd, receives: u32, sends: u32, copies: u32) -> io::Result<Self> {
        let umem = Self::map(receives, sends, copies)?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: it takes the place of the mapping's own first pages, to which nobody has a reference yet.
        let base = unsafe { libc::mmap(umem.base.as_ptr().cast(), umem.len(), protection, flags, file.raw(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as in `map`.
        unsafe { libc::madvise(umem.base.as_ptr().cast(), umem.len(), libc::MADV_DONTFORK) };
        Ok(umem)
    }

    /// Maps so many chunks.
    pub(crate) fn map(receives: u32, sends: u32, copies: u32) -> io::Result<Self> {
        let (shared, chunks) = (receives + sends, receives + sends + copies);
        // (The kernel brings the pages in that it locks: XDP_UMEM_REG.)
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        // SAFETY: a new mapping, where the kernel likes.
        let base = unsafe { libc::mmap(core::ptr::null_mut(), chunks as usize * CHUNK, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(base) = NonNull::new(base.cast()) else { return Err(io::ErrorKind::OutOfMemory.into()) };
        let free = Free { returned: Vec::with_capacity(receives as usize), copies: (shared..chunks).rev().collect() };
        let holders = (0..receives + copies).map(|_| AtomicU32::new(0)).collect();
        let umem = Self { base, receives, shared, chunks, holders, free: Mutex::new(free) };
        // SAFETY: the range is the mapping. What a child has of it would be taken from the kernel's sight by the first write of either.
        unsafe { libc::madvise(base.as_ptr().cast(), umem.mapped_len(), libc::MADV_DONTFORK) };
        Ok(umem)
    }

    pub(crate) fn address(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }

    /// Bytes that the kernel shares.
    pub(crate) fn len(&self) -> usize {
        self.shared as usize * CHUNK
    }

    /// The same of so many chunks to receive into and to send from.
    pub(crate) fn len_of(receives: u32, sends: u32) -> usize {
        (receives + sends) as usize * CHUNK
    }

    fn mapped_len(&self) -> usize {
        self.chunks as usize * CHUNK
    }

    /// Chunks to send from.
    pub(crate) fn sends(&self) -> core::ops::Range<u32> {
        self.receives..self.shared
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
        self.holders(chunk).store(1, Ordering::Relaxed);
        debug_assert!(at as usize + len as usize <= CHUNK, "a part of the chunk");
        Received { umem: Arc::clone(self), chunk, at: at as u16, len: len as u16 }
    }

    /// The same of a copy of the frame, whose chunk is free again. `None`: there is no room for one.
    pub(crate) fn hold_copy(self: &Arc<Self>, bytes: &[u8]) -> Option<Received> {
        debug_assert!(bytes.len() <= CHUNK, "a frame");
        let chunk = self.free().copies.pop()?;
        // SAFETY: within the mapping, as a frame is no longer than a chunk; nobody has a handle on this one, and the kernel knows nothing of it. What is copied lies
        // in another.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(chunk as usize * CHUNK), bytes.len()) };
        Some(self.hold(chunk, 0, bytes.len() as u32))
    }

    fn holders(&self, chunk: u32) -> &AtomicU32 {
        let at = if chunk < self.receives { chunk } else { self.receives + chunk - self.shared };
        &self.holders[at as usize]
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the chunks to receive into that have come back there. How many these are.
    pub(crate) fn take_returned(&self, into: &mut Vec<u32>) -> usize {
        let returned = &mut self.free().returned;
        let count = returned.len();
        into.append(returned);
        count
    }

    /// How many copies there can be, and are.
    pub(crate) fn copies(&self) -> (usize, usize) {
        let all = (self.chunks - self.shared) as usize;
        (all, all - self.free().copies.len())
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference into the mapping any more. (The kernel has its own on the pages.)
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped_len()) };
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
    /// A copy of the bytes.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.bytes().to_vec()
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the handle keeps the chunk from the kernel. Who writes to it is the program that it was lent to, which is told that it may.
        unsafe { self.umem.bytes(self.chunk, self.at.into(), self.len.into()) }
    }
}

impl Clone for Received {
    fn clone(&self) -> Self {
        self.umem.holders(self.chunk).fetch_add(1, Ordering::Relaxed);
        Self { umem: Arc::clone(&self.umem), ..*self }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        // (Release and acquire: what other handles' owners have read, they have read before the kernel writes there again.)
        if self.umem.holders(self.chunk).fetch_sub(1, Ordering::AcqRel) == 1 {
            let mut free = self.umem.free();
            if self.chunk < self.umem.receives { free.returned.push(self.chunk) } else { free.copies.push(self.chunk) }
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

    fn returned(umem: &Umem) -> Vec<u32> {
        let mut chunks = Vec::new();
        assert_eq!(umem.take_returned(&mut chunks), chunks.len());
        chunks
    }

    #[test]
    fn a_chunk_comes_back_when_its_last_handle_is_gone() {
        let umem = Arc::new(Umem::map(4, 2, 0).unwrap());
        let whole = umem.hold(2, 256, 100);
        let part = whole.slice(10, 20);
        assert_eq!((whole.len(), part.len(), part.at), (100, 20, 266));
        drop(whole);
        assert!(returned(&umem).is_empty());
        let last = part.into_slice(5, 15);
        std::thread::spawn(move || drop(last)).join().unwrap();
        assert_eq!(returned(&umem), [2]);
    }

    #[test]
    fn a_copy_is_a_handle_as_any_other_and_its_place_is_used_again() {
        let umem = Arc::new(Umem::map(4, 2, 2).unwrap());
        let text = |handle: &Received| {
            let mut bytes = vec![0; handle.len()];
            handle.copy_to(0, &mut bytes);
            bytes
        };
        let (one, two) = (umem.hold_copy(b"one").unwrap(), umem.hold_copy(&[2; CHUNK]).unwrap());
        assert!(umem.hold_copy(b"three").is_none());
        let part = one.slice(1, 2);
        assert_eq!((text(&one), text(&part), text(&two)), (b"one".to_vec(), b"ne".to_vec(), vec![2; CHUNK]));
        drop(one);
        assert_eq!((umem.copies(), text(&part)), ((2, 2), b"ne".to_vec()));
        drop(part);
        assert_eq!((umem.copies(), returned(&umem)), ((2, 1), Vec::new()), "the kernel is given none of them");
        assert_eq!(text(&umem.hold_copy(b"three").unwrap()), b"three");
    }

    #[test]
    fn frames_lie_where_the_kernel_may_put_them_and_nowhere_else() {
        let umem = Umem::map(4, 2, 2).unwrap();
        assert_eq!((umem.len(), umem.sends(), umem.receives()), (6 * 4096, 4..6, 0..4));
        assert_eq!(umem.received(3 * 4096 + 256, 1514), Some((3, 256)));
        for (address, len) in [(4 * 4096, 1), (6 * 4096, 1), (4095, 2), (u64::MAX, 1), (0, 4097)] {
            assert_eq!(umem.received(address, len), None);
        }
    }
}
