//! inetd: programs whose standard input and output are a connection that inetd accepted before it forked and executed them, and
//! programs that it hands its listener. (GNU's: Debian's busybox is built without its own.)

use std::fs;

use rustix::process::{Signal, geteuid};

use crate::harness::{Case, Launch, PYTHON, Running, Side, free_port, script_path};

const SIZE: u64 = 2_000_000;

/// As Debian calls it.
pub(crate) const INETD: &str = "inetutils-inetd";

#[test]
fn nowait() {
    let case = Case::new("inetd-nowait");
    let port = free_port();
    let server = start(&case, case.program(INETD), &cats(&format!("127.0.0.1:{port}"), "tcp"), port);
    let clients: Vec<_> = (0..4).map(|_| case.python("peer.py").args(&format!("talk {port} {SIZE}")).spawn()).collect();
    for client in clients {
        assert_eq!(client.finish().stdout, "equal\n");
    }
    stop(server);
    case.shared(&["python3"], 8 * SIZE / 65_483);
}

/// The listener is the program's standard input.
#[test]
fn wait() {
    let case = Case::new("inetd-wait");
    let port = free_port();
    let script = script_path("inherits_listener.py");
    let line = format!("127.0.0.1:{port} stream tcp wait.1000 {} {PYTHON} python3 {}\n", user(), script.display());
    let server = start(&case, case.program(INETD), &line, port);
    for _ in 0..3 {
        assert_eq!(case.python("peer.py").args(&format!("talk {port} {SIZE}")).run().stdout, "equal\n");
    }
    stop(server);
    case.done();
}

/// inetd's own echo, served by a child.
#[test]
fn internal() {
    let case = Case::new("inetd-internal");
    // inetd knows its built-in services by name: only the port of that name will do.
    let port = 7;
    let server = start(&case, case.program(INETD), &format!("echo stream tcp nowait {} internal\n", user()), port);
    for _ in 0..3 {
        assert_eq!(case.python("peer.py").args(&format!("talk {port} {SIZE}")).run().stdout, "equal\n");
    }
    stop(server);
    case.done();
}

#[test]
fn one_end_only() {
    for side in Side::BOTH {
        let case = Case::new("inetd-mixed");
        let port = free_port();
        let server = start(&case, case.server(side, INETD), &cats(&format!("127.0.0.1:{port}"), "tcp"), port);
        let client = case.client(side, PYTHON).arg(script_path("peer.py")).args(&format!("talk {port} {SIZE}"));
        assert_eq!(client.run().stdout, "equal\n");
        stop(server);
        case.on_the_kernel(50);
    }
}

/// A service whose connections are `cat`'s standard input and output, found at an address, by `tcp` or `tcp6`.
pub(crate) fn cats(at: &str, protocol: &str) -> String {
    format!("{at} stream {protocol} nowait.1000 {} /bin/cat cat\n", user())
}

/// `inetd` in the foreground with one service.
pub(crate) fn start(case: &Case, inetd: Launch<'_>, service: &str, port: u16) -> Running {
    let config = case.path("inetd.conf");
    fs::write(&config, service).expect("the configuration");
    inetd.arg("-d").arg(format!("--pidfile={}", case.path("inetd.pid").display())).arg(config).serve(port)
}

pub(crate) fn stop(server: Running) {
    server.signal(Signal::TERM);
    server.wait();
}

/// Whom inetd is to run programs as: whoever runs the cases.
fn user() -> &'static str {
    assert!(geteuid().is_root(), "cargo xtask test runs the cases as root, if only of a namespace");
    "root"
}
