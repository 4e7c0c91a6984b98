use super::*;
use crate::connectx::wqe::{AddressVector, Remote};

#[test]
fn a_frame_goes_out_and_is_completed() {
    let mut rig = Rig::new(Transport::Raw);
    rig.memory.write(PAYLOAD + 4, b"payload!").unwrap();
    let actions = rig.post(c::OPCODE_SEND, frame(buffer(LKEY, 4, 8)));
    let sent = Sent { uidx: UIDX, byte_count: 0, timestamp: 1234, opcode: c::OPCODE_SEND, qpn: QPN, wqe_counter: 0 };
    let [Action::Transmit(transmit), Action::Complete { cqn: CQN, cqe }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(*cqe, Cqe::Sent(sent));
    assert_eq!(transmit.frames, [[&[7; 18][..], b"payload!"].concat()]);
    assert_eq!(rig.poll(), [Cqe::Sent(sent)]);
    assert_eq!(rig.poll(), []);
}

#[test]
fn an_entry_goes_on_at_the_first_block() {
    let mut rig = Rig::new(Transport::Raw);
    for _ in 0..15 {
        rig.post(c::OPCODE_NOP, Body::Nop);
        rig.poll();
    }
    let payload: Vec<u8> = (0..100).collect();
    let actions = rig.post(c::OPCODE_SEND, Body::Frame(Ethernet::with_headers(&[7; 18]), vec![Piece::Inline(payload.clone())]));
    let [Action::Transmit(transmit), Action::Complete { .. }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(transmit.wqe_counter, 15);
    assert_eq!(transmit.frames[0][18..], payload);
    assert_eq!(rig.posted, 18, "three blocks");
    assert_eq!(ends(&rig.poll()), [(0, 15)]);
}

#[test]
fn only_what_asks_for_it_is_completed() {
    let mut rig = Rig::new(Transport::Raw);
    let first = rig.write(c::OPCODE_NOP, Body::Nop);
    rig.memory.write(SQ + 11, &[0]).unwrap();
    rig.write(c::OPCODE_NOP, Body::Nop);
    rig.ring(first);
    assert_eq!(ends(&rig.poll()), [(0, 1)]);
}

#[test]
fn a_doorbell_that_was_forgotten() {
    let mut rig = Rig::new(Transport::Raw);
    rig.write(c::OPCODE_NOP, Body::Nop);
    rig.set(RECORD, c::SND_DBR, 1);
    assert_eq!(rig.poll(), [], "nothing was rung");
    assert_eq!(rig.card.send_queue(QPN).unwrap().unrung(&rig.memory), Ok(1));
    rig.post(c::OPCODE_NOP, Body::Nop);
    assert_eq!(ends(&rig.poll()), [(0, 0), (0, 1)], "the next doorbell is for both");
    assert_eq!(rig.card.send_queue(QPN).unwrap().unrung(&rig.memory), Ok(0));
}

#[test]
fn what_was_rung_for_is_taken_by_and_by_and_nothing_else() {
    let mut rig = Rig::new(Transport::Raw);
    for _ in 0..3 {
        rig.write(c::OPCODE_NOP, Body::Nop);
    }
    rig.set(RECORD, c::SND_DBR, 3);
    assert_eq!(rig.card.take_rung(&mut rig.memory, QPN, 9), [], "nothing was rung");
    assert_eq!(rig.card.ring(&rig.memory, QPN, Some(2)), []);
    rig.write(c::OPCODE_NOP, Body::Nop);
    rig.set(RECORD, c::SND_DBR, 4);
    assert_eq!(rig.card.take_rung(&mut rig.memory, QPN, 2).len(), 2);
    assert_eq!(rig.card.take_rung(&mut rig.memory, QPN, 9).len(), 1);
    assert_eq!(rig.card.take_rung(&mut rig.memory, QPN, 9), []);
    assert_eq!(rig.card.send_queue(QPN).unwrap().unrung(&rig.memory), Ok(1));
    assert_eq!(ends(&rig.poll()), [(0, 0), (0, 1), (0, 2)]);
    assert_eq!(rig.card.ring(&rig.memory, QPN, None), []);
    assert_eq!(rig.card.take_rung(&mut rig.memory, QPN, 9).len(), 1);
    assert_eq!(broken(&rig.card.ring(&rig.memory, QPN, Some(9))), [Violation::DoorbellAheadOfRecord { rung: 9, producer: 4 }]);
    assert_eq!(broken(&rig.card.ring(&rig.memory, 7, None)), [Violation::NoSuchQueue { number: 7 }]);
}

#[test]
fn a_doorbell_before_its_record() {
    let mut rig = Rig::new(Transport::Raw);
    let first = rig.write(c::OPCODE_NOP, Body::Nop);
    let actions = rig.card.store(&mut rig.memory, c::BF_OFFSET, &first);
    assert_eq!(broken(&actions), [Violation::DoorbellAheadOfRecord { rung: 0, producer: 0 }]);
    assert_eq!(rig.poll(), []);
    assert_eq!(rig.ring(first).len(), 1, "it waits until it is rung again");
    // Once taken, a doorbell for it is late, and in order.
    assert_eq!(rig.ring(first), []);
}

#[test]
fn keys_are_checked() {
    let cases = [
        (buffer(0x999, 0, 60), Violation::UnknownKey { key: 0x999 }),
        (buffer(FOREIGN, 0, 60), Violation::OtherDomain { key: FOREIGN }),
        (buffer(LKEY, PAYLOAD_LEN - 59, 60), Violation::OutsideRegion { key: LKEY, addr: PAYLOAD + PAYLOAD_LEN - 59, len: 60 }),
    ];
    for (segment, violation) in cases {
        let mut rig = Rig::new(Transport::Raw);
        assert_eq!(broken(&rig.post(c::OPCODE_SEND, frame(segment))), [violation]);
        rig.post(c::OPCODE_NOP, Body::Nop);
        assert_eq!(ends(&rig.poll()), [(c::SYNDROME_LOCAL_PROT, 0), (c::SYNDROME_WR_FLUSH, 1)]);
    }
    let mut rig = Rig::new(Transport::Raw);
    rig.post(c::OPCODE_SEND, frame(buffer(READ_ONLY, PAYLOAD_LEN - 60, 60)));
    assert_eq!(ends(&rig.poll()), [(0, 0)], "a send only reads");
    let mut rig = Rig::new(Transport::Rc);
    let actions = rig.post(c::OPCODE_RDMA_READ, Body::Read(Remote { addr: 0, rkey: 0 }, vec![buffer(READ_ONLY, 0, 60)]));
    assert_eq!(broken(&actions), [Violation::AccessDenied { key: READ_ONLY }]);
}

#[test]
fn an_entry_of_the_last_lap() {
    let mut rig = Rig::new(Transport::Raw);
    for _ in 0..16 {
        rig.post(c::OPCODE_NOP, Body::Nop);
        rig.poll();
    }
    // The driver says that there is a new entry where it wrote none.
    rig.posted += 1;
    let first = *Control { ds: 1, ..control(c::OPCODE_NOP, 16) }.encode().first_chunk().unwrap();
    assert_eq!(broken(&rig.ring(first)), [Violation::WrongIndex { found: 0, expected: 16 }]);
    assert_eq!(ends(&rig.poll()), [(c::SYNDROME_LOCAL_QP_OP, 16)]);
}

#[test]
fn counters_that_cannot_be() {
    let mut rig = Rig::new(Transport::Raw);
    let first = rig.write(c::OPCODE_NOP, Body::Nop);
    rig.posted = 17;
    assert_eq!(broken(&rig.ring(first)), [Violation::Overrun { posted: 17, capacity: 16 }]);
    assert_eq!(ends(&rig.poll()), [(c::SYNDROME_LOCAL_QP_OP, 0)]);
    let mut rig = Rig::new(Transport::Raw);
    let body = Body::Frame(Ethernet::with_headers(&[7; 18]), vec![Piece::Inline(vec![0; 100])]);
    let first = rig.write(c::OPCODE_SEND, body);
    rig.posted = 2;
    assert_eq!(broken(&rig.ring(first)), [Violation::BeyondProducer { blocks: 3, posted: 2 }]);
    assert_eq!(ends(&rig.poll()), [(c::SYNDROME_LOCAL_QP_OP, 0)]);
}

#[test]
fn blueflame() {
    let mut rig = Rig::new(Transport::Raw);
    rig.write(c::OPCODE_SEND, frame(buffer(LKEY, 0, 60)));
    rig.set(RECORD, c::SND_DBR, 1);
    let mut block = [0; 64];
    rig.memory.read(SQ, &mut block).unwrap();
    let actions = rig.card.store(&mut rig.memory, c::BF_OFFSET + 256, &block);
    assert!(matches!(actions[..], [Action::Transmit(_), Action::Complete { .. }]));
    // An entry before it that was never rung for is not what was written into the register.
    rig.write(c::OPCODE_NOP, Body::Nop);
    rig.write(c::OPCODE_SEND, frame(buffer(LKEY, 0, 60)));
    rig.set(RECORD, c::SND_DBR, 3);
    rig.memory.read(SQ + 128, &mut block).unwrap();
    assert_eq!(broken(&rig.card.store(&mut rig.memory, c::BF_OFFSET, &block)), []);
    rig.write(c::OPCODE_SEND, frame(buffer(LKEY, 0, 60)));
    rig.set(RECORD, c::SND_DBR, 4);
    rig.memory.read(SQ + 192, &mut block).unwrap();
    block[63] ^= 1;
    let actions = rig.card.store(&mut rig.memory, c::BF_OFFSET, &block);
    assert!(matches!(
        actions[..],
        [Action::Broken { violation: Violation::BlueFlameDiffers, .. }, Action::Transmit(_), Action::Complete { .. }]
    ));
}

#[test]
fn stores_that_are_no_doorbell() {
    let mut rig = Rig::new(Transport::Raw);
    for (offset, len) in
        [(0, 8), (c::BF_OFFSET, 4), (c::BF_OFFSET, 320), (c::BF_OFFSET + 8, 8), (4096, 8), (c::CQ_DOORBELL, 4), (c::BF_OFFSET, 0)]
    {
        let actions = rig.card.store(&mut rig.memory, offset, &vec![0; len]);
        assert_eq!(broken(&actions), [Violation::BadRegisterWrite { offset, len }]);
    }
    let actions = rig.card.store(&mut rig.memory, c::BF_OFFSET, &[0, 0, 0, 0, 0, 0, 1, 1]);
    assert_eq!(broken(&actions), [Violation::NoSuchQueue { number: 1 }]);
}

#[test]
fn a_queue_that_is_not_mapped() {
    let mut rig = Rig::new(Transport::Raw);
    let ring = QueueBuffer { addr: 0x10, log_stride: 6, log_entries: LOG_BLOCKS };
    let config = SendConfig { rules: rules(Transport::Raw), ring, record: RECORD, pd: PD, uidx: UIDX, cqn: CQN };
    rig.card.add_pair(QPN, SendQueue::new(config), Receiver::None);
    let actions = rig.post(c::OPCODE_NOP, Body::Nop);
    assert!(matches!(actions[..], [Action::Broken { violation: Violation::QueueUnmapped(_), .. }, Action::QueueFailed { number: QPN }]));
    assert_eq!(rig.poll(), []);
}

#[test]
fn requests_wait_for_the_peer() {
    let mut rig = Rig::new(Transport::Rc);
    let write = || Body::Write(Remote { addr: 8, rkey: 9 }, vec![Piece::Memory(buffer(LKEY, 0, 60))]);
    let actions = rig.post(c::OPCODE_RDMA_WRITE, write());
    assert!(matches!(actions[..], [Action::Request { qpn: QPN, body: Body::Write(..), .. }]));
    rig.post(c::OPCODE_NOP, Body::Nop);
    rig.post(c::OPCODE_RDMA_WRITE, write());
    rig.post(c::OPCODE_RDMA_WRITE, write());
    assert_eq!(rig.poll(), [], "the NOP is behind a request");
    rig.card.finish(&mut rig.memory, QPN, 0, Outcome::Done { bytes: 0 });
    assert_eq!(ends(&rig.poll()), [(0, 0), (0, 1)]);
    let failed = Outcome::Failed { syndrome: c::SYNDROME_RETRY_EXC, vendor: 0x81 };
    rig.card.finish(&mut rig.memory, QPN, 2, failed);
    assert_eq!(rig.poll().len(), 2);
    rig.post(c::OPCODE_RDMA_WRITE, write());
    assert_eq!(ends(&rig.poll()), [(c::SYNDROME_WR_FLUSH, 4)]);
    assert_eq!(rig.card.finish(&mut rig.memory, QPN, 2, failed), [], "it ended before");
}

#[test]
fn requests_that_wait_keep_their_blocks() {
    let mut rig = Rig::new(Transport::Rc);
    let send = || Body::Send(None, vec![Piece::Memory(buffer(LKEY, 0, 60))]);
    for _ in 0..16 {
        assert_eq!(broken(&rig.post(c::OPCODE_SEND, send())), []);
    }
    assert_eq!(broken(&rig.post(c::OPCODE_SEND, send())), [Violation::Overrun { posted: 17, capacity: 16 }]);
}

#[test]
fn datagrams_wait_until_they_are_on_their_way() {
    let mut rig = Rig::new(Transport::Ud);
    let vector = AddressVector { qkey: 1, qpn: 2, stat_rate_sl: 0, fl_mlid: 0, rlid: 0, extended: None };
    let actions = rig.post(c::OPCODE_SEND, Body::Send(Some(vector), vec![Piece::Inline(vec![1; 20])]));
    assert!(matches!(actions[..], [Action::Request { body: Body::Send(Some(_), _), .. }]), "{actions:?}");
    let actions = rig.card.finish(&mut rig.memory, QPN, 0, Outcome::Done { bytes: 0 });
    assert!(matches!(actions[..], [Action::Complete { cqe: Cqe::Sent(_), .. }]), "{actions:?}");
}

#[test]
fn a_card_that_sees_no_registers_goes_by_the_record() {
    let mut rig = Rig::new(Transport::Ud);
    assert_eq!(rig.card.poll_send(&mut rig.memory, QPN, 64), []);
    let vector = AddressVector { qkey: 1, qpn: 2, stat_rate_sl: 0, fl_mlid: 0, rlid: 0, extended: None };
    let body = Body::Send(Some(vector), vec![Piece::Memory(buffer(LKEY, 0, 5))]);
    rig.write(c::OPCODE_SEND, body.clone());
    assert_eq!(rig.card.poll_send(&mut rig.memory, QPN, 64), [], "it is not posted before the record says so");
    rig.set(RECORD, c::SND_DBR, rig.posted.into());
    let actions = rig.card.poll_send(&mut rig.memory, QPN, 64);
    assert!(matches!(&actions[..], [Action::Request { qpn: QPN, body: taken, .. }] if *taken == body), "{actions:?}");
    assert_eq!(rig.poll(), [], "a datagram's buffers are the driver's when it is on its way");
    rig.card.finish(&mut rig.memory, QPN, 0, Outcome::Done { bytes: 0 });
    assert_eq!(ends(&rig.poll()), [(0, 0)]);
    rig.card.remove_pair(QPN);
    assert_eq!(rig.card.poll_send(&mut rig.memory, QPN, 64), []);
}

#[test]
fn a_card_that_looks_at_records_takes_some_and_then_the_rest() {
    let mut rig = Rig::new(Transport::Raw);
    for _ in 0..3 {
        rig.write(c::OPCODE_SEND, frame(buffer(LKEY, 0, 60)));
    }
    rig.set(RECORD, c::SND_DBR, rig.posted.into());
    let frames = |actions: &[Action]| actions.iter().filter(|action| matches!(action, Action::Transmit(_))).count();
    assert_eq!(frames(&rig.card.poll_send(&mut rig.memory, QPN, 2)), 2);
    assert_eq!(ends(&rig.poll()), [(0, 0), (0, 1)]);
    assert_eq!(frames(&rig.card.poll_send(&mut rig.memory, QPN, 2)), 1);
    assert_eq!(rig.card.poll_send(&mut rig.memory, QPN, 2), []);
}

#[test]
fn a_queue_that_is_put_in_error_flushes_what_is_posted_and_what_comes() {
    let mut rig = Rig::with(Transport::Raw, Receiver::Own(ReceiveQueue::new(receive_config(6, 2, ReceiveLayout::Cyclic))), None);
    rig.set(RECORD, c::RCV_DBR, 2);
    rig.write(c::OPCODE_NOP, Body::Nop);
    rig.set(RECORD, c::SND_DBR, rig.posted.into());
    let actions = rig.card.stop(&mut rig.memory, QPN);
    assert!(actions.iter().all(|action| matches!(action, Action::Complete { .. })), "no rule is broken: {actions:?}");
    assert_eq!(ends(&rig.poll()), [(c::SYNDROME_WR_FLUSH, 0), (c::SYNDROME_WR_FLUSH, 0), (c::SYNDROME_WR_FLUSH, 1)]);
    rig.post(c::OPCODE_SEND, frame(buffer(LKEY, 0, 60)));
    assert_eq!(ends(&rig.poll()), [(c::SYNDROME_WR_FLUSH, 1)]);
    assert_eq!(rig.card.stop(&mut rig.memory, 1), [], "there is no such queue");
}

#[test]
fn a_frame_whose_memory_is_gone_fails_and_none_goes_out() {
    let mut rig = Rig::new(Transport::Raw);
    let actions = rig.post(c::OPCODE_SEND, frame(DataSegment { byte_count: 60, lkey: GONE, addr: 1 << 32 }));
    assert_eq!(broken(&actions), [Violation::PayloadUnmapped(Unmapped { addr: 1 << 32 })]);
    assert!(!actions.iter().any(|action| matches!(action, Action::Transmit(_))));
    assert_eq!(ends(&rig.poll()), [(c::SYNDROME_LOCAL_PROT, 0)]);
}

#[test]
fn an_entry_that_is_spoiled_fails_though_it_is_in_order() {
    let mut rig = Rig::new(Transport::Raw);
    rig.post(c::OPCODE_SEND, frame(buffer(LKEY, 0, 60)));
    rig.card.spoil(QPN, c::SYNDROME_LOCAL_PROT);
    let actions = [0, 1].map(|_| rig.post(c::OPCODE_SEND, frame(buffer(LKEY, 0, 60))));
    assert!(actions.iter().all(|actions| broken(actions).is_empty()), "nobody has broken a rule");
    assert_eq!(ends(&rig.poll()), [(0, 0), (c::SYNDROME_LOCAL_PROT, 1), (c::SYNDROME_WR_FLUSH, 2)]);
}
