//! socat: as a relay, with a process for each connection, and with a program whose standard input and output are a connection.

use rustix::process::Signal;

use crate::harness::{Case, PYTHON, Side, free_port, script_path};
use crate::http;

const SIZE: u64 = 5_000_000;

/// One process, two connections: nothing is inherited.
#[test]
fn relay() {
    relay_in(Case::new("socat-relay"));
}

pub(crate) fn relay_in(case: Case) {
    let (port, behind) = (free_port(), free_port());
    let echo = case.python("peer.py").args(&format!("serve_echo {behind} 1")).serve(behind);
    let relay = case.program("socat").args(&format!("TCP-LISTEN:{port},bind=127.0.0.1 TCP:127.0.0.1:{behind}")).serve(port);
    talk(&case, port);
    relay.finish();
    echo.finish();
    case.offloaded(&["socat", "python3"], 4 * SIZE, 4 * SIZE / 65_483);
}

/// A file to a file, through nothing but socat.
#[test]
fn file() {
    let case = Case::new("socat-file");
    let (path, copy) = (case.path("file"), case.path("copy"));
    http::fill(&path, 100_000_000);
    let port = free_port();
    let to = format!("-u TCP-LISTEN:{port},bind=127.0.0.1 CREATE:{}", copy.display());
    let server = case.program("socat").args(&to).serve(port);
    case.program("socat").args(&format!("-u FILE:{} TCP:127.0.0.1:{port}", path.display())).run();
    server.finish();
    assert_eq!(http::digest(&case, &copy), http::digest(&case, &path));
    case.offloaded(&["socat"], 100_000_000, 1_500);
}

/// A process for each connection, which it accepted before the fork; `cat` behind a pair of pipes.
#[test]
fn fork() {
    fork_in(Case::new("socat-fork"));
}

pub(crate) fn fork_in(case: Case) {
    several(&case, "fork", "EXEC:cat,pipes");
    case.inherited(&["socat"], 8 * SIZE, 8 * SIZE / 65_483);
}

/// As inetd does: the connection itself is the program's standard input and output.
#[test]
fn exec() {
    let case = Case::new("socat-exec");
    several(&case, "fork", "EXEC:cat,nofork");
    case.shared(&["python3"], 8 * SIZE / 65_483);
}

/// A shell, which is asked what its standard input is.
#[test]
fn exec_sees_a_socket() {
    let case = Case::new("socat-shell");
    let port = free_port();
    let script = case.path("script");
    std::fs::write(&script, "test -S /proc/self/fd/0 && read line && echo \"got $line\"\n").expect("the script");
    let server = case.program("socat").arg(format!("TCP-LISTEN:{port},bind=127.0.0.1")).arg(format!("EXEC:sh {},nofork", script.display()));
    let server = server.serve(port);
    let question = case.path("question");
    std::fs::write(&question, "something\n").expect("the question");
    let answer = case.program("socat").args(&format!("- TCP:127.0.0.1:{port}")).stdin(&question).run();
    assert_eq!(answer.stdout, "got something\n");
    server.finish();
    case.done();
}

#[test]
fn one_end_only() {
    for side in Side::BOTH {
        let case = Case::new("socat-mixed");
        let port = free_port();
        let server = case.server(side, "socat").args(&format!("TCP-LISTEN:{port},fork,bind=127.0.0.1 EXEC:cat,nofork")).serve(port);
        let client = case.client(side, PYTHON).arg(script_path("peer.py")).args(&format!("talk {port} {SIZE}"));
        assert_eq!(client.run().stdout, "equal\n");
        server.signal(Signal::TERM);
        server.wait();
        case.on_the_kernel(100);
    }
}

/// Four clients at once of an echo made of `program`.
fn several(case: &Case, options: &str, program: &str) {
    let port = free_port();
    let server = case.program("socat").args(&format!("TCP-LISTEN:{port},{options},bind=127.0.0.1 {program}")).serve(port);
    let clients: Vec<_> = (0..4).map(|_| case.python("peer.py").args(&format!("talk {port} {SIZE}")).spawn()).collect();
    for client in clients {
        assert_eq!(client.finish().stdout, "equal\n");
    }
    // socat ends by the signal, with 128 + 15.
    server.signal(Signal::TERM);
    assert_eq!(server.wait().status.code(), Some(143));
}

fn talk(case: &Case, port: u16) {
    assert_eq!(case.python("peer.py").args(&format!("talk {port} {SIZE}")).run().stdout, "equal\n");
}
