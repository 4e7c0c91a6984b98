//! What a device takes over: cutting segments, and merging them.

use super::pair::Side::{A, B};
use super::pair::{Packet, Pair, ms, pattern};
use crate::tcp::Config;
use crate::wire::tcp::Flags;

/// A pair of which A's device cuts segments with up to `tso_max` bytes.
fn cutting(tso_max: usize) -> Pair {
    let config = Config { tso_max, gather_max: 16, ..Config::default() };
    let mut pair = Pair::open(&config, &Config::default());
    pair.buffer = 8192;
    pair
}

/// What A had sent, as the wire saw it, but for PSH: the last segment of each that a device cuts has it.
fn wire(pair: &mut Pair) -> Vec<(u64, u32, usize, u8, u32)> {
    let line = |p: &Packet| (p.sent.as_nanos(), p.header.seq.0, p.payload.len(), (p.header.flags - Flags::PSH).bits(), p.header.ack.0);
    pair.sent(A).iter().map(line).collect()
}

#[test]
fn the_wire_cannot_tell_who_cut() {
    let story = |tso_max: usize, lost: &'static [usize]| {
        let mut pair = cutting(tso_max);
        // (A peer whose acknowledgments don't hang on what is pushed.)
        let now = pair.now;
        pair.side(B).configure(now, |config| config.quickack = true);
        let mut count = 0;
        pair.lose(move |packet| {
            count += usize::from(packet.from == A && !packet.payload.is_empty());
            packet.from == A && lost.contains(&count)
        });
        let data = pattern(700_003);
        assert_eq!(pair.transfer(A, &data), data);
        pair.shutdown(A);
        pair.run(ms(100));
        (wire(&mut pair), pair.cuts)
    };
    for lost in [&[][..], &[30, 31, 32, 90], &[200]] {
        let (by_stack, none) = story(0, lost);
        let (by_device, cuts) = story(65_000, lost);
        assert!(none == 0 && cuts > 20, "{cuts}");
        assert_eq!(by_device, by_stack, "lost {lost:?}");
    }
}

#[test]
fn a_long_segment_is_full_ones_within_both_windows() {
    let mut pair = cutting(65_000);
    pair.write(A, &pattern(60_000)).unwrap();
    let window = pair.a.cwnd();
    pair.transmit();
    let sent = pair.sent(A);
    let flight: usize = sent.iter().map(|p| p.payload.len()).sum();
    assert_eq!(pair.cuts, 1);
    assert_eq!(flight, window / 1448 * 1448);
    assert!(sent.iter().all(|p| p.payload.len() == 1448));
    assert_eq!(
        sent.iter().position(|p| p.is(Flags::PSH)),
        Some(sent.len() - 1),
        "as Linux: the peer's card does not wait for more to put together"
    );
}

/// What the writes of a record's end and of more after it come to: the lengths of A's segments, and which of them say PSH.
fn records(tso_max: usize) -> Vec<(usize, bool)> {
    let mut pair = cutting(tso_max);
    pair.write(A, &pattern(1448 * 12)).unwrap();
    pair.write_record(A, &pattern(400));
    pair.write_record(A, &pattern(400));
    pair.write(A, &pattern(500)).unwrap();
    pair.settle();
    let sent = pair.sent(A);
    sent.iter().filter(|p| p.payload.len() != 1448).map(|p| (p.payload.len(), p.is(Flags::PSH))).collect()
}

#[test]
fn no_segment_goes_beyond_a_records_end() {
    let ends = [(400, true), (400, true), (500, true)];
    assert_eq!(records(0), ends);
    assert_eq!(records(65_000), ends);
}

#[test]
fn a_records_end_is_sent_again_as_it_was() {
    let mut pair = cutting(0);
    let mut lost = 0;
    pair.lose(move |packet| {
        let is_lost = packet.from == A && packet.payload.len() == 400 && lost < 2;
        lost += u32::from(is_lost);
        is_lost
    });
    pair.write_record(A, &pattern(400));
    pair.write_record(A, &pattern(400));
    pair.write(A, &pattern(500)).unwrap();
    pair.run(ms(3000));
    let lengths: Vec<usize> = pair.sent(A).iter().map(|p| p.payload.len()).filter(|len| *len > 0).collect();
    assert!(lengths.iter().all(|len| [400, 500].contains(len)) && lengths.len() >= 5, "{lengths:?}");
    assert_eq!(pair.read(B).len(), 1300);
}

#[test]
fn what_the_program_says_will_be_followed_is_not_pushed() {
    let mut pair = cutting(0);
    pair.write_more(A, &pattern(1448), true).unwrap();
    pair.settle();
    let sent = pair.sent(A);
    assert!(sent.iter().any(|p| p.payload.len() == 1448) && !sent.iter().any(|p| p.is(Flags::PSH)));
    // (But what a cork has held for its longest, and nothing has followed, is.)
    pair.write_more(A, &pattern(10), true).unwrap();
    pair.run(ms(300));
    assert!(pair.sent(A).iter().any(|p| p.payload.len() == 10 && p.is(Flags::PSH)));
}

#[test]
fn the_rest_goes_by_nagles_rule_and_carries_push_and_end() {
    let mut pair = cutting(65_000);
    pair.write(A, &pattern(1448 * 3 + 100)).unwrap();
    pair.shutdown(A);
    pair.settle();
    let sent = pair.sent(A);
    assert_eq!(sent.iter().map(|p| p.payload.len()).take(4).collect::<Vec<_>>(), [1448, 1448, 1448, 100]);
    assert_eq!(sent.iter().position(|p| p.is(Flags::FIN)), Some(3));
    assert_eq!(
        sent.iter().map(|p| p.is(Flags::PSH)).take(4).collect::<Vec<_>>(),
        [false, false, true, true],
        "as Linux, what was cut does too"
    );
}

#[test]
fn little_buffers_make_whole_segments_none_the_less() {
    let config = Config { tso_max: 65_000, gather_max: 3, ..Config::default() };
    let mut pair = Pair::open(&config, &Config::default());
    pair.buffer = 1000;
    pair.write(A, &pattern(9000)).unwrap();
    pair.transmit();
    // Three buffers hold two segments and a bit: the bit waits for the next.
    assert!(pair.cuts > 0);
    assert!(pair.sent(A)[..6].iter().all(|p| p.payload.len() == 1448), "{:?}", wire(&mut pair));
}

#[test]
fn merged_segments_count_as_many() {
    // Past the quick acknowledgments of the start.
    let mut pair = Pair::plain();
    for _ in 0..20 {
        pair.write(A, &pattern(1448)).unwrap();
        pair.run(ms(100));
        pair.read(B);
    }
    pair.lose(|packet| packet.from == A);
    for round in 0..3 {
        pair.sent(A);
        pair.sent(B);
        pair.write(A, &pattern(1448 * 4)).unwrap();
        pair.transmit();
        let sent = pair.sent(A);
        assert_eq!(sent.len(), 4, "round {round}");
        pair.deliver_merged(B, &sent);
        assert_eq!(pair.sent(B).len(), 1, "round {round}: four segments are acknowledged at once, as one");
        pair.settle();
        pair.read(B);
        pair.sent(B);
    }
    // And a single one waits, as ever.
    pair.sent(A);
    pair.write(A, &pattern(1448)).unwrap();
    pair.transmit();
    let sent = pair.sent(A);
    pair.deliver_merged(B, &sent);
    assert_eq!(pair.sent(B).len(), 0);
}
