use core::time::Duration;

use super::pair::Side::{A, B};
use super::pair::{Pair, ms, pattern};
use crate::error::Error;
use crate::tcp::{Config, Keepalive, RxPayload, State};
use crate::wire::tcp::Flags;

/// A pair whose quick acknowledgments at the start are used up.
fn settled() -> Pair {
    let mut pair = Pair::plain();
    for _ in 0..20 {
        pair.write(A, &pattern(1448)).unwrap();
        pair.run(ms(100));
        pair.read(B);
    }
    pair.sent(A);
    pair.sent(B);
    pair
}

#[test]
fn the_first_acknowledgments_are_quick_and_later_ones_wait() {
    let mut pair = Pair::plain();
    pair.write(A, b"first").unwrap();
    pair.settle();
    assert_eq!(pair.sent(B).len(), 1, "at once");

    let mut pair = settled();
    pair.write(A, b"later").unwrap();
    let start = pair.now;
    pair.settle();
    assert_eq!(pair.sent(B).len(), 0);
    pair.run(ms(100));
    let acks = pair.sent(B);
    assert_eq!(acks.len(), 1);
    assert_eq!(acks[0].sent.since(start), ms(41), "40 ms after the arrival");
}

#[test]
fn every_second_full_segment_is_acknowledged_at_once() {
    let mut pair = settled();
    pair.write(A, &pattern(1448 * 4)).unwrap();
    pair.settle();
    assert_eq!(pair.sent(B).len(), 2);
}

#[test]
fn an_answer_carries_the_acknowledgment() {
    let mut pair = settled();
    for segments in [2, 1] {
        // Nobody can know of the first question that it will be answered.
        pair.write(A, b"question").unwrap();
        pair.settle();
        pair.read(B);
        pair.settle();
        pair.write(B, b"answer").unwrap();
        pair.settle();
        assert_eq!(pair.sent(B).len(), segments);
        assert_eq!(pair.a.send_queue(), 0);
    }
}

/// asyncio's test_sendfile, with a send buffer of 4 KiB: each buffer took a delayed acknowledgment's 40 ms.
#[test]
fn a_reader_that_never_answers_acknowledges_what_it_read_at_once() {
    let small = Config { sndbuf: Some(2048), ..Config::default() };
    let mut pair = Pair::open(&small, &Config::default());
    let (data, start) = (pattern(400_000), pair.now);
    let (mut written, mut read) = (0, 0);
    while read < data.len() {
        written += pair.write(A, &data[written..]).unwrap_or(0);
        pair.settle();
        let got = pair.read(B).len();
        pair.settle();
        read += got;
        if got == 0 {
            pair.run(ms(1));
        }
    }
    let took = pair.now.since(start);
    assert!(took < ms(500), "{took:?}: the pair takes 1 ms for each buffer, and delayed acknowledgments 40");
}

/// Small writes one way, Nagle's algorithm on: each is on its way as soon as the one before has been read, from the first one on.
#[test]
fn small_writes_one_way_wait_for_nothing_but_the_reader() {
    let mut pair = Pair::plain();
    for n in 0..100 {
        pair.write(A, b"8 bytes.").unwrap();
        pair.settle();
        assert_eq!(pair.read(B), b"8 bytes.", "the {n}th was held");
        pair.settle();
        assert!(!pair.a.is_held() && pair.a.send_queue() == 0, "the {n}th is not acknowledged");
        pair.run(ms(1));
    }
}

/// What waits for the peer is told apart from what waits for the program.
#[test]
fn what_is_held() {
    let mut pair = settled();
    pair.write(A, b"one").unwrap();
    pair.transmit();
    assert!(!pair.a.is_held());
    pair.write(A, b"two").unwrap();
    pair.transmit();
    assert!(pair.a.is_held(), "Nagle's algorithm");
    pair.run(ms(100));
    assert!(!pair.a.is_held());
    pair.write_more(A, b"three", true).unwrap();
    pair.transmit();
    assert!(!pair.a.is_held(), "a cork");
    pair.write(A, &vec![0; 200_000]).unwrap();
    pair.settle();
    assert!(pair.a.is_held(), "a window");
    assert!(Pair::new(&Config::default(), &Config::default()).a.is_held(), "a handshake");
}

#[test]
fn quickack() {
    let mut pair = settled();
    let now = pair.now;
    pair.side(B).configure(now, |config| config.quickack = true);
    pair.settle();
    pair.sent(B);
    pair.write(A, b"x").unwrap();
    pair.settle();
    assert_eq!(pair.sent(B).len(), 1);
}

#[test]
fn nagle_holds_a_second_partial_segment() {
    let mut pair = settled();
    pair.write(A, b"one").unwrap();
    pair.transmit();
    pair.write(A, b"two").unwrap();
    pair.write(A, b"three").unwrap();
    pair.transmit();
    assert_eq!(pair.sent(A).len(), 1);
    pair.run(ms(100));
    let sent = pair.sent(A);
    assert_eq!(sent[0].payload, b"twothree", "together, when the first was acknowledged");
    // Minshall: a partial segment after full ones needn't wait.
    pair.write(A, &pattern(1448 + 10)).unwrap();
    pair.transmit();
    assert_eq!(pair.sent(A).len(), 2);
}

#[test]
fn nodelay_sends_at_once() {
    let mut pair = settled();
    let now = pair.now;
    pair.a.configure(now, |config| config.nodelay = true);
    for text in [b"one", b"two"] {
        pair.write(A, text).unwrap();
        pair.transmit();
    }
    assert_eq!(pair.sent(A).len(), 2);
}

#[test]
fn a_cork_holds_partial_segments_until_it_is_pulled() {
    let mut pair = settled();
    let now = pair.now;
    pair.a.configure(now, |config| config.cork = true);
    pair.write(A, &pattern(1448 + 100)).unwrap();
    pair.transmit();
    assert_eq!(pair.sent(A).len(), 1, "only the full one");
    let now = pair.now;
    pair.a.configure(now, |config| config.cork = false);
    pair.transmit();
    assert_eq!(pair.sent(A)[0].payload.len(), 100);
}

#[test]
fn a_cork_gives_way_after_200_ms() {
    let mut pair = settled();
    let now = pair.now;
    pair.a.configure(now, |config| config.cork = true);
    pair.write(A, b"stuck").unwrap();
    let start = pair.now;
    pair.run(ms(300));
    let sent = pair.sent(A);
    assert_eq!(sent[0].payload, b"stuck");
    assert_eq!(sent[0].sent.since(start), ms(200));
}

#[test]
fn more_holds_until_the_next_write_and_fin_pulls_any_cork() {
    let mut pair = settled();
    pair.write_more(A, b"head", true).unwrap();
    pair.transmit();
    assert_eq!(pair.sent(A).len(), 0);
    pair.write(A, b"body").unwrap();
    pair.transmit();
    assert_eq!(pair.sent(A)[0].payload, b"headbody");
    pair.write_more(A, b"tail", true).unwrap();
    pair.shutdown(A);
    pair.transmit();
    // Nothing can follow an end: it is pushed, whatever was said before (RFC 9293 s3.9.1.2).
    let sent = &pair.sent(A)[0];
    assert_eq!((sent.payload.as_slice(), sent.header.flags), (b"tail".as_slice(), Flags::ACK | Flags::PSH | Flags::FIN));
}

fn keepalive() -> Config {
    let keepalive = Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(2), count: 3 };
    Config { keepalive: Some(keepalive), ..Config::default() }
}

#[test]
fn keepalive_probes_are_answered() {
    let mut pair = Pair::open(&keepalive(), &Config::default());
    pair.run(Duration::from_secs(100));
    assert_eq!(pair.state(A), State::Established);
    let probes = pair.sent(A).len();
    assert!((8..=10).contains(&probes), "{probes}");
    assert_eq!(pair.sent(B).len(), probes);
}

/// Found by the simulator (two ends with one keepalive time, and a send queue of four frames): an answer that rode on a probe was none,
/// since whoever gets a probe drops it.
#[test]
fn a_probe_is_no_answer_to_a_probe() {
    let mut pair = Pair::open(&keepalive(), &keepalive());
    let at = pair.now + Duration::from_secs(11);
    // B's probe is due, and waits for the device, when A's arrives.
    pair.side(B).on_timer(at);
    pair.a.on_timer(at);
    let mut probe = None;
    pair.a.poll_transmit(at, &mut |segment| {
        probe = Some(segment.header);
        Ok(())
    });
    let probe = probe.expect("A probes");
    pair.side(B).on_segment(at, &probe, RxPayload::EMPTY);
    let mut sent = Vec::new();
    while pair.side(B).poll_transmit(at, &mut |segment| {
        sent.push(segment.header.seq);
        Ok(())
    }) {}
    assert!(sent.len() == 2 && sent[0] + 1 == sent[1], "{sent:?}");
}

#[test]
fn keepalive_notices_a_dead_peer() {
    let mut pair = Pair::open(&keepalive(), &Config::default());
    pair.lose(|_| true);
    let start = pair.now;
    let end = start + Duration::from_secs(100);
    assert!(pair.run_until(end, |pair| pair.state(A) == State::Closed));
    assert!(pair.now.since(start) >= Duration::from_millis(15_990) && pair.now.since(start) <= Duration::from_secs(17));
    assert_eq!(pair.read_some(A, 1), Err(Error::TimedOut));
}

#[test]
fn keepalive_can_be_switched_on_and_off_later() {
    let mut pair = Pair::plain();
    let now = pair.now;
    pair.a.configure(now, |config| *config = keepalive());
    assert!(pair.a.deadline().is_some_and(|at| at <= now + Duration::from_secs(10)));
    pair.a.configure(now, |config| config.keepalive = None);
    pair.settle();
    pair.run(ms(2000));
    assert_eq!(pair.a.deadline(), None);
}
