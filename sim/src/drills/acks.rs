//! Acknowledgments: when, how many, and what they report (RFC 9293 s3.8.6.3, RFC 5681 s4.2, RFC 2018, RFC 2883).

use core::time::Duration;

use ringway_stack::ring::SendFlags;
use ringway_stack::tcp::State;

use super::Drill;
use super::bench::{Bench, Peer, TICK};
use crate::segment::{ACK, PSH, RST, before};

pub(super) const DRILLS: &[Drill] = &[
    ("delayed acknowledgments", delayed),
    ("acknowledgments of full segments", seconds),
    ("reports of gaps", reports),
    ("reports of duplicates", duplicates),
    ("a gap behind bytes that wait for their acknowledgment", gap_is_heard),
    ("an acknowledgment beside a probe", beside_probe),
    ("challenges", challenges),
    ("keepalive", keepalive),
];

/// Segments at a connection's beginning that are acknowledged at once, at most (Linux's TCP_MAX_QUICKACKS).
const QUICK_MAX: u32 = 16;

/// A connection whose beginning is over.
fn settled(bench: &mut Bench, delay: Duration) -> Peer {
    let mut setup = bench.setup();
    setup.config.rcvbuf = Some(100_000);
    setup.config.delayed_ack = delay;
    setup.mss = 1460;
    let mut peer = bench.connect(&setup);
    for _ in 0..QUICK_MAX + 2 {
        next(bench, &mut peer, 10);
        bench.pass(delay + TICK);
        bench.take();
    }
    peer
}

/// The next bytes.
fn next(bench: &mut Bench, peer: &mut Peer, len: u32) {
    bench.give(peer, peer.nxt, peer.rcv, ACK, len);
    peer.nxt = peer.nxt.wrapping_add(len);
}

/// RFC 9293 s3.8.6.3: a lone segment waits for something to ride on, from when it came and no longer than was declared.
fn delayed(bench: &mut Bench) {
    let delay = Duration::from_millis(bench.between(10, 100));
    let mut peer = settled(bench, delay);
    let (begun, first) = (bench.now, peer.nxt);
    next(bench, &mut peer, 20);
    bench.silence("RFC 9293 s3.8.6.3, RFC 1122 s4.2.3.2: each segment is acknowledged by itself");
    for _ in 0..bench.below(3) {
        let pause = delay / 4;
        bench.pass(pause);
        next(bench, &mut peer, 20);
    }
    bench.silence("RFC 9293 s3.8.6.3, RFC 1122 s4.2.3.2: each segment is acknowledged by itself");
    if bench.chance(3) {
        // It rides on what the program says, and goes no second time.
        bench.write(&peer, 0, 50, SendFlags::empty());
        let data = bench.one("RFC 9293 s3.9.1.2: bytes are sent");
        bench.must(data.ack == peer.nxt, "RFC 9293 s3.8.6.3: what is sent acknowledges all that came");
        bench.take_in(&mut peer, &data);
        bench.pass(Duration::from_millis(120));
        bench.silence("RFC 9293 s3.8.6.3: what was acknowledged is acknowledged again");
        return;
    }
    if bench.chance(3) {
        // A reset before the next number is none (RFC 9293 s3.10.7.4), though what lies between is not acknowledged yet.
        let between = peer.nxt.wrapping_sub(bench.between(1, 20) as u32);
        let seq = bench.pick(&[first, between, peer.nxt.wrapping_sub(1)]);
        bench.give(&peer, seq, peer.rcv, RST, 0);
        let state = bench.state(&peer);
        bench.must(state == Some(State::Established), format_args!("RFC 5961 s3.2: {state:?} after a reset before the next number"));
        return;
    }
    let left = delay - bench.now.since(begun);
    let ack = bench.await_segment(left + TICK);
    let waited = bench.now.since(begun);
    bench.must(ack.is_some(), format_args!("RFC 9293 s3.8.6.3: nothing is acknowledged after {waited:?}, and {delay:?} were declared"));
    if let Some(ack) = ack {
        bench.is_ack(&ack, &peer, "RFC 9293 s3.8.6.3: an acknowledgment that was delayed");
    }
}

/// RFC 9293 s3.8.6.3, RFC 5681 s4.2: at least every second full segment is acknowledged, and at once what fills a gap.
fn seconds(bench: &mut Bench) {
    let mut peer = settled(bench, Duration::from_millis(100));
    let full = 1400;
    // By now it is known how long they are.
    for _ in 0..2 {
        next(bench, &mut peer, full);
    }
    bench.pass(Duration::from_millis(110));
    bench.take();
    for _ in 0..3 {
        next(bench, &mut peer, full);
        let early = bench.take().len();
        next(bench, &mut peer, full);
        let both = early + bench.take().len();
        bench.must(both >= 1, "RFC 9293 s3.8.6.3: two full segments are not acknowledged");
        bench.must(both <= 1, format_args!("RFC 9293 s3.8.6.3: {both} acknowledgments of two segments"));
        bench.read(&peer, 100_000).ok();
        bench.take();
    }
    // A gap, and what fills it.
    bench.pass(Duration::from_millis(110));
    bench.take();
    let hole = peer.nxt;
    bench.give(&peer, hole.wrapping_add(30), peer.rcv, ACK, 30);
    let ack = bench.one("RFC 5681 s4.2: an out-of-order segment is acknowledged at once");
    bench.must(ack.ack == hole, "RFC 5681 s4.2: a duplicate acknowledgment says what is missing");
    bench.give(&peer, hole, peer.rcv, ACK, 30);
    peer.nxt = hole.wrapping_add(60);
    let ack = bench.one("RFC 5681 s4.2: a segment that fills a gap is acknowledged at once");
    bench.is_ack(&ack, &peer, "RFC 5681 s4.2: a segment that fills a gap");
}

/// RFC 2018 s4: each report begins with the block that the segment fell into, and has as many more as fit, all of them true.
fn reports(bench: &mut Bench) {
    let mut setup = bench.setup();
    (setup.sack, setup.config.sack) = (true, true);
    setup.config.rcvbuf = Some(60_000);
    let peer = bench.connect(&setup);
    let fit = if peer.stamps { 3 } else { 4 };
    let mut held: Vec<(u32, u32)> = Vec::new();
    let mut recent: Vec<(u32, u32)> = Vec::new();
    for _ in 0..bench.between(3, 14) {
        let at = peer.nxt.wrapping_add(100 * (1 + bench.below(24) as u32));
        if held.iter().any(|&(start, end)| before(start, at.wrapping_add(100)) && before(at, end)) {
            continue;
        }
        bench.give(&peer, at, peer.rcv, ACK, 100);
        let mut block = (at, at.wrapping_add(100));
        held.retain(|&(start, end)| {
            let joins = end == block.0 || start == block.1;
            if end == block.0 {
                block.0 = start;
            } else if start == block.1 {
                block.1 = end;
            }
            !joins
        });
        held.push(block);
        // As on Linux, the four most recent ones are remembered as such.
        recent.retain(|&(start, end)| before(end, block.0) || before(block.1, start));
        recent.insert(0, block);
        recent.truncate(4);
        let ack = bench.one("RFC 5681 s4.2: an out-of-order segment is acknowledged at once");
        bench.must(ack.ack == peer.nxt, "RFC 2018 s4: a report acknowledges no more than what came in order");
        let blocks = ack.options.sack();
        bench.must(blocks.first() == Some(&block), format_args!("RFC 2018 s4: {blocks:?}, where {block:?} is the block of what just came"));
        let are_true = blocks.iter().all(|block| held.contains(block));
        bench.must(are_true, format_args!("RFC 2018 s3: {blocks:?}, and {held:?} is there"));
        let most = recent.len().min(fit);
        bench.must(
            blocks == &recent[..most],
            format_args!("RFC 2018 s4: {blocks:?}, and the most recent are {recent:?}, of which {fit} fit"),
        );
    }
}

/// RFC 2883 s4: what came twice is reported once, first, and as much of it as came twice.
fn duplicates(bench: &mut Bench) {
    let mut setup = bench.setup();
    (setup.sack, setup.config.sack) = (true, true);
    setup.config.rcvbuf = Some(60_000);
    let mut peer = bench.connect(&setup);
    next(bench, &mut peer, 500);
    bench.pass(Duration::from_millis(105));
    bench.take();
    let old = bench.between(1, 400) as u32;
    let new = if bench.chance(2) { bench.between(1, 300) as u32 } else { 0 };
    let start = peer.nxt.wrapping_sub(old);
    let twice = (start, peer.nxt);
    bench.give(&peer, start, peer.rcv, ACK, old + new);
    peer.nxt = peer.nxt.wrapping_add(new);
    let ack = if new == 0 {
        Some(bench.one("RFC 9293 s3.10.7.4: what was received before is acknowledged"))
    } else {
        bench.await_segment(Duration::from_millis(105))
    };
    let Some(ack) = ack else { return bench.must(false, "RFC 9293 s3.8.6.3: new bytes behind old ones are not acknowledged") };
    let said = ack.options.sack().first().copied();
    bench.must(said == Some(twice), format_args!("RFC 2883 s4.2: {said:?} reported, and {twice:?} came twice"));
    bench.take();
    // However often: it may be that this answer was lost (RFC 9293 s3.10.7.4).
    for _ in 0..2 {
        bench.give(&peer, peer.iss.wrapping_add(1), peer.rcv, ACK, 30);
        bench.one("RFC 9293 s3.10.7.4: what was received before is acknowledged again");
    }
    next(bench, &mut peer, 100);
    if let Some(ack) = bench.await_segment(Duration::from_millis(105)) {
        bench.must(ack.options.sack().is_empty(), "RFC 2883 s4: a duplicate is reported in one acknowledgment");
    }
    // Beside a gap, it stands before the report of that.
    let hole = peer.nxt;
    bench.give(&peer, hole.wrapping_add(100), peer.rcv, ACK, 100);
    let _ = bench.take();
    let gap = (hole.wrapping_add(100), hole.wrapping_add(200));
    bench.give(&peer, gap.0, peer.rcv, ACK, 100);
    let ack = bench.one("RFC 9293 s3.10.7.4: what was received before is acknowledged");
    let blocks = ack.options.sack();
    bench.must(blocks.first() == Some(&gap), format_args!("RFC 2883 s4.1.3: {blocks:?}, and {gap:?} came twice"));
    bench.must(blocks.get(1) == Some(&gap), format_args!("RFC 2883 s4.1.3: {blocks:?}, and {gap:?} is there"));
}

/// RFC 9293 s3.8.6.3, s3.8.6.1: a probe, which a peer drops for its number, acknowledges nothing; what is owed goes in its own time.
fn beside_probe(bench: &mut Bench) {
    let delay = Duration::from_millis(bench.between(10, 100));
    let mut peer = settled(bench, delay);
    peer.window = 0;
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    bench.write(&peer, 0, 500, SendFlags::empty());
    let probe = bench.await_segment(Duration::from_secs(3));
    bench.must(probe.is_some(), "RFC 9293 s3.8.6.1: a shut window is probed");
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    // Just before the next one.
    let Some(at) = bench.ring.next_deadline() else { return bench.must(false, "RFC 9293 s3.8.6.1: a shut window is probed") };
    let early = Duration::from_millis(bench.between(2, 9));
    bench.pass(at.since(bench.now).saturating_sub(early));
    bench.take();
    next(bench, &mut peer, 20);
    bench.pass(delay + TICK);
    let acknowledged = bench.take().iter().any(|heard| heard.ack == peer.nxt && heard.seq == peer.rcv);
    bench.must(acknowledged, format_args!("RFC 9293 s3.8.6.3: {delay:?} after bytes came, nothing but a probe acknowledges them"));
}

/// RFC 5961 s7: challenges are sent, and not at any rate.
fn challenges(bench: &mut Bench) {
    let setup = bench.setup();
    let peer = bench.connect(&setup);
    bench.pass(Duration::from_secs(1));
    let flags = bench.pick(&[RST, crate::segment::SYN]);
    for _ in 0..3 {
        for number in 0..6 {
            bench.give(&peer, peer.nxt.wrapping_add(1 + number), peer.rcv, flags, 0);
            bench.pass(Duration::from_millis(20));
        }
        let all = bench.take();
        bench.must(all.len() == 1, format_args!("RFC 5961 s7: {} challenges within 120 ms, and one in 500 is to be", all.len()));
        bench.is_ack(&all[0], &peer, "RFC 5961 s3.2: a challenge");
        bench.pass(Duration::from_millis(600));
    }
    bench.give(&peer, peer.nxt, peer.rcv, ACK | PSH, 10);
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 5681 s4.2, and the device's contract (`TxOffload::unsolicited`): an acknowledgment that tells of a gap wakes its sender, whatever else it acknowledges.
fn gap_is_heard(bench: &mut Bench) {
    let delay = Duration::from_millis(bench.between(10, 100));
    let mut peer = settled(bench, delay);
    next(bench, &mut peer, 20);
    bench.take();
    bench.give(&peer, peer.nxt.wrapping_add(30), peer.rcv, ACK, 20);
    let ack = bench.one("RFC 5681 s4.2: an out-of-order segment is acknowledged at once");
    bench.is_ack(&ack, &peer, "RFC 5681 s4.2: an out-of-order segment");
    bench.must(!bench.wire.borrow().is_unsolicited, "RFC 5681 s4.2: nobody is woken for a gap that he has to fill");
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 5961 s3.2, s4.2, s5.2, and the device's contract (`TxOffload::unsolicited`): a challenge asks for an answer, and wakes its peer, whatever it acknowledges beside.
pub(super) fn challenge_is_heard(bench: &mut Bench) {
    let delay = Duration::from_millis(bench.between(10, 100));
    let mut peer = settled(bench, delay);
    if bench.chance(2) {
        next(bench, &mut peer, 20);
        bench.take();
    }
    let far = 1 + bench.below(1000) as u32;
    let (seq, ack, flags) = bench.pick(&[
        (peer.nxt.wrapping_add(far), peer.rcv, RST),
        (peer.nxt.wrapping_add(far), peer.rcv, crate::segment::SYN),
        (peer.nxt, peer.rcv.wrapping_add(far), ACK),
        (peer.nxt.wrapping_add(100_000 + far), peer.rcv, ACK),
    ]);
    bench.give(&peer, seq, ack, flags, 0);
    let challenge = bench.one("RFC 5961: a challenge");
    bench.is_ack(&challenge, &peer, "RFC 5961: a challenge");
    bench.must(!bench.wire.borrow().is_unsolicited, "RFC 5961 s3.2: nobody is woken for a challenge, which asks for an answer");
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 6298 s5.2, s5.3: an acknowledgment that came before the timer is looked at stops it, whatever came before it.
pub(super) fn before_timers(bench: &mut Bench) {
    let setup = bench.setup();
    let mut peer = bench.connect(&setup);
    bench.write(&peer, 0, 500, SendFlags::empty());
    bench.receive(&mut peer);
    // The host slept meanwhile.
    let asleep = bench.between(300, 5000);
    bench.now += Duration::from_millis(asleep);
    for number in 0..bench.below(300) as u16 {
        let stranger = std::net::SocketAddrV4::new(*peer.remote.ip(), 1000 + number);
        bench.queue((stranger, peer.local), 1, 0, RST, 0, &[], &[]);
    }
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    bench.silence("RFC 6298 s5.2: something is sent again, though its acknowledgment has come");
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 9293 s3.8.4, tcp(7): probes when the peer has been silent, so far apart, so many; and none while bytes ask for an answer.
fn keepalive(bench: &mut Bench) {
    let mut setup = bench.setup();
    let settings = ringway_stack::tcp::Keepalive {
        idle: Duration::from_secs(bench.between(2, 60)),
        interval: Duration::from_secs(bench.between(1, 30)),
        count: bench.between(1, 6) as u32,
    };
    // The program may want it later.
    let later = bench.chance(3);
    setup.config.keepalive = Some(settings).filter(|_| !later);
    let mut peer = bench.connect(&setup);
    if later {
        let set = bench.ring.tcp_configure(bench.now, peer.id(), |config| config.keepalive = Some(settings));
        bench.must(set.is_ok(), format_args!("setsockopt(2): {set:?}"));
    }
    super::windows::perhaps_ended(bench, &mut peer);
    if bench.chance(4) {
        // Bytes that are in flight ask as well.
        bench.write(&peer, 0, 100, SendFlags::empty());
        bench.receive(&mut peer);
        bench.pass(settings.idle * 2);
        let probes = bench.take().iter().filter(|heard| heard.span() == 0).count();
        bench.must(probes == 0, "RFC 9293 s3.8.4: keepalive probes while bytes wait to be acknowledged");
        return;
    }
    for round in 0..2 {
        // (As on Linux, what was answered is asked again after an interval at the soonest.)
        let due = if round == 0 { settings.idle } else { settings.idle.max(settings.interval) };
        let probe = bench.await_segment(due + TICK);
        bench.must(probe.is_some(), format_args!("RFC 9293 s3.8.4: no probe after {due:?} of silence (round {round})"));
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
        bench.silence("RFC 9293 s3.8.4: the answer to a probe is not answered");
    }
    let silent = bench.now;
    for number in 0..settings.count {
        let due = settings.idle.max(settings.interval) + settings.interval * number;
        let slack = TICK * (number + 1);
        let probe = bench.await_segment(due + slack - bench.now.since(silent).min(due));
        let waited = bench.now.since(silent);
        bench.must(probe.is_some(), format_args!("tcp(7): probe {number} is not there after {waited:?}"));
        bench.must(waited + TICK >= due, format_args!("tcp(7): probe {number} after {waited:?}, and {due:?} are due"));
    }
    bench.pass(settings.interval + TICK);
    let error = bench.ring.take_error(peer.id());
    bench.must(
        error == Some(ringway_stack::Error::TimedOut),
        format_args!("tcp(7): {error:?} after {} probes without an answer", settings.count),
    );
}
