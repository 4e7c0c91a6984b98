//! The header fields that rules match, as a NIC's parser finds them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringway_stack::device::{HeaderMatch, IpMatch, MacAddr, Protocol, VxlanMatch};

use crate::dissect::{ETHERNET_LEN, TCP, UDP, be16, be32, ip_at, mac_at};

/// The port that VXLAN is sent to (RFC 7348 s5).
pub(crate) const VXLAN_PORT: u16 = 4789;
/// UDP's header and VXLAN's.
const VXLAN_OVERHEAD: usize = 16;

/// One stack of headers. What is damaged or cut short is absent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    pub(crate) dst: MacAddr,
    src: MacAddr,
    ethertype: u16,
    vlan: Option<u16>,
    pub(crate) ip: Option<Ip>,
    pub(crate) transport: Option<Transport>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ip {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// The type of service or traffic class.
    tos: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Transport {
    pub(crate) protocol: Protocol,
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
    /// Where the transport header begins.
    at: usize,
}

/// A tunnel's identifier, and where the frame inside begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tunnel {
    pub(crate) vni: u32,
    pub(crate) inner_at: usize,
}

impl Fields {
    /// The headers from `at` on; none if there is no Ethernet header.
    pub(crate) fn parse(frame: &[u8], at: usize) -> Option<Self> {
        if let Some(plain) = Self::plain(frame, at) {
            return Some(plain);
        }
        let mut ethertype = be16(frame, at + 12)?;
        let mut ip_offset = at + ETHERNET_LEN;
        let mut vlan = None;
        if ethertype == 0x8100 {
            vlan = Some(be16(frame, at + 14)? & 0xfff);
            ethertype = be16(frame, at + 16)?;
            ip_offset += 4;
        }
        let (ip, transport) = match ethertype {
            0x0800 => ipv4(frame, ip_offset),
            0x86dd => ipv6(frame, ip_offset),
            _ => None,
        }
        .map_or((None, None), |(ip, transport)| (Some(ip), transport));
        Some(Self { dst: mac_at(frame, at)?, src: mac_at(frame, at + 6)?, ethertype, vlan, ip, transport })
    }

    /// The headers of an IPv4 packet without tag, options or fragments, which nearly all are: each is where it always is.
    #[inline]
    fn plain(frame: &[u8], at: usize) -> Option<Self> {
        let head: &[u8; 38] = frame.get(at..)?.first_chunk()?;
        let be16 = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let address = |at: usize| Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]).into();
        let mac = |at: usize| MacAddr([head[at], head[at + 1], head[at + 2], head[at + 3], head[at + 4], head[at + 5]]);
        let protocol = match head[23] {
            TCP => Protocol::Tcp,
            UDP => Protocol::Udp,
            _ => return None,
        };
        if be16(12) != 0x0800 || head[14] != 0x45 || be16(20) & 0x1fff != 0 {
            return None;
        }
        let ip = Ip { src: address(26), dst: address(30), tos: head[15] };
        let transport = Transport { protocol, src_port: be16(34), dst_port: be16(36), at: at + 34 };
        Some(Self { dst: mac(0), src: mac(6), ethertype: 0x0800, vlan: None, ip: Some(ip), transport: Some(transport) })
    }

    /// Whether the frame claims to carry IP, damaged or not.
    pub(crate) fn is_ip(&self) -> bool {
        matches!(self.ethertype, 0x0800 | 0x86dd)
    }

    /// The tunnel inside, if this is VXLAN with a valid identifier.
    pub(crate) fn tunnel(&self, frame: &[u8]) -> Option<Tunnel> {
        let transport = self.transport.filter(|t| t.protocol == Protocol::Udp && t.dst_port == VXLAN_PORT)?;
        let header = transport.at + 8;
        // The I flag (RFC 7348 s5).
        let valid = frame.get(header)? & 0x08 != 0;
        valid.then_some(Tunnel { vni: be32(frame, header + 4)? >> 8, inner_at: transport.at + VXLAN_OVERHEAD })
    }

    pub(super) fn matches(&self, wanted: &HeaderMatch) -> bool {
        let ethernet = &wanted.ethernet;
        agrees(ethernet.dst, self.dst)
            && agrees(ethernet.src, self.src)
            && agrees(ethernet.ethertype, self.ethertype)
            && wanted.vlan.is_none_or(|vlan| self.vlan == Some(vlan & 0xfff))
            && wanted.ip.is_none_or(|wanted| self.ip.is_some_and(|ip| ip.matches(&wanted)))
            && wanted.transport.is_none_or(|wanted| {
                self.transport.is_some_and(|t| {
                    t.protocol == wanted.protocol && agrees(wanted.src_port, t.src_port) && agrees(wanted.dst_port, t.dst_port)
                })
            })
    }

    /// Whether a tunnel inside matches.
    pub(super) fn tunnel_matches(&self, frame: &[u8], wanted: &VxlanMatch) -> bool {
        let Some(tunnel) = self.tunnel(frame) else { return false };
        let inner_matches = || Self::parse(frame, tunnel.inner_at).is_some_and(|inner| inner.matches(&wanted.inner));
        agrees(wanted.vni.map(|vni| vni & 0xff_ffff), tunnel.vni) && (wanted.inner == HeaderMatch::default() || inner_matches())
    }
}

impl Ip {
    fn matches(&self, wanted: &IpMatch) -> bool {
        match (*wanted, self.src, self.dst) {
            (IpMatch::V4 { src, dst, tos }, IpAddr::V4(own_src), IpAddr::V4(own_dst)) => {
                agrees(src, own_src) && agrees(dst, own_dst) && agrees(tos, self.tos)
            }
            (IpMatch::V6 { src, dst, traffic_class }, IpAddr::V6(own_src), IpAddr::V6(own_dst)) => {
                agrees(src, own_src) && agrees(dst, own_dst) && agrees(traffic_class, self.tos)
            }
            _ => false,
        }
    }
}

fn agrees<T: PartialEq>(wanted: Option<T>, own: T) -> bool {
    wanted.is_none_or(|wanted| wanted == own)
}

fn ipv4(frame: &[u8], at: usize) -> Option<(Ip, Option<Transport>)> {
    let first = *frame.get(at)?;
    let l4 = at + usize::from(first & 0xf) * 4;
    let ip = Ip { src: ip_at(frame, at + 12)?.into(), dst: ip_at(frame, at + 16)?.into(), tos: *frame.get(at + 1)? };
    // Fragments behind the first begin with anything but ports.
    let fragment_offset = be16(frame, at + 6)? & 0x1fff;
    let sane = first >> 4 == 4 && l4 >= at + 20 && fragment_offset == 0;
    Some((ip, if sane { transport(frame, l4, *frame.get(at + 9)?) } else { None }))
}

/// Without extension headers: behind those, a NIC's parser finds no ports either.
fn ipv6(frame: &[u8], at: usize) -> Option<(Ip, Option<Transport>)> {
    let address = |at: usize| Some(Ipv6Addr::from(*frame.get(at..at + 16)?.first_chunk::<16>()?));
    let tos = u8::try_from(be16(frame, at)? >> 4 & 0xff).ok()?;
    let ip = Ip { src: address(at + 8)?.into(), dst: address(at + 24)?.into(), tos };
    Some((ip, transport(frame, at + 40, *frame.get(at + 6)?)))
}

fn transport(frame: &[u8], at: usize, protocol: u8) -> Option<Transport> {
    let protocol = match protocol {
        TCP => Protocol::Tcp,
        UDP => Protocol::Udp,
        _ => return None,
    };
    Some(Transport { protocol, src_port: be16(frame, at)?, dst_port: be16(frame, at + 2)?, at })
}
