//! Receiving by reference: the program gets handles on the bytes where the device put them, and gives them back.
//!
//! What is lent still counts against its socket's receive buffer: a TCP window stays as far shut, and a UDP socket drops as soon, as if
//! nobody had read. So who never gives anything back starves this one socket, for as long as it is open; of one that is closed, what is lent is its
//! holder's alone to bound.

use super::Ring;
use super::slots::Flow;
use super::types::{Datagram, FlowId};
use crate::device::Queues;
use crate::error::Error;
use crate::marks::mark;
use crate::tcp::{Lent, LentPieces};
use crate::time::Instant;

impl<Q: Queues> Ring<Q> {
    /// From now on, whatever arrives stays where the device put it until it is read: also on sockets that are opened later. Without it, small
    /// payloads that came before a socket's first [`Ring::udp_lend`] or [`Ring::tcp_lend`] have been copied once. `false`: the device keeps
    /// no heads, so that payload among them goes on being copied.
    pub fn lend_from_now_on(&mut self) -> bool {
        self.lends = true;
        for flow in self.slots.iter_mut() {
            match flow {
                Flow::Stream(stream) => stream.connection.lend_from_now_on(),
                Flow::Resting(resting) => resting.lend_from_now_on(),
                Flow::Udp(udp) => udp.lend_from_now_on(),
                Flow::Listener(_) => {}
            }
        }
        self.queues.lend_heads(true).is_ok()
    }

    /// Takes the oldest datagram by reference; [`Datagram::copied`] is zero. It is to be given back by [`Ring::give_back`] with its length, once
    /// its handles are dropped.
    ///
    /// # Errors
    /// As [`Ring::udp_recv`].
    pub fn udp_lend(&mut self, flow: FlowId) -> Result<(Datagram, LentPieces<Q::Rx>), Error> {
        let mut pieces = LentPieces::new();
        let datagram = self.udp_lend_each(flow, |piece| pieces.push(piece))?;
        Ok((datagram, pieces))
    }

    /// Takes the oldest bytes of a stream by reference, in one piece: as many as `take` says of the buffer that they are in (all that were copied
    /// before). `None` is the end of the stream. To be given back by
    /// [`Ring::give_back`] with its length, once its handles are dropped.
    ///
    /// # Errors
    /// As [`Ring::tcp_recv`].
    pub fn tcp_lend(&mut self, flow: FlowId, take: impl FnOnce(&Q::Rx) -> usize) -> Result<Option<Lent<Q::Rx>>, Error> {
        let lent = self.slots.stream(flow)?.connection.lend(take);
        self.renote(flow.index);
        lent
    }

    /// The program is done with `len` lent bytes of a stream, or with a lent datagram of `len` bytes. Opens the window, and tells the peer if that is
    /// worth a segment. For a socket that is gone it means nothing.
    pub fn give_back(&mut self, now: Instant, flow: FlowId, len: usize) {
        if self.udp_give_back(flow, len) {
            return;
        }
        let Ok(stream) = self.slots.stream(flow) else {
            mark!(self, LentBeyondClose);
            return;
        };
        stream.connection.give_back(now, len);
        if stream.connection.wants_transmit() {
            self.transmit(now, flow.index);
            self.output.flush(&mut self.queues);
        } else {
            self.renote(flow.index);
        }
    }
}

#[cfg(test)]
mod tests;
