//! What the program looks at before its reader does.

use super::Connection;
use crate::device::{RxBuffer, TxBuffer};
use crate::tcp::screen::{Decision, LentPieces};
use crate::time::Instant;

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// `on`: what arrives from now on is not read before [`Connection::decide`] has admitted it. Else all that waits for that is admitted.
    pub fn screen(&mut self, on: bool) {
        self.recv.set_screen(on);
    }

    /// What is to be decided about next: a segment's payload.
    pub fn candidate(&self) -> Option<&LentPieces<R>> {
        self.recv.candidate()
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
