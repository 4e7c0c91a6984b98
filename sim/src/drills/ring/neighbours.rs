//! ARP: what is answered, what is asked and how often, what waits meanwhile, and MAC addresses that change (RFC 826, RFC 1122 s2.3.2, RFC 5227).

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddrV4};

use ringway_stack::Error;
use ringway_stack::device::MacAddr;
use ringway_stack::ring::{FlowId, NextHop, Readiness, UdpOptions};

use super::host::{Host, Link, OURS, Packet, Sent, THEIRS, address, arp, udp};
use super::streams::{PeerEnd, plain, segment};
use crate::addresses::neighbour;
use crate::dissect::{TCP, UDP};
use crate::drills::bench::Bench;
use crate::drills::card::{OWN, PEER};
use crate::segment::{SYN, Segment};

const REQUEST: u16 = 1;
const REPLY: u16 = 2;
const NOBODY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
const ZERO: MacAddr = MacAddr([0; 6]);

fn socket(host: &mut Host<'_>, options: UdpOptions) -> FlowId {
    host.open(SocketAddrV4::new(NOBODY, 500), options)
}

fn to(ip: Ipv4Addr) -> Option<(SocketAddrV4, NextHop)> {
    Some((SocketAddrV4::new(ip, 600), NextHop::Neighbour(ip.into())))
}

/// Requests for `ip`, and the MAC addresses that they went to.
fn requests(sent: &[Sent], ip: Ipv4Addr) -> Vec<MacAddr> {
    let asks = |frame: &&Sent| frame.arp().is_some_and(|(operation, _, _, _, target)| operation == REQUEST && target == ip);
    sent.iter().filter(asks).map(Sent::to_mac).collect()
}

fn segment_of(frame: &Sent) -> Option<Segment> {
    let ip = frame.ip().filter(|ip| ip.protocol == TCP)?;
    Segment::parse(&frame.bytes, &ip)
}

/// RFC 826, RFC 5227 s2.1.1: a request for one of the host's addresses is answered once, to its sender alone, with that address; also one of somebody who has no
/// address yet; and no other ARP packet is.
pub(in crate::drills) fn asked(bench: &mut Bench) {
    let mut host = Host::new(bench, Link::Asked);
    for _ in 0..30 {
        let mac = MacAddr([2, 0, 0, 1, 0, host.bench.below(4) as u8]);
        let asker = host.bench.pick(&[NOBODY, THEIRS, Ipv4Addr::new(10, 0, 0, 7), Ipv4Addr::new(10, 0, 0, 8)]);
        let target = host.bench.pick(&[OURS[0], OURS[1], OURS[2], Ipv4Addr::new(10, 0, 0, 99), asker]);
        let operation = if host.bench.chance(4) { REPLY } else { REQUEST };
        let to = if host.bench.chance(3) { OWN } else { MacAddr::BROADCAST };
        let mut frame = arp(to, operation, (mac, asker), (ZERO, target));
        let is_malformed = host.bench.chance(6);
        if is_malformed {
            // Hardware, protocol, their lengths, or the operation; or a MAC address that is of many.
            let (at, value) = host.bench.pick(&[(15, 6), (16, 9), (18, 8), (19, 16), (21, 9), (22, 3)]);
            frame[at] = value;
        } else {
            // Ethernet pads what is short.
            frame.resize(60, 0xa5);
        }
        host.give(frame);
        let sent = host.sent();
        let is_answered = operation == REQUEST && OURS.contains(&target) && !is_malformed;
        host.must(
            sent.len() == usize::from(is_answered),
            format_args!(
                "RFC 826, RFC 5227 s2.1.1: {} answers to {operation} of {asker} for {target}, malformed ({is_malformed})",
                sent.len()
            ),
        );
        let Some(answer) = sent.first() else { continue };
        let found = (answer.to_mac(), answer.arp());
        let expected = (mac, Some((REPLY, OWN, target, mac, asker)));
        host.must(found == expected, format_args!("RFC 826: {found:?}, not {expected:?}"));
    }
    host.is_empty();
}

/// The datagram of which `host` sends one to a neighbour, and the MAC address that it goes to, if it goes.
fn goes_to(host: &mut Host<'_>, from: FlowId, ip: Ipv4Addr) -> (Option<MacAddr>, Vec<Sent>) {
    let payload = host.bytes(20);
    let sent = host.send(from, &payload, to(ip), false);
    host.must(sent == Ok(20), format_args!("send(2): {sent:?}"));
    let sent = host.sent();
    let mac = sent.iter().find(|frame| frame.datagram().is_some_and(|(_, _, bytes)| bytes == payload)).map(Sent::to_mac);
    (mac, sent)
}

/// RFC 1122 s2.3.2.1: what is known of a neighbour is asked for again after a time, first of its MAC address, then of all; a host that is silent is no end of
/// the neighbour, which may have another one by then.
pub(in crate::drills) fn moved(bench: &mut Bench) {
    let mut host = Host::new(bench, Link::Asked);
    let socket = socket(&mut host, UdpOptions::default());
    let (mac, sent) = goes_to(&mut host, socket, THEIRS);
    let asked = requests(&sent, THEIRS);
    host.must(mac.is_none() && asked == [MacAddr::BROADCAST], format_args!("RFC 826: {asked:?} is asked for a neighbour that is unknown"));
    let request = sent.iter().find_map(Sent::arp);
    let expected = Some((REQUEST, OWN, OURS[0], ZERO, THEIRS));
    host.must(request == expected, format_args!("RFC 826: {request:?}, not {expected:?}"));
    host.give(arp(OWN, REPLY, (PEER, THEIRS), (OWN, OURS[0])));
    host.sent();
    let (mac, _) = goes_to(&mut host, socket, THEIRS);
    host.must(mac == Some(PEER), format_args!("RFC 826: a neighbour's datagrams go to {mac:?}"));
    let second = MacAddr([2, 0, 0, 0, 0, 77]);
    if host.bench.chance(2) {
        // It says so itself (RFC 5227 s3).
        host.give(arp(MacAddr::BROADCAST, REQUEST, (second, THEIRS), (ZERO, THEIRS)));
    } else {
        let idle = host.bench.between(20, 200);
        host.pass(Duration::from_secs(idle));
        let mut all = Vec::new();
        // A minute at most, of which half may be what it was known for.
        for _ in 0..80 {
            let (_, sent) = goes_to(&mut host, socket, THEIRS);
            all.extend(sent);
            host.pass(Duration::from_millis(500));
            all.extend(host.sent());
            if requests(&all, THEIRS).contains(&MacAddr::BROADCAST) {
                break;
            }
        }
        let asked = requests(&all, THEIRS);
        host.must(
            asked.contains(&MacAddr::BROADCAST),
            format_args!("RFC 1122 s2.3.2.1: {asked:?} was asked for a neighbour who is silent, and not everybody"),
        );
        let lost = all.iter().filter(|frame| frame.datagram().is_none() && frame.arp().is_none()).count();
        host.must(lost == 0, "RFC 826: frames that nobody asked for");
        host.give(arp(OWN, REPLY, (second, THEIRS), (OWN, OURS[0])));
    }
    host.sent();
    let (mac, _) = goes_to(&mut host, socket, THEIRS);
    host.must(mac == Some(second), format_args!("RFC 826: a neighbour's datagrams go to {mac:?}, which has moved to {second}"));
    host.close(socket);
    host.is_empty();
}

/// RFC 1122 s2.3.2.2, s2.3.2.1: what waits for a neighbour goes out once it is known, each datagram as it was sent, not without end; questions are asked
/// once a second, a few times; and one neighbour that does not answer is no other's end, nor is what somebody forgets.
pub(in crate::drills) fn several(bench: &mut Bench) {
    let mut host = Host::new(bench, Link::Asked);
    let (ttl, tos) = (host.bench.between(1, 255) as u8, host.bench.below(64) as u8 * 4);
    let socket = socket(&mut host, UdpOptions { ttl, tos, ..UdpOptions::default() });
    let (silent, late) = (address(5, 80), address(6, 80));
    let config = ringway_stack::tcp::Config { ttl, tos, ..plain() };
    let mut lost = PeerEnd::begin(&mut host, 3000, silent, neighbour(silent), &config);
    goes_to(&mut host, socket, *silent.ip());
    let first_at = host.now;
    let between = host.bench.between(0, 2500);
    host.pass(Duration::from_millis(between));
    let mut found = PeerEnd::begin(&mut host, 3001, late, neighbour(late), &config);
    let count = if host.bench.chance(8) { 3000 } else { host.bench.between(1, 20) };
    let mut payloads = Vec::new();
    for _ in 0..count {
        let payload = host.bytes(24);
        let sent = host.send(socket, &payload, to(*late.ip()), false);
        host.must(sent == Ok(24), format_args!("send(2): {sent:?}"));
        payloads.push(payload);
    }
    if host.bench.chance(2) {
        host.ring.set_neighbour((*late.ip()).into(), None);
    }
    // The second one answers after the first was given up, and before it is itself; or at once.
    let pause = if host.bench.chance(3) { 0 } else { host.bench.between(0, 2900) };
    host.pass(Duration::from_millis(pause));
    let before = host.sent();
    let asked = requests(&before, *late.ip()).len();
    host.must((1..=4).contains(&asked), format_args!("RFC 1122 s2.3.2.1: {asked} requests in {pause} ms"));
    host.give(arp(OWN, REPLY, (PEER, *late.ip()), (OWN, OURS[0])));
    let sent = host.sent();
    let syns: Vec<_> = sent.iter().filter_map(segment_of).filter(|segment| segment.has(SYN)).collect();
    host.must(
        syns.len() == 1,
        format_args!("RFC 1122 s2.3.2.2: {} SYNs go to a neighbour that is known now, after {between} and {pause} ms", syns.len()),
    );
    let released: Vec<_> =
        sent.iter().filter_map(|frame| Some((frame.datagram()?.2.to_vec(), frame.ttl_and_tos()?, frame.to_mac()))).collect();
    host.must(
        released.last().map(|(bytes, ..)| bytes) == payloads.last(),
        "RFC 1122 s2.3.2.2: the latest datagram for a neighbour is not the last that it gets once it is known",
    );
    host.must(released.len() <= 256, format_args!("RFC 1122 s2.3.2.2: {} datagrams waited for a neighbour", released.len()));
    for (bytes, kind, mac) in &released {
        host.must(payloads.contains(bytes), "send(2): a datagram that waited is not what was written");
        host.must(
            (*kind, *mac) == ((ttl, tos), PEER),
            format_args!("ip(7), IP_TTL, IP_TOS: {kind:?} of a datagram that waited, of {:?}, to {mac}", (ttl, tos)),
        );
    }
    // It stands from then on.
    found.rcv = syns.first().map_or(0, |syn| syn.end());
    host.give(segment(late, found.local, found.nxt, found.rcv, SYN | crate::segment::ACK, &[]));
    let is_up = host.edges(found.socket).contains(Readiness::OUT);
    host.must(is_up, "connect(2): a connection to a neighbour that was unknown does not come to stand");
    // The other one is told within a few seconds.
    host.pass(Duration::from_secs(8).saturating_sub(host.now.since(first_at)));
    let all = requests(&[before, host.sent()].concat(), *silent.ip()).len();
    host.must((2..=5).contains(&all), format_args!("RFC 1122 s2.3.2.1: {all} requests to a neighbour that does not answer"));
    let edges = host.edges(lost.socket);
    let error = host.ring.take_error(lost.socket);
    host.must(
        error == Some(Error::HostUnreachable) && edges.intersects(Readiness::ERR | Readiness::HUP),
        format_args!("connect(2), EHOSTUNREACH: {error:?}, {edges:?} of a neighbour that does not answer"),
    );
    host.give(arp(OWN, REPLY, (PEER, *silent.ip()), (OWN, OURS[0])));
    host.silence("RFC 1122 s2.3.2.2: what waited for a neighbour was given up, and goes out");
    lost.nxt = 0;
    for stream in [lost, found] {
        host.ring.close(host.now, stream.socket, true);
    }
    host.close(socket);
    host.sent();
    host.is_empty();
}

/// RFC 5227 s3: who gets another MAC address announces each of its addresses, if it is to; it answers, sends and hears by that one from then on.
pub(in crate::drills) fn readdressed(bench: &mut Bench) {
    let mut host = Host::new(bench, Link::Asked);
    let socket = socket(&mut host, UdpOptions::default());
    for number in 1..4 {
        let before = host.port.borrow().mac;
        let mac = MacAddr([2, 0, 0, 9, 9, number]);
        host.port.borrow_mut().mac = mac;
        let announces = host.bench.chance(2);
        host.ring.readdress(announces);
        let sent = host.sent();
        let mut told: Vec<_> = sent.iter().filter_map(|frame| Some((frame.to_mac(), frame.arp()?))).collect();
        told.sort_unstable_by_key(|(_, (_, _, sender, ..))| *sender);
        let mut expected: Vec<_> = OURS.iter().map(|&ip| (MacAddr::BROADCAST, (REQUEST, mac, ip, ZERO, ip))).collect();
        expected.retain(|_| announces);
        host.must(told == expected && sent.len() == told.len(), format_args!("RFC 5227 s3: {told:?} is announced, not {expected:?}"));
        let target = host.bench.pick(&OURS);
        host.give(arp(MacAddr::BROADCAST, REQUEST, (PEER, THEIRS), (ZERO, target)));
        let answer = host.sent().first().and_then(Sent::arp);
        let expected = Some((REPLY, mac, target, PEER, THEIRS));
        host.must(answer == expected, format_args!("RFC 826: {answer:?}, not {expected:?}"));
        for (to, hears) in [(before, false), (mac, true)] {
            let mut packet = Packet::new(THEIRS, OURS[0], UDP, udp(600, 500, b"datagram"));
            packet.to = to;
            host.give(packet.filled());
            let heard = host.take(socket).is_some();
            host.must(heard == hears, format_args!("IEEE 802.3: a frame for {to} is heard ({heard}) by {mac}, which was {before}"));
        }
        let (to, sent) = goes_to(&mut host, socket, THEIRS);
        let from = sent.last().map(Sent::sender_mac);
        host.must(to == Some(PEER) && from == Some(mac), format_args!("RFC 826: a datagram goes from {from:?} to {to:?}"));
    }
    host.close(socket);
    host.is_empty();
}

/// RFC 1122 s2.3.2.1, RFC 4861 s7.3.2 as Linux has it: a neighbour that may have moved is asked alone, three times and a second apart, and gets what is sent meanwhile; then
/// everybody is asked, as often; and nobody any more once it has answered, or nobody has.
pub(in crate::drills) fn silent(bench: &mut Bench) {
    let mut host = Host::new(bench, Link::Asked);
    let mac = MacAddr([2, 0, 0, 1, 0, 1]);
    let from = socket(&mut host, UdpOptions::default());
    let sent = host.send(from, b"first", to(THEIRS), false);
    host.must(sent == Ok(5), format_args!("send(2): {sent:?}"));
    host.give(arp(OWN, REPLY, (mac, THEIRS), (OWN, OURS[0])));
    // (Linux's base_reachable_time, and a little more.)
    let pause = host.bench.between(30_001, 90_000);
    host.pass(Duration::from_millis(pause));
    host.sent();
    let begun = host.now;
    let sent = host.send(from, b"second", to(THEIRS), false);
    host.must(sent == Ok(6), format_args!("send(2): {sent:?}"));
    let answered = host.bench.below(9) as usize;
    let mut frames = host.sent();
    let goes = frames.iter().any(|frame| frame.datagram().is_some() && frame.to_mac() == mac);
    host.must(goes, "RFC 4861 s7.3.2: what is sent to a neighbour that may have moved waits");
    let ask = |count: usize| [vec![mac; count.min(3)], vec![MacAddr::BROADCAST; count.saturating_sub(3)]].concat();
    let expected = ask(answered.clamp(1, 6));
    if (1..=6).contains(&answered) {
        let rest = host.bench.below(900);
        host.pass(Duration::from_millis(1000 * (answered as u64 - 1) + rest));
        host.give(arp(OWN, REPLY, (mac, THEIRS), (OWN, OURS[0])));
        host.pass(Duration::from_secs(10));
    } else {
        host.pass(Duration::from_secs(20));
    }
    frames.extend(host.sent());
    let asked = requests(&frames, THEIRS);
    let expected = if (1..=6).contains(&answered) { expected } else { ask(6) };
    host.must(asked == expected, format_args!("RFC 1122 s2.3.2.1: asked at {asked:?}, answered after {answered}, not at {expected:?}"));
    let times = frames.iter().filter(|frame| !requests(core::slice::from_ref(frame), THEIRS).is_empty()).map(|frame| frame.at);
    let early = times.zip(0..).find(|(at, number)| at.since(begun) + crate::drills::bench::TICK < Duration::from_secs(*number));
    host.must(early.is_none(), format_args!("RFC 1122 s2.3.2.1: asked again at {early:?}, within a second"));
    host.close(from);
    host.is_empty();
}
