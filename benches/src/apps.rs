//! Real programs, with `libvma.so` preloaded and without, in turn.

mod busy;
mod idle;
mod iperf3;
mod loops;
mod memcached;
mod nginx;
mod polled;
pub(crate) mod program;
mod redis;
pub(crate) mod sockperf;

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;

use crate::row::{self, Row};
use program::Programs;

/// What to measure, and how often.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds: each measures ours and the peers' once.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Only these (all, if none).
    #[arg(long, value_enum)]
    only: Vec<App>,
}

/// An application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum App {
    /// Ping-pong of 64 bytes: against the cache line, the kernel spun on, and the kernel as it comes.
    Sockperf,
    /// Ping-pong on 1, 2 and 64 connections polled by epoll, 16 bytes and 16 KiB.
    Polled,
    /// Throughput of one stream, and of eight; copies of each byte.
    Iperf3,
    /// GET, and GET with sixteen in the pipe.
    Redis,
    /// A small file by wrk: one worker, and two with two threads of wrk's.
    Nginx,
    /// memcaslap, one worker.
    Memcached,
    /// Three, four and eight busy processes on two cores.
    Busy,
    /// Connections set up and torn down, by one client and by eight.
    Connections,
    /// An event loop that sleeps on an eventfd beside its sockets.
    EventLoop,
    /// Memory of idle connections, CPU of idle servers.
    Idle,
}

/// Measures, writes `apps.jsonl`, prints the table.
///
/// # Errors
/// A program failed, or was not offloaded when it should have been.
pub(crate) fn run(library: &Path, output: &Path, options: &Options) -> Result<()> {
    let programs = Programs::new(library, output)?;
    let mut rows: Vec<Row> = Vec::new();
    for &app in App::value_variants() {
        if !options.only.is_empty() && !options.only.contains(&app) {
            continue;
        }
        eprintln!("measuring {}", app.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned()));
        let new = match app {
            App::Sockperf => sockperf::rows(&programs, options.rounds)?,
            App::Iperf3 => iperf3::rows(&programs, options.rounds)?,
            App::Redis => redis::rows(&programs, options.rounds)?,
            App::Nginx => nginx::rows(&programs, options.rounds)?,
            App::Memcached => memcached::rows(&programs, options.rounds)?,
            App::Busy => busy::rows(&programs, options.rounds)?,
            App::Connections => loops::connections(&programs, options.rounds)?,
            App::EventLoop => loops::event_loop(&programs, options.rounds)?,
            App::Polled => polled::rows(&programs, options.rounds)?,
            App::Idle => idle::rows(&programs)?,
        };
        rows.extend(new);
        // After each application, so that a failure later loses nothing.
        row::write(&rows, output, "apps")?;
    }
    print!("{}", row::markdown(&rows));
    Ok(())
}
