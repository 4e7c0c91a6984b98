//! By when what must be done, of connections made by hand.

use super::super::shadow::tests::{IRS, ISS, Side};
use super::*;

#[test]
fn a_silent_peer_is_probed_unless_its_stream_may_be_over() {
    let mut side = Side::new();
    let (at, hour) = (side.moment().at, Duration::from_secs(3600));
    side.own().timers.set_keepalive(at, Some(Keepalive { idle: hour, interval: hour, count: 1 }));
    let law = |side: &mut Side| due(side.own(), at).map(|(due, law)| (due.since(at), &law[..17]));
    assert_eq!(law(&mut side), Some((hour + KEEPALIVE_SLACK, "RFC 9293 s3.8.4: ")));
    // Who speaks without a stack has yet to acknowledge everything in a segment that nobody may drop.
    side.own().lawless = true;
    assert_eq!(law(&mut side), None);
    side.comes(&Side::of_peer(2, IRS + 1, ISS + 1, ACK, 0));
    side.service();
    assert_eq!(law(&mut side), Some((hour + KEEPALIVE_SLACK, "RFC 9293 s3.8.4: ")));
    // Somebody has put bytes where its FIN came.
    side.own().shadow.blurred = true;
    assert_eq!(law(&mut side), None);
}
