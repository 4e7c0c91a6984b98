//! ProbeBW: the cycle in which a flow spends its life.

use core::time::Duration;

use super::{AckPhase, Bbr, Cycle, DEFAULT_CWND_GAIN, HEADROOM, INFINITY, MIN_PIPE_SEGMENTS, State, Step, scaled};
use crate::tcp::congestion::control::WINDOW_MAX;
use crate::time::Instant;

/// Pacing gains of the phases (s5.6.1).
const DOWN_PACING_GAIN: u64 = 90;
const CRUISE_PACING_GAIN: u64 = 100;
const REFILL_PACING_GAIN: u64 = 100;
const UP_PACING_GAIN: u64 = 125;
const UP_CWND_GAIN: u64 = 225;
/// s5.3.3.8: no more rounds between probes than NewReno needs on a path of this many segments.
const RENO_ROUNDS_MAX: u64 = 63;
/// s5.3.3.8: the time between probes is two to three seconds.
const PROBE_WAIT: Duration = Duration::from_secs(2);
const PROBE_WAIT_CHANCE_NS: u64 = 1_000_000_000;
/// s5.3.3.9: the slope of inflight_longterm doubles no more often.
const UP_ROUNDS_MAX: u32 = 30;

impl Cycle {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            ack_phase: AckPhase::Init,
            is_bw_probe_sample: false,
            up_acked: 0,
            up_acked_per_inc: INFINITY,
            up_rounds: 0,
            rounds_since_up: 0,
            wait: Duration::ZERO,
            stamp: now,
            prev_too_high: false,
            prev_precautionary: false,
        }
    }
}

impl Bbr {
    /// EnterProbeBW (s5.3.3.9).
    pub(super) fn enter_probe_bw(&mut self, now: Instant) {
        self.start_probe_bw_down(now);
    }

    /// StartProbeBW_DOWN (s5.3.3.9).
    pub(super) fn start_probe_bw_down(&mut self, now: Instant) {
        self.reset_congestion_signals();
        self.cycle.up_acked_per_inc = INFINITY;
        self.pick_probe_wait();
        self.cycle.stamp = now;
        self.cycle.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
        self.enter(State::ProbeBwDown, DOWN_PACING_GAIN, DEFAULT_CWND_GAIN);
    }

    /// StartProbeBW_CRUISE (s5.3.3.9).
    pub(super) fn start_probe_bw_cruise(&mut self) {
        self.enter(State::ProbeBwCruise, CRUISE_PACING_GAIN, DEFAULT_CWND_GAIN);
    }

    /// StartProbeBW_REFILL (s5.3.3.9): the moment at which losses that others may have caused are forgotten.
    pub(super) fn start_probe_bw_refill(&mut self) {
        self.reset_short_term_model();
        (self.cycle.up_rounds, self.cycle.up_acked) = (0, 0);
        self.cycle.prev_precautionary = false;
        self.cycle.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.enter(State::ProbeBwRefill, REFILL_PACING_GAIN, DEFAULT_CWND_GAIN);
    }

    /// StartProbeBW_UP (s5.3.3.9).
    fn start_probe_bw_up(&mut self, step: &Step<'_>) {
        self.cycle.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.reset_full_bw();
        self.full.bw = step.rate;
        self.enter(State::ProbeBwUp, UP_PACING_GAIN, UP_CWND_GAIN);
        self.raise_inflight_longterm_slope();
    }

    fn enter(&mut self, state: State, pacing_gain: u64, cwnd_gain: u64) {
        (self.state, self.pacing_gain, self.cwnd_gain) = (state, pacing_gain, cwnd_gain);
    }

    /// UpdateProbeBWCyclePhase (s5.3.3.9).
    pub(super) fn update_probe_bw_cycle_phase(&mut self, step: &Step<'_>) {
        if !self.full.reached || self.adapt_long_term_model(step) {
            return;
        }
        let state = self.state;
        match state {
            State::ProbeBwDown => {
                if self.is_time_to_probe_bw(step.ack.now) {
                    self.start_probe_bw_refill();
                } else if self.is_time_to_cruise(step) {
                    self.start_probe_bw_cruise();
                }
            }
            State::ProbeBwCruise if self.is_time_to_probe_bw(step.ack.now) => self.start_probe_bw_refill(),
            State::ProbeBwRefill if self.rounds.start => {
                self.cycle.is_bw_probe_sample = true;
                self.start_probe_bw_up(step);
            }
            State::ProbeBwUp if self.is_time_to_go_down(step) => {
                self.cycle.prev_too_high = false;
                self.start_probe_bw_down(step.ack.now);
            }
            _ => {}
        }
    }

    /// IsTimeToProbeBW (s5.3.3.8): after two to three seconds, or the time in which NewReno would have filled the path again.
    fn is_time_to_probe_bw(&self, now: Instant) -> bool {
        let elapsed = now.since(self.cycle.stamp) > self.cycle.wait;
        let reno_rounds = (self.target_inflight() / self.mss).min(RENO_ROUNDS_MAX);
        elapsed || self.cycle.rounds_since_up >= reno_rounds
    }

    /// PickProbeWait (s5.3.3.8): by chance, so that flows mix.
    fn pick_probe_wait(&mut self) {
        self.cycle.rounds_since_up = self.draw() & 1;
        self.cycle.wait = PROBE_WAIT + Duration::from_nanos(self.draw() % PROBE_WAIT_CHANCE_NS);
    }

    /// TargetInflight (s5.3.3.8).
    pub(super) fn target_inflight(&self) -> u64 {
        self.bdp(self.bw, 100).min(self.cwnd)
    }

    /// IsTimeToCruise (s5.3.3.9): there is headroom, and no queue.
    fn is_time_to_cruise(&self, step: &Step<'_>) -> bool {
        let in_flight = step.ack.in_flight;
        in_flight <= self.inflight_with_headroom() && in_flight <= self.inflight(self.max_bw.max(), 100)
    }

    /// IsTimeToGoDown (s5.3.3.9).
    fn is_time_to_go_down(&mut self, step: &Step<'_>) -> bool {
        // The last probe went too high: this one only goes to where that is known to be.
        if self.cycle.prev_too_high && step.ack.in_flight >= self.inflight_longterm {
            self.cycle.prev_precautionary = true;
            return true;
        }
        if step.ack.cwnd_limited && self.cwnd >= self.inflight_longterm {
            // inflight_longterm is what limits the bandwidth: it cannot be seen to be full.
            self.reset_full_bw();
            self.full.bw = step.rate;
            return false;
        }
        self.full.now
    }

    /// InflightWithHeadroom (s5.3.3.9).
    pub(super) fn inflight_with_headroom(&self) -> u64 {
        if self.inflight_longterm == INFINITY {
            return INFINITY;
        }
        let headroom = scaled(self.inflight_longterm, HEADROOM).max(self.mss);
        self.inflight_longterm.saturating_sub(headroom).max(MIN_PIPE_SEGMENTS * self.mss)
    }

    /// RaiseInflightLongtermSlope (s5.3.3.9): by one segment in the first round, two in the second, four in the third.
    pub(super) fn raise_inflight_longterm_slope(&mut self) {
        let growth = 1 << self.cycle.up_rounds;
        self.cycle.up_rounds = (self.cycle.up_rounds + 1).min(UP_ROUNDS_MAX);
        self.cycle.up_acked_per_inc = (self.cwnd / growth).max(self.mss);
    }

    /// ProbeInflightLongtermUpward (s5.3.3.9).
    fn probe_inflight_longterm_upward(&mut self, step: &Step<'_>) {
        if !step.ack.cwnd_limited || self.cwnd < self.inflight_longterm {
            return;
        }
        self.cycle.up_acked = self.cycle.up_acked.saturating_add(step.ack.delivered);
        let steps = self.cycle.up_acked / self.cycle.up_acked_per_inc;
        self.cycle.up_acked %= self.cycle.up_acked_per_inc;
        // A window has no use for more than it can be; and this stays finite.
        self.inflight_longterm = self.inflight_longterm.saturating_add(steps.saturating_mul(self.mss)).min(2 * WINDOW_MAX);
        if self.rounds.start {
            self.raise_inflight_longterm_slope();
        }
    }

    /// AdaptLongTermModel (s5.3.3.9). Whether it decided on a new state.
    fn adapt_long_term_model(&mut self, step: &Step<'_>) -> bool {
        if self.cycle.ack_phase == AckPhase::ProbeStarting && self.rounds.start {
            self.cycle.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.cycle.ack_phase == AckPhase::ProbeStopping && self.rounds.start {
            // All that was sent while bandwidth was probed is acknowledged.
            self.cycle.is_bw_probe_sample = false;
            self.cycle.ack_phase = AckPhase::Init;
            if self.state.is_probe_bw() && !step.sample.app_limited {
                self.max_bw.advance();
            }
            // The cautious probe lost little: another one may stay.
            if self.state.is_probe_bw() && self.cycle.prev_precautionary && !self.cycle.prev_too_high {
                self.start_probe_bw_refill();
                return true;
            }
        }
        if self.inflight_longterm == INFINITY || self.sample_is_too_high(&step.sample) {
            return false;
        }
        self.inflight_longterm = self.inflight_longterm.max(step.sample.tx_in_flight.min(2 * WINDOW_MAX));
        if self.state == State::ProbeBwUp {
            self.probe_inflight_longterm_upward(step);
        }
        false
    }
}
