//! `vma_stats`: what a process on Ringway publishes, in the views that libvma's tool of this name has.
//!
//! - [`find`]: which process
//! - [`delta`]: what happened between two reports
//! - [`views`]: the five views
#![forbid(unsafe_code)]

mod delta;
mod find;
mod options;
mod views;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use clap::Parser as _;
use ringway_cli::{pipe, published};
use ringway_report::ProcessReport;
use ringway_report::full::Unit;
use ringway_report::published::Request;
use ringway_report::reader::{self, Published, Snapshot};

use options::{Details, Options};
use views::Shown;

/// Older than this, a report says so.
const STALE: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    pipe::end_with_the_reader();
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vma_stats: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let directory =
        options.directory.clone().or_else(published::directory).context("VMA_STATS_SHMEM_DIR is empty: name a directory (-k)")?;
    if !options.forbid_clean {
        let _ = reader::remove_leftovers(&directory);
    }
    let path = find::find(&directory, options)?;
    let mut process = Published::open(&path)?;
    let request = options.request()?;
    let first = sample(&mut process, request, &path)?;
    if request != Request::default() && options.is_only_a_request() {
        return Ok(());
    }
    watch(options, &mut process, &path, first)
}

/// Shows the process until it ends, or the cycles are over.
fn watch(options: &Options, process: &mut Published, path: &Path, first: Snapshot) -> Result<()> {
    let interval = Duration::from_secs(options.interval.max(1));
    let mut zero = options.zero.then(|| first.report.clone());
    let mut before: Option<Snapshot> = None;
    let mut now = first;
    let mut cycle = 0_u64;
    loop {
        if options.details == Details::Totals {
            let since = zero.as_ref().map(|zero| delta::between(zero, &now.report, 1.0));
            show(options, since.as_ref().unwrap_or(&now.report), Unit::Total, cycle)?;
        } else if let Some(before) = &before {
            let seconds = now.taken_ns.saturating_sub(before.taken_ns) as f64 / 1e9;
            show(options, &delta::between(&before.report, &now.report, seconds), Unit::PerSecond, cycle)?;
        }
        warn_if_stale(&now);
        let counts = options.details == Details::Totals || before.is_some();
        cycle += u64::from(counts);
        if options.cycles != 0 && cycle >= options.cycles {
            return Ok(());
        }
        sleep(interval);
        if !process.is_held() {
            println!("process {} has ended", now.report.pid);
            return Ok(());
        }
        // (Its counts begin anew if it became another program.)
        let next = sample(process, Request::default(), path)?;
        if next.report.program != now.report.program {
            zero = None;
        }
        before = Some(core::mem::replace(&mut now, next));
    }
}

fn sample(process: &mut Published, request: Request, path: &Path) -> Result<Snapshot> {
    if !process.is_held() {
        *process = Published::open(path)?;
    }
    Ok(published::sample(process, request)?)
}

fn show(options: &Options, report: &ProcessReport, unit: Unit, cycle: u64) -> Result<()> {
    let mut report = report.clone();
    if let Some(wanted) = &options.sockets {
        report.sockets.retain(|socket| wanted.has(socket.fd));
    }
    let text = views::text(options.view, &Shown { report: &report, unit, is_first: cycle == 0, inode: &views::inode });
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

fn warn_if_stale(snapshot: &Snapshot) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let age = now.saturating_sub(Duration::from_nanos(snapshot.taken_ns));
    if !snapshot.is_answer && age > STALE {
        eprintln!("vma_stats: the process was not asked, or does not answer; this is {} s old", age.as_secs());
    }
}

#[cfg(test)]
mod tests;
