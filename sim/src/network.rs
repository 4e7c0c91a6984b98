//! Everything between the NICs: the agenda, the fabric, and the trace of what passes.

use core::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::device::MacAddr;

use crate::checkers::Checkers;
use crate::fabric::forge::Attacker;
use crate::fabric::icmp::{self, Quote};
use crate::fabric::{Direction, Fabric, Frame, Marks, Strike};
use crate::faults::{Forgery, Mishap};
use crate::nic::{Departure, RxDrop};
use crate::queue::EventQueue;
use crate::random::RandomStream;
use crate::trace::{Trace, What};
use crate::world::Turn;

/// What happens at a point in virtual time.
#[derive(Debug)]
pub(crate) enum Event {
    /// A frame's last bit reached the switch.
    AtSwitch { from: usize, frame: Frame },
    /// A frame's last bit reached a host.
    AtHost { host: usize, frame: Frame },
    /// Something is due in a host's NIC.
    Nic { host: usize },
    /// A host looks at its rings.
    Wake { host: usize },
    /// A fault that lasts begins or ends.
    Episode(Turn),
}

/// The agenda's lanes of a link.
#[derive(Clone, Copy)]
enum Lane {
    Up,
    Down,
}

fn lane(link: usize, lane: Lane) -> usize {
    2 * link + lane as usize
}

/// Wires, switch and time.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) now: Instant,
    pub(crate) agenda: EventQueue<Event>,
    pub(crate) fabric: Fabric,
    pub(crate) trace: Trace,
    pub(crate) faults_on: bool,
    /// What an attacker guesses of the hosts that he attacks: the beginning of their latest segment.
    pub(crate) taps: BTreeMap<usize, Option<Quote>>,
    /// Attackers beside hosts, who see what those send and hear.
    pub(crate) attackers: BTreeMap<usize, Attacker>,
    /// Hosts were told each other's Ethernet addresses.
    pub(crate) introduced: bool,
    /// Whether a link's router keeps silent; one stream a link.
    pub(crate) silence: Vec<RandomStream>,
    /// Who looks at every frame; `None`: nobody.
    pub(crate) checkers: Option<Rc<RefCell<Checkers>>>,
    /// What a stack handed to its NIC and checkers are just looking at: if they end the run, no record shows it.
    pub(crate) handed: Option<Rc<[u8]>>,
    frames: u64,
}

impl Network {
    pub(crate) fn new(trace: Trace) -> Self {
        Self {
            now: Instant::ZERO,
            agenda: EventQueue::new(),
            fabric: Fabric::default(),
            trace,
            faults_on: true,
            taps: BTreeMap::new(),
            attackers: BTreeMap::new(),
            introduced: false,
            silence: Vec::new(),
            checkers: None,
            handed: None,
            frames: 0,
        }
    }

    /// A host's NIC puts a frame on its wire, and is told when it will have left. Checkers see it now, unless they have.
    pub(crate) fn send(&mut self, host: usize, Departure { bytes, sound, unsolicited, shown }: Departure) -> Instant {
        let frame = Frame { sound, unsolicited, ..self.frame(bytes, Marks::default()) };
        if let Some(tap) = self.taps.get_mut(&host)
            && let Some(quote) = icmp::quote_of(&frame.bytes)
        {
            *tap = Some(quote);
        }
        if let Some(attacker) = self.attackers.get_mut(&host) {
            attacker.said(&frame.bytes);
        }
        self.trace.record(self.now, host, What::Sent, &frame);
        if !shown {
            self.show(host, &frame);
        }
        self.carry(host, Direction::Up, frame)
    }

    /// Lets a host look at its rings at `at`.
    pub(crate) fn plan_wake(&mut self, host: usize, at: Instant) {
        // Most are for now, and so are in order already.
        if at == self.now {
            self.agenda.push_now(at, Event::Wake { host });
        } else {
            self.agenda.push(at, Event::Wake { host });
        }
    }

    /// Lets the checkers see a frame of a stack that has left its NIC.
    fn show(&self, host: usize, frame: &Frame) {
        if let Some(checkers) = &self.checkers {
            checkers.borrow_mut().sent(self.now, host, Some(frame.id), &frame.bytes);
        }
    }

    /// Lets the checkers see a frame that a stack handed to its NIC, which has yet to put it on the wire.
    pub(crate) fn show_handed(&mut self, host: usize, bytes: Rc<[u8]>) {
        let bytes = self.handed.insert(bytes);
        if let Some(checkers) = &self.checkers {
            checkers.borrow_mut().sent(self.now, host, None, bytes);
        }
        self.handed = None;
    }

    /// The switch passes a frame on.
    pub(crate) fn switch(&mut self, from: usize, frame: Frame) {
        let mut targets = self.fabric.route(from, &frame.bytes);
        let Some(mut target) = targets.next() else {
            return self.trace.record(self.now, from, What::NoReceiver, &frame);
        };
        for next in targets {
            self.forward(from, target, frame.clone());
            target = next;
        }
        self.forward(from, target, frame);
    }

    fn forward(&mut self, from: usize, target: usize, frame: Frame) {
        match self.fabric.cuts.stop(from, target) {
            Some(strike) => self.trace.record(self.now, target, What::Struck(Direction::Down, strike), &frame),
            None => drop(self.carry(target, Direction::Down, frame)),
        }
    }

    /// An attacker sends an ICMP error to a host, about a connection of which he guessed the ports.
    pub(crate) fn forge(&mut self, host: usize, mac: MacAddr, detail: u64) {
        let Some(Some(quote)) = self.taps.get(&host).cloned() else { return };
        self.trace.befell(self.now, host, Mishap::Attacked);
        self.inject(host, icmp::forged(mac, quote, detail), Marks::FORGED);
    }

    /// A host heard a frame; an attacker beside it may make another one of that, which the host hears next.
    pub(crate) fn provoke(&mut self, host: usize, frame: &Frame, mac: MacAddr, ip: IpAddr) {
        let Some(attacker) = self.attackers.get_mut(&host).filter(|_| self.faults_on && frame.marks.is_empty()) else { return };
        let Some((what, bytes)) = attacker.heard(&frame.bytes, mac, ip) else { return };
        let believed = what == Forgery::FalseNeighbour && !self.introduced;
        self.trace.befell(self.now, host, Mishap::Forged { what, believed });
        let frame = self.frame(bytes.into(), Marks::FORGED);
        self.trace.record(self.now, host, What::Injected, &frame);
        self.agenda.push(self.now, Event::AtHost { host, frame });
    }

    /// Tells the sender of a frame that it was too long for `link`, unless this router is one of those that don't.
    fn fragmentation_needed(&mut self, link: usize, frame: &Frame, mtu: u16) {
        let silent_ppm = self.fabric.lane(link, Direction::Down).config().faults.mtu_silence_ppm;
        if self.faults_on && silent_ppm > 0 && self.silence[link].chance_ppm(silent_ppm) {
            return;
        }
        let Some((sender_mac, bytes)) = icmp::fragmentation_needed(&frame.bytes, mtu) else { return };
        if let Some(sender) = self.fabric.link_of(sender_mac) {
            self.inject(sender, bytes, Marks::ROUTER);
        }
    }

    /// Sends a frame of nobody's to a host.
    fn inject(&mut self, host: usize, bytes: Vec<u8>, marks: Marks) {
        let frame = self.frame(bytes.into(), marks);
        self.trace.record(self.now, host, What::Injected, &frame);
        self.carry(host, Direction::Down, frame);
    }

    fn frame(&mut self, bytes: Rc<[u8]>, marks: Marks) -> Frame {
        let id = self.frames;
        self.frames += 1;
        Frame { id, bytes, marks, sound: false, unsolicited: false }
    }

    /// Records what a NIC made of a frame.
    pub(crate) fn received(&mut self, host: usize, frame: &Frame, outcome: Result<(), RxDrop>) {
        let what = outcome.map_or_else(What::Refused, |()| What::Delivered);
        self.trace.record(self.now, host, what, frame);
        let Some(checkers) = &self.checkers else { return };
        match outcome {
            Ok(()) => checkers.borrow_mut().delivered(self.now, host, frame),
            Err(RxDrop::NoBuffer) => checkers.borrow_mut().found_no_buffer(self.now, host),
            Err(_) => {}
        }
    }

    /// Sends a frame along one way of a link, and says when it has left.
    fn carry(&mut self, link: usize, direction: Direction, frame: Frame) -> Instant {
        if let Some((departs, at)) = self.fabric.lane(link, direction).pass(self.now, frame.bytes.len(), self.faults_on) {
            self.arrive(link, direction, at, frame);
            return departs;
        }
        let passage = self.fabric.lane(link, direction).offer(self.now, frame, self.faults_on);
        for (strike, before) in passage.strikes.into_iter().zip(passage.before.iter().cycle()) {
            self.trace.record(self.now, link, What::Struck(direction, strike), before);
            if let Strike::TooLong { mtu } = strike {
                self.fragmentation_needed(link, before, mtu);
            }
        }
        for arrival in passage.arrivals {
            self.arrive(link, direction, arrival.at, arrival.frame);
        }
        passage.departs
    }

    /// Lets a frame arrive at a link's end.
    #[inline]
    fn arrive(&mut self, link: usize, direction: Direction, at: Instant, frame: Frame) {
        match direction {
            Direction::Up => self.agenda.push_in(lane(link, Lane::Up), at, Event::AtSwitch { from: link, frame }),
            Direction::Down => self.agenda.push_in(lane(link, Lane::Down), at, Event::AtHost { host: link, frame }),
        }
    }
}
