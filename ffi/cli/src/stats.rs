//! `ringway stats`: per process, ring and socket, what was carried; once, live in a terminal, as JSON, or for Prometheus.
//!
//! - [`sources`]: where the reports are from
//! - [`view`]: one sample as text
//! - [`live`]: samples as they come, in a terminal
//! - [`metrics`]: samples for Prometheus

mod live;
mod metrics;
mod order;
pub(crate) mod sources;
mod view;

use std::io::IsTerminal as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use order::{Filter, Key};
use view::Sample;

/// Which processes, and how.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only these processes; else all that may be asked: this user's in this network namespace, and those that publish their statistics.
    pids: Vec<u32>,
    /// JSON: an array of processes a line (the fields are `ringway_report::ProcessReport`'s).
    #[arg(long)]
    json: bool,
    /// Seconds between samples [default: 1].
    #[arg(long, value_name = "SECONDS")]
    interval: Option<f64>,
    /// One sample, then end. So it is, too, if the output is not a terminal and no interval was asked for.
    #[arg(long)]
    once: bool,
    /// What sockets are sorted by.
    #[arg(long, value_enum, default_value_t = Key::Fd)]
    sort: Key,
    /// Only sockets with this in a line of theirs (an address, a state, a program); also state=S, port=N, program=P.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Only sockets in this state, by its beginning (listen, estab).
    #[arg(long)]
    state: Option<String>,
    /// Only sockets with this port at either end.
    #[arg(long)]
    port: Option<u16>,
    /// Only processes with this in their name.
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
    /// Instead: answers Prometheus on this address (http://ADDRESS/metrics).
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["json", "once"])]
    listen: Option<SocketAddr>,
}

/// A reader asks a process at most so often that answering takes it a fiftieth of the time.
const SHARE: u32 = 50;

/// But never longer than this: what a process says of itself may be a lie, or the time another program's that had the processor.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Seconds between samples, if nobody asked for others.
const INTERVAL: f64 = 1.0;

/// The shortest time between samples.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Samples until it is interrupted, or once.
///
/// # Errors
/// The processes cannot be listed, or a process was asked for that is not on Ringway.
pub(crate) fn run(options: &Options) -> Result<()> {
    let seconds = options.interval.unwrap_or(INTERVAL);
    ensure!(seconds.is_finite() && seconds >= 0.0, "--interval is a number of seconds");
    let interval = Duration::try_from_secs_f64(seconds)?.max(INTERVAL_MIN);
    sources::remove_leftovers();
    if let Some(address) = options.listen {
        return metrics::serve(address, &options.pids);
    }
    let terminal = io::stdout().is_terminal();
    if terminal && !options.json && !options.once {
        return live::run(&options.pids, interval, options.sort, options.chosen());
    }
    let once = options.once || !(terminal || options.interval.is_some());
    let mut before: Option<Sample> = None;
    loop {
        let mut sample = Sample { taken: Instant::now(), processes: sources::reports(&options.pids)? };
        let text = if options.json {
            serde_json::to_string(&sample.processes)? + "\n"
        } else {
            order::arrange(&mut sample, before.as_ref(), options.sort, &options.chosen());
            view::show(&sample, before.as_ref(), width())
        };
        let has_reader = print(&text)?;
        if once || !has_reader {
            return Ok(());
        }
        std::thread::sleep(pause(&sample, interval));
        before = Some(sample);
    }
}

impl Options {
    fn chosen(&self) -> Filter {
        let word = |key: &str, value: Option<String>| value.map(|value| format!("{key}={value}"));
        let words =
            [word("state", self.state.clone()), word("port", self.port.map(|p| p.to_string())), word("program", self.program.clone())];
        let rest = (!self.filter.is_empty()).then(|| self.filter.clone());
        Filter::new(&words.into_iter().chain([rest]).flatten().collect::<Vec<_>>().join(" "))
    }
}

/// The terminal's width; what goes elsewhere has no end.
fn width() -> usize {
    let columns = io::stdout().is_terminal().then(|| rustix::termios::tcgetwinsize(io::stdout()).ok()).flatten();
    columns.map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0).unwrap_or(usize::MAX)
}

/// At once. Whether anybody reads it: who began this with SIGPIPE blocked hears of a closed pipe by EPIPE alone (write(2)).
fn print(text: &str) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// How long to leave the processes alone after a sample.
fn pause(sample: &Sample, interval: Duration) -> Duration {
    let longest = sample.processes.iter().map(|process| process.gathering_ns).max().unwrap_or(0);
    interval.max(Duration::from_nanos(longest).saturating_mul(SHARE).min(PAUSE_MAX))
}

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;
