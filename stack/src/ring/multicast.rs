//! Groups (RFC 1112, RFC 2236, RFC 3810): who is a member and of whose datagrams (RFC 3678), which frames that steers to this ring, and telling
//! switches and routers.
//!
//! A datagram for a group goes to every member socket with its port, whether it came from the wire or from this ring's own senders.
//! One flow rule stands for all members of a group and port. Membership is reported when it begins, once more a while later, and when a
//! router asks: by IGMP here, which knows no sources, and by multicast listener discovery in `listening.rs`.
//!
//! Beside a kernel ([`crate::device::Capabilities::is_beside_kernel`]) it is the kernel that reports, for a socket of its own that is a member as well: a
//! second reporter on one link would answer for the first, and leave in its name. Nor does the ring know there who else is a member: its owner
//! has the rule end as soon as somebody is ([`Ring::udp_leave_group_to_kernel`]).

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::Ring;
use super::listening;
use super::slots::Flow;
use super::steering::Holder;
use super::types::{FlowId, SourceFilter};
use super::udp::{gather, rule_error};
use crate::device::{FlowRule, Protocol, Queues, RuleId};
use crate::error::Error;
use crate::flow::Readiness;
use crate::mld::Listener;
use crate::mld::filter::{Filter, SOURCES_MAX};
use crate::mutants::{Mutant, Mutation};
use crate::tcp::RxPayload;
use crate::time::Instant;
use crate::wire::igmp::Message;

/// Everybody (RFC 1112 s4); nobody reports membership of it.
const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// All routers: who is told of leaving (RFC 2236 s6).
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// Linux's igmp_max_memberships. (Of IPv6's groups a ring has [`crate::mld`]'s limit.)
const MEMBERSHIPS_MAX: usize = 20;
/// The first report may be lost: it is repeated within this time (RFC 2236 s3, s8.10).
const UNSOLICITED_REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// What a router of version 1 means by saying nothing (RFC 2236 s4).
const RESPONSE_TIME_V1: Duration = Duration::from_secs(10);

/// A group with members.
#[derive(Debug)]
struct Group {
    /// How many sockets are members.
    members: usize,
    /// The address that reports come from.
    from: Ipv4Addr,
    /// When it is to be reported.
    report_at: Option<Instant>,
}

/// One group's datagrams for one port.
#[derive(Debug)]
struct Port {
    /// `None`: the kernel has the group.
    rule: Option<RuleId>,
    /// Slots of the members, in the order in which they joined.
    members: Vec<u32>,
}

/// All memberships of a ring. Ordered, so that simulations iterate alike.
#[derive(Debug)]
pub(super) struct Groups {
    groups: BTreeMap<Ipv4Addr, Group>,
    /// IPv6's.
    pub(super) listener: Listener,
    /// What members by their slots hear of a group, where that is not everybody's.
    filters: BTreeMap<(IpAddr, u32), SourceFilter>,
    ports: BTreeMap<SocketAddr, Port>,
    /// The earliest report of IPv4's that is due.
    next: Option<Instant>,
    jitter: ChaCha8Rng,
    pub(super) mutation: Mutation,
}

impl Groups {
    pub(super) fn new(seed: u64, addresses: &[IpAddr]) -> Self {
        Self {
            groups: BTreeMap::new(),
            listener: listening::listener(!seed, addresses),
            filters: BTreeMap::new(),
            ports: BTreeMap::new(),
            next: None,
            jitter: ChaCha8Rng::seed_from_u64(seed),
            mutation: Mutation::HEALTHY,
        }
    }

    /// Whether packets for this address are ours.
    pub(super) fn hears(&self, ip: IpAddr) -> bool {
        let is_member = match ip {
            IpAddr::V4(ip) => self.groups.contains_key(&ip) || ip == ALL_SYSTEMS && !self.groups.is_empty(),
            IpAddr::V6(ip) => self.listener.filter(ip).is_some(),
        };
        ip.is_multicast() && (is_member || self.has_port_of(ip))
    }

    /// Whether a socket has some port's datagrams for a group. (Beside a kernel, nothing else is known of it.)
    fn has_port_of(&self, ip: IpAddr) -> bool {
        let all = SocketAddr::new(ip, 0)..=SocketAddr::new(ip, u16::MAX);
        self.ports.range(all).next().is_some()
    }

    /// Whether a member hears what that source says to a group.
    fn admits(&self, group: IpAddr, member: u32, source: IpAddr) -> bool {
        self.filters.is_empty() || self.filters.get(&(group, member)).is_none_or(|filter| filter.admits(source))
    }

    #[inline]
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match (self.next, self.listener.next_deadline()) {
            (next, None) => next,
            (next, Some(_)) if self.mutation.is(Mutant::ListenersDeadlineMissed) => next,
            (next, due) => next.into_iter().chain(due).min(),
        }
    }

    /// A time between now and `max` from now (RFC 2236 s3: each host waits for its own, so that not all speak at once).
    fn some_time(&mut self, now: Instant, max: Duration) -> Instant {
        now + Duration::from_nanos(((u128::from(self.jitter.next_u32()) * max.as_nanos()) >> 32) as u64)
    }

    fn settle(&mut self) {
        self.next = self.groups.values().filter_map(|group| group.report_at).min();
    }

    /// A router asks: groups that aren't about to report anyway choose a time.
    fn asked(&mut self, now: Instant, asked: Option<Ipv4Addr>, within: Duration) {
        if self.mutation.is(Mutant::QueryUnanswered) {
            return;
        }
        let within = if self.mutation.is(Mutant::ReportTooLate) { within * 4 } else { within };
        let all = self.mutation.is(Mutant::SpecificQueryAsksAll);
        let groups: Vec<_> =
            self.groups.keys().copied().filter(|&group| group != ALL_SYSTEMS && asked.is_none_or(|a| a == group || all)).collect();
        let postpones = self.mutation.is(Mutant::QueryPostponesReport);
        for group in groups {
            let at = self.some_time(now, within);
            if let Some(group) = self.groups.get_mut(&group)
                && group.report_at.is_none_or(|planned| planned > at || postpones)
            {
                group.report_at = Some(at);
            }
        }
        self.settle();
    }

    /// Another member reported: one report is enough (RFC 2236 s3).
    fn reported(&mut self, group: Ipv4Addr) {
        if self.mutation.is(Mutant::ReportNotSuppressed) {
            return;
        }
        if let Some(group) = self.groups.get_mut(&group) {
            group.report_at = None;
            self.settle();
        }
    }
}

impl<Q: Queues> Ring<Q> {
    /// Makes a UDP socket a member of a group: datagrams for the group and the socket's port reach it from now on, whoever sends them, if it is
    /// bound to every address or to the group's. `from` is the address that the membership is reported from; in IPv6 the ring's link-local one
    /// is (RFC 3810 s5.2.13); where a kernel is beside the device, that one reports, and none is.
    ///
    /// # Errors
    /// [`Error::Invalid`] (not a group, or `from` is of another family), [`Error::AddressInUse`] (it is a member already; or another ring has the
    /// group's datagrams), [`Error::NoBuffers`] (too many memberships), [`Error::BadSocket`], [`Error::NotSupported`] (not UDP, or a device that
    /// knows MAC addresses only).
    pub fn udp_join(&mut self, now: Instant, id: FlowId, group: IpAddr, from: IpAddr) -> Result<(), Error> {
        let is_member = self.slots.udp(id)?.memberships.contains(&group);
        if is_member && group.is_multicast() {
            return Err(Error::AddressInUse);
        }
        self.udp_listen(now, id, group, from, Filter::ANY)
    }

    /// Ends a membership.
    ///
    /// # Errors
    /// [`Error::AddressNotAvailable`] (not a member), [`Error::BadSocket`], [`Error::NotSupported`] (not UDP).
    pub fn udp_leave(&mut self, now: Instant, id: FlowId, group: IpAddr) -> Result<(), Error> {
        let flow = self.slots.udp(id)?;
        let at = flow.memberships.iter().position(|&joined| joined == group).ok_or(Error::AddressNotAvailable)?;
        flow.memberships.remove(at);
        let port = flow.local.port();
        self.groups.filters.remove(&(group, id.index));
        if !self.config.is(Mutant::LeaverStillHears) {
            self.unsteer(SocketAddr::new(group, port), id.index);
        }
        match group {
            _ if !self.reports() => {}
            IpAddr::V4(group) => self.exit(group),
            // (Wanting nothing is never refused.)
            IpAddr::V6(group) => _ = self.listen_v6(now, id.index, group, Filter::NONE),
        }
        self.output.flush(&mut self.queues);
        Ok(())
    }

    /// Has the kernel beside the device get a group's datagrams for a port from now on. Those that have come by then are the members', who stay members
    /// until they leave. (Whoever is to have them on the ring again leaves first.)
    pub fn udp_leave_group_to_kernel(&mut self, group: SocketAddr) {
        let rule = self.groups.ports.get_mut(&group).and_then(|port| port.rule.take());
        rule.into_iter().for_each(|rule| self.detach(rule));
    }

    /// Whether routers hear of memberships from this ring.
    const fn reports(&self) -> bool {
        !self.output.caps.is_beside_kernel
    }

    /// Says whose datagrams for a group a UDP socket hears from now on (RFC 3678 s4.2, setsourcefilter): the first time it becomes a member, as by
    /// [`Ring::udp_join`]; [`Filter::NONE`] ends that, and is nothing to who is none. What is queued stays. IGMP tells nobody of sources.
    ///
    /// # Errors
    /// As [`Ring::udp_join`], but for being a member already; [`Error::NoBuffers`] also if the filter names too many sources, and
    /// [`Error::Invalid`] if one of them is of another family.
    pub fn udp_listen(&mut self, now: Instant, id: FlowId, group: IpAddr, from: IpAddr, filter: SourceFilter) -> Result<(), Error> {
        let flow = self.slots.udp(id)?;
        let caps = &self.output.caps;
        if !group.is_multicast() || from.is_ipv6() != group.is_ipv6() || filter.sources().iter().any(|ip| ip.is_ipv6() != group.is_ipv6()) {
            return Err(Error::Invalid);
        }
        if caps.point_to_point {
            return Err(Error::NotSupported);
        }
        let is_member = flow.memberships.contains(&group);
        if filter.is_none() {
            return if is_member { self.udp_leave(now, id, group) } else { Ok(()) };
        }
        let of_ipv4 = flow.memberships.iter().filter(|joined| joined.is_ipv4()).count();
        // (A kernel beside the device has counted them already.)
        let is_counted = !is_member && group.is_ipv4() && self.reports();
        let is_full = is_counted && of_ipv4 >= MEMBERSHIPS_MAX + usize::from(self.config.is(Mutant::OneMembershipMore));
        if is_full || filter.sources().len() > SOURCES_MAX {
            return Err(Error::NoBuffers);
        }
        if !is_member {
            self.become_member(now, id, group, from, &filter)?;
        } else if let (IpAddr::V6(group), true) = (group, self.reports()) {
            self.listen_v6(now, id.index, group, of_ipv6(&filter))?;
        }
        match filter == Filter::ANY {
            true => self.groups.filters.remove(&(group, id.index)),
            false => self.groups.filters.insert((group, id.index), filter),
        };
        self.output.flush(&mut self.queues);
        Ok(())
    }

    /// Whose datagrams for a group a UDP socket hears (RFC 3678 s4.2, getsourcefilter); [`Filter::NONE`]: it is no member.
    pub fn udp_source_filter(&self, id: FlowId, group: IpAddr) -> SourceFilter {
        if !self.udp_groups(id).contains(&group) {
            return Filter::NONE;
        }
        self.groups.filters.get(&(group, id.index)).cloned().unwrap_or(Filter::ANY)
    }

    fn become_member(&mut self, now: Instant, id: FlowId, group: IpAddr, from: IpAddr, filter: &SourceFilter) -> Result<(), Error> {
        let local = self.slots.udp(id)?.local;
        let to = SocketAddr::new(group, local.port());
        let hears = local.ip().is_unspecified() || local.ip() == group || self.config.is(Mutant::GroupIgnoresAddress);
        if hears {
            self.steer_group(to, id.index)?;
        }
        match (group, from) {
            _ if !self.reports() => {}
            (IpAddr::V4(group), IpAddr::V4(from)) => self.enter(now, group, from),
            (IpAddr::V6(group), _) => {
                let listens = self.listen_v6(now, id.index, group, of_ipv6(filter));
                listens.inspect_err(|_| self.unsteer(to, id.index))?;
            }
            (IpAddr::V4(_), IpAddr::V6(_)) => return Err(Error::Invalid),
        }
        if let Ok(flow) = self.slots.udp(id) {
            flow.memberships.push(group);
        }
        Ok(())
    }

    /// A socket that closes leaves all of its groups.
    pub(super) fn leave_all(&mut self, now: Instant, id: FlowId) {
        let joined = self.slots.udp(id).map(|flow| flow.memberships.clone()).unwrap_or_default();
        if self.config.is(Mutant::MembershipOutlivesClose) {
            return;
        }
        for group in joined {
            // It is a member of each.
            let _ = self.udp_leave(now, id, group);
        }
    }

    /// Has a group's datagrams for a port come to a socket.
    fn steer_group(&mut self, to: SocketAddr, index: u32) -> Result<(), Error> {
        if let Some(port) = self.groups.ports.get_mut(&to) {
            port.members.push(index);
            return Ok(());
        }
        let attached = self.attach(&FlowRule::flow(Protocol::Udp, to, None)).map_err(rule_error)?;
        self.groups.ports.insert(to, Port { rule: Some(attached.rule), members: vec![index] });
        self.hold(attached, Holder::Group(to), None);
        Ok(())
    }

    /// A group's rule could not be had after all.
    pub(super) fn lost_group(&mut self, to: SocketAddr, error: Error) {
        for index in self.groups.ports.remove(&to).into_iter().flat_map(|port| port.members) {
            if let Some(Flow::Udp(udp)) = self.slots.at(index) {
                udp.error = Some(error);
                self.raise(index, Readiness::ERR);
            }
        }
    }

    fn unsteer(&mut self, to: SocketAddr, index: u32) {
        let Some(port) = self.groups.ports.get_mut(&to) else { return };
        port.members.retain(|&member| member != index);
        let enough = usize::from(self.config.is(Mutant::GroupRuleLeavesOneMember));
        if port.members.len() <= enough {
            let rule = port.rule;
            self.groups.ports.remove(&to);
            rule.into_iter().for_each(|rule| self.detach(rule));
        }
    }

    /// One member more; the first is reported at once, and once more (RFC 2236 s3).
    fn enter(&mut self, now: Instant, group: Ipv4Addr, from: Ipv4Addr) {
        if let Some(known) = self.groups.groups.get_mut(&group) {
            known.members += 1;
            return;
        }
        let mut report_at = None;
        if group != ALL_SYSTEMS {
            self.output.igmp(&mut self.queues, from, group, &Message::Report { group });
            let at = self.groups.some_time(now, UNSOLICITED_REPORT_INTERVAL);
            report_at = Some(at).filter(|_| !self.config.is(Mutant::ReportedOnce));
        }
        self.groups.groups.insert(group, Group { members: 1, from, report_at });
        self.groups.settle();
    }

    /// One member less; when the last one leaves, routers are told.
    fn exit(&mut self, group: Ipv4Addr) {
        let Some(known) = self.groups.groups.get_mut(&group) else { return };
        known.members -= 1;
        if known.members > 0 && !self.config.is(Mutant::FirstLeaverLeaves) {
            return;
        }
        let from = known.from;
        self.groups.groups.remove(&group);
        self.groups.settle();
        if group != ALL_SYSTEMS && !self.config.is(Mutant::LeaveUnsaid) {
            let to = if self.config.is(Mutant::LeaveTellsGroup) { group } else { ALL_ROUTERS };
            self.output.igmp(&mut self.queues, from, to, &Message::Leave { group });
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn report_groups(&mut self, now: Instant) {
        self.groups.listener.on_timer(now);
        self.report_listening();
        for (&group, known) in &mut self.groups.groups {
            if known.report_at.is_some_and(|at| at <= now) {
                known.report_at = None;
                self.output.igmp(&mut self.queues, known.from, group, &Message::Report { group });
            }
        }
        self.groups.settle();
    }

    pub(super) fn on_igmp(&mut self, now: Instant, to: Ipv4Addr, bytes: &[u8]) -> Option<()> {
        match Message::parse(bytes).ok()? {
            Message::Query { group, max_response_ds } => {
                let within = match max_response_ds {
                    0 if self.config.is(Mutant::OldQuerierAnsweredAtOnce) => Duration::ZERO,
                    0 => RESPONSE_TIME_V1,
                    tenths => Duration::from_millis(100) * u32::from(tenths),
                };
                self.groups.asked(now, group, within);
            }
            // A report goes to the group that it is about (RFC 2236 s9).
            Message::Report { group } if group == to => self.groups.reported(group),
            _ => return None,
        }
        Some(())
    }

    /// Hands a datagram for a group to its members. Says whether there was any.
    pub(super) fn deliver(&mut self, now: Instant, from: SocketAddr, to: SocketAddr, payload: &RxPayload<'_, Q::Rx>) -> bool {
        // (Whoever hears of it joins and leaves nothing meanwhile.)
        let Some(members) = self.groups.ports.get_mut(&to).map(|port| core::mem::take(&mut port.members)) else { return false };
        let is_own = self.is_ours(from.ip());
        for &index in &members {
            let Some(Flow::Udp(flow)) = self.slots.at(index) else { continue };
            let hears = flow.hears(from, to.ip()) || self.config.is(Mutant::GroupIgnoresPeer);
            let hears = hears && (self.groups.admits(to.ip(), index, from.ip()) || self.config.is(Mutant::SourceFilterIgnored));
            if hears && self.config.is(Mutant::LoopMissesSender) && flow.local.port() == from.port() && is_own {
                continue;
            }
            // (Its reader, which polls just now, takes it.)
            let is_for_reader = self.reader.is(index) && flow.is_plain();
            if hears && flow.push(now, from, to.ip(), payload.clone()) {
                if !(is_for_reader && self.reader.keeps(Readiness::IN)) {
                    self.raise(index, Readiness::IN);
                }
                if self.config.is(Mutant::GroupHeardByOne) {
                    break;
                }
            } else if hears && self.config.is(Mutant::FullMemberEndsDelivery) {
                break;
            }
        }
        if let Some(port) = self.groups.ports.get_mut(&to) {
            port.members = members;
        }
        true
    }

    /// What was sent to a group reaches this ring's own members too: no switch sends a frame back to where it came from.
    pub(super) fn loop_back(&mut self, now: Instant, from: SocketAddr, to: SocketAddr, data: &[IoSlice<'_>], len: usize) {
        if self.groups.ports.contains_key(&to) {
            let mut bytes = vec![0; len];
            gather(data, &mut bytes);
            self.deliver(now, from, to, &RxPayload { head: &bytes, ..RxPayload::EMPTY });
        }
    }
}

/// A filter of IPv6's sources, which it names alone.
fn of_ipv6(filter: &SourceFilter) -> Filter {
    let sources = filter.sources().iter().filter_map(|source| match source {
        IpAddr::V6(source) => Some(*source),
        IpAddr::V4(_) => None,
    });
    match filter {
        Filter::Include(_) => Filter::Include(sources.collect::<BTreeSet<Ipv6Addr>>()),
        Filter::Exclude(_) => Filter::Exclude(sources.collect()),
    }
}

#[cfg(test)]
mod tests;
