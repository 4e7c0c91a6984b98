//! A stream's receive filter: what the program looks at before its reader does.

use super::Connection;
use crate::device::{RxBuffer, TxBuffer};
use crate::tcp::arrivals::Arrival;
use crate::tcp::recv_filter::{Decision, LentPieces};
use crate::tcp::recv_queue::Lent;
use crate::time::Instant;

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// `on`: what arrives from now on is not read before [`Connection::decide`] has admitted it. Else all that waits for that is admitted.
    pub fn set_recv_filter(&mut self, on: bool) {
        self.recv.set_recv_filter(on);
    }

    /// What is to be decided about next: a segment's payload; and when it came, where that is known.
    pub fn candidate(&self) -> Option<(&LentPieces<R>, Option<Arrival>)> {
        self.recv.candidate()
    }

    /// The candidate's buffers, where they wait.
    pub fn candidate_buffers(&mut self) -> impl Iterator<Item = &mut R> {
        self.recv.candidate_mut().into_iter().flatten().filter_map(|piece| match piece {
            Lent::Buffer(buffer) => Some(buffer),
            Lent::Copied(_) => None,
        })
    }

    /// Decides about the candidate. Its length in bytes; `None`: there is none.
    pub fn decide(&mut self, now: Instant, decision: Decision) -> Option<usize> {
        let len = self.recv.decide(decision)?;
        if decision == Decision::Drop {
            self.made_room(now, len);
        }
        Some(len)
    }
}
