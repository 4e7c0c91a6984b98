use super::pair::Side::{A, B};
use super::pair::{Conn, OPENING_A, OPENING_B, Pair, ms};
use crate::error::Error;
use crate::flow::Readiness;
use crate::tcp::{Config, State};
use crate::wire::tcp::{Flags, SeqNumber};

#[test]
fn both_sides_agree_on_all_options() {
    let mut pair = Pair::new(&Config::default(), &Config::default());
    pair.settle();
    let (a, b) = (pair.sent(A), pair.sent(B));
    assert_eq!(a[0].header.flags, Flags::SYN);
    assert_eq!(a[0].header.options.mss, Some(1460));
    assert_eq!(a[0].header.options.window_scale, Some(7), "6 MiB, as Linux");
    assert_eq!(a[0].header.window, 65_535);
    assert_eq!(b[0].header.flags, Flags::SYN | Flags::ACK);
    assert!(b[0].header.options.sack_permitted && b[0].header.options.timestamps.is_some());
    assert_eq!((a.len(), b.len()), (2, 1));
    assert_eq!(pair.a.mss(), 1448, "timestamps take 12 bytes");
    assert_eq!(pair.a.cwnd(), 14_480, "ten segments");
    assert!(pair.a.readiness().contains(Readiness::OUT));
    assert!(pair.a.take_edges().contains(Readiness::OUT));
    assert_eq!(pair.a.srtt(), ms(2));
}

#[test]
fn what_one_side_lacks_is_off() {
    let bare = Config { timestamps: false, sack: false, window_scaling: false, mss_user: Some(600), ..Config::default() };
    let mut pair = Pair::open(&bare, &Config::default());
    let data = super::pair::pattern(300_000);
    assert_eq!(pair.transfer(B, &data), data);
    for packet in pair.sent(B) {
        assert!(packet.payload.len() <= 600, "the MSS of the other side holds");
        assert_eq!(packet.header.options, Default::default());
    }
}

#[test]
fn a_lost_syn_is_sent_again_after_a_second_and_then_after_two() {
    let mut pair = Pair::new(&Config::default(), &Config::default());
    let mut syns = 0;
    pair.lose(move |packet| {
        syns += usize::from(packet.is(Flags::SYN));
        syns < 3
    });
    let start = pair.now;
    pair.run(ms(3_100));
    let times: Vec<_> = pair.sent(A).iter().filter(|p| p.is(Flags::SYN)).map(|p| p.sent.since(start)).collect();
    assert_eq!(times, [ms(0), ms(1000), ms(3000)]);
    assert_eq!(pair.state(A), State::Established);
}

#[test]
fn a_lost_syn_ack_is_sent_again() {
    let mut pair = Pair::new(&Config::default(), &Config::default());
    let mut first = true;
    pair.lose(move |packet| packet.from == B && core::mem::take(&mut first));
    pair.run(ms(1_500));
    assert_eq!((pair.state(A), pair.state(B)), (State::Established, State::Established));
}

#[test]
fn nobody_answers() {
    let mut pair = Pair::new(&Config { syn_retries: 2, ..Config::default() }, &Config::default());
    pair.lose(|_| true);
    pair.run(ms(6_999));
    assert_eq!(pair.state(A), State::SynSent);
    assert_eq!(pair.a.readiness(), Readiness::empty());
    pair.run(ms(2));
    assert_eq!(pair.state(A), State::Closed);
    assert_eq!(pair.sent(A).len(), 3);
    assert!(pair.a.readiness().contains(Readiness::ERR | Readiness::HUP | Readiness::OUT));
    assert_eq!(pair.a.take_error(), Some(Error::TimedOut));
    assert!(pair.a.is_finished());
}

#[test]
fn a_reset_refuses() {
    let mut pair = Pair::new(&Config::default(), &Config::default());
    pair.lose(|_| true);
    pair.transmit();
    let syn = pair.sent(A).remove(0);
    let reset = crate::tcp::reset_for(&syn.header, 0);
    assert_eq!(reset.flags, Flags::RST | Flags::ACK);
    assert_eq!(reset.ack, syn.header.seq + 1);
    let mut wrong = reset;
    wrong.ack = SeqNumber(1);
    pair.deliver(A, &wrong, &[]);
    assert_eq!(pair.state(A), State::SynSent, "that reset acknowledges something else");
    pair.deliver(A, &reset, &[]);
    assert_eq!(pair.a.take_error(), Some(Error::Refused));
    assert!(pair.a.is_finished());
}

#[test]
fn an_acknowledgment_of_an_older_connection_is_reset_and_the_handshake_goes_on() {
    let mut pair = Pair::new(&Config::default(), &Config::default());
    pair.lose(|_| true);
    pair.transmit();
    let mut stale = pair.sent(A).remove(0).header;
    core::mem::swap(&mut stale.src_port, &mut stale.dst_port);
    stale.flags = Flags::ACK;
    stale.ack = SeqNumber(12345);
    pair.deliver(A, &stale, &[]);
    pair.lose_nothing();
    pair.transmit();
    let answer = pair.sent(A).remove(0).header;
    assert_eq!((answer.flags, answer.seq), (Flags::RST, SeqNumber(12345)));
    assert_eq!(pair.state(A), State::SynSent);
}

#[test]
fn simultaneous_open() {
    let config = Config::default();
    let mut pair = Pair::new(&config, &config);
    pair.b = Some(Conn::connect(pair.now, &config, 80, 40_000, OPENING_B));
    pair.settle();
    assert_eq!((pair.state(A), pair.state(B)), (State::Established, State::Established));
    let data = super::pair::pattern(5000);
    assert_eq!(pair.transfer(A, &data), data);
    assert_eq!(pair.transfer(B, &data), data);
}

/// RFC 7323 s2.2: found by the simulator (155/delay+rx_exhausted/6/churn+idle+multicast+slow+handover+meeting), where bytes went out beyond
/// the window's right edge.
#[test]
fn the_window_of_a_syn_ack_that_ends_a_simultaneous_open_is_not_scaled() {
    let small = Config { rcvbuf: Some(8192), ..Config::default() };
    let mut pair = Pair::new(&Config::default(), &small);
    pair.b = Some(Conn::connect(pair.now, &small, 80, 40_000, OPENING_B));
    // A learns of no other window.
    pair.lose(|packet| packet.from == B && !packet.header.flags.contains(Flags::SYN));
    pair.run(ms(50));
    assert_eq!(pair.state(A), State::Established);
    let window = pair.sent(B).iter().filter(|packet| packet.is(Flags::SYN | Flags::ACK)).map(|packet| packet.header.window).max();
    pair.write(A, &super::pair::pattern(64 << 10)).unwrap();
    pair.run(ms(50));
    let bytes: usize = pair.sent(A).iter().map(|packet| packet.payload.len()).sum();
    assert!(bytes > 0 && bytes <= usize::from(window.unwrap()), "{bytes} bytes for a window of {window:?}");
}

#[test]
fn unreachable_ends_a_handshake_only_if_it_quotes_our_syn() {
    let mut pair = Pair::new(&Config::default(), &Config::default());
    pair.transmit();
    pair.a.on_unreachable(OPENING_A.iss + 5, true);
    assert_eq!(pair.state(A), State::SynSent);
    pair.a.on_unreachable(OPENING_A.iss, true);
    assert_eq!(pair.a.take_error(), Some(Error::Refused));
}

#[test]
fn bytes_may_come_with_the_last_acknowledgment_of_the_handshake() {
    let mut pair = Pair::new(&Config::default(), &Config::default());
    pair.lose(|packet| packet.from == A && packet.header.flags == Flags::ACK);
    pair.settle();
    assert_eq!(pair.state(B), State::SynReceived);
    pair.write(A, b"hello").unwrap();
    pair.settle();
    assert_eq!(pair.state(B), State::Established);
    assert_eq!(pair.read(B), b"hello");
}

/// RFC 5681 s3.1, with Linux's allowance for one spurious timeout. Found by the simulator's congestion checker.
#[test]
fn a_syn_that_is_lost_twice_makes_the_initial_window_one_segment() {
    for (lost, segments) in [(0, 10), (1, 10), (2, 1)] {
        let mut pair = Pair::new(&Config::default(), &Config::default());
        let mut left = lost;
        pair.lose(move |packet| {
            let syn = packet.from == A && packet.is(Flags::SYN) && left > 0;
            left -= u32::from(syn);
            syn
        });
        pair.run(ms(5_000));
        assert_eq!(pair.state(A), State::Established);
        assert_eq!(pair.a.cwnd(), segments * usize::from(pair.a.mss()), "after {lost} lost SYNs");
    }
}
