//! Checksums as the simulated NIC computes and verifies them (RFC 1071, RFC 768, RFC 9293 s3.1).

use ringway_stack::device::ChecksumVerdict;

use core::net::IpAddr;

use crate::dissect::{self, ICMP, ICMPV6, Ip, Payload, TCP, UDP};

/// The ones'-complement sum of `bytes`, taken as big-endian 16-bit words, on top of `seed`; folded, not complemented.
///
/// Summed in the machine's order and in wider words, which comes to the same after folding and swapping (RFC 1071 s2 (B), (C)): 64 bits at
/// a time, the carries of which are counted apart.
pub(crate) fn sum(seed: u16, bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<8>();
    let (quads, odd_words) = words.as_chunks::<4>();
    let mut lanes = [0u128; 4];
    for quad in quads {
        for (lane, word) in lanes.iter_mut().zip(quad) {
            *lane += u128::from(u64::from_ne_bytes(*word));
        }
    }
    let odd = odd_words.iter().map(|word| u128::from(u64::from_ne_bytes(*word)));
    let wide: u128 = lanes.into_iter().chain(odd).sum();
    // 2^16, and so 2^32 and 2^64, are one to a ones'-complement sum.
    let (high, low) = ((wide >> 64) as u64, wide as u64);
    let mut total = high + (low >> 32) + (low & 0xffff_ffff);
    let (pairs, last) = rest.as_chunks::<2>();
    total += pairs.iter().map(|pair| u64::from(u16::from_ne_bytes(*pair))).sum::<u64>();
    if let [last] = last {
        total += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    fold(u64::from(seed) + u64::from(u16::from_be_bytes(fold(total).to_ne_bytes())))
}

fn fold(mut total: u64) -> u16 {
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    u16::try_from(total).unwrap_or(u16::MAX)
}

/// Judges a received frame's IPv4 header and transport checksums, as a receiver that is strict about lengths would.
pub(crate) fn verify(frame: &[u8]) -> ChecksumVerdict {
    let ip = match dissect::payload(frame) {
        Payload::Ip(ip) => ip,
        Payload::Lookup(_) if dissect::be16(frame, 12) == Some(0x86dd) => return verify_lookup(frame),
        // It claims to be IP, yet its header cannot be parsed.
        Payload::Other(0x0800 | 0x86dd) => return ChecksumVerdict::Bad,
        _ => return ChecksumVerdict::Unknown,
    };
    if !ip.is_v6() && sum(0, &frame[ip.offset..ip.l4]) != 0xffff {
        return ChecksumVerdict::Bad;
    }
    if ip.fragment {
        return ChecksumVerdict::Unknown;
    }
    verify_transport(frame, &ip)
}

/// Judges a question for a neighbour, or an answer, of IPv6.
fn verify_lookup(frame: &[u8]) -> ChecksumVerdict {
    dissect::whole_ipv6(frame).map_or(ChecksumVerdict::Bad, |ip| verify_transport(frame, &ip))
}

fn verify_transport(frame: &[u8], ip: &Ip) -> ChecksumVerdict {
    let l4 = &frame[ip.l4..ip.end];
    let good = match ip.protocol {
        TCP if l4.len() >= 20 => sum(pseudo(ip, l4.len()), l4) == 0xffff,
        UDP if l4.len() >= 8 => {
            let len = dissect::be16(l4, 4).map_or(0, usize::from);
            match dissect::be16(l4, 6) {
                // RFC 768: an all-zero checksum means that the sender computed none; RFC 8200 s8.1 has no such thing.
                Some(0) if !ip.is_v6() => return ChecksumVerdict::Unknown,
                _ => len >= 8 && len <= l4.len() && sum(pseudo(ip, len), &l4[..len]) == 0xffff,
            }
        }
        ICMP if l4.len() >= 8 && !ip.is_v6() => sum(0, l4) == 0xffff,
        ICMPV6 if l4.len() >= 8 && ip.is_v6() => sum(pseudo(ip, l4.len()), l4) == 0xffff,
        TCP | UDP | ICMP | ICMPV6 => false,
        _ => return ChecksumVerdict::Unknown,
    };
    if good { ChecksumVerdict::Good } else { ChecksumVerdict::Bad }
}

/// Fills in the IPv4 header's and the transport's checksum, whatever stood there: transmit checksum offload. Whether [`verify`] would find
/// all of it good now.
pub(crate) fn fill(frame: &mut [u8]) -> bool {
    let Some(ip) = fill_ip_header(frame) else { return false };
    let len = ip.end - ip.l4;
    let at = match ip.protocol {
        TCP if len >= 20 => ip.l4 + 16,
        UDP if len >= 8 => ip.l4 + 6,
        _ => return false,
    };
    if ip.fragment {
        return false;
    }
    put(frame, at, 0);
    let mut checksum = !sum(pseudo(&ip, len), &frame[ip.l4..ip.end]);
    if ip.protocol == UDP && checksum == 0 {
        checksum = 0xffff;
    }
    put(frame, at, checksum);
    // A datagram may have a length of its own, and the sum was over the packet's.
    ip.protocol == TCP || dissect::be16(frame, ip.l4 + 4).map(usize::from) == Some(len)
}

/// Fills in the checksum of an ICMPv6 message that begins at `at`, behind whatever headers.
pub(crate) fn fill_icmpv6(frame: &mut [u8], at: usize) {
    let Some(ip) = dissect::whole_ipv6(frame) else { return };
    put(frame, at + 2, 0);
    let checksum = !icmpv6_sum(frame, &ip, at);
    put(frame, at + 2, checksum);
}

/// Whether the checksum of an ICMPv6 message that begins at `at`, behind whatever headers, is right.
pub(crate) fn is_icmpv6_good(frame: &[u8], at: usize) -> bool {
    dissect::whole_ipv6(frame).is_some_and(|ip| at <= ip.end && icmpv6_sum(frame, &ip, at) == 0xffff)
}

fn icmpv6_sum(frame: &[u8], ip: &Ip, at: usize) -> u16 {
    sum(pseudo(&Ip { protocol: ICMPV6, ..*ip }, ip.end - at), &frame[at..ip.end])
}

/// Fills in the IPv4 header's checksum only; IPv6's has none.
pub(crate) fn fill_ip_header(frame: &mut [u8]) -> Option<Ip> {
    let Payload::Ip(ip) = dissect::payload(frame) else { return None };
    if !ip.is_v6() {
        put(frame, ip.offset + 10, 0);
        let header = !sum(0, &frame[ip.offset..ip.l4]);
        put(frame, ip.offset + 10, header);
    }
    Some(ip)
}

/// Of the pseudo header (RFC 9293 s3.1, RFC 8200 s8.1).
fn pseudo(ip: &Ip, len: usize) -> u16 {
    let halves = |address: IpAddr| match address {
        IpAddr::V4(address) => sum(0, &address.octets()),
        IpAddr::V6(address) => sum(0, &address.octets()),
    };
    let len = u16::try_from(len).unwrap_or(u16::MAX);
    fold(u64::from(halves(ip.src)) + u64::from(halves(ip.dst)) + u64::from(ip.protocol) + u64::from(len))
}

fn put(frame: &mut [u8], at: usize, value: u16) {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests;
