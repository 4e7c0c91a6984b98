//! Servers of many kinds, and who asks them.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::{Device, Ends, WAYS, a_few_ways, at_once, each_way, each_way_of_ipv4};
use crate::harness::{PYTHON, free_port, script_path};
use crate::{http, iperf3, memcached, nginx, redis, sockperf};

/// A gigabyte, by a server of one process, which accepts and sends it by sendfile(2).
#[test]
fn nginx_and_curl() {
    const SIZE: u64 = 1 << 30;
    a_few_ways("cable-nginx", SIZE, &[], |ends| fetched(ends, SIZE));
}

/// A file of that size, and a hundred small ones.
pub(super) fn fetched(ends: &Ends<'_>, size: u64) -> [&'static str; 2] {
    let (case, port, at) = (ends.case, free_port(), ends.authority());
    let server = nginx::start_at(&at, case, ends.server("nginx"), port, "master_process off;");
    let (file, copy) = (case.path("file"), case.path("copy"));
    http::fill(&file, size);
    ends.client("curl").args(&format!("-gsSf -o {} http://{at}:{port}/file", copy.display())).run();
    assert_eq!(http::digest(case, &copy), http::digest(case, &file));
    [file, copy].iter().for_each(|path| std::fs::remove_file(path).expect("it was just read"));
    small_files(ends, port, 100);
    server.stop(Signal::QUIT);
    ["nginx", "curl"]
}

/// A master that forks: one of its workers comes to have the interface.
#[test]
fn nginx_with_workers() {
    each_way("cable-workers", 1_000_000, &[], |ends| fetched_from_workers(ends, 3000));
}

pub(super) fn fetched_from_workers(ends: &Ends<'_>, files: u32) -> [&'static str; 2] {
    let port = free_port();
    let server = nginx::start_at(&ends.authority(), ends.case, ends.server("nginx"), port, "worker_processes 2;");
    // (What is there before that stays the kernel's, and so would connections that are used again and again.)
    std::thread::sleep(Duration::from_millis(500));
    small_files(ends, port, files);
    server.stop(Signal::QUIT);
    ["nginx", "curl"]
}

/// Asks for a small file so often, by eight connections.
fn small_files(ends: &Ends<'_>, port: u16, count: u32) {
    // (-g: brackets are part of an address.)
    let url = format!("http://{}:{port}/small\n", ends.authority());
    let list = ends.case.path("urls");
    let lines: String = (0..count).map(|_| format!("url = {url}output = /dev/null\n")).collect();
    std::fs::write(&list, lines).expect("what is asked for");
    ends.client("curl").args(&format!("-gsSf -Z --parallel-max 8 -K {}", list.display())).run();
}

#[test]
fn redis_and_its_benchmark() {
    each_way("cable-redis", 1_000_000, &[], redis_asked);
}

pub(super) fn redis_asked(ends: &Ends<'_>) -> [&'static str; 2] {
    let (port, host) = (free_port(), ends.host());
    let server = ends.server("redis-server").args(&redis::options_at(&host, port)).serve(port);
    let benchmark = |options: &str| ends.client("redis-benchmark").args(&format!("-h {host} -p {port} {options} --csv")).run().stdout;
    redis::measured(&benchmark("-n 10000 -c 50 -d 100 -t set,get,lpush"), 3);
    redis::measured(&benchmark("-n 20000 -c 20 -P 16 -t set,get"), 2);
    server.stop(Signal::TERM);
    ["redis-server", "redis-benchmark"]
}

/// Four threads that share the connections.
#[test]
fn memcached_by_hand() {
    each_way("cable-memcached", 1_000_000, &[], memcached_asked);
}

pub(super) fn memcached_asked(ends: &Ends<'_>) -> [&'static str; 2] {
    let (port, host) = (free_port(), ends.host());
    let server = ends.server("memcached").args(&memcached::options_at(&host, port)).serve(port);
    let client = ends.client(PYTHON).arg(script_path("memcache.py")).args(&format!("{port} {host}"));
    assert_eq!(client.run().stdout, "equal\n");
    server.stop(Signal::TERM);
    ["memcached", "python3"]
}

/// Its load generator knows no IPv6 addresses.
#[test]
fn memcached_and_its_load() {
    each_way_of_ipv4("cable-memcaslap", 1_000_000, &[], |ends| memcached_loaded(ends, 5_000));
}

pub(super) fn memcached_loaded(ends: &Ends<'_>, operations: u32) -> [&'static str; 2] {
    let (port, host) = (free_port(), ends.host());
    let server = ends.server("memcached").args(&memcached::options_at(&host, port)).serve(port);
    memcached::load(&host, ends.client("memcaslap"), port, operations);
    server.stop(Signal::TERM);
    ["memcached", "memcaslap"]
}

#[test]
fn sockperf() {
    each_way_of_ipv4("cable-sockperf", 5_000, &[], sockperf_asked);
}

pub(super) fn sockperf_asked(ends: &Ends<'_>) -> [&'static str; 2] {
    let (port, host) = (free_port(), ends.host());
    for options in ["--tcp", ""] {
        let mut server = ends.server("sockperf").args(&format!("server -i {host} -p {port} {options}")).serve(port);
        let client = format!("-i {host} -p {port} {options} -t 1 --mps 5000000 -m 1400 --data-integrity");
        sockperf::right(&ends.client("sockperf").args(&format!("ping-pong {client}")).run(), "ping-pong");
        server.wait_said("[SERVER] listen on:");
        server.stop(Signal::INT);
    }
    ["sockperf", "sockperf"]
}

/// A name server by datagrams and by streams. (It lets others bind its address, so that what comes there by an interface is the kernel's to share out; and it
/// forks for each stream.)
#[test]
fn dnsmasq_and_dig() {
    each_way("cable-dns", 300, &[("dnsmasq", 1)], names_asked);
}

pub(super) fn names_asked(ends: &Ends<'_>) -> [&'static str; 2] {
    let (case, port, host) = (ends.case, free_port(), ends.host());
    // (More than fits in a datagram, so that a stream is asked for.)
    let text = "a".repeat(250);
    let records: String = (0..20).map(|at| format!("txt-record=long.test,{at}{text}\n")).collect();
    let config = case.path("dnsmasq.conf");
    let options = format!("port={port}\nlisten-address={host}\nbind-interfaces\nno-resolv\nno-hosts\nuser=root\npid-file=\n");
    std::fs::write(&config, format!("{options}address=/name.test/192.0.2.7\n{records}")).expect("its configuration");
    let server = ends.server("dnsmasq").args(&format!("-k -C {}", config.display())).serve(port);
    let ask = |words: &str| ends.client("dig").args(&format!("@{host} -p {port} +short +timeout=20 {words}")).run().stdout;
    for _ in 0..5 {
        assert_eq!(ask("name.test"), "192.0.2.7\n");
    }
    assert_eq!(ask("+tcp name.test"), "192.0.2.7\n");
    assert_eq!(ask("+bufsize=512 long.test TXT").lines().count(), 20);
    server.signal(Signal::TERM);
    server.wait();
    ["dnsmasq", "dig"]
}

#[test]
fn iperf3() {
    each_way("cable-iperf3", 1_000_000, &[], iperf3_asked);
}

pub(super) fn iperf3_asked(ends: &Ends<'_>) -> [&'static str; 2] {
    for options in ["-t 1", "-t 1 -P 4", "-t 1 --bidir", "-t 1 -R"] {
        let bytes = iperf3::received(&measured(ends, options));
        assert!(bytes > 1_000_000, "{bytes} bytes in a second ({options})");
    }
    let answer = measured(ends, "-t 1 -u -b 20M -l 1400");
    let sum = &answer["end"]["sum"];
    let (sent, lost) = (sum["packets"].as_u64().expect("packets"), sum["lost_packets"].as_u64().expect("loss"));
    assert!(sent > 500 && lost < sent / 2, "{lost} lost of {sent}");
    ["iperf3", "iperf3"]
}

/// A minute each way at once, as fast as both can, over three cables at the same time: so none has the machine to itself, and each runs for as long as it
/// would alone. What a busy machine loses comes again, and is little.
#[test]
fn iperf3_for_a_minute() {
    const SECONDS: u64 = 60;
    const BYTES: u64 = SECONDS * 5_000_000;
    let ways = [(false, [true, false]), (true, [false, true]), (false, [true, true])];
    at_once("cable-minute", Device::Interfaces, BYTES, &ways, |ends| {
        let received = iperf3::received(&measured(ends, &format!("-t {SECONDS} --bidir")));
        println!("{received} bytes in {SECONDS} s (Ringway serves, asks: {:?})", ends.ringway);
        assert!(received > BYTES, "{received} bytes in {SECONDS} s ({:?})", ends.ringway);
        ["iperf3", "iperf3"]
    });
}

pub(super) fn measured(ends: &Ends<'_>, options: &str) -> Value {
    let (port, host) = (free_port(), ends.host());
    let server = ends.server("iperf3").args(&format!("-s -1 -p {port}")).serve(port);
    let answer = ends.client("iperf3").args(&format!("-c {host} -p {port} -J {options}")).run().stdout;
    server.finish();
    let answer: Value = serde_json::from_str(&answer).expect("iperf3's JSON");
    assert!(answer.get("error").is_none(), "{}", answer["error"]);
    answer
}

#[test]
fn socat_copies_a_file() {
    const SIZE: u64 = 32 << 20;
    each_way("cable-socat", SIZE, &[], |ends| copied(ends, SIZE));
}

pub(super) fn copied(ends: &Ends<'_>, size: u64) -> [&'static str; 2] {
    let (case, port, at, v) = (ends.case, free_port(), ends.authority(), ends.version());
    let (file, copy) = (case.path("file"), case.path("copy"));
    http::fill(&file, size);
    let server = ends.server("socat").args(&format!("-u TCP{v}-LISTEN:{port},bind={at} CREATE:{}", copy.display())).serve(port);
    ends.client("socat").args(&format!("-u FILE:{} TCP{v}:{at}:{port}", file.display())).run();
    server.finish();
    assert_eq!(http::digest(case, &copy), http::digest(case, &file));
    ["socat", "socat"]
}

/// A datagram there, and its echo.
#[test]
fn socat_datagrams() {
    each_way("cable-datagrams", 4, &[], echoed);
}

pub(super) fn echoed(ends: &Ends<'_>) -> [&'static str; 2] {
    let (case, port, at, v) = (ends.case, free_port(), ends.authority(), ends.version());
    let question = case.path("question");
    std::fs::write(&question, "word").expect("the question");
    let server = ends.server("socat").args(&format!("UDP{v}-LISTEN:{port},bind={at} PIPE")).serve(port);
    let mut client = ends.client("socat").args(&format!("-t 20 -,ignoreeof UDP{v}:{at}:{port}")).stdin(&question).spawn();
    client.wait_said("word");
    client.signal(Signal::TERM);
    client.wait();
    server.signal(Signal::TERM);
    server.wait();
    ["socat", "socat"]
}

/// A server that is killed. Its clients only wait, and hear of it when they ask (which redis-cli does every fifteen seconds, by TCP's keepalive).
#[test]
fn who_subscribed_hears_of_a_killed_server() {
    at_once("cable-killed", Device::Interfaces, 4, &WAYS, server_killed);
}

pub(super) fn server_killed(ends: &Ends<'_>) -> [&'static str; 2] {
    let (port, host) = (free_port(), ends.host());
    let server = ends.server("redis-server").args(&redis::options_at(&host, port)).serve(port);
    let mut subscribers: Vec<_> =
        (0..4).map(|_| ends.client("redis-cli").args(&format!("-h {host} -p {port} subscribe news")).spawn()).collect();
    subscribers.iter_mut().for_each(|subscriber| subscriber.wait_said("subscribe"));
    ends.ask_who_serves();
    server.signal(Signal::KILL);
    server.wait();
    for subscriber in subscribers {
        // (It ends by itself: killed before that, it would leave no report.)
        let said = subscriber.wait().stderr;
        assert!(said.contains("reset by peer") || said.contains("closed the connection"), "{said}");
    }
    ["redis-server", "redis-cli"]
}
