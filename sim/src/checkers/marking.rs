//! Which states of the world the run came upon ([`crate::reached`]). Nothing here is a law.

use core::time::Duration;
use std::net::IpAddr;

use ringway_stack::Instant;

use super::Checkers;
use super::flow::Endpoint;
use super::segment::{RST, Segment, before};
use crate::reached::{Reached, State};

/// A connection between addresses that were another's within this time.
const AT_ONCE: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// Steps of a clock below this are drift.
const DRIFT_MAX: Duration = Duration::from_millis(1);

impl Checkers {
    /// How often the run came upon each state.
    pub(crate) fn reached(&self) -> Reached {
        self.reached
    }

    /// A program's call came upon a state.
    pub(crate) fn reached_by_call(&mut self, state: State) {
        self.reached.note(state);
    }

    /// A host is gone without a word: in which state are those who spoke with it?
    pub(super) fn note_left_by(&mut self, ip: IpAddr) {
        let (flows, reached, failed) = (&self.flows, &mut self.reached, &mut self.failed_handshakes);
        for own in flows.all().filter(|own| own.tuple.1.ip() == ip && !own.reset && !own.shadow.failed && own.left_at.is_none()) {
            let state = state(own);
            if state == State::PeerGoneSynReceived {
                failed.insert((own.host, own.tuple.0.port()));
            }
            reached.note(state);
        }
    }

    /// A segment is about to be sent, by an endpoint that may be new: `before` is the one that had its addresses.
    pub(super) fn note_begun(&mut self, at: Instant, before: Option<usize>, id: usize) {
        if let Some(old) = before.filter(|&old| old != id).map(|old| self.flows.at(old))
            && at.since(old.rx_at.max(old.tx_at)) < AT_ONCE
        {
            self.reached.note(State::AddressesUsedAgain);
        }
    }

    /// A lawful segment is about to be noted as sent.
    pub(super) fn note_sent(&mut self, at: Instant, id: usize, segment: &Segment) {
        let (flows, reached) = (&mut self.flows, &mut self.reached);
        let own = flows.at_mut(id);
        if own.window.shut_for(MINUTE, at) {
            reached.note(State::WindowShutMinute);
        }
        if segment.len() == 0 {
            return;
        }
        let end = segment.seq.wrapping_add(segment.len());
        let silent = at.since(own.rx_at.max(own.tx_at)) >= HOUR;
        let at_edge = |below: u32| own.edge == Some(end.wrapping_add(below));
        let notes = [
            (silent, State::SilentHour),
            (segment.len() == 1, State::SentOneByte),
            (end < segment.seq, State::SequenceWrapped),
            (at_edge(0), State::SentToWindowEdge),
            (at_edge(1), State::SentBelowWindowEdge),
        ];
        notes.into_iter().filter(|(comes, _)| *comes).for_each(|(_, state)| reached.note(state));
    }

    /// A program wrote so many bytes at once.
    pub(super) fn note_written(&mut self, id: usize, len: usize) {
        let (own, peer) = self.flows.both(id);
        let Some(full) = peer.map(|peer| super::shadow::sender::full_segment(own, peer) as usize) else { return };
        let state = match len {
            _ if len + 1 == full => State::WriteBelowSegment,
            _ if len == full => State::WriteOfSegment,
            _ if len == full + 1 => State::WriteAboveSegment,
            _ => return,
        };
        self.reached.note(state);
    }

    /// A reset came for an endpoint, which may be a handshake that fails by it.
    pub(super) fn note_refused(&mut self, id: usize, segment: &Segment) {
        let own = self.flows.at(id);
        if segment.has(RST) && own.passive && own.una == own.iss {
            self.failed_handshakes.insert((own.host, own.tuple.0.port()));
        }
    }

    /// A connection was accepted at a port of a host.
    pub(super) fn note_accepted(&mut self, host: usize, port: u16) {
        if self.failed_handshakes.remove(&(host, port)) {
            self.reached.note(State::RefilledAfterFailure);
        }
    }

    /// The sockets of a port are others now.
    pub(super) fn note_bound(&mut self, place: usize, bound: (bool, u16)) {
        let Some(port) = self.ring_states[place].bound.get(&bound) else { return };
        let (mixed_addresses, mixed_peers, several) = port.mixture();
        let notes = match bound.0 {
            true => [(several, State::ListenersShare), (mixed_addresses, State::BoundToAllAndOne)],
            false => [(mixed_peers, State::ConnectedAndNot), (mixed_addresses, State::BoundToAllAndOne)],
        };
        notes.into_iter().filter(|(comes, _)| *comes).for_each(|(_, state)| self.reached.note(state));
    }

    /// A host was told that a path takes less than its link does.
    pub(super) fn note_narrowed(&mut self) {
        self.reached.note(State::PathNarrower);
    }

    /// A clock jumped.
    pub(super) fn note_jumped(&mut self, by: Duration) {
        self.reached.note(if by < DRIFT_MAX { State::ClockDrifts } else { State::ClockJumps });
    }
}

/// In which state an endpoint is (RFC 9293 s3.3.2), whose peer is gone, by what it sent and what arrived.
fn state(own: &Endpoint) -> State {
    let acknowledged = |seq: u32| before(seq, own.una);
    let begun = own.irs.is_some() && acknowledged(own.iss);
    match (own.fin, own.peer_ended()) {
        _ if own.irs.is_none() => State::PeerGoneSynSent,
        _ if !begun => State::PeerGoneSynReceived,
        (None, false) => State::PeerGoneEstablished,
        (None, true) => State::PeerGoneCloseWait,
        (Some(fin), false) => {
            if acknowledged(fin) {
                State::PeerGoneFinWait2
            } else {
                State::PeerGoneFinWait1
            }
        }
        (Some(fin), true) if acknowledged(fin) => State::PeerGoneTimeWait,
        (Some(_), true) if own.shadow.closes_first() => State::PeerGoneClosing,
        (Some(_), true) => State::PeerGoneLastAck,
    }
}
