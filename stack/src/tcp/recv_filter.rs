//! What arrived in order, and is not the reader's until the program has decided about it.

use std::collections::VecDeque;

use arrayvec::ArrayVec;

use super::arrivals::Arrival;
use super::payload::RxPayload;
use super::recv_queue::Lent;
use crate::device::RxBuffer;

/// The pieces of a datagram or segment: what was copied before anybody asked for it by reference, its head, its body.
pub type LentPieces<B> = ArrayVec<Lent<B>, 3>;

/// What the program decides about a datagram or segment that it was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nobody gets it.
    Drop,
    /// The reader gets it.
    Admit,
    /// The program keeps it, and gives it back as what it took by reference.
    Hold,
}

/// A receive filter: the segments that it holds back, oldest first.
pub(super) struct RecvFilter<R> {
    /// Each with when it came, where that is known. Invariant: none is empty.
    segments: VecDeque<(LentPieces<R>, Option<Arrival>)>,
    len: usize,
}

impl<R: RxBuffer> RecvFilter<R> {
    pub(super) fn new() -> Self {
        Self { segments: VecDeque::new(), len: 0 }
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn first(&self) -> Option<(&LentPieces<R>, Option<Arrival>)> {
        self.segments.front().map(|(pieces, at)| (pieces, *at))
    }

    pub(super) fn first_mut(&mut self) -> Option<&mut LentPieces<R>> {
        self.segments.front_mut().map(|(pieces, _)| pieces)
    }

    pub(super) fn pop(&mut self) -> Option<(LentPieces<R>, Option<Arrival>)> {
        let first = self.segments.pop_front()?;
        self.len -= first.0.iter().map(Lent::len).sum::<usize>();
        Some(first)
    }

    /// Takes a segment in; how many bytes it has.
    pub(super) fn push(&mut self, payload: RxPayload<'_, R>, at: Option<Arrival>) -> usize {
        let head =
            payload.held_head().map(Lent::Buffer).or_else(|| (!payload.head.is_empty()).then(|| Lent::Copied(payload.head.to_vec())));
        self.push_pieces(head.into_iter().chain(payload.body.map(Lent::Buffer)).collect(), at)
    }

    pub(super) fn push_pieces(&mut self, mut pieces: LentPieces<R>, at: Option<Arrival>) -> usize {
        pieces.retain(|piece| !piece.is_empty());
        let len = pieces.iter().map(Lent::len).sum();
        if len > 0 {
            self.segments.push_back((pieces, at));
            self.len += len;
        }
        len
    }

    /// A copy of all bytes.
    pub(super) fn append_to(&self, bytes: &mut Vec<u8>) {
        for piece in self.segments.iter().flat_map(|(pieces, _)| pieces) {
            match piece {
                Lent::Copied(copy) => bytes.extend_from_slice(copy),
                Lent::Buffer(buffer) => {
                    let at = bytes.len();
                    bytes.resize(at + buffer.len(), 0);
                    buffer.copy_to(0, &mut bytes[at..]);
                }
            }
        }
    }
}
