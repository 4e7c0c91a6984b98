//! The steering table: which rings a frame goes to.

use core::cell::Cell;
use core::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use arrayvec::ArrayVec;
use ringway_stack::Instant;
use ringway_stack::device::{CyclicId, FiveTuple, FlowRule, IpMatch, RuleError, RuleId};

use super::fields::Fields;
use super::rss;

/// The most rings of a NIC.
pub(super) const RINGS_MAX: usize = 64;

/// Where a frame goes, and its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aim {
    pub(super) ring: usize,
    /// A cyclic queue of the ring, rather than the ring's own.
    pub(super) queue: Option<CyclicId>,
    pub(super) tag: u32,
}

/// Where a frame goes: to one ring, or copied to several.
pub(super) type Targets = ArrayVec<Aim, RINGS_MAX>;

/// Rules by what they match.
#[derive(Debug, Default)]
pub(super) struct Steering {
    entries: BTreeMap<u64, Entry>,
    /// Entries of sockets' rules at the default priority, by what they match: the many.
    flows: BTreeMap<FlowKey, u64>,
    /// How many of those there are, by [`wildcards`].
    by_wildcards: [usize; 8],
    /// All other entries, in the order in which they are asked: the few.
    others: Vec<(Order, u64)>,
    /// Which entry a rule belongs to.
    rules: BTreeMap<u64, u64>,
    made: u64,
    /// Rules that ended with their ring, or failed.
    ended: BTreeSet<RuleId>,
    /// Rules that do not count yet, in the order in which they will.
    pending: VecDeque<(Instant, RuleId)>,
    /// Where the last frame's flow goes, while sockets' rules are all that there are.
    recent: Cell<Option<(FlowKey, Aim)>>,
}

/// Priority, then specificity, then age.
type Order = (u16, Reverse<u32>, u64);

/// Rules that match the same: one, or a group's.
#[derive(Debug)]
struct Entry {
    rule: FlowRule,
    order: Order,
    members: Vec<(RuleId, Aim)>,
    /// Members that do not count yet.
    pending: Vec<(RuleId, Aim)>,
}

impl Steering {
    /// How many rules are attached.
    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    /// How many of them steer to `ring`.
    pub(super) fn rules_of(&self, ring: usize) -> usize {
        self.entries.values().flat_map(Entry::all).filter(|(_, aim)| aim.ring == ring).count()
    }

    /// It counts from `ready_at` on ([`Steering::ripen`]); `None`: at once.
    pub(super) fn attach(&mut self, rule: &FlowRule, aim: Aim, rules_max: usize, ready_at: Option<Instant>) -> Result<RuleId, RuleError> {
        self.recent.set(None);
        let id = RuleId(self.made + 1);
        let full = self.rules.len() >= rules_max;
        let number = match self.entry_like(rule) {
            Some(number) => {
                let joined = self.entries.get(&number).ok_or(RuleError::Taken)?;
                let has = |ring| joined.all().any(|(_, member)| member.ring == ring);
                let joins = joined.rule.shared && rule.shared || is_group(rule) && !has(aim.ring);
                if !joins {
                    return Err(RuleError::Taken);
                }
                if full {
                    return Err(RuleError::Full);
                }
                number
            }
            None if full => return Err(RuleError::Full),
            None => self.insert(rule, id.0),
        };
        let entry = self.entries.get_mut(&number).ok_or(RuleError::Taken)?;
        match ready_at {
            None => entry.join(id, aim),
            Some(at) => {
                entry.pending.push((id, aim));
                self.pending.push_back((at, id));
            }
        }
        self.made += 1;
        self.rules.insert(id.0, number);
        Ok(id)
    }

    /// When the next rule counts that does not yet.
    pub(super) fn ripe_at(&self) -> Option<Instant> {
        self.pending.front().map(|(at, _)| *at)
    }

    /// Lets the next rule count whose time has come. Gives where it steers.
    pub(super) fn ripen(&mut self, now: Instant) -> Option<(RuleId, Aim)> {
        let (_, rule) = *self.pending.front().filter(|(at, _)| *at <= now)?;
        self.pending.pop_front();
        self.recent.set(None);
        let entry = self.entries.get_mut(self.rules.get(&rule.0)?)?;
        let at = entry.pending.iter().position(|(id, _)| *id == rule)?;
        let (_, aim) = entry.pending.remove(at);
        entry.join(rule, aim);
        Some((rule, aim))
    }

    /// Whether a rule is of a socket that hears everybody.
    pub(super) fn is_sockets(&self, rule: RuleId) -> bool {
        let entry = self.rules.get(&rule.0).and_then(|number| self.entries.get(number));
        entry.and_then(|entry| entry.rule.addresses()).is_some_and(|flow| flow.remote.is_none())
    }

    /// Lets a rule steer elsewhere. Gives where it steered to; none if it is not attached.
    pub(super) fn retarget(&mut self, rule: RuleId, aim: Aim) -> Option<Aim> {
        self.recent.set(None);
        let entry = self.entries.get_mut(self.rules.get(&rule.0)?)?;
        if let Some((_, pending)) = entry.pending.iter_mut().find(|(id, _)| *id == rule) {
            return Some(core::mem::replace(pending, aim));
        }
        let at = entry.members.iter().position(|(id, _)| *id == rule)?;
        let (_, before) = entry.members.remove(at);
        entry.join(rule, aim);
        Some(before)
    }

    /// Detaches a rule, and gives where it steered to; none if it is not attached.
    pub(super) fn detach(&mut self, rule: RuleId) -> Option<Aim> {
        self.recent.set(None);
        let number = self.rules.remove(&rule.0)?;
        let entry = self.entries.get_mut(&number)?;
        let aim = entry.all().find(|(id, _)| *id == rule).map(|(_, aim)| *aim);
        entry.members.retain(|(id, _)| *id != rule);
        entry.pending.retain(|(id, _)| *id != rule);
        self.pending.retain(|(_, id)| *id != rule);
        if entry.all().next().is_none() {
            self.remove(number);
        }
        aim
    }

    /// A rule that was to count by now cannot be had. Which flow it was for, if it was for one.
    pub(super) fn fail(&mut self, rule: RuleId) -> Option<FiveTuple> {
        let entry = self.rules.get(&rule.0).and_then(|number| self.entries.get(number));
        let flow = entry.and_then(|entry| five_tuple_of(&entry.rule));
        self.detach(rule);
        self.ended.insert(rule);
        flow
    }

    /// Whether a rule has ended, though nobody detached it.
    pub(super) fn has_ended(&self, rule: RuleId) -> bool {
        self.ended.contains(&rule)
    }

    /// Detaches every rule that steers to `ring`.
    pub(super) fn detach_all(&mut self, ring: usize) {
        let of_ring = |(id, target): &(RuleId, Aim)| (target.ring == ring).then_some(*id);
        let rules: Vec<_> = self.entries.values().flat_map(|entry| entry.all().filter_map(of_ring)).collect();
        for rule in rules {
            self.detach(rule);
            self.ended.insert(rule);
        }
    }

    /// The rings that rules steer a frame to; none if no rule matches.
    pub(super) fn targets(&self, fields: &Fields, frame: &[u8]) -> Targets {
        if fields.dst.is_multicast() { self.copies(fields, frame) } else { self.target(fields, frame).into_iter().collect() }
    }

    /// The ring that rules steer a frame to that is for one host.
    pub(super) fn target(&self, fields: &Fields, frame: &[u8]) -> Option<Aim> {
        let key = if self.others.is_empty() { exact_key(fields) } else { None };
        if let (Some(key), Some((recent, target))) = (key, self.recent.get())
            && key == recent
        {
            return Some(target);
        }
        let target = self.best(fields, frame)?;
        if let Some(key) = key {
            self.recent.set(Some((key, target)));
        }
        Some(target)
    }

    fn best(&self, fields: &Fields, frame: &[u8]) -> Option<Aim> {
        let flow = self.flow_entries(fields).next();
        let other = self.other_entries(fields, frame).next();
        let best = match (flow, other) {
            (Some(a), Some(b)) => Some(if a.order < b.order { a } else { b }),
            (a, b) => a.or(b),
        };
        best?.member(fields)
    }

    /// A frame for a group: one copy for each ring, by its best rule.
    fn copies(&self, fields: &Fields, frame: &[u8]) -> Targets {
        let mut entries: Vec<_> = self.flow_entries(fields).chain(self.other_entries(fields, frame)).collect();
        entries.sort_by_key(|entry| entry.order);
        let mut targets = Targets::new();
        let mut add = |target: Aim| {
            if targets.iter().all(|other| other.ring != target.ring) {
                targets.push(target);
            }
        };
        for entry in entries {
            if entry.rule.shared && !is_group(&entry.rule) {
                entry.member(fields).into_iter().for_each(&mut add);
            } else {
                entry.members.iter().for_each(|(_, target)| add(*target));
            }
        }
        targets
    }

    fn flow_entries(&self, fields: &Fields) -> impl Iterator<Item = &Entry> {
        let candidates = five_tuples_of(fields).into_iter().flatten();
        candidates
            .filter(|flow| self.by_wildcards[wildcards(flow)] > 0)
            .filter_map(|flow| self.entries.get(self.flows.get(&key(&flow))?))
            .filter(|entry| entry.counts())
    }

    fn other_entries(&self, fields: &Fields, frame: &[u8]) -> impl Iterator<Item = &Entry> {
        self.others.iter().filter_map(|(_, number)| self.entries.get(number)).filter(|entry| entry.counts() && entry.matches(fields, frame))
    }

    /// The entry that a rule would join, or collide with.
    fn entry_like(&self, rule: &FlowRule) -> Option<u64> {
        if let Some(flow) = five_tuple_of(rule) {
            return self.flows.get(&key(&flow)).copied();
        }
        self.others.iter().map(|(_, number)| *number).find(|number| self.entries[number].rule.collides_with(rule))
    }

    /// An entry without members, of this number.
    fn insert(&mut self, rule: &FlowRule, number: u64) -> u64 {
        let order = (rule.priority, Reverse(rule.specificity()), number);
        match five_tuple_of(rule) {
            Some(flow) => {
                self.flows.insert(key(&flow), number);
                self.by_wildcards[wildcards(&flow)] += 1;
            }
            None => {
                let at = self.others.partition_point(|(other, _)| *other < order);
                self.others.insert(at, (order, number));
            }
        }
        self.entries.insert(number, Entry { rule: *rule, order, members: Vec::new(), pending: Vec::new() });
        number
    }

    fn remove(&mut self, number: u64) {
        let Some(entry) = self.entries.remove(&number) else { return };
        match five_tuple_of(&entry.rule) {
            Some(flow) => {
                self.flows.remove(&key(&flow));
                self.by_wildcards[wildcards(&flow)] -= 1;
            }
            None => self.others.retain(|(_, other)| *other != number),
        }
    }
}

impl Entry {
    /// Members, and those that will be.
    fn all(&self) -> impl Iterator<Item = &(RuleId, Aim)> {
        self.members.iter().chain(&self.pending)
    }

    fn counts(&self) -> bool {
        !self.members.is_empty()
    }

    fn join(&mut self, rule: RuleId, aim: Aim) {
        self.members.push((rule, aim));
        self.members.sort_by_key(|(_, member)| member.ring);
    }

    fn matches(&self, fields: &Fields, frame: &[u8]) -> bool {
        fields.matches(&self.rule.outer) && self.rule.vxlan.is_none_or(|vxlan| fields.tunnel_matches(frame, &vxlan))
    }

    /// The only member, or the group's member for this flow.
    fn member(&self, fields: &Fields) -> Option<Aim> {
        if let [(_, only)] = self.members[..] {
            return Some(only);
        }
        let ports = fields.transport.map(|t| (t.src_port, t.dst_port));
        let hash = fields.ip.map_or(0, |ip| rss::hash(ip.src, ip.dst, ports));
        self.members.get(rss::member(hash, self.members.len())).map(|(_, target)| *target)
    }
}

/// Whether a rule is for a group address: several rings may have it, each with its own copy.
fn is_group(rule: &FlowRule) -> bool {
    let ip = matches!(rule.outer.ip, Some(IpMatch::V4 { dst: Some(dst), .. }) if dst.is_multicast() || dst.is_broadcast())
        || matches!(rule.outer.ip, Some(IpMatch::V6 { dst: Some(dst), .. }) if dst.is_multicast());
    ip || rule.outer.ethernet.dst.is_some_and(|mac| mac.is_multicast())
}

fn five_tuple_of(rule: &FlowRule) -> Option<FiveTuple> {
    rule.addresses().filter(|_| rule.priority == FlowRule::PRIORITY_DEFAULT)
}

/// A flow in words, which compare faster than its parts do: addresses; protocol, whether there is a remote address, and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FlowKey {
    V4(u64, u64),
    V6([u64; 4], u64),
}

fn key(flow: &FiveTuple) -> FlowKey {
    let named = u64::from(flow.remote.is_some());
    let ports = u64::from(flow.local.port()) << 16 | flow.remote.map_or(0, |remote| u64::from(remote.port()));
    let rest = (flow.protocol as u64) << 40 | named << 32 | ports;
    match (flow.local.ip(), flow.remote.map(|remote| remote.ip())) {
        (IpAddr::V4(local), remote) => {
            let remote = if let Some(IpAddr::V4(remote)) = remote { remote.to_bits() } else { 0 };
            FlowKey::V4(u64::from(local.to_bits()) << 32 | u64::from(remote), rest)
        }
        (IpAddr::V6(local), remote) => {
            let remote = if let Some(IpAddr::V6(remote)) = remote { remote.to_bits() } else { 0 };
            let [local, remote] = [local.to_bits(), remote].map(|bits| [(bits >> 64) as u64, bits as u64]);
            FlowKey::V6([local[0], local[1], remote[0], remote[1]], rest)
        }
    }
}

/// Which of its addresses a flow names, and of which IP version.
fn wildcards(flow: &FiveTuple) -> usize {
    usize::from(flow.local.ip().is_unspecified()) + 2 * usize::from(flow.remote.is_none()) + 4 * usize::from(flow.local.is_ipv6())
}

/// The [`key`] of the flow that a packet is of.
fn exact_key(fields: &Fields) -> Option<FlowKey> {
    let (ip, transport) = (fields.ip?, fields.transport?);
    let remote = Some(SocketAddr::new(ip.src, transport.src_port));
    Some(key(&FiveTuple { protocol: transport.protocol, local: SocketAddr::new(ip.dst, transport.dst_port), remote }))
}

/// The flows that a packet may have been attached as, the most specific one first.
fn five_tuples_of(fields: &Fields) -> Option<[FiveTuple; 4]> {
    let (ip, transport) = (fields.ip?, fields.transport?);
    let any = if ip.dst.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let remote = Some(SocketAddr::new(ip.src, transport.src_port));
    let here = SocketAddr::new(ip.dst, transport.dst_port);
    let anywhere = SocketAddr::new(any, transport.dst_port);
    let flow = |local, remote| FiveTuple { protocol: transport.protocol, local, remote };
    Some([flow(here, remote), flow(anywhere, remote), flow(here, None), flow(anywhere, None)])
}
