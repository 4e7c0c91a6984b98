//! The way to a peer: what verbs calls an address vector, as RoCEv2 has it (IBTA spec, annex A17).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Source and destination of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// From whom.
        src: Ipv4Addr,
        /// To whom.
        dst: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// From whom.
        src: Ipv6Addr,
        /// To whom.
        dst: Ipv6Addr,
    },
}

/// How a packet goes through the network: what verbs calls an address vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Between whom.
    pub addresses: Addresses,
    /// Differentiated services and ECN.
    pub traffic_class: u8,
    /// Hops (TTL).
    pub hop_limit: u8,
    /// The flow label; IPv6's alone.
    pub flow_label: u32,
    /// The source port of UDP, by which the network spreads flows.
    pub src_port: u16,
}

impl Addresses {
    /// Source and destination; `None` if they are of two families.
    pub const fn new(src: IpAddr, dst: IpAddr) -> Option<Self> {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Self::V4 { src, dst }),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some(Self::V6 { src, dst }),
            _ => None,
        }
    }

    /// From whom.
    pub const fn src(&self) -> IpAddr {
        match *self {
            Self::V4 { src, .. } => IpAddr::V4(src),
            Self::V6 { src, .. } => IpAddr::V6(src),
        }
    }

    /// To whom.
    pub const fn dst(&self) -> IpAddr {
        match *self {
            Self::V4 { dst, .. } => IpAddr::V4(dst),
            Self::V6 { dst, .. } => IpAddr::V6(dst),
        }
    }

    /// The way back.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::V4 { src, dst } => Self::V4 { src: dst, dst: src },
            Self::V6 { src, dst } => Self::V6 { src: dst, dst: src },
        }
    }
}

impl Path {
    /// Between these, with 64 hops and the source port of `flow`'s hash (0xc000 and up, as rxe has it).
    pub const fn new(addresses: Addresses, flow: u32) -> Self {
        let hash = flow.wrapping_mul(0x9e37_79b9) >> 18;
        Self { addresses, traffic_class: 0, hop_limit: 64, flow_label: 0, src_port: 0xc000 | (hash & 0x3fff) as u16 }
    }
}
