//! Interfaces: the two ends of a veth pair, each in a network namespace of its own.

use core::time::Duration;
use std::net::Ipv4Addr;

use ringway_conformance::sentences::{Rig, Side};
use ringway_host::Clock;
use ringway_stack::Instant;
use ringway_stack::device::{Capabilities, MacAddr, Unsupported};
use ringway_stack::raw::RawQueue;
use ringway_xdp::{Settings, XdpDevice, XdpQueues};

use crate::cable::{Cable, End};

/// Both hosts.
pub(crate) struct XdpRig {
    sender: RawQueue<XdpQueues>,
    receiver: RawQueue<XdpQueues>,
    clock: Clock,
    cable: Cable,
}

impl XdpRig {
    pub(crate) fn new() -> Self {
        Self::with(false)
    }

    /// The sender has the kernel cut what is longer than the MTU; the receiver sees the frames that are on the wire.
    pub(crate) fn cutting() -> Self {
        Self::with(true)
    }

    fn with(cuts: bool) -> Self {
        let cable = Cable::lay();
        let [sender, receiver] = [(&cable.asks, cuts), (&cable.serves, false)].map(|(end, segmentation)| {
            let settings = Settings { segmentation, ..Settings::new(end.interface) };
            let queues = end.within(|| XdpDevice::attach(&settings).and_then(|device| device.open_ring()));
            RawQueue::new(queues.expect("an interface with XDP"))
        });
        Self { sender, receiver, clock: Clock::system(), cable }
    }

    fn end(&self, side: Side) -> &End {
        match side {
            Side::Sender => &self.cable.asks,
            Side::Receiver => &self.cable.serves,
        }
    }
}

impl Rig for XdpRig {
    type Queues = XdpQueues;

    fn capabilities(&self) -> Capabilities {
        self.sender.capabilities().clone()
    }

    fn ring(&mut self, side: Side, index: usize) -> Result<&mut RawQueue<XdpQueues>, Unsupported> {
        if index > 0 {
            return Err(self.receiver.capabilities().lacks("so many rings"));
        }
        Ok(match side {
            Side::Sender => &mut self.sender,
            Side::Receiver => &mut self.receiver,
        })
    }

    fn mac(&self, side: Side) -> MacAddr {
        match side {
            Side::Sender => self.sender.mac(),
            Side::Receiver => self.receiver.mac(),
        }
    }

    fn ip(&self, side: Side) -> Ipv4Addr {
        self.end(side).v4
    }

    fn leaves_checksums(&self) -> bool {
        self.capabilities().tso_max.is_some()
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    /// (The kernel delivers what is handed over in the call itself, or soon after.)
    fn run_for(&mut self, time: Duration) {
        for queue in [&mut self.sender, &mut self.receiver] {
            queue.flush();
        }
        let end = self.clock.now() + time;
        while self.clock.now() < end {
            core::hint::spin_loop();
        }
        for queue in [&mut self.sender, &mut self.receiver] {
            queue.reap();
        }
    }
}
