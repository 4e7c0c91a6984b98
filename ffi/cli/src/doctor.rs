//! `ringway doctor`: is this offloaded? If not, why, and what to do. Without processes to ask about: what this machine can do.

mod machine;
mod process;

use anyhow::{Result, bail};
use serde::Serialize;

use crate::members;
use machine::Machine;
use process::Diagnosis;

/// What to look at.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// These processes; else the machine, and all processes of this user on Ringway.
    pids: Vec<u32>,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

/// All that the doctor found.
#[derive(Serialize)]
struct Findings {
    machine: Option<Machine>,
    processes: Vec<Diagnosis>,
}

/// Examines and prints.
///
/// # Errors
/// Something that was asked about is not offloaded at all: a process on the kernel, or a machine without a usable device.
pub(crate) fn run(options: &Options) -> Result<()> {
    let machine = options.pids.is_empty().then(Machine::examine);
    let processes = if options.pids.is_empty() {
        members::reports(&[], "doctor")?.into_iter().map(Diagnosis::of_member).collect()
    } else {
        options.pids.iter().map(|&pid| Diagnosis::of_pid(pid)).collect::<Result<Vec<_>>>()?
    };
    let findings = Findings { machine, processes };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&findings)?);
    } else {
        findings.machine.iter().for_each(|m| print!("{m}"));
        findings.processes.iter().for_each(|p| print!("\n{p}"));
    }
    let usable = findings.machine.as_ref().is_none_or(Machine::usable);
    let offloaded = options.pids.is_empty() || findings.processes.iter().all(Diagnosis::on_a_device);
    if !(usable && offloaded) {
        bail!("not offloaded");
    }
    Ok(())
}
