//! Flow rules: what brings frames to this ring, where a device has something to steer.
//!
//! A device may take a while for a rule ([`Attached::is_ready`]). A connection that is being opened says nothing until its rule steers here, lest its
//! answer go elsewhere (to a kernel, which would answer that by a reset). Where a rule takes another one's place, the old one stays until the
//! new one steers.
//!
//! The connections that a listener accepts come by its rule, and have a share in it. When the listener ends, each of them gets a rule of its own, so
//! that another may listen there. (Members of a group do not rely on it: who joins or leaves would take their connections elsewhere.)

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::Ring;
use super::demux::FlowKey;
use super::slots::Flow;
use super::udp::rule_error;
use crate::device::{Attached, Device as _, FlowRule, Protocol, Queues, RuleError, RuleId};
use crate::error::Error;
use crate::flow::Readiness;
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::time::Instant;

/// Whose a rule is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holder {
    /// The flow's in this slot.
    Flow(u32),
    /// A group's, for all members.
    Group(SocketAddr),
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
    /// How many flows have a rule, beside its first.
    shares: BTreeMap<RuleId, u32>,
}

impl Rules {
    pub(super) fn is_pending(&self, rule: RuleId) -> bool {
        !self.pending.is_empty() && self.pending.contains_key(&rule)
    }
}

impl<Q: Queues> Ring<Q> {
    /// Steers matching frames to this ring. Whoever has the rule is told to [`Ring::hold`].
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
        if let Some(others) = self.rules.shares.get_mut(&rule) {
            *others -= 1;
            if *others == 0 {
                self.rules.shares.remove(&rule);
            }
            return;
        }
        let before = self.rules.pending.remove(&rule).and_then(|pending| pending.before);
        self.queues.device().detach(rule);
        before.into_iter().for_each(|before| self.detach(before));
    }

    /// Whether a connection's frames might go to another ring, if no rule steered them here.
    fn is_steered(&self) -> bool {
        !self.output.caps.point_to_point && self.output.caps.rings_max > 1
    }

    /// Steers one connection's frames to this ring, where a device has several: a group's hash, or another ring's wider rule, might
    /// send them elsewhere.
    pub(super) fn steer(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<Option<Attached>, RuleError> {
        if !self.is_steered() {
            return Ok(None);
        }
        self.attach(&FlowRule::flow(Protocol::Tcp, local, Some(remote))).map(Some)
    }

    /// The rule for a connection that a listener's SYN begins: a share in the listener's, or its own.
    pub(super) fn steer_accepted(&mut self, listener: u32, local: SocketAddr, remote: SocketAddr) -> Result<Option<Attached>, RuleError> {
        if !self.is_steered() {
            return Ok(None);
        }
        match self.slots.at(listener) {
            Some(Flow::Listener(listener)) if !listener.config.reuse_port => {
                let Some(rule) = listener.rule else { return self.steer(local, remote) };
                self.share(rule);
                Ok(Some(Attached { rule, is_ready: true }))
            }
            _ => self.steer(local, remote),
        }
    }

    /// A listener gives its rule up: what came by it and lives on gets rules of its own first.
    pub(super) fn detach_listeners(&mut self, rule: RuleId) {
        for (index, local, remote) in self.sharers(rule) {
            if self.config.is(Mutant::AcceptedEndWithListener) {
                self.slots.stream_at(index).into_iter().for_each(|stream| stream.rule = None);
                self.detach(rule);
                continue;
            }
            // (Where there is no room for it, it keeps its share, and nobody else can listen there.)
            let Ok(attached) = self.attach(&FlowRule::flow(Protocol::Tcp, local, Some(remote))) else { continue };
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
            Flow::Stream(stream) if stream.rule == Some(rule) => Some((id.index, stream.local, stream.remote)),
            _ => None,
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
        if let Holder::Flow(index) = holder
            && let Some(stream) = self.slots.stream_at(index)
            && core::mem::take(&mut stream.awaits_rule)
        {
            self.transmit(now, index);
        }
    }

    /// A rule never will. What steered in its stead goes on to; else the holder is told.
    pub(super) fn rule_failed(&mut self, now: Instant, rule: RuleId, why: RuleError) {
        let Some(Pending { holder, before }) = self.rules.pending.remove(&rule) else { return };
        mark!(self, RuleFailed);
        let error = rule_error(why);
        match holder {
            Holder::Flow(index) => self.lost_rule(now, index, before, error),
            Holder::Group(to) => self.lost_group(to, error),
        }
    }

    fn lost_rule(&mut self, now: Instant, index: u32, before: Option<RuleId>, error: Error) {
        match self.slots.at(index) {
            Some(Flow::Stream(stream)) => {
                stream.rule = before;
                if core::mem::take(&mut stream.awaits_rule) {
                    stream.connection.not_steered(error);
                    self.transmit(now, index);
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
            None => {}
        }
    }
}
