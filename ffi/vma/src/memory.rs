//! The library's own heaps: none of its memory comes from the program's malloc.
//!
//! send, recv, accept, close and `_exit` are async-signal-safe (POSIX.1-2017, 2.4.3), so a handler may call them while the code that it
//! interrupted holds one of malloc's locks; and what a handler's thread has to wait for, another thread of ours may have to do. A heap
//! of our own is safe there (but for a thread's very first wait, which registers a destructor with libc), for no handler of the program's runs while its thread holds a heap's lock ([`crate::lock`]). A program's own malloc (jemalloc,
//! a debugger's) sees nothing of us, either.
//!
//! Each thread allocates from a heap of its own, as far as there are heaps: threads with rings of their own wait for no common lock, and what belongs to
//! one's ring shares no cache line with another's. What is freed goes back to the heap that it is from.

mod spans;
mod threads;

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicBool, Ordering};

use dlmalloc::Dlmalloc;

use self::spans::Span;
pub(crate) use self::threads::{OwnHeap, own_heap};
use crate::lock::{Lock, Protected};

/// What is as large is mapped by itself: a table that has grown leaves no hole where it was.
const LARGE: usize = 128 << 10;
const PAGE: usize = 4096;

/// How many heaps there are.
const HEAPS: usize = 16;

struct Heaps([Heap; HEAPS]);

/// One of them. (Its lock is in no other's line.)
#[repr(align(128))]
struct Heap(Lock<Dlmalloc<Span>>);

impl Protected for Dlmalloc<Span> {
    type Left = ();
}

#[global_allocator]
static HEAPS_OF_THREADS: Heaps = Heaps({
    let mut heaps = [const { Heap(Lock::new(Dlmalloc::new_with_allocator(Span(0)))) }; HEAPS];
    let mut number = 1;
    while number < HEAPS {
        heaps[number] = Heap(Lock::new(Dlmalloc::new_with_allocator(Span(number))));
        number += 1;
    }
    heaps
});

impl Heaps {
    /// The calling thread's.
    #[inline]
    fn own(&self) -> &Heap {
        &self.0[threads::number()]
    }

    /// That of a place.
    #[inline]
    fn of(&self, place: *mut u8) -> &Heap {
        &self.0[spans::owner(place)]
    }

    /// What a thread's own heap has no room for.
    #[cold]
    fn elsewhere(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe { self.0[0].0.lock().malloc(layout.size(), layout.align()) }
    }
}

// SAFETY: Dlmalloc is an allocator, the lock makes every call the only one, and a place goes back to the heap that it is from. (It neither panics nor allocates
// elsewhere.)
unsafe impl GlobalAlloc for Heaps {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) || is_lost() {
            return map_aligned(layout);
        }
        // SAFETY: the caller's promises are those that are asked for.
        let place = unsafe { self.own().0.lock().malloc(layout.size(), layout.align()) };
        if place.is_null() { self.elsewhere(layout) } else { place }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) || is_lost() {
            return map_aligned(layout);
        }
        // SAFETY: as above.
        let place = unsafe { self.own().0.lock().calloc(layout.size(), layout.align()) };
        if !place.is_null() {
            return place;
        }
        let place = self.elsewhere(layout);
        if !place.is_null() {
            // SAFETY: it is as long.
            unsafe { place.write_bytes(0, layout.size()) };
        }
        place
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
        unsafe { self.of(place).0.lock().free(place, layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match (is_large(layout), size >= LARGE && layout.align() <= PAGE) {
            (false, false) if !is_lost() => {
                // SAFETY: as above.
                let grown = unsafe { self.of(place).0.lock().realloc(place, layout.size(), layout.align(), size) };
                if !grown.is_null() {
                    return grown;
                }
            }
            (true, true) => {
                // SAFETY: `alloc` mapped it, and nobody else has the address.
                let moved = unsafe { libc::mremap(place.cast(), layout.size(), size, libc::MREMAP_MAYMOVE) };
                return if moved == libc::MAP_FAILED { core::ptr::null_mut() } else { moved.cast() };
            }
            _ => {}
        }
        // SAFETY: the caller's promises; both places are as long as what is copied.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                core::ptr::copy_nonoverlapping(place, new, layout.size().min(size));
                self.dealloc(place, layout);
            }
            new
        }
    }
}

const fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= PAGE
}

/// In the child of a fork that nobody told of: another thread of its parent's was in the middle of a call, so that a heap is not whole.
/// What is asked for from then on is mapped, and what is given back is kept: such a process leaves its sockets to the kernel.
static LOST: AtomicBool = AtomicBool::new(false);

#[inline]
fn is_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// In such a child: looks whether the heaps are whole.
pub(crate) fn look_after_unseen_fork() -> bool {
    let is_whole = all().all(Lock::is_free);
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

/// Their locks, in the order in which they are taken.
fn all() -> impl Iterator<Item = &'static Lock<Dlmalloc<Span>>> {
    HEAPS_OF_THREADS.0.iter().map(|Heap(lock)| lock)
}

/// Whether the calling thread is in the middle of a call of a heap's. Async-signal-safe.
pub(crate) fn is_mine() -> bool {
    all().any(Lock::is_mine)
}

/// Before a fork: no other thread is in the middle of a call. Taken after every other lock.
pub(crate) fn lock_for_fork() {
    all().for_each(Lock::take);
}

/// After it, in the parent and in the child.
///
/// # Safety
/// [`lock_for_fork`] was called by this thread.
pub(crate) unsafe fn unlock_after_fork() {
    for lock in all() {
        // SAFETY: taken there.
        unsafe { lock.unlock_after_fork() };
    }
}

/// In the child of a fork: its parent's threads wait for no heap of its own.
pub(crate) fn forget_waiters() {
    all().for_each(Lock::forget_waiters);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_thread_frees_goes_back_to_where_it_is_from() {
        let sizes = [1, 24, 100, 4000, 60_000, 131_071];
        let made: Vec<Vec<u8>> = std::thread::spawn(move || sizes.map(|size| vec![7; size]).to_vec()).join().expect("it only allocates");
        let owners: Vec<usize> = made.iter().map(|bytes| spans::owner(bytes.as_ptr().cast_mut())).collect();
        assert!(owners.iter().all(|&owner| owner == owners[0]), "{owners:?}");
        for (mut bytes, size) in made.into_iter().zip(sizes) {
            let before = spans::owner(bytes.as_ptr().cast_mut());
            bytes.reserve_exact(size / 2 + 1);
            assert!(bytes.iter().all(|&byte| byte == 7) && bytes.len() == size);
            // (What has become large is mapped by itself.)
            assert!(bytes.capacity() >= LARGE || spans::owner(bytes.as_ptr().cast_mut()) == before);
        }
    }

    #[test]
    fn fresh_memory_is_zero_after_a_heap_gave_it_back() {
        for _ in 0..3 {
            let pieces: Vec<Vec<u8>> = (0..100).map(|_| vec![0xff; 100_000]).collect();
            drop(pieces);
            assert!((0..100).all(|_| vec![0_u8; 100_000].iter().all(|&byte| byte == 0)));
        }
    }
}
