//! What happened in a run, to compare it with another of the same seed.

use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;

use turmoil::{Builder, Sim};

/// Seeds of every case, unless `RINGWAY_TURMOIL_SEEDS` names another number of them.
const SEEDS: u64 = 3;

/// A run's log: what programs noted, and every frame that a host received.
#[derive(Clone, Default)]
pub(crate) struct RunLog(Rc<RefCell<Told>>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    lines: Vec<String>,
    frames: u64,
    hash: u64,
}

impl RunLog {
    /// Notes something, with the time.
    pub(crate) fn note(&self, what: impl AsRef<str>) {
        let at = turmoil::sim_elapsed().unwrap_or_default();
        let line = format!("{} ms: {}", at.as_millis(), what.as_ref());
        // Shown if the case fails.
        println!("{line}");
        self.0.borrow_mut().lines.push(line);
    }

    /// Whether a line has these words.
    pub(crate) fn has(&self, words: &str) -> bool {
        self.count(words) > 0
    }

    /// How many lines have these words.
    pub(crate) fn count(&self, words: &str) -> usize {
        self.0.borrow().lines.iter().filter(|line| line.contains(words)).count()
    }

    /// Counts and hashes a frame (FNV-1a).
    pub(crate) fn frame(&self, bytes: &[u8]) {
        let mut told = self.0.borrow_mut();
        told.frames += 1;
        let time = turmoil::sim_elapsed().unwrap_or_default().as_nanos() as u64;
        for byte in time.to_le_bytes().iter().chain(bytes) {
            told.hash = (told.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Runs a case for each seed twice, and compares.
pub(crate) fn twice(case: impl Fn(u64, &RunLog)) {
    let seeds = std::env::var("RINGWAY_TURMOIL_SEEDS").map_or(SEEDS, |n| n.parse().expect("RINGWAY_TURMOIL_SEEDS is a number"));
    for seed in 1..=seeds {
        let [first, again] = [(); 2].map(|()| {
            let log = RunLog::default();
            case(seed, &log);
            log.0.take()
        });
        assert!(first.frames > 0, "seed {seed}: nothing was received");
        assert_eq!(first, again, "seed {seed} has two outcomes");
    }
}

/// A simulation of up to ten minutes in which a message takes up to 20 ms.
pub(crate) fn builder(seed: u64) -> Builder {
    let mut builder = Builder::new();
    builder
        .rng_seed(seed)
        .enable_random_order()
        .simulation_duration(Duration::from_secs(600))
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(20))
        // A wire of turmoil's holds a whole window of TCP's.
        .udp_capacity(1 << 16);
    builder
}

/// Lets time pass.
pub(crate) fn pass(sim: &mut Sim<'_>, time: Duration) {
    let until = sim.elapsed() + time;
    while sim.elapsed() < until {
        sim.step().expect("no program fails");
    }
}
