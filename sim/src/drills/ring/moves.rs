//! Connections that move to another ring or come back, sockets whose receiving side is shut down, and buffers that are used up.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};

use ringway_stack::Error;
use ringway_stack::ring::{Decision, FlowId, NextHop, Readiness, RecvFlags, Ring, RingConfig, SendFlags, Shutdown, UdpOptions};
use ringway_stack::tcp::State;

use super::adapter::Adapter;
use super::host::{Host, Link, OURS, address};
use super::streams::{PeerEnd, plain, segment};
use crate::drills::bench::{Bench, bytes_at};
use crate::drills::card::PEER;
use crate::segment::{ACK, FIN, RST};

const DIRECT: NextHop = NextHop::Mac(PEER);

/// Another ring of the same host.
fn another(host: &Host<'_>) -> Ring<Adapter> {
    let config = RingConfig { addresses: OURS.map(Into::into).to_vec(), ..RingConfig::default() };
    host.bench.infected(Ring::new(Adapter::new(&host.port, true, 0), config, [9; 32]))
}

/// All that can be read at once.
fn read(host: &mut Host<'_>, socket: FlowId, first: u32, len: u32) {
    let mut bytes = vec![0; len as usize + 1];
    let read = host.ring.tcp_recv(host.now, socket, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty());
    let right = bytes[..len as usize] == bytes_at(first, len as usize);
    host.must(read == Ok(len as usize) && right, format_args!("recv(2): {read:?} of {len} bytes that came before a connection moved"));
    host.poll();
}

/// What a connection can do, its state, bytes received and written, and its segments' length.
type Standing = (Readiness, Option<(Option<State>, usize, usize, u16)>);

/// All that a program can ask of a connection and that is the same on any ring: what it can do, its state, its queues, the segments that its peer takes.
fn stands(host: &Host<'_>, socket: FlowId) -> Standing {
    let info = host.ring.info(socket).map(|info| (info.state, info.recv_queue, info.send_queue, info.mss));
    (host.ring.readiness(socket), info)
}

/// What a connection has not had acknowledged, what nobody read and its end go with it: the ring that adopts it says what it is ready for, repeats what is lost
/// within the time that it has, and takes its frames; the one that it left has nothing of it.
pub(in crate::drills) fn moves(bench: &mut Bench) {
    let mut host = super::host(bench);
    let remote = address(2, 80);
    let mut stream = PeerEnd::connect(&mut host, 3000, remote, &plain());
    let unread = host.bench.below(3) as u32 * 500;
    let first = stream.nxt;
    if unread > 0 {
        stream.give(&mut host, 0, unread);
    }
    let is_ended = host.bench.chance(3);
    if is_ended {
        stream.give(&mut host, FIN, 0);
        stream.nxt += 1;
    }
    let reads_no_more = host.bench.chance(4);
    if reads_no_more {
        let shut = host.ring.shutdown(host.now, stream.socket, Shutdown::Read);
        host.must(shut.is_ok(), format_args!("shutdown(2): {shut:?}"));
    }
    // The device may be full when it moves, and for a while after.
    let is_full = host.bench.chance(3);
    host.port.borrow_mut().room = is_full.then_some(0);
    let unacked = host.bench.below(3) as u32 * 700;
    let bytes = bytes_at(0, unacked as usize);
    if unacked > 0 {
        let wrote = host.ring.tcp_send(host.now, stream.socket, &[IoSlice::new(&bytes)], SendFlags::empty());
        host.must(wrote == Ok(bytes.len()), format_args!("send(2): {wrote:?}"));
    }
    let before = host.bench.below(150);
    host.pass(Duration::from_millis(before));
    host.sent();
    // (Another ring may give it the same name.)
    host.edges(stream.socket);
    let stands = stands(&host, stream.socket);
    let handover = host.ring.detach_stream(host.now, stream.socket);
    let Ok(handover) = handover else { return host.must(false, format_args!("{:?} of a connection that stands", handover.err())) };
    host.is_empty_but_buffers();
    let away = host.bench.below(20);
    host.pass(Duration::from_millis(away));
    let elsewhere = another(&host);
    let mut old = core::mem::replace(&mut host.ring, elsewhere);
    let is_written = host.bench.chance(2);
    let adopted = if is_written {
        let written = handover.snapshot();
        drop(handover);
        written
            .ok_or(Error::Invalid)
            .and_then(|bytes| host.ring.adopt_snapshot(host.now, (stream.local.into(), stream.remote.into()), DIRECT, &plain(), &bytes))
    } else {
        host.ring.adopt(host.now, handover).map_err(|(error, _)| error)
    };
    let Ok(socket) = adopted else {
        return host.must(false, format_args!("{adopted:?} of a connection that moves, written ({is_written})"));
    };
    stream.socket = socket;
    if is_written {
        // Both ends know then where the other is.
        let told = host.ring.tcp_retarget(host.now, socket, DIRECT);
        host.must(told.is_ok(), format_args!("{told:?} of a connection that moved"));
    }
    let (rules, usage) = (host.port.borrow().rules.len(), host.ring.usage());
    host.must(rules == 1 && usage.addresses == 1, format_args!("a connection that moved has {rules} rules, and {usage:?}"));
    let found = self::stands(&host, socket);
    host.must(found == stands, format_args!("a connection that moved stands so: {found:?}, and stood so: {stands:?}"));
    let edges = host.edges(socket);
    let is_readable = unread > 0 || is_ended || reads_no_more;
    host.must(
        edges.contains(Readiness::IN) == is_readable && edges.contains(Readiness::OUT),
        format_args!("epoll(7): {edges:?} of a connection that moved, with {unread} bytes to be read, ended ({is_ended})"),
    );
    if unread > 0 {
        read(&mut host, socket, first, unread);
    }
    if is_full {
        let pause = host.bench.below(20);
        host.pass(Duration::from_millis(pause));
        host.port.borrow_mut().room = None;
        // (What was refused is tried again by itself.)
        host.pass(Duration::from_millis(10));
        let sent = !stream.heard(&mut host).is_empty();
        host.must(sent || unacked == 0, "a connection that moved while its device was full waits on when it is not");
    }
    // RFC 6298: a second, or what it was before; a few times that where it had backed off.
    host.pass(Duration::from_millis(2500));
    let again: Vec<_> = stream.heard(&mut host).into_iter().filter(|segment| segment.len() > 0).collect();
    let repeats = is_full && unacked > 0 || again.iter().any(|segment| segment.seq == stream.rcv);
    host.must(
        repeats == (unacked > 0),
        format_args!("RFC 6298 s5: {} segments in 2.5 s of a connection that moved with {unacked} bytes on their way", again.len()),
    );
    stream.rcv = stream.rcv.wrapping_add(unacked);
    host.give(segment(remote, stream.local, stream.nxt, stream.rcv, ACK, &[]));
    host.sent();
    let wrote = host.ring.tcp_send(host.now, socket, &[IoSlice::new(b"more")], SendFlags::empty());
    host.must(wrote == Ok(4), format_args!("send(2): {wrote:?} on a connection that moved"));
    let more = stream.heard(&mut host);
    host.must(
        more.iter().any(|segment| segment.seq == stream.rcv && segment.len() == 4 && segment.ack == stream.nxt),
        format_args!("RFC 9293 s3.10.4: {} segments of what was written after a connection moved", more.len()),
    );
    host.ring.close(host.now, socket, true);
    host.sent();
    // The old one answers nothing in the connection's name.
    core::mem::swap(&mut host.ring, &mut old);
    host.give(segment(remote, stream.local, stream.nxt, stream.rcv, ACK, &[]));
    host.silence("a ring answers for a connection that moved elsewhere");
    host.is_empty();
}

/// A connection that left and came back is this ring's like any other: once it is over, what comes for it is answered by a reset (RFC 9293 s3.10.7.1).
pub(in crate::drills) fn returns(bench: &mut Bench) {
    let mut host = super::host(bench);
    let remote = address(2, 80);
    let mut stream = PeerEnd::connect(&mut host, 3000, remote, &plain());
    for _ in 0..host.bench.between(1, 3) {
        host.sent();
        let handover = host.ring.detach_stream(host.now, stream.socket);
        let Ok(handover) = handover else { return host.must(false, format_args!("{:?} of a connection that stands", handover.err())) };
        let again = host.ring.info(stream.socket).is_some();
        host.must(!again, "a connection that left is found by its name");
        host.give(segment(remote, stream.local, stream.nxt, stream.rcv, ACK, &[1]));
        host.silence("a ring answers for a connection that is elsewhere");
        let pause = host.bench.below(3000);
        host.pass(Duration::from_millis(pause));
        let adopted = host.ring.adopt(host.now, handover).map_err(|(error, _)| error);
        let Ok(socket) = adopted else { return host.must(false, format_args!("{adopted:?} of a connection that comes back")) };
        stream.socket = socket;
        let first = stream.nxt;
        stream.give(&mut host, 0, 100);
        read(&mut host, socket, first, 100);
    }
    if host.bench.chance(2) {
        host.give(segment(remote, stream.local, stream.nxt, stream.rcv, RST, &[]));
    }
    host.ring.close(host.now, stream.socket, true);
    host.sent();
    host.give(segment(remote, stream.local, stream.nxt, stream.rcv, ACK, &[1]));
    let resets = stream.heard(&mut host).iter().filter(|segment| segment.has(RST)).count();
    host.must(resets == 1, format_args!("RFC 9293 s3.10.7.1: {resets} resets for a connection that came back, and is over"));
    host.is_empty();
}

/// A stream's reader gets what was admitted, and its end once nothing before it is undecided: both are told, whether the last bytes before the end were
/// admitted, dropped or held.
pub(in crate::drills) fn filtered(bench: &mut Bench) {
    let mut host = super::host(bench);
    let mut stream = PeerEnd::connect(&mut host, 3000, address(2, 80), &plain());
    let on = host.ring.set_recv_filter(stream.socket, true);
    host.must(on.is_ok(), format_args!("{on:?} of a receive filter"));
    let count = host.bench.between(1, 5);
    let mut segments = Vec::new();
    for _ in 0..count {
        let len = host.bench.between(1, 1400) as u32;
        segments.push((stream.nxt, len));
        stream.give(&mut host, 0, len);
    }
    let ends = host.bench.chance(2);
    if ends {
        stream.give(&mut host, FIN, 0);
        stream.nxt += 1;
    }
    host.sent();
    let undecided = if host.bench.chance(3) { host.bench.below(count) } else { 0 } as usize;
    let (mut admitted, mut held) = (Vec::new(), 0);
    while host.ring.has_candidate(stream.socket) && segments.len() > undecided {
        host.edges(stream.socket);
        let decision = host.bench.pick(&[Decision::Admit, Decision::Drop, Decision::Hold]);
        let decided = host.ring.decide(host.now, stream.socket, decision);
        let Ok(mut len) = decided else { return host.must(false, format_args!("{decided:?} of what is shown: {decision:?}")) };
        // (What is shown may be several segments that came together.)
        while len > 0 && !segments.is_empty() {
            let (first, its) = segments.remove(0);
            len = len.saturating_sub(its as usize);
            match decision {
                Decision::Admit => admitted.extend(bytes_at(first, its as usize)),
                Decision::Hold => held += its as usize,
                Decision::Drop => {}
            }
        }
        let is_last = ends && segments.is_empty();
        let edges = host.edges(stream.socket);
        host.must(
            edges.contains(Readiness::IN) || (decision != Decision::Admit && !(is_last && admitted.is_empty())),
            format_args!("epoll(7): {edges:?} after {decision:?}, at the end ({is_last})"),
        );
    }
    host.edges(stream.socket);
    let off = host.ring.set_recv_filter(stream.socket, false);
    host.must(off.is_ok(), format_args!("{off:?} of a receive filter that goes"));
    let edges = host.edges(stream.socket);
    host.must(edges.contains(Readiness::IN) || segments.is_empty(), "epoll(7): what was undecided can be read, and nobody is told");
    for (first, len) in segments {
        admitted.extend(bytes_at(first, len as usize));
    }
    let mut bytes = vec![0; admitted.len() + 10];
    let read = host.ring.tcp_recv(host.now, stream.socket, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty());
    let expected = match (admitted.len(), ends) {
        (0, true) => Ok(0),
        (0, false) => Err(Error::WouldBlock),
        (len, _) => Ok(len),
    };
    host.must(
        read == expected && bytes.starts_with(&admitted),
        format_args!("recv(2): {read:?} of {} bytes admitted, ended ({ends})", admitted.len()),
    );
    host.ring.give_back(host.now, stream.socket, held);
    host.ring.close(host.now, stream.socket, true);
    host.sent();
    host.is_empty();
}

/// A socket whose receiving side was shut down hears nothing, has no rule, leaves its groups and its address to others, and sends on.
pub(in crate::drills) fn rx_shutdown(bench: &mut Bench) {
    let mut host = Host::new(bench, Link::Asked);
    let local = SocketAddrV4::new(OURS[0], 500);
    host.ring.set_neighbour(Ipv4Addr::new(10, 0, 0, 2).into(), Some(PEER));
    let socket = host.open(local, UdpOptions::default());
    let joins = host.bench.chance(2);
    if joins {
        let joined = host.ring.udp_join(host.now, socket, Ipv4Addr::new(239, 1, 2, 3).into(), OURS[0].into());
        host.must(joined.is_ok(), format_args!("ip(7), IP_ADD_MEMBERSHIP: {joined:?}"));
    }
    host.hand(address(2, 600), local, b"before");
    let is_stream = host.bench.chance(2);
    let config = plain();
    let stream = is_stream.then(|| {
        let mut stream = PeerEnd::begin(&mut host, 3000, address(2, 80), NextHop::Neighbour(Ipv4Addr::new(10, 0, 0, 2).into()), &config);
        stream.finish(&mut host);
        stream
    });
    for name in [Some(socket), stream.map(|stream| stream.socket)].into_iter().flatten() {
        let shut = host.ring.shutdown_rx(name);
        host.must(shut.is_ok(), format_args!("{shut:?} of a socket whose receiving side is shut down"));
    }
    let (rules, flows) = (host.port.borrow().rules.len(), host.ring.usage().addresses);
    host.must(rules == 0 && flows == 0, format_args!("sockets whose receiving side was shut down have {rules} rules and {flows} flows"));
    host.hand(address(2, 600), local, b"after");
    let heard: Vec<_> = (0..2).filter_map(|_| host.take(socket)).map(|(_, bytes)| bytes).collect();
    host.must(
        heard == [b"before".to_vec()],
        format_args!("{} datagrams are heard by a socket whose receiving side was shut down after one", heard.len()),
    );
    host.sent();
    let sent = host.send(socket, b"datagram", Some((address(2, 600), NextHop::Neighbour(Ipv4Addr::new(10, 0, 0, 2).into()))), false);
    let frames = host.sent().iter().filter(|frame| frame.datagram().is_some()).count();
    host.must(
        sent == Ok(8) && frames == 1,
        format_args!("send(2): {sent:?} of a socket whose receiving side was shut down, {frames} frames"),
    );
    let next = host.open(local, UdpOptions::default());
    host.close(socket);
    host.hand(address(2, 600), local, b"next");
    let heard = host.take(next).is_some();
    host.must(heard, "bind(2): a socket hears nothing whose address one had whose receiving side is shut down");
    host.close(next);
    if let Some(stream) = stream {
        host.ring.close(host.now, stream.socket, true);
    }
    host.sent();
    host.is_empty();
}

/// send(2), EAGAIN: a stream whose device has no buffers left would block; and it goes on, and says so, when some are free again.
pub(in crate::drills) fn buffers(bench: &mut Bench) {
    let mut host = super::host(bench);
    {
        let mut port = host.port.borrow_mut();
        (port.buffer_len, port.buffers_max) = (host.bench.between(61, 1500) as usize, host.bench.between(1, 6) as usize);
    }
    let remote = address(2, 80);
    let mut stream = PeerEnd::connect(&mut host, 3000, remote, &plain());
    let (mut written, total) = (0_usize, host.bench.between(2000, 12_000) as usize);
    let mut first = 0_u32;
    for _ in 0..2000 {
        if written < total {
            let bytes = bytes_at(written as u32, total - written);
            match host.ring.tcp_send(host.now, stream.socket, &[IoSlice::new(&bytes)], SendFlags::empty()) {
                Ok(more) => written += more,
                Err(error) => host.must(error == Error::WouldBlock, format_args!("send(2), EAGAIN: {error:?} where buffers are used up")),
            }
        }
        for heard in stream.heard(&mut host) {
            if heard.seq == stream.rcv {
                stream.rcv = heard.end();
                first += heard.len();
            }
        }
        if first as usize == total {
            break;
        }
        host.edges(stream.socket);
        host.give(segment(remote, stream.local, stream.nxt, stream.rcv, ACK, &[]));
        let edges = host.edges(stream.socket);
        let is_writable = host.ring.readiness(stream.socket).contains(Readiness::OUT);
        host.must(written >= total || !edges.is_empty() || is_writable, "poll(2), POLLOUT: buffers are free, and nobody is told");
        host.pass(Duration::from_millis(50));
    }
    host.must(first as usize == total, format_args!("send(2): {first} of {total} bytes go out by and by, of {written} written"));
    // Others have all of them, and this one has written nothing yet.
    let second = PeerEnd::connect(&mut host, 3001, remote, &plain());
    host.port.borrow_mut().buffers_max = 0;
    let wrote = host.ring.tcp_send(host.now, second.socket, &[IoSlice::new(b"more")], SendFlags::empty());
    host.must(wrote == Err(Error::WouldBlock), format_args!("send(2), EAGAIN: {wrote:?} where others have all buffers"));
    host.port.borrow_mut().buffers_max = usize::MAX;
    let wrote = host.ring.tcp_send(host.now, second.socket, &[IoSlice::new(b"more")], SendFlags::empty());
    host.must(wrote == Ok(4), format_args!("send(2): {wrote:?} where a buffer is free again"));
    let datagrams = host.open(address(1, 500), UdpOptions::default());
    host.port.borrow_mut().buffers_max = 0;
    for tries in [true, false] {
        let sent = host.send(datagrams, &[7; 1000], Some((address(2, 600), DIRECT)), tries);
        let expected = if tries { Err(Error::WouldBlock) } else { Ok(1000) };
        host.must(sent == expected, format_args!("send(2): {sent:?} of a datagram where buffers are used up"));
    }
    host.close(datagrams);
    host.ring.close(host.now, second.socket, true);
    host.ring.close(host.now, stream.socket, true);
    host.sent();
    host.is_empty();
}
