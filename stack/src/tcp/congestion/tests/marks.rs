//! RFC 8257, and RFC 3168 where it concerns windows.

use super::{MSS, acked, loss, mark, reduce, timeout};
use crate::tcp::congestion::{Ack, Algorithm, Beginning, CongestionControl as _, Dctcp, Phase, Recovered, Reduction};

/// One, as [`Dctcp::alpha`] has it.
const ONE: u64 = 1 << 20;

/// `windows` windows of observation, in each of which `marked` of a hundred segments are.
fn observe(dctcp: &mut Dctcp, windows: u64, marked: u64) {
    for window in 1..=windows {
        let una = window * 100 * MSS;
        let ack = Ack { acked: 100 * MSS, una, nxt: una + 99 * MSS, ce_bytes: marked * MSS, flight_most: 0, ..Ack::default() };
        dctcp.on_ack(&ack);
    }
}

/// s3.3: Alpha begins with 1; each window weighs a sixteenth.
#[test]
fn the_estimate_follows_the_share_of_marks() {
    let mut dctcp = Dctcp::new(MSS, Reduction::AtOnce);
    assert_eq!(dctcp.alpha(), ONE);
    observe(&mut dctcp, 1, 0);
    assert_eq!(dctcp.alpha(), ONE - ONE / 16);
    let mut dctcp = Dctcp::new(MSS, Reduction::AtOnce);
    observe(&mut dctcp, 200, 25);
    let share = dctcp.alpha() * 100 / ONE;
    assert!((24..=25).contains(&share), "{share}%");
    let mut dctcp = Dctcp::new(MSS, Reduction::AtOnce);
    observe(&mut dctcp, 400, 0);
    assert_eq!(dctcp.alpha(), 0, "without marks nothing is left");
}

/// s3.3: what ends the window is an acknowledgment beyond what was to be sent next as it began.
#[test]
fn a_window_of_observation_is_a_round_trip() {
    let mut dctcp = Dctcp::new(MSS, Reduction::AtOnce);
    dctcp.on_ack(&Ack { una: 1000, nxt: 50_000, ..acked(1000) });
    let after = dctcp.alpha();
    dctcp.on_ack(&Ack { una: 50_000, nxt: 99_000, ..acked(49_000) });
    assert_eq!(dctcp.alpha(), after);
    dctcp.on_ack(&Ack { una: 51_000, nxt: 99_000, ..acked(1000) });
    assert!(dctcp.alpha() < after);
}

/// s3.3, step 9: cwnd = cwnd (1 - Alpha / 2).
#[test]
fn the_window_shrinks_by_half_the_share() {
    for (marked, left) in [(100, 50), (50, 75), (10, 95)] {
        let mut dctcp = Dctcp::new(MSS, Reduction::AtOnce);
        observe(&mut dctcp, 300, marked);
        let before = dctcp.cwnd();
        dctcp.on_congestion(&mark(before));
        let percent = (dctcp.cwnd() * 100).div_ceil(before);
        assert!(percent.abs_diff(left) <= 1, "{marked} of a hundred: {percent}%");
        assert_eq!(dctcp.ssthresh(), Some(dctcp.cwnd()), "RFC 5681: it goes on in congestion avoidance");
    }
}

/// s3.5: to a loss, and to a timeout, it reacts as all do.
#[test]
fn losses_are_losses() {
    let mut dctcp = Dctcp::new(MSS, Reduction::AtOnce);
    observe(&mut dctcp, 400, 0);
    dctcp.on_congestion(&loss(10 * MSS));
    assert_eq!(dctcp.cwnd(), 5 * MSS);
    dctcp.on_timeout(&timeout(10 * MSS));
    assert_eq!((dctcp.cwnd(), dctcp.ssthresh()), (MSS, Some(5 * MSS)));
}

/// RFC 3168 s6.1.2, RFC 9438 s4.6: marks go on to reduce the window until it is a single segment; the threshold stays at two.
#[test]
fn marks_reduce_the_window_to_one_segment() {
    for algorithm in [Algorithm::Reno, Algorithm::Cubic, Algorithm::Dctcp] {
        let mut control = algorithm.begin(&Beginning { mss: MSS, reduction: Reduction::AtOnce, ..Beginning::default() });
        for _ in 0..30 {
            let flight = control.cwnd();
            control.on_congestion(&mark(flight));
            control.on_recovered(&Recovered { flight, phase: Phase::Reduced, ..Recovered::default() });
        }
        assert_eq!((control.cwnd(), control.ssthresh()), (MSS, Some(2 * MSS)), "{algorithm:?}");
        reduce(&mut control, &loss(MSS));
        assert_eq!(control.ssthresh(), Some(2 * MSS), "{algorithm:?}: a loss leaves two");
    }
}
