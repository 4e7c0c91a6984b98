//! A datagram socket's queue beside a model of it: whatever comes, is looked at, read, lent, decided about or has no room.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddrV4;

use ringway_stack::Error;
use ringway_stack::cyclic::{CyclicBuffer, CyclicError, Geometry, Records, Refused};
use ringway_stack::device::RxBuffer;
use ringway_stack::ring::{Decision, FlowId, Lent, Readiness, RecvFlags, UdpOptions};

use super::host::{Host, address};
use crate::addresses::{ipv4, v4};
use crate::drills::bench::Bench;
use crate::heap::Received;

const PORT: u16 = 500;

/// A datagram of the model.
#[derive(Clone, Debug)]
struct Waiting {
    from: SocketAddrV4,
    to: SocketAddrV4,
    bytes: Vec<u8>,
    drops: u32,
}

/// What a queue must hold.
#[derive(Default)]
struct Model {
    queue: VecDeque<Waiting>,
    came: u64,
    dropped: u64,
    dropped_bytes: u64,
    tells: bool,
}

impl Model {
    fn len(&self) -> usize {
        self.queue.iter().map(|waiting| waiting.bytes.len()).sum()
    }
}

fn options(host: &mut Host<'_>, rcvbuf: usize) -> UdpOptions {
    UdpOptions { rcvbuf, tell_drops: host.bench.chance(2), ..UdpOptions::default() }
}

/// One more datagram. Whether it was taken is the socket's to say; but one that finds an empty queue is, and what is not is counted.
fn arrive(host: &mut Host<'_>, socket: FlowId, model: &mut Model, len: usize) {
    let (bytes, from, to) = (host.bytes(len), address(2, 600 + host.bench.below(3) as u16), address(1, PORT));
    let before = host.ring.udp_backlog(socket).map_or(0, |backlog| backlog.packets);
    host.edges(socket);
    host.hand(from, to, &bytes);
    let backlog = host.ring.udp_backlog(socket).unwrap_or_default();
    model.came += 1;
    if backlog.packets == before {
        host.must(!model.queue.is_empty(), format_args!("udp(7): an empty queue has no room for a datagram of {len} bytes"));
        model.dropped += 1;
        model.dropped_bytes += len as u64;
    } else {
        let edges = host.edges(socket);
        host.must(edges.contains(Readiness::IN), "epoll(7): a datagram comes, and nobody is told");
        let drops = if model.tells { model.dropped as u32 } else { 0 };
        model.queue.push_back(Waiting { from, to, bytes, drops });
    }
    let counters = host.ring.info(socket).map(|info| info.counters).unwrap_or_default();
    host.must(
        counters.rx_drops == model.dropped && backlog.dropped_bytes == model.dropped_bytes,
        format_args!(
            "socket(7), SO_RXQ_OVFL: {} datagrams of {} bytes found no room, where {} of {} did",
            counters.rx_drops, backlog.dropped_bytes, model.dropped, model.dropped_bytes
        ),
    );
    host.must(
        counters.rx_packets == model.came - model.dropped,
        format_args!("{} datagrams are counted as received, of {}", counters.rx_packets, model.came - model.dropped),
    );
}

/// What a program can ask of the queue.
fn looks(host: &mut Host<'_>, socket: FlowId, model: &Model) {
    let next = model.queue.front();
    let Some(info) = host.ring.info(socket) else { return };
    host.must(
        info.recv_queue == model.len(),
        format_args!("udp(7), FIONREAD: {} bytes wait, of {} in {} datagrams", info.recv_queue, model.len(), model.queue.len()),
    );
    let len = next.map_or(0, |next| next.bytes.len());
    host.must(info.next_len == len, format_args!("udp(7), FIONREAD: {} bytes in the next datagram of {len}", info.next_len));
    let is_readable = host.ring.readiness(socket).contains(Readiness::IN);
    host.must(is_readable == next.is_some(), format_args!("poll(2): readable ({is_readable}), with {} datagrams", model.queue.len()));
    let packets = host.ring.udp_backlog(socket).map(|backlog| backlog.packets);
    host.must(packets == Some(model.queue.len()), format_args!("{packets:?} datagrams wait, of {}", model.queue.len()));
}

/// Reads the first one into so much room, or looks at it.
fn reads(host: &mut Host<'_>, socket: FlowId, model: &mut Model, room: usize, peeks: bool) {
    let flags = if peeks { RecvFlags::PEEK } else { RecvFlags::empty() };
    let read = host.read(socket, room, flags);
    let Some(next) = model.queue.front() else {
        host.must(
            read == Err(Error::WouldBlock),
            format_args!("recv(2), EAGAIN: {:?} of an empty queue", read.map(|(datagram, _)| datagram)),
        );
        return;
    };
    match read {
        Ok((datagram, bytes)) => {
            let copied = next.bytes.len().min(room);
            host.must(bytes == next.bytes[..copied], format_args!("recv(2): other bytes than those of a datagram of {}", next.bytes.len()));
            host.must(
                datagram.len == next.bytes.len() && datagram.copied == copied,
                format_args!("recv(2), MSG_TRUNC: {datagram:?}, of {} bytes read into {room}", next.bytes.len()),
            );
            host.must(
                v4(datagram.from) == next.from && ipv4(datagram.to) == *next.to.ip(),
                format_args!("recvfrom(2): {datagram:?}, of one from {}", next.from),
            );
            host.must(
                datagram.drops == next.drops,
                format_args!("socket(7), SO_RXQ_OVFL: {} dropped before a datagram, of {}", datagram.drops, next.drops),
            );
        }
        Err(error) => host.must(false, format_args!("recv(2): {error}, with {} datagrams", model.queue.len())),
    }
    if !peeks {
        model.queue.pop_front();
    }
}

/// How many datagrams of `len` bytes an empty queue takes. They are read then.
fn room_for(host: &mut Host<'_>, socket: FlowId, model: &mut Model, len: usize) -> usize {
    loop {
        let dropped = model.dropped;
        arrive(host, socket, model, len);
        if model.dropped > dropped {
            break;
        }
    }
    let count = model.queue.len();
    while !model.queue.is_empty() {
        reads(host, socket, model, 2000, false);
    }
    count
}

/// recv(2), udp(7), socket(7): first in, first out, each with its length, its sender and what was dropped before it; looking takes nothing; and an empty
/// queue has as much room as ever.
pub(in crate::drills) fn reading(bench: &mut Bench) {
    let mut host = super::host(bench);
    let rcvbuf = host.bench.between(700, 12_000) as usize;
    let options = options(&mut host, rcvbuf);
    let socket = host.open(address(1, PORT), options);
    let mut model = Model { tells: options.tell_drops, ..Model::default() };
    let len = host.bench.pick(&[0, 1, 100, 700]) as usize;
    let room = room_for(&mut host, socket, &mut model, len);
    for _ in 0..host.bench.between(50, 200) {
        let len = match host.bench.below(3) {
            0 => 0,
            1 => host.bench.below(300) as usize,
            _ => host.bench.below(1473) as usize,
        };
        match host.bench.below(5) {
            0 | 1 => arrive(&mut host, socket, &mut model, len),
            2 => reads(&mut host, socket, &mut model, len, true),
            3 => reads(&mut host, socket, &mut model, len, false),
            _ => reads(&mut host, socket, &mut model, 2000, false),
        }
        looks(&mut host, socket, &model);
    }
    while !model.queue.is_empty() {
        reads(&mut host, socket, &mut model, 100, false);
    }
    let again = room_for(&mut host, socket, &mut model, len);
    host.must(again == room, format_args!("socket(7), SO_RCVBUF: room for {again} datagrams of {len} bytes, where there was for {room}"));
    host.close(socket);
    host.is_empty();
}

/// The same for a reader who always leaves some: megabytes pass through a queue that is never empty.
pub(in crate::drills) fn behind(bench: &mut Bench) {
    let mut host = super::host(bench);
    let socket = host.open(address(1, PORT), UdpOptions { rcvbuf: 60_000, ..UdpOptions::default() });
    let mut model = Model::default();
    let depth = host.bench.between(1, 30) as usize;
    for _ in 0..host.bench.between(100, 400) {
        // (What fits into a frame's head, and what does not.)
        let len = if host.bench.chance(2) { host.bench.below(200) } else { host.bench.below(1473) } as usize;
        arrive(&mut host, socket, &mut model, len);
        while model.queue.len() > depth {
            reads(&mut host, socket, &mut model, 2000, false);
        }
    }
    looks(&mut host, socket, &model);
    while !model.queue.is_empty() {
        reads(&mut host, socket, &mut model, 2000, false);
    }
    host.close(socket);
    host.is_empty();
}

fn bytes_of(lent: &Lent<Received>, into: &mut Vec<u8>) {
    match lent {
        Lent::Copied(bytes) => into.extend(bytes.iter()),
        Lent::Buffer(buffer) => {
            let at = into.len();
            into.resize(at + buffer.len(), 0);
            buffer.copy_to(0, &mut into[at..]);
        }
    }
}

/// What is lent takes room until it is given back, and none after that; it is what came.
pub(in crate::drills) fn lending(bench: &mut Bench) {
    let mut host = super::host(bench);
    if host.bench.chance(2) {
        host.ring.lend_from_now_on();
    }
    let rcvbuf = host.bench.between(700, 8000) as usize;
    let socket = host.open(address(1, PORT), UdpOptions { rcvbuf, ..UdpOptions::default() });
    let mut model = Model::default();
    let len = host.bench.pick(&[0, 1, 100, 700]) as usize;
    let room = room_for(&mut host, socket, &mut model, len);
    for _ in 0..host.bench.between(5, 20) {
        let (mut count, mut lent) = (0, Vec::new());
        // As many as fit are lent, one by one: there is no room then, and as much as each took when it comes back.
        loop {
            let dropped = model.dropped;
            // (One that finds an empty queue is taken, unless what is lent leaves no room.)
            let before = host.ring.udp_backlog(socket).map_or(0, |backlog| backlog.packets);
            let (bytes, from) = (host.bytes(len), address(2, 600));
            host.hand(from, address(1, PORT), &bytes);
            model.came += 1;
            if host.ring.udp_backlog(socket).is_some_and(|backlog| backlog.packets > before) {
                let mut taken = Vec::new();
                let datagram = host.ring.udp_lend_each(socket, |piece| bytes_of(&piece, &mut taken));
                host.must(
                    datagram.is_ok_and(|datagram| datagram.len == len && v4(datagram.from) == from) && taken == bytes,
                    format_args!("what is lent is not what came: {} bytes of {len}", taken.len()),
                );
                count += 1;
                lent.push(len);
            } else {
                model.dropped += 1;
                model.dropped_bytes += len as u64;
            }
            if model.dropped > dropped || count > room + 1 {
                break;
            }
        }
        host.must(count == room, format_args!("socket(7), SO_RCVBUF: {count} datagrams of {len} bytes are lent, where {room} fit"));
        for len in lent {
            host.ring.give_back(host.now, socket, len);
        }
    }
    let again = room_for(&mut host, socket, &mut model, len);
    host.must(
        again == room,
        format_args!("socket(7), SO_RCVBUF: room for {again} datagrams once all was given back, where there was for {room}"),
    );
    host.close(socket);
    host.is_empty();
}

/// How many datagrams found no room.
fn dropped_of(host: &Host<'_>, socket: FlowId) -> u64 {
    host.ring.info(socket).map_or(0, |info| info.counters.rx_drops)
}

/// What is undecided is shown in the order in which it came; the reader gets what was admitted, and all the rest once the filter goes; what was dropped
/// or given back takes no room.
pub(in crate::drills) fn filtering(bench: &mut Bench) {
    let mut host = super::host(bench);
    let rcvbuf = 20_000;
    let socket = host.open(address(1, PORT), UdpOptions { rcvbuf, ..UdpOptions::default() });
    let mut model = Model::default();
    let room = room_for(&mut host, socket, &mut model, 100);
    // What a datagram takes beside its bytes, at most.
    let beside = rcvbuf / room.max(1) - 100;
    for _ in 0..host.bench.between(1, 4) {
        let on = host.ring.set_recv_filter(socket, true);
        host.must(on.is_ok(), format_args!("{on:?} of a receive filter"));
        let (mut undecided, mut admitted, mut held) = (VecDeque::new(), VecDeque::new(), Vec::new());
        for _ in 0..host.bench.between(1, 30) {
            if host.bench.chance(2) {
                let len = host.bench.below(900) as usize;
                let bytes = host.bytes(len);
                host.edges(socket);
                let dropped = dropped_of(&host, socket);
                host.hand(address(2, 600), address(1, PORT), &bytes);
                if dropped_of(&host, socket) > dropped {
                    let waiting = undecided.iter().chain(&admitted).map(Vec::len).chain(held.iter().copied());
                    let taken: usize = waiting.map(|len| len + beside).sum();
                    host.must(
                        taken + len + beside > rcvbuf,
                        format_args!("socket(7), SO_RCVBUF: no room for {len} bytes, where {taken} of {rcvbuf} are taken"),
                    );
                    continue;
                }
                let shown = host.ring.has_candidate(socket);
                host.must(shown, "a datagram comes, and nothing is to be decided about");
                // (Whoever decides may be woken; the reader has nothing to read.)
                let is_readable = host.ring.readiness(socket).contains(Readiness::IN);
                host.must(
                    is_readable != admitted.is_empty(),
                    format_args!("poll(2): readable ({is_readable}), with {} admitted", admitted.len()),
                );
                undecided.push_back(bytes);
            } else {
                let Some(first) = undecided.pop_front() else { continue };
                let mut bytes = Vec::new();
                let shown = host.ring.candidate_each(socket, |piece| bytes_of(&piece, &mut bytes));
                host.must(
                    shown.is_ok_and(|shown| shown.len == first.len() && shown.ready_packets == admitted.len()) && bytes == first,
                    format_args!("{shown:?} of {} bytes is shown, with {} admitted", first.len(), admitted.len()),
                );
                let decision = host.bench.pick(&[Decision::Admit, Decision::Drop, Decision::Hold]);
                host.edges(socket);
                let decided = host.ring.decide(host.now, socket, decision);
                host.must(decided == Ok(first.len()), format_args!("{decided:?} of {} bytes: {decision:?}", first.len()));
                let is_readable = host.edges(socket).contains(Readiness::IN);
                host.must(is_readable || decision != Decision::Admit, "epoll(7): something can be read, and nobody is told");
                match decision {
                    Decision::Admit => admitted.push_back(first),
                    Decision::Hold => held.push(first.len()),
                    Decision::Drop => {}
                }
            }
        }
        host.edges(socket);
        let off = host.ring.set_recv_filter(socket, false);
        host.must(off.is_ok(), format_args!("{off:?} of a receive filter that goes"));
        let is_readable = host.edges(socket).contains(Readiness::IN);
        host.must(is_readable || undecided.is_empty(), "epoll(7): what was undecided can be read, and nobody is told");
        admitted.extend(undecided);
        for bytes in admitted {
            let read = host.take(socket).map(|(_, bytes)| bytes);
            host.must(
                read.as_ref() == Some(&bytes),
                format_args!("{:?} bytes are read, of {} admitted", read.map(|read| read.len()), bytes.len()),
            );
        }
        let more = host.take(socket).map(|(_, bytes)| bytes.len());
        host.must(more.is_none(), format_args!("{more:?} bytes are read that nobody admitted"));
        for len in held {
            host.ring.give_back(host.now, socket, len);
        }
    }
    // (What came while there was a filter was not the model's.)
    let mut count = 0;
    loop {
        let before = host.ring.udp_backlog(socket).map_or(0, |backlog| backlog.packets);
        host.hand(address(2, 600), address(1, PORT), &[7; 100]);
        if host.ring.udp_backlog(socket).is_none_or(|backlog| backlog.packets == before) {
            break;
        }
        count += 1;
    }
    host.must(count == room, format_args!("socket(7), SO_RCVBUF: room for {count} datagrams after a filter, where there was for {room}"));
    host.close(socket);
    host.is_empty();
}

/// Several sockets are read into one buffer: in the order in which their datagrams came, each in a record of its own, with its time.
pub(in crate::drills) fn cyclic(bench: &mut Bench) {
    let mut host = super::host(bench);
    let sockets: Vec<_> = (0..3).map(|number| host.open(address(1, PORT + number), UdpOptions::default())).collect();
    let records = host.bench.pick(&[Records::StripHeaders, Records::Padded, Records::Raw, Records::SeparateHeaders]);
    let (packets, payload_bytes) = (host.bench.between(8, 64) as usize, host.bench.between(60, 300) as usize);
    let geometry = Geometry { records, packets, payload_bytes, header_bytes: 0, vlan: false };
    let Ok(layout) = geometry.layout() else { return host.must(false, format_args!("{geometry:?} is refused")) };
    let Ok(mut buffer) = CyclicBuffer::new(&geometry, vec![0xee; layout.bytes()]) else { return host.must(false, "a buffer is refused") };
    let whole = matches!(records, Records::Padded | Records::Raw);
    // (From the first read on, headers are kept.)
    let none = host.ring.cyclic_read(&sockets, &mut buffer, 1, packets);
    host.must(none == Ok(None), format_args!("{none:?} of queues that are empty"));
    let mut waiting: VecDeque<(Vec<u8>, ringway_stack::Instant)> = VecDeque::new();
    let used = |len: usize| {
        if records == Records::Padded { (42 + len).div_ceil(layout.record_bytes) * layout.record_bytes } else { layout.record_bytes }
    };
    let all = layout.record_bytes * layout.count;
    let mut end_before = 0;
    for _ in 0..host.bench.between(5, 60) {
        for _ in 0..host.bench.below(6) {
            let (mut len, which) = (host.bench.below(payload_bytes as u64 + 1) as usize, host.bench.below(3));
            if records != Records::Padded && host.bench.chance(20) {
                // No record holds it.
                len = payload_bytes + host.bench.between(1, 300) as usize;
            }
            let bytes = host.bytes(len);
            let came = host.now;
            host.hand(address(2, 600), address(1, PORT + which as u16), &bytes);
            waiting.push_back((bytes, came));
            let pause = host.bench.between(1, 1_000_000);
            host.pass(Duration::from_nanos(pause));
        }
        let max = host.bench.between(1, packets as u64) as usize;
        let min = if host.bench.chance(2) { 0 } else { host.bench.between(0, max as u64) as usize };
        let run = host.ring.cyclic_read(&sockets, &mut buffer, min, max);
        if run == Err(CyclicError::Oversized(Refused::Oversized)) {
            // It is gone, and what came before it waits on.
            let which = waiting.iter().position(|(bytes, _)| bytes.len() > payload_bytes);
            host.must(which.is_some(), "a datagram is refused for its length, and none is too long");
            which.and_then(|which| waiting.remove(which));
            continue;
        }
        let Ok(run) = run else { return host.must(false, format_args!("{run:?} of a buffer")) };
        let Some(run) = run else {
            host.must(
                waiting.len() < min.max(1),
                format_args!("nothing is read of at least {min} packets, of {} datagrams", waiting.len()),
            );
            continue;
        };
        // Back to the beginning it goes where nothing more fits, and only there.
        let first = waiting.front().map_or(0, |(bytes, _)| used(bytes.len()));
        let follows = run.payload.start == end_before || (run.payload.start == 0 && end_before + first > all);
        host.must(follows, format_args!("{run:?} follows a run that ended at {end_before}, of {all} bytes"));
        end_before = run.payload.end;
        let next = waiting.get(run.packets).map_or(0, |(bytes, _)| used(bytes.len()));
        let is_end = run.payload.end == all || (next > 0 && run.payload.end + next > all);
        host.must(
            run.packets >= min || is_end,
            format_args!("{} packets are read, of at least {min}, and the buffer has {} bytes more", run.packets, all - run.payload.end),
        );
        host.must(run.packets >= 1 && run.packets <= max, format_args!("{} packets are read, of at most {max}", run.packets));
        let mut at = run.payload.start;
        for number in 0..run.packets {
            let Some((bytes, came)) = waiting.pop_front() else { return host.must(false, "more is read than came") };
            let skip = if whole { 42 } else { 0 };
            let end = at + skip + bytes.len();
            let is_it = buffer.memory().get(at + skip..end).is_some_and(|found| found == bytes);
            host.must(
                is_it && end <= run.payload.end,
                format_args!("record {number} of {run:?} is not the datagram of {} bytes that is next", bytes.len()),
            );
            if number == 0 {
                let late = run.received.since(came);
                host.must(late < Duration::from_micros(1), format_args!("a run has the time of its first packet, not one {late:?} later"));
            }
            at += used(bytes.len());
        }
        host.must(at == run.payload.end, format_args!("{run:?} ends {} bytes behind its last record", run.payload.end.wrapping_sub(at)));
    }
    sockets.into_iter().for_each(|socket| host.close(socket));
    host.is_empty();
}
