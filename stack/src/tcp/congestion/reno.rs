//! NewReno (RFC 5681, RFC 6582) behind [`CongestionControl`].

use super::control::{Ack, Cause, Congestion, CongestionControl, Idle, Recovered, Sending, Timeout, Undo};
use super::resting::Resting;
use super::selection::Algorithm;
use super::window::{Reduction, Window};
use crate::mutants::Mutation;
use crate::tcp::fields::{Fields, SnapshotError};

/// The controller's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reno {
    window: Window,
}

impl Reno {
    /// A new connection's, for segments of `mss` bytes.
    pub fn new(mss: u64, reduction: Reduction) -> Self {
        Self { window: Window::new(mss, reduction) }
    }

    /// The same as a mutant.
    pub(super) fn of(self, mutation: Mutation) -> Self {
        Self { window: self.window.of(mutation) }
    }

    /// What it consists of, for a snapshot.
    pub(super) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        self.window.walk(fields)
    }

    /// As it was elsewhere, for segments of this one's size.
    pub(super) fn resume(&mut self, from: &Self) {
        self.window.resume(&from.window);
    }

    /// What lasts with nothing in flight.
    pub(super) fn resting(&self, mutation: Mutation) -> Resting {
        Resting::new(Algorithm::Reno, self.window.cwnd(), self.window.ssthresh(), self.window.mss(), mutation)
    }

    /// What another controller of the same connection has come to.
    pub(super) fn succeed(&mut self, cwnd: u64, ssthresh: Option<u64>) {
        self.window.succeed(cwnd, ssthresh);
    }
}

impl CongestionControl for Reno {
    fn name(&self) -> &'static str {
        "reno"
    }

    #[inline]
    fn cwnd(&self) -> u64 {
        self.window.limit()
    }

    fn ssthresh(&self) -> Option<u64> {
        self.window.ssthresh()
    }

    fn on_sending(&mut self, sending: &Sending) {
        self.window.on_sending(sending);
    }

    #[inline]
    fn on_ack(&mut self, ack: &Ack) {
        self.window.on_ack(ack);
        let worth = self.window.worth(ack);
        if worth == 0 || !self.window.is_used(ack) {
            return;
        }
        if self.window.in_slow_start() {
            self.window.slow_start(worth);
        } else {
            self.window.avoid(worth);
        }
    }

    fn on_congestion(&mut self, congestion: &Congestion) {
        // RFC 3168 s6.1.2: to a mark it reacts as to a loss, but that its window may become a single segment.
        let least = if congestion.cause == Cause::Ecn { 1 } else { 2 };
        self.window.reduce(congestion, congestion.flight / 2, least);
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.window.on_timeout(timeout, timeout.flight / 2);
    }

    fn on_recovered(&mut self, recovered: &Recovered) {
        self.window.on_recovered(recovered);
    }

    fn on_undo(&mut self, undo: &Undo) {
        self.window.undo(undo);
    }

    fn on_idle(&mut self, idle: &Idle) {
        self.window.on_idle(idle);
    }

    fn set_mss(&mut self, mss: u64) {
        self.window.set_mss(mss);
    }
}
