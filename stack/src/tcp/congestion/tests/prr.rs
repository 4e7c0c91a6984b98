//! RFC 9937.

use proptest::prelude::*;

use super::MSS;
use crate::tcp::congestion::{Progress, Prr};

/// Twenty segments in flight, of which the first is lost; three are reported by the acknowledgment that says so. The threshold is ten.
fn twenty() -> Prr {
    Prr::new(10 * MSS, 20 * MSS, 20 * MSS, 3 * MSS, 3 * MSS, MSS)
}

/// s6.2: with more in flight than wanted, half of what arrives is sent where the window is to be halved; at the end it is at the threshold.
#[test]
fn a_single_loss_is_spread_over_a_round_trip() {
    let mut prr = twenty();
    // The first is lost and three have arrived: 16 in the network.
    let mut in_flight = 16 * MSS;
    let mut sent = Vec::new();
    prr.on_ack(&Progress { delivered: 3 * MSS, in_flight, advanced: false, lost: true });
    for _ in 0..17 {
        let mut segments = 0;
        while in_flight + MSS <= prr.cwnd() {
            prr.on_sent(MSS);
            in_flight += MSS;
            segments += 1;
        }
        sent.push(segments);
        in_flight -= MSS;
        prr.on_ack(&Progress { delivered: MSS, in_flight, advanced: false, lost: false });
    }
    // RecoverFS is 20: one for two that arrive, until ten are left; then one for one.
    assert_eq!(sent, [1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1, 1]);
    assert_eq!(in_flight, 9 * MSS, "one before the last segment that may go");
    assert_eq!(prr.cwnd(), 10 * MSS);
}

/// s6.2: the fast retransmission goes at once, whatever the proportion says.
#[test]
fn the_first_retransmission_is_not_held_back() {
    let mut prr = Prr::new(MSS, 100 * MSS, 100 * MSS, 0, 0, MSS);
    prr.on_ack(&Progress { delivered: 1, in_flight: 99 * MSS, advanced: false, lost: true });
    assert!(prr.cwnd() > 99 * MSS, "{}", prr.cwnd());
    let mut nothing = Prr::new(0, 100 * MSS, 100 * MSS, 0, 0, MSS);
    nothing.on_ack(&Progress { delivered: 500, in_flight: 99 * MSS, advanced: false, lost: true });
    assert_eq!(nothing.cwnd(), 100 * MSS, "a segment");
    nothing.on_sent(MSS);
    nothing.on_ack(&Progress { delivered: 500, in_flight: 99 * MSS, advanced: false, lost: true });
    assert_eq!(nothing.cwnd(), 99 * MSS, "but only the first");
}

/// s6.2: where losses took more than was to go, conservatively no more is sent than arrives; where SND.UNA advances and nothing more is lost, a
/// segment more each time; and never beyond the threshold.
#[test]
fn below_the_threshold_it_catches_up_only_with_progress() {
    let mut prr = twenty();
    prr.on_sent(3 * MSS);
    let bound = |prr: &mut Prr, advanced, lost| {
        prr.on_ack(&Progress { delivered: MSS, in_flight: 4 * MSS, advanced, lost });
        prr.cwnd() - 4 * MSS
    };
    assert_eq!(bound(&mut prr, false, false), MSS, "conservative");
    assert_eq!(bound(&mut prr, true, true), MSS, "a further loss");
    assert_eq!(bound(&mut prr, true, false), 2 * MSS, "safe");
    prr.on_ack(&Progress { delivered: 9 * MSS, in_flight: 9 * MSS, advanced: true, lost: false });
    assert_eq!(prr.cwnd(), 10 * MSS, "the threshold");
}

/// s6.2: an acknowledgment that reports nothing lets nothing go.
#[test]
fn nothing_goes_for_nothing() {
    let mut prr = twenty();
    prr.on_ack(&Progress { delivered: MSS, in_flight: 16 * MSS, advanced: false, lost: false });
    let before = prr.clone();
    prr.on_ack(&Progress { delivered: 0, in_flight: 2 * MSS, advanced: true, lost: false });
    assert_eq!(prr, before);
}

proptest! {
    /// s6.2: from below, the flight is not led beyond the threshold, whatever is reported.
    #[test]
    fn it_never_passes_the_threshold_from_below(ssthresh in 1..1_000_000u64, flight in 1..1_000_000u64,
        steps in proptest::collection::vec((1..50_000u64, 0..1_000_000u64, any::<bool>(), any::<bool>()), 1..50))
    {
        let mut prr = Prr::new(ssthresh, flight, flight, 0, 0, MSS);
        let mut out = 0;
        for (delivered, in_flight, advanced, lost) in steps {
            prr.on_ack(&Progress { delivered, in_flight, advanced, lost });
            let room = prr.cwnd() - in_flight;
            if in_flight <= ssthresh && out > 0 {
                prop_assert!(prr.cwnd() <= ssthresh);
            }
            out += room;
            prr.on_sent(room);
        }
    }
}
