//! Checksums that a sender on the same machine left to its device (CHECKSUM_PARTIAL): a veth pair hands such a frame over as it is, with the sum of the
//! pseudo-header in the checksum's place. Nothing lies in between that could damage it.

use ringway_stack::wire::{checksum, ethernet, ipv4, ipv6};

/// Whether a frame that begins with these bytes has such a checksum.
pub(crate) fn is_left_to_device(head: &[u8]) -> bool {
    find(head).unwrap_or(false)
}

fn find(head: &[u8]) -> Option<bool> {
    let (link, at) = ethernet::Header::parse(head).ok()?;
    let packet = head.get(at..)?;
    // What the sum is over: both addresses, the protocol, and the length of what follows.
    let (addresses, protocol, transport_at, len) = match link.ethertype {
        ethernet::ETHERTYPE_IPV4 => {
            let header_len = usize::from(packet.first()? & 0xf) * 4;
            let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
            (packet.get(12..20)?, *packet.get(9)?, header_len, total.checked_sub(header_len)?)
        }
        ethernet::ETHERTYPE_IPV6 => {
            let len = usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
            (packet.get(8..40)?, *packet.get(6)?, ipv6::LEN, len)
        }
        _ => return None,
    };
    let place = match protocol {
        ipv4::PROTOCOL_TCP => 16,
        ipv4::PROTOCOL_UDP => 6,
        _ => return None,
    };
    let found = packet.get(transport_at + place..transport_at + place + 2)?;
    let mut pseudo = [0; 40];
    let (first, rest) = pseudo.split_at_mut(addresses.len());
    first.copy_from_slice(addresses);
    rest[..4].copy_from_slice(&u32::try_from(len).ok()?.to_be_bytes());
    rest[7] = protocol;
    Some(u16::from_be_bytes([found[0], found[1]]) == checksum::sum(&pseudo))
}
