//! One ring's queues: what the driver put in, what the hardware put out, and what ails them.

use core::mem;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::device::{Completion, DeviceEvent, HEAD_MAX, Moderation, RxBatch, RxMeta, SendStatus, Wake};

use super::buffer::{Pool, SimRx};
use super::config::NicConfig;
use super::cyclic::Cyclic;
use super::faults::NicFault;
use super::lro::{Merged, Sessions, is_sound};
use super::offload::Queued;
use super::pacing::Bucket;
use super::{Outstanding, RxDrop};

/// A ring's state.
#[expect(clippy::vec_box, reason = "a frame goes from queue to queue five times, and is a few words long only in a box")]
#[derive(Debug)]
pub(super) struct RingState {
    /// Someone has it.
    pub(super) open: bool,
    /// It gets what rules steer to it, and nothing else.
    pub(super) steered_only: bool,
    /// Counts its owners: completions of an earlier one are nobody's.
    pub(super) generation: u32,
    rx: VecDeque<Received>,
    /// The number of the first frame in `rx`, counted since the start.
    rx_base: u64,
    sessions: Sessions,
    pub(super) events: VecDeque<DeviceEvent>,
    /// Something arrived that nobody has looked at.
    pub(super) news: bool,
    /// Queued since the last doorbell.
    pub(super) queued: Vec<Box<Queued>>,
    /// Handed to the hardware, which reads them from the given time on.
    pub(super) posted: VecDeque<(Instant, Box<Queued>)>,
    /// Frames read by the hardware and on their way to the wire; the buffers belong to it.
    pub(super) sending: usize,
    /// Completed, not reaped.
    pub(super) completed: Vec<Box<Queued>>,
    spare: Vec<Box<Queued>>,
    /// What was reaped of sends with cookies; and how many cookies are out, those included.
    pub(super) completions: VecDeque<Completion>,
    pub(super) cookies: usize,
    /// Something was refused since the last completion: whoever asked wants to try again.
    pub(super) starved: bool,
    pub(super) tx_pool: Rc<Pool>,
    rx_pool: Rc<Pool>,
    /// Heads of frames are lent as well; and one was not, since it was asked for that.
    pub(super) lends: bool,
    pub(super) kept_head: bool,
    /// Buffers that were handed out, to be received into while they are held.
    #[cfg(feature = "mutants")]
    pub(super) recycled: Option<VecDeque<std::rc::Weak<super::buffer::Token>>>,
    pub(super) bucket: Option<Bucket>,
    /// Of flows that have a rate of their own.
    pub(super) flow_buckets: BTreeMap<u32, Bucket>,
    pub(super) moderation: Option<Moderation>,
    /// Completions since the owner was woken, and when it must be at the latest.
    unwoken: u16,
    pub(super) wake_due: Option<Instant>,
    pub(super) cyclic: BTreeMap<u64, Cyclic>,
    pub(super) cyclic_made: u64,
    /// What wakes its owner, who sleeps.
    pub(super) wake: Wake,
    /// All that lies in `rx` came while its owner slept, and was no reason to wake it.
    is_slept_through: bool,
    /// Segments with bytes, SYN or FIN that were sent.
    pub(super) spoken: u64,
    /// Until when each fault's condition lasts.
    pub(super) until: [Option<Instant>; NicFault::ALL.len()],
}

#[derive(Debug)]
struct Received {
    bytes: Rc<[u8]>,
    /// The buffer that it lies in, if more of it than its head has to.
    buffer: Option<SimRx>,
    merged: Option<Box<Merged>>,
    meta: RxMeta,
}

impl RingState {
    pub(super) fn new(config: &NicConfig) -> Self {
        Self {
            open: true,
            steered_only: false,
            generation: 0,
            rx: VecDeque::new(),
            rx_base: 0,
            sessions: Sessions::default(),
            events: VecDeque::new(),
            news: false,
            queued: Vec::new(),
            posted: VecDeque::new(),
            sending: 0,
            completed: Vec::new(),
            spare: Vec::new(),
            completions: VecDeque::new(),
            cookies: 0,
            starved: false,
            tx_pool: Pool::new(config.tx_buffers_max),
            rx_pool: Pool::new(config.rx_buffers_max),
            lends: false,
            kept_head: false,
            #[cfg(feature = "mutants")]
            recycled: None,
            bucket: None,
            flow_buckets: BTreeMap::new(),
            moderation: None,
            unwoken: 0,
            wake_due: None,
            cyclic: BTreeMap::new(),
            cyclic_made: 0,
            wake: Wake::Any,
            is_slept_through: false,
            spoken: 0,
            until: [None; NicFault::ALL.len()],
        }
    }

    pub(super) fn outstanding(&self, rules: usize, device_memory: usize) -> Outstanding {
        Outstanding {
            tx_buffers: self.tx_pool.outstanding(),
            rx_buffers: self.rx_pool.outstanding(),
            tx_frames: self.tx_slots_used(),
            rx_frames: self.rx.len(),
            rules,
            cyclic_queues: self.cyclic.len(),
            cyclic_runs: self.cyclic.values().map(Cyclic::held).sum(),
            device_memory,
        }
    }

    pub(super) fn tx_slots_used(&self) -> usize {
        self.queued.len() + self.posted.len() + self.sending + self.completed.len()
    }

    /// Whether less than a quarter of the receive buffers is left.
    pub(super) fn rx_scarce(&self) -> bool {
        self.rx_pool.left() < self.rx_pool.max() / 4
    }

    pub(super) fn has_something(&self) -> bool {
        !self.rx.is_empty() || !self.events.is_empty() || self.cyclic.values().any(Cyclic::has_packets)
    }

    pub(super) fn suffers(&self, fault: NicFault, now: Instant) -> bool {
        self.until[fault as usize].is_some_and(|until| until > now)
    }

    /// A frame for the ring's own queue arrives.
    pub(super) fn push(&mut self, config: &NicConfig, bytes: &Rc<[u8]>, meta: RxMeta) -> Result<(), RxDrop> {
        let coalesces = config.lro && config.rx_checksum;
        if coalesces && let Some(frame) = self.sessions.continues(bytes).filter(|_| is_sound(meta.checksum)) {
            return self.merge(frame, bytes, meta);
        }
        if self.rx.len() >= config.rx_queue_max {
            return Err(RxDrop::QueueFull);
        }
        let buffer = match bytes.len() > HEAD_MAX {
            true => Some(SimRx::new(&self.rx_pool, bytes).ok_or(RxDrop::NoBuffer)?),
            false => self.hold_head(bytes),
        };
        #[cfg(feature = "mutants")]
        self.recycle(bytes);
        if coalesces && is_sound(meta.checksum) {
            self.sessions.open(self.rx_base + self.rx.len() as u64, bytes);
        }
        self.rx.push_back(Received { bytes: Rc::clone(bytes), buffer, merged: None, meta });
        Ok(())
    }

    /// A buffer for a small frame, if such frames are lent.
    fn hold_head(&mut self, bytes: &Rc<[u8]>) -> Option<SimRx> {
        if !self.lends {
            return None;
        }
        let buffer = if self.rx_pool.left() > self.rx_pool.max() / 2 { SimRx::new(&self.rx_pool, bytes) } else { None };
        self.kept_head |= buffer.is_none();
        buffer
    }

    /// Receives the frame into one of the oldest buffers, too, whoever holds it.
    #[cfg(feature = "mutants")]
    fn recycle(&mut self, bytes: &Rc<[u8]>) {
        const LEFT_ALONE: usize = 16;
        let Some(oldest) = self.recycled.as_mut().filter(|held| held.len() > LEFT_ALONE).and_then(VecDeque::pop_front) else { return };
        if let Some(token) = oldest.upgrade() {
            token.overwrite(bytes);
        }
    }

    fn merge(&mut self, frame: u64, bytes: &[u8], meta: RxMeta) -> Result<(), RxDrop> {
        let at = usize::try_from(frame - self.rx_base).unwrap_or(usize::MAX);
        let Some(received) = self.rx.get_mut(at) else { return Err(RxDrop::QueueFull) };
        if received.buffer.is_none() {
            received.buffer = Some(SimRx::new(&self.rx_pool, &received.bytes).ok_or(RxDrop::NoBuffer)?);
        }
        self.sessions.merge(&received.bytes, &mut received.merged, bytes);
        received.meta.hardware_time = meta.hardware_time;
        Ok(())
    }

    /// Notes that there is something to poll, and says when the ring's owner is to be woken for it. An unsolicited frame has a `nap`.
    pub(super) fn announce(&mut self, now: Instant, nap: Option<Duration>) -> Option<Instant> {
        self.news = true;
        let nap = nap.filter(|_| self.wake == Wake::Solicited);
        self.is_slept_through = nap.is_some() && (self.is_slept_through || self.rx.len() == 1);
        if let Some(nap) = nap {
            return Some(now + nap);
        }
        let Some(Moderation { count, period_us }) = self.moderation else { return Some(now) };
        self.unwoken = self.unwoken.saturating_add(1);
        if count > 0 && self.unwoken >= count {
            self.wake_due = None;
            self.unwoken = 0;
            return Some(now);
        }
        if self.wake_due.is_none() {
            self.wake_due = Some(now + Duration::from_micros(u64::from(period_us)));
        }
        None
    }

    /// Whether there is nothing but what its owner slept through.
    pub(super) fn is_slept_through(&self) -> bool {
        self.is_slept_through && !self.rx.is_empty() && self.events.is_empty()
    }

    pub(super) fn poll(&mut self, batch: &mut RxBatch<SimRx>) -> usize {
        let mut polled = 0;
        self.sessions.close();
        self.unwoken = 0;
        self.wake_due = None;
        while !self.rx.is_empty() {
            let Some(slot) = batch.push_slot() else { break };
            let Some(frame) = self.rx.pop_front().map(Received::finish) else { break };
            self.rx_base += 1;
            #[cfg(feature = "mutants")]
            if let (true, Some(held), Some(buffer)) = (self.lends, &mut self.recycled, &frame.buffer) {
                held.push_back(buffer.token());
            }
            slot.fill(&frame.bytes, frame.buffer.filter(|_| self.lends || frame.bytes.len() > HEAD_MAX));
            slot.meta = frame.meta;
            polled += 1;
        }
        polled
    }

    /// A blank to queue a frame in.
    pub(super) fn blank(&mut self) -> Box<Queued> {
        self.spare.pop().unwrap_or_default()
    }

    /// The hardware is done with a frame.
    pub(super) fn end(&mut self, mut frame: Box<Queued>, status: SendStatus, at: Instant) {
        if frame.cookie != 0 {
            frame.ended = Some((status, at));
        }
        self.completed.push(frame);
    }

    /// Whether it, or a flow of it, has a rate.
    pub(super) fn is_paced(&self) -> bool {
        self.bucket.is_some() || !self.flow_buckets.is_empty()
    }

    /// Which of the frames that were handed over leaves next, and when at the earliest. Each is behind the others of its flow, if that has a rate, or else of
    /// all that have none.
    pub(super) fn next_to_leave(&self) -> Option<(usize, Instant)> {
        if self.flow_buckets.is_empty() {
            return self.posted.front().map(|first| (0, self.ready_at(first)));
        }
        let mut seen = BTreeSet::new();
        let lane = |frame: &Queued| if self.flow_buckets.contains_key(&frame.flow) { frame.flow } else { 0 };
        let firsts = self.posted.iter().enumerate().filter(|(_, (_, frame))| seen.insert(lane(frame)));
        firsts.map(|(index, first)| (index, self.ready_at(first))).min_by_key(|(_, at)| *at)
    }

    fn ready_at(&self, (posted_at, frame): &(Instant, Box<Queued>)) -> Instant {
        if frame.dummy || !self.is_paced() {
            return *posted_at;
        }
        let len = frame.next_len();
        let buckets = self.flow_buckets.get(&frame.flow).into_iter().chain(&self.bucket);
        buckets.map(|bucket| bucket.ready_at(len)).fold(*posted_at, Ord::max)
    }

    /// A frame of a flow leaves, with so many bytes.
    pub(super) fn take_tokens(&mut self, now: Instant, flow: u32, len: usize) {
        let buckets = self.flow_buckets.get_mut(&flow).into_iter().chain(&mut self.bucket);
        buckets.for_each(|bucket| bucket.take(now, len));
    }

    /// The hardware is done with one of the frames that it was to send.
    pub(super) fn end_posted(&mut self, index: usize, status: SendStatus, at: Instant) {
        if let Some((_, frame)) = self.posted.remove(index) {
            self.end(frame, status, at);
        }
    }

    /// `hardware_time`: completions have that.
    pub(super) fn reap(&mut self, hardware_time: bool) {
        for mut frame in self.completed.drain(..) {
            if let (Some((status, at)), cookie @ 1..) = (frame.ended.take(), mem::take(&mut frame.cookie)) {
                let at = if hardware_time { at } else { frame.handed_at };
                self.completions.push_back(Completion { cookie, at: (status == SendStatus::Sent).then_some(at), status });
            }
            frame.inline.clear();
            frame.body.clear();
            self.spare.push(frame);
        }
    }

    /// Nobody will be told what became of what was sent so far, as far as it has not left.
    pub(super) fn lose_completions(&mut self) {
        let queued = self.queued.iter_mut().chain(self.posted.iter_mut().map(|(_, frame)| frame)).chain(&mut self.completed);
        queued.for_each(|frame| frame.cookie = 0);
        self.completions.clear();
        self.cookies = 0;
    }

    /// Whether another send may carry a cookie. (Not before its driver knows of a reset: it would take the cookie for lost.)
    pub(super) fn takes_cookies(&self, tx_queue_max: usize) -> bool {
        self.cookies < tx_queue_max && !self.events.contains(&DeviceEvent::Reset)
    }

    /// All that was received and not polled is lost.
    pub(super) fn drop_received(&mut self) {
        self.sessions.close();
        self.rx_base += self.rx.len() as u64;
        self.rx.clear();
        self.cyclic.values_mut().for_each(Cyclic::clear);
    }

    /// All that waits to be sent completes unsent.
    pub(super) fn flush_posted(&mut self) {
        let queued = self.queued.drain(..);
        self.completed.extend(self.posted.drain(..).map(|(_, frame)| frame).chain(queued));
    }

    /// Its owner is gone: everything that it had is given back.
    pub(super) fn shut(&mut self) {
        self.drop_received();
        self.flush_posted();
        self.lose_completions();
        self.reap(false);
        self.open = false;
        (self.lends, self.kept_head) = (false, false);
        self.generation += 1;
        self.sending = 0;
        self.cyclic.clear();
        self.events.clear();
        self.news = false;
        self.starved = false;
        self.bucket = None;
        self.flow_buckets.clear();
        self.moderation = None;
        self.wake_due = None;
        (self.wake, self.is_slept_through) = (Wake::Any, false);
        self.until = [None; NicFault::ALL.len()];
    }

    pub(super) fn take_starved(&mut self) -> bool {
        mem::take(&mut self.starved)
    }
}

impl Received {
    /// The frame as it goes up.
    fn finish(mut self) -> Self {
        let Some(merged) = self.merged.take() else { return self };
        self.meta.coalesced = merged.segments;
        self.bytes = merged.finish().into();
        self.buffer = self.buffer.map(|buffer| buffer.refilled(&self.bytes));
        self
    }
}
