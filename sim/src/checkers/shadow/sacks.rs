//! Selective acknowledgments: what they must report, in which order, and duplicates (RFC 2018, RFC 2883).

use super::super::Moment;
use super::super::flow::Endpoint;
use super::super::segment::{ACK, SYN, Segment, before};

const NAME: &str = "sack";

/// Whether the first of a segment's blocks reports a duplicate (RFC 2883 s4): it is acknowledged, or inside another (the second, unless
/// something else arrived meanwhile).
fn duplicate(segment: &Segment) -> bool {
    let Some((&(start, end), others)) = segment.options.sack().split_first() else { return false };
    before(start, segment.ack) || others.iter().any(|&(from, to)| !before(start, from) && !before(to, end))
}

/// Blocks that an endpoint reports, in numbers counted from its peer's first.
fn relative(own: &Endpoint, blocks: &[(u32, u32)]) -> Vec<(u32, u32)> {
    blocks.iter().map(|&(start, end)| (own.peer_relative(start), own.peer_relative(end))).collect()
}

/// An endpoint sent a segment, which is no reset.
pub(in crate::checkers) fn sent(moment: &Moment, segment: &Segment, own: &Endpoint) {
    if !segment.has(ACK) || segment.has(SYN) || !super::State::is_known(own) || own.disturbed || !own.calm {
        return;
    }
    let state = &own.shadow.receiver;
    let blocks = &segment.options.sack()[usize::from(duplicate(segment))..];
    for (at, &(start, end)) in blocks.iter().enumerate() {
        if !before(segment.ack, start) {
            let [start, end, ack] = [start, end, segment.ack].map(|number| own.peer_relative(number));
            moment.breach(NAME, format_args!("RFC 2018 s4: a block {start}..{end} that is acknowledged by {ack}"));
        }
        if blocks[..at].iter().any(|&(from, to)| before(start, to) && before(from, end)) {
            moment.breach(NAME, format_args!("RFC 2018 s3: blocks that overlap: {:?}", relative(own, blocks)));
        }
        // (The newest segment, if it was dropped for want of room, is reported as it came.)
        let adjoins = state.has(end, end.wrapping_add(1)) || state.has(start.wrapping_sub(1), start);
        if at > 0 && adjoins && !state.pruned && state.fin.is_none() {
            let (start, end) = (own.peer_relative(start), own.peer_relative(end));
            moment.breach(NAME, format_args!("RFC 2018 s3: a block {start}..{end}, with more received beside it"));
        }
    }
}

/// After a service: `newest` arrived out of order, and `repeated` again.
pub(super) fn serviced(
    moment: &Moment,
    own: &Endpoint,
    _peer: &Endpoint,
    (arrivals, sent): (&[Segment], &[Segment]),
    (newest, repeated): (Option<u32>, Option<(u32, u32)>),
) {
    let [arrival] = arrivals else { return };
    let Some(last) = sent.iter().rev().find(|segment| segment.has(ACK)) else { return };
    // (What the device refused to report before is reported now, of another segment.)
    if !own.agrees_on_sack || !own.free {
        return;
    }
    if let Some((start, end)) = repeated
        && arrival.len() > 0
        && end == start.wrapping_add(arrival.len())
        && !sent.iter().any(|segment| segment.options.sack().first() == Some(&(start, end)))
    {
        let blocks = relative(own, last.options.sack());
        let (start, end) = (own.peer_relative(start), own.peer_relative(end));
        moment.breach(NAME, format_args!("RFC 2883 s4: {start}..{end} came again, and the report says {blocks:?}"));
    }
    let names = |segment: &Segment, seq: u32| {
        let first = segment.options.sack().get(usize::from(duplicate(segment)));
        first.is_some_and(|&(start, end)| !before(seq, start) && before(seq, end))
    };
    if let Some(seq) = newest
        && arrival.len() > 0
        && !sent.iter().any(|segment| names(segment, seq))
    {
        let (blocks, seq) = (relative(own, last.options.sack()), own.peer_relative(seq));
        moment.breach(NAME, format_args!("RFC 2018 s4: the first block has the newest segment, {seq}; it says {blocks:?}"));
    }
}
