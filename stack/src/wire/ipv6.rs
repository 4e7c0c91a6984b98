//! IPv6 headers (RFC 8200). [`extension`] walks what may lie between a header and its upper layer; who has no use for extension headers
//! takes `next_header` at its word.

use core::net::Ipv6Addr;

use super::checksum::Checksum;
use super::{ParseError, be16, first, ipv4};

pub mod extension;

#[cfg(test)]
mod tests;

/// Bytes of a header.
pub const LEN: usize = 40;
/// What every link carries in one piece, and no path's MTU is below (RFC 8200 s5).
pub const MTU_MIN: u16 = 1280;
/// ICMPv6.
pub const PROTOCOL_ICMPV6: u8 = 58;
/// Nothing follows (RFC 8200 s4.7).
pub const NO_NEXT_HEADER: u8 = 59;
/// Every node of the link.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Every router of the link.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Routers that hear reports of MLDv2 (RFC 3810 s5.2.14).
pub const ALL_MLDV2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

const FLOW_LABEL_MASK: u32 = 0x000f_ffff;

/// Why no packet with such addresses may be on a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// An IPv4 address in IPv6's clothes: they are for programs alone (RFC 4291 s2.5.5.2, RFC 4942 s2.2).
    #[error("an IPv4-mapped address on the wire")]
    V4Mapped,
    /// Nobody sends from a group (RFC 4291 s2.7).
    #[error("the source is a group")]
    MulticastSource,
    /// Nobody is there (RFC 4291 s2.5.2).
    #[error("the destination is unspecified")]
    UnspecifiedDestination,
    /// A group whose scope is reserved, or that does not leave an interface (RFC 4291 s2.7).
    #[error("the group's scope is no wider than an interface")]
    NarrowScope,
}

/// Why an upper layer's checksum does not vouch for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChecksumError {
    /// UDP's sender computed none, which IPv6 does not allow: no other checksum covers the addresses (RFC 8200 s8.1).
    #[error("a UDP datagram without a checksum")]
    Missing,
    /// The bytes are not those that were sent, or not to us.
    #[error("wrong checksum")]
    Wrong,
}

/// An IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// From whom.
    pub src: Ipv6Addr,
    /// To whom.
    pub dst: Ipv6Addr,
    /// What follows the header.
    pub next_header: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// Differentiated services and ECN.
    pub traffic_class: u8,
    /// The flow label; 20 bits, higher ones are not sent.
    pub flow_label: u32,
    /// Bytes that follow this header.
    pub payload_len: u16,
}

impl Header {
    /// Reads the header at the front of `bytes`; also gives its length. Does not hold `payload_len` against what follows.
    ///
    /// # Errors
    /// [`ParseError::Truncated`]; [`ParseError::Malformed`]: another version.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), ParseError> {
        let b = first::<LEN>(bytes)?;
        let word = u32::from_be_bytes([b[0], b[1], b[2], b[3]]);
        if word >> 28 != 6 {
            return Err(ParseError::Malformed);
        }
        let (mut src, mut dst) = ([0; 16], [0; 16]);
        src.copy_from_slice(&b[8..24]);
        dst.copy_from_slice(&b[24..40]);
        let header = Self {
            src: src.into(),
            dst: dst.into(),
            next_header: b[6],
            hop_limit: b[7],
            traffic_class: (word >> 20) as u8,
            flow_label: word & FLOW_LABEL_MASK,
            payload_len: be16(b[4], b[5]),
        };
        Ok((header, LEN))
    }

    /// Writes the header to the front of `out`, which must have room for [`LEN`] bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let out = &mut out[..LEN];
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & FLOW_LABEL_MASK;
        out[..4].copy_from_slice(&word.to_be_bytes());
        out[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        out[6] = self.next_header;
        out[7] = self.hop_limit;
        out[8..24].copy_from_slice(&self.src.octets());
        out[24..40].copy_from_slice(&self.dst.octets());
        LEN
    }

    /// The differentiated services code point (RFC 2474).
    #[inline]
    pub const fn dscp(&self) -> u8 {
        self.traffic_class >> 2
    }

    /// The two bits of congestion notification (RFC 3168 s5).
    #[inline]
    pub const fn ecn(&self) -> u8 {
        self.traffic_class & 0b11
    }

    /// Whether a packet with these addresses may be on a wire. (Loopback addresses may not either, but on a link that is all within one
    /// host: that is for the link to say.)
    ///
    /// # Errors
    /// Every variant of [`AddressError`]: the packet is to be dropped without a word, and not to be sent.
    pub fn check_addresses(&self) -> Result<(), AddressError> {
        if self.src.to_ipv4_mapped().is_some() || self.dst.to_ipv4_mapped().is_some() {
            return Err(AddressError::V4Mapped);
        }
        if self.src.is_multicast() {
            return Err(AddressError::MulticastSource);
        }
        if self.dst.is_unspecified() {
            return Err(AddressError::UnspecifiedDestination);
        }
        if self.dst.is_multicast() && scope(self.dst) <= 1 {
            return Err(AddressError::NarrowScope);
        }
        Ok(())
    }

    /// The sum over the pseudo header for an upper layer of `len` bytes in all (RFC 8200 s8.1).
    #[inline]
    pub fn pseudo_header(&self, protocol: u8, len: usize) -> Checksum {
        Checksum::pseudo_header_v6(self.src, self.dst, protocol, len)
    }

    /// Whether an upper layer's checksum is right; `bytes` are all of it (for UDP, as many as its header says).
    ///
    /// # Errors
    /// Every variant of [`ChecksumError`]: the packet is to be dropped without a word.
    pub fn check_upper(&self, protocol: u8, bytes: &[u8]) -> Result<(), ChecksumError> {
        if protocol == ipv4::PROTOCOL_UDP && bytes.get(6..8) == Some(&[0, 0]) {
            return Err(ChecksumError::Missing);
        }
        let mut sum = self.pseudo_header(protocol, bytes.len());
        sum.add(bytes);
        if sum.is_good() { Ok(()) } else { Err(ChecksumError::Wrong) }
    }
}

/// The scope of a group: 1 an interface, 2 a link, 14 everywhere (RFC 4291 s2.7).
pub const fn scope(group: Ipv6Addr) -> u8 {
    group.octets()[1] & 0x0f
}

/// The group in which who has `address` listens for questions about it (RFC 4291 s2.7.1).
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., high, low] = address.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | high & 0x00ff, low)
}
