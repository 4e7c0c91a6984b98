//! Unreliable connections, one rule at a time.

use super::pair::Side::{A, B};
use super::pair::{LATENCY, Options, Packet, Pair, US, path, pattern, psn};
use crate::roce::Dcqcn;
use crate::roce::memory::Access;
use crate::roce::packet::datagram::Datagram;
use crate::roce::packet::{Body, Header, Tail};
use crate::roce::qp::{Events, Modify, Mtu, Peer, Sending, State, Transport};
use crate::roce::work::{Data, Opcode, PostError, SendOp, SendWr, Status};

const SEND: SendOp = SendOp::Send { immediate: None };
const MTU: usize = 256;

fn pair() -> Pair {
    let mut pair = Pair::of(&Options { mtu: Mtu::B256, ..Options::default() }, Transport::Uc);
    pair.end(A).bytes(0, 4096).copy_from_slice(&pattern(1, 4096));
    pair
}

fn opcodes(packets: &[Packet]) -> Vec<u8> {
    packets.iter().map(|packet| packet.header().opcode()).collect()
}

#[test]
fn messages_arrive_and_nobody_answers() {
    let mut pair = pair();
    pair.post_recv(B, 1, 0, 1000);
    pair.post_recv(B, 2, 1000, 1000);
    pair.post_op(A, 1, SendOp::Send { immediate: Some(7) }, 0, 700);
    let write = pair.write(A, 4000, None);
    pair.post_op(A, 2, write, 100, 512);
    let write = pair.write(A, 5000, Some(8));
    pair.post_op(A, 3, write, 200, 100);
    pair.settle();
    assert_eq!(pair.successes(A), [1, 2, 3]);
    let received = pair.end(B).poll();
    let seen: Vec<_> = received.iter().map(|c| (c.id, c.opcode, c.len, c.immediate)).collect();
    assert_eq!(seen, [(1, Opcode::Receive, 700, Some(7)), (2, Opcode::ReceiveWithImmediate, 100, Some(8))]);
    let expected = pattern(1, 4096);
    assert!(pair.end(B).bytes(0, 700) == &expected[..700]);
    assert!(pair.end(B).bytes(4000, 512) == &expected[100..612]);
    assert!(pair.end(B).bytes(5000, 100) == &expected[200..300]);
    let sent = pair.sent(A);
    assert_eq!(opcodes(&sent), [0x20, 0x21, 0x23, 0x26, 0x28, 0x2b]);
    let numbers: Vec<_> = sent.iter().map(|packet| packet.header().psn).collect();
    assert_eq!(numbers, (0..6).map(|i| psn(A) + i).collect::<Vec<_>>(), "one after another, across messages");
    assert!(sent.iter().all(|packet| !packet.header().ack_request));
    assert!(pair.sent(B).is_empty());
}

#[test]
fn a_send_is_done_when_it_has_left() {
    let mut pair = pair();
    pair.lose(|_| true);
    for id in 0..3 {
        pair.post_op(A, id, SEND, 0, 600);
    }
    assert!(pair.successes(A).is_empty());
    pair.transmit();
    assert_eq!(pair.successes(A), [0, 1, 2]);
    assert_eq!(pair.sent(A).len(), 9);
    pair.settle();
    assert!(pair.sent(A).is_empty(), "and never again");
}

/// The message that a packet of was lost is gone, whichever packet it was; those before it and after it are not.
#[test]
fn a_missing_packet_costs_its_message_alone() {
    for lost in 1..=9 {
        let mut pair = pair();
        for id in 0..3 {
            pair.post_recv(B, id, id * 1000, 1000);
            pair.post_op(A, id, SEND, id * 600, 600);
        }
        let mut count = 0;
        pair.lose(move |_| {
            count += 1;
            count == lost
        });
        pair.settle();
        assert_eq!(pair.successes(A), [0, 1, 2]);
        assert_eq!(pair.successes(B), [0, 1], "receives are used in order");
        let missing = (lost - 1) / 3;
        let arrived: Vec<u64> = (0..3).filter(|message| *message != missing as u64).collect();
        for (place, message) in arrived.into_iter().enumerate() {
            let (from, expected) = (message as usize * 600, pattern(1, 4096));
            assert!(pair.end(B).bytes(place * 1000, 600) == &expected[from..from + 600], "{lost}: message {message}");
        }
    }
}

#[test]
fn a_packet_out_of_its_turn_ends_the_message_and_any_first_one_begins_another() {
    let mut pair = pair();
    pair.lose(|_| true);
    pair.post_op(A, 1, SEND, 0, 700);
    pair.post_op(A, 2, SEND, 1000, 700);
    pair.post_op(A, 3, SEND, 2000, 100);
    pair.transmit();
    let packets: Vec<Vec<u8>> = pair.sent(A).into_iter().map(|packet| packet.bytes).collect();
    let mut receive = |order: &[usize]| {
        order.iter().for_each(|at| pair.deliver(B, &packets[*at]));
        pair.successes(B).len()
    };
    // Packets 0, 1, 2 are the first message, 3, 4, 5 the second, 6 is the third.
    for (order, messages) in [
        (&[0, 1, 2][..], 0), // Without a receive.
        (&[1, 2], 0),
        (&[0, 2, 1], 0),
        (&[0, 1, 1, 2], 0),
        (&[0, 1, 5], 0),
        (&[0, 1, 4, 5, 2], 0),
    ] {
        assert_eq!(receive(order), messages, "{order:?}");
    }
    (0..9).for_each(|id| pair.post_recv(B, id, 10_000 + id * 1000, 1000));
    let mut receive = |order: &[usize]| {
        order.iter().for_each(|at| pair.deliver(B, &packets[*at]));
        pair.successes(B).len()
    };
    for (order, messages) in [
        (&[0, 2, 1][..], 0),
        (&[0, 1, 1, 2], 0),
        (&[2], 0),
        (&[0, 4, 5], 0),
        (&[3, 4, 5, 0, 1, 2], 2), // A whole message that overtook another.
        (&[0, 1, 3, 4, 5], 1),
        (&[0, 1, 6, 2], 1),
        (&[6, 6], 2), // Who comes twice is there twice: there are no duplicates without acknowledgments.
        (&[0, 0, 1, 2], 1),
    ] {
        assert_eq!(receive(order), messages, "{order:?}");
    }
    assert_eq!(pair.end(B).state(), State::Rts);
}

#[test]
fn what_a_peer_may_not_do_is_dropped_and_the_connection_stays() {
    let mut pair = pair();
    let pd = pair.end(B).pd;
    let private = pair.end(B).hca.register(pd, 0, vec![0; 100], Access::LOCAL_WRITE).unwrap();
    let wrong = [
        SendOp::Write { address: 0, rkey: private, immediate: None },
        SendOp::Write { address: 0, rkey: 7, immediate: Some(1) },
        pair.write(A, super::pair::REGION as u64 - 599, None),
    ];
    pair.post_recv(B, 1, 0, 100);
    for (id, op) in wrong.into_iter().enumerate() {
        pair.post_op(A, id as u64, op, 0, 600);
    }
    // Longer than the receive.
    pair.post_op(A, 10, SEND, 0, 101);
    pair.settle();
    assert_eq!(pair.successes(A), [0, 1, 2, 10]);
    assert!(pair.end(B).poll().is_empty());
    assert_eq!(pair.end(B).hca.dropped().unreliable, 10);
    assert!(pair.end(B).hca.memory(private).unwrap().iter().all(|byte| *byte == 0));
    assert!(pair.end(B).bytes(0, super::pair::REGION).iter().all(|byte| *byte == 0));
    pair.post_op(A, 11, SEND, 0, 100);
    let write = pair.write(A, 0, None);
    pair.modify(B, &Modify::Update { access: Some(Access::empty()), min_rnr_timer: None }).unwrap();
    pair.post_op(A, 12, write, 0, 100);
    pair.settle();
    assert_eq!(pair.successes(B), [1], "what may be done is done after it");
    assert_eq!(pair.end(B).hca.dropped().unreliable, 11, "the queue pair itself allows no writes any more");
    let (a, b) = (pair.end(A).qp, pair.end(B).qp);
    assert_eq!((pair.end(A).state(), pair.end(B).state()), (State::Rts, State::Rts));
    assert_eq!((pair.end(A).hca.take_qp_events(a), pair.end(B).hca.take_qp_events(b)), (Events::empty(), Events::empty()));
}

#[test]
fn a_write_whose_end_finds_no_receive_is_written_but_for_its_end() {
    let mut pair = pair();
    let write = pair.write(A, 4000, Some(1));
    pair.post_op(A, 1, write, 0, 600);
    pair.settle();
    let expected = pattern(1, 512);
    assert!(pair.end(B).bytes(4000, 512) == expected);
    assert!(pair.end(B).bytes(4512, 88).iter().all(|byte| *byte == 0));
    assert!(pair.end(B).poll().is_empty());
}

/// What this side did wrong is told it, and is its own: a receive fails the connection, a request the send queue (IBTA spec, volume 1, s10.3.1).
#[test]
fn own_memory_that_may_not_be_touched_is_an_error() {
    let mut pair = pair();
    let (now, qp, mut sge) = (pair.now, pair.end(B).qp, pair.end(B).sge(0, 100));
    sge.lkey = 7;
    pair.end(B).hca.post_recv(now, qp, 1, &[sge]).unwrap();
    pair.post_op(A, 1, SEND, 0, 10);
    pair.settle();
    assert_eq!((pair.statuses(B), pair.end(B).state()), (vec![(1, Status::LocalProtection)], State::Err));

    let mut pair = self::pair();
    pair.post_recv(A, 5, 0, 100);
    pair.post(A, &SendWr::new(1, SEND, Data::Gather(&[sge]))).unwrap();
    pair.post_op(A, 2, SEND, 0, 10);
    pair.transmit();
    assert_eq!(pair.statuses(A), [(1, Status::LocalProtection), (2, Status::Flushed)]);
    assert_eq!(pair.end(A).state(), State::Sqe);
    pair.post_op(B, 1, SEND, 0, 10);
    pair.settle();
    assert_eq!(pair.successes(A), [5], "it goes on receiving");
    pair.modify(A, &Modify::Resume).unwrap();
    pair.post_recv(B, 1, 0, 1000);
    pair.post_op(A, 3, SEND, 0, 600);
    pair.settle();
    assert_eq!((pair.successes(A), pair.end(B).poll().len()), (vec![3], 2));
}

#[test]
fn memory_that_goes_away_in_the_middle_ends_the_message_for_both() {
    let mut pair = pair();
    pair.post_recv(B, 1, 0, 1000);
    pair.post_op(A, 1, SEND, 0, 600);
    let mut out = [0; 4096];
    let now = pair.now;
    let len = pair.end(A).hca.poll_transmit(now, &mut out).unwrap();
    pair.deliver(B, &out[..len]);
    let key = pair.end(A).key;
    pair.end(A).hca.deregister(key);
    assert_eq!(pair.end(A).hca.poll_transmit(now, &mut out), None);
    assert_eq!(pair.statuses(A), [(1, Status::LocalProtection)]);
    pair.modify(A, &Modify::Resume).unwrap();
    pair.post(A, &SendWr::new(2, SEND, Data::Inline(b"whole"))).unwrap();
    pair.settle();
    assert_eq!((pair.successes(A), pair.successes(B)), (vec![2], vec![1]));
    assert_eq!(pair.end(B).bytes(0, 5), b"whole");
}

#[test]
fn there_are_no_reads_atomics_or_datagrams() {
    let mut pair = pair();
    let (read, add) = (pair.read(A, 0), pair.fetch_add(A, 0, 1));
    let datagram = SendOp::Datagram { path: path(A, false), dest_qp: 1, qkey: 0, immediate: None };
    for op in [read, add, datagram] {
        let sge = pair.end(A).sge(0, 8);
        assert_eq!(pair.post(A, &SendWr::new(1, op, Data::Gather(&[sge]))), Err(PostError::Operation));
    }
}

#[test]
fn sqd_finishes_what_was_begun() {
    let mut pair = pair();
    (1..3).for_each(|id| pair.post_op(A, id, SEND, 0, 600));
    let mut out = [0; 4096];
    let now = pair.now;
    assert!(pair.end(A).hca.poll_transmit(now, &mut out).is_some());
    pair.modify(A, &Modify::Sqd).unwrap();
    pair.transmit();
    assert_eq!((pair.successes(A), pair.sent(A).len()), (vec![1], 2));
    let qp = pair.end(A).qp;
    assert_eq!(pair.end(A).hca.take_qp_events(qp), Events::SEND_QUEUE_DRAINED);
    pair.modify(A, &Modify::Resume).unwrap();
    pair.transmit();
    assert_eq!((pair.successes(A), pair.sent(A).len()), (vec![2], 3));
}

#[test]
fn an_error_and_a_reset_forget_both_messages_in_hand() {
    for ends_by in [&[Modify::Reset][..], &[Modify::Err, Modify::Reset]] {
        let options = Options { mtu: Mtu::B256, ..Options::default() };
        let mut pair = pair();
        pair.post_recv(B, 1, 0, 1000);
        pair.post_op(A, 1, SEND, 0, 600);
        let mut out = [0; 4096];
        let now = pair.now;
        let len = pair.end(A).hca.poll_transmit(now, &mut out).unwrap();
        pair.deliver(B, &out[..len]);
        for side in [A, B] {
            ends_by.iter().for_each(|modify| pair.modify(side, modify).unwrap());
            pair.end(side).poll();
            pair.connect(side, &options);
        }
        pair.post_recv(B, 2, 0, 1000);
        pair.settle();
        assert!(pair.sent(A).is_empty());
        pair.post_op(A, 2, SEND, 0, 600);
        pair.settle();
        assert_eq!((pair.successes(A), pair.successes(B)), (vec![2], vec![2]), "{ends_by:?}");
        assert_eq!(pair.sent(A)[0].header().psn, psn(A));
    }
}

#[test]
fn transports_do_not_hear_each_other() {
    for (transport, unreliable) in [(Transport::Rc, true), (Transport::Uc, false), (Transport::Ud, true)] {
        let mut pair = Pair::unconnected(&Options::default(), transport);
        pair.modify(B, &Modify::Init { access: Access::all(), qkey: 0 }).unwrap();
        let peer = Peer { path: path(B, false), mtu: Mtu::B256, dest_qp: 256, rq_psn: psn(A), max_dest_rd_atomic: 0, min_rnr_timer: 1 };
        pair.modify(B, &if transport == Transport::Ud { Modify::RtrDatagram } else { Modify::Rtr(peer) }).unwrap();
        pair.post_recv(B, 1, 0, 100);
        let header = Header { unreliable, ..Header::new(Body::SendOnly(Tail::None), pair.end(B).qp, psn(A)) };
        let packet = crate::roce::packet::Packet { header, payload: &[1; MTU / 4] };
        let mut out = [0; 512];
        let len = Datagram { path: path(A, false), id: 0, packet, ip_header: &[] }.emit(&mut out);
        pair.deliver(B, &out[..len]);
        assert_eq!(pair.end(B).hca.dropped().no_qp, 1, "{transport:?}");
        assert!(pair.end(B).poll().is_empty());
    }
}

#[test]
fn a_peer_that_is_gone_is_sent_to_all_the_same() {
    let mut pair = pair();
    let now = pair.now;
    pair.end(A).hca.on_peer_gone(now, path(A, false).addresses.dst());
    pair.post_op(A, 1, SEND, 0, 10);
    pair.transmit();
    assert_eq!(pair.successes(A), [1]);
}

/// Annex A17.9: notifications go back whatever the connection is, and its sender is held to a rate by them.
#[test]
fn marks_slow_the_sender_down() {
    let mut options = Options { mtu: Mtu::B1024, ..Options::default() };
    options.tuning.dcqcn = Some(Dcqcn::new(1_000_000_000));
    let mut pair = Pair::of(&options, Transport::Uc);
    pair.fate = Box::new(|packet| {
        let mut bytes = packet.bytes.clone();
        super::campaign::mark(&mut bytes);
        vec![(LATENCY, bytes)]
    });
    let mut completed = 0;
    for id in 0..64 {
        pair.post_op(A, id, SEND, 0, 1024);
    }
    pair.run(US * 20);
    let notified = pair.sent(B);
    assert!(matches!(notified[0].body(), Body::CongestionNotification), "{notified:?}");
    completed += pair.successes(A).len();
    for id in 0..64 {
        let write = pair.write(A, 0, None);
        pair.post_op(A, id, write, 0, 4096);
    }
    pair.run(US * 100);
    completed += pair.successes(A).len();
    // At the link's rate all of it would have left at once.
    assert!((64..120).contains(&completed), "{completed}");
    pair.settle();
    assert_eq!(pair.successes(A).len(), 128 - completed);
}

/// What has come tells a program that its peer is there (COMMUNICATION_ESTABLISHED), upon which it goes on to RTS: in the middle of that message, perhaps.
#[test]
fn a_message_goes_on_while_its_receiver_becomes_ready_to_send() {
    let options = Options { mtu: Mtu::B256, ..Options::default() };
    let mut pair = Pair::unconnected(&options, Transport::Uc);
    pair.connect(A, &options);
    let peer =
        Peer { path: path(B, false), mtu: options.mtu, dest_qp: pair.end(A).qp, rq_psn: psn(A), max_dest_rd_atomic: 0, min_rnr_timer: 0 };
    for modify in [Modify::Init { access: options.access, qkey: 0 }, Modify::Rtr(peer)] {
        pair.modify(B, &modify).unwrap();
    }
    pair.lose(|_| true);
    pair.post_recv(B, 1, 0, 1000);
    pair.post_op(A, 1, SEND, 0, 600);
    pair.transmit();
    for (at, packet) in pair.sent(A).into_iter().enumerate() {
        pair.deliver(B, &packet.bytes);
        if at == 0 {
            pair.modify(B, &Modify::Rts(Sending { sq_psn: psn(B), ..options.sending })).unwrap();
        }
    }
    assert_eq!(pair.successes(B), [1]);
}
