//! Switched off or short of memory: the program runs on the kernel, and one log line says why. Misled by a parameter: one line, too.

use rustix::process::Signal;

use crate::harness::{Case, World, free_port};
use crate::redis;

#[test]
fn switched_off() {
    on_the_kernel("off", &[("RINGWAY_DEVICE", "off")], None);
}

#[test]
fn unknown_device() {
    on_the_kernel("unknown-device", &[("RINGWAY_DEVICE", "carrier-pigeon")], Some("RINGWAY_DEVICE"));
}

#[test]
fn bad_parameter() {
    let case = Case::new("bad-parameter");
    let (server, port) = redis::idle_server(&case);
    let answer = case.program("redis-cli").env("VMA_RX_POLL", "banana").args(&format!("-p {port} ping")).run();
    assert_eq!(answer.stdout, "PONG\n", "{}", answer.stderr);
    if case.world() == World::Ringway {
        assert_eq!(answer.stderr.lines().filter(|l| l.contains("VMA_RX_POLL=banana")).count(), 1, "one line:\n{}", answer.stderr);
        let redis_cli = case.reports().into_iter().find(|r| r.program == "redis-cli").expect("it left a report");
        assert!(redis_cli.device.is_some(), "it is offloaded all the same");
    }
    server.stop(Signal::TERM);
    case.done();
}

#[test]
fn no_memory() {
    let case = Case::new("no-memory");
    let (server, port) = redis::idle_server(&case);
    // 150 MB of address space: enough for the program, not for a device's segments.
    let script = format!("ulimit -v 150000; exec redis-cli -p {port} ping");
    let answer = case.program("sh").arg("-c").arg(script).run();
    assert_eq!(answer.stdout, "PONG\n", "{}", answer.stderr);
    if case.world() == World::Ringway {
        let redis_cli = case.reports().into_iter().find(|r| r.program == "redis-cli");
        assert!(redis_cli.is_none_or(|r| r.device.is_none()), "150 MB were enough for the device: the case proves nothing");
        assert_eq!(answer.stderr.lines().count(), 1, "one line says why:\n{}", answer.stderr);
    }
    server.stop(Signal::TERM);
    case.done();
}

fn on_the_kernel(name: &str, environment: &[(&str, &str)], named: Option<&str>) {
    let case = Case::new(name);
    let port = free_port();
    let with = |program: &str| environment.iter().fold(case.program(program), |launch, (name, value)| launch.env(name, value));
    let server = with("redis-server").args(&redis::options(port)).serve(port);
    let answer = with("redis-benchmark").args(&format!("-h 127.0.0.1 -p {port} -n 10000 -t set,get --csv")).run();
    redis::measured(&answer.stdout, 2);
    server.stop(Signal::TERM);
    if case.world() == World::Ringway {
        let lines: Vec<_> = answer.stderr.lines().filter(|l| named.is_some_and(|n| l.contains(n))).collect();
        assert_eq!(lines.len(), usize::from(named.is_some()), "one line names the parameter:\n{}", answer.stderr);
        for report in case.reports() {
            assert_eq!(report.device, None, "{} must be on the kernel", report.program);
        }
    }
    case.on_the_kernel(20_000);
}
