//! Acknowledgments that may wait for what is sent next.

use super::pair::Side::{A, B};
use super::pair::{LATENCY, Options, Pair, Side, US};
use crate::roce::packet::Body;
use crate::roce::work::{Data, SendOp, SendWr};

const SEND: SendOp = SendOp::Send { immediate: None };
/// Longer than anything here takes.
const LATE: core::time::Duration = LATENCY.saturating_mul(1000);

fn late() -> Pair {
    let mut options = Options::default();
    options.tuning.acknowledges_late = true;
    options.sending.timeout = 20;
    let mut pair = Pair::new(&options);
    pair.late = Some(LATE);
    for id in 0..64 {
        pair.post_recv(A, id, 0, 100);
        pair.post_recv(B, id, 0, 100);
    }
    pair
}

fn messages(pair: &mut Pair, side: Side, count: u64) {
    for id in 0..count {
        pair.post_op(side, id, SEND, 0, 10);
        pair.run(LATENCY * 2);
    }
}

#[test]
fn an_acknowledgment_goes_behind_the_next_request() {
    let mut pair = late();
    messages(&mut pair, A, 2);
    assert_eq!((pair.sent(B).len(), pair.successes(A)), (0, vec![]), "it waits");
    assert_eq!(pair.successes(B), [0, 1], "and the messages do not");
    messages(&mut pair, B, 1);
    let sent: Vec<_> = pair.sent(B).iter().map(super::pair::Packet::body).collect();
    assert!(matches!(sent[..], [Body::SendOnly(_), Body::Acknowledge(_)]), "{sent:?}");
    assert_eq!(pair.successes(A), [0, 0, 1], "the message, and one for both");
}

#[test]
fn of_some_messages_it_does_not_wait_and_of_few_not_for_ever() {
    let mut pair = late();
    messages(&mut pair, A, 32);
    assert_eq!(pair.sent(B).len(), 0);
    messages(&mut pair, A, 1);
    assert_eq!(pair.sent(B).len(), 1, "the peer waits for it, perhaps");
    assert_eq!(pair.successes(A).len(), 33);
    messages(&mut pair, A, 1);
    assert_eq!(pair.sent(B).len(), 0);
    pair.run(LATE + LATENCY);
    assert_eq!((pair.sent(B).len(), pair.successes(A)), (1, vec![0]));
}

#[test]
fn of_a_solicited_message_it_does_not_wait() {
    let mut pair = late();
    let sge = pair.end(A).sge(0, 10);
    pair.post(A, &SendWr { solicited: true, ..SendWr::new(0, SEND, Data::Gather(&[sge])) }).unwrap();
    pair.run(LATENCY * 2);
    assert_eq!((pair.sent(B).len(), pair.successes(A)), (1, vec![0]), "whoever sent it waits for that, perhaps");
}

#[test]
fn a_request_that_came_twice_is_answered_at_once() {
    let mut pair = late();
    messages(&mut pair, A, 1);
    let again = pair.sent(A).remove(0).bytes;
    pair.deliver(B, &again);
    pair.run(US);
    assert_eq!(pair.sent(B).len(), 1);
}

#[test]
fn a_queue_pair_that_is_unmade_owes_nothing_more() {
    let mut pair = late();
    messages(&mut pair, A, 1);
    let end = pair.end(B);
    let qp = end.qp;
    end.hca.destroy_qp(qp).unwrap();
    assert!(end.hca.is_urgent(), "its last acknowledgment is sent");
    pair.run(LATENCY * 2);
    assert!(!pair.end(B).hca.may_transmit());
    assert_eq!(pair.successes(A), [0]);
}
