//! A replay of market data: numbered datagrams for a group, at a rate at which the kernel loses none in the same run; then a ring loses none either.
//!
//! `RINGWAY_REPLAY=10000000` replays so many, and `RINGWAY_REPLAY_RATE` says which rate is tried first (a second).

use std::path::Path;
use std::process::Command;

use crate::cable::{Cable, DEVICE, PORT, Running, on_cable};
use crate::kernels;
use crate::programs::{compile, library};

const GROUPS: [&str; 2] = ["239.78.0.9", "ff15::78:9"];
/// How many are replayed where nobody says otherwise, and at which rate at first.
const COUNT: u64 = 200_000;
const RATE: u64 = 50_000;
/// Below this, what is measured is the machine's other work.
const RATE_MIN: u64 = 1000;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Replays so many at a rate, and says how many were lost, and how many came out of turn.
fn replayed(cable: &Cable, program: &Path, group: &str, (count, rate): (u64, u64), by_ring: bool) -> [u64; 2] {
    let seconds = (count / rate + 60).to_string();
    let (count, rate) = (count.to_string(), rate.to_string());
    let mut command = Command::new("timeout");
    command.arg(&seconds).arg(program).args(["hear", group, PORT, "a0", &count]);
    if by_ring {
        command.env("VMA_CONFIG_FILE", "").env("LD_PRELOAD", library()).env("RINGWAY_DEVICE", DEVICE);
    }
    let mut reader = Running::start(command);
    reader.await_ready();
    let mut command = Command::new("timeout");
    command.arg(&seconds).arg(program).args(["tell", group, PORT, "b0", &count, &rate]);
    cable.within_there(|| Running::start(command).ends_well());
    let said = reader.says();
    let words: Vec<&str> = said.split_whitespace().collect();
    let ["lost", lost, "late", late] = words[..] else { panic!("{said}") };
    [lost, late].map(|number| number.parse().expect("a number"))
}

#[test]
fn a_replay_at_a_rate_that_the_kernel_sustains_loses_nothing() {
    on_cable(|cable| {
        let program = compile("tests/c/replay.c");
        let count = from_environment("RINGWAY_REPLAY", COUNT);
        for group in GROUPS {
            let mut rate = from_environment("RINGWAY_REPLAY_RATE", RATE);
            while replayed(cable, &program, group, (count, rate), false) != [0; 2] {
                rate = rate * 4 / 5;
                assert!(rate >= RATE_MIN, "the kernel loses some at any rate");
            }
            let before = kernels()[1];
            let lost = replayed(cable, &program, group, (count, rate), true);
            println!("{count} datagrams for {group}, {rate} a second: the kernel lost none; the ring [lost, late]: {lost:?}");
            assert_eq!(lost, [0; 2]);
            assert_eq!(kernels()[1], before, "all came by the ring");
        }
    });
}
