//! Whether campaigns catch what they are to catch.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::roce::Flaw;

/// Seeds that a flaw may live through.
const SEEDS_MAX: u64 = 300;

/// The flaws that no seed catches: that is, on which no world of theirs panics.
pub(crate) fn escaped(flaws: &[Flaw], world: impl Fn(u64, Flaw)) -> Vec<Flaw> {
    let is_caught = |flaw: Flaw, seed: u64| catch_unwind(AssertUnwindSafe(|| world(seed, flaw))).is_err();
    flaws.iter().copied().filter(|flaw| !(0..SEEDS_MAX).any(|seed| is_caught(*flaw, seed))).collect()
}
