//! Calls on datagram sockets: shutdown(2), send(2), connect(2), and SO_REUSEADDR and SO_REUSEPORT of socket(7).

use std::net::{Ipv4Addr, SocketAddrV4};

use ringway_stack::Error;
use ringway_stack::ring::{FlowId, NextHop, Readiness, Reuse, Shutdown, UdpOptions};

use super::host::{ANY, Host, OURS, address};
use crate::addresses::v4;
use crate::drills::bench::Bench;
use crate::drills::card::PEER;

const PORT: u16 = 500;
const DIRECT: NextHop = NextHop::Mac(PEER);

/// shutdown(2), socket(2), poll(2): halves that are shut stay shut; EPIPE where one cannot write, end of file and hangup where they say so; without a peer
/// ENOTCONN, and it takes effect all the same.
pub(in crate::drills) fn halves(bench: &mut Bench) {
    let mut host = super::host(bench);
    let socket = host.open(address(1, PORT), UdpOptions::default());
    let is_connected = host.bench.chance(2);
    if is_connected {
        let connected = host.ring.udp_connect(socket, OURS[0].into(), Some((address(2, 600).into(), DIRECT)));
        host.must(connected.is_ok(), format_args!("connect(2): {connected:?}"));
    }
    let (mut read, mut write) = (false, false);
    for _ in 0..4 {
        let sent = host.send(socket, b"datagram", Some((address(2, 600), DIRECT)), false);
        host.must(
            sent == if write { Err(Error::Pipe) } else { Ok(8) },
            format_args!("send(2), EPIPE: {sent:?} of a socket that is shut for writing ({write})"),
        );
        let frames = host.sent().len();
        host.must(frames == usize::from(!write), format_args!("shutdown(2): {frames} datagrams are sent, shut for writing ({write})"));
        let ready = host.ring.readiness(socket);
        let expected = [(Readiness::IN, read), (Readiness::RDHUP, read), (Readiness::HUP, read && write), (Readiness::OUT, true)];
        for (flag, is_so) in expected {
            host.must(
                ready.contains(flag) == is_so,
                format_args!("poll(2): {ready:?} of a socket shut for reading ({read}), writing ({write})"),
            );
        }
        let how = host.bench.pick(&[Shutdown::Read, Shutdown::Write, Shutdown::Both]);
        host.edges(socket);
        let shut = host.ring.shutdown(host.now, socket, how);
        let expected = if is_connected { Ok(()) } else { Err(Error::NotConnected) };
        host.must(shut == expected, format_args!("shutdown(2): {shut:?} of a socket with a peer ({is_connected})"));
        let news = how != Shutdown::Write;
        read |= how != Shutdown::Write;
        write |= how != Shutdown::Read;
        let edges = host.edges(socket);
        host.must(
            !news || edges.contains(Readiness::IN | Readiness::RDHUP),
            format_args!("epoll(7): {edges:?} once it is shut for reading"),
        );
    }
    host.close(socket);
    host.is_empty();
}

/// send(2), udp(7), ip(7): each length up to the longest that fits goes out whole and sound, in however many pieces it was written and however short the
/// device's buffers are; one more byte is EMSGSIZE; TTL, type of service, addresses and counters are those of the socket.
pub(in crate::drills) fn sizes(bench: &mut Bench) {
    let mut host = super::host(bench);
    host.port.borrow_mut().buffer_len = host.bench.pick(&[2048, 1500, 997, 301, 64, 63]);
    let (ttl, tos) = (host.bench.between(1, 255) as u8, host.bench.below(256) as u8 & 0xfc);
    let socket = host.open(address(1, PORT), UdpOptions { ttl, tos, ..UdpOptions::default() });
    let to = address(2, 600);
    let (mut packets, mut bytes) = (0, 0);
    for _ in 0..40 {
        let len = match host.bench.below(4) {
            0 => host.bench.below(1473) as usize,
            1 => host.bench.between(200, 280) as usize,
            2 => host.bench.between(1468, 1476) as usize,
            _ => host.bench.below(10) as usize,
        };
        let payload = host.bytes(len);
        let tries = host.bench.chance(2);
        let sent = host.send(socket, &payload, Some((to, DIRECT)), tries);
        let frames = host.sent();
        if len > 1472 {
            host.must(sent == Err(Error::MessageTooLong), format_args!("send(2), EMSGSIZE: {sent:?} of {len} bytes on a link of 1500"));
            host.must(frames.is_empty(), "send(2), EMSGSIZE: something is sent");
            continue;
        }
        (packets, bytes) = (packets + 1, bytes + len as u64);
        // (Short buffers carry no more than a device gathers.)
        host.must(sent == Ok(len), format_args!("send(2): {sent:?} of {len} bytes on a link of 1500"));
        host.must(frames.len() == 1, format_args!("send(2): {} frames for a datagram", frames.len()));
        let is_it = frames.first().and_then(|frame| frame.datagram()) == Some((address(1, PORT), to, &payload[..]));
        host.must(is_it, format_args!("send(2): what goes out is not what was written, {len} bytes"));
        let found = frames.first().and_then(|frame| frame.ttl_and_tos());
        host.must(found == Some((ttl, tos)), format_args!("ip(7), IP_TTL, IP_TOS: {found:?}, of {:?}", (ttl, tos)));
        let counters = host.ring.info(socket).map(|info| info.counters).unwrap_or_default();
        host.must(
            (counters.tx_packets, counters.tx_bytes) == (packets, bytes),
            format_args!("{} datagrams of {} bytes count as sent, of {packets} of {bytes}", counters.tx_packets, counters.tx_bytes),
        );
    }
    host.close(socket);
    host.is_empty();
}

/// What the device does not take is the caller's, and not counted, where it asked to be told; else it is lost, and counted as lost.
pub(in crate::drills) fn refused(bench: &mut Bench) {
    let mut host = super::host(bench);
    let socket = host.open(address(1, PORT), UdpOptions::default());
    let (mut packets, mut bytes, mut drops, mut sent) = (0, 0, 0, 0);
    for _ in 0..20 {
        let (tries, len) = (host.bench.chance(2), host.bench.below(1400) as usize);
        let takes = host.bench.chance(2);
        host.port.borrow_mut().room = Some(usize::from(takes));
        let payload = host.bytes(len);
        let outcome = host.send(socket, &payload, Some((address(2, 600), DIRECT)), tries);
        let expected = if takes || !tries { Ok(len) } else { Err(Error::WouldBlock) };
        host.must(outcome == expected, format_args!("send(2): {outcome:?}, of a device that takes it ({takes})"));
        if outcome.is_ok() {
            (packets, bytes) = (packets + 1, bytes + len as u64);
        }
        drops += u64::from(!takes && !tries);
        sent += usize::from(takes);
        let counters = host.ring.info(socket).map(|info| info.counters).unwrap_or_default();
        host.must(
            (counters.tx_packets, counters.tx_bytes) == (packets, bytes),
            format_args!("{} datagrams of {} bytes count as sent, of {packets} of {bytes}", counters.tx_packets, counters.tx_bytes),
        );
        let lost = host.ring.counters().tx_drops;
        host.must(lost == drops, format_args!("{lost} datagrams count as lost, of {drops}"));
    }
    let frames = host.sent().len();
    host.must(frames == sent, format_args!("{frames} datagrams are on the wire, of {sent}"));
    host.close(socket);
    host.is_empty();
}

/// connect(2), udp(7): only the peer is heard, and no former one, whoever was the peer before; without one, everybody, at every address that was bound;
/// and the socket holds one rule and one flow.
pub(in crate::drills) fn peers(bench: &mut Bench) {
    let mut host = super::host(bench);
    let is_wild = host.bench.chance(2);
    let bound = if is_wild { SocketAddrV4::new(ANY, PORT) } else { address(1, PORT) };
    let reuse = host.bench.pick(&[Reuse::No, Reuse::Address, Reuse::Port]);
    let socket = host.open(bound, UdpOptions { reuse, ..UdpOptions::default() });
    let candidates: [SocketAddrV4; 4] = [address(2, 600), address(2, 601), address(3, 600), address(4, 7)];
    let mut peer: Option<SocketAddrV4> = None;
    for _ in 0..host.bench.between(3, 12) {
        let source = host.bench.pick(&OURS);
        let next = (!host.bench.chance(4)).then(|| host.bench.pick(&candidates));
        let connected = host.ring.udp_connect(socket, source.into(), next.map(|peer| (peer.into(), DIRECT)));
        host.must(connected.is_ok(), format_args!("connect(2): {connected:?} to {next:?}, after {peer:?}"));
        peer = next;
        let info = host.ring.info(socket).map(|info| (v4(info.local), info.remote.map(v4)));
        let local = match (is_wild, peer) {
            (true, Some(_)) => SocketAddrV4::new(source, PORT),
            _ => bound,
        };
        host.must(info == Some((local, peer)), format_args!("getsockname(2), getpeername(2): {info:?}, of {local} and {peer:?}"));
        for from in candidates {
            for ours in OURS {
                host.hand(from, SocketAddrV4::new(ours, PORT), b"datagram");
                let heard = host.take(socket).is_some();
                let hears = peer.is_none_or(|peer| peer == from) && (local.ip().is_unspecified() || *local.ip() == ours);
                host.must(
                    heard == hears,
                    format_args!("connect(2): {from} is heard ({heard}) at {ours}, by a socket of {local} with the peer {peer:?}"),
                );
            }
        }
        host.sent();
        let (rules, flows) = (host.port.borrow().rules.len(), host.ring.usage().addresses);
        host.must(rules == 1 && flows == 1, format_args!("a socket has {rules} rules and {flows} flows"));
        let sent = host.send(socket, b"answer", None, false);
        let expected = if peer.is_some() { Ok(6) } else { Err(Error::DestinationRequired) };
        host.must(sent == expected, format_args!("send(2), EDESTADDRREQ: {sent:?} with the peer {peer:?}"));
        let frames = host.sent();
        let ends = frames.first().and_then(|frame| frame.datagram()).map(|(from, to, _)| (from, Some(to)));
        host.must(ends == peer.map(|peer| (local, Some(peer))), format_args!("send(2): {ends:?}, of {local} to {peer:?}"));
    }
    host.close(socket);
    host.is_empty();
    host.hand(candidates[0], address(1, PORT), b"datagram");
    let errors = host.sent().iter().filter(|frame| frame.is(super::host::ICMP)).count();
    host.must(errors == 1, format_args!("RFC 1122 s4.1.3.1: {errors} errors for a port that is closed"));
}

/// socket(7): sockets share an address if all of them let it be shared; the youngest is heard, or, where it shares the port, one of those that do, always
/// the same for one sender. What left is not heard, and has no part in it.
pub(in crate::drills) fn sharers(bench: &mut Bench) {
    let mut host = super::host(bench);
    let local = address(1, PORT);
    let mut members: Vec<(FlowId, Reuse)> = Vec::new();
    let mut exclusive: Option<FlowId> = None;
    for _ in 0..host.bench.between(5, 40) {
        let leaves = host.bench.chance(3) && !members.is_empty();
        if leaves {
            let at = host.bench.below(members.len() as u64) as usize;
            let (socket, _) = members.remove(at);
            host.close(socket);
        } else if let Some(socket) = exclusive.take() {
            host.close(socket);
        } else {
            let reuse = host.bench.pick(&[Reuse::No, Reuse::Address, Reuse::Port, Reuse::Address, Reuse::Port]);
            let opened = host.ring.udp_open(local.into(), &UdpOptions { reuse, ..UdpOptions::default() });
            let fits = members.is_empty() || reuse != Reuse::No;
            host.must(
                opened.is_ok() == fits && (fits || opened == Err(Error::AddressInUse)),
                format_args!("bind(2), EADDRINUSE: {opened:?} of {reuse:?} beside {members:?}"),
            );
            match opened {
                Ok(socket) if reuse == Reuse::No => exclusive = Some(socket),
                Ok(socket) => members.push((socket, reuse)),
                Err(_) => {}
            }
        }
        if let Some(socket) = exclusive {
            for reuse in [Reuse::No, Reuse::Address, Reuse::Port] {
                let second = host.ring.udp_open(local.into(), &UdpOptions { reuse, ..UdpOptions::default() });
                host.must(
                    second == Err(Error::AddressInUse),
                    format_args!("bind(2), EADDRINUSE: {second:?} of {reuse:?} beside one that does not share"),
                );
            }
            host.hand(address(2, 600), local, b"datagram");
            let heard = host.take(socket).is_some();
            host.must(heard, "socket(7): the only socket of an address does not hear");
        }
        let expected = members.len() + usize::from(exclusive.is_some());
        let (rules, usage) = (host.port.borrow().rules.len(), host.ring.usage());
        host.must(
            rules == expected && usage.addresses == expected && usage.flows == expected,
            format_args!("{expected} sockets of an address have {rules} rules, and {usage:?}"),
        );
        if members.is_empty() {
            continue;
        }
        hear(&mut host, local, &members);
    }
    for (socket, _) in members {
        host.close(socket);
    }
    exclusive.into_iter().for_each(|socket| host.close(socket));
    host.is_empty();
}

/// Who of those that share an address hears some senders.
fn hear(host: &mut Host<'_>, local: SocketAddrV4, members: &[(FlowId, Reuse)]) {
    let Some(&(youngest, how)) = members.last() else { return };
    for port in 600..604 {
        let mut hearers = Vec::new();
        for _ in 0..2 {
            host.hand(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), port), local, b"datagram");
            let heard: Vec<_> = members.iter().filter(|&&(socket, _)| host.take(socket).is_some()).copied().collect();
            host.must(
                heard.len() == 1,
                format_args!("socket(7), SO_REUSEADDR: {} of {} sockets heard a datagram", heard.len(), members.len()),
            );
            hearers.extend(heard);
        }
        host.must(hearers[0].0 == hearers[1].0, "socket(7), SO_REUSEPORT: one sender is heard by two sockets in turn");
        let (socket, reuse) = hearers[0];
        let is_right = if how == Reuse::Port { reuse == Reuse::Port } else { socket == youngest };
        host.must(is_right, format_args!("socket(7), SO_REUSEADDR: {socket:?} heard, of {members:?}"));
    }
}
