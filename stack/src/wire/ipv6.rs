//! IPv6 headers (RFC 8200), without extension headers: `next_header` says what follows, and its reader whether it knows it.

use std::net::Ipv6Addr;

use super::{ParseError, be16, first};

/// Bytes of a header.
pub const LEN: usize = 40;

const FLOW_LABEL_MASK: u32 = 0x000f_ffff;

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
}
