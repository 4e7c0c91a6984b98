//! Rings whose frames come in strides as well, by rules that are made, moved and ended all the while, and leave at rates, as large sends, and from memory on the card.

mod built;
mod changes;

use core::time::Duration;
use std::net::Ipv4Addr;

use ringway_mlx5::{Received, SendBuffer};
use ringway_sim::random::RandomStream;
use ringway_stack::Instant;
use ringway_stack::device::{
    CyclicId, Device as _, DeviceEvent, DeviceMemory, Queues as _, QueuesConfig, RuleId, RxBatch, RxBuffer as _, SendError, Target,
    TxBuffer as _, TxFrame, TxSlice,
};

use super::super::plan::LanesPlan;
use super::super::watched::{Watched, WatchedQueues};
use built::Built;
pub(crate) use changes::Changes;

const PAUSE: Duration = Duration::from_micros(50);
/// Until there is room again, most likely.
const FULL: Duration = Duration::from_millis(2);
/// Until it asks again for what was refused.
const RETRY: Duration = Duration::from_millis(20);
/// Bytes that a send buffer takes.
const BUFFER: usize = 4096;

/// The address of a host's rings, which no socket has.
fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 7, 1 + host as u8)
}

/// A run of frames that was not given back, and what they were when it came.
type Run = (Received, Vec<(usize, Vec<u8>)>);

/// A queue of strides.
struct Strides {
    id: CyclicId,
    bytes: usize,
    held: Vec<Run>,
}

/// Who sends some, and receives the peer's.
pub(crate) struct Lanes {
    host: usize,
    device: Watched,
    /// The first one sends, and has the queues of strides; the second comes and goes.
    rings: [Option<WatchedQueues>; 2],
    strides: Vec<Strides>,
    rules: Vec<(RuleId, Target)>,
    on_card: Option<(DeviceMemory, usize)>,
    plan: LanesPlan,
    sent: u32,
    changed: u32,
    next_at: Instant,
    change_at: Instant,
    dice: RandomStream,
    cookie: u64,
    /// Frames that were made of memory on the card.
    pub(crate) from_card: u64,
    /// What was changed.
    pub(crate) done: Changes,
    is_gone: bool,
}

impl Lanes {
    pub(crate) fn new(host: usize, device: Watched, plan: LanesPlan, dice: RandomStream) -> Self {
        Self {
            host,
            device,
            rings: [None, None],
            strides: Vec::new(),
            rules: Vec::new(),
            on_card: None,
            plan,
            sent: 0,
            changed: 0,
            next_at: plan.begin,
            change_at: plan.begin,
            dice,
            cookie: 0,
            from_card: 0,
            done: Changes::default(),
            is_gone: false,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.is_gone || self.sent == self.plan.frames && self.changed == self.plan.changes
    }

    pub(crate) fn state(&self) -> String {
        let LanesPlan { frames, changes, .. } = self.plan;
        format!("{} of {frames} lanes' with {} of {changes} changes", self.sent, self.changed)
    }

    pub(crate) fn rings(&self) -> impl Iterator<Item = &WatchedQueues> {
        self.rings.iter().flatten()
    }

    pub(crate) fn rings_mut(&mut self) -> impl Iterator<Item = &mut WatchedQueues> {
        self.rings.iter_mut().flatten()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let sends = (!self.is_done() && self.sent < self.plan.frames).then_some(self.next_at);
        let changes = (!self.is_done() && self.changed < self.plan.changes).then_some(self.change_at);
        self.rings().filter_map(WatchedQueues::deadline).chain(sends).chain(changes).min()
    }

    /// Does what can be done now. Whether that was something.
    pub(crate) fn step(&mut self, now: Instant) -> bool {
        let mut done = self.look(now);
        if self.is_done() || !self.open(now) {
            return done;
        }
        if self.changed < self.plan.changes && self.change_at <= now {
            self.change(now);
            self.changed += 1;
            self.change_at = now + Duration::from_nanos(self.dice.magnitude(1_000, 10_000_000));
            done = true;
        }
        let mut posted = false;
        while self.sent < self.plan.frames && self.next_at <= now {
            self.next_at = now + PAUSE;
            match self.send() {
                Ok(()) => (self.sent, posted) = (self.sent + 1, true),
                Err(SendError::Full) => {
                    self.next_at = now + FULL;
                    break;
                }
                Err(error) => {
                    assert!(error == SendError::NoPeer, "law programs: a frame is not sent: {error:?}");
                    break;
                }
            }
            if self.dice.chance_ppm(700_000) {
                self.next_at = now;
            }
        }
        if let Some(ring) = self.rings[0].as_mut().filter(|_| posted) {
            ring.doorbell();
        }
        done || posted
    }

    /// Opens its first ring, unless that is refused.
    fn open(&mut self, now: Instant) -> bool {
        if self.rings[0].is_none() && self.next_at.max(self.change_at) <= now {
            self.rings[0] = self.device.open(&QueuesConfig { steered_only: true }).ok();
            if self.rings[0].is_none() {
                (self.next_at, self.change_at) = (now + RETRY, now + RETRY);
                self.is_gone = self.device.card.borrow().end_answer() != 0;
            }
        }
        self.rings[0].is_some()
    }

    /// Takes what has come, and gives back some of what was held.
    fn look(&mut self, now: Instant) -> bool {
        let mut done = false;
        for ring in self.rings.iter_mut().flatten() {
            let mut batch = RxBatch::new(16);
            done |= ring.poll_rx(now, &mut batch) > 0;
            batch.clear();
            ring.reap();
            while ring.completion().is_some() {
                done = true;
            }
            while let Some(event) = ring.poll_event() {
                self.is_gone |= event == DeviceEvent::Gone;
                done = true;
            }
        }
        let Some(ring) = &mut self.rings[0] else { return done };
        for strides in &mut self.strides {
            let most = self.dice.between(1, 12) as usize;
            done |= strides.read(ring, most);
            // (Some are held for long, and they are given back in any order.)
            while strides.held.len() > 8 || !strides.held.is_empty() && self.dice.chance_ppm(400_000) {
                let at = self.dice.below(strides.held.len() as u64) as usize;
                strides.give_back(at);
            }
        }
        done
    }

    /// Takes all that there is, and holds nothing any more.
    pub(crate) fn drain(&mut self, now: Instant) {
        while self.look(now) {}
        let Some(ring) = &mut self.rings[0] else { return };
        for strides in &mut self.strides {
            while !strides.held.is_empty() {
                strides.give_back(0);
            }
            while strides.read(ring, 64) {
                strides.give_back(0);
            }
        }
    }

    /// Sends one.
    fn send(&mut self) -> Result<(), SendError> {
        let Some(ring) = &mut self.rings[0] else { return Err(SendError::Full) };
        let Built { head, payload, offload } = Built::drawn(self.host, self.sent, &mut self.dice);
        let mut buffers: Vec<(SendBuffer, usize, usize)> = Vec::new();
        let cut = self.dice.between(1, BUFFER as u64) as usize;
        let mut rest = &payload[..];
        if self.dice.chance_ppm(400_000)
            && let Some((buffer, len)) = on_card(ring, &mut self.on_card, rest, &mut self.dice)
        {
            buffers.push((buffer, 0, len));
            rest = &rest[len..];
            self.from_card += 1;
        }
        for part in rest.chunks(cut.max(rest.len().div_ceil(4)).min(BUFFER)) {
            let mut buffer = ring.tx_alloc(part.len()).ok_or(SendError::Full)?;
            let at = self.dice.below((BUFFER - part.len()).min(64) as u64 + 1) as usize;
            buffer.write(at, part);
            buffers.push((buffer, at, part.len()));
        }
        let body: Vec<_> = buffers.iter().map(|(buffer, offset, len)| TxSlice { buffer, offset: *offset, len: *len }).collect();
        let cookie = if self.dice.chance_ppm(300_000) { self.cookie + 1 } else { 0 };
        ring.send_with_cookie(&TxFrame { head: &head, body: &body, offload }, cookie)?;
        self.cookie = self.cookie.max(cookie);
        Ok(())
    }
}

/// The first bytes of a payload, in memory on the card: as many as fit. `None`: there is none, or frames that wait are made of it.
fn on_card(
    ring: &mut WatchedQueues,
    memory: &mut Option<(DeviceMemory, usize)>,
    payload: &[u8],
    dice: &mut RandomStream,
) -> Option<(SendBuffer, usize)> {
    if memory.is_none() {
        let len = dice.magnitude(16, 8192) as usize & !3;
        *memory = Some((ring.dm_alloc(len).ok()?, len));
    }
    let (name, room) = (*memory)?;
    let offset = dice.below(room as u64 / 4) as usize * 4;
    let len = payload.len().min(room - offset);
    if len == 0 {
        return None;
    }
    let mut words = payload[..len].to_vec();
    words.resize(len.next_multiple_of(4), 0);
    ring.dm_copy_to(name, offset, &words).ok()?;
    let mut again = vec![0; words.len()];
    ring.dm_copy_from(name, offset, &mut again).expect("it was written");
    assert!(again == words, "law device memory: other bytes than were written");
    Some((ring.dm_register(name, offset, len).expect("a part of it"), len))
}

impl Strides {
    /// Takes a run of at most so many frames, if there is one.
    fn read(&mut self, ring: &mut WatchedQueues, most: usize) -> bool {
        let mut packets = Vec::new();
        let run = ring.cyclic_read(self.id, most, &mut packets).expect("it is there");
        let Some(run) = run else { return false };
        let mut end = 0;
        let frames = packets.iter().map(|packet| {
            let is_next = packet.offset == end && packet.place.is_multiple_of(self.bytes);
            assert!(is_next, "law strides: a frame at {} of a run, and not at {end}", packet.offset);
            end = (packet.offset + packet.len.max(1)).next_multiple_of(self.bytes);
            let mut bytes = vec![0; packet.len];
            run.copy_to(packet.offset, &mut bytes);
            (packet.offset, bytes)
        });
        let frames: Vec<_> = frames.collect();
        assert!(!frames.is_empty() && end == run.len(), "law strides: a run of {} bytes, and frames of {end}", run.len());
        self.held.push((run, frames));
        true
    }

    /// Gives a run back, in which nobody has written meanwhile.
    fn give_back(&mut self, at: usize) {
        let (run, frames) = self.held.swap_remove(at);
        for (offset, bytes) in frames {
            let mut now = vec![0; bytes.len()];
            run.copy_to(offset, &mut now);
            assert!(now == bytes, "law strides: a frame that was held is written over");
        }
    }
}
