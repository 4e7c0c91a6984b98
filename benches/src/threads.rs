//! Threads beside processes: what each of several threads of one process gets done with connections of its own, and what each of as many processes does.
//!
//! Each thread has both ends of its connections, so that nobody waits for anybody, and whatever a second thread costs the first is what they share
//! inside the library. How often a thread found one of the library's locks taken is printed beside. Each thread has a ring of its own, unless `--logic 0` says
//! that they share one.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use ringway_report::ProcessReport;

use crate::apps::program::{Programs, World};
use crate::row::{self, Row, median};

/// How often, and how long.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds: each measures threads and processes once.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// VMA_RING_ALLOCATION_LOGIC_RX: 20 is a ring for each thread, 0 the one that a process has by default.
    #[arg(long, default_value_t = 20)]
    logic: u32,
}

/// Rows' names: with so many threads ([`COUNTS`]).
const TCP: [&str; 3] = ["tcp, 1 thread", "tcp, 2 threads", "tcp, 4 threads"];
const TCP_BY_EPOLL: [&str; 3] = ["tcp by epoll, 1 thread", "tcp by epoll, 2 threads", "tcp by epoll, 4 threads"];
const UDP: [&str; 3] = ["udp, 1 thread", "udp, 2 threads", "udp, 4 threads"];
const UDP_BY_EPOLL: [&str; 3] = ["udp by epoll, 1 thread", "udp by epoll, 2 threads", "udp by epoll, 4 threads"];

const EXCHANGES: (&str, &str) = ("exchanges of 64 B", "/s");
const STREAM: (&str, &str) = ("throughput, 64 KiB at a time", "MB/s");
const DATAGRAMS: (&str, &str) = ("throughput, 16 datagrams of 1400 B at once", "MB/s");

/// What a thread does: the program's words, the rows' names, and the figure's name and unit.
const WORK: [(&str, [&str; 3], (&str, &str)); 8] = [
    ("tcp ping plain", TCP, EXCHANGES),
    ("tcp ping epoll", TCP_BY_EPOLL, EXCHANGES),
    ("tcp bulk plain", TCP, STREAM),
    ("tcp bulk epoll", TCP_BY_EPOLL, STREAM),
    ("udp ping plain", UDP, EXCHANGES),
    ("udp ping epoll", UDP_BY_EPOLL, EXCHANGES),
    ("udp bulk plain", UDP, DATAGRAMS),
    ("udp bulk epoll", UDP_BY_EPOLL, DATAGRAMS),
];

const COUNTS: [usize; 3] = [1, 2, 4];
const PEERS: [&str; 3] = ["a process", "each of 2 processes", "each of 4 processes"];

/// Measures, writes `threads.jsonl`, prints the table.
///
/// # Errors
/// The program failed, or was not offloaded.
pub(crate) fn run(library: &Path, output: &Path, options: &Options) -> Result<()> {
    let programs = Programs::new(library, output)?;
    let [source, program] = [programs.scratch("threads.c"), programs.scratch("threads")];
    std::fs::write(&source, include_str!("threads/threads.c"))?;
    let status = Command::new("cc").args(["-O2", "-pthread", "-o"]).arg(&program).arg(&source).status().context("cc")?;
    ensure!(status.success(), "threads.c does not compile");
    let cores = std::thread::available_parallelism()?.get();
    let (mut rows, mut contended) = (Vec::new(), String::new());
    for (words, names, (metric, unit)) in WORK {
        for (place, count) in COUNTS.into_iter().enumerate().filter(|(_, count)| *count <= cores) {
            let [mut threads, mut processes, mut taken] = [Vec::new(), Vec::new(), Vec::new()];
            for _ in 0..options.rounds {
                let rate = |how: &str| -> Result<(f64, Vec<ProcessReport>)> {
                    programs.forget_reports();
                    let line = format!(
                        "env VMA_RING_ALLOCATION_LOGIC_RX={} {} {words} {how} {count} {}",
                        options.logic,
                        program.display(),
                        options.seconds
                    );
                    let rate = programs.ask(World::Ringway, None, &line)?.trim().parse().context("a rate")?;
                    Ok((rate, programs.check_offloaded(&line)?))
                };
                let (rate_of_threads, reports) = rate("threads")?;
                threads.push(rate_of_threads);
                taken.push(reports.iter().map(|report| report.ring.lock_contended).sum::<u64>() as f64);
                processes.push(rate("processes")?.0);
            }
            rows.push(Row::new(names[place], metric, unit, &threads, PEERS[place], &processes));
            writeln!(contended, "{words}, {count}: the lock was taken {:.0} times", median(&taken))?;
        }
        row::write(&rows, output, "threads")?;
    }
    print!("{}\n{contended}", row::markdown(&rows));
    Ok(())
}
