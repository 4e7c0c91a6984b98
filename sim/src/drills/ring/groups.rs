//! Groups: who hears them (ip(7), IP_ADD_MEMBERSHIP, IP_DROP_MEMBERSHIP, IP_MULTICAST_LOOP, IP_MULTICAST_TTL; RFC 1112 s6, s7).

use std::net::{Ipv4Addr, SocketAddrV4};

use ringway_stack::Error;
use ringway_stack::device::MacAddr;
use ringway_stack::ring::{FlowId, NextHop, Readiness, Reuse, UdpOptions};

use super::host::{ANY, Host, Link, OURS, address};
use crate::addresses::{neighbour, v4};
use crate::drills::bench::Bench;

const GROUPS: [Ipv4Addr; 3] = [Ipv4Addr::new(239, 1, 2, 3), Ipv4Addr::new(239, 129, 2, 3), Ipv4Addr::new(224, 5, 6, 7)];
const PORTS: [u16; 2] = [500, 501];

/// A socket of the model.
struct Member {
    socket: FlowId,
    bound: SocketAddrV4,
    peer: Option<SocketAddrV4>,
    joined: Vec<Ipv4Addr>,
    /// It reads nothing, and has room for one datagram.
    is_full: bool,
}

impl Member {
    fn hears(&self, from: SocketAddrV4, group: SocketAddrV4) -> bool {
        let is_bound = self.bound.port() == group.port() && (self.bound.ip().is_unspecified() || self.bound.ip() == group.ip());
        is_bound && self.joined.contains(group.ip()) && self.peer.is_none_or(|peer| peer == from)
    }
}

fn member(host: &mut Host<'_>) -> Member {
    let ip = host.bench.pick(&[ANY, ANY, ANY, GROUPS[0], GROUPS[1], OURS[0]]);
    let bound = SocketAddrV4::new(ip, host.bench.pick(&PORTS));
    let is_full = host.bench.chance(4);
    let rcvbuf = if is_full { 1 } else { 100_000 };
    let socket = host.open(bound, UdpOptions { reuse: Reuse::Address, rcvbuf, ..UdpOptions::default() });
    let peer = (ip.is_multicast() && host.bench.chance(2)).then(|| address(2, 600));
    if let Some(peer) = peer {
        let connected = host.ring.udp_connect(socket, OURS[0].into(), Some((peer.into(), neighbour(peer))));
        // (Two may not have the same peer: the address is taken then.)
        host.must(matches!(connected, Ok(()) | Err(Error::AddressInUse)), format_args!("connect(2): {connected:?}"));
    }
    let peer = host.ring.info(socket).and_then(|info| info.remote).map(v4);
    Member { socket, bound, peer, joined: Vec::new(), is_full }
}

/// ip(7): every member hears each datagram for its group and port once, whatever others do, and nobody else hears it; who leaves hears no more.
pub(in crate::drills) fn members(bench: &mut Bench) {
    let mut host = Host::new(bench, Link::Asked);
    let mut members: Vec<_> = (0..host.bench.between(2, 6)).map(|_| member(&mut host)).collect();
    for _ in 0..host.bench.between(20, 60) {
        let (which, group) = (host.bench.below(members.len() as u64) as usize, host.bench.pick(&GROUPS));
        let member = &mut members[which];
        match host.bench.below(6) {
            0 | 1 => {
                let joined = host.ring.udp_join(host.now, member.socket, group.into(), OURS[0].into());
                let expected = if member.joined.contains(&group) { Err(Error::AddressInUse) } else { Ok(()) };
                host.must(
                    joined == expected,
                    format_args!("ip(7), IP_ADD_MEMBERSHIP: {joined:?} of {group}, a member of {:?}", member.joined),
                );
                if joined.is_ok() {
                    member.joined.push(group);
                }
            }
            2 => {
                let left = host.ring.udp_leave(host.now, member.socket, group.into());
                let expected = if member.joined.contains(&group) { Ok(()) } else { Err(Error::AddressNotAvailable) };
                host.must(
                    left == expected,
                    format_args!("ip(7), IP_DROP_MEMBERSHIP: {left:?} of {group}, a member of {:?}", member.joined),
                );
                member.joined.retain(|joined| *joined != group);
            }
            3 if host.bench.chance(3) => {
                let gone = members.swap_remove(which);
                host.close(gone.socket);
                let new = self::member(&mut host);
                members.push(new);
            }
            _ => {}
        }
        host.sent();
        let listed = members.iter().all(|member| host.ring.udp_groups(member.socket) == member.joined);
        host.must(listed, "ip(7): a socket's groups are not those that it joined");
        let (from, to) = (address(2, 600 + host.bench.below(2) as u16), SocketAddrV4::new(group, host.bench.pick(&PORTS)));
        hear(&mut host, &members, from, to);
        host.silence("RFC 1122 s3.2.2: a group's datagram is answered");
    }
    for member in members {
        host.close(member.socket);
    }
    host.is_empty();
}

/// Who hears a datagram for a group.
fn hear(host: &mut Host<'_>, members: &[Member], from: SocketAddrV4, to: SocketAddrV4) {
    for member in members {
        host.edges(member.socket);
    }
    let payload = host.bytes(20);
    host.hand(from, to, &payload);
    for member in members.iter().filter(|member| !member.is_full) {
        let is_told = host.edges(member.socket).contains(Readiness::IN);
        let heard = host.take(member.socket);
        let hears = member.hears(from, to);
        host.must(
            heard.is_some() == hears && is_told == hears,
            format_args!(
                "ip(7), IP_ADD_MEMBERSHIP: {to} is heard ({}) by a member of {:?} at {}",
                heard.is_some(),
                member.joined,
                member.bound
            ),
        );
        let right = heard.is_none_or(|(sender, bytes)| sender == from && bytes == payload);
        host.must(right, "ip(7): a group's datagram is not what was sent");
        let again = host.take(member.socket).is_some();
        host.must(!again, "ip(7): a group's datagram is heard twice");
    }
}

/// ip(7), IP_MULTICAST_LOOP, IP_MULTICAST_TTL, IP_TOS: what a socket sends to a group goes out with its options, to the group's own Ethernet address, and is
/// heard here, if it loops, by all members, the sender too.
pub(in crate::drills) fn loops(bench: &mut Bench) {
    let mut host = Host::new(bench, Link::Asked);
    let local = SocketAddrV4::new(ANY, PORTS[0]);
    let (multicast_ttl, ttl, tos) = (host.bench.below(256) as u8, host.bench.between(1, 255) as u8, host.bench.below(64) as u8 * 4);
    let sender = host.open(local, UdpOptions { reuse: Reuse::Address, multicast_ttl, ttl, tos, ..UdpOptions::default() });
    let second = host.open(local, UdpOptions { reuse: Reuse::Address, ..UdpOptions::default() });
    let third = host.open(SocketAddrV4::new(ANY, PORTS[1]), UdpOptions::default());
    let mut joined = [false; 3];
    for (at, socket) in [sender, second, third].into_iter().enumerate() {
        if !host.bench.chance(4) {
            let outcome = host.ring.udp_join(host.now, socket, GROUPS[0].into(), OURS[0].into());
            host.must(outcome.is_ok(), format_args!("ip(7), IP_ADD_MEMBERSHIP: {outcome:?}"));
            joined[at] = true;
        }
    }
    host.sent();
    for _ in 0..6 {
        let (loops, port) = (host.bench.chance(2), host.bench.pick(&PORTS));
        let configured = host.ring.udp_configure(sender, |options| options.multicast_loop = loops);
        host.must(configured.is_ok(), format_args!("setsockopt(2): {configured:?}"));
        let len = host.bench.below(1400) as usize;
        let payload = host.bytes(len);
        let to = SocketAddrV4::new(GROUPS[0], port);
        let sent = host.send(sender, &payload, Some((to, NextHop::Neighbour(GROUPS[0].into()))), false);
        host.must(sent == Ok(len), format_args!("send(2): {sent:?} of {len} bytes"));
        let frames = host.sent();
        host.must(frames.len() == 1, format_args!("RFC 1112 s6: {} frames for a datagram", frames.len()));
        let from = SocketAddrV4::new(OURS[0], PORTS[0]);
        let found = frames.first().and_then(|frame| Some((frame.to_mac(), frame.ttl_and_tos()?, frame.datagram()?)));
        host.must(
            found == Some((MacAddr::of_group(GROUPS[0].into()), (multicast_ttl, tos), (from, to, &payload[..]))),
            format_args!("ip(7), IP_MULTICAST_TTL, IP_TOS: {:?}, of {:?}", found.map(|(mac, kind, _)| (mac, kind)), (multicast_ttl, tos)),
        );
        for (at, (socket, its)) in [(sender, PORTS[0]), (second, PORTS[0]), (third, PORTS[1])].into_iter().enumerate() {
            let heard = host.take(socket);
            let hears = loops && joined[at] && its == port;
            host.must(
                heard == hears.then(|| (from, payload.clone())),
                format_args!("ip(7), IP_MULTICAST_LOOP: number {at} of three heard ({}), and should ({hears})", heard.is_some()),
            );
        }
    }
    [sender, second, third].into_iter().for_each(|socket| host.close(socket));
    host.is_empty();
}
