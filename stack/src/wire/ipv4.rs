//! IPv4 headers (RFC 791). Options are skipped on receipt and never sent.

use std::net::Ipv4Addr;

use super::checksum::{self, Checksum};
use super::{ParseError, be16, first};

/// Bytes of a header without options.
pub const LEN: usize = 20;
/// Bytes of a header with all the options that it has room for.
pub const LEN_MAX: usize = 60;
/// ICMP.
pub const PROTOCOL_ICMP: u8 = 1;
/// IGMP.
pub const PROTOCOL_IGMP: u8 = 2;
/// TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// UDP.
pub const PROTOCOL_UDP: u8 = 17;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;
/// What a fragment has some of: that more follow, and where it begins.
pub(super) const FRAGMENT: u16 = MORE_FRAGMENTS | OFFSET_MASK;

/// An IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// From whom.
    pub src: Ipv4Addr,
    /// To whom.
    pub dst: Ipv4Addr,
    /// What follows the header.
    pub protocol: u8,
    /// Hops left.
    pub ttl: u8,
    /// Differentiated services and ECN.
    pub tos: u8,
    /// Groups the fragments of one packet.
    pub id: u16,
    /// Bytes of the packet, this header included. Invariant after parsing: at least `header_len`.
    pub total_len: u16,
    /// Routers must not fragment it.
    pub dont_fragment: bool,
    /// More fragments follow this one.
    pub more_fragments: bool,
    /// Where this fragment's payload begins, in bytes; a multiple of 8.
    pub fragment_offset: u16,
    /// Bytes of this header, options included.
    pub header_len: u8,
}

impl Header {
    /// Reads the header at the front of `bytes`; also gives its length. Does not look at the checksum ([`verify_checksum`]) nor
    /// hold `total_len` against what follows.
    ///
    /// # Errors
    /// [`ParseError::Truncated`]; [`ParseError::Malformed`]: another version, or lengths that contradict each other.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), ParseError> {
        let b = first::<LEN>(bytes)?;
        let header_len = usize::from(b[0] & 0x0f) * 4;
        let total_len = be16(b[2], b[3]);
        if b[0] >> 4 != 4 || header_len < LEN || usize::from(total_len) < header_len {
            return Err(ParseError::Malformed);
        }
        if bytes.len() < header_len {
            return Err(ParseError::Truncated);
        }
        let fragment = be16(b[6], b[7]);
        let header = Self {
            src: Ipv4Addr::new(b[12], b[13], b[14], b[15]),
            dst: Ipv4Addr::new(b[16], b[17], b[18], b[19]),
            protocol: b[9],
            ttl: b[8],
            tos: b[1],
            id: be16(b[4], b[5]),
            total_len,
            dont_fragment: fragment & DONT_FRAGMENT != 0,
            more_fragments: fragment & MORE_FRAGMENTS != 0,
            fragment_offset: (fragment & OFFSET_MASK) * 8,
            header_len: header_len as u8,
        };
        Ok((header, header_len))
    }

    /// Whether this is a part of a packet only.
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset != 0
    }

    /// Writes the header, without options, to the front of `out`, which must have room for [`LEN`] bytes. The checksum is
    /// left zero where the device fills it in (`fill_checksum` false).
    #[inline]
    pub fn emit(&self, out: &mut [u8], fill_checksum: bool) -> usize {
        let fragment = (self.fragment_offset / 8) & OFFSET_MASK
            | if self.dont_fragment { DONT_FRAGMENT } else { 0 }
            | if self.more_fragments { MORE_FRAGMENTS } else { 0 };
        let out = &mut out[..LEN];
        out[0] = 0x45;
        out[1] = self.tos;
        out[2..4].copy_from_slice(&self.total_len.to_be_bytes());
        out[4..6].copy_from_slice(&self.id.to_be_bytes());
        out[6..8].copy_from_slice(&fragment.to_be_bytes());
        out[8] = self.ttl;
        out[9] = self.protocol;
        out[10..12].copy_from_slice(&[0, 0]);
        out[12..16].copy_from_slice(&self.src.octets());
        out[16..20].copy_from_slice(&self.dst.octets());
        if fill_checksum {
            let checksum = !checksum::sum(out);
            out[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        LEN
    }

    /// The sum over the pseudo header for a transport header and payload of `len` bytes in all.
    #[inline]
    pub fn pseudo_header(&self, len: usize) -> Checksum {
        Checksum::pseudo_header(self.src, self.dst, self.protocol, len)
    }
}

/// Whether the checksum of the header at the front of `bytes` is right. A header that does not parse has none.
#[inline]
pub fn verify_checksum(bytes: &[u8]) -> bool {
    let Some(&first) = bytes.first() else { return false };
    let header_len = usize::from(first & 0x0f) * 4;
    header_len >= LEN && bytes.get(..header_len).is_some_and(|header| checksum::sum(header) == 0xffff)
}
