//! Frames of every kind for a socket: which of them are the host's, whole and sound, and which are to be dropped in silence (IEEE 802.1Q, RFC 791, RFC 768,
//! RFC 1122 s3.2.1, RFC 9293 s3.9.2.3, s3.10.7.1).

use std::net::{Ipv4Addr, SocketAddrV4};

use ringway_stack::device::MacAddr;
use ringway_stack::ring::{RingConfig, UdpOptions};

use super::host::{Host, Link, OURS, Packet, Sent, THEIRS, udp};
use super::streams::{plain, segment};
use crate::addresses::ipv4;
use crate::checksum;
use crate::dissect::{self, Payload, TCP, UDP};
use crate::drills::bench::Bench;
use crate::drills::card::OWN;
use crate::segment::{ACK, FIN, PSH, RST, SYN, Segment, URG};

const PORT: u16 = 500;

/// A host of a VLAN, or of none.
fn host<'b>(bench: &'b mut Bench) -> (Host<'b>, Option<u16>) {
    let vlan = bench.chance(2).then(|| bench.between(1, 0xffe) as u16);
    // (Some configurations have priority bits in what they call the VLAN's number.)
    let config = RingConfig { addresses: OURS.map(Into::into).to_vec(), vlan, ..RingConfig::default() };
    (Host::with(bench, Link::Direct, config), vlan)
}

/// What befalls a packet before it comes.
struct Mangled {
    frame: Vec<u8>,
    /// It is the host's, whole and sound.
    is_good: bool,
    what: &'static str,
}

/// What no host can have sent (RFC 1122 s3.2.1.3).
const NOBODY: [Ipv4Addr; 4] = [Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 0, 1), Ipv4Addr::new(239, 1, 2, 3), Ipv4Addr::new(240, 0, 0, 1)];

/// A packet as it may come: sound, in one of many ways, or in one way not.
fn mangle(host: &mut Host<'_>, vlan: Option<u16>, protocol: u8, body: &[u8]) -> Mangled {
    let mut packet = Packet::new(THEIRS, OURS[0], protocol, body.to_vec());
    // IEEE 802.1Q s9.6: 12 bits name the VLAN; the others are a priority, which is none of its name.
    packet.vlan = vlan.map(|vlan| vlan | (host.bench.below(16) as u16) << 12);
    // RFC 1122 s3.2.1.8: options are passed over: no-operations, a timestamp's, one that nobody knows.
    packet.options = match host.bench.below(4) {
        0 => vec![1; 4 * host.bench.between(1, 10) as usize],
        1 => vec![0x44, 8, 5, 0, 0, 0, 0, 0],
        2 => vec![0x9e, 6, 1, 2, 3, 4, 0, 0],
        _ => Vec::new(),
    };
    packet.fragment = host.bench.pick(&[0, 0x4000]);
    let mut what = "";
    match host.bench.below(30) {
        0 => (packet.src, what) = (host.bench.pick(&NOBODY), "a source that nobody is"),
        1 => (packet.dst, what) = (Ipv4Addr::new(10, 0, 0, 99), "another host's address"),
        2 => (packet.to, what) = (MacAddr([2, 0, 0, 0, 0, 9]), "another host's frame"),
        3 => (packet.fragment, what) = (0x2000, "a first fragment"),
        4 => (packet.fragment, what) = (0x0001, "a last fragment"),
        5 => (packet.fragment, what) = (0x2010, "a fragment between others"),
        6 => {
            packet.vlan = match vlan {
                Some(vlan) => host.bench.pick(&[None, Some(vlan ^ 1), Some(0)]),
                None => Some(host.bench.between(1, 0xffe) as u16),
            };
            what = "another VLAN's frame";
        }
        _ => {}
    }
    let mut frame = packet.filled();
    if packet.fragment & 0x3fff != 0 {
        frame = packet.frame();
    }
    let Payload::Ip(ip) = dissect::payload(&frame) else { return Mangled { frame, is_good: false, what: "no packet" } };
    // A datagram may be shorter than its packet: its checksum is over itself.
    if protocol == UDP
        && let Some(len) = dissect::be16(&frame, ip.l4 + 4).map(usize::from)
    {
        let sum = checksum_of(&frame, ip.l4, len);
        frame[ip.l4 + 6..ip.l4 + 8].copy_from_slice(&sum.to_be_bytes());
    }
    if what.is_empty() {
        what = match host.bench.below(20) {
            0 => {
                frame[ip.offset + 10] ^= 0x55;
                "a header's checksum that is wrong"
            }
            1 => {
                // (What follows a datagram in its packet, no checksum covers.)
                let len = dissect::be16(&frame, ip.l4 + 4).filter(|_| ip.protocol == UDP).map_or(ip.end - ip.l4, usize::from);
                let at = host.bench.between(ip.l4 as u64 + 8, (ip.l4 + len) as u64 - 1) as usize;
                frame[at] ^= 0x10;
                "a byte that was changed"
            }
            2 => {
                frame[ip.offset] = 0x65;
                "another version of IP"
            }
            3 => {
                frame[ip.offset] = 0x44;
                "a header of 16 bytes"
            }
            4 => {
                frame.truncate(frame.len() - 1);
                "a packet that is cut"
            }
            5 => {
                let at = ip.offset - 2;
                frame[at..at + 2].copy_from_slice(&[0x88, 0xb5]);
                "another protocol's frame"
            }
            _ => "",
        };
    }
    if what.is_empty() && host.bench.chance(2) {
        // Ethernet pads what is short; what follows the packet is nobody's.
        let more = host.bench.between(1, 60) as usize;
        let len = frame.len() + more;
        frame.resize(len, 0xa5);
    }
    Mangled { frame, is_good: what.is_empty(), what }
}

/// RFC 768, RFC 791, RFC 1122 s3.2.1: a datagram that is the host's is heard as it was sent, whatever its options, padding or priority; any other is not, and
/// is not answered.
pub(in crate::drills) fn datagrams(bench: &mut Bench) {
    let (mut host, vlan) = host(bench);
    let socket = host.open(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT), UdpOptions::default());
    for _ in 0..60 {
        let len = if host.bench.chance(2) { host.bench.between(1, 60) } else { host.bench.between(1, 1400) } as usize;
        let payload = host.bytes(len);
        let mut body = udp(600, PORT, &payload);
        // RFC 768: a datagram is as long as it says; the packet may be longer, and may not be shorter.
        let tail = host.bench.pick(&[0, 0, 0, 1, 2, 7, 300]).min(1400 - len.min(1400));
        body.resize(body.len() + tail, 0);
        let has_none = host.bench.chance(4);
        let is_longer = host.bench.chance(10);
        let mut mangled = mangle(&mut host, vlan, UDP, &body);
        let place = dissect::payload(&mangled.frame);
        if let Payload::Ip(ip) = place
            && mangled.is_good
        {
            let field = ip.l4 + 6;
            if is_longer {
                let says = (body.len() as u16 + 1).to_be_bytes();
                mangled.frame[ip.l4 + 4..field].copy_from_slice(&says);
                (mangled.is_good, mangled.what) = (false, "a datagram that is longer than its packet");
            }
            let sum = checksum_of(&mangled.frame, ip.l4, if is_longer { body.len() } else { 8 + len });
            mangled.frame[field..field + 2].copy_from_slice(&if has_none { [0, 0] } else { sum.to_be_bytes() });
        }
        host.give(mangled.frame);
        let heard = host.take(socket);
        if mangled.is_good {
            let right = heard.as_ref().is_some_and(|(_, bytes)| *bytes == payload);
            host.must(
                right,
                format_args!(
                    "RFC 768, RFC 1122 s3.2.1: {:?} bytes are heard of a datagram of {len}, {tail} behind it",
                    heard.map(|heard| heard.1.len())
                ),
            );
        } else {
            host.must(heard.is_none(), format_args!("RFC 1122 s3.2.1: {} is heard", mangled.what));
        }
        host.silence(format_args!("RFC 1122 s3.2.2: {} is answered", mangled.what));
    }
    host.close(socket);
    host.is_empty();
}

/// The checksum of a datagram of `len` bytes at `l4`.
fn checksum_of(frame: &[u8], l4: usize, len: usize) -> u16 {
    let Payload::Ip(ip) = dissect::payload(frame) else { return 0 };
    let mut bytes = [ipv4(ip.src).octets(), ipv4(ip.dst).octets()].concat();
    bytes.extend([0, UDP]);
    bytes.extend(dissect::be16(frame, l4 + 4).unwrap_or(0).to_be_bytes());
    bytes.extend(&frame[l4..l4 + 6]);
    bytes.extend([0, 0]);
    bytes.extend(&frame[l4 + 8..l4 + len]);
    match !checksum::sum(0, &bytes) {
        0 => 0xffff,
        sum => sum,
    }
}

/// The one segment that the stack sent, if it sent one.
fn answer(host: &mut Host<'_>, what: &str) -> Option<Segment> {
    let sent = host.sent();
    host.must(sent.len() <= 1, format_args!("RFC 9293 s3.10.7: {} answers to {what}", sent.len()));
    let parse = |frame: &Sent| Segment::parse(&frame.bytes, &frame.ip()?);
    sent.first().and_then(parse)
}

/// RFC 9293 s3.9.2.3, s3.10.7.1, RFC 1122 s3.2.1, s4.2.3.10: a SYN that is the host's is answered, one that is not meets silence; and what comes for no
/// connection is answered by a reset, unless it is one, or was for many.
pub(in crate::drills) fn segments(bench: &mut Bench) {
    let (mut host, vlan) = host(bench);
    let local = SocketAddrV4::new(OURS[0], PORT);
    let listener = host.ring.tcp_listen(local.into(), 1000, &plain());
    host.must(listener.is_ok(), format_args!("listen(2): {listener:?}"));
    for port in 0..40 {
        let from = SocketAddrV4::new(THEIRS, 1000 + port);
        let listens = host.bench.chance(2);
        let to = if listens { local } else { SocketAddrV4::new(OURS[0], PORT + 1) };
        let flags = if listens { SYN } else { host.bench.pick(&[SYN, ACK, FIN, SYN | ACK, FIN | ACK, PSH | ACK, RST, RST | ACK, URG, 0]) };
        let len = if flags & PSH != 0 { host.bench.between(1, 100) } else { 0 };
        let (seq, ack) = (host.bench.below(1 << 32) as u32, if flags & ACK != 0 { host.bench.below(1 << 32) as u32 } else { 0 });
        let payload = host.bytes(len as usize);
        let whole = segment(from, to, seq, ack, flags, &payload);
        let mut mangled = mangle(&mut host, vlan, TCP, &whole[34..]);
        if mangled.is_good && host.bench.chance(4) {
            let (mac, what) = host.bench.pick(&[
                (MacAddr::BROADCAST, "a segment in a frame for everybody"),
                (MacAddr([1, 0, 0x5e, 0, 0, 1]), "a segment in a group's frame"),
            ]);
            // (A listener may take it: only answers to strangers are forbidden for sure.)
            if !listens {
                mangled.frame[..6].copy_from_slice(&mac.0);
                (mangled.is_good, mangled.what) = (false, what);
            }
        }
        host.must(mangled.frame[..6] != OWN.0 || mangled.what != "another host's frame", "a frame is described wrongly");
        host.give(mangled.frame);
        let answer = answer(&mut host, mangled.what);
        let is_answered = mangled.is_good && flags & RST == 0;
        host.must(
            answer.is_some() == is_answered,
            format_args!("RFC 9293 s3.10.7.1, RFC 1122 s3.2.1: answered ({}), flags {flags:#x}, {}", answer.is_some(), mangled.what),
        );
        let Some(answer) = answer else { continue };
        let (expected_flags, expected_seq, expected_ack) = match (listens, flags & ACK != 0) {
            (true, _) => (SYN | ACK, answer.seq, seq.wrapping_add(1)),
            (false, true) => (RST, ack, 0),
            (false, false) => {
                let span = len as u32 + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
                (RST | ACK, 0, seq.wrapping_add(span))
            }
        };
        let found = (answer.flags, answer.seq, if answer.flags & ACK != 0 { answer.ack } else { 0 }, answer.src, answer.dst);
        host.must(
            found == (expected_flags, expected_seq, expected_ack, to.into(), from.into()),
            format_args!("RFC 9293 s3.10.7.1: {found:?}, not {:?}", (expected_flags, expected_seq, expected_ack, to, from)),
        );
    }
    if let Ok(listener) = listener {
        host.ring.close(host.now, listener, true);
    }
    host.sent();
}
