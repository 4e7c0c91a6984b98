//! Receives that are counted.

use super::pair::Side::{A, B};
use super::pair::{Options, Pair};
use crate::roce::packet::{Body, Syndrome};
use crate::roce::rc::rnr_wait;
use crate::roce::work::{Data, SendOp, SendWr};

const SEND: SendOp = SendOp::Send { immediate: None };

fn counting() -> Pair {
    let mut options = Options::default();
    options.tuning.count_credits = true;
    Pair::new(&options)
}

#[test]
fn whoever_knows_that_there_is_no_receive_sends_one_message_to_ask() {
    let mut pair = counting();
    for id in 0..3 {
        pair.post_recv(B, id, 0, 3000);
    }
    for id in 0..6 {
        pair.post_op(A, id, SEND, 0, 3000);
        pair.run(super::pair::LATENCY * 2);
    }
    assert_eq!(pair.successes(A), [0, 1, 2]);
    let sent = pair.sent(A);
    assert_eq!(sent.len(), 3 * 3 + 1, "of the fourth the first packet, of others none");
    let codes: Vec<_> = pair.sent(B).iter().map(super::pair::Packet::body).collect();
    let credits = |body: &Body| matches!(body, Body::Acknowledge(a) if matches!(a.syndrome, Syndrome::Ack(0..=2)));
    assert!(codes[..3].iter().all(credits), "{codes:?}");
    for id in 3..6 {
        pair.post_recv(B, id, 0, 3000);
    }
    pair.settle();
    assert_eq!(pair.successes(A), [3, 4, 5]);
    assert_eq!(pair.successes(B), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn writes_need_no_credit() {
    let mut pair = counting();
    pair.post_recv(B, 9, 0, 10);
    pair.post(A, &SendWr::new(9, SEND, Data::Inline(b"x"))).unwrap();
    pair.settle();
    let op = pair.write(A, 0, None);
    for id in 0..3 {
        pair.post_op(A, id, op, 0, 3000);
    }
    pair.settle();
    assert_eq!(pair.successes(A), [9, 0, 1, 2]);
    assert!(pair.sent(B).iter().all(|p| !matches!(p.body(), Body::Acknowledge(a) if matches!(a.syndrome, Syndrome::RnrNak(_)))));
}

#[test]
fn waits_are_the_table_s() {
    // IBTA spec, volume 1, table 45: the shortest, the longest, and two of between.
    let ms = |code| rnr_wait(code).as_micros() as f64 / 1000.0;
    assert_eq!([ms(1), ms(12), ms(31), ms(0)], [0.01, 0.64, 491.52, 655.36]);
}
