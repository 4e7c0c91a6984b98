//! Raw packet queue pairs, receive queues of their own, and hashes over them: what a program made, and frames on their way out and in.
//!
//! A frame that is sent goes onto the wire, and is offered to the flow rules of this process as well, as a card with its local loopback on
//! does. What a context sent itself its own queue pairs get only if they were made so (mlx5dv_create_qp(3), `TIR_ALLOW_SELF_LOOPBACK`).

use core::time::Duration;
use ringway_sim::connectx::cqe::Received;
use ringway_sim::connectx::offload;
use ringway_sim::connectx::packet::Headers;
use ringway_sim::connectx::queues::{QueueBuffer, ReceiveConfig, ReceiveLayout, ReceiveQueue, Receiver, SendConfig, SendQueue, Transmit};
use ringway_sim::connectx::rss::{self, HashFields, KEY_LEN};
use ringway_sim::connectx::steering::Delivery;
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
    /// Kilobits a second; zero is as fast as it goes.
    pub(crate) rate: u32,
    /// When the next entry may be taken, by the rate.
    pub(crate) next: Instant,
    pub(crate) told: Told,
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

    /// Tells other processes which frames this one wants.
    pub(crate) fn tell_wants(&mut self) {
        if !self.raws.is_empty() || self.steering.rules().next().is_some() {
            self.segment.want(&mut self.bus, self.steering.addresses());
        }
    }

    /// Takes what was posted to raw queue pairs. In RESET to RTR nothing is sent; in ERR, all is flushed.
    pub(super) fn raw_sends(&mut self) -> bool {
        if self.is_paused() {
            return true;
        }
        let now = self.now();
        let ready = |raw: &Raw| raw.queues.is_some() && matches!(raw.state, state::RTS | state::ERR) && raw.next <= now;
        let ready = self.raws.iter().filter(|(_, raw)| ready(raw));
        // With a rate, each entry is waited for.
        let numbers: Vec<(u32, usize)> = ready.map(|(number, raw)| (*number, if raw.rate == 0 { BATCH } else { 1 })).collect();
        let mut any = false;
        for (number, entries_max) in numbers {
            let actions = self.card.take_rung(&mut self.memory, number, entries_max);
            any |= !actions.is_empty();
            self.act(actions);
        }
        any
    }

    /// Whether receivers are to be waited for.
    fn is_paused(&mut self) -> bool {
        if self.bus.waiting() < PAUSE_AT {
            self.paused = None;
            return false;
        }
        let now = self.now();
        let since = *self.paused.get_or_insert(now);
        now < since + PAUSE_MAX
    }

    /// Sends the frames of an entry. A port that is down loses them.
    pub(super) fn send_frames(&mut self, transmit: &Transmit) {
        let now = self.now();
        let frames = offload::frames(transmit);
        let Some(raw) = self.raws.get_mut(&transmit.qpn) else { return };
        let context = raw.context;
        if raw.rate != 0 {
            let bits: u64 = frames.iter().map(|frame| 8 * frame.len() as u64).sum();
            raw.next = now.max(raw.next) + Duration::from_nanos(bits * 1_000_000 / u64::from(raw.rate));
        }
        for frame in frames {
            let Some(headers) = Headers::parse(&frame).filter(|_| self.port_up) else { continue };
            self.segment.send(&mut self.bus, &frame);
            self.sniff(&frame, &headers);
            self.steer(&frame, &headers, Some(context));
        }
    }

    /// A frame came from another process.
    pub(super) fn on_frame(&mut self, frame: &[u8]) {
        let Some(headers) = Headers::parse(frame) else { return };
        self.sniff(frame, &headers);
        self.steer(frame, &headers, None);
    }

    /// A packet of RoCE comes or goes: sniffers see it in a frame.
    pub(super) fn on_roce(&mut self, packet: &[u8]) {
        if self.steering.sniffers().is_empty() {
            return;
        }
        let frame = [&sysfs::MAC[..], &sysfs::MAC, &link::ETHERTYPE, packet].concat();
        if let Some(headers) = Headers::parse(&frame) {
            self.sniff(&frame, &headers);
        }
    }

    fn sniff(&mut self, frame: &[u8], headers: &Headers) {
        for target in self.steering.sniffers() {
            self.receive_frame(frame, headers, Delivery { target, tag: 0 });
        }
    }

    fn steer(&mut self, frame: &[u8], headers: &Headers, from: Option<u32>) {
        for delivery in self.steering.steer(headers) {
            let Some(raw) = self.raws.get(&delivery.target) else { continue };
            let hears = raw.hears_itself[usize::from(headers.dst[0] & 1)];
            if from != Some(raw.context) || hears {
                self.receive_frame(frame, headers, delivery);
            }
        }
    }

    /// A queue pair receives a frame, if there is a receive for it: else it is lost, as at a card.
    fn receive_frame(&mut self, frame: &[u8], headers: &Headers, delivery: Delivery) {
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
        self.card.clock = self.now().as_nanos();
        let actions = self.card.receive(&mut self.memory, number, stripped.as_deref().unwrap_or(frame), facts);
        self.act(actions);
    }
}

/// A receive queue of one packet an entry.
pub(crate) fn cyclic(number: u32, ring: QueueBuffer, record: u64, pd: u32, (uidx, cqn): (u32, u32)) -> ReceiveConfig {
    ReceiveConfig { number, ring, record, pd, uidx, cqn, layout: ReceiveLayout::Cyclic }
}
