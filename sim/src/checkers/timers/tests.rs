//! By when what must be done, of connections made by hand.

use super::super::rto;
use super::super::shadow::tests::{IRS, ISS, MSS, Side};
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

/// The first of ten segments times out so many times in a row, from the `done`-th time on, each time after twice as long; `first` is its number.
fn times_out(side: &mut Side, first: u32, done: u32, times: u32) {
    for n in done..done + times {
        side.passes(200 << n);
        resends(side, first);
        // What else goes out at that time is of the same timeout.
        resends(side, first + 1);
    }
}

/// A segment goes out again.
fn resends(side: &mut Side, n: u32) {
    let (moment, segment) = (side.moment(), side.out(ISS + 1 + n * MSS, IRS + 1, ACK, MSS as usize));
    rto::sent(&moment, &segment, side.own());
    side.sends(segment);
    side.service();
}

/// A connection with ten segments on their way, whose program has closed it; `handed_over`: to another ring.
fn orphan(handed_over: bool) -> Side {
    let mut side = Side::new();
    side.fills_window();
    (side.own().shadow.closed, side.own().shadow.blurred) = (true, handed_over);
    side
}

/// Whether something is due.
fn is_asked(side: &mut Side) -> bool {
    let at = side.moment().at;
    due(side.own(), at).is_some()
}

/// RFC 9293 s3.8.3, Linux's tcp_orphan_retries: what is in flight of an orphan is sent again eight times, and no more (as in the seed 90144656).
#[test]
fn an_orphan_tries_again_until_it_may_be_given_up() {
    for handed_over in [false, true] {
        let asked = [0, 7, 8].map(|times| {
            let mut side = orphan(handed_over);
            times_out(&mut side, 0, 0, times);
            is_asked(&mut side)
        });
        assert_eq!(asked, [true, true, false], "handed over: {handed_over}");
    }
}

/// What was sent again for another reason looks as a timeout does, and takes no such time: after it, seven timeouts are not eight.
#[test]
fn an_orphan_is_not_given_up_sooner_for_what_no_timeout_sent_again() {
    let mut side = orphan(false);
    side.passes(20);
    for _ in 0..3 {
        side.comes(&Side::of_peer(2, IRS + 1, ISS + 1, ACK, 0));
        side.service();
    }
    resends(&mut side, 0);
    times_out(&mut side, 0, 0, 7);
    assert!(is_asked(&mut side), "after seven timeouts");
    times_out(&mut side, 0, 7, 1);
    assert!(!is_asked(&mut side), "after eight");
}

/// What is acknowledged has an orphan try as often anew, unless that may have been lost between two rings.
#[test]
fn an_orphan_that_was_answered_tries_again_as_often() {
    let asked = |handed_over: bool, (first, done, times): (u32, u32, u32)| {
        let mut side = orphan(handed_over);
        times_out(&mut side, 0, 0, 2);
        side.comes(&Side::of_peer(2, IRS + 1, ISS + 1 + MSS, ACK, 0));
        side.service();
        times_out(&mut side, first, done, times);
        is_asked(&mut side)
    };
    assert_eq!([7, 8].map(|times| asked(false, (1, 0, times))), [true, false]);
    assert_eq!([7, 8].map(|times| asked(true, (1, 0, times))), [true, false]);
    // It was lost.
    assert_eq!([5, 6].map(|times| asked(true, (0, 2, times))), [true, false]);
}
