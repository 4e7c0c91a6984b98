//! The same programs on the kernel's soft-RoCE (RINGWAY_DEVICE=rxe:NAME), in a guest of `cargo xtask vm`, whose device is at an address of its own.

use std::process::Command;

use crate::{TIMEOUT_S, program};

/// Those that need nothing which shared memory alone has.
const PROGRAMS: [&str; 9] = ["streams", "polls", "signals", "killed", "stopped", "direct", "spins", "threads", "repoll"];

fn run(name: &str) {
    let own = std::env::var("RINGWAY_VM_ADDRESS").expect("it is a guest's");
    let mut command = Command::new("timeout");
    command.arg(TIMEOUT_S).arg(program(name)).env("RINGWAY_DEVICE", "rxe:rxe0").env("RINGWAY_TEST_OWN", own);
    let output = command.output().expect("timeout(1) is part of coreutils");
    assert!(output.status.success(), "{name}: {:?}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
}

/// Before a guest begins, where compiling takes ten times as long.
#[test]
fn programs_are_compiled() {
    PROGRAMS.iter().for_each(|name| drop(program(name)));
}

#[test]
#[ignore = "in a guest: cargo xtask test --only rxe"]
fn streams() {
    run("streams");
}

#[test]
#[ignore = "in a guest: cargo xtask test --only rxe"]
fn polls() {
    run("polls");
}

#[test]
#[ignore = "in a guest: cargo xtask test --only rxe"]
fn handlers_of_signals() {
    run("signals");
}

#[test]
#[ignore = "in a guest: cargo xtask test --only rxe"]
fn a_peer_that_is_killed() {
    run("killed");
}

#[test]
#[ignore = "in a guest: cargo xtask test --only rxe"]
fn a_peer_that_is_stopped() {
    run("stopped");
}

#[test]
#[ignore = "in a guest: cargo xtask test --only rxe"]
fn direct_placement() {
    run("direct");
}

#[test]
#[ignore = "in a guest: cargo xtask test --only rxe"]
fn programs_that_look_at_memory() {
    run("spins");
}

#[test]
#[ignore = "in a guest: cargo xtask test --only rxe"]
fn threads_and_forks() {
    run("threads");
}

#[test]
#[ignore = "in a guest: cargo xtask test --only rxe"]
fn instances_of_repoll() {
    run("repoll");
}
