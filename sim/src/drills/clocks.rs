//! Round trips, and timestamps (RFC 6298, RFC 7323).

use core::time::Duration;
use std::collections::VecDeque;

use ringway_stack::ring::SendFlags;

use super::Drill;
use super::bench::{Bench, TICK};
use crate::segment::{ACK, FIN, PSH};

pub(super) const DRILLS: &[Drill] = &[("a steady round trip", steady), ("an old timestamp at any age", aged)];

/// Linux's TCP_RTO_MIN.
const RTO_MIN: Duration = Duration::from_millis(200);
const DAY: u64 = 24 * 3600;

/// Segments, or pauses, of a steady round trip.
const STEPS: u32 = 120;

/// RFC 6298 s2, s3: where all that is sent is acknowledged after the same time, however much is in flight meanwhile, that time is the round trip's; and if
/// it was another one before, it is believed more with each round trip.
fn steady(bench: &mut Bench) {
    let mut setup = bench.setup();
    (setup.mss, setup.window, setup.scale) = (1000, 60_000, None);
    // (With nothing sent before its time.)
    setup.sack = false;
    let mut peer = bench.begin(&setup);
    let parts = bench.between(1, 6) as u32;
    let step = Duration::from_micros(bench.between(500, 150_000) / u64::from(parts));
    let rtt = step * parts;
    let before = if bench.chance(3) { rtt } else { Duration::from_millis(bench.between(1, 190)) };
    bench.pass(before);
    bench.finish_handshake(&setup, &mut peer);
    // A timestamp's unit, or what is rounded.
    let tick = if peer.stamps { Duration::from_millis(1) } else { Duration::from_micros(2) };
    let mut flight = VecDeque::new();
    let mut written = 0;
    for number in 0..STEPS + parts {
        if number >= parts
            && let Some(Some((end, stamp))) = flight.pop_front()
        {
            // RFC 7323 s4.3: what is echoed is the timestamp of what is acknowledged.
            peer.echo = stamp;
            bench.give(&peer, peer.nxt, end, ACK, 0);
            bench.silence("RFC 9293 s3.10.7.4: an acknowledgment is not answered");
            let srtt = bench.ring.info(peer.id()).map_or(Duration::ZERO, |info| info.srtt);
            // One sample a round trip, at least, takes an eighth of what it is off (with pauses, and what is being sent, in between).
            let samples = number / (3 * parts + 3);
            let most = before.abs_diff(rtt).mul_f64(0.875_f64.powi(samples.cast_signed()));
            bench.must(
                srtt.abs_diff(rtt) <= most + rtt / 50 + tick,
                format_args!("RFC 6298 s3: a round trip of {srtt:?}, where all took {rtt:?} after {before:?}, {samples} times or more"),
            );
        }
        if number >= STEPS || bench.chance(3) {
            flight.push_back(None);
        } else {
            written += bench.write(&peer, written, 100, SendFlags::empty());
            let count = bench.receive(&mut peer);
            bench.must(count == 1, format_args!("RFC 9293 s3.7.4, tcp(7), TCP_NODELAY: {count} segments for one write"));
            flight.push_back(Some((peer.rcv, peer.echo)));
        }
        bench.pass(step);
    }
    bench.write(&peer, written, 100, SendFlags::empty());
    let begun = bench.now;
    bench.take();
    let again = bench.await_segment(Duration::from_secs(5));
    let waited = bench.now.since(begun);
    let longest = rtt.max(before);
    let right = again.is_some() && waited + TICK >= RTO_MIN && waited <= longest + (4 * longest).max(RTO_MIN) + TICK;
    bench.must(right, format_args!("RFC 6298 s2: sent again after {waited:?}, and round trips took {rtt:?}"));
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 7323 s5.3, s5.5: whatever is older than the newest timestamp is an old duplicate, whether that one came a moment ago or in the last 24 days.
fn aged(bench: &mut Bench) {
    let mut setup = bench.setup();
    (setup.stamps, setup.config.timestamps) = (true, true);
    let mut peer = bench.connect(&setup);
    let newest = bench.clock();
    bench.give(&peer, peer.nxt, peer.rcv, ACK | PSH, 10);
    peer.nxt = peer.nxt.wrapping_add(10);
    bench.pass(setup.config.delayed_ack + TICK);
    bench.take().iter().for_each(|heard| bench.note_window(&mut peer, heard));
    let age = bench.pick(&[1, 60, 1000, 3600, 40_000, DAY, 7 * DAY, 20 * DAY, 23 * DAY]);
    let age = bench.between(age - age / 10, age);
    bench.pass(Duration::from_secs(age));
    bench.take();
    let far = bench.pick(&[1, 1, 100, 1 << 20, 1 << 30]);
    let flags = bench.pick(&[ACK, ACK | PSH, ACK | FIN]);
    bench.give_stamped(&peer, peer.nxt, peer.rcv, flags, 20, &[], newest.wrapping_sub(far));
    let law = "RFC 7323 s5.3: an old timestamp";
    let answer = bench.one(law);
    bench.is_ack(&answer, &peer, law);
    let waiting = bench.ring.info(peer.id()).map_or(0, |info| info.recv_queue);
    bench.must(waiting == 10, format_args!("RFC 7323 s5.3: {waiting} bytes wait, of which 10 were not {age} s old"));
    // The same from now counts.
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 20);
    peer.nxt = peer.nxt.wrapping_add(20);
    let ack = bench.await_segment(setup.config.delayed_ack + TICK);
    bench.must(ack.is_some_and(|ack| ack.ack == peer.nxt), "RFC 7323 s5.3: a new timestamp behind an old one is not taken");
    bench.ring.close(bench.now, peer.id(), true);
}
