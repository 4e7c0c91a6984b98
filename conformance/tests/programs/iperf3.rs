//! iperf3: many streams, both directions at once, reversed, and UDP.

use serde_json::Value;

use crate::harness::{Case, Launch, Output, Side, World, free_port};

/// The most payload that one segment of the kernel's loopback carries.
const SEGMENT: u64 = 65_483;

#[test]
fn one_stream() {
    tcp("iperf3-one", "");
}

#[test]
fn eight_streams() {
    tcp("iperf3-eight", "-P 8");
}

#[test]
fn both_directions() {
    tcp("iperf3-bidir", "--bidir");
}

#[test]
fn reversed() {
    tcp("iperf3-reverse", "-R");
}

#[test]
fn udp() {
    udp_to("127.0.0.1", "iperf3-udp");
}

/// How often the library may lose more than the kernel does a moment later: three times in a row is no chance.
const ATTEMPTS: usize = 3;

/// Datagrams at a rate of which a receiver's buffer holds 17 ms: who waits longer for a processor loses some, on the kernel as well, which is then asked
/// how much.
pub(crate) fn udp_to(host: &str, name: &str) {
    const OPTIONS: &str = "-u -b 100M -l 1400";
    let mut worse = Vec::new();
    for _ in 0..ATTEMPTS {
        let case = Case::new(name);
        let world = case.world();
        let ours = Datagrams::of(&exchange_with(host, &case, None, OPTIONS));
        case.offloaded(&["iperf3"], ours.sent * 500, ours.sent * 9 / 10);
        if world == World::Kernel || ours.sent > 10_000 && ours.lost_percent < 5.0 {
            return;
        }
        let beside = Case::new(&format!("{name}-beside"));
        let kernels = Datagrams::of(&between(host, (beside.plain("iperf3"), beside.plain("iperf3")), OPTIONS));
        beside.done();
        if ours.sent >= kernels.sent / 2 && ours.lost_percent < kernels.lost_percent + 5.0 {
            return;
        }
        worse.push((ours, kernels));
    }
    panic!("in two seconds, and the kernel's right after: {worse:?}");
}

/// What a client of UDP says.
#[derive(Debug)]
struct Datagrams {
    sent: u64,
    lost_percent: f64,
}

impl Datagrams {
    fn of(answer: &Value) -> Self {
        let sum = &answer["end"]["sum"];
        Self { sent: sum["packets"].as_u64().expect("packets"), lost_percent: sum["lost_percent"].as_f64().expect("loss") }
    }
}

fn tcp(name: &str, options: &str) {
    streams(Case::new(name), options);
}

/// Two seconds of TCP.
pub(crate) fn streams(case: Case, options: &str) {
    let answer = exchange(&case, None, options);
    let bytes = received(&answer);
    assert!(bytes > 50_000_000, "{bytes} bytes in two seconds");
    case.offloaded(&["iperf3"], bytes, bytes / SEGMENT);
}

/// Two seconds between a client and a one-off server, `preloaded` or both of them on Ringway; the client's own report.
pub(crate) fn exchange(case: &Case, preloaded: Option<Side>, options: &str) -> Value {
    exchange_with("127.0.0.1", case, preloaded, options)
}

/// As [`exchange`], with a server that is found at `host`; it listens at every address of both families.
pub(crate) fn exchange_with(host: &str, case: &Case, preloaded: Option<Side>, options: &str) -> Value {
    let programs = match preloaded {
        None => (case.program("iperf3"), case.program("iperf3")),
        Some(side) => (case.server(side, "iperf3"), case.client(side, "iperf3")),
    };
    between(host, programs, options)
}

fn between(host: &str, (server, client): (Launch<'_>, Launch<'_>), options: &str) -> Value {
    let port = free_port();
    let server = server.args(&format!("-s -1 -p {port}")).serve(port);
    let Output { stdout, .. } = client.args(&format!("-c {host} -p {port} -t 2 -J {options}")).run();
    server.finish();
    let answer: Value = serde_json::from_str(&stdout).expect("iperf3's JSON");
    assert!(answer.get("error").is_none(), "{}", answer["error"]);
    answer
}

/// Payload bytes that arrived, in both directions.
pub(crate) fn received(answer: &Value) -> u64 {
    let of = |sum: &str| answer["end"][sum]["bytes"].as_u64();
    let (sent, received) = (of("sum_sent").expect("sent"), of("sum_received").expect("received"));
    assert!(received <= sent, "{received} bytes received of {sent} sent");
    received + of("sum_received_bidir_reverse").unwrap_or(0)
}
