//! Where heaps have their memory from: each has a span of addresses of its own, so that an address tells whose it is.
//!
//! A span is reserved without access when its heap is first asked, which costs nothing but addresses. (It is no longer than need be: a program that locks
//! all its memory, mlockall(2), has it counted.) Where even these are not to be had (`ulimit -v`), or a span is used up, the first heap maps what is
//! needed wherever there is room.

use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use dlmalloc::Allocator;

use super::{HEAPS, PAGE, map, threads};

/// Addresses of a heap.
const SPAN: usize = 64 << 20;

/// Nobody has asked for it.
const UNASKED: usize = 0;
/// It is not to be had. (No mapping begins there.)
const REFUSED: usize = 1;

/// Where each span begins. Changed under the heap's lock.
static BASES: [AtomicUsize; HEAPS] = [const { AtomicUsize::new(UNASKED) }; HEAPS];

/// How much of each is in use, from its beginning. Changed under the heap's lock.
static USED: [AtomicUsize; HEAPS] = [const { AtomicUsize::new(0) }; HEAPS];

/// The heap that a place belongs to.
#[inline]
pub(super) fn owner(place: *mut u8) -> usize {
    let own = threads::number();
    if Span(own).offset(place).is_some() { own } else { (0..HEAPS).find(|&heap| Span(heap).offset(place).is_some()).unwrap_or(0) }
}

#[cold]
fn reserve() -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a mapping of its own, wherever there is room.
    let place = unsafe { libc::mmap(ptr::null_mut(), SPAN, libc::PROT_NONE, flags, -1, 0) };
    if place == libc::MAP_FAILED { REFUSED } else { place.expose_provenance() }
}

/// The memory of the heap of that number.
pub(super) struct Span(pub(super) usize);

impl Span {
    /// The place in the span, if it is there.
    #[inline]
    fn offset(&self, place: *mut u8) -> Option<usize> {
        let base = BASES[self.0].load(Ordering::Acquire);
        let offset = place.addr().wrapping_sub(base);
        (base > REFUSED && offset < SPAN).then_some(offset)
    }

    /// Where it begins. `None`: it is not to be had.
    fn base(&self) -> Option<usize> {
        if BASES[self.0].load(Ordering::Relaxed) == UNASKED {
            BASES[self.0].store(reserve(), Ordering::Release);
        }
        Some(BASES[self.0].load(Ordering::Relaxed)).filter(|&base| base > REFUSED)
    }

    /// So many bytes more of it; null: it has no room.
    fn grow(&self, size: usize) -> *mut u8 {
        let used = USED[self.0].load(Ordering::Relaxed);
        let Some(base) = self.base().filter(|_| size <= SPAN - used) else { return ptr::null_mut() };
        let place = ptr::with_exposed_provenance_mut::<u8>(base + used);
        // SAFETY: within the reservation, and in nobody's use.
        if unsafe { libc::mprotect(place.cast(), size, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return ptr::null_mut();
        }
        USED[self.0].store(used + size, Ordering::Relaxed);
        place
    }

    /// Gives back the last so many bytes of a region. `false`: it is not the last one of the span.
    fn shrink(&self, place: *mut u8, size: usize) -> bool {
        let Some(offset) = self.offset(place) else {
            // SAFETY: such regions were mapped by `map`, and the heap uses this part no more.
            return unsafe { libc::munmap(place.cast(), size) } == 0;
        };
        if offset + size != USED[self.0].load(Ordering::Relaxed) {
            return false;
        }
        // (A fresh mapping in its place: what is asked for again is zero again.)
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: within the reservation, and the heap uses it no more.
        let fresh = unsafe { libc::mmap(place.cast(), size, libc::PROT_NONE, flags, -1, 0) };
        if fresh == libc::MAP_FAILED {
            return false;
        }
        USED[self.0].store(offset, Ordering::Relaxed);
        true
    }
}

// SAFETY: the regions are the heap's alone, and stay until it gives them back.
unsafe impl Allocator for Span {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let size = size.next_multiple_of(PAGE);
        let place = match self.grow(size) {
            place if place.is_null() && self.0 == 0 => map(size),
            place => place,
        };
        (place, size, 0)
    }

    fn remap(&self, _place: *mut u8, _old: usize, _new: usize, _can_move: bool) -> *mut u8 {
        ptr::null_mut()
    }

    fn free_part(&self, place: *mut u8, old: usize, new: usize) -> bool {
        self.shrink(place.wrapping_add(new), old - new)
    }

    fn free(&self, place: *mut u8, size: usize) -> bool {
        self.shrink(place, size)
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}
