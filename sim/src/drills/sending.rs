//! What is sent, and how much of it at once: small segments (RFC 9293 s3.7.4), the congestion window (RFC 5681, RFC 6582, RFC 6675), and what is lost.

use core::time::Duration;

use ringway_stack::device::DeviceEvent;
use ringway_stack::ring::{SendFlags, Shutdown};
use ringway_stack::tcp::congestion::Algorithm;

use super::Drill;
use super::bench::{Bench, Heard, Peer, Setup, TICK};
use crate::segment::{ACK, FIN, before};

pub(super) const DRILLS: &[Drill] = &[
    ("small writes", nagle),
    ("writes with more to follow", more),
    ("slow start", slow_start),
    ("one lost segment", one_lost),
    ("the first duplicate acknowledgments", first_duplicates),
    ("window updates beside a flight", window_updates),
    ("two lost segments", two_lost),
    ("holes that reports show", shown_holes),
    ("a partial acknowledgment", partial),
    ("many lost segments", many_lost),
    ("after a timeout", after_timeout),
    ("reports of what was not sent", lies),
    ("a device without room", refused),
    ("a FIN behind bytes that are sent again", fin_again),
];

const MSS: u32 = 200;
const INITIAL: u64 = 10;
/// Linux's cork holds for 200 ms.
const CORK: Duration = Duration::from_millis(200);

/// A connection whose peer has all the room, and segments of two hundred bytes at most.
pub(super) fn roomy(bench: &mut Bench) -> Peer {
    let setup = bench.setup();
    roomy_as(bench, setup)
}

/// The same, where the end of what was sent is not probed (RFC 8985 s7.2: that needs SACK).
fn roomy_unprobed(bench: &mut Bench) -> Peer {
    let setup = Setup { sack: false, ..bench.setup() };
    roomy_as(bench, setup)
}

fn roomy_as(bench: &mut Bench, mut setup: Setup) -> Peer {
    (setup.mss, setup.window, setup.scale) = (MSS as u16, 60_000, Some(8));
    setup.config.window_scaling = true;
    setup.config.sndbuf = Some(1 << 20);
    let mut peer = bench.connect(&setup);
    bench.pass(Duration::from_millis(10));
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    bench.take();
    peer.window = 60_000;
    peer
}

/// RFC 9293 s3.7.4: one small segment is in flight, unless the program will have it otherwise.
fn nagle(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.config.nodelay = bench.chance(2);
    setup.mss = 1000;
    let mut peer = bench.connect(&setup);
    let (first, second) = (bench.between(1, 400) as usize, bench.between(1, 400) as usize);
    bench.write(&peer, 0, first, SendFlags::empty());
    let sent = bench.receive(&mut peer);
    bench.must(sent == 1, format_args!("RFC 9293 s3.7.4: {sent} segments for the first bytes"));
    bench.write(&peer, first, second, SendFlags::empty());
    let sent = bench.receive(&mut peer);
    let expected = usize::from(setup.config.nodelay);
    bench.must(
        sent == expected,
        format_args!("RFC 9293 s3.7.4, tcp(7): {sent} small segments more, with TCP_NODELAY {}", setup.config.nodelay),
    );
    if bench.chance(2) {
        let shut = bench.ring.shutdown(bench.now, peer.id(), Shutdown::Write);
        bench.must(shut.is_ok(), format_args!("shutdown(2): {shut:?}"));
        let sent = bench.take();
        let ends = sent.last().is_some_and(|last| last.has(FIN));
        bench.must(ends && sent.len() == 1, "RFC 9293 s3.7.4: a FIN goes at once, and so does what is before it");
        return;
    }
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    let sent = bench.receive(&mut peer);
    bench.must(sent == 1 - expected, format_args!("RFC 9293 s3.7.4: {sent} segments once the one before is acknowledged"));
}

/// tcp(7), TCP_CORK; send(2), MSG_MORE: what is not full waits, for 200 ms at most.
fn more(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.mss = 1000;
    setup.config.cork = bench.chance(2);
    setup.config.nodelay = bench.chance(2);
    let mut peer = bench.connect(&setup);
    let len = bench.between(1, 400) as usize;
    let begun = bench.now;
    bench.write(&peer, 0, len, SendFlags::MORE);
    bench.silence("tcp(7), TCP_CORK; send(2), MSG_MORE: what is not full is sent though more follows");
    let pause = Duration::from_millis(bench.between(1, 150));
    bench.pass(pause);
    bench.silence("tcp(7), TCP_CORK; send(2), MSG_MORE: what is not full is sent though more follows");
    match bench.below(3) {
        0 => {
            if bench.chance(2) {
                // Another write makes it wait no longer.
                bench.write(&peer, len, 100, SendFlags::MORE);
                bench.silence("tcp(7), TCP_CORK; send(2), MSG_MORE: what is not full is sent though more follows");
            }
            let since = bench.now.since(begun);
            let sent = bench.await_segment(CORK - since + TICK);
            let at = bench.now.since(begun);
            bench
                .must(sent.is_some() && at + TICK >= CORK, format_args!("tcp(7), TCP_CORK: held for {at:?}, and {CORK:?} are the ceiling"));
            // What comes next has a time of its own.
            let Some(sent) = sent else { return };
            bench.take_in(&mut peer, &sent);
            let written = peer.rcv.wrapping_sub(peer.irs) as usize - 1;
            bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
            bench.write(&peer, written, 100, SendFlags::MORE);
            bench.silence("tcp(7), TCP_CORK; send(2), MSG_MORE: what follows a corked segment is not held");
        }
        1 => {
            let uncorked = bench.ring.tcp_configure(bench.now, peer.id(), |config| config.cork = false);
            bench.must(uncorked.is_ok(), format_args!("setsockopt(2): {uncorked:?}"));
            bench.write(&peer, len, 100, SendFlags::empty());
            let sent = bench.receive(&mut peer);
            bench.must(sent == 1, format_args!("send(2): {sent} segments as nothing more follows"));
            // And the next write is one of its own.
            bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
            bench.write(&peer, len + 100, 100, SendFlags::empty());
            let sent = bench.receive(&mut peer);
            bench.must(sent == 1, format_args!("send(2): {sent} segments for a write of its own"));
        }
        _ => {
            let _ = bench.ring.shutdown(bench.now, peer.id(), Shutdown::Write);
            let sent = bench.take();
            bench.must(sent.last().is_some_and(|last| last.has(FIN)), "tcp(7), TCP_CORK: the end lets all go");
        }
    }
}

/// Sends as much as the congestion window lets it, and expects so many segments.
fn burst(bench: &mut Bench, peer: &mut Peer, expected: u64, law: &str) {
    let sent = bench.receive(peer) as u64;
    bench.must(sent == expected, format_args!("{law}: {sent} segments, and {expected} are to be"));
}

/// RFC 5681 s3.1, RFC 6928: ten segments, and one more for each that is acknowledged; no more than that after a pause (s4.1).
fn slow_start(bench: &mut Bench) {
    let mut peer = roomy(bench);
    let begin = peer.rcv;
    let full = peer.mss;
    bench.write(&peer, 0, 24_000, SendFlags::empty());
    burst(bench, &mut peer, INITIAL, "RFC 6928 s2: the initial window");
    let mut una = begin;
    for _ in 0..bench.between(1, 12) {
        bench.pass(Duration::from_millis(3));
        let flight = u64::from(peer.rcv.wrapping_sub(una) / full);
        let acked = bench.between(1, flight.min(4));
        una = una.wrapping_add(acked as u32 * full);
        bench.give(&peer, peer.nxt, una, ACK, 0);
        burst(bench, &mut peer, 2 * acked, "RFC 5681 s3.1: slow start");
    }
    // All of it is acknowledged, and the program pauses.
    drain(bench, &mut peer, una);
    bench.pass(Duration::from_secs(10));
    bench.silence("RFC 9293 s3.8.4: an idle connection is silent");
    if bench.chance(2) {
        // That it hears something does not make the pause shorter.
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
        bench.silence("RFC 9293 s3.10.7.4: an acknowledgment is not answered");
    }
    if bench.chance(2) {
        // Nor does an acknowledgment that it sends, which is no data.
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 10);
        peer.nxt = peer.nxt.wrapping_add(10);
        bench.pass(Duration::from_millis(100));
        bench.take();
    }
    bench.write(&peer, 24_000, 10_000, SendFlags::empty());
    burst(bench, &mut peer, INITIAL, "RFC 5681 s4.1: after a pause, the restart window");
}

/// A flight of so many segments, none of them acknowledged.
pub(super) fn flight(bench: &mut Bench, peer: &mut Peer, count: u64) -> u32 {
    let full = peer.mss;
    let mut una = peer.rcv;
    bench.write(peer, 0, (full * 2 * count as u32) as usize, SendFlags::empty());
    bench.receive(peer);
    while u64::from(peer.rcv.wrapping_sub(una) / full) < count {
        bench.pass(Duration::from_millis(2));
        una = una.wrapping_add(full);
        bench.give(peer, peer.nxt, una, ACK, 0);
        bench.receive(peer);
    }
    una
}

/// All that there is to send is sent, and acknowledged.
pub(super) fn drain(bench: &mut Bench, peer: &mut Peer, mut una: u32) -> u32 {
    while una != peer.rcv {
        una = peer.rcv;
        bench.give(peer, peer.nxt, una, ACK, 0);
        bench.receive(peer);
    }
    una
}

/// A report of what arrived behind a hole.
pub(super) fn report(bench: &mut Bench, peer: &Peer, una: u32, blocks: &[(u32, u32)]) {
    let mut options = Vec::new();
    if peer.sack && !blocks.is_empty() {
        options.extend([1, 1, 5, 2 + 8 * blocks.len() as u8]);
        for (start, end) in blocks {
            options.extend(start.to_be_bytes());
            options.extend(end.to_be_bytes());
        }
    }
    bench.give_with(peer, peer.nxt, una, ACK, 0, &options);
}

/// The end of what was sent is probed before anything times out, where both know SACK (RFC 8985 s7.3): by what was never sent, or else by the last segment.
pub(super) fn probe(bench: &mut Bench, peer: &mut Peer) {
    if !peer.sack {
        return;
    }
    let heard = bench.await_segment(Duration::from_secs(4));
    let end = peer.rcv;
    let is_probe = heard.as_ref().is_some_and(|heard| heard.seq == end || heard.end() == end);
    bench.must(is_probe, format_args!("RFC 8985 s7.3: the end at {end} is probed, not {:?}", heard.as_ref().map(|heard| heard.seq)));
    if let Some(heard) = heard.filter(|heard| heard.seq == end) {
        bench.take_in(peer, &heard);
    }
}

/// What was sent again of what was heard.
pub(super) fn parted(bench: &Bench, peer: &mut Peer, heard: &[Heard]) -> Vec<u32> {
    let mut again = Vec::new();
    for segment in heard.iter().filter(|segment| segment.len() > 0) {
        bench.bytes_are_right(peer, segment);
        if before(segment.seq, peer.rcv) {
            again.push(segment.seq);
        } else {
            bench.take_in(peer, segment);
        }
    }
    again
}

/// RFC 5681 s3.2, RFC 6582, RFC 6675: the third duplicate sends one segment again, half of what was in flight is the threshold, and from there the window
/// grows by a segment in a round trip.
fn one_lost(bench: &mut Bench) {
    let mut peer = roomy(bench);
    let full = peer.mss;
    let window = bench.between(12, 40);
    let mut una = flight(bench, &mut peer, window);
    if bench.chance(2) {
        // The window is not used: what counts is what was in flight.
        una = drain(bench, &mut peer, una);
        let count = bench.between(6, window / 2);
        let written = una.wrapping_sub(peer.irs) as usize - 1;
        bench.write(&peer, written, count as usize * full as usize, SendFlags::empty());
        bench.receive(&mut peer);
    }
    let count = u64::from(peer.rcv.wrapping_sub(una) / full);
    let mut again = 0;
    for number in 1..count as u32 {
        let (start, end) = (una.wrapping_add(full), una.wrapping_add((number + 1) * full));
        report(bench, &peer, una, &[(start, end)]);
        let heard = bench.take();
        let repeated = parted(bench, &mut peer, &heard);
        again += repeated.len();
        // (RFC 8985 s6.2: or one that arrives tells, where it was sent a while later.)
        let may_know = peer.sack && repeated == [una] && again == 1;
        if number < 3 {
            bench.must(repeated.is_empty() || may_know, format_args!("RFC 5681 s3.2: sent again after {number} duplicate acknowledgments"));
        } else if number == 3 && again == repeated.len() {
            bench.must(
                repeated == [una],
                format_args!("RFC 5681 s3.2: {repeated:?} sent again after the third duplicate acknowledgment of {una}"),
            );
        } else {
            bench.must(repeated.is_empty(), format_args!("RFC 6675 s5: {repeated:?} sent again, and nothing says that it was lost"));
        }
    }
    bench.must(again == 1, "RFC 5681 s3.2: one segment is sent again");
    // Everything arrived. From now on, what is in flight is half of what it was, or so.
    let half = (count / 2).max(2);
    let mut una = peer.rcv;
    bench.give(&peer, peer.nxt, una, ACK, 0);
    let waiting = bench.ring.info(peer.id()).map_or(0, |info| info.send_queue);
    bench.write(&peer, una.wrapping_sub(peer.irs) as usize - 1 + waiting, 60_000, SendFlags::empty());
    let first = bench.receive(&mut peer) as u64;
    bench.must(
        first <= half + 1,
        format_args!("RFC 6582 s3.2: a burst of {first} segments at the end of a recovery, and {half} are the threshold"),
    );
    // Each segment is acknowledged by itself, or all of them at once.
    let step = if bench.chance(3) { u32::MAX } else { full };
    for round in 1..=7 {
        bench.pass(Duration::from_millis(5));
        let sent = peer.rcv;
        while una != sent {
            una = una.wrapping_add(step.min(sent.wrapping_sub(una)));
            bench.give(&peer, peer.nxt, una, ACK, 0);
            bench.receive(&mut peer);
        }
        let now = u64::from(peer.rcv.wrapping_sub(una).div_ceil(full));
        let least = if round == 7 { half - 1 } else { 1 };
        bench.must(
            (least..=half + 8).contains(&now),
            format_args!("RFC 5681 s3.1: {now} segments in flight, {round} round trips after {count} were, one of which was lost, of a window of {window}"),
        );
    }
}

/// RFC 3042 s2: each of the first two duplicate acknowledgments lets one new segment go.
fn first_duplicates(bench: &mut Bench) {
    let mut peer = roomy(bench);
    let full = peer.mss;
    let una = flight(bench, &mut peer, 14);
    bench.write(&peer, 28 * full as usize, 10 * full as usize, SendFlags::empty());
    bench.silence("RFC 5681 s3.1: more than the congestion window lets go");
    for number in 1..=2 {
        report(bench, &peer, una, &[(una.wrapping_add(full), una.wrapping_add((number + 1) * full))]);
        let heard = bench.take();
        let again = parted(bench, &mut peer, &heard);
        bench.must(
            again.is_empty() && heard.len() == 1,
            format_args!("RFC 3042 s2: {} segments, {again:?} again, for duplicate acknowledgment {number}", heard.len()),
        );
    }
}

/// RFC 5681 s2: an acknowledgment that says another window is no duplicate.
fn window_updates(bench: &mut Bench) {
    let mut peer = roomy(bench);
    let una = flight(bench, &mut peer, 14);
    for _ in 0..bench.between(3, 8) {
        peer.window -= 100;
        bench.give(&peer, peer.nxt, una, ACK, 0);
        let heard = bench.take();
        let again = parted(bench, &mut peer, &heard);
        bench.must(again.is_empty(), format_args!("RFC 5681 s2: {again:?} sent again for window updates"));
    }
}

/// RFC 6675 s5: once enough is reported, all holes below it are sent again as the congestion window lets them, without a word from the first.
fn shown_holes(bench: &mut Bench) {
    const SENT: u32 = 20;
    let mut peer = roomy(bench);
    if !peer.sack {
        return;
    }
    let full = peer.mss;
    let una = flight(bench, &mut peer, u64::from(SENT));
    let holes = bench.between(2, 4) as u32;
    let begin = una.wrapping_add(holes * full);
    let mut again = Vec::new();
    for number in holes..SENT {
        report(bench, &peer, una, &[(begin, una.wrapping_add((number + 1) * full))]);
        let heard = bench.take();
        again.extend(parted(bench, &mut peer, &heard));
    }
    let all: Vec<_> = (0..holes).map(|hole| una.wrapping_add(hole * full)).collect();
    bench.must(again == all, format_args!("RFC 6675 s5: {again:?} sent again, and {all:?} are lost, with a flight of {SENT} segments"));
}

/// RFC 8985 s6.2: what was sent again is lost again, if what was sent a while later has arrived. It is sent once more, and once; and the window comes down
/// once more (RFC 5681 s4.3).
pub(super) fn lost_again(bench: &mut Bench) {
    const SENT: u32 = 20;
    let mut peer = roomy(bench);
    if !peer.sack {
        return;
    }
    let full = peer.mss;
    let una = flight(bench, &mut peer, u64::from(SENT));
    let (algorithm, tenths) = bench.pick(&[(Algorithm::Reno, 5), (Algorithm::Cubic, 7)]);
    let set = bench.ring.tcp_configure(bench.now, peer.id(), |config| config.congestion = algorithm);
    bench.must(set.is_ok(), format_args!("tcp(7), TCP_CONGESTION: {set:?}"));
    bench.write(&peer, 2 * (SENT * full) as usize, (80 * full) as usize, SendFlags::empty());
    let begin = una.wrapping_add(full);
    let in_flight = peer.rcv.wrapping_sub(una);
    let mut again = Vec::new();
    for number in 2..=SENT / 2 {
        report(bench, &peer, una, &[(begin, una.wrapping_add(number * full))]);
        let heard = bench.take();
        again.extend(parted(bench, &mut peer, &heard));
    }
    bench.must(again == [una], format_args!("RFC 6675 s5: {again:?} sent again, and {una} is lost"));
    let pause = Duration::from_millis(bench.between(5, 20));
    bench.pass(pause);
    let mut top = una.wrapping_add(SENT / 2 * full);
    let later = peer.rcv;
    while before(top, later) {
        // What was sent before tells nothing of it.
        top = top.wrapping_add(full);
        report(bench, &peer, una, &[(begin, top)]);
        let heard = bench.take();
        let again = parted(bench, &mut peer, &heard);
        bench.must(again.is_empty(), format_args!("RFC 8985 s6.2: {again:?} sent once more for what was sent before"));
    }
    let before_news = peer.rcv;
    bench.must(before(later, before_news), "RFC 6675 s5: what arrives lets new segments go");
    bench.pass(pause);
    let mut again = Vec::new();
    let mut new = 0;
    while before(top, before_news) {
        top = top.wrapping_add(full);
        report(bench, &peer, una, &[(begin, top)]);
        let heard = bench.take();
        let resent = parted(bench, &mut peer, &heard);
        new += heard.len() - resent.len();
        again.extend(resent);
    }
    bench.must(again == [una], format_args!("RFC 8985 s6.2: {again:?} sent once more, and {una} is lost again ({new} new ones)"));
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    bench.take();
    let told = bench.ring.info(peer.id()).map_or(0, |info| info.cwnd) as u32;
    let wanted = in_flight * tenths / 10 * tenths / 10;
    bench.must(
        told <= wanted + 3 * full,
        format_args!("RFC 5681 s4.3: a window of {told} after two losses with {in_flight} in flight, and {wanted} are wanted"),
    );
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 6582 s3.2 step 3: without SACK, a partial acknowledgment deflates the window by what it acknowledges, and lets hardly more go than the next hole.
fn partial(bench: &mut Bench) {
    const SENT: u32 = 20;
    let mut peer = roomy(bench);
    if peer.sack {
        return;
    }
    let full = peer.mss;
    let una = flight(bench, &mut peer, u64::from(SENT));
    bench.write(&peer, 2 * (SENT * full) as usize, (40 * full) as usize, SendFlags::empty());
    let second = bench.between(6, 14) as u32;
    for _ in 0..SENT - 2 {
        report(bench, &peer, una, &[]);
        let heard = bench.take();
        parted(bench, &mut peer, &heard);
    }
    let hole = una.wrapping_add(second * full);
    bench.pass(Duration::from_millis(5));
    report(bench, &peer, hole, &[]);
    let heard = bench.take();
    let again = parted(bench, &mut peer, &heard);
    bench.must(again == [hole], format_args!("RFC 6582 s3.2: {again:?} sent again for a partial acknowledgment of {hole}"));
    let new = heard.len() - again.len();
    bench.must(new <= 2, format_args!("RFC 6582 s3.2: {new} new segments for a partial acknowledgment of {second}"));
}

/// RFC 6582 s3.2, RFC 6675 s5: the second hole is sent again as soon as the first one is filled, at the latest, and no timer is needed.
fn two_lost(bench: &mut Bench) {
    let mut peer = roomy(bench);
    let full = peer.mss;
    let una = flight(bench, &mut peer, 14);
    let second = bench.between(2, 6) as u32;
    let hole = una.wrapping_add(second * full);
    let behind = hole.wrapping_add(full);
    let mut again = Vec::new();
    let last = bench.between(u64::from(second) + 3, 11) as u32;
    for number in 1..=last {
        let top = una.wrapping_add((number + 1) * full);
        if number == second {
            continue;
        }
        let blocks = match before(hole, top) {
            true => vec![(behind, top), (una.wrapping_add(full), hole)],
            false => vec![(una.wrapping_add(full), top)],
        };
        report(bench, &peer, una, &blocks);
        let heard = bench.take();
        again.extend(parted(bench, &mut peer, &heard));
    }
    bench.must(again.first() == Some(&una), "RFC 5681 s3.2: the first hole is sent again");
    bench.pass(Duration::from_millis(5));
    let end = una.wrapping_add((last + 1) * full);
    report(bench, &peer, hole, &[(behind, end)]);
    let heard = bench.take();
    again.extend(parted(bench, &mut peer, &heard));
    bench.must(again.contains(&hole), "RFC 6582 s3.2: a partial acknowledgment has the next hole sent again at once");
    bench.must(again.len() == 2, format_args!("RFC 6675 s5: {} segments sent again, and two were lost", again.len()));
}

/// RFC 6582 s3.2 step 3: without SACK the first partial acknowledgment starts the timer anew, and the others don't: many holes end in a timeout, after which
/// they are sent again in slow start. With SACK, which tells of all of them at once, each does (RFC 6298 s5.3).
fn many_lost(bench: &mut Bench) {
    let mut peer = roomy(bench);
    let full = peer.mss;
    let una = flight(bench, &mut peer, 14);
    let top = peer.rcv;
    let last = (top.wrapping_sub(full), top);
    for number in 1..=3 {
        report(bench, &peer, una, &[(top.wrapping_sub(number * full), top)]);
    }
    let heard = bench.take();
    let again = parted(bench, &mut peer, &heard);
    bench.must(again.first() == Some(&una), "RFC 5681 s3.2: the first hole is sent again");
    // The peer's answers take less than the shortest timeout, all together they take more than the longest.
    let step = bench.between(30, 90);
    bench.pass(Duration::from_millis(step));
    let (mut since, mut timed_out) = (bench.now, None);
    for hole in 1..=9 {
        let una = una.wrapping_add(hole * full);
        report(bench, &peer, una, &[last]);
        if hole == 1 {
            since = bench.now;
        }
        let heard = bench.take();
        parted(bench, &mut peer, &heard);
        let until = bench.now + Duration::from_millis(step);
        if let Some(heard) = bench.await_segment(until.since(bench.now)) {
            bench.must(heard.seq == una, "RFC 6298 s5.4: the earliest is sent again");
            timed_out = Some(bench.now.since(since));
            break;
        }
    }
    if peer.sack {
        bench.must(timed_out.is_none(), format_args!("RFC 6298 s5.3: a timeout {timed_out:?} after the first of many acknowledgments"));
    } else {
        let bounds = Duration::from_millis(200) - TICK..=Duration::from_millis(260);
        bench.must(
            timed_out.is_some_and(|time| bounds.contains(&time)),
            format_args!("RFC 6582 s3.2: a timeout {timed_out:?} after the first partial acknowledgment"),
        );
    }
}

/// RFC 5681 s3.1, RFC 3465 s2.3: after a timeout one segment, then one more for each acknowledgment, however much it covers.
fn after_timeout(bench: &mut Bench) {
    let mut peer = roomy(bench);
    let full = peer.mss;
    let una = flight(bench, &mut peer, 20);
    probe(bench, &mut peer);
    let first = bench.await_segment(Duration::from_secs(5));
    bench.must(first.is_some_and(|first| first.seq == una), "RFC 6298 s5.4: the earliest is sent again");
    let all = bench.take();
    bench.must(all.is_empty(), format_args!("RFC 5681 s3.1: {} segments more after a timeout, and the loss window is one", all.len()));
    // One acknowledgment of so many.
    let covered = bench.between(1, 12) as u32;
    bench.pass(Duration::from_millis(5));
    bench.give(&peer, peer.nxt, una.wrapping_add(covered * full), ACK, 0);
    let next = bench.take().iter().filter(|heard| heard.len() > 0).count();
    bench.must(
        next == 2,
        format_args!("RFC 5681 s3.1, RFC 3465 s2.3: {next} segments for an acknowledgment of {covered} after a timeout, and two are to be"),
    );
}

/// RFC 2018 s5: reports of what was never sent, or is acknowledged, or came twice (RFC 2883 s5), change nothing.
fn lies(bench: &mut Bench) {
    let mut peer = roomy(bench);
    let full = peer.mss;
    let una = flight(bench, &mut peer, 12);
    for _ in 0..6 {
        let far = bench.between(1, 20) as u32 * full;
        let beyond = (peer.rcv.wrapping_add(far), peer.rcv.wrapping_add(far + full));
        let across = (peer.rcv.wrapping_sub(full), peer.rcv.wrapping_add(far));
        let again = (una.wrapping_sub(full), una);
        let block = bench.pick(&[beyond, across, again]);
        let told = peer.sack;
        if told {
            report(bench, &peer, una, &[block]);
        }
        let heard = bench.take();
        let repeated = parted(bench, &mut peer, &heard);
        bench.must(
            repeated.is_empty(),
            format_args!("RFC 2018 s5, RFC 2883 s5: {repeated:?} sent again for {block:?}, with {una} acknowledged and {} sent", peer.rcv),
        );
    }
    // What is acknowledged goes on as if nothing had been said.
    let all = peer.rcv;
    bench.give(&peer, peer.nxt, all, ACK, 0);
    let heard = bench.take();
    let repeated = parted(bench, &mut peer, &heard);
    bench.must(repeated.is_empty(), "RFC 2018 s5: what is acknowledged is sent again");
}

/// A device that takes nothing for a while: all that was to be sent is sent once it takes frames again, and in order.
fn refused(bench: &mut Bench) {
    let mut peer = roomy_unprobed(bench);
    let room = bench.below(5) as usize;
    bench.wire.borrow_mut().room = Some(room);
    bench.write(&peer, 0, 1500, SendFlags::empty());
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 10);
    peer.nxt = peer.nxt.wrapping_add(10);
    let sent = bench.receive(&mut peer);
    bench.must(sent <= room, format_args!("{sent} segments of a device that takes {room}"));
    let pause = Duration::from_millis(bench.between(0, 20));
    bench.pass(pause);
    bench.wire.borrow_mut().room = None;
    if bench.chance(2) {
        // Who waited for the device tries again as soon as it is back.
        bench.wire.borrow_mut().events.push_back(DeviceEvent::Reset);
        bench.pass(Duration::from_micros(1));
    } else {
        bench.pass(Duration::from_millis(120));
    }
    bench.receive(&mut peer);
    let all = peer.rcv.wrapping_sub(peer.irs) - 1;
    bench.must(all == 1500, format_args!("RFC 9293 s3.9.1.2: {all} of 1500 bytes are sent, and the device takes frames again"));
    let last = bench.ring.info(peer.id()).is_some_and(|info| info.send_queue == 1500);
    bench.must(last, "RFC 9293 s3.8.1: what is not acknowledged is kept");
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    bench.pass(Duration::from_secs(10));
    let kept = bench.wire.borrow().buffers.get();
    bench.must(kept == 0, format_args!("{kept} send buffers are kept by a connection that has nothing to send"));
}

/// The contract of who drives a device: what it refuses is tried again soon, and later and later only while nothing moves.
pub(super) fn refused_again(bench: &mut Bench) {
    let mut peer = roomy_unprobed(bench);
    let mut written = 0;
    for _ in 0..3 {
        for (refusal, within) in [(bench.between(20, 150), Duration::from_millis(20)), (0, Duration::from_millis(1))] {
            bench.wire.borrow_mut().room = Some(0);
            let len = bench.between(1, 500) as usize;
            written += bench.write(&peer, written, len, SendFlags::empty());
            bench.silence("a device that takes nothing sent something");
            bench.pass(Duration::from_millis(refusal));
            bench.wire.borrow_mut().room = None;
            bench.pass(within);
            bench.receive(&mut peer);
            let sent = peer.rcv.wrapping_sub(peer.irs) as usize - 1;
            bench.must(
                sent == written,
                format_args!(
                    "{sent} of {written} bytes are sent {within:?} after a device takes frames again that took none for {refusal} ms"
                ),
            );
            bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
            bench.take();
        }
    }
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 9293 s3.8.1: what is sent again has its FIN again.
fn fin_again(bench: &mut Bench) {
    let mut peer = roomy(bench);
    let len = bench.between(1, 180) as usize;
    bench.write(&peer, 0, len, SendFlags::MORE);
    let _ = bench.ring.shutdown(bench.now, peer.id(), Shutdown::Write);
    bench.receive(&mut peer);
    let behind = peer.irs.wrapping_add(2).wrapping_add(len as u32);
    bench.must(peer.rcv == behind, "RFC 9293 s3.10.4: a FIN follows what was written");
    let mut end = peer.irs;
    for _ in 0..3 {
        if let Some(heard) = bench.await_segment(Duration::from_secs(3)) {
            bench.must(heard.len() == 0 || heard.seq == peer.irs.wrapping_add(1), "RFC 9293 s3.8.1: the earliest is sent again");
            end = if before(end, heard.end()) { heard.end() } else { end };
        }
    }
    bench.must(end == behind, "RFC 9293 s3.8.1: a FIN that is not acknowledged is sent again");
}
