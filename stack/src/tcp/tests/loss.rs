use core::time::Duration;

use super::pair::Side::{A, B};
use super::pair::{MS, Packet, Pair, ms, pattern};
use crate::error::Error;
use crate::tcp::{Config, State};
use crate::wire::tcp::{Flags, Header, SackBlock, SackBlocks};

fn no_sack() -> Config {
    Config { sack: false, ..Config::default() }
}

/// Loses the `nth` segments with payload that A sends, counted from 1.
fn lose_nth(pair: &mut Pair, nth: &'static [usize]) {
    let mut count = 0;
    pair.lose(move |packet: &Packet| {
        count += usize::from(packet.from == A && !packet.payload.is_empty());
        packet.from == A && !packet.payload.is_empty() && nth.contains(&count)
    });
}

#[test]
fn a_lost_last_segment_is_sent_again_by_the_timer() {
    let mut pair = Pair::plain();
    lose_nth(&mut pair, &[1]);
    pair.write(A, b"alone").unwrap();
    let start = pair.now;
    pair.run(ms(150));
    assert_eq!(pair.read(B), b"");
    pair.run(ms(100));
    assert_eq!(pair.read(B), b"alone");
    let sent = pair.sent(A);
    let wait = sent[1].sent.since(start);
    assert!(wait >= ms(200) && wait < ms(220), "RTO is 200 ms and the round trip: {wait:?}");
    assert_eq!((pair.a.counters().retransmissions, pair.a.counters().retransmitted_bytes), (1, 5));
    assert_eq!(pair.a.cwnd(), 14_480, "nothing tells yet whether it was lost");
}

/// Without SACK, it is a timeout at once.
#[test]
fn a_timeout_leaves_a_window_of_one_segment() {
    let mut pair = Pair::open(&no_sack(), &no_sack());
    lose_nth(&mut pair, &[1]);
    pair.write(A, b"alone").unwrap();
    pair.run(ms(250));
    assert_eq!(pair.read(B), b"alone");
    assert_eq!(pair.a.cwnd(), 2 * 1448 - 1448 + 5, "one segment, grown by what was acknowledged");
}

#[test]
fn the_timer_backs_off_and_gives_up() {
    let config = Config { retries: 4, ..Config::default() };
    let mut pair = Pair::open(&config, &config);
    pair.lose(|_| true);
    pair.write(A, b"x").unwrap();
    pair.run(Duration::from_secs(60));
    let times: Vec<_> = pair.sent(A).iter().map(|p| p.sent).collect();
    assert_eq!(times.len(), 6, "once, as a probe, and four times again");
    let gaps: Vec<_> = times.windows(2).map(|w| w[1].since(w[0])).collect();
    assert_eq!(gaps[0], gaps[1], "RFC 8985 s7.3: after the probe the timer begins anew");
    for pair in gaps[1..].windows(2) {
        assert_eq!(pair[1], pair[0] * 2);
    }
    assert_eq!(pair.state(A), State::Closed);
    assert_eq!(pair.read_some(A, 1), Err(Error::TimedOut));
}

#[test]
fn user_timeout_ends_it_sooner() {
    let config = Config { user_timeout: Some(ms(1000)), ..Config::default() };
    let mut pair = Pair::open(&config, &config);
    pair.lose(|_| true);
    pair.write(A, b"x").unwrap();
    let start = pair.now;
    let end = start + Duration::from_secs(100);
    assert!(pair.run_until(end, |pair| pair.state(A) == State::Closed));
    let took = pair.now.since(start);
    assert!(took >= ms(1000) && took <= ms(1010), "{took:?}");
}

#[test]
fn three_duplicates_bring_a_fast_retransmission() {
    for config in [Config::default(), no_sack()] {
        let mut pair = Pair::open(&config, &config);
        lose_nth(&mut pair, &[2]);
        let data = pattern(14_000);
        pair.write(A, &data).unwrap();
        let start = pair.now;
        pair.settle();
        assert_eq!(pair.read(B), data, "without any timer; SACK: {}", config.sack);
        assert!(pair.now.since(start) <= ms(6));
        assert_eq!(pair.a.counters().retransmissions, 1);
        assert!(pair.a.cwnd() < 14_480, "halved: {}", pair.a.cwnd());
    }
}

/// RFC 6582 s3.2 step 2: "If the Cumulative Acknowledgment field doesn't cover more than recover" the duplicates may answer what was sent twice.
#[test]
fn without_sack_duplicates_of_what_ended_a_recovery_begin_none() {
    for config in [Config::default(), no_sack()] {
        let mut pair = Pair::open(&config, &config);
        pair.lose(|packet| packet.from == B);
        pair.write(A, &pattern(1448 * 3)).unwrap();
        pair.run(ms(150));
        pair.lose_nothing();
        pair.run(ms(100));
        let again = if config.sack { 2 } else { 1 };
        assert_eq!(pair.a.counters().retransmissions, again, "the probe's, and the timer's");
        let ended = *pair.sent(B).iter().rfind(|packet| packet.payload.is_empty()).map(|packet| &packet.header).unwrap();
        pair.lose(|packet| packet.from == A);
        pair.write(A, &pattern(1448 * 3)).unwrap();
        pair.transmit();
        for _ in 0..5 {
            pair.deliver(A, &ended, &[]);
        }
        pair.transmit();
        assert_eq!(pair.a.counters().retransmissions, again, "SACK: {}", config.sack);
    }
}

/// RFC 6582 s3.2 step 3: a partial acknowledgment tells of the first segment that is not acknowledged. Where that is a short one, and the last that was sent before
/// the recovery, what was sent since then is not lost with it.
#[test]
fn what_is_sent_in_a_recovery_is_not_lost_with_a_short_segment_before_it() {
    for sack in [true, false] {
        let config = Config { nodelay: true, sack, ..Config::default() };
        let mut pair = Pair::open(&config, &config);
        pair.write(A, b"x").unwrap();
        pair.settle();
        let acknowledgment = pair.sent(B).iter().rfind(|packet| packet.payload.is_empty()).unwrap().header;
        pair.lose(|packet| packet.from == A);
        pair.write(A, &pattern(1448 * 6 + 100)).unwrap();
        pair.transmit();
        let first = acknowledgment.ack;
        for segments in 2..6 {
            let mut duplicate = acknowledgment;
            if sack {
                let block = SackBlock { start: first + 1448, end: first + 1448 * segments };
                duplicate.options.sack = SackBlocks::default();
                duplicate.options.sack.push(block);
            }
            pair.deliver(A, &duplicate, &[]);
        }
        pair.transmit();
        let partial = Header { ack: first + 1448 * 6, ..acknowledgment };
        pair.deliver(A, &partial, &[]);
        pair.transmit();
        let resent = pair.a.counters();
        assert_eq!(resent.retransmitted_bytes % 1448, 100, "the short one; SACK: {sack}");
        pair.write(A, &pattern(1448)).unwrap();
        pair.transmit();
        assert_eq!(pair.sent(A).last().map(|packet| packet.payload.len()), Some(1448), "SACK: {sack}");
        pair.deliver(A, &partial, &[]);
        pair.transmit();
        assert_eq!(pair.a.counters().retransmitted_bytes, resent.retransmitted_bytes, "SACK: {sack}");
    }
}

#[test]
fn several_losses_in_one_window_need_no_timer() {
    for config in [Config::default(), no_sack()] {
        let mut pair = Pair::open(&config, &config);
        let warm = pattern(200_000);
        assert_eq!(pair.transfer(A, &warm), warm);
        pair.run(ms(50));
        lose_nth(&mut pair, &[2, 5, 6, 9]);
        let data = pattern(60_000);
        let start = pair.now;
        assert_eq!(pair.transfer(A, &data), data);
        let took = pair.now.since(start);
        assert!(took < ms(60), "SACK {}: {took:?}", config.sack);
        assert_eq!(pair.a.counters().retransmissions, 4, "SACK: {}", config.sack);
    }
}

#[test]
fn sack_names_what_arrived_most_recent_first() {
    let mut pair = Pair::plain();
    lose_nth(&mut pair, &[1, 3, 5]);
    pair.write(A, &pattern(1448 * 6)).unwrap();
    pair.transmit();
    let first = pair.sent(A)[0].header.seq;
    pair.settle();
    let acks = pair.sent(B);
    let blocks: Vec<_> =
        acks[2].header.options.sack.as_slice().iter().map(|b| (b.start.since(first) / 1448, b.end.since(first) / 1448)).collect();
    assert_eq!(blocks, [(5, 6), (3, 4), (1, 2)]);
    assert_eq!(pair.read(B), pattern(1448 * 6));
}

#[test]
fn a_duplicate_is_reported_once() {
    let mut pair = Pair::plain();
    pair.fate = Box::new(|packet, latency| if packet.payload.is_empty() { vec![latency] } else { vec![latency, latency + MS] });
    pair.write(A, b"twice").unwrap();
    pair.settle();
    assert_eq!(pair.read(B), b"twice");
    let reports = pair.sent(B).iter().filter(|p| !p.header.options.sack.is_empty()).count();
    assert_eq!(reports, 1, "D-SACK");
    assert_eq!(pair.a.counters().retransmissions, 0);
}

/// RFC 2883 s4.2.2, example 5: what fills a gap repeats what was held behind it, and the report names the first of that.
#[test]
fn what_fills_a_gap_and_was_held_in_part_is_reported() {
    let mut pair = Pair::plain();
    // (What A sends again by itself is not to come before.)
    lose_nth(&mut pair, &[1, 4, 7, 8, 9, 10, 11, 12]);
    let data = pattern(1448 * 6);
    pair.write(A, &data).unwrap();
    pair.transmit();
    let lost = pair.sent(A)[0].header;
    pair.run(ms(10));
    assert_eq!(pair.read(B), b"");
    for (segments, reported) in [(3, vec![(1, 3), (4, 6)]), (6, vec![(0, 3)])] {
        pair.deliver(B, &lost, &data[..1448 * segments]);
        pair.transmit();
        let sent = pair.sent(B);
        let options = sent.last().unwrap().header.options;
        let blocks: Vec<_> =
            options.sack.as_slice().iter().map(|b| (b.start.since(lost.seq) / 1448, b.end.since(lost.seq) / 1448)).collect();
        assert_eq!(blocks, reported);
    }
    assert_eq!(pair.read(B), data);
}

#[test]
fn reordering_by_one_place_retransmits_nothing() {
    let mut pair = Pair::plain();
    let mut count = 0;
    pair.fate = Box::new(move |packet, latency| {
        count += u64::from(packet.from == A);
        let late = if packet.from == A && count % 4 == 0 { 15 } else { 0 };
        vec![latency + Duration::from_nanos(10 * count + late)]
    });
    let data = pattern(500_000);
    assert_eq!(pair.transfer(A, &data), data);
    assert_eq!(pair.a.counters().retransmissions, 0);
}

#[test]
fn lost_acknowledgments_cost_nothing() {
    let mut pair = Pair::plain();
    let mut count = 0;
    pair.lose(move |packet| {
        count += usize::from(packet.from == B);
        packet.from == B && count % 3 == 0
    });
    let data = pattern(300_000);
    assert_eq!(pair.transfer(A, &data), data);
    assert!(pair.a.counters().retransmissions <= 2);
}

#[test]
fn after_an_outage_everything_lost_is_sent_again() {
    for config in [Config::default(), no_sack()] {
        // Two timeouts in a row would make it try shorter segments.
        let config = Config { black_hole_detection: false, ..config };
        let mut pair = Pair::open(&config, &config);
        let data = pattern(14_480);
        pair.lose(|packet| packet.from == A);
        pair.write(A, &data).unwrap();
        pair.run(ms(300));
        pair.lose_nothing();
        pair.run(ms(3000));
        assert_eq!(pair.read(B), data);
        let sent = pair.sent(A).iter().filter(|p| !p.payload.is_empty()).count();
        let probes = usize::from(config.sack);
        assert_eq!(sent, 10 + probes + 1 + 10, "once into the void, a probe and one more, then each once");
        assert_eq!(pair.a.send_queue(), 0);
    }
}

#[test]
fn a_lost_retransmission_is_found_by_the_timer() {
    let mut pair = Pair::plain();
    lose_nth(&mut pair, &[1, 11]);
    let data = pattern(14_480);
    pair.write(A, &data).unwrap();
    pair.run(ms(1000));
    assert_eq!(pair.read(B), data);
}

/// RFC 8985 s6.2: where what was sent later arrives, no timer is needed. (Without SACK nothing says what has arrived.)
#[test]
fn a_lost_retransmission_is_found_by_what_was_sent_later() {
    for config in [Config::default(), no_sack()] {
        let mut pair = Pair::open(&config, &config);
        let (mut first, mut lost) = (None, 0);
        pair.lose(move |packet| {
            let is_first = packet.from == A && !packet.payload.is_empty() && *first.get_or_insert(packet.header.seq) == packet.header.seq;
            lost += usize::from(is_first);
            is_first && lost <= 3
        });
        let data = pattern(300_000);
        let start = pair.now;
        assert_eq!(pair.transfer(A, &data), data);
        let took = pair.now.since(start);
        assert_eq!(took < ms(150), config.sack, "SACK: {}, {took:?}", config.sack);
        assert!(!config.sack || pair.a.counters().retransmissions == 3, "{}", pair.a.counters().retransmissions);
    }
}

/// RFC 5681 s4.3: the loss of a retransmission takes from the window what another loss would.
#[test]
fn a_lost_retransmission_lowers_the_window_once_more() {
    let windows = [1, 2, 3].map(|losses| {
        let mut pair = Pair::plain();
        let (mut first, mut lost) = (None, 0);
        pair.lose(move |packet| {
            let is_first = packet.from == A && !packet.payload.is_empty() && *first.get_or_insert(packet.header.seq) == packet.header.seq;
            lost += usize::from(is_first);
            is_first && lost <= losses
        });
        let data = pattern(60_000);
        pair.write(A, &data).unwrap();
        pair.settle();
        assert_eq!(pair.read(B), data);
        pair.a.cwnd()
    });
    assert!(windows.is_sorted_by(|more, less| more > less), "{windows:?}");
}

#[test]
fn a_peer_that_forgets_what_it_reported_gets_it_again() {
    let mut pair = Pair::plain();
    pair.lose(|_| true);
    pair.write(A, &pattern(1448 * 4)).unwrap();
    pair.transmit();
    let sent = pair.sent(A);
    let una = sent[0].header.seq;
    let mut ack = sent[0].header;
    core::mem::swap(&mut ack.src_port, &mut ack.dst_port);
    (ack.seq, ack.ack, ack.flags) = (sent[0].header.ack, una, Flags::ACK);
    ack.options.timestamps = None;
    // Segments 2 to 4 arrived, then (as if the peer had dropped them) only the first is acknowledged.
    ack.options.sack.push(crate::wire::tcp::SackBlock { start: una + 1448, end: una + 4 * 1448 });
    pair.deliver(A, &ack, &[]);
    pair.transmit();
    ack.options.sack.truncate(0);
    ack.ack = una + 1448;
    pair.deliver(A, &ack, &[]);
    pair.sent(A);
    pair.run(ms(500));
    let again = pair.sent(A);
    assert_eq!(again[0].header.seq, una + 1448);
}

#[test]
fn a_lost_fin_is_sent_again() {
    let mut pair = Pair::plain();
    let mut first = true;
    pair.lose(move |packet| packet.is(Flags::FIN) && core::mem::take(&mut first));
    pair.write(A, b"bye").unwrap();
    pair.transmit();
    pair.shutdown(A);
    pair.run(ms(300));
    assert_eq!(pair.read(B), b"bye");
    assert_eq!(pair.read_some(B, 1), Ok(vec![]));
    assert_eq!((pair.state(A), pair.state(B)), (State::FinWait2, State::CloseWait));
}

/// RFC 3465 s2.3: what is acknowledged after a timeout may have arrived long before, and is good for one segment.
#[test]
fn a_gap_that_is_filled_after_a_timeout_lets_no_burst_go() {
    let mut pair = Pair::open(&no_sack(), &no_sack());
    // The first of ten is lost, and so are the acknowledgments that would tell.
    let mut sent = 0;
    pair.lose(move |packet: &Packet| {
        sent += usize::from(packet.from == A && !packet.payload.is_empty());
        (packet.from == A && sent == 1) || (packet.from == super::pair::Side::B && sent == 10)
    });
    pair.write(A, &pattern(60_000)).unwrap();
    pair.run(ms(190));
    pair.lose_nothing();
    let mss = usize::from(pair.a.mss());
    pair.run_until(pair.now + ms(200), |pair| pair.a.counters().retransmissions > 0 && pair.a.cwnd() > mss);
    assert_eq!(pair.a.cwnd(), 2 * mss, "one segment more for the acknowledgment of ten");
}
