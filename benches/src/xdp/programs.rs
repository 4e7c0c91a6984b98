//! Programs that others wrote.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::cable::{At, Cable, Ends, HOST, said};
use super::{beside_kernel, each};
use crate::apps::program::{World, free_port};
use crate::apps::sockperf::percentile;
use crate::row::Row;

/// Which ends are Ringway's, in the words of a row.
const ROUND_TRIPS: [&str; 3] = [
    "round trip, median, Ringway to Ringway",
    "round trip, median, Ringway asks the kernel",
    "round trip, median, the kernel asks Ringway",
];
const THROUGHPUTS: [&str; 3] = ["throughput, Ringway to Ringway", "throughput, Ringway to the kernel", "throughput, the kernel to Ringway"];
const REQUESTS: [&str; 3] = ["requests, Ringway to Ringway", "requests, Ringway asks the kernel", "requests, the kernel asks Ringway"];

pub(super) fn sockperf(cable: &Cable, rounds: u32) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (bench, options) in [
        ("sockperf tcp 64 B", "--tcp"),
        ("sockperf udp 64 B", ""),
        ("sockperf tcp 64 B, non-blocking", "--tcp --nonblocked"),
        ("sockperf udp 64 B, non-blocking", "--nonblocked"),
    ] {
        let figures = each(cable, rounds, |ends| round_trip_us(cable, ends, options))?;
        rows.extend(beside_kernel(bench, ROUND_TRIPS, "us", &figures));
    }
    Ok(rows)
}

/// One run of two seconds, each program on a processor of its own.
fn round_trip_us(cable: &Cable, ends: Ends, options: &str) -> Result<f64> {
    let port = free_port()?;
    let common = format!("-i {HOST} -p {port} {options}");
    let server = cable.serve(ends.serves, true, &format!("sockperf server {common}"), port)?;
    let text = cable.ask(ends.asks, true, &format!("sockperf ping-pong {common} -m 64 -t 2 --mps 5000000 --full-rtt"))?;
    server.stop(Signal::INT)?;
    percentile(&text, "50.000").with_context(|| format!("no median in sockperf's words:\n{text}"))
}

pub(super) fn iperf3(cable: &Cable, rounds: u32) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (benches, are_on) in [
        (["iperf3, one stream, no offloads", "iperf3, 8 streams, no offloads"], false),
        (["iperf3, one stream, the kernel's offloads on", "iperf3, 8 streams, the kernel's offloads on"], true),
    ] {
        cable.set_offloads(are_on)?;
        for (bench, options) in benches.into_iter().zip(["", "-P 8"]) {
            let figures = each(cable, rounds, |ends| gigabits_per_second(cable, ends, options))?;
            rows.extend(beside_kernel(bench, THROUGHPUTS, "Gbit/s", &figures));
        }
    }
    Ok(rows)
}

fn gigabits_per_second(cable: &Cable, ends: Ends, options: &str) -> Result<f64> {
    let port = free_port()?;
    let mut server = cable.serve(ends.serves, false, &format!("iperf3 -s -1 -p {port}"), port)?;
    let text = cable.ask(ends.asks, false, &format!("iperf3 -c {HOST} -p {port} -t 3 -J {options}"))?;
    server.0.wait()?;
    let answer: serde_json::Value = serde_json::from_str(&text)?;
    let rate = answer["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(rate.context("iperf3 gives no rate")? / 1e9)
}

pub(super) fn redis(cable: &Cable, rounds: u32) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (bench, options) in [("redis GET", "-n 100000"), ("redis GET, -P 16", "-n 500000 -P 16")] {
        let figures = each(cable, rounds, |ends| requests_per_second(cable, ends, options))?;
        rows.extend(beside_kernel(bench, REQUESTS, "/s", &figures));
    }
    Ok(rows)
}

fn requests_per_second(cable: &Cable, ends: Ends, options: &str) -> Result<f64> {
    let port = free_port()?;
    let server = cable.serve(ends.serves, false, &redis_server(port), port)?;
    let text = cable.ask(ends.asks, false, &format!("redis-benchmark -h {HOST} -p {port} -t get --csv {options}"))?;
    server.stop(Signal::TERM)?;
    let row = text.lines().find(|l| l.starts_with("\"GET\"")).context("redis-benchmark gives no rate")?;
    Ok(row.split(',').nth(1).context("a rate")?.trim_matches('"').parse()?)
}

fn redis_server(port: u16) -> String {
    format!("redis-server --port {port} --bind {HOST} --protected-mode no --save --appendonly no --loglevel warning")
}

/// System calls, as strace(1) counts them, of each frame that the program sent or received. Its own, too: some hundreds at its start.
pub(super) fn calls(cable: &Cable) -> Result<Vec<Row>> {
    let ends = Ends { asks: World::Ringway, serves: World::Ringway };
    let mut rows = Vec::new();
    for (bench, server, client) in [
        ("sockperf tcp 64 B", "sockperf server -i HOST -p PORT --tcp", "sockperf ping-pong -i HOST -p PORT --tcp -m 64 -t 2 --mps 5000000"),
        ("sockperf udp 64 B", "sockperf server -i HOST -p PORT", "sockperf ping-pong -i HOST -p PORT -m 64 -t 2 --mps 5000000"),
        ("iperf3, one stream", "iperf3 -s -1 -p PORT", "iperf3 -c HOST -p PORT -t 2"),
    ] {
        let port = free_port()?;
        let of = |line: &str| line.replace("HOST", HOST).replace("PORT", &port.to_string());
        let count = cable.scratch("calls");
        let server = cable.serve(ends.serves, true, &of(server), port)?;
        let line = format!("strace --follow-forks --summary-only --output={} {}", count.display(), of(client));
        said(&mut traced(cable, &line), &line)?;
        drop(server);
        let reports = cable.check_offloaded()?;
        let program = client.split(' ').next().unwrap_or_default();
        let frames: u64 = reports.iter().filter(|r| r.program == program).map(|r| r.ring.rx_packets + r.ring.tx_packets).sum();
        ensure!(frames > 0, "{line}: no report of its frames");
        let calls = total(&std::fs::read_to_string(&count)?).with_context(|| format!("{line}: no count"))?;
        #[expect(clippy::cast_precision_loss, reason = "a ratio")]
        let each = calls as f64 / frames as f64;
        rows.push(Row::new(bench, "system calls of who asks, a frame", "calls", &[each], "the kernel's sockets: a call each", &[1.0]));
    }
    Ok(rows)
}

/// (What is traced is preloaded; the tracer need not be.)
fn traced(cable: &Cable, line: &str) -> Command {
    cable.command(At::Asks, World::Ringway, true, line)
}

/// strace's last line: `100.00    0.123456           1    123456       7 total`.
fn total(summary: &str) -> Option<u64> {
    let line = summary.lines().find(|line| line.trim_end().ends_with("total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn straces_total_is_read() {
        let text = "% time     seconds  usecs/call     calls    errors syscall\n------\n 90.00    0.1           1      1234        10 sendto\n\
                    100.00    0.123456           1    123456        17 total\n";
        assert_eq!(super::total(text), Some(123_456));
        assert_eq!(super::total("nothing"), None);
    }
}
