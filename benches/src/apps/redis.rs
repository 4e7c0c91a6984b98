//! redis-benchmark's GET, one at a time on each of fifty connections, and sixteen.

use anyhow::{Context as _, Result};
use rustix::process::Signal;

use super::program::{Programs, World, free_port};
use crate::row::Row;

/// A server that keeps nothing.
pub(super) fn server(port: u16) -> String {
    format!("redis-server --port {port} --bind 127.0.0.1 --save --appendonly no --loglevel warning")
}

pub(super) fn rows(programs: &Programs, rounds: u32) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (bench, options) in [("redis GET", "-n 100000"), ("redis GET, -P 16", "-n 500000 -P 16")] {
        let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for world in World::BOTH {
                let rate = requests_per_second(programs, world, options)?;
                if world == World::Ringway { ours.push(rate) } else { theirs.push(rate) }
            }
            programs.check_offloaded(bench)?;
        }
        rows.push(Row::new(bench, "requests", "/s", &ours, "the kernel", &theirs));
    }
    Ok(rows)
}

fn requests_per_second(programs: &Programs, world: World, options: &str) -> Result<f64> {
    let port = free_port()?;
    let server = programs.serve(world, None, &server(port), port)?;
    let text = programs.ask(world, None, &format!("redis-benchmark -h 127.0.0.1 -p {port} -t get --csv {options}"))?;
    server.stop(Signal::TERM)?;
    let row = text.lines().find(|l| l.starts_with("\"GET\"")).context("redis-benchmark gives no rate")?;
    Ok(row.split(',').nth(1).context("a rate")?.trim_matches('"').parse()?)
}
