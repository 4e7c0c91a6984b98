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
/// Frames that lie in the interface's queue while the reader has no core: the memory that its kernel socket may have.
const FRAMES: &str = "16384";
/// Below this, what is measured is the machine's other work.
const RATE_MIN: u64 = 1000;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Replays so many at a rate at the most, and says how many were lost, how many came out of turn, and which rate it was. (What the kernel does for the reader it does on
/// the speaker's time.)
fn replayed(cable: &Cable, program: &Path, group: &str, (count, rate): (u64, u64), by_ring: bool) -> ([u64; 2], u64) {
    let seconds = (count / rate + 60).to_string();
    let (count, rate) = (count.to_string(), rate.to_string());
    let mut command = Command::new("timeout");
    command.arg(&seconds).arg(program).args(["hear", group, PORT, "a0", &count]);
    if by_ring {
        command.env("VMA_CONFIG_FILE", "").env("LD_PRELOAD", library()).env("RINGWAY_DEVICE", DEVICE).env("VMA_RX_WRE", FRAMES);
    }
    let mut reader = Running::start(command);
    reader.await_ready();
    let mut command = Command::new("timeout");
    command.arg(&seconds).arg(program).args(["tell", group, PORT, "b0", &count, &rate]);
    let came_to = cable.within_there(|| Running::start(command).says());
    let said = reader.says();
    let words: Vec<&str> = said.split_whitespace().collect();
    let ["lost", lost, "late", late] = words[..] else { panic!("{said}") };
    let number = |text: &str| text.trim().parse().expect("a number");
    ([number(lost), number(late)], number(came_to.strip_prefix("rate ").expect("its rate")))
}

#[test]
fn a_replay_at_a_rate_that_the_kernel_sustains_loses_nothing() {
    on_cable(|cable| {
        let program = compile("tests/c/replay.c");
        let count = from_environment("RINGWAY_REPLAY", COUNT);
        for group in GROUPS {
            let mut rate = from_environment("RINGWAY_REPLAY_RATE", RATE);
            loop {
                let (lost, came_to) = replayed(cable, &program, group, (count, rate), false);
                rate = if lost == [0; 2] { came_to } else { came_to * 4 / 5 };
                assert!(rate >= RATE_MIN, "the kernel loses some at any rate");
                if lost == [0; 2] {
                    break;
                }
            }
            let before = kernels()[1];
            let (lost, came_to) = replayed(cable, &program, group, (count, rate), true);
            println!("{count} datagrams for {group}: the kernel lost none at {rate} a second; the ring at {came_to} [lost, late] {lost:?}");
            assert_eq!(lost, [0; 2]);
            assert_eq!(kernels()[1], before, "all came by the ring");
        }
    });
}
