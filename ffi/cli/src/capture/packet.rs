//! A frame as it would be on a wire: with the VLAN tag and the checksums that are left to a device. Shared memory computes none at all.

use std::net::{Ipv4Addr, Ipv6Addr};

use ringway_host::capture::Frame;
use ringway_stack::wire::checksum::{self, Checksum};

/// Where the EtherType is, or a tag before it.
const TYPE_AT: usize = 12;
const TAGGED: [u8; 2] = [0x81, 0x00];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The bytes that were kept, and how long the whole frame is.
pub(super) fn on_the_wire(frame: Frame, is_shared_memory: bool) -> (Vec<u8>, usize) {
    let Frame { mut bytes, mut len, vlan, checksums_left, .. } = frame;
    if (checksums_left || is_shared_memory) && bytes.len() == len {
        let _ = fill_in(&mut bytes);
    }
    if let Some(tag) = vlan
        && bytes.len() >= TYPE_AT
    {
        let [high, low] = tag.to_be_bytes();
        bytes.splice(TYPE_AT..TYPE_AT, [TAGGED[0], TAGGED[1], high, low]);
        len += 4;
    }
    (bytes, len)
}

/// Fills checksums in. `None`: it is none of these packets, or it ends early.
fn fill_in(frame: &mut [u8]) -> Option<()> {
    let mut at = TYPE_AT;
    if frame.get(at..at + 2)? == TAGGED {
        at += 4;
    }
    let kind: [u8; 2] = frame.get(at..at + 2)?.try_into().ok()?;
    let packet = &mut frame[at + 2..];
    match kind {
        IPV4 => {
            let header_len = usize::from(packet.first()? & 15) * 4;
            let len = usize::from(word(packet, 2)?);
            // (A fragment's checksum is over more than is here.)
            if header_len < 20 || len < header_len || word(packet, 6)? & 0x3fff != 0 {
                return None;
            }
            let header = packet.get_mut(..header_len)?;
            header[10..12].fill(0);
            let sum = !checksum::sum(header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            let (src, dst) = (Ipv4Addr::from(four(packet, 12)?), Ipv4Addr::from(four(packet, 16)?));
            let protocol = packet[9];
            let payload = packet.get_mut(header_len..len)?;
            of_transport(payload, protocol, Checksum::pseudo_header(src, dst, protocol, payload.len()))
        }
        IPV6 => {
            let len = usize::from(word(packet, 4)?);
            let address = |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?));
            let (src, dst, protocol) = (address(8)?, address(24)?, *packet.get(6)?);
            let payload = packet.get_mut(40..40 + len)?;
            of_transport(payload, protocol, Checksum::pseudo_header_v6(src, dst, protocol, payload.len()))
        }
        _ => None,
    }
}

fn of_transport(payload: &mut [u8], protocol: u8, mut sum: Checksum) -> Option<()> {
    let at = match protocol {
        TCP => 16,
        UDP => 6,
        _ => return None,
    };
    payload.get_mut(at..at + 2)?.fill(0);
    sum.add(payload);
    // (RFC 768: zero means that there is none.)
    let sum = match sum.finish() {
        0 if protocol == UDP => u16::MAX,
        sum => sum,
    };
    payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn four(bytes: &[u8], at: usize) -> Option<[u8; 4]> {
    bytes.get(at..at + 4)?.try_into().ok()
}
