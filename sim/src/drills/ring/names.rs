//! Names of sockets, the table that they are in, and what passes from a listener to its connections.

use std::net::SocketAddrV4;

use ringway_stack::Error;
use ringway_stack::ring::{FlowId, NextHop, Readiness, RecvFlags, RingConfig, Shutdown, UdpOptions};
use ringway_stack::tcp;

use super::host::{Host, Link, OURS, address};
use super::streams::{PeerEnd, plain, segment};
use crate::drills::bench::Bench;
use crate::drills::card::PEER;
use crate::segment::SYN;

const PORT: u16 = 500;

/// A socket of any kind, on a port of its own.
fn any(host: &mut Host<'_>, port: u16) -> Result<FlowId, Error> {
    let local = SocketAddrV4::new(OURS[0], port);
    match host.bench.below(3) {
        0 => host.ring.udp_open(local.into(), &UdpOptions::default()),
        1 => host.ring.tcp_listen(local.into(), 4, &plain()),
        _ => host.ring.tcp_connect(host.now, local.into(), address(2, 80).into(), NextHop::Mac(PEER), &plain()),
    }
}

/// close(2), EBADF: the name of a closed socket is nobody's, whatever is done with it, also once another socket has its place.
pub(in crate::drills) fn closed(bench: &mut Bench) {
    let mut host = super::host(bench);
    let mut names: Vec<FlowId> = Vec::new();
    for round in 0..host.bench.between(3, 12) as u16 {
        let Ok(socket) = any(&mut host, PORT + round) else { return host.must(false, "socket(2): a socket is refused") };
        host.must(!names.contains(&socket), format_args!("{socket:?} is the name of a socket that was closed before"));
        let data = host.open(address(1, 2000 + round), UdpOptions::default());
        for &name in &names {
            let found = host.ring.info(name).is_some() || host.ring.udp_backlog(name).is_some();
            host.must(!found, format_args!("close(2): {name:?} was closed, and is found"));
            let ready = host.ring.readiness(name);
            host.must(ready == Readiness::ERR | Readiness::HUP, format_args!("poll(2), POLLNVAL: {ready:?} of a closed socket"));
            let read = host.read(name, 10, RecvFlags::empty()).map(|_| ());
            let sent = host.send(name, b"datagram", Some((address(2, 600), NextHop::Mac(PEER))), true);
            let shut = host.ring.shutdown(host.now, name, Shutdown::Both);
            let accepted = host.ring.tcp_accept(name).map(|_| ());
            let configured = host.ring.tcp_configure(host.now, name, |config| config.ttl = 1);
            let joined = host.ring.udp_configure(name, |options| options.ttl = 1);
            for outcome in [read, sent.map(|_| ()), shut, accepted, configured, joined] {
                host.must(outcome == Err(Error::BadSocket), format_args!("close(2), EBADF: {outcome:?} of {name:?}, which was closed"));
            }
            host.ring.close(host.now, name, true);
        }
        let stays = host.ring.info(socket).is_some() && host.ring.info(data).is_some();
        host.must(stays, "close(2): closing a socket twice closed another one");
        host.hand(address(2, 600), address(1, 2000 + round), b"datagram");
        let heard = host.take(data).is_some();
        host.must(heard, "a call on a closed socket took another's datagram");
        for socket in [socket, data] {
            host.ring.close(host.now, socket, true);
            host.poll();
            names.push(socket);
        }
    }
    host.is_empty();
}

/// socket(2), ENFILE, ENOBUFS: as many sockets as the table has room for, at any time and again after any number of them was closed; one that finds no room
/// leaves nothing behind.
pub(in crate::drills) fn full(bench: &mut Bench) {
    let flows_max = bench.between(2, 12) as usize;
    let config = RingConfig { addresses: OURS.map(Into::into).to_vec(), flows_max, ..RingConfig::default() };
    let mut host = Host::with(bench, Link::Direct, config);
    let mut sockets = Vec::new();
    for round in 0..300 {
        if host.bench.chance(2) || sockets.is_empty() {
            let opened = any(&mut host, PORT + round);
            let fits = sockets.len() < flows_max;
            host.must(
                opened.is_ok() == fits && (fits || opened == Err(Error::NoBuffers)),
                format_args!("socket(2): {opened:?}, with {} sockets of at most {flows_max}", sockets.len()),
            );
            sockets.extend(opened.ok());
        } else {
            let at = host.bench.below(sockets.len() as u64) as usize;
            host.ring.close(host.now, sockets.swap_remove(at), true);
        }
        host.poll();
        let usage = host.ring.usage();
        host.must(usage.flows == sockets.len() && usage.addresses == sockets.len(), format_args!("{usage:?} of {} sockets", sockets.len()));
        let outside = sockets.iter().find(|socket| socket.index as usize >= flows_max);
        host.must(outside.is_none(), format_args!("{outside:?} of at most {flows_max} sockets"));
    }
    for socket in sockets {
        host.ring.close(host.now, socket, true);
    }
    host.is_empty();
}

/// ip(7), tcp(7), accept(2): what is set on a listener, when it began or later, is its connections'; and what is set on one of them is that one's.
pub(in crate::drills) fn inherited(bench: &mut Bench) {
    let mut host = super::host(bench);
    let listener = host.ring.tcp_listen(address(1, PORT).into(), 8, &plain());
    let Ok(listener) = listener else { return host.must(false, format_args!("listen(2): {listener:?}")) };
    for round in 0..4 {
        let (ttl, tos) = (host.bench.between(1, 255) as u8, host.bench.below(64) as u8 * 4);
        let change = |config: &mut tcp::Config| (config.ttl, config.tos) = (ttl, tos);
        let configured = host.ring.tcp_configure(host.now, listener, change);
        host.must(configured.is_ok(), format_args!("setsockopt(2): {configured:?} of a listener"));
        let from = address(2, 600 + round);
        host.give(segment(from, address(1, PORT), 5000, 0, SYN, &[]));
        let answers = host.sent();
        host.must(answers.len() == 1, format_args!("RFC 9293 s3.10.7.2: {} answers to a SYN", answers.len()));
        let found = answers.first().and_then(|frame| frame.ttl_and_tos());
        host.must(
            found == Some((ttl, tos)),
            format_args!("ip(7), IP_TTL, IP_TOS: {found:?} of a listener's connection, of {:?}", (ttl, tos)),
        );
    }
    host.ring.close(host.now, listener, true);
    let mut stream = PeerEnd::connect(&mut host, 3000, address(2, 80), &plain());
    let (ttl, tos) = (host.bench.between(1, 255) as u8, host.bench.below(64) as u8 * 4);
    let configured = host.ring.tcp_configure(host.now, stream.socket, |config| (config.ttl, config.tos) = (ttl, tos));
    host.must(configured.is_ok(), format_args!("setsockopt(2): {configured:?} of a connection"));
    stream.give(&mut host, crate::segment::FIN, 0);
    let found = host.sent().first().and_then(|frame| frame.ttl_and_tos());
    host.must(found == Some((ttl, tos)), format_args!("ip(7), IP_TTL, IP_TOS: {found:?} of a connection, of {:?}", (ttl, tos)));
    host.ring.close(host.now, stream.socket, true);
    host.pass(core::time::Duration::from_secs(200));
    host.is_empty();
}
