//! Datagrams: to whom they go, and what of them a reader is told (RFC 768, connect(2), recv(2), socket(7)).

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};

use ringway_stack::ring::{Datagram, FlowId, NextHop, RecvFlags, Reuse, UdpOptions};

use super::Drill;
use super::bench::Bench;
use super::card::{OWN, PEER};
use crate::addresses::v4;
use crate::checksum;
use crate::dissect::{self, Payload};

pub(super) const DRILLS: &[Drill] = &[
    ("datagrams that are cut", cut),
    ("a socket that gives up its peer", disconnected),
    ("a socket that joins another on its address", joined),
    ("a checksum that comes out as zero", zero_checksum),
];

const PORT: u16 = 500;
const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

fn address(last: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), port)
}

/// A datagram comes.
fn give(bench: &mut Bench, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) {
    let frame = frame(from, to, &[], payload);
    bench.give_frame(frame);
    bench.frames(Duration::ZERO);
}

/// The frame of a datagram with these IP options, which are whole words.
fn frame(from: SocketAddrV4, to: SocketAddrV4, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u16;
    let mut frame = [&OWN.0[..], &PEER.0[..], &[0x08, 0x00, 0x45 + options.len() as u8 / 4, 0]].concat();
    frame.extend((28 + options.len() as u16 + len).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(from.ip().octets());
    frame.extend(to.ip().octets());
    frame.extend(options);
    [from.port(), to.port(), 8 + len, 0].iter().for_each(|field| frame.extend(field.to_be_bytes()));
    frame.extend(payload);
    checksum::fill(&mut frame);
    frame
}

fn open(bench: &mut Bench, local: SocketAddrV4, options: UdpOptions) -> FlowId {
    bench.ring.udp_open(local.into(), &options).expect("the address can be had")
}

fn read(bench: &mut Bench, socket: FlowId, room: usize) -> Option<Datagram> {
    let mut bytes = vec![0; room];
    bench.ring.udp_recv(socket, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()).ok()
}

/// recv(2): the rest of a datagram longer than the reader's buffer is gone, its true length is told (MSG_TRUNC), and it takes no room any more.
fn cut(bench: &mut Bench) {
    let rcvbuf = bench.between(3000, 20_000) as usize;
    let socket = open(bench, address(1, PORT), UdpOptions { rcvbuf, ..UdpOptions::default() });
    let len = bench.between(50, 1400) as usize;
    let room = bench.below(len as u64) as usize;
    let (mut first, mut last) = (0, 0);
    for round in 0..4 {
        // As many as fit.
        for _ in 0..rcvbuf / len + 1 {
            give(bench, address(2, 600), address(1, PORT), &vec![round; len]);
        }
        last = 0;
        while let Some(datagram) = read(bench, socket, room) {
            bench.must(
                (datagram.len, datagram.copied) == (len, room),
                format_args!(
                    "recv(2), MSG_TRUNC: {} bytes, {} of them read, of a datagram of {len} and room for {room}",
                    datagram.len, datagram.copied
                ),
            );
            last += 1;
        }
        first = if round == 0 { last } else { first };
    }
    bench.must(first == last && first > 0, format_args!("socket(7), SO_RCVBUF: room for {last} datagrams, where there was for {first}"));
    bench.ring.close(bench.now, socket, false);
}

/// connect(2): a socket that gives up its peer hears everybody again, at every address that it was bound to.
fn disconnected(bench: &mut Bench) {
    let socket = open(bench, SocketAddrV4::new(ANY, PORT), UdpOptions::default());
    let peer = address(2, 600);
    let connected = bench.ring.udp_connect(socket, Ipv4Addr::new(10, 0, 0, 1).into(), Some((peer.into(), NextHop::Mac(PEER))));
    bench.must(connected.is_ok(), format_args!("connect(2): {connected:?}"));
    give(bench, address(3, 600), address(1, PORT), b"stranger");
    let strange = read(bench, socket, 100);
    bench.must(strange.is_none(), "connect(2): a datagram of somebody else's");
    give(bench, peer, address(1, PORT), b"peer");
    let own = read(bench, socket, 100);
    bench.must(own.is_some_and(|datagram| v4(datagram.from) == peer), "connect(2): the peer is not heard");
    let given_up = bench.ring.udp_connect(socket, ANY.into(), None);
    bench.must(given_up.is_ok(), format_args!("connect(2): {given_up:?}"));
    for local in [1, 9] {
        let from = address(3 + local, 600);
        give(bench, from, address(local, PORT), b"anybody");
        let heard = read(bench, socket, 100).is_some_and(|datagram| v4(datagram.from) == from);
        bench.must(heard, format_args!("connect(2): 10.0.0.{local} is not heard at by a socket that gave up its peer"));
    }
    bench.ring.close(bench.now, socket, false);
}

/// socket(7), SO_REUSEADDR: of sockets that share an address, the youngest hears, whoever was heard before.
fn joined(bench: &mut Bench) {
    let options = UdpOptions { reuse: Reuse::Address, ..UdpOptions::default() };
    let mut sockets = Vec::new();
    for number in 1..=bench.between(2, 4) {
        sockets.push(open(bench, address(1, PORT), options));
        give(bench, address(2, 600), address(1, PORT), b"one");
        for (at, &socket) in sockets.iter().enumerate() {
            let heard = read(bench, socket, 100).is_some();
            let youngest = at + 1 == sockets.len();
            bench.must(heard == youngest, format_args!("socket(7), SO_REUSEADDR: of {number} sockets, number {} heard ({heard})", at + 1));
        }
    }
    // And when it is gone, the one before it.
    while let Some(socket) = sockets.pop() {
        bench.ring.close(bench.now, socket, false);
        give(bench, address(2, 600), address(1, PORT), b"one");
        let heard = sockets.last().is_some_and(|&last| read(bench, last, 100).is_some());
        bench.must(heard || sockets.is_empty(), "socket(7), SO_REUSEADDR: nobody hears once the youngest is gone");
    }
}

/// RFC 768: a checksum that comes out as zero is sent as all ones: zero says that there is none.
fn zero_checksum(bench: &mut Bench) {
    let socket = open(bench, address(1, PORT), UdpOptions::default());
    let len = bench.between(2, 1400) as usize;
    let mut payload: Vec<u8> = (0..len).map(|_| bench.below(256) as u8).collect();
    payload[..2].fill(0);
    let mut send = |payload: &[u8]| {
        let to = Some((address(2, 600).into(), NextHop::Mac(PEER)));
        let sent = bench.ring.udp_send(bench.now, socket, &[IoSlice::new(payload)], ANY.into(), to);
        bench.must(sent == Ok(len), format_args!("send(2): {sent:?}"));
        let frames = bench.frames(Duration::ZERO);
        bench.must(frames.len() == 1, format_args!("RFC 768: {} frames for a datagram", frames.len()));
        let Payload::Ip(ip) = dissect::payload(&frames[0].1) else { return 0 };
        dissect::be16(&frames[0].1, ip.l4 + 6).unwrap_or(0)
    };
    // What makes the sum all ones.
    let checksum = send(&payload);
    payload[..2].copy_from_slice(&checksum.to_be_bytes());
    let zero = send(&payload);
    bench.must(zero == 0xffff, format_args!("RFC 768: a checksum of zero is sent as {zero:#06x}"));
}

/// RFC 792: an error quotes the header as it came, with its options, and the first 8 bytes behind it.
pub(super) fn options_for_nobody(bench: &mut Bench) {
    let words = bench.between(0, 10) as usize;
    // (One option that nobody knows, as long as there is room: RFC 1122 s3.2.1.8.)
    let mut options: Vec<u8> = (0..4 * words).map(|_| bench.below(256) as u8).collect();
    if let [kind, len, ..] = &mut options[..] {
        (*kind, *len) = (30, 4 * words as u8);
    }
    let len = bench.between(0, 500) as usize;
    let asked = frame(address(2, 600), address(1, PORT), &options, &vec![7; len]);
    bench.give_frame(asked.clone());
    let answers = bench.frames(Duration::ZERO);
    let quoted = answers.first().and_then(|(_, answer)| match dissect::payload(answer) {
        Payload::Ip(ip) if ip.protocol == dissect::ICMP => answer.get(ip.l4 + 8..ip.end),
        _ => None,
    });
    let came = &asked[14..14 + 20 + options.len() + 8];
    let is_whole = quoted.is_some_and(|quoted| quoted.starts_with(came));
    bench.must(is_whole && answers.len() == 1, format_args!("RFC 792: of {came:x?}, {quoted:x?} is quoted"));
}
