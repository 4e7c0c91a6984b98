//! What a fuzzer does to RoCE's parsers that are nobody else's.

use super::packet::Body;
use super::packet::datagram::{Crc, Datagram};
use super::packet::write::WriteOnly;
use crate::device::messages::Addresses;

/// What is read of a write in one piece is what is read of it the other way, and written the same.
pub(crate) fn write_only(packet: &[u8], crc: Crc) {
    let Some(write) = WriteOnly::parse(packet, crc) else { return };
    assert!(WriteOnly::may_be(packet));
    let datagram = Datagram::parse_with(packet, crc).expect("what is read in one piece can be read");
    let header = datagram.packet.header;
    let Body::WriteOnly(reth, Some(immediate)) = header.body else { panic!("another opcode: {header:?}") };
    assert_eq!((reth.address, reth.rkey, reth.len as usize), (write.address, write.rkey, write.payload.len()));
    assert_eq!((immediate, datagram.packet.payload), (write.immediate, write.payload));
    assert_eq!((header.pkey, header.dest_qp, header.psn), (write.pkey, write.dest_qp, write.psn));
    assert_eq!((header.ack_request, header.solicited, header.unreliable), (write.ack_request, false, false));
    assert_eq!(datagram.path.addresses, Addresses::V6 { src: write.src, dst: write.dst });
    let mut out = vec![0; packet.len() + 64];
    let len = write.emit(&datagram.path, crc, &mut out).expect("there is room");
    assert_eq!(len, packet.len());
    assert_eq!(WriteOnly::parse(&out[..len], crc), Some(write), "what was written is read the same");
}

/// The front of a packet says of it what all of it says.
pub(crate) fn front(packet: &[u8]) {
    let Ok((front, payload)) = Datagram::parse_front(packet, packet.len()) else { return };
    let whole = Datagram::parse_with(packet, Crc::LeftOut).expect("its front can be read");
    assert_eq!((front.path, front.packet.header), (whole.path, whole.packet.header));
    assert_eq!(&packet[payload], whole.packet.payload);
}
