//! Sides of conversations, as most workloads draw them.

use core::time::Duration;

use super::Ground;
use crate::apps::{Dialogue, Pace, Pattern, Side};
use crate::random::RandomStream;

/// Bytes at a stream's beginning that name it to a server that knows many.
pub(super) const NAME_LEN: u64 = 8;

/// A side that writes up to `total_max` bytes at once, and never rests.
pub(super) fn side(ground: &mut Ground<'_>, total_max: u64) -> Side {
    let stream = &mut *ground.stream;
    let (small, large) = (stream.magnitude(1, total_max), stream.between(1, total_max));
    let total = if stream.chance_ppm(100_000) { 0 } else { stream.pick(&[small, large]) };
    Side { pattern: Pattern(stream.bits()), total, write_max: call(stream), read_max: call(stream), ..Side::silent() }
}

/// A client that asks a few times, and the server that answers; no request is shorter than a name.
pub(super) fn exchange(stream: &mut RandomStream, rounds_max: u64, request_max: u64, response_max: u64) -> Dialogue {
    let (request, response) = (stream.magnitude(NAME_LEN, request_max), stream.magnitude(1, response_max));
    let rounds = stream.magnitude(1, rounds_max);
    // A few calls for each request and response are enough: many tiny ones are what bulk is for.
    let mut side = |pace, own: u64, peer: u64| Side {
        pattern: Pattern(stream.bits()),
        pace,
        total: rounds * own,
        write_max: call(stream).clamp(piece(own), 8 << 10),
        read_max: call(stream).clamp(piece(peer), 8 << 10),
        ..Side::silent()
    };
    let own = side(Pace::Asks { request, response }, request, response);
    let peer = side(Pace::Answers { request, response }, response, request);
    paced(Dialogue { own, peer })
}

/// How long a side rests after each read, if it is one that rests.
pub(super) fn rest(stream: &mut RandomStream) -> Duration {
    Duration::from_nanos(stream.magnitude(10_000, 50_000_000))
}

/// Keeps the number of calls, and the time that a slow reader takes, within reason.
pub(super) fn paced(dialogue: Dialogue) -> Dialogue {
    Dialogue { own: bounded(dialogue.own, dialogue.peer.total), peer: bounded(dialogue.peer, dialogue.own.total) }
}

fn bounded(side: Side, peer_total: u64) -> Side {
    const CALLS_MAX: u64 = 512;
    const READING_MAX: Duration = Duration::from_secs(20);
    let least = |total: u64| usize::try_from(total / CALLS_MAX).unwrap_or(0) + 1;
    let read_max = side.read_max.max(least(peer_total));
    let reads = u32::try_from(peer_total / read_max as u64 + 1).unwrap_or(u32::MAX);
    Side { write_max: side.write_max.max(least(side.total)), read_max, read_pause: side.read_pause.min(READING_MAX / reads), ..side }
}

fn piece(len: u64) -> usize {
    usize::try_from(len / 4 + 1).unwrap_or(1)
}

/// Bytes of full segments on links of the usual MTUs, with timestamps and without, and where a window that is not scaled ends.
const BOUNDARIES: [usize; 9] = [524, 536, 1228, 1240, 1448, 1460, 8948, 8960, 1 << 16];

/// Bytes of a call: any, or about a boundary.
fn call(stream: &mut RandomStream) -> usize {
    let any = usize::try_from(stream.magnitude(1, 64 << 10)).unwrap_or(1);
    let (turn, is_near) = (any / 8, any.is_multiple_of(8));
    if is_near { BOUNDARIES[turn % BOUNDARIES.len()] - 1 + turn / BOUNDARIES.len() % 3 } else { any }
}
