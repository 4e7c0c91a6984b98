//! What a campaign came to, in words.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use super::campaign::{self, Ended, Plan};
use super::replay::told;
use super::state::Failed;
use super::{COMMIT, CampaignOptions, TREE, replay_line};
use crate::table::short;

/// The status of a program that a second SIGINT ends.
const STATUS_INTERRUPTED: i32 = 130;

/// Runs a campaign and prints what it came to.
///
/// # Errors
/// Seeds failed; something never came up; it was interrupted; its state could not be kept.
pub(super) fn run(plan: &Plan, options: &CampaignOptions) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    // The first one asks the workers to stop, the second one doesn't ask.
    flag::register_conditional_shutdown(SIGINT, STATUS_INTERRUPTED, Arc::clone(&stop)).context("SIGINT")?;
    flag::register(SIGINT, Arc::clone(&stop)).context("SIGINT")?;

    let ended = campaign::run(plan, &stop)?;
    let complete = ended.summary.seeds >= options.complete_from && !plan.ipv6;
    let missing = ended.summary.missing();
    if options.json {
        println!("{}", as_json(plan, &ended, &missing));
    } else {
        print!("{}", in_words(plan, &ended, &missing));
    }
    verdict(plan, &ended, if complete { &missing } else { &[] })
}

fn verdict(plan: &Plan, ended: &Ended, missing: &[String]) -> Result<()> {
    let Ended { summary, failures, left, interrupted, .. } = ended;
    if !failures.is_empty() {
        let early = if *left > 0 { format!("; {left} seeds were not run") } else { String::new() };
        bail!("{} of {} seeds failed{early}", failures.len(), summary.seeds);
    }
    if *interrupted {
        bail!("interrupted, {left} seeds to go; the same command goes on from here with --resume {}", plan.state.display());
    }
    if !missing.is_empty() {
        bail!("never came up in {} seeds: {}", summary.seeds, missing.join(", "));
    }
    Ok(())
}

/// A failed seed: what it said, and the line that runs it again.
pub(super) fn failure(failed: &Failed) -> String {
    let Failed { scenario, minimal, tried, hurried, failure, .. } = failed;
    let small = match (minimal == scenario, hurried) {
        (true, _) => format!("nothing could be left out ({tried} scenarios tried)"),
        (false, false) => format!("minimal: {tried} scenarios tried"),
        (false, true) => format!("smaller: {tried} scenarios tried until time was up"),
    };
    format!("FAILED {scenario} at {}\n{}\n  {small}\n  {}\n", failure.place, told(failure), replay_line(minimal))
}

fn in_words(plan: &Plan, ended: &Ended, missing: &[String]) -> String {
    let Ended { summary, earlier, left, wall, .. } = ended;
    let now = summary.seeds - earlier;
    let rate = now as f64 / wall.as_secs_f64().max(0.001);
    let mut lines = vec![format!(
        "seeds      {} run, {} failed{}; {now} now in {:.1} s, {rate:.1} a second, {} jobs",
        summary.seeds,
        ended.failures.len(),
        if *left > 0 { format!(", {left} not run") } else { String::new() },
        wall.as_secs_f64(),
        plan.jobs
    )];
    if *earlier > 0 {
        lines.push(format!("           {earlier} earlier, by the same code: {}", plan.state.display()));
    }
    let millis = |d: Duration| format!("{:.1} ms", d.as_secs_f64() * 1000.0);
    let (median, worst) = (summary.wall.quantile(500), summary.wall.quantile(990));
    lines.push(format!("wall time  of a seed: median {}, 99th percentile {}", millis(median), millis(worst)));
    let (events, most) = (short(summary.events), short(summary.events_max));
    lines.push(format!(
        "simulated  {} s of virtual time, {events} events on the wire, {most} at most in a seed",
        summary.simulated.as_secs()
    ));
    for (title, counts) in
        [("faults", &summary.faults), ("workloads", &summary.workloads), ("marks", &summary.marks), ("states", &summary.states)]
    {
        if !counts.is_empty() {
            lines.extend(listed(title, counts));
        }
    }
    if !missing.is_empty() {
        lines.push(format!("never      {}", missing.join(", ")));
    }
    lines.push(format!("code       commit {COMMIT}, trees {}", if TREE.is_empty() { "unknown" } else { TREE }));
    lines.join("\n") + "\n"
}

/// Counts by name, in lines of a readable length.
fn listed(title: &str, counts: &BTreeMap<String, u64>) -> Vec<String> {
    const WIDTH: usize = 110;
    let mut lines = vec![format!("{title:10}")];
    for (name, &count) in counts {
        let word = format!(" {name} {}", short(count));
        let last = lines.last_mut().filter(|line| line.len() + word.len() < WIDTH);
        match last {
            Some(line) => *line += &format!("{}{word}", if line.len() > 10 { "," } else { "" }),
            None => lines.push(format!("{:10}{word}", "")),
        }
    }
    lines
}

fn as_json(plan: &Plan, ended: &Ended, missing: &[String]) -> serde_json::Value {
    let micros = |per_mille| u64::try_from(ended.summary.wall.quantile(per_mille).as_micros()).unwrap_or(u64::MAX);
    json!({
        "commit": COMMIT,
        "tree": plan.tree,
        "jobs": plan.jobs,
        "seeds": ended.summary.seeds,
        "seeds_earlier": ended.earlier,
        "seeds_left": ended.left,
        "wall_s": ended.wall.as_secs_f64(),
        "seed_wall_us_p50": micros(500),
        "seed_wall_us_p99": micros(990),
        "simulated_s": ended.summary.simulated.as_secs_f64(),
        "events": ended.summary.events,
        "events_max": ended.summary.events_max,
        "faults": ended.summary.faults,
        "workloads": ended.summary.workloads,
        "marks": ended.summary.marks,
        "states": ended.summary.states,
        "missing": missing,
        "failures": ended.failures,
    })
}
