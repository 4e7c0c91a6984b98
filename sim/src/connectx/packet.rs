//! What the card sees in a frame: the headers that flow rules, checksums and the receive hash look at.
//!
//! One VLAN tag is looked behind. Of IPv6, extension headers are not: what follows the first header is the protocol (`guessed`: a card's
//! parser knows some). Fragments have no ports, the first one neither (`guessed`).

use crate::dissect::be16;

/// Bytes of an Ethernet header without a tag.
pub const ETHERNET_LEN: usize = 14;
/// IPv4's type.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// IPv6's type.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// A VLAN tag's type (IEEE 802.1Q).
pub const ETHERTYPE_VLAN: u16 = 0x8100;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// The destination port of tunnels (RFC 7348 s5).
pub const VXLAN_PORT: u16 = 4789;
/// Its header's flag that there is an identifier.
const VXLAN_HAS_ID: u8 = 1 << 3;

/// A frame's Ethernet header, and what is behind it as far as it is IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Destination.
    pub dst: [u8; 6],
    /// Source.
    pub src: [u8; 6],
    /// The tag's control information.
    pub vlan: Option<u16>,
    /// The type behind the tag, if there is one.
    pub ethertype: u16,
    /// The packet.
    pub ip: Option<Ip>,
}

/// A packet of IP; offsets are into the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// IPv6, and not IPv4.
    pub v6: bool,
    /// Source; IPv4's in the first four bytes.
    pub src: [u8; 16],
    /// Destination, likewise.
    pub dst: [u8; 16],
    /// What it carries.
    pub protocol: u8,
    /// Type of service, or traffic class.
    pub tos: u8,
    /// IPv6's flow label, 20 bits; else zero.
    pub flow_label: u32,
    /// Where its header begins.
    pub at: usize,
    /// Where what it carries begins.
    pub l4: usize,
    /// Where it ends: what follows is padding.
    pub end: usize,
    /// It is not a whole datagram.
    pub fragment: bool,
    /// Source and destination port of TCP or UDP.
    pub ports: Option<(u16, u16)>,
}

impl Headers {
    /// Nothing where the frame has no whole Ethernet header. A packet that is damaged is none.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let (dst, rest) = frame.split_first_chunk()?;
        let src = rest.first_chunk()?;
        let (mut at, mut ethertype, mut vlan) = (ETHERNET_LEN, be16(frame, 12)?, None);
        if ethertype == ETHERTYPE_VLAN {
            (vlan, ethertype, at) = (Some(be16(frame, 14)?), be16(frame, 16)?, at + 4);
        }
        let ip = match ethertype {
            ETHERTYPE_IPV4 => ipv4(frame, at),
            ETHERTYPE_IPV6 => ipv6(frame, at),
            _ => None,
        };
        Some(Self { dst: *dst, src: *src, vlan, ethertype, ip: ip.map(|ip| Ip { ports: ports(frame, &ip), ..ip }) })
    }
}

/// A VXLAN tunnel (RFC 7348 s5), and the headers of the frame inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Its identifier, 24 bits.
    pub id: u32,
    /// What is inside. Offsets are into the frame inside.
    pub inner: Headers,
}

impl Tunnel {
    /// The tunnel in a frame with these headers. (`guessed`: where no identifier is there, the card sees none.)
    pub fn parse(frame: &[u8], headers: &Headers) -> Option<Self> {
        let ip = headers.ip.filter(|ip| ip.protocol == UDP && ip.ports.is_some_and(|(_, dst)| dst == VXLAN_PORT))?;
        let (header, inside) = frame.get(ip.l4 + 8..ip.end)?.split_first_chunk::<8>()?;
        let [flags, .., a, b, c, _] = *header;
        (flags & VXLAN_HAS_ID != 0).then_some(())?;
        Some(Self { id: u32::from_be_bytes([0, a, b, c]), inner: Headers::parse(inside)? })
    }
}

fn ipv4(frame: &[u8], at: usize) -> Option<Ip> {
    let header: &[u8; 20] = frame.get(at..)?.first_chunk()?;
    let (l4, end) = (at + usize::from(header[0] & 0xf) * 4, at + usize::from(u16::from_be_bytes([header[2], header[3]])));
    if header[0] >> 4 != 4 || l4 < at + 20 || l4 > end || end > frame.len() {
        return None;
    }
    let address = |from: usize| core::array::from_fn(|i| if i < 4 { header[from + i] } else { 0 });
    // More fragments, or an offset (RFC 791 s3.1).
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    let (src, dst) = (address(12), address(16));
    Some(Ip { v6: false, src, dst, protocol: header[9], tos: header[1], flow_label: 0, at, l4, end, fragment, ports: None })
}

fn ipv6(frame: &[u8], at: usize) -> Option<Ip> {
    let header: &[u8; 40] = frame.get(at..)?.first_chunk()?;
    // (`guessed`: a length that is more than there is does not keep the card from looking at the headers. So rdma-core's own tests of flow rules have it.)
    let (l4, end) = (at + 40, at + 40 + usize::from(u16::from_be_bytes([header[4], header[5]])));
    let end = end.min(frame.len());
    if header[0] >> 4 != 6 {
        return None;
    }
    let first = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
    let address = |from: usize| core::array::from_fn(|i| header[from + i]);
    let (tos, flow_label) = ((first >> 20) as u8, first & 0xf_ffff);
    Some(Ip {
        v6: true,
        src: address(8),
        dst: address(24),
        protocol: header[6],
        tos,
        flow_label,
        at,
        l4,
        end,
        fragment: false,
        ports: None,
    })
}

fn ports(frame: &[u8], ip: &Ip) -> Option<(u16, u16)> {
    let has = !ip.fragment && matches!(ip.protocol, TCP | UDP) && ip.l4 + 4 <= ip.end;
    has.then(|| Some((be16(frame, ip.l4)?, be16(frame, ip.l4 + 2)?))).flatten()
}
