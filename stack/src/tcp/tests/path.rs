//! What a path does to a connection: a smaller MTU, told or not, and a carrier that comes back.

use core::time::Duration;

use super::pair::Side::{A, B};
use super::pair::{Packet, Pair, ms, pattern};
use crate::error::Error;
use crate::tcp::{Config, State};

/// A path that loses packets longer than `mtu`, in silence.
fn narrow(pair: &mut Pair, mtu: usize) {
    pair.lose(move |packet| 20 + packet.header.header_len() + packet.payload.len() > mtu);
}

fn longest(packets: &[Packet]) -> usize {
    packets.iter().map(|p| p.payload.len()).max().unwrap_or(0)
}

#[test]
fn a_smaller_path_takes_effect_at_once_and_is_no_congestion() {
    let mut pair = Pair::plain();
    let data = pattern(14_480);
    narrow(&mut pair, 1000);
    pair.write(A, &data).unwrap();
    pair.run(ms(2));
    let (cwnd, first) = (pair.a.cwnd(), pair.sent(A)[0].clone());
    assert!(pair.a.believes_path_mtu(first.header.seq, 1500, 1000));
    let now = pair.now;
    pair.a.on_packet_too_big(now, first.header.seq, 1000);
    // Well before any timeout.
    pair.run(ms(20));
    assert_eq!(pair.read(B), data);
    assert!(pair.a.cwnd() >= cwnd, "a smaller path is no congestion");
    assert_eq!(pair.a.mss(), 948);
}

/// RFC 1191 s6.4: a message makes the connection send again that it is about, if that sent what is too long before it knew.
#[test]
fn what_another_connection_was_told_sends_nothing_again() {
    let mut pair = Pair::plain();
    let data = pattern(14_480);
    narrow(&mut pair, 1000);
    pair.write(A, &data).unwrap();
    pair.run(ms(2));
    let (first, resent) = (pair.sent(A)[0].header.seq, pair.a.counters().retransmissions);
    let now = pair.now;
    pair.a.set_path_mtu(now, 1000);
    // (Not for so long that the end would be probed.)
    pair.run(ms(2));
    assert_eq!((pair.a.mss(), pair.a.counters().retransmissions), (948, resent));
    // Its own message comes, and another of a burst.
    let now = pair.now;
    pair.a.on_packet_too_big(now, first, 1000);
    pair.run(ms(20));
    assert_eq!(pair.read(B), data);
    let resent = pair.a.counters().retransmissions;
    pair.lose(|packet| packet.from == B);
    pair.write(A, &pattern(2000)).unwrap();
    pair.run(ms(2));
    let (now, seq) = (pair.now, first + data.len());
    assert!(pair.a.believes_path_mtu(seq, 1500, 1000));
    pair.a.on_packet_too_big(now, seq, 1000);
    pair.run(ms(1));
    assert_eq!(pair.a.counters().retransmissions, resent, "what was sent since is as short as the path wants it");
}

/// Found by the simulator's sleepers: nobody wakes who sleeps for an acknowledgment that bytes do not wait for.
#[test]
fn what_a_narrow_path_makes_a_full_segment_waits_no_longer() {
    let mut pair = Pair::open(&Config { cork: true, timestamps: false, ..Config::default() }, &Config::default());
    pair.write(A, &pattern(604)).unwrap();
    pair.transmit();
    assert!(pair.sent(A).iter().all(|packet| packet.payload.is_empty()), "a cork holds it");
    let now = pair.now;
    pair.a.set_path_mtu(now, 576);
    pair.transmit();
    let sent: Vec<_> = pair.sent(A).iter().map(|packet| packet.payload.len()).filter(|&len| len > 0).collect();
    assert_eq!(sent, [536]);
}

#[test]
fn only_what_is_in_flight_and_was_longer_is_believed() {
    let mut pair = Pair::plain();
    pair.lose(|packet| packet.from == B);
    pair.write(A, &pattern(5000)).unwrap();
    pair.run(ms(2));
    let first = pair.sent(A)[0].header.seq;
    assert!(pair.a.believes_path_mtu(first, 1500, 1499));
    assert!(!pair.a.believes_path_mtu(first, 1500, 1500), "it fits");
    assert!(pair.a.believes_path_mtu(first + 4999, 1500, 552));
    assert!(!pair.a.believes_path_mtu(first - 1, 1500, 552), "acknowledged long ago");
    assert!(!pair.a.believes_path_mtu(first + 5000, 1500, 552), "never sent");
    let now = pair.now;
    pair.a.set_path_mtu(now, 68);
    assert_eq!(pair.a.mss(), 552 - 40 - 12, "no report goes below the floor");
    pair.a.set_path_mtu(now, 1400);
    assert_eq!(pair.a.mss(), 500, "nor does any raise it");
}

#[test]
fn a_smaller_path_is_believed_for_ten_minutes() {
    let mut pair = Pair::plain();
    let now = pair.now;
    pair.a.set_path_mtu(now, 1000);
    pair.run(Duration::from_secs(599));
    assert_eq!(pair.a.mss(), 948);
    pair.run(Duration::from_secs(2));
    assert_eq!(pair.a.mss(), 1448);
}

#[test]
fn a_black_hole_is_found() {
    for mtu in [1400, 1100, 600] {
        let mut pair = Pair::plain();
        narrow(&mut pair, mtu);
        let data = pattern(20_000);
        pair.write(A, &data).unwrap();
        pair.run(ms(15_000));
        assert_eq!(pair.read(B), data, "through a path of {mtu}");
        assert!(usize::from(pair.a.mss()) + 52 <= mtu);
    }
}

#[test]
fn a_segment_that_is_lost_again_and_again_is_no_black_hole() {
    let mut pair = Pair::plain();
    let (mut first, mut left) = (None, 4);
    pair.lose(move |packet| {
        let is_data = packet.from == A && !packet.payload.is_empty();
        let is_lost = is_data && left > 0 && *first.get_or_insert(packet.header.seq) == packet.header.seq;
        left -= i32::from(is_lost);
        is_lost
    });
    let data = pattern(20_000);
    pair.write(A, &data).unwrap();
    pair.run(ms(15_000));
    assert_eq!(pair.read(B), data);
    assert_eq!(pair.a.mss(), 1448, "others as long arrived");
}

#[test]
fn without_detection_a_black_hole_stays_one() {
    let config = Config { black_hole_detection: false, ..Config::default() };
    let mut pair = Pair::open(&config, &config);
    narrow(&mut pair, 1400);
    pair.write(A, &pattern(20_000)).unwrap();
    pair.run(ms(15_000));
    assert_eq!(pair.read(B), b"");
}

#[test]
fn short_segments_that_vanish_are_no_sign_of_a_black_hole() {
    let mut pair = Pair::plain();
    pair.lose(|_| true);
    pair.write(A, &[1; 1000]).unwrap();
    pair.run(ms(15_000));
    assert_eq!(pair.a.mss(), 1448);
}

#[test]
fn what_timed_out_is_sent_again_when_the_carrier_comes_back() {
    let mut pair = Pair::plain();
    pair.lose(|_| true);
    pair.write(A, b"waits").unwrap();
    // Timeouts at 0.2, 0.6, 1.4 and 3 s; the next one would come at 6.2 s.
    pair.run(ms(3_500));
    pair.lose_nothing();
    pair.a.on_link_up();
    pair.run(ms(10));
    assert_eq!(pair.read(B), b"waits");
    pair.sent(A);
    pair.a.on_link_up();
    pair.run(ms(10));
    assert_eq!(pair.sent(A).len(), 0, "nothing waits any more");
}

#[test]
fn an_errors_memory_ends_with_progress() {
    let config = Config { retries: 2, ..Config::default() };
    let mut pair = Pair::open(&config, &config);
    pair.lose(|_| true);
    pair.write(A, b"x").unwrap();
    pair.run(ms(1));
    let seq = pair.sent(A)[0].header.seq;
    pair.a.on_unreachable(seq, false);
    assert_eq!(pair.state(A), State::Established, "a hint, no more (RFC 5927 s5.2)");
    pair.lose_nothing();
    pair.run(ms(1000));
    assert_eq!(pair.read(B), b"x");
    pair.lose(|_| true);
    pair.write(A, b"y").unwrap();
    pair.run(ms(5000));
    assert_eq!(pair.read_some(A, 1), Err(Error::TimedOut), "the path had worked since the hint");
}

#[test]
fn segments_shrink_on_the_wire() {
    let mut pair = Pair::plain();
    let now = pair.now;
    pair.a.set_path_mtu(now, 576);
    let data = pattern(10_000);
    assert_eq!(pair.transfer(A, &data), data);
    assert_eq!(longest(&pair.sent(A)), 524);
}
