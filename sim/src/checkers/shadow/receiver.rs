//! The receiving side: what must be acknowledged at once and what may wait, which timestamp is echoed, and no acknowledgment that says nothing.

use core::time::Duration;

use ringway_stack::Instant;

use super::super::Moment;
use super::super::flow::Endpoint;
use super::super::ranges::Ranges;
use super::super::segment::{ACK, FIN, Options, RST, SYN, Segment, before, later};
use super::Service;
use crate::addresses::Family;

const ACKS: &str = "acknowledging";
const STAMPS: &str = "timestamps";

/// Candidates for what is echoed, at most.
const ECHOES_MAX: usize = 64;
/// Of more gaps than that, nobody need keep track.
const BLOCKS_MAX: usize = 64;
/// A timer wheel's tick.
const TICK: Duration = Duration::from_millis(2);

/// What it remembers of an endpoint.
#[derive(Debug, Default)]
pub(in crate::checkers) struct State {
    /// What the stack has certainly received by the last service; `None`: the handshake has not come that far.
    pub(super) held: Option<Ranges>,
    /// What it may have dropped again (RFC 2018 s8).
    pub(super) pruned: bool,
    /// The peer's FIN is at this number.
    pub(in crate::checkers) fin: Option<u32>,
    /// The peer's whole stream, and its FIN, were received.
    pub(in crate::checkers) ended: bool,
    /// What was acknowledged last; by this service; and before it.
    pub(super) acked: Option<u32>,
    acked_now: Option<u32>,
    pub(super) acked_before: Option<u32>,
    /// What was acknowledged last by a segment that a peer may not drop for its number.
    firm: Option<u32>,
    /// What TS.Recent may be; empty: nobody knows.
    echoes: Vec<u32>,
    /// What it may have been before the service.
    echoes_before: Vec<u32>,
    /// The largest segment that arrived.
    largest: u32,
    /// Since when something is received and not acknowledged.
    pub(in crate::checkers) owed_since: Option<Instant>,
    /// What its last segment said: acknowledgment, right edge, SACK.
    said: Option<(u32, u16, Options)>,
    /// The clock of its timestamps: a value, and when it was said.
    clock: Option<(u32, Instant)>,
}

impl State {
    /// Whether all of `[start, end)` was received for certain.
    pub(super) fn has(&self, start: u32, end: u32) -> bool {
        self.held.as_ref().is_some_and(|held| held.has(start, end))
    }

    /// Its host's receive buffers are short: what waits for a gap to be filled may be dropped.
    pub(in crate::checkers) fn prune(&mut self, scarce: bool) {
        self.pruned |= scarce;
    }

    /// Whether this is the next number, as of the last service: less than what arrived, if some of that was too old to be taken (RFC 7323 s5.3).
    pub(in crate::checkers) fn awaits(&self, seq: u32) -> bool {
        self.held.as_ref().is_some_and(|held| held.next == seq)
    }

    /// Whether what the stack has received is not known.
    pub(in crate::checkers) fn is_doubtful(&self) -> bool {
        self.pruned || self.held.is_none()
    }

    /// Whether a timestamp is older than whatever TS.Recent may be.
    pub(super) fn is_stale(&self, value: u32) -> bool {
        !self.echoes.is_empty() && self.echoes.iter().all(|&echo| before(value, echo))
    }

    /// What follows all that the stack has certainly received in order.
    pub(super) fn next(&self) -> Option<u32> {
        self.held.as_ref().map(|held| held.next)
    }

    /// Bytes that the stack has certainly received in order, of a stream that begins behind `irs`.
    pub(in crate::checkers) fn bytes(&self, irs: u32) -> Option<u32> {
        Some(self.held.as_ref()?.next.wrapping_sub(irs).wrapping_sub(1 + u32::from(self.ended)))
    }

    /// What TS.Recent may be.
    pub(super) fn echoes(&self) -> &[u32] {
        &self.echoes
    }

    /// What its timestamp clock shows.
    pub(super) fn clock_of(&self, at: Instant) -> Option<u32> {
        let (value, since) = self.clock?;
        Some(value.wrapping_add(u32::try_from(at.since(since).as_millis()).unwrap_or(u32::MAX)))
    }

    /// By when a delayed acknowledgment must have been sent.
    pub(in crate::checkers) fn deadline(&self, delay: Duration) -> Option<Instant> {
        self.owed_since.map(|since| since + delay + TICK)
    }
}

/// An endpoint sent a segment, which is no reset.
pub(in crate::checkers) fn sent(moment: &Moment, segment: &Segment, own: &mut Endpoint, peer: Option<&Endpoint>) {
    clock(moment, segment, own);
    if segment.has(ACK) {
        echo(moment, segment, own, peer);
        says_something(moment, segment, own);
        let nxt = own.nxt;
        let state = &mut own.shadow.receiver;
        state.acked = Some(state.acked.map_or(segment.ack, |acked| later(acked, segment.ack)));
        // (A probe's peer drops it for its number, and may not have heard what else it says.)
        if segment.span() > 0 || segment.seq == nxt {
            state.firm = state.acked;
            state.said = Some((segment.ack, segment.window, segment.options));
        }
    }
}

/// RFC 7323 s5.4: "The timestamp clock frequency … 1 ms to 1 s per tick"; this stack's ticks are milliseconds, as Linux's.
fn clock(moment: &Moment, segment: &Segment, own: &mut Endpoint) {
    let Some((value, _)) = segment.options.timestamps else { return };
    if !super::State::is_known(own) {
        return;
    }
    let &mut (first, at) = own.shadow.receiver.clock.get_or_insert((value, moment.at));
    let elapsed = moment.at.since(at).as_millis();
    let ticks = u128::from(value.wrapping_sub(first));
    // Frames may leave later than they were made; none was made before it could be.
    let late = if moment.at <= moment.hampered + TICK { u128::MAX } else { 1000 };
    if ticks > elapsed + 1 && ticks < 1 << 31 || elapsed > ticks.saturating_add(late) && elapsed < 1 << 31 {
        moment.breach(STAMPS, format_args!("RFC 7323 s5.4: {ticks} ticks of the timestamp clock in {elapsed} ms"));
    }
}

/// RFC 7323 s4.3: TS.Recent is that of the last segment with SEG.SEQ <= Last.ACK.sent, and is echoed.
fn echo(moment: &Moment, segment: &Segment, own: &mut Endpoint, peer: Option<&Endpoint>) {
    let Some((_, echo)) = segment.options.timestamps else { return };
    if segment.has(SYN) || !super::State::is_known(own) || own.disturbed || own.just_moved(moment.at) {
        own.shadow.receiver.echoes.clear();
        return;
    }
    let left_edge = own.shadow.receiver.acked.map_or(segment.ack, |acked| later(acked, segment.ack));
    let arrivals = &own.shadow.arrivals;
    let of = |arrival: &Segment| arrival.options.timestamps.map(|(value, _)| value);
    let _ = peer;
    let mut lawful = own.shadow.receiver.echoes.contains(&echo) || own.shadow.receiver.echoes.is_empty();
    // What the NIC merges has the stamp of any of its parts.
    lawful |= arrivals.iter().any(|arrival| of(arrival) == Some(echo) && (!before(left_edge, arrival.seq) || own.merges));
    if !lawful {
        let known = &own.shadow.receiver.echoes;
        moment.breach(
            STAMPS,
            format_args!("RFC 7323 s4.3: TSecr {echo}, where TS.Recent can be {known:?} or that of {} arrivals", arrivals.len()),
        );
    }
    // A segment at the left edge, whose bytes this one acknowledges, came before it was made.
    let edge = own.shadow.receiver.firm;
    if let Some(newest) = arrivals
        .iter()
        .filter(|arrival| arrival.len() > 0 && edge.is_some_and(|edge| !before(edge, arrival.seq) && before(edge, arrival.end())))
        .filter(|arrival| !before(segment.ack, arrival.end()))
        // (What had come already, and waited to be acknowledged, is outside the window when it comes again: RFC 7323 s5.3 R2.)
        .filter(|arrival| own.shadow.receiver.next().is_none_or(|next| before(next, arrival.end())))
        .filter_map(of)
        .reduce(|a, b| if before(a, b) { a } else { b })
        && before(echo, newest)
        && own.calm
        && arrivals.len() == 1
        && !own.merges
    {
        moment.breach(STAMPS, format_args!("RFC 7323 s4.3: TSecr {echo}, though what is acknowledged came with {newest}"));
    }
}

/// A segment without bytes that says what the one before said, when nothing came in between, is one too many.
fn says_something(moment: &Moment, segment: &Segment, own: &Endpoint) {
    let probe = segment.seq != own.nxt;
    let silence = own.shadow.arrivals.is_empty() && own.shadow.attacks == 0;
    if segment.span() > 0 || probe || !silence || !super::State::is_known(own) || own.shadow.receiver.held.is_none() {
        return;
    }
    if let Some((ack, window, options)) = own.shadow.receiver.said
        && (ack, window) == (segment.ack, segment.window)
        && options.sack() == segment.options.sack()
        && own.shadow.receiver.owed_since.is_none()
        && moment.at > moment.excused
        && own.calm
        && own.free
    {
        let ack = own.peer_relative(ack);
        moment.breach(ACKS, format_args!("RFC 9293 s3.10.7.4: an acknowledgment of {ack} that says nothing new, and answers nothing"));
    }
}

/// The endpoint's host was serviced: it has looked at `arrivals`, and sent `sent` since the service before.
pub(in crate::checkers) fn serviced(
    moment: &Moment,
    own: &mut Endpoint,
    peer: &Endpoint,
    service: Service,
    (arrivals, sent): (&[Segment], &[Segment]),
) {
    let Some(irs) = own.irs else { return };
    let mut echoes_before = core::mem::take(&mut own.shadow.receiver.echoes_before);
    echoes_before.clone_from(&own.shadow.receiver.echoes);
    note_echoes(own, arrivals, sent);
    // What brings, or acknowledges, anything new was certainly heard.
    let new = |arrival: &Segment| own.shadow.receiver.held.as_ref().is_some_and(|held| arrival.seq == held.next && arrival.len() > 0);
    let newer = |arrival: &Segment| arrival.has(ACK) && own.shadow.sender.una.is_some_and(|una| before(una, arrival.ack));
    // (Not if it may be older than TS.Recent: then it is acknowledged, and no more. RFC 7323 s5.3.)
    let echoes = own.shadow.receiver.echoes();
    let fresh = |arrival: &Segment| {
        arrival.options.timestamps.is_none_or(|(value, _)| !echoes.is_empty() && !echoes.iter().any(|&echo| before(value, echo)))
    };
    if arrivals.iter().any(|arrival| !arrival.has(RST) && !arrival.has(SYN) && fresh(arrival) && (new(arrival) || newer(arrival))) {
        own.shadow.heard_at = moment.at;
    }
    if !arrivals.is_empty() {
        own.shadow.probes = 0;
    }
    let (una, window_max, edge) = (own.una, own.shadow.sender.window_max, own.window.edge());
    let begins = own.shadow.receiver.held.is_none();
    let state = &mut own.shadow.receiver;
    state.pruned |= service.scarce || !service.calm;
    let held = state.held.get_or_insert_with(|| Ranges::from(irs.wrapping_add(1)));
    let mut at_once: Option<(u32, &str)> = None;
    let mut newest = None;
    let mut repeated = None;
    let counting = |arrival: &&Segment| !arrival.has(RST) && (!arrival.has(SYN) || arrival.seq == irs);
    for (place, arrival) in arrivals.iter().enumerate().filter(|(_, arrival)| counting(arrival)) {
        let (start, end) = (arrival.seq.wrapping_add(u32::from(arrival.has(SYN))), arrival.end());
        if arrival.has(SYN) && begins && arrival.has(ACK) && before(own.iss, arrival.ack) {
            at_once = Some((held.next, "RFC 9293 s3.10.7.3: a SYN-ACK is acknowledged"));
        }
        if start == end || arrival.has(SYN) {
            continue;
        }
        // RFC 7323 s5.3, R1: one that is older than TS.Recent is acknowledged, and dropped.
        if let Some((value, _)) = arrival.options.timestamps {
            // (What this service made of TS.Recent may have come after this one.)
            if !echoes_before.is_empty() && echoes_before.iter().all(|&echo| before(value, echo)) {
                if arrival.len() > 0 {
                    at_once = Some((held.next, "RFC 7323 s5.3: a segment with an old timestamp is acknowledged"));
                }
                continue;
            }
            let earlier = arrivals[..place].iter().filter_map(|arrival| arrival.options.timestamps).map(|(value, _)| value);
            state.pruned |= echoes_before.iter().copied().chain(earlier).any(|echo| before(value, echo));
        }
        // RFC 5961 s5.2: with an acknowledgment older than the largest window it is no part of the connection.
        let age = una.wrapping_sub(arrival.ack).cast_signed();
        state.pruned |= age > 0 && age.cast_unsigned() > window_max;
        // RFC 9293 s3.10.7.4: one that begins beyond the window is acknowledged, and dropped. (Where the device refuses frames, the stack may have offered more
        // than was heard of, and have kept it.)
        let beyond = edge.is_some_and(|edge| before(edge, start));
        if beyond && !service.refused {
            if arrival.len() > 0 {
                at_once = Some((held.next, "RFC 9293 s3.10.7.4: a segment beyond the window is acknowledged"));
            }
            continue;
        }
        state.pruned |= beyond;
        state.largest = state.largest.max(arrival.len());
        let ends = state.ended;
        if held.has(start, end) {
            repeated = Some((start, end));
            // Whether it has bytes or not, what the peer sends again after the end may be answered no more often than a challenge.
            if arrival.len() > 0 && (arrivals.len() == 1 || !service.merges) {
                at_once = Some((held.next, "RFC 9293 s3.10.7.4: a segment that was received before is acknowledged"));
            }
            continue;
        }
        let gaps = held.has_gaps();
        let in_order = !before(held.next, start);
        if arrival.has(FIN) {
            state.fin = Some(end.wrapping_sub(1));
        }
        held.add(start, end);
        state.ended = ends || state.fin.is_some_and(|fin| before(fin, held.next));
        if !in_order {
            newest = Some(start);
            at_once = Some((held.next, "RFC 5681 s4.2: an out-of-order segment is acknowledged at once"));
        } else if gaps {
            at_once = Some((held.next, "RFC 5681 s4.2: a segment that fills a gap is acknowledged at once"));
        } else if state.ended {
            at_once = Some((held.next, "RFC 9293 s3.10.7.4: a FIN is acknowledged at once"));
        }
    }
    state.echoes_before = echoes_before;
    state.pruned |= held.count_above() > BLOCKS_MAX;
    let next = held.next;
    let acked = state.acked;
    (state.acked_before, state.acked_now) = (state.acked_now, acked);
    let behind = acked.map_or(0, |acked| next.wrapping_sub(acked).cast_signed().max(0).cast_unsigned());
    let largest = state.largest.max(u32::from(Family::mss_default(own.tuple.0.ip())));
    state.owed_since = if behind == 0 {
        None
    } else if sent.iter().any(|segment| segment.has(ACK)) {
        Some(moment.at)
    } else {
        state.owed_since.or(Some(moment.at))
    };
    // Who was half open may have been given up, unseen (RFC 9293 s3.8.3): the peer, which it is not told of, hears a reset, if the device takes that.
    let given_up = service.dropped && own.passive && !own.shadow.sender.stands();
    if given_up
        || state.pruned
        || !service.calm
        || !service.free
        || !super::State::is_alive(own)
        || own.una == own.iss
        || moment.at <= moment.excused
        || own.may_be_given_up()
    {
        return;
    }
    let acknowledged = |to: u32| sent.iter().any(|segment| segment.has(ACK) && !before(segment.ack, to));
    if let Some((to, law)) = at_once
        && !acknowledged(to)
    {
        let to = own.peer_relative(to);
        moment.breach(ACKS, format_args!("{law}: nothing up to {to} was, with {} arrivals and {} frames", arrivals.len(), sent.len()));
    }
    if behind >= 2 * largest {
        moment.breach(ACKS, format_args!("RFC 9293 s3.8.6.3: {behind} bytes are not acknowledged, and a full segment has {largest}"));
    }
    super::sacks::serviced(moment, own, peer, (arrivals, sent), (newest, repeated));
}

/// What TS.Recent may be now.
fn note_echoes(own: &mut Endpoint, arrivals: &[Segment], sent: &[Segment]) {
    let merges = own.merges;
    let state = &mut own.shadow.receiver;
    let last = sent.iter().rev().find(|segment| segment.has(ACK) && !segment.has(SYN | RST));
    let known = !state.echoes.is_empty();
    if let Some((_, echo)) = last.and_then(|segment| segment.options.timestamps) {
        state.echoes.clear();
        state.echoes.push(echo);
    } else if !known {
        return;
    }
    let Some(edge) = state.acked else { return };
    for arrival in arrivals.iter().filter(|arrival| !arrival.has(RST)) {
        let Some((value, _)) = arrival.options.timestamps else { continue };
        if (merges || !before(edge, arrival.seq)) && !state.echoes.contains(&value) {
            state.echoes.push(value);
        }
    }
    if state.echoes.len() > ECHOES_MAX {
        state.echoes.clear();
    }
}
