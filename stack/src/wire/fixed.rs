//! The shape that nearly every segment of an open connection has: Ethernet without a tag, IPv4 without options and not a fragment, TCP with no options
//! but timestamps. Every field is in a place that is known when this is compiled, and a few comparisons tell whether a frame is so. What is
//! read of it is what [`super::ethernet`], [`super::ipv4`] and [`super::tcp`] read.

use super::tcp::{Flags, Header, Options, SeqNumber, options};
use super::{be16, be32, ethernet, ipv4, tcp};
use crate::addr::MacAddr;

const IP_AT: usize = ethernet::LEN;
const TCP_AT: usize = IP_AT + ipv4::LEN;
/// Bytes of the headers without timestamps.
const LEN: usize = TCP_AT + tcp::LEN;

/// A frame of this shape, each of whose fields is read when it is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Segment<'f> {
    headers: &'f [u8; LEN],
    timestamps: Option<(u32, u32)>,
    payload: &'f [u8],
}

impl<'f> Segment<'f> {
    /// Of a frame that is all in `frame`. No checksum is looked at. `None`: it has another shape, or contradicts itself.
    #[inline(always)]
    pub(crate) fn parse(frame: &'f [u8]) -> Option<Self> {
        let headers: &[u8; LEN] = frame.first_chunk()?;
        let b = headers;
        let is_fragment = be16(b[IP_AT + 6], b[IP_AT + 7]) & ipv4::FRAGMENT != 0;
        // (The EtherType, the version and the header's length.)
        if b[IP_AT + 9] != ipv4::PROTOCOL_TCP || [b[12], b[13], b[IP_AT]] != [0x08, 0x00, 0x45] || is_fragment {
            return None;
        }
        let (at, timestamps) = match b[TCP_AT + 12] >> 4 {
            8 => (LEN + tcp::STAMPS_LEN, Some(options::stamps(frame[LEN..].first_chunk()?)?)),
            5 => (LEN, None),
            _ => return None,
        };
        // (Without what Ethernet pads short frames with.)
        let end = IP_AT + usize::from(be16(b[IP_AT + 2], b[IP_AT + 3]));
        Some(Self { headers, timestamps, payload: frame.get(at..end)? })
    }

    #[inline(always)]
    pub(crate) fn link_dst(&self) -> MacAddr {
        let b = self.headers;
        MacAddr([b[0], b[1], b[2], b[3], b[4], b[5]])
    }

    #[inline(always)]
    pub(crate) fn link_src(&self) -> MacAddr {
        let b = self.headers;
        MacAddr([b[6], b[7], b[8], b[9], b[10], b[11]])
    }

    /// The sender's address and the receiver's, in one word.
    #[inline(always)]
    pub(crate) fn hosts(&self) -> u64 {
        let b = self.headers;
        const AT: usize = IP_AT + 12;
        u64::from_be_bytes([b[AT], b[AT + 1], b[AT + 2], b[AT + 3], b[AT + 4], b[AT + 5], b[AT + 6], b[AT + 7]])
    }

    /// The sender's port and the receiver's, in one word.
    #[inline(always)]
    pub(crate) fn ports(&self) -> u32 {
        be32(self.headers, TCP_AT)
    }

    #[inline(always)]
    pub(crate) fn src_port(&self) -> u16 {
        be16(self.headers[TCP_AT], self.headers[TCP_AT + 1])
    }

    #[inline(always)]
    pub(crate) fn dst_port(&self) -> u16 {
        be16(self.headers[TCP_AT + 2], self.headers[TCP_AT + 3])
    }

    #[inline(always)]
    pub(crate) fn header(&self) -> Header {
        let b = self.headers;
        Header {
            src_port: self.src_port(),
            dst_port: self.dst_port(),
            seq: SeqNumber(be32(b, TCP_AT + 4)),
            ack: SeqNumber(be32(b, TCP_AT + 8)),
            flags: Flags::from_bits_retain(b[TCP_AT + 13]),
            window: be16(b[TCP_AT + 14], b[TCP_AT + 15]),
            checksum: be16(b[TCP_AT + 16], b[TCP_AT + 17]),
            urgent: be16(b[TCP_AT + 18], b[TCP_AT + 19]),
            options: Options { timestamps: self.timestamps, ..Options::default() },
        }
    }

    /// Whether a router marked it (RFC 3168 s5).
    #[inline(always)]
    pub(crate) fn is_marked(&self) -> bool {
        self.headers[IP_AT + 1] & 3 == 3
    }

    #[inline(always)]
    pub(crate) fn payload(&self) -> &'f [u8] {
        self.payload
    }
}
