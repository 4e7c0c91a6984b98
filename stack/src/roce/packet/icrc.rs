//! The invariant CRC (IBTA spec, volume 1, s7.8.1, and annex A17.3.3): Ethernet's CRC over what no router changes. Fields that may change
//! on the way count as ones.

use crc32fast::Hasher;

use crate::wire::{ipv4, ipv6, udp};

/// Bytes of the CRC on the wire.
pub(in crate::roce) const LEN: usize = 4;

/// In InfiniBand a local route header comes first; RoCE has none, and counts ones for it.
const LOCAL_ROUTE_HEADER: [u8; 8] = [0xff; 8];
/// The fields of the base transport header's fifth byte (FECN, BECN, reserved) may change.
const BTH_VARIANT: usize = 4;

/// The CRC of an IP packet without its CRC, as it stands on the wire. `ip_len`: bytes of its IP header. `None` if it is too short to have
/// all headers.
pub(in crate::roce) fn compute(packet: &[u8], ip_len: usize) -> Option<[u8; LEN]> {
    let headers_len = ip_len + udp::LEN + super::BTH_LEN;
    let (headers, rest) = packet.split_at_checked(headers_len)?;
    let mut masked = [0; ipv6::LEN + udp::LEN + super::BTH_LEN];
    let masked = masked.get_mut(..headers_len)?;
    masked.copy_from_slice(headers);
    if ip_len == ipv4::LEN {
        masked[1] = 0xff;
        masked[8] = 0xff;
        masked[10..12].fill(0xff);
    } else {
        // Traffic class and flow label, but not the version.
        masked[0] |= 0x0f;
        masked[1..4].fill(0xff);
        masked[7] = 0xff;
    }
    masked[ip_len + 6..ip_len + 8].fill(0xff);
    masked[ip_len + udp::LEN + BTH_VARIANT] = 0xff;
    let mut hasher = Hasher::new();
    hasher.update(&LOCAL_ROUTE_HEADER);
    hasher.update(masked);
    hasher.update(rest);
    Some(hasher.finalize().to_le_bytes())
}
