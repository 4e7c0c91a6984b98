//! iperf3's throughput, one stream and eight.

use anyhow::{Context as _, Result};

use super::program::{Programs, World, free_port};
use crate::row::Row;

pub(super) fn rows(programs: &Programs, rounds: u32) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (bench, options) in [("iperf3, one stream", ""), ("iperf3, 8 streams", "-P 8")] {
        let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for world in World::BOTH {
                let rate = gigabits_per_second(programs, world, options)?;
                if world == World::Ringway { ours.push(rate) } else { theirs.push(rate) }
            }
            programs.check_offloaded(bench)?;
        }
        rows.push(Row::new(bench, "throughput", "Gbit/s", &ours, "the kernel", &theirs));
    }
    Ok(rows)
}

fn gigabits_per_second(programs: &Programs, world: World, options: &str) -> Result<f64> {
    let port = free_port()?;
    let mut server = programs.serve(world, None, &format!("iperf3 -s -1 -p {port}"), port)?;
    let text = programs.ask(world, None, &format!("iperf3 -c 127.0.0.1 -p {port} -t 3 -J {options}"))?;
    server.0.wait()?;
    let answer: serde_json::Value = serde_json::from_str(&text)?;
    let rate = answer["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(rate.context("iperf3 gives no rate")? / 1e9)
}
