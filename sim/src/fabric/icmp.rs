//! ICMP errors as a router, or somebody who pretends to be one, sends them (RFC 792, RFC 4443).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringway_stack::device::MacAddr;

use crate::checksum;
use arrayvec::ArrayVec;

use crate::dissect::{self, ETHERNET_LEN, ICMP, ICMPV6, Payload, TCP, be16, mac_at};
use crate::random::SplitMix;

/// The router between all links; no host has its addresses.
const ROUTER_MAC: MacAddr = MacAddr([0x02, 0, 0, 0xff, 0xff, 0xfe]);
const ROUTER_IP: Ipv4Addr = Ipv4Addr::new(10, 255, 255, 254);
const ROUTER_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0xffff, 0xfffe);

const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;
const DONT_FRAGMENT: u16 = 0x4000;
/// What an error quotes at most, so that its packet has no more than 1280 bytes.
const QUOTED_V6: usize = 1280 - 40 - 8;

/// An IP header without options and the first 8 bytes behind it: what an error quotes.
#[derive(Clone, Debug)]
pub(crate) struct Quote(ArrayVec<u8, 48>);

impl Quote {
    /// The beginning of a TCP segment's packet.
    pub(crate) fn of(frame: &[u8], ip: &dissect::Ip) -> Option<Self> {
        let len = ip.plain_len() + 8;
        let is_plain = ip.protocol == TCP && !ip.fragment && ip.l4 == ip.offset + ip.plain_len();
        frame.get(ip.offset..ip.offset + len).filter(|_| is_plain)?.try_into().ok().map(Self)
    }

    fn is_v6(&self) -> bool {
        self.0[0] >> 4 == 6
    }

    fn seq(&self) -> u32 {
        self.0.last_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    /// The same about another sequence number.
    pub(crate) fn about(mut self, seq: u32) -> Self {
        let at = self.0.len() - 4;
        self.0[at..].copy_from_slice(&seq.to_be_bytes());
        self
    }

    /// How long its packet is said to be.
    pub(crate) fn len(&self) -> Option<u16> {
        if self.is_v6() { be16(&self.0, 4)?.checked_add(40) } else { be16(&self.0, 2) }
    }

    fn claim(&mut self, len: u16) {
        if self.is_v6() {
            return self.0[4..6].copy_from_slice(&len.saturating_sub(40).to_be_bytes());
        }
        self.0[2..4].copy_from_slice(&len.to_be_bytes());
        self.0[10..12].fill(0);
        let sum = !checksum::sum(0, &self.0[..20]);
        self.0[10..12].copy_from_slice(&sum.to_be_bytes());
    }

    fn victim(&self) -> IpAddr {
        dissect::addresses_at(&self.0, 0).map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |(src, _)| src)
    }
}

/// Whether a frame is an ICMP error: those that quote a packet.
pub(crate) fn is_error(frame: &[u8]) -> bool {
    let Payload::Ip(ip) = dissect::payload(frame) else { return false };
    let Some(&kind) = frame.get(ip.l4).filter(|_| ip.is_icmp()) else { return false };
    if ip.is_v6() { kind < 128 } else { matches!(kind, UNREACHABLE | TIME_EXCEEDED | PARAMETER_PROBLEM) }
}

/// What a router answers to a frame that is longer than the next link's MTU, and the MAC address to answer to; `None` if it must keep silent
/// (RFC 1122 s3.2.2: never about an error, a broadcast or a later fragment; RFC 1191: only about what must not be fragmented. The
/// rest would be fragmented, which no host here takes apart; it is as good as lost).
pub(crate) fn fragmentation_needed(frame: &[u8], mtu: u16) -> Option<(MacAddr, Vec<u8>)> {
    let Payload::Ip(ip) = dissect::payload(frame) else { return None };
    let (to, mac) = (mac_at(frame, 0)?, mac_at(frame, 6)?);
    let flags = if ip.is_v6() { DONT_FRAGMENT } else { be16(frame, ip.offset + 6)? };
    if flags & DONT_FRAGMENT == 0 || flags & 0x1fff != 0 || to.is_multicast() || is_error(frame) {
        return None;
    }
    // (RFC 4443 s3.2: as much as fits the least MTU.)
    let quoted_end = if ip.is_v6() { ip.offset + QUOTED_V6 } else { ip.l4 + 8 };
    let quoted = frame.get(ip.offset..quoted_end.min(ip.end))?;
    Some((mac, error(mac, ip.src, (UNREACHABLE, FRAGMENTATION_NEEDED), mtu, quoted)))
}

/// The beginning of a TCP segment, for an attacker who is to have guessed its addresses and ports.
pub(crate) fn quote_of(frame: &[u8]) -> Option<Quote> {
    let Payload::Ip(ip) = dissect::payload(frame) else { return None };
    Quote::of(frame, &ip)
}

/// An error that an attacker sends to `mac` about a segment like `quote`. He doesn't see the connection: its sequence number is a guess.
pub(crate) fn forged(mac: MacAddr, quote: Quote, detail: u64) -> Vec<u8> {
    let mut dice = SplitMix(detail);
    let (kind, guess, mtu, far) = (dice.next(), dice.next(), dice.next(), dice.next());
    let about = [(3, 0), (3, 1), (3, 2), (3, 3), (3, 4), (3, 4), (3, 4), (3, 13), (TIME_EXCEEDED, 0)][kind as usize % 9];
    let mtu = if about.1 == FRAGMENTATION_NEEDED { [0, 1, 68, 296, 576, 1000][mtu as usize % 6] } else { 0 };
    let seen = quote.seq();
    // Blind, or an old number that was true once: at least a gigabyte off.
    let seq = if far & 1 == 0 { guess as u32 } else { seen.wrapping_sub((1 << 30) + (guess as u32 >> 2)) };
    let mut quote = quote.about(seq);
    // He claims that it was a full one.
    quote.claim(1500);
    error(mac, quote.victim(), about, mtu, &quote.0)
}

/// As [`forged`], by one who chooses `quote` himself, and `link` before the packet: a claimed length, and what is said about it.
pub(crate) fn lie(link: &[u8], mac: MacAddr, mut quote: Quote, len: u16, about: (u8, u8), mtu: u16) -> Vec<u8> {
    quote.claim(len);
    let frame = error(mac, quote.victim(), about, mtu, &quote.0);
    // The same packet, in the VLAN that the host is in.
    [link, &frame[ETHERNET_LEN..]].concat()
}

/// What ICMPv6 has for an error of ICMP's (RFC 7915 s4.2).
fn of_v6(about: (u8, u8)) -> (u8, u8) {
    match about {
        (UNREACHABLE, FRAGMENTATION_NEEDED) => (2, 0),
        (UNREACHABLE, 3) => (1, 4),
        (UNREACHABLE, 2) => (4, 1),
        (UNREACHABLE, 9 | 10 | 13) => (1, 1),
        (UNREACHABLE, _) => (1, 0),
        (TIME_EXCEEDED, code) => (3, code),
        // (Nobody has anything for a source quench.)
        (kind, _) => (if kind == PARAMETER_PROBLEM { 4 } else { 127 }, 0),
    }
}

fn error(mac: MacAddr, to: IpAddr, about: (u8, u8), mtu: u16, quoted: &[u8]) -> Vec<u8> {
    match to {
        IpAddr::V4(to) => error_v4(mac, to, about, mtu, quoted),
        IpAddr::V6(to) => error_v6(mac, to, of_v6(about), mtu, quoted),
    }
}

fn error_v6(mac: MacAddr, to: Ipv6Addr, (kind, code): (u8, u8), mtu: u16, quoted: &[u8]) -> Vec<u8> {
    let mut frame = [&mac.0[..], &ROUTER_MAC.0[..], &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
    let len = u16::try_from(8 + quoted.len()).unwrap_or(u16::MAX);
    frame.extend(len.to_be_bytes());
    frame.extend([ICMPV6, 64]);
    frame.extend(ROUTER_IPV6.octets());
    frame.extend(to.octets());
    let icmp = frame.len();
    frame.extend([kind, code, 0, 0, 0, 0]);
    frame.extend(mtu.to_be_bytes());
    frame.extend(quoted);
    checksum::fill_icmpv6(&mut frame, icmp);
    frame
}

fn error_v4(mac: MacAddr, to: Ipv4Addr, (kind, code): (u8, u8), mtu: u16, quoted: &[u8]) -> Vec<u8> {
    let mut frame = [&mac.0[..], &ROUTER_MAC.0[..], &[0x08, 0x00, 0x45, 0xc0]].concat();
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
