//! Segments, by hand: deliberately not `ringway_stack::wire`, which is under test.

use std::net::SocketAddr;

use ringway_stack::device::{ChecksumVerdict, MacAddr};

use crate::checksum;
use crate::dissect::{self, Payload, TCP, be16, be32, mac_at};

const ETHERTYPE_VLAN: [u8; 2] = [0x81, 0];
/// Bytes of a TCP header without options.
const TCP_LEN: usize = 20;
/// Bytes before that, at most: of Ethernet with a VLAN tag, and of IPv6.
const HEADERS_MAX: usize = dissect::ETHERNET_LEN + 4 + 40;

/// Between whom a frame goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) from: MacAddr,
    pub(crate) to: MacAddr,
    pub(crate) vlan: Option<u16>,
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
}

/// A segment to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    /// A multiple of four bytes.
    pub(crate) options: &'a [u8],
    pub(crate) payload: &'a [u8],
}

impl<'a> Outgoing<'a> {
    /// Its headers, checksums included, and what follows them.
    pub(crate) fn frame(&self, ends: &Ends) -> (Vec<u8>, &'a [u8]) {
        let mut frame = self.whole(ends);
        frame.truncate(frame.len() - self.payload.len());
        (frame, self.payload)
    }

    /// The same in one piece.
    pub(crate) fn whole(&self, ends: &Ends) -> Vec<u8> {
        let tcp_len = TCP_LEN + self.options.len();
        let len = tcp_len + self.payload.len();
        let mut frame = Vec::with_capacity(HEADERS_MAX + len);
        frame.extend_from_slice(&ends.to.0);
        frame.extend_from_slice(&ends.from.0);
        if let Some(vlan) = ends.vlan {
            frame.extend(ETHERTYPE_VLAN);
            frame.extend(vlan.to_be_bytes());
        }
        dissect::extend_with_ip(&mut frame, (ends.src.ip(), ends.dst.ip()), TCP, len);
        frame.extend(ends.src.port().to_be_bytes());
        frame.extend(ends.dst.port().to_be_bytes());
        frame.extend(self.seq.to_be_bytes());
        frame.extend(self.ack.to_be_bytes());
        frame.extend([u8::try_from(tcp_len / 4).unwrap_or(5) << 4, self.flags]);
        frame.extend(self.window.to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(self.options);
        frame.extend(self.payload);
        checksum::fill(&mut frame);
        frame
    }
}

/// A segment that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) from: MacAddr,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    /// Bytes of payload.
    pub(crate) len: u32,
}

impl Arrived {
    /// `None`: no sound segment for `port`.
    pub(crate) fn parse(frame: &[u8], port: u16) -> Option<Self> {
        let Payload::Ip(ip) = dissect::payload(frame) else { return None };
        let (_, dst) = dissect::ports(frame, &ip)?;
        if ip.protocol != TCP || dst.port() != port || checksum::verify(frame) == ChecksumVerdict::Bad {
            return None;
        }
        let header_len = usize::from(*frame.get(ip.l4 + 12)? >> 4) * 4;
        let len = ip.end.checked_sub(ip.l4 + header_len)?;
        Some(Self {
            from: mac_at(frame, 6)?,
            seq: be32(frame, ip.l4 + 4)?,
            ack: be32(frame, ip.l4 + 8)?,
            flags: *frame.get(ip.l4 + 13)?,
            window: be16(frame, ip.l4 + 14)?,
            len: u32::try_from(len).ok()?,
        })
    }

    pub(crate) fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }
}
