//! The checkers, checked: stacks with one thing wrong each, run over seeds of the default swarm until a checker notices. The table of
//! who noticed what, and after how many seeds, is a snapshot; a checker that catches nothing is none.

mod scenarios;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

use ringway_sim::checkers::CHECKERS;
use ringway_sim::scenario::{Scenario, Stage};
use ringway_sim::{deaths, machines, migrations};
use ringway_stack::mutants::Mutant;

/// Most seeds that a mutant may live through.
const SEEDS_MAX: u64 = 800;
/// Seeds that every mutant runs, for more than its first catcher to be seen.
const SEEDS_MIN: u64 = 8;

/// What became of a mutant.
#[derive(Default)]
struct Life {
    /// Who caught it, and how often.
    catchers: BTreeMap<String, u64>,
    /// The first seed on which a checker did, counted from one.
    seeds: Option<u64>,
    /// How that read.
    message: String,
}

#[test]
fn every_mutant_is_caught_and_every_checker_catches() {
    let hook = take_hook();
    // Hundreds of panics are expected; their messages are what is looked at.
    set_hook(Box::new(|_| {}));
    let healthy = live(Mutant::Healthy, SEEDS_MAX / 8);
    let lives: Vec<_> = Mutant::ALL.iter().map(|&mutant| (mutant, live(mutant, SEEDS_MAX))).collect();
    set_hook(hook);

    let table = table(&lives);
    for (mutant, life) in &lives {
        println!("{mutant:?}: {}", life.message);
    }
    println!("{table}");
    assert!(healthy.catchers.is_empty(), "the healthy stack was caught: {:?}: {}", healthy.catchers, healthy.message);
    let escaped: Vec<_> = lives.iter().filter(|(_, life)| life.seeds.is_none()).map(|(mutant, _)| mutant).collect();
    assert!(escaped.is_empty(), "{escaped:?} lived through {SEEDS_MAX} seeds");
    let caught: BTreeSet<&str> = lives.iter().flat_map(|(_, life)| life.catchers.keys().map(String::as_str)).collect();
    let idle: Vec<_> = CHECKERS.iter().filter(|checker| !caught.contains(*checker)).collect();
    assert!(idle.is_empty(), "{idle:?} caught nothing");
    insta::assert_snapshot!("mutants", table);
}

/// Runs a mutant on one seed after another. What the swarm seldom comes to, a scenario of its own has with each eighth seed.
fn live(mutant: Mutant, seeds_max: u64) -> Life {
    let mut life = Life::default();
    for seed in 0..seeds_max {
        if life.seeds.is_some() && seed >= SEEDS_MIN {
            break;
        }
        let scenario = Scenario::of_seed(seed);
        let run = catch_unwind(AssertUnwindSafe(|| {
            // (They are of what stands above rings, which the swarm does not use.)
            if Mutant::OF_SOCKETS.contains(&mutant) {
                machines::play(seed, mutant);
                return;
            }
            if Mutant::OF_MOVES.contains(&mutant) {
                migrations::play(seed, mutant);
                return;
            }
            if mutant == Mutant::Healthy {
                machines::play(seed, mutant);
                migrations::play(seed, mutant);
            }
            if seed % 8 == 7 {
                scenarios::all(seed, mutant);
                (0..64).for_each(|death| {
                    deaths::play(seed * 64 + death, mutant);
                });
            }
            let mut stage = Stage::set(&scenario);
            stage.infect(mutant);
            stage.play();
        }));
        let Err(failure) = run else { continue };
        let message = failure.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic without a message".to_owned());
        let checker = message.strip_prefix("checker ").and_then(|rest| rest.split(':').next());
        if (checker.is_some() && life.seeds.is_none()) || life.message.is_empty() {
            life.message = format!("seed {seed}: {}", message.lines().next().unwrap_or_default());
        }
        if checker.is_some() {
            life.seeds.get_or_insert(seed + 1);
        }
        *life.catchers.entry(checker.unwrap_or("(the scenario)").to_owned()).or_default() += 1;
    }
    life
}

fn table(lives: &[(Mutant, Life)]) -> String {
    let mut table = format!("{:22} {:>5}  caught by\n", "mutant", "seeds");
    for (mutant, life) in lives {
        let seeds = life.seeds.map_or("-".to_owned(), |seeds| seeds.to_string());
        let catchers: Vec<_> = life.catchers.keys().map(String::as_str).collect();
        let _ = writeln!(table, "{:22} {seeds:>5}  {}", format!("{mutant:?}"), catchers.join(", "));
    }
    table
}
