//! The plain types in which a ring and its caller speak.

use std::net::{IpAddr, SocketAddr};

use crate::device::{MacAddr, Protocol};
use crate::flow::{Counters, Readiness};
use crate::mld::filter::Filter;
use crate::mutants::{Mutant, Mutation};
use crate::tcp;
use crate::time::Instant;

/// Names a flow, and the ring that has it. Slots are used again, generations are not: a stale id is recognised, and so is one of another ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    /// Its ring's number ([`RingConfig::number`]).
    pub ring: u16,
    /// The slot; dense, so that a caller can keep its own table beside the ring's.
    pub index: u32,
    /// Which use of the slot.
    pub generation: u32,
}

/// A flow's readiness changed, or gained something new of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Which flow.
    pub flow: FlowId,
    /// What arrived since its last event, whether or not it was ready before: what an edge-triggered wait wants.
    pub edges: Readiness,
}

bitflags::bitflags! {
    /// How to send.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SendFlags: u8 {
        /// More follows: hold back a partial segment (MSG_MORE).
        const MORE = 1;
        /// A record ends with the last of these bytes (MSG_EOR): no segment has them and what is sent after them.
        const END_OF_RECORD = 2;
    }
}

bitflags::bitflags! {
    /// How to receive.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RecvFlags: u8 {
        /// Leave the bytes in the queue (MSG_PEEK).
        const PEEK = 1;
    }
}

/// Which direction to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// No more reading.
    Read,
    /// No more writing: the peer sees the end of the stream.
    Write,
    /// Neither.
    Both,
}

/// How frames reach a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// Its MAC address is known.
    Mac(MacAddr),
    /// Ask the neighbour table (and ARP) for this address.
    Neighbour(IpAddr),
    /// The caller is still finding out. A connection sends nothing until [`Ring::tcp_route`] says where to.
    ///
    /// [`Ring::tcp_route`]: super::Ring::tcp_route
    Pending,
}

impl NextHop {
    /// Whether it is that MAC address.
    #[inline(always)]
    pub(super) fn is_mac(&self, mac: MacAddr) -> bool {
        matches!(*self, Self::Mac(own) if own.is(mac))
    }
}

/// A received datagram, apart from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Bytes copied to the caller.
    pub copied: usize,
    /// Bytes the datagram had.
    pub len: usize,
    /// Who sent it.
    pub from: SocketAddr,
    /// The address it was sent to.
    pub to: IpAddr,
    /// When the ring took it from the device; of those of one poll, each a nanosecond after the one before.
    pub received: Instant,
    /// When the frame arrived that it came in, by the device's clock; none where the device says nothing of it, or it came in several.
    pub hardware_time: Option<Instant>,
    /// How many datagrams the socket had dropped by then for want of room, modulo 2^32 (socket(7), SO_RXQ_OVFL); zero, unless
    /// [`UdpOptions::tell_drops`] was set then.
    pub drops: u32,
}

/// Whether other sockets may have a socket's address as well, and who gets what arrives then (socket(7), SO_REUSEADDR and SO_REUSEPORT). Of a
/// port's sockets, those with that peer come first, then those with that local address, then those with every one; this is
/// about those that are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// The address is this socket's alone.
    #[default]
    No,
    /// SO_REUSEADDR: the one that came last gets it.
    Address,
    /// SO_REUSEPORT: it is shared out among them, each pair of addresses to one of them.
    Port,
}

/// Whose datagrams for a group a UDP socket hears (RFC 3678 s4).
pub type SourceFilter = Filter<IpAddr>;

/// A UDP socket's options.
#[derive(Clone, Copy, Debug)]
pub struct UdpOptions {
    /// Most bytes (with a fixed overhead for each datagram) that wait to be read; later datagrams are dropped.
    pub rcvbuf: usize,
    /// What arrives tells how many were dropped before it ([`Datagram::drops`]).
    pub tell_drops: bool,
    /// Time to live of what is sent.
    pub ttl: u8,
    /// Type-of-service byte of what is sent.
    pub tos: u8,
    /// Time to live of what is sent to groups (IP_MULTICAST_TTL).
    pub multicast_ttl: u8,
    /// It is told of errors that may pass as well: that a network or a host cannot be reached ("UDP MUST pass to the application layer all ICMP error messages",
    /// RFC 1122 s4.1.3.3). Linux tells only those sockets that asked for it (ip(7), IP_RECVERR).
    pub passing_errors: bool,
    /// What is sent to a group also reaches this ring's own members (IP_MULTICAST_LOOP).
    pub multicast_loop: bool,
    /// Whether it shares its address, from [`super::Ring::udp_open`] on.
    pub reuse: Reuse,
    /// What the kernel beside the device calls the socket (see [`crate::device::FlowRule::cookie`]), from then on too.
    pub cookie: u64,
}

impl Default for UdpOptions {
    /// Linux's net.core.rmem_default; what is sent to a group stays on the link (RFC 1112 s6.1).
    fn default() -> Self {
        Self {
            rcvbuf: 212_992,
            tell_drops: false,
            ttl: 64,
            tos: 0,
            multicast_ttl: 1,
            passing_errors: true,
            multicast_loop: true,
            reuse: Reuse::No,
            cookie: 0,
        }
    }
}

/// A ring's configuration.
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// Which of its owner's rings it is: names of its flows say so. Where there is one ring, zero will do.
    pub number: u16,
    /// The addresses that the ring answers ARP and pings for. Packets for other addresses are dropped;
    /// with no address named, packets for any address are ours (a medium that steers by flow rules alone).
    pub addresses: Vec<IpAddr>,
    /// The VLAN that the ring's frames are tagged with, both ways (PCP, DEI and VID as on the wire); untagged if `None`.
    pub vlan: Option<u16>,
    /// Most flows, connections that linger included.
    pub flows_max: usize,
    /// Frames taken from the device in one poll (VMA_CQ_POLL_BATCH_MAX).
    pub batch: usize,
    /// Send a reset for a TCP segment that no flow matches (RFC 9293 s3.10.7.1).
    pub reset_strangers: bool,
    /// How long a connection stays in TIME-WAIT. Linux: 60 s.
    pub time_wait: core::time::Duration,
    /// What is deliberately wrong.
    #[cfg(feature = "mutants")]
    pub mutant: Mutant,
}

impl Default for RingConfig {
    fn default() -> Self {
        Self {
            number: 0,
            addresses: Vec::new(),
            vlan: None,
            flows_max: 1 << 20,
            batch: 16,
            reset_strangers: true,
            time_wait: core::time::Duration::from_secs(60),
            #[cfg(feature = "mutants")]
            mutant: Mutant::Healthy,
        }
    }
}

impl RingConfig {
    /// The same for the parts.
    pub(super) fn mutation(&self) -> Mutation {
        Mutation {
            #[cfg(feature = "mutants")]
            mutant: self.mutant,
        }
    }

    /// Whether the stack is this mutant; a constant `false` without the feature.
    #[inline(always)]
    pub(super) fn is(&self, mutant: Mutant) -> bool {
        #[cfg(feature = "mutants")]
        return self.mutant == mutant;
        #[cfg(not(feature = "mutants"))]
        {
            let _ = mutant;
            false
        }
    }
}

/// How a ring's looks at its completion queue went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    /// Those in which there was something.
    pub count: u64,
    /// The most frames that one of them took.
    pub max: usize,
}

/// How full a UDP socket's queue is, and was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Datagrams that wait.
    pub packets: usize,
    /// The most that ever waited.
    pub packets_max: usize,
    /// The most bytes that ever waited.
    pub bytes_max: usize,
    /// Bytes of datagrams that were dropped for want of room.
    pub dropped_bytes: u64,
    /// What the next datagram that is read will tell of drops at least ([`Datagram::drops`]).
    pub drops: u32,
    /// What [`UdpOptions::rcvbuf`] says.
    pub limit: usize,
}

/// A socket as `ss` would show it.
#[derive(Clone, Copy, Debug)]
pub struct FlowInfo {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Our address.
    pub local: SocketAddr,
    /// The peer's, if there is one.
    pub remote: Option<SocketAddr>,
    /// The TCP state; `None` for UDP.
    pub state: Option<tcp::State>,
    /// Bytes that wait to be read (for a listener: connections that wait to be accepted).
    pub recv_queue: usize,
    /// Bytes of the next datagram (UDP), else `recv_queue`: what FIONREAD says.
    pub next_len: usize,
    /// Bytes sent and not acknowledged, or not sent yet.
    pub send_queue: usize,
    /// Smoothed round-trip time; zero if unknown.
    pub srtt: core::time::Duration,
    /// Maximum segment size in use; zero for UDP and listeners.
    pub mss: u16,
    /// Congestion window in bytes; zero for UDP and listeners.
    pub cwnd: usize,
    /// Its counters.
    pub counters: Counters,
}

/// What a ring holds beside its device's buffers and rules. All zero once every socket is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Flows, closed connections that linger included.
    pub flows: usize,
    /// Pairs of addresses that are taken.
    pub addresses: usize,
}
