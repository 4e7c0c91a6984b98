//! Slow start and congestion avoidance (RFC 5681), with an initial window of 10 segments (RFC 6928).

use super::Controller;
use crate::mutants::{Mutant, Mutation};
use crate::tcp::fields::{Fields, SnapshotError};

const INITIAL_SEGMENTS: usize = 10;
/// What a snapshot calls this controller.
const NUMBER: u32 = 1;

/// The controller's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewReno {
    cwnd: usize,
    ssthresh: usize,
    /// Bytes acknowledged since the window last grew, in congestion avoidance (RFC 5681 s3.1, RFC 3465).
    counted: usize,
    mss: usize,
    mutation: Mutation,
}

impl NewReno {
    pub(crate) const fn new(mss: usize) -> Self {
        Self { cwnd: INITIAL_SEGMENTS * mss, ssthresh: usize::MAX, counted: 0, mss, mutation: Mutation::HEALTHY }
    }

    /// The same as a mutant.
    pub(crate) const fn of(self, mutation: Mutation) -> Self {
        Self { mutation, ..self }
    }

    /// What it consists of, for a snapshot; which controller it is comes first. (The segments' size follows from what both ends and the path take.)
    pub(crate) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { cwnd, ssthresh, counted, mss: _, mutation: _ } = self;
        let mut number = NUMBER;
        fields.word(&mut number)?;
        if number != NUMBER {
            return Err(SnapshotError::Value);
        }
        fields.size(cwnd)?;
        let mut known = Some(*ssthresh).filter(|ssthresh| *ssthresh != usize::MAX);
        fields.option(&mut known, |fields, ssthresh| fields.size(ssthresh))?;
        *ssthresh = known.unwrap_or(usize::MAX);
        fields.size(counted)
    }

    /// As it was elsewhere, for segments of this one's size: one of them always goes.
    pub(crate) fn resume(&mut self, from: &Self) {
        let Self { cwnd, ssthresh, counted, mss: _, mutation: _ } = *from;
        (self.cwnd, self.ssthresh, self.counted) = (cwnd.max(self.mss), ssthresh, counted);
    }

    /// The slow-start threshold in bytes; `None`: nothing was lost yet.
    pub(crate) fn ssthresh(&self) -> Option<usize> {
        (self.ssthresh != usize::MAX).then_some(self.ssthresh)
    }

    fn halved(&self, in_flight: usize) -> usize {
        if self.mutation.is(Mutant::LossTakesAQuarter) {
            return (in_flight / 4 * 3).max(2 * self.mss);
        }
        (in_flight / 2).max(2 * self.mss)
    }
}

impl Controller for NewReno {
    #[inline]
    fn cwnd(&self) -> usize {
        self.cwnd
    }

    fn set_mss(&mut self, mss: usize) {
        if self.cwnd == INITIAL_SEGMENTS * self.mss || self.mutation.is(Mutant::OptionsRefreshCwnd) {
            self.cwnd = INITIAL_SEGMENTS * mss;
        }
        self.mss = mss;
        self.cwnd = self.cwnd.max(mss);
    }

    #[inline(always)]
    fn on_ack(&mut self, acked: usize, in_flight: usize) {
        // A window that wasn't used isn't known to be safe to grow (RFC 7661 s1; Linux's tcp_is_cwnd_limited).
        if self.cwnd < self.ssthresh {
            if 2 * in_flight >= self.cwnd || self.mutation.is(Mutant::UnusedWindowGrows) {
                // Slow start ends at the threshold, however much one acknowledgment covers (RFC 5681 s3.1, Linux's tcp_slow_start).
                let end = if self.mutation.is(Mutant::SlowStartPassesThreshold) { usize::MAX } else { self.ssthresh };
                self.cwnd = self.cwnd.saturating_add(acked).min(end).min(1 << 30);
            }
        } else if in_flight + self.mss > self.cwnd && !self.mutation.is(Mutant::AvoidanceStandsStill) {
            self.counted += acked;
            let enough = if self.mutation.is(Mutant::AvoidanceBySegment) { self.mss } else { self.cwnd };
            if self.counted >= enough {
                self.counted -= enough;
                self.cwnd = (self.cwnd + self.mss).min(1 << 30);
            }
        }
    }

    fn on_loss(&mut self, in_flight: usize) {
        self.ssthresh = self.halved(in_flight);
        self.cwnd = self.ssthresh;
        self.counted = 0;
    }

    fn on_recovered(&mut self, in_flight: usize) {
        // RFC 6582 s3.2 step 3: no burst of everything that the acknowledgment set free.
        self.cwnd = self.ssthresh.min(in_flight.max(self.mss) + self.mss);
        if self.mutation.is(Mutant::RecoveryRestoresWindow) {
            self.cwnd = 2 * self.ssthresh;
        }
    }

    fn on_timeout(&mut self, in_flight: usize, first: bool) {
        // RFC 5681 s3.1: held constant when the same bytes time out again.
        let in_flight = if self.mutation.is(Mutant::ThresholdOfWindow) { self.cwnd } else { in_flight };
        if first && !self.mutation.is(Mutant::TimeoutKeepsThreshold) {
            self.ssthresh = self.halved(in_flight);
        }
        self.cwnd = if self.mutation.is(Mutant::LossWindowIsInitial) { INITIAL_SEGMENTS * self.mss } else { self.mss };
        self.counted = 0;
    }

    fn on_idle(&mut self) {
        // RFC 5681 s4.1: the restart window.
        let before = if self.mutation.is(Mutant::IdleRestoresInitialWindow) { usize::MAX } else { self.cwnd };
        self.cwnd = before.min(INITIAL_SEGMENTS * self.mss);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_start_ends_at_the_threshold_whatever_is_acknowledged_at_once() {
        let mut reno = NewReno::new(1000);
        reno.on_loss(20_000);
        reno.on_timeout(20_000, false);
        reno.on_ack(40_000, usize::MAX / 4);
        assert_eq!((reno.cwnd(), reno.ssthresh()), (10_000, Some(10_000)));
    }
}
