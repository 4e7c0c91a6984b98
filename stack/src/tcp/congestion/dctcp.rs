//! DCTCP (RFC 8257): the window shrinks by as much as there are marks. For networks whose switches mark early, and where all others do the same: it
//! "must not be deployed over the public Internet without additional measures" (its abstract). The receiver's part (s3.2) is `connection/ecn.rs`'s.

use super::control::{Ack, Cause, Congestion, CongestionControl, Idle, Recovered, Sending, Timeout, Undo};
use super::window::{Reduction, Window};
use crate::mutants::Mutation;
use crate::tcp::fields::{Fields, SnapshotError};

/// One, as a share of marked bytes.
const ONE: u64 = 1 << 20;
/// The weight of a new window in the estimate, as a shift: g = 1/16, which s4.2 has from \[DCTCP10\].
const GAIN_SHIFT: u32 = 4;

/// The sender's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dctcp {
    window: Window,
    /// DCTCP.Alpha: the share of bytes that are marked, of [`ONE`].
    alpha: u64,
    /// DCTCP.WindowEnd: the window of observation ends when more than this is acknowledged.
    window_end: u64,
    acked: u64,
    marked: u64,
}

impl Dctcp {
    /// A new connection's, for segments of `mss` bytes. s3.3: the estimate begins with 1, so that the first mark halves the window.
    pub fn new(mss: u64, reduction: Reduction) -> Self {
        Self { window: Window::new(mss, reduction), alpha: ONE, window_end: 0, acked: 0, marked: 0 }
    }

    /// The same as a mutant.
    pub(super) fn of(self, mutation: Mutation) -> Self {
        Self { window: self.window.of(mutation), ..self }
    }

    /// What it consists of, for a snapshot.
    pub(super) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { window, alpha, window_end, acked, marked } = self;
        window.walk(fields)?;
        fields.at_most(alpha, ONE)?;
        for count in [window_end, acked, marked] {
            fields.long(count)?;
        }
        Ok(())
    }

    /// As it was elsewhere, for segments of this one's size.
    pub(super) fn resume(&mut self, from: &Self) {
        let mut window = self.window.clone();
        window.resume(&from.window);
        *self = Self { window, ..from.clone() };
    }

    /// What another controller of the same connection has come to.
    pub(super) fn succeed(&mut self, cwnd: u64, ssthresh: Option<u64>) {
        self.window.succeed(cwnd, ssthresh);
    }

    /// The estimated share of marked bytes, in parts of 1,048,576.
    pub fn alpha(&self) -> u64 {
        self.alpha
    }

    /// s3.3, steps 1 to 8.
    fn observe(&mut self, ack: &Ack) {
        // "TCP Selective Acknowledgment (SACK) options are ignored for this computation".
        self.acked = self.acked.saturating_add(ack.acked);
        self.marked = self.marked.saturating_add(ack.ce_bytes.min(ack.acked));
        if ack.una <= self.window_end || self.acked == 0 {
            return;
        }
        let share = u128::from(self.marked.min(self.acked)) * u128::from(ONE) / u128::from(self.acked);
        let share = u64::try_from(share).unwrap_or(ONE);
        // Alpha = Alpha (1 - g) + g M, rounded so that without marks it comes down to nothing.
        self.alpha = self.alpha - self.alpha.div_ceil(1 << GAIN_SHIFT) + (share >> GAIN_SHIFT);
        self.window_end = ack.nxt;
        (self.acked, self.marked) = (0, 0);
    }
}

impl CongestionControl for Dctcp {
    fn name(&self) -> &'static str {
        "dctcp"
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

    /// s3.4: "A DCTCP sender grows its congestion window in the same way as conventional TCP."
    fn on_ack(&mut self, ack: &Ack) {
        self.observe(ack);
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
        match congestion.cause {
            // s3.3, step 9: "the sender SHOULD update cwnd as follows: cwnd = cwnd * (1 - DCTCP.Alpha / 2)", not more than once a window.
            Cause::Ecn => {
                let cwnd = self.window.cwnd();
                let cut = u128::from(cwnd) * u128::from(self.alpha) / u128::from(2 * ONE);
                self.window.reduce(congestion, cwnd.saturating_sub(u64::try_from(cut).unwrap_or(cwnd)), 1);
            }
            // s3.5: "A DCTCP sender MUST react to loss episodes in the same way as conventional TCP".
            Cause::Loss => self.window.reduce(congestion, congestion.flight / 2, 2),
        }
    }

    /// s3.5: "upon a timeout, the cwnd MUST be set to no more than the loss window [...], regardless of previous cwnd reductions".
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
