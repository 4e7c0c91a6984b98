//! Two adapters in software on a rig: their packets are frames on its device, and what is above them runs on any device that carries frames.
//!
//! Their time is the case's own: it passes when nothing is under way, so that a timeout is as long as it says on every device.

use core::time::Duration;
use std::net::{IpAddr, SocketAddrV4};

use anyhow::Result;
use ringway_stack::Instant;
use ringway_stack::device::{FlowRule, Protocol, TxOffload};
use ringway_stack::roce::{Node, NodeConfig};

use super::frames::{UDP_HEAD, be16};
use super::{Rig, Side};

/// The machine on each side: an adapter with connection management over it.
pub type Machine = Node<Vec<u8>>;

/// The machine that asks, and the one that serves.
pub const ASKS: usize = 0;
/// See there.
pub const SERVES: usize = 1;

/// Longer than most frames here are under way, and how often that is waited for.
const A_WHILE: Duration = Duration::from_micros(100);
const WAITS_MAX: usize = 500;
/// RoCEv2's port (IBTA spec, annex A17).
const ROCE_PORT: u16 = 4791;
/// Bytes of Ethernet's header.
const ETHERNET: usize = 14;

/// What stands above the adapters, and is looked after whenever something may have happened.
pub trait Above {
    /// Looks after one side; gives when to look again at the latest.
    fn look(&mut self, now: Instant, side: usize, node: &mut Machine) -> Option<Instant>;
}

/// Nothing stands above them.
impl Above for () {
    fn look(&mut self, _: Instant, _: usize, _: &mut Machine) -> Option<Instant> {
        None
    }
}

/// The two machines.
pub struct Machines<'a, R> {
    rig: &'a mut R,
    /// By side: [`ASKS`], [`SERVES`].
    pub nodes: [Machine; 2],
    /// Their addresses.
    pub addresses: [IpAddr; 2],
    /// The case's time.
    pub now: Instant,
    /// Nothing leaves any more.
    pub is_cut: bool,
    /// Packets that left, or would have.
    pub sent: usize,
}

impl<'a, R: Rig> Machines<'a, R> {
    /// On the rig's first rings.
    ///
    /// # Errors
    /// The device refuses the flow rules.
    pub fn new(rig: &'a mut R) -> Result<Self> {
        let sides = [Side::Sender, Side::Receiver];
        let addresses = sides.map(|side| IpAddr::V4(rig.ip(side)));
        for side in sides {
            let at = SocketAddrV4::new(rig.ip(side), ROCE_PORT);
            rig.ring(side, 0)?.steer(&FlowRule::flow(Protocol::Udp, at.into(), None))?;
        }
        rig.run_for(A_WHILE);
        let nodes = addresses.map(|address| Node::new(NodeConfig::new(address), 7));
        Ok(Self { rig, nodes, addresses, now: Instant::ZERO, is_cut: false, sent: 0 })
    }

    /// Carries packets until none is under way and `time` has passed.
    ///
    /// # Errors
    /// The device refuses a frame.
    pub fn run_for(&mut self, time: Duration, above: &mut impl Above) -> Result<()> {
        let end = self.now + time;
        loop {
            let mut next = self.look(above);
            let mut under_way = self.transmit()?;
            let mut waits = 0;
            while under_way > 0 && waits < WAITS_MAX {
                self.rig.run_for(A_WHILE);
                let arrived = self.deliver()?;
                (under_way, waits) = (under_way.saturating_sub(arrived), waits + 1);
                next = self.look(above);
                under_way += self.transmit()?;
            }
            let next = self.nodes.iter().filter_map(Node::deadline).chain(next).min().filter(|at| *at < end);
            let Some(at) = next else { break };
            self.now = self.now.max(at);
            self.nodes.iter_mut().for_each(|node| node.on_timer(at));
        }
        self.now = end;
        self.look(above);
        Ok(())
    }

    fn look(&mut self, above: &mut impl Above) -> Option<Instant> {
        let now = self.now;
        self.nodes.iter_mut().enumerate().filter_map(|(side, node)| above.look(now, side, node)).min()
    }

    /// Sends what there is to send; how many frames that was.
    fn transmit(&mut self) -> Result<usize> {
        let mut packet = vec![0; Machine::PACKET_MAX];
        let mut count = 0;
        for (side, from) in [(Side::Sender, ASKS), (Side::Receiver, SERVES)] {
            while let Some(len) = self.nodes[from].poll_transmit(self.now, &mut packet) {
                self.sent += 1;
                if self.is_cut {
                    continue;
                }
                let headers = if side == Side::Sender { self.rig.headers() } else { self.rig.headers().reversed() };
                let frame = [headers.ethernet(0x0800), packet[..len].to_vec()].concat();
                let (head, rest) = frame.split_at(UDP_HEAD);
                self.rig.ring(side, 0)?.send(head, rest, TxOffload::default())?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Takes what has arrived, to whom it is addressed; how many frames that was.
    fn deliver(&mut self) -> Result<usize> {
        let mut count = 0;
        for side in [Side::Sender, Side::Receiver] {
            for frame in self.rig.arrived(side, 0)? {
                let packet = frame.bytes.get(ETHERNET..).unwrap_or_default();
                let to = packet.get(16..20).map(|to| IpAddr::from([to[0], to[1], to[2], to[3]]));
                let Some(half) = (0..2).find(|half| to == Some(self.addresses[*half])) else { continue };
                if be16(&frame.bytes, ETHERNET + 22) == ROCE_PORT {
                    self.nodes[half].on_packet(self.now, packet);
                    count += 1;
                }
            }
        }
        Ok(count)
    }
}
