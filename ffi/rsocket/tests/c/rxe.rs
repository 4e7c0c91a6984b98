//! The same programs on the kernel's soft-RoCE (RINGWAY_DEVICE=rxe:NAME), in a guest of `cargo xtask vm`, whose device is at an address of its own.

use std::process::Command;

use crate::{TIMEOUT_S, program, unroutable};

/// Those that need nothing which shared memory alone has.
const PROGRAMS: [&str; 12] =
    ["streams", "polls", "signals", "killed", "stopped", "direct", "spins", "threads", "repoll", "ends", "datagrams", "unroutable"];

fn run(name: &str) {
    run_with(name, &[]);
}

fn run_with(name: &str, arguments: &[&str]) {
    let own = std::env::var("RINGWAY_VM_ADDRESS").expect("it is a guest's");
    let mut command = Command::new("timeout");
    command.arg(TIMEOUT_S).arg(program(name)).args(arguments);
    command.env("RINGWAY_DEVICE", "rxe:rxe0").env("RINGWAY_TEST_OWN", own).env("RINGWAY_TEST_CARD", "kernel");
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
fn processes_that_end_while_others_have_their_copies() {
    run("ends");
}

#[test]
#[ignore = "in a guest: cargo xtask test --only rxe"]
fn datagrams() {
    run("datagrams");
}

/// What the software ConnectX says of them, the kernel says.
#[test]
#[ignore = "in a guest: cargo xtask test --only rxe"]
fn addresses_that_no_way_leads_to() {
    let made = Command::new("sh").args(["-ec", unroutable::ROUTES]).output().expect("sh(1)");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    for (which, addresses) in [("both", unroutable::addresses()), ("streams", unroutable::addresses_of_streams())] {
        run_with("unroutable", &[which].into_iter().chain(addresses.iter().map(String::as_str)).collect::<Vec<_>>());
    }
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
