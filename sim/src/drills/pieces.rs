//! Segments that overlap, come again, come late or reach beyond the window, and an end that comes before its connection: what is kept, and what follows (RFC 9293
//! s3.10.7.4, RFC 2018).

use core::time::Duration;
use std::io::IoSliceMut;

use ringway_stack::ring::{RecvFlags, SendFlags, Shutdown};
use ringway_stack::tcp::State;

use super::Drill;
use super::bench::{Bench, Peer, bytes_at};
use crate::segment::{ACK, FIN, PSH, SYN, before};

pub(super) const DRILLS: &[Drill] = &[
    ("segments that overlap in any way", overlaps),
    ("what a closed socket has had before", after_close),
    ("windows in any order", windows),
    ("an end before the connection", ended_early),
];

/// The run of bytes around `at` that are there.
fn run(have: &[bool], at: usize) -> (usize, usize) {
    let start = have[..at].iter().rposition(|&is_there| !is_there).map_or(0, |gap| gap + 1);
    let end = have[at..].iter().position(|&is_there| !is_there).map_or(have.len(), |len| at + len);
    (start, end)
}

/// RFC 9293 s3.10.7.4, RFC 2018 s3, s4: of segments in any order, whatever parts of them came before or lie beyond the window, each byte in the window is kept, and none
/// beyond; all before the first that is missing is acknowledged, at once but for what comes in order; and a report has whole blocks of what is there, one around the
/// newest segment.
fn overlaps(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.config.rcvbuf = Some(bench.between(1200, 4000) as usize);
    // (So that windows are exact to a byte.)
    setup.config.window_scaling = false;
    (setup.sack, setup.config.sack) = (!bench.chance(4), !bench.chance(4));
    let peer = bench.connect(&setup);
    let (first, room) = (peer.nxt, peer.edge.wrapping_sub(peer.nxt) as usize);
    let mut have = vec![false; room];
    let missing = |have: &[bool]| have.iter().position(|&is_there| !is_there).unwrap_or(have.len());
    for _ in 0..bench.between(3, 12) {
        let nxt = missing(&have);
        // Anywhere, or at an edge of what is there.
        let at = match bench.below(4) {
            0 => nxt,
            1 => nxt.saturating_sub(bench.below(300) as usize),
            _ => bench.below(room as u64 + 100) as usize,
        };
        let len = bench.between(1, 900) as usize;
        let end = (at + len).min(room);
        let had_gap = have[nxt..].contains(&true);
        bench.give(&peer, first.wrapping_add(at as u32), peer.rcv, ACK, len as u32);
        if at < room {
            have[at..end].fill(true);
        }
        let (before, nxt) = (nxt, missing(&have));
        let all = bench.take();
        let in_order = at == before && !had_gap && at < room;
        bench.must(
            in_order || !all.is_empty(),
            format_args!("RFC 5681 s4.2, RFC 9293 s3.10.7.4: bytes {at} to {} where {before} is next are not answered", at + len),
        );
        let Some(ack) = all.last() else { continue };
        bench.must(
            ack.ack == first.wrapping_add(nxt as u32),
            format_args!("RFC 9293 s3.10.7.4: {} is acknowledged, and all before {nxt} is there", ack.ack.wrapping_sub(first)),
        );
        if !peer.sack {
            continue;
        }
        let blocks: Vec<_> = ack.options.sack().iter().map(|&(from, to)| (from.wrapping_sub(first), to.wrapping_sub(first))).collect();
        for &(from, to) in &blocks {
            let is_there = have.get(from as usize..to as usize).is_some_and(|bytes| bytes.iter().all(|&is_there| is_there));
            bench.must(is_there, format_args!("RFC 2018 s4: {from} to {to} is reported, and is not there"));
        }
        let newest = at.max(nxt);
        if newest < end {
            let (from, to) = run(&have, newest);
            bench.must(
                blocks.contains(&(from as u32, to as u32)),
                format_args!("RFC 2018 s4: {blocks:?} is reported, and not {from} to {to}, which the newest segment is in"),
            );
        }
    }
    // What is missing comes, and nothing else is needed.
    while have.contains(&false) {
        let at = missing(&have);
        let len = have[at..].iter().position(|&is_there| is_there).unwrap_or(room - at).min(1400);
        bench.give(&peer, first.wrapping_add(at as u32), peer.rcv, ACK, len as u32);
        have[at..at + len].fill(true);
        let nxt = missing(&have);
        bench.pass(setup.config.delayed_ack + Duration::from_millis(5));
        let acknowledged = bench.take().last().map_or(0, |ack| ack.ack.wrapping_sub(first));
        bench.must(
            acknowledged == nxt as u32,
            format_args!("RFC 9293 s3.10.7.4: {acknowledged} is acknowledged as {at} to {} come, and {nxt} is next", at + len),
        );
    }
    let mut bytes = vec![0; room + 1];
    let read = bench.ring.tcp_recv(bench.now, peer.id(), &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty());
    let right = bytes[..room] == bytes_at(0, room);
    bench.must(read == Ok(room) && right, format_args!("recv(2): {read:?} of {room} bytes, which are right ({right})"));
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 9293 s3.10.7.4, RFC 2525 s2.17: a socket that was closed answers what it has had before by an acknowledgment, as ever: only bytes that nobody will read are worth a
/// reset.
fn after_close(bench: &mut Bench) {
    let setup = bench.setup();
    let mut peer = bench.connect(&setup);
    let first = peer.nxt;
    for _ in 0..bench.between(1, 3) {
        let len = bench.between(1, 400) as u32;
        bench.give(&peer, peer.nxt, peer.rcv, ACK | PSH, len);
        peer.nxt = peer.nxt.wrapping_add(len);
    }
    let total = peer.nxt.wrapping_sub(first);
    let read = bench.read(&peer, 2000);
    bench.must(read == Ok(total as usize), format_args!("recv(2): {read:?} of {total} bytes"));
    if bench.chance(2) {
        bench.pass(setup.config.delayed_ack + Duration::from_millis(5));
    }
    let ended = bench.chance(3);
    if ended {
        bench.give(&peer, peer.nxt, peer.rcv, ACK | FIN, 0);
        peer.nxt = peer.nxt.wrapping_add(1);
    }
    let una = peer.rcv;
    bench.ring.close(bench.now, peer.id(), false);
    bench.receive(&mut peer);
    let acknowledges = !ended && bench.chance(2);
    let state = match (ended, acknowledges) {
        (true, _) => State::LastAck,
        (_, true) => State::FinWait2,
        _ => State::FinWait1,
    };
    if acknowledges {
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
        bench.silence("RFC 9293 s3.10.7.4: an acknowledgment of a FIN is not answered");
    }
    for _ in 0..4 {
        let end = if bench.chance(2) { total } else { bench.between(1, u64::from(total)) as u32 };
        let len = bench.between(1, u64::from(end)) as u32;
        // What it had before the FIN may come with it again.
        let flags = if ended && end == total && bench.chance(2) { ACK | FIN } else { ACK };
        bench.give(&peer, first.wrapping_add(end - len), if acknowledges { peer.rcv } else { una }, flags, len);
        let ack = bench.one("RFC 9293 s3.10.7.4: bytes that a closed socket had before");
        bench.is_ack(&ack, &peer, "RFC 9293 s3.10.7.4: bytes that a closed socket had before are acknowledged");
        let found = bench.state(&peer);
        bench.must(found == Some(state), format_args!("RFC 9293 s3.10.7.4: {found:?} after bytes that a closed socket had, in {state:?}"));
    }
}

/// RFC 9293 s3.10.7.4, SND.WL1: the window is what the newest segment said, by its number, in whatever order segments come.
fn windows(bench: &mut Bench) {
    let mut setup = bench.setup();
    (setup.mss, setup.scale, setup.window) = (1000, None, 20_000);
    // (Without reports, acknowledgments that repeat themselves would count.)
    (setup.sack, setup.config.sack) = (true, true);
    let mut peer = bench.connect(&setup);
    let (una, full) = (peer.rcv, peer.mss);
    peer.window = 0;
    bench.give(&peer, peer.nxt, una, ACK, 0);
    bench.write(&peer, 0, 20_000, SendFlags::empty());
    bench.silence("RFC 9293 s3.8.6: bytes beyond the peer's window");
    // What the peer sends one after the other: where, how many bytes, and with which window.
    let mut segments = Vec::new();
    let mut seq = peer.nxt;
    for _ in 0..bench.between(1, 4) {
        segments.push((seq, 50, full * bench.pick(&[0, 2, 4, 6, 8])));
        seq = seq.wrapping_add(50);
    }
    // (The last has no bytes: nothing is missing before it that would show.)
    segments.push((seq, 0, full * bench.pick(&[0, 2, 4, 6, 8])));
    let (mut newest, mut window, mut sent) = (peer.nxt, 0, 0);
    while !segments.is_empty() {
        let (seq, len, said) = segments.remove(bench.below(segments.len() as u64) as usize);
        if !before(seq, newest) {
            (newest, window) = (seq, said);
        }
        peer.window = said as u16;
        bench.give(&peer, seq, una, ACK, len);
        let ends = bench.take().iter().filter(|heard| heard.len() > 0).map(|heard| heard.end().wrapping_sub(una)).max();
        sent = sent.max(ends.unwrap_or(0));
        bench.must(
            sent <= window || ends.is_none(),
            format_args!("RFC 9293 s3.10.7.4: {sent} bytes are sent, and the newest segment's window is {window} ({said} came last)"),
        );
        bench.must(
            sent + full > window,
            format_args!("RFC 9293 s3.10.7.4: {sent} bytes are sent, where the newest segment's window is {window} ({said} came last)"),
        );
    }
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 9293 s3.10.4: an end before the handshake's is sent at once or once the connection stands, which then ends as any other.
fn ended_early(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.passive = false;
    let mut peer: Peer = bench.begin(&setup);
    // The peer's SYN crosses ours.
    let options = bench.syn_options(&setup, 0);
    bench.queue((peer.remote, peer.local), peer.iss, 0, SYN, setup.window, &options, &[]);
    peer.nxt = peer.iss.wrapping_add(1);
    bench.one("RFC 9293 s3.5: a SYN that crosses ours is answered");
    let shut = bench.ring.shutdown(bench.now, peer.id(), Shutdown::Write);
    bench.must(shut.is_ok(), format_args!("shutdown(2): {shut:?} in SYN-RECEIVED"));
    let mut heard = bench.take();
    if bench.chance(2) {
        let syn = bench.syn_options(&setup, peer.echo);
        bench.queue((peer.remote, peer.local), peer.iss, peer.rcv, SYN | ACK, setup.window, &syn, &[]);
    } else {
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    }
    heard.extend(bench.take());
    let fins = heard.iter().filter(|heard| heard.has(FIN) && heard.seq == peer.rcv).count();
    bench.must(fins == 1, format_args!("RFC 9293 s3.10.4: {fins} FINs of a stream that was ended in SYN-RECEIVED"));
    peer.rcv = peer.rcv.wrapping_add(1);
    let state = bench.state(&peer);
    bench.must(state == Some(State::FinWait1), format_args!("RFC 9293 s3.10.4: {state:?} of a stream that was ended in SYN-RECEIVED"));
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    bench.silence("RFC 9293 s3.10.7.4: an acknowledgment of a FIN is not answered");
    let state = bench.state(&peer);
    bench.must(state == Some(State::FinWait2), format_args!("RFC 9293 s3.10.7.4: {state:?} as the FIN is acknowledged"));
    bench.give(&peer, peer.nxt, peer.rcv, ACK | FIN, 0);
    peer.nxt = peer.nxt.wrapping_add(1);
    let ack = bench.one("RFC 9293 s3.10.7.4: the peer's FIN");
    bench.is_ack(&ack, &peer, "RFC 9293 s3.10.7.4: a FIN is acknowledged");
    let state = bench.state(&peer);
    bench.must(state == Some(State::TimeWait), format_args!("RFC 9293 s3.10.7.4: {state:?} after both FINs"));
}
