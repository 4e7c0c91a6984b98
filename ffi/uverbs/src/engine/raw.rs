//! Raw packet queue pairs, receive queues of their own, and hashes over them: what a program made, and frames on their way out and in.
//!
//! A frame that is sent goes onto the wire, and is offered to the flow rules of this process as well, as a card with its local loopback on
//! does. What a context sent itself its own queue pairs get only if they were made so (mlx5dv_create_qp(3), `TIR_ALLOW_SELF_LOOPBACK`).

use core::time::Duration;
use std::collections::VecDeque;

use ringway_preload::Errno;
use ringway_sim::Bucket;
use ringway_sim::connectx::cqe::Received;
use ringway_sim::connectx::offload;
use ringway_sim::connectx::packet::{Headers, Tunnel};
use ringway_sim::connectx::queues::{QueueBuffer, ReceiveConfig, ReceiveLayout, ReceiveQueue, Receiver, SendConfig, SendQueue, Transmit};
use ringway_sim::connectx::rss::{self, HashFields, KEY_LEN};
use ringway_sim::connectx::steering::{Delivery, Rule};
use ringway_stack::time::Instant;

use super::{BATCH, Engine, Told, link};
use crate::sysfs;

/// Longest frame: an MTU of 9000, the Ethernet header and a tag.
pub(crate) const FRAME_MAX: u32 = 9018;
/// Raw queues are numbered from here: by the one slot that no process has.
const FIRST: u32 = 0xff_0000;
/// Frames that may wait for room at their receivers before no more are taken, as pause frames (IEEE 802.3 annex 31B) make a card do.
const PAUSE_AT: usize = 128;
/// Who makes everybody wait for longer is not waited for.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// States of queue pairs and receive queues, as verbs number them.
pub(crate) mod state {
    pub(crate) const RESET: u8 = 0;
    pub(crate) const INIT: u8 = 1;
    pub(crate) const RTR: u8 = 2;
    pub(crate) const RTS: u8 = 3;
    pub(crate) const ERR: u8 = 6;
    /// Of a receive queue: it receives.
    pub(crate) const READY: u8 = 1;
}

/// A raw packet queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    /// Whose it is.
    pub(crate) context: u32,
    pub(crate) state: u8,
    /// As made, to be made anew by RESET. A hash has none of its own.
    pub(crate) queues: Option<(SendConfig, ReceiveConfig)>,
    pub(crate) hash: Option<Hash>,
    /// Its own context's frames are received too: to one, to groups.
    pub(crate) hears_itself: [bool; 2],
    /// Tags are taken off.
    pub(crate) strips: bool,
    /// max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data.
    pub(crate) caps: [u32; 5],
    pub(crate) signals_all: bool,
    pub(crate) port: u8,
    pub(crate) pace: Pace,
    pub(crate) told: Told,
}

/// A queue pair's rate, and what waits for its turn by it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    /// `None`: as fast as it goes.
    pub(crate) bucket: Option<Bucket>,
    /// When the last frame of the entry that was taken last leaves, or when the one that waits was seen: no later one leaves before.
    last: Instant,
    /// One waits since then: it leaves as soon as the rate allows, however late the card's thread comes to it.
    has_more: bool,
    /// When they leave.
    frames: VecDeque<(Instant, Vec<u8>)>,
}

impl Pace {
    /// Whether the next entry, whose first frame is so long, may be taken: as soon as that may leave.
    fn is_due(&mut self, now: Instant, len: Option<usize>) -> bool {
        let from = if self.has_more { self.last } else { now };
        (self.last, self.has_more) = (from, true);
        let ready = self.bucket.as_ref().zip(len).map_or(from, |(bucket, len)| bucket.ready_at(len));
        from.max(ready) <= now
    }

    /// An entry's frames are to leave.
    fn put(&mut self, frames: Vec<Vec<u8>>) {
        let mut at = self.last;
        for frame in frames {
            if let Some(bucket) = &mut self.bucket {
                at = at.max(bucket.ready_at(frame.len()));
                bucket.take(at, frame.len());
            }
            self.frames.push_back((at, frame));
        }
        self.last = at;
    }

    /// Whether something waits for its turn, of a queue pair that has this send queue.
    pub(super) fn waits(&self, queue: Option<&SendQueue>) -> bool {
        self.bucket.is_some() && (!self.frames.is_empty() || queue.is_some_and(SendQueue::has_rung))
    }

    fn next_due(&mut self, now: Instant) -> Option<(Instant, Vec<u8>)> {
        let is_due = self.frames.front().is_some_and(|(at, _)| *at <= now);
        if is_due { self.frames.pop_front() } else { None }
    }
}

/// Which of several receive queues a frame is for.
#[derive(Clone, Debug)]
pub(crate) struct Hash {
    pub(crate) key: [u8; KEY_LEN],
    pub(crate) fields: HashFields,
    /// The handle of its table.
    pub(crate) handle: u32,
    /// Numbers of receive queues. Invariant: not empty.
    pub(crate) table: Vec<u32>,
}

/// A receive queue of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wq {
    pub(crate) state: u8,
    pub(crate) config: ReceiveConfig,
    /// Tags are taken off.
    pub(crate) strips: bool,
    pub(crate) told: Told,
}

impl Raw {
    /// Whether completions of it go to the queue.
    pub(crate) fn completes_to(&self, cqn: u32) -> bool {
        self.queues.is_some_and(|(send, receive)| send.cqn == cqn || receive.cqn == cqn)
    }
}

impl Engine {
    /// A number for a raw queue.
    pub(crate) fn raw_number(&mut self) -> u32 {
        loop {
            self.last_raw = (self.last_raw + 1) & 0xffff;
            let number = FIRST | self.last_raw;
            if !self.raws.contains_key(&number) && !self.wqs.contains_key(&number) {
                return number;
            }
        }
    }

    /// Puts a queue pair's queues at their beginning.
    pub(crate) fn begin_raw(&mut self, number: u32) {
        if let Some((send, receive)) = self.raws.get(&number).and_then(|raw| raw.queues) {
            let receiver = if receive.ring.addr == 0 { Receiver::None } else { Receiver::Own(ReceiveQueue::new(receive)) };
            self.card.add_pair(number, SendQueue::new(send), receiver);
        }
    }

    /// Puts a receive queue at its beginning.
    pub(crate) fn begin_wq(&mut self, number: u32) {
        if let Some(wq) = self.wqs.get(&number) {
            self.card.add_receive(number, ReceiveQueue::new(wq.config));
        }
    }

    /// What is posted to a queue in error is flushed, now and later.
    pub(crate) fn stop_raw(&mut self, number: u32) {
        let actions = self.card.stop(&mut self.memory, number);
        self.act(actions);
    }

    /// Makes a flow rule.
    ///
    /// # Errors
    /// EEXIST: an equal one has another action; EOPNOTSUPP, ENOMEM: the interface that the port is plugged into cannot steer by it; ENOMEM: it is to be refused.
    pub(crate) fn add_rule(&mut self, rule: Rule) -> Result<u32, Errno> {
        self.rules_refused.iter_mut().for_each(|at| *at = at.saturating_sub(1));
        if self.rules_refused.extract_if(.., |at| *at == 0).count() > 0 {
            // (As where the card's tables are full.)
            return Err(Errno(libc::ENOMEM));
        }
        let number = self.steering.add(rule).map_err(|_| Errno(libc::EEXIST))?;
        if let Some(wire) = &mut self.wire
            && let Err(errno) = wire.steer(&self.steering)
        {
            self.remove_rule(number);
            return Err(errno);
        }
        self.tell_wants();
        Ok(number)
    }

    /// Ends one.
    pub(crate) fn remove_rule(&mut self, number: u32) {
        self.steering.remove(number);
        if let Some(wire) = &mut self.wire {
            // (By fewer rules it can steer.)
            let _ = wire.steer(&self.steering);
        }
        self.tell_wants();
    }

    /// Tells other processes which frames this one wants.
    pub(crate) fn tell_wants(&mut self) {
        if self.wire.is_none() && (!self.raws.is_empty() || self.steering.rules().next().is_some()) {
            self.segment.want(&mut self.bus, self.steering.addresses());
        }
    }

    /// Takes what was posted to raw queue pairs. In RESET to RTR nothing is sent; in ERR, all is flushed.
    pub(super) fn raw_sends(&mut self) -> bool {
        if self.is_paused() {
            return true;
        }
        let ready = |raw: &Raw| raw.queues.is_some() && matches!(raw.state, state::RTS | state::ERR);
        let ready = self.raws.iter().filter(|(_, raw)| ready(raw));
        let numbers: Vec<(u32, bool)> = ready.map(|(number, raw)| (*number, raw.pace.bucket.is_some())).collect();
        let mut any = false;
        for (number, is_paced) in numbers {
            if is_paced {
                any |= self.paced_sends(number);
                continue;
            }
            any |= self.depart(number);
            let actions = self.card.take_rung(&mut self.memory, number, BATCH);
            any |= !actions.is_empty();
            self.act(actions);
        }
        any
    }

    /// Takes the entries of a queue pair with a rate whose turn has come, one by one.
    fn paced_sends(&mut self, number: u32) -> bool {
        let mut any = self.depart(number);
        for _ in 0..BATCH {
            let Some(queue) = self.card.send_queue(number).filter(|queue| queue.has_rung()) else { break };
            let len = queue.next_frame_len(&self.memory);
            if !self.raws.get_mut(&number).is_some_and(|raw| raw.pace.is_due(self.turn_at, len)) {
                break;
            }
            let actions = self.card.take_rung(&mut self.memory, number, 1);
            self.act(actions);
            let has_more = self.card.send_queue(number).is_some_and(SendQueue::has_rung);
            if let Some(raw) = self.raws.get_mut(&number) {
                raw.pace.has_more = has_more;
            }
            self.depart(number);
            any = true;
        }
        any
    }

    /// Frames whose time has come leave.
    fn depart(&mut self, number: u32) -> bool {
        let mut any = false;
        while let Some(raw) = self.raws.get_mut(&number)
            && let Some((at, frame)) = raw.pace.next_due(self.turn_at)
        {
            let context = raw.context;
            self.leave(&frame, at, context);
            any = true;
        }
        any
    }

    /// Whether the interface has no room for what was sent already.
    pub(super) fn is_wire_full(&self) -> bool {
        self.wire.as_ref().is_some_and(|wire| wire.is_full(self.now()))
    }

    /// Whether receivers, or the interface, are to be waited for.
    fn is_paused(&mut self) -> bool {
        if self.bus.waiting() < PAUSE_AT && !self.is_wire_full() {
            self.paused = None;
            return false;
        }
        let now = self.now();
        let since = *self.paused.get_or_insert(now);
        now < since + PAUSE_MAX
    }

    /// Sends the frames of an entry, or has them wait for their turn.
    pub(super) fn send_frames(&mut self, transmit: &Transmit) {
        let (now, frames) = (self.turn_at, offload::frames(transmit));
        let Some(raw) = self.raws.get_mut(&transmit.qpn) else { return };
        if raw.pace.bucket.is_some() {
            raw.pace.put(frames);
            return;
        }
        let context = raw.context;
        frames.iter().for_each(|frame| self.leave(frame, now, context));
    }

    /// A frame leaves. A port that is down loses it.
    fn leave(&mut self, frame: &[u8], at: Instant, context: u32) {
        let Some(headers) = Headers::parse(frame).filter(|_| self.port_up) else { return };
        match &mut self.wire {
            Some(wire) => wire.send(frame),
            None => self.segment.send(&mut self.bus, frame),
        }
        self.sniff(frame, &headers, at);
        self.steer(frame, &headers, (at, Some(context)));
    }

    /// A frame came from another process, or by the interface.
    pub(super) fn on_frame(&mut self, frame: &[u8]) {
        let Some(headers) = Headers::parse(frame) else { return };
        let now = self.now();
        self.sniff(frame, &headers, now);
        self.steer(frame, &headers, (now, None));
    }

    /// A packet of RoCE comes or goes: sniffers see it in a frame.
    pub(super) fn on_roce(&mut self, packet: &[u8]) {
        if self.steering.sniffers().is_empty() {
            return;
        }
        let frame = [&sysfs::MAC[..], &sysfs::MAC, &link::ETHERTYPE, packet].concat();
        if let Some(headers) = Headers::parse(&frame) {
            self.sniff(&frame, &headers, self.now());
        }
    }

    fn sniff(&mut self, frame: &[u8], headers: &Headers, at: Instant) {
        for target in self.steering.sniffers() {
            self.receive_frame(frame, headers, (at, Delivery { target, tag: 0 }));
        }
    }

    fn steer(&mut self, frame: &[u8], headers: &Headers, (at, from): (Instant, Option<u32>)) {
        let tunnel = Tunnel::parse(frame, headers);
        for delivery in self.steering.steer(headers, tunnel.as_ref()) {
            let Some(raw) = self.raws.get(&delivery.target) else { continue };
            let hears = raw.hears_itself[usize::from(headers.dst[0] & 1)];
            if from != Some(raw.context) || hears {
                self.receive_frame(frame, headers, (at, delivery));
            }
        }
    }

    /// A queue pair receives a frame, if there is a receive for it: else it is lost, as at a card.
    fn receive_frame(&mut self, frame: &[u8], headers: &Headers, (at, delivery): (Instant, Delivery)) {
        let Some(raw) = self.raws.get(&delivery.target) else { return };
        let mut facts = Received { qpn_or_tag: delivery.tag, ..offload::verdict(frame, headers) };
        let number = match &raw.hash {
            Some(hash) => {
                let value = rss::hash(headers, &hash.key, hash.fields);
                (facts.rss_hash, facts.rss_hash_type) = (value.unwrap_or(0), u8::from(value.is_some()));
                hash.table[value.unwrap_or(0) as usize % hash.table.len()]
            }
            None if matches!(raw.state, state::RESET | state::ERR) => return,
            None => delivery.target,
        };
        if raw.hash.is_some() && self.wqs.get(&number).is_none_or(|wq| wq.state != state::READY) {
            return;
        }
        let strips = raw.strips || raw.hash.is_some() && self.wqs.get(&number).is_some_and(|wq| wq.strips);
        let stripped = (strips && headers.vlan.is_some()).then(|| [&frame[..12], &frame[16..]].concat());
        facts.vlan = headers.vlan.filter(|_| strips);
        let now = core::mem::replace(&mut self.card.clock, at.as_nanos());
        let actions = self.card.receive(&mut self.memory, number, stripped.as_deref().unwrap_or(frame), facts);
        self.card.clock = now;
        self.act(actions);
    }
}

/// A receive queue of one packet an entry.
pub(crate) fn cyclic(number: u32, ring: QueueBuffer, record: u64, pd: u32, (uidx, cqn): (u32, u32)) -> ReceiveConfig {
    ReceiveConfig { number, ring, record, pd, uidx, cqn, layout: ReceiveLayout::Cyclic }
}

/// Exponents of the bytes of a stride (rdma-core's providers/mlx5/verbs.c refuses others than the card names; these are a ConnectX-5's).
pub(crate) const STRIDE_BYTES: core::ops::RangeInclusive<u32> = 6..=13;
/// Exponents of the strides of an entry: from as few as newer cards take; the most are the model's own.
pub(crate) const ENTRY_STRIDES: core::ops::RangeInclusive<u32> = 3..=13;
