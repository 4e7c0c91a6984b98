//! The card's clock: the cycles that completions have, as time.

use ringway_stack::time::Instant;

/// How a card counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CardClock {
    /// Cycles in a millisecond. Invariant: not zero.
    khz: u64,
}

impl CardClock {
    /// Of a card that says how fast it counts, and that its completions say when.
    pub(crate) fn new(khz: u64, timestamp_mask: u64) -> Option<Self> {
        (khz != 0 && timestamp_mask != 0).then_some(Self { khz })
    }

    /// The time since the card began to count.
    #[inline]
    pub(crate) fn time(self, cycles: u64) -> Instant {
        let (whole, rest) = (cycles / self.khz, cycles % self.khz);
        // (What is left of a millisecond is short of one: this does not overflow at any speed below 18 THz.)
        Instant::from_nanos(whole.wrapping_mul(1_000_000).wrapping_add(rest.wrapping_mul(1_000_000) / self.khz))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_nanoseconds_at_any_speed() {
        let time = |khz, cycles| CardClock::new(khz, u64::MAX).unwrap().time(cycles).as_nanos();
        assert_eq!([time(1_000_000, 7), time(156_250, 10), time(156_250, 1 << 58)], [7, 64, (1 << 63) / 5]);
        assert_eq!((CardClock::new(0, 1), CardClock::new(1, 0)), (None, None));
    }
}
