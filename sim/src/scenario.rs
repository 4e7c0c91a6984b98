//! A seed's story: options drawn, hosts built, workloads run under faults, then without them, and everything checked.
//!
//! A run has a *safety phase*, in which the drawn faults strike, and a *liveness phase*, in which none do any more. Throughout, what a
//! reader gets must be what was written; by the end of the second phase, [`LIVENESS_BOUND`] of virtual time later, every
//! program must have finished or failed; and once it has wound down, every buffer, queue slot and flow rule must be back.

mod options;
mod run;

pub use options::{HostOptions, Options, PingOptions, TalkOptions};
pub use run::{EVENTS_MAX, LIVENESS_BOUND, Stage, WIND_DOWN_BOUND};

use core::fmt;
use core::str::FromStr;
use std::panic::{catch_unwind, resume_unwind};

use crate::faults::{FaultSet, UnknownFault};
use crate::random::{Purpose, Stream};
use crate::report::{Report, assert_deterministic};

/// The largest [`Scenario::scale`].
pub const SCALE_MAX: u8 = 10;

/// What a run follows from: a seed, which of its faults are let loose, and how much work there is. Written `42`, where both are
/// drawn from the seed, or `42/loss+corruption/3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Everything that is drawn is drawn from it.
    pub seed: u64,
    /// The fault classes that may strike, with the strengths drawn for them.
    pub faults: FaultSet,
    /// Workloads are of up to 1024 << `scale` bytes.
    pub scale: u8,
}

impl Scenario {
    /// The scenario of a seed alone.
    pub fn of_seed(seed: u64) -> Self {
        let mut stream = Stream::new(seed, Purpose::Options, u32::MAX, 0);
        let bits = u32::try_from(stream.below(u64::from(FaultSet::all().bits()) + 1)).unwrap_or(0);
        let scale = u8::try_from(stream.below(u64::from(SCALE_MAX) + 1)).unwrap_or(0);
        Self { seed, faults: FaultSet::from_bits_truncate(bits), scale }
    }

    /// What is drawn for it.
    pub fn options(&self) -> Options {
        Options::draw(self)
    }

    /// Runs it twice, checks everything both times, and compares. A failure prints the options and the line that replays it.
    ///
    /// # Panics
    /// A check failed.
    pub fn check(&self) -> Report {
        match catch_unwind(|| assert_deterministic(self.seed, |_| Stage::set(self).play())) {
            Ok(report) => report,
            Err(failure) => {
                self.announce();
                resume_unwind(failure)
            }
        }
    }

    /// Prints what a person needs to see, and to do.
    fn announce(&self) {
        eprintln!("--- scenario {self} failed; it drew:\n{}", self.options());
        eprintln!("--- replay: RINGWAY_SIM_SEED={self} cargo test -p ringway-sim --test properties replay -- --nocapture");
        eprintln!("--- (RINGWAY_SIM_PCAP=FILE.pcapng keeps its frames)");
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.seed, self.faults, self.scale)
    }
}

/// The caller: that is no scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The seed is no number of 64 bits.
    #[error("the seed is not a number")]
    Seed,
    /// A fault class that doesn't exist.
    #[error(transparent)]
    Fault(#[from] UnknownFault),
    /// The scale is no number up to [`SCALE_MAX`].
    #[error("the scale is not a number from 0 to {SCALE_MAX}")]
    Scale,
}

impl FromStr for Scenario {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let mut parts = s.trim().splitn(3, '/');
        let seed = parts.next().and_then(|s| s.parse().ok()).ok_or(ParseError::Seed)?;
        let mut scenario = Self::of_seed(seed);
        if let Some(faults) = parts.next() {
            scenario.faults = faults.parse()?;
        }
        if let Some(scale) = parts.next() {
            scenario.scale = scale.parse().ok().filter(|&s| s <= SCALE_MAX).ok_or(ParseError::Scale)?;
        }
        Ok(scenario)
    }
}

/// The scenario that the environment asks for, `RINGWAY_SIM_SEED`.
///
/// # Panics
/// It asks for something that is no scenario.
pub fn from_env() -> Option<Scenario> {
    let value = std::env::var("RINGWAY_SIM_SEED").ok()?;
    Some(value.parse().unwrap_or_else(|error| panic!("RINGWAY_SIM_SEED={value}: {error}")))
}

#[cfg(test)]
mod tests;
