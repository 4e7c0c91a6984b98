//! What is refused, by whom, and how both ends learn of it.

use super::pair::Side::{A, B};
use super::pair::{BASE, LATENCY, Options, Pair};
use crate::roce::memory::Access;
use crate::roce::packet::{Body, NakCode, Syndrome};
use crate::roce::qp::{Events, Modify, Mtu, Sending, State};
use crate::roce::work::{Data, SendOp, SendWr, Sge, Status};

/// Makes an operation of A's.
type Make = dyn Fn(&mut Pair) -> SendOp;

const SEND: SendOp = SendOp::Send { immediate: None };

/// Posts `op` between two sends, and says how both ends came out of it: A's completions and B's.
fn refused(options: &Options, op: impl FnOnce(&mut Pair) -> SendOp, len: u32) -> (Pair, [Vec<(u64, Status)>; 2]) {
    let mut pair = Pair::new(options);
    for id in [10, 11] {
        pair.post_recv(B, id, 0, 10);
    }
    let op = op(&mut pair);
    pair.post(A, &SendWr::new(1, SEND, Data::Inline(b"before"))).unwrap();
    pair.post_op(A, 2, op, 0, len);
    pair.post(A, &SendWr::new(3, SEND, Data::Inline(b"after"))).unwrap();
    pair.settle();
    let statuses = [pair.statuses(A), pair.statuses(B)];
    for side in [A, B] {
        assert_eq!(pair.end(side).state(), State::Err);
    }
    (pair, statuses)
}

fn naks(pair: &mut Pair) -> Vec<NakCode> {
    let nak = |body| match body {
        Body::Acknowledge(aeth) => match aeth.syndrome {
            Syndrome::Nak(code) => Some(code),
            _ => None,
        },
        _ => None,
    };
    pair.sent(B).iter().filter_map(|packet| nak(packet.body())).collect()
}

#[test]
fn memory_that_peers_may_not_touch() {
    let beyond = |pair: &mut Pair| pair.write(A, super::pair::REGION as u64 - 10, None);
    let before = |pair: &mut Pair| SendOp::Read { address: BASE - 1, rkey: pair.end(B).key };
    let wrapping = |pair: &mut Pair| SendOp::Write { address: u64::MAX - 3, rkey: pair.end(B).key, immediate: None };
    let no_key = |_: &mut Pair| SendOp::Write { address: BASE, rkey: 0x1234, immediate: None };
    let stale = |pair: &mut Pair| SendOp::FetchAdd { address: BASE, rkey: pair.end(B).key ^ 1, add: 1 };
    let cases: [(&Make, u32); 5] = [(&beyond, 11), (&before, 4), (&wrapping, 8), (&no_key, 1), (&stale, 8)];
    for (op, len) in cases {
        let (mut pair, statuses) = refused(&Options::default(), op, len);
        assert_eq!(statuses[0], [(1, Status::Success), (2, Status::RemoteAccess), (3, Status::Flushed)]);
        assert_eq!(statuses[1], [(10, Status::Success), (11, Status::Flushed)]);
        assert_eq!(naks(&mut pair), [NakCode::RemoteAccess]);
        let qp = pair.end(B).qp;
        assert_eq!(pair.end(B).hca.take_qp_events(qp), Events::ACCESS_ERROR);
        assert_eq!(pair.end(B).bytes(100, 1000), [0; 1000]);
    }
}

#[test]
fn operations_that_the_queue_pair_does_not_allow() {
    let write = |pair: &mut Pair| pair.write(A, 0, None);
    let read = |pair: &mut Pair| pair.read(A, 0);
    let add = |pair: &mut Pair| pair.fetch_add(A, 0, 1);
    let unaligned = |pair: &mut Pair| pair.fetch_add(A, 4, 1);
    let no_reads = Options { max_dest_rd_atomic: 0, ..Options::default() };
    let without = |access| Options { access: Access::all() - access, ..Options::default() };
    let cases: [(Options, &Make); 5] = [
        (without(Access::REMOTE_WRITE), &write),
        (without(Access::REMOTE_READ), &read),
        (without(Access::REMOTE_ATOMIC), &add),
        (Options::default(), &unaligned),
        (no_reads, &read),
    ];
    for (options, op) in cases {
        let (mut pair, statuses) = refused(&options, op, 8);
        assert_eq!(statuses[0], [(1, Status::Success), (2, Status::RemoteInvalidRequest), (3, Status::Flushed)]);
        assert_eq!(naks(&mut pair), [NakCode::InvalidRequest]);
        let qp = pair.end(B).qp;
        assert_eq!(pair.end(B).hca.take_qp_events(qp), Events::REQUEST_ERROR);
        assert_eq!(pair.end(B).bytes(100, 100), [0; 100]);
    }
}

#[test]
fn more_reads_at_once_than_were_promised() {
    let options = Options {
        max_dest_rd_atomic: 1,
        sending: Sending { max_rd_atomic: 3, timeout: 10, ..Sending::default() },
        mtu: Mtu::B256,
        ..Options::default()
    };
    let mut pair = Pair::new(&options);
    let op = pair.read(A, 0);
    for id in 0..3 {
        pair.post_op(A, id, op, 0, 1000);
    }
    // All come before one is answered.
    pair.lose(|packet| packet.from == A);
    pair.transmit();
    for packet in pair.sent(A) {
        pair.deliver(B, &packet.bytes);
    }
    assert_eq!(pair.end(B).state(), State::Err);
    pair.lose(|_| false);
    pair.settle();
    assert_eq!(pair.statuses(A), [(0, Status::Success), (1, Status::RemoteInvalidRequest), (2, Status::Flushed)]);
}

#[test]
fn a_message_that_is_longer_than_the_receive() {
    let (mut pair, statuses) = refused(&Options::default(), |_| SEND, 11);
    assert_eq!(statuses[0], [(1, Status::Success), (2, Status::RemoteInvalidRequest), (3, Status::Flushed)]);
    assert_eq!(statuses[1], [(10, Status::Success), (11, Status::LocalLength)]);
    assert_eq!(naks(&mut pair), [NakCode::InvalidRequest]);
}

#[test]
fn a_receive_whose_memory_is_gone() {
    let mut pair = Pair::plain();
    let bad = Sge { address: BASE, len: 10, lkey: 0x999 };
    let (now, qp) = (pair.now, pair.end(B).qp);
    pair.end(B).hca.post_recv(now, qp, 10, &[bad]).unwrap();
    pair.post(A, &SendWr::new(1, SEND, Data::Inline(b"x"))).unwrap();
    pair.settle();
    assert_eq!(pair.statuses(A), [(1, Status::RemoteOperation)]);
    assert_eq!(pair.statuses(B), [(10, Status::LocalProtection)]);
}

#[test]
fn a_sender_whose_memory_is_gone_fails_in_its_turn() {
    let mut pair = Pair::plain();
    pair.post_recv(B, 10, 0, 10);
    pair.post(A, &SendWr::new(1, SEND, Data::Inline(b"x"))).unwrap();
    let bad = Sge { address: BASE, len: 10, lkey: 0x999 };
    pair.post(A, &SendWr::new(2, SEND, Data::Gather(&[bad]))).unwrap();
    pair.post(A, &SendWr::new(3, SEND, Data::Inline(b"y"))).unwrap();
    pair.transmit();
    assert!(pair.statuses(A).is_empty(), "the first is not done yet");
    pair.settle();
    assert_eq!(pair.statuses(A), [(1, Status::Success), (2, Status::LocalProtection), (3, Status::Flushed)]);
    assert_eq!(pair.statuses(B), [(10, Status::Success)], "nothing of it went out");
}

#[test]
fn an_atomic_operation_needs_eight_bytes_of_its_own() {
    let mut pair = Pair::plain();
    let op = pair.fetch_add(A, 0, 1);
    pair.post_op(A, 1, op, 0, 4);
    pair.settle();
    assert_eq!(pair.statuses(A), [(1, Status::LocalLength)]);
}

#[test]
fn reads_without_a_depth_are_an_error_of_the_queue_pair() {
    let mut pair = Pair::new(&Options { sending: Sending { max_rd_atomic: 0, ..Sending::default() }, ..Options::default() });
    let op = pair.read(A, 0);
    pair.post_op(A, 1, op, 0, 4);
    pair.settle();
    assert_eq!(pair.statuses(A), [(1, Status::LocalQpOperation)]);
}

#[test]
fn memory_that_goes_away_in_the_middle() {
    let options = Options { mtu: Mtu::B256, ..Options::default() };
    // The responder's, of a write.
    let mut pair = Pair::new(&options);
    let op = pair.write(A, 0, None);
    pair.post_op(A, 1, op, 0, 1000);
    pair.lose(|packet| packet.from == A);
    pair.transmit();
    let packets = pair.sent(A);
    pair.deliver(B, &packets[0].bytes);
    let key = pair.end(B).key;
    let memory = pair.end(B).hca.deregister(key).unwrap();
    pair.deliver(B, &packets[1].bytes);
    assert_eq!(memory[256..], [0; super::pair::REGION - 256][..], "what was taken back is written no more");
    pair.lose(|_| false);
    pair.settle();
    assert_eq!(pair.statuses(A), [(1, Status::RemoteAccess)]);

    // The responder's, of a read.
    let mut pair = Pair::new(&options);
    let op = pair.read(A, 0);
    pair.post_op(A, 1, op, 0, 1000);
    pair.lose(|packet| packet.from == A);
    pair.transmit();
    let packets = pair.sent(A);
    pair.deliver(B, &packets[0].bytes);
    let key = pair.end(B).key;
    pair.end(B).hca.deregister(key);
    pair.lose(|_| false);
    pair.settle();
    assert_eq!(pair.statuses(A), [(1, Status::RemoteAccess)]);

    // The requester's.
    let mut options = options;
    options.tuning.window = 2;
    let mut pair = Pair::new(&options);
    let op = pair.write(A, 0, None);
    pair.post_op(A, 1, op, 0, 1000);
    pair.transmit();
    let key = pair.end(A).key;
    pair.end(A).hca.deregister(key);
    pair.run(LATENCY * 2000);
    assert_eq!(pair.statuses(A), [(1, Status::LocalProtection)]);
}

#[test]
fn another_protection_domain_s_memory() {
    let mut pair = Pair::plain();
    let other = pair.end(B).hca.alloc_pd();
    let rkey = pair.end(B).hca.register(other, BASE, vec![0; 100], Access::all()).unwrap();
    pair.post_op(A, 1, SendOp::Write { address: BASE, rkey, immediate: None }, 0, 4);
    pair.settle();
    assert_eq!(pair.statuses(A), [(1, Status::RemoteAccess)]);
}

#[test]
fn after_an_error_all_that_is_posted_is_flushed() {
    let mut pair = Pair::plain();
    pair.modify(A, &Modify::Err).unwrap();
    pair.post(A, &SendWr::new(1, SEND, Data::Inline(b"x"))).unwrap();
    pair.post_recv(A, 2, 0, 1);
    assert_eq!(pair.statuses(A), [(1, Status::Flushed), (2, Status::Flushed)]);
    pair.settle();
    assert!(pair.sent(A).is_empty());
}

#[test]
fn of_a_write_that_is_not_allowed_in_whole_nothing_is_written() {
    let mut pair = Pair::plain();
    pair.end(A).bytes(0, 3000).fill(0xaa);
    let op = pair.write(A, super::pair::REGION as u64 - 2999, None);
    pair.post_op(A, 1, op, 0, 3000);
    pair.settle();
    assert_eq!(pair.statuses(A), [(1, Status::RemoteAccess)]);
    assert_eq!(pair.end(B).bytes(0, super::pair::REGION), [0; super::pair::REGION]);
}

#[test]
fn a_receive_whose_memory_is_not_to_be_written() {
    let mut pair = Pair::plain();
    let (now, qp, pd) = (pair.now, pair.end(B).qp, pair.end(B).pd);
    let lkey = pair.end(B).hca.register(pd, BASE, vec![7; 10], Access::REMOTE_READ).unwrap();
    pair.end(B).hca.post_recv(now, qp, 10, &[Sge { address: BASE, len: 10, lkey }]).unwrap();
    pair.post(A, &SendWr::new(1, SEND, Data::Inline(b"x"))).unwrap();
    pair.settle();
    assert_eq!(pair.statuses(A), [(1, Status::RemoteOperation)]);
    assert_eq!(pair.statuses(B), [(10, Status::LocalProtection)]);
    assert_eq!(pair.end(B).hca.memory(lkey), Some(&vec![7; 10]));
}
