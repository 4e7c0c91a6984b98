//! Completion queues: events, and what happens when there is no room.

use super::pair::Side::{A, B};
use super::pair::{Options, Pair};
use crate::roce::qp::{Events, State};
use crate::roce::work::{Data, SendOp, SendWr};
use crate::roce::{Arm, CreateError};

const SEND: SendOp = SendOp::Send { immediate: None };

fn exchange(pair: &mut Pair, solicited: bool) {
    pair.post_recv(B, 1, 0, 10);
    pair.post(A, &SendWr { solicited, ..SendWr::new(1, SEND, Data::Inline(b"x")) }).unwrap();
    pair.settle();
}

#[test]
fn an_armed_queue_gives_one_event() {
    let mut pair = Pair::plain();
    let cq = pair.end(B).cq;
    exchange(&mut pair, false);
    assert!(!pair.end(B).hca.take_cq_event(cq), "it was not armed");
    pair.end(B).hca.arm_cq(cq, Arm::Next);
    assert!(!pair.end(B).hca.take_cq_event(cq), "what is there already brings none");
    exchange(&mut pair, false);
    exchange(&mut pair, false);
    assert!(pair.end(B).hca.take_cq_event(cq));
    assert!(!pair.end(B).hca.take_cq_event(cq));
    exchange(&mut pair, false);
    assert!(!pair.end(B).hca.take_cq_event(cq), "once");
}

#[test]
fn a_queue_armed_for_solicited_completions_lets_others_pass() {
    let mut pair = Pair::plain();
    let cq = pair.end(B).cq;
    pair.end(B).hca.arm_cq(cq, Arm::Solicited);
    exchange(&mut pair, false);
    assert!(!pair.end(B).hca.take_cq_event(cq));
    exchange(&mut pair, true);
    assert!(pair.end(B).hca.take_cq_event(cq));

    pair.end(B).hca.arm_cq(cq, Arm::Next);
    pair.end(B).hca.arm_cq(cq, Arm::Solicited);
    exchange(&mut pair, false);
    assert!(pair.end(B).hca.take_cq_event(cq), "the stronger of two stays");

    pair.end(B).hca.arm_cq(cq, Arm::Solicited);
    pair.post_recv(B, 1, 0, 10);
    pair.modify(B, &crate::roce::qp::Modify::Err).unwrap();
    assert!(pair.end(B).hca.take_cq_event(cq), "a failure is always told");
}

#[test]
fn an_overrun_queue_takes_its_queue_pairs_with_it() {
    let mut pair = Pair::new(&Options { cq_depth: 3, ..Options::default() });
    for id in 0..5 {
        pair.post_recv(B, id, 0, 10);
        pair.post(A, &SendWr { signaled: false, ..SendWr::new(id, SEND, Data::Inline(b"x")) }).unwrap();
    }
    pair.run(super::pair::US * 100);
    let cq = pair.end(B).cq;
    assert!(pair.end(B).hca.is_cq_overrun(cq));
    assert_eq!(pair.end(B).state(), State::Err);
    let qp = pair.end(B).qp;
    assert!(pair.end(B).hca.take_qp_events(qp).contains(Events::FATAL));
    assert_eq!(pair.successes(B), [0, 1, 2], "those that it took are there");
    pair.settle();
}

#[test]
fn what_is_in_use_stays() {
    let mut pair = Pair::plain();
    let (cq, qp) = (pair.end(A).cq, pair.end(A).qp);
    let hca = &mut pair.end(A).hca;
    assert_eq!(hca.destroy_cq(cq), Err(CreateError::InUse));
    assert_eq!(hca.create_cq(0), Err(CreateError::Limit));
    assert_eq!(hca.create_cq(1 << 20), Err(CreateError::Limit));
    assert_eq!(hca.destroy_qp(qp), Ok(()));
    assert_eq!(hca.destroy_cq(cq), Ok(()));
    assert_eq!(hca.destroy_cq(cq), Err(CreateError::Missing));
}
