//! RoCE's packets on an interface, for one process or for several.
//!
//! All of them come to one UDP port. Which process one is for, the number of its queue pair says: of 24 bits, the highest five are the process's [`Seat`]. The first process has its
//! program in front of the interface, which gives it what is for its seat ([`crate::XdpQueues`]). All else goes on to the kernel, where each process has a packet socket
//! (`packets`) whose filter takes what is for its seat, and what is for all of them: connection management (queue pair 1), and datagrams to groups, those that another of these processes sends included. So nobody is between a
//! process and its peers, and one that is stopped or killed holds up no other. A further process is as fast as a packet socket is.
//!
//! Who has which seat and which port of RDMA-CM's, the kernel's table of abstract Unix names says ([`Seat`], [`Ports`]), which forgets the names of a process that ends.

mod filter;
mod packets;
mod seat;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use ringway_host::{CardSleep, Lender, SendBuffer, SendMemory};
use ringway_stack::device::{
    Attached, Capabilities, Device, DeviceEvent, FlowRule, MacAddr, OpenError, Protocol, QueueId, Queues, QueuesConfig, RuleError, RuleId,
    RxBatch, SendError, Target, TxFrame, Wake,
};
use ringway_stack::offload::DeviceKind;
use ringway_stack::roce::packet::UDP_PORT;
use ringway_stack::time::Instant;

use self::packets::Packets;
pub use self::seat::{Ports, Seat};
use crate::card::XdpDevice;
use crate::error::AttachError;
use crate::interface::Interface;
use crate::queues::XdpQueues;
use crate::settings::Settings;
use crate::umem::Received;

/// Frames of the packet socket's that are taken before those that are this process's alone.
const PACKETS_MAX: usize = 8;

/// The interface, as far as RoCE's packets go.
#[derive(Clone, Debug)]
pub struct RoceDevice {
    capabilities: Arc<Capabilities>,
    /// What has the program in front of it; none: another process has.
    xdp: Option<XdpDevice>,
    /// None: all of RoCE is this process's.
    seat: Option<u8>,
}

impl RoceDevice {
    /// Has what is sent to this address, one of the interface's, come here.
    ///
    /// # Errors
    /// [`RuleError`].
    pub fn hear(&self, address: IpAddr) -> Result<RuleId, RuleError> {
        let anybody: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let seat = self.seat.map(|mark| SocketAddr::new(anybody, mark.into()));
        let rule = FlowRule::flow(Protocol::Udp, SocketAddr::new(address, UDP_PORT), seat);
        Ok(self.attach(&rule, Target::Queue(QueueId(0)))?.rule)
    }

    /// As [`XdpDevice::lender`].
    pub fn lender(&self) -> Option<Arc<dyn Lender>> {
        self.xdp.as_ref()?.lender()
    }

    /// Whether frames come and go by AF_XDP, and not by a packet socket alone.
    pub const fn is_fast(&self) -> bool {
        self.xdp.is_some()
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct RoceQueues {
    device: RoceDevice,
    /// Its name and index.
    interface: (String, u32),
    mac: MacAddr,
    xdp: Option<XdpQueues>,
    packets: Option<Packets>,
    /// Another program has come in front of the interface.
    is_displaced: bool,
    sleep: CardSleep,
    memory: Arc<SendMemory>,
}

impl RoceQueues {
    /// Of a process with this seat, beside others. Where the interface cannot have a program of this process's in front of it, which is said why, all goes by a packet socket.
    ///
    /// # Errors
    /// [`AttachError`]: no packet socket is to be had.
    pub fn beside_others(settings: &Settings, seat: &Seat) -> Result<(Self, Option<AttachError>), AttachError> {
        let interface = Interface::find(&settings.interface)?;
        let packets = Packets::open(&interface, seat.mark(), settings.copied_frames)?;
        let xdp = XdpDevice::attach(settings).and_then(|device| device.open_ring());
        let (xdp, why_not) = match xdp {
            Ok(queues) => (Some(queues), None),
            Err(error) => (None, Some(error)),
        };
        Ok((Self::new(settings, &interface, xdp, Some(packets), Some(seat.mark()))?, why_not))
    }

    /// Of the only process that has RoCE's packets on the interface.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn alone(settings: &Settings) -> Result<Self, AttachError> {
        let queues = XdpDevice::attach(settings)?.open_ring()?;
        Self::new(settings, &Interface::find(&settings.interface)?, Some(queues), None, None)
    }

    /// The same, by a broker that listens there.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn alone_by(broker: &Path, settings: &Settings) -> Result<Self, AttachError> {
        let queues = XdpDevice::attach_by(broker, settings)?.open_ring()?;
        Self::new(settings, &Interface::find(&settings.interface)?, Some(queues), None, None)
    }

    fn new(
        settings: &Settings,
        interface: &Interface,
        xdp: Option<XdpQueues>,
        packets: Option<Packets>,
        seat: Option<u8>,
    ) -> Result<Self, AttachError> {
        let frames = xdp.as_ref().and_then(Queues::wait_fd).into_iter().chain(packets.as_ref().map(Packets::fd));
        let sleep = CardSleep::new(frames, &[]).map_err(AttachError::system("epoll"))?;
        let capabilities = match &xdp {
            Some(queues) => queues.capabilities().clone(),
            None => Capabilities {
                gather_max: ringway_stack::device::GATHER_LIMIT,
                is_beside_kernel: true,
                ..Capabilities::least(DeviceKind::Xdp, interface.mtu)
            },
        };
        let device = RoceDevice { capabilities: Arc::new(capabilities), xdp: xdp.as_ref().map(|queues| queues.device().clone()), seat };
        let memory = SendMemory::new(settings.send_bytes);
        Ok(Self {
            device,
            interface: (settings.interface.clone(), interface.index),
            mac: interface.mac,
            xdp,
            packets,
            is_displaced: false,
            sleep,
            memory,
        })
    }

    /// Whether the interface is there, whoever is in front of it.
    fn has_interface(&self) -> bool {
        Interface::find(&self.interface.0).is_ok_and(|found| found.index == self.interface.1)
    }

    /// Whether what is this process's alone comes and goes by AF_XDP.
    const fn is_fast(&self) -> bool {
        self.xdp.is_some() && !self.is_displaced
    }

    /// Whether there is a packet socket, by which groups are heard.
    pub const fn has_packets(&self) -> bool {
        self.packets.is_some()
    }
}

impl Queues for RoceQueues {
    type Device = RoceDevice;
    type Rx = Received;
    type Tx = SendBuffer;

    fn device(&self) -> &RoceDevice {
        &self.device
    }

    fn mac(&self) -> MacAddr {
        self.mac
    }

    fn poll_rx(&mut self, now: Instant, batch: &mut RxBatch<Received>) -> usize {
        let (before, is_fast) = (batch.len(), self.is_fast());
        if let Some(packets) = &mut self.packets {
            // (However many come for all processes, what comes for this one has its share.)
            packets.receive(batch, if is_fast { PACKETS_MAX } else { usize::MAX });
        }
        if let Some(queues) = &mut self.xdp {
            queues.poll_rx(now, batch);
        }
        batch.len() - before
    }

    fn rx_ready(&self) -> bool {
        self.packets.as_ref().is_some_and(Packets::has_some) || self.xdp.as_ref().is_some_and(Queues::rx_ready)
    }

    fn deadline(&self) -> Option<Instant> {
        self.xdp.as_ref().and_then(Queues::deadline)
    }

    fn tx_alloc(&mut self, len: usize) -> Option<SendBuffer> {
        match &mut self.xdp {
            Some(queues) => queues.tx_alloc(len),
            None => self.memory.take(len),
        }
    }

    fn send(&mut self, frame: &TxFrame<'_, SendBuffer>) -> Result<(), SendError> {
        // (What is for a group other processes' packet sockets see as well, which goes by one.)
        let is_to_group = frame.head.first().is_some_and(|first| first & 1 != 0);
        let is_fast = self.is_fast();
        match (&mut self.xdp, &self.packets) {
            (Some(_), Some(packets)) if is_to_group || !is_fast => packets.send(frame),
            (Some(queues), _) => queues.send(frame),
            (None, Some(packets)) => packets.send(frame),
            (None, None) => Err(SendError::NoPeer),
        }
    }

    fn doorbell(&mut self) {
        if let Some(queues) = &mut self.xdp {
            queues.doorbell();
        }
    }

    fn reap(&mut self) {
        if let Some(queues) = &mut self.xdp {
            queues.reap();
        }
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        match self.xdp.as_mut()?.poll_event()? {
            // (Another program is in front of the interface: what that lets through comes by the packet socket.)
            DeviceEvent::Gone if self.packets.is_some() && self.has_interface() => {
                tracing::warn!("an interface has another program in front of it; rsockets go by a packet socket");
                self.is_displaced = true;
                None
            }
            event => Some(event),
        }
    }

    fn arm(&mut self, wake: Wake) -> bool {
        if let Some(packets) = &self.packets {
            packets.forget_error();
        }
        if self.rx_ready() || self.xdp.as_mut().is_some_and(|queues| !queues.arm(wake)) {
            return false;
        }
        self.sleep.set_armed(true);
        // (What came meanwhile makes it readable at once.)
        true
    }

    fn disarm(&mut self) {
        self.sleep.set_armed(false);
        if let Some(queues) = &mut self.xdp {
            queues.disarm();
        }
    }

    fn wait_fd(&self) -> Option<i32> {
        Some(self.sleep.fd())
    }
}

impl Device for RoceDevice {
    type Queues = RoceQueues;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open(&self, _: &QueuesConfig) -> Result<RoceQueues, OpenError> {
        Err(OpenError::Full)
    }

    /// (The packet socket's filter needs no rules.)
    fn attach(&self, rule: &FlowRule, target: Target) -> Result<Attached, RuleError> {
        match &self.xdp {
            Some(device) => device.attach(rule, target),
            None => Ok(Attached { rule: RuleId(0), is_ready: true }),
        }
    }

    fn retarget(&self, rule: RuleId, target: Target, tag: u32) -> Result<(), RuleError> {
        self.xdp.as_ref().map_or(Ok(()), |device| device.retarget(rule, target, tag))
    }

    fn detach(&self, rule: RuleId) {
        if let Some(device) = &self.xdp {
            device.detach(rule);
        }
    }
}
