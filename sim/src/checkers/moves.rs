//! Connections that go over to a ring which has another MAC address, and whose peer is told ([`ringway_stack::ring::Ring::tcp_keep_silent`]): nothing is said there before the
//! peer follows, and nothing where they were; as soon as each knows where the other is, something is; and a peer that dies before it follows leaves a
//! connection that is reset.

use ringway_stack::Instant;
use ringway_stack::ring::{FlowId, Ring};
use ringway_stack::tcp;

use super::after_close::REMEMBERED;
use super::closing::RESET_BOUND;
use super::flow::Endpoint;
use super::segment::{RST, Segment, before};
use super::{Checkers, Moment};
use crate::nic::SimQueues;
use crate::reached;

const NAME: &str = "moves";

type R = Ring<SimQueues>;

/// What it remembers of an endpoint.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Its peer has yet to follow.
    silent: bool,
    /// When it was last told to go on.
    spoke_at: Option<Instant>,
    /// It was, and has said nothing since.
    owes: bool,
    /// Its peer's host is dead; and whether it had yet to follow when that was told.
    peer_died: bool,
    lost: bool,
}

impl State {
    /// Whether its peer has yet to follow.
    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    /// When it last had a reason to be late.
    pub(super) fn excused(&self) -> Instant {
        self.spoke_at.unwrap_or(Instant::ZERO)
    }

    /// Whether its peer's host is dead.
    pub(super) fn has_lost_peer(&self) -> bool {
        self.peer_died
    }
}

/// The endpoint's host was serviced. `free`: the device takes all that it is given.
pub(super) fn serviced(moment: &Moment, own: &mut Endpoint, free: bool) {
    if core::mem::take(&mut own.moves.owes) && free && !own.moves.peer_died && !own.disturbed && !own.shadow.failed && !own.reset {
        moment
            .about(own.tuple)
            .breach(NAME, "each end knows where the other is, and nothing is said: what was lost on the way waits for a timer");
    }
}

/// A program read the end of its peer's stream, whose host is dead, and had heard of no error.
pub(super) fn ended(moment: &Moment, own: &Endpoint, peer: &Endpoint) {
    let moment = moment.about(own.tuple);
    if own.moves.lost {
        moment.breach(NAME, "the end of a stream whose writer died before it knew where this end is: what was sent to it last may be lost");
    }
    let sent = own.nxt.wrapping_sub(own.iss).wrapping_sub(1 + u32::from(own.fin.is_some_and(|fin| before(fin, own.nxt))));
    if u32::try_from(peer.stream.taken() & 0xffff_ffff) != Ok(sent) {
        let read = peer.stream.taken();
        moment.breach(NAME, format_args!("the end of a stream whose writer died, and had read {read} bytes of {sent}"));
    }
}

impl Checkers {
    /// The endpoint of a connection, whether its program has it, or has yet to accept it.
    fn endpoint_between(&mut self, place: usize, ring: &R, socket: FlowId) -> Option<usize> {
        let between = ring.info(socket).and_then(|info| Some((info.local, info.remote?)));
        let host = self.ring_states[place].host;
        let of_host = |id: &usize| self.flows.at(*id).host == host;
        let unaccepted = between.and_then(|tuple| self.flows.id(tuple)).filter(of_host);
        self.endpoint(place, socket).or(unaccepted)
    }

    /// A ring had no room for a connection that was to go over to it.
    pub(crate) fn found_no_room(&mut self) {
        self.reached.note(reached::State::FoundNoRoom);
    }

    /// A connection that has come to a ring says nothing until its peer follows.
    pub(crate) fn silenced(&mut self, place: usize, now: Instant, socket: FlowId) {
        self.ring_states[place].now = now;
        self.reached.note(reached::State::WentOver);
        if let Some(id) = self.endpoint(place, socket) {
            let own = self.flows.at_mut(id);
            (own.moves.silent, own.moves.owes) = (true, false);
            own.window.was_silent();
        }
    }

    /// Its peer follows, or knows of no such connection.
    pub(crate) fn speaks(&mut self, place: usize, now: Instant, ring: &R, socket: FlowId) {
        self.ring_states[place].now = now;
        let Some(id) = self.endpoint(place, socket).filter(|&id| self.flows.at(id).moves.silent) else { return };
        self.reached.note(reached::State::SpokeAgain);
        self.flows.at_mut(id).moves.silent = false;
        let ring_state = &mut self.ring_states[place];
        if ring_state.sockets.get(&socket).and_then(|sock| sock.closed).is_some_and(|closed| closed.reset_due) {
            ring_state.closing.insert((now + RESET_BOUND, socket));
        }
        self.knows_its_peer(now, ring, socket, id);
    }

    /// A connection's peer is at another MAC address from now on.
    pub(crate) fn follows(&mut self, place: usize, now: Instant, ring: &R, socket: FlowId) {
        self.ring_states[place].now = now;
        self.reached.note(reached::State::Followed);
        let Some(id) = self.endpoint_between(place, ring, socket) else { return };
        if self.flows.at(id).moves.silent {
            // It has gone over itself, and says nothing before its peer has heard of that, too.
            self.reached.note(reached::State::BothWentOver);
            return;
        }
        self.knows_its_peer(now, ring, socket, id);
    }

    fn knows_its_peer(&mut self, now: Instant, ring: &R, socket: FlowId, id: usize) {
        let is_open = ring.info(socket).and_then(|info| info.state).is_some_and(|state| {
            !matches!(state, tcp::State::Closed | tcp::State::TimeWait | tcp::State::SynSent | tcp::State::SynReceived)
        });
        let own = self.flows.at_mut(id);
        own.rto.forgive();
        own.shadow.blurred = true;
        own.moves.spoke_at = Some(now);
        own.window.was_silent();
        own.moves.owes = is_open && own.irs.is_some();
        self.stir(id);
    }

    /// A program closed a connection, or one direction of it, whose peer has yet to follow.
    pub(super) fn note_ended(&mut self, id: usize, state: reached::State) {
        if self.flows.at(id).moves.silent {
            self.reached.note(state);
        }
    }

    /// A host is about to send a segment of a connection, which is with one of its rings.
    pub(super) fn says(&mut self, moment: &Moment, bytes: &[u8], segment: &Segment, id: usize) {
        if !self.ring_states[self.first(moment.host)].mac_per_ring {
            return;
        }
        let own = self.flows.at_mut(id);
        own.moves.owes = false;
        // Each ring has a MAC address, whose second byte is its number.
        let from = bytes.get(7).and_then(|ring| self.places[moment.host].get(usize::from(*ring)));
        let (Some((at, _)), Some(&from)) = (own.owner, from) else { return };
        let moment = moment.about(own.tuple);
        // (One that its peer has reset is none any more: what comes for it is a stranger's, RFC 9293 s3.10.7.1.)
        let is_over = segment.has(RST) && own.forged.was_reset();
        if from == at && own.moves.silent && !is_over {
            moment.breach(NAME, "a segment, and the peer does not know yet where this end is");
        }
        let stands = own.goes_on() && !own.shadow.closed && !own.shadow.unread && own.moves.spoke_at.is_some() && own.irs.is_some();
        if from == at && segment.has(RST) && stands {
            moment
                .breach(NAME, "a reset, of a connection that nobody ended: what it answers was on its way when one of the ends went over");
        }
        // (What had been handed to the device when it left is seen in the same moment.)
        if from != at && moment.at > own.moved_at && moment.at < own.moved_at + REMEMBERED {
            let ago = moment.at.since(own.moved_at);
            moment.breach(NAME, format_args!("a segment of the ring that it left {ago:?} ago"));
        }
    }

    /// A host died.
    pub(crate) fn died(&mut self, host: usize) {
        for id in self.peers_of(host) {
            self.flows.at_mut(id).moves.peer_died = true;
        }
    }

    /// All rings know that a host died.
    pub(crate) fn death_told(&mut self, host: usize) {
        for id in self.peers_of(host) {
            let own = self.flows.at_mut(id);
            own.moves.lost |= own.moves.silent && !own.peer_ended();
            (own.disturbed, own.shadow.blurred) = (true, true);
            if own.moves.silent && !own.shadow.failed && own.owner.is_some() {
                self.reached.note(reached::State::PeerDiedUntold);
            }
        }
    }

    /// Endpoints of connections with a host.
    fn peers_of(&self, host: usize) -> Vec<usize> {
        let ip = self.ring_states[self.first(host)].ip;
        let is_peers = |own: &Endpoint| own.host != host && Some(own.tuple.1.ip()) == ip;
        self.flows.ids().filter(|&id| is_peers(self.flows.at(id))).collect()
    }
}
