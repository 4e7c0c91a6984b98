//! Flow rules on a device that has several rings: when they are there, and when they are not any more.

use core::time::Duration;
use std::io::IoSliceMut;
use std::net::{Ipv4Addr, SocketAddrV4};

use ringway_stack::device::{DeviceEvent, RuleError, RuleId};
use ringway_stack::ring::{NextHop, RecvFlags, Ring, RingConfig, UdpOptions};
use ringway_stack::{Error, tcp};

use super::adapter::Adapter;
use super::host::{Host, Link, OURS, THEIRS, address};
use super::streams::{PeerEnd, plain, segment};
use crate::drills::bench::{Bench, TIME_WAIT};
use crate::drills::card::PEER;
use crate::segment::{ACK, SYN, Segment};

/// A host on a device of several rings, which knows its neighbour.
fn host(bench: &mut Bench) -> Host<'_> {
    let config = RingConfig { addresses: OURS.map(Into::into).to_vec(), time_wait: TIME_WAIT, ..RingConfig::default() };
    let mut host = Host::of_many_rings(bench, Link::Asked, config);
    host.ring.set_neighbour(THEIRS.into(), Some(PEER));
    host
}

/// The rule that names these ends.
fn rule_of(host: &Host<'_>, local: SocketAddrV4, remote: Option<SocketAddrV4>) -> Option<RuleId> {
    let wanted = (local.into(), remote.map(Into::into));
    let port = host.port.borrow();
    port.rules.iter().find(|(_, rule)| rule.addresses().is_some_and(|flow| (flow.local, flow.remote) == wanted)).map(|(id, _)| RuleId(*id))
}

fn tell(host: &mut Host<'_>, event: DeviceEvent) {
    if let DeviceEvent::RuleFailed(rule, _) = event {
        host.port.borrow_mut().rules.remove(&rule.0);
    }
    host.port.borrow_mut().events.push_back(event);
    host.poll();
}

/// Connections of a listener come by its rule, and have their own before it goes.
pub(in crate::drills) fn accepted(bench: &mut Bench) {
    let mut host = host(bench);
    let (local, remote) = (address(1, 80), address(2, 1000));
    let listener = host.ring.tcp_listen(local.into(), 4, &plain());
    let Ok(listener) = listener else { return host.must(false, format_args!("listen(2): {listener:?}")) };
    host.give(segment(remote, local, 1000, 0, SYN, &[]));
    let answer = host.sent().iter().find_map(|frame| Segment::parse(&frame.bytes, &frame.ip()?)).filter(|answer| answer.has(SYN | ACK));
    let Some(answer) = answer else { return host.must(false, "RFC 9293 s3.10.7.2: no SYN-ACK") };
    host.give(segment(remote, local, 1001, answer.end(), ACK, &[]));
    let Ok(socket) = host.ring.tcp_accept(listener) else { return host.must(false, "accept(2): nobody waits") };
    host.must(rule_of(&host, local, Some(remote)).is_none(), "a connection has a rule, whose listener's steers it");
    let is_slow = host.bench.chance(2);
    host.port.borrow_mut().is_slow = is_slow;
    host.close(listener);
    let own = rule_of(&host, local, Some(remote));
    host.must(own.is_some(), "a connection has no rule, whose listener has ended");
    if let (true, Some(own)) = (is_slow, own) {
        host.must(rule_of(&host, local, None).is_some(), "a listener's rule ends before its connections' steer");
        let fails = host.bench.chance(3);
        let event = if fails { DeviceEvent::RuleFailed(own, RuleError::Full) } else { DeviceEvent::RuleReady(own) };
        tell(&mut host, event);
        let (old, new) = (rule_of(&host, local, None).is_some(), rule_of(&host, local, Some(remote)).is_some());
        host.must(
            (old, new) == (fails, !fails),
            format_args!("a connection's rule failed: {fails}; its listener's is there: {old}, its own: {new}"),
        );
    }
    host.give(segment(remote, local, 1001, answer.end(), ACK, b"still there"));
    let mut bytes = [0; 16];
    let read = host.ring.tcp_recv(host.now, socket, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty());
    host.must(read == Ok(11), format_args!("recv(2): {read:?} of 11 bytes for a connection whose listener has ended"));
    host.ring.close(host.now, socket, true);
    host.sent();
    host.is_empty();
}

/// A SYN leaves once its answer comes here; a rule that fails is the end of the attempt.
pub(in crate::drills) fn opening(bench: &mut Bench) {
    let mut host = host(bench);
    let remote = address(2, 80);
    host.port.borrow_mut().is_slow = true;
    let options = tcp::Config { timestamps: host.bench.chance(2), ..plain() };
    let mut stream = PeerEnd::begin(&mut host, 3000, remote, NextHop::Neighbour(THEIRS.into()), &options);
    let patience = Duration::from_millis(host.bench.below(5000));
    host.pass(patience);
    host.silence("a SYN leaves before its rule steers");
    let Some(rule) = rule_of(&host, stream.local, Some(remote)) else { return host.must(false, "a connection that is opened has no rule") };
    match host.bench.below(3) {
        0 => {
            tell(&mut host, DeviceEvent::RuleFailed(rule, RuleError::Full));
            let error = host.ring.take_error(stream.socket);
            host.must(error == Some(Error::NoBuffers), format_args!("SO_ERROR: {error:?} of a connection whose rule failed"));
        }
        1 => {
            host.ring.close(host.now, stream.socket, false);
            // (The news of it was under way.)
            tell(&mut host, DeviceEvent::RuleReady(rule));
            host.silence("close(2): a SYN leaves afterwards");
            return host.is_empty();
        }
        _ => {
            tell(&mut host, DeviceEvent::RuleReady(rule));
            stream.finish(&mut host);
            let state = host.ring.info(stream.socket).and_then(|info| info.state);
            host.must(state == Some(tcp::State::Established), format_args!("connect(2): {state:?} once the rule steers"));
        }
    }
    host.ring.close(host.now, stream.socket, true);
    host.sent();
    host.is_empty();
}

/// A flow tag saves a search, and changes nothing: also where it is out of date, another flow's, or nobody's.
pub(in crate::drills) fn tags(bench: &mut Bench) {
    let mut host = host(bench);
    let remote = address(2, 80);
    let mut streams: Vec<_> = [3000, 3001, 3002]
        .into_iter()
        .map(|port| {
            let mut stream = PeerEnd::begin(&mut host, port, remote, NextHop::Neighbour(THEIRS.into()), &plain());
            stream.finish(&mut host);
            stream
        })
        .collect();
    let tags: Vec<u32> = host.port.borrow().rules.values().map(|rule| rule.tag).collect();
    host.must(!tags.contains(&0), format_args!("{tags:?}: tags of connections' rules, on a device that has tags"));
    let gone = streams.pop();
    if let Some(gone) = gone.filter(|_| host.bench.chance(2)) {
        host.ring.close(host.now, gone.socket, true);
        host.sent();
    }
    for _ in 0..host.bench.between(2, 8) {
        let tag = host.bench.pick(&[tags[0], tags[1], tags[2], 0, 77, u32::MAX]);
        let which = host.bench.below(2) as usize;
        host.port.borrow_mut().tag = tag;
        streams[which].give(&mut host, 0, 40);
        let mut bytes = [0; 64];
        let read = host.ring.tcp_recv(host.now, streams[which].socket, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty());
        host.must(read == Ok(40), format_args!("recv(2): {read:?} of 40 bytes that came with the flow tag {tag}, of {tags:?}"));
    }
    host.port.borrow_mut().tag = 0;
    for socket in host.ring.open_flows() {
        host.ring.close(host.now, socket, true);
    }
    host.sent();
    host.is_empty();
}

/// The same of datagrams: whatever the tag says, a datagram is for the socket that its addresses fit best, or for nobody.
pub(in crate::drills) fn datagram_tags(bench: &mut Bench) {
    let mut host = host(bench);
    let (everywhere, here) = (SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 700), address(1, 700));
    let mut sockets = vec![
        (host.open(everywhere, UdpOptions::default()), everywhere),
        (host.open(address(1, 701), UdpOptions::default()), address(1, 701)),
    ];
    let tags: Vec<u32> = host.port.borrow().rules.values().map(|rule| rule.tag).collect();
    host.must(!tags.contains(&0), format_args!("{tags:?}: tags of sockets' rules, on a device that has tags"));
    for _ in 0..host.bench.between(4, 16) {
        match sockets.iter().position(|(_, local)| *local == here) {
            Some(at) if host.bench.chance(3) => host.close(sockets.remove(at).0),
            None if host.bench.chance(3) => sockets.push((host.open(here, UdpOptions::default()), here)),
            _ => {}
        }
        let to = address(1, host.bench.pick(&[700, 700, 701, 702]));
        let tag = host.bench.pick(&[tags[0], tags[1], tags[1] + 1, 0, 77, u32::MAX]);
        let best = |exact: bool| {
            sockets.iter().find(|(_, local)| local.port() == to.port() && (!exact || *local == to)).map(|(socket, _)| *socket)
        };
        let expected = best(true).or_else(|| best(false));
        host.port.borrow_mut().tag = tag;
        host.hand(address(2, 600), to, b"datagram");
        let heard: Vec<_> = sockets.iter().filter(|&&(socket, _)| host.take(socket).is_some()).map(|(socket, _)| *socket).collect();
        host.must(
            heard == expected.into_iter().collect::<Vec<_>>(),
            format_args!("bind(2): {heard:?} of {sockets:?} heard a datagram for {to} with the flow tag {tag}, of {tags:?}"),
        );
    }
    host.port.borrow_mut().tag = 0;
    sockets.into_iter().for_each(|(socket, _)| host.close(socket));
    host.sent();
    host.is_empty();
}

/// A connection that moves to another ring of its device takes its rule with it, which is never gone, and is moved.
pub(in crate::drills) fn moved(bench: &mut Bench) {
    let mut host = host(bench);
    let remote = address(2, 80);
    let mut stream = PeerEnd::begin(&mut host, 3000, remote, NextHop::Neighbour(THEIRS.into()), &plain());
    stream.finish(&mut host);
    let rule = rule_of(&host, stream.local, Some(remote));
    let Ok(handover) = host.ring.detach_stream(host.now, stream.socket) else { return host.must(false, "a connection cannot move") };
    host.must(
        rule.is_some() && rule_of(&host, stream.local, Some(remote)) == rule,
        "a connection between two rings has no rule, or another",
    );
    let adapter = Adapter::new(&host.port, false, 0).of_several();
    let config = RingConfig { addresses: OURS.map(Into::into).to_vec(), ..RingConfig::default() };
    let mut other = host.bench.infected(Ring::new(adapter, config, [9; 32]));
    other.set_neighbour(THEIRS.into(), Some(PEER));
    let adopted = other.adopt(host.now, handover).map_err(|(error, _)| error);
    let moves = host.port.borrow().moves;
    host.must(
        adopted.is_ok() && moves == 1 && rule_of(&host, stream.local, Some(remote)) == rule,
        format_args!("{adopted:?} of a connection that moves, whose rule has moved {moves} times"),
    );
    if let Ok(socket) = adopted {
        other.close(host.now, socket, true);
    }
    drop(other);
    host.sent();
    host.is_empty();
}
