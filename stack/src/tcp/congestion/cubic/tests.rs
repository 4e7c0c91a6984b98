//! RFC 9438, section by section.

use super::*;
use crate::tcp::congestion::tests::{MSS, acked, at, loss, mark, ms, reduce, timeout};

/// In congestion avoidance after a loss at `segments`, with no time passed.
fn after_a_loss_at(segments: u64) -> Cubic {
    let mut cubic = Cubic::new(MSS, Reduction::AtOnce);
    cubic.window.set_cwnd(segments * MSS);
    reduce(&mut cubic, &loss(segments * MSS));
    cubic
}

/// A round trip of `rtt` that ends at `now`: the whole window is acknowledged, segment by segment.
fn round(cubic: &mut Cubic, now: Instant, rtt: Duration) {
    (0..cubic.cwnd() / MSS).for_each(|_| cubic.on_ack(&Ack { now, srtt: rtt, ..acked(MSS) }));
}

/// Round trips until `end`; the window at each, in segments.
fn windows(cubic: &mut Cubic, rtt: Duration, end: u64) -> Vec<u64> {
    let mut windows = Vec::new();
    let mut now = at(0);
    while now < at(end) {
        now += rtt;
        round(cubic, now, rtt);
        windows.push(cubic.cwnd() / MSS);
    }
    windows
}

/// s4.6: to 0.7 of what is in flight, and not below two segments.
#[test]
fn a_loss_leaves_seven_tenths() {
    let cubic = after_a_loss_at(100);
    assert_eq!((cubic.cwnd(), cubic.ssthresh(), cubic.w_max), (70 * MSS, Some(70 * MSS), Some(100 * MSS)));
    let mut small = after_a_loss_at(2);
    assert_eq!((small.cwnd(), small.ssthresh()), (2 * MSS, Some(2 * MSS)));
    small.on_congestion(&mark(MSS));
    assert_eq!((small.cwnd(), small.ssthresh()), (MSS, Some(2 * MSS)));
}

/// s4.2, s4.4, s4.5: concave up to where the loss was, which it reaches after K, and convex beyond it.
#[test]
fn the_window_is_concave_then_flat_then_convex() {
    let mut cubic = after_a_loss_at(1000);
    // K = cbrt(300 / 0.4) = 9.09 seconds.
    let windows = windows(&mut cubic, ms(100), 18_000);
    let grown: Vec<u64> = windows.windows(10).step_by(10).map(|second| second[9] - second[0]).collect();
    assert!((995..=1001).contains(&windows[90]), "at K: {}", windows[90]);
    assert!(grown[..8].windows(2).all(|pair| pair[1] <= pair[0]), "concave: {grown:?}");
    assert!(grown[10..].windows(2).all(|pair| pair[1] >= pair[0]), "convex: {grown:?}");
    assert!(grown[8] + grown[9] <= 4, "flat between: {grown:?}");
}

/// s4.2: "less than the increase rate of slow start": by half at most in a round trip, however long it lasted.
#[test]
fn no_round_trip_adds_more_than_half() {
    let mut cubic = after_a_loss_at(100);
    round(&mut cubic, at(1000), ms(100));
    let before = cubic.cwnd();
    round(&mut cubic, at(500_000), ms(100));
    assert!(cubic.cwnd() <= before + before / 2 + MSS, "{before}, then {}", cubic.cwnd());
}

/// s4.3: where the curve is flat, as NewReno: α of 9/17 a round trip, and 1 from where the loss was on.
#[test]
fn a_short_path_gets_what_reno_would_give() {
    let mut cubic = after_a_loss_at(20);
    // K is 2.5 seconds; a thousand round trips of a tenth of a millisecond later the curve has hardly moved.
    let mut now = at(0);
    let mut rounds = 0;
    while cubic.window.cwnd() < 20 * MSS {
        now += Duration::from_micros(100);
        round(&mut cubic, now, Duration::from_micros(100));
        rounds += 1;
    }
    // From 14 to 20 segments at 9/17 each.
    assert!((10..=13).contains(&rounds), "{rounds}");
    let before = cubic.window.cwnd();
    (0..5).for_each(|_| round(&mut cubic, now, Duration::from_micros(100)));
    let grown = cubic.window.cwnd() - before;
    assert!((4 * MSS..=5 * MSS).contains(&grown), "{grown}");
}

/// s4.7: who reaches less than the last time gives up more: W_max is 0.85 of the window.
#[test]
fn fast_convergence() {
    let mut cubic = after_a_loss_at(100);
    reduce(&mut cubic, &loss(70 * MSS));
    assert_eq!(cubic.w_max, Some(70 * MSS * 17 / 20));
    assert_eq!(cubic.cwnd_prior, 70 * MSS);
    assert_eq!(cubic.cwnd(), 49 * MSS);
    cubic.window.set_cwnd(90 * MSS);
    reduce(&mut cubic, &loss(90 * MSS));
    assert_eq!(cubic.w_max, Some(90 * MSS), "above it again");
}

/// s4.8: after a timeout the threshold is 0.7 of the flight, the window a segment, and the curve begins, with K = 0, where slow start ends.
#[test]
fn a_timeout() {
    let mut cubic = after_a_loss_at(100);
    cubic.on_timeout(&timeout(70 * MSS));
    assert_eq!((cubic.cwnd(), cubic.ssthresh()), (MSS, Some(49 * MSS)));
    (0..60).for_each(|_| cubic.on_ack(&acked(MSS)));
    let epoch = cubic.epoch.unwrap();
    assert_eq!(epoch.curve, Curve::new(49 * MSS, 49 * MSS, MSS));
}

/// s4.9.2: undone, all is as it was.
#[test]
fn a_loss_for_nothing_is_undone() {
    let mut cubic = after_a_loss_at(100);
    windows(&mut cubic, ms(50), 3000);
    let before = cubic.clone();
    cubic.on_congestion(&loss(80 * MSS));
    assert!(cubic.cwnd() < before.cwnd());
    cubic.on_undo(&Undo { now: at(3000), flight: 80 * MSS, acked: MSS, phase: Phase::Recovery });
    assert_eq!((cubic.cwnd(), cubic.ssthresh()), (before.cwnd(), before.ssthresh()));
    assert_eq!((cubic.w_max, cubic.cwnd_prior, cubic.epoch), (before.w_max, before.cwnd_prior, before.epoch));
}

/// s4.9.2: "when [...] the current cwnd is already higher than cwnd_prior, CUBIC SHOULD continue to use the current" values.
#[test]
fn what_is_found_out_too_late_is_not_undone() {
    let mut cubic = after_a_loss_at(20);
    cubic.window.set_cwnd(30 * MSS);
    let before = cubic.clone();
    cubic.on_undo(&Undo { now: at(9), flight: 30 * MSS, acked: MSS, phase: Phase::Recovery });
    assert_eq!(Cubic { before: before.before.clone(), ..cubic }, before);
}

/// s4.2, s5.8: time in which the program limits it, and idle time, is no part of t; nor does the window grow.
#[test]
fn limited_time_does_not_count() {
    let mut cubic = after_a_loss_at(1000);
    let steady = windows(&mut cubic.clone(), ms(100), 4000);
    windows(&mut cubic, ms(100), 2000);
    let before = cubic.cwnd();
    for second in 3..60 {
        cubic.on_ack(&Ack { now: at(1000 * second), flight_most: 2 * MSS, ..acked(2 * MSS) });
    }
    assert_eq!(cubic.cwnd(), before);
    // An idle minute, shorter than a timeout for who says so; then as if nothing had been.
    cubic.on_sending(&Sending { now: at(120_000), bytes: MSS, in_flight: 0, app_limited: true });
    for i in 1..=20 {
        round(&mut cubic, at(120_000 + 100 * i), ms(100));
    }
    assert_eq!(cubic.cwnd() / MSS, steady[39]);
}

/// RFC 5681 s4.1, and RFC 9438 s5.8: the restart window, and a new stage.
#[test]
fn after_idleness_it_restarts() {
    let mut cubic = after_a_loss_at(100);
    windows(&mut cubic, ms(100), 1000);
    cubic.on_idle(&Idle { now: at(9000), silence: ms(8000) });
    assert_eq!((cubic.cwnd(), cubic.epoch), (10 * MSS, None));
}

/// s4.10: HyStart++ leaves slow start without a loss: the curve begins there, with K = 0; and it is not used again.
#[test]
fn slow_start_ends_by_delay() {
    let mut cubic = Cubic::new(MSS, Reduction::AtOnce);
    let mut una = 0;
    for rtt in [50, 50, 80, 80, 80, 80, 80, 80] {
        let end = una + cubic.cwnd();
        while una < end {
            una += MSS;
            cubic.on_ack(&Ack { una, nxt: una + cubic.cwnd(), rtt: Some(ms(rtt)), ..acked(MSS) });
        }
    }
    assert_eq!((cubic.hystart.clone(), cubic.w_max), (None, None));
    assert_eq!(cubic.ssthresh(), Some(cubic.cwnd_prior));
    assert_eq!(cubic.epoch.unwrap().curve, Curve::new(0, cubic.cwnd_prior, MSS));
    cubic.on_timeout(&timeout(50 * MSS));
    assert_eq!(cubic.hystart, None);
}
