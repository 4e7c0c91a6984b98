//! Losses at the end of what was sent (RFC 8985 s7), and losses that only time tells of (s6.2).

use core::time::Duration;

use super::pair::Side::{A, B};
use super::pair::{Packet, Pair, ms, pattern};
use crate::tcp::{Config, State};
use crate::wire::tcp::{Flags, Header, Options};

/// The round trip is 2 ms: two of them, and the lateness of a timer.
const PROBE: Duration = Duration::from_millis(6);

/// Loses the `nth` segments with payload that A sends, counted from 1.
fn lose_nth(pair: &mut Pair, nth: &'static [usize]) {
    let mut count = 0;
    pair.lose(move |packet: &Packet| {
        count += usize::from(packet.from == A && !packet.payload.is_empty());
        packet.from == A && !packet.payload.is_empty() && nth.contains(&count)
    });
}

/// A pair whose round trip is known to be 2 ms, by more than the handshake.
fn known() -> Pair {
    let nodelay = Config { nodelay: true, ..Config::default() };
    let mut pair = Pair::open(&nodelay, &nodelay);
    for _ in 0..20 {
        pair.write(A, &pattern(2 * 1448)).unwrap();
        pair.settle();
        pair.read(B);
    }
    pair.run(Duration::from_secs(3));
    pair.write(A, &pattern(2 * 1448)).unwrap();
    pair.settle();
    pair.read(B);
    pair.log.clear();
    pair
}

/// The segments with payload or a FIN that A sent: when, from which byte on, and how many.
fn sent(pair: &mut Pair, since: crate::time::Instant) -> Vec<(Duration, usize, usize)> {
    let sent: Vec<_> = pair.sent(A).into_iter().filter(|p| !p.payload.is_empty() || p.is(Flags::FIN)).collect();
    let first = sent[0].header.seq;
    sent.iter().map(|p| (p.sent.since(since), p.header.seq.since(first), p.payload.len())).collect()
}

#[test]
fn the_last_segment_that_is_lost_is_sent_again_within_two_round_trips_and_counts_as_a_loss() {
    let mut pair = known();
    let (start, cwnd) = (pair.now, pair.a.cwnd());
    lose_nth(&mut pair, &[4]);
    pair.write(A, &pattern(4 * 1448)).unwrap();
    pair.run(ms(30));
    assert_eq!(pair.read(B), pattern(4 * 1448));
    let sent = sent(&mut pair, start);
    assert_eq!(sent.len(), 5);
    // (The first three were acknowledged after a round trip.)
    assert_eq!(sent[4], (ms(2) + PROBE, 3 * 1448, 1448), "{sent:?}");
    assert_eq!((pair.a.counters().retransmissions, pair.a.cwnd()), (1, cwnd), "nothing tells yet whether it was lost");
    pair.write(A, b"more").unwrap();
    pair.run(ms(100));
    assert_eq!(pair.a.cwnd(), 2 * 1448, "RFC 8985 s7.4.2, RFC 5681 s3.1: it was, with no more than two segments in flight");
    assert!(pair.a.cwnd() < cwnd);
    assert_eq!(pair.a.counters().retransmissions, 1);
}

/// What is learned after a pause is not held against the window, and the next end is probed as well.
#[test]
fn a_pause_ends_what_a_probe_began() {
    let mut pair = known();
    lose_nth(&mut pair, &[4, 13]);
    pair.write(A, &pattern(4 * 1448)).unwrap();
    pair.run(Duration::from_secs(5));
    assert_eq!(pair.read(B).len(), 4 * 1448);
    for _ in 0..2 {
        // (After the first of them, all is as before.)
        pair.write(A, &pattern(4 * 1448)).unwrap();
        pair.run(ms(40));
        pair.read(B);
    }
    assert_eq!(pair.a.counters().retransmissions, 2, "a probe each");
    assert_eq!(pair.a.send_queue(), 0, "and no timeout");
}

#[test]
fn what_came_twice_was_not_lost() {
    let mut pair = known();
    let cwnd = pair.a.cwnd();
    let until = pair.now + ms(7);
    pair.lose(move |packet| packet.from == B && packet.sent < until);
    pair.write(A, &pattern(4 * 1448)).unwrap();
    pair.run(ms(30));
    assert_eq!(pair.a.counters().retransmissions, 1, "the probe");
    assert_eq!(pair.a.send_queue(), 0, "which the acknowledgment came for");
    pair.write(A, b"more").unwrap();
    pair.run(ms(100));
    assert!(pair.a.cwnd() >= cwnd, "{}", pair.a.cwnd());
}

#[test]
fn what_was_never_sent_probes_as_well_whatever_the_windows_say() {
    let mut pair = known();
    let (cwnd, start) = (pair.a.cwnd(), pair.now);
    pair.lose(|packet| packet.from == B);
    let data = pattern(cwnd + 4 * 1448);
    pair.write(A, &data).unwrap();
    pair.run(ms(30));
    let sent = sent(&mut pair, start);
    let last = *sent.last().unwrap();
    assert_eq!((last.0, last.2), (PROBE, 1448), "{last:?}");
    assert_eq!((pair.a.counters().retransmissions, last.1), (0, cwnd / 1448 * 1448), "one new segment, and no second probe");
    pair.lose_nothing();
    pair.run(ms(300));
    assert_eq!(pair.read(B), data);
}

#[test]
fn many_last_segments_are_all_found_lost_by_what_the_probe_is_answered_with() {
    let mut pair = known();
    lose_nth(&mut pair, &[4, 5, 6, 7, 8]);
    pair.write(A, &pattern(8 * 1448)).unwrap();
    pair.run(ms(16));
    assert_eq!(pair.read(B), pattern(8 * 1448), "RFC 8985 s6.2: they were sent long before the probe");
    // The probe was one of them.
    assert_eq!(pair.a.counters().retransmissions, 5);
}

/// Found by the simulator: where bytes lie in more buffers than the device gathers, the segment that a probe began with did not come to the end.
#[test]
fn a_probe_comes_to_the_end_however_little_the_device_gathers() {
    let config = Config { gather_max: 3, nodelay: true, ..Config::default() };
    let mut pair = Pair::open(&config, &config);
    pair.buffer = 100;
    pair.lose(|packet| packet.from == A);
    pair.write(A, &pattern(5000)).unwrap();
    pair.run(ms(30));
    assert_eq!(pair.a.counters().retransmissions, 1);
    let sent = pair.sent(A);
    let (first, probe) = (&sent[0], sent.last().unwrap());
    assert_eq!((probe.header.seq.since(first.header.seq), probe.payload.len()), (4800, 200));
}

#[test]
fn an_end_that_is_lost_is_probed() {
    let mut pair = known();
    pair.write(A, &pattern(2 * 1448)).unwrap();
    pair.shutdown(A);
    let start = pair.now;
    lose_nth(&mut pair, &[2]);
    pair.run(ms(12));
    assert_eq!(pair.read(B), pattern(2 * 1448));
    assert_eq!(pair.state(B), State::CloseWait, "within {:?}", pair.now.since(start));
    assert_eq!(pair.a.counters().retransmissions, 1);
}

/// RFC 8985 s7.3: there is one, and then the timer begins anew.
#[test]
fn a_probe_that_is_lost_is_followed_by_a_timeout() {
    let mut pair = known();
    let start = pair.now;
    pair.lose(|packet| packet.from == A);
    pair.write(A, &pattern(3 * 1448)).unwrap();
    pair.run(ms(250));
    let sent = sent(&mut pair, start);
    assert_eq!(sent[3], (PROBE, 2 * 1448, 1448));
    assert_eq!((sent.len(), sent[4].1), (5, 0), "{sent:?}");
    let waited = sent[4].0 - PROBE;
    assert!(waited >= ms(200) && waited < ms(230), "{waited:?}");
    assert!(pair.a.cwnd() <= 1448);
}

/// Three segments are in flight, whose probe is due, and the device refuses it. What acknowledges the first of them.
fn refused() -> (Pair, Header) {
    let mut pair = known();
    pair.lose(|packet| packet.from == A);
    pair.write(A, &pattern(3 * 1448)).unwrap();
    pair.transmit();
    let first = pair.sent(A)[0].header;
    pair.now = pair.a.deadline().unwrap();
    pair.a.on_timer(pair.now);
    pair.device_room = 0;
    pair.transmit();
    pair.device_room = usize::MAX;
    assert!(pair.a.wants_transmit() && pair.sent(A).is_empty());
    let ack = Header {
        src_port: first.dst_port,
        dst_port: first.src_port,
        seq: first.ack,
        ack: first.seq + 1448,
        options: Options { timestamps: first.options.timestamps.map(|(value, echo)| (echo, value)), ..Options::default() },
        ..first
    };
    (pair, ack)
}

/// Found by the simulator: it counted from when the device refused the probe.
#[test]
fn the_timeout_after_a_probe_counts_from_when_the_device_took_it() {
    let (mut pair, _) = refused();
    pair.now += ms(100);
    pair.transmit();
    assert_eq!(pair.sent(A).len(), 1, "the probe");
    let waits = pair.a.deadline().unwrap().since(pair.now);
    assert!(waits >= ms(200), "{waits:?}");
}

/// Found by the simulator: it went all the same, beyond the congestion window if it was a new segment.
#[test]
fn a_probe_that_the_device_refused_does_not_go_after_its_answer() {
    let (mut pair, ack) = refused();
    pair.deliver(A, &ack, b"");
    pair.transmit();
    assert!(pair.sent(A).is_empty());
    let waits = pair.a.deadline().unwrap().since(pair.now);
    assert!(waits >= PROBE && waits <= 2 * PROBE, "RFC 8985 s7.2: its time begins anew: {waits:?}");
}

/// Found by the simulator: it asked the buffer for bytes that were given back.
#[test]
fn what_was_aborted_sends_no_probe_that_the_device_refused() {
    let (mut pair, _) = refused();
    pair.a.abort();
    pair.transmit();
    let sent = pair.sent(A);
    assert!(sent.len() == 1 && sent[0].is(Flags::RST), "{sent:?}");
}

/// s7.2: where the peer may delay its acknowledgment, and where it could not tell what arrived, there is none before the timeout.
#[test]
fn one_segment_alone_and_a_peer_without_sack_wait_for_the_timeout() {
    for (segments, fin, sack) in [(1, false, true), (1, true, true), (3, false, false)] {
        let config = Config { sack, ..Config::default() };
        let mut pair = Pair::open(&config, &config);
        pair.lose(|packet| packet.from == A);
        pair.write(A, &pattern(segments * 1448)).unwrap();
        if fin {
            // (Found by the simulator: that is one segment, and a number more than one has.)
            pair.shutdown(A);
        }
        pair.run(ms(190));
        assert_eq!(pair.a.counters().retransmissions, 0, "{segments} segments, FIN: {fin}, SACK: {sack}");
    }
}

/// s7.2: as long as more is sent, a probe would tell nothing that what follows does not.
#[test]
fn what_is_sent_meanwhile_puts_a_probe_off_but_no_further_than_the_timeout() {
    let mut pair = known();
    let start = pair.now;
    pair.lose(|packet| packet.from == A);
    while pair.a.counters().retransmissions == 0 && pair.now.since(start) < ms(1000) {
        pair.write(A, b"tick").unwrap();
        pair.run(ms(4));
    }
    let first = pair.now.since(start);
    assert!(first >= ms(200) && first <= ms(220), "{first:?}");
}

/// RFC 8985 s6.2: one segment that arrives tells that another is lost, which was sent a while before; or that it will be, if it does not come soon (step 5).
#[test]
fn what_was_sent_long_before_something_that_arrives_is_lost() {
    for (gap, at_once) in [(Duration::from_micros(400), 0), (ms(1), 1)] {
        let mut pair = known();
        lose_nth(&mut pair, &[1]);
        pair.write(A, b"lost").unwrap();
        pair.run(gap);
        pair.write(A, b"arrives").unwrap();
        pair.run(ms(2));
        assert_eq!(pair.a.counters().retransmissions, at_once, "a quarter of a round trip is 500 us, and the gap {gap:?}");
        pair.run(ms(1));
        assert_eq!(pair.a.counters().retransmissions, 1, "{gap:?}");
    }
}

/// Two segments that were sent with a lost one are no third duplicate, and nothing follows them.
#[test]
fn the_first_of_three_is_sent_again_a_quarter_of_a_round_trip_after_its_answer_was_due() {
    let mut pair = known();
    let start = pair.now;
    lose_nth(&mut pair, &[1]);
    pair.write(A, &pattern(3 * 1448)).unwrap();
    pair.run(ms(10));
    let sent = sent(&mut pair, start);
    assert_eq!(sent[3..], [(Duration::from_micros(2500), 0, 1448)], "{sent:?}");
    assert_eq!(pair.read(B), pattern(3 * 1448));
    assert_eq!((pair.a.send_queue(), pair.a.cwnd()), (0, 3 * 1448 * 7 / 10), "it was a loss (RFC 9438 s4.6)");
}

/// RFC 8985 s6.2 step 4: what is said to have come twice was no loss, and the next one is waited for longer.
#[test]
fn what_came_twice_widens_the_reordering_window() {
    let mut pair = known();
    for again in [1, 1, 1] {
        let mut is_first = true;
        pair.fate = Box::new(move |packet, latency| {
            let is_late = packet.from == A && !packet.payload.is_empty() && core::mem::take(&mut is_first);
            vec![if is_late { latency + Duration::from_micros(700) } else { latency }]
        });
        pair.write(A, &pattern(3 * 1448)).unwrap();
        pair.run(ms(20));
        assert_eq!(pair.read(B), pattern(3 * 1448));
        assert_eq!(pair.a.counters().retransmissions, again, "0.7 ms are more than a quarter of a round trip, and less than two");
    }
}

/// What arrives in another order, by less than that, is sent once.
#[test]
fn a_little_reordering_loses_nothing() {
    let mut pair = known();
    let mut count = 0;
    pair.fate = Box::new(move |packet, latency| {
        count += usize::from(packet.from == A && !packet.payload.is_empty());
        vec![if packet.from == A && count % 3 == 0 { latency + Duration::from_micros(300) } else { latency }]
    });
    let cwnd = pair.a.cwnd();
    for _ in 0..200 {
        pair.write(A, &pattern(500)).unwrap();
        pair.run(Duration::from_micros(200));
    }
    pair.settle();
    assert_eq!(pair.a.counters().retransmissions, 0);
    assert!(pair.a.cwnd() >= cwnd);
}
