//! Two openings of a soft-RoCE device, each with an address of its own, in a guest of `cargo xtask vm`: by `conformance/tests/rxe.sh`.

use core::time::Duration;
use std::net::Ipv4Addr;

use ringway_conformance::sentences::{Rig, Side};
use ringway_host::Clock;
use ringway_rxe::{PacketSettings, RxeDevice, RxeQueues};
use ringway_stack::Instant;
use ringway_stack::device::{Capabilities, MacAddr, RxBatch, Unsupported};
use ringway_stack::raw::RawQueue;

/// In the environment: the addresses of the device's interface, of the sender and of the receiver.
const ADDRESSES: [&str; 2] = ["RINGWAY_VM_ADDRESS", "RINGWAY_TEST_SECOND"];

/// What an answer takes at most, if there is one.
const PATIENCE: Duration = Duration::from_secs(1);

/// Both hosts.
pub(crate) struct RxeRig {
    /// By side.
    rings: [RawQueue<RxeQueues>; 2],
    addresses: [Ipv4Addr; 2],
    clock: Clock,
}

impl RxeRig {
    pub(crate) fn new() -> Self {
        let addresses = ADDRESSES.map(|name| {
            let address = std::env::var(name).unwrap_or_else(|_| panic!("{name}: conformance/tests/rxe.sh says it"));
            address.parse().expect("an address of IPv4")
        });
        let rings = [0, 1].map(|_| {
            let queues = RxeDevice::open_device(&PacketSettings::new("rxe0")).and_then(|device| device.open_ring());
            RawQueue::new(queues.expect("a ring of rxe0"))
        });
        Self { rings, addresses, clock: Clock::system() }
    }
}

impl Rig for RxeRig {
    type Queues = RxeQueues;

    fn capabilities(&self) -> Capabilities {
        self.rings[0].capabilities().clone()
    }

    fn ring(&mut self, side: Side, index: usize) -> Result<&mut RawQueue<RxeQueues>, Unsupported> {
        if index > 0 {
            return Err(self.rings[0].capabilities().lacks("so many rings"));
        }
        Ok(&mut self.rings[side as usize])
    }

    fn mac(&self, side: Side) -> MacAddr {
        self.rings[side as usize].mac()
    }

    fn ip(&self, side: Side) -> Ipv4Addr {
        self.addresses[side as usize]
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    /// (Who is where is asked and answered by both ends, which look at that when they are polled; what comes stays in its ring.)
    fn run_for(&mut self, time: Duration) {
        self.rings.iter_mut().for_each(RawQueue::flush);
        let begin = self.clock.now();
        let mut end = begin + time;
        loop {
            let now = self.clock.now();
            if self.is_asking() && now.since(begin) < PATIENCE {
                // (What waits for an answer has not left yet.)
                end = now + time;
            }
            if now >= end {
                break;
            }
            for ring in &mut self.rings {
                ring.poll(now, &mut RxBatch::new(0));
            }
        }
        self.rings.iter_mut().for_each(RawQueue::reap);
    }
}

impl RxeRig {
    fn is_asking(&mut self) -> bool {
        self.rings.iter_mut().any(|ring| ring.queues_mut().waiting() > 0)
    }
}
