//! The controller of a connection on which nothing happens, or that is not one yet: what lasts beyond a pause.

use super::control::{Ack, Congestion, CongestionControl, INITIAL_SEGMENTS, Idle, MSS_MAX, Recovered, Timeout, Undo, WINDOW_MAX};
use super::selection::Algorithm;
use crate::mutants::{Mutant, Mutation};

/// No threshold.
const UNKNOWN: u32 = u32::MAX;

/// What a window-based controller comes to with nothing in flight. It is told nothing but the segments' size: whoever sends begins the controller anew, and has it
/// go on from here. (Slow start's rounds and the curve's time begin anew as well: RFC 9406 s4.2 and RFC 9438 s5.8 measure them while the window is used.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resting {
    cwnd: u32,
    ssthresh: u32,
    mss: u32,
    /// CUBIC's: see [`super::Cubic`].
    pub(super) w_max: u32,
    pub(super) cwnd_prior: u32,
    pub(super) algorithm: Algorithm,
    mutation: Mutation,
}

impl Resting {
    /// A window of `cwnd` bytes and a threshold, for segments of `mss` bytes.
    pub(super) fn new(algorithm: Algorithm, cwnd: u64, ssthresh: Option<u64>, mss: u64, mutation: Mutation) -> Self {
        let ssthresh = ssthresh.map_or(UNKNOWN, |ssthresh| ssthresh.min(WINDOW_MAX) as u32);
        Self {
            cwnd: cwnd.min(WINDOW_MAX) as u32,
            ssthresh,
            mss: mss.clamp(1, MSS_MAX) as u32,
            w_max: 0,
            cwnd_prior: 0,
            algorithm,
            mutation,
        }
    }

    /// Before anything is sent.
    pub(super) fn initial(algorithm: Algorithm, mss: u64, mutation: Mutation) -> Self {
        let mss = mss.clamp(1, MSS_MAX);
        Self::new(algorithm, INITIAL_SEGMENTS * mss, None, mss, mutation)
    }
}

impl CongestionControl for Resting {
    fn name(&self) -> &'static str {
        self.algorithm.name()
    }

    #[inline]
    fn cwnd(&self) -> u64 {
        u64::from(self.cwnd)
    }

    fn ssthresh(&self) -> Option<u64> {
        (self.ssthresh != UNKNOWN).then_some(u64::from(self.ssthresh))
    }

    fn on_ack(&mut self, _ack: &Ack) {}

    fn on_congestion(&mut self, _congestion: &Congestion) {}

    fn on_timeout(&mut self, _timeout: &Timeout) {}

    fn on_recovered(&mut self, _recovered: &Recovered) {}

    fn on_undo(&mut self, _undo: &Undo) {}

    fn on_idle(&mut self, _idle: &Idle) {}

    fn set_mss(&mut self, mss: u64) {
        let mss = mss.clamp(1, MSS_MAX) as u32;
        let initial = INITIAL_SEGMENTS as u32;
        if self.cwnd == initial * self.mss || self.mutation.is(Mutant::OptionsRefreshCwnd) {
            self.cwnd = initial * mss;
        }
        self.mss = mss;
        self.cwnd = self.cwnd.max(mss);
    }
}
