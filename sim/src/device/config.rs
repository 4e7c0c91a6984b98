//! What a simulated NIC can do, and how much of it.

use ringway_stack::device::Capabilities;
use ringway_stack::offload::DeviceKind;

/// Capabilities and limits of a simulated NIC.
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
    /// Frames in the send queue, those not reaped included.
    pub tx_queue_max: usize,
    /// Frames in the receive queue.
    pub rx_queue_max: usize,
    /// Send buffers.
    pub tx_buffers_max: usize,
    /// Bytes in a send buffer.
    pub tx_buffer_bytes: usize,
    /// Receive buffers: each frame longer than [`ringway_stack::device::HEAD_MAX`] takes one until its bytes have been read.
    pub rx_buffers_max: usize,
    /// Flow rules.
    pub rules_max: usize,
}

impl NicConfig {
    pub(super) fn capabilities(&self) -> Capabilities {
        Capabilities {
            inline_max: self.inline_max,
            gather_max: self.gather_max,
            tx_checksum: self.tx_checksum,
            rx_checksum: self.rx_checksum,
            rules_max: self.rules_max,
            ..Capabilities::least(DeviceKind::Sim, self.mtu)
        }
    }
}

impl Default for NicConfig {
    /// An ordinary Ethernet NIC with checksum offloads and roomy queues.
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
        }
    }
}
