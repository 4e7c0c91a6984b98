//! Headers, as a raw-Ethernet program supplies them, and what can be read off a frame. Written for the cases alone: neither the stack's nor
//! the simulator's code has a say in what is right.

use std::net::Ipv4Addr;

use ringway_stack::device::MacAddr;

/// Bytes of Ethernet, IPv4 and UDP headers.
pub const UDP_HEAD: usize = 42;
/// Bytes of Ethernet, IPv4 and TCP headers, without options.
pub const TCP_HEAD: usize = 54;
/// The port that VXLAN is sent to (RFC 7348 s5).
pub const VXLAN_PORT: u16 = 4789;

/// TCP's flags.
pub mod flags {
    /// No more data.
    pub const FIN: u8 = 0x01;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment field counts.
    pub const ACK: u8 = 0x10;
    /// Congestion window reduced (RFC 3168).
    pub const CWR: u8 = 0x80;
}

/// One end's addresses.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Ethernet's.
    pub mac: MacAddr,
    /// IPv4's.
    pub ip: Ipv4Addr,
}

/// Writes headers from one host to another.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    /// Who sends.
    pub from: Host,
    /// Who receives.
    pub to: Host,
}

impl Headers {
    /// The other direction.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { from: self.to, to: self.from }
    }

    /// Ethernet's alone.
    pub fn ethernet(&self, ethertype: u16) -> Vec<u8> {
        [&self.to.mac.0[..], &self.from.mac.0, &ethertype.to_be_bytes()].concat()
    }

    /// Down to IPv4's, whose checksum is right, for `len` bytes behind it.
    pub fn ipv4(&self, tos: u8, protocol: u8, len: usize) -> Vec<u8> {
        let mut head = self.ethernet(0x0800);
        head.extend([0x45, tos]);
        head.extend(u16::try_from(20 + len).unwrap_or(u16::MAX).to_be_bytes());
        head.extend([0x12, 0x34, 0x40, 0, 64, protocol, 0, 0]);
        head.extend(self.from.ip.octets().iter().chain(&self.to.ip.octets()));
        let sum = !ones_sum(0, &head[14..]);
        head[24..26].copy_from_slice(&sum.to_be_bytes());
        head
    }

    /// Down to UDP's, without a checksum (zero says so), for `len` bytes of payload.
    pub fn udp(&self, tos: u8, port: u16, len: usize) -> Vec<u8> {
        let mut head = self.ipv4(tos, 17, 8 + len);
        head.extend(udp(port, len));
        head
    }

    /// Down to UDP's, over IPv6.
    pub fn udp6(&self, traffic_class: u8, port: u16, len: usize) -> Vec<u8> {
        let mut head = self.ethernet(0x86dd);
        head.extend((6 << 28 | u32::from(traffic_class) << 20).to_be_bytes());
        head.extend(u16::try_from(8 + len).unwrap_or(u16::MAX).to_be_bytes());
        head.extend([17, 64]);
        for ip in [self.from.ip, self.to.ip] {
            head.extend(ip.to_ipv6_mapped().octets());
        }
        head.extend(udp(port, len));
        head
    }

    /// Down to TCP's and its `options` (a multiple of four bytes), for `len` bytes of payload. TCP's checksum is zero.
    pub fn tcp(&self, tos: u8, flags: u8, seq: u32, options: &[u8], len: usize) -> Vec<u8> {
        let mut head = self.ipv4(tos, 6, 20 + options.len() + len);
        head.extend([0x1f, 0x90, 0, 80]);
        head.extend(seq.to_be_bytes());
        head.extend(0x0102_0304u32.to_be_bytes());
        head.extend([(u8::try_from(5 + options.len() / 4).unwrap_or(15)) << 4, flags, 0x7f, 0xff, 0, 0, 0, 0]);
        head.extend(options);
        head
    }

    /// Down to VXLAN's, for an `inner` frame in tunnel `vni`.
    pub fn vxlan(&self, vni: u32, inner: &[u8]) -> Vec<u8> {
        let mut head = self.udp(0, VXLAN_PORT, 8 + inner.len());
        // The I flag (RFC 7348 s5): the identifier is valid.
        head.extend([8, 0, 0, 0]);
        head.extend((vni << 8).to_be_bytes());
        head
    }
}

/// `len` bytes of which no two neighbouring pages are alike.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 7 + (i >> 8) * 3) % 251) as u8).collect()
}

/// Two bytes of a frame.
pub fn be16(frame: &[u8], at: usize) -> u16 {
    frame.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

/// Four bytes of a frame.
pub fn be32(frame: &[u8], at: usize) -> u32 {
    u32::from(be16(frame, at)) << 16 | u32::from(be16(frame, at + 2))
}

/// Whether the checksums of an IPv4 packet of TCP or UDP without IP options are right; an absent one of UDP's is not.
pub fn checksums_hold(frame: &[u8]) -> bool {
    let Some(packet) = frame.get(14..).and_then(|ip| ip.get(..usize::from(be16(frame, 16)))) else { return false };
    if packet.len() < 28 || packet[0] != 0x45 || ones_sum(0, &packet[..20]) != 0xffff {
        return false;
    }
    let segment = &packet[20..];
    let absent = packet[9] == 17 && be16(segment, 6) == 0;
    let pseudo = ones_sum(u32::from(packet[9]) + u32::try_from(segment.len()).unwrap_or(0), &packet[12..20]);
    !absent && ones_sum(u32::from(pseudo), segment) == 0xffff
}

fn udp(port: u16, len: usize) -> Vec<u8> {
    let len = u16::try_from(8 + len).unwrap_or(u16::MAX);
    [5_000, port, len, 0].iter().flat_map(|field| field.to_be_bytes()).collect()
}

/// RFC 1071's sum, folded, on top of `start`.
fn ones_sum(start: u32, bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum = bytes.chunks(2).map(word).fold(start, u32::wrapping_add);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}
