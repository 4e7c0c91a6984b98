//! ICMP errors as a router, or somebody who pretends to be one, sends them (RFC 792).

use std::net::Ipv4Addr;

use ringway_stack::device::MacAddr;

use crate::checksum;
use crate::dissect::{self, ETHERNET_LEN, ICMP, Payload, TCP, be16, mac_at};
use crate::random::SplitMix;

/// The router between all links; no host has its addresses.
const ROUTER_MAC: MacAddr = MacAddr([0x02, 0, 0, 0xff, 0xff, 0xfe]);
const ROUTER_IP: Ipv4Addr = Ipv4Addr::new(10, 255, 255, 254);

const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;
const DONT_FRAGMENT: u16 = 0x4000;

/// An IPv4 header without options and the first 8 bytes behind it: what an error quotes.
pub(crate) type Quote = [u8; 28];

/// Whether a frame is an ICMP error: those that quote a packet.
pub(crate) fn is_error(frame: &[u8]) -> bool {
    let Payload::Ipv4(ip) = dissect::payload(frame) else { return false };
    ip.protocol == ICMP && matches!(frame.get(ip.l4), Some(&(UNREACHABLE | TIME_EXCEEDED | PARAMETER_PROBLEM)))
}

/// What a router answers to a frame that is longer than the next link's MTU, and the station to answer to; `None` if it must keep silent
/// (RFC 1122 s3.2.2: never about an error, a broadcast or a later fragment; RFC 1191: only about what must not be fragmented. The
/// rest would be fragmented, which no host here takes apart; it is as good as lost).
pub(crate) fn fragmentation_needed(frame: &[u8], mtu: u16) -> Option<(MacAddr, Vec<u8>)> {
    let Payload::Ipv4(ip) = dissect::payload(frame) else { return None };
    let (to, station) = (mac_at(frame, 0)?, mac_at(frame, 6)?);
    let flags = be16(frame, ip.offset + 6)?;
    if flags & DONT_FRAGMENT == 0 || flags & 0x1fff != 0 || to.is_multicast() || is_error(frame) {
        return None;
    }
    let quoted = frame.get(ip.offset..(ip.l4 + 8).min(ip.end))?;
    Some((station, error(station, ip.src, (UNREACHABLE, FRAGMENTATION_NEEDED), mtu, quoted)))
}

/// The beginning of a TCP segment, for an attacker who is to have guessed its addresses and ports.
pub(crate) fn quote_of(frame: &[u8]) -> Option<Quote> {
    let Payload::Ipv4(ip) = dissect::payload(frame) else { return None };
    if ip.protocol != TCP || ip.fragment || ip.l4 != ip.offset + 20 {
        return None;
    }
    frame.get(ip.offset..)?.first_chunk().copied()
}

/// An error that an attacker sends to `station` about a segment like `quote`. He doesn't see the connection: its sequence number is a guess.
pub(crate) fn forged(station: MacAddr, mut quote: Quote, detail: u64) -> Vec<u8> {
    let mut dice = SplitMix(detail);
    let (kind, guess, mtu, far) = (dice.next(), dice.next(), dice.next(), dice.next());
    let about = [(3, 0), (3, 1), (3, 2), (3, 3), (3, 4), (3, 4), (3, 4), (3, 13), (TIME_EXCEEDED, 0)][kind as usize % 9];
    let mtu = if about.1 == FRAGMENTATION_NEEDED { [0, 1, 68, 296, 576, 1000][mtu as usize % 6] } else { 0 };
    let seen = u32::from_be_bytes([quote[24], quote[25], quote[26], quote[27]]);
    // Blind, or an old number that was true once: at least a gigabyte off.
    let seq = if far & 1 == 0 { guess as u32 } else { seen.wrapping_sub((1 << 30) + (guess as u32 >> 2)) };
    quote[24..].copy_from_slice(&seq.to_be_bytes());
    // He claims that it was a full one.
    quote[2..4].copy_from_slice(&1500u16.to_be_bytes());
    quote[10..12].fill(0);
    let sum = !checksum::sum(0, &quote[..20]);
    quote[10..12].copy_from_slice(&sum.to_be_bytes());
    let victim = Ipv4Addr::new(quote[12], quote[13], quote[14], quote[15]);
    error(station, victim, about, mtu, &quote)
}

/// As [`forged`], by one who chooses `quote` himself, and `link` before the packet: a claimed length, and what is said about it.
pub(crate) fn lie(link: &[u8], station: MacAddr, mut quote: Quote, len: u16, about: (u8, u8), mtu: u16) -> Vec<u8> {
    quote[2..4].copy_from_slice(&len.to_be_bytes());
    quote[10..12].fill(0);
    let sum = !checksum::sum(0, &quote[..20]);
    quote[10..12].copy_from_slice(&sum.to_be_bytes());
    let victim = Ipv4Addr::new(quote[12], quote[13], quote[14], quote[15]);
    let frame = error(station, victim, about, mtu, &quote);
    // The same packet, in the VLAN that the host is in.
    [link, &frame[ETHERNET_LEN..]].concat()
}

fn error(station: MacAddr, to: Ipv4Addr, (kind, code): (u8, u8), mtu: u16, quoted: &[u8]) -> Vec<u8> {
    let mut frame = [&station.0[..], &ROUTER_MAC.0[..], &[0x08, 0x00, 0x45, 0xc0]].concat();
    let len = u16::try_from(20 + 8 + quoted.len()).unwrap_or(u16::MAX);
    frame.extend(len.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, ICMP, 0, 0]);
    frame.extend(ROUTER_IP.octets());
    frame.extend(to.octets());
    let icmp = frame.len();
    frame.extend([kind, code, 0, 0, 0, 0]);
    frame.extend(mtu.to_be_bytes());
    frame.extend(quoted);
    let sum = !checksum::sum(0, &frame[icmp..]);
    frame[icmp + 2..icmp + 4].copy_from_slice(&sum.to_be_bytes());
    // The IPv4 header's own; ICMP has none that it would fill in.
    checksum::fill(&mut frame);
    if frame.len() < ETHERNET_LEN + 46 {
        frame.resize(ETHERNET_LEN + 46, 0);
    }
    frame
}
