//! The driver in the simulator, in virtual time, without rdma-core: seeds of the swarm.

mod swarm;

/// Seeds that each run of the tests plays.
const SEEDS: u64 = 300;

/// Seeds that the driver failed before it was mended, and what was wrong with it. (`tests/mutants.rs` breaks it again, each time.)
const FOUND: [(u64, &str); 4] = [
    (47, "a send queue fails while only short frames are on their way, and nobody looks at it"),
    (34, "a doorbell is lost, and nothing is sent after it"),
    (10, "a rule is refused while a receive queue is made anew, and no broadcast comes any more"),
    (62, "a receive queue cannot be started again yet, and its owner sleeps"),
];

#[test]
fn seeds_are_clean() {
    for seed in 0..SEEDS {
        swarm::run(seed);
    }
}

#[test]
fn seeds_that_found_something_are_clean() {
    for (seed, what) in FOUND {
        let report = std::panic::catch_unwind(|| swarm::run(seed));
        assert!(report.is_ok(), "seed {seed}: {what}");
    }
}

/// Seeds in which a card is removed while doorbells are on their way to it. (They came to nothing again and again, at the same time, and no driver heard that its card is gone: a
/// fault of the world's.)
const RUNG_AT_NOTHING: [u64; 4] = [24_711, 61_572, 76_730, 80_387];

#[test]
fn time_goes_on_when_a_card_is_removed_to_which_doorbells_are_on_their_way() {
    RUNG_AT_NOTHING.into_iter().for_each(|seed| {
        swarm::run(seed);
    });
}

#[test]
fn a_seed_is_the_same_each_time() {
    for seed in 0..20 {
        assert_eq!(swarm::run(seed), swarm::run(seed));
    }
}
