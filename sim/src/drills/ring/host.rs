//! A host on the bench: its ring, the frames both ways, and what a drill asks and does again and again.

use core::cell::RefCell;
use core::fmt;
use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use ringway_stack::device::{ChecksumVerdict, MacAddr};
use ringway_stack::ring::{Datagram, FlowId, NextHop, Readiness, RecvFlags, Ring, RingConfig, UdpOptions};
use ringway_stack::{Error, Instant};

use super::adapter::{Adapter, Port};
use crate::addresses::v4;
use crate::checksum;
use crate::dissect::{self, Ip, Payload, UDP, be16};
use crate::drills::bench::{Bench, Line};
use crate::drills::card::{OWN, PEER};

pub(super) const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
/// The stack's addresses.
pub(super) const OURS: [Ipv4Addr; 3] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 11), Ipv4Addr::new(10, 0, 0, 21)];
/// A peer's.
pub(super) const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(super) const IGMP: u8 = 2;
pub(super) const ICMP: u8 = 1;
/// More polls than any drill needs.
const POLLS_MAX: u32 = 500_000;

/// How its neighbours are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// By their MAC addresses.
    Direct,
    /// By ARP.
    Asked,
}

/// A frame that the stack sent, and when.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) at: Instant,
    pub(super) bytes: Vec<u8>,
}

impl Sent {
    pub(super) fn ip(&self) -> Option<Ip> {
        match dissect::payload(&self.bytes) {
            Payload::Ip(ip) => Some(ip),
            _ => None,
        }
    }

    /// Whether it is a packet of that protocol.
    pub(super) fn is(&self, protocol: u8) -> bool {
        self.ip().is_some_and(|ip| ip.protocol == protocol)
    }

    /// What follows the UDP header.
    pub(super) fn datagram(&self) -> Option<(SocketAddrV4, SocketAddrV4, &[u8])> {
        let ip = self.ip().filter(|ip| ip.protocol == UDP)?;
        let (from, to) = dissect::ports(&self.bytes, &ip)?;
        Some((v4(from), v4(to), &self.bytes[ip.l4 + 8..ip.end]))
    }

    /// An ARP packet: its operation, sender's MAC and IP address, target's MAC and IP address.
    pub(super) fn arp(&self) -> Option<(u16, MacAddr, Ipv4Addr, MacAddr, Ipv4Addr)> {
        let Payload::Lookup(_) = dissect::payload(&self.bytes) else { return None };
        let at = dissect::ETHERNET_LEN;
        let (bytes, mac, ip) = (&self.bytes, dissect::mac_at, dissect::ip_at);
        Some((be16(bytes, at + 6)?, mac(bytes, at + 8)?, ip(bytes, at + 14)?, mac(bytes, at + 18)?, ip(bytes, at + 24)?))
    }

    pub(super) fn to_mac(&self) -> MacAddr {
        dissect::mac_at(&self.bytes, 0).unwrap_or_default()
    }

    pub(super) fn sender_mac(&self) -> MacAddr {
        dissect::mac_at(&self.bytes, 6).unwrap_or_default()
    }

    /// Time to live, and type of service.
    pub(super) fn ttl_and_tos(&self) -> Option<(u8, u8)> {
        self.ip().map(|ip| (self.bytes[ip.offset + 8], self.bytes[ip.offset + 1]))
    }
}

/// The host.
pub(super) struct Host<'b> {
    pub(super) bench: &'b mut Bench,
    pub(super) ring: Ring<Adapter>,
    pub(super) port: Rc<RefCell<Port>>,
    pub(super) now: Instant,
    events: Vec<(FlowId, Readiness)>,
    sent: Vec<Sent>,
    polls: u32,
}

pub(super) fn address(last: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), port)
}

impl<'b> Host<'b> {
    pub(super) fn new(bench: &'b mut Bench, link: Link) -> Self {
        Self::with(bench, link, RingConfig { addresses: OURS.map(Into::into).to_vec(), ..RingConfig::default() })
    }

    pub(super) fn with(bench: &'b mut Bench, link: Link, config: RingConfig) -> Self {
        let port = Rc::new(RefCell::new(Port::new()));
        let inline_max = bench.pick(&[0, 256]);
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&bench.below(u64::MAX).to_le_bytes());
        let ring = bench.infected(Ring::new(Adapter::new(&port, link == Link::Direct, inline_max), config, secret));
        let now = bench.now;
        Self { bench, ring, port, now, events: Vec::new(), sent: Vec::new(), polls: 0 }
    }

    /// As [`Host::with`], on a device of several rings.
    pub(super) fn of_many_rings(bench: &'b mut Bench, link: Link, config: RingConfig) -> Self {
        let mut host = Self::with(bench, link, config.clone());
        let adapter = Adapter::new(&host.port, link == Link::Direct, 0).of_several();
        host.ring = host.bench.infected(Ring::new(adapter, config, [5; 32]));
        host
    }

    pub(super) fn must(&self, kept: bool, law: impl fmt::Display) {
        self.bench.must(kept, law);
    }

    /// Bytes of no pattern.
    pub(super) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let first = self.bench.below(u64::MAX);
        (0..len as u64).map(|at| ((first ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 41) as u8).collect()
    }

    /// A frame comes, and the stack does what is due.
    pub(super) fn give(&mut self, frame: Vec<u8>) {
        self.bench.note(Line::Comes(frame.len()));
        self.port.borrow_mut().to_stack.push_back(frame);
        self.poll();
    }

    pub(super) fn poll(&mut self) {
        self.bench.now = self.now;
        loop {
            self.polls += 1;
            self.must(self.polls < POLLS_MAX, "the stack is never at rest");
            self.must(!self.port.borrow().queued, "a frame is queued, and the device is not told");
            let done = self.ring.poll(self.now);
            while let Some(event) = self.ring.take_event() {
                self.events.push((event.flow, event.edges));
            }
            if done == 0 && self.ring.next_deadline().is_none_or(|at| at > self.now) {
                break;
            }
        }
        self.must(!self.port.borrow().queued, "a frame is queued, and the device is not told");
        let sent = core::mem::take(&mut self.port.borrow_mut().from_stack);
        for bytes in sent {
            let is_sound = match dissect::payload(&bytes) {
                Payload::Ip(ip) if ip.protocol == IGMP => checksum::sum(0, &bytes[ip.offset..ip.l4]) == 0xffff,
                // (A report of listeners, behind a router alert.)
                Payload::Ip(ip) if ip.is_v6() && ip.protocol == 0 => checksum::is_icmpv6_good(&bytes, ip.l4 + 8),
                Payload::Ip(_) => checksum::verify(&bytes) == ChecksumVerdict::Good,
                Payload::Lookup(_) => checksum::verify(&bytes) != ChecksumVerdict::Bad,
                Payload::Other(_) => false,
            };
            self.must(is_sound, format_args!("RFC 1071: a frame of {} bytes is sent with a checksum that is wrong", bytes.len()));
            let from = dissect::mac_at(&bytes, 6);
            let mac = self.port.borrow().mac;
            self.must(from == Some(mac), format_args!("IEEE 802.3: a frame is sent from {from:?}, by {mac}"));
            self.bench.note(Line::Sent(bytes.len()));
            self.sent.push(Sent { at: self.now, bytes });
        }
    }

    /// Time passes; whoever sleeps wakes at the stack's own deadlines only.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        self.poll();
        while let Some(at) = self.ring.sleep_deadline().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.poll();
        }
        self.now = until;
        self.bench.now = self.now;
    }

    /// All that was sent since this was asked last.
    pub(super) fn sent(&mut self) -> Vec<Sent> {
        self.poll();
        core::mem::take(&mut self.sent)
    }

    /// Nothing was sent.
    pub(super) fn silence(&mut self, law: impl fmt::Display) {
        let sent = self.sent();
        self.must(sent.is_empty(), format_args!("{law}: {} frames are sent", sent.len()));
    }

    /// The edges that a socket had since this was asked last.
    pub(super) fn edges(&mut self, socket: FlowId) -> Readiness {
        self.poll();
        let edges = self.events.iter().filter(|(whose, _)| *whose == socket).fold(Readiness::empty(), |all, (_, edges)| all | *edges);
        self.events.retain(|(whose, _)| *whose != socket);
        edges
    }

    pub(super) fn open(&mut self, local: SocketAddrV4, options: UdpOptions) -> FlowId {
        let opened = self.ring.udp_open(local.into(), &options);
        self.must(opened.is_ok(), format_args!("bind(2): {opened:?} of {local}, which nobody has"));
        opened.unwrap_or(FlowId { ring: 0, index: 0, generation: 0 })
    }

    pub(super) fn close(&mut self, socket: FlowId) {
        self.ring.close(self.now, socket, false);
        self.poll();
    }

    /// A datagram comes, and the stack does what is due.
    pub(super) fn hand(&mut self, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) {
        self.give(datagram(from, to, payload));
    }

    /// The first datagram, as it is read into `room` bytes.
    pub(super) fn read(&mut self, socket: FlowId, room: usize, flags: RecvFlags) -> Result<(Datagram, Vec<u8>), Error> {
        let mut bytes = vec![0; room];
        // (Into two pieces, as readv does.)
        let half = self.bench.below(room as u64 + 1) as usize;
        let (first, second) = bytes.split_at_mut(half);
        let into = &mut [IoSliceMut::new(first), IoSliceMut::new(second)];
        // (One that polls finds as much: all that came has been looked at.)
        let datagram = match flags.is_empty() && self.bench.below(2) == 0 {
            true => self.ring.udp_recv_polling(self.now, socket, into, |datagram| datagram)?,
            false => self.ring.udp_recv(socket, into, flags)?,
        };
        bytes.truncate(datagram.copied);
        Ok((datagram, bytes))
    }

    /// Takes the first datagram, whole.
    pub(super) fn take(&mut self, socket: FlowId) -> Option<(SocketAddrV4, Vec<u8>)> {
        let (datagram, bytes) = self.read(socket, 2000, RecvFlags::empty()).ok()?;
        Some((v4(datagram.from), bytes))
    }

    /// Sends a datagram, in as many pieces as are drawn.
    pub(super) fn send(
        &mut self,
        socket: FlowId,
        payload: &[u8],
        to: Option<(SocketAddrV4, NextHop)>,
        tries: bool,
    ) -> Result<usize, Error> {
        let cuts = self.bench.below(4);
        let mut places: Vec<_> = (0..cuts).map(|_| self.bench.below(payload.len() as u64 + 1) as usize).collect();
        places.extend([0, payload.len()]);
        places.sort_unstable();
        let pieces: Vec<_> = places.windows(2).map(|ends| IoSlice::new(&payload[ends[0]..ends[1]])).collect();
        let to = to.map(|(to, hop)| (to.into(), hop));
        let sent = match tries {
            true => self.ring.udp_try_send(self.now, socket, &pieces, OURS[0].into(), to.as_ref().map(|(to, hop)| (to, *hop))),
            false => self.ring.udp_send(self.now, socket, &pieces, OURS[0].into(), to),
        };
        self.poll();
        sent
    }

    /// All but buffers is given back.
    pub(super) fn is_empty_but_buffers(&mut self) {
        let (rules, usage) = (self.port.borrow().rules.len(), self.ring.usage());
        self.must(
            rules == 0 && usage.flows == 0 && usage.addresses == 0,
            format_args!("{rules} rules, {usage:?} of what is not here any more"),
        );
    }

    /// All is given back, once no socket is left.
    pub(super) fn is_empty(&mut self) {
        self.poll();
        let (rules, wrong, buffers) = {
            let port = self.port.borrow();
            (port.rules.len(), port.rules_wrong, port.buffers.get())
        };
        self.must(rules == 0 && wrong == 0, format_args!("{rules} rules of sockets that are closed are kept, {wrong} ended twice"));
        self.must(buffers == 0, format_args!("{buffers} buffers of sockets that are closed are kept"));
        let usage = self.ring.usage();
        self.must(usage.flows == 0 && usage.addresses == 0, format_args!("{usage:?} of sockets that are closed"));
    }
}

/// An IPv4 packet in a frame.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) to: MacAddr,
    pub(super) from: MacAddr,
    pub(super) vlan: Option<u16>,
    pub(super) src: Ipv4Addr,
    pub(super) dst: Ipv4Addr,
    pub(super) protocol: u8,
    /// A multiple of four bytes.
    pub(super) options: Vec<u8>,
    pub(super) fragment: u16,
    pub(super) body: Vec<u8>,
}

impl Packet {
    pub(super) fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, body: Vec<u8>) -> Self {
        let to = if dst.is_multicast() { MacAddr::of_group(dst.into()) } else { OWN };
        Self { to, from: PEER, vlan: None, src, dst, protocol, options: Vec::new(), fragment: 0x4000, body }
    }

    /// Its frame, with the IP header's checksum.
    pub(super) fn frame(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(dissect::ETHERNET_LEN + 4 + 20 + self.options.len() + self.body.len());
        frame.extend_from_slice(&self.to.0);
        frame.extend_from_slice(&self.from.0);
        if let Some(tag) = self.vlan {
            frame.extend([0x81, 0]);
            frame.extend(tag.to_be_bytes());
        }
        frame.extend([8, 0, 0x45 + (self.options.len() / 4) as u8, 0]);
        frame.extend(((20 + self.options.len() + self.body.len()) as u16).to_be_bytes());
        frame.extend([0x12, 0x34]);
        frame.extend(self.fragment.to_be_bytes());
        frame.extend([64, self.protocol, 0, 0]);
        frame.extend(self.src.octets());
        frame.extend(self.dst.octets());
        frame.extend(&self.options);
        frame.extend(&self.body);
        checksum::fill_ip_header(&mut frame);
        frame
    }

    /// Its frame, with the transport's checksum too.
    pub(super) fn filled(&self) -> Vec<u8> {
        let mut frame = self.frame();
        checksum::fill(&mut frame);
        frame
    }
}

/// A UDP header and what follows it; the checksum is still to be filled in.
pub(super) fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(8 + payload.len());
    [from, to, 8 + payload.len() as u16, 0].iter().for_each(|field| body.extend(field.to_be_bytes()));
    body.extend(payload);
    body
}

/// A datagram's frame.
pub(super) fn datagram(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    Packet::new(*from.ip(), *to.ip(), UDP, udp(from.port(), to.port(), payload)).filled()
}

/// An ARP packet's frame, from a MAC address.
pub(super) fn arp(to: MacAddr, operation: u16, sender: (MacAddr, Ipv4Addr), target: (MacAddr, Ipv4Addr)) -> Vec<u8> {
    let mut frame = [&to.0[..], &sender.0.0[..], &[8, 6, 0, 1, 8, 0, 6, 4]].concat();
    frame.extend(operation.to_be_bytes());
    for (mac, ip) in [sender, target] {
        frame.extend(mac.0);
        frame.extend(ip.octets());
    }
    frame
}
