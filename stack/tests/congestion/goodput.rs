//! Goodput against loss and round trip, by controller: a table that changes only where a controller does.

use core::time::Duration;
use std::fmt::Write as _;

use ringway_stack::tcp::congestion::Algorithm;

use crate::path::PathConfig;
use crate::world::World;

const MBIT: u64 = 50;

/// Goodput in percent of the line's rate, over eight seconds after the first two.
fn percent(rtt_ms: u64, loss_ppm: u64, algorithm: Algorithm) -> u64 {
    let mut world = World::new(PathConfig { loss_ppm, ..PathConfig::new(MBIT, rtt_ms) }, &[algorithm]);
    world.run(Duration::from_secs(2));
    world.measure();
    world.run(Duration::from_secs(8));
    world.utilisation()
}

#[test]
fn goodput_against_loss_and_rtt_by_controller() {
    let mut table = format!("percent of {MBIT} Mbit/s; a buffer of one bandwidth-delay product, at least 20 segments\n");
    write!(table, "{:>7} {:>7}", "rtt ms", "loss %").unwrap();
    Algorithm::ALL.iter().for_each(|algorithm| write!(table, " {:>6}", algorithm.name()).unwrap());
    table.push('\n');
    for rtt_ms in [1, 10, 100] {
        for loss_ppm in [0, 1_000, 10_000, 50_000] {
            write!(table, "{rtt_ms:>7} {:>5}.{}", loss_ppm / 10_000, loss_ppm / 1_000 % 10).unwrap();
            Algorithm::ALL.iter().for_each(|algorithm| write!(table, " {:>6}", percent(rtt_ms, loss_ppm, *algorithm)).unwrap());
            table.push('\n');
        }
    }
    insta::assert_snapshot!(table);
}
