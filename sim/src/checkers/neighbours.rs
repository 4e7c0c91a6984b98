//! Which MAC address a neighbour's packets go to, and what waits until that is known, from frames and calls (RFC 826, RFC 1122 s2.3.2): to the host that claimed the address last, if
//! it was asked for or asked itself; who is asked for is asked again, and in the end given up; what waits goes as soon as there is an answer, or never.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use ringway_stack::Instant;
use ringway_stack::device::MacAddr;

use super::datagrams::Datagram;
use super::{Checkers, Moment};
use crate::dissect::{self, Payload};

const NAME: &str = "neighbours";

/// Linux's mcast_solicit and retrans_time, as the stack declares them; a host looks at its timers when it is woken.
const TRIES: u32 = 3;
const AGAIN: Duration = Duration::from_millis(1000 + 100);
/// How long a question goes on, and what waits for its answer does.
const GIVEN_UP: Duration = Duration::from_millis(3 * 1000 + 500);
/// How long what was lost is remembered.
const REMEMBERED: Duration = Duration::from_secs(14);
/// What was on its way to the device when its receiver moved goes to where that was.
const ON_ITS_WAY: Duration = Duration::from_secs(2);
/// How long the stack believes who asked (Linux's base_reachable_time), from when it has seen that.
const BELIEVED: Duration = Duration::from_secs(29);
const SEEN: Duration = Duration::from_millis(50);
/// More datagrams wait for no neighbour.
const WAITING_MAX: usize = 64;
const CLAIMS_MAX: usize = 8;

/// What a program said.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    datagram: Datagram,
    at: Instant,
    /// Its receiver was given up.
    lost: bool,
}

/// What a host was told of a neighbour, and wants of it.
#[derive(Debug, Default)]
struct Neighbour {
    /// MAC addresses that claimed its address, the last one last, and when that was.
    claims: VecDeque<MacAddr>,
    claimed_at: Instant,
    claimed_first: Instant,
    /// It has claimed it by ARP; and where SYNs in its name came from, the last one last: there they are answered, whatever else is known.
    by_arp: bool,
    syns: VecDeque<MacAddr>,
    /// It was asked for, or asked for us, or began to speak to us: what it claimed counts. And when it asked last.
    counts: bool,
    asker_at: Option<Instant>,
    /// Everybody is asked for it: since when, and how often.
    asked_at: Option<Instant>,
    asks: u32,
    /// When it was asked for last, though something that came may have been the answer.
    asked_last: Option<Instant>,
    /// Whether a question goes on that the device refused for long, or another has begun, is not known.
    unsure: bool,
    /// What programs said to it that has not been sent, and when they last said anything.
    waiting: VecDeque<Waiting>,
    said_at: Option<Instant>,
}

/// A host's neighbours.
#[derive(Debug, Default)]
pub(super) struct State {
    known: BTreeMap<IpAddr, Neighbour>,
    /// One is asked for, or something waits.
    busy: bool,
    /// The host's MAC address is another, and it is to say so.
    pub(super) moved: bool,
}

impl State {
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Whether one is asked for, or something waits.
    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }

    /// Somebody claimed an address: by ARP, or by a SYN.
    fn claimed(&mut self, at: Instant, ip: IpAddr, mac: MacAddr, by_arp: bool, asks_us: bool) {
        let neighbour = self.known.entry(ip).or_default();
        neighbour.by_arp |= by_arp;
        if by_arp || neighbour.claims.is_empty() {
            if neighbour.claims.is_empty() {
                neighbour.claimed_first = at;
            }
            note(&mut neighbour.claims, mac);
            neighbour.claimed_at = at;
        }
        if !by_arp {
            note(&mut neighbour.syns, mac);
        }
        // (What is said to it makes the stack ask, though the device may not take the question at once.)
        neighbour.counts |= asks_us || !by_arp || neighbour.asked_at.is_some() || neighbour.said_at.is_some();
        if asks_us {
            neighbour.asker_at = Some(at);
        }
        neighbour.asked_at = None;
        if by_arp {
            (neighbour.asked_last, neighbour.asks) = (None, 0);
        } else {
            // (Whether a SYN tells where its sender is depends on who listens: the questions may go on.)
            neighbour.waiting.clear();
        }
    }

    /// Everybody is asked for an address. `stranger`: no host has it.
    fn asked(&mut self, moment: &Moment, ip: IpAddr, stranger: bool) {
        let neighbour = self.known.entry(ip).or_default();
        let within = |time: Duration| neighbour.asked_last.is_some_and(|before| moment.at <= before + time);
        let (goes_on, is_soon) = (within(AGAIN), within(2 * AGAIN));
        neighbour.unsure = is_soon && (neighbour.unsure || !goes_on);
        neighbour.asked_last = Some(moment.at);
        neighbour.asks = if goes_on { neighbour.asks + 1 } else { 1 };
        if !goes_on && neighbour.asked_at.is_some() {
            // The questions before were the last ones: what waited for their answer was given up before this one was thought of.
            neighbour.waiting.iter_mut().filter(|waiting| waiting.at < moment.at).for_each(|waiting| waiting.lost = true);
        }
        if goes_on && neighbour.asks > TRIES {
            // It was given up, with what had waited, and is asked for anew.
            neighbour.waiting.retain(|waiting| waiting.at == moment.at);
        }
        // (A claim that was under way to the stack when it asked is an answer.)
        let is_answered = moment.at <= neighbour.claimed_at + SEEN && !neighbour.claims.is_empty();
        neighbour.counts |= is_answered;
        neighbour.asked_at = Some(moment.at).filter(|_| !is_answered);
        self.busy = true;
        let unwanted = neighbour.said_at.is_none_or(|said| moment.at > said + GIVEN_UP);
        if stranger && unwanted && neighbour.asks > TRIES {
            moment.breach(
                NAME,
                format_args!("RFC 1122 s2.3.2.1: {ip} is asked for {} times, and nobody wants anything of it", neighbour.asks),
            );
        }
        if let Some(asker) = neighbour.asker_at.filter(|&asker| moment.at > asker + SEEN && moment.at < asker + BELIEVED) {
            let ago = moment.at.since(asker);
            moment.breach(NAME, format_args!("RFC 826: {ip} is asked for, and has said {ago:?} ago where it is, when it asked itself"));
        }
    }

    /// A packet goes to a neighbour, at that MAC address. `is_answer`: to a SYN.
    fn sent(&mut self, moment: &Moment, ip: IpAddr, mac: MacAddr, is_answer: bool) {
        let Some(neighbour) = self.known.get_mut(&ip) else {
            moment.breach(NAME, format_args!("RFC 826: a packet to {ip}, which never said where it is"));
        };
        // (Who has completed a handshake is where its SYN came from, and not where another's in its name did.)
        let by_syn = neighbour.syns.contains(&mac);
        if by_syn && !is_answer {
            // (It knows that by now, and has no reason to ask again.)
            neighbour.asked_at = None;
        }
        if by_syn && (is_answer || !neighbour.by_arp) {
            return;
        }
        // (What came only just may have been an answer.)
        if !neighbour.counts && moment.at > neighbour.claimed_first + AGAIN {
            moment.breach(NAME, format_args!("RFC 826: a packet to {ip}, which nobody asked for and which did not ask"));
        }
        // (And a stack that took it for one knows from then on.)
        neighbour.counts = true;
        let newest = neighbour.claims.back() == Some(&mac);
        let late = || neighbour.claims.contains(&mac) && moment.at < neighbour.claimed_at + ON_ITS_WAY;
        if !newest && !late() {
            moment.breach(NAME, format_args!("RFC 826: a packet to {ip} goes to {mac:?}, and it is at {:?}", neighbour.claims.back()));
        }
    }

    /// A datagram is on the wire.
    fn left(&mut self, moment: &Moment, ip: IpAddr, datagram: &Datagram) {
        let Some(neighbour) = self.known.get_mut(&ip) else { return };
        // (What was said again meanwhile is another one.)
        let fits = |waiting: &Waiting, lost: bool| waiting.datagram == *datagram && waiting.lost == lost;
        let find = |lost| neighbour.waiting.iter().position(|waiting| fits(waiting, lost));
        let Some(waiting) = find(false).or_else(|| find(true)).and_then(|place| neighbour.waiting.remove(place)) else { return };
        let waited = moment.at.since(waiting.at);
        if waiting.lost || waited > GIVEN_UP {
            moment
                .breach(NAME, format_args!("RFC 1122 s2.3.2.2: {datagram:?} is sent {waited:?} after it was said, when {ip} was given up"));
        }
    }

    /// A program said something to a neighbour.
    fn said(&mut self, at: Instant, ip: IpAddr, datagram: Datagram) {
        let neighbour = self.known.entry(ip).or_default();
        neighbour.said_at = Some(at);
        neighbour.counts |= at <= neighbour.claimed_at + SEEN && !neighbour.claims.is_empty();
        neighbour.waiting.push_back(Waiting { datagram, at, lost: false });
        self.busy = true;
    }

    /// The host has been serviced.
    fn settle(&mut self, moment: &Moment, judged: bool) {
        self.busy = false;
        for (ip, neighbour) in &mut self.known {
            if !judged || neighbour.waiting.len() > WAITING_MAX {
                neighbour.waiting.clear();
            }
            match neighbour.asked_at {
                Some(at) if moment.at > at + AGAIN => {
                    if judged && neighbour.asks < TRIES && !neighbour.unsure {
                        moment
                            .breach(NAME, format_args!("RFC 826: {ip} was asked for {} times, and is not asked for again", neighbour.asks));
                    }
                    (neighbour.asked_at, neighbour.asks) = (None, 0);
                    neighbour.waiting.iter_mut().for_each(|waiting| waiting.lost = true);
                }
                Some(_) => self.busy = true,
                None => {
                    if let Some(Waiting { datagram, at, .. }) =
                        neighbour.waiting.iter().find(|waiting| !waiting.lost && moment.at > waiting.at + AGAIN)
                    {
                        moment
                            .breach(NAME, format_args!("udp(7): {datagram:?} was said at {at:?}, and is neither sent nor waits for {ip}"));
                    }
                    neighbour.waiting.retain(|waiting| moment.at < waiting.at + REMEMBERED);
                    // (A question that the device refused is asked as soon as it takes one.)
                    self.busy |= !neighbour.waiting.is_empty();
                }
            }
        }
    }
}

/// The newest are remembered.
fn note(macs: &mut VecDeque<MacAddr>, mac: MacAddr) {
    // (What is said again and again makes nothing else forgotten.)
    macs.retain(|known| *known != mac);
    if macs.len() >= CLAIMS_MAX {
        macs.pop_front();
    }
    macs.push_back(mac);
}

impl Checkers {
    /// Whether a host's neighbours are known from what is to be seen.
    fn knows_neighbours(&self, host: usize) -> bool {
        let is_whole = !self.lied_to.contains(&host) && !self.forgetful.contains(&host);
        self.asks_alone(host) && !self.is_raw(host) && is_whole && self.is_calm(host)
    }

    /// A frame reached a host: who claims what?
    pub(super) fn claimed(&mut self, moment: &Moment, bytes: &[u8], payload: &Payload, sender: IpAddr) {
        let (by_arp, mac, asks_us) = match payload {
            Payload::Lookup(lookup) => (true, lookup.mac, lookup.asks && Some(lookup.target) == moment.ip),
            _ => (false, dissect::mac_at(bytes, 6), false),
        };
        if let Some(mac) = mac.filter(|mac| !mac.is_multicast() && !sender.is_unspecified()) {
            self.neighbour_tables[moment.host].claimed(moment.at, sender, mac, by_arp, asks_us);
        }
    }

    /// A host asked everybody for somebody.
    pub(super) fn asked_for(&mut self, moment: &Moment, target: IpAddr) {
        let stranger = !self.ring_states.iter().any(|ring_state| ring_state.ip == Some(target));
        if self.knows_neighbours(moment.host) {
            self.neighbour_tables[moment.host].asked(moment, target, stranger);
        }
    }

    /// A packet left for a neighbour; a datagram, perhaps, or an answer to a SYN.
    pub(super) fn went_to(&mut self, moment: &Moment, bytes: &[u8], target: IpAddr, datagram: Option<Datagram>, is_answer: bool) {
        if let Some(mac) = dissect::mac_at(bytes, 0).filter(|_| !target.is_multicast() && self.knows_neighbours(moment.host)) {
            let state = &mut self.neighbour_tables[moment.host];
            state.sent(moment, target, mac, is_answer);
            if let Some(datagram) = datagram {
                state.left(moment, target, &datagram);
            }
        }
    }

    /// A program said something to a neighbour.
    pub(super) fn said_to(&mut self, moment: &Moment, target: IpAddr, datagram: Datagram) {
        if !target.is_multicast() && self.knows_neighbours(moment.host) {
            self.neighbour_tables[moment.host].said(moment.at, target, datagram);
        }
    }

    /// A host has been serviced. `judged`: it had no excuse for what it did not do.
    pub(super) fn settle_neighbours(&mut self, host: usize, judged: bool) {
        if self.neighbour_tables[host].busy {
            let moment = self.moment(self.first(host), None);
            let judged = judged && self.knows_neighbours(host);
            self.neighbour_tables[host].settle(&moment, judged);
        }
    }

    /// A host that got another MAC address was serviced: it has said so (RFC 5227 s3).
    pub(super) fn settle_move(&mut self, host: usize, free: bool) {
        if core::mem::take(&mut self.neighbour_tables[host].moved)
            && free
            && let moment = self.moment(self.first(host), None)
            && moment.at > moment.hampered
        {
            moment.breach(NAME, "RFC 5227 s3: it has another MAC address, and nobody is told");
        }
    }
}

#[cfg(test)]
mod tests;
