//! Faults that last: when an episode begins, and how long it is.

use core::time::Duration;

use super::FaultSet;
use crate::random::{Purpose, RandomStream};

/// The classes that strike in episodes.
pub(crate) const TIMED: [(FaultSet, Purpose); 11] = [
    (FaultSet::DELAY, Purpose::Delay),
    (FaultSet::BANDWIDTH, Purpose::Bandwidth),
    (FaultSet::MTU, Purpose::Mtu),
    (FaultSet::PARTITION, Purpose::Partition),
    (FaultSet::ONE_WAY, Purpose::OneWay),
    (FaultSet::FLAP, Purpose::Flap),
    (FaultSet::CLOCK, Purpose::Clock),
    (FaultSet::PAUSE, Purpose::Pause),
    (FaultSet::CRASH, Purpose::Crash),
    (FaultSet::NEIGHBOUR, Purpose::Neighbour),
    (FaultSet::ICMP, Purpose::IcmpForged),
];

/// How often a fault class strikes in virtual time, and for how long. The default: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Episodes {
    /// From one episode's end (or the beginning) to the next one's beginning, on average; half to one and a half times that.
    /// Zero: never.
    pub every: Duration,
    /// The longest episode. An episode's order of magnitude is uniform, down to a 64th of this.
    pub length_max: Duration,
}

impl Episodes {
    /// Whether they never come.
    pub fn never(&self) -> bool {
        self.every.is_zero()
    }

    /// These, if `keep`; else none.
    pub(super) fn kept(self, keep: bool) -> Self {
        if keep { self } else { Self::default() }
    }
}

/// One episode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// How long until it begins.
    pub(crate) after: Duration,
    /// How long it lasts.
    pub(crate) length: Duration,
    /// What happens in it, for its class to interpret.
    pub(crate) detail: u64,
}

/// One class's episodes at one place. Each episode takes the same three numbers from the stream.
#[derive(Debug)]
pub(crate) struct Course(RandomStream);

impl Course {
    pub(crate) fn new(seed: u64, purpose: Purpose, index: u32) -> Self {
        Self(RandomStream::new(seed, purpose, index, 0))
    }

    pub(crate) fn next(&mut self, episodes: Episodes) -> Plan {
        let (every, length_max) = (nanos(episodes.every), nanos(episodes.length_max));
        let after = Duration::from_nanos(every / 2 + self.0.below(every));
        let factor = self.0.magnitude(1 << 10, 1 << 16);
        let detail = self.0.bits();
        let length = u64::try_from((u128::from(length_max) * u128::from(factor)) >> 16).unwrap_or(u64::MAX);
        // Never nothing: what begins also ends, later.
        Plan { after: after.max(Duration::from_nanos(1)), length: Duration::from_nanos(length.max(1)), detail }
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
