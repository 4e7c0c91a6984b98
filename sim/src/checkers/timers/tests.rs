//! By when what must be done, of connections made by hand.

use super::super::rto;
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

/// An orphan that was handed over is asked for what is in flight until it may have timed out eight times: what was sent again by then, at most.
#[test]
fn an_orphan_that_was_handed_over_tries_again_until_it_may_be_given_up() {
    let asked = |handed_over: bool, times: u32| {
        let mut side = Side::new();
        side.fills_window();
        (side.own().shadow.closed, side.own().shadow.blurred) = (true, handed_over);
        for _ in 0..times {
            side.passes(130_000);
            let (moment, first) = (side.moment(), side.out(ISS + 1, IRS + 1, ACK, 1000));
            rto::sent(&moment, &first, side.own());
            // What else goes out at that time is of the same timeout.
            rto::sent(&moment, &side.out(ISS + 1001, IRS + 1, ACK, 1000), side.own());
        }
        let at = side.moment().at;
        due(side.own(), at).is_some()
    };
    assert_eq!([asked(true, 0), asked(true, 7), asked(true, 8), asked(false, 8)], [true, true, false, true]);
}
