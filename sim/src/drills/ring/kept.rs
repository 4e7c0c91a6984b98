//! Rates that the ring keeps, where the device paces no flows (SO_MAX_PACING_RATE, socket(7)).

use core::time::Duration;

use ringway_stack::Instant;
use ringway_stack::device::Pacing;
use ringway_stack::ring::SendFlags;

use crate::drills::bench::{Bench, Peer};
use crate::drills::sending::roomy;
use crate::segment::ACK;

/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(60);

fn limit(bench: &Bench, set: Result<(), ringway_stack::Error>, peer: &Peer, rate: Pacing) {
    let given = bench.ring.rate(peer.id());
    bench.must(set.is_ok() && given == Some(rate), format_args!("{set:?} of {rate:?}: {given:?}"));
}

/// How long so many bytes take.
fn takes(rate: Pacing, bytes: usize) -> Duration {
    Duration::from_nanos((bytes as u128 * 8_000_000_000 / u128::from(rate.rate_bps)) as u64)
}

/// A stream leaves at its rate, no byte earlier than that and a burst allow, and none later.
pub(super) fn kept(bench: &mut Bench) {
    const SLACK: Duration = Duration::from_micros(1);
    let mut peer = roomy(bench);
    let rate = Pacing {
        rate_bps: bench.between(80, 8_000) * 1_000,
        burst_bytes: bench.pick(&[0, 1_514, 4_000]),
        typical_packet_bytes: bench.pick(&[0, 300]),
    };
    let set = bench.ring.set_rate(bench.now, peer.id(), rate);
    limit(bench, set, &peer, rate);
    let len = (bench.between(20, 60) * u64::from(peer.mss)) as usize;
    let began = bench.now;
    bench.write(&peer, 0, len, SendFlags::empty());
    let end = peer.rcv.wrapping_add(len as u32);
    let mut left: Vec<(Instant, usize)> = Vec::new();
    while peer.rcv != end {
        let Some(heard) = bench.await_segment(LONG) else { return bench.must(false, "the rest of what has a rate is never sent") };
        bench.must(heard.seq == peer.rcv, "what has a rate is sent in order, and once");
        bench.take_in(&mut peer, &heard);
        left.push((heard.at, heard.bytes.len()));
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    }
    let longest = left.iter().map(|(_, len)| *len).max().unwrap_or(0);
    let burst = match (rate.burst_bytes as usize, usize::from(rate.typical_packet_bytes)) {
        (0, 0) => (rate.rate_bps / 8_000) as usize,
        (0, typical) => typical,
        (burst, _) => burst,
    };
    for (i, &(from, _)) in left.iter().enumerate() {
        let mut bytes = 0;
        for &(to, len) in &left[i + 1..] {
            bytes += len;
            let least = takes(rate, bytes.saturating_sub(burst.max(longest)));
            bench.must(to.since(from) + SLACK >= least, format_args!("{bytes} bytes in {:?}, at {rate:?}", to.since(from)));
        }
    }
    let (all, last) = (left.iter().map(|(_, len)| *len).sum(), left.last().map_or(began, |(at, _)| *at));
    bench.must(last.since(began) <= takes(rate, all) + SLACK, format_args!("{all} bytes take {:?} at {rate:?}", last.since(began)));
    bench.ring.close(bench.now, peer.id(), true);
}

/// Behind a rate that lets nothing through for seconds, what came is acknowledged in time, what was lost is what goes next, and what is let go leaves.
pub(super) fn beside(bench: &mut Bench) {
    let mut peer = roomy(bench);
    let rate = Pacing { rate_bps: bench.between(200, 500), burst_bytes: 1, typical_packet_bytes: 0 };
    let set = bench.ring.set_rate(bench.now, peer.id(), rate);
    limit(bench, set, &peer, rate);
    let full = peer.mss;
    bench.write(&peer, 0, 3 * full as usize, SendFlags::empty());
    let first = bench.one("the first segment waits for nothing");
    let una = first.seq;
    bench.take_in(&mut peer, &first);
    // It is lost.
    let len = bench.between(1, 100) as u32;
    bench.give(&peer, peer.nxt, una, ACK, len);
    peer.nxt = peer.nxt.wrapping_add(len);
    let answer = bench.await_segment(Duration::from_millis(500));
    let is_ack = answer.is_some_and(|answer| answer.ack == peer.nxt && answer.len() == 0);
    bench.must(is_ack, "RFC 9293 s3.8.6.3: no acknowledgment within half a second, for want of bytes");
    let next = bench.await_segment(LONG);
    let is_first = next.as_ref().is_some_and(|next| next.seq == una && next.len() > 0);
    bench.must(is_first, "RFC 6298 s5.4: what was lost a second ago goes before what was never sent");
    let waited = next.map_or(Duration::ZERO, |next| next.at.since(first.at));
    bench.must(waited >= takes(rate, first.bytes.len()), format_args!("a retransmission after {waited:?}, at {rate:?}"));
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    bench.silence("what has a rate waits for it");
    let lifted = bench.ring.set_rate(bench.now, peer.id(), Pacing::UNLIMITED);
    let sent = bench.receive(&mut peer);
    bench.must(lifted.is_ok() && sent > 0, format_args!("{lifted:?}: {sent} segments once there is no limit any more"));
    bench.ring.close(bench.now, peer.id(), true);
}
