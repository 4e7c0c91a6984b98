//! A lock-free table by descriptor number, which grows by pieces as descriptors appear: what is in it is there for good.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// What a fresh piece is filled with.
pub(crate) trait Empty {
    const EMPTY: Self;
}

/// `PIECES` pieces of `LEN` entries each.
pub(crate) struct ByFd<T, const LEN: usize, const PIECES: usize>([AtomicPtr<[T; LEN]>; PIECES]);

impl<T: Empty + Sync + 'static, const LEN: usize, const PIECES: usize> ByFd<T, LEN, PIECES> {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicPtr::new(ptr::null_mut()) }; PIECES])
    }

    /// `None`: a number beyond the table, or nobody has asked for one of that piece with [`ByFd::find_or_make`].
    #[inline(always)]
    pub(crate) fn find(&self, fd: i32) -> Option<&T> {
        let fd = usize::try_from(fd).ok()?;
        let piece = self.0.get(fd / LEN)?.load(Ordering::Acquire);
        if piece.is_null() {
            return None;
        }
        // SAFETY: a piece, once in the table, is never freed.
        Some(unsafe { &(&*piece)[fd % LEN] })
    }

    /// `None`: a number beyond the table.
    #[inline]
    pub(crate) fn find_or_make(&self, fd: i32) -> Option<&T> {
        self.find(fd).or_else(|| self.make(fd))
    }

    #[cold]
    fn make(&self, fd: i32) -> Option<&T> {
        let place = self.0.get(usize::try_from(fd).ok()? / LEN)?;
        let fresh: Box<[T; LEN]> = Box::new([const { T::EMPTY }; LEN]);
        let fresh = Box::into_raw(fresh);
        if place.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: another thread's piece won; ours was never shared.
            drop(unsafe { Box::from_raw(fresh) });
        }
        self.find(fd)
    }

    /// Has what `other` has, pieces and all.
    pub(crate) fn share(&self, other: &Self) {
        for (mine, theirs) in self.0.iter().zip(&other.0) {
            mine.store(theirs.load(Ordering::Acquire), Ordering::Release);
        }
    }

    /// The numbers of which there are entries.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = i32> {
        let there = self.0.iter().enumerate().filter(|(_, piece)| !piece.load(Ordering::Acquire).is_null());
        there.flat_map(|(piece, _)| (piece * LEN..(piece + 1) * LEN).map(|fd| fd as i32))
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU32;

    use super::*;

    impl Empty for AtomicU32 {
        const EMPTY: Self = Self::new(0);
    }

    #[test]
    fn entries_are_made_by_pieces_and_stay() {
        static TABLE: ByFd<AtomicU32, 4, 2> = ByFd::new();
        assert!(TABLE.find(5).is_none());
        TABLE.find_or_make(5).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(TABLE.find(5).unwrap().load(Ordering::Relaxed), 7);
        assert_eq!(TABLE.find(4).unwrap().load(Ordering::Relaxed), 0);
        assert!(TABLE.find(3).is_none() && TABLE.find_or_make(8).is_none() && TABLE.find_or_make(-1).is_none());
        assert_eq!(TABLE.numbers().collect::<Vec<_>>(), [4, 5, 6, 7]);
        static COPY: ByFd<AtomicU32, 4, 2> = ByFd::new();
        COPY.share(&TABLE);
        COPY.find(5).unwrap().store(8, Ordering::Relaxed);
        assert_eq!(TABLE.find(5).unwrap().load(Ordering::Relaxed), 8);
    }
}
