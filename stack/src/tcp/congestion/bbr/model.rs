//! What the path is thought to be like.

use super::filter::ROUNDS;
use super::{BETA, Bbr, INFINITY, Step, scaled};
use crate::tcp::congestion::rate::bytes_in;

impl Bbr {
    /// UpdateRound (s5.5.1): a round trip ends when something is acknowledged that was sent after its beginning was.
    fn update_round(&mut self, step: &Step<'_>) {
        self.rounds.start = step.sample.prior_delivered >= self.rounds.next_delivered;
        if self.rounds.start {
            self.start_round();
            self.rounds.count = self.rounds.count.saturating_add(1);
            self.cycle.rounds_since_up = self.cycle.rounds_since_up.saturating_add(1);
        }
    }

    /// StartRound (s5.5.1).
    pub(super) fn start_round(&mut self) {
        self.rounds.next_delivered = self.delivered;
    }

    /// UpdateMaxBw (s5.5.5). s5.5.4: what the program limited counts only where it shows that the estimate is too low.
    fn update_max_bw(&mut self, step: &Step<'_>) {
        self.update_round(step);
        if step.rate > 0 && (step.rate >= self.max_bw.max() || !step.sample.app_limited) {
            self.max_bw.update(step.rate);
        }
    }

    /// UpdateLatestDeliverySignals (s5.5.10.3), near the start of an acknowledgment.
    pub(super) fn update_latest_delivery_signals(&mut self, step: &Step<'_>) {
        self.bw_latest = self.bw_latest.max(step.rate);
        self.inflight_latest = self.inflight_latest.max(step.sample.delivered);
        if step.sample.prior_delivered >= self.rounds.loss_delivered {
            self.rounds.loss_delivered = self.delivered;
            self.rounds.loss_start = true;
        }
    }

    /// AdvanceLatestDeliverySignals (s5.5.10.3), near the end.
    pub(super) fn advance_latest_delivery_signals(&mut self, step: &Step<'_>) {
        if self.rounds.loss_start {
            self.bw_latest = step.rate;
            self.inflight_latest = step.sample.delivered;
            self.rounds.loss_ranges = 0;
        }
    }

    /// ResetCongestionSignals (s5.5.10.3).
    pub(super) fn reset_congestion_signals(&mut self) {
        self.rounds.loss_in_round = false;
        (self.bw_latest, self.inflight_latest) = (0, 0);
    }

    /// UpdateCongestionSignals (s5.5.10.3): once a round trip, the model is adapted.
    pub(super) fn update_congestion_signals(&mut self, step: &Step<'_>) {
        self.update_max_bw(step);
        if self.rounds.loss_start {
            self.adapt_lower_bounds_from_congestion();
            self.rounds.loss_in_round = false;
        }
    }

    /// AdaptLowerBoundsFromCongestion (s5.5.10.3): after a round trip with a loss, the short-term model comes down to what was delivered in it, but by no
    /// more than BBR.Beta. Not while bandwidth is probed: then losses say what the long-term model can be.
    fn adapt_lower_bounds_from_congestion(&mut self) {
        if self.state.is_probing_bw() || !self.rounds.loss_in_round {
            return;
        }
        if self.bw_shortterm == INFINITY {
            self.bw_shortterm = self.max_bw.max();
        }
        if self.inflight_shortterm == INFINITY {
            self.inflight_shortterm = self.cwnd;
        }
        self.bw_shortterm = self.bw_latest.max(scaled(self.bw_shortterm, BETA));
        self.inflight_shortterm = self.inflight_latest.max(scaled(self.inflight_shortterm, BETA));
    }

    /// ResetShortTermModel (s5.5.10.3).
    pub(super) fn reset_short_term_model(&mut self) {
        (self.bw_shortterm, self.inflight_shortterm) = (INFINITY, INFINITY);
    }

    /// BoundBWForModel (s5.5.10.3).
    pub(super) fn bound_bw_for_model(&mut self) {
        self.bw = self.max_bw.max().min(self.bw_shortterm);
    }

    /// UpdateACKAggregation (s5.5.9): what is acknowledged beyond what the bandwidth explains, for which the window needs room.
    pub(super) fn update_ack_aggregation(&mut self, step: &Step<'_>) {
        let now = step.ack.now;
        let mut expected = bytes_in(self.bw, now.since(self.extra_acked_since));
        if self.extra_acked_delivered <= expected {
            (self.extra_acked_delivered, self.extra_acked_since, expected) = (0, now, 0);
        }
        self.extra_acked_delivered = self.extra_acked_delivered.saturating_add(step.ack.delivered);
        let extra = self.extra_acked_delivered.saturating_sub(expected).min(self.cwnd);
        self.extra_acked.update(self.rounds.count, extra);
    }

    /// BBR.extra_acked: the largest of a round trip in Startup, of ten later.
    pub(super) fn extra_acked_max(&self) -> u64 {
        self.extra_acked.max(if self.full.reached { ROUNDS } else { 1 })
    }
}
