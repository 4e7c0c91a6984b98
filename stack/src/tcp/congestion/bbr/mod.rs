//! BBRv3 (draft-ietf-ccwg-bbr, as of August 2026: what is cited as "s5.3" and so on are its sections, and names of functions are its own in
//! Rust's spelling): a model of the path, of its bandwidth, round trip and room for data, and a state machine that tries the model's bounds one
//! after the other.
//!
//! - `model`: what the path is thought to be like, from what acknowledgments tell (s5.5.1 to s5.5.9)
//! - `loss`: what losses, marks and their undoing do to it (s5.5.10, s5.5.11)
//! - `startup`: Startup and Drain (s5.3.1, s5.3.2)
//! - `probe_bw`: the cycle of DOWN, CRUISE, REFILL and UP (s5.3.3)
//! - `probe_rtt`: the shortest round trip, and ProbeRTT (s5.3.4)
//! - `output`: pacing rate, quantum and window (s5.6)
//! - `state`: what a flow keeps
//!
//! Fractions are percentages, "infinite" is the largest number. What the draft leaves open, or is done otherwise:
//!
//! - Marks: s3.7 has no response of its own, but that it "MUST treat any CE marks as congestion". One window's marks count as one loss, and, in
//!   Startup and while bandwidth is probed, as too much in flight.
//! - A cycle of ProbeBW without any sample of a rate does not forget the last bandwidth that was known.
//! - The pacing rate is never below a segment a second, so that a path that seemed dead is tried again.

mod filter;
mod loss;
mod model;
mod output;
mod probe_bw;
mod probe_rtt;
mod startup;
mod state;

use core::time::Duration;

use super::control::{Ack, Cause, Congestion, CongestionControl, INITIAL_SEGMENTS, Idle, Lost, MSS_MAX, Recovered, Sending, Timeout, Undo};
use super::rate::RateSample;
use crate::time::Instant;
use filter::{RoundMax, TwoSlots};
use state::{AckPhase, Cycle, FullPipe, Rounds, RttProbe, Saved};
pub use state::{Info, State};

const INFINITY: u64 = u64::MAX;

/// BBR.LossThresh is 2% (s2.8): one in so many.
const LOSS_THRESH_ONE_IN: u64 = 50;
/// BBR.Beta (s2.8).
const BETA: u64 = 70;
/// BBR.Headroom (s2.8).
const HEADROOM: u64 = 15;
/// BBR.MinPipeCwnd in segments (s2.8).
const MIN_PIPE_SEGMENTS: u64 = 4;
/// BBR.DefaultCwndGain (s2.6).
const DEFAULT_CWND_GAIN: u64 = 200;

/// The controller's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bbr {
    mss: u64,
    sack: bool,
    /// The state of the generator for the times between probes (splitmix64).
    chance: u64,

    state: State,
    pacing_gain: u64,
    cwnd_gain: u64,
    drain_start_round: u64,
    idle_restart: bool,
    in_recovery: bool,

    /// C.delivered.
    delivered: u64,
    rounds: Rounds,
    max_bw: TwoSlots,
    bw: u64,
    bw_shortterm: u64,
    inflight_longterm: u64,
    inflight_shortterm: u64,
    /// The largest rate and volume of a round trip (s2.10).
    bw_latest: u64,
    inflight_latest: u64,
    extra_acked: RoundMax,
    extra_acked_since: Instant,
    extra_acked_delivered: u64,
    full: FullPipe,
    cycle: Cycle,
    saved: Saved,
    rtt: RttProbe,

    cwnd: u64,
    prior_cwnd: u64,
    pacing_rate: u64,
    send_quantum: u64,
    rtt_known: bool,
}

/// An acknowledgment while it is worked in.
#[derive(Clone, Copy)]
struct Step<'a> {
    ack: &'a Ack,
    sample: RateSample,
    /// RS.delivery_rate.
    rate: u64,
}

/// `value` by `percent`.
fn scaled(value: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

impl Bbr {
    /// A new connection's, for segments of `mss` bytes. `sack`: the peer reports what it has by SACK, without which BBR sees far less (s4.1.3.5.1).
    /// `srtt`: the handshake's round trip, if it was measured. `seed` is chance: flows that share a bottleneck must not share it. (OnInit, s5.2.1.)
    pub fn new(now: Instant, mss: u64, sack: bool, srtt: Option<Duration>, seed: u64) -> Self {
        let mss = mss.clamp(1, MSS_MAX);
        let min_rtt = srtt.filter(|srtt| !srtt.is_zero()).unwrap_or(Duration::MAX);
        let mut bbr = Self {
            mss,
            sack,
            chance: seed,
            state: State::Startup,
            pacing_gain: startup::PACING_GAIN,
            cwnd_gain: DEFAULT_CWND_GAIN,
            drain_start_round: 0,
            idle_restart: false,
            in_recovery: false,
            delivered: 0,
            rounds: Rounds::default(),
            max_bw: TwoSlots::default(),
            bw: 0,
            bw_shortterm: INFINITY,
            inflight_longterm: INFINITY,
            inflight_shortterm: INFINITY,
            bw_latest: 0,
            inflight_latest: 0,
            extra_acked: RoundMax::default(),
            extra_acked_since: now,
            extra_acked_delivered: 0,
            full: FullPipe::default(),
            cycle: Cycle::new(now),
            saved: Saved::default(),
            rtt: RttProbe {
                min_rtt,
                min_rtt_at: now,
                min_delay: min_rtt,
                min_delay_at: now,
                expired: false,
                done_at: None,
                round_done: false,
            },
            cwnd: INITIAL_SEGMENTS * mss,
            prior_cwnd: 0,
            pacing_rate: 0,
            send_quantum: 2 * mss,
            rtt_known: min_rtt != Duration::MAX,
        };
        bbr.init_pacing_rate();
        bbr.set_send_quantum();
        bbr
    }

    /// The window that another controller of the same connection has come to.
    pub(super) fn succeed(&mut self, cwnd: u64) {
        self.restrict_cwnd(cwnd);
    }

    /// What the model says.
    pub fn info(&self) -> Info {
        let finite = |value| (value != INFINITY).then_some(value);
        Info {
            state: self.state,
            max_bw: self.max_bw.max(),
            bw: self.bw,
            min_rtt: (self.rtt.min_rtt != Duration::MAX).then_some(self.rtt.min_rtt),
            inflight_longterm: finite(self.inflight_longterm),
            inflight_shortterm: finite(self.inflight_shortterm),
            extra_acked: self.extra_acked_max(),
            pacing_gain: self.pacing_gain,
            cwnd_gain: self.cwnd_gain,
            full_bw_reached: self.full.reached,
        }
    }

    /// UpdateModelAndState (s5.2.3). Where the acknowledgment reports nothing there is no sample of a rate: only time has passed.
    fn update_model_and_state(&mut self, step: &Step<'_>) {
        (self.rounds.start, self.rounds.loss_start) = (false, false);
        if step.ack.rate.is_some() {
            self.update_latest_delivery_signals(step);
            self.update_congestion_signals(step);
            self.update_ack_aggregation(step);
            self.check_full_bw_reached(step);
            self.check_startup_done(step);
            self.check_drain_done(step);
            self.update_probe_bw_cycle_phase(step);
        }
        self.update_min_rtt(step);
        self.check_probe_rtt(step);
        self.advance_latest_delivery_signals(step);
        self.bound_bw_for_model();
    }

    /// Sixty-four bits of chance.
    fn draw(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.chance;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

impl CongestionControl for Bbr {
    fn name(&self) -> &'static str {
        "bbr"
    }

    #[inline]
    fn cwnd(&self) -> u64 {
        self.cwnd
    }

    fn ssthresh(&self) -> Option<u64> {
        None
    }

    #[inline]
    fn pacing_rate(&self) -> Option<u64> {
        Some(self.pacing_rate)
    }

    fn send_quantum(&self) -> Option<u64> {
        Some(self.send_quantum)
    }

    /// s5.3.4.3: "Ignore low rate samples during ProbeRTT".
    fn holds_back(&self) -> bool {
        self.state == State::ProbeRtt
    }

    /// OnTransmit (s5.2.2).
    fn on_sending(&mut self, sending: &Sending) {
        if sending.in_flight == 0 && sending.app_limited {
            self.restart_from_idle(sending.now);
        }
    }

    /// UpdateOnACK (s5.2.3).
    fn on_ack(&mut self, ack: &Ack) {
        let sample = ack.rate.unwrap_or_default();
        let step = Step { ack, sample, rate: sample.rate() };
        self.delivered = self.delivered.max(ack.delivered_total);
        self.update_model_and_state(&step);
        self.set_pacing_rate(ack.rtt);
        self.set_send_quantum();
        self.set_cwnd(&step);
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.handle_lost_packet(lost);
    }

    /// OnEnterFastRecovery (s5.6.4.4).
    fn on_congestion(&mut self, congestion: &Congestion) {
        self.save_state_upon_loss();
        self.in_recovery = true;
        if congestion.cause == Cause::Ecn {
            self.handle_mark(congestion);
        }
    }

    /// OnEnterRTO (s5.6.4.4): the window lets one segment go.
    fn on_timeout(&mut self, timeout: &Timeout) {
        self.save_state_upon_loss();
        self.in_recovery = true;
        self.restrict_cwnd(timeout.in_flight.saturating_add(self.mss));
    }

    /// s5.6.4.4: "When BBR exits loss recovery it restores C.cwnd to the last known good value"; the acknowledgment then bounds it by the model.
    fn on_recovered(&mut self, _recovered: &Recovered) {
        self.in_recovery = false;
        self.restore_cwnd();
    }

    fn on_undo(&mut self, _undo: &Undo) {
        self.in_recovery = false;
        self.handle_spurious_loss_detection();
    }

    /// s5.4.1: restarting from idle, "BBR leaves C.cwnd as-is and paces packets at exactly BBR.bw"; [`CongestionControl::on_sending`] sees to it.
    fn on_idle(&mut self, _idle: &Idle) {}

    fn set_mss(&mut self, mss: u64) {
        let mss = mss.clamp(1, MSS_MAX);
        if self.cwnd == INITIAL_SEGMENTS * self.mss {
            self.cwnd = INITIAL_SEGMENTS * mss;
        }
        self.mss = mss;
        self.cwnd = self.cwnd.max(mss);
        self.set_send_quantum();
    }
}

#[cfg(test)]
mod tests;
