//! iperf3's throughput, one stream and eight.

use anyhow::{Context as _, Result};
use ringway_report::ProcessReport;

use super::program::{Programs, World, free_port};
use crate::row::Row;

pub(super) fn rows(programs: &Programs, rounds: u32) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (bench, options) in [("iperf3, one stream", ""), ("iperf3, 8 streams", "-P 8")] {
        let [mut ours, mut theirs, mut copies] = [const { Vec::new() }; 3];
        for _ in 0..rounds {
            for world in World::BOTH {
                let rate = gigabits_per_second(programs, world, options)?;
                if world == World::Ringway { ours.push(rate) } else { theirs.push(rate) }
            }
            copies.push(copies_per_byte(&programs.check_offloaded(bench)?));
        }
        rows.push(Row::new(bench, "throughput", "Gbit/s", &ours, "the kernel", &theirs));
        rows.push(Row::new(bench, "copies of a byte, of both programs together", "copies", &copies, "one in, one out", &[2.0]));
    }
    Ok(rows)
}

/// How often each byte that arrived was copied, by the counters of sender and receiver. (Frames' headers are below what is counted.)
fn copies_per_byte(reports: &[ProcessReport]) -> f64 {
    let copied: u64 = reports.iter().map(|r| r.ring.copied_bytes).sum();
    let arrived: u64 = reports.iter().map(|r| r.ring.rx_bytes).sum();
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    let copies = copied as f64 / arrived as f64;
    copies
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
