//! The memory that frames are received into and sent from: chunks of a page, registered with the kernel (XDP_UMEM_REG).
//!
//! A chunk is the kernel's from when it is put into the fill queue, or a frame in it into the send queue, until it comes back by the receive queue, or the
//! completion queue. In between it is the process's, which may read it, and write it if nobody else has a handle on it.
//!
//! Behind those that are the kernel's at times lie others, of which it knows nothing: what came is copied there when programs leave so much unread that few chunks
//! would be left to receive into. They are not locked, and take memory once they are used.

mod received;

pub use received::Received;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_host::Fd;

use crate::metadata;

/// Bytes of a chunk. (No smaller frame would do everywhere: in front of what it receives the kernel keeps 256 bytes, XDP_PACKET_HEADROOM.)
pub(crate) const CHUNK: usize = 4096;

/// The memory. Chunks are named by their numbers: the first `receives` of them are for what comes, those from `shared` on for copies of it.
#[derive(Debug)]
pub(crate) struct Umem {
    base: NonNull<u8>,
    receives: u32,
    shared: u32,
    chunks: u32,
    /// What is sent begins so far behind its chunk's beginning: there is metadata in front of it, or may be.
    send_at: usize,
    /// How many handles there are on each chunk to receive into, and then on each for copies.
    holders: Box<[AtomicU32]>,
    /// What of each of these a handle is on, and where that goes on ([`Piece`]).
    pieces: Box<[AtomicU64]>,
    free: Mutex<Free>,
}

/// Bytes of a chunk that a handle is on, and the chunk with the bytes behind them, if there is one: segments of a stream that were merged stay where they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) chunk: u32,
    /// Both are within [`CHUNK`] bytes.
    pub(crate) at: u16,
    pub(crate) len: u16,
    next: Option<u32>,
}

impl Piece {
    pub(crate) const fn new(chunk: u32, at: u32, len: u32) -> Self {
        Self { chunk, at: at as u16, len: len as u16, next: None }
    }

    /// What is behind its first `len` bytes, which are no more than it has.
    pub(crate) const fn without(self, len: usize) -> Self {
        Self { at: self.at + len as u16, len: self.len - len as u16, ..self }
    }

    /// All but its chunk, as the table has it.
    const fn packed(self) -> u64 {
        let next = match self.next {
            Some(next) => next,
            None => u32::MAX,
        };
        (next as u64) << 32 | (self.at as u64) << 16 | self.len as u64
    }

    const fn unpacked(chunk: u32, packed: u64) -> Self {
        let next = (packed >> 32) as u32;
        Self { chunk, at: (packed >> 16) as u16, len: packed as u16, next: if next == u32::MAX { None } else { Some(next) } }
    }
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
        let pieces = (0..receives + copies).map(|_| AtomicU64::new(0)).collect();
        let umem = Self { base, receives, shared, chunks, send_at: 0, holders, pieces, free: Mutex::new(free) };
        // SAFETY: the range is the mapping. What a child has of it would be taken from the kernel's sight by the first write of either.
        unsafe { libc::madvise(base.as_ptr().cast(), umem.mapped_len(), libc::MADV_DONTFORK) };
        Ok(umem)
    }

    /// The same with room for metadata in front of each frame that is sent. Before it is registered.
    pub(crate) fn with_metadata(mut self) -> Self {
        self.send_at = metadata::LEN;
        self
    }

    /// Where in its chunk a frame is that is sent, or a part of it.
    pub(crate) const fn send_at(&self) -> usize {
        self.send_at
    }

    /// The most bytes of a frame that one chunk has room for.
    pub(crate) const fn send_room(&self) -> usize {
        CHUNK - self.send_at
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

    /// The kernel has received a frame, or it was copied: the first handle on it.
    pub(crate) fn hold(self: &Arc<Self>, piece: Piece) -> Received {
        debug_assert!(usize::from(piece.at) + usize::from(piece.len) <= CHUNK, "a part of the chunk");
        self.holders(piece.chunk).store(1, Ordering::Relaxed);
        self.set_piece(piece);
        Received::new(Arc::clone(self), piece)
    }

    /// A copy of a frame, whose chunk is free again. `None`: there is no room for one.
    pub(crate) fn copy(&self, bytes: &[u8]) -> Option<Piece> {
        debug_assert!(bytes.len() <= CHUNK, "a frame");
        let chunk = self.free().copies.pop()?;
        // SAFETY: within the mapping, as a frame is no longer than a chunk; nobody has a handle on this one, and the kernel knows nothing of it. What is copied lies
        // in another.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(chunk as usize * CHUNK), bytes.len()) };
        Some(Piece::new(chunk, 0, bytes.len() as u32))
    }

    /// A handle on a copy of a frame, in as many chunks as it takes. `None`: there is no room for one.
    pub(crate) fn hold_copy(self: &Arc<Self>, frame: &[u8]) -> Option<Received> {
        let mut whole: Option<(Received, u32)> = None;
        for bytes in frame.chunks(CHUNK) {
            // (What was copied so far is given back by its handle.)
            let piece = self.copy(bytes)?;
            whole = Some(match whole {
                None => (self.hold(piece), piece.chunk),
                Some((mut whole, last)) => {
                    whole.append(last, piece);
                    (whole, piece.chunk)
                }
            });
        }
        whole.map(|(whole, _)| whole)
    }

    fn place(&self, chunk: u32) -> usize {
        let at = if chunk < self.receives { chunk } else { self.receives + chunk - self.shared };
        at as usize
    }

    fn holders(&self, chunk: u32) -> &AtomicU32 {
        &self.holders[self.place(chunk)]
    }

    /// The piece in a chunk on which there is a handle.
    fn piece(&self, chunk: u32) -> Piece {
        // (It was written before there were handles in other threads.)
        Piece::unpacked(chunk, self.pieces[self.place(chunk)].load(Ordering::Relaxed))
    }

    fn set_piece(&self, piece: Piece) {
        self.pieces[self.place(piece.chunk)].store(piece.packed(), Ordering::Relaxed);
    }

    /// No handle is on these bytes any more, nor on what goes on behind them.
    fn give_back(&self, first: u32) {
        let mut free = self.free();
        let mut next = Some(first);
        while let Some(chunk) = next {
            next = self.piece(chunk).next;
            if chunk < self.receives { free.returned.push(chunk) } else { free.copies.push(chunk) }
        }
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

#[cfg(test)]
impl Umem {
    /// As the kernel does: a frame is there, on which there is no handle.
    pub(crate) fn receive(&self, chunk: u32, at: usize, bytes: &[u8]) {
        assert!(self.receives().contains(&chunk) && at + bytes.len() <= CHUNK, "a part of a chunk");
        // SAFETY: within the mapping, and nobody reads it meanwhile.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(chunk as usize * CHUNK + at), bytes.len()) };
    }
}

#[cfg(test)]
mod tests {
    use ringway_stack::device::RxBuffer as _;

    use super::*;

    fn returned(umem: &Umem) -> Vec<u32> {
        let mut chunks = Vec::new();
        assert_eq!(umem.take_returned(&mut chunks), chunks.len());
        chunks
    }

    #[test]
    fn a_chunk_comes_back_when_its_last_handle_is_gone() {
        let umem = Arc::new(Umem::map(4, 2, 0).unwrap());
        let whole = umem.hold(Piece::new(2, 256, 100));
        let part = whole.slice(10, 20);
        assert_eq!((whole.len(), part.len()), (100, 20));
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
        let copy = |bytes: &[u8]| umem.copy(bytes).map(|piece| umem.hold(piece));
        let (one, two) = (copy(b"one").unwrap(), copy(&[2; CHUNK]).unwrap());
        assert!(copy(b"three").is_none());
        let part = one.slice(1, 2);
        assert_eq!((text(&one), text(&part), text(&two)), (b"one".to_vec(), b"ne".to_vec(), vec![2; CHUNK]));
        drop(one);
        assert_eq!((umem.copies(), text(&part)), ((2, 2), b"ne".to_vec()));
        drop(part);
        assert_eq!((umem.copies(), returned(&umem)), ((2, 1), Vec::new()), "the kernel is given none of them");
        assert_eq!(text(&copy(b"three").unwrap()), b"three");
    }

    #[test]
    fn a_copy_of_a_long_frame_takes_several_places_or_none() {
        let umem = Arc::new(Umem::map(4, 2, 3).unwrap());
        let long: Vec<u8> = (0..2 * CHUNK + 100).map(|at| (at % 251) as u8).collect();
        let copy = umem.hold_copy(&long).unwrap();
        assert_eq!((copy.to_vec(), umem.copies()), (long.clone(), (3, 3)));
        drop(copy);
        let _one = umem.hold_copy(b"one").unwrap();
        assert!(umem.hold_copy(&long).is_none());
        assert_eq!(umem.copies(), (3, 1), "what was copied of it is free");
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
