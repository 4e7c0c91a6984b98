//! The congestion window after losses, for many round trips: as RFC 5681 has it, segment by segment.

use core::time::Duration;

use ringway_stack::ring::SendFlags;
use ringway_stack::tcp::Keepalive;

use super::Drill;
use super::bench::{Bench, Peer};
use super::card::GATHER_MAX;
use super::sending::{drain, flight, probe, roomy};
use crate::segment::ACK;

pub(super) const DRILLS: &[Drill] = &[("round trips after timeouts", after_timeouts), ("a change of options in mid-flight", changes)];

/// RFC 6928 s2.
const INITIAL: u32 = 10;
/// Longer than any timeout that a drill comes to.
const LONG: Duration = Duration::from_secs(130);

/// What RFC 5681 s3.1 lets be in flight, in bytes.
#[derive(Debug)]
struct Window {
    cwnd: u32,
    ssthresh: u32,
    /// Bytes acknowledged since congestion avoidance made the window larger last.
    counted: u32,
    full: u32,
}

impl Window {
    /// One full segment was acknowledged, of a window that is in use.
    fn grow(&mut self) {
        if self.cwnd < self.ssthresh {
            self.cwnd = (self.cwnd + self.full).min(self.ssthresh);
            return;
        }
        self.counted += self.full;
        if self.counted >= self.cwnd {
            self.counted -= self.cwnd;
            self.cwnd += self.full;
        }
    }
}

/// The program writes so many bytes more.
fn write_more(bench: &mut Bench, peer: &Peer, bytes: usize) {
    let unsent = bench.ring.tcp_details(bench.now, peer.id()).map_or(0, |details| details.not_sent);
    let written = peer.rcv.wrapping_sub(peer.irs) as usize - 1 + unsent;
    bench.write(peer, written, bytes, SendFlags::empty());
}

/// The program changes something that has nothing to do with what may be in flight (tcp(7), ip(7)).
fn change(bench: &mut Bench, peer: &Peer) {
    let which = bench.below(6);
    let set = bench.ring.tcp_configure(bench.now, peer.id(), |config| match which {
        0 => config.nodelay = !config.nodelay,
        1 => config.quickack = !config.quickack,
        2 => config.tos ^= 0x10,
        3 => config.keepalive = config.keepalive.is_none().then(Keepalive::default),
        4 => config.ttl = 65,
        _ => config.user_timeout = Some(Duration::from_secs(3600)),
    });
    bench.must(set.is_ok(), format_args!("setsockopt(2): {set:?}"));
}

/// Each segment in flight is acknowledged by itself, in so many round trips.
fn rounds(bench: &mut Bench, peer: &mut Peer, mut una: u32, window: &mut Window, count: u64, law: &str) {
    bench.receive(peer);
    for round in 0..count {
        bench.pass(Duration::from_millis(5));
        let sent = peer.rcv;
        while una != sent {
            if bench.chance(12) {
                change(bench, peer);
            }
            una = una.wrapping_add(window.full);
            bench.give(peer, peer.nxt, una, ACK, 0);
            window.grow();
            bench.receive(peer);
            let (found, right) = (peer.rcv.wrapping_sub(una) / window.full, window.cwnd / window.full);
            bench.must(found.abs_diff(right) <= 1, format_args!("{law}: {found} segments in flight in round {round}, of {window:?}"));
        }
    }
}

/// RFC 5681 s3.1: a timeout makes half of what was in flight the threshold, and further ones of the same bytes leave it; up to there the window grows by a
/// segment for each that is acknowledged, and beyond it by one in a round trip. Idleness does not make it larger (s4.1).
fn after_timeouts(bench: &mut Bench) {
    let mut peer = roomy(bench);
    let full = peer.mss;
    let count = bench.between(4, 24);
    let mut una = flight(bench, &mut peer, count);
    if bench.chance(2) {
        // The window is not used: what counts is what was in flight.
        una = drain(bench, &mut peer, una);
        let few = bench.between(1, count / 2) as usize;
        write_more(bench, &peer, few * full as usize);
        bench.receive(&mut peer);
    }
    probe(bench, &mut peer);
    let sent = peer.rcv.wrapping_sub(una);
    for number in 0..bench.between(1, 4) {
        let again = bench.await_segment(LONG);
        bench.must(again.is_some_and(|again| again.seq == una), format_args!("RFC 6298 s5.4: the earliest is sent again, time {number}"));
        let more = bench.take().len();
        bench.must(more == 0, format_args!("RFC 5681 s3.1: {more} segments more after a timeout, and the loss window is one"));
    }
    // All of it had arrived.
    bench.pass(Duration::from_millis(5));
    let end = peer.rcv;
    bench.give(&peer, peer.nxt, end, ACK, 0);
    bench.receive(&mut peer);
    let mut window = Window { cwnd: 2 * full, ssthresh: (sent / 2).max(2 * full), counted: 0, full };
    if peer.rcv == end && bench.chance(3) {
        bench.pass(Duration::from_secs(10));
    }
    write_more(bench, &peer, 400 * full as usize);
    rounds(bench, &mut peer, end, &mut window, 10, "RFC 5681 s3.1, after timeouts");
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 5681 s3.1: nothing makes the window larger but acknowledgments, and nothing smaller but losses; no call of a program does either.
fn changes(bench: &mut Bench) {
    let mut peer = roomy(bench);
    let full = peer.mss;
    write_more(bench, &peer, 600 * full as usize);
    let mut window = Window { cwnd: INITIAL * full, ssthresh: u32::MAX, counted: 0, full };
    let una = peer.rcv;
    let sent = bench.receive(&mut peer) as u32;
    bench.must(sent == INITIAL, format_args!("RFC 6928 s2: {sent} segments at first"));
    let mut una = una;
    for number in 0..40 {
        bench.pass(Duration::from_millis(1));
        if bench.chance(3) {
            change(bench, &peer);
            bench.silence("RFC 5681 s3.1: a change of options sends something");
        }
        una = una.wrapping_add(full);
        bench.give(&peer, peer.nxt, una, ACK, 0);
        window.grow();
        bench.receive(&mut peer);
        let (found, right) = (peer.rcv.wrapping_sub(una) / full, window.cwnd / full);
        bench.must(
            found == right,
            format_args!("RFC 5681 s3.1: {found} segments in flight after {number} acknowledgments, and {right} may be"),
        );
    }
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 5681 s3.1: a congestion window counts bytes. Where these lie in more buffers than the device gathers, there is room for several segments in a window of
/// a full one, and all of it is used: less than half of it is no reason to grow (RFC 7661 s1), and would leave a segment a round trip for ever.
pub(super) fn small_pieces(bench: &mut Bench) {
    let mut peer = roomy(bench);
    let full = peer.mss;
    let buffer = bench.between(4, u64::from(full / 4) / GATHER_MAX as u64 - 1) as usize;
    bench.wire.borrow_mut().buffer_bytes = Some(buffer);
    let piece = (buffer * GATHER_MAX) as u32;
    let una = peer.rcv;
    write_more(bench, &peer, piece as usize);
    bench.receive(&mut peer);
    probe(bench, &mut peer);
    let again = bench.await_segment(LONG);
    bench.must(again.is_some_and(|again| again.seq == una && again.end() == peer.rcv), "RFC 6298 s5.4: the earliest is sent again");
    bench.pass(Duration::from_millis(5));
    let mut una = peer.rcv;
    bench.give(&peer, peer.nxt, una, ACK, 0);
    // More than the rounds below can send: at most two full segments are in flight, and each round acknowledges what was at its beginning. (There are many
    // small buffers to a byte of it.)
    write_more(bench, &peer, 32 * full as usize);
    bench.receive(&mut peer);
    let mut window = Window { cwnd: full, ssthresh: 2 * full, counted: 0, full: piece };
    for round in 0..4 {
        bench.pass(Duration::from_millis(5));
        let sent = peer.rcv;
        while una != sent {
            let found = peer.rcv.wrapping_sub(una);
            let law = format_args!("RFC 5681 s3.1: {found} bytes in segments of {piece} are in flight in round {round}, of {window:?}");
            bench.must(found + piece > window.cwnd, law);
            una = una.wrapping_add(piece);
            bench.give(&peer, peer.nxt, una, ACK, 0);
            window.cwnd = (window.cwnd + piece).min(window.ssthresh);
            bench.receive(&mut peer);
        }
    }
    bench.ring.close(bench.now, peer.id(), true);
}
