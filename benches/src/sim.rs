//! The simulator: packets and simulated seconds in a second of wall time on one core, and seeds of the default swarm in a minute.
//!
//! Beside the bulk stands smoltcp's TCP in a loop of the same shape: two interfaces, one queue of frames each way, checksums
//! computed and verified at both ends, one stream. smoltcp's loop has no links, no switch, no trace and no clock of its own; the simulator's has
//! them all, and hashes every byte.

mod mix;
mod smol;
mod stream;
mod swarm;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::row::{self, Row};

/// What to measure, and how often.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds: each measures everything once.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seeds of the swarm in a round.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// Runs one part once, and prints what it came to: for profilers, which count instructions rather than seconds.
    #[arg(long, hide = true)]
    only: Option<Part>,
    /// Mebibytes of each bulk stream.
    #[arg(long, hide = true, default_value_t = 256)]
    mib: u64,
}

/// What can be run alone.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Part {
    Bulk,
    Smoltcp,
    Mix,
}

/// What one run of a world came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Frames that a stack received.
    pub(crate) packets: u64,
    /// Virtual time that passed.
    pub(crate) simulated: Duration,
    /// Wall time that passed.
    pub(crate) wall: Duration,
}

impl Run {
    /// Times `run`, which returns packets and virtual time.
    pub(crate) fn measure(run: impl FnOnce() -> Result<(u64, Duration)>) -> Result<Self> {
        let start = Instant::now();
        let (packets, simulated) = run()?;
        Ok(Self { packets, simulated, wall: start.elapsed() })
    }

    fn packets_per_s(&self) -> f64 {
        self.packets as f64 / self.wall.as_secs_f64()
    }

    fn simulated_per_s(&self) -> f64 {
        self.simulated.as_secs_f64() / self.wall.as_secs_f64()
    }
}

/// Measures, writes `sim.jsonl`, prints the table.
///
/// # Errors
/// A stream did not arrive whole, or a seed failed.
pub(crate) fn run(output: &Path, options: &Options) -> Result<()> {
    let bytes = options.mib << 20;
    if let Some(part) = options.only {
        let run = match part {
            Part::Bulk => stream::bulk(bytes),
            Part::Smoltcp => smol::bulk(bytes),
            Part::Mix => mix::hundred_hosts(),
        }?;
        println!("{part:?}: {run:?}, {:.0} packets/s", run.packets_per_s());
        return Ok(());
    }
    let (mut bulk, mut smoltcp, mut mix, mut seeds) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        bulk.push(stream::bulk(bytes)?);
        smoltcp.push(smol::bulk(bytes)?);
        mix.push(mix::hundred_hosts()?);
        seeds.push(swarm::seeds(options.seeds)?);
    }
    let rows = [
        Row::new(
            "sim bulk",
            "packets on one core",
            "packets/s",
            &each(&bulk, Run::packets_per_s),
            "smoltcp",
            &each(&smoltcp, Run::packets_per_s),
        ),
        real_time("sim bulk", &bulk),
        Row::new("sim 100 hosts", "packets on one core", "packets/s", &each(&mix, Run::packets_per_s), "a million", &[1e6]),
        real_time("sim 100 hosts", &mix),
        Row::new("sim swarm", "seeds on one core", "seeds/min", &each(&seeds, |s| s.per_minute), "a seed in 40 ms", &[1_500.0]),
        Row::new("sim swarm", "a seed, median", "ms", &each(&seeds, |s| s.median_ms), "the target", &[40.0]),
    ];
    row::write(&rows, output, "sim")?;
    print!("{}", row::markdown(&rows));
    Ok(())
}

fn real_time(bench: &'static str, runs: &[Run]) -> Row {
    Row::new(bench, "virtual time in a second", "s", &each(runs, Run::simulated_per_s), "real time", &[1.0])
}

fn each<T>(runs: &[T], figure: impl Fn(&T) -> f64) -> Vec<f64> {
    runs.iter().map(figure).collect()
}
