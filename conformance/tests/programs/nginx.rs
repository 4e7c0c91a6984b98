//! nginx, whose master forks workers that accept on its listener, with wrk and curl.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::harness::{Case, Launch, Output, PATIENCE, Running, Side, Snmp, World, eventually, free_port};
use crate::http;

/// A small file's size: what wrk asks for.
const SMALL: u64 = 612;

/// Where it is found, unless a case says something else.
const LOCAL: &str = "127.0.0.1";

#[test]
fn one_worker() {
    load("nginx-one", "worker_processes 1;", 1);
}

#[test]
fn two_workers() {
    load("nginx-two", "worker_processes 2;", 2);
}

/// One process that accepts and serves, without a fork.
#[test]
fn no_master() {
    load("nginx-no-master", "master_process off;", 1);
}

/// A listener for each worker, by SO_REUSEPORT.
#[test]
fn reuseport() {
    let case = Case::new("nginx-reuseport");
    let port = free_port();
    let server = start(&case, case.program("nginx"), port, "worker_processes 2;", "reuseport");
    many_requests(&case.program("wrk").args(&wrk(port, 2)).run());
    transfer(&case, case.program("curl"), port, 20_000_000);
    server.stop(Signal::QUIT);
    case.offloaded(&["nginx", "wrk", "curl"], 20_000_000, 1_000);
}

/// SIGHUP: new workers take over the listener, old ones end when they have served what they have.
#[test]
fn reload() {
    let case = Case::new("nginx-reload");
    let port = free_port();
    let server = start(&case, case.program("nginx"), port, "worker_processes 2;", "");
    for _ in 0..3 {
        let old = workers(&server);
        let under_way = case.program("wrk").args(&wrk(port, 1)).spawn();
        server.signal(Signal::HUP);
        eventually("other workers serve", PATIENCE, || {
            let now = workers(&server);
            now.len() == 2 && now.iter().all(|pid| !old.contains(pid))
        });
        transfer(&case, case.program("curl"), port, 1_000_000);
        // An idle connection that a reload closes is opened again by wrk, which counts it among its read errors.
        let answer = under_way.finish().stdout;
        assert!(requests(&answer) > 100 && !answer.contains("Non-2xx"), "{answer}");
    }
    // While two generations of workers hold the listener, whoever waits first serves, and the kernel carries what the other gets.
    // In the end it is as it was.
    eventually("a worker of the last generation serves on Ringway", PATIENCE, || {
        let before = Snmp::now();
        transfer(&case, case.program("curl"), port, 5_000_000);
        case.world() == World::Kernel || before.sent_since() < 50
    });
    server.stop(Signal::QUIT);
    case.done();
}

/// The master replaces a worker that was killed.
#[test]
fn killed_worker() {
    let case = Case::new("nginx-killed");
    let port = free_port();
    let server = start(&case, case.program("nginx"), port, "worker_processes 1;", "");
    for _ in 0..3 {
        transfer(&case, case.program("curl"), port, 1_000_000);
        let old = workers(&server);
        for &worker in &old {
            kill_process(Pid::from_raw(worker).expect("a pid"), Signal::KILL).expect("kill");
        }
        eventually("another worker serves", PATIENCE, || {
            let now = workers(&server);
            !now.is_empty() && now.iter().all(|pid| !old.contains(pid))
        });
    }
    transfer(&case, case.program("curl"), port, 1_000_000);
    server.stop(Signal::QUIT);
    // The killed workers left no report: what counts is that the last one's client was carried.
    case.done();
}

/// Workers that give up root: of another user than the clients, they are served by the kernel.
#[test]
fn workers_of_another_user() {
    assert!(geteuid().is_root(), "two users need root; cargo xtask test uses sudo for this case where it may");
    let case = Case::new("nginx-user");
    let port = free_port();
    // The worker must be able to read the file, wherever this checkout is.
    let config = format!("user nobody nogroup;\n{}", config(LOCAL, &case, (port, "worker_processes 2;", ""), "return 200 equal;"));
    let server = launch(&case, case.program("nginx"), &config).serve(port);
    for _ in 0..20 {
        let answer = case.program("curl").args(&format!("-sSf http://127.0.0.1:{port}/small")).run();
        assert_eq!(answer.stdout, "equal");
    }
    server.stop(Signal::QUIT);
    case.on_the_kernel(100);
}

#[test]
fn one_end_only() {
    for side in Side::BOTH {
        let case = Case::new("nginx-mixed");
        let port = free_port();
        let server = start(&case, case.server(side, "nginx"), port, "worker_processes 2;", "");
        many_requests(&case.client(side, "wrk").args(&wrk(port, 2)).run());
        transfer(&case, case.client(side, "curl"), port, 20_000_000);
        server.stop(Signal::QUIT);
        case.on_the_kernel(2_000);
    }
}

fn load(name: &str, processes: &str, threads: u32) {
    load_in(Case::new(name), processes, threads);
}

/// Many requests by wrk, with so many threads, and a large file by curl.
pub(crate) fn load_in(case: Case, processes: &str, threads: u32) {
    let port = free_port();
    let server = start(&case, case.program("nginx"), port, processes, "");
    await_rsockets(&case, port);
    many_requests(&case.program("wrk").args(&wrk(port, threads)).run());
    transfer(&case, case.program("curl"), port, 100_000_000);
    server.stop(Signal::QUIT);
    case.offloaded(&["nginx", "wrk", "curl"], 100_000_000, 2_000);
}

/// A master's listener is an rsocket in the worker that waits first: until it does, clients come by TCP.
fn await_rsockets(case: &Case, port: u16) {
    eventually("a worker listens as an rsocket", PATIENCE, || {
        let before = Snmp::now();
        case.program("curl").args(&format!("-sSf -o /dev/null http://127.0.0.1:{port}/small")).run();
        case.world() != World::Rsockets || before.sent_since() == 0
    });
}

/// Starts nginx on `port` with the case's directory, in which there is a file `small`.
fn start(case: &Case, program: Launch<'_>, port: u16, processes: &str, listen: &str) -> Running {
    begin(LOCAL, case, program, (port, processes, listen))
}

/// The same, for one that is found at `host`.
pub(crate) fn start_at(host: &str, case: &Case, program: Launch<'_>, port: u16, processes: &str) -> Running {
    begin(host, case, program, (port, processes, ""))
}

fn begin(host: &str, case: &Case, program: Launch<'_>, (port, processes, listen): (u16, &str, &str)) -> Running {
    http::fill(&case.path("small"), SMALL);
    // Everything runs as the user who runs the cases: peers of another user do not meet.
    let user = if geteuid().is_root() { "user root;\n" } else { "" };
    let root = format!("root {};", case.path("").display());
    let config = format!("{user}{}", config(host, case, (port, processes, listen), &root));
    launch(case, program, &config).serve(port)
}

fn launch<'c>(case: &'c Case, program: Launch<'c>, config: &str) -> Launch<'c> {
    let path = case.path("nginx.conf");
    fs::write(&path, config).expect("the configuration");
    program.args("-e stderr -c").arg(path).arg("-p").arg(case.path(""))
}

fn config(host: &str, case: &Case, (port, processes, listen): (u16, &str, &str), location: &str) -> String {
    let scratch = |name: &str| case.path(name).display().to_string();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("  {kind}_temp_path {};\n", scratch(&format!("nginx-{kind}"))))
        .collect();
    format!(
        "daemon off;\n{processes}\npid {};\nevents {{ worker_connections 1024; }}\nhttp {{\n{temporary}  access_log off;\n  sendfile on;\n  \
         keepalive_requests 1000000;\n  server {{ listen {host}:{port} {listen}; location / {{ {location} }} }}\n}}\n",
        scratch("nginx.pid")
    )
}

/// Two seconds of requests for the small file.
fn wrk(port: u16, threads: u32) -> String {
    format!("-t {threads} -c {} -d 2s --timeout 10s http://127.0.0.1:{port}/small", 20 * threads)
}

/// wrk's report tells of requests, all answered well and none lost.
fn many_requests(output: &Output) {
    let text = &output.stdout;
    assert!(requests(text) > 1_000, "{text}");
    assert!(!text.contains("Socket errors") && !text.contains("Non-2xx"), "{text}");
}

/// wrk's line "  12345 requests in 2.00s, 10.00MB read".
fn requests(report: &str) -> u64 {
    let line = report.lines().find(|l| l.contains(" requests in ")).unwrap_or_else(|| panic!("no count of requests:\n{report}"));
    line.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number")
}

/// Fetches a file of `size` bytes by curl.
fn transfer(case: &Case, curl: Launch<'_>, port: u16, size: u64) {
    let (path, copy) = (case.path("file"), case.path("copy"));
    if !fs::metadata(&path).is_ok_and(|m| m.len() == size) {
        http::fill(&path, size);
    }
    curl.args(&format!("-sSf -o {} http://127.0.0.1:{port}/file", copy.display())).run();
    assert_eq!(http::digest(case, &copy), http::digest(case, &path));
}

/// The processes that the master forked.
fn workers(server: &Running) -> Vec<i32> {
    let path = format!("/proc/{0}/task/{0}/children", server.pid());
    let text = fs::read_to_string(Path::new(&path)).expect("a living master");
    // A worker that the master has not waited for yet still has an entry: it has no descriptors.
    let alive = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z "));
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(alive).collect()
}
