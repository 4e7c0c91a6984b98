//! What the card does to frames on their way out, and what it says of them on their way in.
//!
//! A card does what it is asked, sense or not: checksums that were not asked for stay as the driver wrote them, and a large send of something
//! that is not TCP is cut with the same headers before each piece (`guessed`).

use super::constants as c;
use super::cqe::Received;
use super::packet::{ETHERTYPE_VLAN, Headers, Ip, TCP, UDP};
use super::queues::Transmit;
use super::wqe::{Ethernet, HeaderField};
use crate::checksum::sum;
use crate::dissect::{be16, be32};

#[cfg(test)]
mod tests;

/// Frames shorter than this are padded (IEEE 802.3 s4A.2.3.2.3, without the frame check sequence).
const FRAME_MIN: usize = 60;
/// TCP's flags that only the last segment of a large send keeps, and the one that only the first keeps (RFC 3168 s6.1.2).
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;
/// TCP's flag of an acknowledgment.
const ACK: u8 = 0x10;

/// Kinds of a transport header in a completion (linux/mlx5/device.h, `CQE_L4_HDR_TYPE_*`).
mod l4_type {
    pub(super) const NONE: u8 = 0;
    pub(super) const TCP_NO_ACK: u8 = 1;
    pub(super) const UDP: u8 = 2;
    pub(super) const TCP_ACK_NO_DATA: u8 = 3;
    pub(super) const TCP_ACK_AND_DATA: u8 = 4;
}

/// The frames of an entry, as they go onto the wire.
pub fn frames(transmit: &Transmit) -> Vec<Vec<u8>> {
    let cut = |frame: &Vec<u8>| match transmit.segmented {
        true => segments(frame, transmit.ethernet.headers().len(), transmit.ethernet.mss.into()),
        false => vec![frame.clone()],
    };
    transmit.frames.iter().flat_map(cut).map(|frame| finished(frame, &transmit.ethernet)).collect()
}

/// With its tag, its checksums, its padding.
fn finished(mut frame: Vec<u8>, ethernet: &Ethernet) -> Vec<u8> {
    if let (HeaderField::InsertVlan(tci), true) = (&ethernet.header, frame.len() >= 12) {
        let ([t1, t0], [v1, v0]) = (ETHERTYPE_VLAN.to_be_bytes(), tci.to_be_bytes());
        frame.splice(12..12, [t1, t0, v1, v0]);
    }
    if let Some(Headers { ip: Some(ip), .. }) = Headers::parse(&frame) {
        if ethernet.cs_flags & c::ETH_L3_CSUM != 0 && !ip.v6 {
            put(&mut frame, ip.at + 10, 0);
            let header = !sum(0, &frame[ip.at..ip.l4]);
            put(&mut frame, ip.at + 10, header);
        }
        if ethernet.cs_flags & c::ETH_L4_CSUM != 0 {
            fill_transport(&mut frame, &ip);
        }
    }
    if frame.len() < FRAME_MIN {
        frame.resize(FRAME_MIN, 0);
    }
    frame
}

/// Fills in the checksum of a frame's TCP or UDP, if it has one.
pub fn fill_transport_checksum(frame: &mut [u8]) {
    if let Some(ip) = Headers::parse(frame).and_then(|headers| headers.ip) {
        fill_transport(frame, &ip);
    }
}

fn fill_transport(frame: &mut [u8], ip: &Ip) {
    let at = match ip.protocol {
        TCP if ip.end >= ip.l4 + 20 => ip.l4 + 16,
        UDP if ip.end >= ip.l4 + 8 => ip.l4 + 6,
        _ => return,
    };
    if ip.fragment {
        return;
    }
    put(frame, at, 0);
    let checksum = !sum(pseudo(ip), &frame[ip.l4..ip.end]);
    // RFC 768: zero is for a sender that computed none.
    put(frame, at, if ip.protocol == UDP && checksum == 0 { 0xffff } else { checksum });
}

/// The sum of the pseudo header (RFC 9293 s3.1, RFC 8200 s8.1).
fn pseudo(ip: &Ip) -> u16 {
    let len = ((ip.end - ip.l4) as u32).to_be_bytes();
    let addresses = sum(sum(0, &ip.src), &ip.dst);
    sum(sum(addresses, &len), &[0, ip.protocol])
}

/// A large send in pieces of `mss` bytes behind the first `head` bytes, which are the headers.
fn segments(frame: &[u8], head: usize, mss: usize) -> Vec<Vec<u8>> {
    let (headers, payload) = frame.split_at(head.min(frame.len()));
    let plan = Plan::of(headers);
    let count = payload.len().div_ceil(mss.max(1));
    let piece = |(index, piece): (usize, &[u8])| {
        let mut out = [headers, piece].concat();
        if let Some(plan) = &plan {
            plan.apply(&mut out, index, index * mss, index + 1 == count);
        }
        out
    };
    payload.chunks(mss.max(1)).enumerate().map(piece).collect()
}

/// Where a large send's headers are.
struct Plan {
    v6: bool,
    ip: usize,
    tcp: usize,
}

impl Plan {
    /// Nothing where they are not those of TCP.
    fn of(headers: &[u8]) -> Option<Self> {
        let ip = if be16(headers, 12)? == ETHERTYPE_VLAN { 18 } else { 14 };
        let (v6, protocol, tcp) = match headers.get(ip)? >> 4 {
            4 => (false, *headers.get(ip + 9)?, ip + usize::from(headers[ip] & 0xf) * 4),
            6 => (true, *headers.get(ip + 6)?, ip + 40),
            _ => return None,
        };
        (protocol == TCP && headers.len() >= tcp + 20).then_some(Self { v6, ip, tcp })
    }

    /// Makes segment `index`, whose payload begins `done` bytes behind the first's, one of its own.
    fn apply(&self, out: &mut [u8], index: usize, done: usize, last: bool) {
        let len = out.len() - self.ip;
        match self.v6 {
            true => put(out, self.ip + 4, (len - 40) as u16),
            false => {
                put(out, self.ip + 2, len as u16);
                let id = be16(out, self.ip + 4).unwrap_or(0).wrapping_add(index as u16);
                put(out, self.ip + 4, id);
            }
        }
        let seq = be32(out, self.tcp + 4).unwrap_or(0).wrapping_add(done as u32);
        out[self.tcp + 4..self.tcp + 8].copy_from_slice(&seq.to_be_bytes());
        let flags = &mut out[self.tcp + 13];
        if !last {
            *flags &= !(FIN | PSH);
        }
        if index > 0 {
            *flags &= !CWR;
        }
    }
}

/// What a completion says of a frame that was received: its checksums, what it is, and the sum over it.
pub fn verdict(frame: &[u8], headers: &Headers) -> Received {
    let checksum = sum(0, frame.get(14..).unwrap_or_default());
    let facts = Received { checks: c::CQE_L2_OK, checksum, ..Received::default() };
    let Some(ip) = &headers.ip else { return facts };
    let (l3_type, l3_ok) = match ip.v6 {
        true => (c::CQE_L3_IPV6, true),
        false => (c::CQE_L3_IPV4, sum(0, &frame[ip.at..ip.l4]) == 0xffff),
    };
    let (l4_type, l4_ok) = transport(frame, ip);
    let checks = c::CQE_L2_OK | if l3_ok { c::CQE_L3_OK } else { 0 } | if l4_ok { c::CQE_L4_OK } else { 0 };
    Received { checks, l3_type, l4_type, ..facts }
}

/// The kind of the transport header, and whether its checksum is right. A UDP datagram without one counts as right (`guessed`).
fn transport(frame: &[u8], ip: &Ip) -> (u8, bool) {
    let l4 = &frame[ip.l4..ip.end];
    let is_good = || sum(pseudo(ip), l4) == 0xffff;
    match ip.protocol {
        _ if ip.fragment => (l4_type::NONE, false),
        TCP if l4.len() >= 20 => {
            let header = usize::from(l4[12] >> 4) * 4;
            let kind = match (l4[13] & ACK != 0, l4.len() > header) {
                (false, _) => l4_type::TCP_NO_ACK,
                (true, false) => l4_type::TCP_ACK_NO_DATA,
                (true, true) => l4_type::TCP_ACK_AND_DATA,
            };
            (kind, is_good())
        }
        UDP if l4.len() >= 8 => (l4_type::UDP, be16(l4, 6) == Some(0) && !ip.v6 || is_good()),
        _ => (l4_type::NONE, false),
    }
}

fn put(frame: &mut [u8], at: usize, value: u16) {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
