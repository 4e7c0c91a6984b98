//! The card's clock: the cycles that completions have, as time.

use ringway_stack::time::Instant;

use crate::mutants::{self, Mutant};

/// How a card counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CardClock {
    /// Nanoseconds in a cycle, times 2^`shift`, rounded up: all the bits that a word has. So a division is saved for each frame, and as long as there are fewer than
    /// 2^`shift` cycles, a nanosecond too much comes out at most.
    scale: u64,
    shift: u32,
}

impl CardClock {
    /// Of a card that says how fast it counts, and that its completions say when.
    pub(crate) fn new(khz: u64, timestamp_mask: u64) -> Option<Self> {
        if khz == 0 || timestamp_mask == 0 {
            return None;
        }
        let exact = |shift: u32| (1_000_000_u128 << shift).div_ceil(u128::from(khz));
        let shift = (0..64).rev().find(|&shift| exact(shift) <= u128::from(u64::MAX))?;
        Some(Self { scale: exact(shift) as u64, shift })
    }

    /// The time since the card began to count.
    #[inline]
    pub(crate) fn time(self, cycles: u64) -> Instant {
        if mutants::is(Mutant::ClockUnscaled) {
            return Instant::from_nanos(cycles);
        }
        Instant::from_nanos(((u128::from(cycles) * u128::from(self.scale)) >> (self.shift & 63)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_nanoseconds_at_any_speed() {
        let time = |khz, cycles| CardClock::new(khz, u64::MAX).unwrap().time(cycles).as_nanos();
        assert_eq!([time(1_000_000, 7), time(156_250, 10), time(156_250, 1 << 58)], [7, 64, (1 << 63) / 5]);
        assert_eq!([time(1, 3), time(1_000_000, u64::MAX >> 1), time(u64::MAX, 5)], [3_000_000, u64::MAX >> 1, 0]);
        // A day of a clock whose cycle is no number of nanoseconds.
        assert_eq!(time(276_000, 86_400 * 276_000_000 + 276), 86_400_000_000_000 + 1000);
        assert_eq!((CardClock::new(0, 1), CardClock::new(1, 0)), (None, None));
    }
}
