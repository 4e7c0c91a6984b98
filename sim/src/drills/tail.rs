//! The end of what was sent, behind which nothing comes that would tell of its loss (RFC 8985 s7); and what is lost by the time at which it was sent (s6.2).

use core::time::Duration;

use ringway_stack::ring::SendFlags;

use super::Drill;
use super::bench::{Bench, Peer, TICK};
use super::sending::report;
use crate::segment::ACK;

pub(super) const DRILLS: &[Drill] = &[
    ("an end that is lost", lost),
    ("a probe that nobody answers", unanswered),
    ("a segment that is overtaken", overtaken),
    ("a segment that is lost before the last ones", lost_before_the_last),
];

/// Linux's TCP_RTO_MIN, and what a probe's timer may be late by.
const RTO_MIN: Duration = Duration::from_millis(200);
const LATENESS: Duration = Duration::from_millis(2);

/// A connection with SACK, in segments of a thousand bytes, over which all round trips have taken as long; and how long.
fn measured(bench: &mut Bench) -> (Peer, Duration) {
    let mut setup = bench.setup();
    (setup.mss, setup.window, setup.scale, setup.sack, setup.config.sack) = (1000, 60_000, None, true, true);
    let mut peer = bench.begin(&setup);
    let rtt = Duration::from_millis(bench.between(20, 60));
    bench.pass(rtt);
    bench.finish_handshake(&setup, &mut peer);
    for number in 0..4 {
        bench.write(&peer, number * 100, 100, SendFlags::empty());
        bench.receive(&mut peer);
        bench.pass(rtt);
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
        bench.take();
    }
    (peer, rtt)
}

/// Several segments go at once: where the first one begins, and the last.
fn burst(bench: &mut Bench, peer: &mut Peer) -> (u32, u32) {
    let una = peer.rcv;
    let written = una.wrapping_sub(peer.irs) as usize - 1;
    let count = bench.between(2, 7) as u32;
    bench.write(peer, written, (count * peer.mss) as usize, SendFlags::empty());
    bench.receive(peer);
    (una, peer.rcv.wrapping_sub(peer.mss))
}

/// The last segment comes again, two round trips after it was sent.
fn probed(bench: &mut Bench, peer: &Peer, last: u32, rtt: Duration) {
    let since = bench.now;
    let probe = bench.await_segment(2 * rtt + LATENESS + 2 * TICK);
    let waited = bench.now.since(since);
    let Some(probe) = probe else {
        return bench.must(false, format_args!("RFC 8985 s7.2: the end is not probed within {waited:?}, with round trips of {rtt:?}"));
    };
    bench.must(waited + TICK >= 2 * rtt, format_args!("RFC 8985 s7.2: a probe after {waited:?}, with round trips of {rtt:?}"));
    bench.must(probe.seq == last && probe.end() == peer.rcv, "RFC 8985 s7.3: what is probed is the segment of the highest number");
    bench.silence("RFC 8985 s7.3: a probe is one segment");
}

/// RFC 8985 s7.4: the probe repairs the loss of what was sent last, which still was a loss; unless the peer says that it came twice (RFC 2883).
fn lost(bench: &mut Bench) {
    let (mut peer, rtt) = measured(bench);
    let (_, last) = burst(bench, &mut peer);
    probed(bench, &peer, last, rtt);
    bench.pass(rtt);
    let end = peer.rcv;
    let came_twice = bench.chance(2);
    let told = if came_twice { vec![(last, end)] } else { Vec::new() };
    report(bench, &peer, end, &told);
    bench.silence("RFC 9293 s3.10.7.4: an acknowledgment is not answered");
    let window = |bench: &Bench, peer: &Peer| bench.ring.info(peer.id()).map_or(0, |info| info.cwnd);
    let before = window(bench, &peer);
    bench.write(&peer, end.wrapping_sub(peer.irs) as usize - 1, 100, SendFlags::empty());
    bench.receive(&mut peer);
    bench.pass(rtt);
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    let after = window(bench, &peer);
    if came_twice {
        bench.must(after >= before, format_args!("RFC 8985 s7.4.2: a window of {after} after {before}, where nothing was lost"));
    } else {
        bench.must(after < before, format_args!("RFC 8985 s7.4.2: a window of {after} after {before}, where the probe repaired a loss"));
    }
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 8985 s7.3: there is one probe; then the timer begins anew, and what it sends is the first byte.
fn unanswered(bench: &mut Bench) {
    let (mut peer, rtt) = measured(bench);
    let (una, last) = burst(bench, &mut peer);
    probed(bench, &peer, last, rtt);
    let since = bench.now;
    let again = bench.await_segment(Duration::from_secs(2));
    let waited = bench.now.since(since);
    bench.must(again.is_some_and(|again| again.seq == una), "RFC 8985 s7.3, RFC 6298 s5.4: after the probe the earliest is sent again");
    bench.must(waited + TICK >= rtt + RTO_MIN, format_args!("RFC 8985 s7.3: a timeout {waited:?} after the probe"));
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 8985 s6.2: a segment is lost, of which one that was sent later has arrived: later by more than a quarter of the shortest round trip (step 4).
fn overtaken(bench: &mut Bench) {
    let (mut peer, rtt) = measured(bench);
    let una = peer.rcv;
    let written = una.wrapping_sub(peer.irs) as usize - 1;
    let is_long = bench.chance(2);
    bench.write(&peer, written, 500, SendFlags::empty());
    bench.receive(&mut peer);
    bench.pass(if is_long { rtt / 2 } else { rtt / 8 });
    let second = peer.rcv;
    bench.write(&peer, written + 500, 500, SendFlags::empty());
    bench.receive(&mut peer);
    bench.pass(rtt);
    let end = peer.rcv;
    report(bench, &peer, una, &[(second, end)]);
    let again: Vec<_> = bench.take().iter().map(|heard| (heard.seq, heard.end())).collect();
    let right = if is_long { vec![(una, second)] } else { Vec::new() };
    bench.must(again == right, format_args!("RFC 8985 s6.2: {again:?} is sent again, and {right:?} is overtaken"));
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 8985 s6.2 step 5: a segment arrived that was sent with a lost one, and no more will. That is sent again a quarter of a round trip later: the next time, two
/// quarters, where it has come twice (step 4).
fn lost_before_the_last(bench: &mut Bench) {
    let (mut peer, rtt) = measured(bench);
    let mut quarters = 1;
    for _ in 0..2 {
        let una = peer.rcv;
        let written = una.wrapping_sub(peer.irs) as usize - 1;
        bench.write(&peer, written, 2 * peer.mss as usize, SendFlags::empty());
        bench.receive(&mut peer);
        let (second, end) = (una.wrapping_add(peer.mss), peer.rcv);
        bench.pass(rtt);
        report(bench, &peer, una, &[(second, end)]);
        bench.silence("RFC 8985 s6.2: a hole is no loss yet, within the reordering window");
        let since = bench.now;
        let window = rtt / 4 * quarters;
        let again = bench.await_segment(window + LATENESS + 2 * TICK);
        let waited = bench.now.since(since);
        bench.must(
            again.is_some_and(|again| (again.seq, again.end()) == (una, second)),
            format_args!("RFC 8985 s6.2 step 5: a hole is not sent again within {waited:?}, with a window of {window:?}"),
        );
        bench.must(waited + TICK >= window, format_args!("RFC 8985 s6.2 step 4: sent again after {waited:?}, with a window of {window:?}"));
        bench.pass(rtt);
        let came_twice = bench.chance(2);
        let told = if came_twice { vec![(una, second)] } else { Vec::new() };
        report(bench, &peer, end, &told);
        bench.silence("RFC 9293 s3.10.7.4: an acknowledgment is not answered");
        quarters += u32::from(came_twice);
    }
    bench.ring.close(bench.now, peer.id(), true);
}
