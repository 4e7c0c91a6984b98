//! sockperf's ping-pong of 64 bytes, TCP and UDP: the median round trip, against three peers measured in the same rounds.

use anyhow::{Context as _, Result};
use rustix::process::Signal;

use super::program::{Programs, World, free_port};
use crate::cacheline;
use crate::row::Row;

/// How client and server wait for a message.
#[derive(Clone, Copy)]
enum Waiting {
    /// As sockperf comes: blocking sockets, wherever the scheduler puts the two.
    AsItComes,
    /// Non-blocking sockets that are asked again and again, each program on a core of its own.
    Spinning,
}

/// The rows of one protocol: bench, its option.
const PROTOCOLS: [(&str, &str); 2] = [("sockperf tcp 64 B", "--tcp"), ("sockperf udp 64 B", "")];

pub(super) fn rows(programs: &Programs, rounds: u32) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let cpus = cacheline::two_cpus()?;
    for (bench, option) in PROTOCOLS {
        let [mut line, mut ours, mut ours_free, mut spun, mut comes] = [const { Vec::new() }; 5];
        for _ in 0..rounds {
            line.push(cacheline::round_trip_ns()? / 1e3);
            ours.push(round_trip_us(programs, World::Ringway, Waiting::AsItComes, Some(cpus), option)?);
            spun.push(round_trip_us(programs, World::Kernel, Waiting::Spinning, Some(cpus), option)?);
            comes.push(round_trip_us(programs, World::Kernel, Waiting::AsItComes, None, option)?);
            ours_free.push(round_trip_us(programs, World::Ringway, Waiting::AsItComes, None, option)?);
            programs.check_offloaded(bench)?;
        }
        let row = |ours: &[f64], peer, theirs: &[f64]| Row::new(bench, "round trip, median", "us", ours, peer, theirs);
        rows.push(row(&ours, "a cache line's round trip", &line));
        rows.push(row(&ours, "the kernel, spinning on non-blocking sockets", &spun));
        rows.push(row(&ours, "the kernel, sockperf as it comes", &comes));
        rows.push(Row::new(bench, "round trip, median, neither pinned", "us", &ours_free, "the kernel, sockperf as it comes", &comes));
    }
    Ok(rows)
}

/// One run of two seconds: the median round trip in microseconds.
fn round_trip_us(programs: &Programs, world: World, waiting: Waiting, cpus: Option<[usize; 2]>, option: &str) -> Result<f64> {
    let port = free_port()?;
    let nonblocked = match waiting {
        Waiting::AsItComes => "",
        Waiting::Spinning => "--nonblocked",
    };
    let common = format!("-i 127.0.0.1 -p {port} {option} {nonblocked}");
    let server = programs.serve(world, cpus.map(|c| c[1]), &format!("sockperf server {common}"), port)?;
    // A rate far beyond reach: what sockperf takes for its own most leaves it without room above a million messages a second.
    let text = programs.ask(world, cpus.map(|c| c[0]), &format!("sockperf ping-pong {common} -m 64 -t 2 --mps 5000000 --full-rtt"))?;
    server.stop(Signal::INT)?;
    percentile(&text, "50.000").with_context(|| format!("no median in sockperf's words:\n{text}"))
}

/// sockperf's line `---> percentile 50.000 =   12.345`.
pub(crate) fn percentile(text: &str, which: &str) -> Option<f64> {
    let line = text.lines().find(|l| l.contains(&format!("percentile {which}")))?;
    line.split_once('=')?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn sockperfs_percentiles_are_read() {
        let text = "sockperf: ---> percentile 75.000 =    8.1\nsockperf: ---> percentile 50.000 =    7.912\n";
        assert_eq!(percentile(text, "50.000"), Some(7.912));
        assert_eq!(percentile(text, "99.000"), None);
    }
}
