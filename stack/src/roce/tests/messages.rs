//! What each operation does when nothing is lost.

use super::pair::Side::{A, B};
use super::pair::{BASE, Options, Pair, pattern, psn};
use crate::roce::packet::datagram::Datagram;
use crate::roce::packet::{Body, Syndrome, Tail};
use crate::roce::qp::{Mtu, Sending};
use crate::roce::work::{Data, Opcode, PostError, SendOp, SendWr, Sge};

const SEND: SendOp = SendOp::Send { immediate: None };

#[test]
fn a_send_fills_the_next_receive() {
    let mut pair = Pair::plain();
    pair.end(A).bytes(0, 5).copy_from_slice(b"hello");
    pair.post_recv(B, 70, 100, 50);
    pair.post_op(A, 7, SendOp::Send { immediate: Some(0xdead_beef) }, 0, 5);
    pair.settle();
    let sent = pair.end(A).poll();
    assert_eq!((sent.len(), sent[0].id, sent[0].opcode), (1, 7, Opcode::Send));
    let received = pair.end(B).poll();
    assert_eq!((received.len(), received[0].id, received[0].opcode, received[0].len), (1, 70, Opcode::Receive, 5));
    assert_eq!((received[0].immediate, received[0].grh), (Some(0xdead_beef), false));
    assert_eq!(pair.end(B).bytes(99, 7), b"\0hello\0");
    assert_eq!(pair.sent(A).len(), 1);
    assert_eq!(pair.sent(B).len(), 1, "one acknowledgment");
}

#[test]
fn messages_are_cut_at_the_path_mtu() {
    for mtu in Mtu::ALL {
        for v6 in [false, true] {
            let mut pair = Pair::new(&Options { mtu, v6, ..Options::default() });
            let len = 3 * mtu.bytes() + 5;
            let data = pattern(1, len as usize);
            pair.end(A).bytes(0, len as usize).copy_from_slice(&data);
            pair.post_recv(B, 1, 0, len);
            pair.post_op(A, 1, SEND, 0, len);
            pair.settle();
            assert_eq!(pair.end(B).bytes(0, len as usize), data);
            let packets = pair.sent(A);
            let bodies: Vec<_> = packets.iter().map(super::pair::Packet::body).collect();
            assert_eq!(bodies, [Body::SendFirst, Body::SendMiddle, Body::SendMiddle, Body::SendLast(Tail::None)]);
            let lens: Vec<_> = packets.iter().map(|p| Datagram::parse(&p.bytes).unwrap().packet.payload.len() as u32).collect();
            assert_eq!(lens, [mtu.bytes(), mtu.bytes(), mtu.bytes(), 5]);
            let numbers: Vec<_> = packets.iter().map(|p| p.header().psn.distance(psn(A))).collect();
            assert_eq!(numbers, [0, 1, 2, 3]);
            let asks: Vec<_> = packets.iter().map(|p| p.header().ack_request).collect();
            assert_eq!(asks, [false, false, false, true], "as Linux does it in the capture");
        }
    }
}

#[test]
fn a_write_lands_without_a_receive_and_one_with_immediate_takes_one() {
    let mut pair = Pair::plain();
    let data = pattern(2, 3000);
    pair.end(A).bytes(0, 3000).copy_from_slice(&data);
    let plain = pair.write(A, 5000, None);
    pair.post_op(A, 1, plain, 0, 3000);
    let with = pair.write(A, 8000, Some(0x8000_0180));
    pair.post_op(A, 2, with, 0, 2048);
    pair.post_recv(B, 70, 0, 0);
    pair.settle();
    assert_eq!(pair.successes(A), [1, 2]);
    let received = pair.end(B).poll();
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].opcode, received[0].len, received[0].immediate), (Opcode::ReceiveWithImmediate, 2048, Some(0x8000_0180)));
    assert_eq!(pair.end(B).bytes(5000, 3000), data);
    assert_eq!(pair.end(B).bytes(8000, 2048), &data[..2048]);
    assert_eq!(pair.end(B).bytes(4999, 1), [0]);
    assert_eq!(pair.end(B).bytes(10_048, 1), [0]);
}

#[test]
fn without_bytes_a_key_means_nothing() {
    // Upstream's control messages have whatever lay there in the RETH (rdma.md s1.5).
    let mut pair = Pair::plain();
    pair.post_recv(B, 70, 0, 0);
    let op = SendOp::Write { address: 0x7f22_f1e8_c18c, rkey: 0, immediate: Some(0xe000_0000) };
    pair.post(A, &SendWr::new(1, op, Data::Gather(&[]))).unwrap();
    pair.post(A, &SendWr::new(2, SendOp::Read { address: 1, rkey: 2 }, Data::Gather(&[]))).unwrap();
    pair.settle();
    assert_eq!(pair.successes(A), [1, 2]);
    assert_eq!(pair.end(B).poll()[0].immediate, Some(0xe000_0000));
}

#[test]
fn a_read_brings_bytes_in_pieces() {
    let mut pair = Pair::plain();
    let data = pattern(3, 2500);
    pair.end(B).bytes(100, 2500).copy_from_slice(&data);
    let op = pair.read(A, 100);
    let sges = [pair.end(A).sge(0, 1000), pair.end(A).sge(4000, 1500)];
    pair.post(A, &SendWr::new(1, op, Data::Gather(&sges))).unwrap();
    pair.settle();
    let done = pair.end(A).poll();
    assert_eq!((done[0].opcode, done[0].len), (Opcode::Read, 2500));
    assert_eq!(pair.end(A).bytes(0, 1000), &data[..1000]);
    assert_eq!(pair.end(A).bytes(4000, 1500), &data[1000..]);
    let bodies: Vec<_> = pair.sent(B).iter().map(super::pair::Packet::body).collect();
    assert!(matches!(bodies[..], [Body::ReadResponseFirst(_), Body::ReadResponseMiddle, Body::ReadResponseLast(_)]), "{bodies:?}");
    assert!(pair.end(B).poll().is_empty(), "a responder sees nothing of it");
}

#[test]
fn a_read_sees_the_write_before_it() {
    let mut pair = Pair::plain();
    pair.end(A).bytes(0, 4).copy_from_slice(b"new!");
    let (write, read) = (pair.write(A, 0, None), pair.read(A, 0));
    pair.post_op(A, 1, write, 0, 4);
    pair.post_op(A, 2, read, 100, 4);
    pair.settle();
    assert_eq!(pair.successes(A), [1, 2]);
    assert_eq!(pair.end(A).bytes(100, 4), b"new!");
}

#[test]
fn atomics_give_what_was_there() {
    let mut pair = Pair::plain();
    pair.end(B).bytes(8, 8).copy_from_slice(&5u64.to_ne_bytes());
    let rkey = pair.end(B).key;
    let swap = |compare, swap| SendOp::CompareSwap { address: BASE + 8, rkey, compare, swap };
    let add = pair.fetch_add(A, 8, 10);
    for (id, op) in [(1, add), (2, swap(15, 100)), (3, swap(15, 200)), (4, add)] {
        pair.post_op(A, id, op, id * 8, 8);
    }
    pair.settle();
    assert_eq!(pair.successes(A), [1, 2, 3, 4]);
    let seen: Vec<_> = (1..5).map(|id| u64::from_ne_bytes(pair.end(A).bytes(id * 8, 8).try_into().unwrap())).collect();
    assert_eq!(seen, [5, 15, 100, 100]);
    assert_eq!(pair.end(B).bytes(8, 8), 110u64.to_ne_bytes());
}

#[test]
fn inline_bytes_are_copied_when_they_are_posted() {
    let mut pair = Pair::plain();
    for round in 0..100u32 {
        pair.post_recv(B, 1, 0, 64);
        let bytes = pattern(round, 33);
        pair.post(A, &SendWr::new(1, SEND, Data::Inline(&bytes))).unwrap();
        pair.settle();
        assert_eq!(pair.end(B).bytes(0, 33), bytes, "round {round}");
        pair.successes(A);
    }
    assert_eq!(pair.post(A, &SendWr::new(1, SEND, Data::Inline(&[0; 65]))), Err(PostError::TooLong));
    let read = pair.read(A, 0);
    assert_eq!(pair.post(A, &SendWr::new(1, read, Data::Inline(&[0; 8]))), Err(PostError::Operation));
}

#[test]
fn queues_are_as_deep_as_they_were_made() {
    let mut pair = Pair::plain();
    for _ in 0..64 {
        pair.post(A, &SendWr::new(1, SEND, Data::Gather(&[]))).unwrap();
    }
    assert_eq!(pair.post(A, &SendWr::new(1, SEND, Data::Gather(&[]))), Err(PostError::Full));
    let sge = Sge { address: BASE, len: 1, lkey: 0 };
    pair.post_recv(B, 1, 0, 0);
    pair.run(super::pair::LATENCY * 3);
    assert_eq!(pair.post(A, &SendWr::new(1, SEND, Data::Gather(&[sge; 5]))), Err(PostError::TooLong), "4 pieces at most");
}

#[test]
fn unsignaled_sends_complete_silently() {
    let mut pair = Pair::plain();
    for id in 0..4 {
        pair.post_recv(B, id, 0, 10);
        let wr = SendWr { signaled: id == 3, ..SendWr::new(id, SEND, Data::Inline(b"x")) };
        pair.post(A, &wr).unwrap();
    }
    pair.settle();
    assert_eq!(pair.successes(A), [3]);
    assert_eq!(pair.successes(B), [0, 1, 2, 3]);
}

#[test]
fn acknowledgments_that_wait_together_are_one() {
    let mut pair = Pair::plain();
    for id in 0..10 {
        pair.post_recv(B, id, 0, 10);
        pair.post(A, &SendWr::new(id, SEND, Data::Inline(b"x"))).unwrap();
    }
    // All arrive at one instant, but the pair transmits after each; so they are delivered by hand.
    pair.lose(|packet| packet.from == A);
    pair.transmit();
    for packet in pair.sent(A) {
        pair.deliver(B, &packet.bytes);
    }
    pair.lose(|_| false);
    pair.settle();
    let acks = pair.sent(B);
    assert_eq!(acks.len(), 1);
    let Body::Acknowledge(aeth) = acks[0].body() else { panic!() };
    assert_eq!((aeth.syndrome, aeth.msn), (Syndrome::Ack(31), 10));
    assert_eq!(pair.successes(A), (0..10).collect::<Vec<_>>());
}

#[test]
fn no_more_reads_at_once_than_were_agreed() {
    let mut pair = Pair::new(&Options { sending: Sending { max_rd_atomic: 2, timeout: 14, ..Sending::default() }, ..Options::default() });
    let op = pair.read(A, 0);
    for id in 0..5 {
        pair.post_op(A, id, op, 0, 100);
    }
    pair.transmit();
    assert_eq!(pair.sent(A).len(), 2);
    pair.settle();
    assert_eq!(pair.successes(A), [0, 1, 2, 3, 4]);
}

#[test]
fn a_fence_waits_for_reads() {
    let mut pair = Pair::plain();
    pair.post_recv(B, 1, 0, 10);
    let read = pair.read(A, 0);
    pair.post_op(A, 1, read, 0, 100);
    pair.post(A, &SendWr { fence: true, ..SendWr::new(2, SEND, Data::Inline(b"x")) }).unwrap();
    pair.transmit();
    assert_eq!(pair.sent(A).len(), 1, "the send waits");
    pair.settle();
    assert_eq!(pair.successes(A), [1, 2]);
}

#[test]
fn a_message_longer_than_the_window_moves_it_on() {
    let mut options = Options { mtu: Mtu::B256, ..Options::default() };
    options.tuning.window = 33;
    let mut pair = Pair::new(&options);
    let data = pattern(4, 60_000);
    pair.end(A).bytes(0, 60_000).copy_from_slice(&data);
    let op = pair.write(A, 0, None);
    pair.post_op(A, 1, op, 0, 60_000);
    pair.transmit();
    assert_eq!(pair.sent(A).len(), 33);
    pair.settle();
    assert_eq!(pair.successes(A), [1]);
    assert_eq!(pair.end(B).bytes(0, 60_000), data);
}

#[test]
fn both_ends_talk_at_once() {
    let mut pair = Pair::plain();
    for side in [A, B] {
        let op = pair.read(side, 30_000);
        let write = pair.write(side, 0, Some(1));
        for id in 0..10 {
            pair.post_recv(side, 100 + id, 0, 0);
            pair.post_op(side, id * 2, op, 40_000, 5000);
            pair.post_op(side, id * 2 + 1, write, 20_000, 5000);
        }
    }
    pair.settle();
    for side in [A, B] {
        let ids = pair.successes(side);
        assert_eq!(ids.iter().filter(|id| **id < 100).copied().collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
        assert_eq!(ids.iter().filter(|id| **id >= 100).copied().collect::<Vec<_>>(), (100..110).collect::<Vec<_>>());
    }
}

#[test]
fn who_is_read_from_sends_meanwhile() {
    let mut pair = Pair::new(&Options { mtu: Mtu::B256, ..Options::default() });
    let op = pair.read(A, 0);
    pair.post_op(A, 1, op, 0, 20_000);
    pair.post_recv(A, 2, 30_000, 1000);
    pair.transmit();
    pair.post_op(B, 3, SEND, 0, 1000);
    // The request arrives before B sends anything.
    pair.lose(|packet| packet.from == B);
    let request = pair.sent(A).remove(0);
    pair.deliver(B, &request.bytes);
    pair.transmit();
    let sends: Vec<_> = pair.sent(B).iter().map(|packet| !packet.is_response()).collect();
    assert_eq!(sends[..8], [false, true, false, true, false, true, false, true], "turn and turn about");
}

#[test]
fn queue_pairs_take_turns() {
    let options = Options { mtu: Mtu::B256, ..Options::default() };
    let mut pair = Pair::new(&options);
    let second = pair.add_qp(&options);
    pair.lose(|_| true);
    let op = pair.write(A, 0, None);
    pair.post_op(A, 1, op, 0, 1000);
    let (now, sge) = (pair.now, pair.end(A).sge(0, 1000));
    pair.end(A).hca.post_send(now, second, &SendWr::new(2, op, Data::Gather(&[sge]))).unwrap();
    pair.transmit();
    let to: Vec<_> = pair.sent(A).iter().map(|packet| packet.header().dest_qp).collect();
    assert_eq!(to.len(), 8);
    assert!(to.windows(2).all(|pair| pair[0] != pair[1]), "{to:?}");
}
