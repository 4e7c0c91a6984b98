//! What programs of the Extra API may cost in the end: nothing. They run under valgrind's memcheck, which fails on a read or write that is not theirs
//! and on memory that nobody can give back any more; and after threads, forks and kills in the middle of it, a process has what it had before.
//!
//! `cargo xtask test` installs valgrind and runs this with the library as built for release (`RINGWAY_LIBVMA`); by hand:
//! `cargo test -p ringway-vma --test memory`.

#[path = "extra/programs.rs"]
mod programs;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use programs::{compile, compile_with, library, says_nothing};
use ringway_report::published::{FILE_PREFIX, LOOK, Request};
use ringway_report::reader::Published;

const ON: (&str, &str) = ("VMA_SOCKETXTREME", "1");

/// What valgrind slows down may take this long.
const TIMEOUT_S: &str = "180";

/// Runs a program of `tests/extra` under memcheck. Values that were never set are not looked for: system calls get all six of their registers
/// by way of the library's own `syscall`.
fn memcheck(name: &str, arguments: &[&str], environment: &[(&str, &str)]) {
    let program = compile_with(&["gcc", "-g"], &format!("tests/extra/{name}.c"));
    let mut command = Command::new("timeout");
    command.args([TIMEOUT_S, "valgrind", "--quiet", "--fair-sched=yes", "--error-exitcode=99", "--undef-value-errors=no"]);
    command.args(["--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]);
    command.arg(program).args(arguments).env("LD_PRELOAD", library()).envs(environment.iter().copied());
    let output = command.output().expect("timeout(1) is part of coreutils");
    says_nothing(&output, &format!("valgrind {name} {arguments:?} {environment:?}"));
    let found = String::from_utf8_lossy(&output.stderr);
    assert!(!found.lines().any(|line| line.starts_with("==")), "{name}: {found}");
}

#[test]
fn zero_copy_under_memcheck() {
    memcheck("zcopy", &[], &[]);
}

#[test]
fn callbacks_under_memcheck() {
    memcheck("callback", &["quick"], &[]);
}

#[test]
fn socketxtreme_under_memcheck() {
    memcheck("xtreme", &[], &[ON]);
    memcheck("xtreme_rings", &["20"], &[ON, ("VMA_RING_ALLOCATION_LOGIC_RX", "20")]);
}

#[test]
fn cyclic_buffers_under_memcheck() {
    memcheck("cyclic", &[], &[]);
}

/// Memcheck finds what it is to find: or the cases above prove nothing.
#[test]
fn memcheck_sees_a_read_that_is_not_ones_own_and_a_leak() {
    for what in ["read", "leak"] {
        let program = compile_with(&["gcc", "-g"], "tests/extra/damage.c");
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--error-exitcode=99", "--undef-value-errors=no", "--leak-check=full", "--show-leak-kinds=definite"]);
        command.arg("--errors-for-leak-kinds=definite").arg(program).arg(what).env("LD_PRELOAD", library());
        let output = command.output().expect("valgrind must be installed");
        assert_eq!(output.status.code(), Some(99), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// What a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    descriptors: usize,
    /// Mappings of shared memory.
    segments: usize,
    /// Of what it sends, in use.
    buffers: u64,
    sockets: u64,
    /// Sockets of the ring, those that linger included.
    flows: u64,
    /// Lent to the program.
    held: u64,
    /// Of its own, that is: not of the shared memory, which is touched as it is used.
    resident_kib: u64,
}

/// `rounds.c`, in a directory of its own.
struct Rounds {
    child: Child,
    folder: PathBuf,
}

impl Drop for Rounds {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Rounds {
    fn start(how: &str, environment: &[(&str, &str)]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rounds-{how}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let mut command = Command::new(compile("tests/extra/rounds.c"));
        command.arg(how).env("LD_PRELOAD", library()).env("VMA_STATS_SHMEM_DIR", &folder).envs(environment.iter().copied());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it was just compiled");
        Self { child, folder }
    }

    fn count(&self) -> Count {
        let pid = self.child.id();
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).expect("it lives");
        let mut published = Published::open(&self.folder.join(format!("{FILE_PREFIX}{pid}"))).expect("it publishes");
        published.ask(Request::default()).expect("it is ours");
        ringway_host::members::query(published.control(), LOOK, Duration::from_secs(20)).expect("it answers");
        let report = published.read(Duration::from_secs(20)).expect("a report").report;
        let resident = read("status").lines().find_map(|l| l.strip_prefix("RssAnon:")?.split_whitespace().next()?.parse().ok());
        Count {
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives").count(),
            segments: read("maps").lines().filter(|line| line.contains("memfd:ringway")).count(),
            buffers: report.ring.tx_buffers_used,
            sockets: report.sockets_total,
            flows: report.ring.sockets,
            held: report.sockets.iter().map(|socket| socket.held_packets).sum(),
            resident_kib: resident.expect("its resident set"),
        }
    }
}

/// What caches may add between the first count and the last, in KiB.
const GROWTH_MAX_KIB: u64 = 8 << 10;
/// Connections that end in order linger for a while (TIME-WAIT), the dead are noticed at once.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);

fn nothing_is_left(how: &str, environment: &[(&str, &str)]) {
    const ROUNDS: usize = 12;
    let mut rounds = Rounds::start(how, environment);
    let mut input = rounds.child.stdin.take().expect("it is piped");
    let mut lines = BufReader::new(rounds.child.stdout.take().expect("it is piped")).lines();
    let mut first: Option<Count> = None;
    for number in 0..ROUNDS {
        let line = lines.next().expect("it goes on").expect("it says so");
        assert_eq!(line, format!("round {number}: well"), "{how}");
        let deadline = Instant::now() + SETTLED_WITHIN;
        let mut now = rounds.count();
        // (The first two rounds make what stays; and what ends in order lingers for a while.)
        let is_settled = |now: &Count| match first {
            None => now.flows == 0 && now.buffers == 0,
            Some(base) => Count { resident_kib: base.resident_kib, ..*now } == base,
        };
        while !is_settled(&now) {
            assert!(Instant::now() < deadline, "{how}, after round {number}: {now:?}, at first {first:?}");
            std::thread::sleep(Duration::from_millis(50));
            now = rounds.count();
        }
        if number == 1 {
            first = Some(now);
        }
        let base = first.unwrap_or(now);
        let grown = now.resident_kib.saturating_sub(base.resident_kib);
        assert!(grown <= GROWTH_MAX_KIB, "{how}, after round {number}: {grown} KiB more than at first");
        input.write_all(b".").expect("it reads");
    }
    drop(input);
    assert!(rounds.child.wait().expect("it ends").success());
}

#[test]
fn zero_copy_leaves_nothing_after_threads_forks_and_kills() {
    nothing_is_left("zcopy", &[]);
}

#[test]
fn socketxtreme_leaves_nothing_after_threads_forks_and_kills() {
    nothing_is_left("xtreme", &[ON]);
}
