//! python3's multiprocessing and subprocess with sockets: inherited by a fork, handed to a program, sent through a Unix socket.

use crate::harness::{Case, free_port};

/// Children connect and talk, each with sockets of its own.
#[test]
fn own_sockets() {
    case("own", 8_000_000);
}

/// A manager in a process of its own, and proxies in several.
#[test]
fn manager() {
    case("manager", 100_000);
}

/// Workers accept on a listener that was there before them.
#[test]
fn prefork() {
    // The workers end by a signal, and leave no report: what the clients sent and received counts.
    let (case, bytes) = (run("prefork"), 8_000_000);
    case.offloaded_for_the_most_part(bytes, bytes / 65_483);
}

/// The parent accepts, a child serves.
#[test]
fn accepted_then_forked() {
    inherited("forked", 8_000_000);
}

/// The parent ends before the child that serves.
#[test]
fn parent_exits_first() {
    shared("orphaned", 1_000_000);
}

/// Parent and child write on one connection, and each byte arrives.
#[test]
fn both_write() {
    shared("both", 1_000_000);
}

/// A connection pickled into a pipe: SCM_RIGHTS to a process that was there before.
#[test]
fn sent_to_a_worker() {
    shared("sent", 8_000_000);
}

/// A connection as a program's standard input and output, by subprocess.
#[test]
fn subprocess_stdio() {
    shared("stdio", 8_000_000);
}

/// A connection at another number, by pass_fds.
#[test]
fn subprocess_pass_fds() {
    shared("pass_fds", 8_000_000);
}

/// socketserver's own: a thread each, and a process each.
#[test]
fn threading_server() {
    case("threading", 8_000_000);
}

#[test]
fn forking_server() {
    inherited("forking", 8_000_000);
}

fn run(mode: &str) -> Case {
    let case = Case::new(&format!("multiprocessing-{mode}"));
    assert_eq!(case.python("processes.py").args(&format!("{mode} {}", free_port())).run().stdout, "equal\n");
    case
}

fn case(mode: &str, bytes: u64) {
    run(mode).offloaded(&["python3"], bytes, bytes / 65_483);
}

/// Where a child alone goes on with a connection, it stays on a ring.
fn inherited(mode: &str, bytes: u64) {
    run(mode).inherited(&["python3"], bytes, bytes / 65_483);
}

/// Where a connection comes to be another process's, it goes on over the kernel.
fn shared(mode: &str, bytes: u64) {
    run(mode).shared(&["python3"], bytes / 65_483);
}
