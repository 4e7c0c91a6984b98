//! Ringway against the kernel: the same programs of socket calls in both worlds, compared call by call when both are at rest.
//!
//! Ringway runs in the simulator, on virtual time. The kernel needs its own time, but only to come to rest: when the worlds
//! agree at once, none passes.

mod differences;
mod generate;
mod kernel;

use std::cell::RefCell;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use ringway_conformance::reference::lockstep::{Run, run};
use ringway_conformance::reference::program::Source;
use ringway_conformance::reference::ringway::Ringway;

use crate::differences::Usage;
use crate::kernel::{Addresses, Kernel};

/// How long both worlds rest after each call, where one must be sure that nothing is under way.
const SLOW_MS: u64 = 60;

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

    fn run(&mut self, source: &mut dyn Source, slow: u64) -> Run {
        let mut sim = Ringway::new(1);
        let mut kernel = Kernel::new(&mut self.addresses);
        let run = run(&mut sim, &mut kernel, source, slow, &mut |difference| self.usage.judge(&difference));
        self.calls += run.steps.len();
        run
    }

    /// Runs a program; if the worlds differ, once more with long rests. (This machine may be busy, and the kernel's timers go on.)
    fn compare<S: Source>(&mut self, source: impl Fn() -> S) -> Result<(), Run> {
        let first = self.run(&mut source(), 0);
        if first.bug.is_none() {
            return Ok(());
        }
        let second = self.run(&mut source(), SLOW_MS);
        if second.bug.is_some() {
            return Err(second);
        }
        println!("gone when both rested longer:\n{first}");
        self.transient += 1;
        Ok(())
    }
}

fn generated(name: &str, seed: [u8; 32], programs: u32) {
    let config = Config { cases: programs, failure_persistence: None, max_shrink_iters: 600, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let comparison = RefCell::new(Comparison::new());
    let result = runner.run(&generate::drafts(), |draft| {
        comparison.borrow_mut().compare(|| draft.calls()).map_err(|run| TestCaseError::fail(run.to_string()))
    });
    let comparison = comparison.into_inner();
    println!("{name}: {programs} programs, {} calls, {} transient", comparison.calls, comparison.transient);
    comparison.usage.print();
    if let Err(TestError::Fail(story, _)) = result {
        panic!("the worlds differ:\n{}", story.message());
    }
    result.expect("the runner itself");
}

#[test]
fn generated_programs_of_a_fixed_seed_come_to_the_same() {
    generated("fixed", [7; 32], 300);
}
