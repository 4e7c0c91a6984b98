//! What can befall a frame on its way.

use core::fmt;
use core::time::Duration;

/// What befell a frame on a lane, or at the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// It vanished.
    Lost,
    /// The switch's queue was full.
    QueueFull,
    /// It was corrupted where no checksum would tell: dropped, as its frame check sequence demands.
    FrameCheck,
    /// Bits flipped.
    Corrupted {
        /// The first one, counted from the frame's beginning.
        bit: usize,
        /// How far the last one is from the first, plus one.
        len: usize,
    },
    /// It was held back.
    HeldBack {
        /// By how much.
        by: Duration,
    },
    /// A second copy arrives.
    Duplicated {
        /// How much later.
        after: Duration,
    },
    /// It vanished in a burst.
    BurstLost,
    /// Its payload changed, and no checksum tells.
    HiddenCorruption {
        /// The two bytes that changed, counted from the frame's beginning; twice the same: it alone, and the checksum with it.
        bytes: [usize; 2],
    },
    /// A router marked it: there is congestion.
    Marked,
    /// The link is slower for a while.
    Delayed {
        /// By how much.
        by: Duration,
    },
    /// It is longer than the path's MTU.
    TooLong {
        /// The MTU in bytes.
        mtu: u16,
    },
    /// Sender and receiver are cut off from each other.
    Partitioned,
    /// The receiver doesn't hear the sender.
    OneWay,
    /// The link has no carrier.
    LinkDown,
    /// The receiver is down after a crash.
    HostDown,
    /// It is an ICMP error, and late.
    IcmpDelayed {
        /// By how much.
        by: Duration,
    },
}

impl Strike {
    /// Whether the frame (rather than a copy of it) ends here.
    pub fn is_drop(&self) -> bool {
        match self {
            Self::Lost
            | Self::QueueFull
            | Self::FrameCheck
            | Self::BurstLost
            | Self::TooLong { .. }
            | Self::Partitioned
            | Self::OneWay
            | Self::LinkDown
            | Self::HostDown => true,
            Self::Corrupted { .. }
            | Self::HeldBack { .. }
            | Self::Duplicated { .. }
            | Self::HiddenCorruption { .. }
            | Self::Marked
            | Self::Delayed { .. }
            | Self::IcmpDelayed { .. } => false,
        }
    }
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str("lost"),
            Self::QueueFull => f.write_str("dropped: queue full"),
            Self::FrameCheck => f.write_str("dropped: bad frame check sequence"),
            Self::Corrupted { bit, len } => write!(f, "corrupted: {len} bits from byte {} bit {}", bit / 8, bit % 8),
            Self::HeldBack { by } => write!(f, "held back by {by:?}"),
            Self::Duplicated { after } => write!(f, "duplicated {after:?} later"),
            Self::BurstLost => f.write_str("lost in a burst"),
            Self::HiddenCorruption { bytes: [a, b] } if a == b => write!(f, "corrupted unnoticed: byte {a}, checksum renewed"),
            Self::HiddenCorruption { bytes: [a, b] } => write!(f, "corrupted unnoticed: bytes {a} and {b}"),
            Self::Marked => f.write_str("marked"),
            Self::Delayed { by } => write!(f, "delayed by {by:?}"),
            Self::TooLong { mtu } => write!(f, "dropped: longer than the path's MTU of {mtu}"),
            Self::Partitioned => f.write_str("dropped: partition"),
            Self::OneWay => f.write_str("dropped: one-way partition"),
            Self::LinkDown => f.write_str("dropped: no carrier"),
            Self::HostDown => f.write_str("dropped: the host is down"),
            Self::IcmpDelayed { by } => write!(f, "ICMP error delayed by {by:?}"),
        }
    }
}
