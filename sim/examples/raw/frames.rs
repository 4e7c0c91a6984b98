//! What the raw-Ethernet examples share: two simulated hosts with a raw queue each, and the headers that a program supplies itself.
#![allow(dead_code, reason = "each example uses its part")]

use core::time::Duration;
use std::error::Error;
use std::net::Ipv4Addr;

use ringway_sim::{HostConfig, HostId, NicConfig, SimQueues, SimRx, World, WorldConfig};
use ringway_stack::device::{MacAddr, RxBatch, RxFrame};
use ringway_stack::raw::RawQueue;

/// What an example comes to.
pub(crate) type Done = Result<(), Box<dyn Error>>;

/// The sender's address.
pub(crate) const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The receiver's address.
pub(crate) const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Bytes of Ethernet, IPv4 and UDP headers: where a datagram's payload begins.
pub(crate) const UDP_HEAD: usize = 42;
/// Bytes of Ethernet, IPv4 and TCP headers.
pub(crate) const TCP_HEAD: usize = 54;

/// A frame as it was received.
pub(crate) struct Received {
    /// When its last bit arrived, in microseconds of virtual time.
    pub(crate) at_us: u64,
    /// The flow tag of the rule that matched.
    pub(crate) tag: u32,
    /// All of it, from the Ethernet header on.
    pub(crate) bytes: Vec<u8>,
}

/// Two hosts, and a raw queue on each.
pub(crate) struct Pair {
    world: World,
    hosts: [HostId; 2],
    macs: [MacAddr; 2],
    /// The sender's queue.
    pub(crate) from: RawQueue<SimQueues>,
    /// The receiver's queue: it gets what is steered to it.
    pub(crate) to: RawQueue<SimQueues>,
}

impl Pair {
    /// On NICs with everything but receive coalescing, which would hide how packets were cut.
    pub(crate) fn new() -> Self {
        let mut world = World::new(WorldConfig::seeded(1));
        let nic = NicConfig { lro: false, ..NicConfig::full() };
        let hosts = ["sender", "receiver"].map(|name| world.add_host(HostConfig::named(name).nic(nic.clone())));
        let macs = hosts.map(|host| world.host(host).mac());
        let [from, to] = hosts.map(|host| RawQueue::new(world.add_raw_ring(host)));
        Self { world, hosts, macs, from, to }
    }

    /// One more queue of the sender's.
    pub(crate) fn another_sender(&mut self) -> RawQueue<SimQueues> {
        RawQueue::new(self.world.add_raw_ring(self.hosts[0]))
    }

    /// One more queue of the receiver's.
    pub(crate) fn another_receiver(&mut self) -> RawQueue<SimQueues> {
        RawQueue::new(self.world.add_raw_ring(self.hosts[1]))
    }

    /// Ethernet and IPv4 headers for `len` bytes behind them; the checksum is left to the NIC.
    fn ip(&self, tos: u8, protocol: u8, len: usize) -> Vec<u8> {
        let total_len = u16::try_from(20 + len).expect("an IPv4 packet is shorter than 64 KiB");
        let mut head = [&self.macs[1].0[..], &self.macs[0].0, &[8, 0, 0x45, tos]].concat();
        head.extend(total_len.to_be_bytes());
        head.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
        head.extend(A.octets().iter().chain(&B.octets()));
        head
    }

    /// All headers of a UDP datagram of `len` bytes of payload, for `port`, with this type of service. No checksum: zero says so.
    pub(crate) fn udp(&self, tos: u8, len: usize, port: u16) -> Vec<u8> {
        let mut head = self.ip(tos, 17, 8 + len);
        let udp_len = u16::try_from(8 + len).expect("it fits into its IPv4 packet");
        for field in [5_000, port, udp_len, 0] {
            head.extend(field.to_be_bytes());
        }
        head
    }

    /// All headers of a TCP segment with sequence number `seq` and `len` bytes of payload, from port 8080 to port 80, with PSH and ACK.
    pub(crate) fn tcp(&self, seq: u32, len: usize) -> Vec<u8> {
        let mut head = self.ip(0, 6, 20 + len);
        head.extend([0x1f, 0x90, 0, 80]);
        head.extend(seq.to_be_bytes());
        head.extend([0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        head
    }

    /// Hands the sender's queue to the hardware, lets `time` pass, and gives what has arrived on the receiver's.
    pub(crate) fn exchange(&mut self, time: Duration) -> Vec<Received> {
        let from = &mut self.from;
        self.world.call(self.hosts[0], |_| from.flush());
        self.world.run_for(time);
        self.from.reap();
        self.poll_own()
    }

    /// What has arrived on another queue of the receiver's.
    pub(crate) fn poll(&self, queue: &mut RawQueue<SimQueues>) -> Vec<Received> {
        let mut batch = RxBatch::<SimRx>::new(64);
        queue.poll(self.world.now(), &mut batch);
        batch.frames_mut().iter().map(received).collect()
    }

    fn poll_own(&mut self) -> Vec<Received> {
        let mut batch = RxBatch::<SimRx>::new(64);
        self.to.poll(self.world.now(), &mut batch);
        batch.frames_mut().iter().map(received).collect()
    }
}

fn received(frame: &RxFrame<SimRx>) -> Received {
    let bytes = frame.to_vec();
    let at_us = frame.meta.hardware_time.map_or(0, |at| at.as_nanos() / 1_000);
    Received { at_us, tag: frame.meta.flow_tag, bytes }
}
