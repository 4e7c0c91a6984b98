//! The shortest round trip, and the state in which it is looked for.

use core::time::Duration;

use super::{AckPhase, Bbr, MIN_PIPE_SEGMENTS, State, Step};
use crate::time::Instant;

/// BBR.MinRTTFilterLen (s2.16.1).
const MIN_RTT_FILTER_LEN: Duration = Duration::from_secs(10);
/// BBR.ProbeRTTInterval (s2.16.2). s5.3.4.2: "each BBR flow MUST use the standard BBR.ProbeRTTInterval of 5 secs".
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
/// BBR.ProbeRTTDuration (s2.16.2).
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
/// BBR.ProbeRTTCwndGain (s2.16.2).
const PROBE_RTT_CWND_GAIN: u64 = 50;

impl Bbr {
    /// UpdateMinRTT (s5.3.4.3).
    pub(super) fn update_min_rtt(&mut self, step: &Step<'_>) {
        let now = step.ack.now;
        let probe = &mut self.rtt;
        probe.expired = now.since(probe.min_delay_at) > PROBE_RTT_INTERVAL;
        if let Some(rtt) = step.ack.rtt
            && (rtt < probe.min_delay || probe.expired)
        {
            (probe.min_delay, probe.min_delay_at) = (rtt.max(Duration::from_nanos(1)), now);
        }
        let old = now.since(probe.min_rtt_at) > MIN_RTT_FILTER_LEN;
        if probe.min_delay < probe.min_rtt || old {
            (probe.min_rtt, probe.min_rtt_at) = (probe.min_delay, probe.min_delay_at);
        }
    }

    /// CheckProbeRTT (s5.3.4.3).
    pub(super) fn check_probe_rtt(&mut self, step: &Step<'_>) {
        if self.state != State::ProbeRtt && self.rtt.expired && !self.idle_restart {
            self.enter_probe_rtt();
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(step);
        }
        if step.sample.delivered > 0 {
            self.idle_restart = false;
        }
    }

    /// EnterProbeRTT (s5.3.4.3).
    fn enter_probe_rtt(&mut self) {
        self.save_cwnd();
        self.state = State::ProbeRtt;
        (self.pacing_gain, self.cwnd_gain) = (100, PROBE_RTT_CWND_GAIN);
        self.rtt.done_at = None;
        self.cycle.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
    }

    /// HandleProbeRTT (s5.3.4.3): from when the window is reached, at least BBR.ProbeRTTDuration and a round trip.
    fn handle_probe_rtt(&mut self, step: &Step<'_>) {
        let now = step.ack.now;
        if self.rtt.done_at.is_some() {
            self.rtt.round_done |= self.rounds.start;
            if self.rtt.round_done {
                self.check_probe_rtt_done(now);
            }
        } else if step.ack.in_flight <= self.probe_rtt_cwnd() {
            self.rtt.done_at = Some(now + PROBE_RTT_DURATION);
            self.rtt.round_done = false;
            self.start_round();
        }
    }

    /// CheckProbeRTTDone (s5.3.4.3).
    fn check_probe_rtt_done(&mut self, now: Instant) {
        if self.rtt.done_at.is_some_and(|done_at| now > done_at) {
            self.rtt.min_delay_at = now;
            self.restore_cwnd();
            self.exit_probe_rtt(now);
        }
    }

    /// ExitProbeRTT (s5.3.4.4).
    fn exit_probe_rtt(&mut self, now: Instant) {
        self.reset_short_term_model();
        if self.full.reached {
            self.start_probe_bw_down(now);
            self.start_probe_bw_cruise();
        } else {
            self.enter_startup();
        }
    }

    /// ProbeRTTCwnd (s5.6.4.5).
    pub(super) fn probe_rtt_cwnd(&self) -> u64 {
        self.bdp(self.bw, PROBE_RTT_CWND_GAIN).max(MIN_PIPE_SEGMENTS * self.mss)
    }

    /// HandleRestartFromIdle (s5.4.1): nothing is in flight, since the program sent nothing.
    pub(super) fn restart_from_idle(&mut self, now: Instant) {
        self.idle_restart = true;
        self.extra_acked_since = now;
        if self.state.is_probe_bw() {
            self.set_pacing_rate_with_gain(100);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(now);
        }
    }
}
