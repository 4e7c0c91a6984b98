//! Waiting as programs see it: a C program runs each case on the kernel and under libvma.so, and must print the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use ringway_report::{ProcessReport, STATS_FILE_ENV};

/// The directory of this build's artifacts; the library lies in it, or beside the tests.
fn artifacts() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST").to_owned()
}

fn library() -> PathBuf {
    let beside = artifacts().join("deps/libvma.so");
    if beside.exists() { beside } else { artifacts().join("libvma.so") }
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("mux");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/mux.c");
        let made = Command::new("gcc").args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"]).arg(&program).arg(source).output();
        let made = made.expect("gcc must be installed");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        program
    })
}

fn finish(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    let text = String::from_utf8_lossy(&stdout).into_owned();
    assert!(status.success(), "{command:?}: {status}\n{text}{}", String::from_utf8_lossy(&stderr));
    text
}

/// Runs a case both ways; what the process said about itself.
fn same(case: &str) -> ProcessReport {
    same_with(case, &[])
}

fn same_with(case: &str, parameters: &[(&str, &str)]) -> ProcessReport {
    let on_kernel = finish(Command::new(program()).arg(case));
    let stats = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("mux-{case}.json"));
    let _ = fs::remove_file(&stats);
    let mut offloaded = Command::new(program());
    offloaded.arg(case).env("LD_PRELOAD", library()).env(STATS_FILE_ENV, &stats).envs(parameters.iter().copied());
    assert_eq!(finish(&mut offloaded), on_kernel, "{case}: offloaded on the left, the kernel on the right");
    let line = fs::read_to_string(&stats).expect("the process left its report");
    serde_json::from_str(line.lines().last().expect("one line")).expect("the report is JSON")
}

/// How often a lock may be found taken, in a thousand turns of the progress thread.
const DISTURBED_MAX: u64 = 25;

macro_rules! cases {
    ($($case:ident)*) => {$(
        #[test]
        fn $case() {
            let report = same(stringify!($case));
            assert!(report.ring.rx_packets > 0, "nothing went through the ring: {report:?}");
        }
    )*};
}

cases! { burst level edge oneshot fresh nested two mixed errors hangup alike both_worlds threads added first interrupted idle renamed again beside deeply elsewhere rushing }

/// Who waits while a thread that was woken has yet to run leaves it the core, and does not ask the kernel again and again.
#[test]
fn one_core() {
    let report = same("one_core");
    assert!(report.ring.rx_packets > 0, "nothing went through the ring: {report:?}");
    // Each of a hundred turns has two sleeps of the threads, and a few of the progress thread's.
    assert!(report.ring.sleeps < 3000, "{} sleeps", report.ring.sleeps);
}

/// Without the progress thread's ticks: whoever sleeps looks after itself.
#[test]
fn busy() {
    let report = same_with("busy", &[("VMA_PROGRESS_ENGINE_INTERVAL", "0")]);
    assert!(report.ring.rx_packets > 0, "nothing went through the ring: {report:?}");
}

/// Nor may a thread that spins on what is on no ring leave the ring alone, for others rely on it.
#[test]
fn unpublished() {
    let report = same_with("unpublished", &[("VMA_PROGRESS_ENGINE_INTERVAL", "100000"), ("VMA_RX_POLL", "-1")]);
    assert!(report.ring.rx_packets > 0, "nothing went through the ring: {report:?}");
}

/// The progress thread, by its parameters, a thousand times a second, takes no lock of threads that look at their rings themselves: nor of a process's only ring,
/// nor where each thread has its own.
#[test]
fn who_looks_at_its_ring_is_not_disturbed() {
    let own_rings = [("VMA_RING_ALLOCATION_LOGIC_RX", "20"), ("VMA_RING_ALLOCATION_LOGIC_TX", "20")];
    for (case, parameters) in [("undisturbed", &[][..]), ("undisturbed_two", &own_rings)] {
        let report = same_with(case, &[&[("VMA_PROGRESS_ENGINE_INTERVAL", "1")], parameters].concat());
        assert!(report.ring.rx_packets > 100_000 && report.ring.lock_contended < DISTURBED_MAX, "{case}: {report:?}");
    }
}
