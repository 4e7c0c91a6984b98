//! The sending side: the congestion window that NewReno may have (RFC 5681, RFC 6582, RFC 6675), or that CUBIC has at most (RFC 9438), which retransmissions have
//! a cause, and the bounds of the retransmission timeout (RFC 6298), all from what was sent and what arrived.

mod again;
mod evidence;
mod growth;
mod probe;

use core::time::Duration;
use std::collections::VecDeque;

use ringway_stack::Instant;
use ringway_stack::tcp::congestion::Algorithm;

use self::again::SentAgain;
use self::evidence::{duplicates_of, evidence};
use self::growth::Used;
use self::probe::Probe;
use super::super::Moment;
use super::super::flow::Endpoint;
use super::super::segment::{ACK, ECE, FIN, PSH, SYN, Segment, before, later};
use super::Service;
use crate::addresses::Family;

const CWND: &str = "cwnd";
const RECOVERY: &str = "recovery";
const NAGLE: &str = "nagle";

/// RFC 6928 s2, as the controller declares it.
const INITIAL_SEGMENTS: u64 = 10;
/// RFC 5681 s3.2.
const DUPACK_THRESHOLD: u32 = 3;
/// Linux's TCP_RTO_MIN, which the stack declares, and its TCP_RTO_MAX; RFC 6298 s2.1.
const RTO_MIN: Duration = Duration::from_millis(200);
const RTO_MAX: Duration = Duration::from_secs(120);
const RTO_INITIAL: Duration = Duration::from_secs(1);
/// A timer wheel's tick.
const TICK: Duration = Duration::from_millis(2);
/// The smallest segments that anything makes a path have.
const MSS_LEAST: u32 = 76;

/// Payload of a full segment on the narrowest path that is believed (Linux's min_pmtu), with the longest options.
const PATH_LEAST: u32 = 552 - 40 - 40;

/// For so many acknowledgments, what the host was told may be why something is sent again.
const TOLD_FOR: u8 = 4;

/// Separate ranges that a sender keeps of what SACK reported, which the stack declares. RFC 2018 s5 has it keep what is reported ("SHOULD"), but nothing that
/// a peer says may make it keep any number of ranges: what is not kept is sent once more than needed.
const RANGES_MAX: usize = 256;
/// Segments whose round trips are measured at a time.
const TIMED_MAX: usize = 4096;
/// A device that refuses frames is tried again within this time.
const RETRY_SLACK: Duration = Duration::from_millis(50);

/// Bytes of a SACK option, at most.
const SACK_MAX: u32 = 36;

/// What is being sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::checkers) enum Phase {
    #[default]
    Open,
    Recovery,
    Loss,
}

/// What it remembers of an endpoint.
#[derive(Debug, Default)]
pub(in crate::checkers) struct State {
    /// Payload bytes of a full segment, at most; zero: not known yet.
    pub(super) mss: u32,
    /// The longest that was sent: a path that its host knows to be narrow has shorter ones than both ends announced.
    pub(super) longest: u32,
    /// Something may have made segments smaller.
    pub(super) shrunk: bool,
    /// Its congestion control is NewReno, whose window is known; else it is CUBIC or not known, whose window has bounds.
    is_reno: bool,
    /// The congestion window that it has at most, and at least.
    cwnd: u64,
    cwnd_least: u64,
    ssthresh: u64,
    counted: u64,
    used: Used,
    probe: Option<Probe>,
    pub(super) phase: Phase,
    recover: u32,
    /// What seemed to begin it may have been the last of one that just ended: then three duplicates begin another.
    overlaps: bool,
    /// Three duplicates may have begun another that ends here, though it seemed to go on: where it ends is not known for certain.
    another: Option<u32>,
    /// Behind what was sent again since the phase began; and that as of the last service.
    high_rxt: u32,
    high_rxt_before: u32,
    sent_again: SentAgain,
    /// What was acknowledged by the last service, and when.
    pub(in crate::checkers) una: Option<u32>,
    pub(super) una_at: Instant,
    /// When the oldest byte in flight was sent last; and at the earliest, if what acknowledged all before it may have been dropped.
    pub(super) head_at: Instant,
    head_since: Instant,
    /// It may be a fast recovery; and when a partial acknowledgment of that started the timer anew.
    recovers: bool,
    restarted_at: Option<Instant>,
    /// Reported by SACK above it: disjoint.
    sacked: Vec<(u32, u32)>,
    /// What was reported in segments that may have been dropped.
    perhaps_sacked: Vec<(u32, u32)>,
    /// The highest number that was ever reported, and when first.
    risen: Option<(u32, Instant)>,
    /// Reports of what lies before this are not believed any more.
    doubted: u32,
    /// This was acknowledged in a segment that may have been dropped.
    unsure: Option<u32>,
    /// Duplicate acknowledgments since.
    pub(super) dups: u32,
    /// As many as anybody might count.
    dups_most: u32,
    /// Timeouts since something was acknowledged: the first ones, which can have been nothing else.
    pub(super) timeouts: u32,
    /// How often the oldest byte was sent again since, for whatever cause.
    resent: u32,
    /// Something was ever sent again.
    pub(super) lossy: bool,
    /// ICMP, a neighbour or a carrier told the host something since.
    told: u8,
    /// Somebody called its path narrow, so that full segments may be as short as the narrowest path has them.
    narrow: bool,
    /// The end of the last small segment.
    small: Option<u32>,
    /// The end of the last segment that may have been less than a full one.
    pub(super) partial: Option<u32>,
    /// Segments that were sent once.
    timed: VecDeque<(u32, u32, Instant)>,
    rtt: Option<(Duration, Duration)>,
    /// Transmissions of the SYN.
    syns: u32,
    /// The window that the last acknowledgment offered.
    pub(super) edge: Option<u32>,
    window: Option<u16>,
    wl1: Option<u32>,
    pub(super) window_max: u32,
    /// When bytes were sent last.
    data_at: Instant,
    /// When something was sent last with nothing on its way; and the longest time between two such moments.
    busy_since: Instant,
    longest_wait: Duration,
    /// What was sent by the last service.
    nxt: Option<u32>,
    /// Several acknowledgments at a time, or what came between them, leave some doubt about the window.
    fuzzy: bool,
    /// The last service had several arrivals at a time.
    muddled: bool,
    /// What was sent before this may be sent again for a timeout that was not seen: its host had to ask for a neighbour, or its clock jumped.
    expired_unseen: Option<u32>,
    /// A recovery, or a timeout, may have begun and ended without anything that was sent again, and left a window of its own behind (RFC 6582 s3.2 step 3,
    /// RFC 5681 s3.1): what arrived at a time told of a loss and acknowledged it; or the device refused what a timer sent again.
    pub(super) reduced_unseen: bool,
}

impl State {
    /// The host was told that the path is narrow.
    pub(in crate::checkers) fn narrow(&mut self) {
        (self.narrow, self.shrunk) = (true, true);
    }

    /// The host heard something beside segments.
    pub(in crate::checkers) fn told(&mut self) {
        self.told = TOLD_FOR;
        self.shrunk = true;
    }

    /// What was sent before this is sent again, for a timeout that may have been something else (`fuzzy`), or not.
    #[cfg(test)]
    pub(super) fn after_perhaps_a_timeout(&mut self, recover: u32, fuzzy: bool) {
        (self.phase, self.recover, self.fuzzy) = (Phase::Loss, recover, fuzzy);
    }

    /// Whether anything was sent again.
    pub(super) fn retried(&self) -> bool {
        self.lossy || self.timeouts > 0 || self.syns > 1
    }

    /// What is sent again is in flight: an acknowledgment of it that may have been dropped was (RFC 9293 s3.10.7.4).
    fn resends(&mut self, seq: u32) {
        if self.unsure.is_some() && self.una.is_some_and(|una| before(seq, una)) {
            self.una = Some(seq);
        }
    }

    /// Whether what was acknowledged last is known.
    pub(in crate::checkers) fn is_sure(&self) -> bool {
        self.unsure.is_none()
    }

    /// Whether the peer's window ends at what was sent.
    pub(super) fn is_shut(&self, nxt: u32) -> bool {
        self.edge.is_none_or(|edge| !before(nxt, edge))
    }

    /// When the oldest byte that the stack takes to be in flight was sent again last.
    pub(in crate::checkers) fn retried_at(&self) -> Instant {
        self.head_at
    }

    /// When the oldest byte in flight must have been sent again; `None`: too little is known.
    pub(in crate::checkers) fn retry_at(&self, excused: Instant) -> Option<Instant> {
        self.una?;
        // RFC 6298 s5.7: after a SYN that was sent again, three seconds; and which samples were taken since is not known for certain.
        let most = self.rto().1.max(3 * RTO_INITIAL);
        let since = self.una_at.max(self.head_at).max(self.probed_at()).max(excused);
        // (A probe may go first, after which the timer begins anew: RFC 8985 s7.3.)
        let probe = if self.may_probe(Instant::MAX) { most } else { Duration::ZERO };
        Some(since + (most * (1 << self.resent.min(16))).min(RTO_MAX) + probe + RETRY_SLACK)
    }

    /// The most that the congestion window can be; `None`: what befell the connection leaves that open.
    pub(in crate::checkers) fn window_most(&self) -> Option<u64> {
        (self.phase == Phase::Open && !self.lossy && !self.fuzzy && !self.shrunk && !self.muddled).then_some(self.cwnd)
    }

    /// At least the longest time that anything was on its way. (What acknowledged it first may have been dropped for its number, as RFC 9293 s3.10.7.4 has
    /// it; so it counts until something else is sent.)
    pub(in crate::checkers) fn longest_wait(&self, at: Instant) -> Duration {
        self.longest_wait.max(at.since(self.busy_since))
    }

    /// The handshake was over at the last service.
    pub(in crate::checkers) fn stands(&self) -> bool {
        self.una.is_some()
    }

    /// The least retransmission timeout that what was seen allows, and the largest.
    pub(in crate::checkers) fn rto(&self) -> (Duration, Duration) {
        match self.rtt {
            None => (RTO_MIN, RTO_INITIAL),
            Some((_, most)) => {
                // SRTT is no more than the largest sample, and neither is RTTVAR.
                (RTO_MIN, most + RTO_MIN.max(4 * most) + TICK)
            }
        }
    }

    fn sacked_bytes(&self, above: u32) -> u32 {
        self.sacked.iter().map(|&(start, end)| end.wrapping_sub(later(start, above)).cast_signed().max(0).cast_unsigned()).sum()
    }

    fn is_sacked(&self, start: u32, end: u32) -> bool {
        self.sacked.iter().any(|&(from, to)| before(start, to) && before(from, end))
    }

    fn add_sack(&mut self, una: u32, nxt: u32, (start, end): (u32, u32)) -> bool {
        if !before(start, end) || before(start, una) || before(nxt, end) {
            return false;
        }
        if self.sacked.iter().any(|&(from, to)| !before(start, from) && !before(to, end)) {
            return false;
        }
        let (mut start, mut end) = (start, end);
        self.sacked.retain(|&(from, to)| {
            let apart = before(end, from) || before(to, start);
            if !apart {
                start = if before(from, start) { from } else { start };
                end = later(end, to);
            }
            apart
        });
        self.sacked.push((start, end));
        if self.sacked.len() > RANGES_MAX {
            self.doubted = nxt;
        }
        true
    }

    fn begin(&mut self, mss: u32, algorithm: Option<Algorithm>) {
        self.mss = mss;
        self.is_reno = algorithm == Some(Algorithm::Reno);
        self.cwnd = INITIAL_SEGMENTS * u64::from(mss);
        self.cwnd_least = self.cwnd;
        self.ssthresh = u64::MAX;
        // RFC 5681 s3.1: after a SYN that was lost more than once, one segment (the first may have been spurious: RFC 6298 s5.7).
        if self.syns > 2 && self.told == 0 {
            self.cwnd = u64::from(mss);
            self.cwnd_least = self.cwnd;
            self.lossy = true;
        }
    }

    /// A segment is sent for the first time.
    fn time(&mut self, segment: &Segment, at: Instant) {
        if self.timed.len() < TIMED_MAX {
            self.timed.push_back((segment.seq, segment.end(), at));
        }
    }

    fn sample(&mut self, rtt: Duration) {
        let (least, most) = self.rtt.unwrap_or((rtt, rtt));
        self.rtt = Some((least.min(rtt), most.max(rtt)));
    }
}

/// Payload bytes of a full segment between the two (RFC 9293 s3.7.1).
pub(in crate::checkers) fn full_segment(own: &Endpoint, peer: &Endpoint) -> u32 {
    let default = Family::mss_default(own.tuple.0.ip());
    let mss = peer.syn.mss.unwrap_or(default).min(own.syn.mss.unwrap_or(default)).max(88);
    let stamps = own.syn.timestamps.is_some() && peer.syn.timestamps.is_some();
    u32::from(mss) - if stamps { 12 } else { 0 }
}

/// An endpoint sent a segment, which is no reset.
pub(in crate::checkers) fn sent(moment: &Moment, segment: &Segment, own: &mut Endpoint, peer: Option<&Endpoint>) {
    let at = moment.at;
    if segment.span() > 0 && own.nxt == own.una && segment.seq == own.nxt {
        own.shadow.sender.longest_wait = own.shadow.sender.longest_wait(at);
        own.shadow.sender.busy_since = at;
    }
    if segment.has(SYN) {
        own.shadow.sender.syns += 1;
        if own.shadow.sender.una.is_none() {
            (own.shadow.sender.head_at, own.shadow.sender.head_since) = (at, at);
            if before(segment.seq, own.nxt) {
                own.shadow.sender.timed.clear();
            } else {
                own.shadow.sender.timed.push_back((segment.seq, segment.end(), at));
            }
        }
        return;
    }
    if segment.span() > 0 {
        own.shadow.sender.resends(segment.seq);
    }
    if segment.span() > 0 && !before(segment.seq, own.nxt) {
        let (una, state) = (own.una, &mut own.shadow.sender);
        state.used.sent(state.una.filter(|&known| before(known, una)).unwrap_or(una), segment.end());
    }
    let known = super::State::is_known(own) && !own.disturbed;
    if known && segment.span() > 0 && peer.is_some() && own.shadow.sender.una.is_some() {
        if before(segment.seq, own.nxt) {
            again(moment, segment, own);
        } else {
            new(moment, segment, own);
        }
    } else if before(segment.seq, own.nxt) && segment.span() > 0 {
        own.shadow.sender.lossy = true;
        own.shadow.sender.timed.clear();
        if own.shadow.sender.una == Some(segment.seq) {
            (own.shadow.sender.head_at, own.shadow.sender.head_since) = (at, at);
        }
    } else if segment.len() > 0 {
        own.shadow.sender.partial = Some(segment.end());
        own.shadow.sender.time(segment, at);
    }
    if segment.len() > 0 {
        own.shadow.sender.data_at = at;
    }
}

fn new(moment: &Moment, segment: &Segment, own: &mut Endpoint) {
    let (una, nxt, at) = (own.una, own.nxt, moment.at);
    let nodelay = own.shadow.config.as_ref().is_none_or(|config| config.nodelay || config.cork) || own.shadow.reconfigured;
    // (The last bytes of a stream that has ended wait for nothing, though there may be no room for its FIN beside them.)
    let ends = own.stream.has_ended() && segment.end() == own.sequence_of(own.stream.written());
    let state = &mut own.shadow.sender;
    let flight = nxt.wrapping_sub(una);
    // RFC 5681 s4.1: the restart window, of who "has not sent data in an interval exceeding the retransmission timeout", which is known within bounds.
    let (least, most) = state.rto();
    let restart = INITIAL_SEGMENTS * u64::from(state.mss);
    if flight == 0 && state.una == Some(una) && at > state.data_at + most * 2 {
        state.cwnd = state.cwnd.min(restart);
    }
    if flight == 0 && at > state.data_at + least {
        state.cwnd_least = state.cwnd_least.min(restart);
    }
    let pending = una.wrapping_sub(state.una.unwrap_or(una));
    let arrived: u32 = own.shadow.arrivals.iter().flat_map(|arrival| arrival.options.sack()).map(|&(a, b)| b.wrapping_sub(a)).sum();
    let dups = state.dups_most + u32::try_from(own.shadow.arrivals.len()).unwrap_or(u32::MAX);
    let pending_blocks = own.shadow.arrivals.iter().flat_map(|arrival| arrival.options.sack());
    let highest = state.sacked.iter().chain(pending_blocks).fold(una, |high, &(_, end)| later(high, end));
    let left =
        if own.agrees_on_sack && arrived == 0 { state.sacked_bytes(una) } else { arrived.saturating_add(dups.saturating_mul(state.mss)) };
    let pipe = match state.phase {
        Phase::Open => flight.saturating_sub(left),
        Phase::Recovery if own.agrees_on_sack => nxt.wrapping_sub(highest).saturating_sub(arrived),
        // Without SACK, how much has left the network is anybody's guess.
        Phase::Recovery => 0,
        // Who resends because the path shrank does not count that as congestion (RFC 8201 s5.4).
        Phase::Loss if state.shrunk => 0,
        Phase::Loss => {
            nxt.wrapping_sub(later(state.recover, una)).saturating_sub(arrived).saturating_sub(state.sacked_bytes(state.recover))
        }
    };
    let window = state.cwnd + u64::from(pending) + u64::from(state.mss);
    // (What a recovery made of the window depends on what came when, within a service.)
    let judged = own.calm && !state.fuzzy && !state.lossy && !state.narrow;
    // RFC 8985 s7.3: one segment goes as a probe, whatever the window says.
    let probes = own.agrees_on_sack && segment.len() <= state.mss && state.may_probe(at);
    if judged && !probes && pipe > 0 && u64::from(pipe) + u64::from(segment.len()) > window && segment.len() > 0 {
        let (cwnd, phase) = (state.cwnd, state.phase);
        moment.breach(
            CWND,
            format_args!(
                "RFC 5681 s3.1: {} new bytes with {pipe} on their way, and cwnd is {cwnd} + {pending} at most ({phase:?})",
                segment.len()
            ),
        );
    }
    // Nagle's algorithm, in Minshall's variant: a small segment at the end of what was written waits for the one before.
    // (Options make full ones shorter.)
    let full = if state.shrunk || state.narrow { state.mss.min(PATH_LEAST) } else { state.mss };
    let small = segment.len() > 0
        && state.mss > 4 * SACK_MAX
        && segment.len() < (full / 4).min(state.window_max / 4)
        && segment.has(PSH)
        && !segment.has(FIN);
    let excused = nodelay || probes;
    if small && !excused && !(ends && state.is_shut(segment.end())) && state.small.is_some_and(|end| before(una, end)) {
        moment.breach(
            NAGLE,
            format_args!("RFC 9293 s3.7.4: {} small bytes, while small ones before them are not acknowledged", segment.len()),
        );
    }
    if small {
        state.small = Some(segment.end());
    }
    // A path that is known already, or a device that gathers no more, makes segments shorter than was agreed on.
    state.longest = state.longest.max(segment.len());
    state.shrunk |= segment.len() > 0 && segment.len() + SACK_MAX < state.mss && !segment.has(PSH);
    if segment.len() < state.mss {
        state.partial = Some(segment.end());
    }
    if flight == 0 {
        // (What acknowledged the rest has come since the last service: if it does not count, that is still in flight, and its timer goes on.)
        let settled = state.una == Some(una);
        (state.head_at, state.head_since) = (at, if settled { at } else { state.head_since });
    }
    state.time(segment, at);
}

/// RFC 9293 s3.8.1, RFC 6298, RFC 5681 s3.2: what is sent again was lost, as a timer or acknowledgments tell.
fn again(moment: &Moment, segment: &Segment, own: &mut Endpoint) {
    let (at, nxt, una) = (moment.at, own.nxt, own.una);
    if probe::is_one(at, segment, own) {
        own.shadow.sender.probes(segment, at, nxt);
        return;
    }
    let evidence = evidence(own) || probe::overtakes(own, at);
    let sack = own.agrees_on_sack;
    let (arrivals, several) = (!own.shadow.arrivals.is_empty(), own.shadow.arrivals.len() > 1);
    let arrived = own.shadow.arrivals.iter().flat_map(|arrival| arrival.options.sack());
    let blocks: Vec<(u32, u32)> = own.shadow.sender.sacked.iter().chain(arrived).copied().collect();
    let highest = blocks.iter().fold(una, |high, &(_, end)| later(high, end));
    let (bounds, relative) = (own.shadow.sender.rto(), own.relative(segment.seq));
    let begins_here = !sack && duplicates_of(own, segment.seq) >= DUPACK_THRESHOLD as usize;
    let refused = own.shadow.refused || !own.free;
    let state = &mut own.shadow.sender;
    let settled = state.una.unwrap_or(una);
    state.timed.retain(|&(from, to, _)| !(before(from, segment.end()) && before(segment.seq, to)));
    state.lossy = true;
    let head = segment.seq == settled || segment.seq == una;
    let ended = state.phase != Phase::Open && !before(una, state.recover) && !before(segment.seq, una);
    if ended {
        // What has arrived since the last service ends it.
        state.phase = Phase::Open;
    }
    let repeats = before(segment.seq, state.high_rxt);
    // RFC 6675 s5 step 4.3: the recovery that begins sends the oldest byte again, which the last one may just have done.
    let begins_anew = sack && head && repeats && state.overlaps && evidence;
    // (What counts as a loss by a timeout here, since it may have been one, may go on as a recovery.)
    let recovering = state.phase == Phase::Recovery || state.phase == Phase::Loss && state.fuzzy && evidence;
    let overtaken = || state.sent_again.may_overtake(segment, una, &blocks);
    let reported = recovering && sack && (before(segment.seq, highest) || overtaken());
    let lost_again = reported && repeats && state.sent_again.may_be_lost(segment, una, &blocks);
    // (Without SACK, the segment that a partial acknowledgment names may end behind it.)
    let edge = later(state.recover, later(settled, una).wrapping_add(state.mss));
    let least = bounds.0;
    let restarted = state.restarted_at.filter(|_| state.recovers);
    let since = restarted.unwrap_or_else(|| state.una_at.max(state.head_since));
    // (A partial acknowledgment, which has only just come, shows what was lost without a timer: in a recovery, and after a timeout, where slow start goes on at
    // the first byte that it leaves, and it has started the timer again.)
    let shown = state.phase != Phase::Open && una != settled && (state.recovers || segment.seq == una);
    let timed_out = head && (state.phase != Phase::Open || !evidence) && !shown && at.since(since) + TICK >= least;
    let going_on = state.phase != Phase::Open && (before(segment.seq, edge) || reported) && (!repeats || lost_again) && !timed_out;
    let flight = nxt.wrapping_sub(settled);
    if head && at.since(since) > RTO_MIN / 2 {
        // It may be a timeout, whatever else it looks like.
        state.doubted = nxt;
    }
    state.overlaps = if going_on { state.overlaps } else { ended };
    if going_on {
        if state.overlaps && begins_here {
            state.recover = nxt;
        } else if begins_here && (state.fuzzy || several) {
            state.another = Some(nxt);
        }
        if state.phase == Phase::Recovery
            && sack
            && own.calm
            && !several
            && !state.muddled
            && state.is_sacked(segment.seq, segment.end())
            && !before(segment.seq, state.doubted)
        {
            moment.breach(RECOVERY, format_args!("RFC 6675 s4: byte {relative} is sent again, which SACK reported"));
        }
        // RFC 5681 s3.1: after a timeout, cwnd is what may be on its way of it.
        let out = segment.seq.wrapping_sub(later(settled, una)).cast_signed().max(0).cast_unsigned();
        let window = state.cwnd + u64::from(una.wrapping_sub(settled));
        let left = state.sacked_bytes(settled);
        if state.phase == Phase::Loss
            && !head
            && !arrivals
            && own.calm
            && !state.shrunk
            && !state.fuzzy
            && u64::from(out.saturating_sub(left)) + u64::from(segment.len()) > window + u64::from(state.mss)
        {
            moment.breach(
                CWND,
                format_args!("RFC 5681 s3.1: {out} bytes sent again are on their way, {} more, and cwnd is {window}", segment.len()),
            );
        }
    } else if begins_anew || evidence && state.phase == Phase::Open {
        (state.phase, state.recover, state.counted) = (Phase::Recovery, nxt, 0);
        (state.recovers, state.restarted_at) = (true, None);
        state.halve(flight);
        (state.cwnd, state.cwnd_least) = (state.ssthresh, state.ssthresh);
    } else if state.told > 0
        || state.expired_unseen.take_if(|to| before(segment.seq, *to)).is_some()
        || !own.calm
        || !own.free
        || several
        || state.muddled
        || state.shrunk
        || moment.at <= moment.hampered + Duration::from_millis(10)
    {
        // It may as well have been a timeout, after which no report is believed.
        state.doubted = nxt;
        // RFC 6582 s3.2 step 3: or it is what a partial acknowledgment asked for while the device refused it, and the timer goes on that the first such
        // acknowledgment started.
        let asked = state.recovers && state.phase != Phase::Open && head && state.resent == 0 && refused;
        // (Or a recovery, which nothing else can be so soon, that began before anything could be sent for it: then the first partial acknowledgment has come.)
        let began = (at.since(state.una_at) < RTO_MIN / 2).then_some(state.una_at);
        state.restarted_at = state.restarted_at.filter(|_| asked).or(began);
        (state.phase, state.recover, state.fuzzy, state.recovers) = (Phase::Loss, nxt, true, true);
    } else {
        if !head {
            moment.breach(
                RECOVERY,
                format_args!("RFC 9293 s3.8.1: byte {relative} is sent again, and nothing says that it was lost ({:?})", state.phase),
            );
        }
        let waited = at.since(since);
        if waited + TICK < least {
            let timeouts = state.timeouts;
            moment.breach(
                RECOVERY,
                format_args!(
                    "RFC 6298 s2.3, s5.5: byte {relative} is sent again after {waited:?}; {least:?} is the least, after {timeouts} timeouts"
                ),
            );
        }
        if state.timeouts == 0 {
            state.halve(flight);
        }
        state.timeouts += 1;
        state.shrunk |= state.timeouts > 1;
        (state.phase, state.recover, state.counted, state.recovers) = (Phase::Loss, nxt, 0, false);
        state.cwnd = u64::from(state.mss);
        state.cwnd_least = state.cwnd;
        // RFC 2018 s8: after a timeout, nothing that was reported need be believed.
        state.doubted = nxt;
        state.dups = 0;
    }
    if lost_again {
        // RFC 5681 s4.3: the window comes down once more; and it may have been a timeout instead.
        (state.fuzzy, state.cwnd_least) = (true, 0);
    }
    state.fuzzy |= several;
    state.high_rxt = if lost_again && going_on { later(state.high_rxt, segment.end()) } else { segment.end() };
    state.sent_again.note(segment, nxt);
    if head {
        state.resent += 1;
        (state.head_at, state.head_since) = (at, at);
    }
}

/// The endpoint's host was serviced: it has looked at `arrivals`.
pub(in crate::checkers) fn serviced(
    moment: &Moment,
    own: &mut Endpoint,
    peer: &Endpoint,
    service: Service,
    (arrivals, sent): (&[Segment], &[Segment]),
) {
    if own.irs.is_none() {
        return;
    }
    let mss = full_segment(own, peer);
    let scale = super::super::flow::scale(&peer.syn, &own.syn);
    let (iss, nxt) = (own.iss, own.nxt);
    let clock = own.shadow.receiver.clock_of(moment.at);
    let sack = own.agrees_on_sack;
    let resent = sent.iter().any(|segment| {
        segment.span() > 0
            && own.shadow.sender.una == Some(segment.seq)
            && own.shadow.sender.head_at == moment.at
            && own.shadow.sender.phase != Phase::Open
    });
    let edge = own.shadow.receiver.acked_before;
    let (echoes, receives_from, acked) = (own.shadow.receiver.echoes(), own.irs, own.sequence.acked());
    // An acknowledgment in a segment before the window is dropped with it (RFC 9293 s3.10.7.4).
    let lawful = |arrival: &&Segment| super::State::counts(receives_from, arrival) && edge.is_none_or(|edge| !before(arrival.end(), edge));
    let several = arrivals.len() > 1;
    // (What lies before all that came may have lain before the window.)
    let behind = own.rx.next;
    let algorithm = own.shadow.config.as_ref().map(|config| config.congestion);
    let hears_marks = own.shadow.marks.spoke();
    let (state, repeated) = (&mut own.shadow.sender, &own.shadow.repeated);
    let nxt_before = state.nxt.unwrap_or(nxt);
    // Duplicates, those included that may have been dropped for their number or timestamp.
    let mut hints = state.dups;
    for (at, arrival) in arrivals.iter().enumerate().filter(|(_, arrival)| lawful(arrival)) {
        if !arrival.has(ACK) || !before(iss, arrival.ack) || before(nxt, arrival.ack) {
            continue;
        }
        if hears_marks && arrival.has(ECE) {
            // RFC 3168 s6.1.2: the window comes down, of which other laws speak.
            (state.fuzzy, state.cwnd_least) = (true, 0);
        }
        if state.una.is_none() {
            // The handshake's. (A SYN that the device did not take, when its timer ran out again, was lost as well: RFC 5681 s3.1.)
            let again_at = state.head_at + RTO_INITIAL * (1 << state.syns.saturating_sub(1).min(16));
            state.reduced_unseen |= state.syns > 1 && again_at <= moment.at + TICK && (service.refused || service.dropped);
            state.begin(mss, algorithm);
            state.doubted = iss;
            state.una = Some(iss.wrapping_add(1));
            state.una_at = moment.at;
            take_samples(state, arrival.ack, moment.at);
            take_echo(state, arrival, clock);
        }
        let una = state.una.unwrap_or(arrival.ack);
        let flight = nxt.wrapping_sub(una);
        // One with an old timestamp may have been dropped (RFC 7323 s5.3), and so may one from before what was acknowledged in this service, of which
        // others that came earlier may have brought some by then.
        let stale = arrival.options.timestamps.is_some_and(|(value, _)| echoes.iter().any(|&echo| before(value, echo)));
        let stale = stale || at > 0 && acked.is_some_and(|acked| before(arrival.end(), acked));
        let mut news = false;
        if sack && stale {
            let is_new = |block: &&(u32, u32)| !state.perhaps_sacked.contains(block);
            let more: Vec<_> = arrival.options.sack().iter().filter(is_new).copied().collect();
            state.perhaps_sacked.extend(more);
        } else if sack {
            let low = later(una, arrival.ack);
            for &block in arrival.options.sack() {
                let is_known = state.perhaps_sacked.iter().any(|&(from, to)| !before(block.0, from) && !before(to, block.1));
                news |= state.add_sack(low, nxt, block) && !is_known;
            }
        }
        state.note_risen(una, moment.at);
        let same_window = state.window == Some(arrival.window);
        let reports = news || stale && !arrival.options.sack().is_empty();
        hints += u32::from(arrival.ack == una && (reports || !sack && arrival.span() == 0 && same_window));
        // RFC 9293 s3.10.7.4: SND.WL1 says whether the segment is newer than the one that the window came with.
        if before(una, arrival.ack) || arrival.ack == una && state.wl1.is_none_or(|wl1| !before(arrival.seq, wl1)) {
            state.wl1 = Some(arrival.seq);
            // (What repeats what had all come is dropped, and so may be what has an old timestamp: whether its window counts is not known.)
            let counts = !(stale || repeated.contains(&at)) || state.window == Some(arrival.window);
            state.window = Some(arrival.window).filter(|_| counts);
            let window = u32::from(arrival.window) << if arrival.has(SYN) { 0 } else { scale };
            let edge = arrival.ack.wrapping_add(window);
            state.edge = Some(state.edge.filter(|&known| stale && before(known, edge)).unwrap_or(edge));
            state.window_max = state.window_max.max(window);
        } else if arrival.ack == una && state.wl1.is_some_and(|wl1| before(wl1, arrival.end())) {
            // It repeats old bytes before new ones, and may count from those (RFC 9293 s3.10.7.4, "the idealized segment that begins at RCV.NXT").
            let edge = arrival.ack.wrapping_add(u32::from(arrival.window) << scale);
            state.edge = state.edge.map(|known| if before(edge, known) { edge } else { known });
        }
        // (What repeats what another of them brought, or what came before and was not acknowledged yet, may have been dropped for its number.)
        let repeats = repeated.contains(&at) || arrivals[..at].iter().filter(lawful).any(|earlier| !before(earlier.end(), arrival.end()));
        let repeats = arrival.span() > 0 && repeats;
        if repeats && before(una, arrival.ack) {
            state.unsure = Some(arrival.ack);
        } else if !repeats {
            state.unsure = state.unsure.filter(|&to| before(arrival.ack, to));
        }
        if before(una, arrival.ack) {
            let acked = arrival.ack.wrapping_sub(una);
            take_echo(state, arrival, clock);
            take_samples(state, arrival.ack, moment.at);
            let told = hints >= DUPACK_THRESHOLD || state.sacked_bytes(una) > 2 * mss;
            hints = 0;
            // RFC 6298 s5.4: what a timer sends again may have had to wait, for the device or for the neighbour's address, until something else was acknowledged.
            let least = state.una_at.max(state.head_since) + RTO_MIN;
            let overdue = least <= moment.at + TICK;
            let waited = overdue && least <= moment.excused + TICK;
            let expired = overdue && service.refused || waited;
            state.reduced_unseen |= state.phase == Phase::Open && (told || expired);
            let unseen = state.expired_unseen.filter(|&to| before(arrival.ack, to));
            state.expired_unseen = if waited { Some(nxt_before) } else { unseen };
            (state.una, state.una_at, state.timeouts, state.dups) = (Some(arrival.ack), moment.at, 0, 0);
            (state.dups_most, state.resent) = (0, 0);
            state.told = state.told.saturating_sub(1);
            let ends = state.phase != Phase::Open && !before(arrival.ack, state.recover);
            let flight = if several { u32::MAX / 4 } else { nxt_before.wrapping_sub(una) };
            match state.phase {
                // (What was sent meanwhile may have been on its way already.)
                Phase::Open if several => state.grow(acked, u32::MAX / 4, 0),
                Phase::Open => {
                    let flight = nxt.wrapping_sub(una).max(state.used.most());
                    state.grow(acked, flight, if stale { 0 } else { nxt_before.wrapping_sub(una) });
                }
                Phase::Loss => {
                    state.fuzzy |= several;
                    // RFC 3465 s2.3: L is one segment after a timeout.
                    state.grow(acked.min(mss), u32::MAX / 4, 0);
                }
                Phase::Recovery if ends => {
                    // RFC 6582 s3.2 step 3; or, where the window came down with what arrived, what it was to become (RFC 9937 s6.4).
                    let left = u64::from(flight.saturating_sub(acked)).max(u64::from(mss)) + u64::from(mss);
                    state.cwnd = if sack { state.ssthresh } else { state.ssthresh.min(left) };
                    state.fuzzy |= several;
                }
                Phase::Recovery => {}
            }
            // RFC 6582 s3.2 step 3: the first partial acknowledgment starts the timer anew; others do where more was sent again than they acknowledge.
            if state.recovers && (state.restarted_at.is_none() || before(arrival.ack, state.high_rxt_before)) {
                state.restarted_at = Some(moment.at);
            }
            if ends {
                state.phase = Phase::Open;
            }
            state.sacked.retain_mut(|block| {
                block.0 = later(block.0, arrival.ack);
                before(block.0, block.1)
            });
            state.perhaps_sacked.retain(|block| before(arrival.ack, block.1));
        } else if arrival.ack == una
            && nxt_before.wrapping_sub(una) > 0
            && flight > 0
            && !stale
            && !before(arrival.seq, behind)
            && (news || !sack && arrival.span() == 0 && same_window)
        {
            state.dups += 1;
        }
        if arrival.ack == state.una.unwrap_or(arrival.ack) && before(una, nxt) {
            state.dups_most += 1;
        }
    }
    state.nxt = Some(nxt);
    state.high_rxt_before = state.high_rxt;
    state.muddled = several;
    fast_retransmit(moment, own, service, resent);
}

/// RFC 7323 s4.1: the age of the timestamp that comes back, to a tick.
fn take_echo(state: &mut State, arrival: &Segment, clock: Option<u32>) {
    let (Some((_, echo)), Some(now)) = (arrival.options.timestamps, clock) else { return };
    // (What is known of the clock may be a tick behind, or as much as a frame left late.)
    let age = Some(now.wrapping_sub(echo).cast_signed()).filter(|&age| age > -1000).map_or(u32::MAX, |age| age.max(0).cast_unsigned());
    if age < 120_000 {
        state.sample(Duration::from_millis(u64::from(age.saturating_sub(1))));
        state.sample(Duration::from_millis(u64::from(age) + 1));
    }
}

fn take_samples(state: &mut State, ack: u32, at: Instant) {
    while let Some(&(_, end, sent_at)) = state.timed.front()
        && !before(ack, end)
    {
        state.timed.pop_front();
        state.sample(at.since(sent_at));
    }
}

/// RFC 5681 s3.2: "After receiving 3 duplicate ACKs, TCP performs a retransmission of what appears to be the missing segment".
fn fast_retransmit(moment: &Moment, own: &Endpoint, service: Service, resent: bool) {
    let state = &own.shadow.sender;
    let Some(una) = state.una else { return };
    if !(service.calm && service.free && super::State::is_alive(own)) || moment.at <= moment.excused || own.shadow.closed {
        return;
    }
    // RFC 2018 s8: what was reported, and then dropped, is sent again after a timeout; until then it counts as received.
    let dropped = state.is_sacked(una, una.wrapping_add(1));
    // RFC 6582 s3.2 step 2: without SACK, duplicates of what ended a recovery may answer what was sent twice.
    let answers = !own.agrees_on_sack && (una == state.recover || state.another == Some(una));
    let sound = state.phase == Phase::Open && !resent && before(una, own.nxt) && before(own.iss, una) && !dropped && !answers;
    if sound && state.dups >= DUPACK_THRESHOLD {
        let relative = own.relative(una);
        moment.breach(
            RECOVERY,
            format_args!("RFC 5681 s3.2: {} duplicate acknowledgments of {relative}, and it was not sent again", state.dups),
        );
    }
}
