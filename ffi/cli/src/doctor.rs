//! `ringway doctor`: is this offloaded? If not, why, and what to do. Without processes to ask about: what this machine can do. Also what
//! parameters and rules come to, before anything runs.

mod interfaces;
mod machine;
mod params;
mod process;
mod rules;

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
    /// Instead: the parameters that a program started from this environment would use, and where each is from.
    #[arg(long, conflicts_with_all = ["pids", "rules"])]
    params: bool,
    /// With --params: the manual page ringway-params(7), for man(1).
    #[arg(long, requires = "params", conflicts_with = "json")]
    man: bool,
    /// Instead: which rule of libvma.conf decides about a program's sockets at an address; without a port, about which ports.
    #[arg(long, num_args = 2, value_names = ["PROGRAM", "ADDRESS[:PORT]"], conflicts_with = "pids")]
    rules: Vec<String>,
    /// With --rules: about sockets that do this only.
    #[arg(long, value_enum, requires = "rules")]
    role: Option<rules::Named>,
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
    if options.man {
        params::manual();
        return Ok(());
    }
    if options.params {
        return params::run(options.json);
    }
    if let [program, address] = &options.rules[..] {
        return rules::run(program, address, options.role, options.json);
    }
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
