//! TCP Fast Open (RFC 7413), as two connections have it. (Whose cookie is good, and how many may be under way, is a listener's: see the ring's tests.)

use std::io::IoSlice;

use super::moves::moved;
use super::pair::Side::{A, B};
use super::pair::{Packet, Pair, Side, ms, pattern};
use crate::error::Error;
use crate::flow::Readiness;
use crate::tcp::test_util::TestTx;
use crate::tcp::{Config, State};
use crate::wire::tcp::{Cookie, FastOpen, Flags, Header};

fn cookie(byte: u8) -> Cookie {
    Cookie::new(&[byte; 8]).expect("eight bytes are a cookie")
}

fn shows(cookie: Cookie) -> Option<FastOpen> {
    Some(FastOpen { cookie: Some(cookie), is_experimental: false })
}

/// B gives the cookie of 7s; A's SYN says `option`, and has what goes with it of `data`, if it may. How much that was.
fn begun(option: Option<FastOpen>, data: &[u8]) -> (Pair, usize) {
    let mut pair = Pair::new(&Config::default(), &Config::default());
    pair.cookie = Some(cookie(7));
    let with_bytes = option.is_some_and(|option| option.cookie.is_some());
    pair.a.open_fast(option, 1460, with_bytes);
    let taken = pair.a.write_early(&[IoSlice::new(data)], false, &mut |_| Some(TestTx::new(2048))).expect("there are buffers");
    (pair, taken)
}

/// Goes on until B has the SYN.
fn until_accepted(pair: &mut Pair) {
    let end = pair.now + ms(20_000);
    assert!(pair.run_until(end, |pair| pair.b.is_some()), "the SYN arrives");
}

/// Whether all bytes of A's SYN were taken, as that side sees it.
fn took_all(pair: &mut Pair, side: Side) -> bool {
    let now = pair.now;
    pair.side(side).details(now).syn_data
}

#[test]
fn a_cookie_is_asked_for_and_given_in_the_form_that_was_asked_in() {
    for is_experimental in [false, true] {
        let asks = FastOpen { cookie: None, is_experimental };
        let (mut pair, taken) = begun(Some(asks), b"not yet");
        assert_eq!(taken, 0, "a SYN that asks has no bytes");
        pair.settle();
        let (a, b) = (pair.sent(A), pair.sent(B));
        assert_eq!((a[0].header.options.fast_open(), a[0].payload.len()), (Some(asks), 0));
        let given = FastOpen { cookie: Some(cookie(7)), is_experimental };
        assert_eq!(b[0].header.options.fast_open(), Some(given));
        assert!(a[1..].iter().chain(&b[1..]).all(|packet| packet.header.options.fast_open().is_none()));
        let learnt = pair.a.take_learnt().expect("the handshake is over");
        assert_eq!((learnt.asked, learnt.answer, learnt.mss), (Some(asks), Some(given), 1460));
        assert!(!learnt.is_lost && !learnt.with_bytes);
        assert_eq!(pair.a.take_learnt(), None, "it is told once");
        assert!(!took_all(&mut pair, A) && !took_all(&mut pair, B));
    }
}

#[test]
fn bytes_in_the_syn_are_read_and_answered_before_the_handshake_is_over() {
    let (mut pair, taken) = begun(shows(cookie(7)), b"request");
    assert_eq!(taken, 7);
    until_accepted(&mut pair);
    let syn = pair.sent(A).remove(0);
    assert_eq!((syn.header.flags, syn.payload.as_slice()), (Flags::SYN, &b"request"[..]));
    assert_eq!(pair.state(B), State::SynReceived);
    assert!(pair.side(B).is_open_early());
    assert!(pair.side(B).readiness().contains(Readiness::IN | Readiness::OUT));
    assert_eq!(pair.read(B), b"request");
    assert_eq!(pair.write(B, b"response"), Ok(8));
    pair.transmit();
    let answers = pair.sent(B);
    assert_eq!(answers[0].header.ack, syn.header.seq + 8, "the bytes are acknowledged with the SYN");
    assert_eq!((answers[1].payload.as_slice(), pair.state(A)), (&b"response"[..], State::SynSent));
    pair.settle();
    assert_eq!((pair.state(A), pair.state(B)), (State::Established, State::Established));
    assert_eq!(pair.read(A), b"response");
    assert_eq!(pair.read(B), b"");
    assert!(took_all(&mut pair, A) && took_all(&mut pair, B));
    assert_eq!((pair.a.counters().retransmissions, pair.a.send_queue()), (0, 0));
    assert!(pair.a.take_learnt().is_some_and(|learnt| learnt.with_bytes && !learnt.is_lost));
    let data = pattern(100_000);
    assert_eq!(pair.transfer(A, &data), data);
    assert_eq!(pair.transfer(B, &data), data);
}

#[test]
fn a_syn_has_no_more_bytes_than_the_peer_takes() {
    for (peer_mss, expected) in [(536, 496), (1460, 1420), (9000, 1420)] {
        let mut pair = Pair::new(&Config::default(), &Config::default());
        pair.a.open_fast(shows(cookie(7)), peer_mss, true);
        let data = pattern(5000);
        let mut alloc = |_| Some(TestTx::new(2048));
        assert_eq!(pair.a.write_early(&[IoSlice::new(&data)], false, &mut alloc), Ok(expected), "{peer_mss}");
        pair.transmit();
        assert_eq!(pair.sent(A)[0].payload, data[..expected]);
    }
}

#[test]
fn a_wrong_cookie_makes_an_ordinary_handshake_and_the_bytes_go_again() {
    let (mut pair, taken) = begun(shows(cookie(6)), b"request");
    assert_eq!(taken, 7);
    until_accepted(&mut pair);
    assert!(!pair.side(B).is_open_early());
    assert_eq!((pair.side(B).readiness(), pair.read(B)), (Readiness::empty(), vec![]), "nothing is read before the handshake is over");
    assert_eq!(pair.write(B, b"too early"), Err(Error::WouldBlock));
    pair.settle();
    let (a, b) = (pair.sent(A), pair.sent(B));
    assert_eq!(b[0].header.ack, a[0].header.seq + 1, "the SYN alone is acknowledged");
    let again: Vec<_> = a[1..].iter().filter(|packet| !packet.payload.is_empty()).collect();
    assert_eq!((again.len(), again[0].header.seq, again[0].payload.as_slice()), (1, a[0].header.seq + 1, &b"request"[..]));
    assert_eq!(pair.read(B), b"request");
    assert!(!took_all(&mut pair, A) && !took_all(&mut pair, B));
    let learnt = pair.a.take_learnt().expect("the handshake is over");
    assert_eq!((learnt.answer, learnt.is_lost), (shows(cookie(7)), false), "the newer cookie");
}

#[test]
fn of_the_bytes_in_a_syn_the_rest_goes_again_that_was_not_taken() {
    let data = pattern(1000);
    let (mut pair, taken) = begun(shows(cookie(7)), &data);
    assert_eq!(taken, 1000);
    pair.lose(|_| true);
    pair.transmit();
    let syn = pair.sent(A).remove(0).header;
    let answer = Header {
        src_port: syn.dst_port,
        dst_port: syn.src_port,
        seq: crate::wire::tcp::SeqNumber(77),
        ack: syn.seq + 401,
        flags: Flags::SYN | Flags::ACK,
        window: 60_000,
        ..Header::default()
    };
    pair.deliver(A, &answer, &[]);
    pair.transmit();
    let sent: Vec<_> = pair.sent(A).into_iter().flat_map(|packet| packet.payload).collect();
    assert_eq!((sent.as_slice(), pair.a.send_queue()), (&data[400..], 600));
    assert!(!took_all(&mut pair, A));
}

/// RFC 7413 s4.1.3.1, s4.2.2: a SYN that is sent again has neither bytes nor the option, since either may be what was dropped.
#[test]
fn a_syn_whose_bytes_are_dropped_on_the_way_goes_again_without() {
    let (mut pair, _) = begun(shows(cookie(7)), b"request");
    pair.lose(|packet| packet.is(Flags::SYN) && packet.header.options.fast_open().is_some());
    pair.run(ms(3_000));
    assert_eq!((pair.state(A), pair.state(B)), (State::Established, State::Established));
    let syns: Vec<_> = pair.sent(A).into_iter().filter(|packet| packet.is(Flags::SYN)).collect();
    assert_eq!(syns.iter().map(|syn| syn.payload.len()).collect::<Vec<_>>(), [7, 0]);
    assert_eq!(pair.read(B), b"request");
    assert!(pair.a.take_learnt().is_some_and(|learnt| learnt.is_lost && learnt.with_bytes));
}

#[test]
fn a_lost_syn_ack_comes_again_and_nothing_is_read_twice() {
    let (mut pair, _) = begun(shows(cookie(7)), b"request");
    let mut first = true;
    pair.lose(move |packet| packet.from == B && core::mem::take(&mut first));
    until_accepted(&mut pair);
    assert_eq!(pair.read(B), b"request");
    assert_eq!(pair.write(B, b"response"), Ok(8));
    pair.run(ms(3_000));
    assert_eq!((pair.read(B), pair.read(A)), (vec![], b"response".to_vec()));
    assert!(took_all(&mut pair, A), "whichever SYN it was that was answered");
    assert!(pair.a.take_learnt().is_some_and(|learnt| !learnt.is_lost));
}

#[test]
fn the_same_syn_once_more_brings_nothing_and_is_answered() {
    let (mut pair, _) = begun(shows(cookie(7)), b"request");
    until_accepted(&mut pair);
    let syn: Packet = pair.sent(A).remove(0);
    pair.transmit();
    pair.lose(|_| true);
    pair.sent(B);
    for _ in 0..3 {
        pair.deliver(B, &syn.header, &syn.payload);
        pair.transmit();
        let answers = pair.sent(B);
        assert_eq!(answers.len(), 1);
        assert_eq!((answers[0].header.flags, answers[0].header.ack), (Flags::SYN | Flags::ACK, syn.header.seq + 8));
    }
    assert_eq!(pair.read(B), b"request");
}

#[test]
fn a_connection_that_is_open_early_ends_as_any_other() {
    // Its program has written all, and ends its stream before the handshake is over.
    let (mut pair, _) = begun(shows(cookie(7)), b"request");
    until_accepted(&mut pair);
    assert_eq!(pair.write(B, b"response"), Ok(8));
    pair.shutdown(B);
    assert_eq!(pair.write(B, b"more"), Err(Error::Pipe));
    pair.settle();
    assert_eq!((pair.read(A), pair.read_some(A, 1)), (b"response".to_vec(), Ok(vec![])));
    pair.shutdown(A);
    pair.settle();
    assert_eq!((pair.state(A), pair.state(B)), (State::Closed, State::TimeWait));
    // Nobody acknowledges its SYN-ACK.
    let (mut pair, _) = begun(shows(cookie(7)), b"request");
    pair.lose(|packet| packet.from == B);
    until_accepted(&mut pair);
    pair.run(ms(200_000));
    assert_eq!((pair.state(B), pair.side(B).take_error()), (State::Closed, Some(Error::TimedOut)));
    assert_eq!(pair.read(B), b"request", "what was received can still be read");
    // What ICMP says ends it, unless its program has accepted it; then it is as any other connection.
    let (mut pair, _) = begun(shows(cookie(7)), b"request");
    until_accepted(&mut pair);
    pair.transmit();
    let seq = pair.sent(B)[0].header.seq;
    pair.side(B).on_unreachable(seq, false);
    assert_eq!((pair.state(B), pair.side(B).take_error()), (State::Closed, Some(Error::HostUnreachable)));
    let (mut pair, _) = begun(shows(cookie(7)), b"request");
    until_accepted(&mut pair);
    pair.lose(|_| true);
    let syn = pair.sent(A).remove(0).header;
    pair.transmit();
    pair.side(B).accepted();
    pair.side(B).on_unreachable(seq, true);
    assert_eq!(pair.state(B), State::SynReceived);
    let reset = Header { seq: syn.seq + 8, flags: Flags::RST, options: Default::default(), ..syn };
    pair.deliver(B, &reset, &[]);
    assert_eq!((pair.state(B), pair.side(B).take_error()), (State::Closed, Some(Error::Reset)));
}

#[test]
fn a_syn_that_is_too_long_for_its_path_goes_again_at_once_without_its_bytes() {
    let data = pattern(1400);
    let (mut pair, taken) = begun(shows(cookie(7)), &data);
    assert_eq!(taken, 1400);
    pair.lose(|packet| packet.payload.len() > 1000);
    pair.transmit();
    let syn = pair.sent(A).remove(0).header;
    assert!(pair.a.believes_path_mtu(syn.seq, 1480, 1000));
    let now = pair.now;
    pair.a.on_packet_too_big(now, syn.seq, 1000);
    pair.transmit();
    let again = pair.sent(A);
    assert_eq!((again.len(), again[0].header.flags, again[0].payload.len()), (1, Flags::SYN, 0));
    pair.settle();
    assert_eq!(pair.read(B), data);
    assert!(pair.sent(A).iter().all(|packet| packet.payload.len() <= 960), "what follows fits");
    // A SYN without bytes is not too long for any path.
    let (mut pair, _) = begun(None, b"");
    pair.transmit();
    let syn = pair.sent(A).remove(0).header;
    assert!(!pair.a.believes_path_mtu(syn.seq, 1480, 1000));
}

#[test]
fn what_was_opened_fast_moves_as_any_other() {
    let (mut pair, _) = begun(shows(cookie(7)), b"request");
    until_accepted(&mut pair);
    let now = pair.now;
    assert!(pair.side(B).snapshot().is_none(), "before the handshake is over it stays where it is");
    pair.settle();
    for side in [A, B] {
        let end = moved(now, &Config::default(), pair.side(side)).expect("it can move");
        assert!(end.details(now).syn_data, "{side:?}");
        *pair.side(side) = end;
    }
    assert_eq!(pair.read(B), b"request");
    let data = pattern(20_000);
    assert_eq!(pair.transfer(B, &data), data);
}

#[test]
fn bytes_that_wait_to_be_read_leave_less_room_in_the_syn_ack() {
    let data = pattern(1000);
    let [without, with] = [6, 7].map(|byte| {
        let (mut pair, _) = begun(shows(cookie(byte)), &data);
        pair.config_b = Config { rcvbuf: Some(8000), ..Config::default() };
        until_accepted(&mut pair);
        pair.transmit();
        let (syn, first) = (pair.sent(A).remove(0), pair.sent(B).remove(0).header.window);
        // What was offered stays so, and more is when all is read.
        assert_eq!(pair.read(B).len(), if byte == 7 { 1000 } else { 0 });
        pair.lose(|_| true);
        pair.deliver(B, &syn.header, &syn.payload);
        pair.transmit();
        assert!(pair.sent(B)[0].header.window >= first);
        first
    });
    assert_eq!(with, without - 1000);
}
