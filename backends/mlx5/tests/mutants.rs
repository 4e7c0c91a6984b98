//! The swarm, checked: drivers with one thing wrong each, on one seed after another until a law notices. A law that catches nothing is none.

#[path = "virtual/swarm/mod.rs"]
mod swarm;

use std::collections::BTreeMap;
use std::panic::{catch_unwind, set_hook, take_hook};

use ringway_mlx5::mutants::{Mutant, choose};

/// Most seeds that a mutant may live through. The rarest is caught by one in seventy, and which one that is changes with whatever the stack sends.
const SEEDS_MAX: u64 = 1000;
/// Seeds that the healthy driver runs.
const SEEDS_HEALTHY: u64 = 100;

/// The first seed on which a mutant is caught, and what is said then.
fn caught(mutant: Option<Mutant>, seeds: u64) -> Option<(u64, String)> {
    (0..seeds).find_map(|seed| {
        choose(mutant);
        let panic = catch_unwind(|| swarm::run(seed)).err()?;
        let text = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Some((seed, text.unwrap_or_else(|| "a panic without a message".to_owned())))
    })
}

#[test]
fn every_mutant_is_caught_by_a_law() {
    let hook = take_hook();
    // (Panics are expected; their messages are what is looked at.)
    set_hook(Box::new(|_| {}));
    let healthy = caught(None, SEEDS_HEALTHY);
    let mut laws: BTreeMap<String, u32> = BTreeMap::new();
    let mut escaped = Vec::new();
    println!("{:22} {:>4}  caught by", "mutant", "seed");
    for mutant in Mutant::ALL {
        let life = caught(Some(mutant), SEEDS_MAX);
        let (seed, text) = life.as_ref().map_or(("-".to_owned(), "nothing"), |(seed, text)| (seed.to_string(), text));
        println!("{:22} {seed:>4}  {}", format!("{mutant:?}"), text.chars().take(150).collect::<String>());
        match text.strip_prefix("law ").and_then(|rest| rest.split(':').next()) {
            Some(law) => *laws.entry(law.to_owned()).or_default() += 1,
            None => escaped.push(mutant),
        }
    }
    println!("{laws:?}");
    choose(None);
    set_hook(hook);
    assert_eq!(healthy, None, "the healthy driver is caught");
    assert!(escaped.is_empty(), "{escaped:?} are not caught by a law within {SEEDS_MAX} seeds");
}
