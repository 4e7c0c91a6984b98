//! Two processes with several rings each, every one of which has a MAC address of its own, as a process's are on shared memory: their connections go over from ring to ring while data flow both
//! ways, each end for itself, and sometimes both at once. The other end is told where the connection is by a message beside the rings; until it follows, the
//! connection says nothing ([`ringway_stack::ring::Ring::tcp_keep_silent`]). The calls of the stack are those that `libvma.so` makes, in its order (`job.rs`).
//!
//! A world of its own, drawn from a seed: the network loses, doubles and reorders, processes are stopped for a while, one dies, rings are full, messages take
//! their time and answers are put off, and programs close, abort and half close what is silent. Beside the checkers of every world, of which `moves` is made for
//! it, its laws are:
//!
//! - streams are whole, unless a program or a process ended one early;
//! - the silence ends, a bound after the peer can be told, whether it follows or not;
//! - whatever is closed is given back, on all rings that it has been on.

mod channel;
mod end;
mod job;
mod process;

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::net::SocketAddr;
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::mutants::Mutant;
use ringway_stack::ring::RingConfig;

use crate::fabric::LinkConfig;
use crate::faults::{Episodes, Faults, HostFaults};
use crate::host::HostConfig;
use crate::nic::NicConfig;
use crate::random::{SplitMix, scale};
use crate::report::Report;
use crate::world::{HostId, World, WorldConfig};
use channel::Channel;
use process::{Process, Shared};

/// How long faults strike, and how long after that all programs must have finished.
const SAFETY: Duration = Duration::from_secs(5);
const LIVENESS: Duration = Duration::from_secs(300);
/// How long after that everything must be back: a timeout at its cap, and FIN-WAIT-2.
const WIND_DOWN: Duration = Duration::from_secs(300);

/// Where processes listen.
const PORT: u16 = 80;
/// Connections that each of them opens.
const CONNECTIONS: u16 = 5;

/// What is drawn for a run.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Of each process.
    rings: [u16; 2],
    latency: Duration,
    is_lossy: bool,
    pauses: bool,
    /// Which process dies, and when.
    dies: Option<(usize, Duration)>,
    /// How long after that its peer's rings are told.
    told_after: Duration,
    /// The most flows of a ring.
    flows_max: usize,
    /// Of a hundred rounds, so many send a connection over.
    moves: u64,
    /// How long a message takes at most, and how many of a hundred questions are put off.
    channel_delay_max: Duration,
    puts_off: u64,
    rcvbuf: Option<usize>,
    nodelay: bool,
}

/// Ends a run: a law was broken.
#[cold]
fn breach(law: impl core::fmt::Display) -> ! {
    panic!("checker moves: {law}")
}

fn draw(dice: &mut SplitMix) -> Plan {
    let mut below = |bound: u64| scale(dice.next(), bound);
    let micros = Duration::from_micros;
    Plan {
        rings: [2 + below(3) as u16, 2 + below(3) as u16],
        latency: Duration::from_nanos(500 + below(2) * below(100_000)),
        is_lossy: below(2) == 0,
        pauses: below(4) == 0,
        dies: (below(4) == 0).then(|| (below(2) as usize, micros(500 + below(30_000)))),
        told_after: micros(500 + below(2) * below(300_000)),
        flows_max: if below(3) == 0 { 4 + below(5) as usize } else { 1 << 10 },
        moves: [5, 20, 60, 100][below(4) as usize],
        channel_delay_max: micros([10, 100, 1_000, 20_000][below(4) as usize]),
        puts_off: [0, 0, 30, 80][below(4) as usize],
        rcvbuf: (below(2) == 0).then(|| 3_000 + below(30_000) as usize),
        nodelay: below(2) == 0,
    }
}

/// Plays a seed's story, and says what it came to.
///
/// # Panics
/// A law was broken.
pub fn play(seed: u64, mutant: Mutant) -> Report {
    play_in(&mut World::new(WorldConfig::seeded(seed)), seed, mutant)
}

/// As [`play`], in a new world, which is left for a look, however it ends.
///
/// # Panics
/// A law was broken.
pub fn play_in(world: &mut World, seed: u64, mutant: Mutant) -> Report {
    let mut dice = SplitMix(seed ^ 0x6d69_6772_6174_696f);
    let plan = draw(&mut dice);
    world.limit_events(20_000_000);
    let hosts = [0, 1].map(|machine| add_host(world, machine, &plan));
    infect(world, mutant);
    // Rings know each other by what processes tell.
    world.introduce_all();
    let heal_at = Instant::ZERO + SAFETY;
    let shared = Rc::new(Shared {
        channel: RefCell::new(Channel::new(dice.next(), plan.channel_delay_max, plan.puts_off)),
        listening: Cell::new(0),
        is_through: [Cell::new(false), Cell::new(false)],
        healed_at: heal_at,
    });
    let (ips, macs) = (hosts.map(|host| SocketAddr::new(world.host(host).ip(), PORT)), hosts.map(|host| world.host(host).mac()));
    let seed_of_programs = dice.next();
    for machine in 0..2 {
        world.add_machine(&hosts[machine..=machine], Process::new(machine, plan, seed_of_programs, ips, macs, &shared));
    }
    if let Some((machine, at)) = plan.dies {
        world.run_until(Instant::ZERO + at);
        let dead = world.kill(hosts[machine]);
        shared.channel.borrow_mut().is_dead = true;
        shared.is_through[machine].set(true);
        world.run_for(plan.told_after);
        shared.channel.borrow_mut().is_known_dead = true;
        world.tell_of_death(&dead);
    }
    let _ = world.run_until_finished(heal_at);
    world.run_until(heal_at);
    world.set_faults(false);
    if let Err(unfinished) = world.run_until_finished(heal_at + LIVENESS) {
        breach(format_args!("{unfinished}, {plan:?}"));
    }
    world.run_for(WIND_DOWN);
    for (outstanding, host) in world.outstanding().into_iter().zip(hosts) {
        let flows: usize = world.host(host).rings().iter().map(|ring| ring.occupied()).sum();
        if (outstanding.rules, outstanding.tx_buffers, outstanding.rx_buffers, flows) != (0, 0, 0, 0) {
            breach(format_args!("{flows} flows, and {outstanding:?}, are left behind of connections that are closed"));
        }
    }
    world.report()
}

fn add_host(world: &mut World, machine: usize, plan: &Plan) -> HostId {
    let lossy = Faults {
        loss_ppm: 20_000,
        duplication_ppm: 10_000,
        duplication_delay_max: Duration::from_micros(100),
        reordering_ppm: 20_000,
        reordering_delay_max: Duration::from_micros(100),
        ..Faults::default()
    };
    let pause = Episodes { every: Duration::from_millis(30), length_max: Duration::from_millis(200) };
    let ring = RingConfig { flows_max: plan.flows_max, time_wait: Duration::from_secs(1), reset_strangers: true, ..RingConfig::default() };
    world.add_host(HostConfig {
        nic: NicConfig { mac_per_ring: true, tells_finished: !plan.is_lossy, ..NicConfig::default() },
        link: LinkConfig { latency: plan.latency, faults: if plan.is_lossy { lossy } else { Faults::default() }, ..LinkConfig::default() },
        ring,
        rings: usize::from(plan.rings[machine]),
        first_ring: Some(0),
        faults: HostFaults { pause: if plan.pauses { pause } else { Episodes::default() }, ..HostFaults::default() },
        ..HostConfig::named(&format!("process {machine}"))
    })
}

#[cfg(feature = "mutants")]
fn infect(world: &mut World, mutant: Mutant) {
    world.infect(mutant);
}

#[cfg(not(feature = "mutants"))]
fn infect(_: &mut World, _: Mutant) {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reached::{Reached, State};

    /// What this world alone comes upon.
    const STATES: [State; 9] = [
        State::WentOver,
        State::Followed,
        State::SpokeAgain,
        State::BothWentOver,
        State::PeerDiedUntold,
        State::ClosedUntold,
        State::AbortedUntold,
        State::HalfClosedUntold,
        State::FoundNoRoom,
    ];

    #[test]
    fn connections_that_go_over_keep_their_laws() {
        let mut reached = Reached::default();
        let first = std::env::var("RINGWAY_MOVES").ok().and_then(|first| first.parse().ok()).unwrap_or(0);
        for seed in first..first + if cfg!(debug_assertions) { 40 } else { 400 } {
            let report = std::panic::catch_unwind(|| play(seed, Mutant::Healthy)).unwrap_or_else(|_| panic!("seed {seed}"));
            assert_eq!(play(seed, Mutant::Healthy), report, "seed {seed} plays twice alike");
            reached.add(&report.reached);
        }
        let missed: Vec<_> = reached.iter().filter(|&(state, count)| STATES.contains(&state) && count == 0).collect();
        println!("{:?}", reached.iter().filter(|(state, _)| STATES.contains(state)).collect::<Vec<_>>());
        // (Few seeds from elsewhere may come upon less.)
        assert!(missed.is_empty() || first > 0, "{missed:?}");
    }

    /// So many seeds may each of them live through; the table is the whole stack's, in `tests/mutants`.
    #[cfg(feature = "mutants")]
    #[test]
    fn every_mutant_of_theirs_is_caught() {
        let mut lived = Vec::new();
        for &mutant in Mutant::OF_MOVES {
            let (mut catchers, mut first) = (std::collections::BTreeSet::new(), None);
            for seed in 0..400 {
                if first.is_some() && seed >= 8 {
                    break;
                }
                let Err(failure) = std::panic::catch_unwind(|| play(seed, mutant)) else { continue };
                let message = failure.downcast_ref::<String>().cloned().unwrap_or_default();
                let checker = message.strip_prefix("checker ").and_then(|rest| rest.split(':').next());
                first = first.or(checker.map(|_| seed + 1));
                catchers.insert(checker.unwrap_or("(the scenario)").to_owned());
            }
            println!("{:22} {:>5}  {}", format!("{mutant:?}"), first.unwrap_or(0), Vec::from_iter(catchers).join(", "));
            lived.extend(first.is_none().then_some(mutant));
        }
        assert!(lived.is_empty(), "{lived:?} lived");
    }
}
