//! What is told of every flow, whatever its protocol: what it is ready for, and what it counted. [`crate::ring`], which has the table of flows,
//! gives these types out as well.

bitflags::bitflags! {
    /// What can be done with a flow without blocking. The bits are epoll's own.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Readiness: u32 {
        /// Bytes, a datagram, a connection, or the end of the stream can be read.
        const IN = 0x1;
        /// The peer has sent urgent data, which wait for the kernel ([`crate::tcp::Config::urgent_waits`]), or has left its ring for its kernel
        /// ([`crate::ring::Ring::tcp_take_leaver`]). Only ever an edge.
        const PRI = 0x2;
        /// Room to write.
        const OUT = 0x4;
        /// An error is pending.
        const ERR = 0x8;
        /// Both directions are finished.
        const HUP = 0x10;
        /// The peer finished sending.
        const RDHUP = 0x2000;
    }
}

/// What a ring, or a flow, counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames (ring) or segments and datagrams (flow) received.
    pub rx_packets: u64,
    /// Payload bytes received.
    pub rx_bytes: u64,
    /// Received frames or datagrams that were dropped: malformed, bad checksum, no flow, or no room.
    pub rx_drops: u64,
    /// Frames, segments or datagrams sent.
    pub tx_packets: u64,
    /// Payload bytes sent, retransmissions included.
    pub tx_bytes: u64,
    /// Frames that the device did not take.
    pub tx_drops: u64,
    /// TCP segments sent again.
    pub retransmissions: u64,
    /// Payload bytes of TCP segments sent again.
    pub retransmitted_bytes: u64,
    /// Sends that were to send nothing.
    pub tx_dummies: u64,
}

impl Counters {
    /// Segments and bytes that were sent again.
    #[inline]
    pub(crate) const fn resent(&self) -> [u64; 2] {
        [self.retransmissions, self.retransmitted_bytes]
    }
}
