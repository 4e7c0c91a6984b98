//! What the program looks at before its reader does: it is shown each datagram, or segment, by reference, and decides whether the reader
//! gets it.
//!
//! What nobody has decided about counts against its socket's receive buffer, as if it waited to be read, and is otherwise not there: it makes
//! no socket readable, and neither a stream's end nor an error behind it is told before it. (Whoever reads a socket is told of
//! arrivals all the same, by [`Readiness::IN`] among an event's edges: that somebody is to decide.)

use std::net::SocketAddrV4;

use super::Ring;
use super::slots::Socket;
use super::types::{Readiness, SocketId};
use crate::device::Device;
use crate::error::Error;
use crate::mutants::Mutant;
use crate::tcp::{Decision, LentPieces};
use crate::time::Instant;

/// What is to be decided about next: a datagram, or what a segment brought in order.
#[derive(Clone, Debug)]
pub struct Candidate<B> {
    /// Who sent it.
    pub from: SocketAddrV4,
    /// The address that it came to.
    pub to: SocketAddrV4,
    /// When the ring took it from the device; `None`: a stream remembers no such time.
    pub received: Option<Instant>,
    /// Its bytes. The handles are the caller's, whatever is decided.
    pub pieces: LentPieces<B>,
    /// Bytes that wait to be read already.
    pub ready_bytes: usize,
    /// Datagrams of which these are; 1 for any bytes of a stream.
    pub ready_packets: usize,
}

impl<D: Device> Ring<D> {
    /// `on`: what a UDP socket or stream receives from now on is not read before [`Ring::decide`] has admitted it, and stays where the device put
    /// it (as after [`Ring::lend_from_now_on`], which see). Else all that waits for that is admitted.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`] (a listener).
    pub fn screen(&mut self, socket: SocketId, on: bool) -> Result<(), Error> {
        match self.slots.find_mut(socket)? {
            Socket::Stream(_) if on && self.config.is(Mutant::UndecidedIsRead) => {}
            Socket::Stream(stream) if !stream.orphan => stream.connection.screen(on),
            Socket::Stream(_) => return Err(Error::BadSocket),
            Socket::Udp(udp) => drop(udp.set_screen(on)),
            Socket::Listener(_) => return Err(Error::NotSupported),
        }
        if !on {
            self.raise_readable(socket);
        }
        Ok(())
    }

    /// What is to be decided about next, if anything. It stays the next until that is done.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]: nothing; [`Error::BadSocket`], [`Error::NotSupported`] (a listener).
    pub fn candidate(&self, socket: SocketId) -> Result<Candidate<D::Rx>, Error> {
        match self.slots.find(socket).ok_or(Error::BadSocket)? {
            Socket::Stream(stream) if !stream.orphan => {
                let pieces = stream.connection.candidate().ok_or(Error::WouldBlock)?.clone();
                let ready_bytes = stream.connection.available();
                let ready_packets = usize::from(ready_bytes > 0);
                Ok(Candidate { from: stream.remote, to: stream.local, received: None, pieces, ready_bytes, ready_packets })
            }
            Socket::Stream(_) => Err(Error::BadSocket),
            Socket::Udp(udp) => {
                let first = udp.candidate().ok_or(Error::WouldBlock)?;
                let (ready_bytes, ready_packets) = udp.ready();
                let to = SocketAddrV4::new(first.to, udp.local.port());
                let pieces = first.pieces.clone();
                Ok(Candidate { from: first.from, to, received: Some(first.received), pieces, ready_bytes, ready_packets })
            }
            Socket::Listener(_) => Err(Error::NotSupported),
        }
    }

    /// Whether anything waits to be decided about.
    pub fn has_candidate(&self, socket: SocketId) -> bool {
        match self.slots.find(socket) {
            Some(Socket::Stream(stream)) => stream.connection.candidate().is_some(),
            Some(Socket::Udp(udp)) => udp.candidate().is_some(),
            _ => false,
        }
    }

    /// Decides about the candidate; its length in bytes. [`Decision::Admit`] makes the socket readable, [`Decision::Drop`] makes room as if it had been
    /// read, and [`Decision::Hold`] makes it the caller's until [`Ring::give_back`] with that length.
    ///
    /// # Errors
    /// As [`Ring::candidate`].
    pub fn decide(&mut self, now: Instant, socket: SocketId, decision: Decision) -> Result<usize, Error> {
        let decision = match decision {
            Decision::Drop if self.config.is(Mutant::DroppedIsRead) => Decision::Admit,
            Decision::Drop if self.config.is(Mutant::DroppedTakesRoom) => Decision::Hold,
            decision => decision,
        };
        let decided = match self.slots.find_mut(socket)? {
            Socket::Stream(stream) if !stream.orphan => stream.connection.decide(now, decision),
            Socket::Stream(_) => return Err(Error::BadSocket),
            Socket::Udp(udp) => udp.decide(decision),
            Socket::Listener(_) => return Err(Error::NotSupported),
        };
        let len = decided.ok_or(Error::WouldBlock)?;
        // (Of a stream whose end waited behind it, that is what there is to be read now.)
        let is_at_end =
            || self.slots.find(socket).is_some_and(|s| matches!(s, Socket::Stream(stream) if stream.connection.available() == 0));
        if decision == Decision::Admit || is_at_end() {
            self.raise_readable(socket);
        }
        if self.slots.stream(socket).is_ok_and(|stream| stream.connection.wants_transmit()) {
            self.transmit(now, socket.index);
            self.output.flush(&mut self.device);
        }
        Ok(len)
    }

    fn raise_readable(&mut self, socket: SocketId) {
        if self.readiness(socket).contains(Readiness::IN) {
            self.raise(socket.index, Readiness::IN);
        }
    }
}

#[cfg(test)]
mod tests;
