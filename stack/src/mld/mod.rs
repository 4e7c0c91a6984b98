//! Multicast listener discovery for a host (RFC 3810), as a state machine without I/O: which groups are listened to on a link, from which
//! sources, and telling routers and switches.
//!
//! Sockets say what they want by [`Listener::listen`]. What all of them want together is the link's state; when it changes, reports say so
//! at once and again, as often as the link loses packets, and queries are answered some time later. While a router of version 1 is heard,
//! the listener speaks that version (RFC 3810 s8.2).
//!
//! - [`filter`]: source filters, and what several come to together
//! - `report`: records put into packets; `v1`: the older version

use core::net::Ipv6Addr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use self::filter::{Filter, SOURCES_MAX};
use self::report::Reports;
use crate::time::Instant;
use crate::wire::icmpv6::mld::{self, Message, QueryV2, RecordKind};
use crate::wire::ipv6;

pub mod filter;
mod report;
mod v1;

#[cfg(test)]
mod tests;

/// Groups of one link.
pub(crate) const GROUPS_MAX: usize = 1024;
/// RFC 3810 s9.1: how often a change is told, where no querier says otherwise.
const ROBUSTNESS: u8 = 2;
/// RFC 3810 s9.2, where no querier says otherwise.
const QUERY_INTERVAL: Duration = Duration::from_secs(125);
/// A change is told again within this time (RFC 3810 s9.11).
const UNSOLICITED: Duration = Duration::from_secs(1);

/// Why a socket doesn't listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// The program: not a group.
    #[error("not a group")]
    NoGroup,
    /// The program: too many groups, or sources in one filter.
    #[error("too many groups or sources")]
    Full,
}

/// A packet to be sent to a group's Ethernet address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// To which group; also in its header.
    pub dst: Ipv6Addr,
    /// All of it, IPv6 header first.
    pub bytes: Vec<u8>,
}

/// What is to be told of a change: how often still, and when next (RFC 3810 s6.1).
#[derive(Debug, Default)]
struct Changes {
    /// Reports of the filter's mode, which have all of its sources.
    mode: u8,
    /// Reports of single sources. Invariant: none is zero.
    sources: BTreeMap<Ipv6Addr, u8>,
    at: Option<Instant>,
}

/// The answer to a query about a group: when, and about which sources if not all (RFC 3810 s6.2).
#[derive(Debug)]
struct Answer {
    at: Instant,
    sources: BTreeSet<Ipv6Addr>,
}

#[derive(Debug)]
struct Group {
    /// What each socket wants. Invariant: something.
    sockets: BTreeMap<u32, Filter>,
    /// What they want together.
    filter: Filter,
    changes: Changes,
    answer: Option<Answer>,
}

/// The listener of one link. Ordered, so that simulations iterate alike.
#[derive(Debug)]
pub struct Listener {
    groups: BTreeMap<Ipv6Addr, Group>,
    /// Where reports come from: a link-local address of ours, or the unspecified one while there is none (RFC 3810 s5.2.13).
    src: Ipv6Addr,
    /// When a query about all groups is to be answered.
    answer_at: Option<Instant>,
    /// What the last querier said.
    robustness: u8,
    interval: Duration,
    /// Until when version 1 is spoken.
    v1_until: Option<Instant>,
    out: VecDeque<Packet>,
    /// Nothing is due before this.
    due: Option<Instant>,
    random: ChaCha8Rng,
}

impl Listener {
    /// Listens to nothing yet. All delays are drawn from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            groups: BTreeMap::new(),
            src: Ipv6Addr::UNSPECIFIED,
            answer_at: None,
            robustness: ROBUSTNESS,
            interval: QUERY_INTERVAL,
            v1_until: None,
            out: VecDeque::new(),
            due: None,
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// Has reports come from `src`, a link-local address that has proved to be ours. The first one is told at once of all that was reported
    /// from nobody, which routers may have ignored (RFC 3590 s4).
    pub fn set_source(&mut self, now: Instant, src: Ipv6Addr) {
        let was_nobody = core::mem::replace(&mut self.src, src).is_unspecified();
        if was_nobody && !src.is_unspecified() {
            let groups: Vec<_> = self.groups.iter().filter(|(_, group)| !group.filter.is_none()).map(|(&ip, _)| ip).collect();
            for ip in groups {
                self.mode_changed(now, ip);
            }
            self.report_changes(now);
            self.plan();
        }
    }

    /// What a socket wants to hear of a group from now on; [`Filter::NONE`]: nothing more. `socket` is any number that no other socket has.
    ///
    /// # Errors
    /// Every variant of [`ListenError`].
    pub fn listen(&mut self, now: Instant, socket: u32, group: Ipv6Addr, filter: Filter) -> Result<(), ListenError> {
        if !group.is_multicast() {
            return Err(ListenError::NoGroup);
        }
        if filter.sources().len() > SOURCES_MAX {
            return Err(ListenError::Full);
        }
        if !self.groups.contains_key(&group) {
            if filter.is_none() {
                return Ok(());
            }
            if self.groups.len() >= GROUPS_MAX && !self.forget_left() {
                return Err(ListenError::Full);
            }
        }
        let entry = self.groups.entry(group).or_insert_with(Group::new);
        if filter.is_none() {
            entry.sockets.remove(&socket);
        } else {
            entry.sockets.insert(socket, filter);
        }
        self.settle(now, group);
        self.plan();
        Ok(())
    }

    /// A socket closes: it wants nothing more.
    pub fn close(&mut self, now: Instant, socket: u32) {
        let joined: Vec<_> = self.groups.iter().filter(|(_, group)| group.sockets.contains_key(&socket)).map(|(&ip, _)| ip).collect();
        for group in joined {
            // Wanting nothing is never refused.
            let _ = self.listen(now, socket, group, Filter::NONE);
        }
    }

    /// Whether packets from `source` for this group are for a socket here, or for every node.
    pub fn hears(&self, group: Ipv6Addr, source: Ipv6Addr) -> bool {
        group == ipv6::ALL_NODES || self.groups.get(&group).is_some_and(|group| group.filter.admits(source))
    }

    /// What all sockets want of a group together.
    pub fn filter(&self, group: Ipv6Addr) -> Option<&Filter> {
        self.groups.get(&group).map(|group| &group.filter).filter(|filter| !filter.is_none())
    }

    /// What one socket wants of a group.
    pub fn socket_filter(&self, group: Ipv6Addr, socket: u32) -> Option<&Filter> {
        self.groups.get(&group)?.sockets.get(&socket)
    }

    /// A socket's wishes changed: what they all come to may have, too.
    fn settle(&mut self, now: Instant, ip: Ipv6Addr) {
        let (is_v1, times) = (self.speaks_v1(now), self.robustness);
        let Some(group) = self.groups.get_mut(&ip) else { return };
        let filter = Filter::merge(group.sockets.values());
        if filter == group.filter {
            return;
        }
        let old = core::mem::replace(&mut group.filter, filter);
        if !is_reported(ip) {
            return self.tidy();
        }
        if is_v1 {
            return self.settle_v1(now, ip, old.is_none());
        }
        match group.filter.changes(&old) {
            Some(sources) => {
                group.changes.sources.extend(sources.into_iter().map(|source| (source, times)));
                group.changes.at = Some(now);
                // Rather than remember ever more sources that come and go: all of the state says as much.
                if group.changes.sources.len() > 2 * SOURCES_MAX {
                    self.mode_changed(now, ip);
                }
            }
            None => self.mode_changed(now, ip),
        }
        self.report_changes(now);
    }

    /// The mode of a group's filter is to be told, now and again.
    fn mode_changed(&mut self, now: Instant, ip: Ipv6Addr) {
        if let Some(group) = self.groups.get_mut(&ip).filter(|_| is_reported(ip)) {
            group.changes = Changes { mode: self.robustness, sources: BTreeMap::new(), at: Some(now) };
        }
    }

    /// Tells every change that is due. (RFC 3810 s6.1: what is due with one report is told with it; each has a count of its own.)
    fn report_changes(&mut self, now: Instant) {
        if self.speaks_v1(now) {
            return self.report_changes_v1(now);
        }
        let mut reports = Reports::new(self.src, &mut self.out);
        for (&ip, group) in &mut self.groups {
            if group.changes.at.is_none_or(|at| at > now) {
                continue;
            }
            group.report_change(ip, &mut reports);
            let more = group.changes.mode > 0 || !group.changes.sources.is_empty();
            group.changes.at = more.then(|| now + some_time(&mut self.random, UNSOLICITED));
        }
        reports.finish();
        self.tidy();
    }

    /// Takes in a message, which [`Message::parse`] found valid and whose checksum is right, and that was sent to `dst`.
    pub fn on_message(&mut self, now: Instant, dst: Ipv6Addr, message: &Message<'_>) {
        match *message {
            Message::Query { group, max_response, v2 } => {
                // RFC 3810 s5.1.15, and RFC 2710 s5: to all nodes, to the group, or, for those who look for faults, to one of our addresses.
                if dst.is_multicast() && dst != ipv6::ALL_NODES && group != Some(dst) {
                    return;
                }
                match v2 {
                    Some(v2) => self.on_query(now, group, max_response, &v2),
                    None => self.on_query_v1(now, group, max_response),
                }
            }
            // RFC 2710 s4: in version 1 one report for a group is enough. (In version 2 each host tells its own.)
            Message::ReportV1 { group } if group == dst && self.speaks_v1(now) => {
                if let Some(group) = self.groups.get_mut(&group) {
                    (group.answer, group.changes) = (None, Changes::default());
                }
            }
            _ => return,
        }
        self.plan();
    }

    /// RFC 3810 s6.2.
    fn on_query(&mut self, now: Instant, group: Option<Ipv6Addr>, max_response: Duration, v2: &QueryV2<'_>) {
        // s9.1, s9.2: who hears a querier takes over what it says; zero says nothing.
        self.robustness = if v2.robustness == 0 { ROBUSTNESS } else { v2.robustness };
        self.interval = if v2.interval.is_zero() { QUERY_INTERVAL } else { v2.interval };
        if self.speaks_v1(now) {
            return self.answer_v1(now, group, max_response);
        }
        let at = now + some_time(&mut self.random, max_response);
        // Rule 1: an answer about everything that comes sooner is an answer to this, too.
        if self.answer_at.is_some_and(|planned| planned <= at) {
            return;
        }
        match group {
            // Rule 2.
            None => self.answer_at = Some(at),
            // Rules 3 to 5.
            Some(ip) => {
                let Some(group) = self.groups.get_mut(&ip).filter(|group| is_reported(ip) && !group.filter.is_none()) else { return };
                group.asked(at, &v2.sources);
            }
        }
    }

    /// When [`Listener::on_timer`] may have something to do.
    #[inline]
    pub const fn next_deadline(&self) -> Option<Instant> {
        self.due
    }

    fn plan(&mut self) {
        let groups = self.groups.values().flat_map(|group| [group.changes.at, group.answer.as_ref().map(|answer| answer.at)]);
        self.due = groups.chain([self.answer_at, self.v1_until]).flatten().min();
    }

    /// Does what is due.
    pub fn on_timer(&mut self, now: Instant) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        if self.v1_until.is_some_and(|until| until <= now) {
            // s8.2.1: back to version 2, with a clean slate.
            self.v1_until = None;
            self.forget_plans();
        }
        self.answer_due(now);
        self.report_changes(now);
        self.plan();
    }

    /// RFC 3810 s6.2, what to do at each timer's end.
    fn answer_due(&mut self, now: Instant) {
        let all = self.answer_at.take_if(|at| *at <= now).is_some();
        let is_v1 = self.speaks_v1(now);
        let mut due_v1 = Vec::new();
        let mut reports = Reports::new(self.src, &mut self.out);
        for (&ip, group) in &mut self.groups {
            let answer = group.answer.take_if(|answer| answer.at <= now);
            if !is_reported(ip) || group.filter.is_none() {
                continue;
            }
            match answer {
                Some(_) if is_v1 => due_v1.push(ip),
                Some(answer) if !all => group.answer(ip, &answer.sources, &mut reports),
                _ if all => group.answer(ip, &BTreeSet::new(), &mut reports),
                _ => {}
            }
        }
        reports.finish();
        due_v1.into_iter().for_each(|ip| self.tell_v1(ip, false));
    }

    fn forget_plans(&mut self) {
        self.answer_at = None;
        for group in self.groups.values_mut() {
            (group.answer, group.changes) = (None, Changes::default());
        }
        self.tidy();
    }

    /// Forgets groups that nobody listens to, once that was told often enough.
    fn tidy(&mut self) {
        self.groups.retain(|_, group| !group.sockets.is_empty() || group.changes.at.is_some());
    }

    /// Forgets a group of which it is still to be told that nobody listens, since another one is to be joined.
    fn forget_left(&mut self) -> bool {
        let left = self.groups.iter().find(|(_, group)| group.sockets.is_empty()).map(|(&ip, _)| ip);
        left.is_some_and(|ip| self.groups.remove(&ip).is_some())
    }

    /// The next packet to send.
    pub fn poll_transmit(&mut self) -> Option<Packet> {
        self.out.pop_front()
    }
}

impl Group {
    const fn new() -> Self {
        let changes = Changes { mode: 0, sources: BTreeMap::new(), at: None };
        Self { sockets: BTreeMap::new(), filter: Filter::NONE, changes, answer: None }
    }

    /// RFC 3810 s6.1: a mode is told with all its sources, of which nothing more is to be told by the same report; otherwise each source by
    /// whether it is wanted now.
    fn report_change(&mut self, ip: Ipv6Addr, reports: &mut Reports<'_>) {
        let Changes { mode, sources, .. } = &mut self.changes;
        if *mode > 0 {
            let all: Vec<_> = self.filter.sources().iter().copied().collect();
            reports.add(self.filter.record(true), ip, &all);
            *mode -= 1;
        } else {
            let (allow, block): (Vec<_>, Vec<_>) = sources.keys().copied().partition(|&source| self.filter.admits(source));
            for (kind, sources) in [(RecordKind::Allow, allow), (RecordKind::Block, block)] {
                if !sources.is_empty() {
                    reports.add(kind, ip, &sources);
                }
            }
        }
        sources.retain(|_, left| {
            *left = left.saturating_sub(1);
            *left > 0
        });
    }

    /// A query about this group alone, or about some of its sources: RFC 3810 s6.2, rules 3 to 5.
    fn asked(&mut self, at: Instant, sources: &mld::Sources<'_>) {
        match &mut self.answer {
            None => self.answer = Some(Answer { at, sources: sources.iter().take(SOURCES_MAX + 1).collect() }),
            Some(answer) => {
                answer.at = answer.at.min(at);
                if answer.sources.is_empty() || sources.is_empty() {
                    answer.sources.clear();
                } else {
                    answer.sources.extend(sources.iter().take(SOURCES_MAX + 1));
                }
            }
        }
        // More than anybody here has a filter for: an answer about all of them is shorter.
        if let Some(answer) = self.answer.as_mut().filter(|answer| answer.sources.len() > SOURCES_MAX) {
            answer.sources.clear();
        }
    }

    /// Tells the state of the group, or which of the sources that were asked for are wanted; of none: nothing.
    fn answer(&self, ip: Ipv6Addr, asked: &BTreeSet<Ipv6Addr>, reports: &mut Reports<'_>) {
        if asked.is_empty() {
            let sources: Vec<_> = self.filter.sources().iter().copied().collect();
            return reports.add(self.filter.record(false), ip, &sources);
        }
        let wanted: Vec<_> = asked.iter().copied().filter(|&source| self.filter.admits(source)).collect();
        if !wanted.is_empty() {
            reports.add(RecordKind::IsInclude, ip, &wanted);
        }
    }
}

/// RFC 3810 s6: of the group of all nodes, and of those that don't leave an interface, nothing is ever told.
fn is_reported(group: Ipv6Addr) -> bool {
    group != ipv6::ALL_NODES && ipv6::scope(group) >= 2
}

/// A time below `max`.
fn some_time(random: &mut ChaCha8Rng, max: Duration) -> Duration {
    Duration::from_nanos(((u128::from(random.next_u32()) * max.as_nanos()) >> 32) as u64)
}
