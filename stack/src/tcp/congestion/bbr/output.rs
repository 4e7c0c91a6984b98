//! What comes of the model: pacing rate, quantum and window.

use core::time::Duration;

use super::startup::PACING_GAIN;
use super::{Bbr, INFINITY, MIN_PIPE_SEGMENTS, State, Step, scaled};
use crate::tcp::congestion::control::{INITIAL_SEGMENTS, RATE_MAX, WINDOW_MAX};
use crate::tcp::congestion::rate::{bytes_in, per_second};

/// BBR.PacingMarginPercent (s2.5) is 1: the pace is so much below the bandwidth that queues drain.
const PACED: u64 = 99;
/// s5.6.3.
const QUANTUM_TIME: Duration = Duration::from_millis(1);
const QUANTUM_MAX: u64 = 64 * 1024;
/// s5.5.8.1: one quantum each in the host's queue, in segmentation, and in the receiver's merging.
const OFFLOAD_QUANTA: u64 = 3;

impl Bbr {
    /// InitPacingRate (s5.6.2): an initial window in a round trip, or in a millisecond as long as none is known.
    pub(super) fn init_pacing_rate(&mut self) {
        let rtt = if self.rtt.min_rtt == Duration::MAX { Duration::from_millis(1) } else { self.rtt.min_rtt };
        self.pacing_rate = self.bounded(scaled(per_second(INITIAL_SEGMENTS * self.mss, rtt), PACING_GAIN));
    }

    fn bounded(&self, rate: u64) -> u64 {
        rate.clamp(self.mss, RATE_MAX)
    }

    /// SetPacingRateWithGain (s5.6.2): until the path was full, the rate only grows.
    pub(super) fn set_pacing_rate_with_gain(&mut self, gain: u64) {
        let rate = self.bounded(scaled(scaled(self.bw, gain), PACED));
        if self.full.reached || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    /// SetPacingRate (s5.6.2). The first round trip that is known replaces the guess of [`Bbr::init_pacing_rate`].
    pub(super) fn set_pacing_rate(&mut self, rtt: Option<Duration>) {
        if !self.rtt_known && rtt.is_some() {
            self.rtt_known = true;
            self.init_pacing_rate();
        }
        self.set_pacing_rate_with_gain(self.pacing_gain);
    }

    /// SetSendQuantum (s5.6.3). "A BBR implementation SHOULD attempt to use the smallest feasible quanta."
    pub(super) fn set_send_quantum(&mut self) {
        self.send_quantum = bytes_in(self.pacing_rate, QUANTUM_TIME).min(QUANTUM_MAX).max(2 * self.mss);
    }

    /// BDPMultiple (s5.6.4.2), with a gain in percent.
    pub(super) fn bdp(&self, bw: u64, gain: u64) -> u64 {
        if self.rtt.min_rtt == Duration::MAX {
            return INITIAL_SEGMENTS * self.mss;
        }
        scaled(bytes_in(bw, self.rtt.min_rtt), gain)
    }

    /// QuantizationBudget (s5.6.4.2).
    fn quantization_budget(&self, cap: u64) -> u64 {
        let cap = cap.max(OFFLOAD_QUANTA * self.send_quantum).max(MIN_PIPE_SEGMENTS * self.mss);
        if self.state == State::ProbeBwUp { cap.saturating_add(2 * self.mss) } else { cap }
    }

    /// Inflight (s5.6.4.2).
    pub(super) fn inflight(&self, bw: u64, gain: u64) -> u64 {
        self.quantization_budget(self.bdp(bw, gain))
    }

    /// SaveCwnd (s5.6.4.4): the last window that neither recovery nor ProbeRTT held down.
    pub(super) fn save_cwnd(&mut self) {
        let held_down = self.in_recovery || self.state == State::ProbeRtt;
        self.prior_cwnd = if held_down { self.prior_cwnd.max(self.cwnd) } else { self.cwnd };
    }

    /// RestoreCwnd (s5.6.4.4).
    pub(super) fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }

    pub(super) fn restrict_cwnd(&mut self, cwnd: u64) {
        self.cwnd = cwnd.clamp(self.mss, WINDOW_MAX);
    }

    /// SetCwnd (s5.6.4.6): down to the model at once, and up by what arrives.
    pub(super) fn set_cwnd(&mut self, step: &Step<'_>) {
        let max_inflight = self.quantization_budget(self.bdp(self.bw, self.cwnd_gain).saturating_add(self.extra_acked_max()));
        let grown = self.cwnd.saturating_add(step.ack.delivered);
        if self.full.reached {
            self.cwnd = grown.min(max_inflight);
        } else if self.cwnd < max_inflight || self.delivered < INITIAL_SEGMENTS * self.mss {
            self.cwnd = grown;
        }
        self.cwnd = self.cwnd.max(MIN_PIPE_SEGMENTS * self.mss);
        // BoundCwndForProbeRTT (s5.6.4.5).
        if self.state == State::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
        self.bound_cwnd_for_model();
    }

    /// BoundCwndForModel (s5.6.4.7).
    fn bound_cwnd_for_model(&mut self) {
        let cap = match self.state {
            State::ProbeBwDown | State::ProbeBwRefill | State::ProbeBwUp => self.inflight_longterm,
            State::ProbeRtt | State::ProbeBwCruise => self.inflight_with_headroom(),
            State::Startup | State::Drain => INFINITY,
        };
        let cap = cap.min(self.inflight_shortterm).max(MIN_PIPE_SEGMENTS * self.mss);
        self.restrict_cwnd(self.cwnd.min(cap));
    }
}
