//! Real programs at the two ends of a cable: those that serve on Ringway's interface, those that ask, and both, and the kernel at the other end, where one of them
//! is not. They get what they would get of the kernel at both.

mod cards;
mod faults;
mod forking;
mod runtimes;
mod servers;

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::command::ringway;
use crate::harness::{Cable, Case, End, Launch, World, before_port, connectx, library};

/// By IPv6, and whether who serves is on Ringway, and who asks.
type Way = (bool, [bool; 2]);

const WAYS: [Way; 6] = [
    (false, [true, false]),
    (true, [false, true]),
    (false, [true, true]),
    (true, [true, false]),
    (false, [false, true]),
    (true, [true, true]),
];

/// Each of these once, for what takes long.
const FEW_WAYS: [Way; 3] = [(false, [true, false]), (true, [false, true]), (true, [true, true])];

/// A program whose connections are not, or not to their ends, its ring's; and how many of them leave for the kernel by TCP_REPAIR, at the least.
type Leaving = (&'static str, u64);

/// What Ringway's programs have at the ends of a cable.
#[derive(Clone, Copy, Debug)]
enum Device<'c> {
    /// The interfaces.
    Interfaces,
    /// Software ConnectX's, whose ports those are, on a bus in that folder.
    Cards(&'c Path),
    /// Software ConnectX's that are plugged into those, each of one process at a time.
    PluggedCards,
}

/// A case on a cable.
struct Ends<'c> {
    case: &'c Case,
    cable: &'c Cable,
    device: Device<'c>,
    ringway: [bool; 2],
    is_v6: bool,
}

/// Runs a case each way. Of the programs that are on Ringway, each moves so many bytes by its rings, but those whose connections are `leaving`.
fn each_way(name: &str, bytes: u64, leaving: &[Leaving], test: impl Fn(&Ends<'_>) -> [&'static str; 2]) {
    ways(name, bytes, leaving, &WAYS, test);
}

/// As [`each_way`], but by one family each, for what takes long.
fn a_few_ways(name: &str, bytes: u64, leaving: &[Leaving], test: impl Fn(&Ends<'_>) -> [&'static str; 2]) {
    ways(name, bytes, leaving, &FEW_WAYS, test);
}

/// As [`each_way`], of programs that know no IPv6.
fn each_way_of_ipv4(name: &str, bytes: u64, leaving: &[Leaving], test: impl Fn(&Ends<'_>) -> [&'static str; 2]) {
    let of_ipv4: Vec<_> = WAYS.into_iter().filter(|(is_v6, _)| !is_v6).collect();
    ways(name, bytes, leaving, &of_ipv4, test);
}

fn ways(name: &str, bytes: u64, leaving: &[Leaving], ways: &[Way], test: impl Fn(&Ends<'_>) -> [&'static str; 2]) {
    for &way in ways {
        carried(Case::new(name), (&Cable::lay(), Device::Interfaces), way, bytes, leaving, &test);
    }
}

/// Runs a case these ways at the same time, each on a cable of its own: for what takes long, and has no use for a machine of its own.
fn at_once(name: &str, device: Device<'_>, bytes: u64, ways: &[Way], test: impl Fn(&Ends<'_>) -> [&'static str; 2] + Sync) {
    let all = Case::new(name);
    std::thread::scope(|scope| {
        for (number, &way) in ways.iter().enumerate() {
            let (all, test) = (&all, &test);
            scope.spawn(move || {
                carried(all.beside(&format!("{name}-{number}")), (&Cable::lay(), device), way, bytes, &[], test);
            });
        }
    });
    all.done();
}

/// Runs a case one way, on this cable.
fn carried(
    case: Case,
    (cable, device): (&Cable, Device<'_>),
    (is_v6, ringway): Way,
    bytes: u64,
    leaving: &[Leaving],
    test: impl Fn(&Ends<'_>) -> [&'static str; 2],
) {
    let programs = test(&Ends { case: &case, cable, device, ringway, is_v6 });
    cable.is_bare();
    if case.world() == World::Ringway {
        let reports = case.reports();
        // (The kernel cuts names, and python3 is python3.11. But sshd is not ssh.)
        let is_of = |name: &str, program: &str| {
            if programs.contains(&name) { name == program } else { program.starts_with(name) || name.starts_with(program) }
        };
        for (program, _) in programs.iter().zip(ringway).filter(|(_, is_on)| *is_on) {
            let mine = || reports.iter().filter(|report| is_of(&report.program, program));
            let moved: u64 = mine().map(|report| report.ring.rx_bytes + report.ring.tx_bytes).sum();
            let left: u64 = mine().map(|report| report.ring.to_kernel).sum();
            match leaving.iter().find(|(leaves, _)| leaves == program) {
                Some(&(_, least)) => assert!(left >= least, "{left} connections of {program} left, of {least} ({ringway:?}): {reports:#?}"),
                None => assert!(moved >= bytes, "{program} moved {moved} bytes by its rings, of {bytes} ({ringway:?}): {reports:#?}"),
            }
        }
    }
    case.done();
}

impl<'c> Ends<'c> {
    fn on(&self, end: &'c End, is_on_ringway: bool, program: &str) -> Launch<'c> {
        let launch = self.case.plain(program).at(end);
        if !is_on_ringway || self.case.world() == World::Kernel {
            return launch;
        }
        let launch = launch.env(ringway_report::STATS_FILE_ENV, self.case.path("report.%d"));
        match self.device {
            Device::Interfaces => launch.env("LD_PRELOAD", library()).env("RINGWAY_DEVICE", format!("shm,xdp:{}", end.interface)),
            Device::Cards(bus) => on_card(launch).env("RINGWAY_CONNECTX_BUS", bus).env("RINGWAY_CONNECTX_NETDEV", end.interface),
            Device::PluggedCards => on_card(launch).env("RINGWAY_CONNECTX_WIRE", end.interface),
        }
    }

    fn server(&self, program: &str) -> Launch<'c> {
        self.on(&self.cable.serves, self.ringway[0], program)
    }

    fn client(&self, program: &str) -> Launch<'c> {
        self.on(&self.cable.asks, self.ringway[1], program)
    }

    /// What those who serve say of themselves so far, kept beside what others report at their end: for those that a signal ends.
    fn ask_who_serves(&self) {
        if self.ringway[0] && self.case.world() == World::Ringway {
            let said = ringway(self.case).at(&self.cable.serves).args("stats --json --once").run().stdout;
            let processes: Vec<Value> = serde_json::from_str(&said).expect("JSON");
            let lines: String = processes.iter().map(|process| format!("{process}\n")).collect();
            fs::write(self.case.path("report.so-far"), lines).expect("what they say");
        }
    }

    /// The server's address.
    fn host(&self) -> String {
        let end = &self.cable.serves;
        if self.is_v6 { end.v6.to_string() } else { end.v4.to_string() }
    }

    /// The same, as it is written before a port.
    fn authority(&self) -> String {
        before_port(&self.host())
    }

    /// The version of IP.
    fn version(&self) -> u8 {
        if self.is_v6 { 6 } else { 4 }
    }
}

fn on_card(launch: Launch<'_>) -> Launch<'_> {
    let both = format!("{}:{}", connectx().display(), library().display());
    launch.env("LD_PRELOAD", both).env("RINGWAY_DEVICE", "shm,mlx5:mlx5_0")
}
