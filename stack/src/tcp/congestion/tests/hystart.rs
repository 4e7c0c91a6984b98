//! RFC 9406.

use core::time::Duration;

use super::{MSS, ms};
use crate::tcp::congestion::{Ack, HyStart};

/// A sender in slow start: rounds of acknowledgments, one a segment.
struct Rounds {
    hystart: HyStart,
    una: u64,
    cwnd: u64,
}

impl Rounds {
    fn new(paced: bool) -> Self {
        Self { hystart: HyStart::new(paced), una: 0, cwnd: 10 * MSS }
    }

    /// A round in which each round trip is `rtt`; how much the window grew, and whether slow start is over.
    fn round(&mut self, rtt: Duration) -> (u64, bool) {
        let (before, end) = (self.cwnd, self.una + self.cwnd);
        let mut over = false;
        while self.una < end && !over {
            self.una += MSS;
            let ack = Ack { acked: MSS, una: self.una, nxt: self.una + self.cwnd, rtt: Some(rtt), ..Ack::default() };
            let growth = self.hystart.on_ack(&ack, MSS, MSS);
            self.cwnd += growth.bytes;
            over = growth.over;
        }
        (self.cwnd - before, over)
    }
}

/// s4.2: each byte that is acknowledged adds one, as in RFC 5681.
#[test]
fn the_window_doubles_while_round_trips_stay() {
    let mut rounds = Rounds::new(false);
    for _ in 0..6 {
        let before = rounds.cwnd;
        assert_eq!(rounds.round(ms(50)), (before, false));
    }
    assert!(!rounds.hystart.is_conservative());
}

/// s4.2 and s4.3: an eighth of the round trip more, but no less than 4 ms and no more than 16.
#[test]
fn a_longer_round_trip_makes_it_conservative() {
    for (base, late, enough) in [(8, 11, 12), (80, 89, 90), (400, 415, 416)] {
        for (rtt, is_conservative) in [(late, false), (enough, true)] {
            let mut rounds = Rounds::new(false);
            rounds.round(ms(base));
            rounds.round(ms(base));
            rounds.round(ms(rtt));
            assert_eq!(rounds.hystart.is_conservative(), is_conservative, "{base} ms, then {rtt} ms");
        }
    }
}

/// s4.2: in conservative slow start a quarter as fast, for at most five rounds, of which the one it began in is the first.
#[test]
fn conservative_slow_start_ends_after_five_rounds() {
    let mut rounds = Rounds::new(false);
    rounds.round(ms(50));
    rounds.round(ms(50));
    rounds.round(ms(60));
    assert!(rounds.hystart.is_conservative());
    let mut grown = Vec::new();
    loop {
        let before = rounds.cwnd;
        let (growth, over) = rounds.round(ms(60));
        grown.push(growth * 100 / before);
        if over {
            break;
        }
    }
    assert_eq!(grown, [25, 25, 25, 25, 0], "four rounds beside the one it began in, and the acknowledgment that ends the last");
}

/// s4.2: a round trip that is shorter than as it began says that it was no queue.
#[test]
fn jitter_lets_slow_start_go_on() {
    let mut rounds = Rounds::new(false);
    rounds.round(ms(50));
    rounds.round(ms(50));
    rounds.round(ms(60));
    assert!(rounds.hystart.is_conservative());
    rounds.round(ms(51));
    assert!(!rounds.hystart.is_conservative());
    let before = rounds.cwnd;
    assert_eq!(rounds.round(ms(51)).0, before);
}

/// s4.3: N_RTT_SAMPLE is eight: fewer say nothing.
#[test]
fn few_samples_say_nothing() {
    let mut rounds = Rounds { cwnd: 7 * MSS, ..Rounds::new(false) };
    for rtt in [50, 100, 200] {
        rounds.cwnd = 7 * MSS;
        rounds.round(ms(rtt));
    }
    assert!(!rounds.hystart.is_conservative());
}

/// s4.3: one acknowledgment adds no more than eight segments where nothing is paced.
#[test]
fn a_stretched_acknowledgment_adds_eight_segments() {
    let ack = Ack { acked: 100 * MSS, una: 100 * MSS, nxt: 200 * MSS, ..Ack::default() };
    assert_eq!(HyStart::new(false).on_ack(&ack, 100 * MSS, MSS).bytes, 8 * MSS);
    assert_eq!(HyStart::new(true).on_ack(&ack, 100 * MSS, MSS).bytes, 100 * MSS);
}
