//! The engine alone: one process, one thread, two hosts of a stack and a wire in memory between them. `cargo xtask bench engine` builds it and runs it.
//!
//! Beside ours stands smoltcp, in the same loops, on the same wire ([`wire`]), with the same MTU, buffers and chunks. Both compute all checksums and verify them.
//! Ours is as its defaults are, with SACK, timestamps, window scaling and CUBIC; smoltcp as its are ([`smol`]). Measured in turn, in one run.
//!
//! Its allocator counts, which costs both some nanoseconds where they allocate; and that ours allocates nothing for a segment is checked: the bench fails if it does.
#![forbid(unsafe_code)]

mod crowd;
mod ours;
#[path = "../../src/row.rs"]
mod row;
mod smol;
mod stream;
mod wire;

use std::alloc::System;
use std::cmp::Reverse;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use cap::Cap;
use clap::Parser;

use crate::row::Row;
use crate::stream::Run;
use crate::wire::Checksums;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// The last one has frames of 64 KiB.
const MTUS: [usize; 3] = [1500, 9000, (64 << 10) - 14];
const CROWD: u32 = 100_000;
const SMALL_CROWD: u32 = 1_000;

/// The stack alone, beside smoltcp.
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench engine")]
struct Options {
    /// The folder for the rows.
    #[arg(long, hide = true)]
    output: PathBuf,
    /// Rounds: each measures everything once.
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// Mebibytes of each stream.
    #[arg(long, default_value_t = 256)]
    mib: u64,
    /// Connects beside a million idle connections, too: 2 GB of memory.
    #[arg(long)]
    million: bool,
    /// Runs one part once, and prints what it came to: for profilers.
    #[arg(long, hide = true)]
    only: Option<Part>,
}

/// What can be run alone.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Part {
    Bulk,
    BulkSmoltcp,
    PingPong,
    PingPongSmoltcp,
    Connect,
    ConnectSmoltcp,
    Crowd,
    Idle,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    if let Some(part) = options.only {
        return alone(part, options);
    }
    let mut rows = Vec::new();
    let mut allocated = streams(options, &mut rows)?;
    allocated += ping_pong(options, &mut rows)?;
    connects(options, &mut rows)?;
    idle(options, &mut rows)?;
    row::write(&rows, &options.output, "engine")?;
    print!("{}", row::markdown(&rows));
    println!("\nOurs allocated {allocated} bytes for segments once warm: none is the aim, and anything else a failure.");
    println!("For the timers of a stream of 20 s: {} bytes.", stream::allocated_by_timers(4_000)?);
    ensure!(allocated == 0, "{allocated} bytes were allocated where none may be");
    Ok(())
}

fn alone(part: Part, options: &Options) -> Result<()> {
    let bytes = options.mib << 20;
    match part {
        Part::Bulk => println!("{:?}", stream::ours(MTUS[0], bytes, Checksums::Stack)?),
        Part::BulkSmoltcp => println!("{:?}", stream::smoltcp(MTUS[0], bytes, Checksums::Stack)?),
        Part::PingPong => println!("{:?}", stream::ping_pong_ours(1_000_000, Checksums::Stack)?),
        Part::PingPongSmoltcp => println!("{:?}", stream::ping_pong_smoltcp(1_000_000, Checksums::Stack)?),
        Part::ConnectSmoltcp => println!("{} /s", crowd::Smoltcp::new(0)?.rate(200_000)?),
        Part::Idle => {
            let mut rows = Vec::new();
            idle(options, &mut rows)?;
            print!("{}", row::markdown(&rows));
        }
        Part::Connect => println!("{} /s", crowd::Ours::new(0)?.rate(200_000)?),
        Part::Crowd => println!("{} /s", crowd::Ours::new(CROWD)?.rate(200_000)?),
    }
    Ok(())
}

/// Returns how many bytes ours allocated.
fn streams(options: &Options, rows: &mut Vec<Row>) -> Result<usize> {
    let kinds = [
        ("engine bulk, MTU 1500", MTUS[0], Checksums::Stack),
        ("engine bulk, MTU 9000", MTUS[1], Checksums::Stack),
        ("engine bulk, frames of 64 KiB", MTUS[2], Checksums::Stack),
        ("engine bulk, MTU 1500, no checksums", MTUS[0], Checksums::Device),
    ];
    let bytes = options.mib << 20;
    let mut allocated = 0;
    for (bench, mtu, checksums) in kinds {
        let runs = in_turn(options.rounds, bench, || stream::ours(mtu, bytes, checksums), || stream::smoltcp(mtu, bytes, checksums))?;
        allocated += runs.0.iter().map(|run| run.allocated).sum::<usize>();
        rows.push(beside(bench, "throughput", "MB/s", &runs, Run::mb_per_s));
        rows.push(beside(bench, "a segment with payload", "ns", &runs, Run::ns_per_unit));
    }
    Ok(allocated)
}

/// Returns how many bytes ours allocated.
fn ping_pong(options: &Options, rows: &mut Vec<Row>) -> Result<usize> {
    const COUNT: u32 = 400_000;
    let kinds = [("engine ping-pong, 64 B", Checksums::Stack), ("engine ping-pong, 64 B, no checksums", Checksums::Device)];
    let mut allocated = 0;
    for (bench, by) in kinds {
        let runs = in_turn(options.rounds, bench, || stream::ping_pong_ours(COUNT, by), || stream::ping_pong_smoltcp(COUNT, by))?;
        allocated += runs.0.iter().map(|run| run.allocated).sum::<usize>();
        rows.push(beside(bench, "round trip", "ns", &runs, Run::ns_per_unit));
    }
    Ok(allocated)
}

fn connects(options: &Options, rows: &mut Vec<Row>) -> Result<()> {
    const COUNT: u32 = 50_000;
    let bench = "engine connect, accept, close";
    let many = if options.million { vec![0, SMALL_CROWD, CROWD, 1_000_000] } else { vec![0, SMALL_CROWD, CROWD] };
    let mut ours = many.iter().map(|idle| crowd::Ours::new(*idle)).collect::<Result<Vec<_>>>()?;
    // (Of more it looks at each for every packet, and takes seconds for a few connections.)
    let mut theirs = [crowd::Smoltcp::new(0)?, crowd::Smoltcp::new(SMALL_CROWD)?];
    let (mut our_rates, mut their_rates) = (vec![Vec::new(); ours.len()], [Vec::new(), Vec::new()]);
    for round in 0..options.rounds {
        eprintln!("{bench}: round {} of {}", round + 1, options.rounds);
        for (crowd, rates) in ours.iter_mut().zip(&mut our_rates) {
            rates.push(crowd.rate(COUNT)?);
        }
        for ((crowd, rates), count) in theirs.iter_mut().zip(&mut their_rates).zip([COUNT, COUNT / 25]) {
            rates.push(crowd.rate(count)?);
        }
    }
    let beside = |idle: u32| format!("beside {idle} idle connections");
    for ((idle, ours), theirs) in many.iter().zip(&our_rates).zip(&their_rates) {
        rows.push(Row::new(bench, beside(*idle), "/s", ours, "smoltcp", theirs));
    }
    for (idle, rates) in many.iter().zip(&our_rates).skip(1) {
        rows.push(Row::new(bench, beside(*idle), "/s", rates, "beside none", &our_rates[0]));
    }
    Ok(())
}

fn idle(options: &Options, rows: &mut Vec<Row>) -> Result<()> {
    let bench = "engine idle connections";
    for (count, metric) in [(SMALL_CROWD, "memory of one end, of 1000"), (CROWD, "memory of one end, of 100000")] {
        rows.push(Row::new(bench, metric, "B", &[crowd::bytes_each(count)?], "the aim", &[1024.0]));
    }
    let mut longest = Vec::new();
    // Of each connection the least of all rounds: tables grow at the same one each time, and whatever else takes the processor does not come there twice.
    let mut least: Vec<Duration> = Vec::new();
    for _ in 0..options.rounds {
        let taken = crowd::stalls(CROWD)?;
        longest.push(us(taken.iter().max()));
        least = if least.is_empty() { taken } else { least.into_iter().zip(taken).map(|(a, b)| a.min(b)).collect() };
    }
    rows.push(Row::new(bench, "longest connect while 100000 come, a round's", "us", &longest, "the aim", &[50.0]));
    for (number, time) in slowest(&least) {
        eprintln!("{bench}: connection {number} took {:.1} us at least", us(Some(&time)));
    }
    rows.push(Row::new(bench, "the same, least of all rounds at each", "us", &[us(least.iter().max())], "the aim", &[50.0]));
    Ok(())
}

/// Which ones took longest: where tables grow.
fn slowest(taken: &[Duration]) -> Vec<(usize, Duration)> {
    let mut all: Vec<_> = taken.iter().copied().enumerate().collect();
    all.sort_by_key(|(_, time)| Reverse(*time));
    all.truncate(8);
    all
}

fn us(time: Option<&Duration>) -> f64 {
    time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// Ours and theirs in turn, so many rounds. (Each goes first in every other one.)
fn in_turn<T>(rounds: u32, what: &str, ours: impl Fn() -> Result<T>, theirs: impl Fn() -> Result<T>) -> Result<(Vec<T>, Vec<T>)> {
    let mut runs = (Vec::new(), Vec::new());
    for round in 0..rounds {
        eprintln!("{what}: round {} of {rounds}", round + 1);
        if round % 2 == 0 {
            runs.0.push(ours()?);
            runs.1.push(theirs()?);
        } else {
            runs.1.push(theirs()?);
            runs.0.push(ours()?);
        }
    }
    Ok(runs)
}

fn beside(bench: &'static str, metric: &str, unit: &'static str, (ours, theirs): &(Vec<Run>, Vec<Run>), figure: fn(&Run) -> f64) -> Row {
    let each = |runs: &[Run]| runs.iter().map(figure).collect::<Vec<_>>();
    Row::new(bench, metric, unit, &each(ours), "smoltcp", &each(theirs))
}
