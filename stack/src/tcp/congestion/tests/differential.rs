//! What connections use and what is to replace it, told one story.

use proptest::prelude::*;

use crate::tcp::congestion::control::{Ack, Congestion, CongestionControl as _, Idle, Phase, Recovered, Timeout};
use crate::tcp::congestion::{Controller as _, NewReno, Reduction, Reno};

/// What can happen to a connection, as it is told to [`NewReno`] today.
#[derive(Clone, Copy, Debug)]
enum Event {
    Acked { bytes: usize, flight: usize },
    AckedAfterTimeout { bytes: usize },
    Loss { flight: usize },
    Recovered { flight: usize },
    Timeout { flight: usize, first: bool },
    Idle,
    Mss(usize),
}

/// No flight is larger than the largest window.
fn event() -> impl Strategy<Value = Event> {
    let flight = || prop_oneof![0..40_000usize, 0..1_000_000_000usize];
    prop_oneof![
        8 => (1..70_000usize, flight()).prop_map(|(bytes, flight)| Event::Acked { bytes, flight }),
        2 => (1..70_000usize).prop_map(|bytes| Event::AckedAfterTimeout { bytes }),
        1 => flight().prop_map(|flight| Event::Loss { flight }),
        1 => flight().prop_map(|flight| Event::Recovered { flight }),
        1 => (flight(), any::<bool>()).prop_map(|(flight, first)| Event::Timeout { flight, first }),
        1 => Just(Event::Idle),
        1 => (48..65_496usize).prop_map(Event::Mss),
    ]
}

/// As `connection/ack.rs`, `timeouts.rs` and `transmit.rs` do.
fn tell_old(old: &mut NewReno, event: Event, mss: usize) {
    match event {
        Event::Acked { bytes, flight } => old.on_ack(bytes, flight),
        Event::AckedAfterTimeout { bytes } => old.on_ack(bytes.min(mss), usize::MAX / 4),
        Event::Loss { flight } => old.on_loss(flight),
        Event::Recovered { flight } => old.on_recovered(flight),
        Event::Timeout { flight, first } => old.on_timeout(flight, first),
        Event::Idle => old.on_idle(),
        Event::Mss(mss) => old.set_mss(mss),
    }
}

fn tell_new(new: &mut Reno, event: Event) {
    match event {
        Event::Acked { bytes, flight } => new.on_ack(&Ack { acked: bytes as u64, flight_before: flight as u64, ..Ack::default() }),
        Event::AckedAfterTimeout { bytes } => new.on_ack(&Ack { acked: bytes as u64, phase: Phase::Loss, ..Ack::default() }),
        Event::Loss { flight } => new.on_congestion(&Congestion { flight: flight as u64, ..Congestion::default() }),
        Event::Recovered { flight } => {
            new.on_recovered(&Recovered { flight: flight as u64, phase: Phase::Recovery, ..Recovered::default() });
        }
        Event::Timeout { flight, first } => new.on_timeout(&Timeout { flight: flight as u64, first, ..Timeout::default() }),
        Event::Idle => new.on_idle(&Idle::default()),
        Event::Mss(mss) => new.set_mss(mss as u64),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// In recovery neither is told of what is acknowledged (but the new one is, and must not care).
    #[test]
    fn both_have_the_same_window(mss in 48..65_496usize, events in proptest::collection::vec((event(), any::<bool>()), 1..80)) {
        let (mut old, mut new) = (NewReno::new(mss), Reno::new(mss as u64, Reduction::AtOnce));
        let mut mss = mss;
        for (event, between) in events {
            if let Event::Mss(to) = event {
                mss = to;
            }
            tell_old(&mut old, event, mss);
            tell_new(&mut new, event);
            if between {
                new.on_ack(&Ack { acked: 5000, delivered: 5000, phase: Phase::Recovery, ..Ack::default() });
            }
            // Where segments grew since, the threshold that the old one goes back to may be less than one of them: a fault of its own.
            prop_assert_eq!(new.cwnd(), old.cwnd().max(mss) as u64, "after {:?}", event);
            prop_assert_eq!(new.ssthresh(), old.ssthresh().map(|ssthresh| ssthresh as u64), "after {:?}", event);
        }
    }
}

/// The old one's own test.
#[test]
fn slow_start_ends_at_the_threshold_whatever_is_acknowledged_at_once() {
    let mut reno = Reno::new(1000, Reduction::AtOnce);
    reno.on_congestion(&Congestion { flight: 20_000, ..Congestion::default() });
    reno.on_timeout(&Timeout { flight: 20_000, first: false, ..Timeout::default() });
    reno.on_ack(&Ack { acked: 40_000, flight_before: u64::MAX / 4, ..Ack::default() });
    assert_eq!((reno.cwnd(), reno.ssthresh()), (10_000, Some(10_000)));
}
