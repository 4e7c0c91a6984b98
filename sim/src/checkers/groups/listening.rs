//! Groups of IPv6, as routers hear of them (RFC 3810): what a link's sockets want together is told as soon as it changes and once more, and again when
//! a router asks; and what is told is true. What each socket wants is known from its program's calls.
//!
//! A router that hears all of a host's reports is kept beside it. After each service it knows what is wanted, whatever the records were by which it was told.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use ringway_stack::Instant;
use ringway_stack::ring::{FlowId, SourceFilter};

use super::super::Moment;
use super::{LATE, NAME};
use crate::addresses::Family;
use crate::checksum;
use crate::dissect::{Ip, be16, ipv6_at};

/// Bytes of the hop-by-hop header with a router alert for listener discovery (RFC 2711 s2.1), and what they are.
const ALERT: [u8; 8] = [58, 0, 5, 2, 0, 0, 1, 0];
const QUERY: u8 = 130;
const REPORT: u8 = 143;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// RFC 3810 s9.1, s9.11: how often a change is told, where no router says otherwise, and within which time again.
const ROBUSTNESS: u8 = 2;
const REPEATED: Duration = Duration::from_secs(1);

/// Whose datagrams are wanted: those of the sources that are named, or those of all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) others: bool,
    pub(crate) named: BTreeSet<Ipv6Addr>,
}

impl Wish {
    pub(crate) fn wants(&self, source: Ipv6Addr) -> bool {
        self.others != self.named.contains(&source)
    }

    /// RFC 3810 s4.2, in one sentence: a source is wanted if any socket wants it.
    pub(crate) fn of_all<'a>(wishes: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let others = wishes.clone().any(|wish| wish.others);
        let all: BTreeSet<_> = wishes.clone().flat_map(|wish| wish.named.iter().copied()).collect();
        let named = all.into_iter().filter(|&source| wishes.clone().any(|wish| wish.wants(source)) != others).collect();
        Self { others, named }
    }
}

impl From<&SourceFilter> for Wish {
    fn from(filter: &SourceFilter) -> Self {
        let (others, sources) = match filter {
            SourceFilter::Include(sources) => (false, sources),
            SourceFilter::Exclude(sources) => (true, sources),
        };
        let of_ipv6 = |source: &IpAddr| if let IpAddr::V6(source) = source { Some(*source) } else { None };
        Self { others, named: sources.iter().filter_map(of_ipv6).collect() }
    }
}

/// A group with listeners, or of which their end is to be told.
#[derive(Debug, Default)]
struct Group {
    sockets: BTreeMap<FlowId, Wish>,
    /// What they want together; and what they did before in this service: frames are looked at when it is over.
    wish: Wish,
    before: Vec<Wish>,
    /// How often a change is to be told still, and by when the next time.
    left: u8,
    due: Instant,
    /// Until when its end may be told: of two reports in one service it is not to be seen which told of what.
    remembered: Instant,
    /// By when a router that asked about every group is to be answered; and one that asked about this one, and about which sources if not all.
    answer_all: Option<Instant>,
    answer: Option<(Instant, Option<BTreeSet<Ipv6Addr>>)>,
}

impl Group {
    fn is_any(&self, is: impl Fn(&Wish) -> bool) -> bool {
        self.before.iter().chain([&self.wish]).any(is)
    }

    /// Whether a record is true, or was in this service.
    fn bears_out(&self, record: &Record) -> bool {
        let Record { kind, sources, .. } = record;
        match kind {
            // (An answer about some sources names those that are wanted; one about all does, too.)
            1 => !sources.is_empty() && self.is_any(|wish| sources.iter().all(|&source| wish.wants(source))),
            3 => self.is_any(|wish| !wish.others && wish.named == *sources),
            2 | 4 => self.is_any(|wish| wish.others && wish.named == *sources),
            5 => !sources.is_empty() && self.is_any(|wish| sources.iter().all(|&source| wish.wants(source))),
            6 => !sources.is_empty() && self.is_any(|wish| sources.iter().all(|&source| !wish.wants(source))),
            _ => false,
        }
    }

    /// A record may answer what was asked.
    fn answered(&mut self, record: &Record) {
        if self.is_any(|wish| wish.others == (record.kind == 2) && wish.named == record.sources) {
            (self.answer_all, self.answer) = (None, None);
        }
        let is_wanted = |source: &Ipv6Addr| !self.wish.wants(*source) || record.sources.contains(source);
        if let Some((_, Some(asked))) = &self.answer
            && asked.iter().all(is_wanted)
        {
            self.answer = None;
        }
    }
}

/// A record of a report (RFC 3810 s5.2).
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) kind: u8,
    pub(crate) group: Ipv6Addr,
    pub(crate) sources: BTreeSet<Ipv6Addr>,
}

fn addresses(bytes: &[u8], at: usize, count: u16) -> Option<BTreeSet<Ipv6Addr>> {
    (0..usize::from(count)).map(|n| ipv6_at(bytes, at + 16 * n)).collect()
}

/// The records of a report; `None`: they are not what their counts say.
pub(crate) fn records(message: &[u8]) -> Option<Vec<Record>> {
    let mut at = 8;
    let mut records = Vec::new();
    for _ in 0..be16(message, 6)? {
        let (kind, auxiliary, count) = (*message.get(at)?, *message.get(at + 1)?, be16(message, at + 2)?);
        records.push(Record { kind, group: ipv6_at(message, at + 4)?, sources: addresses(message, at + 20, count)? });
        at += 20 + 16 * usize::from(count) + 4 * usize::from(auxiliary);
    }
    (at == message.len()).then_some(records)
}

/// RFC 3810 s5.1.3.
fn milliseconds(code: u16) -> u64 {
    if code < 0x8000 { code.into() } else { u64::from(code & 0xfff | 0x1000) << ((code >> 12 & 7) + 3) }
}

/// RFC 3810 s6: of all nodes, and of what does not leave an interface, nothing is told.
pub(crate) fn is_told(group: Ipv6Addr) -> bool {
    group != ALL_NODES && group.octets()[1] & 0xf >= 2
}

/// The message in a packet of listener discovery that comes from its link (RFC 3810 s5, s6.2): with a router alert, and right checksums.
pub(crate) fn message<'a>(frame: &'a [u8], ip: &Ip) -> Option<&'a [u8]> {
    let at = ip.l4 + ALERT.len();
    let is_sound = at + 8 <= ip.end && frame[ip.l4..at] == ALERT && ip.ttl(frame) == 1 && checksum::is_icmpv6_good(frame, at);
    is_sound.then(|| &frame[at..ip.end])
}

/// What a ring's sockets want of all groups, and what is to be told.
#[derive(Debug, Default)]
pub(super) struct Listening {
    groups: BTreeMap<Ipv6Addr, Group>,
    /// What a router knows.
    told: BTreeMap<Ipv6Addr, Wish>,
    /// What a router said, if one did.
    robustness: Option<u8>,
    /// Until when an answer about every group may be yet to come, whatever is told of some meanwhile, and whichever are listened to.
    answers_all_until: Instant,
}

impl Listening {
    pub(super) fn is_quiet(&self) -> bool {
        self.groups.is_empty()
    }

    /// What a socket wants of a group from now on.
    pub(super) fn wants(&mut self, now: Instant, ip: Ipv6Addr, socket: FlowId, wish: Wish) {
        let group = self.groups.entry(ip).or_default();
        match wish == Wish::default() {
            true => drop(group.sockets.remove(&socket)),
            false => drop(group.sockets.insert(socket, wish)),
        }
        let together = Wish::of_all(group.sockets.values());
        if together == group.wish {
            return;
        }
        group.before.push(core::mem::replace(&mut group.wish, together));
        if is_told(ip) {
            (group.left, group.due) = (self.robustness.unwrap_or(ROBUSTNESS), now);
            group.remembered = now + REPEATED * (u32::from(group.left) + 1);
        }
        if group.wish == Wish::default() {
            group.answer_all = None;
        }
        if group.wish == Wish::default() || matches!(group.answer, Some((_, Some(_)))) {
            group.answer = None;
        }
    }

    /// A report is on the wire. Whether it is a lawful one.
    fn reports(&mut self, at: Instant, records: &[Record]) -> Result<(), String> {
        let mut changed = BTreeSet::new();
        for record in records {
            let Some(group) = self.groups.get_mut(&record.group).filter(|group| group.bears_out(record)) else {
                return Err(format!("{record:?} is told, and is not so"));
            };
            if record.kind <= 2 {
                group.answered(record);
            }
            if record.kind > 2 {
                changed.insert(record.group);
            }
            learn(self.told.entry(record.group).or_default(), record);
        }
        for ip in changed {
            if let Some(group) = self.groups.get_mut(&ip) {
                (group.left, group.due) = (group.left.saturating_sub(1), at + REPEATED);
            }
        }
        Ok(())
    }

    /// A router's question, of the second version.
    fn asked(&mut self, now: Instant, message: &[u8]) -> Option<()> {
        let (within, about) = (milliseconds(be16(message, 4)?), ipv6_at(message, 8)?);
        let sources = addresses(message, 28, be16(message, 26)?)?;
        let robustness = message[24] & 7;
        self.robustness = Some(if robustness == 0 { ROBUSTNESS } else { robustness });
        let by = now + Duration::from_millis(within);
        let answers_all_until = self.answers_all_until;
        if about.is_unspecified() {
            self.answers_all_until = answers_all_until.max(by);
        }
        for (&ip, group) in &mut self.groups {
            let is_meant = about.is_unspecified() || about == ip;
            if !is_meant || !is_told(ip) || group.wish == Wish::default() {
                continue;
            }
            let asked = Some(sources.clone()).filter(|sources| !sources.is_empty());
            // (Who wants none of those that are asked for says nothing.)
            if asked.as_ref().is_some_and(|asked| !asked.iter().any(|&source| group.wish.wants(source))) {
                continue;
            }
            match (about.is_unspecified(), group.answer.take()) {
                (true, specific) => {
                    group.answer_all = Some(group.answer_all.map_or(by, |before| before.min(by)));
                    group.answer = specific;
                }
                // (Rule 1: that answer is one to this question, too, if it comes sooner.)
                (false, specific) if group.answer_all.is_some() || now <= answers_all_until => group.answer = specific,
                (false, None) => group.answer = Some((by, asked)),
                // (Rules 4 and 5.)
                (false, Some((before, earlier))) => {
                    let both = earlier.zip(asked).map(|(earlier, asked)| &earlier | &asked);
                    group.answer = Some((before.min(by), both));
                }
            }
        }
        Some(())
    }

    /// After a service: whether routers know what is wanted, and are told in time.
    fn check(&self, moment: &Moment) {
        let nothing = Wish::default();
        for (ip, group) in self.groups.iter().filter(|(ip, _)| is_told(**ip)) {
            let told = self.told.get(ip).unwrap_or(&nothing);
            if *told != group.wish {
                moment.breach(NAME, format_args!("RFC 3810 s6.1: routers were told {told:?} of {ip}, and {:?} is wanted", group.wish));
            }
            if group.left > 0 && moment.at > group.due + LATE {
                moment.breach(NAME, format_args!("RFC 3810 s6.1: of {ip} it was to be told again by {:?}", group.due));
            }
            let due = group.answer_all.into_iter().chain(group.answer.as_ref().map(|(due, _)| *due)).min();
            if let Some(due) = due.filter(|due| moment.at > *due + LATE) {
                moment.breach(NAME, format_args!("RFC 3810 s6.2: a router that asks about {ip} was to be answered by {due:?}"));
            }
        }
    }

    /// A service is over. `judged`: it had no excuse.
    pub(super) fn settle(&mut self, judged: bool, moment: &Moment) {
        if judged {
            self.check(moment);
        }
        for (ip, group) in &mut self.groups {
            group.before.clear();
            if !judged {
                (group.left, group.answer_all, group.answer) = (0, None, None);
                self.told.insert(*ip, group.wish.clone());
            }
        }
        self.groups.retain(|_, group| group.left > 0 || !group.sockets.is_empty() || moment.at <= group.remembered);
    }
}

/// What a router makes of a record (RFC 3810 s7.4), without its timers.
pub(crate) fn learn(known: &mut Wish, record: &Record) {
    let Record { kind, sources, .. } = record;
    match kind {
        // (What answers a question about some sources says nothing of others.)
        1 if known.others => sources.iter().for_each(|source| _ = known.named.remove(source)),
        1 => known.named.extend(sources),
        3 => *known = Wish { others: false, named: sources.clone() },
        2 | 4 => *known = Wish { others: true, named: sources.clone() },
        5 if known.others => sources.iter().for_each(|source| _ = known.named.remove(source)),
        5 => known.named.extend(sources),
        6 if known.others => known.named.extend(sources),
        6 => sources.iter().for_each(|source| _ = known.named.remove(source)),
        _ => {}
    }
}

impl super::Checkers {
    /// A host sent a packet with options for every node on its way: a report of what it listens to.
    pub(in super::super) fn listening_reported(&mut self, moment: &Moment, frame: &[u8], ip: &Ip) {
        let breach = |law: &str| -> ! { moment.breach(NAME, format_args!("{law} ({} to {})", ip.src, ip.dst)) };
        let Some(message) = message(frame, ip) else {
            breach("RFC 3810 s5: a hop limit other than 1, another router alert, or a wrong checksum");
        };
        let link_local = moment.ip.and_then(Family::link_local);
        if Some(ip.src) != link_local && !ip.src.is_unspecified() {
            breach("RFC 3810 s5.2.13: a report from an address that is not its host's link-local one");
        }
        // (No router of the first version is in any world.)
        if message[0] != REPORT || ip.dst != IpAddr::V6(ALL_ROUTERS) || message[1] != 0 || message[4..6] != [0, 0] {
            breach("RFC 3810 s5.2: no report, or not to all routers");
        }
        let Some(records) = records(message) else { breach("RFC 3810 s5.2: a report is shorter or longer than its records") };
        if records.iter().any(|record| !is_told(record.group)) {
            breach("RFC 3810 s6: a group is told of that no router is to know");
        }
        let places = &self.places[moment.host];
        let doubtful = places.len() > 1 || places.iter().any(|&place| self.ring_states[place].groups.doubtful);
        if !doubtful
            && let Err(law) = self.ring_states[places[0]].groups.listening.reports(moment.at, &records)
            && self.is_calm(moment.host)
        {
            breach(&format!("RFC 3810 s6.1: {law}"));
        }
    }

    /// A packet with options for every node on its way reached a host. (The first ring hears what no rule steers.)
    pub(in super::super) fn asked_who_listens(&mut self, moment: &Moment, frame: &[u8], ip: &Ip) {
        let place = self.first(moment.host);
        let (Some(message), IpAddr::V6(src), IpAddr::V6(dst)) = (message(frame, ip), ip.src, ip.dst) else { return };
        let Some(ring_state) = self.ring_states.get_mut(place) else { return };
        let listening = &mut ring_state.groups.listening;
        let is_heard = dst == ALL_NODES || listening.groups.get(&dst).is_some_and(|group| !group.sockets.is_empty());
        let is_about = ipv6_at(message, 8).is_some_and(|about| about == dst || about.is_unspecified() && dst == ALL_NODES);
        if message[0] != QUERY || !src.is_unicast_link_local() || !is_heard || !is_about {
            return;
        }
        match message.len() {
            // (Which speaks the first version from now on.)
            24 => ring_state.groups.doubtful = true,
            len if len >= 28 => _ = listening.asked(moment.at, message),
            _ => {}
        }
    }

    /// A ring listens in the group in which its host is asked for (RFC 4861 s7.2.1).
    pub(crate) fn joined_solicited_nodes(&mut self, place: usize, now: Instant) {
        const NOBODY: FlowId = FlowId { ring: 0, index: u32::MAX, generation: 0 };
        let ring_state = &mut self.ring_states[place];
        let Some(IpAddr::V6(own)) = ring_state.ip else { return };
        let group = Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | own.to_bits() & 0xff_ffff);
        ring_state.now = now;
        ring_state.groups.listening.wants(now, group, NOBODY, Wish { others: true, named: BTreeSet::new() });
    }
}

#[cfg(test)]
mod tests;
