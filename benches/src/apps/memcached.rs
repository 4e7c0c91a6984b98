//! memcached with one worker, by libmemcached's load generator.

use anyhow::{Context as _, Result};
use rustix::process::Signal;

use super::program::{Programs, World, free_port};
use crate::row::Row;

pub(super) fn rows(programs: &Programs, rounds: u32) -> Result<Vec<Row>> {
    let bench = "memcached, one worker, memcaslap";
    let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for world in World::BOTH {
            let rate = operations_per_second(programs, world)?;
            if world == World::Ringway { ours.push(rate) } else { theirs.push(rate) }
        }
        programs.check_offloaded(bench)?;
    }
    Ok(vec![Row::new(bench, "gets and sets", "/s", &ours, "the kernel", &theirs)])
}

fn operations_per_second(programs: &Programs, world: World) -> Result<f64> {
    let port = free_port()?;
    let server = programs.serve(world, None, &format!("memcached -u root -U 0 -l 127.0.0.1 -p {port} -t 1"), port)?;
    // Values of 100 bytes, one connection each to sixteen clients: requests, and not their payload.
    let load = format!("memcaslap --servers=127.0.0.1:{port} --threads=1 --concurrency=16 --time=2s --fixed_size=100");
    let text = programs.ask(world, None, &load)?;
    server.stop(Signal::TERM)?;
    // "Run time: 2.0s Ops: 123456 TPS: 61728 Net_rate: 12.3M/s"
    let rate = text.split_once("TPS: ").and_then(|(_, rest)| rest.split_whitespace().next()).context("memcaslap gives no rate")?;
    Ok(rate.parse()?)
}
