//! Two network namespaces and a cable between them.

use core::time::Duration;
use std::fs::File;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::process::Command;

use ringway_host::Clock;
use ringway_stack::Instant;
use ringway_stack::device::{Device as _, MacAddr, QueuesConfig};
use ringway_stack::ring::{NextHop, Ring, RingConfig};
use ringway_xdp::{Settings, XdpDevice, XdpQueues};

use crate::namespaces::{enter, ip, mac, new_namespace, offloads_off};

pub(crate) const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0a]);
pub(crate) const PEERS_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0b]);

/// What is waited for, at most.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a test in network namespaces of its thread's own, which end with it: over IPv4 and over IPv6, with a peer that leaves checksums to
/// its device, and with one that does not. It fails where CI is set and they may not be
/// had; elsewhere it says so.
pub(crate) fn in_worlds(test: impl Fn(&mut World) + Sync) {
    for (is_v6, offloads) in [(false, true), (true, true), (false, false), (true, false)] {
        let cable = Cable { is_v6, offloads, ..Cable::default() };
        in_world(cable, &Settings::new("a0"), |mut world| test(&mut world));
    }
}

/// The same in one of them, with a device that is attached with these settings.
pub(crate) fn in_world(cable: Cable, settings: &Settings, test: impl FnOnce(World) + Send) {
    let is_made = std::thread::scope(|scope| {
        let thread = scope.spawn(|| World::make(cable, settings).map(test).is_some());
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    if !is_made {
        assert!(std::env::var_os("CI").is_none(), "no network namespaces, or no ip(8), are to be had");
        eprintln!("left out: network namespaces need root, and ip(8)");
    }
}

/// What is between us and the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cable {
    pub(crate) is_v6: bool,
    /// The peer leaves checksums, and cutting, to its device.
    pub(crate) offloads: bool,
    /// Of each interface.
    pub(crate) queues: u32,
}

impl Default for Cable {
    fn default() -> Self {
        Self { is_v6: false, offloads: true, queues: 1 }
    }
}

pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) ring: Ring<XdpQueues>,
    pub(crate) device: XdpDevice,
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    /// Of the kernel beside the ring, and of the peer.
    pub(crate) here: File,
    pub(crate) there: File,
    next_port: u16,
}

impl World {
    fn make(Cable { is_v6, offloads, queues }: Cable, settings: &Settings) -> Option<Self> {
        let here = new_namespace()?;
        let there = new_namespace()?;
        Command::new("ip").arg("-V").output().ok()?;
        let (id, fd) = (std::process::id(), here.as_raw_fd());
        ip(&format!(
            "link add b0 address {} numrxqueues {queues} numtxqueues {queues} type veth peer name a0 address {} numrxqueues {queues} \
             numtxqueues {queues}\nlink set a0 netns /proc/{id}/fd/{fd}\n",
            mac(PEERS_MAC),
            mac(OUR_MAC)
        ));
        ip("link set lo up\nlink set b0 up\naddr add 10.77.0.2/24 dev b0\naddr add fd77::2/64 dev b0 nodad\n");
        if !offloads {
            offloads_off("b0");
        }
        enter(&here);
        ip("link set lo up\nlink set a0 up\naddr add 10.77.0.1/24 dev a0\naddr add fd77::1/64 dev a0 nodad\n");
        let [local, remote] = if is_v6 { ["fd77::1", "fd77::2"] } else { ["10.77.0.1", "10.77.0.2"] };
        let [local, remote] = [local, remote].map(|ip| ip.parse().expect("an address"));
        let device = XdpDevice::attach(settings).expect("an interface with XDP");
        let queues = device.open(&QueuesConfig::default()).expect("its first queue");
        let ring = Ring::new(queues, RingConfig { addresses: vec![local], ..RingConfig::default() }, [7; 32]);
        let world = Self { clock: Clock::system(), ring, device, local, remote, here, there, next_port: 5000 };
        world.await_carrier();
        Some(world)
    }

    /// The interfaces are up a little later than they are set so. (What the kernel beside the ring sends and hears meanwhile is its own.)
    fn await_carrier(&self) {
        let to = SocketAddr::new(self.remote, 9);
        for _ in 0..200 {
            match TcpStream::connect(to) {
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => return,
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        panic!("no way from {} to {}", self.local, self.remote);
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn hop() -> NextHop {
        NextHop::Station(PEERS_MAC)
    }

    /// An address of ours that nobody has.
    pub(crate) fn fresh(&mut self) -> SocketAddr {
        self.next_port += 1;
        SocketAddr::new(self.local, self.next_port)
    }

    /// Does something as the peer, in a thread of its own.
    pub(crate) fn as_peer<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> std::thread::JoinHandle<T> {
        let there = self.there.try_clone().expect("a descriptor");
        std::thread::spawn(move || {
            enter(&there);
            work()
        })
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
