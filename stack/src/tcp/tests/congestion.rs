//! Controllers in connections: which one it is, what it is told, and what it holds back.

use core::time::Duration;

use super::pair::Side::{A, B};
use super::pair::{Packet, Pair, ms, pattern};
use crate::tcp::Config;
use crate::tcp::congestion::Algorithm;

const SEGMENT: usize = 1448;

fn with(congestion: Algorithm) -> Config {
    Config { congestion, ..Config::default() }
}

/// A has a window of some fifty segments, all of it acknowledged.
fn warm(config: &Config) -> Pair {
    let mut pair = Pair::open(config, &Config::default());
    let data = pattern(200_000);
    assert_eq!(pair.transfer(A, &data), data);
    pair.settle();
    pair
}

/// RFC 9438 s4.6, RFC 5681 s3.1: what a loss leaves of a flight, once it is recovered.
#[test]
fn a_loss_leaves_what_the_controller_says() {
    for (congestion, tenths) in [(Algorithm::Cubic, 7), (Algorithm::Reno, 5), (Algorithm::Dctcp, 5)] {
        let mut pair = warm(&with(congestion));
        let mut count = 0;
        pair.lose(move |packet: &Packet| {
            count += usize::from(packet.from == A && !packet.payload.is_empty());
            packet.from == A && count == 1
        });
        let flight = 20 * SEGMENT;
        pair.write(A, &pattern(flight)).unwrap();
        pair.settle();
        assert_eq!((pair.read(B).len(), pair.a.counters().retransmissions), (flight, 1));
        let (cwnd, wanted) = (pair.a.cwnd(), flight * tenths / 10);
        assert!(cwnd.abs_diff(wanted) <= SEGMENT, "{congestion:?}: {cwnd}, and {wanted} are wanted");
        let details = pair.a.details(pair.now);
        assert_eq!((details.congestion, details.congestion_state, details.ssthresh), (congestion, 0, Some(wanted)));
    }
}

/// `enum tcp_ca_state`, what was reported, and what counts as lost.
#[test]
fn what_is_told_of_a_recovery() {
    let mut pair = warm(&Config::default());
    let mut count = 0;
    pair.fate = Box::new(move |packet, latency| {
        let is_data = packet.from == A && !packet.payload.is_empty();
        count += u64::from(is_data);
        match is_data {
            true if count <= 2 || count > 12 => vec![],
            true => vec![latency + Duration::from_micros(10 * count)],
            false => vec![latency],
        }
    });
    pair.write(A, &pattern(12 * SEGMENT)).unwrap();
    let mut seen = Vec::new();
    let end = pair.now + ms(3);
    pair.run_until(end, |pair| {
        let details = pair.a.details(pair.now);
        let told = (details.congestion_state, details.sacked / SEGMENT, details.lost / SEGMENT);
        if seen.last() != Some(&told) {
            seen.push(told);
        }
        false
    });
    assert_eq!(seen[..3], [(0, 0, 0), (1, 1, 0), (1, 2, 0)], "{seen:?}");
    assert!(seen.iter().any(|&(state, sacked, _)| state == 3 && sacked == 10), "{seen:?}");
    assert!(seen.iter().all(|&(state, _, lost)| lost == 0 || state == 3), "{seen:?}");
}

/// tcp(7): the program may choose another controller, which goes on from where the last one was.
#[test]
fn another_controller_takes_the_window_over() {
    let mut pair = warm(&with(Algorithm::Reno));
    let cwnd = pair.a.cwnd();
    for congestion in [Algorithm::Cubic, Algorithm::Dctcp, Algorithm::Bbr, Algorithm::Reno] {
        let now = pair.now;
        pair.a.configure(now, |config| config.congestion = congestion);
        assert_eq!((pair.a.cwnd(), pair.a.details(now).congestion), (cwnd, congestion));
    }
    let data = pattern(100_000);
    assert_eq!(pair.transfer(A, &data), data);
}

/// With nothing in flight, little is kept; the window is what it was, and after a pause the restart window (RFC 5681 s4.1).
#[test]
fn a_window_outlasts_a_rest() {
    for congestion in Algorithm::ALL {
        let mut pair = warm(&with(congestion));
        let cwnd = pair.a.cwnd();
        pair.run(ms(5000));
        assert!(!pair.a.holds_memory());
        assert_eq!((pair.a.cwnd(), pair.a.details(pair.now).congestion), (cwnd, congestion));
        pair.write(A, &pattern(60 * SEGMENT)).unwrap();
        pair.transmit();
        let sent = pair.sent(A).iter().filter(|packet| packet.sent == pair.now && !packet.payload.is_empty()).count();
        if congestion != Algorithm::Bbr {
            assert_eq!(sent, 10, "{congestion:?}");
        }
        pair.settle();
        assert!(!pair.read(B).is_empty());
    }
}

/// draft-ietf-ccwg-bbr s5.6.2: BBR's segments leave at its pace, and not as acknowledgments come; what the path carries is found all the same.
#[test]
fn a_pace_is_kept() {
    let mut pair = Pair::open(&with(Algorithm::Bbr), &Config::default());
    pair.latency = ms(20);
    let data = pattern(2_000_000);
    assert_eq!(pair.transfer(A, &data), data);
    let rate = pair.a.details(pair.now).pacing_rate.expect("BBR has one");
    assert!(rate > 100_000, "{rate} bytes per second");
    let sent = pair.sent(A);
    let mut bursts = vec![0; 0];
    let mut last = None;
    for packet in sent.iter().filter(|packet| !packet.payload.is_empty()) {
        if last.replace(packet.sent) == Some(packet.sent) {
            *bursts.last_mut().unwrap() += packet.payload.len();
        } else {
            bursts.push(packet.payload.len());
        }
    }
    assert!(bursts.len() > 20, "{} bursts", bursts.len());
    assert_eq!(pair.a.counters().retransmissions, 0);
}

/// draft-ietf-ccwg-bbr s5.6.3: what the device cuts is no longer than BBR's quantum, of a millisecond at its pace.
#[test]
fn a_long_segment_is_no_longer_than_the_quantum() {
    let config = Config { tso_max: 64_000, gather_max: 64, ..with(Algorithm::Bbr) };
    let mut pair = Pair::open(&config, &Config::default());
    pair.latency = ms(20);
    // 1.4 megabytes per second.
    let mut free_at = pair.now;
    pair.fate = Box::new(move |packet, latency| {
        if packet.from == B {
            return vec![latency];
        }
        free_at = free_at.max(packet.sent) + Duration::from_nanos(700 * packet.payload.len() as u64);
        vec![latency + free_at.since(packet.sent)]
    });
    let data = pattern(3_000_000);
    assert_eq!(pair.transfer(A, &data), data);
    assert!(pair.cuts > 100, "{} long segments", pair.cuts);
    let sent = pair.sent(A);
    let mut bursts = std::collections::BTreeMap::<_, usize>::new();
    for packet in &sent[sent.len() / 2..] {
        *bursts.entry(packet.sent).or_default() += packet.payload.len();
    }
    // (A pace that was missed by two milliseconds is made up for.)
    let longest = bursts.into_values().max().unwrap_or(0);
    assert!(longest <= 6 * SEGMENT, "{longest} bytes at once");
}

/// Linux's tcpi_delivery_rate: what the path delivers, and whether that was for want of more to send.
#[test]
fn the_delivery_rate_is_that_of_the_path() {
    let mut pair = Pair::open(&with(Algorithm::Reno), &Config { delayed_ack: ms(1), ..Config::default() });
    // A megabyte and a half per second: a segment a millisecond.
    let mut free_at = pair.now;
    pair.fate = Box::new(move |packet, latency| {
        if packet.from == B {
            return vec![latency];
        }
        free_at = free_at.max(packet.sent) + ms(1);
        vec![latency + free_at.since(packet.sent)]
    });
    let data = pattern(400_000);
    assert_eq!(pair.transfer(A, &data), data);
    let (rate, _) = pair.a.details(pair.now).delivery_rate;
    let expected = SEGMENT as u64 * 1000;
    assert!(rate.abs_diff(expected) < expected / 10, "{rate} bytes per second");
    pair.settle();
    assert_eq!(pair.a.details(pair.now).delivered, 400_000);
    assert!(pair.a.details(pair.now).rtt_min.is_some_and(|rtt| rtt >= ms(2) && rtt < ms(4)));
}
