//! Drivers that write anything anywhere.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;
use crate::connectx::offload;
use crate::connectx::violation::Verdict;
use crate::connectx::wqe::{Atomic, Remote};

/// What a driver without manners does.
#[derive(Clone, Debug)]
enum Deed {
    /// Random bytes into the first pages: records, queues, completions.
    Scribble(u64, Vec<u8>),
    /// An entry of random segments with an honest control segment, rung for as it should be.
    Entry(u8, u8, Vec<u8>),
    /// An entry whose Ethernet segment and list are nearly right.
    Nearly(u8, Body),
    /// The same with one byte of its first segments another, and so many blocks less, or more, rung for.
    Spoilt(u8, Body, usize, u8, i16),
    /// The same by BlueFlame, with one byte another than in memory.
    BlueFlame(u8, Body, u8),
    /// A receive: which entry, its link, its list, and how many are posted.
    Receive(u16, u16, Vec<DataSegment>, u16),
    /// A record set to anything.
    Record(usize, u32),
    /// A store into the register page.
    Store(usize, Vec<u8>),
    /// A doorbell, for an index near where the queue is.
    Ring(i16),
    /// An arm request.
    Arm(u32),
    /// A packet.
    Packet(usize),
    /// An answer of a peer.
    Finish(u16, bool),
    /// The driver consumes.
    Poll,
}

fn deed() -> impl Strategy<Value = Deed> {
    let opcodes = prop::sample::select(vec![
        c::OPCODE_NOP,
        c::OPCODE_SEND,
        c::OPCODE_TSO,
        c::OPCODE_ENHANCED_MPSW,
        c::OPCODE_RDMA_WRITE,
        c::OPCODE_RDMA_READ,
        c::OPCODE_ATOMIC_CS,
        0x25,
    ]);
    prop_oneof![
        (0..0x9000u64, vec(any::<u8>(), 0..200)).prop_map(|(at, bytes)| Deed::Scribble(at, bytes)),
        (opcodes, 0..20u8, vec(any::<u8>(), 304)).prop_map(|(opcode, ds, bytes)| Deed::Entry(opcode, ds, bytes)),
        nearly().prop_map(|(opcode, body)| Deed::Nearly(opcode, body)),
        (nearly(), prop_oneof![Just(0), 0..32usize], prop_oneof![Just(1), any::<u8>()], -1..2i16)
            .prop_map(|((o, b), at, value, by)| Deed::Spoilt(o, b, at, value, by)),
        (nearly(), 0..2u8).prop_map(|((opcode, body), flip)| Deed::BlueFlame(opcode, body, flip)),
        (0..8u16, 0..12u16, vec(segment(), 0..3), 0..6u16).prop_map(|(at, next, list, more)| Deed::Receive(at, next, list, more)),
        (0..3usize, prop_oneof![0..40u32, any::<u32>()]).prop_map(|(which, value)| Deed::Record(which, value)),
        (prop_oneof![Just(c::BF_OFFSET), Just(c::CQ_DOORBELL), 0..5000usize], vec(any::<u8>(), 0..300))
            .prop_map(|(at, b)| Deed::Store(at, b)),
        (-40..40i16).prop_map(Deed::Ring),
        any::<u32>().prop_map(Deed::Arm),
        (0..2000usize).prop_map(Deed::Packet),
        (0..64u16, any::<bool>()).prop_map(|(index, good)| Deed::Finish(index, good)),
        Just(Deed::Poll),
    ]
}

/// Segments that are in order more often than not.
fn segment() -> impl Strategy<Value = DataSegment> {
    let key = prop_oneof![6 => Just(LKEY), 1 => Just(READ_ONLY), 1 => Just(FOREIGN), 1 => Just(GONE), 1 => any::<u32>()];
    let len = prop_oneof![4 => 1..2000u32, 1 => Just(8), 1 => any::<u32>()];
    (key, 0..PAYLOAD_LEN + 100, len).prop_map(|(key, at, len)| buffer(key, if key == GONE { 1 << 32 } else { at }, len & !c::INLINE_SEG))
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![4 => segment().prop_map(Piece::Memory), 1 => vec(any::<u8>(), 0..90).prop_map(Piece::Inline)]
}

fn nearly() -> impl Strategy<Value = (u8, Body)> {
    let ethernet = (prop_oneof![0..20usize, Just(54)], prop_oneof![2 => Just(0), 1 => 0..10_000u16])
        .prop_map(|(header, mss)| Ethernet { mss, ..Ethernet::with_headers(&vec![7; header]) });
    let remote = |addr| Remote { addr, rkey: 1 };
    prop_oneof![
        (ethernet.clone(), vec(piece(), 0..4)).prop_map(|(e, p)| (c::OPCODE_SEND, Body::Frame(e, p))),
        (ethernet.clone(), vec(piece(), 0..4)).prop_map(|(e, p)| (c::OPCODE_TSO, Body::Segmented(e, p))),
        (ethernet, vec(piece(), 0..4)).prop_map(|(e, p)| (c::OPCODE_ENHANCED_MPSW, Body::Frames(e, p))),
        vec(piece(), 0..4).prop_map(|p| (c::OPCODE_SEND, Body::Send(None, p))),
        // A read's or an atomic's list, with pieces in line where none may be.
        (any::<u64>(), vec(piece(), 0..3)).prop_map(move |(addr, p)| (c::OPCODE_RDMA_READ, Body::Write(remote(addr), p))),
        (0..64u64, piece()).prop_map(move |(addr, p)| {
            let segment = if let Piece::Memory(segment) = p { segment } else { buffer(LKEY, 0, 8) };
            (c::OPCODE_ATOMIC_CS, Body::Atomic(remote(addr), Atomic { swap_add: 1, compare: 2 }, segment))
        }),
    ]
}

impl Rig {
    fn does(&mut self, deed: Deed) -> Vec<Action> {
        match deed {
            Deed::Scribble(at, bytes) => self.memory.write(BASE + at, &bytes).map(|()| Vec::new()).unwrap(),
            Deed::Entry(opcode, ds, rest) => {
                let control = Control { ds, ..control(opcode, self.posted) };
                let bytes = [&control.encode()[..], &rest].concat();
                let ring = QueueBuffer { addr: SQ, log_stride: 6, log_entries: LOG_BLOCKS };
                for (block, at) in bytes[..usize::from(ds.max(1)) * 16].chunks(64).zip(0..) {
                    self.memory.write(ring.entry(u32::from(self.posted) + at), block).unwrap();
                }
                self.posted = self.posted.wrapping_add(control.blocks());
                self.ring(*bytes.first_chunk().unwrap())
            }
            Deed::Nearly(opcode, body) => self.post(opcode, body),
            Deed::Spoilt(opcode, body, at, value, by) => {
                let ring = QueueBuffer { addr: SQ, log_stride: 6, log_entries: LOG_BLOCKS };
                let entry = ring.entry(self.posted.into());
                let first = self.write(opcode, body);
                self.memory.write(entry + at as u64, &[value]).unwrap();
                self.posted = self.posted.wrapping_add_signed(by);
                self.ring(first)
            }
            Deed::BlueFlame(opcode, body, flip) => {
                let ring = QueueBuffer { addr: SQ, log_stride: 6, log_entries: LOG_BLOCKS };
                let mut block = [0; 64];
                let entry = ring.entry(self.posted.into());
                self.write(opcode, body);
                self.memory.read(entry, &mut block).unwrap();
                block[12] ^= flip;
                self.set(RECORD, c::SND_DBR, self.posted.into());
                self.card.store(&mut self.memory, c::BF_OFFSET, &block)
            }
            Deed::Receive(at, next, list, more) => {
                let end = DataSegment { byte_count: 0, lkey: c::INVALID_LKEY, addr: 0 };
                let list: Vec<u8> = list.iter().chain([&end]).flat_map(DataSegment::encode).take(48).collect();
                let link = [&[0, 0][..], &next.to_be_bytes(), &[0; 12]].concat();
                self.memory.write(SRQ + 64 * u64::from(at), &[&link[..], &list].concat()).unwrap();
                self.memory.write(RQ + 64 * u64::from(at & 3), &list).unwrap();
                for (record, word) in [(RECORD, c::RCV_DBR), (SRQ_RECORD, 0)] {
                    let posted = crate::connectx::memory::word(&self.memory, record, word).unwrap();
                    self.set(record, word, posted.wrapping_add(more.into()));
                }
                Vec::new()
            }
            Deed::Record(which, value) => {
                self.set([RECORD, CQ_RECORD, SRQ_RECORD][which], which & 1, value);
                Vec::new()
            }
            Deed::Store(at, bytes) => self.card.store(&mut self.memory, at, &bytes),
            Deed::Ring(by) => {
                let index = self.posted.wrapping_add_signed(by);
                let bytes = Control { ds: 1, ..control(c::OPCODE_NOP, index) }.encode();
                self.card.store(&mut self.memory, c::BF_OFFSET, &bytes[..8])
            }
            Deed::Arm(request) => {
                let doorbell = (u64::from(request) << 32 | u64::from(CQN)).to_be_bytes();
                self.card.store(&mut self.memory, c::CQ_DOORBELL, &doorbell)
            }
            Deed::Packet(len) => self.card.receive(&mut self.memory, QPN, &vec![0xee; len], Received::default()),
            Deed::Finish(index, good) => {
                let outcome =
                    if good { Outcome::Done { bytes: 4 } } else { Outcome::Failed { syndrome: c::SYNDROME_REMOTE_OP, vendor: 0 } };
                self.card.finish(&mut self.memory, QPN, index, outcome)
            }
            Deed::Poll => {
                // It may have scribbled a whole queue of completions, which would be read for ever.
                self.consumed = self.consumed.wrapping_add(1);
                self.set(CQ_RECORD, c::CQ_SET_CI, self.consumed & 0xff_ffff);
                Vec::new()
            }
        }
    }
}

fn receiver(which: usize) -> Receiver {
    match which {
        0 => Receiver::Own(ReceiveQueue::new(receive_config(6, 2, ReceiveLayout::Cyclic))),
        1 => {
            let layout = ReceiveLayout::Striding { log_stride_bytes: 6, log_strides: 3 };
            Receiver::Own(ReceiveQueue::new(receive_config(5, 2, layout)))
        }
        2 => Receiver::Shared { srqn: SRQN, cqn: CQN },
        3 => {
            let config = receive_config(6, 2, ReceiveLayout::Cyclic);
            Receiver::Own(ReceiveQueue::new(ReceiveConfig { ring: QueueBuffer { addr: 0x10, ..config.ring }, ..config }))
        }
        _ => Receiver::None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whatever_a_driver_does(deeds in vec(deed(), 1..60), transport in 0..4usize, which in 0..5usize) {
        let transport = [Transport::Raw, Transport::Rc, Transport::Uc, Transport::Ud][transport];
        let mut rig = Rig::with(transport, receiver(which), None);
        for deed in deeds {
            let actions = rig.does(deed);
            // Each of 16 blocks, or of 8 entries, gives an action, a completion, a broken rule of each, and an event.
            prop_assert!(actions.len() <= 4 * 16 + 4, "{} actions", actions.len());
            for action in &actions {
                if let Action::Transmit(transmit) = action {
                    prop_assert!(transmit.frames.iter().all(|f| f.len() <= (1 << 18) + 1024));
                    prop_assert!(offload::frames(transmit).iter().all(|f| (60..=9216 + 4).contains(&f.len())));
                }
            }
            // Whatever fails by completion says which rule was broken, and no failure comes of nothing.
            let failed = actions.iter().any(|a| matches!(a, Action::Complete { cqe: Cqe::Failed(f), .. }
                if f.syndrome != c::SYNDROME_WR_FLUSH && f.syndrome != c::SYNDROME_REMOTE_OP));
            let named = broken(&actions).iter().any(|v| matches!(v.verdict(), Verdict::Completion { .. }));
            // A local failure behind requests that wait is completed with a later action.
            prop_assert!(!failed || named || transport != Transport::Raw, "{actions:?}");
        }
    }

    #[test]
    fn random_memory_under_honest_doorbells(bytes in vec(any::<u8>(), 0x9000), rings in vec(0..20u16, 1..10), which in 0..5usize) {
        let mut rig = Rig::with(Transport::Raw, receiver(which), None);
        rig.memory.write(BASE, &bytes).unwrap();
        for by in rings {
            let index = rig.posted;
            rig.posted = rig.posted.wrapping_add(by);
            let first = Control { ds: 1, ..control(c::OPCODE_NOP, index) }.encode();
            let actions = rig.ring(*first.first_chunk().unwrap());
            prop_assert!(actions.len() <= 4 * 16 + 4);
            prop_assert!(!actions.iter().any(|a| matches!(a, Action::Transmit(_))), "random bytes are no frame");
            rig.card.receive(&mut rig.memory, QPN, &[1; 100], Received::default());
        }
    }
}

/// The rule's name: its variant.
fn name(violation: &Violation) -> String {
    let text = format!("{violation:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

#[test]
fn hostile_drivers_come_upon_every_rule() {
    let mut runner = TestRunner::deterministic();
    let mut names = std::collections::BTreeSet::new();
    for case in 0..4000 {
        let transport = [Transport::Raw, Transport::Rc, Transport::Raw, Transport::Ud][case % 4];
        let mut rig = Rig::with(transport, receiver(case / 4 % 5), None);
        for deed in vec(deed(), 1..20).new_tree(&mut runner).unwrap().current() {
            names.extend(broken(&rig.does(deed)).iter().map(name));
        }
    }
    let names: Vec<_> = names.into_iter().collect();
    let expected = [
        "AccessDenied",
        "ArmDiffers",
        "BadAtomic",
        "BadDs",
        "BadLink",
        "BadMultiPacket",
        "BadRegisterWrite",
        "BadTso",
        "BeyondProducer",
        "BlueFlameDiffers",
        "ConsumerAhead",
        "CqOverrun",
        "DoorbellAheadOfRecord",
        "FrameLong",
        "FrameShort",
        "InlineDataLong",
        "InlineHeaderLong",
        "InlineHeaderShort",
        "InlineNotAllowed",
        "MessageLong",
        "MssWithoutTso",
        "NoSuchQueue",
        "OpcodeNotAllowed",
        "OpcodeNotModelled",
        "OtherDomain",
        "OutsideRegion",
        "Overrun",
        "PayloadUnmapped",
        "QueueUnmapped",
        "ReceiveShort",
        "UnknownKey",
        "WrongIndex",
        "WrongQueue",
    ];
    assert_eq!(names, expected, "all but what only a peer does, and what is no rule");
}
