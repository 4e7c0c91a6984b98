//! Startup and Drain.

use super::{Bbr, DEFAULT_CWND_GAIN, FullPipe, State, Step, scaled};
use crate::tcp::congestion::control::Phase;

/// BBR.StartupPacingGain (s2.5): 4 ln 2, which lets the rate double each round trip.
pub(super) const PACING_GAIN: u64 = 277;
/// BBR.DrainPacingGain (s2.5).
const DRAIN_PACING_GAIN: u64 = 50;
/// s5.3.1.2: less growth than this, in so many rounds, is none.
const FULL_BW_GROWTH: u64 = 125;
const FULL_BW_COUNT: u32 = 3;
/// BBRStartupFullLossCnt (s5.3.1.3).
const FULL_LOSS_COUNT: u32 = 6;
/// s5.3.2: Drain lasts no longer.
const DRAIN_ROUNDS: u64 = 3;

impl Bbr {
    /// EnterStartup (s5.3.1.1).
    pub(super) fn enter_startup(&mut self) {
        self.state = State::Startup;
        (self.pacing_gain, self.cwnd_gain) = (PACING_GAIN, DEFAULT_CWND_GAIN);
    }

    /// ResetFullBW (s5.3.1.2).
    pub(super) fn reset_full_bw(&mut self) {
        self.full = FullPipe { reached: self.full.reached, ..FullPipe::default() };
    }

    /// CheckFullBWReached (s5.3.1.2): the path is full when the rate has not grown by a quarter for three rounds in which the program did not limit it.
    pub(super) fn check_full_bw_reached(&mut self, step: &Step<'_>) {
        if self.full.now || !self.rounds.start || step.sample.app_limited {
            return;
        }
        if step.rate >= scaled(self.full.bw, FULL_BW_GROWTH) {
            self.reset_full_bw();
            self.full.bw = step.rate;
            return;
        }
        self.full.count += 1;
        self.full.now = self.full.count >= FULL_BW_COUNT;
        self.full.reached |= self.full.now;
    }

    /// CheckStartupDone (s5.3.1.1).
    pub(super) fn check_startup_done(&mut self, step: &Step<'_>) {
        self.check_startup_high_loss(step);
        if self.state == State::Startup && self.full.reached {
            self.enter_drain();
        }
    }

    /// CheckStartupHighLoss (s5.3.1.3): in fast recovery for a round trip, in which more than BBR.LossThresh was lost, in at least six places. Without
    /// SACK, where no more than one loss a round trip is seen, any.
    fn check_startup_high_loss(&mut self, step: &Step<'_>) {
        if self.state != State::Startup || step.ack.phase != Phase::Recovery {
            return;
        }
        let many = self.rounds.loss_start && self.rounds.loss_ranges >= FULL_LOSS_COUNT && self.sample_is_too_high(&step.sample);
        if many || (!self.sack && self.rounds.loss_ranges > 0) {
            self.leave_startup_by_congestion();
        }
    }

    /// s5.3.1.3: what is to be undone if that was for nothing, and how much in flight seems safe.
    pub(super) fn leave_startup_by_congestion(&mut self) {
        self.saved.state = Some(State::Startup);
        self.full.reached = true;
        self.inflight_longterm = self.bdp(self.bw, 100).max(self.inflight_latest);
    }

    /// EnterDrain (s5.3.2).
    fn enter_drain(&mut self) {
        self.state = State::Drain;
        (self.pacing_gain, self.cwnd_gain) = (DRAIN_PACING_GAIN, DEFAULT_CWND_GAIN);
        self.drain_start_round = self.rounds.count;
    }

    /// CheckDrainDone (s5.3.2).
    pub(super) fn check_drain_done(&mut self, step: &Step<'_>) {
        if self.state != State::Drain {
            return;
        }
        let drained = step.ack.in_flight <= self.inflight(self.bw, 100);
        if drained || self.rounds.count > self.drain_start_round.saturating_add(DRAIN_ROUNDS) {
            self.enter_probe_bw(step.ack.now);
        }
    }
}
