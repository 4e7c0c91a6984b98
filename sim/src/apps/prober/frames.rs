//! Frames, by hand: deliberately not `ringway_stack::wire`, which is under test.

use std::net::{Ipv4Addr, SocketAddrV4};

use ringway_stack::device::MacAddr;

use crate::checksum;
use crate::dissect::{ICMP, UDP, mac_at};

const IGMP: u8 = 2;
const ETHERTYPE_VLAN: [u8; 2] = [0x81, 0];
const ETHERTYPE_IPV4: [u8; 2] = [8, 0];
const ETHERTYPE_ARP: [u8; 2] = [8, 6];
/// Frames shorter than this are padded (IEEE 802.3 s4A.2.3.2.3).
const FRAME_LEN_MIN: usize = 60;
/// The MAC address of all probers: one that no host has.
pub(crate) const PROBER_MAC: MacAddr = MacAddr([2, 0, 0, 0xfe, 0xed, 1]);

/// Whether a prober sent that frame.
pub(crate) fn is_probers(frame: &[u8]) -> bool {
    mac_at(frame, 6) == Some(PROBER_MAC)
}

/// What an ICMP message says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Icmp<'a> {
    pub(super) kind: u8,
    pub(super) code: u8,
    pub(super) words: [u8; 4],
    pub(super) data: &'a [u8],
    /// Its checksum is wrong.
    pub(super) damaged: bool,
}

/// A frame to be.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    mac: MacAddr,
    vlan: Option<u16>,
    src: Ipv4Addr,
    dst: Ipv4Addr,
    ttl: u8,
    fragment: u16,
    options: Vec<u8>,
    damaged: bool,
}

impl Frame {
    pub(super) fn new(mac: MacAddr, vlan: Option<u16>, src: Ipv4Addr, dst: Ipv4Addr) -> Self {
        Self { mac, vlan, src, dst, ttl: 64, fragment: 0, options: Vec::new(), damaged: false }
    }

    pub(super) fn at_mac(self, mac: MacAddr) -> Self {
        Self { mac, ..self }
    }

    pub(super) fn to(self, dst: Ipv4Addr) -> Self {
        Self { dst, ..self }
    }

    pub(super) fn from(self, src: Ipv4Addr) -> Self {
        Self { src, ..self }
    }

    pub(super) fn ttl(self, ttl: u8) -> Self {
        Self { ttl, ..self }
    }

    /// A part of a packet: flags and offset (RFC 791 s3.1).
    pub(super) fn fragment(self, fragment: u16) -> Self {
        Self { fragment, ..self }
    }

    /// With IPv4 options, a multiple of four bytes.
    pub(super) fn options(self, options: &[u8]) -> Self {
        Self { options: options.to_vec(), ..self }
    }

    /// Its IPv4 header's checksum is wrong.
    pub(super) fn damage_header(self) -> Self {
        Self { damaged: true, ..self }
    }

    pub(super) fn is_for(&self, dst: Ipv4Addr) -> bool {
        self.dst == dst
    }

    fn link(&self, ethertype: [u8; 2]) -> Vec<u8> {
        let mut frame = [self.mac.0, PROBER_MAC.0].concat();
        if let Some(vlan) = self.vlan {
            frame.extend(ETHERTYPE_VLAN);
            frame.extend(vlan.to_be_bytes());
        }
        frame.extend(ethertype);
        frame
    }

    fn packet(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = self.link(ETHERTYPE_IPV4);
        let header_len = 20 + self.options.len();
        let len = u16::try_from(header_len + payload.len()).unwrap_or(u16::MAX);
        frame.extend([0x40 | u8::try_from(header_len / 4).unwrap_or(5), 0]);
        frame.extend(len.to_be_bytes());
        frame.extend([0x12, 0x34]);
        frame.extend(self.fragment.to_be_bytes());
        frame.extend([self.ttl, protocol, 0, 0]);
        frame.extend([self.src.octets(), self.dst.octets()].concat());
        frame.extend(&self.options);
        frame.extend(payload);
        if let Some(ip) = checksum::fill_ip_header(&mut frame)
            && self.damaged
        {
            frame[ip.offset + 10] ^= 0x55;
        }
        padded(frame)
    }

    pub(super) fn icmp(&self, Icmp { kind, code, words, data, damaged }: Icmp<'_>) -> Vec<u8> {
        let mut message = vec![kind, code, 0, 0];
        message.extend(words);
        message.extend(data);
        put_sum(&mut message, damaged);
        self.packet(ICMP, &message)
    }

    pub(super) fn igmp(&self, kind: u8, within: u8, group: Ipv4Addr, damaged: bool) -> Vec<u8> {
        let mut message = vec![kind, within, 0, 0];
        message.extend(group.octets());
        put_sum(&mut message, damaged);
        // The Router Alert option (RFC 2236 s2).
        self.clone().ttl(1).options(&[0x94, 4, 0, 0]).packet(IGMP, &message)
    }

    /// A datagram; `sum`: what is added to its checksum, or it has none; `longer`: by how much its length is wrong.
    pub(super) fn udp(&self, from: u16, to: u16, payload: &[u8], sum: Option<u16>, longer: i32) -> Vec<u8> {
        let len = i32::try_from(8 + payload.len()).unwrap_or(8);
        let said = u16::try_from((len + longer).max(0)).unwrap_or(8);
        let mut datagram = [from, to, said, 0].map(u16::to_be_bytes).concat();
        datagram.extend(payload);
        if let Some(error) = sum {
            let (src, dst) = (self.src.octets(), self.dst.octets());
            let pseudo = [&src[..], &dst[..], &[0, UDP], &said.to_be_bytes()].concat();
            let covered = usize::from(said).min(datagram.len());
            let sum = match !checksum::sum(checksum::sum(0, &pseudo), &datagram[..covered]) {
                0 => 0xffff,
                sum => sum,
            };
            let sum = if error > 0 { sum ^ 0x1010 } else { sum };
            datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        self.packet(UDP, &datagram)
    }

    pub(super) fn arp(&self, operation: u16, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
        let mut frame = self.link(ETHERTYPE_ARP);
        frame.extend([0, 1, 8, 0, 6, 4]);
        frame.extend(operation.to_be_bytes());
        frame.extend(PROBER_MAC.0);
        frame.extend(sender.octets());
        frame.extend([0; 6]);
        frame.extend(target.octets());
        padded(frame)
    }
}

/// The headers of a datagram, as an error quotes them.
pub(super) fn quoted(from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, UDP, 0, 0];
    packet.extend([from.ip().octets(), to.ip().octets()].concat());
    let sum = !checksum::sum(0, &packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend([from.port(), to.port(), 20, 0].map(u16::to_be_bytes).concat());
    packet
}

fn put_sum(message: &mut [u8], damaged: bool) {
    let sum = !checksum::sum(0, message) ^ if damaged { 0x2020 } else { 0 };
    message[2..4].copy_from_slice(&sum.to_be_bytes());
}

fn padded(mut frame: Vec<u8>) -> Vec<u8> {
    if frame.len() < FRAME_LEN_MIN {
        frame.resize(FRAME_LEN_MIN, 0xa5);
    }
    frame
}
