//! `ringway sim`: one seed replayed, or a campaign of many.
//!
//! - [`replay`]: a scenario, told twice and compared, with its frames as files
//! - [`campaign`]: worker threads, a seed at a time each; failures made small
//! - [`state`]: what a campaign has done so far, a line of JSON a batch
//! - [`panics`]: a failed check is a panic; here it becomes a value
//! - [`summary`]: what a campaign came to, in words

mod allocator;
mod campaign;
mod panics;
mod progress;
mod replay;
mod state;
mod summary;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use ringway_sim::FaultSet;
use ringway_sim::campaign::{Seeds, Shard};
use ringway_sim::scenario::{SCALE_MAX, Scenario, Stage};
use ringway_sim::workloads::WorkloadSet;

use crate::sim::campaign::Plan;

/// The commit that this program was built from, `+dirty` if the simulator or the stack were changed since.
const COMMIT: &str = env!("RINGWAY_COMMIT");
/// The trees of the stack and the simulator that this program was built from; empty if nobody knows.
const TREE: &str = env!("RINGWAY_SIM_TREE");
/// Where a campaign keeps its state.
const STATE: &str = "target/sim/campaign.jsonl";

/// What to run.
#[derive(clap::Args)]
#[command(
    override_usage = "ringway sim --seed <SCENARIO> [--pcap <FILE> [--pcap-of <WHICH>]] [--timeline <FILE.html>] [--text <FILE>]
       ringway sim --seeds <A..B> [--jobs <J>] [--shard <i/n>] [--resume [<FILE>]] [OPTIONS]",
    after_help = "A scenario is written SEED or SEED/FAULTS/SCALE/WORKLOADS, with /ipv6 behind it for a world that speaks that; --help lists the names of faults and workloads.",
    after_long_help = format!("\
A scenario is written SEED, or SEED/FAULTS/SCALE/WORKLOADS: the classes of faults that may strike, the size of the work (workloads
move up to 1024 << SCALE bytes; SCALE is 0 to {SCALE_MAX}), and what the hosts do. FAULTS and WORKLOADS are none, all, or names joined
by +. What is left out at the end is drawn from the seed. A campaign prints a failure so, once it has left out every fault and all the
work that the failure does not need.

Faults:
{}

Workloads:
{}

Exit status: 0 if every seed passed; 1 if one failed, a run differed from its repetition, something that a campaign must meet never
came up, or the campaign was interrupted; 2 for a command line that makes no sense.

Examples:
  ringway sim --seed 42
  ringway sim --seed 42/loss+corruption/3/bulk+udp --verbose
  ringway sim --seed 42/loss+corruption/3 --pcap 42.pcapng --timeline 42.html
  ringway sim --seeds 0..500000 --jobs 8
  ringway sim --seeds 0..500000 --jobs 8 --resume
  ringway sim --seeds 0..500000 --shard 2/4",
        words(&FaultSet::names()),
        words(&WorkloadSet::names()))
)]
pub(crate) struct Options {
    /// Replay this scenario, twice, and compare.
    #[arg(long, value_name = "SCENARIO", required_unless_present = "seeds", conflicts_with = "seeds", help_heading = "One seed")]
    seed: Option<Scenario>,
    #[command(flatten)]
    replay: replay::Files,
    /// Run these seeds; B is the first one that is not run.
    #[arg(long, value_name = "A..B", help_heading = "A campaign")]
    seeds: Option<Seeds>,
    #[command(flatten)]
    campaign: CampaignOptions,
}

/// How to run a campaign.
#[derive(clap::Args)]
#[group(conflicts_with = "seed")]
struct CampaignOptions {
    /// Worker threads [default: one a core].
    #[arg(long, value_name = "J", help_heading = "A campaign")]
    jobs: Option<NonZeroUsize>,
    /// Run only the i-th of n shares of the seeds: on several machines, each runs its own.
    #[arg(long, value_name = "i/n", default_value_t, help_heading = "A campaign")]
    shard: Shard,
    /// Don't run again what FILE says has been run, by the same code. Progress is kept there
    /// (without --resume, in target/sim/campaign.jsonl).
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = STATE, help_heading = "A campaign")]
    resume: Option<PathBuf>,
    /// Run each seed twice and compare the trace hashes.
    #[arg(long, help_heading = "A campaign")]
    twice: bool,
    /// Let every world speak IPv6.
    #[arg(long, help_heading = "A campaign")]
    ipv6: bool,
    /// End the campaign after this many failures.
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "A campaign")]
    failures_max: usize,
    /// Spend this long on making a failure small.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, help_heading = "A campaign")]
    minimise: u64,
    /// A seed that takes longer has failed, and ends the campaign: a thread cannot be stopped from outside.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, help_heading = "A campaign")]
    seed_timeout: u64,
    /// From this many seeds on, a fault class that never struck, a workload that never ran, or a mark in the code that was never
    /// passed is a failure of the campaign.
    #[arg(long, value_name = "N", default_value_t = 1000, help_heading = "A campaign")]
    complete_from: u64,
    /// Print the summary as a line of JSON.
    #[arg(long, help_heading = "A campaign")]
    json: bool,
}

/// Replays, or runs a campaign.
///
/// # Errors
/// A seed failed, or could not be run.
pub(crate) fn run(options: &Options) -> Result<()> {
    panics::install();
    match (&options.seed, &options.seeds) {
        (Some(scenario), _) => replay::run(scenario, &options.replay),
        (None, Some(seeds)) => {
            allocator::set_up();
            summary::run(&plan(seeds, &options.campaign), &options.campaign)
        }
        (None, None) => unreachable!("clap asks for one of them"),
    }
}

fn plan(seeds: &Seeds, options: &CampaignOptions) -> Plan {
    Plan {
        share: seeds.share(options.shard),
        jobs: options.jobs.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get),
        state: options.resume.clone().unwrap_or_else(|| STATE.into()),
        resume: options.resume.is_some(),
        twice: options.twice,
        ipv6: options.ipv6,
        failures_max: options.failures_max,
        minimise_for: Duration::from_secs(options.minimise),
        seed_timeout: Duration::from_secs(options.seed_timeout),
        tree: TREE.to_owned(),
        run: |scenario| Stage::set(scenario).play(),
    }
}

/// Names, in lines of a readable length.
fn words(names: &[String]) -> String {
    const WIDTH: usize = 100;
    let mut lines = vec![" ".to_owned()];
    for name in names {
        match lines.last_mut().filter(|line| line.len() + name.len() < WIDTH) {
            Some(line) => *line += &format!(" {name}"),
            None => lines.push(format!("  {name}")),
        }
    }
    lines.join("\n")
}

/// The line that runs a scenario again.
fn replay_line(scenario: &str) -> String {
    format!("ringway sim --seed {scenario}   # commit {COMMIT}")
}

#[cfg(test)]
mod tests;
