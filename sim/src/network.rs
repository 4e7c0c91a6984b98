//! Everything between the NICs: the agenda, the fabric, and the trace of what passes.

use core::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use ringway_stack::Instant;

use crate::checkers::Checkers;
use crate::device::RxDrop;
use crate::fabric::{Direction, Fabric, Frame, Marks};
use crate::queue::EventQueue;
use crate::trace::{Trace, What};

/// What happens at a point in virtual time.
#[derive(Debug)]
pub(crate) enum Event {
    /// A frame's last bit reached the switch.
    AtSwitch { from: usize, frame: Frame },
    /// A frame's last bit reached a host.
    AtHost { host: usize, frame: Frame },
    /// A host's frame has left its NIC.
    Departed { host: usize },
    /// A host looks at its ring.
    Wake { host: usize },
}

/// Wires, switch and time.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) now: Instant,
    pub(crate) agenda: EventQueue<Event>,
    pub(crate) fabric: Fabric,
    pub(crate) trace: Trace,
    pub(crate) faults_on: bool,
    /// Who looks at every frame; `None`: nobody.
    pub(crate) checkers: Option<Rc<RefCell<Checkers>>>,
    frames: u64,
}

impl Network {
    pub(crate) fn new(trace: Trace) -> Self {
        Self { now: Instant::ZERO, agenda: EventQueue::new(), fabric: Fabric::default(), trace, faults_on: true, checkers: None, frames: 0 }
    }

    /// A host's NIC puts a frame on its wire.
    pub(crate) fn send(&mut self, host: usize, bytes: Vec<u8>) {
        let frame = Frame { id: self.frames, bytes: bytes.into(), marks: Marks::default() };
        self.frames += 1;
        self.trace.record(self.now, host, What::Sent, &frame);
        if let Some(checkers) = &self.checkers {
            checkers.borrow_mut().sent(self.now, host, &frame);
        }
        let departs = self.carry(host, Direction::Up, frame);
        self.agenda.push(departs, Event::Departed { host });
    }

    /// The switch passes a frame on.
    pub(crate) fn switch(&mut self, from: usize, frame: Frame) {
        let targets = self.fabric.route(from, &frame.bytes);
        if targets.is_empty() {
            self.trace.record(self.now, from, What::NoStation, &frame);
        }
        for target in targets {
            self.carry(target, Direction::Down, frame.clone());
        }
    }

    /// Records what a NIC made of a frame.
    pub(crate) fn received(&mut self, host: usize, frame: &Frame, outcome: Result<(), RxDrop>) {
        let what = outcome.map_or_else(What::Refused, |()| What::Delivered);
        self.trace.record(self.now, host, what, frame);
        if let (What::Delivered, Some(checkers)) = (what, &self.checkers) {
            checkers.borrow_mut().delivered(self.now, host, frame);
        }
    }

    /// Sends a frame along one way of a link, and says when it has left.
    fn carry(&mut self, link: usize, direction: Direction, frame: Frame) -> Instant {
        let before = Frame { bytes: Arc::clone(&frame.bytes), ..frame };
        let passage = self.fabric.lane(link, direction).offer(self.now, frame, self.faults_on);
        for strike in passage.strikes {
            self.trace.record(self.now, link, What::Struck(direction, strike), &before);
        }
        for arrival in passage.arrivals {
            let event = match direction {
                Direction::Up => Event::AtSwitch { from: link, frame: arrival.frame },
                Direction::Down => Event::AtHost { host: link, frame: arrival.frame },
            };
            self.agenda.push(arrival.at, event);
        }
        passage.departs
    }
}
