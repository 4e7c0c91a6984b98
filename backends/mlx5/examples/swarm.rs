//! Plays seeds of the swarm (`tests/virtual`): `swarm A..B [--jobs N]`, or `swarm SEED`, which says what it came to.
//!
//! The driver in the simulator, in virtual time, on software cards that fail in every way that they can. No card and no library is needed.

#[path = "../tests/virtual/swarm/mod.rs"]
mod swarm;

use std::panic::{catch_unwind, set_hook};
use std::process::{Command, ExitCode};

/// Seeds after which it is said how far it is.
const NEWS: u64 = 10_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (range, jobs) = match &arguments[..] {
        [seed] if !seed.contains("..") => (seed.parse().map(|seed: u64| (seed, seed + 1)).ok(), 1),
        [range] => (parse(range), 1),
        [range, flag, jobs] if flag == "--jobs" => (parse(range), jobs.parse().unwrap_or(1)),
        _ => (None, 1),
    };
    let Some((from, to)) = range else {
        eprintln!("usage: swarm SEED | A..B [--jobs N]");
        return ExitCode::from(2);
    };
    if jobs > 1 { several(from, to, jobs) } else { play(from, to) }
}

fn parse(range: &str) -> Option<(u64, u64)> {
    let (from, to) = range.split_once("..")?;
    Some((from.parse().ok()?, to.parse().ok()?))
}

/// Each job is a process of its own, with a part of the range.
fn several(from: u64, to: u64, jobs: u64) -> ExitCode {
    let part = (to - from).div_ceil(jobs).max(1);
    let own = std::env::current_exe().expect("a path");
    let start = |job| {
        let begin = from + job * part;
        Command::new(&own).arg(format!("{begin}..{}", to.min(begin + part))).spawn().expect("a job")
    };
    let children: Vec<_> = (0..jobs).map(start).collect();
    let is_clean = children.into_iter().map(|mut child| child.wait().expect("its end")).fold(true, |all, status| all & status.success());
    if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn play(from: u64, to: u64) -> ExitCode {
    let is_one = to == from + 1;
    if !is_one {
        // (What is broken is said below, in a line.)
        set_hook(Box::new(|_| {}));
    }
    let (mut failed, mut events, mut frames, mut failures) = (0, 0, 0, 0);
    for seed in from..to {
        match catch_unwind(|| swarm::run(seed)) {
            Ok(report) if is_one => println!("{report:#?}"),
            Ok(report) => {
                events += report.events;
                frames += report.frames;
                failures += report.send_failures + report.receive_failures;
            }
            Err(panic) => {
                failed += 1;
                let text = panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic without a message".into());
                println!("seed {seed}: {text}");
            }
        }
        let done = seed + 1 - from;
        if done.is_multiple_of(NEWS) || seed + 1 == to {
            println!(
                "{done} seeds from {from} on: {failed} failed; {events} events, {frames} frames, {failures} queues that failed and came back"
            );
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
