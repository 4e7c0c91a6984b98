//! Work requests and completions, as verbs has them (rdma.md section 6.1 has the numbers).

use super::path::Path;

/// The most pieces of memory in one work request.
pub const SGES_MAX: usize = 8;
/// The most bytes in one message: at the smallest path MTU they are a quarter of the packet numbers.
pub const MESSAGE_MAX: u32 = 1 << 30;

/// A piece of registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// Its first byte's address, as its region counts.
    pub address: u64,
    /// Its length in bytes.
    pub len: u32,
    /// Its region's key.
    pub lkey: u32,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// A message into the peer's next receive.
    Send {
        /// Goes with it.
        immediate: Option<u32>,
    },
    /// Bytes into the peer's memory.
    Write {
        /// Where, as its region counts.
        address: u64,
        /// Its region.
        rkey: u32,
        /// Goes with it, and takes a receive.
        immediate: Option<u32>,
    },
    /// Bytes from the peer's memory.
    Read {
        /// From where.
        address: u64,
        /// Its region.
        rkey: u32,
    },
    /// Compares eight bytes of the peer's memory, and swaps them if they are equal. What was there before comes back.
    CompareSwap {
        /// Where; a multiple of eight.
        address: u64,
        /// Its region.
        rkey: u32,
        /// What they must be.
        compare: u64,
        /// What they become.
        swap: u64,
    },
    /// Adds to eight bytes of the peer's memory. What was there before comes back.
    FetchAdd {
        /// Where; a multiple of eight.
        address: u64,
        /// Its region.
        rkey: u32,
        /// What to add.
        add: u64,
    },
    /// A datagram; of UD queue pairs alone, which send nothing else.
    Datagram {
        /// How to get there.
        path: Path,
        /// The receiver's queue pair.
        dest_qp: u32,
        /// Its key. With the highest bit set, the sender's own key is sent (IBTA spec, s10.2.5).
        qkey: u32,
        /// Goes with it.
        immediate: Option<u32>,
    },
}

impl SendOp {
    /// Whether the peer answers with data, of which it only prepares for so many at once.
    pub(crate) const fn is_read_or_atomic(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Whether it takes a receive of the peer's.
    pub(crate) const fn takes_receive(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Write { immediate: Some(_), .. })
    }

    pub(crate) const fn opcode(&self) -> Opcode {
        match self {
            Self::Send { .. } | Self::Datagram { .. } => Opcode::Send,
            Self::Write { .. } => Opcode::Write,
            Self::Read { .. } => Opcode::Read,
            Self::CompareSwap { .. } => Opcode::CompareSwap,
            Self::FetchAdd { .. } => Opcode::FetchAdd,
        }
    }
}

/// The bytes to send.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// In registered memory, one piece after another. Of a read or an atomic operation: where what comes back goes.
    Gather(&'a [Sge]),
    /// Copied when posted.
    Inline(&'a [u8]),
}

/// A request to send.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// The program's number for it.
    pub id: u64,
    /// What to do.
    pub op: SendOp,
    /// With which bytes.
    pub data: Data<'a>,
    /// Success has a completion, too; failure always has.
    pub signaled: bool,
    /// The peer's completion is a solicited event.
    pub solicited: bool,
    /// Only begin once all reads and atomics before it are done.
    pub fence: bool,
}

impl<'a> SendWr<'a> {
    /// A signaled one.
    pub const fn new(id: u64, op: SendOp, data: Data<'a>) -> Self {
        Self { id, op, data, signaled: true, solicited: false, fence: false }
    }
}

/// Why a work request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// There is no such queue pair.
    #[error("no such queue pair")]
    NoQp,
    /// Its state does not allow it.
    #[error("the queue pair's state does not allow it")]
    State,
    /// The queue is full.
    #[error("the queue is full")]
    Full,
    /// More pieces, or more inline bytes, than the queue pair was made for, or more than [`MESSAGE_MAX`] in all.
    #[error("too long")]
    TooLong,
    /// The queue pair's transport does not have this operation, or not with inline data.
    #[error("not an operation of this queue pair")]
    Operation,
}

/// What was completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A send.
    Send,
    /// An RDMA write.
    Write,
    /// An RDMA read.
    Read,
    /// A compare and swap.
    CompareSwap,
    /// A fetch and add.
    FetchAdd,
    /// A receive, by a send.
    Receive,
    /// A receive, by a write with immediate data.
    ReceiveWithImmediate,
}

/// How it ended, with the numbers of verbs (`enum ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Well.
    Success = 0,
    /// The message was longer than the receive, or an atomic operation's answer than its memory.
    LocalLength = 1,
    /// The queue pair was not made for it.
    LocalQpOperation = 2,
    /// The work request's own memory may not be touched.
    LocalProtection = 4,
    /// The queue pair failed before.
    Flushed = 5,
    /// The peer's answer is none to this request.
    BadResponse = 7,
    /// The peer refused the request's form.
    RemoteInvalidRequest = 9,
    /// The peer's memory may not be touched.
    RemoteAccess = 10,
    /// The peer failed.
    RemoteOperation = 11,
    /// The peer did not answer, however often it was asked.
    RetryExceeded = 12,
    /// The peer had no receive posted, however often it was asked.
    RnrRetryExceeded = 13,
}

/// The end of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The program's number for it.
    pub id: u64,
    /// How it ended. If not well, only `id`, `opcode` and `qpn` mean something beside it.
    pub status: Status,
    /// What it was.
    pub opcode: Opcode,
    /// Bytes of the message; of a received datagram with the 40 bytes before it.
    pub len: u32,
    /// What came with it.
    pub immediate: Option<u32>,
    /// The queue pair.
    pub qpn: u32,
    /// A received datagram's sender.
    pub src_qp: u32,
    /// The first 40 bytes received hold the sender's IP header.
    pub grh: bool,
    /// The sender asked for an event.
    pub solicited: bool,
}
