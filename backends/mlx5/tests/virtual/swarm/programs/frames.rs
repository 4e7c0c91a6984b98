//! Frames by a ring of their own: with pieces of memory, tags of VLANs, cookies, and such that are not sent (dummies).

use core::time::Duration;

use ringway_sim::random::RandomStream;
use ringway_stack::Instant;
use ringway_stack::device::{
    Device as _, DeviceEvent, EthernetMatch, FlowRule, Queues as _, QueuesConfig, RuleId, RxBatch, SendError, TxBuffer as _, TxFrame,
    TxOffload, TxSlice,
};

use super::super::plan::MACS;
use super::super::watched::{Watched, WatchedQueues};
use super::bytes;

/// For experiments on a local network (IEEE 802).
const ETHERTYPE: u16 = 0x88b5;
const HEAD: usize = 14;
const PAUSE: Duration = Duration::from_micros(50);
/// Until it asks again for what was refused.
const RETRY: Duration = Duration::from_millis(20);

/// Who sends some, and receives the peer's.
pub(crate) struct Frames {
    host: usize,
    device: Watched,
    queues: Option<WatchedQueues>,
    rule: Option<RuleId>,
    all: u32,
    sent: u32,
    next_at: Instant,
    dice: RandomStream,
    cookie: u64,
    pub(crate) received: u64,
    pub(crate) dummies: u64,
    pub(crate) is_gone: bool,
}

impl Frames {
    pub(crate) fn new(host: usize, device: Watched, all: u32, dice: RandomStream) -> Self {
        let (queues, rule, next_at) = (None, None, Instant::ZERO);
        Self { host, device, queues, rule, all, sent: 0, next_at, dice, cookie: 0, received: 0, dummies: 0, is_gone: false }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.is_gone || self.sent == self.all
    }

    pub(crate) fn sent(&self) -> u64 {
        u64::from(self.sent)
    }

    pub(crate) fn queues(&self) -> Option<&WatchedQueues> {
        self.queues.as_ref()
    }

    pub(crate) fn queues_mut(&mut self) -> Option<&mut WatchedQueues> {
        self.queues.as_mut()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let own = self.is_busy().then_some(self.next_at);
        self.queues.as_ref().and_then(WatchedQueues::deadline).into_iter().chain(own).min()
    }

    /// Whether there is something left for it to do by itself.
    pub(crate) fn is_busy(&self) -> bool {
        let is_open = self.rule.is_some();
        !self.is_gone && (self.sent < self.all || !is_open)
    }

    /// Does what can be done now. Whether that was something.
    pub(crate) fn step(&mut self, now: Instant) -> bool {
        let is_open = self.open(now);
        let done = self.look(now);
        if !is_open {
            return done;
        }
        let mut posted = false;
        while !self.is_done() && self.next_at <= now {
            self.next_at = now + PAUSE;
            if self.send().is_err() {
                break;
            }
            self.sent += 1;
            posted = true;
            if self.dice.chance_ppm(600_000) {
                self.next_at = now;
                continue;
            }
        }
        if let Some(queues) = self.queues.as_mut().filter(|_| posted) {
            queues.doorbell();
        }
        done || posted
    }

    /// Opens its ring, and has the rule made, unless that is refused.
    fn open(&mut self, now: Instant) -> bool {
        if self.is_gone || self.rule.is_some() {
            return self.rule.is_some();
        }
        if self.next_at > now {
            return false;
        }
        self.next_at = now + RETRY;
        if self.queues.is_none() {
            self.queues = self.device.open(&QueuesConfig { steered_only: true }).ok();
        }
        let Some(queues) = &mut self.queues else {
            self.is_gone = self.device.card.borrow().end_answer() != 0;
            return false;
        };
        let mut rule = FlowRule::any().tag(0x1234 + self.host as u32);
        rule.outer.ethernet = EthernetMatch { dst: Some(MACS[self.host]), src: None, ethertype: Some(ETHERTYPE) };
        self.rule = queues.steer(&rule).ok().map(|attached| attached.rule);
        self.is_gone = self.rule.is_none() && self.device.card.borrow().end_answer() != 0;
        self.rule.is_some()
    }

    /// Takes what has come.
    fn look(&mut self, now: Instant) -> bool {
        let Some(queues) = &mut self.queues else { return false };
        let mut batch = RxBatch::new(16);
        let count = queues.poll_rx(now, &mut batch);
        self.received += count as u64;
        batch.clear();
        queues.reap();
        let mut done = count > 0;
        while queues.completion().is_some() {
            done = true;
        }
        while let Some(event) = queues.poll_event() {
            self.is_gone |= event == DeviceEvent::Gone;
            done = true;
        }
        done
    }

    fn send(&mut self) -> Result<(), SendError> {
        let Self { host, queues, dice, .. } = self;
        let Some(queues) = queues else { return Err(SendError::Full) };
        let len = dice.magnitude(1, 1500) as usize;
        let inline = dice.below(len.min(256 - HEAD) as u64 + 1) as usize;
        let pieces = dice.between(1, 5) as usize;
        let payload = bytes(len, u64::from(self.sent));
        let tag = dice.chance_ppm(250_000).then(|| dice.below(0x1000) as u16);
        let mut head = [&MACS[1 - *host].0[..], &MACS[*host].0, &ETHERTYPE.to_be_bytes()].concat();
        head.extend(&payload[..inline]);
        let mut buffers = Vec::new();
        for part in payload[inline..].chunks((len - inline).div_ceil(pieces).max(1)) {
            let at = dice.below(64) as usize;
            let mut buffer = queues.tx_alloc(part.len()).ok_or(SendError::Full)?;
            buffer.write(at, part);
            buffers.push((buffer, at, part.len()));
        }
        let body: Vec<_> = buffers.iter().map(|(buffer, offset, len)| TxSlice { buffer, offset: *offset, len: *len }).collect();
        let dummy = dice.chance_ppm(100_000);
        let cookie = if dice.chance_ppm(500_000) { self.cookie + 1 } else { 0 };
        let offload = TxOffload { vlan: tag, dummy, ..TxOffload::default() };
        queues.send_with_cookie(&TxFrame { head: &head, body: &body, offload }, cookie)?;
        self.cookie = self.cookie.max(cookie);
        self.dummies += u64::from(dummy);
        Ok(())
    }
}
