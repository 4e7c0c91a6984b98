//! What servers do beside moving bytes: connections set up and torn down, and an event loop that sleeps on an eventfd beside its sockets.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::program::{Programs, World, free_port};
use crate::row::Row;

/// Connections of a round, by as many client processes at once.
const CONNECTIONS: u32 = 16_000;
const CLIENTS: [(&str, u32); 2] = [("connections, one client", 1), ("connections, eight clients", 8)];
/// Messages there and back of a round.
const EXCHANGES: u32 = 20_000;

/// Connections a second: each with one request and one answer of 64 bytes.
pub(super) fn connections(programs: &Programs, rounds: u32) -> Result<Vec<Row>> {
    let program = compiled(programs, "connections", include_str!("connections.c"))?;
    let mut rows = Vec::new();
    for (bench, clients) in CLIENTS {
        let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for world in World::BOTH {
                let port = free_port()?;
                let server = programs.serve(world, None, &format!("{} serve {port}", program.display()), port)?;
                let rate = programs.ask(world, None, &format!("{} ask {port} {clients} {CONNECTIONS}", program.display()))?;
                server.stop(Signal::TERM)?;
                let rate = rate.trim().parse().context("a rate")?;
                if world == World::Ringway { ours.push(rate) } else { theirs.push(rate) }
            }
            // (What a signal ends reports nothing; the clients do.)
            programs.check_offloaded(bench)?;
        }
        rows.push(Row::new(bench, "set up and torn down", "/s", &ours, "the kernel", &theirs));
    }
    Ok(rows)
}

/// Round trips between event loops.
pub(super) fn event_loop(programs: &Programs, rounds: u32) -> Result<Vec<Row>> {
    let bench = "event loop, eventfd beside sockets";
    let program = compiled(programs, "event_loop", include_str!("event_loop.c"))?;
    let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for world in World::BOTH {
            let port = free_port()?;
            let _server = programs.serve(world, None, &format!("{} serve {port}", program.display()), port)?;
            let median_ns: f64 =
                programs.ask(world, None, &format!("{} ask {port} {EXCHANGES}", program.display()))?.trim().parse().context("a time")?;
            if world == World::Ringway { ours.push(median_ns / 1e3) } else { theirs.push(median_ns / 1e3) }
        }
        programs.check_offloaded(bench)?;
    }
    Ok(vec![Row::new(bench, "round trip, median", "us", &ours, "the kernel", &theirs)])
}

fn compiled(programs: &Programs, name: &str, source: &str) -> Result<PathBuf> {
    let [file, program] = [programs.scratch(&format!("{name}.c")), programs.scratch(name)];
    std::fs::write(&file, source)?;
    let status = Command::new("cc").args(["-O2", "-pthread", "-o"]).arg(&program).arg(&file).status().context("cc")?;
    ensure!(status.success(), "{name}.c does not compile");
    Ok(program)
}
