//! What a simulated NIC can do, and how much of it.

use core::time::Duration;

use ringway_stack::device::{Capabilities, Steering, TimeSource};
use ringway_stack::offload::DeviceKind;

use super::faults::NicFaults;

/// Capabilities and limits of a simulated NIC, and what goes wrong with it. Each capability can be switched off: then asking for it is an
/// error, and the stack does it in software.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicConfig {
    /// The largest IP packet in bytes.
    pub mtu: usize,
    /// Frames of up to this many bytes are copied by the send call.
    pub inline_max: usize,
    /// The most slices in one frame.
    pub gather_max: usize,
    /// Fills in checksums of sent frames on request.
    pub tx_checksum: bool,
    /// Verifies checksums of received frames.
    pub rx_checksum: bool,
    /// Frames in a ring's send queue, those not reaped included.
    pub tx_queue_max: usize,
    /// Frames in a ring's receive queue.
    pub rx_queue_max: usize,
    /// Send buffers of a ring.
    pub tx_buffers_max: usize,
    /// Bytes in a send buffer.
    pub tx_buffer_bytes: usize,
    /// Receive buffers of a ring: each frame longer than [`ringway_stack::device::HEAD_MAX`] takes one until its bytes have been read.
    pub rx_buffers_max: usize,
    /// Flow rules.
    pub rules_max: usize,
    /// How long its firmware takes for a rule that names both ends of a flow; zero: it steers at once. (The others always do: what a listener or a
    /// bound socket misses until then goes to a kernel beside the stack, and a simulated host has none.)
    pub rule_delay: Duration,
    /// Rings; at most 64.
    pub rings_max: usize,
    /// What it steers by, beside the flows of sockets.
    pub steering: Steering,
    /// The longest frame, in bytes, that it cuts into segments; none if it cuts none.
    pub tso_max: Option<usize>,
    /// Merges received TCP segments of a flow that arrive in order between two polls. Needs `rx_checksum`.
    pub lro: bool,
    /// Inserts VLAN tags on request.
    pub vlan_insert: bool,
    /// Takes VLAN tags out of received frames.
    pub vlan_strip: bool,
    /// Fills in and verifies checksums inside VXLAN tunnels.
    pub vxlan: bool,
    /// Paces rings.
    pub pacing: bool,
    /// Paces single flows: so many of a ring's. Zero: none.
    pub paced_flows_max: usize,
    /// Moderates completions.
    pub moderation: bool,
    /// Tells when frames arrived, and when those left whose completion is wanted.
    pub hardware_time: bool,
    /// Tells of single sends what became of them; without `hardware_time`, with the time of the doorbell.
    pub completions: bool,
    /// Has cyclic receive queues: this many a ring. Zero: none.
    pub cyclic_queues_max: usize,
    /// Bytes of memory on the NIC.
    pub device_memory: usize,
    /// Lends the heads of frames too, on request: then each frame takes a receive buffer, as long as half of them are left. (Smaller ones
    /// are copied from then on, lest a program that holds many starve its ring.)
    pub lends_heads: bool,
    /// How long who sleeps on a ring and waits for no acknowledgment sleeps on when one comes that may wait
    /// ([`Wake::Solicited`](ringway_stack::device::Wake::Solicited)).
    pub nap: Duration,
    /// Each of its rings has a MAC address of its own, as a process's are on shared memory: frames come to a ring by its Ethernet address alone, and rings are told
    /// of a peer's death.
    pub mac_per_ring: bool,
    /// They can tell of a dead one whether it was through with all that it had been sent: where the network loses nothing.
    pub tells_finished: bool,
    /// What goes wrong with it.
    pub faults: NicFaults,
}

impl NicConfig {
    /// A NIC with everything, as a ConnectX has it.
    pub fn full() -> Self {
        Self {
            inline_max: 204,
            gather_max: 16,
            tx_buffer_bytes: 8192,
            tso_max: Some(65_535),
            lro: true,
            vlan_insert: true,
            vlan_strip: true,
            vxlan: true,
            ..Self::default()
        }
    }

    /// A NIC with nothing: whatever is not sending and receiving is the stack's.
    pub fn bare() -> Self {
        Self {
            tx_checksum: false,
            rx_checksum: false,
            rings_max: 1,
            steering: Steering::empty(),
            pacing: false,
            paced_flows_max: 0,
            moderation: false,
            hardware_time: false,
            completions: false,
            cyclic_queues_max: 0,
            device_memory: 0,
            lends_heads: false,
            ..Self::default()
        }
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        Capabilities {
            inline_max: self.inline_max,
            gather_max: self.gather_max,
            tx_checksum: self.tx_checksum,
            rx_checksum: self.rx_checksum,
            // Each segment needs a checksum of its own, which only the device can fill in.
            tso_max: self.tso_max.filter(|_| self.tx_checksum),
            rings_max: self.rings_max,
            rules_max: self.rules_max,
            steering: self.steering,
            lro: self.lro && self.rx_checksum,
            vlan_insert: self.vlan_insert,
            vlan_strip: self.vlan_strip,
            vxlan: self.vxlan,
            pacing: self.pacing,
            paced_flows_max: self.paced_flows_max,
            moderation: self.moderation,
            hardware_time: self.hardware_time,
            striding: self.cyclic_queues_max > 0,
            device_memory: self.device_memory,
            dummy: true,
            completions: self.completions,
            completion_time: self.completions.then_some(if self.hardware_time { TimeSource::Hardware } else { TimeSource::Software }),
            lends_heads: self.lends_heads,
            point_to_point: self.mac_per_ring,
            ..Capabilities::least(DeviceKind::Sim, self.mtu)
        }
    }
}

impl Default for NicConfig {
    /// An ordinary Ethernet NIC with checksum offloads and roomy queues, which neither cuts, merges nor tags frames by itself.
    fn default() -> Self {
        Self {
            mtu: 1500,
            inline_max: 128,
            gather_max: 8,
            tx_checksum: true,
            rx_checksum: true,
            tx_queue_max: 1024,
            rx_queue_max: 1024,
            tx_buffers_max: 16 << 10,
            tx_buffer_bytes: 2048,
            rx_buffers_max: 8 << 10,
            rules_max: 64 << 10,
            rule_delay: Duration::ZERO,
            rings_max: 16,
            steering: Steering::all(),
            tso_max: None,
            lro: false,
            vlan_insert: false,
            vlan_strip: false,
            vxlan: false,
            pacing: true,
            paced_flows_max: 64,
            moderation: true,
            hardware_time: true,
            completions: true,
            cyclic_queues_max: 4,
            device_memory: 256 << 10,
            lends_heads: true,
            nap: Duration::ZERO,
            mac_per_ring: false,
            tells_finished: true,
            faults: NicFaults::default(),
        }
    }
}
