//! What is told of windows, against frames made by hand.

use ringway_stack::device::Protocol;
use ringway_stack::ring::Counters;

use super::super::segment::ACK;
use super::super::shadow::tests::{IRS, ISS, MSS, Side};
use super::*;

/// A connection whose end is never probed (RFC 8985 s7.2).
fn without_probes() -> Side {
    let mut side = Side::new();
    side.own().agrees_on_sack = false;
    side
}

/// So many full segments are sent, from the one with this number on.
fn sends(side: &mut Side, segments: core::ops::Range<u32>) {
    for n in segments {
        let (moment, segment) = (side.moment(), side.out(ISS + 1 + n * MSS, IRS + 1, ACK, MSS as usize));
        sent(&moment, &segment, side.own());
        let id = side.id();
        side.flows.sent(id, moment.at, &segment);
    }
}

/// Ten segments of ten that are told have gone, so many duplicates of the acknowledgment before have come, and then that of all of them.
fn after(duplicates: u32) -> Side {
    let mut side = without_probes();
    let at = side.moment().at;
    side.own().info.sampled(at, 10 * MSS as usize);
    side.passes(1);
    sends(&mut side, 0..10);
    side.passes(10);
    (0..duplicates).for_each(|_| side.comes(&Side::of_peer(2, IRS + 1, ISS + 1, ACK, 0)));
    side.comes(&Side::of_peer(2, IRS + 1, ISS + 1 + 10 * MSS, ACK, 0));
    side
}

/// RFC 5681 s3.2 step 4: each duplicate lets another segment go, before the acknowledgment that came with it is looked at.
#[test]
fn what_duplicates_let_go_is_no_more_than_is_told() {
    // (What was acknowledged, with the SYN, may have made the window larger, before it fell.)
    after(0).breaks("tcpi_snd_cwnd: 30408 bytes in flight, and 28961 are told", |side| sends(side, 10..31));
    sends(&mut after(3), 10..40);
    let mut side = after(3);
    let (at, id) = (side.moment().at, side.id());
    sends(&mut side, 10..12);
    side.own().info.left = false;
    side.own().info.acknowledged = 0;
    assert!(side.own().info.sampled(at, 2 * MSS as usize), "it fell");
    assert!(!side.own().info.sampled(at, 2 * MSS as usize), "it stays");
    side.passes(10);
    side.comes(&Side::of_peer(3, IRS + 1, ISS + 1 + 12 * MSS, ACK, 0));
    assert_eq!(side.flows.at(id).info.recover, None);
    side.breaks("and 17376 are told", |side| sends(side, 12..30));
}

/// Ten segments of ten that are told have gone, and a segment has acknowledged the first two; then the acknowledgment `ack` comes. `repeats`: what that segment
/// brought had come before, so that it was dropped for its number.
fn after_an_acknowledgment(repeats: bool, ack: u32) -> Side {
    let mut side = without_probes();
    side.comes(&Side::of_peer(2, IRS + 1, ISS + 1, ACK, 100));
    let at = side.moment().at;
    side.own().info.sampled(at, 10 * MSS as usize);
    side.passes(1);
    sends(&mut side, 0..10);
    side.passes(10);
    side.comes(&Side::of_peer(2, if repeats { IRS + 1 } else { IRS + 101 }, ISS + 1 + 2 * MSS, ACK, 100));
    side.own().info.acknowledged = 0;
    side.comes(&Side::of_peer(2, IRS + if repeats { 101 } else { 201 }, ISS + 1 + ack, ACK, 0));
    side
}

/// RFC 9293 s3.10.7.4: what a segment acknowledged that was dropped for its number is not acknowledged, so that the acknowledgment before it is no old one but a
/// duplicate, and lets another segment go (RFC 3042; as in the seed 60091935).
#[test]
fn what_was_dropped_acknowledges_nothing() {
    let sends_more = |side: &mut Side| sends(side, 10..13);
    sends_more(&mut after_an_acknowledgment(true, 0));
    after_an_acknowledgment(false, 0).breaks("bytes in flight, and 14480 are told", sends_more);
    after_an_acknowledgment(true, MSS).breaks("bytes in flight, and 14480 are told", sends_more);
    // What acknowledges as much for certain leaves nothing to be a duplicate of.
    let mut side = after_an_acknowledgment(true, 2 * MSS);
    side.own().info.left = false;
    side.own().info.recover = None;
    side.comes(&Side::of_peer(2, IRS + 101, ISS + 1, ACK, 0));
    side.breaks("bytes in flight, and 14480 are told", sends_more);
}

/// RFC 5681 s3.1: after a timeout the window is one segment, as long as segments were when the timer ran out: a path that is found narrower before the device takes
/// what is sent again leaves it so (as in the seed 90036269).
#[test]
fn a_timeout_leaves_a_segment_of_then() {
    let tells = |windows: &[(u16, usize)], side: &mut Side| {
        let moment = side.moment();
        let (local, remote) = side.own().tuple;
        for (n, &(mss, cwnd)) in windows.iter().enumerate() {
            if n + 1 == windows.len() {
                side.own().info.timed_out();
            }
            let info = FlowInfo {
                protocol: Protocol::Tcp,
                local,
                remote: Some(remote),
                state: Some(TcpState::Established),
                recv_queue: 0,
                next_len: 0,
                send_queue: 0,
                srtt: Duration::ZERO,
                mss,
                cwnd,
                counters: Counters::default(),
            };
            told(&moment, side.own(), info);
        }
    };
    tells(&[(1448, 14_480), (1448, 1448), (660, 1448)], &mut Side::new());
    tells(&[(1448, 14_480), (1448, 1448), (660, 1448), (660, 1448)], &mut Side::new());
    tells(&[(1448, 14_480), (660, 1448)], &mut Side::new());
    tells(&[(660, 1448), (1448, 1448)], &mut Side::new());
    let breaks = |windows: &[(u16, usize)], law: &str| Side::new().breaks(law, |side| tells(windows, side));
    breaks(&[(1448, 14_480), (660, 14_480)], "14480 after a retransmission timeout (RFC 5681 s3.1), with segments of 1448");
    breaks(&[(660, 6600), (660, 1448)], "1448 after a retransmission timeout (RFC 5681 s3.1), with segments of 660");
    breaks(&[(1448, 14_480), (660, 6600), (660, 1448)], "1448 after a retransmission timeout (RFC 5681 s3.1), with segments of 660");
}
