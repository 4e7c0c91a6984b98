//! Two simulated NICs on one switch.

use core::time::Duration;
use std::net::Ipv4Addr;

use ringway_conformance::sentences::{Rig, Side};
use ringway_sim::{HostConfig, HostId, NicConfig, SimQueues, World, WorldConfig};
use ringway_stack::Instant;
use ringway_stack::device::{Capabilities, MacAddr, Queues, Unsupported};
use ringway_stack::raw::RawQueue;

/// Two hosts, whose own stacks have nothing to do with the cases.
pub(crate) struct SimRig<Q = SimQueues> {
    world: World,
    hosts: [HostId; 2],
    /// By side. The first ring is there from the start.
    rings: [Vec<RawQueue<Q>>; 2],
    /// What a case sees in a ring's place.
    wrap: Box<dyn Fn(SimQueues) -> Q>,
    capabilities: Capabilities,
}

impl SimRig {
    /// On NICs with this configuration.
    pub(crate) fn new(nic: NicConfig) -> Self {
        Self::wrapped(nic, |device| device)
    }
}

impl<Q: Queues> SimRig<Q> {
    /// On NICs with this configuration, but for two things: packets that were coalesced on receipt could not be told from packets that were
    /// never cut; and one more ring, since the host's stack has the first.
    pub(crate) fn wrapped(nic: NicConfig, wrap: impl Fn(SimQueues) -> Q + 'static) -> Self {
        let mut world = World::new(WorldConfig::seeded(3));
        let nic = NicConfig { lro: false, rings_max: nic.rings_max + 1, ..nic };
        let hosts = ["sender", "receiver"].map(|name| world.add_host(HostConfig::named(name).nic(nic.clone())));
        let rings = hosts.map(|host| vec![RawQueue::new(wrap(world.add_raw_ring(host)))]);
        let mut capabilities = rings[0][0].capabilities().clone();
        capabilities.rings_max -= 1;
        Self { world, hosts, rings, wrap: Box::new(wrap), capabilities }
    }
}

impl<Q: Queues> Rig for SimRig<Q> {
    type Queues = Q;

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn ring(&mut self, side: Side, index: usize) -> Result<&mut RawQueue<Q>, Unsupported> {
        if index >= self.capabilities.rings_max {
            return Err(self.capabilities.lacks("so many rings"));
        }
        while self.rings[side as usize].len() <= index {
            let ring = self.world.add_raw_ring(self.hosts[side as usize]);
            self.rings[side as usize].push(RawQueue::new((self.wrap)(ring)));
        }
        Ok(&mut self.rings[side as usize][index])
    }

    fn mac(&self, side: Side) -> MacAddr {
        self.rings[side as usize][0].mac()
    }

    /// Not the hosts' own: their stacks are not concerned.
    fn ip(&self, side: Side) -> Ipv4Addr {
        Ipv4Addr::new(198, 51, 100, 1 + side as u8)
    }

    fn now(&self) -> Instant {
        self.world.now()
    }

    fn run_for(&mut self, time: Duration) {
        // Both doorbells before the world looks at the queues.
        self.rings.iter_mut().flatten().for_each(RawQueue::flush);
        for host in self.hosts {
            self.world.call(host, |_| ());
        }
        self.world.run_for(time);
        self.rings.iter_mut().flatten().for_each(RawQueue::reap);
    }
}
