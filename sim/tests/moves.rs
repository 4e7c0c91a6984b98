//! Worlds whose connections are written down and read in again in each service of each host: nobody in them can tell, to the last byte of the last frame.

use ringway_sim::scenario::{Scenario, Stage};

const SEEDS: u64 = 40;
/// What more work would show takes too long to be shown each time.
const SCALE_MAX: u8 = 5;

#[test]
fn nobody_can_tell_that_connections_are_read_in_again() {
    let mut rewritten = 0;
    for seed in 0..SEEDS {
        let drawn = Scenario::of_seed(seed);
        let scenario = Scenario { scale: drawn.scale.min(SCALE_MAX), ..drawn };
        let [still, moving] = [false, true].map(|rewrites| {
            let mut stage = Stage::set(&scenario);
            if rewrites {
                stage.rewrite();
            }
            let report = stage.perform();
            rewritten += stage.world().rewritten();
            report
        });
        assert_eq!(still, moving, "{scenario}:\n{still}\n{moving}");
    }
    assert!(rewritten > 100_000, "{rewritten} times is little");
    println!("connections were read in again {rewritten} times");
}
