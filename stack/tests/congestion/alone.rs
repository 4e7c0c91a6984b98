//! One flow, with nothing lost by chance: does it fill the line, and what does the queue look like?

use core::time::Duration;

use ringway_stack::tcp::congestion::{Algorithm, CongestionControl as _, Selected};

use crate::path::PathConfig;
use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);

/// Five seconds to begin with, twenty that are measured.
fn settled(config: PathConfig, algorithm: Algorithm) -> World {
    let mut world = World::new(config, &[algorithm]);
    world.run(5 * SECOND);
    world.measure();
    world.run(20 * SECOND);
    world
}

const SHAPES: [(u64, u64); 4] = [(10, 20), (50, 40), (100, 10), (100, 100)];

/// With a buffer of a bandwidth-delay product, halving the window leaves the line busy: so all fill it. BBR leaves a hundredth of it, and what it
/// gives up in ProbeRTT (two percent: draft-ietf-ccwg-bbr s5.3.4.2).
#[test]
fn a_flow_fills_the_line() {
    for algorithm in Algorithm::ALL {
        for (mbit, rtt_ms) in SHAPES {
            let world = settled(PathConfig::new(mbit, rtt_ms), algorithm);
            let least = if algorithm == Algorithm::Bbr { 95 } else { 98 };
            assert!(world.utilisation() >= least, "{algorithm:?} at {mbit} Mbit/s, {rtt_ms} ms: {}%", world.utilisation());
            assert_eq!(world.flows[0].timeouts, 0, "{algorithm:?} at {mbit} Mbit/s, {rtt_ms} ms");
        }
    }
}

/// Those that wait for losses fill the buffer; BBR keeps it a quarter full at most, on average, and loses nothing.
#[test]
fn bbr_keeps_the_queue_short_and_loses_nothing() {
    for (mbit, rtt_ms) in SHAPES {
        let config = PathConfig::new(mbit, rtt_ms);
        let (bbr, cubic) = (settled(config, Algorithm::Bbr), settled(config, Algorithm::Cubic));
        assert_eq!(bbr.path.dropped, 0, "at {mbit} Mbit/s, {rtt_ms} ms");
        let queues = [bbr.path.queue_mean(), cubic.path.queue_mean()];
        assert!(
            queues[0] * 4 < config.buffer && queues[0] * 3 < queues[1],
            "{queues:?} of {} at {mbit} Mbit/s, {rtt_ms} ms",
            config.buffer
        );
    }
}

/// RFC 9438 s4.6: on a buffer too short for NewReno's halves, 0.7 leaves less of the line idle.
#[test]
fn cubic_uses_more_of_a_short_buffer_than_reno() {
    let config = PathConfig { buffer: 50_000, ..PathConfig::new(50, 40) };
    let [reno, cubic] = [Algorithm::Reno, Algorithm::Cubic].map(|algorithm| settled(config, algorithm).utilisation());
    assert!(cubic > reno && cubic >= 90, "CUBIC {cubic}%, NewReno {reno}%");
}

/// RFC 9406 s1: slow start that overshoots loses what it overshoots by. HyStart++ is out of it before, if the buffer lasts for what conservative slow
/// start adds; and on a shorter one it loses less.
#[test]
fn hystart_loses_less_in_slow_start() {
    for (buffers, none) in [(8, true), (3, false)] {
        let config = PathConfig::new(100, 30);
        let config = PathConfig { buffer: buffers * config.bdp(), ..config };
        let [reno, cubic] = [Algorithm::Reno, Algorithm::Cubic].map(|algorithm| {
            let mut world = World::new(config, &[algorithm]);
            world.run(3 * SECOND);
            world
        });
        let dropped = [reno.path.dropped, cubic.path.dropped];
        assert!(dropped[0] > 500 && dropped[1] * 3 < dropped[0] * 2 && (dropped[1] == 0 || !none), "{buffers}: {dropped:?}");
        assert!(cubic.flows[0].control.ssthresh().is_some(), "it is in congestion avoidance");
    }
}

/// RFC 8257 s3.3, s4.1: with marks from a sixth of the bandwidth-delay product on, the queue stays near that, and the line busy.
#[test]
fn dctcp_keeps_the_queue_at_the_threshold() {
    let config = PathConfig::new(1000, 1);
    let config = PathConfig { mark_at: Some(30_000), buffer: 500_000, ..config };
    let world = settled(config, Algorithm::Dctcp);
    assert!(world.utilisation() >= 98, "{}%", world.utilisation());
    assert_eq!(world.path.dropped, 0);
    let queue = [world.path.queue_mean(), world.path.queue_max];
    assert!(queue[0] < 30_000 && queue[1] < 60_000, "{queue:?}");
    let Selected::Dctcp(dctcp) = &world.flows[0].control else { panic!("it is DCTCP") };
    assert!(dctcp.alpha() > 0 && dctcp.alpha() < (1 << 20) / 2, "{}", dctcp.alpha());
    // A mark is as good as a loss for NewReno: on as short a queue it leaves more of the line idle, or the queue swings more.
    let reno = settled(config, Algorithm::Reno);
    assert!(reno.utilisation() < world.utilisation(), "NewReno {}%", reno.utilisation());
}

/// All take marks for what they are: nothing is dropped where marks come early.
#[test]
fn marks_are_heeded() {
    for algorithm in Algorithm::ALL {
        let config = PathConfig { mark_at: Some(60_000), buffer: 500_000, ..PathConfig::new(100, 20) };
        let world = settled(config, algorithm);
        assert_eq!(world.path.dropped, 0, "{algorithm:?}");
        assert!(world.path.queue_max < 200_000, "{algorithm:?}: {}", world.path.queue_max);
        assert!(world.utilisation() >= 75, "{algorithm:?}: {}%", world.utilisation());
    }
}
