//! IPv6 of a ring alone on its link, a packet at a time: who is asked for and answered (RFC 4861, RFC 4862), errors and pings (RFC 4443), and datagrams
//! (RFC 8200).

use core::time::Duration;
use std::io::IoSlice;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ringway_stack::Error;
use ringway_stack::device::{ChecksumVerdict, MacAddr};
use ringway_stack::ring::{FlowId, NextHop, RecvFlags, RingConfig, SendFlags, UdpOptions};

use super::host::{Host, Link, Sent};
use super::streams;
use crate::apps::by_hand::{Ends, Outgoing};
use crate::checksum;
use crate::dissect::{self, ICMPV6, Ip, UDP, be16};
use crate::drills::bench::Bench;
use crate::drills::card::{OWN, PEER};
use crate::segment::{ACK, SYN, Segment};

const OURS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const THEIRS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const OTHERS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, 1);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ANOTHER: MacAddr = MacAddr([2, 0, 0, 0, 9, 9]);
const PORT: u16 = 500;
/// A protocol that nobody has.
const UNKNOWN: u8 = 200;
/// More errors are sent at once by nobody (RFC 4443 s2.4 (f), for a small device).
const ERRORS_MAX: usize = 10;

fn host(bench: &mut Bench) -> Host<'_> {
    Host::with(bench, Link::Asked, RingConfig { addresses: vec![OURS.into()], ..RingConfig::default() })
}

/// The group in which an address is asked for (RFC 4291 s2.7.1).
fn group_of(target: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | target.to_bits() & 0xff_ffff)
}

/// A packet from the peer's MAC address, with its transport's checksum.
pub(super) fn packet(hop_limit: u8, (src, dst): (Ipv6Addr, Ipv6Addr), protocol: u8, body: &[u8]) -> Vec<u8> {
    let to = if dst.is_multicast() { MacAddr::of_group(dst.into()) } else { OWN };
    let mut frame = [to.0, PEER.0].concat();
    dissect::extend_with_ip(&mut frame, (src.into(), dst.into()), protocol, body.len());
    frame[14 + 7] = hop_limit;
    let at = frame.len();
    frame.extend(body);
    match protocol {
        ICMPV6 => checksum::fill_icmpv6(&mut frame, at),
        _ => _ = checksum::fill(&mut frame),
    }
    frame
}

/// A message about an address, with an option of one MAC address.
fn discovery(kind: u8, flags: u8, target: Ipv6Addr, mac: Option<(u8, MacAddr)>) -> Vec<u8> {
    let mut body = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    body.extend(target.octets());
    if let Some((option, mac)) = mac {
        body.extend([option, 1]);
        body.extend(mac.0);
    }
    body
}

pub(super) fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len()) as u16;
    [&from.to_be_bytes()[..], &to.to_be_bytes(), &len.to_be_bytes(), &[0, 0], payload].concat()
}

/// A packet that the stack sent, with what it carries.
fn read(sent: &Sent) -> Option<(Ip, &[u8])> {
    let ip = dissect::whole_ipv6(&sent.bytes).filter(|_| checksum::verify(&sent.bytes) != ChecksumVerdict::Bad)?;
    Some((ip, &sent.bytes[ip.l4..ip.end]))
}

/// RFC 4861 s7.2.3, s7.2.4, RFC 4862 s5.4.3: who asks for our address, in our link's hearing, is answered where he is; who may not know one yet, in everybody's.
pub(in crate::drills) fn solicited(bench: &mut Bench) {
    let mut host = host(bench);
    for _ in 0..host.bench.between(1, 8) {
        let (afar, probes, says) = (host.bench.chance(5), host.bench.chance(4), host.bench.chance(2));
        let target = host.bench.pick(&[OURS, OURS, OURS, THEIRS, OTHERS]);
        let src = if probes { Ipv6Addr::UNSPECIFIED } else { THEIRS };
        let mac = (says && !probes).then_some((1, ANOTHER));
        let dst = if probes || host.bench.chance(2) { group_of(OURS) } else { OURS };
        host.give(packet(if afar { 64 } else { 255 }, (src, dst), ICMPV6, &discovery(135, 0, target, mac)));
        let sent = host.sent();
        if afar || target != OURS {
            host.must(sent.is_empty(), format_args!("RFC 4861 s7.1.1: {target}, from afar: {afar}, is answered"));
            continue;
        }
        let (to, dst) = if probes { (MacAddr::of_group(ALL_NODES.into()), ALL_NODES) } else { (mac.map_or(PEER, |(_, mac)| mac), THEIRS) };
        let flags = if probes { 0x20 } else { 0x60 };
        let expected = discovery(136, flags, OURS, Some((2, OWN)));
        let answer = sent.first().and_then(|sent| Some((sent, read(sent)?)));
        let is_answer = answer.is_some_and(|(sent, (ip, body))| {
            let same = body[..2] == expected[..2] && body[4..] == expected[4..];
            same && ip.ttl(&sent.bytes) == 255 && (ip.src, ip.dst) == (IpAddr::V6(OURS), IpAddr::V6(dst)) && sent.to_mac() == to
        });
        host.must(sent.len() == 1 && is_answer, format_args!("RFC 4861 s7.2.4: probes {probes}, says {says}: {sent:x?}"));
    }
}

fn open(host: &mut Host<'_>, options: UdpOptions) -> FlowId {
    let opened = host.ring.udp_open(SocketAddr::new(OURS.into(), PORT), &options);
    host.must(opened.is_ok(), format_args!("bind(2): {opened:?} of an address that nobody has"));
    opened.unwrap_or(FlowId { ring: 0, index: 0, generation: 0 })
}

fn send(host: &mut Host<'_>, socket: FlowId, payload: &[u8]) -> Result<usize, Error> {
    let to = (SocketAddr::new(THEIRS.into(), 600), NextHop::Neighbour(THEIRS.into()));
    let sent = host.ring.udp_send(host.now, socket, &[IoSlice::new(payload)], OURS.into(), Some(to));
    host.poll();
    sent
}

/// An advertisement about the peer.
fn advertise(host: &mut Host<'_>, hop_limit: u8, flags: u8, mac: MacAddr) {
    host.give(packet(hop_limit, (THEIRS, OURS), ICMPV6, &discovery(136, flags, THEIRS, Some((2, mac)))));
}

/// RFC 4861 s7.2.2, s7.2.5: who is unknown is asked for in its group, three times; an answer from the link is believed; one that does not override leaves
/// another host's address as it is; and one that nobody asked for proves nothing: who is used after it is asked, alone, whether it is there.
pub(in crate::drills) fn resolved(bench: &mut Bench) {
    let mut host = host(bench);
    let socket = open(&mut host, UdpOptions::default());
    let said = send(&mut host, socket, b"first");
    host.must(said == Ok(5), "send(2): to a neighbour that is not known yet");
    let is_silent = host.bench.chance(3);
    if is_silent {
        host.pass(Duration::from_secs(5));
    } else {
        advertise(&mut host, 64, 0x60, ANOTHER);
    }
    let asked = host.sent();
    let group = group_of(THEIRS);
    let expected = discovery(135, 0, THEIRS, Some((1, OWN)));
    let is_question = |sent: &Sent| {
        read(sent).is_some_and(|(ip, body)| {
            let same = body[..2] == expected[..2] && body[4..] == expected[4..] && ip.ttl(&sent.bytes) == 255;
            same && ip.dst == IpAddr::V6(group) && sent.to_mac() == MacAddr::of_group(group.into())
        })
    };
    host.must(asked.iter().all(is_question), format_args!("RFC 4861 s7.2.2: {THEIRS} is asked for by {asked:x?}"));
    host.must(asked.len() == if is_silent { 3 } else { 1 }, format_args!("RFC 4861 s7.2.2: asked {} times", asked.len()));
    if is_silent {
        return host.close(socket);
    }
    advertise(&mut host, 255, 0x60, PEER);
    let sent = host.sent();
    let goes_to = |sent: &[Sent], mac: MacAddr| {
        sent.len() == 1 && sent[0].to_mac() == mac && read(&sent[0]).is_some_and(|(ip, _)| ip.protocol == UDP)
    };
    host.must(goes_to(&sent, PEER), format_args!("RFC 4861 s7.2.2: what waited for its answer: {sent:x?}"));
    let overrides = host.bench.chance(2);
    advertise(&mut host, 255, if overrides { 0x20 } else { 0 }, ANOTHER);
    let said = send(&mut host, socket, b"next");
    host.must(said == Ok(4), "send(2): to a neighbour that is known");
    let to = if overrides { ANOTHER } else { PEER };
    let (asked, sent): (Vec<_>, Vec<_>) = host.sent().into_iter().partition(|sent| read(sent).is_some_and(|(ip, _)| ip.protocol == ICMPV6));
    host.must(goes_to(&sent, to), format_args!("RFC 4861 s7.2.5: overrides {overrides}, and it goes by {sent:x?}"));
    let asks_it_alone = asked.len() == 1
        && asked[0].to_mac() == to
        && read(&asked[0]).is_some_and(|(ip, body)| body[0] == 135 && body[8..24] == THEIRS.octets() && ip.dst == IpAddr::V6(THEIRS));
    host.must(asks_it_alone, format_args!("RFC 4861 s7.3.3: overrides {overrides}, unasked, and it is asked by {asked:x?}"));
    // An answer proves that it is there, and may leave out where it is known to be (s7.2.4); only a stale neighbour is asked.
    let says = host.bench.chance(2);
    let body = discovery(136, 0x40, THEIRS, says.then_some((2, to)));
    host.give(packet(255, (THEIRS, OURS), ICMPV6, &body));
    let said = send(&mut host, socket, b"last");
    host.must(said == Ok(4), "send(2): to a neighbour that is known");
    host.pass(Duration::from_secs(5));
    let sent = host.sent();
    host.must(goes_to(&sent, to), format_args!("RFC 4861 s7.2.5: an answer (with a MAC address: {says}), and then {sent:x?}"));
    host.close(socket);
}

/// RFC 4443: pings are answered, byte for byte; who speaks to nobody, or of what nobody knows, is told, with what there is room for of it, and not too often;
/// of what was for many, nobody is.
pub(in crate::drills) fn messages(bench: &mut Bench) {
    let mut host = host(bench);
    let len = host.bench.between(0, 100) as usize;
    let data = host.bytes(len);
    let ping = [&[128, 0, 0, 0, 1, 2, 3, 4][..], &data].concat();
    host.give(packet(64, (THEIRS, OURS), ICMPV6, &ping));
    let sent = host.sent();
    let echoes =
        |sent: &Sent| read(sent).is_some_and(|(ip, body)| body[0] == 129 && body[4..] == ping[4..] && ip.dst == IpAddr::V6(THEIRS));
    host.must(sent.len() == 1 && echoes(&sent[0]), format_args!("RFC 4443 s4.2: a ping of {len} bytes is answered by {sent:x?}"));

    let count = host.bench.between(1, 30) as usize;
    let (group, unknown) = (host.bench.chance(3), host.bench.chance(2));
    let dst = if group { ALL_NODES } else { OURS };
    let (cause, about) = match unknown {
        true => (packet(64, (THEIRS, dst), UNKNOWN, &data), (4, 1)),
        false => (packet(64, (THEIRS, dst), UDP, &udp(600, PORT, &data)), (1, 4)),
    };
    for _ in 0..count {
        host.give(cause.clone());
    }
    let sent = host.sent();
    // (RFC 4443 s2.4 (e.3): a header that nobody knows is no reason to answer what was for many.)
    let expected = if group { 0 } else { count.min(ERRORS_MAX) };
    host.must(sent.len() == expected, format_args!("RFC 4443 s2.4: {count} times {about:?}, for many: {group}: {} errors", sent.len()));
    let quoted = &cause[14..];
    let tells = |sent: &Sent| {
        read(sent).is_some_and(|(ip, body)| {
            let least = quoted.len().min(40 + 8);
            let quotes = body.len() >= 8 + least && quoted.starts_with(&body[8..]);
            (body[0], body[1]) == about && quotes && ip.dst == IpAddr::V6(THEIRS) && (!unknown || body[4..8] == [0, 0, 0, 6])
        })
    };
    host.must(sent.iter().all(tells), format_args!("RFC 4443 s3: {about:?}: {:x?}", sent.first()));
}

/// RFC 8200 s8.1, ipv6(7): a datagram has a checksum; and the hop limit and traffic class that its socket has.
pub(in crate::drills) fn datagrams(bench: &mut Bench) {
    let mut host = host(bench);
    let (ttl, tos) = (host.bench.between(1, 255) as u8, host.bench.below(64) as u8 * 4);
    let socket = open(&mut host, UdpOptions { ttl, tos, ..UdpOptions::default() });
    advertise_by_asking(&mut host);
    for _ in 0..host.bench.between(1, 6) {
        let len = host.bench.between(1, 300) as usize;
        let payload = host.bytes(len);
        let mut frame = packet(64, (THEIRS, OURS), UDP, &udp(600, PORT, &payload));
        let is_bare = host.bench.chance(3);
        if is_bare {
            frame[14 + 40 + 6..14 + 40 + 8].fill(0);
        }
        host.give(frame);
        let got = host.read(socket, 2000, RecvFlags::empty());
        match got {
            Ok((datagram, bytes)) => {
                let ends = (datagram.from, datagram.to) == (SocketAddr::new(THEIRS.into(), 600), IpAddr::V6(OURS));
                host.must(!is_bare, "RFC 8200 s8.1: a datagram without a checksum is heard");
                host.must(ends && bytes == payload, format_args!("recv(2): {datagram:?}, and not what was sent"));
            }
            Err(error) => host.must(is_bare && error == Error::WouldBlock, format_args!("recv(2): {error:?}, with a datagram there")),
        }
        let said = send(&mut host, socket, &payload);
        host.must(said == Ok(len), "send(2): to a neighbour that is known");
        let sent = host.sent();
        let is_right = sent.len() == 1
            && read(&sent[0]).is_some_and(|(ip, body)| {
                let bytes = &sent[0].bytes;
                (ip.ttl(bytes), ip.tos(bytes)) == (ttl, tos) && body[8..] == payload && be16(body, 6) != Some(0)
            });
        host.must(is_right, format_args!("ipv6(7): hop limit {ttl}, traffic class {tos}: {sent:x?}"));
    }
    host.close(socket);
}

/// RFC 8201 s4: what was too big for its path goes again at once in packets that fit; a report of less than every link carries is a forgery.
pub(in crate::drills) fn too_big(bench: &mut Bench) {
    let mut host = host(bench);
    let (local, remote) = (SocketAddr::new(OURS.into(), 3000), SocketAddr::new(THEIRS.into(), 80));
    let opened = host.ring.tcp_connect(host.now, local, remote, NextHop::Mac(PEER), &streams::plain());
    host.must(opened.is_ok(), format_args!("connect(2): {opened:?} of an address that nobody has"));
    let Ok(socket) = opened else { return };
    let segments = |host: &mut Host<'_>| -> Vec<(Sent, Segment)> {
        let sent = host.sent().into_iter();
        sent.filter_map(|sent| {
            Some((Segment::parse(&sent.bytes, &dissect::whole_ipv6(&sent.bytes)?)?, sent)).map(|(segment, sent)| (sent, segment))
        })
        .collect()
    };
    let syn = segments(&mut host).pop();
    let mss = syn.as_ref().and_then(|(_, syn)| syn.options.mss);
    host.must(mss == Some(1500 - 60), format_args!("RFC 6691 s2: MSS {mss:?} of a link that carries 1500 bytes"));
    let Some((_, syn)) = syn else { return };
    let ends = Ends { from: PEER, to: OWN, vlan: None, src: remote, dst: local };
    let outgoing =
        Outgoing { seq: 1000, ack: syn.seq.wrapping_add(1), flags: SYN | ACK, window: 60_000, options: &[2, 4, 0x20, 0], payload: &[] };
    host.give(outgoing.frame(&ends).0);
    host.sent();
    let payload = host.bytes(4000);
    let written = host.ring.tcp_send(host.now, socket, &[IoSlice::new(&payload)], SendFlags::empty());
    host.must(written == Ok(4000), format_args!("send(2): {written:?} of a connection that stands"));
    let sent = segments(&mut host);
    let longest = sent.iter().map(|(_, segment)| segment.len()).max().unwrap_or(0);
    host.must(longest == 1440, format_args!("RFC 9293 s3.7.1: segments of at most {longest} bytes"));
    let Some((first, _)) = sent.first() else { return };
    let is_forged = host.bench.chance(3);
    let mtu = if is_forged { host.bench.between(68, 1279) } else { host.bench.between(1280, 1499) } as u32;
    let quote = &first.bytes[14..first.bytes.len().min(14 + 1232)];
    let body = [&[2, 0, 0, 0][..], &mtu.to_be_bytes(), quote].concat();
    host.give(packet(64, (OTHERS, OURS), ICMPV6, &body));
    let again = segments(&mut host);
    let fits = |len: u32| len > 0 && len + 60 <= mtu && len + 60 + 40 > mtu;
    let is_lawful = match is_forged {
        true => again.is_empty(),
        false => again.first().is_some_and(|(_, segment)| segment.seq == syn.seq.wrapping_add(1) && fits(segment.len())),
    };
    let lengths: Vec<u32> = again.iter().map(|(_, segment)| segment.len()).collect();
    host.must(is_lawful, format_args!("RFC 8201 s4: the path carries {mtu}, and {lengths:?} bytes are sent again"));
    host.ring.close(host.now, socket, true);
    host.sent();
    host.is_empty();
}

/// The peer asks for us, and is known by that.
fn advertise_by_asking(host: &mut Host<'_>) {
    host.give(packet(255, (THEIRS, group_of(OURS)), ICMPV6, &discovery(135, 0, OURS, Some((1, PEER)))));
    _ = host.sent();
}
