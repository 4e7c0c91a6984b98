//! Loans: what a program took by reference does not change while it holds it, was copied nowhere on its way if that was promised, and counts
//! against its socket's receive buffer until it is given back, and no longer. (That of a stream shows in the [`super::window`].)

use ringway_stack::Instant;
use ringway_stack::ring::{FlowId, FlowInfo, Ring};

use super::{Checkers, Moment};
use crate::nic::SimQueues;

const NAME: &str = "loans";

/// What a datagram counts beside its bytes (the ring's documentation: "with a fixed overhead for each datagram").
pub(super) const DATAGRAM_OVERHEAD: usize = 256;

/// What it remembers of a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    /// Bytes that are lent, and loans.
    lent: usize,
    loans: usize,
    /// Datagrams that the program took, and their bytes.
    taken: u64,
    taken_bytes: u64,
    /// Datagrams that were dropped, and their bytes, at the last look.
    drops: u64,
    dropped_bytes: u64,
}

impl State {
    /// The program took a datagram, by reference or not.
    pub(super) fn took_datagram(&mut self, len: usize) {
        self.taken += 1;
        self.taken_bytes += len as u64;
    }

    /// Bytes of datagrams that the program took.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    /// A look after a call.
    pub(super) fn looked(&mut self, info: &FlowInfo, dropped_bytes: u64) {
        (self.drops, self.dropped_bytes) = (info.counters.rx_drops, dropped_bytes);
    }

    /// A look after a poll, in which a UDP socket's buffer only got fuller.
    pub(super) fn polled(&mut self, moment: &Moment, info: &FlowInfo, dropped_bytes: u64, receive_max: usize) {
        if info.state.is_some() {
            return;
        }
        // (Those that nobody has decided about included, of which the socket's queue knows nothing yet.)
        let waiting = usize::try_from(info.counters.rx_packets.saturating_sub(self.taken)).unwrap_or(usize::MAX);
        let bytes = usize::try_from(info.counters.rx_bytes.saturating_sub(self.taken_bytes)).unwrap_or(usize::MAX);
        let datagrams = waiting + self.loans;
        let full = bytes + self.lent + datagrams * DATAGRAM_OVERHEAD;
        // (None of those that were dropped was longer than all of them.)
        let longest = usize::try_from(dropped_bytes.saturating_sub(self.dropped_bytes)).unwrap_or(usize::MAX);
        if info.counters.rx_drops > self.drops && full.saturating_add(DATAGRAM_OVERHEAD + longest) <= receive_max {
            moment.breach(
                NAME,
                format_args!(
                    "a socket dropped a datagram, with {full} bytes of {receive_max} taken ({waiting} wait, {} are lent)",
                    self.loans
                ),
            );
        }
        // One datagram has room in any buffer.
        if full > receive_max && datagrams > 1 {
            moment.breach(
                NAME,
                format_args!("a socket's datagrams take {full} bytes of {receive_max} ({waiting} wait, {} are lent)", self.loans),
            );
        }
        self.looked(info, dropped_bytes);
    }
}

impl Checkers {
    /// A program took something by reference; `copied`: it was copied on its way, though its ring lends everything.
    pub(crate) fn lent(&mut self, place: usize, ring: &Ring<SimQueues>, socket: FlowId, len: usize, copied: bool) {
        let moment = self.moment(place, None);
        if copied {
            moment.breach(NAME, format_args!("{len} bytes that are lent were copied between the wire and their reader"));
        }
        let endpoint = self.endpoint(place, socket);
        if let Some(sock) = self.ring_states[place].sockets.get_mut(&socket) {
            sock.loans.lent += len;
            sock.loans.loans += 1;
        }
        if let Some(id) = endpoint {
            self.flows.at_mut(id).window.lent += len as u64;
        }
        self.looked(place, ring, socket);
    }

    /// A program is about to give something back: what it was, and what it is now.
    pub(crate) fn gives_back(&mut self, place: usize, now: Instant, socket: FlowId, was: &[u8], is: &[u8]) {
        self.ring_states[place].now = now;
        let moment = self.moment(place, None);
        if was != is {
            let at = was.iter().zip(is).position(|(was, is)| was != is).unwrap_or(was.len().min(is.len()));
            moment.breach(NAME, format_args!("byte {at} of {} that {socket:?} lent changed while its reader held it", was.len()));
        }
        let endpoint = self.endpoint(place, socket);
        if let Some(sock) = self.ring_states[place].sockets.get_mut(&socket)
            && sock.closed.is_none()
        {
            sock.loans.lent = sock.loans.lent.saturating_sub(was.len());
            sock.loans.loans = sock.loans.loans.saturating_sub(1);
            if let Some(id) = endpoint {
                let lent = &mut self.flows.at_mut(id).window.lent;
                *lent = lent.saturating_sub(was.len() as u64);
            }
        }
    }

    /// It was given back.
    pub(crate) fn gave_back(&mut self, place: usize, ring: &Ring<SimQueues>, socket: FlowId) {
        self.looked(place, ring, socket);
    }
}

/// Bytes of the datagrams that found no room in a UDP socket's buffer.
pub(super) fn dropped_bytes(ring: &Ring<SimQueues>, socket: FlowId) -> u64 {
    ring.udp_backlog(socket).map_or(0, |backlog| backlog.dropped_bytes)
}
