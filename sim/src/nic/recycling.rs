//! Frames' memory, used again: a stream of full segments needs an allocator for the first flight only.

use std::collections::VecDeque;
use std::rc::Rc;

/// The most frames of about one length that are kept: a full send queue, by default.
const KEPT_MAX: usize = 1024;
/// Frames whose lengths differ by less than this are kept together, and so are all that are longer than [`CLASSES`] of it.
const CLASS_LEN: usize = 64;
const CLASSES: usize = 24;

/// The frames that were made last, by length, the oldest first. Others may still look at them.
#[derive(Debug, Default)]
pub(super) struct Recycling([VecDeque<Rc<[u8]>>; CLASSES]);

impl Recycling {
    /// A frame of `len` bytes, all of which `fill` writes.
    pub(super) fn make<R>(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> (Rc<[u8]>, R) {
        let kept = &mut self.0[(len / CLASS_LEN).min(CLASSES - 1)];
        // One that is still looked at, or of another length, is not waited for.
        let free = |oldest: &Rc<[u8]>| Rc::strong_count(oldest) == 1;
        let oldest = if kept.front().is_some_and(free) || kept.len() >= KEPT_MAX { kept.pop_front() } else { None };
        let mut bytes =
            oldest.filter(|oldest| oldest.len() == len && free(oldest)).unwrap_or_else(|| core::iter::repeat_n(0, len).collect());
        let result = Rc::get_mut(&mut bytes).map(fill).expect("nobody else looks at it");
        kept.push_back(Rc::clone(&bytes));
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
        assert!(recycling.0[9].len() <= KEPT_MAX, "{} of {}", recycling.0[9].len(), frames.len());
    }
}
