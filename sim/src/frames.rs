//! Frames for tests.

use std::net::SocketAddr;

use ringway_stack::device::MacAddr;

use crate::addresses::ipv4;
use crate::checksum;

/// The Ethernet address of host `index`.
pub(crate) fn mac(index: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, index + 1])
}

/// A frame of IEEE 802's local experimental ethertype: no stack has an opinion on it.
pub(crate) fn experimental(to: MacAddr, from: MacAddr, payload: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0[..], &[0x88, 0xb5], payload].concat()
}

/// A UDP datagram with its checksums.
pub(crate) fn udp(src: SocketAddr, dst: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).unwrap();
    let mut frame = [&mac(1).0[..], &mac(0).0[..], &[0x08, 0x00, 0x45, 0]].concat();
    frame.extend((28 + len).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(ipv4(src.ip()).octets());
    frame.extend(ipv4(dst.ip()).octets());
    frame.extend(src.port().to_be_bytes());
    frame.extend(dst.port().to_be_bytes());
    frame.extend((8 + len).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    checksum::fill(&mut frame);
    frame
}

/// What a TCP segment of [`tcp`] says beside its addresses.
#[derive(Clone, Copy)]
pub(crate) struct Tcp {
    pub(crate) seq: u32,
    pub(crate) flags: u8,
    /// With RFC 7323's timestamps, this one.
    pub(crate) timestamp: Option<u32>,
}

/// A TCP segment with its checksums, from `src` at host 1 to `dst` at host 0.
pub(crate) fn tcp(src: SocketAddr, dst: SocketAddr, tcp: Tcp, payload: &[u8]) -> Vec<u8> {
    let options = tcp.timestamp.map_or(vec![], |value| [&[1, 1, 8, 10][..], &value.to_be_bytes(), &[0; 4]].concat());
    let header_len = 20 + options.len();
    let mut frame = [&mac(0).0[..], &mac(1).0[..], &[0x08, 0x00, 0x45, 0]].concat();
    frame.extend(u16::try_from(20 + header_len + payload.len()).unwrap().to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
    frame.extend(ipv4(src.ip()).octets());
    frame.extend(ipv4(dst.ip()).octets());
    frame.extend(src.port().to_be_bytes());
    frame.extend(dst.port().to_be_bytes());
    frame.extend(tcp.seq.to_be_bytes());
    frame.extend(77u32.to_be_bytes());
    frame.extend([u8::try_from(header_len / 4).unwrap() << 4, tcp.flags, 1, 0, 0, 0, 0, 0]);
    frame.extend(options);
    frame.extend(payload);
    checksum::fill(&mut frame);
    frame
}

/// `inner` in a VXLAN tunnel (RFC 7348), without an outer UDP checksum.
pub(crate) fn vxlan(vni: u32, inner: &[u8]) -> Vec<u8> {
    let tunnel = [&[0x08, 0, 0, 0][..], &(vni << 8).to_be_bytes(), inner].concat();
    let mut frame = udp("10.9.0.1:50000".parse().unwrap(), "10.9.0.2:4789".parse().unwrap(), &tunnel);
    frame[40..42].fill(0);
    frame
}

/// The frame with a VLAN tag.
pub(crate) fn tagged(frame: &[u8], tag: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0x00], &tag.to_be_bytes(), &frame[12..]].concat()
}
