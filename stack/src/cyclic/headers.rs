//! Network headers of packets: as they came, or made up for those whose own nobody has seen.

use std::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;

use crate::device::MacAddr;
use crate::wire::{ethernet, ipv4, ipv6, udp};

/// Ethernet with a VLAN tag, IPv4 with all the options that there is room for, UDP.
const HEADERS_MAX: usize = ethernet::LEN + ethernet::VLAN_LEN + 60 + udp::LEN;

/// A packet's headers, from Ethernet to UDP.
pub type NetworkHeaders = ArrayVec<u8, HEADERS_MAX>;

/// Headers for a datagram of `len` bytes: with these addresses and ports, Ethernet addresses of zeros, and no UDP checksum.
pub fn made_up_headers(from: SocketAddr, to: SocketAddr, len: usize) -> NetworkHeaders {
    let mut bytes = [0; ethernet::LEN + ipv6::LEN + udp::LEN];
    let none = MacAddr::default();
    let ethertype = if to.is_ipv4() { ethernet::ETHERTYPE_IPV4 } else { ethernet::ETHERTYPE_IPV6 };
    let mut at = ethernet::Header { dst: none, src: none, vlan: None, ethertype }.emit(&mut bytes);
    // (A datagram came in one packet, whose length is of 16 bits.)
    let len = (len + udp::LEN) as u16;
    at += match (from.ip(), to.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let ip = ipv4::Header {
                src,
                dst,
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
            ip.emit(&mut bytes[at..], true)
        }
        (src, dst) => {
            let [src, dst] = [src, dst].map(|ip| if let IpAddr::V6(ip) = ip { ip } else { std::net::Ipv6Addr::UNSPECIFIED });
            let next_header = ipv4::PROTOCOL_UDP;
            ipv6::Header { src, dst, next_header, hop_limit: 1, traffic_class: 0, flow_label: 0, payload_len: len }.emit(&mut bytes[at..])
        }
    };
    at += udp::Header { src_port: from.port(), dst_port: to.port(), len, checksum: 0 }.emit(&mut bytes[at..]);
    bytes[..at].iter().copied().collect()
}
