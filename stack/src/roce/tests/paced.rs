//! The timer of answers, while congestion control holds a connection to a rate.

use core::time::Duration;

use super::pair::Side::{A, B};
use super::pair::{LATENCY, Options, Pair, path, pattern};
use crate::roce::Dcqcn;
use crate::roce::packet::{Aeth, Body, Header, Syndrome};
use crate::roce::psn::Psn;
use crate::roce::qp::{Mtu, Sending};
use crate::roce::work::{Data, SendOp, SendWr};

const SEND: SendOp = SendOp::Send { immediate: None };

/// 4.096 us * 2^8.
const TIMEOUT: Duration = Duration::from_nanos(4096 << 8);

/// Two ends, of which A was told of congestion: it sends at half of this rate from now on.
fn slowed(line_rate_bps: u64, retry_count: u8, count_credits: bool) -> Pair {
    let mut options = Options { mtu: Mtu::B256, sending: Sending { timeout: 8, retry_count, ..Sending::default() }, ..Options::default() };
    options.tuning.dcqcn = Some(Dcqcn { increase_every: Duration::from_millis(20), ..Dcqcn::new(line_rate_bps) });
    options.tuning.count_credits = count_credits;
    let mut pair = Pair::new(&options);
    let header = Header { becn: true, ..Header::new(Body::CongestionNotification, pair.end(A).qp, Psn::default()) };
    tell(&mut pair, &header, 16);
    assert_eq!(pair.end(A).hca.dropped().congestion, 0);
    pair
}

/// A is told something by a packet of B's, with so many bytes of zeros.
fn tell(pair: &mut Pair, header: &Header, len: usize) {
    let mut packet = [0; 100];
    let len = path(B, false).emit_with(0, Default::default(), header, len, &mut packet, |_| Some(())).unwrap();
    pair.deliver(A, &packet[..len]);
}

/// 16 packets, of which only the last one asks for an acknowledgment, and which take more than three times as long as the timer (seed 47085).
fn post_long(pair: &mut Pair) {
    pair.end(A).bytes(0, 4096).copy_from_slice(&pattern(1, 4096));
    pair.post_recv(B, 1, 0, 4096);
    pair.post_op(A, 1, SEND, 0, 4096);
}

#[test]
fn a_message_that_takes_longer_than_the_timer_is_sent_once() {
    let mut pair = slowed(20_000_000, 0, false);
    post_long(&mut pair);
    pair.settle();
    assert_eq!((pair.successes(A), pair.successes(B)), (vec![1], vec![1]));
    assert_eq!(pair.end(B).bytes(0, 4096), pattern(1, 4096));
    let sent = pair.sent(A);
    assert_eq!(sent.len(), 16);
    assert!(sent[15].sent.since(sent[0].sent) > TIMEOUT * 3);
}

#[test]
fn the_timer_of_such_a_message_runs_from_the_packet_that_asks() {
    let mut pair = slowed(20_000_000, 1, false);
    pair.lose_nth(&[16], |packet| packet.from == A);
    post_long(&mut pair);
    pair.settle();
    assert_eq!((pair.successes(A), pair.successes(B)), (vec![1], vec![1]));
    let sent = pair.sent(A);
    assert_eq!(sent.len(), 32);
    assert_eq!(sent[16].sent.since(sent[15].sent), TIMEOUT);
}

/// The first packet of the second message asks for nothing, and before the next one may go, the peer tells that it has no receive.
#[test]
fn whoever_runs_out_of_credits_within_a_message_does_not_wait_for_ever() {
    let mut pair = slowed(200_000_000, 1, true);
    pair.end(A).bytes(0, 1000).copy_from_slice(&pattern(2, 1000));
    pair.post_recv(B, 1, 0, 1000);
    pair.post(A, &SendWr::new(1, SEND, Data::Inline(&[7; 10]))).unwrap();
    pair.post_op(A, 2, SEND, 0, 1000);
    pair.run(LATENCY);
    pair.post_recv(B, 2, 1000, 1000);
    pair.run(LATENCY);
    assert_eq!((pair.successes(A), pair.successes(B), pair.sent(A).len()), (vec![1], vec![1], 2));
    pair.run(TIMEOUT - LATENCY);
    assert!(pair.sent(A).is_empty(), "it waits");
    pair.settle();
    assert_eq!((pair.successes(A), pair.successes(B)), (vec![2], vec![2]));
    assert_eq!(pair.end(B).bytes(1000, 1000), pattern(2, 1000));
}

/// They come by a copy of the last acknowledgment, when the timer is nearly over, and the rest of the message takes longer than that.
#[test]
fn credits_end_the_timer_that_ran_for_want_of_them() {
    let mut pair = slowed(200_000_000, 0, true);
    pair.post_recv(B, 1, 0, 1000);
    pair.post(A, &SendWr::new(1, SEND, Data::Inline(&[7; 10]))).unwrap();
    pair.end(A).bytes(0, 4096).copy_from_slice(&pattern(3, 4096));
    pair.post_op(A, 2, SEND, 0, 4096);
    pair.run(LATENCY);
    pair.post_recv(B, 2, 0, 4096);
    pair.run(TIMEOUT / 10 * 9);
    let sent = pair.sent(A);
    assert_eq!((pair.successes(A), sent.len()), (vec![1], 2));
    let credits = Body::Acknowledge(Aeth { syndrome: Syndrome::Ack(2), msn: 1 });
    let header = Header::new(credits, pair.end(A).qp, sent[0].header().psn);
    tell(&mut pair, &header, 0);
    pair.settle();
    assert_eq!((pair.successes(A), pair.sent(A).len()), (vec![2], 15));
    assert_eq!(pair.end(B).bytes(0, 4096), pattern(3, 4096));
}
