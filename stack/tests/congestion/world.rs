//! Flows over one bottleneck.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BinaryHeap;

use ringway_stack::Instant;
use ringway_stack::tcp::congestion::{Algorithm, Beginning};

use crate::flow::{Flow, MSS};
use crate::path::{Path, PathConfig};

/// An acknowledgment on its way back, ordered by when it comes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Back {
    at: Instant,
    order: u64,
    flow: usize,
    id: u64,
    marked: bool,
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) path: Path,
    pub(crate) flows: Vec<Flow>,
    acks: BinaryHeap<Reverse<Back>>,
    order: u64,
    measured_at: Instant,
    measured: Vec<u64>,
}

impl World {
    pub(crate) fn new(config: PathConfig, algorithms: &[Algorithm]) -> Self {
        let path = Path::new(config, 7);
        let world = Self {
            now: Instant::ZERO,
            path,
            flows: Vec::new(),
            acks: BinaryHeap::new(),
            order: 0,
            measured_at: Instant::ZERO,
            measured: Vec::new(),
        };
        algorithms.iter().fold(world, |mut world, algorithm| {
            world.join(*algorithm);
            world
        })
    }

    /// Another flow begins now.
    pub(crate) fn join(&mut self, algorithm: Algorithm) {
        let seed = 11 + self.flows.len() as u64;
        let control = algorithm.begin(&Beginning { now: self.now, mss: MSS, sack: true, srtt: None, seed, ..Beginning::default() });
        self.flows.push(Flow::new(control, self.now));
        self.measured.push(0);
    }

    fn send(&mut self, flow: usize) {
        while let Some(id) = self.flows[flow].send(self.now) {
            if let Some(passed) = self.path.carry(self.now, MSS) {
                self.order += 1;
                self.acks.push(Reverse(Back { at: passed.back_at, order: self.order, flow, id, marked: passed.marked }));
            }
        }
    }

    /// Lets all happen that happens until `end`, or until `stop` says so. Whether it did.
    pub(crate) fn run_until(&mut self, end: Instant, mut stop: impl FnMut(&mut Self) -> bool) -> bool {
        let mut ids = Vec::new();
        loop {
            (0..self.flows.len()).for_each(|flow| self.send(flow));
            let ack_at = self.acks.peek().map_or(Instant::MAX, |Reverse(back)| back.at);
            let wakes_at = self.flows.iter().map(Flow::wakes_at).min().unwrap_or(Instant::MAX);
            let next = ack_at.min(wakes_at.max(self.now));
            if next > end {
                self.now = end;
                return false;
            }
            self.now = next;
            while let Some(&Reverse(first)) = self.acks.peek()
                && first.at <= next
            {
                // What comes back to one flow at one time is one acknowledgment.
                ids.clear();
                while let Some(&Reverse(back)) = self.acks.peek()
                    && back.at <= next
                    && back.flow == first.flow
                {
                    ids.push((back.id, back.marked));
                    self.acks.pop();
                }
                self.flows[first.flow].on_ack(next, &ids);
            }
            for flow in &mut self.flows {
                flow.on_timer(next);
            }
            if stop(self) {
                return true;
            }
        }
    }

    pub(crate) fn run(&mut self, time: Duration) {
        self.run_until(self.now + time, |_| false);
    }

    /// Begins to measure.
    pub(crate) fn measure(&mut self) {
        self.path.measure_anew();
        self.measured_at = self.now;
        self.measured = self.flows.iter().map(|flow| flow.delivered).collect();
    }

    /// Bytes per second since then.
    pub(crate) fn goodput(&self, flow: usize) -> u64 {
        let delivered = self.flows[flow].delivered - self.measured[flow];
        (u128::from(delivered) * 1_000_000_000 / self.now.since(self.measured_at).as_nanos()) as u64
    }

    /// Goodput of all in percent of the line's rate.
    pub(crate) fn utilisation(&self) -> u64 {
        (0..self.flows.len()).map(|flow| self.goodput(flow)).sum::<u64>() * 100 / self.path.config.rate
    }
}
