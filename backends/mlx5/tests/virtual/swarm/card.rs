//! A card: the simulator's ConnectX with what lies around its queues. Registers, to which the driver writes; flow rules; a port; and what goes wrong with each.
//!
//! It works when it is let to ([`Card::work`]), as much as it is given to do: a driver's calls and the card's work come in any order, as on a real one.

mod device_memory;
pub(super) mod objects;
mod registers;
mod trouble;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use rdma_core_sys as sys;
use ringway_host::EventFd;
use ringway_sim::connectx::cqe::{Cqe, Received, striding};
use ringway_sim::connectx::packet::{Headers, Tunnel};
use ringway_sim::connectx::queues::{Action, Card as Queues};
use ringway_sim::connectx::rss::{self, HashFields, KEY_LEN};
use ringway_sim::connectx::steering::{Delivery, Table};
use ringway_sim::connectx::{Violation, offload};
use ringway_stack::Instant;
use ringway_stack::device::Pacing;

use super::laws::pacing::Rate;
use super::laws::{Laws, STRIDING};
use super::memory::Reach;
use registers::{Bell, Page};
pub(super) use trouble::{Fault, Life, Trouble};

/// States of queue pairs and of receive queues, as verbs number them.
mod state {
    pub(super) const RTS: u32 = rdma_core_sys::IBV_QPS_RTS;
    pub(super) const ERR: u32 = rdma_core_sys::IBV_QPS_ERR;
    pub(super) const READY: u32 = rdma_core_sys::IBV_WQS_RDY;
}

/// A send queue's pair.
struct Sender {
    state: u32,
    cqn: u32,
    owner: u32,
    page: usize,
    raw: *mut sys::ibv_qp,
    rate: Rate,
}

/// A receive queue of its own.
struct Receiver {
    config: ringway_sim::connectx::queues::ReceiveConfig,
    state: u32,
    strips: bool,
    /// By what the laws know it: its ring's number, or of strides, its own.
    owner: u32,
    raw: *mut sys::ibv_wq,
}

/// Where a completion queue's events go, and how many are there.
struct Completions {
    channel: Option<Rc<EventFd>>,
    events: u32,
    raw: *mut sys::ibv_cq,
    /// It was made to fail, so that it is full from then on.
    is_broken: bool,
}

/// A hash over receive queues.
struct Hash {
    key: [u8; KEY_LEN],
    fields: HashFields,
    table: Vec<u32>,
}

/// What has happened that the driver is told of, and whom it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Cq(*mut sys::ibv_cq),
    Qp(*mut sys::ibv_qp),
    Wq(*mut sys::ibv_wq),
    Port(bool),
    Fatal,
}

/// See the module's documentation.
pub(super) struct Card {
    memory: Reach,
    queues: Queues,
    steering: Table,
    pages: BTreeMap<usize, Page>,
    senders: BTreeMap<u32, Sender>,
    receivers: BTreeMap<u32, Receiver>,
    completions: BTreeMap<u32, Completions>,
    hashes: BTreeMap<u32, Hash>,
    /// Receive queues that have failed, and were not reset since.
    failed: BTreeSet<u32>,
    /// Its own memory: where each part lies, and how long it is.
    own_memory: BTreeMap<usize, usize>,
    /// Objects of other kinds that there are.
    others: usize,
    last_number: u32,
    told: VecDeque<Told>,
    async_fd: EventFd,
    command_fd: EventFd,
    /// Doorbells that come late.
    late: Vec<(Instant, Bell)>,
    /// Frames that have come and were not looked at.
    inbox: VecDeque<Vec<u8>>,
    /// Frames that have left.
    outbox: VecDeque<Vec<u8>>,
    port_up: bool,
    pub(super) trouble: Trouble,
    now: Instant,
    /// Of its clock.
    khz: u64,
    pub(super) laws: Laws,
    /// Frames that found no receive posted.
    pub(super) missed: u64,
    /// Frames that were lost otherwise: with a queue, or a port.
    pub(super) lost: u64,
}

impl Card {
    pub(super) fn new(khz: u64, trouble: Trouble) -> Self {
        let laws = Laws::new(1_000_000_u64.div_ceil(khz) + 1);
        let fd = || EventFd::new().expect("a descriptor");
        Self {
            memory: Reach::default(),
            queues: Queues::default(),
            steering: Table::default(),
            pages: BTreeMap::new(),
            senders: BTreeMap::new(),
            receivers: BTreeMap::new(),
            completions: BTreeMap::new(),
            hashes: BTreeMap::new(),
            failed: BTreeSet::new(),
            own_memory: BTreeMap::new(),
            others: 0,
            last_number: 0,
            told: VecDeque::new(),
            async_fd: fd(),
            command_fd: fd(),
            late: Vec::new(),
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            port_up: true,
            trouble,
            now: Instant::ZERO,
            khz,
            laws,
            missed: 0,
            lost: 0,
        }
    }

    /// The time is that.
    pub(super) fn set_now(&mut self, now: Instant) {
        self.now = now;
        self.queues.clock = self.cycles(now);
    }

    /// A ring was told to keep to a rate.
    pub(super) fn paced(&mut self, ring: u32, pacing: Pacing) {
        self.laws.paced(self.now, ring, pacing);
    }

    /// The system may have refused something just now.
    pub(super) fn may_refuse(&self) -> bool {
        self.now < self.trouble.until || self.trouble.life != Life::Works
    }

    /// A queue that frames come to, and for which nobody asks.
    pub(super) fn led_astray(&self) -> Option<u32> {
        let tables = self.steering.rules().filter_map(|rule| self.hashes.get(&rule.target)).flat_map(|hash| &hash.table);
        let mut owners = tables.filter_map(|number| self.receivers.get(number)).map(|receiver| receiver.owner);
        owners.find(|owner| !self.laws.steering.leads_to(*owner))
    }

    /// What send queues are at: by rings, whether they have something to do, and when that is due.
    pub(super) fn sends(&self) -> String {
        let one = |(number, sender): (&u32, &Sender)| {
            let has_rung = self.queues.send_queue(*number).is_some_and(|queue| queue.has_rung());
            let broken = self.completions.get(&sender.cqn).is_none_or(|cq| cq.is_broken);
            format!("ring {} in state {}: rung {has_rung}, due at {:?}, broken {broken}", sender.owner, sender.state, sender.rate.due_at())
        };
        format!("{:?} at {:?}", self.senders.iter().map(one).collect::<Vec<_>>(), self.now)
    }

    /// A receive queue that receives nothing. (Of one whose completion queue has failed nobody expects more.)
    pub(super) fn dead_receiver(&self) -> Option<u32> {
        let is_broken = |receiver: &Receiver| self.completions.get(&receiver.config.cqn).is_some_and(|cq| cq.is_broken);
        let is_dead = |(number, receiver): &(&u32, &Receiver)| receiver.state != state::READY || self.failed.contains(number);
        let closed = |receiver: &Receiver| self.laws.is_closed(receiver.owner);
        let mut dead = self.receivers.iter().filter(is_dead).filter(|(_, receiver)| !is_broken(receiver) && !closed(receiver));
        dead.next().map(|(number, _)| *number)
    }

    fn cycles(&self, at: Instant) -> u64 {
        (u128::from(at.as_nanos()) * u128::from(self.khz) / 1_000_000) as u64
    }

    /// A frame has come from the wire.
    pub(super) fn arrive(&mut self, frame: Vec<u8>) {
        self.inbox.push_back(frame);
    }

    /// The next frame that has left.
    pub(super) fn depart(&mut self) -> Option<Vec<u8>> {
        self.outbox.pop_front()
    }

    /// Whether there is something to do: a doorbell that came, or a frame.
    pub(super) fn has_work(&self) -> bool {
        let is_due = |(_, sender): (&u32, &Sender)| sender.rate.due_at() <= self.now;
        self.trouble.life == Life::Works && (!self.inbox.is_empty() || self.rung().any(is_due))
    }

    /// Send queues that have something to do, at their rate.
    fn rung(&self) -> impl Iterator<Item = (&u32, &Sender)> {
        let is_rung = |number: &u32| self.queues.send_queue(*number).is_some_and(|queue| queue.has_rung());
        self.senders.iter().filter(move |(number, sender)| matches!(sender.state, state::RTS | state::ERR) && is_rung(number))
    }

    /// When a doorbell comes that is late, or a frame is due that a rate has held.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let held = self.rung().map(|(_, sender)| sender.rate.due_at()).filter(|at| *at > self.now && self.trouble.life == Life::Works);
        self.late.iter().map(|(at, _)| *at).chain(held).min()
    }

    /// Looks at the registers, then takes at most so many entries of each queue, and as many of the frames that have come.
    pub(super) fn work(&mut self, most: usize) {
        if self.trouble.life != Life::Works {
            self.inbox.clear();
            return;
        }
        self.look();
        let ready = self.senders.iter().filter(|(_, sender)| matches!(sender.state, state::RTS | state::ERR));
        for number in ready.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.send(number, most);
        }
        for _ in 0..most {
            let Some(frame) = self.inbox.pop_front() else { break };
            self.receive(&frame);
        }
        // (A run of compressed completions ends where the card has nothing more to do.)
        if self.inbox.is_empty() {
            self.flush();
        }
    }

    /// Takes at most so many entries of a send queue: one by one, where each waits for the one before it.
    fn send(&mut self, number: u32, most: usize) {
        let is_paced = |card: &Self| card.senders.get(&number).is_some_and(|sender| sender.rate.is_limited());
        if !is_paced(self) {
            let actions = self.queues.take_rung(&mut self.memory, number, most);
            return self.act(actions);
        }
        for _ in 0..most {
            let is_due = self.senders.get(&number).is_some_and(|sender| sender.rate.due_at() <= self.now);
            if !is_due || !self.queues.send_queue(number).is_some_and(|queue| queue.has_rung()) {
                break;
            }
            let actions = self.queues.take_rung(&mut self.memory, number, 1);
            self.act(actions);
        }
    }

    fn flush(&mut self) {
        let actions = self.queues.flush(&mut self.memory);
        self.act(actions);
    }

    /// Does what the queues say, beside completions, which are written.
    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Transmit(transmit) => {
                    let Some(sender) = self.senders.get_mut(&transmit.qpn) else { continue };
                    let frames = offload::frames(&transmit);
                    sender.rate.charge(self.now, frames.iter().map(Vec::len).sum());
                    self.laws.leaves(self.now, sender.owner, &transmit, &frames);
                    frames.into_iter().for_each(|frame| self.leave(frame));
                }
                Action::Event { cqn } => self.event(cqn),
                Action::Broken { number, violation } => self.broken(number, violation),
                Action::QueueFailed { number } => self.failed(number),
                Action::Request { qpn, .. } => self.laws.breach("rule", format_args!("queue {qpn:#x}: a request that is no frame")),
                Action::NoReceive { .. } => self.missed += 1,
                Action::Lost { .. } => self.lost += 1,
                Action::Complete { .. } => {}
            }
        }
    }

    /// A rule is broken. That a completion queue is full which was made to fail is nobody's fault.
    fn broken(&mut self, number: u32, violation: Violation) {
        let excused = match violation {
            Violation::CqOverrun { cqn } => self.completions.get(&cqn).is_some_and(|cq| cq.is_broken),
            Violation::Flushed => true,
            _ => false,
        };
        if !excused {
            self.laws.breach("rule", format_args!("queue {number:#x}: {violation}"));
        }
    }

    fn leave(&mut self, frame: Vec<u8>) {
        let Some(headers) = Headers::parse(&frame) else { return };
        self.laws.on_wire(&frame, &headers);
        if self.port_up {
            self.outbox.push_back(frame);
        } else {
            self.lost += 1;
        }
    }

    /// A completion event is due.
    fn event(&mut self, cqn: u32) {
        if let Some(cq) = self.completions.get_mut(&cqn)
            && let Some(channel) = &cq.channel
        {
            cq.events += 1;
            channel.signal();
        }
    }

    fn receive(&mut self, frame: &[u8]) {
        let Some(headers) = Headers::parse(frame).filter(|_| self.port_up) else {
            self.lost += 1;
            return;
        };
        let tunnel = Tunnel::parse(frame, &headers);
        let to: Vec<(u32, u32, u32)> = self
            .steering
            .steer(&headers, tunnel.as_ref())
            .into_iter()
            .filter_map(|Delivery { target, tag }| Some((self.chosen(&headers, target)?, tag, target)))
            .collect();
        let owner = |number: &u32| self.receivers.get(number).map_or(0, |receiver| receiver.owner);
        let owners: Vec<(u32, u32)> = to.iter().map(|(number, tag, _)| (owner(number), *tag)).collect();
        // (What the system refuses meanwhile, it no longer refuses when faults have ended, and then it is done within a second.)
        let may_lag = self.now < self.trouble.until + core::time::Duration::from_secs(1);
        self.laws.steered(&headers, tunnel.as_ref(), &owners, may_lag);
        for (number, tag, hash) in to {
            self.deliver(frame, &headers, (number, tag, hash));
        }
    }

    /// The hash of a frame, and what it chooses.
    fn chosen(&self, headers: &Headers, hash: u32) -> Option<u32> {
        let hash = self.hashes.get(&hash)?;
        let value = rss::hash(headers, &hash.key, hash.fields).unwrap_or(0);
        Some(hash.table[value as usize % hash.table.len()])
    }

    /// A queue receives a frame, if there is a receive for it.
    fn deliver(&mut self, frame: &[u8], headers: &Headers, (number, tag, hash): (u32, u32, u32)) {
        let Some(hash) = self.hashes.get(&hash) else { return };
        let mut facts = Received { qpn_or_tag: tag, ..offload::verdict(frame, headers) };
        let value = rss::hash(headers, &hash.key, hash.fields);
        (facts.rss_hash, facts.rss_hash_type) = (value.unwrap_or(0), u8::from(value.is_some()));
        let Some(receiver) = self.receivers.get(&number).filter(|receiver| receiver.state == state::READY) else {
            self.lost += 1;
            return;
        };
        let owner = receiver.owner;
        let stripped = (receiver.strips && headers.vlan.is_some()).then(|| [&frame[..12], &frame[16..]].concat());
        facts.vlan = headers.vlan.filter(|_| receiver.strips);
        let bytes = stripped.as_deref().unwrap_or(frame);
        let actions = self.queues.receive(&mut self.memory, number, bytes, facts);
        // (A filler tells of strides that are passed over, and of no frame.)
        let is_filler = |received: &Received| owner & STRIDING != 0 && striding::split(received.byte_count).2;
        let has_come = |action: &Action| matches!(action, Action::Complete { cqe: Cqe::Received(received), .. } if !is_filler(received));
        if actions.iter().any(has_come) {
            self.laws.arrived(owner, bytes.to_vec(), facts, self.now);
        }
        self.act(actions);
    }
}
