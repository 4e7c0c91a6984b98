//! Connections that leave their ring for another carrier ([`ringway_stack::ring::Ring::end_silently`]): what is said to be left of one is what it had.

use std::net::SocketAddr;

use ringway_stack::Instant;
use ringway_stack::ring::{FlowId, Readiness, Ring};
use ringway_stack::tcp::Undelivered;

use super::flow::Tuple;
use super::{Checkers, stream};
use crate::nic::SimQueues;

type R = Ring<SimQueues>;

/// A socket of the addresses that are about to leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    socket: FlowId,
    /// An error waits to be told.
    failed: bool,
}

impl Checkers {
    /// A connection is about to leave its ring.
    pub(crate) fn ends_silently(&mut self, place: usize, now: Instant, ring: &R, tuple: Tuple) {
        let ring_state = &mut self.ring_states[place];
        ring_state.now = now;
        let mut candidates: Vec<_> =
            ring_state.sockets.iter().filter(|(_, sock)| sock.tuple == Some(tuple)).map(|(socket, _)| socket).collect();
        candidates.sort_unstable();
        let before = |socket: FlowId| {
            ring.info(socket)?;
            Some(Before { socket, failed: ring.readiness(socket).contains(Readiness::ERR) })
        };
        self.leaving = candidates.into_iter().filter_map(before).collect();
    }

    /// It has left; `undelivered` is all that is left of it.
    pub(crate) fn ended_silently(&mut self, place: usize, ring: &R, tuple: Tuple, undelivered: &Undelivered) {
        let moment = self.moment(place, None);
        let before = core::mem::take(&mut self.leaving).into_iter().find(|before| ring.info(before.socket).is_none());
        let endpoint = before.and_then(|before| self.endpoint(place, before.socket));
        let host = self.ring_states[place].host;
        // One that nobody accepted has no socket, but its segments were seen.
        let unaccepted = || self.flows.left(tuple, host, undelivered.sent_from.0).filter(|_| before.is_none());
        let id = endpoint.or_else(unaccepted);
        let closed =
            before.and_then(|before| self.ring_states[place].sockets.remove(&before.socket)).is_some_and(|sock| sock.closed.is_some());
        let failed = before.is_some_and(|before| before.failed && !closed);
        // Of an orphan that is given up nobody hears.
        let own = id.filter(|_| before.is_some()).map(|id| self.flows.at(id));
        let over = own.is_some_and(|own| failed || !own.goes_on() || closed && (!own.calm || own.may_be_given_up()));
        if let Some(id) = id {
            self.flows.pair(id);
            let (own, peer) = self.flows.both(id);
            stream::left(
                &moment,
                own,
                peer.map(|peer| &*peer),
                undelivered,
                stream::Known { accepted: before.is_some(), closed, over, failed },
            );
            own.owner = None;
            own.timers.forget();
            // What comes for a connection that was over is answered as ever.
            // (Its peer may have reset one that nobody has accepted, which is in its listener's queue as before.)
            own.left_at = Some(moment.at).filter(|_| !over && (before.is_some() || own.goes_on()));
            // Its ring answers for it no more, whatever else is forgotten about it (by its listener's end, say).
            own.shadow.blurred = true;
        }
    }

    /// A listener is closed: segments for what it accepted may now come to another ring, which has never heard of it.
    pub(super) fn unlisten(&mut self, place: usize, local: SocketAddr) {
        let host = self.ring_states[place].host;
        self.flows.forget_leaving(host, local);
    }
}
