//! Stories of the parts, section by section; `stack/tests/congestion` has the controllers on a modelled path.

mod hystart;
mod marks;
mod moves;
mod prr;
mod rate;
mod reno;

use core::time::Duration;

use super::{Ack, Cause, Congestion, CongestionControl, Phase, Recovered, Timeout};
use crate::time::Instant;

pub(super) const MSS: u64 = 1000;

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// An acknowledgment of `bytes` in order, of a window that is used.
pub(super) fn acked(bytes: u64) -> Ack {
    Ack { acked: bytes, delivered: bytes, flight_most: u64::MAX / 4, srtt: ms(100), ..Ack::default() }
}

/// The same in another phase.
pub(super) fn acked_in(phase: Phase, bytes: u64) -> Ack {
    Ack { phase, ..acked(bytes) }
}

pub(super) fn loss(flight: u64) -> Congestion {
    Congestion { flight, ..Congestion::default() }
}

pub(super) fn mark(flight: u64) -> Congestion {
    Congestion { flight, cause: Cause::Ecn, ..Congestion::default() }
}

pub(super) fn timeout(flight: u64) -> Timeout {
    Timeout { flight, first: true, ..Timeout::default() }
}

/// A loss, and what is recovered at once: the window is what it is to become.
pub(super) fn reduce(control: &mut impl CongestionControl, congestion: &Congestion) {
    control.on_congestion(congestion);
    control.on_recovered(&Recovered { flight: congestion.flight, phase: Phase::Recovery, ..Recovered::default() });
}
