//! Requirements of RFC 9293 that no other story shows (docs/rfc9293.md lists all of them).

use core::time::Duration;

use super::pair::Side::{A, B};
use super::pair::{Conn, OPENING_B, Pair, ms, pattern};
use crate::error::Error;
use crate::flow::Readiness;
use crate::tcp::{Config, Family, Keepalive, State};
use crate::wire::tcp::{Flags, Header, Options};

/// A connection from whose B nothing arrives but what is delivered by hand; and what B's acknowledgments look like.
fn heard_by_hand(config: &Config) -> (Pair, Header) {
    let config = Config { window_scaling: false, timestamps: false, nodelay: true, ..config.clone() };
    let mut pair = Pair::open(&config, &config);
    pair.write(B, b"x").unwrap();
    pair.settle();
    let header = pair.sent(B).pop().unwrap().header;
    pair.lose(|packet| packet.from == B);
    (pair, Header { seq: header.seq + 1, flags: Flags::ACK, ..header })
}

/// MUST-15.
#[test]
fn a_syn_without_an_mss_means_the_least() {
    for (family, mss) in [(Family::V4, 536), (Family::V6, 1220)] {
        let config = Config { family, timestamps: false, ..Config::default() };
        let mut pair = Pair::new(&config, &config);
        pair.transmit();
        let mut syn = pair.sent(A).pop().unwrap().header;
        syn.options = Options::default();
        pair.deliver(B, &syn, &[]);
        pair.transmit();
        let answer = pair.sent(B).pop().unwrap().header;
        pair.deliver(A, &Header { options: Options::default(), ..answer }, &[]);
        pair.settle();
        for side in [A, B] {
            pair.write(side, &pattern(5000)).unwrap();
            pair.settle();
            let longest = pair.sent(side).iter().map(|packet| packet.payload.len()).max();
            assert_eq!(longest, Some(mss), "{family:?}");
        }
    }
}

/// MUST-11: one that was opened actively is refused to its program. (Of one that was opened passively nobody hears: the listener goes on.)
#[test]
fn a_reset_in_syn_received_refuses_an_attempt() {
    let config = Config::default();
    let mut pair = Pair::new(&config, &config);
    pair.b = Some(Conn::connect(pair.now, &config, 80, 40_000, OPENING_B));
    pair.lose(|packet| packet.is(Flags::ACK));
    pair.settle();
    assert_eq!((pair.state(A), pair.state(B)), (State::SynReceived, State::SynReceived));
    let syn = pair.sent(B).into_iter().find(|packet| !packet.is(Flags::ACK)).unwrap().header;
    pair.deliver(A, &Header { flags: Flags::RST, seq: syn.seq + 1, options: Options::default(), ..syn }, &[]);
    assert_eq!((pair.state(A), pair.a.take_error()), (State::Closed, Some(Error::Refused)));
}

/// SHLD-2.
#[test]
fn a_reset_may_say_why() {
    let (mut pair, ack) = heard_by_hand(&Config::default());
    pair.read(A);
    pair.deliver(A, &Header { flags: Flags::RST, ..ack }, b"port closed");
    assert_eq!(pair.state(A), State::Closed);
    assert_eq!(pair.read_some(A, 100), Err(Error::Reset), "and what it says is no part of the stream");
}

/// MUST-66.
#[test]
fn a_shut_window_shuts_out_neither_a_reset_nor_urgent_data() {
    for urgent in [true, false] {
        let receiver = Config { rcvbuf: Some(8000), urgent_waits: true, ..Config::default() };
        let mut pair = Pair::open(&Config::default(), &receiver);
        pair.write(A, &pattern(20_000)).unwrap();
        pair.run(ms(1000));
        let told = pair.sent(B).pop().unwrap().header;
        assert_eq!(told.window, 0);
        pair.side(B).take_edges();
        let header = Header { seq: told.ack, ack: told.seq, urgent: 1, ..pair.sent(A).pop().unwrap().header };
        if urgent {
            pair.deliver(B, &Header { flags: Flags::ACK | Flags::URG, ..header }, b"");
            assert_eq!((pair.side(B).take_edges(), pair.state(B)), (Readiness::PRI, State::Established));
        } else {
            pair.deliver(B, &Header { flags: Flags::RST, ..header }, b"");
            assert_eq!(pair.state(B), State::Closed);
        }
    }
}

/// MUST-34, MUST-35, SHLD-15, SHLD-16.
#[test]
fn a_window_that_shrinks_stops_what_is_new_and_not_what_was_sent() {
    let (mut pair, ack) = heard_by_hand(&Config::default());
    pair.write(A, &pattern(5000)).unwrap();
    pair.transmit();
    let end = pair.sent(A).iter().map(|packet| packet.header.seq + packet.payload.len()).max_by_key(|end| end.since(ack.ack)).unwrap();
    assert_eq!(end.since(ack.ack), 5000);
    pair.deliver(A, &Header { window: 2000, ..ack }, b"");
    pair.write(A, &pattern(5000)).unwrap();
    pair.run(ms(3000));
    let sent = pair.sent(A);
    assert!(sent.iter().all(|packet| (packet.header.seq + packet.payload.len()).le(end)), "nothing new");
    assert!(sent.iter().any(|packet| packet.header.seq == ack.ack && !packet.payload.is_empty()), "the oldest once more");
    // It shrinks to nothing, while something is on its way, and when nothing is.
    for acked in [ack.ack + 2000, end] {
        pair.deliver(A, &Header { ack: acked, window: 0, ..ack }, b"");
        pair.run(ms(30_000));
        let sent = pair.sent(A);
        assert!(sent.iter().any(|packet| packet.header.seq.le(acked)), "the window is asked about");
        assert!(sent.iter().all(|packet| (packet.header.seq + packet.payload.len()).le(end)), "nothing new");
    }
    assert_eq!(pair.state(A), State::Established);
    pair.deliver(A, &Header { ack: end, window: 20_000, ..ack }, b"");
    pair.transmit();
    assert!(pair.sent(A).iter().any(|packet| packet.header.seq == end), "what waited goes on");
}

/// SHLD-11: no less than 100 seconds, and for an orphan neither.
#[test]
fn nobody_is_given_up_within_a_hundred_seconds_unless_that_was_asked_for() {
    for closed in [false, true] {
        let mut pair = Pair::plain();
        pair.lose(|_| true);
        pair.write(A, b"x").unwrap();
        let now = pair.now;
        if closed {
            pair.a.orphan(now);
        }
        pair.run(Duration::from_secs(100));
        assert_ne!(pair.state(A), State::Closed, "closed by its program ({closed})");
    }
}

/// MUST-25, MUST-28.
#[test]
fn keepalive_is_off_and_once_it_is_on_two_hours_pass() {
    let (hour, second) = (Duration::from_secs(3600), Duration::from_secs(1));
    let mut pair = Pair::plain();
    pair.run(hour * 24);
    assert_eq!(pair.sent(A).len(), 0);
    let now = pair.now;
    pair.a.configure(now, |config| config.keepalive = Some(Keepalive::default()));
    // (An answer of the peer's, from which the time counts.)
    pair.write(A, b"x").unwrap();
    pair.run(second);
    pair.sent(A);
    pair.run(hour * 2 - second * 2);
    assert_eq!(pair.sent(A).len(), 0);
    pair.run(second * 2);
    assert_eq!(pair.sent(A).len(), 1);
}

/// MUST-29, SHLD-12.
#[test]
fn a_probe_without_an_answer_is_followed_by_another_and_has_no_bytes() {
    let keepalive = Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(2), count: 3 };
    let mut pair = Pair::open(&Config { keepalive: Some(keepalive), ..Config::default() }, &Config::default());
    let mut answers = 0;
    pair.lose(move |packet| {
        answers += u32::from(packet.from == B);
        packet.from == B && answers <= 2
    });
    pair.run(Duration::from_secs(20));
    assert_eq!(pair.state(A), State::Established);
    let next = pair.sent(B).pop().unwrap().header.ack;
    let probes = pair.sent(A);
    assert!(probes.len() == 3 && probes.iter().all(|probe| probe.payload.is_empty() && probe.header.seq + 1 == next), "{probes:?}");
}
