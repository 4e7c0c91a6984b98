//! `ringway sim --seed`: a scenario, told twice and compared.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use ringway_sim::campaign::{Failure, struck};
use ringway_sim::scenario::{Scenario, Stage};
use ringway_sim::trace::{Record, Seen, render};
use ringway_sim::{Capture, Report, Trace, timeline};

use super::panics::{self, Detail};
use super::{COMMIT, replay_line};

/// What to keep of a replay.
#[derive(clap::Args)]
#[group(conflicts_with = "seeds")]
pub(super) struct Files {
    /// Print all that was drawn from the seed, too: hosts, NICs, links, faults, workloads.
    #[arg(long, short, help_heading = "One seed")]
    verbose: bool,
    /// Write every host's frames, sent and delivered, as pcapng for Wireshark. What befell a frame stands beside it as a comment.
    #[arg(long, value_name = "FILE", help_heading = "One seed")]
    pcap: Option<PathBuf>,
    /// Which frames the pcapng has: all (each twice, where it was sent and where it arrived), sent, or those that one host sent and received
    /// (host0, host1, …). Wireshark's own analysis is right for the latter two.
    #[arg(long, value_name = "all|sent|HOST", default_value = "all", value_parser = seen, requires = "pcap", help_heading = "One seed")]
    pcap_of: Seen,
    /// Write a sequence diagram as a page for a browser: hosts, frames, drops, timers; to zoom, pan and filter.
    #[arg(long, value_name = "FILE.html", help_heading = "One seed")]
    timeline: Option<PathBuf>,
    /// Write the trace as text, a line an event.
    #[arg(long, value_name = "FILE", help_heading = "One seed")]
    text: Option<PathBuf>,
}

/// A scenario that was played, and what is left of it.
struct Played {
    stage: Stage,
    outcome: Result<Report, Failure>,
}

/// Plays `scenario` twice, tells what happened, and writes the files.
///
/// # Errors
/// A check failed, the two differed, or a file could not be written.
pub(super) fn run(scenario: &Scenario, files: &Files) -> Result<()> {
    let first = play(scenario)?;
    let outcome = tell(scenario, &first);
    if files.verbose {
        print!("{}", scenario.options());
    }
    let trace = first.stage.world().trace();
    if let Some(path) = &files.pcap {
        write(path, |out| Ok(trace.write_pcapng_of(files.pcap_of, out)?))?;
    }
    if let Some(path) = &files.text {
        write(path, |out| Ok(out.write_all(render(trace).as_bytes())?))?;
    }
    if let Some(path) = &files.timeline {
        let about = format!("{}\n\n{outcome}\n\n{}", replay_line(&scenario.to_string()), scenario.options());
        write(path, |out| Ok(timeline::write(trace, &format!("scenario {scenario}"), &about, out)?))?;
    }
    compare(trace, play(scenario)?.stage.world().trace())?;
    if first.outcome.is_err() {
        println!("state\n{}", first.stage.describe());
        bail!("the scenario failed; to run it again:\n{}", replay_line(&scenario.to_string()));
    }
    Ok(())
}

/// Which frames are asked for.
fn seen(words: &str) -> Result<Seen, &'static str> {
    match words {
        "all" => Ok(Seen::All),
        "sent" => Ok(Seen::Sent),
        _ => words.strip_prefix("host").and_then(|number| number.parse().ok()).map(Seen::By).ok_or("it may be all, sent, or a host: host0"),
    }
}

fn play(scenario: &Scenario) -> Result<Played> {
    let set = panics::catch(Detail::Backtrace, || Stage::capturing(scenario, Capture::Frames));
    let mut stage = set.map_err(|failure| anyhow::anyhow!("it cannot be set up: {}: {}", failure.place, failure.message))?;
    let outcome = panics::catch(Detail::Backtrace, || stage.perform());
    if let Err(failure) = &outcome {
        stage.fail(&failure.message);
    }
    Ok(Played { stage, outcome })
}

/// Prints how it ended, then what it was; returns the former.
fn tell(scenario: &Scenario, played: &Played) -> String {
    let report = played.stage.world().report();
    let outcome = match &played.outcome {
        Ok(_) => "passed".to_owned(),
        Err(failure) => format!("FAILED at {}\n{}", failure.place, told(failure)),
    };
    println!("outcome  {outcome}");
    println!("scenario {scenario}, commit {COMMIT}");
    println!("trace    {}, {} events in {} ms of virtual time", report.hash, report.events, report.ended.as_millis());
    let faults: Vec<_> = struck(&report.faults).filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name} {n}")).collect();
    println!("faults   {}", if faults.is_empty() { "none struck".to_owned() } else { faults.join(", ") });
    outcome
}

/// A failure's message and callers, indented.
pub(super) fn told(failure: &Failure) -> String {
    let message = failure.message.lines().map(|line| format!("    {line}"));
    let callers = failure.backtrace.iter().map(|caller| format!("      in {caller}"));
    message.chain(callers).collect::<Vec<_>>().join("\n")
}

/// Compares what two runs of one scenario put on the wire: every event, every byte.
fn compare(first: &Trace, second: &Trace) -> Result<()> {
    let bytes: usize = first.records().iter().map(|r| r.bytes.len()).sum();
    let equal = |a: &Record, b: &Record| (a.at, a.host, a.what, a.frame, &a.bytes) == (b.at, b.host, b.what, b.frame, &b.bytes);
    let same = first.records().iter().zip(second.records()).take_while(|(a, b)| equal(a, b)).count();
    if same < first.records().len().max(second.records().len()) {
        let line = |trace: &Trace| render(trace).lines().nth(same).unwrap_or("(nothing more)").to_owned();
        bail!("one scenario, two stories. Event {same} differs:\n  {}\n  {}", line(first), line(second));
    }
    ensure!(first.hash() == second.hash(), "equal frames, unequal hashes: {} and {}", first.hash(), second.hash());
    println!("again    {}: equal, byte for byte ({same} events, {bytes} bytes)", second.hash());
    Ok(())
}

fn write(path: &Path, content: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let mut out = BufWriter::new(File::create(path).with_context(|| path.display().to_string())?);
    content(&mut out).and_then(|()| Ok(out.flush()?)).with_context(|| path.display().to_string())?;
    println!("wrote    {}", path.display());
    Ok(())
}
