//! The library against the kernel, call by call: random programs of several processes with several threads each make the same socket
//! calls on the kernel and with `libvma.so` preloaded, and are compared at every quiet point: results, errno, bytes, addresses, readiness.
//!
//! `RINGWAY_CALLS_PROGRAMS` says how many programs, `RINGWAY_CALLS_SEED` repeats a run. What fails is made small and printed as a case for
//! `cases.rs`. (The stack alone is compared with the kernel by conformance/tests/reference, in the simulator.)

mod cases;
mod differences;
mod generate;
mod lockstep;
mod program;
mod translate;
mod wire;
mod world;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::differences::{KNOWN, judge};
use crate::generate::drafts;
use crate::lockstep::{Run, run};
use crate::program::{Op, SendFlags, Setting, Source, Step};
use crate::world::{Setup, World};

/// How long both worlds rest after each call, where one must be sure that nothing is under way.
const SLOW: Duration = Duration::from_millis(60);
/// The same where bytes are held back until more come (Linux's patience is 200 ms).
const SLOW_CORKED: Duration = Duration::from_millis(260);
/// How long a failing program may be made smaller.
const SHRINK: Duration = Duration::from_secs(90);
/// Programs of a run, if nothing else is asked for.
const PROGRAMS: u32 = 1000;
/// Programs that run at once; most of their time they wait for each other's wake-ups.
const PAIRS: usize = 4;

/// How long waits spin: each pair of worlds has its own way, one of them the library's. The others ask the kernel for its part of a set
/// each time.
const PARAMETERS: [&[(&str, &str)]; PAIRS] = [
    &[],
    &[("VMA_RX_POLL", "0"), ("VMA_SELECT_POLL", "0"), ("VMA_SELECT_POLL_OS_RATIO", "1")],
    &[("VMA_RX_POLL", "0"), ("VMA_SELECT_POLL", "0"), ("VMA_SELECT_POLL_OS_RATIO", "1"), ("VMA_PROGRESS_ENGINE_INTERVAL", "1")],
    &[("VMA_RX_POLL", "200"), ("VMA_SELECT_POLL", "200"), ("VMA_SELECT_POLL_OS_RATIO", "1")],
];

/// The library that this build made: beside the test. (One directory up is what `cargo build` made last, perhaps long ago.)
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let library = test.parent().expect("target/<profile>/deps/<test>").join("libvma.so");
    assert!(library.exists(), "libvma.so is built with its tests");
    library
}

/// Compiles the actor, once for all tests of this process.
fn actor() -> PathBuf {
    static DONE: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut done = DONE.lock().expect("no test panics while it compiles");
    done.get_or_insert_with(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calls/actor.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("calls-actor");
        let gcc = Command::new("gcc").args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program).arg(&source).status();
        assert!(gcc.expect("gcc must be installed").success(), "{} does not compile", source.display());
        program
    })
    .clone()
}

/// The two worlds, time and again.
struct Comparison {
    kernel: World,
    ringway: World,
    scratch: PathBuf,
    counters: FdCounters,
}

#[derive(Clone, Debug, Default)]
struct FdCounters {
    programs: u32,
    calls: usize,
    /// Differences that were gone when both worlds rested longer.
    transient: usize,
    known: Vec<usize>,
}

impl FdCounters {
    fn add(&mut self, other: &Self) {
        self.programs += other.programs;
        self.calls += other.calls;
        self.transient += other.transient;
        self.known.iter_mut().zip(&other.known).for_each(|(all, one)| *all += one);
    }
}

impl Comparison {
    fn new(name: &str, parameters: &[(&'static str, &'static str)]) -> Self {
        let scratch = std::env::temp_dir().join(format!("ringway-calls-{}-{name}", std::process::id()));
        let setup = |world: &str, preload| Setup { actor: actor(), preload, scratch: scratch.join(world) };
        let kernel = World::new(setup("kernel", None)).expect("actors start");
        // The kernel against itself proves the harness.
        let preload = (std::env::var("RINGWAY_CALLS").as_deref() != Ok("kernel")).then(|| (library(), parameters.to_vec()));
        let ringway = World::new(setup("ringway", preload)).expect("actors start with the library");
        Self { kernel, ringway, scratch, counters: FdCounters { known: vec![0; KNOWN.len()], ..FdCounters::default() } }
    }

    fn once(&mut self, source: &mut dyn Source, slow: Duration) -> Run {
        let run = run(&mut self.kernel, &mut self.ringway, source, slow, &judge);
        self.counters.calls += run.steps.len();
        if let Some(known) = run.known {
            self.counters.known[known] += 1;
        }
        run
    }

    /// Runs a program; if the worlds differ, once more with long backlogs. (This machine may be busy, and the kernel's timers go on.)
    fn compare<S: Source>(&mut self, source: impl Fn() -> S) -> Run {
        self.counters.programs += 1;
        let first = self.once(&mut source(), Duration::ZERO);
        if !first.failed() {
            return first;
        }
        let holds = |step: &Step| matches!(step.2, Op::Send(_, _, _, SendFlags { more: true, .. }) | Op::Set(_, Setting::Cork(true)));
        let slow = if first.program().iter().any(holds) { SLOW_CORKED } else { SLOW };
        let second = self.once(&mut source(), slow);
        if !second.failed() {
            println!("gone when both rested longer:\n{first}");
            self.counters.transient += 1;
        }
        second
    }

    /// Ends the actors; what they had to complain of, and the packets that the library's rings carried.
    fn finish(mut self) -> (FdCounters, String, u64) {
        self.kernel.finish();
        self.ringway.finish();
        let log = std::fs::read_to_string(self.ringway.log()).unwrap_or_default();
        let reports = std::fs::read_to_string(self.ringway.reports()).unwrap_or_default();
        let carried = |line: &str| serde_json::from_str::<ringway_report::ProcessReport>(line).map_or(0, |report| report.ring.rx_packets);
        let _ = std::fs::remove_dir_all(&self.scratch);
        (self.counters.clone(), log, reports.lines().map(carried).sum())
    }
}

/// What the library must never say, whatever the program does.
fn assert_no_panic(log: &str) {
    let bad: Vec<&str> = log.lines().filter(|line| line.contains("panic")).collect();
    assert!(bad.is_empty(), "the library panicked:\n{}", bad.join("\n"));
}

/// Draws so many programs, or until enough have failed.
fn draw(
    pair: usize,
    seed: u64,
    programs: u32,
    failures: &Mutex<Vec<String>>,
    seen: &Mutex<BTreeSet<String>>,
    failures_max: usize,
) -> (FdCounters, String, u64) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8] = pair as u8;
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let strategy = drafts();
    let mut comparison = Comparison::new(&format!("{seed}-{pair}"), PARAMETERS[pair]);
    for _ in 0..programs {
        if failures.lock().expect("no panics").len() >= failures_max {
            break;
        }
        let mut tree = strategy.new_tree(&mut runner).expect("nothing is filtered");
        let run = comparison.compare(|| tree.current().into_calls());
        // Where enough is wanted to find several, the same thing again is none of them.
        let new = || seen.lock().expect("no panics").insert(run.signature().unwrap_or_default());
        if run.failed() && new() {
            let small = shrink(&mut comparison, &mut tree, run);
            println!("pair {pair}: the worlds differ:\n{small}");
            failures.lock().expect("no panics").push(small.to_string());
        }
    }
    comparison.finish()
}

/// Makes a failing program smaller: first its wishes, then its calls.
fn shrink(comparison: &mut Comparison, tree: &mut impl proptest::strategy::ValueTree<Value = generate::Draft>, mut worst: Run) -> Run {
    let deadline = Instant::now() + SHRINK;
    let signature = worst.signature();
    let mut more = tree.simplify();
    while more && Instant::now() < deadline {
        let run = comparison.compare(|| tree.current().into_calls());
        more = if run.failed() && run.signature() == signature {
            worst = run;
            tree.simplify()
        } else {
            tree.complicate()
        };
    }
    let mut index = 0;
    let mut program = worst.program();
    while index < program.len() && Instant::now() < deadline {
        let mut shorter = program.clone();
        shorter.remove(index);
        let run = comparison.compare(|| shorter.clone().into_iter());
        if run.failed() && run.signature() == signature {
            program = run.program();
            worst = run;
        } else {
            index += 1;
        }
    }
    worst
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// The same thousand each time, so that a failure is this change's own; new ones if a number is asked for, unless `RINGWAY_CALLS_SEED` says
/// which.
#[test]
fn generated_programs_come_to_the_same() {
    let programs = number("RINGWAY_CALLS_PROGRAMS").map(|count| count as u32);
    let seed = number("RINGWAY_CALLS_SEED").unwrap_or_else(|| if programs.is_some() { fresh_seed() } else { 1 });
    let each = programs.unwrap_or(PROGRAMS).div_ceil(PAIRS as u32);
    let failures_max = number("RINGWAY_CALLS_FAILURES").map_or(1, |count| count as usize);
    let failures = Mutex::new(Vec::new());
    let seen = Mutex::new(BTreeSet::new());
    let started = Instant::now();
    let results: Vec<_> = std::thread::scope(|scope| {
        let (failures, seen) = (&failures, &seen);
        let pairs: Vec<_> = (0..PAIRS).map(|pair| scope.spawn(move || draw(pair, seed, each, failures, seen, failures_max))).collect();
        pairs.into_iter().map(|pair| pair.join().expect("a pair of worlds")).collect()
    });
    let mut counters = FdCounters { known: vec![0; KNOWN.len()], ..FdCounters::default() };
    results.iter().for_each(|(one, ..)| counters.add(one));
    let took = started.elapsed().as_secs_f64();
    println!(
        "RINGWAY_CALLS_SEED={seed}: {} programs, {} calls, {} transient, {took:.1} s",
        counters.programs, counters.calls, counters.transient
    );
    for (known, count) in KNOWN.iter().zip(&counters.known) {
        println!("{count:>6} x {}: {}", known.id, known.reason);
    }
    for (_, log, carried) in &results {
        assert_no_panic(log);
        assert!(*carried > 0 || std::env::var_os("RINGWAY_CALLS").is_some(), "nothing went through a ring");
    }
    let failures = failures.into_inner().expect("no panics");
    assert!(failures.is_empty(), "RINGWAY_CALLS_SEED={seed}: the worlds differ in {} programs:\n{}", failures.len(), failures.join("\n"));
}

fn fresh_seed() -> u64 {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).expect("randomness");
    u64::from_ne_bytes(bytes)
}

#[test]
fn programs_as_told_come_to_the_same() {
    // Both for those who spin, and for those who sleep at once.
    for (number, parameters) in PARAMETERS[..2].iter().enumerate() {
        let mut comparison = Comparison::new(&format!("told-{number}"), parameters);
        let by_ipv6 = |(name, steps): (&'static str, Vec<Step>)| (name, steps.iter().map(Step::by_ipv6).collect::<Vec<_>>());
        for (name, steps) in cases::alike().into_iter().chain(cases::alike().into_iter().map(by_ipv6)) {
            let run = comparison.compare(|| steps.iter().cloned());
            assert!(!run.failed(), "{name}: the worlds differ:\n{run}");
            assert_eq!(run.known, None, "{name}: a known difference cut it short:\n{run}");
            assert_eq!(run.program(), steps, "{name}: a call made no sense:\n{run}");
        }
        assert_no_panic(&comparison.finish().1);
    }
}

#[test]
fn every_known_difference_is_still_there() {
    let mut comparison = Comparison::new("known", &[]);
    for (index, known) in KNOWN.iter().enumerate() {
        let witness = cases::witnesses().into_iter().find(|(name, _)| *name == known.id);
        let (_, steps) = witness.unwrap_or_else(|| panic!("{}: no program shows it", known.id));
        let mut run = comparison.compare(|| steps.iter().cloned());
        if run.known != Some(index) && !run.failed() {
            // (Where cores are busy, another may be met on the way, or the worlds may meet before they are looked at.)
            run = comparison.once(&mut steps.iter().cloned(), SLOW_CORKED);
        }
        assert!(!run.failed(), "{}: differs otherwise:\n{run}", known.id);
        assert_eq!(run.known, Some(index), "{}: the worlds agree now, or another was met; strike it off the list:\n{run}", known.id);
    }
    assert_no_panic(&comparison.finish().1);
}
