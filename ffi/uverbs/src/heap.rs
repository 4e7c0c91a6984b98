//! The card's own heap: none of its memory comes from the program's malloc.
//!
//! A malloc may have handlers of forks (jemalloc's locks are held from before a fork until after it), and the card's run between them: they let go of memory, and wait for the card's lock, whose
//! holder may want some. So this heap's lock is the last that is taken before a fork, and the first that is free again.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::{Cell, UnsafeCell};
use core::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlmalloc::{Allocator, Dlmalloc};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

const PAGE: usize = 4096;

/// Where the heap has its memory from: the kernel, asked without libc, whose functions are this library's own.
struct Pages;

// SAFETY: the mappings are the heap's alone, and stay until it gives them back.
unsafe impl Allocator for Pages {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let size = size.next_multiple_of(PAGE);
        // SAFETY: a mapping of its own, wherever there is room.
        let place = unsafe { mmap_anonymous(null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        place.map_or((null_mut(), 0, 0), |place| (place.cast(), size, 0))
    }

    fn remap(&self, _place: *mut u8, _old: usize, _new: usize, _can_move: bool) -> *mut u8 {
        null_mut()
    }

    fn free_part(&self, place: *mut u8, old: usize, new: usize) -> bool {
        // SAFETY: a part of such a mapping, which the heap uses no more.
        unsafe { munmap(place.wrapping_add(new).cast(), old - new) }.is_ok()
    }

    fn free(&self, place: *mut u8, size: usize) -> bool {
        // SAFETY: such a mapping, which the heap uses no more.
        unsafe { munmap(place.cast(), size) }.is_ok()
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

struct Heap {
    lock: Mutex<()>,
    heap: UnsafeCell<Dlmalloc<Pages>>,
}

// SAFETY: the heap is whoever's has the lock.
unsafe impl Sync for Heap {}

// (Unit tests are programs of their own, with libc's.)
#[cfg_attr(not(test), global_allocator)]
static HEAP: Heap = Heap { lock: Mutex::new(()), heap: UnsafeCell::new(Dlmalloc::new_with_allocator(Pages)) };

/// The lock, from before a fork until after it.
struct Held(UnsafeCell<Option<MutexGuard<'static, ()>>>);

// SAFETY: it is whoever's has the lock.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

thread_local! {
    /// Whether the lock is held for this thread, which forks.
    static HAS_LOCK: Cell<bool> = const { Cell::new(false) };
}

impl Heap {
    fn locked(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<R>(&self, body: impl FnOnce(&mut Dlmalloc<Pages>) -> R) -> R {
        let _guard = (!HAS_LOCK.get()).then(|| self.locked());
        // SAFETY: the lock is held, and the body, which is one of the heap's own functions, does not come back here.
        body(unsafe { &mut *self.heap.get() })
    }
}

// SAFETY: Dlmalloc is an allocator, and the lock makes every call the only one.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that are asked for; so below.
        self.with(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        self.with(|heap| unsafe { heap.free(place, layout.size(), layout.align()) });
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        self.with(|heap| unsafe { heap.calloc(layout.size(), layout.align()) })
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        self.with(|heap| unsafe { heap.realloc(place, layout.size(), layout.align(), size) })
    }
}

/// Before a fork: no other thread has anything of the heap's until [`after_fork`]; this one may use it.
pub(crate) fn before_fork() {
    let guard = HEAP.locked();
    // SAFETY: the lock is held.
    unsafe { *HELD.0.get() = Some(guard) };
    HAS_LOCK.set(true);
}

/// After it, in the parent and in the child.
pub(crate) fn after_fork() {
    HAS_LOCK.set(false);
    // SAFETY: the lock is held, by `before_fork`. (It is let go of once nothing is touched any more.)
    let guard = unsafe { (*HELD.0.get()).take() };
    drop(guard);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_forks_has_memory_meanwhile_and_nobody_else() {
        let layout = Layout::from_size_align(100_000, 64).unwrap();
        // SAFETY: the layout has a size, and what is made is freed by the same one.
        let turn = || unsafe {
            let place = HEAP.alloc_zeroed(layout);
            assert!(!place.is_null() && place.addr().is_multiple_of(64) && *place.add(99_999) == 0);
            let place = HEAP.realloc(place, layout, 300_000);
            HEAP.dealloc(place, Layout::from_size_align(300_000, 64).unwrap());
        };
        before_fork();
        turn();
        assert!(HEAP.lock.try_lock().is_err());
        after_fork();
        assert!(HEAP.lock.try_lock().is_ok());
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| (0..100).for_each(|_| turn())))));
    }
}
