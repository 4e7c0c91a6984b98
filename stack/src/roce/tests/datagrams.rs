//! UD queue pairs, and queue pair 1.

use super::pair::Side::{A, B};
use super::pair::{BASE, Options, Pair, path};
use crate::device::messages::{Addresses, MULTICAST_QP, Path};
use crate::roce::memory::Access;
use crate::roce::packet::datagram::Datagram;
use crate::roce::psn::Psn;
use crate::roce::qp::{Modify, Mtu, State, Transport};
use crate::roce::work::{Data, PostError, SendOp, SendWr, Sge, Status};
use crate::roce::{CreateError, GRH_LEN, MANAGEMENT_MAX, Management, mad};

const QKEY: u32 = 0x0123_4567;

fn pair() -> Pair {
    let mut pair = Pair::unconnected(&Options::default(), Transport::Ud);
    for side in [A, B] {
        for way in [Modify::Init { access: Access::empty(), qkey: QKEY }, Modify::RtrDatagram, Modify::RtsDatagram { sq_psn: Psn::new(7) }]
        {
            pair.modify(side, &way).unwrap();
        }
    }
    pair
}

fn datagram(pair: &mut Pair, v6: bool, qkey: u32) -> SendOp {
    SendOp::Datagram { path: path(A, v6), dest_qp: pair.end(B).qp, qkey, immediate: Some(5) }
}

#[test]
fn a_datagram_comes_with_its_sender() {
    for v6 in [false, true] {
        let mut pair = pair();
        pair.post_recv(B, 70, 100, 200);
        let op = datagram(&mut pair, v6, QKEY);
        pair.post(A, &SendWr { solicited: true, ..SendWr::new(1, op, Data::Inline(b"hello")) }).unwrap();
        pair.settle();
        assert_eq!(pair.successes(A), [1]);
        let received = pair.end(B).poll().remove(0);
        let src_qp = pair.end(A).qp;
        assert_eq!((received.id, received.len, received.src_qp, received.grh), (70, 45, src_qp, true));
        assert_eq!((received.immediate, received.solicited), (Some(5), true));
        let bytes = pair.end(B).bytes(100, 45).to_vec();
        assert_eq!(&bytes[40..], b"hello");
        let packet = pair.sent(A).remove(0).bytes;
        if v6 {
            assert_eq!(bytes[..40], packet[..40], "the IPv6 header");
        } else {
            assert_eq!(bytes[..20], [0; 20]);
            assert_eq!(bytes[20..40], packet[..20], "the IPv4 header in the second 20 bytes");
        }
    }
}

#[test]
fn the_key_must_be_the_receiver_s() {
    let mut pair = pair();
    pair.post_recv(B, 70, 0, 200);
    let wrong = datagram(&mut pair, false, QKEY + 1);
    pair.post(A, &SendWr::new(1, wrong, Data::Inline(b"x"))).unwrap();
    pair.settle();
    assert_eq!(pair.successes(A), [1], "nobody tells");
    assert_eq!(pair.end(B).hca.dropped().qkey, 1);
    assert!(pair.end(B).poll().is_empty());
    let own = datagram(&mut pair, false, 0xffff_ffff);
    pair.post(A, &SendWr::new(2, own, Data::Inline(b"y"))).unwrap();
    pair.settle();
    assert_eq!(pair.successes(B), [70], "the highest bit: the sender's own key");
}

#[test]
fn without_a_receive_that_is_long_enough_a_datagram_is_lost() {
    let mut pair = pair();
    let op = datagram(&mut pair, false, QKEY);
    let send = |pair: &mut Pair| {
        pair.post(A, &SendWr::new(1, op, Data::Inline(b"hello"))).unwrap();
        pair.settle();
    };
    send(&mut pair);
    pair.post_recv(B, 70, 0, GRH_LEN as u32 + 4);
    send(&mut pair);
    assert_eq!(pair.end(B).hca.dropped().no_receive, 2);
    assert!(pair.end(B).poll().is_empty(), "the receive waits for one that fits");
    assert_eq!(pair.end(B).state(), State::Rts);
}

#[test]
fn a_send_queue_that_fails_goes_on_receiving_and_can_resume() {
    let mut pair = pair();
    let op = datagram(&mut pair, false, QKEY);
    pair.post_op(A, 1, op, 0, Mtu::B1024.bytes());
    pair.post_op(A, 2, op, 0, Mtu::B1024.bytes() + 1);
    pair.post_op(A, 3, op, 0, 1);
    pair.settle();
    assert_eq!(pair.statuses(A), [(1, Status::Success), (2, Status::LocalLength), (3, Status::Flushed)]);
    assert_eq!(pair.end(A).state(), State::Sqe);
    let dest_qp = pair.end(A).qp;
    pair.post_recv(A, 70, 0, 100);
    let back = SendOp::Datagram { path: path(B, false), dest_qp, qkey: QKEY, immediate: None };
    pair.post(B, &SendWr::new(1, back, Data::Inline(b"x"))).unwrap();
    pair.settle();
    assert_eq!(pair.successes(A), [70]);
    pair.modify(A, &Modify::Resume).unwrap();
    let bad = Sge { address: BASE, len: 1, lkey: 1 };
    pair.post_op(A, 4, op, 0, 1);
    pair.post(A, &SendWr::new(5, op, Data::Gather(&[bad]))).unwrap();
    pair.settle();
    assert_eq!(pair.statuses(A), [(4, Status::Success), (5, Status::LocalProtection)]);
}

#[test]
fn each_transport_has_its_operations() {
    let mut ud = pair();
    assert_eq!(ud.post(A, &SendWr::new(1, SendOp::Send { immediate: None }, Data::Inline(b"x"))), Err(PostError::Operation));
    let mut rc = Pair::plain();
    let op = datagram(&mut rc, false, QKEY);
    assert_eq!(rc.post(A, &SendWr::new(1, op, Data::Inline(b"x"))), Err(PostError::Operation));
}

#[test]
fn a_datagram_to_a_connection_and_a_request_to_datagrams_are_dropped() {
    let (mut ud, mut rc) = (pair(), Pair::plain());
    rc.lose(|_| true);
    rc.post(A, &SendWr::new(1, SendOp::Send { immediate: None }, Data::Inline(b"x"))).unwrap();
    rc.transmit();
    let request = rc.sent(A).remove(0).bytes;
    assert_eq!(rc.end(B).qp, ud.end(B).qp);
    ud.deliver(B, &request);
    assert_eq!(ud.end(B).hca.dropped().no_qp, 1);
    let op = datagram(&mut ud, false, QKEY);
    ud.lose(|_| true);
    ud.post(A, &SendWr::new(1, op, Data::Inline(b"x"))).unwrap();
    ud.transmit();
    let datagram = ud.sent(A).remove(0).bytes;
    rc.deliver(B, &datagram);
    assert_eq!(rc.end(B).hca.dropped().no_qp, 1);
}

#[test]
fn management_goes_by_queue_pair_1_and_is_bounded() {
    let mut pair = pair();
    let management = Management { path: path(A, false), bytes: [7; mad::LEN] };
    for round in 0..MANAGEMENT_MAX + 10 {
        assert_eq!(pair.end(A).hca.send_management(management.clone()), round < MANAGEMENT_MAX);
    }
    pair.settle();
    let packets = pair.sent(A);
    for packet in &packets {
        assert_eq!(Datagram::parse(&packet.bytes).unwrap().packet.header.dest_qp, 1);
        pair.deliver(B, &packet.bytes);
    }
    let received: Vec<_> = core::iter::from_fn(|| pair.end(B).hca.receive_management()).collect();
    assert_eq!(received, vec![management; MANAGEMENT_MAX]);
    assert_eq!(pair.end(B).hca.dropped().no_receive, MANAGEMENT_MAX as u64);
}

/// Whoever joins a group takes no management that is sent to all of it, nor datagrams to queue pairs that are no members.
#[test]
fn what_is_sent_to_many_is_for_members_alone() {
    let mut pair = pair();
    pair.post_recv(B, 1, 0, 1000);
    let group = Path::new(Addresses::V4 { src: [10, 9, 0, 1].into(), dst: [224, 129, 2, 3].into() }, 0x11);
    let (management, datagrams) = (Management { path: group, bytes: [7; mad::LEN] }, pair.end(B).qp);
    assert!(pair.end(A).hca.send_management(management));
    pair.lose(|_| true);
    pair.transmit();
    let sent = pair.sent(A).remove(0).bytes;
    pair.deliver(B, &sent);
    assert!(pair.end(B).hca.receive_management().is_none());
    let op = SendOp::Datagram { path: group, dest_qp: datagrams, qkey: QKEY, immediate: None };
    pair.post_op(A, 1, op, 0, 100);
    pair.transmit();
    let sent = pair.sent(A).remove(0).bytes;
    pair.deliver(B, &sent);
    assert!(pair.end(B).poll().is_empty());
    assert_eq!(pair.end(B).hca.dropped().no_qp, 2);
}

#[test]
fn a_member_has_multicast_loopback_until_it_is_told_otherwise() {
    let mut pair = pair();
    let group = Path::new(Addresses::V4 { src: [10, 9, 0, 1].into(), dst: [239, 1, 2, 3].into() }, 0x11);
    let own = pair.end(A).qp;
    pair.end(A).hca.join(own, group.addresses.dst()).unwrap();
    let received = |pair: &mut Pair| pair.end(A).poll().iter().filter(|completion| completion.id >= 100).count();
    for (hears, expected) in [(true, 1), (false, 0), (true, 1)] {
        pair.end(A).hca.set_multicast_loopback(own, hears).unwrap();
        pair.post_recv(A, 100, 2000, 1000);
        let op = SendOp::Datagram { path: group, dest_qp: MULTICAST_QP, qkey: QKEY, immediate: None };
        pair.post_op(A, 1, op, 0, 100);
        pair.transmit();
        assert_eq!(received(&mut pair), expected, "{hears}");
    }
    assert_eq!(pair.end(A).hca.set_multicast_loopback(own + 1000, false), Err(CreateError::Missing));
}
