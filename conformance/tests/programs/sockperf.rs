//! sockperf, client and server: ping-pong, throughput, under load; TCP and UDP, its ways to wait, and its own check of the data.

use std::fs;

use rustix::process::Signal;

use crate::harness::{Case, Output, free_port};

#[test]
fn ping_pong() {
    run("sockperf-ping-pong-tcp", "--tcp", "ping-pong -t 1 --mps 5000000 -m 64", 5_000);
    run("sockperf-ping-pong-udp", "", "ping-pong -t 1 --mps 5000000 -m 64", 5_000);
}

#[test]
fn ping_pong_non_blocking() {
    // Two programs that spin get in each other's way on a busy machine, in both worlds: an exchange takes two slices of a processor's time, if
    // they have the same one. Hence so little.
    run("sockperf-nonblocked-tcp", "--tcp --nonblocked", "ping-pong -t 1 --mps 5000000 -m 64", 20);
    run("sockperf-nonblocked-udp", "--nonblocked", "ping-pong -t 1 --mps 5000000 -m 64", 20);
}

/// Several sockets of both protocols behind epoll, poll and select.
#[test]
fn multiplexed() {
    for wait in ["e", "p", "s"] {
        let case = Case::new("sockperf-multiplexed");
        let feed = case.path("feed");
        let ports = [free_port(), free_port(), free_port(), free_port()];
        let lines: String = ports.iter().zip(["T", "U", "T", "U"]).map(|(port, kind)| format!("{kind}:127.0.0.1:{port}\n")).collect();
        fs::write(&feed, lines).expect("the feed file");
        let common = format!("-f {} -F {wait}", feed.display());
        let server = case.program("sockperf").args(&format!("server {common}")).serve(ports[3]);
        right(&case.program("sockperf").args(&format!("ping-pong {common} -t 1 --mps 5000000 -m 64")).run(), "ping-pong");
        server.stop(Signal::INT);
        case.offloaded(&["sockperf"], 40_000, 3_000);
    }
}

#[test]
fn data_integrity() {
    run("sockperf-integrity-tcp", "--tcp", "ping-pong -t 1 -m 1400 --data-integrity", 2_000);
    run("sockperf-integrity-udp", "", "ping-pong -t 1 -m 1400 --data-integrity", 2_000);
}

#[test]
fn throughput() {
    run("sockperf-throughput-tcp", "--tcp", "throughput -t 2 -m 1400", 1_000);
    run("sockperf-throughput-udp", "", "throughput -t 2 -m 1400", 20_000);
}

#[test]
fn under_load() {
    run("sockperf-under-load-tcp", "--tcp", "under-load -t 2 -m 64 --mps 20000 --reply-every 2", 5_000);
    run("sockperf-under-load-udp", "", "under-load -t 2 -m 64 --mps 20000 --reply-every 2", 20_000);
}

fn run(name: &str, common: &str, client: &str, packets: u64) {
    talk(Case::new(name), common, client, packets);
}

/// Both sides get `common`; `packets` is what the kernel sends at the least for this traffic.
pub(crate) fn talk(case: Case, common: &str, client: &str, packets: u64) {
    let port = free_port();
    let mut server = case.program("sockperf").args(&format!("server -i 127.0.0.1 -p {port} {common}")).serve(port);
    let (mode, options) = client.split_once(' ').expect("a mode and its options");
    let answer = case.program("sockperf").args(&format!("{mode} -i 127.0.0.1 -p {port} {common} {options}")).run();
    right(&answer, mode);
    server.wait_said("[SERVER] listen on:");
    server.stop(Signal::INT);
    case.offloaded(&["sockperf"], packets * 16, packets);
}

/// How many times as many exchanges the kernel may have in the same time, on a machine that has other things to do in between. (A quiet one has some ten
/// thousands a second, and a hundred where each waits for a timer.)
pub(crate) const SLOWER_MAX: u64 = 20;

/// The number after `what` in what sockperf said.
pub(crate) fn count(said: &str, what: &str) -> u64 {
    let digits = |text: &str| text.trim_start_matches(['=', ' ', ':']).chars().take_while(char::is_ascii_digit).collect::<String>();
    let found = said.split(what).skip(1).find_map(|rest| digits(rest).parse().ok());
    found.unwrap_or_else(|| panic!("no count of {what}:\n{said}"))
}

/// sockperf ends with 0 whatever it measured, so its own words are what counts.
pub(crate) fn right(client: &Output, mode: &str) {
    let said = &client.stdout;
    let result = if mode == "throughput" { "Summary: BandWidth is" } else { "Summary: Latency is" };
    assert!(said.contains(result), "no result:\n{said}{}", client.stderr);
    assert!(!said.contains("data integrity test failed"), "{said}");
    if mode == "throughput" {
        return;
    }
    let count = |what: &str| {
        let number = said.split(&format!("{what} = ")).nth(1).and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        number.and_then(|n| n.parse::<u64>().ok()).unwrap_or_else(|| panic!("no count of {what}:\n{said}"))
    };
    assert_eq!((count("duplicated messages"), count("out-of-order messages")), (0, 0), "{said}");
    // A UDP sender that does not wait for answers may overrun a reader that was not scheduled, on the kernel as well.
    let allowed = if mode == "under-load" && !said.contains("# TCP") { 500 } else { 0 };
    assert!(count("dropped messages") <= allowed, "{said}");
}
