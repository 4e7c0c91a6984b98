//! Connections that wait to be accepted, and those that follow others of the same addresses.

use core::time::Duration;

use ringway_stack::Error;
use ringway_stack::ring::{FlowId, RingConfig};
use ringway_stack::tcp;

use super::host::{Host, Link, OURS, THEIRS, address};
use super::streams::{PeerEnd, plain, segment};
use crate::apps::by_hand::{Ends, Outgoing};
use crate::drills::bench::{Bench, TIME_WAIT};
use crate::drills::card::{OWN, PEER};
use crate::segment::{ACK, FIN, SYN, Segment};

/// accept(2): who waits is accepted in its turn; one that leaves the ring meanwhile is not there any more, and what is owed to it is whole.
pub(in crate::drills) fn unaccepted(bench: &mut Bench) {
    let mut host = super::host(bench);
    let local = address(1, 80);
    let listener = host.ring.tcp_listen(local.into(), 16, &plain());
    let Ok(listener) = listener else { return host.must(false, format_args!("listen(2): {listener:?}")) };
    let mut waiting = Vec::new();
    for port in 0..host.bench.between(1, 6) as u16 {
        let remote = address(2, 1000 + port);
        host.give(segment(remote, local, 1000, 0, SYN, &[]));
        let answer = host.sent().iter().find_map(|frame| Segment::parse(&frame.bytes, &frame.ip()?));
        let Some(answer) = answer.filter(|answer| answer.has(SYN | ACK)) else { return host.must(false, "RFC 9293 s3.10.7.2: no SYN-ACK") };
        let bytes = host.bench.below(300) as usize;
        host.give(segment(remote, local, 1001, answer.end(), ACK, &vec![7; bytes]));
        host.sent();
        waiting.push((remote, bytes));
    }
    for _ in 0..host.bench.below(waiting.len() as u64 + 1) {
        let (remote, bytes) = waiting.remove(host.bench.below(waiting.len() as u64) as usize);
        let left = host.ring.end_silently(host.now, local.into(), remote.into());
        let is_whole = left.as_ref().is_ok_and(|left| !left.accepted && left.unread.len() == bytes);
        host.must(is_whole, format_args!("{left:?} of a connection that nobody accepted, with {bytes} bytes"));
    }
    let count = host.ring.tcp_waiting(listener).len();
    host.must(count == waiting.len(), format_args!("accept(2): {count} connections wait, of {}", waiting.len()));
    for (remote, _) in waiting {
        let accepted = host.ring.tcp_accept(listener);
        let whose = accepted.ok().and_then(|socket| host.ring.info(socket)?.remote);
        host.must(whose == Some(remote.into()), format_args!("accept(2): {accepted:?}, of {whose:?}, where {remote} is next"));
        host.ring.close(host.now, accepted.unwrap_or(listener), true);
    }
    let more = host.ring.tcp_accept(listener);
    host.must(more == Err(Error::WouldBlock), format_args!("accept(2), EAGAIN: {more:?} where nobody waits"));
    host.close(listener);
    host.sent();
    host.is_empty();
}

/// A SYN-ACK with a timestamp.
fn stamped(stream: &PeerEnd, value: u32) -> Vec<u8> {
    let options = [&[2, 4, 5, 180, 1, 1, 8, 10][..], &value.to_be_bytes(), &[0; 4]].concat();
    let ends = Ends { from: PEER, to: OWN, vlan: None, src: stream.remote.into(), dst: stream.local.into() };
    let outgoing = Outgoing { seq: stream.nxt, ack: stream.rcv, flags: SYN | ACK, window: 60_000, options: &options, payload: &[] };
    let (head, payload) = outgoing.frame(&ends);
    [&head, payload].concat()
}

/// RFC 6191 s2, on a device with several rings: a connection that takes a TIME-WAIT's place has a rule of its own for as long as it is there, and none is left behind.
pub(in crate::drills) fn followers(bench: &mut Bench) {
    let config = RingConfig { addresses: OURS.map(Into::into).to_vec(), time_wait: TIME_WAIT, ..RingConfig::default() };
    let mut host = Host::of_many_rings(bench, Link::Asked, config);
    host.ring.set_neighbour(THEIRS.into(), Some(PEER));
    let options = tcp::Config { timestamps: true, ..plain() };
    let remote = address(2, 80);
    let rules = |host: &Host<'_>| (host.port.borrow().rules.len(), host.port.borrow().rules_wrong);
    let mut before: Option<FlowId> = None;
    for round in 0..host.bench.between(2, 4) as u32 {
        let mut stream = PeerEnd::begin(&mut host, 3000, remote, ringway_stack::ring::NextHop::Neighbour(THEIRS.into()), &options);
        let syn = host.sent().iter().find_map(|frame| Segment::parse(&frame.bytes, &frame.ip()?).filter(|syn| syn.has(SYN)));
        let Some(syn) = syn else { return host.must(false, "RFC 6191 s2: no SYN of a connection in a TIME-WAIT's place") };
        stream.rcv = syn.seq.wrapping_add(1);
        host.give(stamped(&stream, 1000 * round + 1));
        stream.nxt += 1;
        host.sent();
        host.must(rules(&host) == (1, 0), format_args!("{:?}: rules of a connection, and those ended twice, round {round}", rules(&host)));
        if let Some(socket) = before.take() {
            host.ring.close(host.now, socket, false);
            host.must(rules(&host) == (1, 0), format_args!("{:?}: rules, once what was before is closed, round {round}", rules(&host)));
        }
        // The program ends its stream, and the peer follows.
        if host.bench.chance(2) {
            host.ring.close(host.now, stream.socket, false);
        } else {
            let shut = host.ring.shutdown(host.now, stream.socket, ringway_stack::ring::Shutdown::Write);
            host.must(shut.is_ok(), format_args!("shutdown(2): {shut:?}"));
            before = Some(stream.socket);
        }
        stream.rcv = stream.rcv.wrapping_add(1);
        host.give(segment(remote, stream.local, stream.nxt, stream.rcv, ACK | FIN, &[]));
        host.sent();
        host.pass(Duration::from_millis(1500));
    }
    if let Some(socket) = before {
        host.ring.close(host.now, socket, false);
    }
    host.pass(TIME_WAIT * 2);
    host.sent();
    host.is_empty();
}
