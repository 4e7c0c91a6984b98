//! redis-server with redis-benchmark and redis-cli --pipe, in the foreground and daemonised.

use std::fmt::Write as _;
use std::fs;

use rustix::process::Signal;

use crate::harness::{Case, PATIENCE, Running, eventually, free_port};

#[test]
fn benchmark() {
    benchmark_in(Case::new("redis-benchmark"));
}

/// Many clients, without and with pipelining.
pub(crate) fn benchmark_in(case: Case) {
    let port = free_port();
    let server = case.program("redis-server").args(&options(port)).serve(port);
    let answer =
        case.program("redis-benchmark").args(&format!("-h 127.0.0.1 -p {port} -n 20000 -c 50 -d 100 -t set,get,lpush,mset --csv")).run();
    measured(&answer.stdout, 4);
    let pipelined = case.program("redis-benchmark").args(&format!("-h 127.0.0.1 -p {port} -n 50000 -c 20 -P 16 -t set,get --csv")).run();
    measured(&pipelined.stdout, 2);
    server.stop(Signal::TERM);
    case.offloaded(&["redis-server", "redis-benchmark"], 10_000_000, 80_000);
}

#[test]
fn pipe() {
    pipe_in(Case::new("redis-pipe"));
}

/// Ten megabytes of commands at a stretch.
pub(crate) fn pipe_in(case: Case) {
    let port = free_port();
    let server = case.program("redis-server").args(&options(port)).serve(port);
    fill(&case, port, 100_000);
    server.stop(Signal::TERM);
    // Ten megabytes of commands, in as few segments as the kernel likes.
    case.offloaded(&["redis-server", "redis-cli"], 5_000_000, 100);
}

#[test]
fn daemonised() {
    let case = Case::new("redis-daemonised");
    let port = free_port();
    let pidfile = case.path("pid");
    let command = format!("{} --daemonize yes --pidfile {}", options(port), pidfile.display());
    case.program("redis-server").args(&command).run();
    eventually("redis-server serves as a daemon", PATIENCE, || {
        let ping = case.plain("redis-cli").args(&format!("-p {port} ping")).spawn().wait();
        ping.stdout == "PONG\n"
    });
    let pid: u32 = fs::read_to_string(&pidfile).expect("the pid file").trim().parse().expect("a pid");
    let answer = case.program("redis-benchmark").args(&format!("-h 127.0.0.1 -p {port} -n 20000 -c 10 -t set,get --csv")).run();
    measured(&answer.stdout, 2);
    fill(&case, port, 1_000);
    case.program("redis-cli").args(&format!("-p {port} shutdown nosave")).run();
    eventually("the daemon ended", PATIENCE, || !fs::exists(format!("/proc/{pid}")).expect("/proc"));
    case.offloaded(&["redis-server", "redis-benchmark", "redis-cli"], 1_000_000, 20_000);
}

/// A server that keeps nothing.
pub(crate) fn options(port: u16) -> String {
    options_at("127.0.0.1", port)
}

/// The same, for one that is found at `host`.
pub(crate) fn options_at(host: &str, port: u16) -> String {
    format!("--port {port} --bind {host} --protected-mode no --save --appendonly no --loglevel warning")
}

/// Starts a server that waits for clients.
pub(crate) fn idle_server(case: &Case) -> (Running, u16) {
    let port = free_port();
    (case.program("redis-server").args(&options(port)).serve(port), port)
}

/// Each of `rows` has a rate above zero: redis-benchmark's lines are "name","requests a second",…
pub(crate) fn measured(csv: &str, rows: usize) {
    let rates = csv.lines().filter_map(|line| line.split(',').nth(1)?.trim_matches('"').parse::<f64>().ok());
    let positive = rates.filter(|&rate| rate > 0.0).count();
    assert_eq!(positive, rows, "{csv}");
}

/// Stores `count` keys through redis-cli --pipe, and reads some back.
fn fill(case: &Case, port: u16, count: usize) {
    let mut commands = String::new();
    for n in 0..count {
        let (key, value) = (format!("key:{n}"), format!("value:{:032}", n * 7));
        write!(commands, "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n{value}\r\n", key.len(), value.len()).expect("a string");
    }
    let path = case.path("commands");
    fs::write(&path, commands).expect("the commands");
    let cli = |arguments: &str| case.program("redis-cli").args(&format!("-p {port} {arguments}"));
    let answer = cli("--pipe").stdin(&path).run();
    assert!(answer.stdout.ends_with(&format!("errors: 0, replies: {count}\n")), "{}", answer.stdout);
    for n in [0, count / 2, count - 1] {
        assert_eq!(cli(&format!("get key:{n}")).run().stdout, format!("value:{:032}\n", n * 7));
    }
}
