//! Ringway against the kernel: the same programs of socket calls in both worlds, compared call by call when both are at rest.
//!
//! Ringway runs in the simulator, on virtual time. The kernel needs its own time, but only to come to rest: when the worlds
//! agree at once, none passes.

mod differences;
mod generate;
mod kernel;
mod programs;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use ringway_conformance::reference::lockstep::{Run, run};
use ringway_conformance::reference::program::{Op, Role, Source};
use ringway_conformance::reference::ringway::Ringway;
use ringway_sim::Family;

use crate::differences::{KNOWN, Usage};
use crate::kernel::{Addresses, Kernel};

/// How long both worlds rest after each call, where one must be sure that nothing is under way.
const SLOW_MS: u64 = 60;

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// The worlds, time and again.
struct Comparison {
    addresses: Addresses,
    usage: Usage,
    calls: usize,
    /// Differences that were gone when both worlds rested longer.
    transient: usize,
}

impl Comparison {
    fn new() -> Self {
        Self { addresses: Addresses::new(), usage: Usage::new(), calls: 0, transient: 0 }
    }

    fn run(&mut self, family: Family, source: &mut dyn Source, slow: u64) -> Run {
        let mut sim = Ringway::new(1, family);
        let mut kernel = Kernel::new(&mut self.addresses, family);
        let run = run(&mut sim, &mut kernel, source, slow, &mut |difference| self.usage.judge(&difference));
        self.calls += run.steps.len();
        run
    }

    /// Runs a program; if the worlds differ, once more with long rests. (This machine may be busy, and the kernel's timers go on.)
    fn compare<S: Source>(&mut self, family: Family, source: impl Fn() -> S) -> Result<(), Run> {
        let first = self.run(family, &mut source(), 0);
        if first.bug.is_none() {
            return Ok(());
        }
        let second = self.run(family, &mut source(), SLOW_MS);
        if second.bug.is_some() {
            return Err(second);
        }
        println!("gone when both rested longer:\n{first}");
        self.transient += 1;
        Ok(())
    }
}

/// A program, and which of its calls were made.
struct Told<'a, S> {
    calls: S,
    told: &'a RefCell<Vec<Op>>,
}

impl<S: Source> Source for Told<'_, S> {
    fn next(&mut self, roles: &[Option<Role>]) -> Option<Op> {
        let op = self.calls.next(roles)?;
        self.told.borrow_mut().push(op);
        Some(op)
    }
}

fn generated(name: &str, seed: [u8; 32], programs: u32) {
    let config = Config { cases: programs, failure_persistence: None, max_shrink_iters: 600, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let comparison = RefCell::new(Comparison::new());
    let told = RefCell::new(Vec::new());
    let result = runner.run(&(select(FAMILIES.to_vec()), generate::drafts()), |(family, draft)| {
        let source = || {
            told.borrow_mut().clear();
            Told { calls: draft.calls(), told: &told }
        };
        comparison.borrow_mut().compare(family, source).map_err(|run| TestCaseError::fail(run.to_string()))
    });
    let comparison = comparison.into_inner();
    println!("{name}: {programs} programs, {} calls, {} transient", comparison.calls, comparison.transient);
    comparison.usage.print();
    if let Err(TestError::Fail(story, (family, draft))) = result {
        // A checker's breach is a panic, which says nothing of the calls that led to it.
        told.borrow_mut().clear();
        let mut again = Told { calls: draft.calls(), told: &told };
        let _ = catch_unwind(AssertUnwindSafe(|| Comparison::new().run(family, &mut again, 0)));
        panic!("{name}, {family:?}: the worlds differ:\n{}\nafter these calls: {:?}", story.message(), told.borrow());
    }
    result.expect("the runner itself");
}

#[test]
fn programs_as_told_come_to_the_same() {
    let mut comparison = Comparison::new();
    for family in FAMILIES {
        for (name, ops) in programs::alike(family) {
            if let Err(run) = comparison.compare(family, || ops.iter().copied()) {
                panic!("{name}, {family:?}: the worlds differ:\n{run}");
            }
            assert_eq!(comparison.usage.0.iter().sum::<usize>(), 0, "{name}, {family:?}: a known difference cut it short");
        }
    }
}

#[test]
fn every_known_difference_is_still_there() {
    for ((index, known), family) in KNOWN.iter().enumerate().flat_map(|known| FAMILIES.map(|family| (known, family))) {
        let mut comparison = Comparison::new();
        let witness = programs::witnesses().into_iter().find(|(name, _)| *name == known.id);
        let (_, ops) = witness.unwrap_or_else(|| panic!("{}: no program shows it", known.id));
        if let Err(run) = comparison.compare(family, || ops.iter().copied()) {
            panic!("{}, {family:?}: differs otherwise:\n{run}", known.id);
        }
        assert_eq!(comparison.usage.0.iter().sum::<usize>(), comparison.usage.0[index], "{}, {family:?}: another one was met", known.id);
        assert_ne!(comparison.usage.0[index], 0, "{}, {family:?}: the worlds agree now; strike it off the list", known.id);
    }
}

#[test]
fn generated_programs_of_a_fixed_seed_come_to_the_same() {
    generated("fixed", [7; 32], count().unwrap_or(300));
}

/// New ones each time. `RINGWAY_REFERENCE_SEED` repeats a run, `RINGWAY_REFERENCE_PROGRAMS` makes it longer.
#[test]
fn generated_programs_of_a_fresh_seed_come_to_the_same() {
    let seed = match std::env::var("RINGWAY_REFERENCE_SEED") {
        Ok(text) => text.parse().expect("RINGWAY_REFERENCE_SEED is a number"),
        Err(_) => fresh_seed(),
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&u64::to_le_bytes(seed));
    generated(&format!("RINGWAY_REFERENCE_SEED={seed}"), bytes, count().unwrap_or(100));
}

fn count() -> Option<u32> {
    std::env::var("RINGWAY_REFERENCE_PROGRAMS").ok().map(|text| text.parse().expect("RINGWAY_REFERENCE_PROGRAMS is a number"))
}

fn fresh_seed() -> u64 {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).expect("randomness");
    u64::from_ne_bytes(bytes)
}
