//! Groups, as routers hear of them (RFC 2236): a membership is reported when it begins and once more, and when a router asks, unless another member has; who was the last one says that
//! it leaves. What programs join and leave is known from their calls. (Of IPv6's groups they hear in another manner: [`listening`].)

pub(crate) mod listening;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ringway_stack::Instant;
use ringway_stack::ring::{FlowId, SourceFilter};

use self::listening::{Listening, Wish};
use super::datagrams::Datagram;
use super::headers::IGMP;
use super::hearing::AWAITED_MAX;
use super::{Checkers, Moment};
use crate::checksum;
use crate::dissect::{self, Ip};

const NAME: &str = "groups";

const QUERY: u8 = 0x11;
const REPORT_V1: u8 = 0x12;
const REPORT: u8 = 0x16;
const LEAVE: u8 = 0x17;
const ALL_SYSTEMS: IpAddr = IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1));
const ALL_ROUTERS: IpAddr = IpAddr::V4(Ipv4Addr::new(224, 0, 0, 2));
/// RFC 2236 s8.10: a report is repeated within this time.
const REPEATED: Duration = Duration::from_secs(10);
/// RFC 2236 s4: what a router of version 1 means.
const WITHIN_V1: Duration = Duration::from_secs(10);
/// A frame is on its way through a device for no longer, and polled then.
const UNDER_WAY: Duration = Duration::from_millis(2);
/// A host looks at its timers when it is woken.
const LATE: Duration = Duration::from_millis(20);

/// A group with members.
#[derive(Debug, Default)]
struct Group {
    sockets: BTreeSet<FlowId>,
    /// A report is planned, and due by then.
    due: Option<Instant>,
}

/// The memberships of a ring.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: BTreeMap<IpAddr, Group>,
    /// Whose datagrams members want, where that is not everybody's.
    filters: BTreeMap<(IpAddr, FlowId), SourceFilter>,
    /// What routers hear of IPv6's.
    listening: Listening,
    /// What joining and leaving said, that has not been seen to be sent: a report, or that it leaves.
    unsaid: VecDeque<(u8, IpAddr)>,
    /// Datagrams that came for groups and may be on their way through the device, with their ends.
    under_way: VecDeque<(Instant, (SocketAddr, SocketAddr), Datagram)>,
    /// Groups that were left in this service. A report of one may be on its way to the device: frames are looked at when the service is over.
    just_left: BTreeSet<IpAddr>,
    /// The device was in trouble, so that what was said, and what is planned, is not known.
    doubtful: bool,
}

impl Groups {
    /// Sockets that are members of a group, and hear what `from` says to it.
    pub(super) fn members(&self, group: IpAddr, from: IpAddr) -> impl Iterator<Item = FlowId> + '_ {
        let sockets = self.groups.get(&group).into_iter().flat_map(|group| group.sockets.iter().copied());
        sockets.filter(move |&socket| self.admits(group, socket, from))
    }

    /// RFC 3678 s3: whether a member hears what `from` says.
    pub(super) fn admits(&self, group: IpAddr, socket: FlowId, from: IpAddr) -> bool {
        match self.filters.get(&(group, socket)) {
            None => true,
            Some(SourceFilter::Include(sources)) => sources.contains(&from),
            Some(SourceFilter::Exclude(sources)) => !sources.contains(&from),
        }
    }

    /// A datagram came for a group, which may have members when it is polled.
    pub(super) fn came(&mut self, at: Instant, ends: (SocketAddr, SocketAddr), datagram: Datagram) {
        if self.under_way.len() >= AWAITED_MAX {
            self.under_way.pop_front();
        }
        self.under_way.retain(|&(before, ..)| at <= before + UNDER_WAY);
        self.under_way.push_back((at, ends, datagram));
    }

    /// What may not have been polled yet.
    pub(super) fn under_way(&self, now: Instant) -> impl Iterator<Item = &(Instant, (SocketAddr, SocketAddr), Datagram)> {
        self.under_way.iter().filter(move |&&(at, ..)| now <= at + UNDER_WAY)
    }

    /// Whether there is none, and nothing is to be said of any.
    pub(super) fn are_quiet(&self) -> bool {
        self.groups.is_empty() && self.unsaid.is_empty() && self.just_left.is_empty() && self.listening.is_quiet()
    }

    /// What a member, or who becomes one, hears from now on.
    fn listen(&mut self, now: Instant, group: IpAddr, socket: FlowId, filter: SourceFilter) {
        if let IpAddr::V6(ip) = group {
            self.listening.wants(now, ip, socket, (&filter).into());
        }
        self.filters.insert((group, socket), filter);
        self.join(now, group, socket);
    }

    fn join(&mut self, now: Instant, group: IpAddr, socket: FlowId) {
        let known = self.groups.entry(group).or_default();
        let is_first = known.sockets.is_empty();
        known.sockets.insert(socket);
        if is_first && group != ALL_SYSTEMS && group.is_ipv4() {
            known.due = Some(now + REPEATED);
            self.unsaid.push_back((REPORT, group));
        }
    }

    fn leave(&mut self, now: Instant, group: IpAddr, socket: FlowId) {
        self.filters.remove(&(group, socket));
        if let IpAddr::V6(ip) = group {
            self.listening.wants(now, ip, socket, Wish::default());
        }
        let Some(known) = self.groups.get_mut(&group) else { return };
        if known.sockets.remove(&socket) && known.sockets.is_empty() {
            self.groups.remove(&group);
            if group != ALL_SYSTEMS && group.is_ipv4() {
                self.just_left.insert(group);
                self.unsaid.push_back((LEAVE, group));
            }
        }
    }

    fn leave_all(&mut self, now: Instant, socket: FlowId) {
        let groups: Vec<_> = self.groups.iter().filter(|(_, group)| group.sockets.contains(&socket)).map(|(&group, _)| group).collect();
        groups.into_iter().for_each(|group| self.leave(now, group, socket));
    }

    /// Something that a join or a leave said is on the wire.
    fn says(&mut self, what: u8, group: IpAddr) -> bool {
        let Some(at) = self.unsaid.iter().position(|&unsaid| unsaid == (what, group)) else { return false };
        self.unsaid.remove(at);
        true
    }

    /// A report is on the wire that no join asked for. Whether there is a member. (Nobody minds one too many.)
    fn reports(&mut self, group: IpAddr) -> bool {
        let Some(known) = self.groups.get_mut(&group) else { return self.just_left.remove(&group) };
        known.due = None;
        true
    }

    /// A router asked, or another member answered.
    fn heard(&mut self, now: Instant, message: &[u8], to: IpAddr) {
        let (kind, tenths, about) = (message[0], message[1], IpAddr::V4(Ipv4Addr::new(message[4], message[5], message[6], message[7])));
        match kind {
            QUERY => {
                let within = if tenths == 0 { WITHIN_V1 } else { Duration::from_millis(100) * u32::from(tenths) };
                for (&group, known) in &mut self.groups {
                    if group != ALL_SYSTEMS && (about.is_unspecified() || about == group) {
                        known.due = Some(known.due.map_or(now + within, |due| due.min(now + within)));
                    }
                }
            }
            REPORT_V1 | REPORT if about == to => {
                if let Some(known) = self.groups.get_mut(&about) {
                    known.due = None;
                }
            }
            _ => {}
        }
    }

    fn check(&self, moment: &Moment) {
        if let Some((what, group)) = self.unsaid.front() {
            let what = if *what == LEAVE { "left by its last member" } else { "joined by its first member" };
            moment.breach(NAME, format_args!("RFC 2236 s3: {group} was {what}, and nobody is told"));
        }
        let late = self.groups.iter().find(|(_, group)| group.due.is_some_and(|due| moment.at > due + LATE));
        if let Some((group, Group { due, .. })) = late {
            moment.breach(NAME, format_args!("RFC 2236 s3: a report of {group} was due by {due:?}"));
        }
    }
}

impl Checkers {
    /// A socket became a member, or is one that hears others than before.
    pub(crate) fn joined(&mut self, place: usize, now: Instant, socket: FlowId, group: IpAddr, filter: SourceFilter) {
        let ring_state = &mut self.ring_states[place];
        ring_state.now = now;
        let was_member = ring_state.groups.groups.get(&group).is_some_and(|group| group.sockets.contains(&socket));
        ring_state.groups.listen(now, group, socket, filter);
        // (What is still to be polled is judged by what it wants then.)
        if was_member && let Some(sock) = ring_state.sockets.get_mut(&socket) {
            sock.hearing.rebound();
        }
        self.hears_more(place, socket, group);
    }

    /// It is none any more.
    pub(crate) fn left(&mut self, place: usize, now: Instant, socket: FlowId, group: IpAddr) {
        let ring_state = &mut self.ring_states[place];
        ring_state.groups.leave(now, group, socket);
        // (What is still to be polled is another member's.)
        if let Some(sock) = ring_state.sockets.get_mut(&socket) {
            sock.hearing.rebound();
        }
    }

    /// It is closed, and leaves all.
    pub(super) fn left_all(&mut self, place: usize, socket: FlowId) {
        let ring_state = &mut self.ring_states[place];
        ring_state.groups.leave_all(ring_state.now, socket);
    }

    /// A host sent a message about a group.
    pub(super) fn reported(&mut self, moment: &Moment, bytes: &[u8], ip: &Ip) {
        let (Some(&kind), Some(group)) = (bytes.get(ip.l4), dissect::ip_at(bytes, ip.l4 + 4).map(IpAddr::from)) else { return };
        let to = if kind == LEAVE { ALL_ROUTERS } else { group };
        if !matches!(kind, REPORT | LEAVE) || ip.dst != to || group == ALL_SYSTEMS {
            moment.breach(NAME, format_args!("RFC 2236 s9: a message of type {kind:#x} about {group} to {}", ip.dst));
        }
        let places = &self.places[moment.host];
        let mut lawful = false;
        for &place in places {
            lawful = lawful || self.ring_states[place].groups.says(kind, group);
        }
        for &place in places {
            lawful = lawful || kind == REPORT && self.ring_states[place].groups.reports(group);
        }
        let doubtful = places.len() > 1 || places.iter().any(|&place| self.ring_states[place].groups.doubtful);
        if !lawful && !doubtful && self.is_calm(moment.host) {
            let what = if kind == LEAVE { "is left, and has members or never had" } else { "is reported, and has no member" };
            moment.breach(NAME, format_args!("RFC 2236 s3: {group} {what}"));
        }
    }

    /// A message about groups reached a host. (The first ring hears what no rule steers.)
    pub(super) fn asked_about_groups(&mut self, moment: &Moment, bytes: &[u8], ip: &Ip) {
        let message = &bytes[ip.l4..ip.end];
        let place = self.first(moment.host);
        if let Some(ring_state) = self.ring_states.get_mut(place)
            && ip.protocol == IGMP
            && message.len() >= 8
            && checksum::sum(0, message) == 0xffff
            && checksum::sum(0, &bytes[ip.offset..ip.l4]) == 0xffff
            && (ip.dst == ALL_SYSTEMS || ring_state.groups.groups.contains_key(&ip.dst))
        {
            ring_state.groups.heard(moment.at, message, ip.dst);
        }
    }

    /// What a host heard of its groups is not known.
    pub(super) fn doubt_groups(&mut self, host: usize) {
        for &place in &self.places[host] {
            self.ring_states[place].groups.doubtful = true;
        }
    }

    /// A host has been serviced. `judged`: it had no excuse for what it did not do.
    pub(super) fn settle_groups(&mut self, host: usize, judged: bool) {
        let is_shared = self.places[host].len() > 1;
        for &place in &self.places[host] {
            let groups = &mut self.ring_states[place].groups;
            if !groups.just_left.is_empty() {
                groups.just_left.clear();
            }
            if groups.groups.is_empty() && groups.unsaid.is_empty() && groups.listening.is_quiet() {
                continue;
            }
            // (Which of several rings it is that reports is not to be seen.)
            groups.doubtful |= !judged || is_shared;
            let judged = !groups.doubtful;
            if !judged {
                groups.unsaid.clear();
            }
            let moment = self.moment(self.first(host), None);
            let groups = &mut self.ring_states[place].groups;
            if judged {
                groups.check(&moment);
            }
            groups.listening.settle(judged, &moment);
        }
    }
}

#[cfg(test)]
mod tests;
