//! A link with neighbours: what waits for their addresses, and reports of membership (RFC 826, RFC 1122 s2.3.2, RFC 2236).

use core::time::Duration;
use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddrV4};

use ringway_stack::device::MacAddr;
use ringway_stack::ring::{NextHop, UdpOptions};

use super::Drill;
use super::bench::Bench;
use super::card::{OWN, PEER};
use crate::checksum;
use crate::dissect::{self, Payload};

pub(super) const DRILLS: &[Drill] = &[("datagrams for an unknown neighbour", unknown_neighbour), ("questions about a group", questions)];

const LOCAL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 500);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const IGMP: u8 = 2;

/// RFC 1122 s2.3.2.2: while an address is asked for, the latest packet for it is kept at least, and sent once it is known.
fn unknown_neighbour(bench: &mut Bench) {
    bench.join_link();
    let socket = bench.ring.udp_open(LOCAL.into(), &UdpOptions::default()).expect("the port is free");
    let count = bench.between(1, 200) as u32;
    let to = SocketAddrV4::new(THEIRS, 600);
    let mut frames = Vec::new();
    for number in 0..count {
        let to = Some((to.into(), NextHop::Neighbour(THEIRS.into())));
        let sent = bench.ring.udp_send(bench.now, socket, &[IoSlice::new(&number.to_be_bytes())], OURS.into(), to);
        bench.must(sent == Ok(4), format_args!("send(2): {sent:?}"));
        frames.extend(bench.frames(Duration::ZERO));
    }
    let asks = frames.iter().filter(|(_, frame)| matches!(dissect::payload(frame), Payload::Lookup(_))).count();
    bench.must(asks == 1 && frames.len() == 1, format_args!("RFC 1122 s2.3.2.1: {asks} requests of {} frames", frames.len()));
    let mut reply = [&OWN.0[..], &PEER.0[..], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &PEER.0[..], &THEIRS.octets()[..]].concat();
    reply.extend([&OWN.0[..], &OURS.octets()[..]].concat());
    bench.give_frame(reply);
    let released = bench.frames(Duration::ZERO);
    let last = released.iter().rev().find_map(|(_, frame)| match dissect::payload(frame) {
        Payload::Ip(ip) => dissect::be32(frame, ip.l4 + 8),
        _ => None,
    });
    bench.must(
        last == Some(count - 1),
        format_args!("RFC 1122 s2.3.2.2: {last:?} is the last of {count} datagrams that the neighbour gets once it is known"),
    );
    bench.ring.close(bench.now, socket, false);
}

/// RFC 2236 s3: who is asked about a group reports it within the time that the router gave, whatever other routers ask meanwhile.
fn questions(bench: &mut Bench) {
    bench.join_link();
    let socket = bench.ring.udp_open(LOCAL.into(), &UdpOptions::default()).expect("the port is free");
    let joined = bench.ring.udp_join(bench.now, socket, GROUP.into(), OURS.into());
    bench.must(joined.is_ok(), format_args!("setsockopt(2), IP_ADD_MEMBERSHIP: {joined:?}"));
    bench.frames(Duration::from_secs(30));
    for _ in 0..3 {
        let soon = bench.between(1, 20) as u8;
        let due = bench.now + Duration::from_millis(100) * u32::from(soon);
        ask(bench, soon);
        let mut heard = bench.frames(Duration::ZERO);
        for _ in 0..bench.below(4) {
            let later = bench.between(u64::from(soon), 255) as u8;
            ask(bench, later);
            heard.extend(bench.frames(Duration::ZERO));
        }
        heard.extend(bench.frames(Duration::from_secs(30)));
        let reports: Vec<_> = heard.iter().filter(|(_, frame)| is_report(frame)).map(|(at, _)| *at).collect();
        let in_time = reports.first().is_some_and(|&at| at <= due + super::bench::TICK);
        bench.must(in_time, format_args!("RFC 2236 s3: reports at {reports:?}, where one was due by {due:?}"));
        bench.must(reports.len() == 1, format_args!("RFC 2236 s3: {} reports, and one is enough", reports.len()));
    }
    bench.ring.close(bench.now, socket, false);
}

/// A router asks about all groups, or about this one.
fn ask(bench: &mut Bench, max_response_ds: u8) {
    let about = if bench.chance(2) { GROUP } else { Ipv4Addr::UNSPECIFIED };
    let to = if about.is_unspecified() { Ipv4Addr::new(224, 0, 0, 1) } else { GROUP };
    let mut message = [&[0x11, max_response_ds, 0, 0][..], &about.octets()].concat();
    let sum = !checksum::sum(0, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = [&MacAddr::of_group(to.into()).0[..], &PEER.0[..], &[8, 0, 0x46, 0xc0, 0, 32, 0, 1, 0x40, 0, 1, IGMP, 0, 0]].concat();
    frame.extend(THEIRS.octets());
    frame.extend(to.octets());
    frame.extend([0x94, 4, 0, 0]);
    frame.extend(message);
    checksum::fill_ip_header(&mut frame);
    bench.give_frame(frame);
}

fn is_report(frame: &[u8]) -> bool {
    matches!(dissect::payload(frame), Payload::Ip(ip) if ip.protocol == IGMP && frame[ip.l4] == 0x16)
}
