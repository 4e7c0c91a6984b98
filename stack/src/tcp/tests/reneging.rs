//! A receiver that takes back what it reported (RFC 2018 s8), and a sender that lives with it.

use super::pair::Side::{A, B};
use super::pair::{Packet, Pair, ms, pattern};
use crate::tcp::reassembly::Reassembly;
use crate::tcp::recv_queue::RecvQueue;
use crate::tcp::test_util::TestRx;
use crate::tcp::{Config, RxPayload, State};
use crate::wire::tcp::{Flags, SackBlock, SeqNumber};

const SEGMENT: usize = 1448;

/// A reassembly with `[100, 200)` and `[300, 400)`, the latter being newest.
fn with_two_blocks() -> (Reassembly<TestRx>, Vec<u8>) {
    let bytes = pattern(1000);
    let mut reassembly = Reassembly::new();
    for at in [100, 300] {
        reassembly.insert(SeqNumber(0) + at, RxPayload { head: &bytes[at..at + 100], frame: None, body: None }, None);
    }
    (reassembly, bytes)
}

fn reported(reassembly: &Reassembly<TestRx>) -> Vec<(u32, u32)> {
    reassembly.sack().as_slice().iter().map(|SackBlock { start, end }| (start.0, end.0)).collect()
}

#[test]
fn the_newest_segment_is_reported_though_it_was_dropped_and_nothing_else_is() {
    let (mut reassembly, bytes) = with_two_blocks();
    reassembly.prune();
    assert_eq!(reported(&reassembly), [(300, 400)]);
    assert!(reassembly.has_gap() && !reassembly.has_bytes() && !reassembly.is_empty());
    // The next one is the newest, and kept.
    reassembly.insert(SeqNumber(500), RxPayload { head: &bytes[500..600], frame: None, body: None }, None);
    assert_eq!(reported(&reassembly), [(500, 600)]);
    // What was dropped is not there when the gap before it is filled.
    let mut queue = RecvQueue::new();
    queue.push_bytes(&bytes[..300], None);
    assert_eq!(reassembly.drain(SeqNumber(300), &mut queue), SeqNumber(300));
    assert_eq!(reported(&reassembly), [(500, 600)]);
}

#[test]
fn a_duplicate_and_the_streams_end_outlast_a_pruning() {
    let (mut reassembly, bytes) = with_two_blocks();
    reassembly.fin = Some(SeqNumber(900));
    reassembly.insert(SeqNumber(100), RxPayload { head: &bytes[100..200], frame: None, body: None }, None);
    reassembly.prune();
    assert_eq!(reported(&reassembly), [(100, 200), (100, 200)], "RFC 2883 s4: the duplicate, then the block that it lies in");
    reassembly.duplicate_reported();
    let mut queue = RecvQueue::new();
    queue.push_bytes(&bytes[..900], None);
    assert_eq!(reassembly.drain(SeqNumber(900), &mut queue), SeqNumber(900));
    assert!(reported(&reassembly).is_empty());
    assert_eq!(reassembly.fin, Some(SeqNumber(900)));
}

/// RFC 2018 s8 lets only the newest segment be reported without being kept.
#[test]
fn what_was_dropped_is_not_reported_once_something_else_has_arrived() {
    for dropped_first in [true, false] {
        let (mut reassembly, _) = with_two_blocks();
        if dropped_first {
            reassembly.prune();
        }
        // An old duplicate, which is not kept.
        reassembly.note_duplicate(SeqNumber(50), SeqNumber(60));
        reassembly.prune();
        assert_eq!(reported(&reassembly), [(50, 60)], "dropped first: {dropped_first}");
    }
}

/// A has written ten segments, of which B got all but the first, and dropped them again.
fn pruned(pair: &mut Pair) -> Vec<u8> {
    let warm = pattern(200_000);
    assert_eq!(pair.transfer(A, &warm), warm);
    pair.run(ms(50));
    // The retransmission comes only after the pruning.
    let mut lost = 0;
    pair.lose(move |packet: &Packet| {
        let first = packet.from == A && !packet.payload.is_empty() && lost < 1;
        lost += usize::from(first);
        first
    });
    let data = pattern(10 * SEGMENT);
    pair.write(A, &data).unwrap();
    pair.run(ms(1));
    assert!(pair.side(B).holds_out_of_order());
    pair.side(B).prune_out_of_order();
    assert!(!pair.side(B).holds_out_of_order());
    data
}

#[test]
fn what_was_reported_and_dropped_is_sent_again() {
    for nodelay in [true, false] {
        let mut pair = Pair::open(&Config { nodelay, ..Config::default() }, &Config::default());
        let data = pruned(&mut pair);
        pair.run(ms(2_000));
        assert_eq!(pair.read(B), data);
        let again = pair.a.counters().retransmissions;
        assert!((10..=20).contains(&again), "each of the ten, and little more: {again}");
        #[cfg(feature = "marks")]
        {
            let mut marks = crate::marks::MarkCounts::default();
            marks.absorb(pair.a.take_marks());
            marks.absorb(pair.side(B).take_marks());
            assert_eq!(
                marks
                    .missed()
                    .filter(|mark| matches!(mark, crate::marks::Mark::SackReneged | crate::marks::Mark::ReassemblyPruned))
                    .count(),
                0
            );
        }
    }
}

#[test]
fn a_stream_whose_end_came_before_a_pruning_ends_where_it_ended() {
    let mut pair = Pair::plain();
    let data = pruned(&mut pair);
    pair.a.shutdown_write(pair.now);
    pair.transmit();
    // The FIN comes out of order, with the rest still missing; and all is dropped once more.
    pair.run(ms(1));
    pair.side(B).prune_out_of_order();
    pair.run(ms(5_000));
    assert_eq!(pair.read(B), data);
    assert_eq!((pair.state(A), pair.state(B)), (State::FinWait2, State::CloseWait));
    let ends = pair.sent(A).iter().filter(|packet| packet.is(Flags::FIN)).count();
    assert!(ends >= 1);
}

/// However often it happens, bytes come in order and all of them, and the sender never waits for what it thinks the receiver has.
#[test]
fn a_receiver_that_never_keeps_anything_gets_everything() {
    for sack in [true, false] {
        let config = Config { sack, ..Config::default() };
        let mut pair = Pair::open(&config, &config);
        let mut count = 0;
        pair.lose(move |packet: &Packet| {
            count += usize::from(packet.from == A && !packet.payload.is_empty());
            packet.from == A && !packet.payload.is_empty() && count % 7 == 3
        });
        let data = pattern(200_000);
        let (mut written, mut got) = (0, Vec::new());
        let end = pair.now + ms(600_000);
        let done = pair.run_until(end, |pair| {
            if let Ok(n) = pair.write(A, &data[written..]) {
                written += n;
            }
            pair.side(B).prune_out_of_order();
            got.extend(pair.read(B));
            got.len() == data.len()
        });
        assert!(done, "{} of {} bytes, SACK {sack}", got.len(), data.len());
        assert_eq!(got, data);
    }
}
