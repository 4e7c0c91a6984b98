//! The stack's marked code paths, as far as a few seeds of the swarm come by; a campaign must come by all of them.

use ringway_sim::scenario::{Scenario, Stage};
use ringway_stack::marks::{Mark, MarkCounts};

/// Paths of everyday losses, pauses, departures and loans, which any few hundred seeds take.
const EVERYDAY: [Mark; 21] = [
    Mark::FastRetransmit,
    Mark::RetransmissionTimeout,
    Mark::BackedOff,
    Mark::SynRetransmitted,
    Mark::FinRetransmitted,
    Mark::WindowUpdate,
    Mark::OutOfOrder,
    Mark::GapFilled,
    Mark::SackReceived,
    Mark::DelayedAck,
    Mark::TimeWait,
    Mark::SendStalled,
    Mark::EndedSilently,
    Mark::EndedSilentlyOrphan,
    Mark::LentSmall,
    Mark::LentLarge,
    Mark::LentCopied,
    Mark::LentOutOfOrder,
    Mark::LentBeyondClose,
    Mark::WindowShutByLoans,
    Mark::DatagramDroppedByLoans,
];

#[test]
fn a_few_hundred_seeds_take_the_everyday_paths() {
    let mut marks = MarkCounts::default();
    for seed in 0..200 {
        marks.add(&Stage::set(&Scenario::of_seed(seed)).play().marks);
    }
    println!("{marks:#?}\nmissed: {:?}", marks.missed().collect::<Vec<_>>());
    let missed: Vec<_> = EVERYDAY.into_iter().filter(|&mark| marks.of(mark) == 0).collect();
    assert!(missed.is_empty(), "{missed:?}");
}
