//! Real programs at the two ends of a cable: those that serve on Ringway's interface, those that ask, and both, and the kernel at the other end, where one of them
//! is not. They get what they would get of the kernel at both.

mod faults;
mod runtimes;
mod servers;

use crate::harness::{Cable, Case, End, Launch, World, library};

/// By IPv6, and whether who serves is on Ringway, and who asks.
const WAYS: [(bool, [bool; 2]); 5] =
    [(false, [true, false]), (true, [false, true]), (false, [true, true]), (true, [true, false]), (false, [false, true])];

/// A case on a cable.
struct Ends<'c> {
    case: &'c Case,
    cable: &'c Cable,
    ringway: [bool; 2],
    is_v6: bool,
}

/// Runs a case each way. Of the programs that are on Ringway, each moves so many bytes by its rings; none of `shared`, whose connections are the kernel's.
fn each_way(name: &str, bytes: u64, shared: &[&str], test: impl Fn(&Ends<'_>) -> [&'static str; 2]) {
    ways(name, bytes, shared, &WAYS, test);
}

/// As [`each_way`], of programs that know no IPv6.
fn each_way_of_ipv4(name: &str, bytes: u64, shared: &[&str], test: impl Fn(&Ends<'_>) -> [&'static str; 2]) {
    let of_ipv4: Vec<_> = WAYS.into_iter().filter(|(is_v6, _)| !is_v6).collect();
    ways(name, bytes, shared, &of_ipv4, test);
}

fn ways(name: &str, bytes: u64, shared: &[&str], ways: &[(bool, [bool; 2])], test: impl Fn(&Ends<'_>) -> [&'static str; 2]) {
    for &way in ways {
        carried(Case::new(name), &Cable::lay(), way, bytes, shared, &test);
    }
}

/// Runs a case one way, on this cable.
fn carried(
    case: Case,
    cable: &Cable,
    (is_v6, ringway): (bool, [bool; 2]),
    bytes: u64,
    shared: &[&str],
    test: impl Fn(&Ends<'_>) -> [&'static str; 2],
) {
    let programs = test(&Ends { case: &case, cable, ringway, is_v6 });
    cable.is_bare();
    if case.world() == World::Ringway {
        let reports = case.reports();
        for (program, _) in programs.iter().zip(ringway).filter(|(program, is_on)| *is_on && !shared.contains(program)) {
            let mine = reports.iter().filter(|report| program.starts_with(report.program.as_str()) || report.program.starts_with(program));
            let moved: u64 = mine.map(|report| report.ring.rx_bytes + report.ring.tx_bytes).sum();
            assert!(moved >= bytes, "{program} moved {moved} bytes by its rings, of {bytes} ({ringway:?}): {reports:#?}");
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
        let launch = launch.env("LD_PRELOAD", library()).env(ringway_report::STATS_FILE_ENV, self.case.path("report.%d"));
        launch.env("RINGWAY_DEVICE", format!("shm,xdp:{}", end.interface))
    }

    fn server(&self, program: &str) -> Launch<'c> {
        self.on(&self.cable.serves, self.ringway[0], program)
    }

    fn client(&self, program: &str) -> Launch<'c> {
        self.on(&self.cable.asks, self.ringway[1], program)
    }

    /// The server's address.
    fn host(&self) -> String {
        let end = &self.cable.serves;
        if self.is_v6 { end.v6.to_string() } else { end.v4.to_string() }
    }

    /// The same, as it is written before a port.
    fn authority(&self) -> String {
        let host = self.host();
        if self.is_v6 { format!("[{host}]") } else { host }
    }

    /// The version of IP.
    fn version(&self) -> u8 {
        if self.is_v6 { 6 } else { 4 }
    }
}
