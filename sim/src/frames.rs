//! Frames for tests.

use std::net::SocketAddrV4;

use ringway_stack::device::MacAddr;

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
pub(crate) fn udp(src: SocketAddrV4, dst: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).unwrap();
    let mut frame = [&mac(1).0[..], &mac(0).0[..], &[0x08, 0x00, 0x45, 0]].concat();
    frame.extend((28 + len).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(src.ip().octets());
    frame.extend(dst.ip().octets());
    frame.extend(src.port().to_be_bytes());
    frame.extend(dst.port().to_be_bytes());
    frame.extend((8 + len).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    checksum::fill(&mut frame);
    frame
}
