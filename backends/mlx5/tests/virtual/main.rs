//! The driver in the simulator, in virtual time, without rdma-core: seeds of the swarm.

mod swarm;

/// Seeds that each run of the tests plays.
const SEEDS: u64 = 300;

/// Seeds that have found something, and what.
const FOUND: [(u64, &str); 3] = [
    (35, "a send queue fails while only short frames are on their way, and nobody looks at it"),
    (50, "a doorbell is lost, and nothing is sent after it"),
    (230, "a rule is refused while a receive queue is made anew, and no broadcast comes any more"),
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
        assert!(swarm::run(seed).faults > 0, "{what}");
    }
}

#[test]
fn a_seed_is_the_same_each_time() {
    for seed in 0..20 {
        assert_eq!(swarm::run(seed), swarm::run(seed));
    }
}
