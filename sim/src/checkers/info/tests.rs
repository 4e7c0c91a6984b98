//! What is told of windows, against frames made by hand.

use super::super::segment::ACK;
use super::super::shadow::tests::{IRS, ISS, MSS, Side};
use super::*;

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
    let mut side = Side::new();
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
    side.own().info.sampled(at, 2 * MSS as usize);
    side.passes(10);
    side.comes(&Side::of_peer(3, IRS + 1, ISS + 1 + 12 * MSS, ACK, 0));
    assert_eq!(side.flows.at(id).info.recover, None);
    side.breaks("and 17376 are told", |side| sends(side, 12..30));
}
