//! The Device contract: what a NIC, a shared-memory segment or the simulator owes the stack.
//!
//! A device has a *packet plane* (this module: frames through a ring's queues), a *message plane* (queue pairs as verbs
//! has them; it comes with its first devices), or both, and says so in [`Capabilities`]. Asking for what it lacks is
//! [`Unsupported`], never a silent no.
//!
//! The contract is written for the card. Queues, buffers and doorbells cost something there, so frames are polled in
//! batches into storage that is used again ([`RxBatch`]), sends are only handed to the hardware by [`Device::doorbell`],
//! once a batch, and nothing on a frame's path allocates or enters the kernel. Buffers belong to the device, which
//! registered them once; the stack holds counted handles ([`TxBuffer`], [`RxBuffer`]) and never a Rust slice over
//! memory that a peer or a card may write.

mod rule;
mod rx;
mod tx;

pub use rule::{FlowRule, Protocol, RuleError, RuleId};
pub use rx::{ChecksumVerdict, HEAD_MAX, NoRx, RxBatch, RxBuffer, RxFrame, RxMeta};
pub use tx::{SendError, TxBuffer, TxFrame, TxOffload, TxSlice};

use core::fmt;

use crate::offload::DeviceKind;
use crate::time::Instant;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All ones: every station.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// The address of an IPv4 group: 01:00:5e and the group's low 23 bits (RFC 1112 s6.4), so that 32 groups share each.
    pub const fn of_group(group: std::net::Ipv4Addr) -> Self {
        let [_, b, c, d] = group.octets();
        Self([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// Whether the group bit is set (IEEE 802.3: multicast or broadcast).
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// What a device can do. The stack's software paths serve whatever is off.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// Which device it is.
    pub kind: DeviceKind,
    /// Frames can be sent and received.
    pub packet_plane: bool,
    /// Queue pairs can be created.
    pub message_plane: bool,
    /// The largest IP packet in bytes (frame without its Ethernet header).
    pub mtu: usize,
    /// Frames of up to this many bytes in all are sent inline: no buffer is referenced after [`Device::send`] returns.
    pub inline_max: usize,
    /// The most [`TxSlice`]s in one frame.
    pub gather_max: usize,
    /// IPv4, TCP and UDP checksums are filled in by the device when [`TxOffload::checksum`] asks for it.
    pub tx_checksum: bool,
    /// The medium cannot corrupt frames (memory), or the device verifies checksums: [`RxMeta::checksum`] is meaningful.
    pub rx_checksum: bool,
    /// Frames longer than the MTU are cut by the device when [`TxOffload::tso_mss`] is set; this is the longest in bytes.
    pub tso_max: Option<usize>,
    /// Peers' Ethernet addresses come with the flow; ARP is neither needed nor answered.
    pub point_to_point: bool,
}

/// Something that the device lacks was asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{device} has no {what}")]
pub struct Unsupported {
    /// The device that was asked.
    pub device: DeviceKind,
    /// What it lacks, in the field's words.
    pub what: &'static str,
}

/// What happened to the device beside frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The station with this address is gone for good (its process died, its port was removed) and everything that it had
    /// sent has been polled. Flows to it end as if it had sent a reset.
    PeerGone(MacAddr),
    /// The link lost or found its carrier.
    Link {
        /// Whether frames can pass.
        up: bool,
    },
}

/// The send rate of one flow or ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// Kilobits a second; zero lifts the limit.
    pub rate_kbps: u32,
    /// The longest burst in bytes; zero leaves it to the device.
    pub burst_bytes: u32,
    /// The typical packet in bytes; zero if unknown.
    pub typical_packet_bytes: u16,
}

/// How completions are coalesced before the ring's descriptor becomes readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moderation {
    /// After this many completions.
    pub count: u16,
    /// Or after this many microseconds.
    pub period_us: u16,
}

/// One ring of a device: a receive queue, a send queue, their completions and their buffers.
pub trait Device {
    /// A handle on received bytes.
    type Rx: RxBuffer;
    /// A handle on a send buffer.
    type Tx: TxBuffer;

    /// What this device can do; constant for its life.
    fn capabilities(&self) -> &Capabilities;

    /// This ring's own Ethernet address.
    fn mac(&self) -> MacAddr;

    /// Moves received frames into `batch` until it is full or none is left, and posts what receive buffers have come back.
    /// Returns how many were added.
    fn poll_rx(&mut self, now: Instant, batch: &mut RxBatch<Self::Rx>) -> usize;

    /// Whether [`Device::poll_rx`] would find a frame or [`Device::poll_event`] an event. Cheap: it is what a spinning
    /// wait calls.
    fn rx_ready(&self) -> bool;

    /// Takes a send buffer of at least one byte, at best `len` bytes long; none if they are all in use.
    fn tx_alloc(&mut self, len: usize) -> Option<Self::Tx>;

    /// Queues one frame. The device holds its own references to the buffers until they have been sent (and, on shared
    /// memory, read).
    ///
    /// # Errors
    /// [`SendError`]; the frame was not queued, and nothing was consumed.
    fn send(&mut self, frame: &TxFrame<'_, Self::Tx>) -> Result<(), SendError>;

    /// Hands everything queued since the last doorbell to the hardware (or wakes the peers that sleep).
    fn doorbell(&mut self);

    /// Reaps send completions: afterwards, buffers and queue slots that the hardware is done with are free again.
    fn reap(&mut self);

    /// The next event, if any.
    fn poll_event(&mut self) -> Option<DeviceEvent>;

    /// Steers matching frames to this ring.
    ///
    /// # Errors
    /// [`RuleError`]: taken by another ring, or no room.
    fn attach(&mut self, rule: &FlowRule) -> Result<RuleId, RuleError>;

    /// Ends what [`Device::attach`] began.
    fn detach(&mut self, rule: RuleId);

    /// Makes the next received frame or event signal [`Device::wait_fd`]. `false`: there is something to poll right now,
    /// and nothing was armed.
    fn arm(&mut self) -> bool;

    /// Ends what [`Device::arm`] began, and clears the signal.
    fn disarm(&mut self);

    /// The descriptor that becomes readable when an armed ring has something to poll. `None`: this device cannot be slept on.
    fn wait_fd(&self) -> Option<i32> {
        None
    }

    /// Limits this ring's send rate.
    ///
    /// # Errors
    /// [`Unsupported`] on a device without packet pacing.
    fn pace(&mut self, _pacing: Pacing) -> Result<(), Unsupported> {
        Err(Unsupported { device: self.capabilities().kind, what: "packet pacing" })
    }

    /// Coalesces completions.
    ///
    /// # Errors
    /// [`Unsupported`] on a device without completion moderation.
    fn moderate(&mut self, _moderation: Moderation) -> Result<(), Unsupported> {
        Err(Unsupported { device: self.capabilities().kind, what: "completion moderation" })
    }
}
