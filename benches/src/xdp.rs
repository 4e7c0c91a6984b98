//! Real programs at the two ends of a veth pair, each in a network namespace of its own: the kernel at both, Ringway's interface at one, and at both, in turn.

mod cable;
pub(crate) mod datagrams;
mod programs;

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;

use crate::row::{self, Row};
use cable::{Cable, Ends};

/// What to measure, and how often.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds: each measures every pair of ends once.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Only these (all, if none).
    #[arg(long, value_enum)]
    only: Vec<Figure>,
}

/// A program's figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Ping-pong of 64 bytes by TCP and UDP, the programs as they come and spinning.
    Sockperf,
    /// Throughput of one stream and of eight, with the kernel's offloads on and off.
    Iperf3,
    /// GET, and GET with sixteen in the pipe.
    Redis,
    /// Datagrams of a flood that a program receives, beside a device that drops them.
    Datagrams,
    /// System calls of a program on Ringway for each frame.
    Calls,
}

/// Measures, writes `xdp.jsonl`, prints the table.
///
/// # Errors
/// A program failed, or was not offloaded when it should have been; or no namespaces are to be had.
pub(crate) fn run(library: &Path, output: &Path, options: &Options) -> Result<()> {
    let cable = Cable::lay(library, output)?;
    let mut rows: Vec<Row> = Vec::new();
    for &figure in Figure::value_variants() {
        if !options.only.is_empty() && !options.only.contains(&figure) {
            continue;
        }
        eprintln!("measuring {}", figure.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned()));
        rows.extend(match figure {
            Figure::Sockperf => programs::sockperf(&cable, options.rounds)?,
            Figure::Iperf3 => programs::iperf3(&cable, options.rounds)?,
            Figure::Redis => programs::redis(&cable, options.rounds)?,
            Figure::Datagrams => datagrams::rows(&cable, options.rounds)?,
            Figure::Calls => programs::calls(&cable)?,
        });
        row::write(&rows, output, "xdp")?;
    }
    print!("{}", row::markdown(&rows));
    Ok(())
}

/// One figure of each pair of ends, in turn, in each round.
fn each(cable: &Cable, rounds: u32, measure: impl Fn(Ends) -> Result<f64>) -> Result<[Vec<f64>; 4]> {
    let mut figures = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        for (ends, figures) in Ends::ALL.into_iter().zip(&mut figures) {
            figures.push(measure(ends)?);
            if ends != Ends::KERNELS {
                cable.check_offloaded()?;
            }
        }
    }
    Ok(figures)
}

/// Rows of such figures, those of Ringway beside the kernel's.
fn beside_kernel(
    bench: &'static str,
    metrics: [&'static str; 3],
    unit: &'static str,
    [kernels, asks, serves, both]: &[Vec<f64>; 4],
) -> Vec<Row> {
    let row = |metric, ours: &[f64]| Row::new(bench, metric, unit, ours, "kernel to kernel", kernels);
    vec![row(metrics[0], both), row(metrics[1], asks), row(metrics[2], serves)]
}
