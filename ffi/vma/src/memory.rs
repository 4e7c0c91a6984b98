//! The library's own heap: none of its memory comes from the program's malloc.
//!
//! send, recv, accept, close and `_exit` are async-signal-safe (POSIX.1-2017, 2.4.3), so a handler may call them while the code that it
//! interrupted holds one of malloc's locks; and what a handler's thread has to wait for, another thread of ours may have to do. A heap
//! of our own is safe there (but for a thread's very first wait, which registers a destructor with libc), for no handler of the program's runs while its thread holds the heap's lock ([`crate::lock`]). A program's own malloc (jemalloc,
//! a debugger's) sees nothing of us, either.

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicBool, Ordering};

use dlmalloc::Dlmalloc;

use crate::lock::{Lock, Protected};

/// What is as large is mapped by itself: a table that has grown leaves no hole where it was.
const LARGE: usize = 128 << 10;
const PAGE: usize = 4096;

struct Heap(Lock<Dlmalloc>);

impl Protected for Dlmalloc {}

#[global_allocator]
static HEAP: Heap = Heap(Lock::new(Dlmalloc::new()));

// SAFETY: Dlmalloc is an allocator, and the lock makes every call the only one. (It neither panics nor allocates elsewhere.)
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) || is_lost() {
            return map_aligned(layout);
        }
        // SAFETY: the caller's promises are those that are asked for.
        unsafe { self.0.lock().malloc(layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) || is_lost() {
            return map_aligned(layout);
        }
        // SAFETY: as above.
        unsafe { self.0.lock().calloc(layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if is_large(layout) {
            // SAFETY: `alloc` mapped it.
            unsafe { libc::munmap(place.cast(), layout.size()) };
            return;
        }
        if is_lost() {
            return;
        }
        // SAFETY: as above.
        unsafe { self.0.lock().free(place, layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match (is_large(layout), size >= LARGE && layout.align() <= PAGE) {
            (false, false) if !is_lost() => {}
            (true, true) => {
                // SAFETY: `alloc` mapped it, and nobody else has the address.
                let moved = unsafe { libc::mremap(place.cast(), layout.size(), size, libc::MREMAP_MAYMOVE) };
                return if moved == libc::MAP_FAILED { core::ptr::null_mut() } else { moved.cast() };
            }
            _ => {
                // SAFETY: the caller's promises; both places are as long as what is copied.
                unsafe {
                    let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                    if !new.is_null() {
                        core::ptr::copy_nonoverlapping(place, new, layout.size().min(size));
                        self.dealloc(place, layout);
                    }
                    return new;
                }
            }
        }
        // SAFETY: as above.
        unsafe { self.0.lock().realloc(place, layout.size(), layout.align(), size) }
    }
}

const fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= PAGE
}

/// In the child of a fork that nobody told of: another thread of its parent's was in the middle of a call, so that the heap is not whole.
/// What is asked for from then on is mapped, and what is given back is kept: such a process leaves its sockets to the kernel.
static LOST: AtomicBool = AtomicBool::new(false);

#[inline]
fn is_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// In such a child: looks whether the heap is whole.
pub(crate) fn look_after_unseen_fork() -> bool {
    let is_whole = HEAP.0.is_free();
    LOST.store(!is_whole, Ordering::Relaxed);
    is_whole
}

/// Fresh memory, zeroed; null: there is none.
#[cold]
fn map_aligned(layout: Layout) -> *mut u8 {
    if layout.align() <= PAGE {
        return map(layout.size());
    }
    // (Only where it is never given back.)
    let place = map(layout.size() + layout.align());
    if place.is_null() { place } else { place.wrapping_add(place.align_offset(layout.align())) }
}

/// Fresh memory, zeroed; null: there is none.
#[cold]
fn map(size: usize) -> *mut u8 {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a mapping of its own, wherever there is room.
    let place = unsafe { libc::mmap(core::ptr::null_mut(), size, protection, flags, -1, 0) };
    if place == libc::MAP_FAILED { core::ptr::null_mut() } else { place.cast() }
}

/// Whether the calling thread is in the middle of a call of the heap's. Async-signal-safe.
pub(crate) fn is_mine() -> bool {
    HEAP.0.is_mine()
}

/// Before a fork: no other thread is in the middle of a call. Taken after every other lock.
pub(crate) fn lock_for_fork() {
    core::mem::forget(HEAP.0.lock());
}

/// After it, in the parent and in the child.
///
/// # Safety
/// [`lock_for_fork`] was called by this thread.
pub(crate) unsafe fn unlock_after_fork() {
    // SAFETY: held by the guard that was forgotten there.
    unsafe { HEAP.0.unlock_after_fork() };
}
