//! C programs that are linked with the library, by its own header. Each checks what it sees, and says what was not as it should be.

mod attacker;
mod card;
mod compile;
mod rxe;
mod unroutable;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// What ends a program that hangs.
const TIMEOUT_S: &str = "60";

/// Bad packets of an attack.
const BAD: usize = 500;

/// Compiles a program, once: another test may be running it.
fn program(name: &str) -> PathBuf {
    static COMPILED: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().expect("a program that does not compile fails all tests");
    compiled.entry(name.to_owned()).or_insert_with(|| compile::program(&format!("c/{name}"))).clone()
}

fn run(name: &str) {
    let program = program(name);
    let output = Command::new("timeout").arg(TIMEOUT_S).arg(&program).output().expect("timeout(1) is part of coreutils");
    assert!(output.status.success(), "{name}: {:?}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
}

/// Whatever a process sends that is connected to it, a server goes on, its memory stays as it is, and it does not grow.
#[test]
fn a_peer_that_attacks() {
    let mut victim = Command::new("timeout")
        .args([TIMEOUT_S])
        .arg(program("victim"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut port = String::new();
    BufReader::new(victim.stdout.take().expect("a pipe")).read_line(&mut port).expect("its port");
    let port = port.trim().parse().expect("a number");
    let mut attacker = attacker::Attacker::new(port);
    attacker.attack(500, BAD);
    assert!(attacker.sent >= BAD, "{} bad packets", attacker.sent);
    // (The same process: its peer has not given up on it.)
    let answers = attacker.ask(b"hello", 20);
    let mut second = attacker::Attacker::new(port);
    let ends = second.ask(b"QUIT", 20);
    let output = victim.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && answers && ends, "{:?}, {answers} {ends}\n{said}", output.status);
}

#[test]
fn streams() {
    run("streams");
}

#[test]
fn polls() {
    run("polls");
}

#[test]
fn handlers_of_signals() {
    run("signals");
}

#[test]
fn a_peer_that_is_killed() {
    run("killed");
}

#[test]
fn processes_that_end_while_others_have_their_copies() {
    run("ends");
}

#[test]
fn a_peer_that_is_stopped() {
    run("stopped");
}

#[test]
fn direct_placement() {
    run("direct");
}

#[test]
fn direct_placement_without_the_peers_processor() {
    run("placed");
}

#[test]
fn programs_that_look_at_memory() {
    run("spins");
}

#[test]
fn threads_and_forks() {
    run("threads");
}

#[test]
fn instances_of_repoll() {
    run("repoll");
}

#[test]
fn datagrams() {
    run("datagrams");
}

#[test]
fn errors() {
    run("errors");
}
