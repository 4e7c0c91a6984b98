//! CUBIC (RFC 9438): the window is a cubic function of the time since it was last reduced, and never less than NewReno's would be.
//!
//! In whole numbers, of bytes where the RFC has segments (s4.1: "Implementations can use bytes").

mod curve;

use core::time::Duration;

use super::control::{Ack, Cause, Congestion, CongestionControl, Idle, Phase, Recovered, Sending, Timeout, Undo, WINDOW_MAX};
use super::hystart::HyStart;
use super::resting::Resting;
use super::selection::Algorithm;
use super::window::{Reduction, Window};
use crate::mutants::Mutation;
use crate::tcp::fields::{Fields, SnapshotError};
use crate::time::Instant;
use curve::Curve;

/// s4.6: "The parameter β_cubic SHOULD be set to 0.7".
const BETA: (u64, u64) = (7, 10);
/// (1 + β) / 2, for fast convergence (s4.7).
const CONVERGENCE: (u64, u64) = (17, 20);
/// s4.3: α_cubic = 3 (1 - β) / (1 + β), which with β of 0.7 is 9/17.
const ALPHA: (u64, u64) = (9, 17);

/// A stage of congestion avoidance (s4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Epoch {
    curve: Curve,
    /// t: how long the stage has lasted, without the times in which the program limited it.
    elapsed: Duration,
    /// NewReno's window.
    w_est: u64,
    /// What [`Epoch::w_est`] would have grown by beyond whole bytes, as a numerator over the window and α's denominator.
    est_rest: u64,
    /// The same of the window itself, as a numerator over the window.
    rest: u64,
}

impl Epoch {
    fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { curve, elapsed, w_est, est_rest, rest } = self;
        curve.walk(fields)?;
        fields.duration(elapsed)?;
        fields.at_most(w_est, WINDOW_MAX)?;
        fields.long(est_rest)?;
        fields.long(rest)
    }
}

/// What a reduction changes (s4.9.2), to be put back if it was for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Before {
    cwnd_prior: u64,
    w_max: Option<u64>,
    epoch: Option<Epoch>,
}

impl Before {
    fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { cwnd_prior, w_max, epoch } = self;
        fields.at_most(cwnd_prior, WINDOW_MAX)?;
        fields.option(w_max, |fields, w_max| fields.at_most(w_max, WINDOW_MAX))?;
        fields.option(epoch, |fields, epoch| epoch.walk(fields))
    }
}

/// The controller's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubic {
    window: Window,
    /// While there is no threshold yet.
    hystart: Option<HyStart>,
    /// The window when it was last reduced, or less of it (s4.7). `None`: the next stage begins with K = 0 at the window as it is then.
    w_max: Option<u64>,
    /// The window when the threshold was last set.
    cwnd_prior: u64,
    epoch: Option<Epoch>,
    /// When the last acknowledgment came, or something was sent into an empty network.
    clock: Instant,
    before: Option<Box<Before>>,
}

impl Cubic {
    /// A new connection's, for segments of `mss` bytes.
    pub fn new(mss: u64, reduction: Reduction) -> Self {
        Self {
            window: Window::new(mss, reduction),
            // s4.10: "In general, CUBIC SHOULD use the HyStart++ slow start algorithm".
            hystart: Some(HyStart::new(false)),
            w_max: None,
            cwnd_prior: 0,
            epoch: None,
            clock: Instant::ZERO,
            before: None,
        }
    }

    /// The same as a mutant.
    pub(super) fn of(self, mutation: Mutation) -> Self {
        Self { window: self.window.of(mutation), ..self }
    }

    /// What it consists of, for a snapshot.
    pub(super) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { window, hystart, w_max, cwnd_prior, epoch, clock, before } = self;
        window.walk(fields)?;
        let mut known = hystart.take().map(Known);
        fields.option(&mut known, |fields, hystart| hystart.0.walk(fields))?;
        *hystart = known.map(|known| known.0);
        fields.option(w_max, |fields, w_max| fields.at_most(w_max, WINDOW_MAX))?;
        fields.at_most(cwnd_prior, WINDOW_MAX)?;
        fields.option(epoch, |fields, epoch| epoch.walk(fields))?;
        fields.instant(clock)?;
        fields.option(before, |fields, before| before.walk(fields))
    }

    /// As it was elsewhere, for segments of this one's size.
    pub(super) fn resume(&mut self, from: &Self) {
        let mut window = self.window.clone();
        window.resume(&from.window);
        *self = Self { window, ..from.clone() };
    }

    /// What lasts with nothing in flight.
    pub(super) fn resting(&self, mutation: Mutation) -> Resting {
        let mut resting = Resting::new(Algorithm::Cubic, self.window.cwnd(), self.window.ssthresh(), self.window.mss(), mutation);
        resting.w_max = self.w_max.unwrap_or(0).min(WINDOW_MAX) as u32;
        resting.cwnd_prior = self.cwnd_prior.min(WINDOW_MAX) as u32;
        resting
    }

    /// Goes on after a rest.
    pub(super) fn remember_rest(&mut self, resting: &Resting) {
        self.w_max = Some(u64::from(resting.w_max)).filter(|&w_max| w_max > 0);
        self.cwnd_prior = u64::from(resting.cwnd_prior);
    }

    /// What another controller of the same connection has come to.
    pub(super) fn succeed(&mut self, cwnd: u64, ssthresh: Option<u64>) {
        self.window.succeed(cwnd, ssthresh);
        self.hystart = self.hystart.take().filter(|_| ssthresh.is_none());
    }

    /// Something was acknowledged of a window that is too little used to grow: all that this is to it is that time has passed (s4.2).
    #[inline(always)]
    pub(super) fn on_unused(&mut self, now: Instant) {
        self.clock = self.clock.max(now);
    }

    /// s5.8: idle times are no part of t.
    #[inline(always)]
    pub(super) fn on_fresh(&mut self, now: Instant) {
        self.clock = self.clock.max(now);
    }

    /// s4.10: "CUBIC MUST employ a slow-start algorithm, when cwnd is no more than ssthresh."
    fn slow_start(&mut self, ack: &Ack, worth: u64) {
        let Some(hystart) = &mut self.hystart else { return self.window.slow_start(worth) };
        let growth = hystart.on_ack(ack, worth, self.window.mss());
        self.window.slow_start(growth.bytes);
        if growth.over {
            // s4.10: nothing was lost, so that W_max is undefined: "In this special case, CUBIC sets cwnd_prior = cwnd".
            self.window.leave_slow_start();
            self.cwnd_prior = self.window.cwnd();
            self.hystart = None;
        }
    }

    fn avoid(&mut self, ack: &Ack, worth: u64) {
        // (No window has more, and so the products below fit: 30 bits of it, 16 of a segment.)
        let worth = worth.min(WINDOW_MAX);
        let (cwnd, mss) = (self.window.cwnd(), self.window.mss());
        let epoch = match &mut self.epoch {
            Some(epoch) => {
                // s4.2: "The elapsed time t MUST NOT include periods during which cwnd has not been updated due to application-limited behavior": this
                // adds up what lies between acknowledgments of a used window.
                epoch.elapsed = epoch.elapsed.saturating_add(ack.now.since(self.clock));
                epoch
            }
            None => {
                let curve = Curve::new(self.w_max.unwrap_or(cwnd), cwnd, mss);
                // s4.3: "W_est is set equal to cwnd_epoch at the start of the congestion avoidance stage."
                self.epoch.insert(Epoch { curve, elapsed: Duration::ZERO, w_est: cwnd, est_rest: 0, rest: 0 })
            }
        };
        // s4.3, equation 4. "Once W_est has grown to reach [...] cwnd_prior, the sender SHOULD set α_cubic to 1".
        let alpha = if epoch.w_est >= self.cwnd_prior { (1, 1) } else { ALPHA };
        let over = cwnd * ALPHA.1;
        let est_rest = epoch.est_rest.min(over) + worth * mss * alpha.0 * (ALPHA.1 / alpha.1);
        epoch.w_est = (epoch.w_est + est_rest / over).min(WINDOW_MAX);
        epoch.est_rest = est_rest % over;
        // s4.3: below NewReno's, the window SHOULD be NewReno's. (But it does not shrink, which only congestion may ask for.)
        if epoch.curve.at(epoch.elapsed, mss) < epoch.w_est {
            let w_est = epoch.w_est;
            return self.window.set_cwnd(cwnd.max(w_est));
        }
        // s4.2: the target is where the curve is a round trip later, within what makes the window neither shrink nor grow faster than in slow start.
        let target = epoch.curve.at(epoch.elapsed.saturating_add(ack.srtt), mss).clamp(cwnd, cwnd + cwnd / 2);
        // s4.4 and s4.5: in both regions it MUST grow by (target - cwnd) / cwnd for each segment that is acknowledged.
        let rest = epoch.rest.min(cwnd) + (target - cwnd) * worth;
        let grown = rest / cwnd;
        epoch.rest = rest % cwnd;
        // One acknowledgment of many segments goes no further than all of them would have.
        self.window.set_cwnd(cwnd.saturating_add(grown).min(target));
    }

    /// What a reduction of either kind does before the window is touched.
    fn remember(&mut self) {
        let cwnd = self.window.cwnd();
        self.before = Some(Box::new(Before { cwnd_prior: self.cwnd_prior, w_max: self.w_max, epoch: self.epoch }));
        self.cwnd_prior = cwnd;
        self.epoch = None;
        self.hystart = None;
    }
}

/// What is read in begins as a new connection's.
struct Known(HyStart);

impl Default for Known {
    fn default() -> Self {
        Self(HyStart::new(false))
    }
}

/// `bytes` by a fraction.
fn part(bytes: u64, (numerator, denominator): (u64, u64)) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(numerator) / u128::from(denominator)).unwrap_or(u64::MAX)
}

impl CongestionControl for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
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
        if sending.in_flight == 0 {
            self.on_fresh(sending.now);
        }
    }

    #[inline]
    fn on_ack(&mut self, ack: &Ack) {
        self.window.on_ack(ack);
        let worth = self.window.worth(ack);
        // s5.8: "CUBIC does not increase its congestion window if a flow is application-limited."
        if worth > 0 && self.window.is_used(ack) {
            if self.window.in_slow_start() {
                self.slow_start(ack, worth);
            } else {
                self.avoid(ack, worth);
            }
        }
        self.clock = self.clock.max(ack.now);
    }

    /// s4.6: "In case of packet loss, the sender MUST reduce cwnd and ssthresh immediately upon entering loss recovery"; [`super::Prr`] then spreads
    /// what that means for sending over a round trip, as it allows.
    fn on_congestion(&mut self, congestion: &Congestion) {
        let cwnd = self.window.cwnd();
        self.remember();
        // s4.7: fast convergence, which SHOULD be: who reaches less than the last time leaves room for who is new. (Where a flow is alone it SHOULD NOT be;
        // nothing tells a flow that it is.)
        let less = self.w_max.is_some_and(|w_max| cwnd < w_max);
        self.w_max = Some(if less { part(cwnd, CONVERGENCE) } else { cwnd });
        // s4.6: at least two segments; to a mark "CUBIC MUST continue to reduce cwnd [...] until it reaches a value of 1 MSS".
        let least = if congestion.cause == Cause::Ecn { 1 } else { 2 };
        self.window.reduce(congestion, part(congestion.flight, BETA), least);
    }

    /// s4.8: as NewReno, but with β_cubic. In the stage after it, K is 0, and W_max the window at its beginning.
    fn on_timeout(&mut self, timeout: &Timeout) {
        if timeout.first {
            self.remember();
        }
        (self.epoch, self.hystart, self.w_max) = (None, None, None);
        self.window.on_timeout(timeout, part(timeout.flight, BETA));
    }

    fn on_recovered(&mut self, recovered: &Recovered) {
        self.window.on_recovered(recovered);
    }

    /// s4.9: a reduction for nothing. "In rare cases, when the detection happens long after [...] and the current cwnd is already higher than
    /// cwnd_prior, CUBIC SHOULD continue to use the current and the most recent values".
    fn on_undo(&mut self, undo: &Undo) {
        let Some(before) = self.before.take() else { return };
        if self.window.cwnd() >= self.cwnd_prior {
            return;
        }
        self.window.undo(undo);
        (self.cwnd_prior, self.w_max, self.epoch) = (before.cwnd_prior, before.w_max, before.epoch);
        if undo.phase == Phase::Loss {
            // The window starts slowly up to where it was (RFC 4015): the curve begins there.
            self.epoch = None;
        }
        self.clock = self.clock.max(undo.now);
    }

    fn on_idle(&mut self, idle: &Idle) {
        self.window.on_idle(idle);
        // The window is not where the curve is: a new stage begins.
        self.epoch = None;
    }

    fn set_mss(&mut self, mss: u64) {
        self.window.set_mss(mss);
    }
}

#[cfg(test)]
mod tests;
