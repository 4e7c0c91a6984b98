//! Connections and UDP sockets on a card that go over to the ring of the thread, or core, which uses them (VMA_RING_MIGRATION_RATIO_RX and _TX).
//!
//! Both rings are of one card, with one address, and a flow rule says what comes to which: so nobody else has to know. The flow is taken out of its ring and put into the other
//! with all that it has, and its rule is led there; a connection that came by its listener's rule gets one of its own. Of a connection, what lay in the old ring's queue
//! is lost there in silence, and sent again; of a UDP socket, all of it is taken along, in its order.
//!
//! The progress thread does it, in a hold of the process's lock in which nobody is about to use the flow. Where the card has to make a ring for that place first, a thread of
//! its own has it do so ([`crate::interfaces::cards`]), and the next calls take the flow there.
//!
//! What stays where it is: as in [`super::landing`]; and a UDP socket that shares its address, hears groups, or is read by who knows it by its ring.

use ringway_stack::Instant;
use ringway_stack::net::LinkId;
use ringway_stack::ring::FlowId;
use ringway_stack::socket::Direction;

use crate::interfaces::cards;
use crate::mux;
use crate::process::Offload;
use crate::slab::Key;
use crate::socket::Kind;

/// Flows that are to go over at a time.
const JOBS_MAX: usize = 1024;

/// A flow that is to go over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    key: Key,
    flow: FlowId,
    link: LinkId,
    to: u16,
    direction: Direction,
}

impl Offload {
    /// Another thread than its ring's has used a socket with flows on cards for long enough: those are to go over to that thread's rings. `flow`: by which that was counted.
    /// Where none is to go, its calls count for nothing for a while. `false`: it has none on cards.
    pub(super) fn send_over_by_rules(&mut self, key: Key, flow: FlowId, direction: Direction) -> bool {
        let (Some(interfaces), Some(socket)) = (self.interfaces.as_deref(), self.sockets.find(key)) else { return false };
        let mut on_cards: Vec<(LinkId, FlowId)> = Vec::new();
        for (link, of) in socket.flows().filter_map(|of| Some((interfaces.steered_link(of.ring)?, of))) {
            if on_cards.iter().all(|(known, _)| *known != link) {
                on_cards.push((link, of));
            }
        }
        for &(link, of) in &on_cards {
            if self.send_over_by_rule(key, (link, of), direction) {
                self.rings.at_mut(flow.ring).callers.forget(flow);
            }
        }
        !on_cards.is_empty() || self.rings.interfaces.contains(flow.ring)
    }

    /// The same of one. Whether a ring is being opened for it first, so that calls are counted again.
    fn send_over_by_rule(&mut self, key: Key, (link, flow): (LinkId, FlowId), direction: Direction) -> bool {
        let Some((place, most)) = self.place_of(key) else { return false };
        let is_known = self.migrations.by_rule.iter().any(|job| job.flow == flow) || self.migrations.by_rule.len() >= JOBS_MAX;
        if is_known || self.extra_rings.migration_by(place).is_none() || !self.may_go_by_rule(key, flow) {
            return false;
        }
        if self.wants_ring_on(link, place, most) && cards::open_later(self, link) {
            return true;
        }
        if let Some(to) = self.ring_on(link, place).filter(|to| *to != flow.ring) {
            self.migrations.by_rule.push(Job { key, flow, link, to, direction });
            self.mux.call_progress();
        }
        false
    }

    /// Has flows go over that are to.
    pub(crate) fn go_over_by_rules(&mut self, now: Instant) {
        for job in core::mem::take(&mut self.migrations.by_rule) {
            let Job { key, flow, direction, .. } = job;
            if !self.may_go_by_rule(key, flow) {
                continue;
            }
            let is_over = match self.sockets.find(key).map(|socket| socket.kind) {
                Some(Kind::Datagram(_)) => self.datagrams_go_by_rule(now, job),
                _ => {
                    let ends = self.rings.of(flow).info(flow).and_then(|info| Some((info.local, info.remote?)));
                    ends.and_then(|ends| self.go_over_beside(now, flow, job.to, ends)).is_some()
                }
            };
            if is_over && let Some(socket) = self.sockets.find_mut(key) {
                socket.migrations[direction as usize] += 1;
                self.rings.at_mut(flow.ring).callers.forget(flow);
            }
        }
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

    /// A UDP socket's flows on that ring go to the other. Whether they do.
    fn datagrams_go_by_rule(&mut self, now: Instant, Job { key, flow, link, to, .. }: Job) -> bool {
        let Some(socket) = self.sockets.find(key) else { return false };
        let flows: Vec<FlowId> = socket.flows().filter(|of| of.ring == flow.ring).collect();
        let first = self.interfaces.as_deref().and_then(|interfaces| interfaces.steered_links().find(|(of, _)| *of == link));
        self.rings.touch(to);
        for from in flows {
            let Some(id) = self.datagrams_go_over(now, from, to) else { return false };
            if let Some(socket) = self.sockets.find_mut(key) {
                socket.others.iter_mut().filter(|of| of.id == from).for_each(|of| of.id = id);
                socket.goes_on_card(link, first.map(|(_, first)| first).filter(|first| *first != to).map(|_| to));
                socket.routes.ask_tables_again();
            }
            self.link(id, key.index);
        }
        self.migrations.done += 1;
        mux::went_over(self, key.index);
        self.dispatch();
        true
    }

    /// One of these flows: its rule leads to the other ring first, so that nothing more comes to this one; and then all that has come is taken along.
    fn datagrams_go_over(&mut self, now: Instant, from: FlowId, to: u16) -> Option<FlowId> {
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
        Some(id)
    }
}
