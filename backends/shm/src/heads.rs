//! Where small frames are kept for a ring that lends them ([`ringway_stack::device::Queues::lend_heads`]).
//!
//! A small frame travels inside its slot, and a slot is wanted back at once. So the device receives it into a buffer of its own, as a NIC
//! writes a frame into a receive buffer: from there it goes up by reference, and comes back when the last handle is dropped.

use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::Arc;

use ringway_host::HeadMemory;

use crate::pool::release;
use crate::protocol::Returned;
use crate::settings::Settings;

/// Bytes of a buffer: the longest head.
const HEAD_BYTES: usize = ringway_stack::device::HEAD_MAX;
/// Buffers that are made at a time.
const CHUNK: usize = 256;

/// A chunk's memory: the program's, or our own.
#[derive(Debug)]
struct Buffers {
    /// Invariant: `CHUNK` of them, until this is dropped.
    first: NonNull<UnsafeCell<[u8; HEAD_BYTES]>>,
    owner: Option<HeadMemory>,
}

impl Buffers {
    /// (What the program's allocator does not give is our own.)
    fn new(memory: Option<HeadMemory>) -> Self {
        let given = memory.and_then(|memory| {
            // SAFETY: the program's function, as it was handed in.
            let first = NonNull::new(unsafe { (memory.allocate)(HEAD_BYTES * CHUNK) })?.cast();
            // SAFETY: so many bytes are there, by the function's contract.
            unsafe { ptr::write_bytes(first.as_ptr(), 0, CHUNK) };
            Some(Self { first, owner: Some(memory) })
        });
        given.unwrap_or_else(|| {
            // SAFETY: zero is a value of bytes.
            let own: Box<[UnsafeCell<[u8; HEAD_BYTES]>]> = unsafe { Box::new_zeroed_slice(CHUNK).assume_init() };
            // SAFETY: a box is not null.
            Self { first: unsafe { NonNull::new_unchecked(Box::into_raw(own).cast()) }, owner: None }
        })
    }

    #[inline]
    fn at(&self, index: u8) -> *mut [u8; HEAD_BYTES] {
        const { assert!(CHUNK == 256) };
        // SAFETY: by the invariant there are as many as an index can name.
        unsafe { UnsafeCell::raw_get(self.first.as_ptr().add(usize::from(index))) }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        match self.owner {
            // SAFETY: it came from the function's sibling.
            Some(memory) => unsafe { (memory.free)(self.first.as_ptr().cast()) },
            // SAFETY: it was a box of so many.
            None => drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.first.as_ptr(), CHUNK)) }),
        }
    }
}

/// Some buffers. The device's, and then that of its last handle: so that handles need not be counted twice.
#[derive(Debug)]
struct Chunk {
    bytes: Buffers,
    /// Handles on each. Zero: it is free, or on its way there.
    counts: [AtomicU32; CHUNK],
    /// Those whose last handle was dropped, until the device takes them; closed, once there is none that would.
    returned: Returned,
    /// Where the device is told that there are some, and under which number.
    announced: Arc<Returned>,
    number: u16,
    /// So many of its buffers are ever handed out: the device may have no more.
    used: u16,
    /// Once there is no device: buffers that have not come back.
    left: AtomicU32,
}

// SAFETY: `bytes[i]` is written only by the device, while `counts[i]` is zero, and read only through handles, while it isn't; the count's
// acquire and release operations order the two.
unsafe impl Sync for Chunk {}
// SAFETY: as above; and memory may be given back by any thread, which is the allocator's contract.
unsafe impl Send for Chunk {}

impl Chunk {
    fn new(memory: Option<HeadMemory>, announced: Arc<Returned>, (number, used): (u16, u16)) -> NonNull<Self> {
        let counts = [const { AtomicU32::new(0) }; CHUNK];
        let (bytes, returned, left) = (Buffers::new(memory), Returned::new(CHUNK), AtomicU32::new(0));
        NonNull::from(Box::leak(Box::new(Self { bytes, counts, returned, announced, number, used, left })))
    }

    /// The last handle on a buffer was dropped.
    ///
    /// # Safety
    /// It was one of the chunk's, which is not used afterwards.
    unsafe fn give_back(chunk: NonNull<Self>, index: u32) {
        // SAFETY: it lives until its last buffer has come back, which this one has not. (Behind `push`, it may have.)
        let this = unsafe { chunk.as_ref() };
        match this.returned.push(index, || (this.announced.clone(), this.number)) {
            Ok(Some((announced, number))) => {
                // (It is never closed.)
                let _ = announced.push(number.into(), || ());
            }
            Ok(None) => {}
            Err(_) => {
                // Acquire: how many are left was written before.
                fence(Ordering::Acquire);
                // SAFETY: the caller's promise.
                unsafe { Self::forget(chunk, 1) };
            }
        }
    }

    /// So many buffers less are left of a chunk whose device is gone.
    ///
    /// # Safety
    /// They are no others', and have not been forgotten; the chunk is not used afterwards.
    unsafe fn forget(chunk: NonNull<Self>, buffers: u32) {
        // SAFETY: as long as some are left, it lives. Acquire and release: all uses of any buffer come before the end of all.
        if unsafe { chunk.as_ref() }.left.fetch_sub(buffers, Ordering::AcqRel) == buffers {
            // SAFETY: it was a box, and nobody has any of it any more.
            drop(unsafe { Box::from_raw(chunk.as_ptr()) });
        }
    }

    /// The device is gone, and had so many of its buffers.
    ///
    /// # Safety
    /// The device does not use the chunk afterwards.
    unsafe fn abandon(chunk: NonNull<Self>, free: u32) {
        // SAFETY: the device's, until now.
        let this = unsafe { chunk.as_ref() };
        // (One more, so that it lives until the end of this.)
        this.left.store(u32::from(this.used) - free + 1, Ordering::Relaxed);
        let mut returned = 0;
        this.returned.close(|_| returned += 1);
        // SAFETY: those came back before, and the last one is ours.
        unsafe { Self::forget(chunk, returned + 1) };
    }
}

/// The device's end: hands buffers out.
#[derive(Debug)]
pub(crate) struct Heads {
    /// Invariant: each lives at least as long as this.
    chunks: Vec<NonNull<Chunk>>,
    /// Buffers that may yet be made.
    to_make: usize,
    /// Last in, first out, so that few lines are touched and those stay in cache.
    free: Vec<(u16, u8)>,
    /// The chunks to which something came back, since they were looked at.
    announced: Arc<Returned>,
    /// Where their memory comes from, if the program has its own.
    memory: Option<HeadMemory>,
}

// SAFETY: chunks are `Send` and `Sync`, whoever has their addresses.
unsafe impl Send for Heads {}
// SAFETY: as above; and nothing is changed through a shared reference.
unsafe impl Sync for Heads {}

impl Heads {
    /// At most so many buffers.
    pub(crate) fn new(most: usize) -> Self {
        let most = most.min(Settings::HEADS_LIMIT);
        let announced = Arc::new(Returned::new(most.div_ceil(CHUNK)));
        Self { chunks: Vec::new(), to_make: most, free: Vec::new(), announced, memory: None }
    }

    /// At most so many, in the program's own memory, of which the first are made at once.
    pub(crate) fn within(most: usize, memory: HeadMemory) -> Self {
        let mut heads = Self::new(most);
        heads.memory = Some(memory);
        let first = heads.find_free();
        heads.free.extend(first);
        heads
    }

    /// A buffer with these bytes in it (at most [`HEAD_BYTES`]). `None`: all there may be are held.
    #[inline]
    pub(crate) fn hold(&mut self, bytes: &[u8]) -> Option<Head> {
        let (chunk, index) = self.free.pop().or_else(|| self.find_free())?;
        let at = self.chunks[usize::from(chunk)];
        // SAFETY: by the invariant.
        let chunk = unsafe { at.as_ref() };
        // SAFETY: it is free, so there is no handle that reads; and there is one device, so no other writer.
        let buffer = unsafe { &mut *chunk.bytes.at(index) };
        buffer[..bytes.len()].copy_from_slice(bytes);
        // Release: whoever gets a handle sees the bytes.
        chunk.counts[usize::from(index)].store(1, Ordering::Release);
        Some(Head { chunk: at, index })
    }

    #[cold]
    fn find_free(&mut self) -> Option<(u16, u8)> {
        let Self { chunks, free, announced, .. } = self;
        announced.take(|number| {
            // SAFETY: by the invariant.
            let chunk = unsafe { chunks[number as usize].as_ref() };
            chunk.returned.take(|index| free.push((number as u16, index as u8)));
        });
        if self.free.is_empty() && self.to_make > 0 {
            let (number, used) = (self.chunks.len() as u16, self.to_make.min(CHUNK));
            self.to_make -= used;
            self.chunks.push(Chunk::new(self.memory, self.announced.clone(), (number, used as u16)));
            self.free.extend((0..used).rev().map(|index| (number, index as u8)));
        }
        self.free.pop()
    }

    /// Buffers that are held.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn in_use(&mut self) -> usize {
        let found = self.find_free();
        self.free.extend(found);
        // SAFETY: by the invariant.
        let made = |chunk: &NonNull<Chunk>| usize::from(unsafe { chunk.as_ref() }.used);
        self.chunks.iter().map(made).sum::<usize>() - self.free.len()
    }
}

impl Drop for Heads {
    fn drop(&mut self) {
        let mut free = vec![0; self.chunks.len()];
        for &(chunk, _) in &self.free {
            free[usize::from(chunk)] += 1;
        }
        for (chunk, free) in self.chunks.drain(..).zip(free) {
            // SAFETY: it is out of the list.
            unsafe { Chunk::abandon(chunk, free) };
        }
    }
}

/// A counted handle on one buffer.
#[derive(Debug)]
pub(crate) struct Head {
    /// Invariant: it lives as long as any of its buffers has a handle.
    chunk: NonNull<Chunk>,
    /// Invariant: this handle is one of the buffer's count.
    index: u8,
}

// SAFETY: chunks are `Send` and `Sync`, whoever has their addresses; and what is read there does not change.
unsafe impl Send for Head {}
// SAFETY: as above.
unsafe impl Sync for Head {}

impl Head {
    #[inline]
    fn chunk(&self) -> &Chunk {
        // SAFETY: by the invariant.
        unsafe { self.chunk.as_ref() }
    }

    /// Where its bytes are: [`HEAD_BYTES`] of them, which do not change as long as there is a handle.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8; HEAD_BYTES] {
        // SAFETY: this handle is counted, so the buffer isn't written.
        unsafe { &*self.chunk().bytes.at(self.index) }
    }
}

impl Clone for Head {
    fn clone(&self) -> Self {
        self.chunk().counts[usize::from(self.index)].fetch_add(1, Ordering::Relaxed);
        Self { chunk: self.chunk, index: self.index }
    }
}

impl Drop for Head {
    #[inline]
    fn drop(&mut self) {
        if release(&self.chunk().counts[usize::from(self.index)]) {
            // SAFETY: this was the last.
            unsafe { Chunk::give_back(self.chunk, u32::from(self.index)) };
        }
    }
}

const _: () = assert!(CHUNK == 256 && Settings::HEADS_LIMIT / CHUNK <= 1 << 16);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// As many as VMA_RX_BUFS has by default.
    const MANY: usize = 200_000;

    #[test]
    fn a_buffer_is_used_again_only_once_its_last_handle_is_gone() {
        let mut heads = Heads::new(MANY);
        let first = heads.hold(b"first").unwrap();
        let second = first.clone();
        drop(first);
        let others: Vec<_> = (0..CHUNK).map(|_| heads.hold(b"other").unwrap()).collect();
        assert_eq!(&second.bytes()[..5], b"first");
        assert_eq!((heads.in_use(), heads.chunks.len()), (CHUNK + 1, 2));
        drop((second, others));
        assert_eq!(heads.in_use(), 0);
        let again: Vec<_> = (0..2 * CHUNK).map(|_| heads.hold(b"again").unwrap()).collect();
        assert_eq!((again.len(), heads.chunks.len()), (2 * CHUNK, 2));
    }

    #[test]
    fn the_programs_memory_is_used_where_it_has_some_and_is_given_back() {
        use core::ffi::c_void;
        use core::sync::atomic::AtomicUsize;
        static GIVEN: AtomicUsize = AtomicUsize::new(0);
        unsafe extern "C" fn allocate(bytes: usize) -> *mut c_void {
            // The second time, there is none.
            if GIVEN.fetch_add(1, Ordering::Relaxed) == 1 {
                return core::ptr::null_mut();
            }
            // SAFETY: no preconditions.
            unsafe { libc::malloc(bytes) }
        }
        unsafe extern "C" fn free(memory: *mut c_void) {
            GIVEN.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: it came from `allocate`.
            unsafe { libc::free(memory) };
        }
        let mut heads = Heads::within(MANY, HeadMemory { allocate, free });
        assert_eq!(GIVEN.load(Ordering::Relaxed), 1);
        let held: Vec<_> = (0..2 * CHUNK).map(|_| heads.hold(b"held").unwrap()).collect();
        assert!(held.iter().all(|head| &head.bytes()[..4] == b"held"));
        drop(heads);
        drop(held);
        assert_eq!(GIVEN.load(Ordering::Relaxed), 1, "the one that was given has been given back, the one that was not has not");
    }

    #[test]
    fn handles_may_be_dropped_by_any_thread() {
        let mut heads = Heads::new(MANY);
        for round in 0..200u8 {
            let held: Vec<_> = (0..100).map(|_| heads.hold(&[round; 64]).unwrap()).collect();
            std::thread::scope(|scope| {
                for part in held.chunks(25) {
                    let part = part.to_vec();
                    scope.spawn(move || assert!(part.iter().all(|head| head.bytes()[..64] == [round; 64])));
                }
            });
        }
        assert_eq!(heads.in_use(), 0);
        assert!(heads.chunks.len() <= 2);
    }

    #[test]
    fn what_outlives_the_device_is_freed_with_its_last_handle() {
        use core::ffi::c_void;
        use core::sync::atomic::AtomicUsize;
        static GIVEN: AtomicUsize = AtomicUsize::new(0);
        unsafe extern "C" fn allocate(bytes: usize) -> *mut c_void {
            GIVEN.fetch_add(1, Ordering::Relaxed);
            // SAFETY: no preconditions.
            unsafe { libc::malloc(bytes) }
        }
        unsafe extern "C" fn free(memory: *mut c_void) {
            GIVEN.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: it came from `allocate`.
            unsafe { libc::free(memory) };
        }
        for round in 0..100 {
            let mut heads = Heads::within(MANY, HeadMemory { allocate, free });
            let mut held: Vec<_> = (0..300).map(|_| heads.hold(b"held").unwrap()).collect();
            // Some have come back, and some of those were found.
            held.truncate(300 - 2 * round);
            drop(heads.hold(b"once more"));
            std::thread::scope(|scope| {
                let half = held.split_off(held.len() / 2);
                scope.spawn(move || drop(half));
                scope.spawn(move || drop(heads));
                assert!(held.iter().all(|head| &head.bytes()[..4] == b"held"));
                drop(held);
            });
            assert_eq!(GIVEN.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn only_chunks_to_which_something_came_back_are_looked_at() {
        let mut heads = Heads::new(MANY);
        let mut held: Vec<_> = (0..781 * CHUNK).map(|_| heads.hold(b"held").unwrap()).collect();
        for (place, times) in [(700, 3), (5, 1)] {
            held.drain(place * CHUNK..place * CHUNK + times);
        }
        let mut looked_at = Vec::new();
        heads.announced.take(|number| looked_at.push(number));
        looked_at.sort_unstable();
        assert_eq!(looked_at, [5, 700]);
    }

    #[test]
    fn more_than_there_may_be_are_refused() {
        for most in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7] {
            let mut heads = Heads::new(most);
            let mut held: Vec<_> = core::iter::from_fn(|| heads.hold(b"x")).collect();
            assert_eq!((held.len(), heads.hold(b"y").is_some()), (most, false));
            let last = held.pop();
            drop(held);
            let one_more = heads.hold(b"y").is_some();
            assert_eq!((one_more, heads.in_use()), (most > 1, usize::from(most > 0)));
            drop(heads);
            drop(last);
        }
    }
}
