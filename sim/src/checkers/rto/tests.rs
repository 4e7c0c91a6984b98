//! When a timeout comes too early, of connections made by hand.

use super::super::segment::ACK;
use super::super::shadow::tests::{IRS, ISS, MSS, Side};
use super::*;

/// A device that took everything, and one that refused frames from so many milliseconds after the beginning on, and until so many.
const FREE: (u64, u64) = (0, 0);
const REFUSING: (u64, u64) = (1028, 1040);

fn moment(side: &Side, (from, to): (u64, u64)) -> Moment {
    let after = |millis| Instant::ZERO + Duration::from_millis(millis);
    Moment { hampered_since: after(from), hampered: after(to), ..side.moment() }
}

/// Segment `n` goes out.
fn sends(side: &mut Side, n: u32, device: (u64, u64)) {
    let moment = moment(side, device);
    let segment = side.out(ISS + 1 + n * MSS, IRS + 1, ACK, MSS as usize);
    sent(&moment, &segment, side.own());
    let id = side.id();
    side.flows.sent(id, moment.at, &segment);
}

/// Everything before segment `n` is acknowledged.
fn acks(side: &mut Side, n: u32, device: (u64, u64)) {
    let moment = moment(side, device);
    side.own().delivered(&moment, &Side::of_peer(2, IRS + 1, ISS + 1 + n * MSS, ACK, 0), 7);
}

/// Of ten segments, two are acknowledged, 8 ms later the next one, and 4 ms later another; 12 ms later the one behind that goes again.
fn after_partial_acknowledgments(device: (u64, u64)) -> Side {
    let mut side = Side::new();
    (0..10).for_each(|n| sends(&mut side, n, FREE));
    side.passes(20);
    acks(&mut side, 2, FREE);
    side.passes(8);
    acks(&mut side, 3, device);
    side.passes(4);
    acks(&mut side, 4, device);
    side.passes(12);
    sends(&mut side, 4, device);
    side
}

/// RFC 6582 s3.2 step 3: the first partial acknowledgment starts the timer anew when it arrives, whenever the device takes what it asks for (as in the seeds
/// 60190956, 60469703 and 60476368).
#[test]
fn a_refused_frame_is_watched_since_it_was_asked_for() {
    let mut side = after_partial_acknowledgments(REFUSING);
    side.passes(184);
    sends(&mut side, 4, REFUSING);
    // And no sooner: what was acknowledged before the device refused anything asked for nothing.
    after_partial_acknowledgments(REFUSING).breaks("1 of them within 196ms, 200ms at least", |side| {
        side.passes(180);
        sends(side, 4, REFUSING);
    });
    // With a device that takes everything, a frame is asked for when it goes; and so it is if nothing came while it was refused.
    for device in [FREE, (1034, 1040)] {
        after_partial_acknowledgments(device).breaks("1 of them within 184ms, 200ms at least", |side| {
            side.passes(184);
            sends(side, 4, device);
        });
    }
}

/// The same with a device whose queue is full, without any fault (as in the seed 68101944).
#[test]
fn what_a_full_queue_refuses_is_watched_since_it_was_asked_for() {
    let full_since = |millis: u64| {
        let mut side = Side::new();
        (0..10).for_each(|n| sends(&mut side, n, FREE));
        side.passes(20);
        acks(&mut side, 2, FREE);
        side.passes(8);
        acks(&mut side, 3, FREE);
        side.own().rto.refused(Some(Instant::ZERO + Duration::from_millis(millis)));
        side.passes(4);
        acks(&mut side, 4, FREE);
        side.passes(12);
        sends(&mut side, 4, FREE);
        side.own().rto.refused(None);
        side
    };
    let mut side = full_since(1028);
    side.passes(184);
    sends(&mut side, 4, FREE);
    full_since(1028).breaks("1 of them within 196ms, 200ms at least", |side| {
        side.passes(180);
        sends(side, 4, FREE);
    });
    // What was acknowledged before asked for nothing: it is the next one that did.
    full_since(1030).breaks("1 of them within 196ms, 200ms at least", |side| {
        side.passes(184);
        sends(side, 4, FREE);
    });
}

/// RFC 9293 s3.10.7.4: an acknowledgment in a segment outside the window is none, and the oldest in flight is what was before that (as in the seed 65035223).
#[test]
fn what_was_acknowledged_by_what_was_dropped_times_out_first() {
    let after_an_acknowledgment = |first: u32| {
        let mut side = Side::new();
        (0..2).for_each(|n| sends(&mut side, n, FREE));
        side.passes(30);
        acks(&mut side, 2, FREE);
        side.passes(150);
        sends(&mut side, 2, FREE);
        side.passes(50);
        // The timer that began with the first of all runs out, and all of it goes again.
        (first..3).for_each(|n| sends(&mut side, n, FREE));
        side
    };
    after_an_acknowledgment(0);
    let alone = std::panic::catch_unwind(|| after_an_acknowledgment(2));
    assert!(alone.is_err(), "what is sent again alone was the oldest, and is early");
}
