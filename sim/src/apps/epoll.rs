//! An epoll instance over a ring's events, as programs know it: level-triggered, edge-triggered and one-shot (epoll(7)).
//!
//! It passes on what the ring says and asks for readiness only where epoll does: when an interest is added or changed, and when an item
//! is about to be reported. An edge that the ring forgets is lost here too, and whoever waits for it hangs.

use std::collections::{BTreeMap, VecDeque};

use ringway_stack::device::Queues;
use ringway_stack::ring::{Event, FlowId, Readiness, Ring};

use crate::sockets::readiness;

/// How an interest is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// As long as the socket is ready.
    Level,
    /// Once for each edge (EPOLLET).
    Edge,
    /// Once; then it is dead until it is changed (EPOLLONESHOT).
    OneShot,
}

#[derive(Debug)]
struct Item {
    interest: Readiness,
    manner: Manner,
    armed: bool,
    queued: bool,
}

/// An epoll instance.
#[derive(Debug, Default)]
pub struct Epoll {
    items: BTreeMap<FlowId, Item>,
    ready: VecDeque<FlowId>,
}

impl Epoll {
    /// Adds a socket, or changes its interest: it is reported if it is ready already.
    pub fn set<Q: Queues>(&mut self, ring: &Ring<Q>, socket: FlowId, interest: Readiness, manner: Manner) {
        let interest = interest | Readiness::ERR | Readiness::HUP;
        let item = self.items.entry(socket).or_insert(Item { interest, manner, armed: true, queued: false });
        (item.interest, item.manner, item.armed) = (interest, manner, true);
        if readiness(ring, socket).intersects(interest) {
            self.queue(socket);
        }
    }

    /// How a socket is reported; `None`: it isn't in.
    pub fn manner(&self, socket: FlowId) -> Option<Manner> {
        self.items.get(&socket).map(|item| item.manner)
    }

    /// Takes a socket out.
    pub fn remove(&mut self, socket: FlowId) {
        self.items.remove(&socket);
    }

    /// Takes in what the ring says.
    pub fn take(&mut self, events: &[Event]) {
        for event in events {
            if self.items.get(&event.flow).is_some_and(|item| item.armed && item.interest.intersects(event.edges)) {
                self.queue(event.flow);
            }
        }
    }

    /// Reports up to `max` sockets that are ready, those first that have waited longest.
    pub fn wait<Q: Queues>(&mut self, ring: &Ring<Q>, max: usize) -> Vec<(FlowId, Readiness)> {
        let mut reported = Vec::new();
        // Level-triggered items go back to the end, where this call doesn't look at them again.
        for _ in 0..self.ready.len() {
            if reported.len() == max {
                break;
            }
            let Some(socket) = self.ready.pop_front() else { break };
            let Some(item) = self.items.get_mut(&socket) else { continue };
            item.queued = false;
            let ready = readiness(ring, socket) & item.interest;
            if ready.is_empty() || !item.armed {
                continue;
            }
            reported.push((socket, ready));
            match item.manner {
                Manner::Level => self.queue(socket),
                Manner::Edge => {}
                Manner::OneShot => item.armed = false,
            }
        }
        reported
    }

    fn queue(&mut self, socket: FlowId) {
        if let Some(item) = self.items.get_mut(&socket)
            && !item.queued
        {
            item.queued = true;
            self.ready.push_back(socket);
        }
    }
}
