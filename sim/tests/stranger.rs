//! A peer that keeps no law, and what its victims make of it: the paths of the stack that only such a peer takes are taken, and every checker
//! holds the victims to the RFCs meanwhile.

use ringway_sim::scenario::Scenario;
use ringway_sim::{FaultSet, scenario::SCALE_MAX};

const SEEDS: u64 = 64;

fn scenario(seed: u64, faults: FaultSet) -> Scenario {
    let workloads = "stranger".parse().expect("it is a workload");
    Scenario { seed, faults, scale: u8::try_from(seed).unwrap_or(0) % (SCALE_MAX + 1), workloads, family: ringway_sim::Family::V4 }
}

/// Whatever it does, its stream is read as it was written, and its end is the end.
#[test]
fn a_stranger_is_served_by_the_law() {
    for seed in 0..SEEDS {
        scenario(seed, FaultSet::empty()).check();
    }
}

#[test]
fn a_stranger_is_served_by_the_law_whatever_the_network_does() {
    for seed in 0..SEEDS {
        scenario(seed, FaultSet::all()).check();
    }
}

/// The stack was to answer an acknowledgment of another connection when its device took nothing, and answered when this one was open.
#[test]
fn who_is_told_off_late_is_not_reset() {
    "1969/send_full/2/half-close+slow+stranger".parse::<Scenario>().expect("a scenario").check();
}

/// An acknowledgment in a segment that was none of the connection's counted for the checkers, and the next one was no duplicate for them.
#[test]
fn what_a_stranger_acknowledges_out_of_its_window_does_not_count() {
    "105397/corruption/7/bulk+stranger".parse::<Scenario>().expect("a scenario").check();
}

#[cfg(feature = "marks")]
#[test]
fn a_stranger_leads_to_where_no_stack_of_ours_does() {
    use ringway_stack::marks::{Mark, MarkCounts};

    let mut marks = MarkCounts::default();
    for seed in 0..SEEDS {
        marks.add(&scenario(seed, FaultSet::empty()).check().marks);
    }
    let expected = [
        Mark::WindowTrimmed,
        Mark::OutOfWindow,
        Mark::OldBytesTrimmed,
        Mark::FinOutOfOrder,
        Mark::UnacceptableAck,
        Mark::StrangeAckInSynReceived,
        Mark::InexactReset,
        Mark::ChallengeAck,
        Mark::ChallengeLimited,
        Mark::ZeroWindowReceived,
    ];
    let missed: Vec<_> = expected.into_iter().filter(|&mark| marks.of(mark) == 0).collect();
    assert!(missed.is_empty(), "{missed:?}");
}
