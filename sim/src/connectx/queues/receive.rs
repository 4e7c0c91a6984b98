//! A receive queue, as the card sees it: cyclic, one packet an entry, or striding, many.

use super::{Action, QueueBuffer};
use crate::connectx::constants as c;
use crate::connectx::cqe::{Cqe, Failed, Received, striding};
use crate::connectx::keys::KeyTable;
use crate::connectx::memory::{Memory, word};
use crate::connectx::violation::{Verdict, Violation};
use crate::connectx::wqe::DataSegment;

/// A receive queue that was made.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveConfig {
    /// Its number, or its queue pair's.
    pub number: u32,
    /// Its entries.
    pub ring: QueueBuffer,
    /// Address of its doorbell record.
    pub record: u64,
    /// Its protection domain.
    pub pd: u32,
    /// User's index, 24 bits.
    pub uidx: u32,
    /// Its completion queue.
    pub cqn: u32,
    /// How packets lie in entries.
    pub layout: ReceiveLayout,
}

/// How packets lie in the entries of a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveLayout {
    /// A list of buffers an entry, for one packet; it ends with [`INVALID_LKEY`](c::INVALID_LKEY) or the entry.
    Cyclic,
    /// One buffer an entry, behind a reserved segment; each packet takes whole strides that lie beside each other
    /// (mlx5dv.h, `mlx5_mprq_wqe`).
    Striding {
        /// A stride has 2^this bytes.
        log_stride_bytes: u8,
        /// An entry has 2^this strides.
        log_strides: u8,
    },
}

/// An entry that was taken for a transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// Its index: what its completion names.
    pub index: u16,
    /// Its buffers.
    pub list: Vec<DataSegment>,
}

/// A receive queue.
#[derive(Clone, Debug)]
pub struct ReceiveQueue {
    config: ReceiveConfig,
    /// Entries taken, a running counter; of a striding queue, entries left behind.
    consumer: u16,
    /// Strides taken of the entry at `consumer`. Invariant: fewer than it has.
    stride: u32,
    pub(super) failed: bool,
    /// The syndrome by which the next entry ends, whatever comes for it.
    spoiled: Option<u8>,
}

impl ReceiveQueue {
    /// A queue that has taken nothing.
    pub fn new(config: ReceiveConfig) -> Self {
        Self { config, consumer: 0, stride: 0, failed: false, spoiled: None }
    }

    /// The entry that is taken next ends with this syndrome, by an error of the card's own.
    pub fn spoil(&mut self, syndrome: u8) {
        self.spoiled = Some(syndrome);
    }

    /// Puts a packet where the driver wants it. `facts` is what the completion says of the packet; the queue adds which entry, and how many
    /// bytes.
    pub fn receive<M: Memory + ?Sized>(&mut self, memory: &mut M, keys: &KeyTable, packet: &[u8], facts: Received) -> Vec<Action> {
        let ReceiveConfig { number, ring, record, uidx, .. } = self.config;
        let facts = Received { srqn_uidx: uidx, ..facts };
        if self.failed {
            return vec![Action::Lost { qpn: number }];
        }
        let posted = match word(memory, record, c::RCV_DBR) {
            Ok(producer) => (producer as u16).wrapping_sub(self.consumer),
            Err(unmapped) => return self.fail(Violation::QueueUnmapped(unmapped), 0),
        };
        if posted == 0 {
            return vec![Action::NoReceive { qpn: number }];
        }
        if u32::from(posted) > ring.entries() {
            return self.fail(Violation::Overrun { posted, capacity: ring.entries() }, posted);
        }
        if let Some(syndrome) = self.spoiled.take() {
            return self.flush(posted, (syndrome, Violation::vendor_of(syndrome)));
        }
        let result = match self.config.layout {
            ReceiveLayout::Cyclic => self.one(memory, keys, packet, facts),
            ReceiveLayout::Striding { log_stride_bytes, log_strides } => {
                let size = 1u64 << log_stride_bytes.min(16);
                self.strides(memory, keys, packet, facts, size, 1 << log_strides.min(14), posted)
            }
        };
        result.unwrap_or_else(|violation| self.fail(violation, posted))
    }

    /// The driver puts it in error: what is posted is flushed, and nothing more is taken.
    pub fn stop<M: Memory + ?Sized>(&mut self, memory: &M) -> Vec<Action> {
        let posted = word(memory, self.config.record, c::RCV_DBR).map_or(0, |producer| (producer as u16).wrapping_sub(self.consumer));
        if self.failed {
            return Vec::new();
        }
        let actions = self.fail(Violation::Flushed, posted);
        actions.into_iter().filter(|action| matches!(action, Action::Complete { .. })).collect()
    }

    /// Takes the next posted entry, for a transport that puts messages into it itself: its index and its list. Of cyclic queues alone.
    ///
    /// # Errors
    /// The rule that is broken; the queue has failed, and nothing more is taken.
    pub fn fetch<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<Option<Posted>, Violation> {
        if self.failed {
            return Ok(None);
        }
        let fetched = self.next(memory);
        self.failed = fetched.is_err();
        if let Ok(Some(_)) = fetched {
            self.consumer = self.consumer.wrapping_add(1);
        }
        fetched
    }

    fn next<M: Memory + ?Sized>(&self, memory: &M) -> Result<Option<Posted>, Violation> {
        let ReceiveConfig { ring, record, .. } = self.config;
        let producer = word(memory, record, c::RCV_DBR).map_err(Violation::QueueUnmapped)?;
        let posted = (producer as u16).wrapping_sub(self.consumer);
        if posted == 0 {
            return Ok(None);
        }
        if u32::from(posted) > ring.entries() {
            return Err(Violation::Overrun { posted, capacity: ring.entries() });
        }
        let list = list(memory, ring.entry(self.consumer.into()), ring.stride())?;
        Ok(Some(Posted { index: self.consumer, list }))
    }

    /// One packet into one entry.
    fn one<M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        keys: &KeyTable,
        packet: &[u8],
        facts: Received,
    ) -> Result<Vec<Action>, Violation> {
        let ReceiveConfig { ring, pd, .. } = self.config;
        scatter(memory, keys, pd, ring.entry(self.consumer.into()), ring.stride(), packet)?;
        let received = Received { wqe_counter: self.consumer, byte_count: packet.len() as u32, ..facts };
        self.consumer = self.consumer.wrapping_add(1);
        Ok(vec![self.complete(Cqe::Received(received))])
    }

    /// One packet into strides. Where the entry has too few left, they are passed over with a filler's completion (`guessed`: the bit is
    /// known, when it is set is not).
    #[expect(clippy::too_many_arguments, reason = "all of it is the queue's geometry")]
    fn strides<M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        keys: &KeyTable,
        packet: &[u8],
        facts: Received,
        size: u64,
        strides: u32,
        posted: u16,
    ) -> Result<Vec<Action>, Violation> {
        let room = size * u64::from(strides);
        let too_long = Violation::ReceiveShort { bytes: packet.len(), room };
        if packet.len() as u64 > room || packet.len() > striding::BYTES_MAX as usize {
            return Err(too_long);
        }
        let needed = (packet.len() as u64).div_ceil(size).max(1) as u32;
        let mut actions = Vec::new();
        let left = strides - self.stride;
        if needed > left {
            let byte_count = striding::join(left, 0, true);
            let filler = Received { byte_count, wqe_id: self.consumer, wqe_counter: self.stride as u16, ..Received::default() };
            let filler = Received { srqn_uidx: facts.srqn_uidx, qpn_or_tag: facts.qpn_or_tag, ..filler };
            actions.push(self.complete(Cqe::Received(filler)));
            (self.consumer, self.stride) = (self.consumer.wrapping_add(1), 0);
            if posted == 1 {
                actions.push(Action::NoReceive { qpn: self.config.number });
                return Ok(actions);
            }
        }
        let mut bytes = [0; 16];
        let entry = self.config.ring.entry(self.consumer.into());
        memory.read(entry.wrapping_add(16), &mut bytes).map_err(Violation::QueueUnmapped)?;
        let buffer = DataSegment::decode(&bytes);
        if buffer.len() < room {
            return Err(Violation::ReceiveShort { bytes: packet.len(), room: buffer.len() });
        }
        let addr = buffer.addr.wrapping_add(u64::from(self.stride) * size);
        let at = keys.check_local(buffer.lkey, self.config.pd, addr, packet.len() as u64, true)?;
        memory.write(at, packet).map_err(Violation::PayloadUnmapped)?;
        let byte_count = striding::join(needed, packet.len() as u32, false);
        let received = Received { wqe_id: self.consumer, wqe_counter: self.stride as u16, byte_count, ..facts };
        self.stride += needed;
        if self.stride == strides {
            (self.consumer, self.stride) = (self.consumer.wrapping_add(1), 0);
        }
        actions.push(self.complete(Cqe::Received(received)));
        Ok(actions)
    }

    /// The entry that the queue is at breaks a rule; of the `posted`, those behind it are flushed.
    fn fail(&mut self, violation: Violation, posted: u16) -> Vec<Action> {
        self.failed = true;
        let number = self.config.number;
        let mut actions = vec![Action::Broken { number, violation }];
        match violation.verdict() {
            Verdict::Completion { syndrome, vendor } => actions.extend(self.flush(posted, (syndrome, vendor))),
            _ => actions.push(Action::QueueFailed { number }),
        }
        actions
    }

    /// The entry that the queue is at ends with a syndrome, and a vendor's own; of the `posted`, those behind it are flushed.
    fn flush(&mut self, posted: u16, first: (u8, u8)) -> Vec<Action> {
        self.failed = true;
        let entries = u16::try_from(self.config.ring.entries()).map_or(posted, |entries| entries.min(posted));
        let flushed = (c::SYNDROME_WR_FLUSH, Violation::vendor_of(c::SYNDROME_WR_FLUSH));
        let mut actions = Vec::new();
        for index in 0..entries {
            let (syndrome, vendor) = if index == 0 { first } else { flushed };
            let wqe_counter = self.consumer.wrapping_add(index);
            let (srqn_uidx, qpn) = (self.config.uidx, self.config.number);
            actions.push(self.complete(Cqe::Failed(Failed { receive: true, srqn_uidx, vendor, syndrome, opcode: 0, qpn, wqe_counter })));
        }
        self.consumer = self.consumer.wrapping_add(entries);
        actions
    }

    fn complete(&self, cqe: Cqe) -> Action {
        Action::Complete { cqn: self.config.cqn, cqe }
    }
}

/// The buffers of the list that is in the `len` bytes at `at`: it ends with [`INVALID_LKEY`](c::INVALID_LKEY), or with the room.
pub(super) fn list<M: Memory + ?Sized>(memory: &M, at: u64, len: u64) -> Result<Vec<DataSegment>, Violation> {
    let mut list = Vec::new();
    for index in 0..len / 16 {
        let mut bytes = [0; 16];
        memory.read(at.wrapping_add(16 * index), &mut bytes).map_err(Violation::QueueUnmapped)?;
        let buffer = DataSegment::decode(&bytes);
        if buffer.lkey == c::INVALID_LKEY {
            break;
        }
        list.push(buffer);
    }
    Ok(list)
}

/// Writes a packet into the buffers of the list that is in the `len` bytes at `list`. Keys are checked of what is written
/// (`guessed`: the card may check whole buffers).
pub(super) fn scatter<M: Memory + ?Sized>(
    memory: &mut M,
    keys: &KeyTable,
    pd: u32,
    list: u64,
    len: u64,
    packet: &[u8],
) -> Result<(), Violation> {
    let (mut rest, mut room) = (packet, 0);
    for index in 0..len / 16 {
        let mut bytes = [0; 16];
        memory.read(list.wrapping_add(16 * index), &mut bytes).map_err(Violation::QueueUnmapped)?;
        let buffer = DataSegment::decode(&bytes);
        if buffer.lkey == c::INVALID_LKEY {
            break;
        }
        if rest.is_empty() {
            return Ok(());
        }
        room += buffer.len();
        let part = usize::try_from(buffer.len()).map_or(rest.len(), |len| len.min(rest.len()));
        let (now, later) = rest.split_at(part);
        let at = keys.check_local(buffer.lkey, pd, buffer.addr, part as u64, true)?;
        memory.write(at, now).map_err(Violation::PayloadUnmapped)?;
        rest = later;
    }
    match rest.is_empty() {
        true => Ok(()),
        false => Err(Violation::ReceiveShort { bytes: packet.len(), room }),
    }
}
