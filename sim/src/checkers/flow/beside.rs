//! Connections that go on beside a later one of the same addresses. What a member of a group (SO_REUSEPORT) accepts has a rule of its own. Where the device fails
//! that, what comes for the connection comes by the group's rule, and so to another ring, perhaps, once a ring joins or leaves the group. That ring resets it, or
//! lets a SYN begin another connection. The first one hears nothing of that, and sends what it has to send.
//!
//! Which of them a segment is from, its number tells, and each is held to the laws. Which of them heard a segment is not to be seen: all may have, that it is for.

use super::super::is_tainted;
use super::super::segment::{ACK, RST, SYN, Segment, before};
use super::{Endpoint, Flows, Moment, Tuple};
use crate::fabric::Marks;

/// Farther than what is lost on this side of the wire.
const FAR: u32 = 1 << 23;

impl Endpoint {
    /// Whether a number is one of its own, as far as it has come.
    fn has_number(&self, seq: u32) -> bool {
        let beyond = if self.lost || self.moved { FAR } else { 0 };
        !before(seq, self.iss) && !before(self.nxt.wrapping_add(beyond), seq)
    }

    /// Whether a segment, by its number, is one that it may send.
    fn may_send(&self, segment: &Segment) -> bool {
        self.has_number(segment.seq) && (segment.span() == 0 || segment.has(SYN) == (segment.seq == self.iss))
    }

    /// Whether a segment, by what it acknowledges, is one that it may heed (RFC 9293 s3.10.7.4).
    fn may_heed(&self, segment: &Segment) -> bool {
        segment.has(RST) || segment.has(ACK) && !before(segment.ack, self.iss) && !before(self.nxt, segment.ack)
    }

    /// What its program does may be what another connection's does.
    fn mistake(&mut self) {
        (self.disturbed, self.shadow.blurred) = (true, true);
        self.stream.mistake();
        self.stream.taint();
        self.window.forget_reader();
        self.forged.reset();
    }
}

impl Flows {
    /// A host's device took rules for these connections (its address, and the peer's), and failed them.
    pub(in super::super) fn unsteered(&mut self, host: usize, tuples: Vec<Tuple>) {
        self.unsteered.extend(tuples.into_iter().map(|tuple| (host, tuple)));
    }

    /// Whether a connection may begin beside others of these addresses, as far as their host is concerned.
    pub(super) fn is_unsteered(&self, host: usize, tuple: Tuple) -> bool {
        !self.unsteered.is_empty() && self.unsteered.contains(&(host, tuple))
    }

    /// One begins beside the one that has its addresses.
    pub(super) fn begins_beside(&mut self, first: Option<usize>) {
        if let Some(first) = first.map(|id| &mut self.endpoints[id]) {
            first.shadow.blurred = true;
        }
    }

    /// The earlier connections that may go on beside this one, the latest first.
    fn beside(&self, current: usize) -> impl Iterator<Item = usize> + '_ {
        let own = &self.endpoints[current];
        let first = own.previous.filter(|_| self.is_unsteered(own.host, own.tuple));
        let all = core::iter::successors(first, |&id| self.endpoints[id].previous);
        all.filter(|&id| self.endpoints[id].host == own.host && !self.endpoints[id].reset)
    }

    /// The earlier connection that sends this segment, if one does, and not the one that has its addresses. (A reset that answers what came is nobody's.)
    pub(in super::super) fn sender_beside(&self, current: usize, segment: &Segment) -> Option<usize> {
        if self.unsteered.is_empty() || segment.has(RST) && !segment.has(ACK) || self.endpoints[current].may_send(segment) {
            return None;
        }
        self.beside(current).find(|&id| self.endpoints[id].may_send(segment))
    }

    /// The connection of these addresses that leaves its ring, where what it sent and was not acknowledged begins with this number.
    pub(in super::super) fn left(&self, tuple: Tuple, host: usize, sent_from: u32) -> Option<usize> {
        let current = self.id(tuple).filter(|&id| self.endpoints[id].host == host)?;
        let mut all = core::iter::once(current).chain(self.beside(current));
        Some(all.find(|&id| self.endpoints[id].has_number(sent_from)).unwrap_or(current))
    }

    /// A segment arrived that was noted for the connection which has its addresses.
    pub(in super::super) fn delivered_beside(&mut self, moment: &Moment, current: usize, segment: &Segment, marks: Marks) {
        if self.unsteered.is_empty() {
            return;
        }
        let hearers: Vec<usize> = self.beside(current).filter(|&id| self.endpoints[id].may_heed(segment)).collect();
        for id in hearers {
            let (own, peer) = self.both(id);
            let scale = peer.map_or(14, |peer| super::scale(&peer.syn, &own.syn));
            own.lawless |= marks.contains(Marks::FORGED);
            own.delivered(moment, segment, scale);
            if is_tainted(marks) {
                own.stream.taint();
            }
        }
    }

    /// A connection of these addresses was accepted: the only one of them that waits for that, or else any.
    pub(super) fn accepted_beside(&mut self, current: usize) -> Option<usize> {
        let waits = |&id: &usize| {
            let own = &self.endpoints[id];
            own.passive && own.owner.is_none() && own.una != own.iss
        };
        let waiting: Vec<usize> = core::iter::once(current).chain(self.beside(current)).filter(waits).collect();
        if waiting.len() > 1 {
            waiting.iter().for_each(|&id| self.endpoints[id].mistake());
        }
        waiting.last().copied()
    }
}

#[cfg(test)]
mod tests;
