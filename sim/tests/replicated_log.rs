//! The example's planted bugs are found, made small, and replay; without them, seeds run clean.

#[path = "../examples/replicated_log/client.rs"]
mod client;
#[path = "../examples/replicated_log/cluster.rs"]
mod cluster;
#[path = "../examples/replicated_log/log.rs"]
mod log;
#[path = "../examples/replicated_log/node.rs"]
mod node;

use ringway_sim::program::{Found, search};
use ringway_sim::{Capture, Case, FaultSet};

use log::Bug;

/// Seeds within which a planted bug must be found.
const SEEDS: u64 = 100;
/// Most runs that finding and minimising may take.
const RUNS_MAX: u64 = 500;
/// Seeds that must run clean without one.
const CLEAN_SEEDS: u64 = 150;

fn found(bug: Bug) -> Found {
    search(0..SEEDS, |case| cluster::run(case, bug, Capture::Hash).verdict()).expect("the bug is found")
}

#[test]
fn a_retry_that_appends_twice_is_found_and_replays() {
    let found = found(Bug::Twice);
    assert!(found.failure.ends_with("times in the log"), "{found}");
    assert!(found.case.faults.iter().count() < found.first.faults.iter().count(), "not every class of fault is needed: {found}");
    // A run takes some milliseconds: with a replay and another, this is well under a minute.
    assert!(found.clean + u64::from(found.runs) < RUNS_MAX, "{found}");
    let replay = || cluster::run(&found.case, Bug::Twice, Capture::Hash);
    let (first, again) = (replay(), replay());
    assert_eq!(first.verdict(), Err(found.failure.clone()));
    assert_eq!((first.world.report(), first.story), (again.world.report(), again.story));
    // The case blames the bug, not the world.
    assert_eq!(cluster::run(&found.case, Bug::None, Capture::Hash).verdict(), Ok(()));
}

#[test]
fn an_answer_before_the_quorum_is_found() {
    let found = found(Bug::Early);
    assert!(found.failure.contains("was acknowledged with 1 copies"), "{found}");
    assert_eq!(cluster::run(&found.case, Bug::None, Capture::Hash).verdict(), Ok(()));
}

#[test]
fn what_was_not_synced_is_missed_after_a_crash() {
    let found = found(Bug::Unsynced);
    assert_eq!(found.case.faults, FaultSet::CRASH, "{found}");
    assert_eq!(cluster::run(&found.case, Bug::None, Capture::Hash).verdict(), Ok(()));
}

#[test]
fn the_log_without_a_bug_holds() {
    ringway_sim::check(0..CLEAN_SEEDS, |case| cluster::run(case, Bug::None, Capture::Hash).verdict());
}

#[test]
fn without_faults_nobody_asks_twice() {
    let calm = Case { faults: FaultSet::empty(), ..Case::of_seed(1) };
    let run = cluster::run(&calm, Bug::Twice, Capture::Hash);
    assert!(run.story.iter().all(|line| !line.contains("asks again")), "{:?}", run.story);
}
