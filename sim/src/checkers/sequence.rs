//! Sequence space: every segment's numbers, acknowledgment, SACK blocks, timestamps, options and bytes against all that was sent and
//! received before.

use super::Moment;
use super::flow::Endpoint;
use super::segment::{ACK, FIN, SYN, Segment, before, later};
use crate::addresses::Family;

const NAME: &str = "sequence";

/// Timestamps of a connection are compared over a span of 12 days.
const COMPARABLE: u32 = 1 << 30;

/// What it remembers of an endpoint.
#[derive(Debug, Default)]
pub(super) struct State {
    acked: Option<u32>,
    stamped: Option<u32>,
    stamped_first: u32,
}

impl State {
    /// The timestamp of its first segment.
    pub(super) fn stamped_first(&self) -> Option<u32> {
        self.stamped.map(|_| self.stamped_first)
    }

    /// The highest acknowledgment that it sent.
    pub(super) fn acked(&self) -> Option<u32> {
        self.acked
    }

    /// Whether the endpoint has acknowledged anything.
    pub(super) fn has_acknowledged(&self) -> bool {
        self.acked.is_some()
    }
}

/// An endpoint sent a segment, which is no reset.
pub(super) fn sent(moment: &Moment, frame: &[u8], segment: &Segment, own: &mut Endpoint, peer: Option<&Endpoint>) {
    numbers(moment, segment, own);
    options(moment, segment, own, peer);
    if segment.has(ACK) {
        acknowledgment(moment, segment, own);
    }
    timestamps(moment, segment, own, peer);
    payload(moment, frame, segment, own, peer);
}

fn numbers(moment: &Moment, segment: &Segment, own: &Endpoint) {
    // What was lost on this side of the wire comes later. (The flag stays: how much that is remains unknown.)
    if before(own.nxt, segment.seq) && !own.lost && !own.moved {
        moment.breach(NAME, format_args!("RFC 9293 s3.4: seq {} leaves a gap behind {}", own.relative(segment.seq), own.relative(own.nxt)));
    }
    if before(segment.seq, own.iss) {
        moment.breach(NAME, format_args!("RFC 9293 s3.4: seq {} lies before the ISS, {}", segment.seq, own.iss));
    }
    if segment.has(SYN) != (segment.seq == own.iss) && segment.span() > 0 {
        moment.breach(NAME, "RFC 9293 s3.4: only the SYN has the number 0");
    }
    let fin = segment.end().wrapping_sub(1);
    if segment.has(FIN) && own.fin.is_some_and(|known| known != fin) {
        let (fin, known) = (own.relative(fin), own.fin.map(|known| own.relative(known)));
        moment.breach(NAME, format_args!("RFC 9293 s3.4: a second FIN, at {fin}, after one at {known:?}"));
    }
    if segment.has(FIN) && !own.stream.may_end_at(own.offset(fin)) {
        moment.breach(NAME, format_args!("a FIN at offset {}, where the program did not end its stream", own.offset(fin)));
    }
}

fn options(moment: &Moment, segment: &Segment, own: &Endpoint, peer: Option<&Endpoint>) {
    let options = &segment.options;
    if !segment.has(SYN) && (options.mss.is_some() || options.scale.is_some() || options.sack_permitted) {
        moment.breach(NAME, "RFC 9293 s3.1, RFC 7323 s2.2, RFC 2018 s2: an option of SYNs in another segment");
    }
    let Some(peer) = peer else { return };
    let mss = peer.syn.mss.map_or(u32::from(Family::mss_default(segment.src.ip())), u32::from);
    let used = segment.len() + u32::try_from(segment.options_len).unwrap_or(0);
    if segment.len() > 0 && used > mss {
        moment.breach(NAME, format_args!("RFC 9293 s3.7.1: {used} bytes of payload and options for a peer whose MSS is {mss}"));
    }
    if segment.has(SYN) {
        return;
    }
    let agreed = own.syn.timestamps.is_some() && peer.syn.timestamps.is_some();
    if agreed != options.timestamps.is_some() {
        moment.breach(NAME, format_args!("RFC 7323 s3.2: timestamps in every segment or in none; agreed: {agreed}"));
    }
    if !(options.sack().is_empty() || own.syn.sack_permitted && peer.syn.sack_permitted) {
        moment.breach(NAME, "RFC 2018 s2: SACK was not agreed on");
    }
}

fn acknowledgment(moment: &Moment, segment: &Segment, own: &mut Endpoint) {
    if own.irs.is_none() {
        return;
    }
    if before(own.rx.next, segment.ack) {
        let (ack, next) = (own.peer_relative(segment.ack), own.peer_relative(own.rx.next));
        moment.breach(NAME, format_args!("RFC 9293 s3.4: ack {ack}, but only what is before {next} arrived"));
    }
    // What two rings sent of a connection that moved from one to the other, the NIC may send in another order.
    if let Some(acked) = own.sequence.acked
        && before(segment.ack, acked)
        && !own.just_moved(moment.at)
    {
        let (ack, acked) = (own.peer_relative(segment.ack), own.peer_relative(acked));
        moment.breach(NAME, format_args!("RFC 9293 s3.4: ack {ack} after {acked}"));
    }
    own.sequence.acked = Some(own.sequence.acked.map_or(segment.ack, |acked| later(acked, segment.ack)));
    for &(start, end) in segment.options.sack() {
        if !before(start, end) || !own.rx.has(start, end) {
            let (start, end) = (own.peer_relative(start), own.peer_relative(end));
            moment.breach(NAME, format_args!("RFC 2018 s4: SACK of {start}..{end}, which did not arrive"));
        }
    }
}

fn timestamps(moment: &Moment, segment: &Segment, own: &mut Endpoint, peer: Option<&Endpoint>) {
    let Some((value, echo)) = segment.options.timestamps else { return };
    let moved = own.just_moved(moment.at);
    let state = &mut own.sequence;
    match state.stamped {
        Some(stamped) if before(value, stamped) && !moved => {
            let [value, stamped] = [value, stamped].map(|value| value.wrapping_sub(state.stamped_first));
            moment.breach(NAME, format_args!("RFC 7323 s4.1: the timestamp +{value} after +{stamped}"));
        }
        Some(stamped) => {
            let latest = later(stamped, value);
            state.stamped = Some(latest);
            // Numbers that are further apart cannot be compared (RFC 7323 s5.5: a clock of milliseconds wraps after 24 days).
            if latest.wrapping_sub(state.stamped_first) > COMPARABLE {
                state.stamped_first = latest.wrapping_sub(COMPARABLE);
            }
        }
        None => (state.stamped, state.stamped_first) = (Some(value), value),
    }
    if let Some(peer) = peer.filter(|_| segment.has(ACK)).map(|peer| &peer.sequence)
        && let Some(stamped) = peer.stamped
        && (before(stamped, echo) || before(echo, peer.stamped_first))
    {
        let [echo, stamped] = [echo, stamped].map(|value| value.wrapping_sub(peer.stamped_first).cast_signed());
        moment.breach(NAME, format_args!("RFC 7323 s3.2: the echo {echo:+} of no timestamp from +0 to {stamped:+}"));
    }
}

/// The first transmission and each later one carry what the program wrote at that place.
fn payload(moment: &Moment, frame: &[u8], segment: &Segment, own: &Endpoint, _peer: Option<&Endpoint>) {
    let bytes = &frame[segment.payload.clone()];
    if bytes.is_empty() || segment.has(SYN) {
        return;
    }
    // One byte before the window, whose value nobody looks at, is a probe (RFC 9293 s3.8.4).
    if bytes.len() == 1 && before(segment.seq, own.una) {
        return;
    }
    if let Err(what) = own.stream.check(own.offset(segment.seq), bytes) {
        moment.breach(NAME, format_args!("RFC 9293 s3.4: seq {} of the stream: {what}", own.relative(segment.seq)));
    }
}
