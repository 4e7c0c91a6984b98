use super::*;
use crate::connectx::cqe::compressed::{MiniFormat, begins_run};

const EVENT: Action = Action::Event { cqn: CQN };

fn nop(rig: &mut Rig) -> bool {
    rig.post(c::OPCODE_NOP, Body::Nop).contains(&EVENT)
}

#[test]
fn owners_change_with_each_lap() {
    let mut rig = Rig::new(Transport::Raw);
    let mut all = Vec::new();
    for _ in 0..40 {
        nop(&mut rig);
        all.extend(ends(&rig.poll()));
    }
    assert_eq!(all, (0..40).map(|i| (0, i)).collect::<Vec<_>>());
}

#[test]
fn a_queue_that_overruns() {
    let mut rig = Rig::new(Transport::Raw);
    for _ in 0..8 {
        assert_eq!(rig.post(c::OPCODE_NOP, Body::Nop).len(), 1);
    }
    let actions = rig.post(c::OPCODE_NOP, Body::Nop);
    let violation = Violation::CqOverrun { cqn: CQN };
    assert_eq!(actions, [Action::Broken { number: CQN, violation }, Action::QueueFailed { number: CQN }]);
    assert_eq!(rig.poll().len(), 8, "what was there is there");
    let actions = rig.post(c::OPCODE_NOP, Body::Nop);
    assert_eq!(actions, [Action::Broken { number: CQN, violation }], "it has failed once and for all");
    assert_eq!(rig.poll(), []);
}

#[test]
fn a_consumer_that_runs_ahead() {
    let mut rig = Rig::new(Transport::Raw);
    rig.set(CQ_RECORD, c::CQ_SET_CI, 1);
    let actions = rig.post(c::OPCODE_NOP, Body::Nop);
    assert_eq!(broken(&actions), [Violation::ConsumerAhead { consumer: 1, producer: 0 }]);
    assert_eq!(rig.poll().len(), 1, "it was written all the same");
}

#[test]
fn an_armed_queue_tells_once() {
    let mut rig = Rig::new(Transport::Raw);
    assert!(!nop(&mut rig), "not armed");
    rig.poll();
    assert_eq!(rig.arm(0, false), [], "nothing is newer than what was consumed");
    assert!(nop(&mut rig));
    assert!(!nop(&mut rig), "it was told");
    // The same request again is an old one; the next number arms. What came since the event counts.
    assert_eq!(rig.arm(0, false), []);
    assert!(!nop(&mut rig));
    assert_eq!(rig.arm(1, false), [EVENT]);
    rig.poll();
    assert_eq!(rig.arm(2, false), []);
    assert!(nop(&mut rig));
}

#[test]
fn what_was_told_raises_no_event_again() {
    let mut rig = Rig::new(Transport::Raw);
    rig.arm(0, false);
    assert!(nop(&mut rig));
    // It is not consumed, and the driver arms again.
    assert_eq!(rig.arm(1, false), [], "no completion is newer than the event");
    assert!(nop(&mut rig));
}

#[test]
fn solicited_completions() {
    let mut rig = Rig::with(Transport::Raw, Receiver::Own(ReceiveQueue::new(receive_config(4, 3, ReceiveLayout::Cyclic))), None);
    for entry in 0..8 {
        rig.memory.write(RQ + 16 * entry, &buffer(LKEY, 0, 100).encode()).unwrap();
    }
    rig.set(RECORD, c::RCV_DBR, 8);
    rig.arm(0, true);
    assert!(!nop(&mut rig));
    assert!(!rig.card.receive(&mut rig.memory, QPN, b"plain", Received::default()).contains(&EVENT));
    let solicited = Received { solicited: true, ..Received::default() };
    assert!(rig.card.receive(&mut rig.memory, QPN, b"urgent", solicited).contains(&EVENT));
    rig.poll();
    rig.arm(1, true);
    let actions = rig.post(c::OPCODE_SEND, frame(buffer(0x999, 0, 60)));
    assert!(actions.contains(&EVENT), "a failure counts: {actions:?}");
}

#[test]
fn an_arm_request_that_differs_from_its_record() {
    let mut rig = Rig::new(Transport::Raw);
    rig.set(CQ_RECORD, c::CQ_ARM_DB, 5);
    let actions = rig.card.store(&mut rig.memory, c::CQ_DOORBELL, &[0x10, 0, 0, 0, 0, 0, 0, CQN as u8]);
    assert_eq!(broken(&actions), [Violation::ArmDiffers { register: 0x1000_0000, record: 5 }]);
    assert!(nop(&mut rig), "the register counts");
}

#[test]
fn runs_are_compressed_in_their_queue() {
    let compression = Compression { format: MiniFormat::Hash, striding: false, run_max: 64 };
    let config =
        CqConfig { cqn: CQN, addr: CQ, log_entries: 5, size: CqeSize::Bytes128, record: CQ_RECORD, compression: Some(compression) };
    let mut rig = Rig::new(Transport::Raw);
    let mut queue = CompletionQueue::new(config);
    let mut consumed = 0u32;
    for round in 0..7u16 {
        // Nine of one flow tag, and two of another: eleven entries, so that runs cross the queue's end.
        let receive = |i: u16| Received {
            qpn_or_tag: if i < 9 { 1 } else { 2 },
            wqe_counter: round * 11 + i,
            rss_hash: i.into(),
            byte_count: 60,
            ..Received::default()
        };
        let run: Vec<_> = (0..11).map(receive).collect();
        assert_eq!(queue.push_run(&mut rig.memory, &run), Ok(Written::default()));
        let entry = |memory: &HostMemory, at: u32| {
            let mut bytes = [0; 64];
            memory.read(CQ + 128 * u64::from(at & 31) + 64, &mut bytes).unwrap();
            bytes
        };
        let mut read = Vec::new();
        while read.len() < 11 {
            let title = entry(&rig.memory, consumed);
            assert!(begins_run(&title, consumed & 32 != 0), "round {round}");
            let expanded = compression.expand(&title, 32, |at| entry(&rig.memory, consumed + at)).unwrap();
            consumed += expanded.len() as u32;
            read.extend(expanded);
        }
        assert_eq!(read, run);
        rig.set(CQ_RECORD, c::CQ_SET_CI, consumed);
    }
}

#[test]
fn a_card_that_sees_no_registers_is_armed_by_the_record() {
    let mut rig = Rig::new(Transport::Raw);
    rig.set(CQ_RECORD, c::CQ_ARM_DB, NEVER_ARMED);
    assert_eq!(rig.card.unrung_arm(&rig.memory, CQN), None);
    assert_eq!(rig.card.poll_arm(&rig.memory, CQN), []);
    rig.post(c::OPCODE_NOP, Body::Nop);
    assert_eq!(rig.card.poll_arm(&rig.memory, CQN), [], "nobody asked for an event");
    // The first request of all: zeroes.
    rig.set(CQ_RECORD, c::CQ_ARM_DB, 0);
    assert_eq!(rig.card.unrung_arm(&rig.memory, CQN), Some(0));
    assert_eq!(rig.card.poll_arm(&rig.memory, CQN), [Action::Event { cqn: CQN }]);
    assert_eq!(rig.card.unrung_arm(&rig.memory, CQN), None);
    assert_eq!(rig.card.poll_arm(&rig.memory, CQN), [], "once");
    rig.poll();
    rig.set(CQ_RECORD, c::CQ_ARM_DB, 1 << 28 | rig.consumed);
    assert_eq!(rig.card.poll_arm(&rig.memory, CQN), []);
    assert!(rig.post(c::OPCODE_NOP, Body::Nop).contains(&Action::Event { cqn: CQN }));
}
