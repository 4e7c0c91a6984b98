//! An interface of Linux that the card's port is plugged into, by AF_XDP (`ringway_xdp`): peers are whoever the network has. The card has what its flow rules name, and
//! RoCE's packets for the interface's address and for the groups that its queue pairs hear; all else is the kernel's, as at a card that is beside one.

pub(crate) mod flows;
mod groups;
mod neighbours;
pub(crate) mod port;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;

use ringway_preload::Errno;
use ringway_sim::connectx::packet::{Headers, UDP};
use ringway_sim::connectx::{offload, steering};
use ringway_stack::addr::MacAddr;
use ringway_stack::device::{
    ChecksumVerdict, Device as _, DeviceEvent, FiveTuple, FlowRule, HEAD_MAX, Protocol, QueueId, Queues as _, RuleError, RuleId, RxBatch,
    SendError, Target, TxBuffer as _, TxFrame, TxOffload, TxSlice, Wake,
};
use ringway_stack::roce::packet::UDP_PORT;
use ringway_stack::time::Instant;
use ringway_stack::wire::ethernet::{ETHERTYPE_IPV4, Header, LEN};
use ringway_xdp::{AttachError, Received, Settings, XdpDevice, XdpQueues};

use crate::log;
use groups::Group;
use neighbours::Neighbours;
use port::Port;
use waiting::Waiting;

/// Frames that are taken at a time.
const BATCH: usize = 64;

/// What comes by the interface.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A packet of RoCE for the card, from its IP header on.
    Packet(Vec<u8>),
    /// Another frame.
    Frame(Vec<u8>),
}

/// The port's end of it.
#[derive(Debug)]
pub(crate) struct Wire {
    port: &'static Port,
    queues: XdpQueues,
    batch: RxBatch<Received>,
    neighbours: Neighbours,
    /// What the interface steers here by the card's flow rules.
    flows: BTreeMap<FiveTuple, RuleId>,
    /// Frames for which the interface has no room yet.
    waiting: Waiting,
    /// Groups whose packets it brings.
    groups: BTreeMap<Ipv4Addr, Group>,
}

impl Wire {
    /// Plugs the card in.
    ///
    /// # Errors
    /// EBUSY: another program has the interface; EPERM: a capability is missing; ENODEV: it is no interface for this, or tells nothing. A line on standard error says why.
    pub(crate) fn plug_into(port: &'static Port) -> Result<Self, Errno> {
        let device = XdpDevice::attach(&Settings::new(&port.name)).map_err(|error| refused(port, &error))?;
        let queues = device.open_ring().map_err(|error| refused(port, &error))?;
        let neighbours = Neighbours::of(port).map_err(|error| {
            log::warn(format_args!("{}: {error}", port.name));
            Errno(libc::ENODEV)
        })?;
        let roce = FlowRule::flow(Protocol::Udp, SocketAddr::new(port.address.into(), UDP_PORT), None);
        device.attach(&roce, Target::Queue(QueueId(0))).map_err(|error| {
            log::warn(format_args!("{}: RoCE's packets are not to be had: {error}", port.name));
            Errno(libc::EBUSY)
        })?;
        let (flows, groups, waiting) = (BTreeMap::new(), BTreeMap::new(), Waiting::default());
        Ok(Self { port, queues, batch: RxBatch::new(BATCH), neighbours, flows, groups, waiting })
    }

    /// For a thread to wait on: readable when something has come, once it is [armed](Self::arm). Open as long as this is.
    pub(crate) fn wait_fd(&self) -> Option<RawFd> {
        self.queues.wait_fd()
    }

    /// Whether nothing has come yet: what comes from now on ends a wait.
    pub(crate) fn arm(&mut self) -> bool {
        self.queues.arm(Wake::Any)
    }

    /// Whether the interface has a carrier now, if that is news.
    pub(crate) fn carrier(&mut self, now: Instant) -> Option<bool> {
        self.neighbours.carrier(now)
    }

    /// Whether the interface is gone, or somebody else's program is in its front. Once.
    pub(crate) fn is_gone(&mut self) -> bool {
        matches!(self.queues.poll_event(), Some(DeviceEvent::Gone))
    }

    /// The card's flow rules are these now.
    ///
    /// # Errors
    /// EOPNOTSUPP: the interface cannot steer by one of them; ENOMEM: not by so many. Those of before steer on then.
    pub(crate) fn steer(&mut self, table: &steering::Table) -> Result<(), Errno> {
        let wanted = table.rules().map(flows::of).collect::<Option<BTreeSet<_>>>().ok_or(Errno(libc::EOPNOTSUPP))?;
        let device = self.queues.device().clone();
        for flow in &wanted {
            if self.flows.contains_key(flow) {
                continue;
            }
            let rule = FlowRule::flow(flow.protocol, flow.local, flow.remote);
            match device.attach(&rule, Target::Queue(QueueId(0))) {
                Ok(attached) => _ = self.flows.insert(*flow, attached.rule),
                Err(RuleError::Unsupported(_)) => return Err(Errno(libc::EOPNOTSUPP)),
                Err(_) => return Err(Errno(libc::ENOMEM)),
            }
        }
        self.flows.retain(|flow, rule| {
            let stays = wanted.contains(flow);
            if !stays {
                device.detach(*rule);
            }
            stays
        });
        Ok(())
    }

    /// These are the groups that are heard now. Those that the interface does not bring are said.
    pub(crate) fn hear(&mut self, wanted: &BTreeSet<IpAddr>) {
        let device = self.queues.device().clone();
        self.groups.retain(|group, heard| {
            let stays = wanted.contains(&IpAddr::V4(*group));
            if !stays {
                device.detach(heard.rule);
            }
            stays
        });
        for group in wanted {
            let IpAddr::V4(group) = *group else { continue };
            if self.groups.contains_key(&group) {
                continue;
            }
            let member = groups::join(self.port, group).map_err(|error| error.to_string());
            let rule = FlowRule::flow(Protocol::Udp, SocketAddr::new(group.into(), UDP_PORT), None);
            let heard = member.and_then(|member| {
                let attached = device.attach(&rule, Target::Queue(QueueId(0))).map_err(|error| error.to_string())?;
                Ok(Group { rule: attached.rule, _member: member })
            });
            match heard {
                Ok(heard) => _ = self.groups.insert(group, heard),
                Err(error) => log::warn(format_args!("{}: the group {group} is not heard: {error}", self.port.name)),
            }
        }
    }

    /// Takes what has come.
    pub(crate) fn receive(&mut self, now: Instant) -> Vec<Arrival> {
        self.batch.clear();
        self.queues.reap();
        self.queues.poll_rx(now, &mut self.batch);
        let port = self.port;
        let arrivals = self.batch.frames_mut().iter().map(|frame| arrival(port, frame.to_vec(), frame.meta.checksum)).collect();
        self.batch.clear();
        arrivals
    }

    /// Sends a frame, behind those that wait for room; it waits as well if there is none. One that is longer than the interface takes, or one too many, is lost.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        let mut waiting = core::mem::take(&mut self.waiting);
        if !waiting.put(frame, |frame| self.is_done_with(frame)) {
            log::say(format_args!("{}: a frame of {} bytes is lost: the interface has no room", self.port.name, frame.len()));
        }
        self.waiting = waiting;
    }

    /// Whether frames wait that are to leave soon.
    pub(crate) fn has_waiting(&self, now: Instant) -> bool {
        self.waiting.is_moving(now)
    }

    /// Whether so many do that no more are to be sent.
    pub(crate) fn is_full(&self, now: Instant) -> bool {
        self.waiting.is_full(now)
    }

    /// The port is down: what waits is lost.
    pub(crate) fn lose_waiting(&mut self) {
        self.waiting.clear();
    }

    /// Sends a frame; whether it need not wait for room. What was sent before leaves first if there is none.
    fn is_done_with(&mut self, frame: &[u8]) -> bool {
        let sent = self.try_send(frame).or_else(|error| match error {
            SendError::Full => {
                self.queues.doorbell();
                self.queues.reap();
                self.try_send(frame)
            }
            error => Err(error),
        });
        match sent {
            Ok(()) => true,
            Err(SendError::Full) => false,
            Err(error) => {
                log::say(format_args!("{}: a frame of {} bytes is lost: {error}", self.port.name, frame.len()));
                true
            }
        }
    }

    fn try_send(&mut self, frame: &[u8]) -> Result<(), SendError> {
        let (head, rest) = frame.split_at(frame.len().min(HEAD_MAX));
        let offload = TxOffload::default();
        if rest.is_empty() {
            self.queues.send(&TxFrame { head, body: &[], offload })
        } else {
            let mut buffer = self.queues.tx_alloc(rest.len()).ok_or(SendError::Full)?;
            if buffer.capacity() < rest.len() {
                return Err(SendError::TooLong);
            }
            buffer.write(0, rest);
            let body = [TxSlice { buffer: &buffer, offset: 0, len: rest.len() }];
            self.queues.send(&TxFrame { head, body: &body, offload })
        }
    }

    /// Sends a packet of RoCE, from its IP header on: at once, or as soon as it is known at which Ethernet address its next hop is.
    pub(crate) fn send_packet(&mut self, now: Instant, packet: &[u8]) {
        if let Some(mac) = groups::destination(packet).or_else(|| self.neighbours.resolve(now, packet)) {
            self.send(&framed(self.port, mac, packet));
        }
    }

    /// What was sent leaves; what waited for room, or for a neighbour that is known by now, does, too.
    pub(crate) fn flush(&mut self, now: Instant) {
        let mut waiting = core::mem::take(&mut self.waiting);
        waiting.flush(now, |frame| self.is_done_with(frame));
        self.waiting = waiting;
        for (mac, packet) in self.neighbours.resolved(now) {
            self.send(&framed(self.port, mac, &packet));
        }
        self.queues.doorbell();
    }
}

/// A packet of RoCE in a frame to its next hop.
fn framed(port: &Port, to: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; LEN];
    Header { dst: MacAddr(to), src: MacAddr(port.mac), vlan: None, ethertype: ETHERTYPE_IPV4 }.emit(&mut frame);
    frame.extend_from_slice(packet);
    frame
}

/// What a frame is for the card.
fn arrival(port: &Port, mut frame: Vec<u8>, checksum: ChecksumVerdict) -> Arrival {
    // A sender on this machine has left the sum to its device, and there was none: a card gets it filled in.
    if checksum == ChecksumVerdict::Good {
        offload::fill_transport_checksum(&mut frame);
    }
    let packet = Headers::parse(&frame).and_then(|headers| headers.ip).filter(|ip| {
        let to = frame.get(ip.l4 + 2..ip.l4 + 4);
        let is_ours = ip.dst[..4] == port.address.octets() || groups::is_group(&ip.dst);
        !ip.v6 && ip.protocol == UDP && !ip.fragment && is_ours && to == Some(&UDP_PORT.to_be_bytes()[..])
    });
    match packet.map(|ip| ip.at..ip.end) {
        Some(place) => Arrival::Packet(frame.drain(place).collect()),
        None => Arrival::Frame(frame),
    }
}

fn refused(port: &Port, error: &AttachError) -> Errno {
    log::warn(format_args!("the port is not plugged into {}: {error}", port.name));
    match error {
        AttachError::Taken { .. } => Errno(libc::EBUSY),
        AttachError::Memlock { .. } => Errno(libc::ENOMEM),
        AttachError::Refused(_) => Errno(libc::EPERM),
        _ => Errno(libc::ENODEV),
    }
}

#[cfg(test)]
mod tests {
    use ringway_sim::connectx::constants;

    use super::*;

    const PORT: Port = Port {
        name: String::new(),
        address: std::net::Ipv4Addr::new(10, 0, 0, 2),
        mac: [2, 0, 0, 0, 0, 2],
        mtu: 1500,
        link: ringway_stack::net::LinkId(1),
    };

    /// A UDP packet of IPv4 to that address and port, with its payload.
    fn packet(to: [u8; 4], port: u16, payload: &[u8]) -> Vec<u8> {
        let total = 28 + payload.len() as u16;
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1];
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet.extend(to);
        packet.extend([0xc0, 0]);
        packet.extend(port.to_be_bytes());
        packet.extend((8 + payload.len() as u16).to_be_bytes());
        packet.extend([0x12, 0x34]);
        packet.extend(payload);
        packet
    }

    #[test]
    fn packets_of_roce_for_the_port_are_told_from_frames() {
        let unknown = ChecksumVerdict::Unknown;
        let of = |bytes: &[u8]| framed(&PORT, PORT.mac, bytes);
        let ours = packet([10, 0, 0, 2], UDP_PORT, b"roce");
        // (With the padding of a short frame.)
        let padded = [of(&ours), vec![0; 14]].concat();
        assert!(matches!(arrival(&PORT, padded, unknown), Arrival::Packet(found) if found == ours));
        for other in [packet([10, 0, 0, 3], UDP_PORT, b"roce"), packet([10, 0, 0, 2], 53, b"name"), vec![0x45]] {
            let frame = of(&other);
            assert!(matches!(arrival(&PORT, frame.clone(), unknown), Arrival::Frame(found) if found == frame));
        }
    }

    #[test]
    fn a_checksum_that_was_left_to_a_device_is_filled_in() {
        let frame = framed(&PORT, PORT.mac, &packet([10, 0, 0, 2], 53, b"name"));
        let Arrival::Frame(found) = arrival(&PORT, frame.clone(), ChecksumVerdict::Good) else { panic!("a frame") };
        assert_ne!(found, frame);
        let is_good = |frame: &[u8]| offload::verdict(frame, &Headers::parse(frame).unwrap()).checks & constants::CQE_L4_OK != 0;
        assert!(!is_good(&frame) && is_good(&found));
    }
}
