//! Latency of connections that are polled by epoll: one, two and sixty-four of them, with small messages and large ones.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result};
use rustix::process::Signal;

use super::program::{Programs, World, free_port};
use super::sockperf::percentile;
use crate::cacheline;
use crate::row::Row;

/// How many connections, and bytes in a message.
const CASES: [(&str, usize, usize); 6] = [
    ("sockperf tcp 16 B, epoll, 1 connection", 1, 16),
    ("sockperf tcp 16 B, epoll, 2 connections", 2, 16),
    ("sockperf tcp 16 B, epoll, 64 connections", 64, 16),
    ("sockperf tcp 16 KiB, epoll, 1 connection", 1, 16_384),
    ("sockperf tcp 16 KiB, epoll, 2 connections", 2, 16_384),
    ("sockperf tcp 16 KiB, epoll, 64 connections", 64, 16_384),
];

pub(super) fn rows(programs: &Programs, rounds: u32) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (bench, connections, bytes) in CASES {
        let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for world in World::BOTH {
                let time = round_trip_us(programs, world, connections, bytes)?;
                if world == World::Ringway { ours.push(time) } else { theirs.push(time) }
            }
            programs.check_offloaded(bench)?;
        }
        rows.push(Row::new(bench, "round trip, median", "us", &ours, "the kernel", &theirs));
    }
    Ok(rows)
}

/// One run of two seconds, on the connections in turn.
fn round_trip_us(programs: &Programs, world: World, connections: usize, bytes: usize) -> Result<f64> {
    let cpus = cacheline::two_cpus()?;
    let mut feed = String::new();
    let mut port = 0;
    for _ in 0..connections {
        port = free_port()?;
        writeln!(feed, "T:127.0.0.1:{port}")?;
    }
    let path = programs.scratch("feed");
    fs::write(&path, feed)?;
    let common = format!("-f {} -F epoll", path.display());
    // The last one to be bound says that all are.
    let server = programs.serve(world, Some(cpus[1]), &format!("sockperf server {common}"), port)?;
    let line = format!("sockperf ping-pong {common} -m {bytes} -t 2 --mps 5000000 --full-rtt");
    let text = programs.ask(world, Some(cpus[0]), &line)?;
    server.stop(Signal::INT)?;
    percentile(&text, "50.000").with_context(|| format!("no median in sockperf's words:\n{text}"))
}
