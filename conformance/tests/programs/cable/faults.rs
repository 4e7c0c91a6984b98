//! The same over a network that loses, doubles, overtakes, delays and changes what it carries: a relay between two cables, with the simulator's link faults.
//! Who serves is on Ringway, or who asks, or both.

use core::time::Duration;
use std::time::Instant;

use ringway_sim::{Episodes, FaultCounts, Faults, LinkConfig};
use rustix::process::Signal;

use super::servers::measured;
use super::{Device, Ends, Leaving, Way, carried};
use crate::harness::{Case, Output, Relaying, World, free_port, retransmitted};
use crate::{git, http, iperf3, memcached, nginx, postgres, redis, sockperf, ssh};

/// By IPv6, and whether who serves is on Ringway, and who asks.
const WAYS: [Way; 3] = [(false, [true, false]), (true, [false, true]), (false, [true, true])];

/// What the faults are drawn from: each frame of a way has its own fate, whatever else becomes of the run.
const SEED: u64 = 19;

pub(super) const MIB: u64 = 1 << 20;

/// A gigabit a second, and a round trip of 400 µs.
fn link(faults: Faults) -> LinkConfig {
    LinkConfig { latency: Duration::from_micros(200), bandwidth_bps: Some(1_000_000_000), faults, ..LinkConfig::default() }
}

fn loss(percent: u32) -> Faults {
    Faults { loss_ppm: percent * 10_000, ..Faults::default() }
}

fn duplication() -> Faults {
    Faults { duplication_ppm: 50_000, duplication_delay_max: Duration::from_millis(1), ..Faults::default() }
}

fn reordering() -> Faults {
    Faults { reordering_ppm: 20_000, reordering_delay_max: Duration::from_millis(1), ..Faults::default() }
}

fn corruption() -> Faults {
    Faults { corruption_ppm: 10_000, ..Faults::default() }
}

/// Now and then, by up to 20 ms more than ever.
fn delay() -> Faults {
    let delay = Episodes { every: Duration::from_millis(100), length_max: Duration::from_millis(500) };
    Faults { delay, delay_max: Duration::from_millis(20), jitter_max: Duration::from_millis(1), ..Faults::default() }
}

/// All of it at once, on a slower link with a short queue.
pub(super) fn everything() -> LinkConfig {
    let faults = Faults {
        loss_ppm: 5_000,
        corruption_ppm: 5_000,
        duplication_ppm: 20_000,
        duplication_delay_max: Duration::from_millis(1),
        reordering_ppm: 10_000,
        reordering_delay_max: Duration::from_millis(1),
        ..delay()
    };
    LinkConfig { bandwidth_bps: Some(100_000_000), queue_bytes_max: 64 << 10, ..link(faults) }
}

/// Runs a case each of `ways`.
fn through(name: &str, link: LinkConfig, ways: &[Way], bytes: u64, test: impl Fn(&Ends<'_>) -> [&'static str; 2]) {
    through_leaving(name, (link, Device::Interfaces), ways, bytes, &[], test);
}

/// As [`through`], of programs some of whose connections leave for the kernel, on that device.
pub(super) fn through_leaving(
    name: &str,
    (link, device): (LinkConfig, Device<'_>),
    ways: &[Way],
    bytes: u64,
    leaving: &[Leaving],
    test: impl Fn(&Ends<'_>) -> [&'static str; 2],
) {
    for &way in ways {
        let case = Case::new(name);
        let (cable, relaying) = Relaying::lay(SEED, link);
        let began = Instant::now();
        carried(case, (&cable, device), way, bytes, leaving, &test);
        let relayed = relaying.finish();
        println!("{name}, in {:.2?}: {relayed}", began.elapsed());
        has_struck(&link.faults, &relayed.counts);
    }
}

/// Each fault that there is strength for has struck.
fn has_struck(faults: &Faults, counts: &FaultCounts) {
    let expected = [
        (faults.loss_ppm > 0, counts.lost),
        (faults.duplication_ppm > 0, counts.duplicated),
        (faults.reordering_ppm > 0, counts.held_back),
        (faults.corruption_ppm > 0, counts.corrupted),
        (!faults.delay.never(), counts.delayed),
    ];
    assert!(expected.into_iter().all(|(is_there, count)| is_there == (count > 0)), "{faults:?}: {counts:?}");
}

/// A file by nginx and curl.
fn transfer(name: &str, link: LinkConfig, size: u64) {
    through(name, link, &WAYS, size, |ends| transferred(ends, name, size));
}

pub(super) fn transferred(ends: &Ends<'_>, name: &str, size: u64) -> [&'static str; 2] {
    let (case, port, at) = (ends.case, free_port(), ends.authority());
    let server = nginx::start_at(&at, case, ends.server("nginx"), port, "master_process off;");
    let (file, copy) = (case.path("file"), case.path("copy"));
    http::fill(&file, size);
    let began = Instant::now();
    ends.client("curl").args(&format!("-gsSf -o {} http://{at}:{port}/file", copy.display())).run();
    let took = began.elapsed();
    assert_eq!(http::digest(case, &copy), http::digest(case, &file));
    server.stop(Signal::QUIT);
    tell(ends, name, size, took);
    ["nginx", "curl"]
}

/// What it came to: for people, with --nocapture.
fn tell(ends: &Ends<'_>, name: &str, size: u64, took: Duration) {
    let on_ringway = ends.ringway.map(|is_on| is_on && ends.case.world() == World::Ringway);
    let again = if on_ringway[0] {
        ends.case.reports().iter().filter(|report| report.program == "nginx").map(|report| report.ring.retransmissions).sum()
    } else {
        retransmitted(&ends.cable.serves.proc_net())
    };
    let rate = size as f64 * 8.0 / took.as_secs_f64() / 1e6;
    let [serves, asks] = on_ringway.map(|is_on| if is_on { "Ringway" } else { "kernel" });
    println!("{name}, {serves} to {asks}: {took:.2?}, {rate:.1} Mbit/s, {again} segments sent again");
}

#[test]
fn curl_with_one_percent_lost() {
    transfer("faults-loss-1", link(loss(1)), 4 * MIB);
}

#[test]
fn curl_with_five_percent_lost() {
    transfer("faults-loss-5", link(loss(5)), MIB);
}

#[test]
fn curl_with_duplicates() {
    transfer("faults-duplication", link(duplication()), 16 * MIB);
}

#[test]
fn curl_overtaken() {
    transfer("faults-reordering", link(reordering()), 16 * MIB);
}

/// 20 ms each way, at the least.
#[test]
fn curl_from_far_away() {
    transfer("faults-delay", LinkConfig { latency: Duration::from_millis(20), ..link(delay()) }, 4 * MIB);
}

#[test]
fn curl_with_flipped_bits() {
    transfer("faults-corruption", link(corruption()), 4 * MIB);
}

#[test]
fn curl_with_everything() {
    transfer("faults-everything", everything(), 2 * MIB);
}

/// Twenty connections that ask and are answered, and as many that write on without waiting.
fn requests(name: &str, link: LinkConfig) {
    through(name, link, &WAYS, 100_000, requested);
}

pub(super) fn requested(ends: &Ends<'_>) -> [&'static str; 2] {
    let (port, host) = (free_port(), ends.host());
    let server = ends.server("redis-server").args(&redis::options_at(&host, port)).serve(port);
    let benchmark = |options: &str| ends.client("redis-benchmark").args(&format!("-h {host} -p {port} {options} --csv")).run().stdout;
    redis::measured(&benchmark("-n 600 -c 20 -d 100 -t set,get"), 2);
    redis::measured(&benchmark("-n 3000 -c 20 -P 16 -t set"), 1);
    server.stop(Signal::TERM);
    ["redis-server", "redis-benchmark"]
}

#[test]
fn redis_with_one_percent_lost() {
    requests("faults-redis-loss", link(loss(1)));
}

#[test]
fn redis_overtaken_and_doubled() {
    let faults = Faults { reordering_ppm: 50_000, reordering_delay_max: Duration::from_millis(1), ..duplication() };
    requests("faults-redis-order", link(faults));
}

#[test]
fn redis_with_everything() {
    requests("faults-redis-everything", everything());
}

/// Questions by datagrams, which are asked again when nothing comes back, and by streams. (What dnsmasq is asked by an interface is the kernel's.)
fn names(name: &str, link: LinkConfig) {
    through(name, link, &[(false, [false, true]), (true, [false, true])], 300, names_asked);
}

pub(super) fn names_asked(ends: &Ends<'_>) -> [&'static str; 2] {
    let (case, port, host) = (ends.case, free_port(), ends.host());
    let config = case.path("dnsmasq.conf");
    let options = format!("port={port}\nlisten-address={host}\nbind-interfaces\nno-resolv\nno-hosts\nuser=root\npid-file=\n");
    std::fs::write(&config, format!("{options}address=/name.test/192.0.2.7\n")).expect("its configuration");
    let server = ends.server("dnsmasq").args(&format!("-k -C {}", config.display())).serve(port);
    let list = case.path("questions");
    std::fs::write(&list, "name.test\n".repeat(25)).expect("the questions");
    let ask = |words: &str| ends.client("dig").args(&format!("@{host} -p {port} +short {words}")).run().stdout;
    // (It says in a comment that it asks again.)
    let answers = ask(&format!("+timeout=1 +tries=10 -f {}", list.display()));
    let answers: Vec<_> = answers.lines().filter(|line| !line.starts_with(';')).collect();
    assert_eq!(answers, ["192.0.2.7"; 25]);
    for _ in 0..3 {
        assert_eq!(ask("+timeout=20 +tcp name.test"), "192.0.2.7\n");
    }
    server.signal(Signal::TERM);
    server.wait();
    ["dnsmasq", "dig"]
}

#[test]
fn names_with_five_percent_lost() {
    names("faults-dns-loss", link(loss(5)));
}

#[test]
fn names_with_everything() {
    // (So few frames that one in a hundred is none.)
    let link = everything();
    let faults = Faults { loss_ppm: 20_000, corruption_ppm: 20_000, reordering_ppm: 100_000, ..link.faults };
    names("faults-dns-everything", LinkConfig { faults, ..link });
}

/// One message after the other.
fn ping_pong(name: &str, link: LinkConfig, protocol: &str, options: &str, verdict: impl Fn(&Output)) {
    const WAYS_OF_IPV4: [Way; 2] = [(false, [true, false]), (false, [false, true])];
    through(name, link, &WAYS_OF_IPV4, 5_000, |ends| {
        let (port, host) = (free_port(), ends.host());
        let mut server = ends.server("sockperf").args(&format!("server -i {host} -p {port} {protocol}")).serve(port);
        let client = format!("ping-pong -i {host} -p {port} {protocol} {options} -t 1 --mps 5000000 -m 1400");
        verdict(&ends.client("sockperf").args(&client).run());
        server.wait_said("[SERVER] listen on:");
        server.stop(Signal::INT);
        ["sockperf", "sockperf"]
    });
}

/// What a checksum tells of reaches nobody.
#[test]
fn sockperf_with_flipped_bits() {
    ping_pong("faults-sockperf-corruption", link(corruption()), "--tcp", "--data-integrity", |client| sockperf::right(client, "ping-pong"));
}

/// Who reads datagrams gets those that come twice, twice.
#[test]
fn sockperf_with_duplicates() {
    ping_pong("faults-sockperf-duplication", link(duplication()), "", "", |client| {
        assert!(sockperf::count(&client.stdout, "duplicated messages") > 0, "{}", client.stdout);
    });
}

/// Both directions at once, and four streams of each.
#[test]
fn iperf3_with_everything() {
    through("faults-iperf3", everything(), &WAYS, MIB, both_directions);
}

pub(super) fn both_directions(ends: &Ends<'_>) -> [&'static str; 2] {
    let answer = measured(ends, "-t 2 --bidir -P 4");
    let bytes = iperf3::received(&answer);
    assert!(bytes > MIB, "{bytes} bytes in two seconds");
    ["iperf3", "iperf3"]
}

#[test]
fn memcached_with_everything() {
    const OF_IPV4: [Way; 3] = [(false, [true, false]), (false, [false, true]), (false, [true, true])];
    through("faults-memcached", everything(), &OF_IPV4, 100_000, |ends| {
        let (port, host) = (free_port(), ends.host());
        let server = ends.server("memcached").args(&memcached::options_at(&host, port)).serve(port);
        memcached::load(&host, ends.client("memcaslap"), port, 1000);
        server.stop(Signal::TERM);
        ["memcached", "memcaslap"]
    });
}

/// Of a connection that leaves for the kernel, too, nothing is lost.
#[test]
fn ssh_with_everything() {
    through_leaving("faults-ssh", (everything(), Device::Interfaces), &WAYS, MIB, &[("sshd", 1)], piped_by_ssh);
}

pub(super) fn piped_by_ssh(ends: &Ends<'_>) -> [&'static str; 2] {
    let (case, host) = (ends.case, ends.host());
    let (server, port) = ssh::start_at(&host, case, ends.server("/usr/sbin/sshd"));
    let file = case.path("file");
    http::fill(&file, MIB);
    let answer = ssh::ask_at(&host, case, ends.client("ssh"), port).arg("cat | sha256sum").stdin(&file).run();
    assert_eq!(answer.stdout.split(' ').next(), Some(http::digest(case, &file).as_str()));
    ssh::stop(server);
    ["sshd", "ssh"]
}

#[test]
fn git_with_everything() {
    through_leaving("faults-git", (everything(), Device::Interfaces), &WAYS, 0, &[("git", 1)], |ends| {
        let daemon = git::exchange(ends.case, &ends.host(), MIB / 4, &|program| ends.server(program), &|program| ends.client(program));
        ends.ask_who_serves();
        git::stop(daemon);
        ["git", "git"]
    });
}

#[test]
fn postgres_with_one_percent_lost() {
    through_leaving("faults-postgres", (link(loss(1)), Device::Interfaces), &WAYS, MIB, &[("postgres", 0)], |ends| {
        let (server, port) = ends.postgres();
        postgres::rows_there_and_back(ends.case, 0, &|command| postgres::asks(ends.of_postgres("psql", port), command));
        server.stop(Signal::INT);
        ["postgres", "psql"]
    });
}
