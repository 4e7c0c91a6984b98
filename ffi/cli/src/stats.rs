//! `ringway stats`: per process, ring and socket, what was carried; once, or as a live table.

mod view;

use std::io::IsTerminal as _;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::members;
use view::Sample;

/// Which processes, and how.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only these processes; else all of this user's in this network namespace.
    pids: Vec<u32>,
    /// JSON: an array of processes a line (the fields are `ringway_report::ProcessReport`'s).
    #[arg(long)]
    json: bool,
    /// Seconds between samples.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
    /// One sample, then end. So it is, too, if the output is not a terminal and no interval was asked for.
    #[arg(long)]
    once: bool,
}

/// Samples until it is interrupted, or once.
///
/// # Errors
/// The processes cannot be listed, or a process was asked for that is not on Ringway.
pub(crate) fn run(options: &Options) -> Result<()> {
    let terminal = io::stdout().is_terminal();
    let once = options.once || !terminal;
    let interval = Duration::try_from_secs_f64(options.interval)?;
    let mut before: Option<Sample> = None;
    loop {
        let sample = Sample { taken: Instant::now(), processes: members::reports(&options.pids, "stats")? };
        let mut out = io::stdout().lock();
        if options.json {
            writeln!(out, "{}", serde_json::to_string(&sample.processes)?)?;
        } else {
            if !once {
                // Home, and clear to the end: less flicker than clearing first.
                write!(out, "\x1b[H\x1b[J")?;
            }
            write!(out, "{}", view::show(&sample, before.as_ref()))?;
        }
        out.flush()?;
        drop(out);
        if once {
            return Ok(());
        }
        before = Some(sample);
        std::thread::sleep(interval);
    }
}
