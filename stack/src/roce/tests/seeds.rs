//! Campaigns of any length.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a world of each seed that RINGWAY_MESSAGE_SEEDS=FROM..TO names, and says which failed: those that panicked.
pub(crate) fn run(mut world: impl FnMut(u64)) {
    let seeds = std::env::var("RINGWAY_MESSAGE_SEEDS").expect("RINGWAY_MESSAGE_SEEDS=FROM..TO");
    let (from, to) = seeds.split_once("..").expect("FROM..TO");
    let [from, to]: [u64; 2] = [from, to].map(|seed| seed.parse().expect("a number"));
    let failing: Vec<u64> = (from..to).filter(|seed| catch_unwind(AssertUnwindSafe(|| world(*seed))).is_err()).collect();
    println!("of seeds {seeds}, {} failed: {failing:?}", failing.len());
    assert!(failing.is_empty());
}
