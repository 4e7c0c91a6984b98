//! What a campaign counts, by name: fault classes, workloads, and marks of the code. Whoever adds one adds it here, or a test fails.

use ringway_stack::marks::Mark;

use crate::faults::{FaultCounts, FaultSet};
use crate::report::Report;
use crate::scenario::Scenario;
use crate::workloads::WorkloadSet;

/// How often each fault struck. A class that can be switched goes by its name in [`FaultSet`]; what merely happens (a full queue) by its
/// own.
pub fn struck(counts: &FaultCounts) -> impl Iterator<Item = (&'static str, u64)> {
    [
        ("loss", counts.lost),
        ("duplication", counts.duplicated),
        ("reordering", counts.held_back),
        ("corruption", counts.corrupted),
        ("burst_loss", counts.burst_lost),
        ("hidden_corruption", counts.hidden_corrupted),
        ("delay", counts.delayed),
        ("bandwidth", counts.bandwidth_changes),
        ("mtu", counts.mtu_changes),
        ("partition", counts.partitioned),
        ("one_way", counts.one_way),
        ("flap", counts.flaps),
        ("nic_reset", counts.nic_resets),
        ("send_error", counts.send_errors),
        ("cq_overrun", counts.cq_overruns),
        ("rx_exhausted", counts.rx_exhausted),
        ("send_full", counts.send_full),
        ("registration", counts.registration_failures),
        ("doorbell", counts.delayed_doorbells),
        ("completion", counts.late_completions),
        ("clock", counts.clock_jumps),
        ("pause", counts.pauses),
        ("crash", counts.crashes),
        ("neighbour", counts.neighbour_changes),
        ("icmp", counts.icmp_forged + counts.icmp_delayed),
        ("forge", counts.forged),
        ("mark", counts.marked),
        ("(bad frame check sequence)", counts.frame_check),
        ("(queue full)", counts.queue_full),
        ("(too long for the path)", counts.too_long),
        ("(no carrier)", counts.link_down),
        ("(host down)", counts.host_down),
    ]
    .into_iter()
}

/// The classes that can be switched.
pub(super) fn classes() -> impl Iterator<Item = String> {
    FaultSet::all().iter_names().map(|(name, _)| name.to_ascii_lowercase())
}

/// The workloads of a scenario.
pub(super) fn workloads(scenario: &Scenario) -> impl Iterator<Item = &'static str> {
    scenario.workloads.iter_names().map(|(name, _)| name)
}

/// All workloads that there are.
pub(super) fn all_workloads() -> impl Iterator<Item = &'static str> {
    WorkloadSet::all().iter_names().map(|(name, _)| name)
}

/// How often the run passed each mark that the code has.
pub(super) fn marks(report: &Report) -> impl Iterator<Item = (&'static str, u64)> {
    report.marks.iter().map(|(mark, count)| (mark.name(), count))
}

/// Marks that no campaign can hit, each with what covers it instead.
const ELSEWHERE: [Mark; 2] = [
    // Only a device whose peers are processes can say that one is gone for good: to a NIC, a host that is gone and one that is silent look
    // the same. `deaths`, backends/shm's tests and stack/src/ring/tests.rs hit them.
    Mark::PeerGone,
    Mark::PeerExited,
];

/// All marks that a campaign must hit; none without the feature that counts them.
pub(super) fn all_marks() -> impl Iterator<Item = &'static str> {
    Mark::ALL.iter().filter(|mark| cfg!(feature = "marks") && !ELSEWHERE.contains(mark)).map(|mark| mark.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_counted_under_its_name() {
        let names: Vec<_> = struck(&FaultCounts::default()).map(|(name, _)| name).collect();
        for class in classes() {
            assert!(names.contains(&class.as_str()), "{class} has no counter");
        }
    }
}
