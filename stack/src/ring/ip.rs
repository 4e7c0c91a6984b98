//! IP headers of either family, as the ring sees them.

use std::net::{IpAddr, SocketAddr};

use crate::wire::checksum::Checksum;
use crate::wire::{ipv4, ipv6};

/// The header of a packet that came.
#[derive(Clone, Copy, Debug)]
pub(super) enum IpHeader {
    V4(ipv4::Header),
    V6(ipv6::Header),
}

impl IpHeader {
    #[inline(always)]
    pub(super) fn src(&self) -> IpAddr {
        match self {
            Self::V4(header) => IpAddr::V4(header.src),
            Self::V6(header) => IpAddr::V6(header.src),
        }
    }

    #[inline(always)]
    pub(super) fn dst(&self) -> IpAddr {
        match self {
            Self::V4(header) => IpAddr::V4(header.dst),
            Self::V6(header) => IpAddr::V6(header.dst),
        }
    }

    /// Where it came from and where it went, with these ports.
    #[inline(always)]
    pub(super) fn ends(&self, src_port: u16, dst_port: u16) -> (SocketAddr, SocketAddr) {
        (SocketAddr::new(self.src(), src_port), SocketAddr::new(self.dst(), dst_port))
    }

    /// Whether a router marked it (RFC 3168 s5).
    #[inline(always)]
    pub(super) fn is_marked(&self) -> bool {
        let class = match self {
            Self::V4(header) => header.tos,
            Self::V6(header) => header.traffic_class,
        };
        class & 3 == 3
    }

    /// The sum over the pseudo header for a transport header and payload of `len` bytes in all.
    #[inline(always)]
    pub(super) fn pseudo_header(&self, protocol: u8, len: usize) -> Checksum {
        match self {
            Self::V4(header) => Checksum::pseudo_header(header.src, header.dst, protocol, len),
            Self::V6(header) => header.pseudo_header(protocol, len),
        }
    }
}

/// Bytes of an IP header without options or extensions, of the family of `address`.
#[inline(always)]
pub(super) fn header_len(address: IpAddr) -> usize {
    if address.is_ipv4() { ipv4::LEN } else { ipv6::LEN }
}
