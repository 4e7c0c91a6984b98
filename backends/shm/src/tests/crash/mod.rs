//! The crash matrix: for each operation, a victim that ends at its k-th store to shared memory or visible system call, for every k;
//! and what must be true for the others then. `RINGWAY_CRASH_EVERY=1` runs every point of the long operations too.

mod frames;
mod limits;
mod regions;
mod stack;
mod stage;

use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stage::{Endpoint, Fate, Operation, Stage};

/// Set to 1: no point is left out.
const EVERY: &str = "RINGWAY_CRASH_EVERY";
/// Chooses the points of a run that leaves some out.
const SEED: &str = "RINGWAY_CRASH_SEED";
/// Only operations whose name contains this.
const ONLY: &str = "RINGWAY_CRASH_ONLY";

/// Points at an operation's beginning, and at its end, of which none is ever left out.
const ENDS: u32 = 40;
/// Of the points between, about so many are run when not all are.
const SAMPLE: u32 = 40;
/// Points at which the victim is stopped.
const STOPS: u32 = 4;
/// The same, when no point is left out.
const STOPS_EVERY: u32 = 60;
/// An operation's points vary by a few from run to run. So many beyond the most that were counted are tried.
const SLACK: u32 = 64;

/// After so many an operation is given up: each takes its time.
const FAILURES_MAX: usize = 10;

/// Runs a test of this binary in a process of its own, which has one thread, and whose descriptors and mappings are its own.
fn run_alone(name: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{out}");
    assert!(output.status.success(), "{err}");
    assert!(out.contains("1 passed"), "{name} was not run:\n{out}");
}

#[test]
fn death_at_any_point_of_a_member_hurts_nobody() {
    run_alone("tests::crash::members");
}

#[test]
fn death_at_any_point_of_a_connection_hurts_nobody() {
    run_alone("tests::crash::connections");
}

#[test]
#[ignore = "run alone, by the test above"]
fn members() {
    matrix(&frames::operations());
}

#[test]
#[ignore = "run alone, by the test above"]
fn connections() {
    matrix(&stack::operations());
}

/// A row of the matrix.
#[derive(Default)]
struct Row {
    stores: u64,
    calls: u64,
    runs: u32,
    stops: u32,
    worst: Duration,
    failures: Vec<String>,
    took: Duration,
}

fn matrix<S: Endpoint>(operations: &[Operation<S>]) {
    let every = std::env::var(EVERY).is_ok_and(|value| value == "1");
    let only = std::env::var(ONLY).unwrap_or_default();
    let fresh = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| u64::from(age.subsec_nanos()));
    let seed = std::env::var(SEED).ok().and_then(|text| text.parse().ok()).unwrap_or_else(fresh);
    println!("{}", if every { "every point".to_owned() } else { format!("{SEED}={seed} ({EVERY}=1: every point)") });
    println!("{:34} {:>7} {:>6} {:>7} {:>6} {:>9} {:>8}  failures", "operation", "stores", "calls", "killed", "stops", "worst", "took");
    let mut failures = Vec::new();
    let mut total = Row::default();
    let mut stage = Stage::set();
    for operation in operations.iter().filter(|operation| operation.name.contains(&only)) {
        let row = row(&mut stage, operation, every, seed);
        print_row(operation.name, &row);
        total.stores += row.stores;
        total.calls += row.calls;
        total.runs += row.runs;
        total.stops += row.stops;
        total.worst = total.worst.max(row.worst);
        total.took += row.took;
        failures.extend(row.failures.into_iter().map(|failure| format!("{}: {failure}", operation.name)));
    }
    total.failures.clone_from(&failures);
    print_row("all", &total);
    assert!(total.runs > 0, "no operation is called {only}");
    assert!(failures.is_empty(), "{} failures, the first: {:#?}", failures.len(), &failures[..failures.len().min(10)]);
}

fn print_row(name: &str, row: &Row) {
    let Row { stores, calls, runs, stops, worst, failures, took } = row;
    let failures = failures.len();
    println!("{name:34} {stores:>7} {calls:>6} {runs:>7} {stops:>6} {worst:>9.1?} {:>7.1}s  {failures}", took.as_secs_f64());
}

fn row<S: Endpoint>(stage: &mut Stage<S>, operation: &Operation<S>, every: bool, seed: u64) -> Row {
    let begin = Instant::now();
    let mut row = Row::default();
    let mut count = 0;
    for _ in 0..3 {
        match stage.run(operation, u32::MAX, Fate::Killed) {
            Ok(shown) if shown.done => {
                (row.stores, row.calls) = (row.stores.max(shown.stores), row.calls.max(shown.calls));
                count = count.max(u32::try_from(shown.stores + shown.calls).unwrap_or(u32::MAX));
            }
            Ok(_) => row.failures.push("it does not come through, though nothing stops it".to_owned()),
            Err(failure) => row.failures.push(format!("undisturbed: {failure}")),
        }
    }
    let mut came_through = false;
    for at in points(count, SAMPLE, every, seed).into_iter().chain(count + 1..count + SLACK) {
        if (at > count && came_through) || row.failures.len() >= FAILURES_MAX {
            break;
        }
        row.runs += 1;
        match stage.run(operation, at, Fate::Killed) {
            Ok(shown) => {
                came_through |= shown.done;
                row.worst = row.worst.max(shown.healed_after);
            }
            Err(failure) => row.failures.push(format!("killed at {at} of {count}: {failure}")),
        }
    }
    for (i, at) in stops(count, if every { STOPS_EVERY } else { STOPS }, seed).into_iter().enumerate() {
        row.stops += 1;
        let fate = if i % 2 == 0 { Fate::Stopped } else { Fate::StoppedAndKilled };
        match stage.run(operation, at, fate) {
            Ok(shown) if fate == Fate::Stopped && !shown.done => row.failures.push(format!("stopped at {at}: it did not go on")),
            Ok(shown) => row.worst = row.worst.max(shown.healed_after),
            Err(failure) => row.failures.push(format!("{fate:?} at {at} of {count}: {failure}")),
        }
    }
    row.took = begin.elapsed();
    row
}

/// All points up to `count`, or both ends and every so-manyth between, beginning where the seed says.
fn points(count: u32, sample: u32, every: bool, seed: u64) -> Vec<u32> {
    if every || count <= 2 * ENDS + sample {
        return (0..=count).collect();
    }
    let (first, last) = (ENDS, count - ENDS);
    let stride = prime_from((last - first) / sample);
    let offset = u32::try_from(seed % u64::from(stride)).unwrap_or(0);
    (0..first).chain((first + offset..last).step_by(stride as usize)).chain(last..=count).collect()
}

/// Some points all over the operation.
fn stops(count: u32, sample: u32, seed: u64) -> Vec<u32> {
    let stride = prime_from((count / sample).max(1));
    let offset = u32::try_from(seed % u64::from(stride)).unwrap_or(0);
    (offset..count).step_by(stride as usize).collect()
}

/// A stride that shares no factor with the ring's sizes meets each of its places sooner or later.
fn prime_from(least: u32) -> u32 {
    let is_prime = |n: &u32| *n > 1 && (2..).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    if least <= 1 { 1 } else { (least..).find(is_prime).unwrap_or(1) }
}
