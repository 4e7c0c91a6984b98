//! What a host answers, and what it does not: pings, datagrams for ports that nobody has, ARP requests (RFC 792, RFC 1122 s3.2.2 and s4.1.3.1, RFC 826). For each question that is one, an answer, in the
//! same service, with what the question brought; and no answer without one: to what was for many, in pieces, damaged, or an error itself.

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use ringway_stack::Instant;
use ringway_stack::device::{ChecksumVerdict, MacAddr};

use super::{Checkers, Moment};
use crate::checksum;
use crate::dissect::{self, Ip, Lookup, Payload, UDP, be16, is_one_hosts};
use crate::fabric::{Frame, Marks};
use crate::trace::hash_bytes;

const NAME: &str = "answers";

const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const ECHO: u8 = 8;
const PORT: u8 = 3;
/// The same of ICMPv6 (RFC 4443 s3.1, s4).
const ECHO_REPLY_V6: u8 = 129;
const UNREACHABLE_V6: u8 = 1;
const PARAMETER_PROBLEM_V6: u8 = 4;
const ECHO_V6: u8 = 128;
const PORT_V6: u8 = 4;
/// What is quoted of a packet at least (RFC 792; RFC 4443 s3.1 asks for more): its header, and this behind it.
const QUOTED_LEN: usize = 8;
/// A ping with more bytes may go unanswered (the stack declares that it answers what lies in a frame's head).
const PING_MAX: usize = 170;
/// How long after its question an answer may come where the device was in trouble.
const LATE_MAX: Duration = Duration::from_secs(10);
const REMEMBERED_MAX: usize = 512;

type Ends = (SocketAddr, SocketAddr);

/// What answers something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// "I have that address", to who asked.
    Here(IpAddr, MacAddr),
    /// A ping's bytes, identifier and number included, to who sent it.
    Echo(IpAddr, MacAddr, usize, u64),
    /// Nobody has that port: what is quoted, to who spoke to it.
    Nobody(IpAddr, MacAddr, u64),
}

/// A question.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Instant,
    answer: Answer,
    /// It must be answered in this service; and has been.
    owed: bool,
    /// Somebody heard it when it came.
    heard: bool,
    /// The host has been serviced since: its stack has looked at it.
    seen: bool,
    answered: bool,
    /// Of a datagram: from and to whom.
    ends: Option<Ends>,
    /// It is what was sent: one that was damaged unseen may have come to a ring, or for an address, of nobody's.
    is_whole: bool,
}

/// What a host was asked lately.
#[derive(Debug, Default)]
pub(super) struct State {
    asked: Vec<Asked>,
    /// Some of them came in this service.
    stirred: bool,
}

impl State {
    /// Whether it was asked anything since its last service.
    pub(super) fn is_stirred(&self) -> bool {
        self.stirred
    }

    /// Forgets half of what it remembers, if that is too much. What somebody heard is forgotten first, since it is hardly ever answered: a host that takes many
    /// datagrams may owe somebody else an answer all the while, which its device refuses. What the stack has not looked at yet is never forgotten, since
    /// whoever was to hear it may be gone by then; there is no more of that than the device's receive queues hold.
    fn make_room(&mut self) {
        if self.asked.len() >= REMEMBERED_MAX && !self.forget(|one| one.seen && one.heard) {
            self.forget(|one| one.seen);
        }
    }

    /// Forgets the oldest of those that `may_go`, and whether there were any.
    fn forget(&mut self, may_go: impl Fn(&Asked) -> bool) -> bool {
        let mut room = 0;
        self.asked.retain(|one| {
            let goes = room < REMEMBERED_MAX / 2 && may_go(one);
            room += usize::from(goes);
            !goes
        });
        room > 0
    }
}

impl Checkers {
    /// A frame reached a host.
    pub(super) fn asks(&mut self, moment: &Moment, frame: &Frame, payload: &Payload) {
        let (bytes, host) = (&frame.bytes[..], moment.host);
        let Some(own) = moment.ip else { return };
        // (A frame that was damaged where no checksum tells may or may not be seen to be.)
        let is_certain = !frame.marks.intersects(Marks::CORRUPTED | Marks::HIDDEN | Marks::FORGED);
        let asked = match payload {
            Payload::Lookup(lookup) => request(bytes, lookup, own).map(|answer| (answer, None)),
            Payload::Ip(ip) if ip.dst == own && !ip.fragment && (ip.is_icmp() || ip.protocol == UDP) => Self::question(bytes, ip),
            _ => None,
        };
        let Some((answer, ends)) = asked else { return };
        let is_heard = ends.is_some_and(|ends| self.hears(host, ends));
        // (RFC 4443 s2.4 (f): how many errors are sent is limited.)
        let is_limited = own.is_ipv6() && matches!(answer, Answer::Nobody(..));
        let state = &mut self.answers[host];
        state.make_room();
        state.asked.push(Asked {
            at: moment.at,
            answer,
            owed: is_certain && !is_heard && !is_limited,
            heard: is_heard,
            seen: false,
            answered: false,
            ends,
            is_whole: is_certain,
        });
        state.stirred = true;
    }

    /// Whether a socket of a host hears that.
    fn hears(&self, host: usize, (from, to): Ends) -> bool {
        self.places[host]
            .iter()
            .any(|&place| self.ring_states[place].bound.get(&(false, to.port())).is_some_and(|port| port.is_for_one(from, to)))
    }

    /// A UDP socket of a host is about to be closed. It may have been bound, and have heard what came since the last service, before the host was serviced.
    pub(super) fn may_have_heard(&mut self, host: usize) {
        let mut asked = core::mem::take(&mut self.answers[host].asked);
        for one in asked.iter_mut().filter(|one| one.owed) {
            one.owed = one.ends.is_none_or(|ends| !self.hears(host, ends));
        }
        self.answers[host].asked = asked;
    }

    /// A packet for one host alone, if it wants an answer.
    fn question(bytes: &[u8], ip: &Ip) -> Option<(Answer, Option<Ends>)> {
        let from = dissect::mac_at(bytes, 6)?;
        let for_one = dissect::mac_at(bytes, 0).is_some_and(|to| !to.is_multicast());
        let kind = *bytes.get(ip.l4)?;
        let is_ping = ip.is_icmp() && kind == if ip.is_v6() { ECHO_V6 } else { ECHO };
        if !is_ping && ip.protocol != UDP || !is_one_hosts(ip.src) {
            return None;
        }
        if ip.protocol == UDP && !for_one || checksum::verify(bytes) == ChecksumVerdict::Bad {
            return None;
        }
        if is_ping {
            let data = bytes.get(ip.l4 + 4..ip.end)?;
            return (data.len() <= PING_MAX).then_some((Answer::Echo(ip.src, from, data.len(), hash_bytes(data)), None));
        }
        let len = usize::from(be16(bytes, ip.l4 + 4)?);
        if len < 8 || ip.l4 + len > ip.end {
            return None;
        }
        Some((Answer::Nobody(ip.src, from, quotation(bytes, ip.offset)?), dissect::ports(bytes, ip)))
    }

    /// A host sent a frame: an answer, perhaps.
    pub(super) fn answers(&mut self, moment: &Moment, bytes: &[u8], payload: &Payload) {
        let host = moment.host;
        let Some(to) = dissect::mac_at(bytes, 0) else { return };
        let answer = match payload {
            Payload::Lookup(lookup) => reply(moment, bytes, lookup),
            Payload::Ip(ip) if ip.is_icmp() => said(moment, bytes, ip, to),
            _ => None,
        };
        let Some(answer) = answer else { return };
        let rings = self.places[host].len();
        let asked = &self.answers[host].asked;
        // (A clock that jumped makes everything late.)
        let fits = |one: &Asked| one.answer == answer && moment.at <= one.at.max(moment.excused) + LATE_MAX;
        let owed = asked.iter().position(|one| fits(one) && one.owed && !one.answered);
        let found = owed.or_else(|| asked.iter().position(|one| fits(one) && (!one.answered || rings > 1)));
        match found {
            // (What came for somebody who has gone since is nobody's, and so is what came before somebody did.)
            Some(at)
                if asked[at].is_whole
                    && asked[at].ends.is_some_and(|ends| asked[at].heard && self.hears(host, ends) && self.is_calm(host)) =>
            {
                moment.breach(NAME, format_args!("RFC 1122 s4.1.3.1: {answer:?}, and somebody has that port"));
            }
            Some(at) => self.answers[host].asked[at].answered = true,
            None => moment.breach(NAME, format_args!("RFC 1122 s3.2.2: {answer:?} answers nothing that asked for it")),
        }
    }

    /// A host has been serviced. `judged`: it had no excuse for what it did not do.
    pub(super) fn settle_answers(&mut self, host: usize, judged: bool) {
        if !core::mem::take(&mut self.answers[host].stirred) {
            return;
        }
        let moment = self.moment(self.first(host), None);
        let mut asked = core::mem::take(&mut self.answers[host].asked);
        for one in &mut asked {
            one.seen = true;
            let owed = core::mem::take(&mut one.owed) && judged && !one.answered;
            if owed && one.ends.is_none_or(|ends| !self.hears(host, ends)) {
                moment.breach(NAME, format_args!("RFC 826, RFC 792, RFC 1122 s4.1.3.1: {:?} was owed, and not sent", one.answer));
            }
        }
        // (Where the device takes what it is given, all answers are given by now, but for those to what came when it did not.)
        asked.retain(|one| (!judged || !one.answered) && moment.at <= one.at.max(moment.excused) + LATE_MAX);
        self.answers[host].asked = asked;
    }
}

/// RFC 826, RFC 4861 s7.2.4: a request for the host's address, by who has one or wants to know whether this one is had (RFC 5227 s2.1.1).
fn request(bytes: &[u8], lookup: &Lookup, own: IpAddr) -> Option<Answer> {
    // (Who asks without saying so is answered where he spoke from.)
    let mac = lookup.mac.or_else(|| dissect::mac_at(bytes, 6))?;
    let asks = lookup.asks && lookup.target == own && !mac.is_multicast() && lookup.is_sound(bytes);
    asks.then_some(Answer::Here(lookup.sender, mac))
}

/// RFC 826, RFC 4861 s7.2.4: a reply tells its receiver, and nobody else, who has what.
fn reply(moment: &Moment, bytes: &[u8], lookup: &Lookup) -> Option<Answer> {
    // (What is told to everybody answers nobody.)
    if lookup.asks || lookup.target == lookup.sender && lookup.target.is_ipv6() {
        return None;
    }
    let to = dissect::mac_at(bytes, 0)?;
    if lookup.target_mac.is_some_and(|mac| mac != to) || lookup.mac.is_some() && dissect::mac_at(bytes, 6) != lookup.mac {
        moment.breach(NAME, "RFC 826: a reply names other MAC addresses than those that it goes between");
    }
    Some(Answer::Here(lookup.target, to))
}

/// What an ICMP message that a host sends answers.
fn said(moment: &Moment, bytes: &[u8], ip: &Ip, to: MacAddr) -> Option<Answer> {
    let (&kind, &code) = (bytes.get(ip.l4)?, bytes.get(ip.l4 + 1)?);
    let known = if ip.is_v6() { (ECHO_REPLY_V6, UNREACHABLE_V6, PORT_V6) } else { (ECHO_REPLY, UNREACHABLE, PORT) };
    match (kind, code) {
        (kind, 0) if kind == known.0 => {
            let data = bytes.get(ip.l4 + 4..ip.end)?;
            Some(Answer::Echo(ip.dst, to, data.len(), hash_bytes(data)))
        }
        (kind, code) if (kind, code) == (known.1, known.2) => match quotation(bytes, ip.l4 + 8) {
            Some(quoted) => Some(Answer::Nobody(ip.dst, to, quoted)),
            None => moment.breach(NAME, "RFC 792: an error quotes a header and 8 bytes"),
        },
        // (No checksum is over IPv6's header: what was damaged may name a header that nobody knows, RFC 8200 s4.)
        (PARAMETER_PROBLEM_V6, _) if ip.is_v6() => None,
        _ => moment.breach(NAME, format_args!("RFC 792: an ICMP message of type {kind} and code {code}, which nobody needs")),
    }
}

/// What an error quotes of the packet that begins there: its header as it came, options included, and the first 8 bytes behind it.
fn quotation(bytes: &[u8], at: usize) -> Option<u64> {
    let (_, l4) = dissect::transport_at(bytes, at)?;
    Some(hash_bytes(bytes.get(at..l4 + QUOTED_LEN)?))
}

#[cfg(test)]
mod tests;
