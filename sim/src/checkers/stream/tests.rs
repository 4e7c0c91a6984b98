//! What a program reads, against what its peer wrote.

use super::super::shadow::tests::Side;
use super::*;

/// A reader whose connection may be another one than is thought is compared with nothing (as in the seed 90154678); every other one is.
#[test]
fn a_mistaken_reader_is_compared_with_nothing() {
    let both = |side: &mut Side, act: &dyn Fn(&Moment, &mut Endpoint, &mut Endpoint)| {
        let (moment, id) = (side.moment(), side.id());
        side.peer().stream.watch();
        side.peer().stream.write(&[IoSlice::new(b"four")], 4);
        let (own, peer) = side.flows.both(id);
        act(&moment, own, peer.unwrap());
    };
    let reads = |side: &mut Side| both(side, &|moment, own, peer| read(moment, own, Some(peer), [&b"and more"[..]].into_iter(), 8, false));
    let ends = |side: &mut Side| both(side, &|moment, own, peer| ended(moment, own, peer));
    Side::new().breaks("8 bytes at offset 0, but only 4 were written", reads);
    Side::new().breaks("that its writer did not end", ends);
    let mut side = Side::new();
    side.own().stream.mistake();
    reads(&mut side);
    assert_eq!(side.own().stream.taken(), 8);
    ends(&mut side);
}
