//! The simulator: packets and simulated seconds in a second of wall time on one core, and seeds of the default swarm in a minute.
//!
//! Beside the bulk stands smoltcp's TCP in a loop of the same shape: two interfaces, one queue of frames each way, one stream, sockets' buffers
//! of the same size, and hosts that poll in turns of 10 us, so that frames come in batches. smoltcp computes each checksum and verifies it; the
//! simulated NICs compute each, and verify those of frames that something may have befallen: they know of the others. smoltcp's loop has no
//! links, no switch, no trace and no clock of its own; the simulator's has them all, and hashes every byte. smoltcp acknowledges a batch, Ringway
//! every second segment: a third of our packets are short, nearly none of theirs. "Frame by frame" is the same bulk with hosts that poll as
//! each frame arrives, as a world's hosts do by default; that is how the hundred hosts do too.

mod mix;
mod smol;
mod stream;
mod swarm;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::row::{self, Row};

/// Bytes of each socket's buffers in the bulk.
const BUFFER: usize = 512 << 10;
/// How often hosts poll in the bulk.
const TURN: Duration = Duration::from_micros(10);

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
    Frames,
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
            Part::Bulk => stream::bulk(bytes, TURN),
            Part::Frames => stream::bulk(bytes, Duration::ZERO),
            Part::Smoltcp => smol::bulk(bytes),
            Part::Mix => mix::hundred_hosts(),
        }?;
        println!("{part:?}: {run:?}, {:.0} packets/s", run.packets_per_s());
        return Ok(());
    }
    let (mut bulk, mut frames, mut smoltcp) = (Vec::new(), Vec::new(), Vec::new());
    let (mut mix, mut seeds) = (Vec::new(), Vec::new());
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        bulk.push(stream::bulk(bytes, TURN)?);
        frames.push(stream::bulk(bytes, Duration::ZERO)?);
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
        Row::new("sim bulk, frame by frame", "packets on one core", "packets/s", &each(&frames, Run::packets_per_s), "a million", &[1e6]),
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
