//! What is lost, doubled, late or damaged is made good, or ends in the right error.

use core::time::Duration;

use super::pair::Side::{A, B};
use super::pair::{LATENCY, Options, Packet, Pair, US, pattern};
use crate::roce::packet::{Body, NakCode, Syndrome};
use crate::roce::qp::{Mtu, Sending, State};
use crate::roce::work::{Data, SendOp, SendWr, Status};

const SEND: SendOp = SendOp::Send { immediate: None };

/// 4.096 us * 2^10, as the pair's options have it.
const TIMEOUT: Duration = Duration::from_nanos(4096 << 10);

fn post_sends(pair: &mut Pair, count: u64) {
    for id in 0..count {
        pair.post_recv(B, id, id * 10, 10);
        pair.post(A, &SendWr::new(id, SEND, Data::Inline(&[id as u8; 10]))).unwrap();
    }
}

fn check_sends(pair: &mut Pair, count: u64) {
    assert_eq!(pair.successes(A), (0..count).collect::<Vec<_>>());
    assert_eq!(pair.successes(B), (0..count).collect::<Vec<_>>());
    for id in 0..count as usize {
        assert_eq!(pair.end(B).bytes(id * 10, 10), [id as u8; 10]);
    }
}

#[test]
fn a_gap_brings_one_nak_and_everything_after_it_again() {
    let mut pair = Pair::plain();
    pair.lose_nth(&[3], |packet| packet.from == A);
    post_sends(&mut pair, 8);
    let start = pair.now;
    pair.settle();
    check_sends(&mut pair, 8);
    assert_eq!(pair.sent(A).len(), 8 + 6, "go back to the third");
    let naks = pair
        .sent(B)
        .iter()
        .filter(|p| matches!(p.body(), Body::Acknowledge(a) if a.syndrome == Syndrome::Nak(NakCode::SequenceError)))
        .count();
    assert_eq!(naks, 1);
    assert!(pair.now.since(start) < TIMEOUT * 2, "without the timer");
}

#[test]
fn a_lost_last_packet_is_sent_again_by_the_timer() {
    let mut pair = Pair::plain();
    pair.lose_nth(&[1], |packet| packet.from == A);
    post_sends(&mut pair, 1);
    pair.settle();
    check_sends(&mut pair, 1);
    let sent = pair.sent(A);
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[1].sent.since(sent[0].sent), TIMEOUT);
}

#[test]
fn a_lost_acknowledgment_does_nothing_twice() {
    let mut pair = Pair::plain();
    pair.lose_nth(&[1], |packet| packet.from == B);
    post_sends(&mut pair, 1);
    let add = pair.fetch_add(A, 1000, 1);
    pair.settle();
    check_sends(&mut pair, 1);
    pair.lose_nth(&[1], |packet| packet.from == B);
    pair.post_op(A, 0, add, 1008, 8);
    pair.settle();
    assert_eq!(pair.successes(A), [0]);
    assert_eq!(pair.end(A).bytes(1008, 8), 0u64.to_ne_bytes(), "the first answer, again");
    assert_eq!(pair.end(B).bytes(1000, 8), 1u64.to_ne_bytes(), "added once");
}

#[test]
fn the_timer_gives_up_after_so_many_retries() {
    for retry_count in [0, 3, 7] {
        let mut pair = Pair::new(&Options { sending: Sending { timeout: 10, retry_count, ..Sending::default() }, ..Options::default() });
        pair.lose(|_| true);
        post_sends(&mut pair, 3);
        pair.post_recv(A, 50, 0, 0);
        let start = pair.now;
        pair.run(TIMEOUT * u32::from(retry_count) + TIMEOUT - US);
        assert!(pair.statuses(A).is_empty());
        pair.run(US);
        assert_eq!(pair.now.since(start), TIMEOUT * (u32::from(retry_count) + 1));
        let flushed = Status::Flushed;
        assert_eq!(pair.statuses(A), [(0, Status::RetryExceeded), (1, flushed), (2, flushed), (50, flushed)]);
        assert_eq!(pair.sent(A).len(), 3 * (1 + usize::from(retry_count)));
        assert_eq!(pair.end(A).state(), State::Err);
    }
}

#[test]
fn progress_resets_the_count() {
    let mut pair = Pair::new(&Options { sending: Sending { timeout: 10, retry_count: 1, ..Sending::default() }, ..Options::default() });
    // Each packet is lost once: one retry each.
    let mut seen = std::collections::BTreeSet::new();
    pair.lose(move |packet| packet.from == A && seen.insert(packet.header().psn.value()));
    post_sends(&mut pair, 5);
    pair.settle();
    check_sends(&mut pair, 5);
}

#[test]
fn a_timeout_of_zero_waits_for_ever() {
    let mut pair = Pair::new(&Options { sending: Sending { timeout: 0, ..Sending::default() }, ..Options::default() });
    pair.lose(|_| true);
    post_sends(&mut pair, 1);
    pair.run(Duration::from_secs(1000));
    assert!(pair.statuses(A).is_empty());
}

#[test]
fn lost_read_responses_are_asked_for_again_from_the_gap_on() {
    let mut pair = Pair::new(&Options { mtu: Mtu::B256, ..Options::default() });
    let data = pattern(5, 2560);
    pair.end(B).bytes(0, 2560).copy_from_slice(&data);
    pair.lose_nth(&[4], |packet| packet.from == B);
    let op = pair.read(A, 0);
    pair.post_op(A, 1, op, 0, 2560);
    let start = pair.now;
    pair.settle();
    assert_eq!(pair.successes(A), [1]);
    assert_eq!(pair.end(A).bytes(0, 2560), data);
    let requests: Vec<_> = pair.sent(A).iter().map(Packet::body).collect();
    let [Body::ReadRequest(first), Body::ReadRequest(again)] = requests[..] else { panic!("{requests:?}") };
    assert_eq!((again.address - first.address, again.len), (3 * 256, 7 * 256));
    assert!(pair.now.since(start) < TIMEOUT * 2, "without the timer");
    assert_eq!(pair.sent(B).len(), 10 + 7);
}

#[test]
fn an_acknowledgment_that_overtakes_a_read_asks_for_it_again() {
    let mut pair = Pair::plain();
    pair.end(B).bytes(0, 100).fill(7);
    pair.post_recv(B, 1, 200, 10);
    pair.lose_nth(&[1], |packet| packet.from == B);
    let op = pair.read(A, 0);
    pair.post_op(A, 1, op, 0, 100);
    pair.post(A, &SendWr::new(2, SEND, Data::Inline(b"x"))).unwrap();
    let start = pair.now;
    pair.run(LATENCY * 5);
    assert!(pair.now.since(start) < TIMEOUT);
    assert_eq!(pair.successes(A), [1, 2]);
    assert_eq!(pair.end(A).bytes(0, 100), [7; 100]);
    assert_eq!(pair.successes(B), [1], "the send was done once");
}

#[test]
fn doubled_packets_are_done_once() {
    let mut pair = Pair::plain();
    pair.fate = Box::new(|packet| vec![(LATENCY, packet.bytes.clone()), (LATENCY * 3, packet.bytes.clone())]);
    post_sends(&mut pair, 5);
    let (add, read) = (pair.fetch_add(A, 1000, 1), pair.read(A, 0));
    pair.post_op(A, 5, add, 1008, 8);
    pair.post_op(A, 6, read, 2000, 50);
    pair.settle();
    assert_eq!(pair.successes(A), (0..7).collect::<Vec<_>>());
    assert_eq!(pair.successes(B), (0..5).collect::<Vec<_>>());
    assert_eq!(pair.end(B).bytes(1000, 8), 1u64.to_ne_bytes());
}

#[test]
fn damaged_packets_are_lost_ones() {
    let mut pair = Pair::plain();
    let mut count = 0;
    pair.fate = Box::new(move |packet| {
        count += 1;
        let mut bytes = packet.bytes.clone();
        if count % 7 == 3 {
            let at = bytes.len() - 6;
            bytes[at] ^= 4;
        }
        vec![(LATENCY, bytes)]
    });
    post_sends(&mut pair, 20);
    pair.settle();
    check_sends(&mut pair, 20);
    assert!(pair.end(B).hca.dropped().corrupted > 0);
}

#[test]
fn without_a_receive_the_sender_waits_as_long_as_it_is_told() {
    let mut pair = Pair::plain();
    pair.post(A, &SendWr::new(1, SEND, Data::Inline(b"late"))).unwrap();
    let start = pair.now;
    pair.run(Duration::from_millis(5));
    let sent = pair.sent(A);
    // Code 12: 0.64 ms (IBTA spec, table 45).
    let waits: Vec<_> = sent.windows(2).map(|w| w[1].sent.since(w[0].sent)).collect();
    assert!(waits.len() >= 7 && waits.iter().all(|wait| *wait == 640 * US + 2 * LATENCY), "{waits:?}");
    let answers = pair.sent(B);
    assert!(answers.iter().all(|p| matches!(p.body(), Body::Acknowledge(a) if a.syndrome == Syndrome::RnrNak(12))));
    pair.run(Duration::from_secs(10));
    assert!(pair.statuses(A).is_empty(), "7: for ever");
    pair.post_recv(B, 1, 0, 10);
    pair.settle();
    assert_eq!((pair.successes(A), pair.successes(B)), (vec![1], vec![1]));
    assert!(pair.now.since(start) > Duration::from_secs(10));
}

#[test]
fn without_a_receive_the_sender_gives_up_after_so_many_retries() {
    let mut pair = Pair::new(&Options { sending: Sending { timeout: 14, rnr_retry: 2, ..Sending::default() }, ..Options::default() });
    for id in [1, 2] {
        pair.post(A, &SendWr::new(id, SEND, Data::Inline(b"x"))).unwrap();
    }
    pair.settle();
    assert_eq!(pair.statuses(A), [(1, Status::RnrRetryExceeded), (2, Status::Flushed)]);
    let firsts = pair.sent(A).iter().filter(|p| p.header().psn == super::pair::psn(A)).count();
    assert_eq!(firsts, 3);
}

#[test]
fn a_write_with_immediate_waits_for_a_receive_at_its_end() {
    let mut pair = Pair::new(&Options { mtu: Mtu::B256, ..Options::default() });
    pair.end(A).bytes(0, 1000).fill(9);
    let op = pair.write(A, 0, Some(3));
    pair.post_op(A, 1, op, 0, 1000);
    pair.run(LATENCY * 3);
    assert_eq!(pair.sent(A).len(), 4);
    pair.post_recv(B, 1, 0, 0);
    pair.settle();
    assert_eq!(pair.sent(A).len(), 1, "the last packet again");
    assert_eq!((pair.successes(A), pair.successes(B)), (vec![1], vec![1]));
    assert_eq!(pair.end(B).bytes(0, 1001), [&[9; 1000][..], &[0]].concat());
}

#[test]
fn a_late_acknowledgment_spares_what_the_timer_would_send_again() {
    let mut options = Options { mtu: Mtu::B256, ..Options::default() };
    options.tuning.window = 2;
    let mut pair = Pair::new(&options);
    pair.lose(|_| true);
    let op = pair.write(A, 0, None);
    pair.post_op(A, 1, op, 0, 1024);
    pair.transmit();
    for packet in pair.sent(A) {
        pair.deliver(B, &packet.bytes);
    }
    pair.transmit();
    let late = pair.sent(B).remove(0);
    pair.now += TIMEOUT;
    let now = pair.now;
    pair.end(A).hca.on_timer(now);
    pair.deliver(A, &late.bytes);
    pair.transmit();
    let numbers: Vec<_> = pair.sent(A).iter().map(|packet| packet.header().psn.distance(super::pair::psn(A))).collect();
    assert_eq!(numbers, [2, 3]);
}

#[test]
fn a_copy_of_a_nak_is_no_second_one() {
    let mut pair = Pair::new(&Options { sending: Sending { timeout: 10, retry_count: 1, ..Sending::default() }, ..Options::default() });
    pair.lose(|_| true);
    post_sends(&mut pair, 3);
    pair.transmit();
    let last = pair.sent(A).remove(2);
    pair.deliver(B, &last.bytes);
    pair.transmit();
    let nak = pair.sent(B).remove(0);
    for _ in 0..3 {
        pair.deliver(A, &nak.bytes);
    }
    pair.lose(|_| false);
    pair.settle();
    check_sends(&mut pair, 3);
}

#[test]
fn whoever_waits_for_a_receive_has_all_retries_again() {
    let mut pair = Pair::new(&Options { sending: Sending { timeout: 8, retry_count: 1, ..Sending::default() }, ..Options::default() });
    let mut count = 0;
    pair.lose(move |packet| {
        count += u32::from(packet.from == A);
        packet.from == A && count.is_multiple_of(2)
    });
    pair.post(A, &SendWr::new(1, SEND, Data::Inline(b"x"))).unwrap();
    pair.run(Duration::from_millis(50));
    assert!(pair.sent(A).len() > 20);
    pair.post_recv(B, 1, 0, 10);
    pair.settle();
    assert_eq!((pair.successes(A), pair.successes(B)), (vec![1], vec![1]));
}

#[test]
fn progress_sets_the_timer_anew() {
    let mut options = Options { sending: Sending { timeout: 4, ..Sending::default() }, ..Options::default() };
    options.tuning.window = 5;
    let mut pair = Pair::new(&options);
    post_sends(&mut pair, 60);
    let start = pair.now;
    pair.settle();
    assert!(pair.now.since(start) > Duration::from_nanos(4096 << 4), "it takes longer than the timer");
    check_sends(&mut pair, 60);
    assert_eq!(pair.sent(A).len(), 60, "and nothing is sent twice");
}
