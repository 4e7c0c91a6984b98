//! The cases of draft-ietf-ccwg-bbr's appendix, "BBR Example Test Cases".

use core::time::Duration;

use ringway_stack::Instant;
use ringway_stack::tcp::congestion::bbr::{Info, State};
use ringway_stack::tcp::congestion::{Algorithm, CongestionControl as _, Phase, Selected, Undo};

use crate::flow::{MSS, Program};
use crate::path::PathConfig;
use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn info(world: &World) -> Info {
    let Selected::Bbr(bbr) = &world.flows[0].control else { panic!("it is BBR") };
    bbr.info()
}

fn bbr(config: PathConfig) -> World {
    World::new(config, &[Algorithm::Bbr])
}

/// Until it is in `state`; at most `time`.
fn until(world: &mut World, state: State, time: Duration) {
    let end = world.now + time;
    assert!(world.run_until(end, |world| info(world).state == state), "{state:?} in {time:?}: {:?}", info(world));
}

/// Every state that it enters within `time`, and when.
fn states(world: &mut World, time: Duration) -> Vec<(Instant, State)> {
    let mut states = vec![(world.now, info(world).state)];
    let end = world.now + time;
    world.run_until(end, |world| {
        let state = info(world).state;
        if states.last().is_some_and(|last| last.1 != state) {
            states.push((world.now, state));
        }
        false
    });
    states
}

fn names(states: &[(Instant, State)]) -> Vec<State> {
    states.iter().map(|state| state.1).collect()
}

#[test]
fn startup_ends_on_a_plateau_of_bandwidth() {
    for (mbit, rtt_ms) in [(10, 20), (100, 10), (100, 100)] {
        let config = PathConfig::new(mbit, rtt_ms);
        let mut world = bbr(PathConfig { buffer: 2 * config.buffer, ..config });
        until(&mut world, State::Drain, 5 * SECOND);
        let info = info(&world);
        assert!(info.full_bw_reached && info.max_bw.abs_diff(config.rate) * 50 <= config.rate, "{info:?}");
        assert_eq!((info.pacing_gain, world.path.dropped), (50, 0));
        // Ten segments doubled until they fill the path, and three rounds without growth, in which the queue makes round trips up to three times as long.
        let rounds = (config.bdp() / (10 * MSS)).max(1).ilog2() + 1;
        assert!(world.now.since(Instant::ZERO) <= config.rtt * (rounds + 3 * 3 + 2), "{:?} for {rounds} rounds", world.now);
        until(&mut world, State::ProbeBwCruise, SECOND);
        assert!(world.flows[0].min_rtt.is_some_and(|min_rtt| info.min_rtt.is_some_and(|model| model <= min_rtt + MS)));
    }
}

/// Where the program limits the rate, only losses show that the path is full.
#[test]
fn startup_ends_on_losses_when_the_program_limits_it() {
    let mut world = bbr(PathConfig::new(100, 100));
    world.flows[0].let_program(Program::Every(MS), Instant::ZERO);
    world.run(4 * SECOND);
    assert_eq!(info(&world).state, State::Startup, "without losses it stays");
    world.path.config.loss_ppm = 150_000;
    let seen = names(&states(&mut world, 2 * SECOND));
    assert!(seen.len() > 1 && !seen[1..].contains(&State::Startup), "{seen:?}");
    assert!(info(&world).full_bw_reached && info(&world).inflight_longterm.is_some());
}

#[test]
fn startup_goes_on_while_the_program_limits_it_and_nothing_is_lost() {
    let mut world = bbr(PathConfig::new(50, 40));
    world.flows[0].let_program(Program::Every(MS), Instant::ZERO);
    let seen = names(&states(&mut world, 20 * SECOND));
    assert!(seen.iter().all(|state| matches!(state, State::Startup | State::ProbeRtt)), "{seen:?}");
    // And ProbeRTT leads back to it.
    assert!(seen.ends_with(&[State::ProbeRtt, State::Startup]), "{seen:?}");
}

/// The path slows down as Drain begins: what is in flight stays above the estimate, and three round trips are enough.
#[test]
fn drain_ends_after_three_round_trips_at_the_latest() {
    let config = PathConfig { buffer: 10_000_000, ..PathConfig::new(50, 40) };
    let mut world = bbr(config);
    until(&mut world, State::Drain, 5 * SECOND);
    world.path.config.rate /= 10;
    let begun = world.now;
    until(&mut world, State::ProbeBwDown, 60 * SECOND);
    // A round trip is longer by a queue that drains at a tenth of the rate.
    assert!(world.now.since(begun) >= config.rtt * 3, "{:?}", world.now.since(begun));
    let queue = world.path.queue_max * 1_000_000_000 / world.path.config.rate;
    assert!(world.now.since(begun) <= (config.rtt + Duration::from_nanos(queue)) * 5, "{:?}", world.now.since(begun));
}

/// REFILL lasts a round trip; UP ends on a plateau, three rounds with less than a quarter more; DOWN ends with the queue. A cycle is two to three
/// seconds.
#[test]
fn the_cycle() {
    let mut world = bbr(PathConfig::new(50, 40));
    world.run(SECOND);
    // From ProbeRTT on there are five seconds until the next one.
    until(&mut world, State::ProbeRtt, 10 * SECOND);
    until(&mut world, State::ProbeBwCruise, SECOND);
    let begun = world.now;
    world.measure();
    until(&mut world, State::ProbeBwRefill, 5 * SECOND);
    let waited = world.now.since(begun);
    assert!(waited >= 2 * SECOND && waited <= 3100 * MS, "{waited:?}");
    let seen = states(&mut world, SECOND);
    assert_eq!(names(&seen), [State::ProbeBwRefill, State::ProbeBwUp, State::ProbeBwDown, State::ProbeBwCruise]);
    let lasted: Vec<_> = seen.windows(2).map(|pair| pair[1].0.since(pair[0].0)).collect();
    assert!(lasted[0] >= 40 * MS && lasted[0] <= 60 * MS, "REFILL: {lasted:?}");
    assert!(lasted[1] >= 120 * MS && lasted[1] <= 300 * MS, "UP: {lasted:?}");
    assert_eq!(world.path.dropped, 0);
}

/// A loss rate beyond the threshold ends UP at once, and bounds what may be in flight; the next probe is a careful one.
#[test]
fn losses_end_a_probe() {
    let config = PathConfig::new(50, 40);
    let mut world = bbr(PathConfig { buffer: config.bdp() / 4, ..config });
    world.run(SECOND);
    until(&mut world, State::ProbeBwUp, 10 * SECOND);
    let begun = world.now;
    world.path.config.loss_ppm = 100_000;
    until(&mut world, State::ProbeBwDown, SECOND);
    assert!(world.now.since(begun) < 150 * MS);
    world.path.config.loss_ppm = 0;
    let bound = info(&world).inflight_longterm.expect("a bound");
    // BBR.Beta bounds how far it comes down.
    assert!(bound >= config.bdp() * 6 / 10 && bound <= config.bdp() * 3 / 2, "{bound} of {}", config.bdp());
    until(&mut world, State::ProbeBwCruise, 5 * SECOND);
    assert!(world.flows[0].control.cwnd() <= bound * 86 / 100, "headroom is left: {} of {bound}", world.flows[0].control.cwnd());
    world.run(20 * SECOND);
    world.measure();
    world.run(20 * SECOND);
    assert!(world.utilisation() >= 90, "and it recovers: {}%", world.utilisation());
}

/// Without a shorter round trip for five seconds it looks for one: half in flight, for 200 ms and a round trip.
#[test]
fn probe_rtt() {
    let config = PathConfig::new(50, 40);
    let mut world = bbr(config);
    world.run(SECOND);
    until(&mut world, State::ProbeRtt, 10 * SECOND);
    let begun = world.now;
    assert_eq!(info(&world).cwnd_gain, 50);
    world.run(150 * MS);
    assert!(world.flows[0].control.cwnd() <= config.bdp() * 55 / 100, "{}", world.flows[0].control.cwnd());
    assert_eq!(info(&world).state, State::ProbeRtt);
    until(&mut world, State::ProbeBwCruise, SECOND);
    let lasted = world.now.since(begun);
    assert!(lasted >= 200 * MS && lasted <= 400 * MS, "{lasted:?}");
    until(&mut world, State::ProbeRtt, 7 * SECOND);
    assert!(world.now.since(begun) >= 5 * SECOND);
}

/// Idleness has drained the queue as well: no ProbeRTT after it, and it goes on at the rate that it had.
#[test]
fn no_probe_rtt_after_idleness() {
    let mut world = bbr(PathConfig::new(50, 40));
    world.run(3 * SECOND);
    let now = world.now;
    world.flows[0].let_program(Program::Nothing, now);
    world.run(8 * SECOND);
    let (now, before) = (world.now, info(&world));
    world.flows[0].let_program(Program::Endless, now);
    world.measure();
    let seen = names(&states(&mut world, SECOND));
    assert!(!seen.contains(&State::ProbeRtt), "{seen:?}");
    assert_eq!(info(&world).max_bw * 10 / before.max_bw, 10, "{:?}", info(&world));
    assert!(world.utilisation() >= 85, "{}%", world.utilisation());
}

/// Acknowledgments in bursts: the window has room for them.
#[test]
fn aggregated_acknowledgments_do_not_stall_it() {
    let config = PathConfig { burst: Some(20 * MS), ..PathConfig::new(50, 20) };
    let mut world = bbr(config);
    world.run(3 * SECOND);
    assert!(info(&world).extra_acked > 0 && info(&world).max_bw <= config.rate * 11 / 10, "{:?}", info(&world));
    world.measure();
    world.run(10 * SECOND);
    assert!(world.utilisation() >= 90, "{}%", world.utilisation());
}

/// A path shorter than a segment: four segments keep it busy.
#[test]
fn a_path_of_less_than_a_segment() {
    let mut world = bbr(PathConfig { rate: 62_500, ..PathConfig::new(1, 10) });
    world.run(5 * SECOND);
    world.measure();
    world.run(20 * SECOND);
    assert!(world.flows[0].control.cwnd() >= 4 * MSS);
    assert!(world.utilisation() >= 90, "{}%", world.utilisation());
}

#[test]
fn ten_times_the_bandwidth_is_found() {
    let mut world = bbr(PathConfig { buffer: 1_000_000, ..PathConfig::new(10, 40) });
    world.run(5 * SECOND);
    world.path.config.rate *= 10;
    world.run(10 * SECOND);
    world.measure();
    world.run(2 * SECOND);
    assert!(world.utilisation() >= 85, "{}%", world.utilisation());
}

#[test]
fn a_tenth_of_the_bandwidth_is_found() {
    let mut world = bbr(PathConfig::new(100, 40));
    world.run(3 * SECOND);
    world.path.config.rate /= 10;
    world.path.config.buffer /= 10;
    world.run(10 * SECOND);
    let info = info(&world);
    assert!(info.max_bw <= world.path.config.rate * 12 / 10, "{info:?}");
    world.measure();
    world.run(10 * SECOND);
    assert!(world.utilisation() >= 80, "{}%", world.utilisation());
}

/// A policer drops what does not conform and queues next to nothing.
#[test]
fn a_policer_is_conformed_to() {
    let mut world = bbr(PathConfig { buffer: 30_000, ..PathConfig::new(50, 40) });
    world.run(5 * SECOND);
    world.measure();
    let sent = world.flows[0].transmissions;
    world.run(20 * SECOND);
    let lost = world.path.dropped * 1000 / (world.flows[0].transmissions - sent);
    assert!(world.utilisation() >= 75 && lost < 30, "{}%, {lost} of a thousand lost", world.utilisation());
}

/// What a recovery for nothing ended is taken up again, with the bounds that it lowered.
#[test]
fn a_recovery_for_nothing_is_undone() {
    let mut world = bbr(PathConfig::new(50, 40));
    world.run(SECOND);
    until(&mut world, State::ProbeBwUp, 10 * SECOND);
    let before = (info(&world).inflight_longterm, world.flows[0].control.cwnd());
    world.path.config.loss_ppm = 100_000;
    until(&mut world, State::ProbeBwDown, SECOND);
    assert!(info(&world).inflight_longterm.is_some());
    world.flows[0].control.on_undo(&Undo { now: world.now, flight: 0, acked: MSS, phase: Phase::Recovery });
    let after = info(&world);
    assert_eq!((after.state, after.inflight_longterm), (State::ProbeBwRefill, before.0));
    assert!(world.flows[0].control.cwnd() >= before.1);
}

/// The same of Startup, and of a timeout.
#[test]
fn a_timeout_for_nothing_in_startup_is_undone() {
    let mut world = bbr(PathConfig { loss_ppm: 150_000, ..PathConfig::new(100, 100) });
    until(&mut world, State::Drain, 20 * SECOND);
    assert!(info(&world).full_bw_reached);
    world.flows[0].control.on_undo(&Undo { now: world.now, flight: 0, acked: MSS, phase: Phase::Loss });
    let after = info(&world);
    assert_eq!((after.state, after.full_bw_reached, after.inflight_longterm), (State::Startup, false, None));
}
