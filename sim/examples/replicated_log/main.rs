//! A replicated log with a planted bug, found by the simulator, made small, and replayed. `sim/GUIDE.md` walks through it.
//!
//!     cargo run -p ringway-sim --example replicated_log -- [--bug twice|early|unsynced|none] [--seeds N] [--case CASE] [--pcap FILE]
//!
//! - `node.rs`: the primary and its backups
//! - `client.rs`: a client that asks again when it gets no answer
//! - `cluster.rs`: three nodes and a client as a simulated world, what goes wrong in it, and what must hold
//! - `log.rs`: the log on its disk, and the planted bugs

mod client;
mod cluster;
mod log;
mod node;

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;

use ringway_sim::program::search;
use ringway_sim::{Capture, Case, Report};

use log::Bug;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut bug, mut seeds, mut case, mut pcap) = (Bug::Twice, 500, None, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().ok_or_else(|| format!("{arg} wants a value"))?;
        match arg.as_str() {
            "--bug" => bug = value.parse()?,
            "--seeds" => seeds = value.parse()?,
            "--case" => case = Some(value.parse()?),
            "--pcap" => pcap = Some(value),
            _ => return Err(format!("no such option: {arg}").into()),
        }
    }
    let case = match case {
        Some(case) => case,
        None => match find(bug, seeds) {
            Some(case) => case,
            None => return Ok(()),
        },
    };
    let (first, again) = (replay(&case, bug, pcap.as_deref())?, cluster::run(&case, bug, Capture::Hash).world.report());
    println!("once more: trace {}, {}", again.hash, if first == again { "the same" } else { "ANOTHER STORY" });
    Ok(())
}

/// Looks for a case that fails, the smallest one.
fn find(bug: Bug, seeds: u64) -> Option<Case> {
    let found = search(0..seeds, |case| cluster::run(case, bug, Capture::Hash).verdict());
    match found {
        Some(found) => {
            println!("{found}");
            println!("  that is: cargo run -p ringway-sim --example replicated_log -- --bug {bug} --case {}\n", found.case);
            Some(found.case)
        }
        None => {
            println!("{seeds} seeds ran clean with bug: {bug}");
            None
        }
    }
}

/// Runs one case, and tells its story.
fn replay(case: &Case, bug: Bug, pcap: Option<&str>) -> Result<Report, Box<dyn Error>> {
    let run = cluster::run(case, bug, Capture::Frames);
    println!("case {case}:");
    for line in &run.story {
        println!("  {line}");
    }
    println!("  {}", run.verdict().map_or_else(|violation| violation, |()| "everything holds".to_owned()));
    println!("{}", run.world.report());
    if let Some(path) = pcap {
        run.world.trace().write_pcapng(BufWriter::new(File::create(path)?))?;
        println!("{path}: every host's frames");
    }
    Ok(run.world.report())
}
