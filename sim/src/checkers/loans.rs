//! Loans: what a program took by reference does not change while it holds it, was copied nowhere on its way if that was promised, and counts
//! against its socket's receive buffer until it is given back, and no longer. (That of a stream shows in the [`super::window`].)

use ringway_stack::Instant;
use ringway_stack::ring::{Ring, SocketId, SocketInfo};

use super::{Checkers, Moment};
use crate::nic::SimDevice;

const NAME: &str = "loans";

/// What a datagram counts beside its bytes (the ring's documentation: "with a fixed overhead for each datagram").
const DATAGRAM_OVERHEAD: usize = 256;
/// The longest datagram: that of the largest MTU that a host draws.
const DATAGRAM_MAX: usize = 9000;

/// What it remembers of a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    /// Bytes that are lent, and loans.
    lent: usize,
    loans: usize,
    /// Datagrams that the program took.
    taken: u64,
    /// Datagrams that were dropped, at the last look.
    drops: u64,
}

impl State {
    /// The program took a datagram, by reference or not.
    pub(super) fn took_datagram(&mut self) {
        self.taken += 1;
    }

    /// A look after a call.
    pub(super) fn looked(&mut self, info: &SocketInfo) {
        self.drops = info.counters.rx_drops;
    }

    /// A look after a poll, in which a UDP socket's buffer only got fuller.
    pub(super) fn polled(&mut self, moment: &Moment, info: &SocketInfo, receive_max: usize) {
        if info.state.is_some() {
            return;
        }
        let waiting = usize::try_from(info.counters.rx_packets.saturating_sub(self.taken)).unwrap_or(usize::MAX);
        let datagrams = waiting + self.loans;
        let full = info.recv_queue + self.lent + datagrams * DATAGRAM_OVERHEAD;
        if info.counters.rx_drops > self.drops && full + DATAGRAM_OVERHEAD + DATAGRAM_MAX <= receive_max {
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
        self.drops = info.counters.rx_drops;
    }
}

impl Checkers {
    /// A program took something by reference; `copied`: it was copied on its way, though its ring lends everything.
    pub(crate) fn lent(&mut self, place: usize, ring: &Ring<SimDevice>, socket: SocketId, len: usize, copied: bool) {
        let moment = self.moment(place, None);
        if copied {
            moment.breach(NAME, format_args!("{len} bytes that are lent were copied between the wire and their reader"));
        }
        let endpoint = self.endpoint(place, socket);
        if let Some(sock) = self.desks[place].sockets.get_mut(&socket) {
            sock.loans.lent += len;
            sock.loans.loans += 1;
        }
        if let Some(id) = endpoint {
            self.flows.at_mut(id).window.lent += len as u64;
        }
        self.looked(place, ring, socket);
    }

    /// A program is about to give something back: what it was, and what it is now.
    pub(crate) fn gives_back(&mut self, place: usize, now: Instant, socket: SocketId, was: &[u8], is: &[u8]) {
        self.desks[place].now = now;
        let moment = self.moment(place, None);
        if was != is {
            let at = was.iter().zip(is).position(|(was, is)| was != is).unwrap_or(was.len().min(is.len()));
            moment.breach(NAME, format_args!("byte {at} of {} that {socket:?} lent changed while its reader held it", was.len()));
        }
        let endpoint = self.endpoint(place, socket);
        if let Some(sock) = self.desks[place].sockets.get_mut(&socket)
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
    pub(crate) fn gave_back(&mut self, place: usize, ring: &Ring<SimDevice>, socket: SocketId) {
        self.looked(place, ring, socket);
    }
}
