//! Handshakes: who may begin, with which numbers and windows, and how often a SYN is sent.

use core::time::Duration;

use ringway_stack::ring::SendFlags;
use ringway_stack::tcp::State;
use ringway_stack::{Error, tcp};

use super::Drill;
use super::bench::{Bench, Heard, Peer, Setup, TICK};
use crate::segment::{ACK, RST, SYN, before};

pub(super) const DRILLS: &[Drill] = &[
    ("a backlog", backlog),
    ("handshakes that outlive their listener", half_open),
    ("windows and their scale", scales),
    ("a shift beyond fourteen", far_shift),
    ("SYNs that are lost", lost_syns),
    ("SYN-ACKs that are lost", lost_syn_acks),
    ("initial sequence numbers", numbers),
    ("a listener's visitors", strangers),
];

/// RFC 6298 s2.1, and Linux's TCP_RTO_MAX.
const RTO_INITIAL: Duration = Duration::from_secs(1);
const RTO_MAX: Duration = Duration::from_secs(120);
/// Linux's tcp_synack_retries.
const SYN_ACK_RETRIES: u32 = 5;

/// listen(2): so many connections may be ready or under way, one more than the backlog as on Linux, and what failed makes room again.
fn backlog(bench: &mut Bench) {
    let backlog = bench.below(4) as usize;
    let mut setup = bench.setup();
    setup.passive = true;
    let before = if bench.chance(2) { backlog } else { bench.below(8) as usize };
    let listener = bench.listen(before, &setup.config);
    // A second listen(2) says how many it is.
    let told = bench.ring.tcp_set_backlog(listener, backlog);
    bench.must(told.is_ok(), format_args!("listen(2): {told:?}"));
    for round in 0..2 {
        let mut ready = 0;
        let mut under_way = Vec::new();
        for _ in 0..backlog + 4 {
            let (local, remote) = bench.addresses(true);
            let options = bench.syn_options(&setup, 0);
            bench.queue((remote, local), 1000, 0, SYN, 60_000, &options, &[]);
            let Some(answer) = bench.take().pop() else { continue };
            bench.must(answer.has(SYN | ACK), "RFC 9293 s3.10.7.2: a SYN is answered by a SYN-ACK, or not at all");
            if bench.chance(2) {
                bench.queue((remote, local), 1001, answer.end(), ACK, 60_000, &stamps(bench, &setup, &answer), &[]);
                bench.take();
                ready += 1;
            } else {
                under_way.push((local, remote));
            }
        }
        let all = ready + under_way.len();
        bench.must(
            all == backlog + 1,
            format_args!("listen(2): {ready} ready and {} under way, round {round}, backlog {backlog}", under_way.len()),
        );
        // Those under way fail: reset by their peers, or given up.
        if bench.chance(2) {
            for (local, remote) in under_way {
                bench.queue((remote, local), 1001, 0, RST, 0, &[], &[]);
            }
            bench.poll();
        } else {
            bench.pass(Duration::from_secs(200));
        }
        bench.take();
        let mut accepted = 0;
        while let Ok(socket) = bench.ring.tcp_accept(listener) {
            bench.ring.close(bench.now, socket, true);
            accepted += 1;
        }
        bench.must(accepted == ready, format_args!("accept(2): {accepted} of {ready} connections"));
        bench.poll();
        bench.take();
    }
}

/// A listener lets as many connections begin in a second as it was told, and as many in each (`Config::syn_rate_max`); the others' SYNs are dropped, and come again.
pub(super) fn rate(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.passive = true;
    let most = bench.below(6) as usize;
    setup.config.syn_rate_max = most as u32;
    let listener = bench.listen(100, &setup.config);
    for round in 0..3 {
        let mut begun = Vec::new();
        let tries = most + bench.between(1, 4) as usize;
        for _ in 0..tries {
            let (local, remote) = bench.addresses(true);
            let options = bench.syn_options(&setup, 0);
            bench.queue((remote, local), 1000, 0, SYN, 60_000, &options, &[]);
            let is_answered = bench.take().iter().any(|answer| answer.has(SYN | ACK) && answer.dst == remote.into());
            begun.extend(is_answered.then_some((local, remote)));
        }
        let expected = if most == 0 { tries } else { most };
        bench.must(
            begun.len() == expected,
            format_args!("{} connections begin at once in second {round}, of {tries} that try, and {most} a second may", begun.len()),
        );
        for (local, remote) in begun {
            bench.queue((remote, local), 1001, 0, RST, 0, &[], &[]);
        }
        let pause = Duration::from_millis(bench.between(1001, 3000));
        bench.pass(pause);
        bench.take();
    }
    bench.ring.close(bench.now, listener, false);
}

fn stamps(bench: &Bench, setup: &Setup, answer: &Heard) -> Vec<u8> {
    let Some((value, _)) = answer.options.timestamps.filter(|_| setup.stamps) else { return Vec::new() };
    [&[1, 1, 8, 10][..], &bench.clock().to_be_bytes(), &value.to_be_bytes()].concat()
}

/// A listener that is closed takes what it began with it (RFC 9293 s3.10.4, listen(2)).
fn half_open(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.passive = true;
    let peer = bench.begin(&setup);
    let done = bench.chance(2);
    if done {
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    }
    let listener = bench.ring.open_flows().into_iter().find(|&s| bench.ring.info(s).is_some_and(|info| info.remote.is_none()));
    bench.ring.close(bench.now, listener.expect("it listens"), false);
    bench.poll();
    let told = bench.take();
    bench.must(told.iter().all(|heard| heard.has(RST)), "RFC 9293 s3.10.4: nothing but a reset follows a listener's end");
    bench.must(!done || !told.is_empty(), "RFC 9293 s3.10.4: a connection that nobody will accept is reset");
    let state = bench.state(&peer);
    bench.must(state.is_none(), format_args!("RFC 9293 s3.10.4: {state:?} of a connection whose listener is closed"));
    bench.pass(Duration::from_secs(5));
    bench.silence("RFC 9293 s3.10.4: a handshake goes on after its listener was closed");
    let usage = bench.ring.usage();
    bench.must((usage.flows, usage.addresses) == (0, 0), format_args!("close(2): {usage:?} is left of a listener"));
}

/// RFC 7323 s2.2, s2.3: windows of SYNs are never scaled, all others are if both offered it, each by its sender's shift.
fn scales(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.window = bench.between(3000, 40_000) as u16;
    (setup.mss, setup.sack) = (1000, false);
    let limit = setup.config.rcvbuf.unwrap_or(0).min(65_535);
    let mut peer = bench.begin(&setup);
    let said = usize::from(peer.syn_window);
    bench.must(said == limit, format_args!("RFC 7323 s2.2: a SYN's window of {said}, which is not scaled, with room for {limit}"));
    if !setup.config.window_scaling {
        bench.must(peer.stack_scale == 0, "RFC 7323 s2.2: a scale that the program did not want");
    }
    let window = bench.between(1, 9) as u32;
    // The peer's window, in the first segment that scales it; what it means is below the initial congestion window, so that it is all that holds back.
    let unit = 1 << peer.scale;
    let bytes = window * 1000 / unit * unit;
    let field = (bytes >> peer.scale) as u16;
    // (Which may be the one that ends the handshake.)
    let at_once = setup.passive && bench.chance(2);
    peer.window = if at_once { field } else { peer.window };
    bench.finish_handshake(&setup, &mut peer);
    if !at_once {
        peer.window = field;
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
        bench.take();
    }
    let begin = peer.rcv;
    bench.write(&peer, 0, 20_000, SendFlags::empty());
    bench.receive(&mut peer);
    let sent = peer.rcv.wrapping_sub(begin);
    bench.must(sent <= bytes, format_args!("RFC 7323 s2.3: {sent} bytes sent, and the window has {bytes}, shifted by {}", peer.scale));
    let least = if bytes >= 2000 { bytes - peer.mss.min(bytes / 2) } else { 0 };
    bench.must(sent >= least, format_args!("RFC 9293 s3.8.6: {sent} bytes sent, and the window has {bytes}, shifted by {}", peer.scale));
    // The stack's own, in what it says when the peer speaks.
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 100);
    peer.nxt = peer.nxt.wrapping_add(100);
    bench.pass(Duration::from_millis(105));
    for heard in bench.take() {
        if heard.len() > 0 {
            bench.take_in(&mut peer, &heard);
        } else {
            let edge = heard.ack.wrapping_add(u32::from(heard.window) << peer.stack_scale);
            let lost = peer.edge.wrapping_sub(edge).cast_signed();
            let unit = 1 << peer.stack_scale;
            bench.must(lost < unit, format_args!("RFC 9293 s3.8.6: the window shrinks by {lost}, with units of {unit}"));
            bench.note_window(&mut peer, &heard);
        }
    }
    let room = peer.edge.wrapping_sub(peer.nxt) as usize;
    let rcvbuf = setup.config.rcvbuf.unwrap_or(0);
    bench.must(room <= rcvbuf + (2 << peer.stack_scale), format_args!("RFC 7323 s2.3: a window of {room}, with room for {rcvbuf}"));
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 7323 s2.3: a shift count beyond 14 counts as 14.
fn far_shift(bench: &mut Bench) {
    let mut setup = bench.setup();
    (setup.mss, setup.window, setup.config.window_scaling) = (1000, 60_000, true);
    setup.scale = Some(bench.between(15, 255) as u8);
    setup.config.sndbuf = Some(1 << 20);
    let mut peer = bench.begin(&setup);
    peer.scale = 14;
    bench.finish_handshake(&setup, &mut peer);
    bench.write(&peer, 0, 200_000, SendFlags::empty());
    // The congestion window grows beyond the peer's to come.
    for _ in 0..3 {
        bench.receive(&mut peer);
        bench.pass(Duration::from_millis(5));
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    }
    bench.receive(&mut peer);
    peer.window = 1;
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    let begin = peer.rcv;
    bench.receive(&mut peer);
    let sent = peer.rcv.wrapping_sub(begin);
    bench.must(sent <= 1 << 14, format_args!("RFC 7323 s2.3: {sent} bytes for a window of 1, shifted by {:?}", setup.scale));
    bench.must(sent > (1 << 14) - 1000, format_args!("RFC 7323 s2.3: {sent} bytes for a window of 1, shifted by 14"));
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 6298 s5.5, s5.7, RFC 5681 s3.1: SYNs come again after 1, 2, 4 … seconds, as often as was asked for; and who lost two begins with one segment.
fn lost_syns(bench: &mut Bench) {
    let mut setup = bench.setup();
    (setup.passive, setup.mss, setup.window) = (false, 1000, 60_000);
    setup.config.syn_retries = bench.between(1, 6) as u32;
    let lost = bench.below(u64::from(setup.config.syn_retries) + 2) as u32;
    let mut peer = bench.begin(&setup);
    let mut last = bench.now;
    for number in 0..lost.min(setup.config.syn_retries) {
        let due = (RTO_INITIAL * (1 << number)).min(RTO_MAX);
        let again = bench.await_segment(due + TICK);
        let waited = bench.now.since(last);
        bench.must(again.is_some(), format_args!("RFC 6298 s5.5: SYN {} is not there after {waited:?}", number + 2));
        let Some(again) = again else { return };
        bench.must(again.flags == SYN && again.seq == peer.irs, "RFC 9293 s3.8.1: a SYN is sent again as it was");
        bench.must(waited + TICK >= due, format_args!("RFC 6298 s5.5: SYN {} after {waited:?}, and {due:?} are due", number + 2));
        last = bench.now;
        peer.echo = again.options.timestamps.map_or(0, |(value, _)| value);
    }
    if lost > setup.config.syn_retries {
        let due = (RTO_INITIAL * (1 << setup.config.syn_retries)).min(RTO_MAX);
        bench.pass(due - TICK);
        let state = bench.state(&peer);
        bench.must(state == Some(State::SynSent), format_args!("tcp(7), tcp_syn_retries: {state:?} before the last SYN had its time"));
        bench.pass(2 * TICK);
        bench.silence("tcp(7), tcp_syn_retries: one SYN more than was asked for");
        let error = bench.ring.take_error(peer.id());
        bench.must(error == Some(Error::TimedOut), format_args!("connect(2): {error:?}, where nobody answered"));
        bench.ring.close(bench.now, peer.id(), false);
        return;
    }
    bench.pass(Duration::from_millis(10));
    bench.finish_handshake(&setup, &mut peer);
    bench.write(&peer, 0, 40_000, SendFlags::empty());
    let burst = bench.receive(&mut peer);
    let segments = if lost > 1 { 1 } else { 10 };
    bench.must(
        burst == segments,
        format_args!("RFC 5681 s3.1, RFC 6928 s2: {burst} segments at first, and the initial window has {segments} after {lost} lost SYNs"),
    );
    // RFC 6298 s3: what was sent more than once is not timed (unless timestamps tell), so that the first timeout is that of the handshake or less.
    if lost == 1 && !peer.stamps {
        let since = bench.now;
        let Some(again) = bench.await_segment(Duration::from_secs(10)) else {
            return bench.must(false, "RFC 6298 s5.1: bytes are not sent again");
        };
        let waited = again.at.since(since);
        let due = 3 * RTO_INITIAL;
        bench.must(
            waited <= due + TICK && waited + TICK >= due,
            format_args!("RFC 6298 s5.7: the first timeout after {waited:?}, and {due:?} are due after a lost SYN"),
        );
    }
    bench.ring.close(bench.now, peer.id(), true);
}

/// A SYN-ACK comes again as a SYN does, and is given up after five times (Linux's tcp_synack_retries).
fn lost_syn_acks(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.passive = true;
    setup.config.syn_retries = bench.between(1, 6) as u32;
    let mut peer = bench.begin(&setup);
    if bench.chance(3) {
        return repeated(bench, &setup, &mut peer);
    }
    let retries = setup.config.syn_retries.min(SYN_ACK_RETRIES);
    for number in 0..retries {
        let due = RTO_INITIAL * (1 << number);
        let since = bench.now;
        let again = bench.await_segment(due + TICK);
        let waited = bench.now.since(since);
        let right = again.is_some_and(|again| again.flags == SYN | ACK && again.seq == peer.irs && again.ack == peer.nxt);
        bench.must(right, format_args!("RFC 6298 s5.5: SYN-ACK {} is not there after {waited:?}", number + 2));
        bench.must(waited + TICK >= due, format_args!("RFC 6298 s5.5: SYN-ACK {} after {waited:?}, and {due:?} are due", number + 2));
    }
    bench.pass(RTO_INITIAL * (1 << retries) + TICK);
    bench.silence("tcp(7), tcp_synack_retries: one SYN-ACK more than was asked for");
    let state = bench.state(&peer);
    bench.must(state.is_none(), format_args!("tcp(7), tcp_synack_retries: {state:?} of a handshake that nobody ended"));
}

/// RFC 6298 s3: a SYN-ACK that went twice is not timed, so that the timeout is the initial one.
fn repeated(bench: &mut Bench, setup: &Setup, peer: &mut Peer) {
    bench.pass(Duration::from_millis(400));
    let options = bench.syn_options(setup, 0);
    bench.queue((peer.remote, peer.local), peer.iss, 0, SYN, setup.window, &options, &[]);
    if let Some((value, _)) = bench.take().last().and_then(|again| again.options.timestamps) {
        peer.echo = value;
    }
    bench.pass(Duration::from_millis(100));
    bench.finish_handshake(setup, peer);
    bench.write(peer, 0, 10, SendFlags::empty());
    bench.receive(peer);
    let since = bench.now;
    let again = bench.await_segment(Duration::from_secs(10));
    let waited = bench.now.since(since);
    let stamped = peer.stamps && waited + TICK >= Duration::from_millis(200) && waited <= RTO_INITIAL + TICK;
    let right = again.is_some() && (stamped || waited + TICK >= RTO_INITIAL && waited <= RTO_INITIAL + TICK);
    bench.must(right, format_args!("RFC 6298 s3: a timeout of {waited:?} after a SYN-ACK that was sent twice"));
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 6528 s3: an initial number is a clock's, of 4 us a tick, beside a secret; and it is beyond all that the addresses' last connection used (RFC 1122
/// s4.2.2.13).
fn numbers(bench: &mut Bench) {
    let mut setup = bench.setup();
    (setup.passive, setup.mss, setup.window) = (false, 1460, 65_000);
    setup.scale = Some(8);
    let (local, remote) = bench.addresses(false);
    let mut peer = bench.begin_between(&setup, local, remote);
    bench.finish_handshake(&setup, &mut peer);
    let begun = bench.now;
    let sends = bench.chance(2);
    if sends {
        bench.write(&peer, 0, 14_000, SendFlags::empty());
        bench.receive(&mut peer);
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
        bench.receive(&mut peer);
    }
    // The peer ends first, so that nothing is left behind here.
    bench.give(&peer, peer.nxt, peer.rcv, ACK | crate::segment::FIN, 0);
    peer.nxt = peer.nxt.wrapping_add(1);
    bench.take();
    bench.ring.close(bench.now, peer.id(), false);
    bench.receive(&mut peer);
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    let state = bench.state(&peer);
    bench.must(state.is_none(), format_args!("RFC 9293 s3.10.7.4: {state:?} after LAST-ACK"));
    let pause = Duration::from_micros(bench.pick(&[10, 1000, 300_000, 20_000_000]));
    bench.pass(pause);
    bench.take();
    let next = bench.begin_between(&setup, local, remote);
    let (gap, elapsed) = (next.irs.wrapping_sub(peer.irs), bench.now.since(begun).as_micros() as u32);
    let beyond = before(peer.rcv.wrapping_sub(1), next.irs);
    bench.must(beyond, format_args!("RFC 1122 s4.2.2.13: {} begins where the connection before had come to {}", next.irs, peer.rcv));
    bench.must(
        gap >= elapsed / 5 && gap < elapsed + (1 << 26),
        format_args!("RFC 6528 s3: a number {gap} beyond the last one, {elapsed} us later"),
    );
    bench.give(&next, 0, next.rcv, RST | ACK, 0);
    // Another pair of addresses has another offset.
    let (local, remote) = bench.addresses(false);
    let other = bench.begin_between(&setup, local, remote);
    let apart = other.irs.wrapping_sub(next.irs);
    bench.must((1 << 8..u32::MAX - (1 << 8)).contains(&apart), "RFC 6528 s3: numbers of other addresses do not follow from these");
}

/// RFC 9293 s3.10.7.1, s3.10.7.2: what is for nobody, or for a listener and no SYN, is refused with a number that its sender believes.
fn strangers(bench: &mut Bench) {
    let listens = bench.chance(2);
    if listens {
        bench.listen(4, &tcp::Config::default());
    }
    for _ in 0..4 {
        let (local, remote) = bench.addresses(true);
        let (seq, ack, len) = (bench.below(1 << 32) as u32, bench.below(1 << 32) as u32, bench.below(30) as u32);
        let flags = bench.pick(&[ACK, SYN | ACK, 0, SYN, RST, RST | ACK, ACK | 1, 1]);
        if listens && flags == SYN {
            continue;
        }
        let payload = vec![0; len as usize];
        bench.queue((remote, local), seq, ack, flags, 1000, &[], &payload);
        let heard = bench.take();
        // RFC 9293 s3.10.7.2: for a listener, what has neither RST, ACK nor SYN may be dropped.
        let free = listens && flags & (ACK | SYN | RST) == 0;
        if flags & RST != 0 || free && heard.is_empty() {
            bench.must(heard.is_empty(), "RFC 9293 s3.10.7.1: a reset is not answered");
            continue;
        }
        bench.must(heard.len() == 1, format_args!("RFC 9293 s3.10.7.1: {} answers to what is for nobody (flags {flags:#x})", heard.len()));
        let reset = &heard[0];
        let span = len + u32::from(flags & SYN != 0) + u32::from(flags & 1 != 0);
        let right = match flags & ACK != 0 {
            true => reset.flags == RST && reset.seq == ack,
            false => reset.flags == RST | ACK && reset.seq == 0 && reset.ack == seq.wrapping_add(span),
        };
        bench.must(
            right && reset.len() == 0,
            "RFC 9293 s3.10.7.1: a reset has the number that its sender acknowledged, or zero and an acknowledgment",
        );
    }
    let usage = bench.ring.usage();
    bench.must(usage.flows == usize::from(listens), format_args!("RFC 9293 s3.10.7.1: {usage:?} is left of what was for nobody"));
}
