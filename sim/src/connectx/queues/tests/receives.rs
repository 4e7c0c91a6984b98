use super::*;
use crate::connectx::cqe::striding;

fn cyclic() -> Rig {
    Rig::with(Transport::Raw, Receiver::Own(ReceiveQueue::new(receive_config(6, 2, ReceiveLayout::Cyclic))), None)
}

/// A list of four segments, which ends with the key that says so.
fn list(segments: &[DataSegment]) -> Vec<u8> {
    let end = DataSegment { byte_count: 0, lkey: c::INVALID_LKEY, addr: 0 };
    segments.iter().chain([&end]).take(4).flat_map(DataSegment::encode).collect()
}

fn bytes(rig: &Rig, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rig.memory.read(PAYLOAD + at, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_packet_is_scattered() {
    let mut rig = cyclic();
    assert_eq!(rig.card.receive(&mut rig.memory, QPN, b"early", Received::default()), [Action::NoReceive { qpn: QPN }]);
    rig.memory.write(RQ, &list(&[buffer(LKEY, 0, 4), buffer(LKEY, 100, 10)])).unwrap();
    rig.set(RECORD, c::RCV_DBR, 1);
    let facts = Received { checks: c::CQE_L3_OK, qpn_or_tag: 0xabc, rss_hash: 9, ..Received::default() };
    rig.card.receive(&mut rig.memory, QPN, b"hello mlx5", facts);
    let received = Received { srqn_uidx: UIDX, byte_count: 10, timestamp: 1234, wqe_counter: 0, ..facts };
    assert_eq!(rig.poll(), [Cqe::Received(received)]);
    assert_eq!((bytes(&rig, 0, 5), bytes(&rig, 100, 7)), (b"hell\0".to_vec(), b"o mlx5\0".to_vec()));
    assert_eq!(rig.card.receive(&mut rig.memory, QPN, b"late", Received::default()), [Action::NoReceive { qpn: QPN }]);
}

#[test]
fn a_receive_that_is_too_short() {
    let mut rig = cyclic();
    for entry in 0..3 {
        rig.memory.write(RQ + 64 * entry, &list(&[buffer(LKEY, 0, 4), buffer(LKEY, 4, 4)])).unwrap();
    }
    rig.set(RECORD, c::RCV_DBR, 3);
    let actions = rig.card.receive(&mut rig.memory, QPN, b"nine byte", Received::default());
    assert_eq!(broken(&actions), [Violation::ReceiveShort { bytes: 9, room: 8 }]);
    assert_eq!(ends(&rig.poll()), [(c::SYNDROME_LOCAL_LENGTH, 0), (c::SYNDROME_WR_FLUSH, 1), (c::SYNDROME_WR_FLUSH, 2)]);
    assert_eq!(rig.card.receive(&mut rig.memory, QPN, b"later", Received::default()), [Action::Lost { qpn: QPN }]);
}

#[test]
fn a_receive_that_is_spoiled_fails_though_it_is_in_order() {
    let mut rig = Rig::with(Transport::Raw, Receiver::None, None);
    rig.card.add_receive(QPN + 1, ReceiveQueue::new(ReceiveConfig { number: QPN + 1, ..receive_config(6, 2, ReceiveLayout::Cyclic) }));
    (0..2).for_each(|entry| rig.memory.write(RQ + 64 * entry, &list(&[buffer(LKEY, 0, 100)])).unwrap());
    rig.set(RECORD, c::RCV_DBR, 2);
    rig.card.spoil(QPN + 1, c::SYNDROME_LOCAL_QP_OP);
    assert!(broken(&rig.card.receive(&mut rig.memory, QPN + 1, b"hello", Received::default())).is_empty(), "nobody has broken a rule");
    assert_eq!(ends(&rig.poll()), [(c::SYNDROME_LOCAL_QP_OP, 0), (c::SYNDROME_WR_FLUSH, 1)]);
    assert_eq!(rig.card.receive(&mut rig.memory, QPN + 1, b"later", Received::default()), [Action::Lost { qpn: QPN + 1 }]);
}

#[test]
fn receives_that_may_not_be_written() {
    for (segment, violation) in [
        (buffer(READ_ONLY, 0, 100), Violation::AccessDenied { key: READ_ONLY }),
        (buffer(FOREIGN, 0, 100), Violation::OtherDomain { key: FOREIGN }),
    ] {
        let mut rig = cyclic();
        rig.memory.write(RQ, &list(&[segment])).unwrap();
        rig.set(RECORD, c::RCV_DBR, 1);
        assert_eq!(broken(&rig.card.receive(&mut rig.memory, QPN, b"hello", Received::default())), [violation]);
        assert_eq!(ends(&rig.poll()), [(c::SYNDROME_LOCAL_PROT, 0)]);
        assert_eq!(bytes(&rig, 0, 5), [0; 5]);
    }
    let mut rig = cyclic();
    rig.set(RECORD, c::RCV_DBR, 5);
    let actions = rig.card.receive(&mut rig.memory, QPN, b"hello", Received::default());
    assert_eq!(broken(&actions), [Violation::Overrun { posted: 5, capacity: 4 }]);
    assert_eq!(rig.poll().len(), 4);
}

#[test]
fn packets_take_strides() {
    let layout = ReceiveLayout::Striding { log_stride_bytes: 6, log_strides: 3 };
    let mut rig = Rig::with(Transport::Raw, Receiver::Own(ReceiveQueue::new(receive_config(5, 1, layout))), None);
    for (entry, at) in [(0, 0), (1, 0x1000)] {
        rig.memory.write(RQ + 32 * entry + 16, &buffer(LKEY, at, 512).encode()).unwrap();
    }
    rig.set(RECORD, c::RCV_DBR, 2);
    let mut receive = |byte: u8, len: usize| {
        rig.card.receive(&mut rig.memory, QPN, &vec![byte; len], Received::default());
        let told = |cqe: &Cqe| match cqe {
            Cqe::Received(r) => (r.wqe_id, r.wqe_counter, striding::split(r.byte_count)),
            other => panic!("{other:?}"),
        };
        rig.poll().iter().map(told).collect::<Vec<_>>()
    };
    assert_eq!(receive(1, 60), [(0, 0, (1, 60, false))]);
    assert_eq!(receive(2, 130), [(0, 1, (3, 130, false))]);
    assert_eq!(receive(3, 300), [(0, 4, (4, 0, true)), (1, 0, (5, 300, false))], "four strides are left, five are needed");
    assert_eq!(receive(4, 192), [(1, 5, (3, 192, false))], "exactly what is left");
    assert_eq!(receive(5, 1), []);
    assert_eq!(bytes(&rig, 64, 131), [&[2; 130][..], &[0]].concat());
    assert_eq!(bytes(&rig, 0x1000 + 320, 193), [&[4; 192][..], &[0]].concat());
}

#[test]
fn a_packet_that_no_strides_hold() {
    let layout = ReceiveLayout::Striding { log_stride_bytes: 6, log_strides: 3 };
    for (len, byte_count, violation) in
        [(513, 512, Violation::ReceiveShort { bytes: 513, room: 512 }), (10, 511, Violation::ReceiveShort { bytes: 10, room: 511 })]
    {
        let mut rig = Rig::with(Transport::Raw, Receiver::Own(ReceiveQueue::new(receive_config(5, 1, layout))), None);
        rig.memory.write(RQ + 16, &buffer(LKEY, 0, byte_count).encode()).unwrap();
        rig.set(RECORD, c::RCV_DBR, 1);
        assert_eq!(broken(&rig.card.receive(&mut rig.memory, QPN, &vec![1; len], Received::default())), [violation]);
    }
}

/// Entries 0, 5 and 2, in this order.
fn shared() -> Rig {
    let mut rig = Rig::with(Transport::Rc, Receiver::Shared { srqn: SRQN, cqn: CQN }, None);
    for (entry, next) in [(0u64, 5u8), (5, 2), (2, 1)] {
        let mut bytes = vec![0, 0, 0, next, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(&list(&[buffer(LKEY, 16 * entry, 16)])[..32]);
        rig.memory.write(SRQ + 64 * entry, &bytes).unwrap();
    }
    rig
}

#[test]
fn a_shared_queue_follows_its_links() {
    let mut rig = shared();
    assert_eq!(rig.card.receive(&mut rig.memory, QPN, b"zero", Received::default()), [Action::NoReceive { qpn: QPN }]);
    rig.set(SRQ_RECORD, 0, 3);
    for packet in [b"one", b"two", b"six"] {
        rig.card.receive(&mut rig.memory, QPN, packet, Received::default());
    }
    let cqes = rig.poll();
    assert_eq!(ends(&cqes), [(0, 0), (0, 5), (0, 2)]);
    assert!(cqes.iter().all(|cqe| matches!(cqe, Cqe::Received(Received { srqn_uidx: SRQN, byte_count: 3, .. }))));
    assert_eq!(bytes(&rig, 80, 3), b"two");
    assert_eq!(rig.card.receive(&mut rig.memory, QPN, b"end", Received::default()), [Action::NoReceive { qpn: QPN }]);
}

#[test]
fn a_link_that_leads_astray() {
    let mut rig = shared();
    rig.memory.write(SRQ + 64 * 5 + 2, &[0, 8]).unwrap();
    rig.set(SRQ_RECORD, 0, 3);
    rig.card.receive(&mut rig.memory, QPN, b"one", Received::default());
    let actions = rig.card.receive(&mut rig.memory, QPN, b"two", Received::default());
    assert_eq!(broken(&actions), [Violation::BadLink { index: 8, entries: 8 }]);
    assert!(actions.contains(&Action::QueueFailed { number: SRQN }));
    assert!(matches!(rig.poll()[..], [Cqe::Received(_), Cqe::Failed(Failed { receive: true, qpn: QPN, wqe_counter: 5, .. })]));
    assert_eq!(rig.card.receive(&mut rig.memory, QPN, b"six", Received::default()), [Action::Lost { qpn: QPN }]);
}

#[test]
fn what_a_peer_may_touch() {
    let keys = &mut cyclic().card.keys;
    let region = Region { pd: PD, addr: 100, at: 7100, len: 50, access: Access::REMOTE_READ | Access::LOCAL_WRITE };
    assert_eq!(keys.register(7, region), None);
    let denied = Err(Violation::RemoteAccess { key: 7 });
    assert_eq!(keys.check_local(7, PD, 110, 40, true), Ok(7110), "it lies elsewhere than it says");
    assert_eq!(keys.check_remote(7, PD, 100, 50, Access::REMOTE_READ), Ok(()));
    assert_eq!(keys.check_remote(7, PD, 100, 51, Access::REMOTE_READ), denied);
    assert_eq!(keys.check_remote(7, PD, 99, 1, Access::REMOTE_READ), denied);
    assert_eq!(keys.check_remote(7, PD, u64::MAX, u64::MAX, Access::REMOTE_READ), denied);
    assert_eq!(keys.check_remote(7, PD, 100, 50, Access::REMOTE_WRITE), denied);
    assert_eq!(keys.check_remote(7, PD + 1, 100, 50, Access::REMOTE_READ), denied);
    assert_eq!(keys.deregister(7), Some(region));
    assert_eq!(keys.check_remote(7, PD, 100, 50, Access::REMOTE_READ), denied);
}

#[test]
fn a_transport_takes_entries_and_completes_them_itself() {
    let mut rig = cyclic();
    rig.memory.write(RQ, &list(&[buffer(LKEY, 0, 4), buffer(LKEY, 100, 10)])).unwrap();
    rig.memory.write(RQ + 64, &list(&[buffer(LKEY, 7, 1)])).unwrap();
    rig.set(RECORD, c::RCV_DBR, 2);
    let first = Posted { index: 0, list: vec![buffer(LKEY, 0, 4), buffer(LKEY, 100, 10)] };
    assert_eq!(rig.card.fetch(&rig.memory, QPN), Ok(Some(first)));
    assert_eq!(rig.card.fetch(&rig.memory, QPN), Ok(Some(Posted { index: 1, list: vec![buffer(LKEY, 7, 1)] })));
    assert_eq!(rig.card.fetch(&rig.memory, QPN), Ok(None));
    let received = Received { wqe_counter: 1, byte_count: 1, ..Received::default() };
    rig.card.complete_one(&mut rig.memory, CQN, Cqe::Received(received));
    assert_eq!(rig.poll(), [Cqe::Received(Received { timestamp: 1234, ..received })]);
    // More than the queue holds: it fails, and gives nothing more.
    rig.set(RECORD, c::RCV_DBR, 7);
    assert_eq!(rig.card.fetch(&rig.memory, QPN), Err(Violation::Overrun { posted: 5, capacity: 4 }));
    assert_eq!(rig.card.fetch(&rig.memory, QPN), Ok(None));
}

#[test]
fn a_transport_takes_shared_entries_in_the_order_of_their_links() {
    let mut rig = Rig::with(Transport::Rc, Receiver::Shared { srqn: SRQN, cqn: CQN }, None);
    for (entry, next) in [(0u64, 2u16), (1, 3), (2, 1)] {
        let link = u128::from(next) << 96;
        rig.memory.write(SRQ + 64 * entry, &link.to_be_bytes()).unwrap();
        rig.memory.write(SRQ + 64 * entry + 16, &list(&[buffer(LKEY, entry, 5)])).unwrap();
    }
    rig.set(SRQ_RECORD, c::RCV_DBR, 3);
    for index in [0u16, 2, 1] {
        let posted = Posted { index, list: vec![buffer(LKEY, index.into(), 5)] };
        assert_eq!(rig.card.fetch(&rig.memory, QPN), Ok(Some(posted)));
    }
    assert_eq!(rig.card.fetch(&rig.memory, QPN), Ok(None));
    rig.memory.write(SRQ + 64 * 3, &(8u128 << 96).to_be_bytes()).unwrap();
    rig.set(SRQ_RECORD, c::RCV_DBR, 4);
    assert_eq!(rig.card.fetch(&rig.memory, QPN), Err(Violation::BadLink { index: 8, entries: 8 }));
    rig.card.remove_shared(SRQN);
    assert_eq!(rig.card.fetch(&rig.memory, QPN), Ok(None));
}
