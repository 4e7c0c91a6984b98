//! What befalls hosts and links as a whole, rather than one frame.

use core::fmt;
use core::time::Duration;

use super::Forgery;

/// Something that befell a host, or its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// Its link is slower.
    Delayed {
        /// By how much, each way.
        by: Duration,
        /// By up to how much more for single frames.
        jitter: Duration,
    },
    /// Its link has less bandwidth and a shorter queue.
    Squeezed {
        /// Bits a second.
        bps: u64,
        /// Bytes.
        queue: usize,
    },
    /// Its path carries shorter packets only.
    PathShrank {
        /// Their longest, in bytes.
        mtu: u16,
    },
    /// It and others are cut off from the rest.
    Partitioned {
        /// Only one of the groups doesn't hear the other.
        one_way: bool,
    },
    /// Its link has no carrier.
    CarrierLost,
    /// It has one again.
    CarrierFound,
    /// Its clock jumped forward.
    ClockJumped {
        /// By how much.
        by: Duration,
    },
    /// It doesn't poll.
    Paused,
    /// It polls again.
    Resumed,
    /// It crashed.
    Crashed,
    /// It started again.
    Restarted,
    /// Its Ethernet address changed.
    Moved {
        /// It told its neighbours, if they got the message.
        announced: bool,
    },
    /// It forgot its neighbours' Ethernet addresses.
    Forgot,
    /// An attacker sent it an ICMP error.
    Attacked,
    /// An attacker sent it a forged frame.
    Forged {
        /// What it was.
        what: Forgery,
        /// The host may lawfully believe it, and lose its neighbour.
        believed: bool,
    },
}

impl Mishap {
    /// A number for the trace's hash, and what else there is to it.
    pub(crate) fn digest(self) -> (u64, u64) {
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        match self {
            Self::Delayed { by, jitter } => (64, nanos(by) ^ nanos(jitter).rotate_left(32)),
            Self::Squeezed { bps, queue } => (65, bps ^ (queue as u64).rotate_left(32)),
            Self::PathShrank { mtu } => (66, mtu.into()),
            Self::Partitioned { one_way } => (67, one_way.into()),
            Self::CarrierLost => (68, 0),
            Self::CarrierFound => (69, 0),
            Self::ClockJumped { by } => (70, nanos(by)),
            Self::Paused => (71, 0),
            Self::Resumed => (72, 0),
            Self::Crashed => (73, 0),
            Self::Restarted => (74, 0),
            Self::Moved { announced } => (75, announced.into()),
            Self::Forgot => (76, 0),
            Self::Attacked => (77, 0),
            Self::Forged { what, believed } => (78, what as u64 + (u64::from(believed) << 8)),
        }
    }
}

impl fmt::Display for Mishap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delayed { by, jitter } => write!(f, "the link is slower by {by:?} and up to {jitter:?}"),
            Self::Squeezed { bps, queue } => write!(f, "the link has {bps} bit/s and a queue of {queue} bytes"),
            Self::PathShrank { mtu } => write!(f, "the path's MTU is {mtu}"),
            Self::Partitioned { one_way: false } => f.write_str("a partition begins"),
            Self::Partitioned { one_way: true } => f.write_str("a one-way partition begins"),
            Self::CarrierLost => f.write_str("the link goes down"),
            Self::CarrierFound => f.write_str("the link comes up"),
            Self::ClockJumped { by } => write!(f, "the clock jumps by {by:?}"),
            Self::Paused => f.write_str("the host pauses"),
            Self::Resumed => f.write_str("the host goes on"),
            Self::Crashed => f.write_str("the host crashes"),
            Self::Restarted => f.write_str("the host starts again"),
            Self::Moved { announced: true } => f.write_str("the host's Ethernet address changes, and it says so"),
            Self::Moved { announced: false } => f.write_str("the host's Ethernet address changes silently"),
            Self::Forgot => f.write_str("the host forgets its neighbours"),
            Self::Attacked => f.write_str("an attacker forges an ICMP error"),
            Self::Forged { what, .. } => write!(f, "an attacker forges {what}"),
        }
    }
}
