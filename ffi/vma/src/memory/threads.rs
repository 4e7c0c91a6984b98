//! Which thread has which heap.
//!
//! A table by the threads' control blocks, without locks, and without thread-local storage, which is not to be had in every handler. A thread that ends
//! leaves its entry to the next one with the same control block. Where the table has no room, threads share.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::HEAPS;
use crate::lock::thread_pointer;

const PLACES: usize = 256;

/// Places that are looked at before a thread makes do with a heap that it shares.
const TRIES: usize = 8;

/// The threads' control blocks. Zero: the place is free.
static THREADS: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];

/// The heap of each.
static THEIRS: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];

/// Threads that got one.
static GIVEN: AtomicUsize = AtomicUsize::new(0);

/// A thread's heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnHeap(usize);

impl OwnHeap {
    /// The calling thread allocates from it, until the guard goes: what it makes is for another thread.
    #[inline]
    pub(crate) fn lend(self) -> Lent {
        let before = own_heap();
        if before != self {
            change(self);
        }
        Lent { before, is_another: before != self }
    }
}

/// See [`OwnHeap::lend`].
pub(crate) struct Lent {
    before: OwnHeap,
    is_another: bool,
}

impl Drop for Lent {
    #[inline]
    fn drop(&mut self) {
        if self.is_another {
            change(self.before);
        }
    }
}

/// The heap of the calling thread.
#[inline]
pub(crate) fn own_heap() -> OwnHeap {
    OwnHeap(number())
}

/// Its number.
#[inline]
pub(super) fn number() -> usize {
    let thread = thread_pointer();
    let first = first_place(thread);
    if THREADS[first].load(Ordering::Acquire) == thread { THEIRS[first].load(Ordering::Relaxed) } else { find(thread, first) }
}

/// The calling thread allocates from another one from now on. (One that has no place goes on with what it shares.)
#[cold]
fn change(heap: OwnHeap) {
    let thread = thread_pointer();
    let first = first_place(thread);
    if let Some(place) = places(first).find(|&place| THREADS[place].load(Ordering::Acquire) == thread) {
        THEIRS[place].store(heap.0, Ordering::Relaxed);
    }
}

/// Where a thread's entry may be.
fn places(first: usize) -> impl Iterator<Item = usize> {
    (first..first + TRIES).map(|place| place % PLACES)
}

const fn first_place(thread: usize) -> usize {
    ((thread >> 6) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> (usize::BITS - PLACES.trailing_zeros())
}

fn find(thread: usize, first: usize) -> usize {
    for place in places(first) {
        match THREADS[place].compare_exchange(0, thread, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                // (A handler of this very thread that asks in between finds the first heap, which serves as well.)
                THEIRS[place].store(GIVEN.fetch_add(1, Ordering::Relaxed) % HEAPS, Ordering::Relaxed);
                return THEIRS[place].load(Ordering::Relaxed);
            }
            Err(there) if there == thread => return THEIRS[place].load(Ordering::Relaxed),
            Err(_) => {}
        }
    }
    first % HEAPS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_heaps_of_their_own() {
        let barrier = std::sync::Barrier::new(4);
        let asked = || {
            barrier.wait();
            let own = own_heap();
            assert!((0..100).all(|_| own_heap() == own) && number() < HEAPS);
            let other = OwnHeap((number() + 1) % HEAPS);
            let lent = other.lend();
            assert_eq!(own_heap(), other);
            drop(lent);
            assert_eq!(own_heap(), own);
            barrier.wait();
            number()
        };
        let heaps: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(asked)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it asks for nothing else")).collect()
        });
        let distinct: std::collections::BTreeSet<&usize> = heaps.iter().collect();
        assert!(distinct.len() > 1, "{heaps:?}");
    }
}
