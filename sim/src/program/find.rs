//! Many seeds of a world of one's own: find one that fails, make it small, and say how to see it again.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::fabric::LinkConfig;
use crate::faults::{FaultSet, Faults, UnknownFault};
use crate::random::{Purpose, Stream};
use crate::world::{Capture, World, WorldConfig};

/// The largest [`Case::scale`].
pub const CASE_SCALE_MAX: u8 = 10;

/// The fault classes that [`Case::link`] draws strengths for.
const CLASSES: FaultSet = FaultSet::LOSS.union(FaultSet::DUPLICATION).union(FaultSet::REORDERING).union(FaultSet::CORRUPTION);

/// The variable that names the one case to run.
const REPLAY: &str = "RINGWAY_SIM_CASE";

/// What one run of a world follows from. Written `42/loss+corruption/3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Everything that is drawn is drawn from it.
    pub seed: u64,
    /// The fault classes that may strike, with the strengths drawn for them.
    pub faults: FaultSet,
    /// How much there is to do, up to [`CASE_SCALE_MAX`]; what that means is the world's affair.
    pub scale: u8,
}

impl Case {
    /// The case of a seed alone: loss, duplication, reordering and corruption, and a drawn scale.
    pub fn of_seed(seed: u64) -> Self {
        let scale = Stream::new(seed, Purpose::Case, u32::MAX, 0).between(1, u64::from(CASE_SCALE_MAX));
        Self { seed, faults: CLASSES, scale: u8::try_from(scale).unwrap_or(1) }
    }

    /// An empty world of this seed.
    pub fn world(&self, capture: Capture) -> World {
        World::new(WorldConfig { seed: self.seed, capture })
    }

    /// The link of host number `host`: latency and the strengths of its faults are drawn. A class that is switched off changes
    /// nothing about the others.
    pub fn link(&self, host: u32) -> LinkConfig {
        let mut draw = Stream::new(self.seed, Purpose::Case, host, 1);
        let mut ppm = |max| u32::try_from(draw.magnitude(1_000, max)).unwrap_or(0);
        let (loss_ppm, duplication_ppm, reordering_ppm, corruption_ppm) = (ppm(200_000), ppm(50_000), ppm(100_000), ppm(50_000));
        let micros = |n: u64| Duration::from_micros(n);
        #[allow(clippy::needless_update, reason = "other classes may come, and are off here")]
        let faults = Faults {
            loss_ppm,
            duplication_ppm,
            reordering_ppm,
            corruption_ppm,
            duplication_delay_max: micros(draw.magnitude(10, 10_000)),
            reordering_delay_max: micros(draw.magnitude(10, 20_000)),
            ..Faults::default()
        };
        LinkConfig { latency: micros(draw.magnitude(5, 20_000)), faults: faults.only(self.faults), ..LinkConfig::default() }
    }

    /// Random numbers for what else the world draws: one stream for each `purpose` of its own.
    pub fn draw(&self, purpose: u32) -> Stream {
        Stream::new(self.seed, Purpose::Case, purpose, 2)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.seed, self.faults, self.scale)
    }
}

/// The caller: that is no case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaseError {
    /// The seed is no number of 64 bits.
    #[error("the seed is not a number")]
    Seed,
    /// A fault class that doesn't exist.
    #[error(transparent)]
    Fault(#[from] UnknownFault),
    /// The scale is no number up to [`CASE_SCALE_MAX`].
    #[error("the scale is not a number from 0 to {CASE_SCALE_MAX}")]
    Scale,
}

impl FromStr for Case {
    type Err = CaseError;

    fn from_str(s: &str) -> Result<Self, CaseError> {
        let mut parts = s.trim().splitn(3, '/');
        let seed = parts.next().and_then(|s| s.parse().ok()).ok_or(CaseError::Seed)?;
        let mut case = Self::of_seed(seed);
        if let Some(faults) = parts.next() {
            case.faults = faults.parse()?;
        }
        if let Some(scale) = parts.next() {
            case.scale = scale.parse().ok().filter(|&s| s <= CASE_SCALE_MAX).ok_or(CaseError::Scale)?;
        }
        Ok(case)
    }
}

/// A failure, made small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The seed's own case.
    pub first: Case,
    /// The smallest case found that still fails.
    pub case: Case,
    /// What went wrong in it.
    pub failure: String,
    /// How many seeds ran clean before.
    pub clean: u64,
    /// How many runs it took to make it small.
    pub runs: u32,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, case, failure, clean, runs } = self;
        write!(f, "{failure}\n  after {clean} clean seeds: {first}\n  minimised in {runs} runs: {case}\n  to replay: {REPLAY}={case}")
    }
}

/// Runs the world over `seeds`, one [`Case::of_seed`] each, until one fails; then makes that one small: fault classes off one by
/// one, then less to do. A run fails by an error or a panic. `None`: all ran clean.
///
/// Any failure counts while it is made small, not only the first one's. Every run must follow from its case alone.
pub fn search<E: fmt::Display>(seeds: impl IntoIterator<Item = u64>, run: impl Fn(&Case) -> Result<(), E>) -> Option<Found> {
    for (clean, seed) in (0..).zip(seeds) {
        let first = Case::of_seed(seed);
        if let Some(failure) = fails(&first, &run) {
            return Some(minimise(first, failure, clean, &run));
        }
    }
    None
}

/// [`search`] as a test: it ends with a panic that says what failed, in which case, and how to replay it. If the environment names
/// a case in `RINGWAY_SIM_CASE`, that one alone is run.
///
/// # Panics
/// A case failed, or what the environment says is none.
pub fn check<E: fmt::Display>(seeds: impl IntoIterator<Item = u64>, run: impl Fn(&Case) -> Result<(), E>) {
    if let Ok(text) = std::env::var(REPLAY) {
        let case: Case = text.parse().unwrap_or_else(|error| panic!("{REPLAY}={text}: {error}"));
        match run(&case) {
            Ok(()) => return,
            Err(failure) => panic!("case {case}: {failure}"),
        }
    }
    if let Some(found) = search(seeds, run) {
        panic!("{found}");
    }
}

fn minimise<E: fmt::Display>(first: Case, failure: String, clean: u64, run: &impl Fn(&Case) -> Result<(), E>) -> Found {
    let mut found = Found { first, case: first, failure, clean, runs: 0 };
    let attempt = |found: &mut Found, case: Case| {
        found.runs += 1;
        let failure = fails(&case, run);
        let fails = failure.is_some();
        if let Some(failure) = failure {
            (found.case, found.failure) = (case, failure);
        }
        fails
    };
    for class in first.faults.iter() {
        let case = Case { faults: found.case.faults.difference(class), ..found.case };
        attempt(&mut found, case);
    }
    for scale in 0..first.scale {
        let case = Case { scale, ..found.case };
        if attempt(&mut found, case) {
            break;
        }
    }
    found
}

fn fails<E: fmt::Display>(case: &Case, run: &impl Fn(&Case) -> Result<(), E>) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(|| run(case))) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
            Some(text.unwrap_or_else(|| "a panic without a message".to_owned()))
        }
    }
}
