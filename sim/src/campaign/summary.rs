//! What many runs came to.

use core::time::Duration;
use std::collections::BTreeMap;

use ringway_stack::Instant;
use serde::{Deserialize, Serialize};

use super::histogram::Histogram;
use super::names;
use crate::reached::State;
use crate::report::Report;
use crate::scenario::Scenario;

/// What many runs came to. Merging is adding: the order of runs doesn't matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Seeds that were run.
    pub seeds: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// What happened on the wire.
    pub events: u64,
    /// The most that happened in one run.
    pub events_max: u64,
    /// Virtual time.
    pub simulated: Duration,
    /// What each seed took of the caller's time.
    pub wall: Histogram,
    /// How often each fault class struck.
    pub faults: BTreeMap<String, u64>,
    /// How many runs had each workload.
    pub workloads: BTreeMap<String, u64>,
    /// How often each mark of the code was passed.
    pub marks: BTreeMap<String, u64>,
    /// How often each state of the world was come upon.
    #[serde(default)]
    pub states: BTreeMap<String, u64>,
}

impl Summary {
    /// Adds a run that passed, and took `wall`.
    pub fn add(&mut self, scenario: &Scenario, report: &Report, wall: Duration) {
        self.seeds += 1;
        self.events += report.events;
        self.events_max = self.events_max.max(report.events);
        self.simulated += report.ended.since(Instant::ZERO);
        self.wall.add(wall);
        for (name, count) in names::struck(&report.faults) {
            count_in(&mut self.faults, name, count);
        }
        let mut workloads: Vec<_> = names::workloads(scenario).collect();
        workloads.sort_unstable();
        workloads.dedup();
        workloads.into_iter().for_each(|name| count_in(&mut self.workloads, name, 1));
        names::marks(report).filter(|&(_, count)| count > 0).for_each(|(name, count)| count_in(&mut self.marks, name, count));
        let states = report.reached.iter().filter(|&(_, count)| count > 0);
        states.for_each(|(state, count)| count_in(&mut self.states, state.name(), count));
    }

    /// Adds a run that failed.
    pub fn add_failure(&mut self, wall: Duration) {
        self.seeds += 1;
        self.failed += 1;
        self.wall.add(wall);
    }

    /// Adds all that another one has.
    pub fn merge(&mut self, other: &Self) {
        let Self { seeds, failed, events, events_max, simulated, wall, faults, workloads, marks, states } = other;
        self.seeds += seeds;
        self.failed += failed;
        self.events += events;
        self.events_max = self.events_max.max(*events_max);
        self.simulated += *simulated;
        self.wall.merge(wall);
        let own = [&mut self.faults, &mut self.workloads, &mut self.marks, &mut self.states];
        for (own, theirs) in own.into_iter().zip([faults, workloads, marks, states]) {
            theirs.iter().for_each(|(name, &count)| count_in(own, name, count));
        }
    }

    /// What never came up in any run, though it should in enough of them: fault classes, workloads, marks, states.
    pub fn missing(&self) -> Vec<String> {
        let zero = |counts: &BTreeMap<String, u64>, name: &str| counts.get(name).is_none_or(|&n| n == 0);
        let faults = names::classes().filter(|n| zero(&self.faults, n)).map(|n| format!("fault class {n}"));
        let workloads = names::all_workloads().filter(|n| zero(&self.workloads, n)).map(|n| format!("workload {n}"));
        let marks = names::all_marks().filter(|n| zero(&self.marks, n)).map(|n| format!("mark {n}"));
        let states = State::ALL.into_iter().filter(|state| self.seeds >= state.seeds() && zero(&self.states, state.name()));
        let states = states.map(|state| format!("state '{}'", state.name()));
        faults.chain(workloads).chain(marks).chain(states).collect()
    }
}

fn count_in(counts: &mut BTreeMap<String, u64>, name: &str, count: u64) {
    match counts.get_mut(name) {
        Some(total) => *total += count,
        None => _ = counts.insert(name.to_owned(), count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Stage;

    fn of(seeds: core::ops::Range<u64>) -> Summary {
        let mut summary = Summary::default();
        for seed in seeds {
            let scenario = Scenario::of_seed(seed);
            summary.add(&scenario, &Stage::set(&scenario).play(), Duration::from_millis(seed));
        }
        summary
    }

    #[test]
    fn the_parts_are_the_whole() {
        let (whole, mut parts) = (of(0..12), of(0..5));
        parts.merge(&of(5..12));
        assert_eq!(parts, whole);
        assert_eq!(whole.seeds, 12);
        assert!(whole.events > whole.events_max && whole.simulated > Duration::ZERO);
        let text = serde_json::to_string(&whole).unwrap();
        assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), whole);
    }

    #[test]
    fn what_never_came_up_is_named() {
        let missing = of(0..1).missing();
        assert!(missing.len() > 3, "{missing:?}");
        let mut calm = Summary::default();
        let scenario: Scenario = "3/none/0".parse().unwrap();
        calm.add(&scenario, &Stage::set(&scenario).play(), Duration::ZERO);
        assert!(calm.missing().contains(&"fault class loss".to_owned()));
    }
}
