//! A failure made small: first the fault classes, then the workload, for as long as it stays the same failure.

use super::failure::Failure;
use crate::faults::FaultSet;
use crate::scenario::Scenario;

/// The smallest scenario found that fails in the same way.
#[derive(Clone, Debug)]
pub struct Minimal {
    /// What is left.
    pub scenario: Scenario,
    /// How it fails.
    pub failure: Failure,
    /// How many scenarios were tried.
    pub tried: u32,
    /// Whether the caller's patience ended before nothing was left to try.
    pub hurried: bool,
}

/// Makes a failing scenario smaller until nothing that it consists of can be left out.
///
/// `run` runs a scenario and says how it failed, if it did; `patient` says whether there is time for one more.
pub fn minimise(
    scenario: &Scenario,
    failure: &Failure,
    mut run: impl FnMut(&Scenario) -> Option<Failure>,
    mut patient: impl FnMut() -> bool,
) -> Minimal {
    let simpler = |scenario: &Scenario| {
        let fewer = far_fewer_faults(scenario.faults).into_iter().map(|faults| Scenario { faults, ..*scenario });
        fewer.chain(scenario.simpler()).collect()
    };
    let Shrunk { what, failure, tried, hurried } = shrink(*scenario, failure, simpler, &mut run, &mut patient);
    Minimal { scenario: what, failure, tried, hurried }
}

/// The smallest of its kind that fails in the same way. See [`Minimal`].
pub(crate) struct Shrunk<T> {
    pub(crate) what: T,
    pub(crate) failure: Failure,
    pub(crate) tried: u32,
    pub(crate) hurried: bool,
}

/// As [`minimise`], for whatever `simpler` knows to make simpler: the most promising first.
pub(crate) fn shrink<T>(
    what: T,
    failure: &Failure,
    simpler: impl Fn(&T) -> Vec<T>,
    mut run: impl FnMut(&T) -> Option<Failure>,
    mut patient: impl FnMut() -> bool,
) -> Shrunk<T> {
    let mut best = Shrunk { what, failure: failure.clone(), tried: 0, hurried: false };
    // One change at a time, from the largest to the smallest, from the start again after each that kept the failure: what
    // could not be left out before may be superfluous now.
    'again: loop {
        for candidate in simpler(&best.what) {
            if !patient() {
                best.hurried = true;
                return best;
            }
            best.tried += 1;
            if let Some(failure) = run(&candidate).filter(|f| f.is_like(&best.failure)) {
                (best.what, best.failure) = (candidate, failure);
                continue 'again;
            }
        }
        return best;
    }
}

/// No faults at all, then either half of the classes.
pub(crate) fn far_fewer_faults(faults: FaultSet) -> Vec<FaultSet> {
    let classes: Vec<FaultSet> = faults.iter().collect();
    let (left, right) = classes.split_at(classes.len() / 2);
    let mut sets = Vec::new();
    if classes.len() > 1 {
        sets.push(FaultSet::empty());
    }
    if classes.len() > 3 {
        sets.extend([left, right].map(|half| half.iter().copied().collect::<FaultSet>()));
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(message: &str) -> Failure {
        Failure { place: "stack.rs:1".to_owned(), message: message.to_owned(), backtrace: Vec::new() }
    }

    fn scenario(text: &str) -> Scenario {
        text.parse().unwrap()
    }

    #[test]
    fn what_the_failure_does_not_need_goes() {
        // Fails with loss and at least 16 KiB of work, whatever else there is.
        let bug = |s: &Scenario| (s.faults.contains(FaultSet::LOSS) && s.scale >= 4).then(|| failure("a byte too many: 3"));
        let all = scenario("42/all/10");
        let minimal = minimise(&all, &failure("a byte too many: 77"), bug, || true);
        assert_eq!((minimal.scenario.faults, minimal.scenario.scale), (FaultSet::LOSS, 4));
        assert_eq!(minimal.scenario.workloads.iter().count(), 1);
        assert!(!minimal.hurried && minimal.tried < 60, "{minimal:?}");
        assert_eq!(minimal.failure.message, "a byte too many: 3");
    }

    #[test]
    fn two_faults_that_need_each_other_stay() {
        let needed = FaultSet::REORDERING | FaultSet::CORRUPTION;
        let bug = |s: &Scenario| s.faults.contains(needed).then(|| failure("broken"));
        assert_eq!(minimise(&scenario("7/all/9"), &failure("broken"), bug, || true).scenario, scenario("7/reordering+corruption/0"));
    }

    /// A smaller scenario that fails otherwise is another failure's, and leads astray.
    #[test]
    fn another_failure_is_not_followed() {
        let bug = |s: &Scenario| Some(failure(if s.faults.is_empty() { "something else" } else { "broken" }));
        let minimal = minimise(&scenario("7/loss+duplication/3"), &failure("broken"), bug, || true);
        assert_eq!((minimal.scenario.faults.bits().count_ones(), minimal.scenario.scale), (1, 0));
    }

    #[test]
    fn what_cannot_be_smaller_is_left_alone() {
        let mut runs = 0;
        let bug = |_: &Scenario| {
            runs += 1;
            None
        };
        let minimal = minimise(&scenario("7/loss/0"), &failure("broken"), bug, || true);
        assert_eq!((minimal.scenario, minimal.tried), (scenario("7/loss/0"), 1));
        assert_eq!(runs, 1);
    }

    #[test]
    fn patience_ends() {
        let mut left = 3;
        let bug = |_: &Scenario| None;
        let minimal = minimise(&scenario("7/all/9"), &failure("broken"), bug, || {
            left -= 1;
            left > 0
        });
        assert!(minimal.hurried && minimal.tried == 2);
    }
}
