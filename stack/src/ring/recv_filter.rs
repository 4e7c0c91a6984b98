//! Receive filters, which a program may put before a reader: it is shown each datagram, or segment, by reference, and decides whether the reader
//! gets it.
//!
//! What nobody has decided about counts against its socket's receive buffer, as if it waited to be read, and is otherwise not there: it makes
//! no socket readable, and neither a stream's end nor an error behind it is told before it. (Whoever reads a socket is told of
//! arrivals all the same, by [`Readiness::IN`] among an event's edges: that somebody is to decide.)

use std::net::SocketAddr;

use super::Ring;
use super::slots::Flow;
use super::types::FlowId;
use crate::device::{Queues, RxBuffer as _};
use crate::error::Error;
use crate::flow::Readiness;
use crate::mutants::Mutant;
use crate::tcp::{Decision, Lent, LentPieces};
use crate::time::Instant;

/// What is to be decided about next: a datagram, or what a segment brought in order.
#[derive(Clone, Debug)]
pub struct Candidate<B> {
    /// Who sent it.
    pub from: SocketAddr,
    /// The address that it came to.
    pub to: SocketAddr,
    /// When the ring took it from the device; `None`: that is not known, as of a stream's bytes that moved here from elsewhere.
    pub received: Option<Instant>,
    /// As [`Datagram::hardware_time`](super::Datagram::hardware_time).
    pub hardware_time: Option<Instant>,
    /// Its bytes. The handles are the caller's, whatever is decided.
    pub pieces: LentPieces<B>,
    /// Bytes that wait to be read already.
    pub ready_bytes: usize,
    /// Datagrams of which these are; 1 for any bytes of a stream.
    pub ready_packets: usize,
}

/// The same without its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// As [`Candidate::from`].
    pub from: SocketAddr,
    /// As [`Candidate::to`].
    pub to: SocketAddr,
    /// As [`Candidate::received`].
    pub received: Option<Instant>,
    /// As [`Candidate::hardware_time`].
    pub hardware_time: Option<Instant>,
    /// How many bytes it has.
    pub len: usize,
    /// As [`Candidate::ready_bytes`].
    pub ready_bytes: usize,
    /// As [`Candidate::ready_packets`].
    pub ready_packets: usize,
}

impl<Q: Queues> Ring<Q> {
    /// `on`: what a UDP socket or stream receives from now on is not read before [`Ring::decide`] has admitted it, and stays where the device put
    /// it (as after [`Ring::lend_from_now_on`], which see). Else all that waits for that is admitted.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`] (a listener).
    pub fn set_recv_filter(&mut self, flow: FlowId, on: bool) -> Result<(), Error> {
        if on && matches!(self.slots.find(flow), Some(Flow::Udp(_))) {
            self.udp_from_strides(flow)?;
        }
        match self.slots.find_mut(flow)? {
            Flow::Stream(_) if on && self.config.is(Mutant::UndecidedIsRead) => {}
            Flow::Stream(stream) if !stream.orphan => stream.connection.set_recv_filter(on),
            Flow::Stream(_) | Flow::Resting(_) => return Err(Error::BadSocket),
            Flow::Udp(udp) => drop(udp.set_recv_filter(on)),
            Flow::Listener(_) => return Err(Error::NotSupported),
        }
        if !on {
            self.raise_readable(flow);
        }
        Ok(())
    }

    /// What is to be decided about next, if anything. It stays the next until that is done.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]: nothing; [`Error::BadSocket`], [`Error::NotSupported`] (a listener).
    pub fn candidate(&self, flow: FlowId) -> Result<Candidate<Q::Rx>, Error> {
        let mut pieces = LentPieces::new();
        let Shown { from, to, received, hardware_time, ready_bytes, ready_packets, .. } =
            self.candidate_each(flow, |piece| pieces.push(piece))?;
        Ok(Candidate { from, to, received, hardware_time, pieces, ready_bytes, ready_packets })
    }

    /// The same, piece by piece, for who keeps them elsewhere.
    ///
    /// # Errors
    /// As [`Ring::candidate`]; there was no piece.
    #[inline]
    pub fn candidate_each(&self, flow: FlowId, mut take: impl FnMut(Lent<Q::Rx>)) -> Result<Shown, Error> {
        match self.slots.find(flow).ok_or(Error::BadSocket)? {
            Flow::Stream(stream) if !stream.orphan => {
                let (pieces, arrival) = stream.connection.candidate().ok_or(Error::WouldBlock)?;
                pieces.iter().for_each(|piece| take(piece.clone()));
                let len = pieces.iter().map(Lent::len).sum();
                let ready_bytes = stream.connection.available();
                let ready_packets = usize::from(ready_bytes > 0);
                let (received, hardware_time) = (arrival.map(|at| at.received), arrival.and_then(|at| at.hardware_time));
                Ok(Shown { from: stream.remote, to: stream.local, received, hardware_time, len, ready_bytes, ready_packets })
            }
            Flow::Stream(_) | Flow::Resting(_) => Err(Error::BadSocket),
            Flow::Udp(udp) => udp.candidate(take).ok_or(Error::WouldBlock),
            Flow::Listener(_) => Err(Error::NotSupported),
        }
    }

    /// Has `change` put another handle in the place of each of the candidate's, on as many bytes: what was written to those that were shown, say, for that is
    /// what the reader gets where it is admitted. Where there is no candidate, nothing is done.
    pub fn change_candidate(&mut self, flow: FlowId, mut change: impl FnMut(&mut Q::Rx)) {
        let change = |buffer: &mut Q::Rx| {
            let len = buffer.len();
            change(buffer);
            assert_eq!(buffer.len(), len, "what waits to be decided about has been counted");
        };
        match self.slots.find_mut(flow) {
            Ok(Flow::Stream(stream)) => stream.connection.candidate_buffers().for_each(change),
            Ok(Flow::Udp(udp)) => udp.candidate_buffers().into_iter().flatten().for_each(change),
            _ => {}
        }
    }

    /// Whether anything waits to be decided about.
    pub fn has_candidate(&self, flow: FlowId) -> bool {
        match self.slots.find(flow) {
            Some(Flow::Stream(stream)) => stream.connection.candidate().is_some(),
            Some(Flow::Udp(udp)) => udp.has_candidate(),
            _ => false,
        }
    }

    /// Decides about the candidate; its length in bytes. [`Decision::Admit`] makes the socket readable, [`Decision::Drop`] makes room as if it had been
    /// read, and [`Decision::Hold`] makes it the caller's until [`Ring::give_back`] with that length.
    ///
    /// # Errors
    /// As [`Ring::candidate`].
    pub fn decide(&mut self, now: Instant, flow: FlowId, decision: Decision) -> Result<usize, Error> {
        let decision = match decision {
            Decision::Drop if self.config.is(Mutant::DroppedIsRead) => Decision::Admit,
            Decision::Drop if self.config.is(Mutant::DroppedTakesRoom) => Decision::Hold,
            decision => decision,
        };
        let decided = match self.slots.find_mut(flow)? {
            Flow::Stream(stream) if !stream.orphan => stream.connection.decide(now, decision),
            Flow::Stream(_) | Flow::Resting(_) => return Err(Error::BadSocket),
            Flow::Udp(udp) => {
                let len = udp.decide(decision).ok_or(Error::WouldBlock)?;
                if decision == Decision::Admit {
                    self.raise(flow.index, Readiness::IN);
                }
                return Ok(len);
            }
            Flow::Listener(_) => return Err(Error::NotSupported),
        };
        let len = decided.ok_or(Error::WouldBlock)?;
        // (Of a stream whose end waited behind it, that is what there is to be read now.)
        let is_at_end = || self.slots.find(flow).is_some_and(|s| matches!(s, Flow::Stream(stream) if stream.connection.available() == 0));
        if decision == Decision::Admit || (is_at_end() && !self.config.is(Mutant::DroppedEndUnraised)) {
            self.raise_readable(flow);
        }
        if self.slots.stream(flow).is_ok_and(|stream| stream.connection.wants_transmit()) {
            self.transmit(now, flow.index);
            self.output.flush(&mut self.queues);
        } else {
            self.renote(flow.index);
        }
        Ok(len)
    }

    fn raise_readable(&mut self, flow: FlowId) {
        if self.readiness(flow).contains(Readiness::IN) {
            self.raise(flow.index, Readiness::IN);
        }
    }
}

#[cfg(test)]
mod tests;
