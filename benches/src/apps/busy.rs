//! More busy processes than cores: redis-servers and redis-benchmarks, three, four and eight of them, on two cores.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::program::{Programs, World, free_port};
use super::redis;
use crate::cacheline;
use crate::row::Row;

/// How many processes of each kind; clients take the servers in turn.
const CROWDS: [(&str, usize, usize); 3] =
    [("redis GET, 3 busy processes", 1, 2), ("redis GET, 4 busy processes", 2, 2), ("redis GET, 8 busy processes", 4, 4)];

pub(super) fn rows(programs: &Programs, rounds: u32) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (bench, servers, clients) in CROWDS {
        let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for world in World::BOTH {
                let rate = requests_per_second(programs, world, servers, clients)?;
                if world == World::Ringway { ours.push(rate) } else { theirs.push(rate) }
            }
            programs.check_offloaded(bench)?;
        }
        rows.push(Row::new(bench, "requests of all, on two cores", "/s", &ours, "the kernel", &theirs));
    }
    Ok(rows)
}

/// The sum over the clients, who all ask for the same number: the slowest tells how long that took.
fn requests_per_second(programs: &Programs, world: World, servers: usize, clients: usize) -> Result<f64> {
    const REQUESTS: u32 = 60_000;
    let [a, b] = cacheline::two_cpus()?;
    let on_two = |line: &str| programs.command(world, None, &format!("taskset --cpu-list {a},{b} {line}"));
    let mut ports = Vec::new();
    let mut serving = Vec::new();
    for _ in 0..servers {
        let port = free_port()?;
        serving.push(programs.serve(world, None, &format!("taskset --cpu-list {a},{b} {}", redis::server(port)), port)?);
        ports.push(port);
    }
    let start = std::time::Instant::now();
    let mut asking = Vec::new();
    for port in ports.iter().cycle().take(clients) {
        let mut client = on_two(&format!("redis-benchmark -h 127.0.0.1 -p {port} -t get --csv -c 10 -n {REQUESTS}"));
        asking.push(client.stdout(Stdio::null()).spawn().context("redis-benchmark")?);
    }
    for mut client in asking {
        ensure!(client.wait()?.success(), "redis-benchmark failed");
    }
    let took = start.elapsed();
    for server in serving {
        server.stop(Signal::TERM)?;
    }
    #[expect(clippy::cast_precision_loss, reason = "a handful of clients")]
    Ok(f64::from(REQUESTS) * clients as f64 / took.as_secs_f64())
}
