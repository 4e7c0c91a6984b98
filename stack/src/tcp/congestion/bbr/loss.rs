//! What losses and marks do to the model, and how it is undone.

use super::{BETA, Bbr, LOSS_THRESH_ONE_IN, State, scaled};
use crate::tcp::congestion::control::{Congestion, Lost};
use crate::tcp::congestion::rate::RateSample;
use crate::time::Instant;

impl Bbr {
    /// IsInflightTooHigh (s5.5.10.2): more than BBR.LossThresh was lost of what was in flight; without SACK, any loss.
    pub(super) fn is_inflight_too_high(&self, lost: u64, tx_in_flight: u64) -> bool {
        u128::from(lost) * u128::from(LOSS_THRESH_ONE_IN) > u128::from(tx_in_flight) || (lost > 0 && !self.sack)
    }

    /// HandleLostPacket (s5.5.10.2). Losses are often found long after they happened: what was in flight when the lost segment was sent is what counts, not
    /// when the one was that showed it.
    pub(super) fn handle_lost_packet(&mut self, lost: &Lost) {
        self.delivered = self.delivered.max(lost.delivered_total);
        self.note_loss();
        if self.rounds.loss_ranges == 0 || lost.offset != self.rounds.loss_end {
            self.rounds.loss_ranges = self.rounds.loss_ranges.saturating_add(1);
        }
        self.rounds.loss_end = lost.offset.saturating_add(lost.bytes);
        if !self.cycle.is_bw_probe_sample {
            return;
        }
        let since = lost.lost_total.saturating_sub(lost.sent.lost);
        if self.is_inflight_too_high(since, lost.sent.tx_in_flight) {
            let safe = inflight_at_loss(lost.sent.tx_in_flight, since, lost.bytes);
            self.handle_inflight_too_high(lost.now, safe, lost.sent.app_limited);
        }
    }

    /// NoteLoss (s5.5.10.2).
    fn note_loss(&mut self) {
        if !self.rounds.loss_in_round {
            self.rounds.loss_delivered = self.delivered;
            self.save_state_upon_loss();
        }
        self.rounds.loss_in_round = true;
    }

    /// HandleInflightTooHigh (s5.5.10.2): once a probe.
    fn handle_inflight_too_high(&mut self, now: Instant, tx_in_flight: u64, app_limited: bool) {
        self.cycle.prev_too_high = true;
        self.cycle.is_bw_probe_sample = false;
        if !app_limited {
            self.inflight_longterm = tx_in_flight.max(scaled(self.target_inflight(), BETA));
        }
        if self.state == State::ProbeBwUp {
            self.saved.state = Some(State::ProbeBwUp);
            self.start_probe_bw_down(now);
        }
    }

    /// s3.7: marks "MUST" count as congestion. All that is told is that there were some in this window; while bandwidth is probed that is as good as a loss
    /// rate beyond the threshold.
    pub(super) fn handle_mark(&mut self, congestion: &Congestion) {
        self.note_loss();
        if self.state == State::Startup {
            self.leave_startup_by_congestion();
        } else if self.cycle.is_bw_probe_sample {
            self.handle_inflight_too_high(congestion.now, congestion.flight.saturating_sub(congestion.sacked), false);
        }
    }

    /// The same with an acknowledgment's own sample, by which the long-term model is not raised.
    pub(super) fn sample_is_too_high(&self, sample: &RateSample) -> bool {
        self.is_inflight_too_high(sample.lost, sample.tx_in_flight)
    }

    /// SaveStateUponLoss (s5.5.11.1).
    pub(super) fn save_state_upon_loss(&mut self) {
        self.save_cwnd();
        self.saved.state = None;
        self.saved.bw_shortterm = self.bw_shortterm;
        self.saved.inflight_shortterm = self.inflight_shortterm;
        self.saved.inflight_longterm = self.inflight_longterm;
    }

    /// HandleSpuriousLossDetection (s5.5.11.2): the model is at least what it was, and a probe that the loss ended begins again.
    pub(super) fn handle_spurious_loss_detection(&mut self) {
        self.restore_cwnd();
        self.rounds.loss_in_round = false;
        self.reset_full_bw();
        self.bw_shortterm = self.bw_shortterm.max(self.saved.bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(self.saved.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(self.saved.inflight_longterm);
        match self.saved.state.take() {
            Some(State::Startup) if self.state != State::Startup => {
                self.full.reached = false;
                if self.state != State::ProbeRtt {
                    self.enter_startup();
                }
            }
            Some(State::ProbeBwUp) if !matches!(self.state, State::ProbeBwUp | State::ProbeRtt) => self.start_probe_bw_refill(),
            _ => {}
        }
    }
}

/// InflightAtLoss (s5.5.10.2): with how much in flight the share of losses passed BBR.LossThresh. The lost "segment" of `size` may be a burst, of which
/// a part fitted: lost_prefix = (LossThresh inflight_prev - lost_prev) / (1 - LossThresh).
pub(super) fn inflight_at_loss(tx_in_flight: u64, lost: u64, size: u64) -> u64 {
    let inflight_prev = tx_in_flight.saturating_sub(size);
    let lost_prev = lost.saturating_sub(size);
    let allowed = u128::from(inflight_prev);
    let beyond = allowed.saturating_sub(u128::from(lost_prev) * u128::from(LOSS_THRESH_ONE_IN));
    let prefix = u64::try_from(beyond / u128::from(LOSS_THRESH_ONE_IN - 1)).unwrap_or(u64::MAX);
    inflight_prev.saturating_add(prefix)
}
