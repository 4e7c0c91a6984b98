//! Shared memory: one member that reaches itself, so that no second process or thread is needed.

use core::sync::atomic::{AtomicU8, Ordering};
use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process;
use std::sync::Arc;

use ringway_conformance::sentences::{Rig, Side};
use ringway_shm::{Rendezvous, Settings, ShmQueues, attach};
use ringway_stack::Instant;
use ringway_stack::device::{Capabilities, FlowRule, MacAddr, Protocol, Unsupported};
use ringway_stack::raw::RawQueue;

/// Both hosts.
pub(crate) struct ShmRig {
    queue: RawQueue<ShmQueues>,
    ip: Ipv4Addr,
    _rendezvous: Arc<Rendezvous>,
}

impl ShmRig {
    pub(crate) fn new() -> Self {
        let settings = Settings { pool_bytes: 8 << 20, peers_max: 4, ..Settings::default() };
        let (device, rendezvous) = attach(&settings).expect("shared memory can be had");
        // The channel to itself is made by looking itself up.
        let ip = own_ip();
        let address = SocketAddrV4::new(ip, 1);
        let mut queue = RawQueue::new(device);
        let rule = queue.steer(&FlowRule::flow(Protocol::Udp, address.into(), None)).expect("an address of this process alone");
        rendezvous.resolve(Protocol::Udp, address).expect("no system error").expect("itself");
        queue.unsteer(rule.rule);
        Self { queue, ip, _rendezvous: rendezvous }
    }
}

impl Rig for ShmRig {
    type Queues = ShmQueues;

    fn capabilities(&self) -> Capabilities {
        self.queue.capabilities().clone()
    }

    fn ring(&mut self, _: Side, index: usize) -> Result<&mut RawQueue<ShmQueues>, Unsupported> {
        if index > 0 {
            return Err(self.queue.capabilities().lacks("so many rings"));
        }
        Ok(&mut self.queue)
    }

    fn mac(&self, _: Side) -> MacAddr {
        self.queue.mac()
    }

    fn ip(&self, side: Side) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.ip.to_bits() + side as u32)
    }

    /// Nothing here is timed.
    fn now(&self) -> Instant {
        Instant::ZERO
    }

    fn run_for(&mut self, _: Duration) {
        self.queue.flush();
        self.queue.reap();
    }
}

/// A loopback address that no other test uses at the same time, of this process (whose tests are threads) or of another, nor the one after it.
fn own_ip() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let [_, _, high, low] = process::id().to_be_bytes();
    Ipv4Addr::new(127, high, low, 3 + 2 * (NEXT.fetch_add(1, Ordering::Relaxed) % 100))
}
