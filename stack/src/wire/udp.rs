//! UDP headers (RFC 768).

use super::{ParseError, be16, first};

/// Bytes of a header.
pub const LEN: usize = 8;

/// A UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// Bytes of header and payload. Invariant after parsing: at least [`LEN`].
    pub len: u16,
    /// The checksum; zero: the sender computed none.
    pub checksum: u16,
}

impl Header {
    /// Reads the header at the front of `bytes`; also gives its length.
    ///
    /// # Errors
    /// [`ParseError::Truncated`]; [`ParseError::Malformed`]: a length that leaves no room for the header.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), ParseError> {
        let &[s0, s1, d0, d1, l0, l1, c0, c1] = first::<LEN>(bytes)?;
        let header = Self { src_port: be16(s0, s1), dst_port: be16(d0, d1), len: be16(l0, l1), checksum: be16(c0, c1) };
        if usize::from(header.len) < LEN {
            return Err(ParseError::Malformed);
        }
        Ok((header, LEN))
    }

    /// Writes the header to the front of `out`, which must have room for [`LEN`] bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let out = &mut out[..LEN];
        out[..2].copy_from_slice(&self.src_port.to_be_bytes());
        out[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        out[4..6].copy_from_slice(&self.len.to_be_bytes());
        out[6..8].copy_from_slice(&self.checksum.to_be_bytes());
        LEN
    }
}

/// The checksum to send for a computed one: a computed zero goes out as its other form, all ones, since zero means none.
#[inline]
pub const fn nonzero_checksum(computed: u16) -> u16 {
    if computed == 0 { 0xffff } else { computed }
}
