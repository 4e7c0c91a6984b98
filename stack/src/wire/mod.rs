//! Headers on the wire: Ethernet, VLAN, ARP, IPv4, IPv6, ICMP, ICMPv6, IGMP, UDP and TCP, parsed from bytes and emitted to bytes.
//!
//! Every codec is a plain value: `parse` takes the bytes that begin with the header and gives the header and its length;
//! `emit` writes it and gives the same length. Nothing here allocates, and no input makes `parse` panic. What a header says
//! about the bytes that follow it (lengths, checksums) is the caller's to hold against the frame.

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub(crate) mod fixed;
pub mod icmp;
pub mod icmpv6;
pub mod igmp;
pub mod ipv4;
pub mod ipv6;
pub mod tcp;
pub mod udp;

#[cfg(test)]
mod tests;

/// Why bytes are not the header they should be. The sender is at fault, or the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The bytes end before the header does.
    #[error("truncated header")]
    Truncated,
    /// A field has a value that the protocol excludes.
    #[error("malformed header")]
    Malformed,
}

/// The first `N` bytes of `bytes` as an array.
#[inline]
fn first<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], ParseError> {
    bytes.first_chunk().ok_or(ParseError::Truncated)
}

/// Four bytes of `bytes`, which has them.
#[inline(always)]
fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn be16(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low])
}
