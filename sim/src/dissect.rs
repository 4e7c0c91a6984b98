//! Just enough of a frame's anatomy for checksums and traces.
//!
//! Deliberately not `ringway_stack::wire`: a simulator that parses with the code under test shares its mistakes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ringway_stack::device::MacAddr;

/// Bytes of an Ethernet header without a VLAN tag.
pub(crate) const ETHERNET_LEN: usize = 14;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Bytes of IPv6's header.
const IPV6_LEN: usize = 40;
/// ICMPv6's types of neighbour discovery (RFC 4861 s4.3, s4.4).
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

/// An IP packet inside a frame; offsets are into the frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ip {
    pub(crate) offset: usize,
    /// What the header says; of IPv6, the last header's.
    pub(crate) protocol: u8,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// Where the transport header begins.
    pub(crate) l4: usize,
    /// Where the packet ends; what follows is Ethernet padding.
    pub(crate) end: usize,
    /// Not a whole datagram: its transport checksum cannot be told.
    pub(crate) fragment: bool,
}

impl Ip {
    pub(crate) fn is_v6(&self) -> bool {
        self.src.is_ipv6()
    }

    /// Bytes of the header, if nothing optional is in it.
    pub(crate) fn plain_len(&self) -> usize {
        if self.is_v6() { IPV6_LEN } else { 20 }
    }

    /// Sets how long the packet says it is.
    pub(crate) fn set_len(&self, frame: &mut [u8], len: usize) {
        let (at, len) = if self.is_v6() { (4, len - IPV6_LEN) } else { (2, len) };
        frame[self.offset + at..self.offset + at + 2].copy_from_slice(&u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes());
    }

    /// The type of service, or traffic class.
    pub(crate) fn tos(&self, frame: &[u8]) -> u8 {
        if self.is_v6() { frame[self.offset] << 4 | frame[self.offset + 1] >> 4 } else { frame[self.offset + 1] }
    }

    /// The time to live, or hop limit.
    pub(crate) fn ttl(&self, frame: &[u8]) -> u8 {
        frame[self.offset + if self.is_v6() { 7 } else { 8 }]
    }

    /// Whether it carries messages about IP itself, of the version that it has (RFC 792, RFC 4443).
    pub(crate) fn is_icmp(&self) -> bool {
        self.protocol == if self.is_v6() { ICMPV6 } else { ICMP }
    }
}

/// A question for a neighbour's Ethernet address, or an answer (RFC 826, RFC 4861 s4.3, s4.4).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup {
    pub(crate) asks: bool,
    /// Who speaks, and his Ethernet address as he tells it; unsaid in some of IPv6's, which are then to be answered to where they came from.
    pub(crate) sender: IpAddr,
    pub(crate) mac: Option<MacAddr>,
    /// Who is asked for; in an answer, who asked.
    pub(crate) target: IpAddr,
    /// The target's Ethernet address, which an answer of ARP's tells as well.
    pub(crate) target_mac: Option<MacAddr>,
}

impl Lookup {
    /// Whether a host with that address takes note of who speaks: of all that ARP says; in IPv6 a question for another host is asked in that one's group
    /// (RFC 4861 s7.2.2, s7.2.3), and says nothing to anybody else.
    pub(crate) fn tells(&self, own: Option<IpAddr>) -> bool {
        self.sender.is_ipv4() || !self.asks || Some(self.target) == own
    }

    /// Whether the frame asks or tells as the protocol has it: for Ethernet and IPv4; or with a hop limit that no router let through (RFC 4861 s7.1).
    pub(crate) fn is_sound(&self, frame: &[u8]) -> bool {
        let offset = ETHERNET_LEN + if be16(frame, 12) == Some(ETHERTYPE_VLAN) { 4 } else { 0 };
        match self.sender {
            IpAddr::V4(_) => frame.get(offset..offset + 6) == Some(&[0, 1, 8, 0, 6, 4]),
            IpAddr::V6(_) => frame.get(offset + 7) == Some(&255),
        }
    }
}

/// What a frame carries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload {
    Lookup(Lookup),
    Ip(Ip),
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

pub(crate) fn ipv6_at(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    Some(Ipv6Addr::from(*bytes.get(at..)?.first_chunk::<16>()?))
}

/// The two addresses of an IP header that begins at `at`, of whichever version it is.
pub(crate) fn addresses_at(bytes: &[u8], at: usize) -> Option<(IpAddr, IpAddr)> {
    match bytes.get(at)? >> 4 {
        4 => Some((ip_at(bytes, at + 12)?.into(), ip_at(bytes, at + 16)?.into())),
        6 => Some((ipv6_at(bytes, at + 8)?.into(), ipv6_at(bytes, at + 24)?.into())),
        _ => None,
    }
}

/// The protocol of a packet whose IP header begins at `at`, and where what it carries begins. (No stack here sends extension headers but with what is told of groups.)
pub(crate) fn transport_at(bytes: &[u8], at: usize) -> Option<(u8, usize)> {
    match bytes.get(at)? >> 4 {
        4 => Some((*bytes.get(at + 9)?, at + usize::from(bytes[at] & 0xf) * 4)),
        6 => Some((*bytes.get(at + 6)?, at + IPV6_LEN)),
        _ => None,
    }
}

pub(crate) fn mac_at(bytes: &[u8], at: usize) -> Option<MacAddr> {
    Some(MacAddr(bytes.get(at..at + 6)?.try_into().ok()?))
}

/// The length of a frame's packet, as its IP header tells it; `None`: no IP.
pub(crate) fn packet_len(frame: &[u8]) -> Option<usize> {
    match payload(frame) {
        Payload::Ip(ip) => Some(ip.end - ip.offset),
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
    let found = match ethertype {
        ETHERTYPE_ARP if frame.len() >= offset + 28 => arp(frame, offset).map(Payload::Lookup),
        ETHERTYPE_IPV4 => ipv4(frame, offset).map(Payload::Ip),
        ETHERTYPE_IPV6 => ipv6(frame, offset),
        _ => None,
    };
    found.unwrap_or(Payload::Other(ethertype))
}

fn ipv4(frame: &[u8], offset: usize) -> Option<Ip> {
    let first = *frame.get(offset)?;
    let header_len = usize::from(first & 0xf) * 4;
    let end = offset + usize::from(be16(frame, offset + 2)?);
    let l4 = offset + header_len;
    if first >> 4 != 4 || header_len < 20 || l4 > end || end > frame.len() {
        return None;
    }
    Some(Ip {
        offset,
        protocol: frame[offset + 9],
        src: ip_at(frame, offset + 12)?.into(),
        dst: ip_at(frame, offset + 16)?.into(),
        l4,
        end,
        // More-fragments flag or a fragment offset (RFC 791 s3.1); don't-fragment is none of our business.
        fragment: be16(frame, offset + 6)? & 0x3fff != 0,
    })
}

/// The IPv6 packet in a frame, whatever it carries.
pub(crate) fn whole_ipv6(frame: &[u8]) -> Option<Ip> {
    let offset = ETHERNET_LEN + if be16(frame, 12)? == ETHERTYPE_VLAN { 4 } else { 0 };
    ipv6_packet(frame, offset)
}

/// A packet without extension headers, or a question for a neighbour, or an answer.
fn ipv6(frame: &[u8], offset: usize) -> Option<Payload> {
    let ip = ipv6_packet(frame, offset)?;
    let found = (ip.protocol == ICMPV6 && ip.end >= ip.l4 + 24).then(|| neighbour_discovery(&frame[..ip.end], &ip)).flatten();
    Some(found.map_or(Payload::Ip(ip), Payload::Lookup))
}

fn ipv6_packet(frame: &[u8], offset: usize) -> Option<Ip> {
    let (l4, end) = (offset + IPV6_LEN, offset + IPV6_LEN + usize::from(be16(frame, offset + 4)?));
    if frame.get(offset)? >> 4 != 6 || end > frame.len() {
        return None;
    }
    let (src, dst) = addresses_at(frame, offset)?;
    Some(Ip { offset, protocol: frame[offset + 6], src, dst, l4, end, fragment: false })
}

fn arp(frame: &[u8], at: usize) -> Option<Lookup> {
    Some(Lookup {
        asks: be16(frame, at + 6)? == 1,
        sender: ip_at(frame, at + 14)?.into(),
        mac: mac_at(frame, at + 8),
        target: ip_at(frame, at + 24)?.into(),
        target_mac: mac_at(frame, at + 18),
    })
}

/// RFC 4861 s4.3: a solicitation has the asker's Ethernet address in an option; s4.4: an advertisement, the target's.
fn neighbour_discovery(packet: &[u8], ip: &Ip) -> Option<Lookup> {
    let kind = packet[ip.l4];
    let (asks, option) = match kind {
        SOLICITATION => (true, 1),
        ADVERTISEMENT => (false, 2),
        _ => return None,
    };
    let subject: IpAddr = ipv6_at(packet, ip.l4 + 8)?.into();
    let mac = (packet.get(ip.l4 + 24..ip.l4 + 26) == Some(&[option, 1])).then(|| mac_at(packet, ip.l4 + 26)).flatten();
    let (sender, target) = match asks {
        true => (ip.src, subject),
        // To everybody: who speaks tells it of himself, as ARP's announcements do.
        false if ip.dst.is_multicast() => (subject, subject),
        false => (subject, ip.dst),
    };
    Some(Lookup { asks, sender, mac, target, target_mac: None })
}

/// Appends the ethertype and header of a packet that carries `len` bytes to the beginning of a frame. IPv4's checksum is yet to be filled in.
pub(crate) fn extend_with_ip(frame: &mut Vec<u8>, ends: (IpAddr, IpAddr), protocol: u8, len: usize) {
    let len = |more: usize| u16::try_from(len + more).unwrap_or(u16::MAX).to_be_bytes();
    match ends {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            frame.extend_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
            let [high, low] = len(20);
            frame.extend_from_slice(&[0x45, 0, high, low, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
            frame.extend_from_slice(&src.octets());
            frame.extend_from_slice(&dst.octets());
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            frame.extend_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
            let [high, low] = len(0);
            frame.extend_from_slice(&[0x60, 0, 0, 0, high, low, protocol, 64]);
            frame.extend_from_slice(&src.octets());
            frame.extend_from_slice(&dst.octets());
        }
        (src, dst) => panic!("no packet goes from {src} to {dst}"),
    }
}

/// A TCP or UDP packet's two ends.
pub(crate) fn ports(frame: &[u8], ip: &Ip) -> Option<(SocketAddr, SocketAddr)> {
    let (src, dst) = (be16(frame, ip.l4)?, be16(frame, ip.l4 + 2)?);
    (ip.l4 + 4 <= ip.end).then(|| (SocketAddr::new(ip.src, src), SocketAddr::new(ip.dst, dst)))
}

/// Whether an ICMP message says that a packet was too long for its path (RFC 1191, RFC 4443 s3.2).
pub(crate) fn is_too_big(frame: &[u8], ip: &Ip) -> bool {
    let kind = frame.get(ip.l4..ip.l4 + 2);
    kind == if ip.is_v6() { Some(&[2, 0]) } else { Some(&[3, 4]) }
}

/// Whether an address is one host's (RFC 1122 s3.2.1.3, RFC 4291 s2.7).
pub(crate) fn is_one_hosts(ip: IpAddr) -> bool {
    let is_reserved = match ip {
        IpAddr::V4(ip) => ip.octets()[0] >= 224,
        IpAddr::V6(ip) => ip.is_multicast(),
    };
    !ip.is_unspecified() && !ip.is_loopback() && !is_reserved
}

/// Whether a frame carries an ICMP error, which quotes the packet that it is about (RFC 1122 s3.2.2, RFC 4443 s2.1).
pub(crate) fn is_icmp_error(frame: &[u8]) -> bool {
    match payload(frame) {
        Payload::Ip(ip) if ip.is_v6() => ip.is_icmp() && frame.get(ip.l4).is_some_and(|kind| (1..=4).contains(kind)),
        Payload::Ip(ip) => ip.is_icmp() && matches!(frame.get(ip.l4), Some(3 | 4 | 5 | 11 | 12)),
        _ => false,
    }
}
