//! Losses by chance, which no queue explains.

use core::time::Duration;

use ringway_stack::tcp::congestion::Algorithm;

use crate::flow::MSS;
use crate::path::PathConfig;
use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);

fn goodput(config: PathConfig, algorithm: Algorithm) -> u64 {
    let mut world = World::new(config, &[algorithm]);
    world.run(5 * SECOND);
    world.measure();
    world.run(30 * SECOND);
    world.goodput(0)
}

/// Below BBR.LossThresh, 2%, losses say little: three quarters of the line's rate, and many times what CUBIC gets.
#[test]
fn bbr_keeps_its_rate_at_one_percent() {
    for (mbit, rtt_ms) in [(10, 20), (50, 40), (100, 10)] {
        let config = PathConfig { loss_ppm: 10_000, ..PathConfig::new(mbit, rtt_ms) };
        let [bbr, cubic] = [Algorithm::Bbr, Algorithm::Cubic].map(|algorithm| goodput(config, algorithm) * 100 / config.rate);
        assert!(bbr >= 75 && cubic * 10 < bbr * 9, "{mbit} Mbit/s, {rtt_ms} ms: BBR {bbr}%, CUBIC {cubic}%");
    }
}

/// RFC 9438 s4.3: the window of an AIMD(α, β) flow at a loss rate p is sqrt(α (1 + β) / (2 (1 - β) p)) segments: for NewReno at 1%, 12.2; for CUBIC
/// below its own region the same.
#[test]
fn cubic_and_reno_come_to_what_the_equation_says() {
    let config = PathConfig { loss_ppm: 10_000, ..PathConfig::new(50, 40) };
    let expected = MSS * 122 / 10 * 1000 / 40;
    for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
        let percent = goodput(config, algorithm) * 100 / expected;
        assert!((70..=140).contains(&percent), "{algorithm:?}: {percent}% of {expected} bytes a second");
    }
}

/// At 10% none is fast, and each goes on.
#[test]
fn all_survive_ten_percent() {
    for algorithm in Algorithm::ALL {
        let config = PathConfig { loss_ppm: 100_000, ..PathConfig::new(10, 20) };
        let goodput = goodput(config, algorithm);
        assert!(goodput > 20 * MSS, "{algorithm:?}: {goodput} bytes a second");
    }
}
