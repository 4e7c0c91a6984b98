//! Many seeds of a world of one's own: find one that fails, make it small, and say how to see it again.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::campaign::{Failure, Shrunk, far_fewer_faults, shrink};
use crate::fabric::LinkConfig;
use crate::faults::{FaultSet, Faults, HostFaults, UnknownFault};
use crate::host::HostConfig;
use crate::nic::{NicConfig, NicFault, NicFaults};
use crate::random::{Purpose, RandomStream};
use crate::world::{Capture, World, WorldConfig};

/// The largest [`Case::scale`].
pub const CASE_SCALE_MAX: u8 = 10;

/// The variable that names the one case to run.
const REPLAY: &str = "RINGWAY_SIM_CASE";

/// Streams of a case, by their last part: [`Purpose::Case`] has an index beside it.
#[derive(Clone, Copy)]
enum Drawn {
    Scale,
    Link,
    /// The world's own, by their purposes.
    Own,
    LinkFaults,
    HostFaults,
    NicFaults,
    Density,
    /// A class has this and the number of its bit.
    Classes,
}

/// The index of what a case has but once.
const ONCE: u32 = u32::MAX;

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
    /// The classes of which a seed draws some: all that befalls links and hosts. Left out is what happens inside a NIC, and to Ethernet addresses,
    /// which to a program looks like loss, or like an error that its sockets report ([`FaultSet::REGISTRATION`]), and [`FaultSet::HIDDEN_CORRUPTION`], which only
    /// programs with checksums of their own withstand, and [`FaultSet::FORGE`], for which datagrams must be doubted. [`Case::faults`] may have them all the same.
    pub const CLASSES: FaultSet = FaultSet::LOSS
        .union(FaultSet::DUPLICATION)
        .union(FaultSet::REORDERING)
        .union(FaultSet::CORRUPTION)
        .union(FaultSet::BURST_LOSS)
        .union(FaultSet::DELAY)
        .union(FaultSet::BANDWIDTH)
        .union(FaultSet::MTU)
        .union(FaultSet::PARTITION)
        .union(FaultSet::ONE_WAY)
        .union(FaultSet::FLAP)
        .union(FaultSet::CLOCK)
        .union(FaultSet::PAUSE)
        .union(FaultSet::CRASH)
        .union(FaultSet::ICMP);

    /// The case of a seed alone: some of [`Case::CLASSES`], and a scale. One in eight is without faults.
    pub fn of_seed(seed: u64) -> Self {
        let draw = |sub: u8| RandomStream::new(seed, Purpose::Case, ONCE, sub);
        let density = draw(Drawn::Density as u8).pick(&[0, 125_000, 125_000, 125_000, 125_000, 250_000, 250_000, 500_000]);
        // Each class has a stream of its own: a new one changes nothing for the others.
        let number = |class: FaultSet| u8::try_from(class.bits().trailing_zeros()).unwrap_or(0);
        let chosen = |class: &FaultSet| draw(Drawn::Classes as u8 + number(*class)).chance_ppm(density);
        let scale = draw(Drawn::Scale as u8).between(1, u64::from(CASE_SCALE_MAX));
        Self { seed, faults: Self::CLASSES.iter().filter(chosen).collect(), scale: u8::try_from(scale).unwrap_or(1) }
    }

    /// Host number `number`: its link ([`Case::link`]), and what goes wrong with it and its NIC. It may crash, and then starts its programs
    /// again ([`World::spawn`], [`World::add_restartable`]); for one that must not, see [`HostConfig::faults`].
    pub fn host(&self, name: &str, number: u32) -> HostConfig {
        let faults = HostFaults::draw(&mut self.stream(number, Drawn::HostFaults)).only(self.faults);
        let nic = nic_faults(&mut self.stream(number, Drawn::NicFaults)).only(self.faults);
        HostConfig::named(name).link(self.link(number)).faults(faults).nic(NicConfig { faults: nic, ..NicConfig::default() })
    }

    /// An empty world of this seed.
    pub fn world(&self, capture: Capture) -> World {
        World::new(WorldConfig { seed: self.seed, capture })
    }

    /// The link of host number `number`: latency and the strengths of its faults are drawn. A class that is switched off changes
    /// nothing about the others.
    pub fn link(&self, number: u32) -> LinkConfig {
        let latency = Duration::from_micros(self.stream(number, Drawn::Link).magnitude(5, 20_000));
        let faults = Faults::draw(&mut self.stream(number, Drawn::LinkFaults)).only(self.faults);
        LinkConfig { latency, faults, ..LinkConfig::default() }
    }

    /// Random numbers for what else the world draws: one stream for each `purpose` of its own.
    pub fn draw(&self, purpose: u32) -> RandomStream {
        self.stream(purpose, Drawn::Own)
    }

    fn stream(&self, index: u32, drawn: Drawn) -> RandomStream {
        RandomStream::new(self.seed, Purpose::Case, index, drawn as u8)
    }

    /// Cases that are simpler, the most promising first.
    fn simpler(&self) -> Vec<Self> {
        // One class alone is what a person reads most easily, and each run takes but a moment.
        let alone = self.faults.iter().filter(|_| self.faults.iter().count() > 2);
        let fewer = far_fewer_faults(self.faults).into_iter().chain(self.faults.iter().map(|class| self.faults - class));
        let faults = alone.chain(fewer);
        let scales = [0, self.scale / 2, self.scale.saturating_sub(1)].into_iter().filter(|&scale| scale < self.scale);
        faults.map(|faults| Self { faults, ..*self }).chain(scales.map(|scale| Self { scale, ..*self })).collect()
    }
}

/// Strengths at which a NIC's host still gets something done.
fn nic_faults(stream: &mut RandomStream) -> NicFaults {
    let mut faults = NicFaults::default();
    for fault in NicFault::ALL {
        let strength = faults.strength_mut(fault);
        strength.ppm = u32::try_from(stream.magnitude(100, 20_000)).unwrap_or(0);
        strength.lasts_max = Duration::from_micros(stream.magnitude(10, 500_000));
    }
    faults
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

/// Runs the world over `seeds`, one [`Case::of_seed`] each, until one fails; then makes that one small, as long as it stays the same
/// failure: fewer classes of faults, then less to do. A run fails by an error or a panic. `None`: all ran clean.
///
/// Failures are the same if what they say is, up to the first `: `, numbers aside ([`Failure::kind`](crate::campaign::Failure::kind)). Every run must follow from its case
/// alone.
pub fn search<E: fmt::Display>(seeds: impl IntoIterator<Item = u64>, run: impl Fn(&Case) -> Result<(), E>) -> Option<Found> {
    for (clean, seed) in (0..).zip(seeds) {
        let first = Case::of_seed(seed);
        if let Some(failure) = fails(&first, &run) {
            let Shrunk { what, failure, tried, .. } = shrink(first, &failure, Case::simpler, |case| fails(case, &run), || true);
            return Some(Found { first, case: what, failure: failure.message, clean, runs: tried });
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

fn fails<E: fmt::Display>(case: &Case, run: &impl Fn(&Case) -> Result<(), E>) -> Option<Failure> {
    match catch_unwind(AssertUnwindSafe(|| run(case))) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(Failure::said(error.to_string())),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
            Some(Failure::said(text.unwrap_or_else(|| "a panic without a message".to_owned())))
        }
    }
}
