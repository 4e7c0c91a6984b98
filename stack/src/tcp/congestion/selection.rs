//! Which controller: by its name in TCP_CONGESTION, or by its number in VMA_TCP_CC_ALGO.

use core::time::Duration;

use super::bbr::Bbr;
use super::control::{Ack, Congestion, CongestionControl, Idle, Lost, Recovered, Sending, Timeout, Undo, WINDOW_MAX};
use super::cubic::Cubic;
use super::dctcp::Dctcp;
use super::reno::Reno;
use super::resting::Resting;
use super::window::Reduction;
use crate::mutants::Mutation;
use crate::tcp::Config;
use crate::tcp::fields::{Fields, SnapshotError};
use crate::time::Instant;

/// The controllers that there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// NewReno (RFC 5681, RFC 6582).
    Reno,
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// DCTCP (RFC 8257).
    Dctcp,
    /// BBRv3 (draft-ietf-ccwg-bbr).
    Bbr,
}

/// What a controller needs to begin with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beginning {
    /// When.
    pub now: Instant,
    /// The segment size.
    pub mss: u64,
    /// The peer reports what it has by SACK.
    pub sack: bool,
    /// The handshake's round trip, if it was measured.
    pub srtt: Option<Duration>,
    /// Chance, another one for each connection.
    pub seed: u64,
    /// How window-based controllers come down.
    pub reduction: Reduction,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Reno, Self::Cubic, Self::Dctcp, Self::Bbr];

    /// The name in TCP_CONGESTION, as Linux has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Dctcp => "dctcp",
            Self::Bbr => "bbr",
        }
    }

    /// The one of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// The one that VMA_TCP_CC_ALGO's `number` asks for. (2 asks for none at all, which is no controller.)
    pub fn by_vma_number(number: u64) -> Option<Self> {
        match number {
            0 => Some(Self::Reno),
            1 => Some(Self::Cubic),
            _ => None,
        }
    }

    /// A new connection's controller.
    pub fn begin(self, beginning: &Beginning) -> Selected {
        let Beginning { now, mss, sack, srtt, seed, reduction } = *beginning;
        match self {
            Self::Reno => Selected::Reno(Box::new(Reno::new(mss, reduction))),
            Self::Cubic => Selected::Cubic(Box::new(Cubic::new(mss, reduction))),
            Self::Dctcp => Selected::Dctcp(Box::new(Dctcp::new(mss, reduction))),
            Self::Bbr => Selected::Bbr(Box::new(Bbr::new(now, mss, sack, srtt, seed))),
        }
    }
}

/// A controller that was chosen at run time. (A `match` instead of a virtual call. They lie apart, since most connections of a million are at rest.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selected {
    /// Nothing is in flight.
    Resting(Resting),
    /// NewReno.
    Reno(Box<Reno>),
    /// CUBIC.
    Cubic(Box<Cubic>),
    /// DCTCP.
    Dctcp(Box<Dctcp>),
    /// BBR.
    Bbr(Box<Bbr>),
}

/// `$call` on whichever it is.
macro_rules! on_whichever {
    ($selected:expr, $it:ident => $call:expr) => {
        match $selected {
            Selected::Resting($it) => $call,
            Selected::Reno($it) => $call,
            Selected::Cubic($it) => $call,
            Selected::Dctcp($it) => $call,
            Selected::Bbr($it) => $call,
        }
    };
}

impl Selected {
    /// Of a connection that has yet to be one: it has an initial window.
    pub(in crate::tcp) fn before_the_handshake(algorithm: Algorithm, mss: usize, mutation: Mutation) -> Self {
        Self::Resting(Resting::initial(algorithm, mss as u64, mutation))
    }

    /// What is left of it, with nothing in flight; of those that know more of the path than a window, all.
    pub(in crate::tcp) fn rest(&mut self, mutation: Mutation) {
        let resting = match self {
            Self::Reno(reno) => reno.resting(mutation),
            Self::Cubic(cubic) => cubic.resting(mutation),
            Self::Resting(_) | Self::Dctcp(_) | Self::Bbr(_) => return,
        };
        *self = Self::Resting(resting);
    }

    /// One that has something in flight, or will: this one, or what goes on from where it rested. `beginning`: see [`Algorithm::begin`].
    pub(in crate::tcp) fn woken(&self, beginning: impl FnOnce() -> Beginning, mutation: Mutation) -> Option<Self> {
        let Self::Resting(resting) = self else { return None };
        let mut woken = resting.algorithm.begin(&beginning()).of(mutation);
        woken.succeed(self);
        if let Self::Cubic(cubic) = &mut woken {
            cubic.remember_rest(resting);
        }
        Some(woken)
    }

    /// The same as a mutant.
    pub(in crate::tcp) fn of(self, mutation: Mutation) -> Self {
        match self {
            Self::Reno(reno) => Self::Reno(Box::new(reno.of(mutation))),
            Self::Cubic(cubic) => Self::Cubic(Box::new(cubic.of(mutation))),
            Self::Dctcp(dctcp) => Self::Dctcp(Box::new(dctcp.of(mutation))),
            Self::Resting(_) | Self::Bbr(_) => self,
        }
    }

    /// Which one it is.
    pub(in crate::tcp) fn algorithm(&self) -> Algorithm {
        match self {
            Self::Resting(resting) => resting.algorithm,
            Self::Reno(_) => Algorithm::Reno,
            Self::Cubic(_) => Algorithm::Cubic,
            Self::Dctcp(_) => Algorithm::Dctcp,
            Self::Bbr(_) => Algorithm::Bbr,
        }
    }

    /// Whether there is a pace to be kept.
    #[inline(always)]
    pub(in crate::tcp) fn is_paced(&self) -> bool {
        matches!(self, Self::Bbr(_))
    }

    /// What it consists of, for a snapshot; which one it is comes first. (One at rest is woken before.) Of BBR that is the window alone: whoever reads it in models the path anew.
    pub(in crate::tcp) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let mut algorithm = self.algorithm();
        fields.one_of(&mut algorithm, &Algorithm::ALL)?;
        if algorithm != self.algorithm() || matches!(self, Self::Resting(_)) {
            // (BBR's window, which is all that is read of it, is never less than a segment, of which nobody knows here how long it is.)
            let mss = if algorithm == Algorithm::Bbr { 1 } else { u64::from(Config::MSS_MIN) };
            *self = algorithm.begin(&Beginning { mss, ..Beginning::default() });
        }
        match self {
            Self::Resting(_) => Err(SnapshotError::Value),
            Self::Reno(reno) => reno.walk(fields),
            Self::Cubic(cubic) => cubic.walk(fields),
            Self::Dctcp(dctcp) => dctcp.walk(fields),
            Self::Bbr(bbr) => {
                let mut cwnd = bbr.cwnd();
                fields.at_most(&mut cwnd, WINDOW_MAX)?;
                if cwnd == 0 {
                    return Err(SnapshotError::Value);
                }
                bbr.succeed(cwnd);
                Ok(())
            }
        }
    }

    /// As it was elsewhere, for segments of this one's size; `self` has just begun.
    pub(in crate::tcp) fn resume(&mut self, from: &Self) {
        match (&mut *self, from) {
            (Self::Reno(reno), Self::Reno(from)) => reno.resume(from),
            (Self::Cubic(cubic), Self::Cubic(from)) => cubic.resume(from),
            (Self::Dctcp(dctcp), Self::Dctcp(from)) => dctcp.resume(from),
            _ => self.succeed(from),
        }
    }

    /// The program chose another controller: this one, which has just begun, goes on from where that one came to (as Linux's `tcp_set_congestion_control`, which leaves
    /// window and threshold as they are).
    pub(in crate::tcp) fn succeed(&mut self, from: &Self) {
        let (cwnd, ssthresh) = (from.cwnd(), from.ssthresh());
        match self {
            Self::Resting(_) => {}
            Self::Reno(reno) => reno.succeed(cwnd, ssthresh),
            Self::Cubic(cubic) => cubic.succeed(cwnd, ssthresh),
            Self::Dctcp(dctcp) => dctcp.succeed(cwnd, ssthresh),
            Self::Bbr(bbr) => bbr.succeed(cwnd),
        }
    }

    /// Something is sent outside of any recovery, with `in_flight` in the network before it. Whether that is all that has to be said of it.
    #[inline(always)]
    pub(in crate::tcp) fn takes_sending(&mut self, now: Instant, in_flight: usize) -> bool {
        match self {
            Self::Reno(_) => true,
            Self::Cubic(cubic) => {
                if in_flight == 0 {
                    cubic.on_fresh(now);
                }
                true
            }
            Self::Resting(_) | Self::Dctcp(_) | Self::Bbr(_) => false,
        }
    }

    /// Bytes were acknowledged of a window that is too little used to grow, outside of any recovery. Whether that is all that has to be said of it.
    #[inline(always)]
    pub(in crate::tcp) fn takes_unused(&mut self, now: Instant) -> bool {
        match self {
            Self::Reno(_) => true,
            Self::Cubic(cubic) => {
                cubic.on_unused(now);
                true
            }
            Self::Resting(_) | Self::Dctcp(_) | Self::Bbr(_) => false,
        }
    }
}

impl CongestionControl for Selected {
    fn name(&self) -> &'static str {
        on_whichever!(self, it => it.name())
    }

    #[inline]
    fn cwnd(&self) -> u64 {
        on_whichever!(self, it => it.cwnd())
    }

    fn ssthresh(&self) -> Option<u64> {
        on_whichever!(self, it => it.ssthresh())
    }

    #[inline]
    fn pacing_rate(&self) -> Option<u64> {
        on_whichever!(self, it => it.pacing_rate())
    }

    fn send_quantum(&self) -> Option<u64> {
        on_whichever!(self, it => it.send_quantum())
    }

    fn holds_back(&self) -> bool {
        on_whichever!(self, it => it.holds_back())
    }

    #[inline]
    fn on_sending(&mut self, sending: &Sending) {
        on_whichever!(self, it => it.on_sending(sending));
    }

    #[inline]
    fn on_ack(&mut self, ack: &Ack) {
        on_whichever!(self, it => it.on_ack(ack));
    }

    fn on_lost(&mut self, lost: &Lost) {
        on_whichever!(self, it => it.on_lost(lost));
    }

    fn on_congestion(&mut self, congestion: &Congestion) {
        on_whichever!(self, it => it.on_congestion(congestion));
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        on_whichever!(self, it => it.on_timeout(timeout));
    }

    fn on_recovered(&mut self, recovered: &Recovered) {
        on_whichever!(self, it => it.on_recovered(recovered));
    }

    fn on_undo(&mut self, undo: &Undo) {
        on_whichever!(self, it => it.on_undo(undo));
    }

    fn on_idle(&mut self, idle: &Idle) {
        on_whichever!(self, it => it.on_idle(idle));
    }

    fn set_mss(&mut self, mss: u64) {
        on_whichever!(self, it => it.set_mss(mss));
    }
}
