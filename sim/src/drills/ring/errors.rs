//! ICMP: errors for datagrams and connection attempts, paths' MTUs, errors for closed ports, and echoes (RFC 792, RFC 1122 s3.2.2, RFC 1191).

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddrV4};

use ringway_stack::device::MacAddr;
use ringway_stack::ring::{NextHop, Readiness, RecvFlags, SendFlags, UdpOptions};
use ringway_stack::{Error, tcp};

use super::host::{Host, ICMP, OURS, Packet, Sent, address, udp};
use super::streams::{PeerEnd, plain};
use crate::addresses::ipv4;
use crate::checksum;
use crate::dissect::UDP;
use crate::drills::bench::Bench;
use crate::drills::card::PEER;

const PORT: u16 = 500;
const DIRECT: NextHop = NextHop::Mac(PEER);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);

/// An ICMP message, with its checksum.
fn message(kind: u8, code: u8, rest: [u8; 4], data: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(rest);
    message.extend(data);
    let sum = !checksum::sum(0, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// A router's error about a packet that the stack sent.
fn error(about: &Sent, kind: u8, code: u8, mtu: u16) -> Vec<u8> {
    let Some(ip) = about.ip() else { return Vec::new() };
    let [high, low] = mtu.to_be_bytes();
    let body = message(kind, code, [0, 0, high, low], &about.bytes[ip.offset..ip.l4 + 8]);
    Packet::new(ROUTER, ipv4(ip.src), ICMP, body).frame()
}

/// RFC 1122 s4.1.3.3, udp(7), socket(7): a socket with a peer is told, once, by whichever call comes first, of each error about what it sent to that peer;
/// its datagrams stay where they are. One without a peer is not told.
pub(in crate::drills) fn told(bench: &mut Bench) {
    let mut host = super::host(bench);
    let socket = host.open(address(1, PORT), UdpOptions::default());
    let (peer, other) = (address(2, 600), address(2, 601));
    for _ in 0..host.bench.between(2, 12) {
        let is_connected = !host.bench.chance(4);
        let connected = host.ring.udp_connect(socket, OURS[0].into(), is_connected.then_some((peer.into(), DIRECT)));
        host.must(connected.is_ok(), format_args!("connect(2): {connected:?}"));
        let to_other = host.bench.chance(4);
        let sent = host.send(socket, b"datagram", Some((if to_other { other } else { peer }, DIRECT)), false);
        host.must(sent == Ok(8), format_args!("send(2): {sent:?} of a socket without an error"));
        let Some(about) = host.sent().pop() else { return host.must(false, "send(2): nothing is sent") };
        let waiting = host.bench.below(3);
        for _ in 0..waiting {
            host.hand(peer, address(1, PORT), b"waits");
        }
        let (kind, code, expected) = host.bench.pick(&[
            (3, 0, Error::HostUnreachable),
            (3, 1, Error::HostUnreachable),
            (3, 2, Error::Refused),
            (3, 3, Error::Refused),
            (3, 4, Error::MessageTooLong),
            (11, 0, Error::HostUnreachable),
        ]);
        host.edges(socket);
        let mut frame = error(&about, kind, code, 1000);
        let is_damaged = host.bench.chance(6);
        if is_damaged {
            frame[37] ^= 1;
        }
        host.give(frame);
        let edges = host.edges(socket);
        let is_told = is_connected && !to_other && !is_damaged;
        let ready = host.ring.readiness(socket);
        host.must(
            edges.contains(Readiness::ERR) == is_told && ready.contains(Readiness::ERR) == is_told,
            format_args!("RFC 1122 s4.1.3.3: {edges:?}, {ready:?} after error {kind}/{code}; to be told ({is_told})"),
        );
        if is_told {
            let found = match host.bench.below(3) {
                0 => host.read(socket, 100, RecvFlags::empty()).err(),
                1 => host.send(socket, b"datagram", None, false).err(),
                _ => host.ring.take_error(socket),
            };
            host.must(found == Some(expected), format_args!("RFC 1122 s4.1.3.3: {found:?} of error {kind}/{code}, not {expected:?}"));
        }
        let again = host.ring.take_error(socket);
        host.must(again.is_none(), format_args!("socket(7), SO_ERROR: {again:?} a second time"));
        host.must(!host.ring.readiness(socket).contains(Readiness::ERR), "poll(2): POLLERR of an error that was told");
        for number in 0..waiting {
            let read = host.take(socket).map(|(_, bytes)| bytes);
            host.must(
                read.as_deref() == Some(b"waits"),
                format_args!("recv(2): number {number} of {waiting} datagrams is gone after an error"),
            );
        }
        let more = host.take(socket);
        host.must(more.is_none(), "recv(2): a datagram that did not come");
        host.sent();
    }
    host.close(socket);
    host.is_empty();
}

/// RFC 1122 s4.2.3.9, connect(2): a host that has no such port or protocol refuses an attempt; one that cannot be reached is unreachable; an error about
/// what the attempt did not send says nothing.
pub(in crate::drills) fn attempts(bench: &mut Bench) {
    let mut host = super::host(bench);
    for round in 0..6 {
        let stream = PeerEnd::begin(&mut host, 3000 + round, address(2, 80), DIRECT, &plain());
        let Some(syn) = host.sent().pop() else { return host.must(false, "connect(2): no SYN is sent") };
        let mut wrong = syn.clone();
        if let Some(ip) = syn.ip() {
            wrong.bytes[ip.l4 + 5] ^= 1;
        }
        host.edges(stream.socket);
        host.give(error(&wrong, 3, 3, 0));
        let state = host.ring.info(stream.socket).and_then(|info| info.state);
        host.must(state == Some(tcp::State::SynSent), format_args!("RFC 5927 s4: {state:?} after an error about what was never sent"));
        let (code, expected) =
            host.bench.pick(&[(2, Error::Refused), (3, Error::Refused), (0, Error::HostUnreachable), (1, Error::HostUnreachable)]);
        host.give(error(&syn, 3, code, 0));
        let edges = host.edges(stream.socket);
        let found = host.ring.take_error(stream.socket);
        host.must(
            found == Some(expected),
            format_args!("RFC 1122 s4.2.3.9: {found:?} of an attempt after error 3/{code}, not {expected:?}"),
        );
        host.must(edges.intersects(Readiness::ERR | Readiness::HUP), format_args!("epoll(7): {edges:?} once an attempt has failed"));
        host.ring.close(host.now, stream.socket, false);
        host.poll();
    }
    host.sent();
    host.is_empty();
}

/// How long the longest of a new connection's segments is.
fn longest(host: &mut Host<'_>, port: u16, remote: SocketAddrV4) -> (PeerEnd, u32, Option<Sent>) {
    let stream = PeerEnd::connect(host, port, remote, &plain());
    let bytes = [7; 4000];
    let wrote = host.ring.tcp_send(host.now, stream.socket, &[std::io::IoSlice::new(&bytes)], SendFlags::empty());
    host.must(wrote == Ok(4000), format_args!("send(2): {wrote:?}"));
    let sent = host.sent();
    let len = |frame: &Sent| Some(crate::segment::Segment::parse(&frame.bytes, &frame.ip()?)?.len());
    let most = sent.iter().filter_map(len).max().unwrap_or(0);
    (stream, most, sent.into_iter().find(|frame| len(frame) == Some(most)))
}

/// RFC 1191 s5.2, s6.3: what a path carries is remembered for all connections of that destination, for five minutes at least; and for no other. What is on its
/// way goes again for it only of the connection that the message is about (s6.4).
pub(in crate::drills) fn remembered(bench: &mut Bench) {
    let mut host = super::host(bench);
    let (near, far) = (address(2, 80), address(3, 80));
    let (first, len, full) = longest(&mut host, 3000, near);
    host.must(len == 1460, format_args!("RFC 9293 s3.7.1: segments of {len} bytes at most, of an MSS of 1460"));
    let mtu = host.bench.between(600, 1400) as u16;
    let bystander = PeerEnd::connect(&mut host, 3003, near, &plain());
    let bytes = vec![7; host.bench.between(1, 4000) as usize];
    let wrote = host.ring.tcp_send(host.now, bystander.socket, &[std::io::IoSlice::new(&bytes)], SendFlags::empty());
    host.must(wrote == Ok(bytes.len()), format_args!("send(2): {wrote:?}"));
    host.sent();
    if let Some(full) = full {
        host.give(error(&full, 3, 4, mtu));
    }
    let sent = host.sent();
    let from = |frame: &Sent| Some(crate::segment::Segment::parse(&frame.bytes, &frame.ip()?)?.src.port());
    let again = sent.iter().filter(|frame| from(frame) == Some(3003)).count();
    host.must(again == 0, format_args!("RFC 1191 s6.4: {again} segments go again that another connection has on its way"));
    // (For longer, or none, a stack may try again.)
    let pause = host.bench.below(290);
    let closes_first = host.bench.chance(2);
    if closes_first {
        host.ring.close(host.now, first.socket, true);
    }
    host.pass(Duration::from_secs(pause));
    host.sent();
    let (second, len, _) = longest(&mut host, 3001, near);
    host.must(
        len == u32::from(mtu) - 40,
        format_args!("RFC 1191 s5.2: segments of {len} bytes after {pause} s on a path of {mtu}, of another connection"),
    );
    let (third, len, _) = longest(&mut host, 3002, far);
    host.must(len == 1460, format_args!("RFC 1191 s5.2: segments of {len} bytes to a destination of which nothing is known"));
    for stream in [first, bystander, second, third] {
        host.ring.close(host.now, stream.socket, true);
    }
    host.is_empty();
}

/// RFC 1122 s3.2.2, s4.1.3.1: a datagram for a closed port is answered by one error, which quotes its header and eight bytes as they came; and none that
/// was for many, or that nobody can have sent.
pub(in crate::drills) fn closed_ports(bench: &mut Bench) {
    let mut host = super::host(bench);
    for _ in 0..12 {
        let len = host.bench.below(1400) as usize;
        let payload = host.bytes(len);
        let (from, to) = (600 + host.bench.below(100) as u16, 900 + host.bench.below(100) as u16);
        let ours = host.bench.pick(&OURS);
        let mut packet = Packet::new(Ipv4Addr::new(10, 0, 0, 2), ours, UDP, udp(from, to, &payload));
        packet.fragment = host.bench.pick(&[0, 0x4000]);
        match host.bench.below(6) {
            0 => packet.to = MacAddr::BROADCAST,
            1 => packet.to = MacAddr([1, 0, 0x5e, 1, 2, 3]),
            2 => packet.src = host.bench.pick(&[Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 0, 9)]),
            3 => packet.dst = Ipv4Addr::new(10, 0, 0, 99),
            _ => {}
        }
        let is_answered = packet.to == crate::drills::card::OWN && packet.dst == ours && packet.src == Ipv4Addr::new(10, 0, 0, 2);
        let frame = packet.filled();
        host.give(frame.clone());
        let answers = host.sent();
        host.must(
            answers.len() == usize::from(is_answered),
            format_args!(
                "RFC 1122 s3.2.2: {} answers to a datagram for a closed port, from {} to {} at {}",
                answers.len(),
                packet.src,
                packet.dst,
                packet.to
            ),
        );
        let Some((answer, ip)) = answers.first().and_then(|answer| Some((answer, answer.ip()?))) else { continue };
        let icmp = &answer.bytes[ip.l4..ip.end];
        host.must(ip.protocol == ICMP && icmp[..2] == [3, 3], format_args!("RFC 1122 s4.1.3.1: {:?} for a closed port", &icmp[..2]));
        let ends = (ip.src, ip.dst, answer.to_mac());
        host.must(ends == (ours.into(), packet.src.into(), packet.from), format_args!("RFC 792: an error goes {ends:?}"));
        let quoted = &icmp[8..];
        host.must(
            quoted.len() >= 28 && frame[14..].starts_with(&quoted[..28]),
            format_args!("RFC 1122 s3.2.2: an error quotes {} bytes, and not the header and eight bytes as they came", quoted.len()),
        );
    }
    host.is_empty();
}

/// RFC 1122 s3.2.2.6: an echo has the request's identifier, number and data, all of them, and goes back where it came from.
pub(in crate::drills) fn pings(bench: &mut Bench) {
    let mut host = super::host(bench);
    for _ in 0..20 {
        let len = if host.bench.chance(4) { host.bench.between(240, 1400) } else { host.bench.below(187) } as usize;
        let data = host.bytes(len);
        let rest = (host.bench.below(1 << 32) as u32).to_be_bytes();
        let mut packet = Packet::new(Ipv4Addr::new(10, 0, 0, 2), host.bench.pick(&OURS), ICMP, message(8, 0, rest, &data));
        let options = host.bench.below(4) as usize;
        packet.options = vec![1; options * 4];
        let is_damaged = host.bench.chance(6);
        if is_damaged {
            packet.body[5] ^= 0x40;
        }
        let mut frame = packet.frame();
        // (Short frames are padded.)
        frame.resize(frame.len().max(60), 0xa5);
        host.give(frame);
        let answers = host.sent();
        host.must(!is_damaged || answers.is_empty(), "RFC 792: a damaged request is answered");
        // (A stack may leave long requests unanswered; it may not cut its answers.)
        let must_answer = !is_damaged && len <= 150;
        host.must(
            answers.len() <= 1 && (answers.len() == 1 || !must_answer),
            format_args!("RFC 1122 s3.2.2.6: {} echoes of {len} bytes", answers.len()),
        );
        let Some((answer, ip)) = answers.first().and_then(|answer| Some((answer, answer.ip()?))) else { continue };
        let icmp = &answer.bytes[ip.l4..ip.end];
        let is_it = ip.protocol == ICMP && icmp[..2] == [0, 0] && icmp[4..8] == rest && icmp[8..] == data;
        host.must(is_it, format_args!("RFC 1122 s3.2.2.6: an echo of {} bytes is not the request of {len}", icmp.len().saturating_sub(8)));
        let ends = (ip.src, ip.dst, answer.to_mac());
        host.must(ends == (packet.dst.into(), packet.src.into(), PEER), format_args!("RFC 792: an echo goes {ends:?}"));
    }
    host.is_empty();
}

/// RFC 1191 s6.3: a path's smaller MTU is believed for ten minutes, or twice that, and then a larger one is tried: however many connections ask for it meanwhile.
pub(in crate::drills) fn believed(bench: &mut Bench) {
    let mut host = super::host(bench);
    let remote = address(2, 80);
    let (first, _, full) = longest(&mut host, 3000, remote);
    let mtu = host.bench.between(600, 1400) as u16;
    if let Some(full) = full {
        host.give(error(&full, 3, 4, mtu));
    }
    host.ring.close(host.now, first.socket, true);
    let (begun, mut port) = (host.now, 3001);
    while host.now.since(begun) < Duration::from_secs(1200) {
        let pause = host.bench.between(100, 590);
        host.pass(Duration::from_secs(pause));
        let (stream, _, _) = longest(&mut host, port, remote);
        host.ring.close(host.now, stream.socket, true);
        host.sent();
        port += 1;
    }
    let (last, len, _) = longest(&mut host, port, remote);
    let since = host.now.since(begun);
    host.must(len == 1460, format_args!("RFC 1191 s6.3: segments of {len} bytes {since:?} after a path was said to carry {mtu}"));
    host.ring.close(host.now, last.socket, true);
    host.sent();
    host.is_empty();
}
