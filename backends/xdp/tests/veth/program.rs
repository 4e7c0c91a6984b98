//! A program's sockets above the ring and the kernel, by the kernel's routes and neighbours.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringway_host::{KernelSocket, Monitor, Neighbours};
use ringway_stack::Error;
use ringway_stack::device::Protocol;
use ringway_stack::net::{LinkId, Query};
use ringway_stack::socket::{Caller, Choice, Env, FlowRing, Rings, Setup, Socket, SocketId};

use crate::world::{PATIENCE, World};

/// The one ring, whose number is zero.
struct One<'a>(&'a mut dyn FlowRing);

impl Rings for One<'_> {
    fn at(&mut self, number: u16) -> Option<&mut dyn FlowRing> {
        (number == 0).then_some(&mut *self.0)
    }
}

/// What the program's calls need beside a world.
pub(crate) struct Program {
    pub(crate) monitor: Monitor,
    neighbours: Neighbours,
    pub(crate) link: LinkId,
    choice: Choice,
    is_v6: bool,
    last: u64,
}

impl Program {
    pub(crate) fn new(world: &World) -> Self {
        let monitor = Monitor::open().expect("rtnetlink");
        let mut choice = Choice::new(0);
        let link = monitor.tables().link_named("a0").expect("our interface").id;
        choice.add(link, 0);
        Self { monitor, neighbours: Neighbours::new(link), link, choice, is_v6: world.link.local.is_ipv6(), last: 0 }
    }

    pub(crate) fn socket(&mut self, protocol: Protocol) -> Socket {
        let kernel = KernelSocket::open(protocol, self.is_v6).expect("a socket of the kernel's");
        self.last += 1;
        Socket::new(SocketId(self.last), Setup::new(protocol), Some(Box::new(kernel)))
    }

    pub(crate) fn id(&mut self) -> SocketId {
        self.last += 1;
        SocketId(self.last)
    }

    /// A call of the program's.
    pub(crate) fn call<T>(&mut self, world: &mut World, call: impl FnOnce(&mut Env<'_>) -> T) -> T {
        self.monitor.refresh().expect("rtnetlink");
        let (now, caller) = (world.clock.now(), Caller::default());
        let mut rings = One(&mut world.ring);
        let done = call(&mut Env { now, rings: &mut rings, tables: self.monitor.tables(), choice: &mut self.choice, caller });
        if self.neighbours.serve(now, &mut self.monitor, &mut world.ring).expect("rtnetlink") {
            world.ring.poll(now);
        }
        done
    }

    /// A call that is made again until it need not block.
    pub(crate) fn until<T>(&mut self, world: &mut World, what: &str, mut call: impl FnMut(&mut Env<'_>) -> Result<T, Error>) -> T {
        let end = world.now() + PATIENCE;
        loop {
            let now = world.now();
            world.ring.poll(now);
            match self.call(world, &mut call) {
                Err(Error::WouldBlock | Error::InProgress | Error::Already) => {}
                done => return done.unwrap_or_else(|error| panic!("{what}: {error}")),
            }
            assert!(now < end, "not within {PATIENCE:?}: {what}; {}", self.describe(world));
        }
    }

    /// What the ring and the kernel have of the peer.
    fn describe(&self, world: &World) -> String {
        let tables = self.monitor.tables();
        let neighbour = tables.neighbour(self.link, world.link.remote);
        let route = tables.route(&Query::to(world.link.remote));
        format!("{:?}, {:?}, {neighbour:?}, {route:?}", world.ring.queues().counters(), world.ring.counters())
    }

    pub(crate) fn any(&self) -> IpAddr {
        if self.is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
    }

    pub(crate) fn loopback(&self) -> IpAddr {
        if self.is_v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() }
    }
}
