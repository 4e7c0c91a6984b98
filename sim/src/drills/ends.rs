//! Ends of connections: TIME-WAIT, orphans, and what a program is told.

use core::time::Duration;

use ringway_stack::Error;
use ringway_stack::ring::{SendFlags, Shutdown};
use ringway_stack::tcp::State;

use super::Drill;
use super::bench::{Bench, Peer, Setup, TICK, TIME_WAIT};
use crate::segment::{ACK, FIN, RST, SYN};

pub(super) const DRILLS: &[Drill] = &[
    ("a TIME-WAIT", time_wait),
    ("SYNs in TIME-WAIT", time_wait_syns),
    ("an orphan in FIN-WAIT-2", fin_wait_2),
    ("an orphan that gets data", orphan_data),
    ("what a program is told of a reset", told),
    ("addresses of a connection that ended", addresses),
];

/// The stack ends its stream first, and the peer follows.
fn wait(bench: &mut Bench, setup: &Setup) -> Peer {
    // (What is in flight is not to be probed meanwhile.)
    let mut peer = bench.connect(&Setup { sack: false, ..setup.clone() });
    bench.pass(Duration::from_millis(20));
    // Something may be in flight, whose timer must not be left.
    if bench.chance(2) {
        bench.write(&peer, 0, 500, SendFlags::empty());
        bench.receive(&mut peer);
    }
    let shut = bench.ring.shutdown(bench.now, peer.id(), Shutdown::Write);
    bench.must(shut.is_ok(), format_args!("shutdown(2): {shut:?}"));
    bench.receive(&mut peer);
    bench.pass(Duration::from_millis(20));
    if bench.chance(2) {
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
        bench.pass(Duration::from_millis(10));
    }
    bench.give(&peer, peer.nxt, peer.rcv, ACK | FIN, 0);
    peer.nxt = peer.nxt.wrapping_add(1);
    let ack = bench.one("RFC 9293 s3.10.7.4: the peer's FIN");
    bench.is_ack(&ack, &peer, "RFC 9293 s3.10.7.4: a FIN is acknowledged");
    bench.note_window(&mut peer, &ack);
    let state = bench.state(&peer);
    bench.must(state == Some(State::TimeWait), format_args!("RFC 9293 s3.10.7.4: {state:?} after both FINs"));
    peer
}

/// RFC 9293 s3.10.7.4: a TIME-WAIT lasts for its time, which a FIN that comes again begins anew; and nothing else does anything.
fn time_wait(bench: &mut Bench) {
    let setup = bench.setup();
    let peer = wait(bench, &setup);
    if bench.chance(2) {
        bench.ring.close(bench.now, peer.id(), false);
    }
    let mut since = bench.now;
    for _ in 0..3 {
        let pause = Duration::from_millis(bench.between(1000, 18_000));
        if bench.now + pause + 3 * TICK >= since + TIME_WAIT {
            break;
        }
        bench.pass(pause);
        bench.silence("RFC 9293 s3.10.7.4: a connection in TIME-WAIT says nothing of its own accord");
        match bench.below(4) {
            3 => {
                // An old segment is acknowledged, and that is all.
                let len = bench.between(1, 300) as u32;
                bench.give(&peer, peer.nxt.wrapping_sub(1 + len), peer.rcv, ACK, len);
                let ack = bench.one("RFC 9293 s3.10.7.4: an old segment in TIME-WAIT is acknowledged");
                bench.is_ack(&ack, &peer, "RFC 9293 s3.10.7.4: an old segment in TIME-WAIT");
            }
            0 => {
                bench.give(&peer, peer.nxt.wrapping_sub(1), peer.rcv, ACK | FIN, 0);
                let ack = bench.one("RFC 9293 s3.10.7.4: a FIN that comes again in TIME-WAIT is acknowledged");
                bench.is_ack(&ack, &peer, "RFC 9293 s3.10.7.4: a FIN that comes again");
                since = bench.now;
            }
            1 => {
                bench.give(&peer, peer.nxt, peer.rcv, RST, 0);
                bench.silence("RFC 1337 s3: a reset in TIME-WAIT is not answered");
            }
            _ => {
                bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
                bench.take();
            }
        }
        let left = (since + TIME_WAIT).since(bench.now);
        let state = bench.state(&peer);
        bench.must(state == Some(State::TimeWait), format_args!("RFC 9293 s3.10.7.4: {state:?} with {left:?} of the TIME-WAIT left"));
    }
    let left = (since + TIME_WAIT).since(bench.now);
    if left > TICK {
        bench.pass(left - TICK);
        let state = bench.state(&peer);
        bench.must(state == Some(State::TimeWait), format_args!("RFC 9293 s3.4.2, RFC 1337 s3: {state:?} before the end of a TIME-WAIT"));
        bench.pass(2 * TICK);
    }
    bench.silence("RFC 9293 s3.10.8: a TIME-WAIT ends silently");
    let state = bench.state(&peer);
    bench.must(state.is_none_or(|state| state == State::Closed), format_args!("RFC 9293 s3.10.8: {state:?} after a TIME-WAIT's time"));
}

/// RFC 9293 s3.10.7.4, RFC 6191 s2: a SYN in TIME-WAIT begins a connection if it is newer by its number or timestamp, and is answered by an acknowledgment
/// if it is not.
fn time_wait_syns(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.passive = true;
    (setup.stamps, setup.config.timestamps) = (!bench.chance(4), !bench.chance(4));
    let peer = wait(bench, &setup);
    let last = bench.clock();
    bench.pass(Duration::from_millis(1500));
    let newer_number = bench.chance(2);
    let newer_stamp = bench.chance(2);
    let far = 1 + bench.below(1 << 20) as u32;
    let seq = if newer_number { peer.nxt.wrapping_add(far) } else { peer.nxt.wrapping_sub(1 + far) };
    let mut options = vec![2, 4, 5, 180];
    if peer.stamps {
        let value = if newer_stamp { bench.clock() } else { last.wrapping_sub(bench.pick(&[0, 0, 1, 3500])) };
        options.extend([1, 1, 8, 10]);
        options.extend(value.to_be_bytes());
        options.extend([0; 4]);
    }
    bench.queue((peer.remote, peer.local), seq, 0, SYN, 60_000, &options, &[]);
    let answer = bench.one("RFC 9293 s3.10.7.4: a SYN in TIME-WAIT is answered");
    // A larger number with an older timestamp may be either's (RFC 6191 s2 refuses it, RFC 9293 takes it).
    let new = newer_number || newer_stamp && peer.stamps;
    if peer.stamps && newer_number && !newer_stamp {
        return;
    }
    if new {
        let right = answer.flags == SYN | ACK && answer.ack == seq.wrapping_add(1);
        bench.must(right, "RFC 9293 s3.10.7.4, RFC 6191 s2: a SYN that is newer than a connection in TIME-WAIT begins another");
        let beyond = answer.seq.wrapping_sub(peer.rcv).cast_signed() > 0;
        bench.must(beyond, "RFC 1122 s4.2.2.13: it begins beyond what the connection before it used");
    } else {
        bench.is_ack(&answer, &peer, "RFC 9293 s3.10.7.4: an old SYN in TIME-WAIT is acknowledged");
        let state = bench.state(&peer);
        bench.must(state == Some(State::TimeWait), format_args!("RFC 9293 s3.10.7.4: {state:?} after an old SYN in TIME-WAIT"));
        // Nor is another one, which is as old, the same that comes again.
        let pause = Duration::from_millis(bench.between(600, 4000));
        bench.pass(pause);
        let other = seq.wrapping_sub(1 + bench.below(1000) as u32);
        bench.queue((peer.remote, peer.local), other, 0, SYN, 60_000, &options, &[]);
        let answer = bench.one("RFC 9293 s3.10.7.4: a SYN in TIME-WAIT is answered");
        bench.is_ack(&answer, &peer, "RFC 9293 s3.10.7.4: another old SYN in TIME-WAIT is acknowledged");
    }
}

/// tcp(7), tcp_fin_timeout: an orphan whose FIN is acknowledged waits for the peer's so long, and no longer.
fn fin_wait_2(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.config.fin_wait2 = Duration::from_secs(bench.between(1, 60));
    let mut peer = bench.connect(&setup);
    let shuts_first = bench.chance(2);
    if shuts_first {
        let _ = bench.ring.shutdown(bench.now, peer.id(), Shutdown::Write);
    } else {
        bench.ring.close(bench.now, peer.id(), false);
    }
    bench.receive(&mut peer);
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    bench.silence("RFC 9293 s3.10.7.4: an acknowledgment of a FIN is not answered");
    if shuts_first {
        // As long as the program has it, it waits for ever.
        let rest = bench.pick(&[1, 100, 1000]);
        bench.pass(Duration::from_secs(rest));
        bench.silence("RFC 9293 s3.10.7.4: FIN-WAIT-2 is silent");
        let state = bench.state(&peer);
        bench.must(
            state == Some(State::FinWait2),
            format_args!("RFC 9293 s3.6: {state:?} of a half-closed connection whose program reads on"),
        );
        bench.ring.close(bench.now, peer.id(), false);
    }
    bench.pass(setup.config.fin_wait2 - TICK);
    let state = bench.state(&peer);
    bench.must(state == Some(State::FinWait2), format_args!("tcp(7), tcp_fin_timeout: {state:?} before its time"));
    bench.pass(2 * TICK);
    bench.silence("tcp(7), tcp_fin_timeout: it ends silently");
    let state = bench.state(&peer);
    bench.must(state.is_none(), format_args!("tcp(7), tcp_fin_timeout: {state:?} after its time"));
    bench.give(&peer, peer.nxt, peer.rcv, ACK | FIN, 0);
    let reset = bench.one("RFC 9293 s3.10.7.1: who comes later");
    bench.must(reset.has(RST), "RFC 9293 s3.10.7.1: who comes later is told so");
}

/// RFC 9293 s3.10.4, RFC 2525 s2.17: bytes that nobody will read are answered by a reset.
fn orphan_data(bench: &mut Bench) {
    let setup = bench.setup();
    let mut peer = bench.connect(&setup);
    let unread = bench.chance(3);
    if unread {
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 10);
        peer.nxt = peer.nxt.wrapping_add(10);
        bench.take();
    }
    bench.ring.close(bench.now, peer.id(), false);
    if unread {
        let reset = bench.one("RFC 2525 s2.17: a close with unread bytes");
        bench.must(reset.has(RST) && reset.seq == peer.rcv, "RFC 2525 s2.17: who closes with unread bytes resets");
        return;
    }
    bench.receive(&mut peer);
    let acks_fin = bench.chance(2);
    let all = if acks_fin { peer.rcv } else { peer.rcv.wrapping_sub(1) };
    bench.give(&peer, peer.nxt, all, ACK, 10);
    let answers = bench.take();
    bench.must(
        answers.iter().any(|answer| answer.has(RST)),
        "RFC 9293 s3.10.4, RFC 2525 s2.17: bytes for a socket that was closed are answered by a reset",
    );
    let state = bench.state(&peer);
    bench.must(state.is_none(), format_args!("RFC 2525 s2.17: {state:?} after that reset"));
}

/// A reset is told once: as ECONNRESET, or as EPIPE once the peer's stream has ended (tcp(7), socket(7)).
fn told(bench: &mut Bench) {
    let setup = bench.setup();
    let mut peer = bench.connect(&setup);
    let ended = bench.chance(2);
    if ended {
        bench.give(&peer, peer.nxt, peer.rcv, ACK | FIN, 0);
        peer.nxt = peer.nxt.wrapping_add(1);
        bench.take();
    }
    let unread = !ended && bench.chance(2);
    if unread {
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 10);
        peer.nxt = peer.nxt.wrapping_add(10);
        bench.take();
    }
    bench.give(&peer, peer.nxt, peer.rcv, RST, 0);
    bench.silence("RFC 9293 s3.5.3: a reset is not answered");
    let expected = if ended { Error::Pipe } else { Error::Reset };
    if ended {
        let read = bench.read(&peer, 100);
        bench.must(read == Ok(0), format_args!("recv(2): {read:?} at the end of the peer's stream, which came before a reset"));
    }
    if ended || bench.chance(2) {
        let error = bench.ring.take_error(peer.id());
        bench.must(error == Some(expected), format_args!("tcp(7): {error:?} after a reset, with the peer's stream ended ({ended})"));
        let again = bench.ring.take_error(peer.id());
        bench.must(again.is_none(), format_args!("socket(7), SO_ERROR: {again:?}, though it was told before"));
    } else {
        let first = bench.read(&peer, 100);
        if first == Ok(10) {
            let second = bench.read(&peer, 100);
            bench.must(second == Err(expected), format_args!("recv(2): {second:?} behind what was there"));
        } else {
            // Bytes that came before the reset are lost on Linux; this stack keeps them.
            bench.must(
                first == Err(expected) && !unread,
                format_args!("recv(2): {first:?} after a reset, with the peer's stream ended ({ended})"),
            );
        }
    }
    let mut second = bench.read(&peer, 100);
    if unread && second == Ok(10) {
        second = bench.read(&peer, 100);
    }
    bench.must(second == Ok(0), format_args!("recv(2): {second:?} after an error that was told"));
    let write = bench.ring.tcp_send(bench.now, peer.id(), &[std::io::IoSlice::new(b"more")], SendFlags::empty());
    bench.must(write == Err(Error::Pipe), format_args!("send(2): {write:?} after a reset"));
    bench.ring.close(bench.now, peer.id(), false);
    bench.silence("RFC 9293 s3.10.4: nothing follows a reset");
}

/// A connection that ended has its addresses no more, though its program has it yet.
fn addresses(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.passive = false;
    let peer = bench.connect(&setup);
    bench.give(&peer, peer.nxt, peer.rcv, RST, 0);
    bench.take();
    bench.pass(Duration::from_secs(1));
    let next = bench.begin_between(&setup, peer.local, peer.remote);
    bench.give(&next, 0, next.rcv, RST | ACK, 0);
    let state = bench.state(&next);
    bench.must(state.is_none_or(|state| state == State::Closed), format_args!("connect(2): {state:?} after it was refused"));
    bench.ring.close(bench.now, peer.id(), false);
}
