//! Two flows at one bottleneck: what each gets.

use core::time::Duration;

use ringway_stack::tcp::congestion::Algorithm;

use crate::path::PathConfig;
use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);

/// What two flows get in `measured`, of which the second one begins 3 seconds later, in percent of the line. They have `settling` to settle.
fn shares(config: PathConfig, algorithms: [Algorithm; 2], settling: Duration, measured: Duration) -> [u64; 2] {
    let mut world = World::new(config, &algorithms[..1]);
    world.run(3 * SECOND);
    world.join(algorithms[1]);
    world.run(settling);
    world.measure();
    world.run(measured);
    [0, 1].map(|flow| world.goodput(flow) * 100 / config.rate)
}

/// Jain's index of fairness in percent: (Σx)² / (n Σx²).
fn jain([a, b]: [u64; 2]) -> u64 {
    (a + b) * (a + b) * 100 / (2 * (a * a + b * b))
}

/// RFC 9438 s4.7, s5.6: fast convergence lets a second flow have its share.
#[test]
fn cubic_and_cubic_share() {
    let shares = shares(PathConfig::new(50, 40), [Algorithm::Cubic; 2], 30 * SECOND, 60 * SECOND);
    assert!(jain(shares) >= 95 && shares[0] + shares[1] >= 98, "{shares:?}");
}

/// RFC 9438 s4.3: where the bandwidth-delay product is small, CUBIC takes about what NewReno would.
#[test]
fn cubic_and_reno_share_a_short_path() {
    for (mbit, rtt_ms) in [(10, 10), (20, 10), (10, 30)] {
        let shares = shares(PathConfig::new(mbit, rtt_ms), [Algorithm::Cubic, Algorithm::Reno], 20 * SECOND, 60 * SECOND);
        let ratio = shares[0] * 100 / shares[1].max(1);
        assert!((50..=200).contains(&ratio) && shares[0] + shares[1] >= 97, "{mbit} Mbit/s, {rtt_ms} ms: {shares:?}");
    }
}

#[test]
fn reno_and_reno_share() {
    let shares = shares(PathConfig::new(20, 20), [Algorithm::Reno; 2], 20 * SECOND, 60 * SECOND);
    assert!(jain(shares) >= 95 && shares[0] + shares[1] >= 98, "{shares:?}");
}

#[test]
fn bbr_and_bbr_share() {
    for (mbit, rtt_ms) in [(50, 40), (100, 10)] {
        let shares = shares(PathConfig::new(mbit, rtt_ms), [Algorithm::Bbr; 2], 30 * SECOND, 60 * SECOND);
        assert!(jain(shares) >= 90 && shares[0] + shares[1] >= 90, "{mbit} Mbit/s, {rtt_ms} ms: {shares:?}");
    }
}

/// draft-ietf-ccwg-bbr s5.3.3.8: BBR leaves loss-based flows time to fill the path; and they do not starve it.
#[test]
fn bbr_and_cubic_leave_each_other_something() {
    let shares = shares(PathConfig::new(50, 40), [Algorithm::Cubic, Algorithm::Bbr], 30 * SECOND, 60 * SECOND);
    assert!(shares[0] >= 15 && shares[1] >= 15 && shares[0] + shares[1] >= 95, "{shares:?}");
}

#[test]
fn dctcp_and_dctcp_share() {
    let config = PathConfig { mark_at: Some(30_000), buffer: 500_000, ..PathConfig::new(1000, 1) };
    let shares = shares(config, [Algorithm::Dctcp; 2], 5 * SECOND, 10 * SECOND);
    assert!(jain(shares) >= 95 && shares[0] + shares[1] >= 98, "{shares:?}");
}
