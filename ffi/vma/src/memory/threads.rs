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

/// The heap of the calling thread.
#[inline]
pub(super) fn own_heap() -> usize {
    let thread = thread_pointer();
    let first = first_place(thread);
    if THREADS[first].load(Ordering::Acquire) == thread { THEIRS[first].load(Ordering::Relaxed) } else { find(thread, first) }
}

const fn first_place(thread: usize) -> usize {
    ((thread >> 6) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> (usize::BITS - PLACES.trailing_zeros())
}

fn find(thread: usize, first: usize) -> usize {
    for place in (first..first + TRIES).map(|place| place % PLACES) {
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
            assert!((0..100).all(|_| own_heap() == own) && own < HEAPS);
            barrier.wait();
            own
        };
        let heaps: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(asked)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it asks for nothing else")).collect()
        });
        let distinct: std::collections::BTreeSet<&usize> = heaps.iter().collect();
        assert!(distinct.len() > 1, "{heaps:?}");
    }
}
