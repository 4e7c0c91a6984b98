//! Connections and UDP sockets on a card that go over to another ring: of the thread, or core, which uses them (VMA_RING_MIGRATION_RATIO_RX and _TX), or the one that
//! SO_VMA_RING_ALLOC_LOGIC names once they have flows.
//!
//! Both rings are of one card, with one address, and a flow rule says what comes to which: so nobody else has to know. The flow is taken out of its ring and put into the other
//! with all that it has, and its rule is led there; a connection that came by its listener's rule gets one of its own. Of a connection, what lay in the old ring's queue
//! is lost there in silence, and sent again; of a UDP socket, all of it is taken along, in its order.
//!
//! The progress thread does it, or the call that names another ring, in a hold of the process's lock in which nobody is about to use the flow. Where the card has to make a ring for that place first, a thread of
//! its own has it do so ([`crate::interfaces::cards`]), and the next calls take the flow there. (The call that names another ring waits for it.)
//!
//! What stays where it is: as in [`super::landing`]; a listener; and a UDP socket that shares its address, hears groups, or is read by who knows it by its ring.

use core::time::Duration;

use ringway_stack::Instant;
use ringway_stack::net::LinkId;
use ringway_stack::ring::FlowId;
use ringway_stack::socket::Direction;

use crate::interfaces::cards;
use crate::mux;
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::socket::Kind;

/// Flows that are to go over at a time.
const JOBS_MAX: usize = 1024;

/// How long after one try the next one is made: first, and at last. (Each pause is twice the one before.)
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// A flow that is to go over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    key: Key,
    flow: FlowId,
    link: LinkId,
    to: u16,
    direction: Direction,
    /// Not before then.
    at: Instant,
    /// How long after this try the next one is, where the card has moved some of a socket's flows and no others.
    pause: Duration,
}

/// What became of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Done,
    /// A part of the socket's flows is on either ring: it is tried again.
    Half,
    Refused,
}

/// SO_VMA_RING_ALLOC_LOGIC was set of a socket: its flows on cards go over to the rings that are for it now, which the cards make first where they are not there.
/// What stays where it is, is said.
pub(crate) fn follow_logic(process: &Process, key: Key, direction: Direction) {
    if process.lock().flows_on_cards(key).is_empty() {
        return;
    }
    cards::provide(key, |offload, link| {
        offload.flows_on_cards(key).iter().any(|&(of, flow)| of == link && offload.may_go_by_rule(key, flow))
    });
    let mut guard = process.lock();
    let (offload, now) = (&mut *guard, process.now());
    // (Wherever they were to go before.)
    offload.migrations.by_rule.retain(|job| job.key != key);
    for (link, flow) in offload.flows_on_cards(key) {
        offload.go_where_it_is_for(now, key, (link, flow), direction);
    }
    offload.attend(now);
}

impl Offload {
    /// Another thread than its ring's has used a socket with flows on cards for long enough: those are to go over to that thread's rings. `flow`: by which that was counted.
    /// Where none is to go, its calls count for nothing for a while. `false`: it has none on cards.
    pub(super) fn send_over_by_rules(&mut self, key: Key, flow: FlowId, direction: Direction) -> bool {
        let on_cards = self.flows_on_cards(key);
        for &(link, of) in &on_cards {
            if self.send_over_by_rule(key, (link, of), direction) {
                self.rings.at_mut(flow.ring).callers.forget(flow);
            }
        }
        !on_cards.is_empty() || self.rings.interfaces.contains(flow.ring)
    }

    /// A socket's flows on cards, one of each ring.
    fn flows_on_cards(&self, key: Key) -> Vec<(LinkId, FlowId)> {
        let (Some(interfaces), Some(socket)) = (self.interfaces.as_deref(), self.sockets.find(key)) else { return Vec::new() };
        let mut on_cards: Vec<(LinkId, FlowId)> = Vec::new();
        for (link, of) in socket.flows().filter_map(|of| Some((interfaces.steered_link(of.ring)?, of))) {
            if on_cards.iter().all(|(_, known)| known.ring != of.ring) {
                on_cards.push((link, of));
            }
        }
        on_cards
    }

    /// The flows of a socket on one ring of a card go over to the one that is for it, if that is another, and they may.
    fn go_where_it_is_for(&mut self, now: Instant, key: Key, (link, flow): (LinkId, FlowId), direction: Direction) {
        let why = if self.may_go_by_rule(key, flow) {
            let Some(first) = self.first_ring_of_card(link) else { return };
            let to = self.ring_of_interface(key, first, Direction::Rx);
            if to == flow.ring {
                return;
            }
            match self.goes_by_rule(now, Job { key, flow, link, to, direction, at: now, pause: PAUSES[0] }) {
                Move::Done => return,
                Move::Half => "the card leads some of its flow rules to the other one, and some not; it is tried again",
                Move::Refused => "the card does not lead its flow rules there",
            }
        } else if self.is_for_another(key, link, flow.ring) {
            match self.sockets.find(key).map(|socket| socket.kind) {
                Some(Kind::Listener(_)) => "a listener, and what it accepts, is on the ring that it began with",
                Some(Kind::Connecting(_)) => "its connection is not open yet",
                _ => {
                    "it is shared, is ending, hears groups, or is read by who knows it by its ring (callbacks, SocketXtreme, descriptors of rings, zero copy)"
                }
            }
        } else {
            return;
        };
        let fd = self.sockets.find(key).map_or(-1, |socket| socket.fd);
        tracing::warn!("SO_VMA_RING_ALLOC_LOGIC: socket {fd} stays on ring {} of its card: {why}", flow.ring);
    }

    /// Whether the ring that is for a socket on a card is another than that, or is not there yet. (To choose one would be to keep to it.)
    fn is_for_another(&mut self, key: Key, link: LinkId, ring: u16) -> bool {
        let Some((place, most)) = self.place_on_card(key) else { return self.first_ring_of_card(link) != Some(ring) };
        self.wants_ring_on(link, place, most) || self.known_ring_on(link, place).is_some_and(|known| known != ring)
    }

    fn first_ring_of_card(&self, link: LinkId) -> Option<u16> {
        let mut links = self.interfaces.as_deref()?.steered_links();
        links.find(|(of, _)| *of == link).map(|(_, first)| first)
    }

    /// The same of one. Whether a ring is being opened for it first, so that calls are counted again.
    fn send_over_by_rule(&mut self, key: Key, (link, flow): (LinkId, FlowId), direction: Direction) -> bool {
        let Some((place, most)) = self.place_on_card(key) else { return false };
        let is_known = self.migrations.by_rule.iter().any(|job| job.flow == flow) || self.migrations.by_rule.len() >= JOBS_MAX;
        if is_known || self.extra_rings.migration_by(place).is_none() || !self.may_go_by_rule(key, flow) {
            return false;
        }
        if self.wants_ring_on(link, place, most) && cards::open_later(self, link) {
            return true;
        }
        if let Some(to) = self.ring_on(link, place).filter(|to| *to != flow.ring) {
            self.migrations.by_rule.push(Job { key, flow, link, to, direction, at: Instant::ZERO, pause: PAUSES[0] });
            self.mux.call_progress();
        }
        false
    }

    /// Has flows go over that are to, as soon as that is to be tried.
    pub(crate) fn go_over_by_rules(&mut self, now: Instant) {
        for job in core::mem::take(&mut self.migrations.by_rule) {
            if job.at > now {
                self.migrations.by_rule.push(job);
            } else if self.may_go_by_rule(job.key, job.flow) {
                self.goes_by_rule(now, job);
            }
        }
    }

    /// How long it is until that is to be called again. `None`: for ever, as it stands.
    pub(crate) fn next_by_rules(&self, now: Instant) -> Option<Duration> {
        self.migrations.by_rule.iter().map(|job| job.at.since(now)).min()
    }

    /// Flows that may go over do, if the card lets them.
    fn goes_by_rule(&mut self, now: Instant, job: Job) -> Move {
        let Job { key, flow, direction, .. } = job;
        let made = match self.sockets.find(key).map(|socket| socket.kind) {
            Some(Kind::Datagram(_)) => self.datagrams_go_by_rule(now, job),
            _ => {
                let ends = self.rings.of(flow).info(flow).and_then(|info| Some((info.local, info.remote?)));
                let gone = ends.and_then(|ends| self.go_over_beside(now, flow, job.to, ends));
                gone.map_or(Move::Refused, |_| Move::Done)
            }
        };
        if made == Move::Done
            && let Some(socket) = self.sockets.find_mut(key)
        {
            socket.migrations[direction as usize] += 1;
            self.rings.at_mut(flow.ring).callers.forget(flow);
        }
        made
    }

    fn may_go_by_rule(&self, key: Key, flow: FlowId) -> bool {
        let Some(socket) = self.sockets.find(key).filter(|socket| socket.has_flow(flow)) else { return false };
        match socket.kind {
            Kind::Datagram(_) => self.may_datagrams_go_by_rule(key, flow),
            _ => self.may_go_beside(key, flow),
        }
    }

    fn may_datagrams_go_by_rule(&self, key: Key, flow: FlowId) -> bool {
        let is_read_as_ever = !self.callbacks.are_used() && !self.is_heard() && !self.rings_are_used() && !self.loans.lends;
        let Some(socket) = self.sockets.find(key).filter(|_| is_read_as_ever && !self.ending) else { return false };
        let is_simple = !socket.is_shared && !crate::descendants::shared_since(socket.birth) && !socket.shut.read && !socket.shut.write;
        let mut on_ring = socket.flows().filter(|of| of.ring == flow.ring);
        is_simple && on_ring.all(|of| self.rings.of(of).udp_may_leave(of))
    }

    /// A UDP socket's flows on that ring go to the other: all of them, or none.
    fn datagrams_go_by_rule(&mut self, now: Instant, job: Job) -> Move {
        let Job { key, flow, link, to, .. } = job;
        let Some(socket) = self.sockets.find(key) else { return Move::Refused };
        let flows: Vec<FlowId> = socket.flows().filter(|of| of.ring == flow.ring).collect();
        self.rings.touch(to);
        for from in flows {
            if self.datagrams_go_over(now, (key, from), to).is_none() {
                return self.datagrams_go_back(now, job, from);
            }
        }
        self.datagrams_are_on(key, link, to);
        self.datagrams_are_elsewhere(key);
        self.migrations.done += 1;
        Move::Done
    }

    /// All of a UDP socket's flows on that link are on one ring.
    fn datagrams_are_on(&mut self, key: Key, link: LinkId, ring: u16) {
        let first = self.first_ring_of_card(link);
        if let Some(socket) = self.sockets.find_mut(key) {
            socket.goes_on_card(link, first.filter(|first| *first != ring).map(|_| ring));
        }
    }

    /// The card would not move the rule of one of a socket's flows: those of its flows that are there already go back, so that it has all of them on one ring. Where the card does not move
    /// these either, the rest is tried again; until then it is read on both. (The progress thread is called, which knows then when to try again, though it has nothing else to do.)
    fn datagrams_go_back(&mut self, now: Instant, job: Job, refused: FlowId) -> Move {
        let on_other = |of: &FlowId| of.ring == job.to;
        let there: Vec<FlowId> = self.sockets.find(job.key).map_or_else(Vec::new, |socket| socket.flows().filter(on_other).collect());
        let stay = there.iter().filter(|id| self.datagrams_go_over(now, (job.key, **id), refused.ring).is_none()).count();
        if stay > 0 {
            let pause = (job.pause * 2).min(PAUSES[1]);
            self.migrations.by_rule.push(Job { flow: refused, at: now + job.pause, pause, ..job });
            self.mux.call_progress();
        } else {
            self.datagrams_are_on(job.key, job.link, refused.ring);
        }
        if !there.is_empty() {
            self.datagrams_are_elsewhere(job.key);
        }
        if stay > 0 { Move::Half } else { Move::Refused }
    }

    /// A UDP socket has other flows than it had.
    fn datagrams_are_elsewhere(&mut self, key: Key) {
        if let Some(socket) = self.sockets.find_mut(key) {
            socket.routes.ask_tables_again();
        }
        mux::went_over(self, key.index);
        self.dispatch();
    }

    /// One of these flows: its rule leads to the other ring first, so that nothing more comes to this one; and then all that has come is taken along.
    fn datagrams_go_over(&mut self, now: Instant, (key, from): (Key, FlowId), to: u16) -> Option<FlowId> {
        let handover = self.rings.of_mut(from).udp_hand_over(from).ok()?;
        let id = match self.rings.at_mut(to).ring.udp_adopt(handover) {
            Ok(id) => id,
            Err((error, handover)) => {
                self.rings.of_mut(from).udp_take_back(from, handover);
                tracing::debug!("a UDP socket stays on its ring: {error}");
                return None;
            }
        };
        self.rings.of_mut(from).udp_come_to(now, from);
        self.move_queue(from, id);
        self.rings.of_mut(from).close(now, from, false);
        if let Some(socket) = self.sockets.find_mut(key) {
            socket.others.iter_mut().filter(|of| of.id == from).for_each(|of| of.id = id);
        }
        self.link(id, key.index);
        Some(id)
    }
}
