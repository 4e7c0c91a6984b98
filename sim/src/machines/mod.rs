//! Two machines of several NICs, with several rings on each, whose programs use sockets above all of them ([`ringway_stack::socket`]): listeners and datagram
//! sockets with flows in many rings and a part that is the kernel's, connections whose threads take turns, so that they migrate, routes that change,
//! rings that are full, rules that take a while, and a network that loses, doubles and reorders.
//!
//! A world of its own, drawn from a seed. Beside the checkers of every world, whose view is that of single rings, its laws (checker `sockets`) are:
//!
//! - streams are whole, however often they migrate, and end in order; a connection migrates with the very call that makes it due, and with no other; where the
//!   other ring has no room, it stays;
//! - a datagram socket in one ring of a link does so, too, unless something waits in the ring that it was in before: and on a network that keeps the order of
//!   frames, and loses and doubles none, all datagrams are read, each once, and those between two addresses in the order in which a ring sent them (between two
//!   rings' send queues, devices keep none);
//! - connections are accepted, and datagrams read, in the order in which they came, whichever ring they came to, and what the kernel has takes its turn
//!   from when it was found;
//! - a socket is ready to read if, and only if, one of its flows has something;
//! - a datagram leaves by the link, and from the address, that the tables name when it is sent;
//! - what fails to open leaves nothing open, and neither does what is closed.

mod beside;
mod end;
mod laws;
mod network;
mod peer;
mod turns;

use core::cell::Cell;
use core::time::Duration;
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::mutants::Mutant;
use ringway_stack::ring::RingConfig;

use crate::fabric::LinkConfig;
use crate::faults::Faults;
use crate::host::HostConfig;
use crate::nic::{NicConfig, NicFaults, Strength};
use crate::random::{SplitMix, scale};
use crate::world::{HostId, World, WorldConfig};
use network::Links;
use peer::{Peer, Senders};

/// How long faults strike, and how long after that all programs must have finished.
const SAFETY: Duration = Duration::from_secs(20);
const LIVENESS: Duration = Duration::from_secs(300);
/// How long after that everything must be back: a timeout at its cap, and FIN-WAIT-2.
const WIND_DOWN: Duration = Duration::from_secs(300);

/// What is drawn for a run.
#[derive(Clone, Copy, Debug)]
struct Plan {
    links: u8,
    rings: u16,
    /// Whether the network loses, doubles and reorders.
    is_lossy: bool,
    /// Whether rules are refused now and then, and how long others take.
    refuses: bool,
    rule_delay: Duration,
    /// The most flows of a ring.
    flows_max: usize,
    /// Calls in a row after which a connection migrates.
    ratio: u32,
    threads: u64,
    /// Listeners are in every ring, or in one of each link.
    spreads: bool,
    /// Sockets have a part that is the kernel's.
    has_kernel: bool,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Connections that were accepted.
    pub accepted: u64,
    /// Datagrams that were read.
    pub datagrams: u64,
    /// How often something was taken while another ring had something as well.
    pub merged: u64,
    /// How often connections went over to another ring.
    pub migrations: u64,
    /// How often one that was due found no room, or was between two rings.
    pub stayed: u64,
    /// How often datagram sockets went over to another ring.
    pub moved: u64,
    /// How many datagrams had yet to be read in the one before.
    pub left_behind: u64,
    /// How often one that was due stayed.
    pub kept: u64,
    /// What was taken of the kernel's.
    pub by_kernel: u64,
}

impl Told {
    fn add(&mut self, other: Self) {
        let Self { accepted, datagrams, merged, migrations, stayed, moved, left_behind, kept, by_kernel } = other;
        self.accepted += accepted;
        self.datagrams += datagrams;
        self.merged += merged;
        self.migrations += migrations;
        self.stayed += stayed;
        self.moved += moved;
        self.left_behind += left_behind;
        self.kept += kept;
        self.by_kernel += by_kernel;
    }
}

/// Ends a run: a law was broken.
#[cold]
fn breach(law: impl core::fmt::Display) -> ! {
    panic!("checker sockets: {law}")
}

fn draw(dice: &mut SplitMix) -> Plan {
    let mut below = |bound: u64| scale(dice.next(), bound);
    Plan {
        links: 2 + below(2) as u8,
        rings: 2 + below(2) as u16,
        is_lossy: below(2) == 0,
        refuses: below(3) == 0,
        rule_delay: Duration::from_micros(if below(3) == 0 { below(500) } else { 0 }),
        flows_max: if below(3) == 0 { 5 + below(3) as usize } else { 1 << 10 },
        ratio: below(5) as u32,
        threads: 2 + below(3),
        spreads: below(3) > 0,
        has_kernel: below(2) == 0,
    }
}

/// Plays a seed's story.
///
/// # Panics
/// A law was broken.
pub fn play(seed: u64, mutant: Mutant) -> Told {
    play_in(&mut World::new(WorldConfig::seeded(seed)), seed, mutant)
}

/// As [`play`], in a new world, which is left for a look, however it ends.
///
/// # Panics
/// A law was broken.
pub fn play_in(world: &mut World, seed: u64, mutant: Mutant) -> Told {
    let mut dice = SplitMix(seed ^ 0x6d61_6368_696e_6573);
    let plan = draw(&mut dice);
    world.limit_events(20_000_000);
    let links = [0, 1].map(|machine| Links { machine, count: plan.links });
    let hosts = links.map(|links| add_hosts(world, links, &plan));
    infect(world, mutant);
    // Who asks for an address is excused meanwhile, and so nothing is asked for.
    world.introduce_all();
    let stages = Rc::new(Cell::new([0; 2]));
    let senders = Senders::default();
    let told = links.map(|_| Rc::new(Cell::new(Told::default())));
    for machine in 0..2 {
        let peer = Peer::new(plan, links[machine], dice.next(), (&stages, &told[machine], &senders), mutant);
        world.add_machine(&hosts[machine], peer);
    }
    let heal_at = Instant::ZERO + SAFETY;
    let _ = world.run_until_finished(heal_at);
    world.run_until(heal_at);
    world.set_faults(false);
    if let Err(unfinished) = world.run_until_finished(heal_at + LIVENESS) {
        breach(format_args!("{unfinished}, {plan:?}"));
    }
    world.run_for(WIND_DOWN);
    for (outstanding, host) in world.outstanding().into_iter().zip(hosts.iter().flatten()) {
        let flows: usize = world.host(*host).rings().iter().map(|ring| ring.occupied()).sum();
        if (outstanding.rules, outstanding.tx_buffers, flows) != (0, 0, 0) {
            breach(format_args!("{flows} flows, and {outstanding:?}, are left behind of sockets that are closed"));
        }
    }
    let mut all = Told::default();
    told.iter().for_each(|told| all.add(told.get()));
    all
}

fn add_hosts(world: &mut World, links: Links, plan: &Plan) -> Vec<HostId> {
    let add = |link: u8| {
        let refused = Strength { ppm: if plan.refuses { 100_000 } else { 0 }, lasts_max: Duration::from_millis(2) };
        let faults = NicFaults { registration: refused, ..NicFaults::default() };
        let nic = NicConfig { rule_delay: plan.rule_delay, faults, ..NicConfig::default() };
        let lossy = Faults {
            loss_ppm: 20_000,
            duplication_ppm: 10_000,
            duplication_delay_max: Duration::from_micros(100),
            reordering_ppm: 20_000,
            reordering_delay_max: Duration::from_micros(100),
            ..Faults::default()
        };
        let link_config = LinkConfig { faults: if plan.is_lossy { lossy } else { Faults::default() }, ..LinkConfig::default() };
        let ring = RingConfig { flows_max: plan.flows_max, time_wait: Duration::from_secs(1), ..RingConfig::default() };
        world.add_host(HostConfig {
            ip: Some(links.own(link)),
            nic,
            link: link_config,
            ring,
            rings: usize::from(plan.rings),
            first_ring: Some(u16::from(link) * plan.rings),
            ..HostConfig::named(&format!("{}.{link}", links.machine))
        })
    };
    (0..plan.links).map(add).collect()
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

    #[test]
    fn sockets_over_several_rings_keep_their_laws() {
        let mut all = Told::default();
        for seed in 0..if cfg!(debug_assertions) { 30 } else { 100 } {
            let told = std::panic::catch_unwind(|| play(seed, Mutant::Healthy)).unwrap_or_else(|_| panic!("seed {seed}"));
            assert_eq!(play(seed, Mutant::Healthy), told, "seed {seed} plays twice alike");
            all.add(told);
        }
        println!("{all:?}");
        let Told { accepted, datagrams, merged, migrations, stayed, moved, left_behind, kept, by_kernel } = all;
        let least = [accepted, datagrams, merged, migrations, stayed, moved, left_behind, kept, by_kernel].into_iter().min();
        assert!(least > Some(20), "{all:?}");
    }
}
