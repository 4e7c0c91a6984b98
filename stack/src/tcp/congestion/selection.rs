//! Which controller: by its name in TCP_CONGESTION, or by its number in VMA_TCP_CC_ALGO.

use core::time::Duration;

use super::bbr::Bbr;
use super::control::{Ack, Congestion, CongestionControl, Idle, Lost, Recovered, Sending, Timeout, Undo};
use super::cubic::Cubic;
use super::dctcp::Dctcp;
use super::reno::Reno;
use super::window::Reduction;
use crate::time::Instant;

/// The controllers that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// NewReno (RFC 5681, RFC 6582).
    Reno,
    /// CUBIC (RFC 9438).
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
            Self::Reno => Selected::Reno(Reno::new(mss, reduction)),
            Self::Cubic => Selected::Cubic(Box::new(Cubic::new(mss, reduction))),
            Self::Dctcp => Selected::Dctcp(Dctcp::new(mss, reduction)),
            Self::Bbr => Selected::Bbr(Box::new(Bbr::new(now, mss, sack, srtt, seed))),
        }
    }
}

/// A controller that was chosen at run time. (A `match` instead of a virtual call; the two large ones lie apart.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selected {
    /// NewReno.
    Reno(Reno),
    /// CUBIC.
    Cubic(Box<Cubic>),
    /// DCTCP.
    Dctcp(Dctcp),
    /// BBR.
    Bbr(Box<Bbr>),
}

/// `$call` on whichever it is.
macro_rules! on_whichever {
    ($selected:expr, $it:ident => $call:expr) => {
        match $selected {
            Selected::Reno($it) => $call,
            Selected::Cubic($it) => $call,
            Selected::Dctcp($it) => $call,
            Selected::Bbr($it) => $call,
        }
    };
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
