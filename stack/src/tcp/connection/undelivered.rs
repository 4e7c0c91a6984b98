//! What is left of a connection that another carrier goes on with: how far both streams got, and the bytes that are still owed.

use super::{Connection, State};
use crate::device::{RxBuffer, TxBuffer};
use crate::error::Error;
use crate::mutants::Mutant;
use crate::wire::tcp::SeqNumber;

/// One end of a connection that this stack carries no more. Both ends' together say what each reader has yet to read:
/// [`Undelivered::owed_to`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    /// The sequence number of the first byte in `unacknowledged`.
    pub sent_from: SeqNumber,
    /// What was written here and has not been acknowledged.
    pub unacknowledged: Vec<u8>,
    /// Our stream ended behind them: the program shut it down, or closed the socket.
    pub ended: bool,
    /// The sequence number behind the last byte that was received in order.
    pub received_to: SeqNumber,
    /// What was received in order and not read.
    pub unread: Vec<u8>,
    /// The peer's stream ended there.
    pub peer_ended: bool,
    /// The program closed the socket here: nobody reads.
    pub orphaned: bool,
    /// The program has it: not so one that still waits to be accepted.
    pub accepted: bool,
    /// It was over already, by both ends' consent or not: nothing could be sent any more, or received.
    pub over: bool,
    /// Why the connection was over already, if it was.
    pub error: Option<Error>,
}

impl Undelivered {
    /// Whether the connection failed before both streams were through: neither can go on, and who reads them must not take that for an end. (That our
    /// program ended its stream does not say that the peer got all of it: a reset may have come before that.)
    pub fn is_broken(&self) -> bool {
        self.over && (self.error.is_some() || !(self.ended && self.peer_ended))
    }

    /// What `reader` has yet to read of the stream between the two: what it received already, and what `self`, its peer, had
    /// not seen acknowledged. `None`: the two are not ends of one connection.
    pub fn owed_to(&self, reader: &Self) -> Option<Vec<u8>> {
        let behind = reader.received_to.0.wrapping_sub(self.sent_from.0) as usize;
        let missing = self.unacknowledged.get(behind..)?;
        let mut owed = reader.unread.clone();
        owed.extend_from_slice(missing);
        Some(owed)
    }
}

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// Ends it here without a word to the peer. Bytes that came out of order are the peer's to send again, by whatever way.
    pub(crate) fn end_silently(self) -> Undelivered {
        let fin = u32::from(self.peer_fin);
        let unread = if self.config.is(Mutant::UndeliveredLosesUnread) { Vec::new() } else { self.recv.to_vec() };
        let unacknowledged = self.send.to_vec();
        Undelivered {
            sent_from: SeqNumber(self.send.end().0.wrapping_sub(unacknowledged.len() as u32)),
            unacknowledged,
            ended: self.fin_queued && !self.config.is(Mutant::UndeliveredForgetsEnd),
            received_to: SeqNumber(self.window.nxt.0.wrapping_sub(fin)),
            unread,
            peer_ended: self.peer_fin,
            orphaned: self.orphaned,
            accepted: true,
            over: self.state == State::Closed,
            error: self.error,
        }
    }
}
