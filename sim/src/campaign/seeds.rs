//! Which seeds: a range, shared out between machines, in batches.

use core::fmt;
use core::ops::Range;
use core::str::FromStr;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// A range of seeds, written `A..B`; `B` is not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds(pub Range<u64>);

/// The caller: that is no range of seeds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Not two numbers with two dots between them.
    #[error("a range of seeds is written A..B, in numbers")]
    Form,
    /// `B` is not above `A`.
    #[error("there is no seed in this range: B is the first one that is not in it")]
    Empty,
}

/// One of several shares of a range: the `index`th of `of`, counted from 1. Written `1/4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u64,
    of: u64,
}

/// The caller: that is no shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a shard is written i/n, with i from 1 to n")]
pub struct ShardError;

/// Seeds at equal distances: what a worker takes at once, and what a record of progress speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The first one.
    pub from: u64,
    /// From one to the next.
    pub step: u64,
    /// How many.
    pub count: u64,
}

impl Seeds {
    /// The seeds of one shard: every `of`th, so that each has its share of whatever a stretch of seeds is like.
    pub fn share(&self, shard: Shard) -> Batch {
        let Range { start, end } = self.0;
        let from = start.saturating_add(shard.index - 1);
        Batch { from, step: shard.of, count: end.saturating_sub(from).div_ceil(shard.of) }
    }
}

impl Batch {
    /// The seeds.
    pub fn seeds(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |i| self.from + i * self.step)
    }

    /// Whether `seed` is among them.
    pub fn contains(self, seed: u64) -> bool {
        seed >= self.from && (seed - self.from).is_multiple_of(self.step) && (seed - self.from) / self.step < self.count
    }

    /// The same seeds, those in `done` aside, in batches of at most `count`.
    pub fn without(self, done: BTreeSet<u64>, count: u64) -> impl Iterator<Item = Self> {
        let mut rest = self;
        core::iter::from_fn(move || {
            let wanted = |seed: &u64| !done.contains(seed);
            let skip = rest.seeds().take_while(|seed| !wanted(seed)).count() as u64;
            rest = rest.part(skip, u64::MAX);
            let len = rest.seeds().take_while(wanted).take(usize::try_from(count).unwrap_or(usize::MAX)).count() as u64;
            let batch = rest.part(0, len);
            rest = rest.part(len, u64::MAX);
            (len > 0).then_some(batch)
        })
    }

    /// At most `count` of them, `skip` left out at the front.
    #[must_use]
    pub fn part(self, skip: u64, count: u64) -> Self {
        let skip = skip.min(self.count);
        Self { from: self.from.saturating_add(skip.saturating_mul(self.step)), count: (self.count - skip).min(count), ..self }
    }
}

impl Shard {
    /// All of it.
    pub const WHOLE: Self = Self { index: 1, of: 1 };
}

impl Default for Shard {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl FromStr for Seeds {
    type Err = RangeError;

    fn from_str(s: &str) -> Result<Self, RangeError> {
        let number = |s: &str| s.replace('_', "").parse::<u64>().ok();
        let (start, end) = s.split_once("..").and_then(|(a, b)| Some((number(a)?, number(b)?))).ok_or(RangeError::Form)?;
        if start < end { Ok(Self(start..end)) } else { Err(RangeError::Empty) }
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.0.start, self.0.end)
    }
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(s: &str) -> Result<Self, ShardError> {
        let (index, of) = s.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?))).ok_or(ShardError)?;
        if (1..=of).contains(&index) { Ok(Self { index, of }) } else { Err(ShardError) }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Together, shards are the whole, and no seed is in two; and so are batches.
        #[test]
        fn shards_are_the_whole(start in 0_u64..1000, len in 1_u64..300, of in 1_u64..20, batch in 1_u64..40) {
            let seeds = Seeds(start..start + len);
            let mut all = Vec::new();
            for index in 1..=of {
                all.extend(seeds.share(Shard { index, of }).without(BTreeSet::new(), batch).flat_map(Batch::seeds));
            }
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(start..start + len));
        }
    }

    proptest! {
        #[test]
        fn what_is_done_is_left_out(share in (0_u64..9, 1_u64..5, 0_u64..60), done in proptest::collection::btree_set(0_u64..120, 0..60), max in 1_u64..9) {
            let share = Batch { from: share.0, step: share.1, count: share.2 };
            let batches: Vec<_> = share.without(done.clone(), max).collect();
            prop_assert!(batches.iter().all(|b| b.step == share.step && (1..=max).contains(&b.count)));
            let left: Vec<u64> = batches.into_iter().flat_map(Batch::seeds).collect();
            let expected: Vec<u64> = share.seeds().filter(|seed| !done.contains(seed)).collect();
            prop_assert_eq!(left, expected);
            prop_assert!((0..300).all(|seed| share.contains(seed) == share.seeds().any(|s| s == seed)));
        }
    }

    #[test]
    fn the_largest_seeds_are_in_reach() {
        let seeds: Seeds = "18446744073709551613..18446744073709551615".parse().unwrap();
        assert!(seeds.share(Shard::WHOLE).without(BTreeSet::new(), 1).flat_map(Batch::seeds).eq([u64::MAX - 2, u64::MAX - 1]));
        assert_eq!(seeds.share("4/4".parse().unwrap()).count, 0);
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!("3..1_000".parse(), Ok(Seeds(3..1000)));
        assert_eq!("3..3".parse::<Seeds>(), Err(RangeError::Empty));
        assert_eq!("3-4".parse::<Seeds>(), Err(RangeError::Form));
        assert_eq!("2/4".parse::<Shard>().unwrap().to_string(), "2/4");
        for wrong in ["0/4", "5/4", "1", "a/b", "1/0"] {
            assert_eq!(wrong.parse::<Shard>(), Err(ShardError), "{wrong}");
        }
    }
}
