//! Our ring at one end of the cable.

use core::time::Duration;
use std::net::SocketAddr;

use ringway_host::Clock;
use ringway_stack::Instant;
use ringway_stack::device::{Device as _, QueuesConfig};
use ringway_stack::ring::{NextHop, Ring, RingConfig};
use ringway_xdp::{Settings, XdpDevice, XdpQueues};

use crate::link::{Cable, Link, PEERS_MAC};

/// What is waited for, at most.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a test in network namespaces of its thread's own, which end with it: over IPv4 and over IPv6, with a peer that leaves checksums to
/// its device, and with one that does not. It fails where CI is set and they may not be
/// had; elsewhere it says so.
pub(crate) fn in_worlds(test: impl Fn(&mut World) + Sync) {
    for (is_v6, offloads) in [(false, true), (true, true), (false, false), (true, false)] {
        let cable = Cable { is_v6, offloads, ..Cable::default() };
        // (In one of them the stack fills in all checksums, and in one the kernel does what the interface does not.)
        let settings = Settings { segmentation: true, checksums: offloads || is_v6, ..Settings::new("a0") };
        in_world(cable, &settings, |mut world| test(&mut world));
    }
}

/// The same in one of them, with a device that is attached with these settings.
pub(crate) fn in_world(cable: Cable, settings: &Settings, test: impl FnOnce(World) + Send) {
    in_world_with(cable, || XdpDevice::attach(settings).expect("an interface with XDP"), test);
}

/// The same, with a device that is attached in that way.
pub(crate) fn in_world_with(cable: Cable, attach: impl FnOnce() -> XdpDevice + Send, test: impl FnOnce(World) + Send) {
    on_link(cable, |link| test(World::of(link, attach())));
}

/// Runs a test at our end of a cable.
pub(crate) fn on_link(cable: Cable, test: impl FnOnce(Link) + Send) {
    let is_made = std::thread::scope(|scope| {
        let thread = scope.spawn(|| Link::make(cable).map(test).is_some());
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    if !is_made {
        assert!(std::env::var_os("CI").is_none(), "no network namespaces, or no ip(8), are to be had");
        eprintln!("left out: network namespaces need root, and ip(8)");
    }
}

pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) ring: Ring<XdpQueues>,
    pub(crate) device: XdpDevice,
    pub(crate) link: Link,
    next_port: u16,
}

impl World {
    fn of(link: Link, device: XdpDevice) -> Self {
        let queues = device.open(&QueuesConfig::default()).expect("its ring");
        let ring = Ring::new(queues, RingConfig { addresses: vec![link.local], ..RingConfig::default() }, [7; 32]);
        Self { clock: Clock::system(), ring, device, link, next_port: 5000 }
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn hop() -> NextHop {
        NextHop::Mac(PEERS_MAC)
    }

    /// An address of ours that nobody has.
    pub(crate) fn fresh(&mut self) -> SocketAddr {
        self.next_port += 1;
        SocketAddr::new(self.link.local, self.next_port)
    }

    /// Serves the ring until `done` gives something.
    pub(crate) fn until<T>(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        let end = self.now() + PATIENCE;
        loop {
            let now = self.now();
            self.ring.poll(now);
            if let Some(result) = done(self) {
                return result;
            }
            assert!(now < end, "not within {PATIENCE:?}: {what}; {:?}, {:?}", self.ring.queues().counters(), self.ring.counters());
        }
    }
}
