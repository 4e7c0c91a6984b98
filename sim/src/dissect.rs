//! Just enough of a frame's anatomy for checksums and traces.
//!
//! Deliberately not `ringway_stack::wire`: a simulator that parses with the code under test shares its mistakes.

use std::net::{Ipv4Addr, SocketAddrV4};

use ringway_stack::device::MacAddr;

/// Bytes of an Ethernet header without a VLAN tag.
pub(crate) const ETHERNET_LEN: usize = 14;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_VLAN: u16 = 0x8100;
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// An IPv4 packet inside a frame; offsets are into the frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ipv4 {
    pub(crate) offset: usize,
    pub(crate) protocol: u8,
    pub(crate) src: Ipv4Addr,
    pub(crate) dst: Ipv4Addr,
    /// Where the transport header begins.
    pub(crate) l4: usize,
    /// Where the packet ends; what follows is Ethernet padding.
    pub(crate) end: usize,
    /// Not a whole datagram: its transport checksum cannot be told.
    pub(crate) fragment: bool,
}

/// What a frame carries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload {
    Arp(usize),
    Ipv4(Ipv4),
    /// Something else, or too damaged to tell.
    Other(u16),
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(crate) fn ip_at(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    be32(bytes, at).map(Ipv4Addr::from_bits)
}

pub(crate) fn mac_at(bytes: &[u8], at: usize) -> Option<MacAddr> {
    Some(MacAddr(bytes.get(at..at + 6)?.try_into().ok()?))
}

/// The length of a frame's packet, as its IPv4 header tells it; `None`: no IPv4.
pub(crate) fn packet_len(frame: &[u8]) -> Option<usize> {
    match payload(frame) {
        Payload::Ipv4(ip) => Some(ip.end - ip.offset),
        _ => None,
    }
}

pub(crate) fn payload(frame: &[u8]) -> Payload {
    let mut offset = ETHERNET_LEN;
    let mut ethertype = be16(frame, 12).unwrap_or(0);
    if ethertype == ETHERTYPE_VLAN {
        ethertype = be16(frame, 16).unwrap_or(0);
        offset += 4;
    }
    match ethertype {
        ETHERTYPE_ARP if frame.len() >= offset + 28 => Payload::Arp(offset),
        ETHERTYPE_IPV4 => ipv4(frame, offset).map_or(Payload::Other(ethertype), Payload::Ipv4),
        other => Payload::Other(other),
    }
}

fn ipv4(frame: &[u8], offset: usize) -> Option<Ipv4> {
    let first = *frame.get(offset)?;
    let header_len = usize::from(first & 0xf) * 4;
    let end = offset + usize::from(be16(frame, offset + 2)?);
    let l4 = offset + header_len;
    if first >> 4 != 4 || header_len < 20 || l4 > end || end > frame.len() {
        return None;
    }
    Some(Ipv4 {
        offset,
        protocol: frame[offset + 9],
        src: ip_at(frame, offset + 12)?,
        dst: ip_at(frame, offset + 16)?,
        l4,
        end,
        // More-fragments flag or a fragment offset (RFC 791 s3.1); don't-fragment is none of our business.
        fragment: be16(frame, offset + 6)? & 0x3fff != 0,
    })
}

/// A TCP or UDP packet's two ends.
pub(crate) fn ports(frame: &[u8], ip: &Ipv4) -> Option<(SocketAddrV4, SocketAddrV4)> {
    let (src, dst) = (be16(frame, ip.l4)?, be16(frame, ip.l4 + 2)?);
    (ip.l4 + 4 <= ip.end).then(|| (SocketAddrV4::new(ip.src, src), SocketAddrV4::new(ip.dst, dst)))
}

/// Whether a frame carries an ICMP error, which quotes the packet that it is about (RFC 1122 s3.2.2).
pub(crate) fn is_icmp_error(frame: &[u8]) -> bool {
    match payload(frame) {
        Payload::Ipv4(ip) => ip.protocol == ICMP && matches!(frame.get(ip.l4), Some(3 | 4 | 5 | 11 | 12)),
        _ => false,
    }
}
