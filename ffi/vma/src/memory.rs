//! The library's own heap: none of its memory comes from the program's malloc.
//!
//! send, recv, accept, close and `_exit` are async-signal-safe (POSIX.1-2017, 2.4.3), so a handler may call them while the code that it
//! interrupted holds one of malloc's locks; and what a handler's thread has to wait for, another thread of ours may have to do. A heap
//! of our own is safe there, for no handler of the program's runs while its thread holds the heap's lock ([`crate::lock`]). A program's own malloc (jemalloc,
//! a debugger's) sees nothing of us, either.

use core::alloc::{GlobalAlloc, Layout};

use dlmalloc::Dlmalloc;

use crate::lock::Lock;

struct Heap(Lock<Dlmalloc>);

#[global_allocator]
static HEAP: Heap = Heap(Lock::new(Dlmalloc::new()));

// SAFETY: Dlmalloc is an allocator, and the lock makes every call the only one. (It neither panics nor allocates elsewhere.)
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that are asked for.
        unsafe { self.0.lock().malloc(layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.0.lock().calloc(layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.0.lock().free(place, layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.0.lock().realloc(place, layout.size(), layout.align(), size) }
    }
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
