//! Network headers of packets: as they came, or made up for those whose own nobody has seen.

use std::net::SocketAddrV4;

use arrayvec::ArrayVec;

use crate::device::MacAddr;
use crate::wire::{ethernet, ipv4, udp};

/// Ethernet with a VLAN tag, IPv4 with all the options that there is room for, UDP.
const HEADERS_MAX: usize = ethernet::LEN + ethernet::VLAN_LEN + 60 + udp::LEN;

/// A packet's headers, from Ethernet to UDP.
pub type NetworkHeaders = ArrayVec<u8, HEADERS_MAX>;

/// Headers for a datagram of `len` bytes: with these addresses and ports, Ethernet addresses of zeros, and no UDP checksum.
pub fn made_up_headers(from: SocketAddrV4, to: SocketAddrV4, len: usize) -> NetworkHeaders {
    let mut bytes = [0; ethernet::LEN + ipv4::LEN + udp::LEN];
    let none = MacAddr::default();
    let mut at = ethernet::Header { dst: none, src: none, vlan: None, ethertype: ethernet::ETHERTYPE_IPV4 }.emit(&mut bytes);
    // (A datagram came in one packet, whose length is of 16 bits.)
    let len = (len + udp::LEN) as u16;
    let ip = ipv4::Header {
        src: *from.ip(),
        dst: *to.ip(),
        protocol: ipv4::PROTOCOL_UDP,
        ttl: 1,
        tos: 0,
        id: 0,
        total_len: len.saturating_add(ipv4::LEN as u16),
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        header_len: ipv4::LEN as u8,
    };
    at += ip.emit(&mut bytes[at..], true);
    udp::Header { src_port: from.port(), dst_port: to.port(), len, checksum: 0 }.emit(&mut bytes[at..]);
    bytes.iter().copied().collect()
}
