//! Queue pairs: what they are made with, and from state to state (IBTA spec, volume 1, s10.2 and s10.3).

use bitflags::bitflags;

use super::memory::{Access, Pd};
use super::path::Path;
use super::psn::Psn;

/// What a queue pair speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection: sends and writes, as long as a reliable one's, that arrive whole or not at all as messages, and nobody says which.
    Uc,
    /// Unreliable datagrams.
    Ud,
}

/// A queue pair's state (IBTA spec, s10.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Made, or made anew.
    Reset,
    /// Receives can be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// What was begun is sent, and no more.
    Sqd,
    /// The send queue failed; receiving goes on. Not of RC.
    Sqe,
    /// It failed.
    Err,
}

/// The path MTU: bytes of payload in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
    /// 32 KiB: not InfiniBand's, but of a machine's adapters among themselves, whose frames are memory.
    B32768 = 8,
}

impl Mtu {
    /// InfiniBand's, the smallest first.
    pub const ALL: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// In bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// InfiniBand's with that number on the wire.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| *mtu as u8 == code)
    }

    /// The one with that number in a request to connect, of a machine's adapters too.
    pub fn from_request(code: u8) -> Option<Self> {
        Self::from_code(code).or((code == Self::B32768 as u8).then_some(Self::B32768))
    }
}

bitflags! {
    /// What happened to a queue pair beside completions (`enum ibv_event_type`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct QpEvents: u8 {
        /// A packet came before it was made ready to send.
        const COMMUNICATION_ESTABLISHED = 1;
        /// What was begun is done, and it rests.
        const SEND_QUEUE_DRAINED = 2;
        /// The peer's request was refused for its form.
        const REQUEST_ERROR = 4;
        /// The peer's request was refused for the memory that it named.
        const ACCESS_ERROR = 8;
        /// It failed: one of its own receives, or its completion queue.
        const FATAL = 16;
    }
}

/// What a queue pair is made with.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// What it speaks.
    pub transport: Transport,
    /// Whose memory it reaches.
    pub pd: Pd,
    /// Where sends complete.
    pub send_cq: u32,
    /// Where receives complete.
    pub recv_cq: u32,
    /// The most sends that are not completed.
    pub send_depth: usize,
    /// The most receives that are not completed.
    pub recv_depth: usize,
    /// The most pieces of memory in one request; at most [`super::SGES_MAX`].
    pub sges_max: usize,
    /// The most inline bytes.
    pub inline_max: usize,
}

/// What to become, with the attributes that this takes.
#[derive(Clone, Copy, Debug)]
pub enum Modify {
    /// From every state: as if new.
    Reset,
    /// RESET or INIT to INIT.
    Init {
        /// What peers may do; of connections.
        access: Access,
        /// The key that datagrams must have; of UD.
        qkey: u32,
    },
    /// INIT to RTR, of connections.
    Rtr(Peer),
    /// INIT to RTR, of UD.
    RtrDatagram,
    /// RTR to RTS, of connections; of UC the first packet's number alone means anything.
    Rts(Sending),
    /// RTR to RTS, of UD.
    RtsDatagram {
        /// The first packet's number.
        sq_psn: Psn,
    },
    /// SQD or SQE to RTS.
    Resume,
    /// RTR or RTS: what peers may do, and, of RC, how long they wait if there is no receive; stays in its state.
    Update {
        /// As in [`Modify::Init`].
        access: Option<Access>,
        /// As in [`Peer`].
        min_rnr_timer: Option<u8>,
    },
    /// RTS to SQD.
    Sqd,
    /// From every state but RESET.
    Err,
}

/// What is known of a connection's peer.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// How to get there.
    pub path: Path,
    /// Bytes of payload in a packet.
    pub mtu: Mtu,
    /// Its queue pair; 24 bits.
    pub dest_qp: u32,
    /// The number of its first packet.
    pub rq_psn: Psn,
    /// Of RC: how many reads and atomics of its own it may have at once.
    pub max_dest_rd_atomic: u8,
    /// Of RC: how long it is to wait if there is no receive; 5 bits (IBTA spec, table 45).
    pub min_rnr_timer: u8,
}

/// How to send.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    /// The first packet's number.
    pub sq_psn: Psn,
    /// How long to wait for an acknowledgment: 4.096 us * 2^v; 5 bits; zero: for ever.
    pub timeout: u8,
    /// How often to send again without an answer; 3 bits.
    pub retry_count: u8,
    /// How often to send again if there was no receive; 7: for ever.
    pub rnr_retry: u8,
    /// How many reads and atomics to have at once.
    pub max_rd_atomic: u8,
}

impl Default for Sending {
    fn default() -> Self {
        Self { sq_psn: Psn::default(), timeout: 14, retry_count: 7, rnr_retry: 7, max_rd_atomic: 1 }
    }
}

/// Why a queue pair did not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModifyError {
    /// There is no such queue pair.
    #[error("no such queue pair")]
    NoQp,
    /// There is no such transition, or not for this transport.
    #[error("no such transition")]
    Transition,
    /// An attribute is out of its range.
    #[error("an attribute is out of range")]
    Attribute,
}
