//! Ethernet II headers, with at most one VLAN tag (IEEE 802.3, 802.1Q).

use super::{ParseError, be16, first};
use crate::addr::MacAddr;

/// IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// A VLAN tag follows.
pub const ETHERTYPE_VLAN: u16 = 0x8100;
/// Bytes of a header without a VLAN tag.
pub const LEN: usize = 14;
/// Bytes that a VLAN tag adds.
pub const VLAN_LEN: usize = 4;

/// An Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// To whom.
    pub dst: MacAddr,
    /// From whom.
    pub src: MacAddr,
    /// The VLAN tag's control information (PCP, DEI and VID), if there is a tag.
    pub vlan: Option<u16>,
    /// What follows the header.
    pub ethertype: u16,
}

impl Header {
    /// Reads the header at the front of `bytes`; also gives its length.
    ///
    /// # Errors
    /// [`ParseError::Truncated`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), ParseError> {
        let &[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = first::<LEN>(bytes)?;
        let (dst, src) = (MacAddr([d0, d1, d2, d3, d4, d5]), MacAddr([s0, s1, s2, s3, s4, s5]));
        let ethertype = be16(t0, t1);
        if ethertype != ETHERTYPE_VLAN {
            return Ok((Self { dst, src, vlan: None, ethertype }, LEN));
        }
        let &[v0, v1, t0, t1] = first::<VLAN_LEN>(&bytes[LEN..])?;
        Ok((Self { dst, src, vlan: Some(be16(v0, v1)), ethertype: be16(t0, t1) }, LEN + VLAN_LEN))
    }

    /// The header's length in bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        if self.vlan.is_some() { LEN + VLAN_LEN } else { LEN }
    }

    /// Never: a header has bytes.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header to the front of `out`, which must have room for it, and gives its length.
    // (In each of its callers: they are few, and on the way of every frame.)
    #[inline(always)]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        out[..6].copy_from_slice(&self.dst.0);
        out[6..12].copy_from_slice(&self.src.0);
        let mut at = 12;
        if let Some(vlan) = self.vlan {
            out[at..at + 2].copy_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
            out[at + 2..at + 4].copy_from_slice(&vlan.to_be_bytes());
            at += VLAN_LEN;
        }
        out[at..at + 2].copy_from_slice(&self.ethertype.to_be_bytes());
        at + 2
    }
}
