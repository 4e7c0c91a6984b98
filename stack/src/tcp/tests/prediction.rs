//! The short way of a segment in, and that of one out, do what the long ones do. Of what comes in, whole stories are the same. And the short way out does what the long way does: whatever happens to a connection, each time that it is asked what it has to send, two
//! copies of it are asked too, one of which goes the long way.

use std::cell::Cell;
use std::rc::Rc;

use proptest::prelude::*;

use super::moves::{config, difference, moved, play_on, play_with};
use super::pair::{Conn, Packet, Pair, Side, packet};
use crate::device::SendError;
use crate::tcp::test_util::TestTx;
use crate::tcp::{Config, Segment};
use crate::time::Instant;

/// What it sends, as a device takes it that has so much room, and what it is afterwards.
fn sent(side: Side, now: Instant, end: &mut Conn, is_long: bool, mut room: usize) -> (Vec<Packet>, bool, bool, Vec<u8>) {
    let mut out = Vec::new();
    let mut emit = |segment: &Segment<'_, TestTx>| {
        room = room.checked_sub(1).ok_or(SendError::Full)?;
        out.push(packet(side, now, segment));
        Ok(())
    };
    let any = if is_long { end.poll_at_length(now, &mut emit) } else { end.poll_transmit(now, &mut emit) };
    let bytes = end.snapshot().map_or_else(Vec::new, |snapshot| snapshot.to_bytes());
    (out, any, end.wants_transmit(), bytes)
}

/// How often the short way was gone.
fn compare(seed: u64, configs: &[Config; 2]) -> u32 {
    let (times, counted) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (bases, counts) = (configs.clone(), counted.clone());
    play_with(
        seed,
        configs,
        Some(Box::new(move |side, now, end| {
            let base = &bases[side as usize];
            // (A device that has no room is asked for once in a while.)
            times.set(times.get() + 1);
            let room = if times.get() % 7 == 0 { 0 } else { usize::MAX };
            let (mut short, mut long) = (moved(now, base, end)?, moved(now, base, end)?);
            counts.set(counts.get() + u32::from(short.is_predicted_out(now)));
            assert_eq!(sent(side, now, &mut short, false, room), sent(side, now, &mut long, true, room), "seed {seed}");
            None
        })),
    );
    counted.get()
}

/// A story with the short way in, and without it.
fn compare_in(seed: u64, configs: &[Config; 2]) {
    let [short, long] = [true, false].map(|has_short_way| {
        let mut pair = Pair::new(&configs[0], &configs[1]);
        pair.has_short_way = has_short_way;
        play_on(pair, seed, None)
    });
    assert_eq!(difference(&long, &short), None, "seed {seed}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn both_ways_in_do_the_same(seed in 1..u64::MAX, configs in [config(), config()]) {
        compare_in(seed, &configs);
    }

    #[test]
    fn both_ways_do_the_same(seed in 1..u64::MAX, configs in [config(), config()]) {
        compare(seed, &configs);
    }
}

#[test]
fn the_short_way_is_gone() {
    let nodelay = Config { nodelay: true, ..Config::default() };
    let often: u32 = (1..40).map(|seed| compare(seed * 0x9e37_79b9, &[nodelay.clone(), nodelay.clone()])).sum();
    assert!(often > 50, "{often}");
}

#[test]
fn the_short_way_in_is_gone() {
    let mut pair = Pair::plain();
    let before = pair.short;
    pair.write(Side::A, b"a few bytes").unwrap();
    pair.settle();
    assert!(pair.short > before);
}
