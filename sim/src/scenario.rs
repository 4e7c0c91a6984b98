//! A seed's story: options drawn, hosts built, workloads run under faults, then without them, and everything checked.
//!
//! A run has a *safety phase*, in which the drawn faults strike, and a *liveness phase*, in which none do any more. Throughout, what a
//! reader gets must be what was written; by the end of the second phase, [`LIVENESS_BOUND`] of virtual time later, every
//! program must have finished or failed; and once it has wound down, every buffer, queue slot and flow rule must be back.
//!
//! A seed is one of a swarm (Groce et al., ISSTA 2012): it has some of the workloads and some of the fault classes, hardly ever all of
//! them, since what is always there hides what would show without it.

mod draw;
mod options;
mod run;

pub use options::{HostOptions, Options};
pub use run::{EVENTS_MAX, LIVENESS_BOUND, Stage, WIND_DOWN_BOUND};

use core::fmt;
use core::str::FromStr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::addresses::Family;
use crate::faults::{FaultSet, UnknownFault};
use crate::random::{Purpose, RandomStream};
use crate::report::{Report, assert_deterministic};
use crate::workloads::{UnknownWorkload, WorkloadSet};

/// The largest [`Scenario::scale`].
pub const SCALE_MAX: u8 = 10;

/// What a run follows from: a seed, which of its faults are let loose, how much work there is, and which. Written `42`, where all are
/// drawn from the seed, or `42/loss+corruption/3/bulk+udp`; what is left out at the end is drawn. A world that speaks IPv6 has `/ipv6` behind that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Everything that is drawn is drawn from it.
    pub seed: u64,
    /// The fault classes that may strike, with the strengths drawn for them.
    pub faults: FaultSet,
    /// Workloads are of up to 1024 << `scale` bytes.
    pub scale: u8,
    /// What hosts do.
    pub workloads: WorkloadSet,
    /// Which IP they speak.
    pub family: Family,
}

impl Scenario {
    /// The scenario of a seed alone.
    pub fn of_seed(seed: u64) -> Self {
        let mut stream = RandomStream::new(seed, Purpose::Options, u32::MAX, 0);
        let scale = u8::try_from(stream.below(u64::from(SCALE_MAX) + 1)).unwrap_or(0);
        let scenario = Self { seed, faults: draw::faults(seed), scale, workloads: draw::workloads(seed), family: Family::V4 };
        if draw::is_ipv6(seed) { scenario.in_ipv6() } else { scenario }
    }

    /// The same in IPv6, without what there is in IPv4 alone.
    #[must_use]
    pub fn in_ipv6(self) -> Self {
        let workloads = self.workloads - WorkloadSet::of_ipv4();
        Self { workloads: if workloads.is_empty() { WorkloadSet::UDP } else { workloads }, family: Family::V6, ..self }
    }

    /// Scenarios that are one step simpler, the most promising first: a fault class less, a workload less, less work. Each draws what
    /// is left just as before, so that a failure that doesn't need what was taken away is still there.
    pub fn simpler(&self) -> Vec<Self> {
        let mut simpler = Vec::new();
        if self.family == Family::V6 {
            simpler.push(Self { family: Family::V4, ..*self });
        }
        let fewer_faults: Vec<_> = self.faults.iter().map(|class| Self { faults: self.faults - class, ..*self }).collect();
        simpler.extend(fewer_faults);
        if self.workloads.iter().count() > 1 {
            simpler.extend(self.workloads.iter().map(|workload| Self { workloads: self.workloads - workload, ..*self }));
        }
        let mut scales = vec![0, self.scale / 2, self.scale.saturating_sub(1)];
        scales.dedup();
        simpler.extend(scales.into_iter().filter(|&scale| scale < self.scale).map(|scale| Self { scale, ..*self }));
        simpler
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
        match catch_unwind(|| assert_deterministic(self.seed, |_| self.tell())) {
            Ok(report) => report,
            Err(failure) => {
                self.announce();
                resume_unwind(failure)
            }
        }
    }

    /// Runs it once, and prints where everybody stands if a check fails.
    fn tell(&self) -> Report {
        let mut stage = Stage::set(self);
        catch_unwind(AssertUnwindSafe(|| stage.perform())).unwrap_or_else(|failure| {
            eprintln!("{}", stage.describe());
            resume_unwind(failure)
        })
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
        write!(f, "{}/{}/{}/{}", self.seed, self.faults, self.scale, self.workloads)?;
        if self.family == Family::V6 { f.write_str("/ipv6") } else { Ok(()) }
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
    /// A workload that doesn't exist.
    #[error(transparent)]
    Workload(#[from] UnknownWorkload),
    /// Neither version of IP.
    #[error("the last part is neither ipv4 nor ipv6")]
    Family,
    /// A workload that there is in IPv4 alone.
    #[error("{0} are of IPv4 alone")]
    OfIpv4(WorkloadSet),
}

impl FromStr for Scenario {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let mut parts = s.trim().splitn(5, '/');
        let seed = parts.next().and_then(|s| s.parse().ok()).ok_or(ParseError::Seed)?;
        let mut scenario = Self::of_seed(seed);
        if let Some(faults) = parts.next() {
            scenario.faults = faults.parse()?;
        }
        if let Some(scale) = parts.next() {
            scenario.scale = scale.parse().ok().filter(|&s| s <= SCALE_MAX).ok_or(ParseError::Scale)?;
        }
        if let Some(workloads) = parts.next() {
            scenario.workloads = workloads.parse()?;
            scenario.family = Family::V4;
        }
        match parts.next() {
            None => {}
            Some("ipv4") => scenario.family = Family::V4,
            Some("ipv6") if scenario.workloads.intersects(WorkloadSet::of_ipv4()) => {
                return Err(ParseError::OfIpv4(scenario.workloads & WorkloadSet::of_ipv4()));
            }
            Some("ipv6") => scenario.family = Family::V6,
            Some(_) => return Err(ParseError::Family),
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
