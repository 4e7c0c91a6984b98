//! Windows: what is announced while a reader reads, and what a peer's window lets through, silly or shut (RFC 9293 s3.8.6).

use core::time::Duration;

use ringway_stack::Error;
use ringway_stack::ring::{SendFlags, Shutdown};
use ringway_stack::tcp::State;

use super::Drill;
use super::bench::{Bench, Peer, TICK};
use crate::segment::{ACK, FIN, PSH, before};

pub(super) const DRILLS: &[Drill] = &[
    ("a window that is shut", shut),
    ("a window that is shut by nobody", unanswered),
    ("an end at the edge of a window", end_at_the_edge),
    ("a reader who makes room", updates),
    ("a silly window", silly),
    ("a small window", small),
    ("windows of older segments", older),
    ("a window that was overtaken", overtaken),
    ("a send buffer", send_buffer),
    ("a receive buffer that grows", growth),
    ("a full buffer", full),
];

const RTO_MIN: Duration = Duration::from_millis(200);
/// Linux's tcp_orphan_retries.
const ORPHAN_RETRIES: u32 = 8;
const PROBES_APART_MAX: Duration = Duration::from_secs(120);

/// The peer says so much room.
fn open(bench: &mut Bench, peer: &mut Peer, bytes: u32) {
    peer.window = (bytes >> peer.scale) as u16;
    bench.give(peer, peer.nxt, peer.rcv, ACK, 0);
}

/// Whether it is a probe of a shut window.
fn is_probe(peer: &Peer, heard: &super::bench::Heard) -> bool {
    heard.span() == 0 && heard.seq == peer.rcv.wrapping_sub(1) || heard.len() == 1 && heard.seq == peer.rcv
}

/// The peer may have ended its stream, and goes on reading.
pub(super) fn perhaps_ended(bench: &mut Bench, peer: &mut Peer) -> State {
    if bench.chance(2) {
        return State::Established;
    }
    bench.give(peer, peer.nxt, peer.rcv, ACK | FIN, 0);
    peer.nxt = peer.nxt.wrapping_add(1);
    let ack = bench.one("RFC 9293 s3.10.7.4: a FIN is acknowledged at once");
    bench.is_ack(&ack, peer, "RFC 9293 s3.10.7.4: a FIN is acknowledged");
    State::CloseWait
}

/// RFC 9293 s3.8.6.1: a shut window is probed, less and less often, for as long as somebody answers; and what it held goes as soon as it opens.
fn shut(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.mss = 1000;
    setup.window = 60_000;
    let mut peer = bench.connect(&setup);
    let state = perhaps_ended(bench, &mut peer);
    let mut written = 0;
    open(bench, &mut peer, 0);
    bench.silence("RFC 9293 s3.10.7.4: a window is not answered");
    for _ in 0..2 {
        written += bench.write(&peer, written, 3000, SendFlags::empty());
        bench.silence("RFC 9293 s3.8.6: bytes beyond the peer's window");
        let probes = bench.between(1, 24) as u32;
        for number in 0..probes {
            let due = (RTO_MIN * (1 << number.min(12))).min(PROBES_APART_MAX);
            let since = bench.now;
            let probe = bench.await_segment(due + due / 50 + TICK);
            let waited = bench.now.since(since);
            let right = probe.as_ref().is_some_and(|probe| is_probe(&peer, probe));
            bench.must(
                right,
                format_args!("RFC 9293 s3.8.6.1: no probe of a shut window after {waited:?}, and {due:?} are due ({number} before)"),
            );
            let early = waited + due / 50 + TICK < due;
            bench.must(!early, format_args!("RFC 9293 s3.8.6.1: probe {number} of a shut window after {waited:?}, and {due:?} are due"));
            bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
            bench.silence("RFC 9293 s3.8.6.1: an answer that keeps the window shut");
        }
        let found = bench.state(&peer);
        bench.must(found == Some(state), format_args!("RFC 9293 s3.8.6.1: {found:?}, though each probe was answered"));
        open(bench, &mut peer, 30_000);
        let sent = bench.receive(&mut peer);
        bench.must(sent >= 3, format_args!("RFC 9293 s3.8.6: {sent} segments as the window opens, for which three waited"));
        open(bench, &mut peer, 0);
        bench.silence("RFC 9293 s3.8.6.1: nothing waits for the window any more");
        bench.pass(Duration::from_secs(300));
        bench.silence("RFC 9293 s3.8.6.1: a window is probed that nothing waits for");
    }
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 9293 s3.4: a FIN has a number, for which the window must have room; until then the window is probed.
fn end_at_the_edge(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.mss = 1000;
    setup.config.window_scaling = true;
    setup.scale = Some(bench.below(9) as u8);
    let mut peer = bench.connect(&setup);
    let room = (bench.between(1, 4) as u32) << peer.scale;
    open(bench, &mut peer, room);
    bench.silence("RFC 9293 s3.10.7.4: a window is not answered");
    let is_held = bench.chance(2);
    bench.write(&peer, 0, room as usize, if is_held { SendFlags::MORE } else { SendFlags::empty() });
    bench.receive(&mut peer);
    let shut = bench.ring.shutdown(bench.now, peer.id(), Shutdown::Write);
    bench.must(shut.is_ok(), format_args!("shutdown(2): {shut:?}"));
    bench.receive(&mut peer);
    let got = peer.rcv.wrapping_sub(peer.irs) - 1;
    bench.must(got == room, format_args!("RFC 9293 s3.4: {got} numbers sent into a window of {room}, for as many bytes and a FIN"));
    open(bench, &mut peer, 0);
    bench.silence("RFC 9293 s3.8.6: a FIN beyond the peer's window");
    if bench.chance(2) {
        let probe = bench.await_segment(RTO_MIN + TICK * 2);
        let right = probe.is_some_and(|probe| is_probe(&peer, &probe));
        bench.must(right, "RFC 9293 s3.8.6.1: no probe of a shut window for which a FIN waits");
    }
    open(bench, &mut peer, room);
    let end = bench.one("RFC 9293 s3.8.6: a FIN goes as soon as the window opens");
    bench.must(end.has(FIN) && end.len() == 0 && end.seq == peer.rcv, "RFC 9293 s3.4: a FIN follows what was written");
}

/// RFC 9293 s3.8.3: probes that nobody answers end the connection.
fn unanswered(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.config.retries = bench.between(2, 12) as u32;
    let mut peer = bench.connect(&setup);
    perhaps_ended(bench, &mut peer);
    open(bench, &mut peer, 0);
    bench.write(&peer, 0, 3000, SendFlags::empty());
    let is_orphan = bench.chance(3);
    if is_orphan {
        bench.ring.close(bench.now, peer.id(), false);
    }
    let limit = if is_orphan { setup.config.retries.min(ORPHAN_RETRIES) } else { setup.config.retries };
    // Those that were answered count no more.
    for _ in 0..bench.below(4) {
        if bench.await_segment(PROBES_APART_MAX * 2).is_some() {
            bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
        }
    }
    let mut probes = 0;
    while bench.state(&peer).is_some() && bench.await_segment(PROBES_APART_MAX * 2).is_some() {
        probes += 1;
        bench.must(probes <= limit + 2, format_args!("RFC 9293 s3.8.3: probe {probes} that nobody answers"));
    }
    bench.must(probes >= limit, format_args!("RFC 9293 s3.8.3: given up after {probes} probes of {limit}"));
    if is_orphan {
        return;
    }
    let error = bench.ring.take_error(peer.id());
    bench.must(error == Some(Error::TimedOut), format_args!("RFC 9293 s3.8.3: {error:?} after probes that nobody answers"));
    bench.ring.close(bench.now, peer.id(), false);
}

/// RFC 9293 s3.8.6.2.2: the right edge moves by a segment, or by half of the buffer, or not at all; and when it can, it does.
fn updates(bench: &mut Bench) {
    let mut setup = bench.setup();
    let rcvbuf = bench.between(2304, 20_000) as usize;
    setup.config.rcvbuf = Some(rcvbuf);
    let mut peer = bench.connect(&setup);
    let full = peer.mss.min(1460);
    // The stack goes by what it may receive: its own segment size.
    let worth = (setup.mss.min(1460) as usize - 12).min(rcvbuf / 2);
    let slack = 3usize << peer.stack_scale;
    let mut waiting = 0;
    let mut edge = peer.edge;
    // The peer fills the window.
    loop {
        let room = peer.edge.wrapping_sub(peer.nxt);
        let len = room.min(full);
        if len == 0 {
            break;
        }
        bench.give(&peer, peer.nxt, peer.rcv, ACK, len);
        peer.nxt = peer.nxt.wrapping_add(len);
        waiting += len as usize;
        if room <= full {
            bench.pass(setup.config.delayed_ack + TICK);
        }
        for heard in bench.take() {
            moves(bench, &mut peer, &heard, &mut edge, worth, slack);
        }
        bench.must(waiting <= rcvbuf + slack, format_args!("RFC 9293 s3.8.6: {waiting} bytes are waited for, with room for {rcvbuf}"));
        if room <= full && peer.edge == edge && peer.edge.wrapping_sub(peer.nxt) < full {
            break;
        }
    }
    // The reader reads, in pieces.
    let piece = bench.between(1, 700) as usize;
    while waiting > 0 {
        let read = bench.read(&peer, piece).unwrap_or(0);
        bench.must(read == piece.min(waiting), format_args!("recv(2): {read} of {waiting} bytes, and {piece} were asked for"));
        waiting -= read;
        for heard in bench.take() {
            let said = heard.ack.wrapping_add(u32::from(heard.window) << peer.stack_scale);
            let by = said.wrapping_sub(edge).cast_signed();
            bench.must(
                by >= 0 && by as usize + slack >= worth,
                format_args!("RFC 9293 s3.8.6.2.2: a segment that moves the right edge by {by}, and {worth} are worth one"),
            );
            moves(bench, &mut peer, &heard, &mut edge, worth, slack);
        }
        if bench.chance(3) {
            // Whatever is answered says no more than is worth it, either.
            bench.give(&peer, peer.nxt.wrapping_sub(1), peer.rcv, ACK, 1);
        }
        for heard in bench.take() {
            moves(bench, &mut peer, &heard, &mut edge, worth, slack);
        }
        let offered = peer.edge.wrapping_sub(peer.nxt) as usize;
        let gain = (rcvbuf - waiting.min(rcvbuf)).saturating_sub(offered);
        // Where it can say twice as much as before, and a segment more, the peer hears of it (Linux's __tcp_cleanup_rbuf).
        let due = gain >= worth.max(setup.mss as usize).min(rcvbuf / 2) + slack && gain >= offered + slack && 2 * offered + slack <= rcvbuf;
        bench.must(
            !due,
            format_args!("RFC 9293 s3.8.6.2.2: {offered} bytes are offered, {gain} more could be, and {worth} are worth a segment"),
        );
    }
    bench.ring.close(bench.now, peer.id(), true);
}

/// What a segment says of the window.
fn moves(bench: &Bench, peer: &mut Peer, heard: &super::bench::Heard, edge: &mut u32, worth: usize, slack: usize) {
    bench.note_window(peer, heard);
    let by = peer.edge.wrapping_sub(*edge).cast_signed();
    let lost = by < -(slack as i32);
    bench.must(!lost, format_args!("RFC 9293 s3.8.6: the right edge retreats by {}", -by));
    // (As on Linux, a window that is worth a segment is said as it is.)
    let room = peer.edge.wrapping_sub(heard.ack) as usize;
    let silly = by > slack as i32 && room + slack < worth;
    bench.must(!silly, format_args!("RFC 9293 s3.8.6.2.2: the window opens by {by} to {room}, and {worth} are worth a segment"));
    if by > 0 {
        *edge = peer.edge;
    }
}

/// RFC 9293 s3.8.6.2.1: a window that is cut short is not filled, until its time is up (0.1 to 1 second).
fn silly(bench: &mut Bench) {
    let mut setup = bench.setup();
    (setup.mss, setup.window, setup.scale) = (1000, 60_000, None);
    let mut peer = bench.connect(&setup);
    let bytes = bench.between(50, 900) as u32;
    open(bench, &mut peer, bytes);
    bench.write(&peer, 0, 3000, SendFlags::empty());
    bench.pass(Duration::from_millis(95));
    bench.silence("RFC 9293 s3.8.6.2.1: a silly window is filled at once");
    let heard = bench.await_segment(Duration::from_millis(1100));
    let len = heard.as_ref().map_or(0, |heard| heard.len());
    bench.must(len == bytes, format_args!("RFC 9293 s3.8.6.2.1: {len} bytes after the override's time, and the window has {bytes}"));
    if let Some(heard) = heard {
        bench.take_in(&mut peer, &heard);
    }
    // What is acknowledged, and a window that opens by a segment, lets the rest go.
    open(bench, &mut peer, 10_000);
    let sent = bench.receive(&mut peer);
    bench.must(sent >= 2, format_args!("RFC 9293 s3.8.6.2.1: {sent} segments as the window opens"));
    bench.ring.close(bench.now, peer.id(), true);
}

/// A peer whose window has no two segments gets it in halves, one of which it can acknowledge while the other travels (Linux's tcp_bound_to_half_wnd).
fn small(bench: &mut Bench) {
    let mut setup = bench.setup();
    (setup.mss, setup.scale) = (1460, None);
    setup.window = bench.between(600, 2000) as u16;
    let mut peer = bench.connect(&setup);
    bench.write(&peer, 0, 8000, SendFlags::empty());
    let begin = peer.rcv;
    let sent = bench.receive(&mut peer);
    let bytes = peer.rcv.wrapping_sub(begin);
    bench.must(bytes <= u32::from(setup.window), format_args!("RFC 9293 s3.8.6: {bytes} bytes, and the window has {}", setup.window));
    bench.must(sent >= 2, format_args!("tcp_bound_to_half_wnd: {bytes} bytes in {sent} segments, of a window of {}", setup.window));
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 9293 s3.10.7.4: SND.WL1 and SND.WL2 keep old segments from changing the window.
fn older(bench: &mut Bench) {
    let mut setup = bench.setup();
    (setup.mss, setup.window, setup.scale) = (1000, 60_000, None);
    let mut peer = bench.connect(&setup);
    let first = peer.nxt;
    let una = peer.rcv;
    peer.window = 2000;
    // Behind a gap, so that the older one is acceptable.
    bench.give(&peer, first.wrapping_add(50), una, ACK | PSH, 50);
    bench.take();
    bench.write(&peer, 0, 6000, SendFlags::empty());
    let begin = peer.rcv;
    bench.receive(&mut peer);
    let sent = peer.rcv.wrapping_sub(begin);
    bench.must(sent <= 2000, format_args!("RFC 9293 s3.8.6: {sent} bytes, and the window has 2000"));
    peer.window = 20_000;
    bench.give(&peer, first, una, ACK, 0);
    let more = bench.take().iter().filter(|heard| heard.len() > 0 && heard.seq == peer.rcv).count();
    bench.must(more == 0, format_args!("RFC 9293 s3.10.7.4: {more} segments for the window of an older segment"));
    // The same from a newer one counts.
    bench.give(&peer, first.wrapping_add(100), una, ACK, 0);
    let more = bench.receive(&mut peer);
    bench.must(more > 0, "RFC 9293 s3.10.7.4: a newer segment's window is not used");
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 9293 s3.10.7.4: nor does an old segment that comes late behind those of an undisturbed stream.
fn overtaken(bench: &mut Bench) {
    let mut setup = bench.setup();
    (setup.mss, setup.window, setup.scale) = (1460, 60_000, None);
    setup.config.rcvbuf = Some(100_000);
    let mut peer = bench.connect(&setup);
    // Until acknowledgments are delayed, so that the old segment is acceptable.
    for _ in 0..18 {
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 10);
        peer.nxt = peer.nxt.wrapping_add(10);
        bench.pass(setup.config.delayed_ack + TICK);
        bench.take();
    }
    let (old, stamp) = (peer.nxt, bench.clock());
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 10);
    peer.nxt = peer.nxt.wrapping_add(10);
    peer.window = 2000;
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 10);
    peer.nxt = peer.nxt.wrapping_add(10);
    let newer = peer.window;
    peer.window = 20_000;
    bench.give_stamped(&peer, old, peer.rcv, ACK, 0, &[], stamp);
    bench.take();
    peer.window = newer;
    let begin = peer.rcv;
    bench.write(&peer, 0, 9000, SendFlags::empty());
    bench.receive(&mut peer);
    let sent = peer.rcv.wrapping_sub(begin);
    bench.must(sent <= 2000, format_args!("RFC 9293 s3.10.7.4: {sent} bytes for the window of an older segment, and the newest has 2000"));
    bench.ring.close(bench.now, peer.id(), true);
}

/// socket(7), SO_SNDBUF: what waits to be acknowledged is no more than that, however it was written.
fn send_buffer(bench: &mut Bench) {
    let mut setup = bench.setup();
    let limit = bench.between(4608, 30_000) as usize;
    setup.config.sndbuf = Some(limit);
    let mut peer = bench.connect(&setup);
    open(bench, &mut peer, 0);
    let mut written = 0;
    loop {
        let len = bench.between(1, 5000) as usize;
        let wrote = bench.write(&peer, written, len, SendFlags::empty());
        written += wrote;
        bench.must(written <= limit, format_args!("socket(7), SO_SNDBUF: {written} bytes wait, and {limit} may"));
        if wrote == 0 {
            break;
        }
    }
    bench.must(written == limit, format_args!("socket(7), SO_SNDBUF: no room for more than {written} of {limit} bytes"));
    bench.ring.close(bench.now, peer.id(), true);
}

/// tcp(7), tcp_rmem: a receive buffer whose reader keeps up grows, and not beyond its largest size (of which half is for bytes, as on Linux).
fn growth(bench: &mut Bench) {
    let mut setup = bench.setup();
    let most = bench.between(10_000, 30_000) as usize;
    (setup.config.rcvbuf, setup.config.rcvbuf_initial, setup.config.rcvbuf_max) = (None, 16_000, 2 * most);
    (setup.mss, setup.config.mss_max) = (1460, 1460);
    let mut peer = bench.connect(&setup);
    for _ in 0..12 {
        let mut sent = 0;
        while before(peer.nxt, peer.edge) {
            let len = peer.edge.wrapping_sub(peer.nxt).min(1400);
            bench.give(&peer, peer.nxt, peer.rcv, ACK, len);
            peer.nxt = peer.nxt.wrapping_add(len);
            sent += len as usize;
            if sent > 2 * most {
                break;
            }
        }
        bench.must(
            sent <= most + (2 << peer.stack_scale),
            format_args!("tcp(7), tcp_rmem: a window of {sent} bytes, and {most} is the most"),
        );
        bench.take();
        bench.pass(Duration::from_millis(2));
        bench.must(bench.ring.info(peer.id()).is_some_and(|info| info.recv_queue == sent), "recv(2): what came is not there");
        let read = bench.read(&peer, sent).unwrap_or(0);
        bench.must(read == sent, format_args!("recv(2): {read} of {sent} bytes"));
        bench.pass(setup.config.delayed_ack + TICK);
        for heard in bench.take() {
            bench.note_window(&mut peer, &heard);
        }
    }
    bench.ring.close(bench.now, peer.id(), true);
}

/// tcp(7), tcp_moderate_rcvbuf: the buffer has the size that the path's throughput takes. Who reads a fraction of it in a round trip gets no larger one, however long
/// that goes on.
pub(super) fn slow(bench: &mut Bench) {
    let mut setup = bench.setup();
    (setup.config.rcvbuf, setup.config.rcvbuf_initial, setup.config.rcvbuf_max) = (None, 32_000, 1 << 20);
    (setup.mss, setup.config.mss_max) = (1460, 1460);
    let mut peer = bench.connect(&setup);
    let (initial, mut most) = (16_000, 0);
    let len = bench.between(100, 1400) as u32;
    for _ in 0..bench.between(50, 200) {
        bench.give(&peer, peer.nxt, peer.rcv, ACK, len);
        peer.nxt = peer.nxt.wrapping_add(len);
        let read = bench.read(&peer, 2000);
        bench.must(read == Ok(len as usize), format_args!("recv(2): {read:?} of {len} bytes"));
        let pause = Duration::from_millis(bench.between(2, 20));
        bench.pass(pause);
        for heard in bench.take() {
            bench.note_window(&mut peer, &heard);
            most = most.max(u32::from(heard.window) << peer.stack_scale);
        }
    }
    bench.must(
        most <= initial + (2 << peer.stack_scale),
        format_args!("tcp(7), tcp_moderate_rcvbuf: a window of {most} bytes for who reads {len} in two milliseconds, and {initial} before"),
    );
    bench.ring.close(bench.now, peer.id(), true);
}

/// Nobody reads, until nothing fits any more: acknowledgments count all the same (RFC 9293 s3.10.7.4), and neither bytes nor a FIN beyond the window do.
fn full(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.config.rcvbuf = Some(bench.between(2304, 9000) as usize);
    let mut peer = bench.connect(&setup);
    while before(peer.nxt, peer.edge) {
        let room = peer.edge.wrapping_sub(peer.nxt);
        let len = room.min(500);
        // (What is accepted may be a fraction of a unit more than was said.)
        let unit = 1 << peer.stack_scale;
        let over = if room <= 500 && bench.chance(2) { unit + bench.between(1, 60) as u32 } else { 0 };
        let flags = if over > 0 { ACK | FIN } else { ACK };
        bench.give(&peer, peer.nxt, peer.rcv, flags, len + over);
        peer.nxt = peer.nxt.wrapping_add(len);
        bench.pass(setup.config.delayed_ack + TICK);
        for heard in bench.take() {
            let more = heard.ack.wrapping_sub(peer.nxt);
            bench.must(more < unit.min(over + 1), format_args!("RFC 9293 s3.10.7.4: {more} bytes beyond the window are acknowledged"));
            peer.nxt = heard.ack;
            bench.note_window(&mut peer, &heard);
        }
        let state = bench.state(&peer);
        bench.must(
            state == Some(State::Established),
            format_args!("RFC 9293 s3.10.7.4: {state:?} after a FIN behind bytes that the window excludes"),
        );
    }
    // The stack has something in flight, which a probe acknowledges.
    bench.pass(Duration::from_secs(1));
    let una = peer.rcv;
    bench.write(&peer, 0, 300, SendFlags::empty());
    bench.receive(&mut peer);
    bench.must(una != peer.rcv, "RFC 9293 s3.9.1.2: bytes are not sent, with nothing in flight");
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 1);
    let Some(answer) = bench.await_segment(setup.config.delayed_ack + TICK) else {
        return bench.must(false, "RFC 9293 s3.8.6.1: a probe of a shut window is not answered");
    };
    peer.nxt = peer.nxt.wrapping_add(u32::from(answer.ack != peer.nxt));
    bench.is_ack(&answer, &peer, "RFC 9293 s3.8.6.1: a probe of a shut window is answered");
    bench.pass(Duration::from_secs(5));
    let again = bench.take().iter().filter(|heard| heard.len() > 0).count();
    bench.must(again == 0, "RFC 9293 s3.10.7.4: an acknowledgment counts though its bytes have no room");
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 9293 s3.8.6: what a program was lent counts against the window, and no longer once it is given back.
pub(super) fn given_back(bench: &mut Bench) {
    const LEN: u32 = 1000;
    let mut setup = bench.setup();
    setup.config.rcvbuf = Some(bench.between(8_000, 20_000) as usize);
    let mut peer = bench.connect(&setup);
    for _ in 0..60 {
        let open = peer.edge.wrapping_sub(peer.nxt).cast_signed();
        bench.must(
            open >= LEN.cast_signed(),
            format_args!("RFC 9293 s3.8.6: the window has {open} bytes, and all that was lent was given back"),
        );
        bench.give(&peer, peer.nxt, peer.rcv, ACK, LEN);
        peer.nxt = peer.nxt.wrapping_add(LEN);
        let mut lent = Vec::new();
        while let Ok(Some(piece)) = bench.ring.tcp_lend(peer.id(), |_| usize::MAX) {
            lent.push(piece.len());
        }
        bench.must(lent.iter().sum::<usize>() == LEN as usize, format_args!("{lent:?} bytes are lent of {LEN} that came"));
        for len in lent {
            bench.ring.give_back(bench.now, peer.id(), len);
        }
        // (A delayed acknowledgment says so, too.)
        bench.pass(Duration::from_millis(200));
        for heard in bench.take() {
            bench.note_window(&mut peer, &heard);
        }
    }
    bench.ring.close(bench.now, peer.id(), true);
}
