//! A TCP segment as checkers, drills and the trace see it; parsed here, never with the code under test.

use core::ops::Range;
use std::net::SocketAddr;

use crate::dissect::{self, Ip, be16, be32};

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const PSH: u8 = 8;
pub(crate) const ACK: u8 = 16;
pub(crate) const URG: u8 = 32;
pub(crate) const ECE: u8 = 64;
pub(crate) const CWR: u8 = 128;

/// Whether `a` comes before `b` in sequence space (RFC 9293 s3.4).
pub(crate) fn before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

/// The later of two sequence numbers.
pub(crate) fn later(a: u32, b: u32) -> u32 {
    if before(a, b) { b } else { a }
}

/// The options that only SYNs carry, and those that any segment may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) mss: Option<u16>,
    pub(crate) scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    /// TSval and TSecr.
    pub(crate) timestamps: Option<(u32, u32)>,
    sack: [(u32, u32); 4],
    sack_len: u8,
}

impl Options {
    pub(crate) fn sack(&self) -> &[(u32, u32)] {
        &self.sack[..usize::from(self.sack_len)]
    }

    /// What SACK says is not to be believed.
    pub(crate) fn forget_sack(&mut self) {
        self.sack_len = 0;
    }

    /// The same with these blocks, of which there are four at most.
    #[cfg(test)]
    pub(crate) fn reporting(mut self, blocks: &[(u32, u32)]) -> Self {
        self.sack[..blocks.len()].copy_from_slice(blocks);
        self.sack_len = u8::try_from(blocks.len()).unwrap();
        self
    }
}

/// What a segment says of Fast Open (RFC 7413 s4.1.1): a cookie, or none where it asks for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FastOpen {
    cookie: [u8; 16],
    len: u8,
    /// In the form of the experiments before it (RFC 6994).
    pub(crate) is_experimental: bool,
}

impl FastOpen {
    pub(crate) fn cookie(&self) -> &[u8] {
        &self.cookie[..usize::from(self.len)]
    }

    pub(crate) fn asks(&self) -> bool {
        self.len == 0
    }

    /// It shows, or tells, a cookie of 16 bytes at most; without any it asks for one.
    #[cfg(test)]
    pub(crate) fn of(cookie: &[u8]) -> Self {
        let mut said = Self { len: u8::try_from(cookie.len()).unwrap(), ..Self::default() };
        said.cookie[..cookie.len()].copy_from_slice(cookie);
        said
    }
}

/// A segment.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    /// The two bits of ECN in its packet (RFC 3168 s5).
    pub(crate) codepoint: u8,
    /// Bits beside the data offset that nobody may set, and the urgent pointer.
    pub(crate) reserved: u8,
    pub(crate) urgent: u16,
    pub(crate) window: u16,
    /// Bytes of options, padding included.
    pub(crate) options_len: usize,
    pub(crate) options: Options,
    pub(crate) fast_open: Option<FastOpen>,
    /// Where in the frame its payload lies.
    pub(crate) payload: Range<usize>,
}

impl Segment {
    /// `None`: no whole TCP segment.
    pub(crate) fn parse(frame: &[u8], ip: &Ip) -> Option<Self> {
        let (src, dst) = dissect::ports(frame, ip)?;
        let at = ip.l4;
        let header_len = usize::from(*frame.get(at + 12)? >> 4) * 4;
        let payload = at + header_len..ip.end;
        if ip.fragment || header_len < 20 || payload.start > payload.end {
            return None;
        }
        Some(Self {
            src,
            dst,
            seq: be32(frame, at + 4)?,
            ack: be32(frame, at + 8)?,
            flags: *frame.get(at + 13)?,
            codepoint: ip.tos(frame) & 3,
            reserved: *frame.get(at + 12)? & 0xf,
            urgent: be16(frame, at + 18)?,
            window: be16(frame, at + 14)?,
            options_len: header_len - 20,
            options: options(frame.get(at + 20..at + header_len)?),
            fast_open: fast_open(frame.get(at + 20..at + header_len)?),
            payload,
        })
    }

    pub(crate) fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.payload.len()).unwrap_or(u32::MAX)
    }

    /// Sequence numbers that it occupies (RFC 9293 s3.4): its bytes, and one each for SYN and FIN.
    pub(crate) fn span(&self) -> u32 {
        self.len() + u32::from(self.has(SYN)) + u32::from(self.has(FIN))
    }

    /// The sequence number behind it.
    pub(crate) fn end(&self) -> u32 {
        self.seq.wrapping_add(self.span())
    }
}

/// Each option, whole, that is neither padding nor behind one that is ill-formed.
fn each(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        while bytes.first() == Some(&1) {
            bytes = &bytes[1..];
        }
        let len = bytes.get(1).copied().map(usize::from).filter(|&len| bytes[0] != 0 && len >= 2 && len <= bytes.len())?;
        let (option, rest) = bytes.split_at(len);
        bytes = rest;
        Some(option)
    })
}

fn options(bytes: &[u8]) -> Options {
    let mut options = Options::default();
    for bytes in each(bytes) {
        match (bytes[0], bytes.len()) {
            (2, 4) => options.mss = be16(bytes, 2),
            (3, 3) => options.scale = bytes.get(2).copied(),
            (4, 2) => options.sack_permitted = true,
            (5, len) => {
                for at in (2..len).step_by(8) {
                    if let (Some(start), Some(end)) = (be32(bytes, at), be32(bytes, at + 4))
                        && let Some(slot) = options.sack.get_mut(usize::from(options.sack_len))
                    {
                        *slot = (start, end);
                        options.sack_len += 1;
                    }
                }
            }
            (8, 10) => options.timestamps = be32(bytes, 2).zip(be32(bytes, 6)),
            _ => {}
        }
    }
    options
}

fn fast_open(bytes: &[u8]) -> Option<FastOpen> {
    each(bytes).find_map(|option| {
        let (value, is_experimental) = match option {
            [34, _, value @ ..] => (value, false),
            [254, _, 0xf9, 0x89, value @ ..] => (value, true),
            _ => return None,
        };
        let mut said = FastOpen { is_experimental, len: u8::try_from(value.len()).ok()?, ..FastOpen::default() };
        said.cookie.get_mut(..value.len())?.copy_from_slice(value);
        Some(said)
    })
}
