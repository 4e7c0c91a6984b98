//! Reports of membership: when a host enters a group, leaves it and is asked (RFC 2236).

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddrV4};

use ringway_stack::device::MacAddr;
use ringway_stack::ring::{FlowId, Reuse, UdpOptions};

use super::host::{ANY, Host, IGMP, Link, OURS, Packet, Sent, THEIRS};
use crate::checksum;
use crate::drills::bench::{Bench, TICK};

const GROUPS: [Ipv4Addr; 5] = [
    Ipv4Addr::new(239, 1, 2, 3),
    Ipv4Addr::new(239, 1, 2, 4),
    Ipv4Addr::new(239, 129, 2, 3),
    Ipv4Addr::new(224, 5, 6, 7),
    Ipv4Addr::new(232, 0, 0, 9),
];
const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const REPORT: u8 = 0x16;
const LEAVE: u8 = 0x17;
/// RFC 2236 s8.10: the unsolicited report interval.
const SOON: Duration = Duration::from_secs(10);

/// A message that the stack sent: its type and group. Each is as RFC 2236 s2, s9 has it: TTL 1, a router alert, for the right destination.
fn message(host: &Host<'_>, frame: &Sent) -> (u8, Ipv4Addr) {
    let Some(ip) = frame.ip().filter(|ip| ip.protocol == IGMP) else {
        host.must(false, "RFC 2236: a frame that is no IGMP message");
        return (0, ANY);
    };
    let igmp = &frame.bytes[ip.l4..ip.end];
    let group = Ipv4Addr::new(igmp[4], igmp[5], igmp[6], igmp[7]);
    let ttl = frame.bytes[ip.offset + 8];
    host.must(ttl == 1, format_args!("RFC 2236 s2: an IGMP message with a TTL of {ttl}"));
    let options = &frame.bytes[ip.offset + 20..ip.l4];
    host.must(options == [0x94, 4, 0, 0], format_args!("RFC 2236 s2: {options:?} as the router alert"));
    host.must(igmp.len() == 8 && checksum::sum(0, igmp) == 0xffff, "RFC 2236 s2.3: a message's checksum is wrong");
    host.must(igmp[1] == 0, "RFC 2236 s2.2: a report has no response time");
    let expected = if igmp[0] == LEAVE { ALL_ROUTERS } else { group };
    host.must(ip.dst == expected, format_args!("RFC 2236 s9: a message of type {:#x} about {group} goes to {}", igmp[0], ip.dst));
    let mac = frame.to_mac();
    host.must(mac == MacAddr::of_group(expected.into()), format_args!("RFC 1112 s6.4: a message for {expected} goes to {mac}"));
    (igmp[0], group)
}

fn member(host: &mut Host<'_>) -> FlowId {
    host.open(SocketAddrV4::new(ANY, 500), UdpOptions { reuse: Reuse::Address, ..UdpOptions::default() })
}

/// RFC 2236 s3, s6: who enters a group says so at once, and again soon; who is in it already says nothing more; and the last to leave says that.
pub(in crate::drills) fn reports(bench: &mut Bench) {
    let mut host = Host::new(bench, Link::Asked);
    let sockets: Vec<_> = (0..3).map(|_| member(&mut host)).collect();
    let mut joined: Vec<(FlowId, Ipv4Addr)> = Vec::new();
    for _ in 0..host.bench.between(5, 30) {
        let (socket, group) = (host.bench.pick(&sockets), host.bench.pick(&[GROUPS[0], GROUPS[1], ALL_SYSTEMS]));
        let is_local = group == ALL_SYSTEMS;
        let others = joined.iter().filter(|(_, its)| *its == group).count();
        if let Some(at) = joined.iter().position(|&known| known == (socket, group)) {
            joined.remove(at);
            let left = host.ring.udp_leave(host.now, socket, group.into());
            host.must(left.is_ok(), format_args!("ip(7), IP_DROP_MEMBERSHIP: {left:?}"));
            let said: Vec<_> = host.sent().iter().map(|frame| message(&host, frame)).collect();
            let expected = if others == 1 && !is_local { vec![(LEAVE, group)] } else { Vec::new() };
            host.must(said == expected, format_args!("RFC 2236 s3: {said:?} when one of {others} members of {group} leaves"));
        } else {
            let entered = host.ring.udp_join(host.now, socket, group.into(), OURS[0].into());
            host.must(entered.is_ok(), format_args!("ip(7), IP_ADD_MEMBERSHIP: {entered:?}"));
            joined.push((socket, group));
            let said: Vec<_> = host.sent().iter().map(|frame| message(&host, frame)).collect();
            let expected = if others == 0 && !is_local { vec![(REPORT, group)] } else { Vec::new() };
            host.must(said == expected, format_args!("RFC 2236 s3: {said:?} when a member enters {group} beside {others}"));
            host.pass(SOON + TICK);
            let again: Vec<_> = host.sent().iter().map(|frame| message(&host, frame)).collect();
            let right = again.iter().all(|said| *said == (REPORT, group)) && again.is_empty() == expected.is_empty();
            host.must(right, format_args!("RFC 2236 s3: {again:?} within ten seconds of entering {group} beside {others}"));
        }
        // What was said is said, and nobody asked.
        host.pass(Duration::from_secs(60));
        host.silence("RFC 2236 s3: a report that nobody asked for");
    }
    sockets.into_iter().for_each(|socket| host.close(socket));
    host.sent();
    host.is_empty();
}

/// A router's question.
fn ask(host: &mut Host<'_>, about: Option<Ipv4Addr>, max_response_ds: u8) {
    let group = about.unwrap_or(ANY);
    let mut body = [&[0x11, max_response_ds, 0, 0][..], &group.octets()].concat();
    let sum = !checksum::sum(0, &body);
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = Packet::new(THEIRS, about.unwrap_or(ALL_SYSTEMS), IGMP, body);
    packet.options = vec![0x94, 4, 0, 0];
    host.give(packet.frame());
}

/// RFC 2236 s3, s4: each group that is asked about, and no other, is reported once within the time that the router gives, spread over it; a router of
/// version 1 gives ten seconds; and who only wakes at the stack's deadlines is in time.
pub(in crate::drills) fn questions(bench: &mut Bench) {
    let mut host = Host::new(bench, Link::Asked);
    let socket = member(&mut host);
    let mut joined = Vec::new();
    for group in GROUPS {
        if !host.bench.chance(4) {
            let entered = host.ring.udp_join(host.now, socket, group.into(), OURS[0].into());
            host.must(entered.is_ok(), format_args!("ip(7), IP_ADD_MEMBERSHIP: {entered:?}"));
            joined.push(group);
        }
    }
    host.pass(Duration::from_secs(30));
    host.sent();
    for _ in 0..6 {
        let about = host.bench.chance(2).then(|| host.bench.pick(&GROUPS));
        let tenths = host.bench.pick(&[0, 1, 10, 100, 255]);
        let within = if tenths == 0 { SOON } else { Duration::from_millis(100) * u32::from(tenths) };
        let asked_at = host.now;
        ask(&mut host, about, tenths);
        host.pass(Duration::from_secs(60));
        let sent = host.sent();
        let mut said: Vec<_> = sent.iter().map(|frame| message(&host, frame)).collect();
        said.sort_unstable();
        // (A group that no one here knows is asked about as well: its frames may not even come.)
        let mut expected: Vec<_> =
            joined.iter().filter(|group| about.is_none_or(|about| about == **group)).map(|group| (REPORT, *group)).collect();
        expected.sort_unstable();
        host.must(said == expected, format_args!("RFC 2236 s3: {said:?} after a question about {about:?}, in the groups {joined:?}"));
        let late = sent.iter().map(|frame| frame.at.since(asked_at)).max().unwrap_or_default();
        host.must(late <= within + TICK, format_args!("RFC 2236 s3: a report after {late:?}, where {within:?} were given"));
        let early = sent.iter().filter(|frame| frame.at.since(asked_at) < within / 2000).count();
        host.must(early < 3, format_args!("RFC 2236 s3: {early} reports at once, of {within:?} that they are to be spread over"));
    }
    host.close(socket);
    host.sent();
    host.is_empty();
}

/// ip(7), igmp_max_memberships: a socket may be a member of twenty groups, and of others once it has left some.
pub(in crate::drills) fn limit(bench: &mut Bench) {
    const MOST: usize = 20;
    let mut host = Host::new(bench, Link::Asked);
    let sockets = [member(&mut host), member(&mut host)];
    let mut next = 0;
    let mut fresh = || {
        next += 1;
        Ipv4Addr::new(239, 2, 3, next)
    };
    let mut joined: Vec<Ipv4Addr> = Vec::new();
    for _ in 0..40 {
        if !joined.is_empty() && host.bench.chance(8) {
            let group = joined.remove(host.bench.below(joined.len() as u64) as usize);
            let left = host.ring.udp_leave(host.now, sockets[0], group.into());
            host.must(left.is_ok(), format_args!("ip(7), IP_DROP_MEMBERSHIP: {left:?} of a group that was joined"));
            continue;
        }
        let group = fresh();
        let entered = host.ring.udp_join(host.now, sockets[0], group.into(), OURS[0].into());
        let expected = if joined.len() < MOST { Ok(()) } else { Err(ringway_stack::Error::NoBuffers) };
        host.must(entered == expected, format_args!("ip(7), IP_ADD_MEMBERSHIP, ENOBUFS: {entered:?} with {} groups", joined.len()));
        joined.extend(entered.is_ok().then_some(group));
        // (Another socket's are its own.)
        let count = host.ring.udp_groups(sockets[0]).len();
        host.must(count == joined.len(), format_args!("ip(7): a member of {count} groups, and {} were joined", joined.len()));
    }
    let other = host.ring.udp_join(host.now, sockets[1], fresh().into(), OURS[0].into());
    host.must(other.is_ok(), format_args!("ip(7), IP_ADD_MEMBERSHIP: {other:?} of a socket's first group"));
    sockets.into_iter().for_each(|socket| host.close(socket));
    host.sent();
    host.is_empty();
}
