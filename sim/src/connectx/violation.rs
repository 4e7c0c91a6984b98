//! Rules of the interface, and what the card does when one is broken.

use super::constants::{
    SYNDROME_LOCAL_LENGTH, SYNDROME_LOCAL_PROT, SYNDROME_LOCAL_QP_OP, SYNDROME_REMOTE_ACCESS, SYNDROME_REMOTE_INVAL_REQ,
    SYNDROME_REMOTE_OP, SYNDROME_RETRY_EXC, SYNDROME_RNR_RETRY_EXC, SYNDROME_WR_FLUSH,
};
use super::memory::Unmapped;

/// A rule that was broken. Each variant says whose fault it is and what the card gives; [`verdict`](Self::verdict) is the same as data.
///
/// Which syndrome belongs to which malformed entry is `guessed` throughout: the headers number syndromes, and do not assign them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Driver: `ds` is zero, above what the queue allows, or less than the opcode's fixed segments. Syndrome 0x02.
    #[error("ds is {ds}; this entry needs {min} to {max}")]
    BadDs {
        /// As written.
        ds: u8,
        /// Units of 16 bytes that the opcode needs.
        min: u8,
        /// Units of 16 bytes that the queue allows.
        max: u8,
    },
    /// Driver: the opcode, or its modifier, is not one for this type of queue pair. Syndrome 0x02.
    #[error("opcode {opcode:#04x} with modifier {opmod:#04x} is not allowed on this queue pair")]
    OpcodeNotAllowed {
        /// As written.
        opcode: u8,
        /// As written.
        opmod: u8,
    },
    /// Driver, or a gap of the model: the card may know the opcode, the model does not. Syndrome 0x02.
    #[error("opcode {opcode:#04x} is not modelled")]
    OpcodeNotModelled {
        /// As written.
        opcode: u8,
    },
    /// Driver: the control segment counts blocks otherwise than the queue: an entry of an earlier lap, or a wrong counter. Syndrome 0x02.
    #[error("the entry says index {found}, the queue is at {expected}")]
    WrongIndex {
        /// As written.
        found: u16,
        /// Where the queue is, in blocks.
        expected: u16,
    },
    /// Driver: the control segment names another queue. Syndrome 0x02.
    #[error("the entry is for queue {found:#x}, and lies in {expected:#x}")]
    WrongQueue {
        /// As written.
        found: u32,
        /// Whose buffer it lies in.
        expected: u32,
    },
    /// Driver: fewer headers in line than the card needs to see. Syndrome 0x02.
    #[error("{have} bytes of headers in line, the card needs {need}")]
    InlineHeaderShort {
        /// As written, bytes.
        have: usize,
        /// Bytes.
        need: usize,
    },
    /// Driver: headers in line go beyond the end of the entry. Syndrome 0x02.
    #[error("{have} bytes of headers in line do not fit into the entry")]
    InlineHeaderLong {
        /// As written, bytes.
        have: usize,
    },
    /// Driver: payload in line goes beyond the end of the entry. Syndrome 0x02.
    #[error("{have} bytes of payload in line, {room} left in the entry")]
    InlineDataLong {
        /// As written, bytes.
        have: u32,
        /// Bytes left in the entry.
        room: usize,
    },
    /// Driver: payload in line where the card must write or must fetch by key. Syndrome 0x02.
    #[error("payload in line is not allowed with opcode {opcode:#04x}")]
    InlineNotAllowed {
        /// As written.
        opcode: u8,
    },
    /// Driver: a frame has no bytes at all, or fewer than a header of Ethernet. Syndrome 0x02.
    #[error("a frame of {bytes} bytes")]
    FrameShort {
        /// Its bytes.
        bytes: u64,
    },
    /// Driver: a frame, or the payload of a large send, is longer than the card takes. Syndrome 0x01.
    #[error("{bytes} bytes, the card takes {max}")]
    FrameLong {
        /// Of the frame, or of the payload.
        bytes: u64,
        /// In the same unit.
        max: u32,
    },
    /// Driver: a large send without a segment size, headers or payload. Syndrome 0x02.
    #[error("a large send with mss {mss}, {header} bytes of headers, {payload} bytes of payload")]
    BadTso {
        /// As written.
        mss: u16,
        /// Bytes in line.
        header: usize,
        /// Bytes in the list.
        payload: u64,
    },
    /// Driver: a plain send that asks for segments. Syndrome 0x02.
    #[error("mss {mss} in an entry that is no large send")]
    MssWithoutTso {
        /// As written.
        mss: u16,
    },
    /// Driver: a multi-packet send with too many frames, or of unequal lengths. Syndrome 0x02.
    #[error("multi-packet send: frame {frame} has {bytes} bytes, mss says {mss}")]
    BadMultiPacket {
        /// Which, from zero.
        frame: usize,
        /// Its bytes.
        bytes: u64,
        /// As written in the Ethernet segment.
        mss: u16,
    },
    /// Driver: an atomic's result is not one segment of eight aligned bytes. Syndrome 0x02.
    #[error("an atomic's result is {pieces} segments, {bytes} bytes")]
    BadAtomic {
        /// Segments.
        pieces: usize,
        /// Bytes in them.
        bytes: u64,
    },
    /// Driver: a message above 2 GiB. Syndrome 0x01.
    #[error("a message of {bytes} bytes")]
    MessageLong {
        /// Its bytes.
        bytes: u64,
    },

    /// Driver: a queue's buffer or doorbell record is not mapped. The card can fetch nothing: the queue fails, without a completion.
    #[error(transparent)]
    QueueUnmapped(Unmapped),
    /// Driver: payload's region was registered and is not mapped any more. Syndrome 0x04.
    #[error("payload: {0}")]
    PayloadUnmapped(Unmapped),
    /// Driver: more entries than the queue holds were posted; older ones are overwritten. Syndrome 0x02.
    #[error("{posted} posted and not consumed, the queue holds {capacity}")]
    Overrun {
        /// Blocks, or entries of a receive queue.
        posted: u16,
        /// In the same unit.
        capacity: u32,
    },
    /// Driver: an entry reaches beyond what the doorbell record says is posted. Syndrome 0x02.
    #[error("an entry of {blocks} blocks, {posted} are posted")]
    BeyondProducer {
        /// Blocks of the entry.
        blocks: u16,
        /// Blocks posted from its first on.
        posted: u16,
    },
    /// Driver: rang for an entry that the doorbell record does not cover: record not written, or written after. The card waits.
    #[error("rang for block {rung}, the doorbell record says {producer}")]
    DoorbellAheadOfRecord {
        /// Index in the doorbell, blocks.
        rung: u16,
        /// In the record, blocks.
        producer: u16,
    },
    /// Driver: posted entries, and wrote the doorbell record, but not the doorbell's register. The card waits.
    #[error("{posted} blocks are posted, and the doorbell's register was not written for them")]
    RegisterForgotten {
        /// Blocks that the record says are posted, beyond those that were rung for.
        posted: u16,
    },
    /// Driver: wrote an arm request into the doorbell record, and not into the register. The card waits for it.
    #[error("the doorbell record is armed with {request:#010x}, and the register was not written")]
    ArmForgotten {
        /// In the record.
        request: u32,
    },
    /// Driver: what was written into the register is not what lies in the queue. The card may take either.
    #[error("BlueFlame's bytes differ from the entry in memory")]
    BlueFlameDiffers,
    /// Driver: a write into a register page that is no doorbell. The card ignores it.
    #[error("{len} bytes written at offset {offset:#x} of a register page")]
    BadRegisterWrite {
        /// In the page, bytes.
        offset: usize,
        /// Bytes.
        len: usize,
    },
    /// Driver: a doorbell for a queue that does not exist. The card ignores it.
    #[error("there is no queue {number:#x}")]
    NoSuchQueue {
        /// As written.
        number: u32,
    },
    /// Driver: the register's arm request is not the one in the doorbell record. The card takes the record's at some time, or never.
    #[error("armed with {register:#010x}, the doorbell record says {record:#010x}")]
    ArmDiffers {
        /// In the register.
        register: u32,
        /// In the record.
        record: u32,
    },

    /// Driver: no region has this key. Syndrome 0x04.
    #[error("no region has key {key:#x}")]
    UnknownKey {
        /// As written.
        key: u32,
    },
    /// Driver: the region is of another protection domain. Syndrome 0x04.
    #[error("key {key:#x} is of another protection domain")]
    OtherDomain {
        /// As written.
        key: u32,
    },
    /// Driver: not all of it lies in the region. Syndrome 0x04.
    #[error("{len} bytes at {addr:#x} are not all in the region of key {key:#x}")]
    OutsideRegion {
        /// As written.
        key: u32,
        /// As written.
        addr: u64,
        /// Bytes.
        len: u64,
    },
    /// Driver: the region may not be written, and a receive, read or atomic would. Syndrome 0x04.
    #[error("key {key:#x} does not allow writing")]
    AccessDenied {
        /// As written.
        key: u32,
    },
    /// Peer: its request's remote key, range or access is wrong. Syndrome 0x13 at the peer.
    #[error("remote access by key {key:#x} is not allowed")]
    RemoteAccess {
        /// As the peer wrote it.
        key: u32,
    },

    /// Driver, or the peer: a packet is longer than the receive's buffers. Syndrome 0x01.
    #[error("{bytes} bytes for a receive of {room}")]
    ReceiveShort {
        /// Of the packet.
        bytes: usize,
        /// In the receive's list.
        room: u64,
    },
    /// Driver: a link of a shared receive queue leads out of it. Syndrome 0x02, and the shared queue fails.
    #[error("the next entry is {index}, the shared queue has {entries}")]
    BadLink {
        /// As written.
        index: u16,
        /// Entries.
        entries: u32,
    },
    /// Driver: did not consume in time; the completion is lost and the completion queue fails (an event, no completion).
    #[error("completion queue {cqn:#x} is full")]
    CqOverrun {
        /// Which.
        cqn: u32,
    },
    /// Driver: the consumer's index runs ahead of what was completed. The card believes it, and may overwrite what was not read.
    #[error("consumer index {consumer:#x} is ahead of the producer's {producer:#x}")]
    ConsumerAhead {
        /// In the doorbell record, 24 bits.
        consumer: u32,
        /// 24 bits.
        producer: u32,
    },
    /// Nobody: the queue had failed before, and its entries are flushed. Syndrome 0x05.
    #[error("flushed")]
    Flushed,
}

/// What the card does about a [`Violation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A completion in error; the queue fails.
    Completion {
        /// `SYNDROME_*`.
        syndrome: u8,
        /// The vendor's own number: all are `guessed`.
        vendor: u8,
    },
    /// The queue fails and nothing is completed; an asynchronous event tells of it.
    QueueFails,
    /// Nothing happens: the driver waits for ever.
    Nothing,
}

impl Violation {
    /// The vendor's number that goes with a syndrome where the transport failed, and no rule of a queue's is broken (`guessed`).
    pub fn vendor_of(syndrome: u8) -> u8 {
        match syndrome {
            SYNDROME_LOCAL_LENGTH => 0x70,
            SYNDROME_LOCAL_PROT => 0x51,
            SYNDROME_WR_FLUSH => 0xf9,
            SYNDROME_RETRY_EXC => 0x81,
            SYNDROME_RNR_RETRY_EXC => 0x87,
            SYNDROME_REMOTE_ACCESS => 0x88,
            SYNDROME_REMOTE_OP => 0x89,
            SYNDROME_REMOTE_INVAL_REQ => 0x8a,
            _ => 0x68,
        }
    }

    /// What the card does.
    pub fn verdict(&self) -> Verdict {
        let completion = |syndrome, vendor| Verdict::Completion { syndrome, vendor };
        match self {
            Self::QueueUnmapped(_) | Self::CqOverrun { .. } => Verdict::QueueFails,
            Self::DoorbellAheadOfRecord { .. }
            | Self::RegisterForgotten { .. }
            | Self::ArmForgotten { .. }
            | Self::BlueFlameDiffers
            | Self::BadRegisterWrite { .. }
            | Self::NoSuchQueue { .. }
            | Self::ArmDiffers { .. }
            | Self::ConsumerAhead { .. } => Verdict::Nothing,
            Self::UnknownKey { .. }
            | Self::OtherDomain { .. }
            | Self::OutsideRegion { .. }
            | Self::AccessDenied { .. }
            | Self::PayloadUnmapped(_) => completion(SYNDROME_LOCAL_PROT, 0x51),
            Self::RemoteAccess { .. } => completion(SYNDROME_REMOTE_ACCESS, 0x88),
            Self::ReceiveShort { .. } | Self::MessageLong { .. } | Self::FrameLong { .. } => completion(SYNDROME_LOCAL_LENGTH, 0x70),
            Self::Flushed => completion(SYNDROME_WR_FLUSH, 0xf9),
            _ => completion(SYNDROME_LOCAL_QP_OP, 0x68),
        }
    }
}
