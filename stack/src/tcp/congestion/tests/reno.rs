//! NewReno, and the list of controllers.

use super::{MSS, acked, acked_in, at, loss, ms, timeout};
use crate::tcp::congestion::{
    Ack, Algorithm, Beginning, CongestionControl as _, Phase, Recovered, Reduction, Reno, Sending, Undo, WINDOW_MAX,
};

/// RFC 9937: the window comes down with what arrives, and with the end of recovery is at the threshold.
#[test]
fn the_window_comes_down_in_the_course_of_recovery() {
    let mut reno = Reno::new(MSS, Reduction::Proportional);
    reno.on_congestion(&loss(20 * MSS));
    let mut in_flight = 19 * MSS;
    for i in 0..18 {
        let ack = Ack { delivered: MSS, sacked: MSS, in_flight, phase: Phase::Recovery, ..Ack::default() };
        reno.on_ack(&ack);
        while in_flight + MSS <= reno.cwnd() {
            reno.on_sending(&Sending { now: at(i), bytes: MSS, in_flight, app_limited: false });
            in_flight += MSS;
        }
        in_flight -= MSS;
    }
    assert!(in_flight.abs_diff(10 * MSS) <= MSS, "{in_flight}");
    reno.on_recovered(&Recovered { flight: in_flight, phase: Phase::Recovery, ..Recovered::default() });
    assert_eq!(reno.cwnd(), 10 * MSS);
}

/// RFC 9438 s4.9.2: what was reduced for nothing is as before, if it is undone in time.
#[test]
fn a_recovery_for_nothing_is_undone() {
    let mut reno = Reno::new(MSS, Reduction::AtOnce);
    reno.on_ack(&acked(10 * MSS));
    reno.on_congestion(&loss(20 * MSS));
    assert_eq!(reno.cwnd(), 10 * MSS);
    reno.on_undo(&Undo { now: at(1), flight: 20 * MSS, acked: MSS, phase: Phase::Recovery });
    assert_eq!((reno.cwnd(), reno.ssthresh()), (20 * MSS, None));
    reno.on_undo(&Undo { now: at(2), flight: 90 * MSS, acked: 90 * MSS, phase: Phase::Recovery });
    assert_eq!(reno.cwnd(), 20 * MSS, "once");
}

/// RFC 4015 s3.2: after a timeout for nothing, what is in flight and no more than an initial window; then slow start up to where it was.
#[test]
fn a_timeout_for_nothing_is_undone_without_a_burst() {
    let mut reno = Reno::new(MSS, Reduction::AtOnce);
    reno.on_congestion(&loss(80 * MSS));
    let before = reno.cwnd();
    reno.on_timeout(&timeout(40 * MSS));
    assert_eq!(reno.cwnd(), MSS);
    reno.on_undo(&Undo { now: at(9), flight: 10 * MSS, acked: 20 * MSS, phase: Phase::Loss });
    assert_eq!((reno.cwnd(), reno.ssthresh()), (20 * MSS, Some(before)));
    reno.on_ack(&acked(20 * MSS));
    assert_eq!(reno.cwnd(), before);
}

/// RFC 5681 s3.1: "cwnd MUST be set to no more than the loss window", and RFC 3465 s2.3 after it.
#[test]
fn after_a_timeout_one_segment_then_one_more_for_each_acknowledgment() {
    for algorithm in [Algorithm::Reno, Algorithm::Cubic, Algorithm::Dctcp] {
        let mut control = algorithm.begin(&Beginning { mss: MSS, ..Beginning::default() });
        control.on_timeout(&timeout(40 * MSS));
        assert_eq!(control.cwnd(), MSS, "{algorithm:?}");
        control.on_ack(&acked_in(Phase::Loss, 30 * MSS));
        assert_eq!(control.cwnd(), 2 * MSS, "{algorithm:?}");
    }
}

/// The names are Linux's, and each begins with RFC 6928's window.
#[test]
fn controllers_are_found_by_name_and_number() {
    for algorithm in Algorithm::ALL {
        assert_eq!(Algorithm::by_name(algorithm.name()), Some(algorithm));
        let control = algorithm.begin(&Beginning { mss: MSS, sack: true, srtt: Some(ms(10)), ..Beginning::default() });
        assert_eq!((control.name(), control.cwnd()), (algorithm.name(), 10 * MSS));
    }
    assert_eq!(Algorithm::by_name("vegas"), None);
    let numbers = [0, 1, 2, 3].map(Algorithm::by_vma_number);
    assert_eq!(numbers, [Some(Algorithm::Reno), Some(Algorithm::Cubic), None, None]);
}

/// RFC 7323 s2.3: no window is larger than scaling can announce.
#[test]
fn no_window_is_larger_than_can_be_announced() {
    for algorithm in Algorithm::ALL {
        let mut control = algorithm.begin(&Beginning { mss: MSS, ..Beginning::default() });
        (0..10).for_each(|_| control.on_ack(&Ack { delivered_total: 1, ..acked(1 << 40) }));
        assert!(control.cwnd() <= WINDOW_MAX, "{algorithm:?}");
    }
}

/// RFC 5681 s3.1, Linux's tcp_slow_start.
#[test]
fn slow_start_ends_at_the_threshold_whatever_is_acknowledged_at_once() {
    let mut reno = Reno::new(MSS, Reduction::AtOnce);
    reno.on_congestion(&loss(20 * MSS));
    reno.on_timeout(&crate::tcp::congestion::Timeout { first: false, ..timeout(20 * MSS) });
    reno.on_ack(&acked(40 * MSS));
    assert_eq!((reno.cwnd(), reno.ssthresh()), (10 * MSS, Some(10 * MSS)));
}
