//! The Device contract: what a NIC, a shared-memory segment or the simulator owes the stack.
//!
//! A [`Device`] is a card: it opens rings and steers flows to them. [`Queues`] are one ring's: frames go through them. Beside this
//! *packet plane* a device may have a *message plane* ([`messages`]: queue pairs as verbs has them), and says so in [`Capabilities`]. Asking for what it lacks is [`Unsupported`], never a silent no.
//!
//! The contract is written for the card. Queues, buffers and doorbells cost something there, so frames are polled in
//! batches into storage that is used again ([`RxBatch`]), sends are only handed to the hardware by [`Queues::doorbell`],
//! once a batch, and nothing on a frame's path allocates or enters the kernel. Buffers belong to the device, which
//! registered them once; the stack holds counted handles ([`TxBuffer`], [`RxBuffer`]) and never a Rust slice over
//! memory that a peer or a card may write.

mod card;
mod completion;
mod cyclic;
mod lend;
mod memory;
pub mod messages;
mod queues;
mod rule;
mod rx;
mod tx;

pub use crate::addr::MacAddr;
pub use card::{Attached, Device, OpenError, QueueId, QueuesConfig, SingleQueue, Target};
pub use completion::{Completion, SendStatus, TimeSource};
pub use cyclic::{CyclicConfig, CyclicError, CyclicId, CyclicPacket};
pub use lend::LendBuffer;
pub use memory::{DEVICE_MEMORY_ALIGN, DeviceMemory, DeviceMemoryError};
pub use queues::{Moderation, Pacing, Queues, RateError, Wake};
pub use rule::{
    EthernetMatch, FiveTuple, FlowRule, HeaderMatch, IpMatch, Protocol, RuleError, RuleId, Steering, TransportMatch, VxlanMatch,
};
pub use rx::{ChecksumVerdict, HEAD_MAX, NoRx, RxBatch, RxBuffer, RxFrame, RxMeta};
pub use tx::{GATHER_LIMIT, SendError, TxBuffer, TxFrame, TxOffload, TxSlice};

use crate::offload::DeviceKind;

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
    /// Frames of up to this many bytes in all are sent inline: no buffer is referenced after [`Queues::send`] returns.
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
    /// How many rings one device can have.
    pub rings_max: usize,
    /// What no rule steers is the kernel's, which has the same addresses: so a connection has a rule of its own even where there is but one ring.
    pub is_beside_kernel: bool,
    /// Its peers are others of its kind, to whom the kernel beside it is another world: a connection leaves for the kernels at both ends, or at neither
    /// ([`crate::ring::Ring::tcp_ask_to_leave`]).
    pub leaves_at_both_ends: bool,
    /// How many flow rules fit into its table.
    pub rules_max: usize,
    /// Which rules it can steer by, beside the flows of sockets.
    pub steering: Steering,
    /// In-order TCP segments of one flow are merged before they are polled (receive coalescing): frames can be longer than the MTU, and
    /// [`RxMeta::coalesced`] counts.
    pub lro: bool,
    /// [`TxOffload::vlan`] works.
    pub vlan_insert: bool,
    /// VLAN tags are taken out of received frames, into [`RxMeta::vlan`].
    pub vlan_strip: bool,
    /// Checksums inside VXLAN tunnels are filled in and verified.
    pub vxlan: bool,
    /// [`Queues::pace`] works.
    pub pacing: bool,
    /// How many flows of a ring can have a rate of their own ([`Queues::set_rate`]); zero: none.
    pub paced_flows_max: usize,
    /// [`Queues::moderate`] works.
    pub moderation: bool,
    /// [`RxMeta::hardware_time`] is filled in.
    pub hardware_time: bool,
    /// Cyclic receive queues can be created.
    pub striding: bool,
    /// Bytes of device memory in all; zero: none.
    pub device_memory: usize,
    /// [`Queues::lend_heads`] works.
    pub lends_heads: bool,
    /// [`TxOffload::dummy`] works.
    pub dummy: bool,
    /// [`Queues::send_with_cookie`] works.
    pub completions: bool,
    /// Whose time completions have; `None`: they have none.
    pub completion_time: Option<TimeSource>,
}

impl Capabilities {
    /// A device of that kind with a packet plane for frames of up to `mtu` bytes of IP packet in one buffer, and nothing else.
    pub const fn least(kind: DeviceKind, mtu: usize) -> Self {
        Self {
            kind,
            packet_plane: true,
            message_plane: false,
            mtu,
            inline_max: 0,
            gather_max: 1,
            tx_checksum: false,
            rx_checksum: false,
            tso_max: None,
            point_to_point: false,
            rings_max: 1,
            is_beside_kernel: false,
            leaves_at_both_ends: false,
            rules_max: usize::MAX,
            steering: Steering::empty(),
            lro: false,
            vlan_insert: false,
            vlan_strip: false,
            vxlan: false,
            pacing: false,
            paced_flows_max: 0,
            moderation: false,
            hardware_time: false,
            striding: false,
            device_memory: 0,
            lends_heads: false,
            dummy: false,
            completions: false,
            completion_time: None,
        }
    }

    /// The refusal of something that this device lacks.
    pub const fn lacks(&self, what: &'static str) -> Unsupported {
        Unsupported { device: self.kind, what }
    }
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
    /// The host with this address is gone for good (its process died, its port was removed) and everything that it had
    /// sent has been polled. Flows to it end as if it had sent a reset, or the end of its stream: [`Queues::left_finished`].
    PeerGone(MacAddr),
    /// Processes of hosts where others may go on are gone for good, and everything that they had sent has been polled. Which TCP connections were with them
    /// [`crate::device::Queues::is_gone`] says: each ends as if a reset had come; or in order, if its peer had ended its stream and acknowledged everything: so ends a program that is not killed.
    PeersGone,
    /// The link lost or found its carrier.
    Link {
        /// Whether frames can pass.
        up: bool,
    },
    /// A flow rule that was not ready at once steers to this ring now ([`Attached::is_ready`]).
    RuleReady(RuleId),
    /// The device could not take such a rule after all. It has ended: it need not be detached, though it may be until this is polled.
    RuleFailed(RuleId, RuleError),
    /// The device was reset: frames that were queued, in flight or not polled are lost, and their buffers are back. Flow rules,
    /// buffers that are held, and cyclic queues stay; the backend attached and posted them again. Completions of what was sent before are lost, too: of a
    /// cookie that has not come yet, nothing will, and whether its frame left is not known.
    Reset,
    /// The device is gone for good: it was removed, or has failed as a whole. Nothing comes from it or goes out by it any more, and it takes no rule. Comes once.
    Gone,
}
