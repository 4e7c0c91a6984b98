//! A peer of another make, and of bad manners: TCP by hand over a raw queue, without a stack.
//!
//! It opens a connection, then makes moves that no stack of ours would (bytes beyond the window, in any order and again, acknowledgments of
//! what was never sent, SACK blocks that are lies and are taken back, windows that shrink, resets and SYNs that miss). All bytes are those
//! of its one true stream, so that its victim can be held to the law: a reader gets a prefix, and an end is the whole. Then it behaves and
//! ends its stream, or resets, or is never heard of again.

pub(crate) mod segment;
mod visit;

pub use visit::{Goodbye, Visit, Visited};

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use ringway_stack::Instant;
use ringway_stack::device::{FlowRule, MacAddr, Protocol, RuleId, RxBatch, TxOffload};
use ringway_stack::raw::RawQueue;

use self::segment::{Arrived, Ends, Outgoing};
use self::visit::Session;
use super::{OPEN_RETRY, Shared};
use crate::host::{App, Context, Step};
use crate::nic::{SimQueues, SimRx};
use crate::random::RandomStream;

/// How long the last frames may take to leave.
const FAREWELL: Duration = Duration::from_millis(200);
/// Frames that are polled at once.
const BATCH: usize = 32;

/// A program that speaks TCP itself, one connection after the other.
#[derive(Debug)]
pub struct Stranger {
    /// Until it has finished.
    queue: Option<RawQueue<SimQueues>>,
    batch: RxBatch<SimRx>,
    vlan: Option<u16>,
    /// Where frames for its victim go: that host's Ethernet address, as last seen.
    server_mac: MacAddr,
    server: SocketAddr,
    visits: VecDeque<(u16, Visit, Shared<Visited>)>,
    session: Option<(RuleId, Session)>,
    dice: RandomStream,
    gone_at: Option<Instant>,
}

impl Stranger {
    /// Visits `server`, whose host has the address `server_mac`, by frames with the tag of `vlan`. What it does follows from `dice`.
    pub fn new(queue: RawQueue<SimQueues>, server: SocketAddr, server_mac: MacAddr, vlan: Option<u16>, dice: RandomStream) -> Self {
        let (queue, batch) = (Some(queue), RxBatch::new(BATCH));
        Self { queue, batch, vlan, server_mac, server, visits: VecDeque::new(), session: None, dice, gone_at: None }
    }

    /// Pays one more visit, from `port`.
    pub fn visit(&mut self, port: u16, visit: Visit, visited: Shared<Visited>) {
        self.visits.push_back((port, visit, visited));
    }

    /// Takes in what has arrived.
    fn receive(&mut self, now: Instant) {
        let (Some(queue), Some((_, session))) = (&mut self.queue, &mut self.session) else { return };
        let batch = &mut self.batch;
        while queue.poll(now, batch) > 0 {
            for frame in batch.frames_mut() {
                if let Some(arrived) = Arrived::parse(&frame.to_vec(), session.port()) {
                    self.server_mac = arrived.from;
                    session.receive(now, &arrived);
                }
            }
            batch.clear();
        }
    }

    /// Begins the next visit. `false`: there is no rule for it now.
    fn begin(&mut self, cx: &Context<'_>) -> bool {
        let Some((port, ..)) = self.visits.front() else { return true };
        let rule = FlowRule::flow(Protocol::Tcp, SocketAddr::new(cx.ip, *port), None);
        let Some(rule) = self.queue.as_mut().and_then(|queue| queue.steer(&rule).ok()) else { return false };
        if let Some((port, visit, visited)) = self.visits.pop_front() {
            let iss = u32::try_from(self.dice.bits() >> 32).unwrap_or(0);
            self.session = Some((rule.rule, Session::new(cx.now, port, iss, visit, visited)));
        }
        true
    }

    /// Does what is due. When the visit goes on; `None`: it is over.
    fn go_on(&mut self, cx: &Context<'_>) -> Option<Instant> {
        let (queue, (rule, session)) = (self.queue.as_mut()?, self.session.as_mut()?);
        let ends =
            Ends { from: queue.mac(), to: self.server_mac, vlan: self.vlan, src: SocketAddr::new(cx.ip, session.port()), dst: self.server };
        queue.reap();
        let next = session.step(cx.now, &mut self.dice, &mut |outgoing: &Outgoing<'_>| {
            let (head, payload) = outgoing.frame(&ends);
            // What the NIC refuses is lost, as anywhere else on its way.
            let _ = queue.send(&head, payload, TxOffload::default());
        });
        queue.flush();
        if next.is_none() {
            queue.unsteer(*rule);
            self.session = None;
        }
        next
    }
}

impl App for Stranger {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        self.receive(cx.now);
        loop {
            if self.session.is_some() {
                if let Some(next) = self.go_on(cx) {
                    return Step::Until(next);
                }
            } else if self.visits.is_empty() {
                break;
            } else if !self.begin(cx) {
                return Step::Until(cx.now + OPEN_RETRY);
            }
        }
        let gone_at = *self.gone_at.get_or_insert(cx.now + FAREWELL);
        if cx.now < gone_at {
            return Step::Until(gone_at);
        }
        self.queue = None;
        Step::Finished
    }
}
