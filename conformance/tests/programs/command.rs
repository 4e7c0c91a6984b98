//! The `ringway` command, about programs that it did not write either.

use ringway_report::ProcessReport;
use rustix::process::Signal;

use crate::harness::{Case, Launch, PATIENCE, PYTHON, World, eventually, free_port, library};
use crate::{http, redis};

/// `ringway run` does what LD_PRELOAD does.
#[test]
fn run() {
    let case = Case::new("ringway-run");
    if case.world() == World::Kernel {
        return case.done();
    }
    let port = free_port();
    let run = |device: &str| ringway(&case).args(&format!("run --device {device} --"));
    let server = run("shm").env("RINGWAY_STATS_FILE", case.path("report.%d")).args(&format!("redis-server {}", redis::options(port)));
    let server = server.serve(port);
    let benchmark = format!("redis-benchmark -h 127.0.0.1 -p {port} -n 20000 -t get,set --csv");
    redis::measured(&run("auto").env("RINGWAY_STATS_FILE", case.path("report.%d")).args(&benchmark).run().stdout, 2);
    server.stop(Signal::TERM);
    case.offloaded(&["redis-server", "redis-benchmark"], 1_000_000, 40_000);
}

#[test]
fn stats() {
    let case = Case::new("ringway-stats");
    if case.world() == World::Kernel {
        return case.done();
    }
    let (server, port) = redis::idle_server(&case);
    let subscriber = case.program("redis-cli").args(&format!("-p {port} subscribe news")).spawn();
    let pid = server.pid().to_string();
    let connected = |report: &ProcessReport| report.sockets.iter().any(|s| s.state == "ESTABLISHED" && s.offloaded && s.rx_bytes > 0);
    eventually("the connection is in the statistics", PATIENCE, || {
        let answer = ringway(&case).args(&format!("stats --once --json {pid}")).run();
        let reports: Vec<ProcessReport> = serde_json::from_str(&answer.stdout).expect("a line of reports");
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[0].program, "redis-server");
        let listener = reports[0].sockets.iter().find(|s| s.state == "LISTEN").expect("its listener");
        assert!(listener.offloaded && listener.local == format!("127.0.0.1:{port}"), "{listener:?}");
        connected(&reports[0])
    });
    // For people: all processes, a row each for ring and socket.
    let table = ringway(&case).args("stats --once").run().stdout;
    for expected in [pid, subscriber.pid().to_string(), "redis-cli".to_owned(), format!("127.0.0.1:{port}")] {
        assert!(table.contains(&expected), "{expected} is missing:\n{table}");
    }
    drop(subscriber);
    server.stop(Signal::TERM);
    case.done();
}

#[test]
fn sockets() {
    let case = Case::new("ringway-sockets");
    if case.world() == World::Kernel {
        return case.done();
    }
    let (server, port) = redis::idle_server(&case);
    let subscriber = case.program("redis-cli").args(&format!("-p {port} subscribe news")).spawn();
    let (server_pid, client_pid) = (server.pid(), subscriber.pid());
    let command = |options: &str| ringway(&case).args(&format!("sockets {options} {server_pid} {client_pid}"));
    let listed = |options: &str| command(options).run().stdout;
    let address = format!("127.0.0.1:{port}");
    eventually("both ends are listed", PATIENCE, || {
        // (Who has just begun is not on Ringway yet, which is an error.)
        let both = command(&format!("-tnpiH --port {port}")).spawn().wait();
        let lines: Vec<&str> = both.stdout.lines().collect();
        let is_end =
            |line: &str, pid: u32| line.starts_with("ESTAB ") && line.contains(&address) && line.contains(&format!(",pid={pid},fd="));
        let tells =
            |line: &str| line.starts_with("\t ") && [" rto:", " rtt:", " cwnd:", " bytes_acked:"].iter().all(|word| line.contains(word));
        let [one, of_one, another, of_another] = lines[..] else { return false };
        let are_ends = [(one, another), (another, one)].iter().any(|(one, other)| is_end(one, server_pid) && is_end(other, client_pid));
        are_ends && tells(of_one) && tells(of_another) && [one, another].iter().all(|line| line.contains(" shm "))
    });
    let listener = listed("-ltnH");
    assert!(listener.starts_with("LISTEN ") && listener.contains(&address) && listener.lines().count() == 1, "{listener}");
    let json: serde_json::Value = serde_json::from_str(&listed("--json -t")).expect("an array");
    assert!(json.as_array().is_some_and(|sockets| sockets.len() == 2 && sockets.iter().all(|socket| socket["device"] == "shm")), "{json}");
    drop(subscriber);
    server.stop(Signal::TERM);
    case.done();
}

#[test]
fn doctor() {
    let case = Case::new("ringway-doctor");
    if case.world() == World::Kernel {
        return case.done();
    }
    let machine = ringway(&case).args("doctor").run().stdout;
    assert!(machine.lines().any(|l| l.starts_with("shm") && l.contains("yes")), "{machine}");
    let (server, _) = redis::idle_server(&case);
    let well = ringway(&case).args(&format!("doctor {}", server.pid())).run().stdout;
    assert!(well.contains("offloaded by shm") && well.contains("LISTEN"), "{well}");
    server.stop(Signal::TERM);

    let port = free_port();
    let plain = case.plain("redis-server").args(&redis::options(port)).serve(port);
    let unwell = ringway(&case).args(&format!("doctor {}", plain.pid())).spawn().wait();
    assert!(!unwell.status.success() && unwell.stdout.contains("libvma.so is not loaded"), "{}", unwell.stdout);
    plain.stop(Signal::TERM);

    let port = free_port();
    let off = http::serve(case.program(PYTHON).env("RINGWAY_DEVICE", "off"), port, &case).serve(port);
    let unwell = ringway(&case).args(&format!("doctor {}", off.pid())).spawn().wait();
    assert!(!unwell.status.success() && unwell.stdout.contains("switched-off"), "{}", unwell.stdout);
    off.stop(Signal::INT);
    case.done();
}

/// The `ringway` command, which stands beside the library.
pub(crate) fn ringway(case: &Case) -> Launch<'_> {
    case.plain(library().with_file_name("ringway").to_str().expect("UTF-8"))
}
