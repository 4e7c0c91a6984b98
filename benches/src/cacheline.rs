//! The round trip of a cache line between two cores: two threads, each pinned, hand a word to and fro. No message between
//! processes can be faster, so latencies are given in multiples of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::row;

/// Round trips in one batch: some hundred microseconds.
const BATCH: u64 = 1_000;

/// Batches in one measurement. The median one counts, so that a moment on which a thread lost its core does not.
const BATCHES: u64 = 300;

/// A word with a cache line, and the line that the prefetcher fetches with it, for itself.
#[repr(align(128))]
struct Line(AtomicU64);

/// The first two CPUs that this process may run on.
pub(crate) fn two_cpus() -> Result<[usize; 2]> {
    let allowed = sched_getaffinity(None)?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    match (cpus.next(), cpus.next()) {
        (Some(a), Some(b)) => Ok([a, b]),
        _ => anyhow::bail!("two CPUs are needed"),
    }
}

/// One measurement, in nanoseconds.
pub(crate) fn round_trip_ns() -> Result<f64> {
    let [here, there] = two_cpus()?;
    let lines = Arc::new([const { Line(AtomicU64::new(0)) }; 2]);
    let echo = {
        let lines = Arc::clone(&lines);
        thread::spawn(move || -> Result<()> {
            pin(there)?;
            for turn in 1..=BATCHES * BATCH {
                wait_for(&lines[0].0, turn);
                lines[1].0.store(turn, Ordering::Release);
            }
            Ok(())
        })
    };
    let ask = thread::spawn(move || -> Result<Vec<f64>> {
        pin(here)?;
        let mut batches = Vec::new();
        for batch in 0..BATCHES {
            let start = Instant::now();
            for turn in batch * BATCH + 1..=(batch + 1) * BATCH {
                lines[0].0.store(turn, Ordering::Release);
                wait_for(&lines[1].0, turn);
            }
            #[expect(clippy::cast_precision_loss, reason = "nanoseconds of less than a second")]
            batches.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
        }
        Ok(batches)
    });
    let batches = ask.join().map_err(|_| anyhow::anyhow!("the asking thread panicked"))??;
    ensure!(echo.join().is_ok_and(|r| r.is_ok()), "the answering thread failed");
    Ok(row::median(&batches))
}

fn wait_for(word: &AtomicU64, value: u64) {
    // No pause instruction: it costs more than the line does on some processors (140 cycles on Skylake).
    while word.load(Ordering::Acquire) != value {}
}

fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}
