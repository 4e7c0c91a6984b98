//! A segment that is made as if it were sent, and is not.

use super::Connection;
use crate::device::{RxBuffer, TxBuffer};
use crate::error::Error;
use crate::tcp::State;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header};

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// The header of the segment that would go out if the program wrote `len` bytes now. Nothing changes.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]: no such segment would go out at once, or it would not have all of them; [`Error::Pipe`], or the pending error: there is no
    /// writing.
    pub(crate) fn dummy_header(&self, now: Instant, len: usize) -> Result<Header, Error> {
        if !matches!(self.state, State::Established | State::CloseWait) || self.fin_queued {
            return Err(match self.state {
                State::SynSent | State::SynReceived => Error::WouldBlock,
                _ => self.error.unwrap_or(Error::Pipe),
            });
        }
        let edge = self.snd_una + self.snd_wnd as usize;
        let window = edge.since(self.snd_nxt);
        let all_sent = self.send.end() == self.snd_nxt;
        let fits = len > 0 && len <= self.mss && self.snd_nxt.le(edge) && len <= window;
        let pipe = self.pipe();
        if !all_sent || !fits || (pipe > 0 && pipe + len > self.cwnd) {
            return Err(Error::WouldBlock);
        }
        Ok(self.header(now, self.snd_nxt, Flags::ACK | Flags::PSH).0)
    }

    pub(crate) fn count_dummy(&mut self) {
        self.counters.tx_dummies += 1;
    }
}
