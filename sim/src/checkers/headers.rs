//! The form of every packet that a stack sends, from its bytes: the IPv4 header, checksums, and the MAC address that it is for (RFC 791, RFC 1071, RFC 1112 s6.4); and of datagrams, what
//! their sockets' options say.

use std::net::{IpAddr, Ipv4Addr};

use ringway_stack::device::{ChecksumVerdict, MacAddr};
use ringway_stack::ring::UdpOptions;

use super::Moment;
use crate::checksum;
use crate::dissect::{self, Ip, UDP, be16};

const NAME: &str = "headers";

pub(super) const IGMP: u8 = 2;
/// Options for every node on the way, which nothing has but reports of listeners (RFC 8200 s4.3, RFC 3810 s5).
pub(super) const HOP_BY_HOP: u8 = 0;
/// Of longer packets, one in so many is summed: as many bytes as of all the shorter ones.
const SUMMED_LEN: usize = 400;
const SUMMED_EACH: u16 = 8;
/// Ethernet pads what is shorter, without the frame check sequence and with a VLAN tag.
const PADDED_LEN: usize = 64;
/// Don't fragment (RFC 791 s3.1): the stack declares that it never sends anything else (RFC 1191 s3).
const DF: u16 = 0x4000;

/// A stack sent a packet.
pub(super) fn sent(moment: &Moment, frame: &[u8], ip: &Ip) {
    let breach = |law: &str| moment.breach(NAME, format_args!("{law} ({} to {}, protocol {})", ip.src, ip.dst, ip.protocol));
    // (Where reports come from is a law of its own.)
    let is_report = ip.is_v6() && ip.protocol == HOP_BY_HOP;
    if !is_report && moment.ip.is_some_and(|own| own != ip.src) {
        breach("RFC 1122 s3.2.1.3: a packet from an address that its host does not have");
    }
    if ip.dst.is_unspecified() {
        breach("RFC 1122 s3.2.1.3: a packet to no address");
    }
    if ip.end < frame.len() && frame.len() > PADDED_LEN {
        breach("RFC 791 s3.1: a packet ends before its frame");
    }
    let ttl = ip.ttl(frame);
    if ttl == 0 {
        breach("RFC 1122 s3.2.1.7: a packet with a time to live of zero");
    }
    if ip.protocol == IGMP && ttl != 1 {
        breach("RFC 2236 s2: every IGMP message has a time to live of 1");
    }
    if !ip.is_v6() && be16(frame, ip.offset + 6) != Some(DF) {
        breach("RFC 1191 s3: a packet that may be fragmented, or is a fragment");
    }
    if ip.protocol == UDP && be16(frame, ip.l4 + 4).map(usize::from) != Some(ip.end - ip.l4) {
        breach("RFC 768: a datagram's length is not that of what its packet carries");
    }
    if ip.protocol == UDP && be16(frame, ip.l4 + 6) == Some(0) {
        breach("RFC 1122 s4.1.3.4: a datagram without a checksum, which nobody asked for");
    }
    link_destination(frame, ip, breach);
    let some = be16(frame, if ip.is_v6() { frame.len() - 2 } else { ip.offset + 4 });
    let summed = frame.len() <= SUMMED_LEN || some.is_some_and(|id| id.is_multiple_of(SUMMED_EACH));
    let igmp = || ip.protocol == IGMP && checksum::sum(0, &frame[ip.l4..ip.end]) != 0xffff;
    if summed && (checksum::verify(frame) == ChecksumVerdict::Bad || igmp()) {
        breach("RFC 1071: a wrong checksum");
    }
}

/// A stack sent a packet that cannot be parsed.
pub(super) fn unknown(moment: &Moment) {
    moment.breach(NAME, "RFC 791 s3.1: a packet whose header contradicts itself, or its frame");
}

/// RFC 1112 s6.4, RFC 894: a group's packets go to the group's MAC address, one host's to one host.
fn link_destination(frame: &[u8], ip: &Ip, breach: impl Fn(&str)) {
    let Some(to) = dissect::mac_at(frame, 0) else { return };
    let group = match ip.dst {
        IpAddr::V4(ip) => ip.is_multicast().then(|| [1, 0, 0x5e, ip.octets()[1] & 0x7f, ip.octets()[2], ip.octets()[3]]),
        IpAddr::V6(ip) => ip.is_multicast().then(|| [0x33, 0x33, ip.octets()[12], ip.octets()[13], ip.octets()[14], ip.octets()[15]]),
    };
    let is_broadcast = ip.dst == IpAddr::V4(Ipv4Addr::BROADCAST);
    if let Some(group) = group {
        if to.0 != group {
            breach("RFC 1112 s6.4, RFC 2464 s7: a group's packet is not for the group's MAC address");
        }
    } else if is_broadcast != (to == MacAddr::BROADCAST) || to.is_multicast() && to != MacAddr::BROADCAST {
        breach("RFC 1122 s3.3.6: one host's packet is for many hosts, or the reverse");
    }
}

/// A stack sent a datagram from a port whose sockets have these options.
pub(super) fn datagram(moment: &Moment, frame: &[u8], ip: &Ip, options: impl Iterator<Item = UdpOptions> + Clone) {
    let (tos, ttl) = (ip.tos(frame), ip.ttl(frame));
    let fits = |own: UdpOptions| tos == own.tos && ttl == if ip.dst.is_multicast() { own.multicast_ttl } else { own.ttl };
    if options.clone().next().is_some() && !options.clone().any(fits) {
        let wanted: Vec<_> = options.map(|own| (own.tos, own.ttl, own.multicast_ttl)).collect();
        moment.breach(
            NAME,
            format_args!("ip(7): a datagram to {} has type of service {tos} and time to live {ttl}; asked for were {wanted:?}", ip.dst),
        );
    }
}

#[cfg(test)]
mod tests;
