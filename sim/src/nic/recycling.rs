//! Frames' memory, used again: a stream of full segments needs an allocator for the first flight only.

use std::collections::VecDeque;
use std::sync::Arc;

/// Shorter frames are left to the allocator, which is quick with those.
const LEN_MIN: usize = 512;
/// The most frames that are kept: a full send queue, by default.
const KEPT_MAX: usize = 1024;

/// The long frames that were made last, the oldest first, which others may still look at.
#[derive(Debug, Default)]
pub(super) struct Recycling(VecDeque<Arc<[u8]>>);

impl Recycling {
    /// A frame of `len` bytes, all of which `fill` writes.
    pub(super) fn make<R>(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> (Arc<[u8]>, R) {
        if len < LEN_MIN {
            let mut bytes = [0; LEN_MIN];
            let result = fill(&mut bytes[..len]);
            return (bytes[..len].into(), result);
        }
        // One that is still looked at, or of another length, is not waited for.
        let oldest = self.0.front().is_some_and(|oldest| oldest.len() != len || self.0.len() >= KEPT_MAX || Arc::strong_count(oldest) == 1);
        let oldest = if oldest { self.0.pop_front() } else { None };
        let mut bytes = oldest.filter(|oldest| oldest.len() == len).unwrap_or_else(|| vec![0; len].into());
        if Arc::get_mut(&mut bytes).is_none() {
            bytes = vec![0; len].into();
        }
        let result = Arc::get_mut(&mut bytes).map(fill).expect("nobody else has a new one");
        self.0.push_back(Arc::clone(&bytes));
        (bytes, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_looks_at_is_used_again_and_nothing_else() {
        let mut recycling = Recycling::default();
        let (first, ()) = recycling.make(1000, |out| out.fill(1));
        let (second, ()) = recycling.make(1000, |out| out.fill(2));
        assert_eq!((first[999], second[999]), (1, 2), "the first was still looked at");
        let place = first.as_ptr();
        drop(first);
        let (third, ()) = recycling.make(1000, |out| out.fill(3));
        assert_eq!((third.as_ptr(), second[0], third[0]), (place, 2, 3));
        let (other, ()) = recycling.make(1001, |out| out.fill(4));
        let (small, ()) = recycling.make(60, |out| out.fill(5));
        assert_eq!((other.len(), small.len(), third[0]), (1001, 60, 3));
    }

    #[test]
    fn no_more_are_kept_than_the_limit() {
        let mut recycling = Recycling::default();
        let frames: Vec<_> = (0..2 * KEPT_MAX).map(|_| recycling.make(600, |out| out.fill(0)).0).collect();
        assert!(recycling.0.len() <= KEPT_MAX, "{} of {}", recycling.0.len(), frames.len());
    }
}
