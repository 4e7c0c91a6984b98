//! Handles on received bytes.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use ringway_stack::device::{LendBuffer, RxBuffer};
use ringway_stack::wire::checksum::Checksum;

use super::{Piece, Umem};

/// A handle on received bytes.
#[derive(Debug)]
pub struct Received {
    umem: Arc<Umem>,
    /// The first chunk of what there is a handle on, which counts the handles.
    chunk: u32,
    /// Which of the bytes there, and in the chunks behind it, the handle's first one is.
    at: u16,
    len: u16,
}

impl Received {
    /// The first one.
    pub(super) fn new(umem: Arc<Umem>, piece: Piece) -> Self {
        Self { umem, chunk: piece.chunk, at: 0, len: piece.len }
    }

    /// Adds bytes behind those whose last piece is in chunk `last`. There are no other handles on either, and they are no more than `u16::MAX` together.
    pub(crate) fn append(&mut self, last: u32, piece: Piece) {
        debug_assert!(self.at == 0 && self.umem.holders(self.chunk).load(Ordering::Relaxed) == 1, "a handle on all, and the only one");
        self.umem.set_piece(piece);
        self.umem.set_piece(Piece { next: Some(piece.chunk), ..self.umem.piece(last) });
        self.len += piece.len;
    }

    /// A copy of the bytes.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(0, &mut bytes);
        bytes
    }

    /// Gives `each` a part of the bytes, in as many pieces as they lie in.
    #[inline]
    fn each_piece<'a>(&'a self, offset: usize, len: usize, mut each: impl FnMut(&'a [u8])) {
        assert!(offset + len <= usize::from(self.len), "a part of the bytes");
        let (mut skip, mut left) = (usize::from(self.at) + offset, len);
        let mut piece = self.umem.piece(self.chunk);
        while left > 0 {
            let held = usize::from(piece.len);
            if skip < held {
                let taken = (held - skip).min(left);
                // SAFETY: the handle keeps the chunks from the kernel. Who writes to them is the program that they were lent to, which is told that it may.
                each(unsafe { self.umem.bytes(piece.chunk, u32::from(piece.at) + skip as u32, taken as u32) });
                left -= taken;
            }
            skip = skip.saturating_sub(held);
            let Some(next) = piece.next else { break };
            piece = self.umem.piece(next);
        }
        debug_assert!(left == 0, "the handle's bytes are in its chunks");
    }
}

impl Clone for Received {
    fn clone(&self) -> Self {
        self.umem.holders(self.chunk).fetch_add(1, Ordering::Relaxed);
        Self { umem: Arc::clone(&self.umem), ..*self }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        // (Release and acquire: what other handles' owners have read, they have read before the kernel writes there again.)
        if self.umem.holders(self.chunk).fetch_sub(1, Ordering::AcqRel) == 1 {
            self.umem.give_back(self.chunk);
        }
    }
}

impl RxBuffer for Received {
    fn len(&self) -> usize {
        self.len.into()
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        let mut at = 0;
        let len = out.len();
        self.each_piece(offset, len, |bytes| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        });
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        let mut sum = Checksum::new();
        self.each_piece(offset, len, |bytes| sum.add(bytes));
        sum.folded()
    }

    fn slice(&self, offset: usize, len: usize) -> Self {
        self.clone().into_slice(offset, len)
    }

    fn into_slice(mut self, offset: usize, len: usize) -> Self {
        assert!(offset + len <= usize::from(self.len), "a part of the bytes");
        (self.at, self.len) = (self.at + offset as u16, len as u16);
        self
    }
}

impl LendBuffer for Received {
    fn for_each_piece(&self, mut piece: impl FnMut(*const u8, usize)) {
        self.each_piece(0, self.len(), |bytes| piece(bytes.as_ptr(), bytes.len()));
    }

    fn only_piece(&self) -> Option<(*const u8, usize)> {
        let (mut count, mut only) = (0, None);
        self.for_each_piece(|at, len| {
            count += 1;
            only = Some((at, len));
        });
        only.filter(|_| count == 1)
    }

    /// The memory is the process's own.
    fn make_writable(&mut self) {}

    fn take_written(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Handles on 10, 20 and 30 bytes that lie in three places, the second of which is a copy.
    fn merged(umem: &Arc<Umem>) -> Received {
        let copy = umem.copy(&core::array::from_fn::<u8, 20, _>(|at| 10 + at as u8)).unwrap();
        let mut whole = umem.hold(Piece::new(2, 256, 10));
        whole.append(2, copy);
        whole.append(copy.chunk, Piece::new(0, 300, 30));
        umem.receive(2, 256, &(0..10).collect::<Vec<u8>>());
        umem.receive(0, 300, &(30..60).collect::<Vec<u8>>());
        whole
    }

    #[test]
    fn bytes_that_lie_in_several_places_are_as_if_they_lay_in_one() {
        let umem = Arc::new(Umem::map(4, 2, 2).unwrap());
        let whole = merged(&umem);
        let bytes: Vec<u8> = (0..60).collect();
        assert_eq!((whole.to_vec(), whole.only_piece()), (bytes.clone(), None));
        for from in 0..60 {
            for to in from..=60 {
                let part = whole.slice(from, to - from);
                assert_eq!(part.to_vec(), bytes[from..to]);
                assert_eq!(part.checksum(0, to - from), ringway_stack::wire::checksum::sum(&bytes[from..to]), "{from}..{to}");
                let half = (to - from) / 2;
                assert_eq!(part.into_slice(half, to - from - half).to_vec(), bytes[from + half..to]);
            }
        }
        let mut lens = Vec::new();
        whole.slice(5, 50).for_each_piece(|_, len| lens.push(len));
        assert_eq!((lens, whole.slice(5, 50).leading(2)), (vec![5, 20, 25], 25));
        assert_eq!(whole.slice(12, 18).only_piece().map(|(_, len)| len), Some(18));
        assert!(whole.slice(20, 0).only_piece().is_none());
    }

    #[test]
    fn all_of_their_chunks_come_back_when_the_last_handle_is_gone() {
        let umem = Arc::new(Umem::map(4, 2, 2).unwrap());
        let whole = merged(&umem);
        let last = whole.slice(55, 5);
        drop(whole);
        let mut returned = Vec::new();
        assert_eq!((umem.take_returned(&mut returned), umem.copies()), (0, (2, 1)));
        std::thread::spawn(move || drop(last)).join().unwrap();
        assert_eq!((umem.take_returned(&mut returned), umem.copies()), (2, (2, 0)));
        assert_eq!(returned, [2, 0]);
    }
}
