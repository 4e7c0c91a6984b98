//! A ring's memory: chunks that frames are received into, buffers that they are sent from, both registered with the card; and chunks for copies of what was
//! received, of which the card knows nothing.
//!
//! A chunk is the card's from when it is posted until its completion is taken. Then it is the process's, until the last handle on it is gone. A send buffer is
//! read by the card while a frame that refers to it is on its way, for which the send queue holds a handle; its bytes are written before that.

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_stack::device::{HEAD_MAX, LendBuffer, RxBuffer};
use ringway_stack::wire::checksum;

use crate::verbs::{Pd, Region};

/// Bytes of a send buffer.
pub(crate) const SEND_BUFFER: usize = 4096;
/// Bytes of a frame that is short: most of these have no more.
const LINE: usize = 64;
/// Bytes of a page of the larger kind.
const HUGE: usize = 2 << 20;

/// How much of each there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Bytes of a chunk: a power of two.
    pub(crate) chunk: usize,
    pub(crate) receives: u32,
    pub(crate) sends: u32,
    pub(crate) copies: u32,
    /// Chunks to receive into come back by [`Memory::take_returned`]; else who has them looks for those that nobody holds ([`Memory::is_held`]).
    pub(crate) returned: bool,
    /// On huge pages, where there are some.
    pub(crate) huge_pages: bool,
}

impl Sizes {
    fn sends_at(&self) -> usize {
        self.receives as usize * self.chunk
    }

    fn registered(&self) -> usize {
        self.sends_at() + self.sends as usize * SEND_BUFFER
    }

    fn mapped(&self) -> usize {
        (self.registered() + self.copies as usize * self.chunk).next_multiple_of(HUGE)
    }
}

/// The memory. Places are numbered: first those of chunks to receive into, then send buffers, then chunks for copies.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    sizes: Sizes,
    /// How many handles there are on each place.
    holders: Box<[AtomicU32]>,
    free: Mutex<Free>,
    /// Chunks have been returned, perhaps: so that who asks for them with each look takes no lock in vain.
    has_returned: AtomicBool,
    /// Places below are looked for by who has them: the others come back.
    looked_for: u32,
    /// `None` only in tests, which have no card.
    region: Option<Region>,
}

/// Places on which there is no handle any more.
#[derive(Debug, Default)]
struct Free {
    /// To receive into: on their way to the card.
    returned: Vec<u32>,
    sends: Vec<u32>,
    copies: Vec<u32>,
}

// SAFETY: the mapping lives as long as the value, and who may read or write which place when is said above; the counts are atomic.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps it and registers it.
    pub(crate) fn register(pd: &Arc<Pd>, sizes: Sizes) -> io::Result<Self> {
        let mut memory = Self::map(sizes)?;
        // SAFETY: the mapping is there until the value is dropped, which drops the region first. The card writes to what was posted alone.
        memory.region = Some(unsafe { Region::new(pd, memory.base.as_ptr(), sizes.registered()) }?);
        Ok(memory)
    }

    fn map(sizes: Sizes) -> io::Result<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, where the kernel likes.
        let map = |more| unsafe { libc::mmap(core::ptr::null_mut(), sizes.mapped(), protection, flags | more, -1, 0) };
        let mut base = if sizes.huge_pages { map(libc::MAP_HUGETLB) } else { libc::MAP_FAILED };
        if base == libc::MAP_FAILED {
            base = map(libc::MAP_NORESERVE);
            if base == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let advice = if sizes.huge_pages { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
            // SAFETY: the range is the mapping. (What the kernel thinks of the advice matters little.)
            unsafe { libc::madvise(base, sizes.mapped(), advice) };
        }
        // SAFETY: the range is the mapping. What a child has of it would be taken from the card's sight by the first write of either.
        unsafe { libc::madvise(base, sizes.mapped(), libc::MADV_DONTFORK) };
        let Some(base) = NonNull::new(base.cast::<u8>()) else { return Err(io::ErrorKind::OutOfMemory.into()) };
        // (A card that reads page tables by itself wants pages that are there.)
        for at in (0..sizes.registered()).step_by(4096) {
            // SAFETY: within the mapping, which nobody knows yet.
            unsafe { base.as_ptr().add(at).write_volatile(0) };
        }
        let places = sizes.receives + sizes.sends + sizes.copies;
        let copies_from = sizes.receives + sizes.sends;
        let free = Free {
            returned: if sizes.returned { Vec::with_capacity(sizes.receives as usize) } else { Vec::new() },
            sends: (sizes.receives..copies_from).rev().collect(),
            copies: (copies_from..places).rev().collect(),
        };
        let looked_for = if sizes.returned { 0 } else { sizes.receives };
        let holders = (0..places).map(|_| AtomicU32::new(0)).collect();
        Ok(Self { base, sizes, holders, free: Mutex::new(free), has_returned: AtomicBool::new(false), looked_for, region: None })
    }

    /// The key by which the card knows it.
    pub(crate) fn lkey(&self) -> u32 {
        self.region.as_ref().map_or(0, Region::lkey)
    }

    /// Chunks to receive into.
    pub(crate) fn receives(&self) -> Range<u32> {
        0..self.sizes.receives
    }

    /// Bytes of a chunk.
    pub(crate) fn chunk(&self) -> usize {
        self.sizes.chunk
    }

    /// Where a place begins.
    #[inline(always)]
    pub(crate) fn at(&self, place: u32) -> *mut u8 {
        let Sizes { chunk, receives, sends, .. } = self.sizes;
        let offset = match place.checked_sub(receives) {
            None => place as usize * chunk,
            Some(send) if send < sends => self.sizes.sends_at() + send as usize * SEND_BUFFER,
            Some(copy) => self.sizes.registered() + (copy - sends) as usize * chunk,
        };
        debug_assert!(place < receives + sends + self.sizes.copies, "one of the places");
        // SAFETY: within the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// The first bytes of a chunk, or of several that lie one behind the other.
    ///
    /// # Safety
    /// The chunk is not the card's, nobody writes to these bytes meanwhile, and there are as many.
    pub(crate) unsafe fn bytes(&self, chunk: u32, len: usize) -> &[u8] {
        debug_assert!(self.at(chunk).addr() + len <= self.base.as_ptr().addr() + self.sizes.mapped());
        // SAFETY: within the mapping, which was zeroes at first; and the caller's promise.
        unsafe { core::slice::from_raw_parts(self.at(chunk), len) }
    }

    /// Copies the first `len` bytes of a chunk to receive into, and some of what lies behind them, since a copy of a length that is known takes a few instructions.
    ///
    /// # Safety
    /// As of [`bytes`](Self::bytes), of the whole chunk.
    #[inline(always)]
    pub(crate) unsafe fn copy_head(&self, chunk: u32, len: usize, head: &mut [u8; HEAD_MAX]) {
        debug_assert!(chunk < self.sizes.receives && len <= HEAD_MAX);
        // SAFETY: a chunk has more bytes than a head, and a head a multiple of a line.
        unsafe {
            let (from, to) = (self.base.as_ptr().add(chunk as usize * self.sizes.chunk), head.as_mut_ptr());
            core::ptr::copy_nonoverlapping(from, to, LINE);
            if len > LINE {
                core::ptr::copy_nonoverlapping(from.add(LINE), to.add(LINE), HEAD_MAX - LINE);
            }
        }
    }

    /// The card has received a frame: the first handle on it.
    pub(crate) fn hold(self: &Arc<Self>, chunk: u32, len: u32) -> Received {
        self.holders[chunk as usize].store(1, Ordering::Relaxed);
        Received { memory: Arc::clone(self), chunk, at: 0, len }
    }

    /// The card has received frames that lie one behind the other, from `at` on in a chunk of which others may be held: one handle more.
    ///
    /// # Safety
    /// There is such a chunk, and these bytes are from there on.
    #[inline]
    pub(crate) unsafe fn hold_run(self: &Arc<Self>, chunk: u32, at: u32, len: u32) -> Received {
        debug_assert!(chunk < self.sizes.receives, "one of the chunks");
        // SAFETY: the caller's promise.
        unsafe { self.holders.get_unchecked(chunk as usize) }.fetch_add(1, Ordering::Relaxed);
        Received { memory: Arc::clone(self), chunk, at, len }
    }

    /// Whether there is a handle on a place.
    #[inline]
    pub(crate) fn is_held(&self, place: u32) -> bool {
        // (As of who lets go of it: the card may write there afterwards.)
        self.holders[place as usize].load(Ordering::Acquire) > 0
    }

    /// The same of a copy of the frame, whose chunk is free again. `None`: there is no room for one.
    pub(crate) fn hold_copy(self: &Arc<Self>, bytes: &[u8]) -> Option<Received> {
        debug_assert!(bytes.len() <= self.sizes.chunk, "a frame");
        let copy = self.free().copies.pop()?;
        // SAFETY: a frame is no longer than a chunk; nobody has a handle on this one, and the card knows nothing of it.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(copy), bytes.len()) };
        Some(self.hold(copy, bytes.len() as u32))
    }

    /// A send buffer.
    pub(crate) fn take_send(self: &Arc<Self>) -> Option<HostBuffer> {
        let place = self.free().sends.pop()?;
        self.holders[place as usize].store(1, Ordering::Relaxed);
        Some(HostBuffer { memory: Arc::clone(self), place })
    }

    /// Bytes of the send buffers that are free.
    pub(crate) fn free_sends(&self) -> usize {
        self.free().sends.len()
    }

    /// How many send buffers there are.
    pub(crate) fn sends(&self) -> usize {
        self.sizes.sends as usize
    }

    /// Whether chunks to receive into may have come back.
    #[inline(always)]
    pub(crate) fn has_returned(&self) -> bool {
        self.has_returned.load(Ordering::Relaxed)
    }

    /// Moves the chunks to receive into that have come back there. How many these are.
    pub(crate) fn take_returned(&self, into: &mut Vec<u32>) -> usize {
        if !self.has_returned() {
            return 0;
        }
        let mut free = self.free();
        self.has_returned.store(false, Ordering::Relaxed);
        let returned = &mut free.returned;
        let count = returned.len();
        into.append(returned);
        count
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn add_holder(&self, place: u32) {
        self.holders[place as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A handle is gone.
    ///
    /// # Safety
    /// It was one on that place.
    #[inline]
    unsafe fn let_go(&self, place: u32) {
        debug_assert!((place as usize) < self.holders.len(), "one of the places");
        // SAFETY: who made the handle has counted it there.
        let holders = unsafe { self.holders.get_unchecked(place as usize) };
        // (Release and acquire: what other handles' owners have read, they have read before the card or somebody else writes there again.)
        if holders.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        if place >= self.looked_for {
            self.put_back(place);
        }
    }

    #[inline(never)]
    fn put_back(&self, place: u32) {
        let Sizes { receives, sends, .. } = self.sizes;
        let mut free = self.free();
        let list = match place {
            _ if place < receives => {
                self.has_returned.store(true, Ordering::Relaxed);
                &mut free.returned
            }
            _ if place < receives + sends => &mut free.sends,
            _ => &mut free.copies,
        };
        list.push(place);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.region = None;
        // SAFETY: the card knows nothing of it any more, and nobody has a reference into it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.sizes.mapped()) };
    }
}

/// A handle on received bytes.
#[derive(Debug)]
pub struct Received {
    memory: Arc<Memory>,
    chunk: u32,
    /// Invariant: both together are within a chunk, or within those of a run that begins there.
    at: u32,
    len: u32,
}

impl Received {
    fn bytes(&self) -> &[u8] {
        let end = (self.at + self.len) as usize;
        // SAFETY: the handle keeps the chunk from the card. Who writes to it is the program that it was lent to, which is told that it may.
        unsafe { &self.memory.bytes(self.chunk, end)[self.at as usize..] }
    }
}

impl Clone for Received {
    fn clone(&self) -> Self {
        self.memory.add_holder(self.chunk);
        Self { memory: Arc::clone(&self.memory), ..*self }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        // SAFETY: this was the handle.
        unsafe { self.memory.let_go(self.chunk) };
    }
}

impl RxBuffer for Received {
    fn len(&self) -> usize {
        self.len as usize
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
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len as usize), "a part of the bytes");
        (self.at, self.len) = (self.at + offset as u32, len as u32);
        self
    }
}

impl LendBuffer for Received {
    fn for_each_piece(&self, mut piece: impl FnMut(*const u8, usize)) {
        if self.len > 0 {
            piece(self.bytes().as_ptr(), self.len as usize);
        }
    }

    fn only_piece(&self) -> Option<(*const u8, usize)> {
        (self.len > 0).then(|| (self.bytes().as_ptr(), self.len as usize))
    }

    /// The memory is the process's own.
    fn make_writable(&mut self) {}

    fn take_written(&mut self) {}
}

/// A handle on a send buffer of the process's memory.
#[derive(Debug)]
pub(crate) struct HostBuffer {
    memory: Arc<Memory>,
    place: u32,
}

impl HostBuffer {
    /// Where bytes of it lie, for the card or a copy. Past the end: panics.
    #[inline(always)]
    pub(crate) fn part(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset.checked_add(len).is_some_and(|end| end <= SEND_BUFFER), "a part of the buffer");
        // SAFETY: within the buffer.
        unsafe { self.memory.at(self.place).add(offset) }
    }

    fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        // SAFETY: within the buffer, which was zeroes at first; the handles of a ring's buffers are used by whoever has the ring, one thread at a time, and
        // nobody writes while this reference is there.
        unsafe { core::slice::from_raw_parts(self.part(offset, len), len) }
    }
}

impl Clone for HostBuffer {
    fn clone(&self) -> Self {
        self.memory.add_holder(self.place);
        Self { memory: Arc::clone(&self.memory), place: self.place }
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        // SAFETY: this was the handle.
        unsafe { self.memory.let_go(self.place) };
    }
}

impl HostBuffer {
    /// The key by which the card knows it.
    #[inline(always)]
    pub(crate) fn lkey(&self) -> u32 {
        self.memory.lkey()
    }

    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        // SAFETY: within the buffer; nobody has a reference to these bytes meanwhile, as above, and the card reads others (`TxBuffer`: bytes are written once,
        // before they are sent).
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.part(offset, bytes.len()), bytes.len()) };
    }

    pub(crate) fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(self.bytes(offset, out.len()));
    }

    pub(crate) fn checksum(&self, offset: usize, len: usize) -> u16 {
        checksum::sum(self.bytes(offset, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Arc<Memory> {
        Arc::new(Memory::map(Sizes { chunk: 2048, receives: 4, sends: 2, copies: 1, returned: true, huge_pages: true }).unwrap())
    }

    #[test]
    fn a_chunk_comes_back_when_its_last_handle_is_gone() {
        let memory = memory();
        let whole = memory.hold(2, 100);
        let part = whole.slice(10, 20).into_slice(5, 15);
        drop(whole);
        let mut returned = Vec::new();
        assert_eq!((memory.take_returned(&mut returned), part.len(), part.at), (0, 15, 15));
        std::thread::spawn(move || drop(part)).join().unwrap();
        assert_eq!((memory.take_returned(&mut returned), &returned[..]), (1, &[2][..]));
    }

    #[test]
    fn a_chunk_that_is_looked_for_is_in_no_list() {
        let sizes = Sizes { chunk: 64, receives: 4, sends: 0, copies: 0, returned: false, huge_pages: false };
        let memory = Arc::new(Memory::map(sizes).unwrap());
        let held = memory.hold(3, 64);
        assert!(memory.is_held(3) && !memory.is_held(2));
        drop(held);
        assert!(!memory.is_held(3) && !memory.has_returned());
    }

    #[test]
    fn copies_and_send_buffers_are_places_of_their_own() {
        let memory = memory();
        let copy = memory.hold_copy(b"copied").unwrap();
        assert!(memory.hold_copy(b"no room").is_none());
        let (mut first, second) = (memory.take_send().unwrap(), memory.take_send().unwrap());
        assert!(memory.take_send().is_none() && memory.free_sends() == 0);
        first.write(4090, b"sent");
        let held = first.clone();
        drop((first, second));
        let mut out = [0; 4];
        held.copy_to(4090, &mut out);
        assert_eq!((&out, memory.free_sends()), (b"sent", 1));
        let mut bytes = [0; 6];
        copy.copy_to(0, &mut bytes);
        assert_eq!(&bytes, b"copied");
        drop((held, copy));
        assert!(memory.free_sends() == 2 && memory.hold_copy(b"again").is_some());
        assert_eq!(memory.take_returned(&mut Vec::new()), 0, "the card is given none of them");
    }

    #[test]
    fn places_do_not_overlap() {
        let memory = memory();
        let starts: Vec<usize> = (0..7).map(|place| memory.at(place).addr() - memory.at(0).addr()).collect();
        assert_eq!(starts, [0, 2048, 4096, 6144, 8192, 12288, 16384]);
        assert_eq!((memory.sizes.registered(), memory.sizes.mapped()), (16384, HUGE));
    }
}
