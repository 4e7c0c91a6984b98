//! Flow rules: what brings frames to this ring, where a device has something to steer.
//!
//! A device may take a while for a rule ([`Attached::is_ready`]). A connection that is being opened says nothing until its rule steers here, lest its
//! answer go elsewhere (to a kernel, which would answer that by a reset). Where a rule takes another one's place, the old one stays until the
//! new one steers.
//!
//! The connections that a listener accepts come by its rule, and have a share in it. When the listener ends, each of them gets a rule of its own, so
//! that another may listen there. (Members of a group do not rely on it: who joins or leaves would take their connections elsewhere.)
//!
//! A connection's own rule has a flow tag, which names its slot and saves the search for it; so has the rule of a UDP socket that does not share its
//! address. A tag is verified against the frame's addresses. A UDP socket may have a rule that matches what is another one's (everything for a port, beside one
//! address of it), and where a ring has two sockets with one port, no tag of UDP's is looked at.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::Ring;
use super::demux::FlowKey;
use super::slots::{Flow, Silent};
use super::udp::rule_error;
use crate::device::{Attached, Device as _, FlowRule, Protocol, Queues, RuleError, RuleId, Steering};
use crate::error::Error;
use crate::flow::Readiness;
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::time::Instant;

/// The largest flow tag: a ConnectX reports 24 bits.
const TAG_MAX: u32 = (1 << 24) - 1;

/// Whose a rule is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holder {
    /// The flow's in this slot.
    Flow(u32),
    /// A group's, for all members.
    Group(SocketAddr),
    /// A connection's that is yet to come from another owner, between these addresses (ours, the peer's).
    Arrival(SocketAddr, SocketAddr),
}

/// A rule that does not steer yet.
#[derive(Debug)]
struct Pending {
    holder: Holder,
    /// What steers in its stead.
    before: Option<RuleId>,
}

/// What is to be known of this ring's rules, beside whose they are.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pending: BTreeMap<RuleId, Pending>,
    /// Connections whose rule failed late, and which nothing steers until they have another.
    unsteered: Vec<u32>,
    /// Listeners' rules, and how many flows have each, beside one.
    shares: BTreeMap<RuleId, u32>,
}

impl Rules {
    /// Whether a rule may go to another ring: it is one connection's own, and steers.
    pub(super) fn may_move(&self, rule: RuleId) -> bool {
        !self.is_pending(rule) && !self.shares.contains_key(&rule)
    }

    pub(super) fn has_unsteered(&self) -> bool {
        !self.unsteered.is_empty()
    }

    pub(super) fn is_pending(&self, rule: RuleId) -> bool {
        !self.pending.is_empty() && self.pending.contains_key(&rule)
    }
}

impl<Q: Queues> Ring<Q> {
    /// Steers matching frames to this ring. The caller says to [`Ring::hold`] whose the rule is.
    pub(super) fn attach(&mut self, rule: &FlowRule) -> Result<Attached, RuleError> {
        self.queues.steer(rule)
    }

    /// A holder has a rule, which takes the place of `before`.
    pub(super) fn hold(&mut self, attached: Attached, holder: Holder, before: Option<RuleId>) {
        if attached.is_ready {
            before.into_iter().for_each(|before| self.detach(before));
        } else if !self.config.is(Mutant::PendingRuleForgotten) {
            mark!(self, RuleAwaited);
            // (One that is handed on before it steers keeps what steers in its stead.)
            let earlier = self.rules.pending.get(&attached.rule).and_then(|pending| pending.before);
            self.rules.pending.insert(attached.rule, Pending { holder, before: before.or(earlier) });
        }
    }

    /// One more flow has this rule.
    fn share(&mut self, rule: RuleId) {
        *self.rules.shares.entry(rule).or_default() += 1;
    }

    /// A holder gives a rule up.
    pub(super) fn detach(&mut self, rule: RuleId) {
        if let Some(others) = self.rules.shares.get_mut(&rule)
            && *others > 0
        {
            *others -= 1;
            return;
        }
        self.rules.shares.remove(&rule);
        let before = self.rules.pending.remove(&rule).and_then(|pending| pending.before);
        self.queues.device().detach(rule);
        before.into_iter().for_each(|before| self.detach(before));
    }

    /// Whether a connection can go to another ring now, and its frames find it there: its rule steers, and is moved with it, or it comes by its
    /// listener's, which steers to this ring on (and this ring drops what comes, until its own steers). One whose rule does not steer yet might
    /// have its frames come to a third ring, which would answer by a reset.
    pub fn tcp_may_leave(&self, flow: super::FlowId) -> bool {
        match self.slots.find(flow) {
            Some(Flow::Stream(stream)) => stream.rule.is_none_or(|rule| !self.rules.is_pending(rule)),
            Some(Flow::Resting(stream)) => stream.rule.is_none_or(|rule| !self.rules.is_pending(rule)),
            _ => false,
        }
    }

    /// Whether a connection's frames might go to another ring, or to the kernel, if no rule steered them here.
    pub(super) fn is_steered(&self) -> bool {
        let caps = &self.output.caps;
        !caps.point_to_point && (caps.rings_max > 1 || caps.is_beside_kernel)
    }

    /// The rule of the connection in the slot `index`.
    pub(super) fn rule_of(&self, index: u32, local: SocketAddr, remote: SocketAddr) -> FlowRule {
        FlowRule::flow(Protocol::Tcp, local, Some(remote)).tag(self.tag_of(index))
    }

    /// The flow tag that names a slot; zero where the device has none, or none so large.
    pub(super) fn tag_of(&self, index: u32) -> u32 {
        let has_tags = self.output.caps.steering.contains(Steering::TAG);
        index.checked_add(1).filter(|tag| has_tags && *tag <= TAG_MAX).unwrap_or(0)
    }

    /// The connection that a frame's flow tag names, if it is that between these addresses. (A tag may be out of date: the frame lay in the queue while
    /// the slot became another flow's.)
    #[inline]
    pub(super) fn tagged(&mut self, tag: u32, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        let index = tag.checked_sub(1)?;
        let trusts = self.config.is(Mutant::TagTrusted);
        let stream = match self.slots.at(index)? {
            Flow::Stream(stream) => stream,
            Flow::Resting(_) => return self.tagged_at_rest(index, local, remote),
            Flow::Listener(_) | Flow::Udp(_) => return None,
        };
        let is_its = trusts || (stream.local == local && stream.remote == remote);
        // (One that has ended, or hears no more, is found by nobody.)
        let hears = stream.rule.is_some() && !stream.connection.is_finished();
        if is_its && hears {
            mark!(self, FoundByTag);
            return Some(index);
        }
        None
    }

    #[cold]
    fn tagged_at_rest(&mut self, index: u32, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        let flow = self.slots.at(index)?;
        let is_its = flow.stream_ends() == Some((local, remote)) && flow.stream_rule().is_some();
        if is_its || self.config.is(Mutant::TagTrusted) {
            mark!(self, FoundByTag);
            return Some(index);
        }
        None
    }

    /// The UDP socket that a frame's flow tag names, if what goes from there to there is its own.
    #[inline]
    pub(super) fn tagged_datagram(&mut self, tag: u32, local: &SocketAddr, remote: &SocketAddr) -> Option<u32> {
        let index = tag.checked_sub(1)?;
        if !self.demux.has_datagram_ports_apart() && !self.config.is(Mutant::DatagramTagPreferred) {
            return None;
        }
        let Some(Flow::Udp(udp)) = self.slots.at(index) else { return None };
        let is_address = udp.local.port() == local.port() && (udp.local.ip() == local.ip() || udp.local.ip().is_unspecified());
        let is_its = is_address && udp.local.is_ipv4() == local.is_ipv4() && udp.remote.as_ref().is_none_or(|(peer, _)| peer == remote);
        // (One whose receiving side was shut down is found by nobody.)
        let hears = udp.rule.is_some();
        if hears && (is_its || self.config.is(Mutant::TagTrusted)) {
            mark!(self, DatagramFoundByTag);
            return Some(index);
        }
        None
    }

    /// A connection has taken over the rule of an earlier one.
    pub(super) fn retag(&mut self, rule: RuleId, index: u32) {
        // (Where it cannot be changed, the addresses find the flow as ever.)
        let _ = self.queues.device().retarget(rule, self.queues.id().into(), self.tag_of(index));
    }

    /// Steers one connection's frames to this ring, where a device has several: a group's hash, or another ring's wider rule, might
    /// send them elsewhere. It is about to have a slot.
    pub(super) fn steer(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<Option<Attached>, RuleError> {
        if !self.is_steered() {
            return Ok(None);
        }
        let rule = self.rule_of(self.slots.next_index(), local, remote);
        self.attach(&rule).map(Some)
    }

    /// The rule for a connection that a listener's SYN begins: a share in the listener's, or its own.
    pub(super) fn steer_accepted(&mut self, listener: u32, local: SocketAddr, remote: SocketAddr) -> Result<Option<Attached>, RuleError> {
        if !self.is_steered() {
            return Ok(None);
        }
        match self.slots.at(listener) {
            Some(Flow::Listener(listener)) if !listener.is_shared => {
                let steers = listener.rule.filter(|rule| !self.rules.is_pending(*rule));
                let Some(rule) = steers else { return self.steer(local, remote) };
                self.share(rule);
                Ok(Some(Attached { rule, is_ready: true }))
            }
            _ => self.steer(local, remote),
        }
    }

    /// A connection of another ring of this device is to have a slot here; it may have brought its rule, and loses it where that cannot be moved.
    pub(super) fn steer_adopted(
        &mut self,
        carried: &mut Option<RuleId>,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<Attached, RuleError> {
        let index = self.slots.next_index();
        let Some(rule) = *carried else { return self.attach(&self.rule_of(index, local, remote)) };
        if !self.config.is(Mutant::AdoptedRuleStays)
            && self.queues.device().retarget(rule, self.queues.id().into(), self.tag_of(index)).is_err()
        {
            // (It ended with its ring, or the device cannot move rules.)
            *carried = None;
            self.queues.device().detach(rule);
            return self.attach(&self.rule_of(index, local, remote));
        }
        mark!(self, RuleMoved);
        Ok(Attached { rule, is_ready: true })
    }

    /// A listener gives its rule up: what came by it and lives on gets rules of its own first.
    pub(super) fn detach_listener_rule(&mut self, rule: RuleId) {
        for (index, local, remote) in self.sharers(rule) {
            if self.config.is(Mutant::AcceptedEndWithListener) {
                self.slots.stream_at(index).into_iter().for_each(|stream| stream.rule = None);
                self.detach(rule);
                continue;
            }
            // (Where there is no room for it, it keeps its share, and nobody else can listen there.)
            let own = self.rule_of(index, local, remote);
            let Ok(attached) = self.attach(&own) else { continue };
            mark!(self, AcceptedSteered);
            if let Some(stream) = self.slots.stream_at(index) {
                stream.rule = Some(attached.rule);
            }
            self.hold(attached, Holder::Flow(index), Some(rule));
        }
        self.detach(rule);
    }

    /// Connections that have a share in a listener's rule, and that anything can still come for.
    fn sharers(&self, rule: RuleId) -> Vec<(u32, SocketAddr, SocketAddr)> {
        if !self.rules.shares.contains_key(&rule) {
            return Vec::new();
        }
        let sharer = |(id, flow): (super::FlowId, &Flow<Q>)| match flow {
            _ if flow.stream_rule() != Some(rule) => None,
            _ => flow.stream_ends().map(|(local, remote)| (id.index, local, remote)),
        };
        let hears = |(index, local, remote): &(u32, SocketAddr, SocketAddr)| {
            self.demux.exact(FlowKey::new(Protocol::Tcp, *local, *remote)) == Some(*index)
        };
        self.slots.iter().filter_map(sharer).filter(hears).collect()
    }

    /// A rule steers from now on.
    pub(super) fn rule_ready(&mut self, now: Instant, rule: RuleId) {
        let Some(Pending { holder, before }) = self.rules.pending.remove(&rule) else { return };
        before.into_iter().for_each(|before| self.detach(before));
        if let Holder::Arrival(local, remote) = holder {
            self.late.rule_steers(local, remote);
        }
        if let Holder::Flow(index) = holder
            && let Some(stream) = self.slots.stream_at(index)
            && stream.rule == Some(rule)
            && stream.silent.ends(Silent::UntilSteered)
        {
            self.transmit(now, index);
        }
    }

    /// A rule never will. What steered in its stead goes on to; else the holder is told.
    pub(super) fn rule_failed(&mut self, now: Instant, rule: RuleId, why: RuleError) {
        let Some(Pending { holder, before }) = self.rules.pending.remove(&rule) else { return };
        mark!(self, RuleFailed);
        // (Another one is to take its place already, and now takes that of what was before.)
        if let Some(later) = self.rules.pending.values_mut().find(|later| later.before == Some(rule)) {
            later.before = before;
            return;
        }
        let error = rule_error(why);
        match holder {
            Holder::Flow(index) => self.lost_rule(now, index, before, error),
            Holder::Group(to) => self.lost_group(to, error),
            Holder::Arrival(local, remote) => self.late.rule_failed(local, remote, error),
        }
    }

    /// Asks once more for rules of connections that have none.
    pub(super) fn steer_again(&mut self) {
        for index in core::mem::take(&mut self.rules.unsteered) {
            let Some(stream) = self.slots.stream_at(index).filter(|stream| stream.rule.is_none()) else { continue };
            let (local, remote) = (stream.local, stream.remote);
            // (It may have ended meanwhile, or hear no more.)
            if self.demux.exact(FlowKey::new(Protocol::Tcp, local, remote)) != Some(index) {
                continue;
            }
            match self.attach(&self.rule_of(index, local, remote)) {
                Ok(attached) => {
                    if let Some(stream) = self.slots.stream_at(index) {
                        stream.rule = Some(attached.rule);
                    }
                    self.hold(attached, Holder::Flow(index), None);
                }
                Err(_) => self.rules.unsteered.push(index),
            }
        }
    }

    fn lost_rule(&mut self, now: Instant, index: u32, before: Option<RuleId>, error: Error) {
        match self.slots.awake_at(index) {
            Some(Flow::Stream(stream)) => {
                stream.rule = before;
                if stream.silent.ends(Silent::UntilSteered) {
                    stream.connection.not_steered(error);
                    self.transmit(now, index);
                } else if before.is_none() {
                    self.rules.unsteered.push(index);
                    self.retry_soon(now);
                }
            }
            Some(Flow::Listener(listener)) => {
                (listener.rule, listener.error) = (before, Some(error));
                self.raise(index, Readiness::ERR);
            }
            Some(Flow::Udp(udp)) => {
                (udp.rule, udp.error) = (before, Some(error));
                self.raise(index, Readiness::ERR);
            }
            Some(Flow::Resting(_)) | None => {}
        }
    }
}
