mod completions;
mod hostile;
mod receives;
mod sends;

use super::*;
use crate::connectx::constants as c;
use crate::connectx::cqe::compressed::Compression;
use crate::connectx::cqe::{self, CqeSize, Failed, Received, Sent};
use crate::connectx::keys::{Access, Region};
use crate::connectx::memory::HostMemory;
use crate::connectx::wqe::{DataSegment, SendRules, SendWqe, Transport};

const BASE: u64 = 0x10_0000;
/// Doorbell records: of the queue pair, of the completion queue, of the shared queue.
const RECORD: u64 = BASE;
const CQ_RECORD: u64 = BASE + 0x40;
const SRQ_RECORD: u64 = BASE + 0x80;
const SQ: u64 = BASE + 0x1000;
const RQ: u64 = BASE + 0x3000;
const CQ: u64 = BASE + 0x5000;
const SRQ: u64 = BASE + 0x8000;
const PAYLOAD: u64 = BASE + 0x1_0000;
const PAYLOAD_LEN: u64 = 0x1_0000;

const QPN: u32 = 0x42;
const CQN: u32 = 0x17;
const SRQN: u32 = 0x33;
const PD: u32 = 5;
const UIDX: u32 = 0x77;
/// May be written.
const LKEY: u32 = 0x500;
/// May not be written.
const READ_ONLY: u32 = 0x501;
/// Of another protection domain.
const FOREIGN: u32 = 0x502;
/// Of memory that is not mapped any more.
const GONE: u32 = 0x503;

/// Blocks of the send queue, 2^.
const LOG_BLOCKS: u8 = 4;
/// Entries of the completion queue, 2^.
const LOG_CQES: u8 = 3;

/// A card with one queue pair, and the memory of its driver.
struct Rig {
    memory: HostMemory,
    card: Card,
    /// The driver's counter of blocks.
    posted: u16,
    /// Completions that the driver consumed.
    consumed: u32,
}

fn rules(transport: Transport) -> SendRules {
    let (frame_max, tso_max) = (9216, 1 << 18);
    SendRules { transport, qpn: QPN, inline_min: 18, ds_max: c::DS_MAX, frame_max, tso_max, mpw_max: 5, enhanced_mpw: true }
}

fn receive_config(log_stride: u8, log_entries: u8, layout: ReceiveLayout) -> ReceiveConfig {
    let ring = QueueBuffer { addr: RQ, log_stride, log_entries };
    ReceiveConfig { number: QPN, ring, record: RECORD, pd: PD, uidx: UIDX, cqn: CQN, layout }
}

impl Rig {
    fn new(transport: Transport) -> Self {
        Self::with(transport, Receiver::None, None)
    }

    fn with(transport: Transport, receiver: Receiver, compression: Option<Compression>) -> Self {
        let mut memory = HostMemory::new(BASE, 0x2_0000);
        let mut card = Card::default();
        card.clock = 1234;
        let region = Region { pd: PD, addr: PAYLOAD, at: PAYLOAD, len: PAYLOAD_LEN, access: Access::LOCAL_WRITE };
        card.keys.register(LKEY, region);
        card.keys.register(READ_ONLY, Region { access: Access::empty(), ..region });
        card.keys.register(FOREIGN, Region { pd: PD + 1, ..region });
        card.keys.register(GONE, Region { addr: 0, at: 0, len: u64::MAX, ..region });
        let cq = CqConfig { cqn: CQN, addr: CQ, log_entries: LOG_CQES, size: CqeSize::Bytes64, record: CQ_RECORD, compression };
        for entry in 0..1 << LOG_CQES {
            let mut bytes = [0; 64];
            cqe::compressed::invalidate(&mut bytes);
            memory.write(CQ + 64 * entry, &bytes).unwrap();
        }
        card.add_completion(CQN, CompletionQueue::new(cq));
        let ring = QueueBuffer { addr: SQ, log_stride: 6, log_entries: LOG_BLOCKS };
        let send = SendConfig { rules: rules(transport), ring, record: RECORD, pd: PD, uidx: UIDX, cqn: CQN };
        card.add_pair(QPN, SendQueue::new(send), receiver);
        let shared =
            SharedConfig { srqn: SRQN, ring: QueueBuffer { addr: SRQ, log_stride: 6, log_entries: 3 }, record: SRQ_RECORD, pd: PD };
        card.add_shared(SRQN, SharedQueue::new(shared));
        Self { memory, card, posted: 0, consumed: 0 }
    }

    fn set(&mut self, record: u64, word: usize, value: u32) {
        self.memory.write(record + 4 * word as u64, &value.to_be_bytes()).unwrap();
    }

    /// Writes an entry where the queue is, and returns its first bytes.
    fn write(&mut self, opcode: u8, body: Body) -> [u8; 8] {
        let bytes = SendWqe { control: control(opcode, self.posted), body }.encode();
        let ring = QueueBuffer { addr: SQ, log_stride: 6, log_entries: LOG_BLOCKS };
        for (block, at) in bytes.chunks(64).zip(0..) {
            self.memory.write(ring.entry(u32::from(self.posted) + at), block).unwrap();
        }
        self.posted = self.posted.wrapping_add((bytes.len() as u16).div_ceil(64));
        *bytes.first_chunk().unwrap()
    }

    /// Writes the doorbell record and the doorbell.
    fn ring(&mut self, first: [u8; 8]) -> Vec<Action> {
        self.set(RECORD, c::SND_DBR, self.posted.into());
        self.card.store(&mut self.memory, c::BF_OFFSET, &first)
    }

    fn post(&mut self, opcode: u8, body: Body) -> Vec<Action> {
        let first = self.write(opcode, body);
        self.ring(first)
    }

    /// Reads completions as a driver does, and says that it did.
    fn poll(&mut self) -> Vec<Cqe> {
        let mut cqes = Vec::new();
        loop {
            let mut bytes = [0; 64];
            self.memory.read(CQ + 64 * u64::from(self.consumed & 7), &mut bytes).unwrap();
            match Cqe::decode(&bytes) {
                Ok(cqe) if cqe::owner(&bytes) == (self.consumed & 8 != 0) => cqes.push(cqe),
                _ => break,
            }
            self.consumed += 1;
        }
        self.set(CQ_RECORD, c::CQ_SET_CI, self.consumed & 0xff_ffff);
        cqes
    }

    fn arm(&mut self, number: u32, solicited: bool) -> Vec<Action> {
        let kind = if solicited { c::CQ_DB_REQ_NOT_SOL } else { c::CQ_DB_REQ_NOT };
        let request = number << 28 | kind | self.consumed & 0xff_ffff;
        self.set(CQ_RECORD, c::CQ_ARM_DB, request);
        let doorbell = (u64::from(request) << 32 | u64::from(CQN)).to_be_bytes();
        self.card.store(&mut self.memory, c::CQ_DOORBELL, &doorbell)
    }
}

fn control(opcode: u8, index: u16) -> Control {
    Control { opmod: 0, index, opcode, qpn: QPN, ds: 0, signature: 0, stream: [0; 2], fm_ce_se: c::CTRL_CQ_UPDATE, imm: 0 }
}

fn buffer(lkey: u32, at: u64, byte_count: u32) -> DataSegment {
    DataSegment { byte_count, lkey, addr: PAYLOAD + at }
}

fn frame(segment: DataSegment) -> Body {
    Body::Frame(Ethernet::with_headers(&[7; 18]), vec![Piece::Memory(segment)])
}

/// The rules that were broken.
fn broken(actions: &[Action]) -> Vec<Violation> {
    let violation = |action: &Action| match action {
        Action::Broken { violation, .. } => Some(*violation),
        _ => None,
    };
    actions.iter().filter_map(violation).collect()
}

/// Syndromes and indices of failures, and indices of what went well.
fn ends(cqes: &[Cqe]) -> Vec<(u8, u16)> {
    let end = |cqe: &Cqe| match cqe {
        Cqe::Sent(sent) => (0, sent.wqe_counter),
        Cqe::Received(received) => (0, received.wqe_counter),
        Cqe::Failed(failed) => (failed.syndrome, failed.wqe_counter),
        Cqe::Resized => (0, 0),
    };
    cqes.iter().map(end).collect()
}
