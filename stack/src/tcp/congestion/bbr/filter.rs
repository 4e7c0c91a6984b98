//! Windowed maxima.

/// The largest value of this slot of time and the one before (BBR.MaxBwFilterLen = 2, draft s2.11): two ProbeBW cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TwoSlots {
    before: u64,
    now: u64,
}

impl TwoSlots {
    pub(super) fn update(&mut self, value: u64) {
        self.now = self.now.max(value);
    }

    pub(super) fn max(&self) -> u64 {
        self.before.max(self.now)
    }

    /// The next slot begins. One without a value is none: the last known value stays.
    pub(super) fn advance(&mut self) {
        if self.now > 0 {
            (self.before, self.now) = (self.now, 0);
        }
    }
}

/// BBR.ExtraAckedFilterLen (draft s2.12), in round trips.
pub(super) const ROUNDS: u64 = 10;

/// The largest value of each of the last ten rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RoundMax {
    values: [u64; ROUNDS as usize],
    round: u64,
}

impl RoundMax {
    /// A value of `round`, which is not before an earlier call's.
    pub(super) fn update(&mut self, round: u64, value: u64) {
        if round.saturating_sub(self.round) >= ROUNDS {
            self.values = [0; ROUNDS as usize];
        } else {
            (self.round + 1..=round).for_each(|passed| self.values[(passed % ROUNDS) as usize] = 0);
        }
        self.round = self.round.max(round);
        let slot = &mut self.values[(self.round % ROUNDS) as usize];
        *slot = value.max(*slot);
    }

    /// The largest value of the last `rounds`, the current one included.
    pub(super) fn max(&self, rounds: u64) -> u64 {
        (0..rounds.min(ROUNDS)).map(|back| self.values[(self.round.wrapping_sub(back) % ROUNDS) as usize]).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn two_slots_forget_the_third() {
        let mut filter = TwoSlots::default();
        filter.update(9);
        filter.advance();
        filter.update(5);
        assert_eq!(filter.max(), 9);
        filter.advance();
        assert_eq!(filter.max(), 5);
        filter.advance();
        assert_eq!(filter.max(), 5, "a cycle without a sample forgets nothing");
    }

    proptest! {
        /// Against a list of all values.
        #[test]
        fn a_maximum_of_rounds_is_one_of_a_list(steps in proptest::collection::vec((0..14u64, 0..100u64), 1..60), rounds in 1..=ROUNDS) {
            let (mut filter, mut all, mut round) = (RoundMax::default(), Vec::new(), 0);
            for (passed, value) in steps {
                round += passed;
                filter.update(round, value);
                all.push((round, value));
                let expected = all.iter().filter(|(at, _)| at + rounds > round).map(|(_, value)| *value).max();
                prop_assert_eq!(Some(filter.max(rounds)), expected);
            }
        }
    }
}
