//! What window-based controllers have in common: a window, a threshold, and the ways of RFC 5681 to move them.

use super::control::{Ack, Congestion, INITIAL_SEGMENTS, Idle, MSS_MAX, Phase, Recovered, Sending, Timeout, Undo, WINDOW_MAX};
use super::prr::{Progress, Prr};
use crate::mutants::{Mutant, Mutation};
use crate::tcp::fields::{Fields, SnapshotError};

/// How the window gets from what it was to what congestion asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// In the course of a round trip ([`Prr`]).
    #[default]
    Proportional,
    /// At once: nothing is sent until so much has left the network (RFC 6675 s5), and after it no burst (RFC 6582 s3.2 step 3).
    AtOnce,
}

/// No threshold yet: "The initial value of ssthresh SHOULD be set arbitrarily high" (RFC 5681 s3.1).
const UNKNOWN: u64 = u64::MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    cwnd: u64,
    ssthresh: u64,
    /// Bytes acknowledged since the window last grew, in congestion avoidance (RFC 5681 s3.1, RFC 3465).
    counted: u64,
    mss: u64,
    reduction: Reduction,
    /// (Apart, since a million connections are not in a recovery.)
    prr: Option<Box<Prr>>,
    /// Window and threshold before the last reduction, if it may turn out to have been for nothing.
    before: Option<Box<(u64, u64)>>,
    mutation: Mutation,
}

impl Window {
    pub(super) fn new(mss: u64, reduction: Reduction) -> Self {
        let mss = mss.clamp(1, MSS_MAX);
        let cwnd = INITIAL_SEGMENTS * mss;
        Self { cwnd, ssthresh: UNKNOWN, counted: 0, mss, reduction, prr: None, before: None, mutation: Mutation::HEALTHY }
    }

    /// The same as a mutant.
    pub(super) fn of(self, mutation: Mutation) -> Self {
        Self { mutation, ..self }
    }

    /// What it consists of, for a snapshot. (The segments' size follows from what both ends and the path take.)
    pub(super) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { cwnd, ssthresh, counted, mss, reduction, prr, before, mutation: _ } = self;
        fields.at_most(cwnd, WINDOW_MAX)?;
        fields.long(ssthresh)?;
        fields.at_most(counted, WINDOW_MAX)?;
        fields.one_of(reduction, &[Reduction::Proportional, Reduction::AtOnce])?;
        fields.option(prr, |fields, prr| {
            prr.set_mss(*mss);
            prr.walk(fields)
        })?;
        fields.option(before, |fields, before| {
            fields.at_most(&mut before.0, WINDOW_MAX)?;
            fields.long(&mut before.1)
        })
    }

    /// As it was elsewhere, for segments of this one's size: one of them always goes. (The threshold may be any: it is what was said to have been.)
    pub(super) fn resume(&mut self, from: &Self) {
        *self = Self { mss: self.mss, cwnd: from.cwnd.max(self.mss), mutation: self.mutation, ..from.clone() };
        if let Some(prr) = &mut self.prr {
            prr.set_mss(self.mss);
        }
    }

    /// What another controller of the same connection has come to.
    pub(super) fn succeed(&mut self, cwnd: u64, ssthresh: Option<u64>) {
        self.set_cwnd(cwnd);
        self.ssthresh = ssthresh.unwrap_or(UNKNOWN);
    }

    pub(super) fn mss(&self) -> u64 {
        self.mss
    }

    /// The window that limits what is sent.
    #[inline]
    pub(super) fn limit(&self) -> u64 {
        let limit = match &self.prr {
            Some(prr) if self.mutation.is(Mutant::ProportionExceeded) => prr.cwnd() + 2 * self.mss,
            Some(prr) => prr.cwnd(),
            None => self.cwnd,
        };
        limit.clamp(self.mss, WINDOW_MAX)
    }

    /// The window that is wanted: what [`Window::limit`] comes to in the course of a reduction.
    pub(super) fn cwnd(&self) -> u64 {
        self.cwnd
    }

    pub(super) fn set_cwnd(&mut self, cwnd: u64) {
        self.cwnd = cwnd.clamp(self.mss, WINDOW_MAX);
    }

    pub(super) fn ssthresh(&self) -> Option<u64> {
        (self.ssthresh != UNKNOWN).then_some(self.ssthresh)
    }

    /// Slow start ends here, without a loss.
    pub(super) fn leave_slow_start(&mut self) {
        self.ssthresh = self.cwnd;
    }

    /// Below the threshold. At the threshold either would do (RFC 5681 s3.1); as Linux, it is avoidance.
    pub(super) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Whether `ack` may let the window grow: one that was not used is not known to be safe to grow (RFC 7661 s1; Linux's tcp_is_cwnd_limited). In
    /// slow start more than half of it suffices, since it doubles.
    pub(super) fn is_used(&self, ack: &Ack) -> bool {
        match ack.phase {
            Phase::Loss => true,
            _ if self.in_slow_start() => ack.flight_most.saturating_mul(2) > self.cwnd || self.mutation.is(Mutant::UnusedWindowGrows),
            _ => ack.flight_most.saturating_add(self.mss) > self.cwnd,
        }
    }

    /// Bytes that `ack` is good for, in the phases in which the window grows. RFC 3465 s2.3: after a timeout an acknowledgment is good for one
    /// segment, since what it covers may have left the network long before.
    pub(super) fn worth(&self, ack: &Ack) -> u64 {
        match ack.phase {
            Phase::Open => ack.acked,
            Phase::Loss if self.mutation.is(Mutant::StretchAckGrowsAll) => ack.acked,
            Phase::Loss => ack.acked.min(self.mss),
            Phase::Recovery | Phase::Reduced => 0,
        }
    }

    /// RFC 5681 s3.1: slow start. It ends at the threshold, however much one acknowledgment covers (Linux's tcp_slow_start).
    pub(super) fn slow_start(&mut self, acked: u64) {
        let end = if self.mutation.is(Mutant::SlowStartPassesThreshold) { UNKNOWN } else { self.ssthresh };
        self.cwnd = self.cwnd.saturating_add(acked).min(end).min(WINDOW_MAX);
    }

    /// RFC 5681 s3.1: one segment for each window that is acknowledged, counted in bytes (RFC 3465).
    pub(super) fn avoid(&mut self, acked: u64) {
        if self.mutation.is(Mutant::AvoidanceStandsStill) {
            return;
        }
        self.counted = self.counted.saturating_add(acked).min(WINDOW_MAX);
        let enough = if self.mutation.is(Mutant::AvoidanceBySegment) { self.mss } else { self.cwnd };
        if self.counted >= enough {
            self.counted -= enough;
            self.cwnd = (self.cwnd + self.mss).min(WINDOW_MAX);
        }
    }

    pub(super) fn on_sending(&mut self, sending: &Sending) {
        if let Some(prr) = &mut self.prr {
            prr.on_sent(sending.bytes);
        }
    }

    /// Works an acknowledgment into a reduction that is under way.
    pub(super) fn on_ack(&mut self, ack: &Ack) {
        if let Some(prr) = &mut self.prr {
            let advanced = ack.acked > 0;
            prr.on_ack(&Progress { delivered: ack.delivered, in_flight: ack.in_flight, advanced, lost: ack.lost > 0 });
        }
    }

    /// The window is to become `cwnd`, of at least `least` segments; the threshold too, of at least two (RFC 5681 s3.1, equation 4).
    pub(super) fn reduce(&mut self, congestion: &Congestion, cwnd: u64, least: u64) {
        if self.mutation.is(Mutant::LossKeepsWindow) {
            return;
        }
        let cwnd = if self.mutation.is(Mutant::LossTakesAQuarter) { congestion.flight / 4 * 3 } else { cwnd };
        self.before = Some(Box::new((self.cwnd, self.ssthresh)));
        let limit = self.limit();
        self.set_cwnd(cwnd.max(least * self.mss));
        self.ssthresh = cwnd.clamp(2 * self.mss, WINDOW_MAX);
        self.counted = 0;
        self.prr = match self.reduction {
            Reduction::AtOnce => None,
            Reduction::Proportional => {
                Some(Box::new(Prr::new(self.cwnd, limit, congestion.flight, congestion.sacked, congestion.delivered, self.mss)))
            }
        };
    }

    /// RFC 5681 s3.1: after a timeout the window is the loss window, one segment; the threshold becomes `ssthresh` of at least two, and stays as it
    /// is when the same bytes time out again.
    pub(super) fn on_timeout(&mut self, timeout: &Timeout, ssthresh: u64) {
        let mutation = self.mutation;
        let ssthresh = if mutation.is(Mutant::ThresholdOfWindow) { self.cwnd / 2 } else { ssthresh };
        if timeout.first && !mutation.is(Mutant::TimeoutKeepsThreshold) {
            // RFC 4015 s3.2: what the threshold is to be if the timeout was for nothing.
            let flight = if self.ssthresh == UNKNOWN { UNKNOWN } else { timeout.flight };
            self.before = Some(Box::new((self.cwnd, self.ssthresh.max(flight))));
            self.ssthresh = ssthresh.clamp(2 * self.mss, WINDOW_MAX);
        }
        self.cwnd = if mutation.is(Mutant::LossWindowIsInitial) { INITIAL_SEGMENTS * self.mss } else { self.mss };
        self.counted = 0;
        self.prr = None;
    }

    pub(super) fn on_recovered(&mut self, recovered: &Recovered) {
        if recovered.phase == Phase::Recovery && self.reduction == Reduction::AtOnce {
            // RFC 6582 s3.2 step 3: no burst of everything that the acknowledgment set free.
            self.set_cwnd(self.ssthresh.min(recovered.flight.max(self.mss).saturating_add(self.mss)));
        }
        if recovered.phase == Phase::Recovery && self.mutation.is(Mutant::RecoveryRestoresWindow) {
            self.cwnd = 2 * self.ssthresh;
        }
        // RFC 9937 s6.4: with the end of recovery the window is what it was to become.
        self.prr = None;
    }

    /// RFC 9438 s4.9.2 and RFC 4015 s3.2: what it was before. After a timeout nothing has told for long how much the network holds: then it is what
    /// is there, with no more than an initial window beside it, and slow start goes up to where it had been.
    pub(super) fn undo(&mut self, undo: &Undo) {
        let Some((cwnd, ssthresh)) = self.before.take().map(|before| *before) else { return };
        self.prr = None;
        self.ssthresh = ssthresh;
        if undo.phase == Phase::Loss {
            let now = undo.flight.saturating_add(undo.acked.min(INITIAL_SEGMENTS * self.mss));
            self.set_cwnd(self.cwnd.max(now.min(cwnd)));
        } else {
            self.set_cwnd(self.cwnd.max(cwnd));
        }
    }

    /// RFC 5681 s4.1: "a TCP SHOULD set cwnd to no more than RW before beginning transmission" after an idle time, the restart window.
    pub(super) fn on_idle(&mut self, _idle: &Idle) {
        let before = if self.mutation.is(Mutant::IdleRestoresInitialWindow) { WINDOW_MAX } else { self.cwnd };
        self.cwnd = before.min(INITIAL_SEGMENTS * self.mss);
    }

    pub(super) fn set_mss(&mut self, mss: u64) {
        let mss = mss.clamp(1, MSS_MAX);
        if self.cwnd == INITIAL_SEGMENTS * self.mss || self.mutation.is(Mutant::OptionsRefreshCwnd) {
            self.cwnd = INITIAL_SEGMENTS * mss;
        }
        self.mss = mss;
        self.cwnd = self.cwnd.max(mss);
        if let Some(prr) = &mut self.prr {
            prr.set_mss(mss);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    /// What comes from elsewhere may have been made up.
    #[test]
    fn a_window_from_elsewhere_is_never_less_than_a_segment() {
        let mss = 1000;
        for ssthresh in [0, 1, mss, UNKNOWN] {
            let from = Window { ssthresh, cwnd: 0, before: Some(Box::new((0, 0))), ..Window::new(mss, Reduction::AtOnce) };
            let mut window = Window::new(mss, Reduction::AtOnce);
            window.resume(&from);
            assert_eq!(window.cwnd(), mss);
            window.on_recovered(&Recovered { now: Instant::ZERO, flight: 0, phase: Phase::Recovery });
            assert!(window.cwnd() >= mss, "{ssthresh}: {}", window.cwnd());
            window.undo(&Undo::default());
            window.on_recovered(&Recovered { now: Instant::ZERO, flight: 0, phase: Phase::Recovery });
            assert!(window.cwnd() >= mss, "{ssthresh}: {}", window.cwnd());
        }
    }
}
