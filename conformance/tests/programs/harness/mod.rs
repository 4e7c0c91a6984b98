//! A case: its scratch directory, its programs, the kernel's counters before and after, and what must hold at its end.

mod cable;
mod counters;
mod process;
mod relay;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringway_report::{ProcessReport, STATS_FILE_ENV};

pub(crate) use cable::{Cable, End};
pub(crate) use counters::{Snmp, cpu_time, leftovers, retransmitted};
pub(crate) use process::{Launch, Output, Running};
pub(crate) use relay::Relaying;

/// Debian's interpreter: the one whose library calls are known to go through libc's symbols.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// How long any one program may take before it is killed and the case fails: a hang's limit, which a busy machine must not come near.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Cases run one at a time even if the runner has several threads: they share the kernel's counters.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What carries the case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum World {
    /// Nothing is preloaded: proves the harness.
    Kernel,
    /// `libvma.so` is preloaded.
    Ringway,
    /// `librspreload.so` is.
    Rsockets,
}

/// Which side of a case has the library preloaded, where it is not both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Client, Self::Server];
}

/// One case.
pub(crate) struct Case {
    scratch: PathBuf,
    world: World,
    /// For processes that fork, and go on with connections in their children (RDMAV_FORK_SAFE).
    is_across_forks: bool,
    before: Snmp,
    /// None of one that goes on while others do.
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Case {
    /// Begins the case `name`.
    pub(crate) fn new(name: &str) -> Self {
        Self::of(World::Ringway, name)
    }

    /// Begins the case `name`, whose programs' sockets are to be rsockets.
    pub(crate) fn rsockets(name: &str) -> Self {
        Self::of(World::Rsockets, name)
    }

    /// The same, for programs whose children go on with their parents' connections.
    pub(crate) fn rsockets_across_forks(name: &str) -> Self {
        let mut case = Self::rsockets(name);
        case.is_across_forks = true;
        case
    }

    /// Begins another case while this one goes on. Its programs are on a cable of their own: nothing of it is in what the kernel counts here.
    pub(crate) fn beside(&self, name: &str) -> Self {
        Self::with(None, self.world, name)
    }

    fn of(world: World, name: &str) -> Self {
        Self::with(Some(ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)), world, name)
    }

    fn with(turn: Option<MutexGuard<'static, ()>>, world: World, name: &str) -> Self {
        let world = match std::env::var("RINGWAY_PROGRAMS").as_deref() {
            Ok("kernel") => World::Kernel,
            Ok("ringway") | Err(_) => world,
            Ok(other) => panic!("RINGWAY_PROGRAMS is kernel or ringway, not {other}"),
        };
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        if scratch.exists() {
            fs::remove_dir_all(&scratch).expect("cannot clear the scratch directory");
        }
        fs::create_dir_all(&scratch).expect("cannot make the scratch directory");
        Self { scratch, world, is_across_forks: false, before: Snmp::now(), _turn: turn }
    }

    pub(crate) fn world(&self) -> World {
        self.world
    }

    /// A file in the case's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// A program on Ringway (or, in the kernel's world, on the kernel).
    pub(crate) fn program(&self, program: &str) -> Launch<'_> {
        let launch = self.plain(program);
        match self.world {
            World::Kernel => launch,
            World::Ringway => launch.env("LD_PRELOAD", library()).env(STATS_FILE_ENV, self.path("report.%d")),
            World::Rsockets => {
                // (What this machine's administrator has said of programs is no part of the case.)
                let launch = launch.env("LD_PRELOAD", rspreload()).env("RSPRELOAD_CONFIG", "/dev/null");
                if self.is_across_forks { launch.env("RDMAV_FORK_SAFE", "1") } else { launch }
            }
        }
    }

    /// A program on the kernel in both worlds.
    pub(crate) fn plain(&self, program: &str) -> Launch<'_> {
        Launch::new(self, program)
    }

    /// The program that serves, in a case where only `preloaded` is on Ringway.
    pub(crate) fn server(&self, preloaded: Side, program: &str) -> Launch<'_> {
        if preloaded == Side::Server { self.program(program) } else { self.plain(program) }
    }

    /// The program that asks, in a case where only `preloaded` is on Ringway.
    pub(crate) fn client(&self, preloaded: Side, program: &str) -> Launch<'_> {
        if preloaded == Side::Client { self.program(program) } else { self.plain(program) }
    }

    /// One of `py/`'s scripts, on Ringway.
    pub(crate) fn python(&self, script: &str) -> Launch<'_> {
        self.program(PYTHON).arg(script_path(script))
    }

    /// What the ended programs reported, in no order.
    pub(crate) fn reports(&self) -> Vec<ProcessReport> {
        let mut reports = Vec::new();
        for entry in fs::read_dir(&self.scratch).expect("scratch directory") {
            let path = entry.expect("scratch entry").path();
            if path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("report.")) {
                for line in fs::read_to_string(&path).expect("a report").lines() {
                    reports.push(serde_json::from_str(line).unwrap_or_else(|e| panic!("{}: {e}: {line}", path.display())));
                }
            }
        }
        reports
    }

    /// The case's end, for programs that were all on Ringway: each of `programs` moved payload through its ring, all of them
    /// together at least `bytes` each way, and the kernel did not do it instead. `segments` is how many TCP segments and UDP datagrams the
    /// kernel sends at the very least when it carries this traffic (in the kernel's world, that is what is checked).
    pub(crate) fn offloaded(self, programs: &[&str], bytes: u64, segments: u64) {
        let moved = self.before.sent_since();
        if self.world == World::Kernel {
            assert!(moved >= segments, "the kernel sent {moved} segments and datagrams; the case's figure of {segments} is wrong");
            return self.done();
        }
        if self.world == World::Ringway {
            self.carried(programs, bytes);
        }
        let allowed = segments / 20 + 50;
        assert!(moved <= allowed, "the kernel sent {moved} segments and datagrams, {allowed} are allowed");
        self.done();
    }

    /// What programs on Ringway report: each of `programs` moved payload through its ring, all of them together at least `bytes` each way. (With rsockets there
    /// are no reports. What the kernel did not send, they did.)
    fn carried(&self, programs: &[&str], bytes: u64) {
        let reports = self.reports();
        let mut received = 0;
        let mut sent = 0;
        for program in programs {
            let mine: Vec<_> = reports.iter().filter(|r| same_program(&r.program, program)).collect();
            assert!(!mine.is_empty(), "{program} left no report; reports: {reports:#?}");
            for report in &mine {
                assert!(report.device.is_some(), "{program} ran on the kernel: {:?}", report.decisions);
            }
            assert!(mine.iter().any(|r| r.ring.rx_bytes + r.ring.tx_bytes > 0), "{program} moved nothing through its ring: {mine:#?}");
            received += mine.iter().map(|r| r.ring.rx_bytes).sum::<u64>();
            sent += mine.iter().map(|r| r.ring.tx_bytes).sum::<u64>();
        }
        assert!(sent >= bytes && received >= bytes, "{bytes} bytes expected through the rings: {sent} sent, {received} received");
    }

    /// The case's end, for programs between which the kernel must carry at least `segments` TCP segments and UDP datagrams.
    pub(crate) fn on_the_kernel(self, segments: u64) {
        let moved = self.before.sent_since();
        assert!(moved >= segments, "the kernel sent {moved} segments and datagrams, {segments} or more were expected");
        self.done();
    }

    /// The case's end, for programs that hand their connections to other processes: at least one of each has said that it moved one to
    /// the kernel, which then carried at least `segments` TCP segments.
    pub(crate) fn shared(self, programs: &[&str], segments: u64) {
        if self.world == World::Ringway {
            let reports = self.reports();
            for program in programs {
                let mut mine = reports.iter().filter(|r| same_program(&r.program, program)).flat_map(|r| &r.decisions);
                let has_moved = mine.any(|d| d.what == "move" && d.reason == "shared-connection");
                assert!(has_moved, "{program} moved no connection to the kernel: {reports:#?}");
            }
        }
        self.on_the_kernel(segments);
    }

    /// The case's end, for servers whose children alone go on with what was accepted: a child of each has said that it has a connection on a ring
    /// of its own, and most went through rings, as below. (A child that is early by more
    /// than its parent is late has the connection moved to the kernel.)
    pub(crate) fn inherited(self, programs: &[&str], bytes: u64, segments: u64) {
        match self.world {
            World::Kernel => return self.on_the_kernel(segments),
            World::Rsockets => return self.offloaded(programs, bytes, segments),
            World::Ringway => {}
        }
        let reports = self.reports();
        for program in programs {
            let mut mine = reports.iter().filter(|r| same_program(&r.program, program)).flat_map(|r| &r.decisions);
            assert!(mine.any(|d| d.what == "fork" && d.reason.is_empty()), "no child of {program} took a connection over: {reports:#?}");
        }
        self.offloaded_for_the_most_part(bytes, segments);
    }

    /// The case's end, where what is accepted late by a process that others could take the place of goes to the kernel: at least half of the `bytes`
    /// each way (in `segments` TCP segments of the kernel's) went through rings.
    pub(crate) fn offloaded_for_the_most_part(self, bytes: u64, segments: u64) {
        if self.world == World::Kernel {
            return self.on_the_kernel(segments);
        }
        let reports = self.reports();
        let received = reports.iter().map(|r| r.ring.rx_bytes).sum::<u64>();
        let sent = reports.iter().map(|r| r.ring.tx_bytes).sum::<u64>();
        assert!(sent >= bytes / 2 && received >= bytes / 2, "{bytes} bytes, and the rings: {sent} sent, {received} received: {reports:#?}");
        self.done();
    }

    /// The case's end: nothing may be left behind.
    pub(crate) fn done(self) {
        // The kernel drops a dead process's descriptors a moment after its parent has seen it end.
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let left = leftovers();
            if left.is_empty() {
                break;
            }
            assert!(Instant::now() < deadline, "left behind: {left:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        fs::remove_dir_all(&self.scratch).expect("cannot clear the scratch directory");
    }
}

impl Drop for Case {
    /// What a case that failed leaves behind tells why. But its gigabytes would have the cases after it fail as well, for want of room.
    fn drop(&mut self) {
        const LARGE: u64 = 16 << 20;
        for file in fs::read_dir(&self.scratch).into_iter().flatten().flatten() {
            if file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > LARGE) {
                let _ = fs::remove_file(file.path());
            }
        }
    }
}

/// The library to preload.
pub(crate) fn library() -> PathBuf {
    built("libvma.so", "RINGWAY_LIBVMA")
}

/// The one that is a ConnectX.
pub(crate) fn connectx() -> PathBuf {
    built("libringway_connectx.so", "RINGWAY_LIBCONNECTX")
}

/// The one of rsockets.
fn rspreload() -> PathBuf {
    built("librspreload.so", "RINGWAY_LIBRSPRELOAD")
}

fn built(library: &str, variable: &str) -> PathBuf {
    let path = std::env::var_os(variable)
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release").join(library), PathBuf::from);
    path.canonicalize().unwrap_or_else(|e| panic!("{}: {e}; cargo xtask test builds it", path.display()))
}

/// A port that nothing is bound to, TCP or UDP, at this moment.
pub(crate) fn free_port() -> u16 {
    loop {
        let tcp = TcpListener::bind("0.0.0.0:0").expect("a free port");
        let port = tcp.local_addr().expect("its address").port();
        if std::net::UdpSocket::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// Calls `condition` until it holds; fails the case after `limit`.
pub(crate) fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// An address as it is written before a port.
pub(crate) fn before_port(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// One of `py/`'s scripts.
pub(crate) fn script_path(script: &str) -> PathBuf {
    source_path("py").join(script)
}

/// A file among the cases' sources.
pub(crate) fn source_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Whether a report's short name (cut to 15 bytes by the kernel, `python3.11` for `python3`) means `program`.
fn same_program(reported: &str, program: &str) -> bool {
    let cut = program.get(..15).unwrap_or(program);
    reported.starts_with(cut)
}
