//! Somebody on the link who speaks what no program of ours does: pings, datagrams to nobody, to everybody, in pieces or damaged, ARP of every
//! kind, a router's questions about groups, and errors about what its victim sent or did not.
//!
//! It sends frames by hand over a raw queue, from a MAC address and an IP address of its own that no host has: nobody need hear what it is answered,
//! since the checkers see that on the wire. Of each kind some are as they should be, and some are not.

mod frames;

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddrV4};

use ringway_stack::Instant;
use ringway_stack::device::{MacAddr, TxOffload};
use ringway_stack::raw::RawQueue;

use self::frames::{Frame, Icmp};
pub(crate) use self::frames::{PROBER_MAC, is_probers};
use super::Shared;
use crate::host::{App, Context, Step};
use crate::nic::SimQueues;
use crate::random::RandomStream;

/// How long the last frames may take to leave.
const FAREWELL: Duration = Duration::from_millis(200);
/// A port that nobody has.
const NOBODYS_PORT: u16 = 7;
/// Everybody, and all hosts on the link (RFC 1112 s4).
const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);

/// What a [`Prober`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probing {
    /// Its own address, and the ones from which it sends datagrams.
    pub from: SocketAddrV4,
    /// An address that nobody has.
    pub nobody: Ipv4Addr,
    /// Frames that it sends.
    pub frames: u32,
    /// The longest pause between two.
    pub pause_max: Duration,
    /// The most bytes of a datagram.
    pub len_max: usize,
}

/// A program that probes a host.
#[derive(Debug)]
pub struct Prober {
    /// Until it has finished.
    queue: Option<RawQueue<SimQueues>>,
    vlan: Option<u16>,
    /// Its victim's MAC address, and the addresses of its open ports: one that hears everybody, one that hears the prober alone, and a group's.
    mac: MacAddr,
    open: SocketAddrV4,
    paired: SocketAddrV4,
    group: SocketAddrV4,
    probing: Probing,
    done: Shared<bool>,
    dice: RandomStream,
    sent: u32,
    next_at: Instant,
    gone_at: Option<Instant>,
}

impl Prober {
    /// Probes whoever has these addresses, at that MAC address, by frames with the tag of `vlan`.
    pub fn new(
        queue: RawQueue<SimQueues>,
        (mac, vlan): (MacAddr, Option<u16>),
        [open, paired, group]: [SocketAddrV4; 3],
        probing: Probing,
        done: Shared<bool>,
        dice: RandomStream,
    ) -> Self {
        let (sent, next_at, gone_at) = (0, Instant::ZERO, None);
        Self { queue: Some(queue), vlan, mac, open, paired, group, probing, done, dice, sent, next_at, gone_at }
    }

    fn odds(&mut self, one_in: u64) -> bool {
        self.dice.below(one_in) == 0
    }

    /// A frame for the victim, from the prober.
    fn frame(&self) -> Frame {
        Frame::new(self.mac, self.vlan, *self.probing.from.ip(), *self.open.ip())
    }

    fn draw(&mut self) -> Vec<u8> {
        match self.dice.below(16) {
            0..=2 => self.ping(),
            3..=8 => self.datagram(),
            9 | 10 => self.arp(),
            11 | 12 => self.membership(),
            13 | 14 => self.error(),
            _ => self.claim(),
        }
    }

    fn bytes(&mut self, max: usize) -> Vec<u8> {
        let len = usize::try_from(self.dice.magnitude(1, max as u64 + 1) - 1).unwrap_or(0);
        let mut bytes = vec![0; len];
        self.dice.fill(&mut bytes);
        bytes
    }

    /// What may be wrong with any packet: its destination, its source, its being a part of one, its header.
    fn spoil(&mut self, frame: Frame) -> Frame {
        let part = |dice: &mut RandomStream| dice.pick(&[0x2000, 0x0001, 0x2001, 0x00b9]);
        match self.dice.below(24) {
            0 => frame.at_mac(MacAddr::BROADCAST),
            1 => frame.to(Ipv4Addr::BROADCAST).at_mac(MacAddr::BROADCAST),
            2 => frame.to(ALL_SYSTEMS).at_mac(MacAddr::of_group(ALL_SYSTEMS.into())),
            3 => frame.to(self.probing.nobody),
            4 => frame.fragment(part(&mut self.dice)),
            5 => frame.damage_header(),
            // (Records of headers have room for a tag, or for as many bytes of options.)
            6 if self.vlan.is_none() => frame.options(&[1, 1, 1, 0]),
            7 => frame.ttl(1),
            8 => frame.from(self.dice.pick(&[Ipv4Addr::BROADCAST, Ipv4Addr::new(239, 1, 0, 3), Ipv4Addr::new(240, 0, 0, 1)])),
            _ => frame,
        }
    }

    fn ping(&mut self) -> Vec<u8> {
        let bytes = self.bytes(150);
        let (id, seq) = (self.dice.bits().to_be_bytes(), self.sent.to_be_bytes());
        let words = [id[0], id[1], seq[2], seq[3]];
        let frame = self.frame();
        let frame = self.spoil(frame);
        let kind = self.dice.pick(&[8, 8, 8, 8, 8, 8, 0, 13, 15, 17]);
        let damaged = self.odds(8);
        frame.icmp(Icmp { kind, code: 0, words, data: &bytes, damaged })
    }

    /// A datagram, to a port that is open or to one that is not.
    fn datagram(&mut self) -> Vec<u8> {
        let bytes = self.bytes(self.probing.len_max);
        let to = match self.dice.below(8) {
            0 | 1 => NOBODYS_PORT,
            2 | 3 => self.paired.port(),
            _ => self.open.port(),
        };
        let from = if self.odds(4) { self.probing.from.port() ^ 1 } else { self.probing.from.port() };
        let frame = self.frame();
        let frame = match self.odds(6) {
            true => frame.to(*self.group.ip()).at_mac(MacAddr::of_group((*self.group.ip()).into())),
            false => self.spoil(frame),
        };
        let to = if frame.is_for(*self.group.ip()) { self.group.port() } else { to };
        let sum = self.dice.pick(&[Some(0), Some(0), Some(0), Some(0), Some(0), Some(1), None]);
        let short = if self.odds(16) { self.dice.pick(&[-1, 1, 9]) } else { 0 };
        frame.udp(from, to, &bytes, sum, short)
    }

    /// A question, or an answer to none, perhaps in the name of somebody else.
    fn arp(&mut self) -> Vec<u8> {
        let (own, victim, nobody) = (*self.probing.from.ip(), *self.open.ip(), self.probing.nobody);
        let mut frame = self.frame();
        if self.odds(2) {
            frame = frame.at_mac(MacAddr::BROADCAST);
        }
        match self.dice.below(8) {
            // Is anybody there who has that address? (RFC 5227 s2.1.1)
            0 => frame.at_mac(MacAddr::BROADCAST).arp(1, Ipv4Addr::UNSPECIFIED, victim),
            1 => frame.at_mac(MacAddr::BROADCAST).arp(1, own, own),
            2 => frame.arp(1, own, nobody),
            3 => frame.arp(2, own, victim),
            _ => frame.arp(1, own, victim),
        }
    }

    /// It says where it is, as one does that will be spoken to.
    fn claim(&mut self) -> Vec<u8> {
        self.frame().arp(1, *self.probing.from.ip(), *self.open.ip())
    }

    /// A router's question, or another member's answer.
    fn membership(&mut self) -> Vec<u8> {
        let group = *self.group.ip();
        let (kind, about, to) = match self.dice.below(8) {
            0..=2 => (0x11, Ipv4Addr::UNSPECIFIED, ALL_SYSTEMS),
            3 | 4 => (0x11, group, group),
            5 => (0x16, group, group),
            6 => (0x12, group, group),
            _ => (0x17, group, Ipv4Addr::new(224, 0, 0, 2)),
        };
        // (Tenths of a second.)
        let within = self.dice.pick(&[0, 1, 10, 50, 100, 255]);
        let damaged = self.odds(8);
        self.frame().to(to).at_mac(MacAddr::of_group(to.into())).igmp(kind, if kind == 0x11 { within } else { 0 }, about, damaged)
    }

    /// An error about a datagram between the victim and the prober, which may have been sent.
    fn error(&mut self) -> Vec<u8> {
        let port = self.dice.pick(&[self.open.port(), self.paired.port(), self.paired.port(), self.paired.port(), NOBODYS_PORT]);
        let local = SocketAddrV4::new(*self.open.ip(), port);
        let peer = if self.odds(4) { self.probing.from.port() ^ 1 } else { self.probing.from.port() };
        let remote = SocketAddrV4::new(*self.probing.from.ip(), peer);
        let (kind, code) = self.dice.pick(&[(3, 3), (3, 3), (3, 3), (3, 1), (3, 0), (3, 2), (3, 4), (11, 0), (4, 0), (5, 1), (12, 0)]);
        let quoted = frames::quoted(local, remote);
        let quoted = if self.odds(10) { &quoted[..20] } else { &quoted[..] };
        let words = if (kind, code) == (3, 4) { [0, 0, 2, 64] } else { [0; 4] };
        let damaged = self.odds(8);
        self.frame().icmp(Icmp { kind, code, words, data: quoted, damaged })
    }
}

impl App for Prober {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        while self.sent < self.probing.frames {
            if cx.now < self.next_at {
                return Step::Until(self.next_at);
            }
            let frame = if self.sent == 0 { self.claim() } else { self.draw() };
            self.sent += 1;
            if let Some(queue) = &mut self.queue {
                queue.reap();
                // What the NIC refuses is lost, as anywhere else on its way.
                let _ = queue.send(&frame, &[], TxOffload::default());
                queue.flush();
            }
            let longest = u64::try_from(self.probing.pause_max.as_nanos()).unwrap_or(u64::MAX);
            let pause = if self.odds(4) { 0 } else { self.dice.magnitude(1_000, longest) };
            self.next_at = cx.now + Duration::from_nanos(pause);
        }
        let gone_at = *self.gone_at.get_or_insert(cx.now + FAREWELL);
        if cx.now < gone_at {
            return Step::Until(gone_at);
        }
        self.queue = None;
        self.done.set(true);
        Step::Finished
    }

    /// It does not begin again.
    fn crash(&mut self) {
        self.done.set(true);
    }
}
