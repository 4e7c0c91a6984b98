//! Campaigns over runs that fail on purpose.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use ringway_sim::campaign::{Batch, Seeds, Shard};
use ringway_sim::scenario::{Scenario, Stage};
use ringway_sim::{FaultSet, Report};

use super::campaign::{self, Ended, Plan};
use super::panics;

/// A state file of a test's own, which doesn't exist yet.
fn state(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ringway-sim-{}-{name}", std::process::id()));
    _ = fs::remove_dir_all(&folder);
    folder.join("state.jsonl")
}

fn plan(name: &str, seeds: &str, run: fn(&Scenario) -> Report) -> Plan {
    Plan {
        share: seeds.parse::<Seeds>().unwrap().share(Shard::WHOLE),
        jobs: 3,
        state: state(name),
        resume: true,
        twice: false,
        ipv6: false,
        failures_max: 10,
        minimise_for: Duration::from_secs(60),
        seed_timeout: Duration::from_secs(60),
        tree: "this".to_owned(),
        run,
    }
}

fn run(plan: &Plan) -> Ended {
    panics::install();
    campaign::run(plan, &Arc::new(AtomicBool::new(false))).unwrap()
}

fn end(plan: &Plan) {
    fs::remove_dir_all(plan.state.parent().unwrap()).unwrap();
}

/// A small world that ends at once: what these tests are about is not in it.
fn small(scenario: &Scenario) -> Report {
    let calm = Scenario { faults: FaultSet::empty(), scale: 0, ..*scenario };
    Stage::set(&calm).play()
}

/// Every third seed has a bug that needs loss, reordering, and a little work.
fn planted(scenario: &Scenario) -> Report {
    let needed = FaultSet::LOSS | FaultSet::REORDERING;
    let struck = scenario.faults.contains(needed) && scenario.scale >= 2;
    assert!(!(scenario.seed % 3 == 1 && struck), "planted: {} bytes too many", scenario.scale);
    small(scenario)
}

#[test]
fn a_planted_bug_is_found_and_made_small() {
    let plan = Plan { failures_max: 1000, ..plan("planted", "0..120", planted) };
    let failing = |seed: &u64| {
        let s = Scenario::of_seed(*seed);
        seed % 3 == 1 && s.faults.contains(FaultSet::LOSS | FaultSet::REORDERING) && s.scale >= 2
    };
    let expected: Vec<_> = (0..120).filter(failing).collect();
    assert!(!expected.is_empty(), "no seed fails: widen the range");
    let ended = run(&plan);
    let mut failures = ended.failures;
    failures.sort_by_key(|f| f.seed);
    assert_eq!(failures.iter().map(|f| f.seed).collect::<Vec<_>>(), expected);
    for failed in &failures {
        let minimal: Scenario = failed.minimal.parse().unwrap();
        assert_eq!((minimal.seed, minimal.faults, minimal.scale), (failed.seed, FaultSet::LOSS | FaultSet::REORDERING, 2));
        assert_eq!(failed.failure.message, "planted: 2 bytes too many");
        assert!(failed.failure.place.contains("tests.rs"), "{}", failed.failure.place);
    }
    assert_eq!((ended.summary.seeds, ended.summary.failed), (120, expected.len() as u64));

    // What failed has failed for whoever resumes, too, and is not run again.
    let again = run(&plan);
    assert_eq!((again.earlier, again.left), (120, 0));
    let mut seeds: Vec<_> = again.failures.iter().map(|f| f.seed).collect();
    seeds.sort_unstable();
    assert_eq!(seeds, expected);
    end(&plan);
}

#[test]
fn a_resumed_campaign_runs_what_is_left() {
    let first = plan("resume", "0..40", small);
    assert_eq!(run(&first).summary.seeds, 40);
    let wider = Plan { share: Batch { count: 100, ..first.share }, ..first.clone() };
    let ended = run(&wider);
    assert_eq!((ended.earlier, ended.summary.seeds, ended.left), (40, 100, 0));

    // Other code, or none that anybody could name: nothing counts.
    for tree in ["other", ""] {
        let other = Plan { tree: tree.to_owned(), ..first.clone() };
        assert_eq!(run(&other).earlier, 0, "{tree:?}");
    }
    // Nor does anything without being asked for it.
    assert_eq!(run(&Plan { resume: false, ..first.clone() }).earlier, 0);
    end(&first);
}

/// What a kill leaves behind: half a line. It costs its batch, and no other.
#[test]
fn half_a_line_costs_one_batch() {
    let plan = plan("half", "0..64", small);
    run(&plan);
    let text = fs::read_to_string(&plan.state).unwrap();
    let lines = text.lines().count();
    fs::write(&plan.state, &text[..text.len() - 20]).unwrap();
    let ended = run(&plan);
    assert!(ended.earlier > 0 && ended.earlier < 64, "{}", ended.earlier);
    assert_eq!((ended.summary.seeds, ended.left), (64, 0));
    let again = fs::read_to_string(&plan.state).unwrap();
    assert!(again.lines().count() > lines);
    assert_eq!(run(&plan).earlier, 64);
    end(&plan);
}

#[test]
fn shards_together_are_the_whole() {
    let whole = plan("whole", "5..50", small);
    let mut expected = run(&whole).summary;
    let mut sum = ringway_sim::campaign::Summary::default();
    for index in 1..=4 {
        let share = "5..50".parse::<Seeds>().unwrap().share(format!("{index}/4").parse().unwrap());
        let plan = Plan { share, ..plan(&format!("shard{index}"), "0..1", small) };
        sum.merge(&run(&plan).summary);
        end(&plan);
    }
    // Wall time is all that may differ.
    (expected.wall, sum.wall) = Default::default();
    assert_eq!(sum, expected);
    end(&whole);
}

#[test]
fn an_interrupted_campaign_keeps_what_it_did() {
    let plan = plan("interrupted", "0..100000", small);
    let stop = Arc::new(AtomicBool::new(false));
    panics::install();
    let ended = {
        let (stop, plan) = (Arc::clone(&stop), plan.clone());
        std::thread::spawn(move || campaign::run(&plan, &stop).unwrap())
    };
    while !fs::read_to_string(&plan.state).is_ok_and(|text| text.lines().count() >= 3) {
        std::thread::yield_now();
    }
    stop.store(true, Relaxed);
    let ended = ended.join().unwrap();
    assert!(ended.interrupted && ended.left > 0);
    assert_eq!(ended.summary.seeds + ended.left, 100_000);
    let share = Batch { count: ended.summary.seeds.min(200), ..plan.share };
    let earlier = super::state::read(&plan.state, &plan.tree, plan.share).unwrap();
    assert_eq!(earlier.done.len() as u64, ended.summary.seeds);
    assert_eq!(earlier.summary, ended.summary);
    assert!(run(&Plan { share, ..plan.clone() }).earlier > 0);
    end(&plan);
}

/// A seed whose program never gives the simulator its turn back: nothing in the simulator can end it.
#[test]
fn a_stuck_seed_ends_the_campaign() {
    fn stuck(scenario: &Scenario) -> Report {
        if scenario.seed != 5 {
            return small(scenario);
        }
        loop {
            std::thread::park();
        }
    }
    let plan = Plan { seed_timeout: Duration::from_secs(1), ..plan("stuck", "0..20", stuck) };
    let ended = run(&plan);
    assert_eq!(ended.failures.iter().map(|f| f.seed).collect::<Vec<_>>(), [5]);
    assert!(ended.failures[0].failure.message.contains("not at its end after 1s"), "{:?}", ended.failures);
    assert!(ended.left > 0);
    end(&plan);
}

#[test]
fn a_bad_day_ends_early() {
    fn broken(_: &Scenario) -> Report {
        panic!("broken")
    }
    let plan = Plan { failures_max: 4, ..plan("bad", "0..10000", broken) };
    let ended = run(&plan);
    // Those that the other workers were at come on top.
    assert!((4..=4 + plan.jobs).contains(&ended.failures.len()), "{}", ended.failures.len());
    assert!(ended.left > 9000 && !ended.interrupted);
    end(&plan);
}
