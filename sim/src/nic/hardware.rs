//! The hardware: what all rings of a NIC share, and what happens without a driver.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::device::{ChecksumVerdict, DeviceEvent, MacAddr, Protocol, RuleError, RxMeta, SendStatus};

use super::config::NicConfig;
use super::faults::{NicFault, NicFaults, Trouble};
use super::fields::Fields;
use super::mac_per_ring::DeathNotes;
use super::memory::OnDevice;
use super::offload::{Emitted, Queued, tunnel};
use super::queues::RingState;
use super::recycling::Recycling;
use super::steering::{Aim, RINGS_MAX, Steering, Targets};
use super::{Departure, Outstanding, Reception, RxDrop};
use crate::checksum;
use crate::dissect::{self, ETHERNET_LEN, Payload, be16, is_icmp_error};

/// What no rule can steer to the ring that it concerns goes to all: ARP and neighbour discovery, and errors about flows, which name those in their payload.
fn concerns_all(fields: &Fields, bytes: &[u8]) -> bool {
    !fields.is_ip() || fields.transport.is_none() && (is_icmp_error(bytes) || matches!(dissect::payload(bytes), Payload::Lookup(_)))
}

/// A NIC's state.
#[derive(Debug)]
pub(super) struct Hardware {
    pub(super) config: NicConfig,
    pub(super) mac: MacAddr,
    pub(super) now: Instant,
    pub(super) rings: Vec<RingState>,
    pub(super) steering: Steering,
    pub(super) memory: OnDevice,
    pub(super) trouble: Trouble,
    /// Connections that no rule steers: whose it took, and failed later.
    pub(super) unsteered: Vec<(SocketAddr, SocketAddr)>,
    pub(super) death_notes: DeathNotes,
    /// Frames on their way to the wire.
    wire: VecDeque<Leaving>,
    /// What was handed over and may yet be lost on the NIC, until [`Hardware::take_handed`].
    handed: VecDeque<Rc<[u8]>>,
    /// The ring whose turn it is to send.
    turn: usize,
    /// After a reset: until when nothing works.
    down_until: Option<Instant>,
    /// Where frames are made.
    scratch: Vec<u8>,
    recycling: Recycling,
}

/// A frame that was read, and has yet to leave.
#[derive(Debug)]
struct Leaving {
    ring: usize,
    /// Of the ring's owners: which it was.
    generation: u32,
    /// When it will have left, once that is known.
    at: Option<Instant>,
    /// What completes then: of a cut frame, with the last part only.
    done: Option<Box<Queued>>,
}

impl Hardware {
    pub(super) fn new(mac: MacAddr, config: NicConfig, seed: u64, host: u32) -> Self {
        Self {
            mac,
            now: Instant::ZERO,
            rings: Vec::new(),
            steering: Steering::default(),
            memory: OnDevice::new(config.device_memory),
            trouble: Trouble::new(config.faults, seed, host),
            unsteered: Vec::new(),
            death_notes: DeathNotes::default(),
            wire: VecDeque::new(),
            handed: VecDeque::new(),
            turn: 0,
            down_until: None,
            scratch: Vec::new(),
            recycling: Recycling::default(),
            config,
        }
    }

    /// `None`: there is room for no more.
    pub(super) fn open_ring(&mut self, steered_only: bool) -> Option<usize> {
        let index = self.rings.iter().position(|ring| !ring.open).unwrap_or(self.rings.len());
        if index >= self.config.rings_max.min(RINGS_MAX) {
            return None;
        }
        if index == self.rings.len() {
            self.rings.push(RingState::new(&self.config));
        }
        let ring = &mut self.rings[index];
        ring.open = true;
        ring.steered_only = steered_only;
        Some(index)
    }

    /// Whether registering something for a ring fails right now.
    pub(super) fn registration_fails(&mut self, ring: usize) -> bool {
        let now = self.now;
        if let Some(until) = self.trouble.strikes(NicFault::Registration, ring, now) {
            self.rings[ring].until[NicFault::Registration as usize].get_or_insert(until);
        }
        let ring = &mut self.rings[ring];
        let fails = ring.suffers(NicFault::Registration, now);
        ring.starved |= fails;
        fails
    }

    /// Rules whose time has come count from now on, or fail. Whether who sleeps on a ring is to be woken for it.
    fn ripen_rules(&mut self, now: Instant) -> bool {
        let mut wake = false;
        while let Some((rule, aim)) = self.steering.ripen(now) {
            let event = if self.registration_fails(aim.ring) {
                let flow = self.steering.fail(rule).filter(|flow| flow.protocol == Protocol::Tcp);
                self.unsteered.extend(flow.and_then(|flow| Some((flow.local, flow.remote?))));
                self.count_cyclic(aim, -1);
                DeviceEvent::RuleFailed(rule, RuleError::Full)
            } else {
                DeviceEvent::RuleReady(rule)
            };
            let ring = &mut self.rings[aim.ring];
            ring.events.push_back(event);
            (ring.news, wake) = (true, true);
        }
        wake
    }

    pub(super) fn close_ring(&mut self, index: usize) {
        self.steering.detach_all(index);
        self.rings[index].shut();
    }

    pub(super) fn is_down(&self) -> bool {
        self.down_until.is_some_and(|until| until > self.now)
    }

    pub(super) fn receive(&mut self, now: Instant, bytes: &Rc<[u8]>, sound: bool, unsolicited: bool) -> Reception {
        self.now = self.now.max(now);
        if self.is_down() {
            return Reception { outcome: Err(RxDrop::Down), wake_at: None };
        }
        if let Some(until) = self.trouble.strikes(NicFault::Reset, 0, now) {
            self.reset(until);
            return Reception { outcome: Err(RxDrop::Down), wake_at: None };
        }
        let mut reception = Reception { outcome: Err(RxDrop::Down), wake_at: None };
        let Some(fields) = Fields::parse(bytes, 0) else { return reception };
        if self.config.mac_per_ring {
            if let Some(ring) = self.ring_of(bytes) {
                let delivered = self.deliver(now, Aim { ring, queue: None, tag: 0 }, bytes, (sound, unsolicited));
                (reception.outcome, reception.wake_at) = (delivered.map(drop), delivered.ok().flatten());
            }
            return reception;
        }
        let steered = if fields.dst.is_multicast() { None } else { self.steering.target(&fields, bytes) };
        let alone = || (!fields.dst.is_multicast() && !concerns_all(&fields, bytes)).then(|| self.stacks().next()).flatten();
        if let Some(target) = steered.or_else(alone) {
            match Some(target).map(|target| self.deliver(now, target, bytes, (sound, unsolicited))) {
                Some(Ok(wake_at)) => reception = Reception { outcome: Ok(()), wake_at },
                Some(Err(drop)) => reception.outcome = Err(drop),
                None => {}
            }
            return reception;
        }
        for (i, target) in self.targets(&fields, bytes).into_iter().enumerate() {
            match self.deliver(now, target, bytes, (sound, unsolicited)) {
                Ok(wake_at) => {
                    reception.outcome = Ok(());
                    reception.wake_at = [reception.wake_at, wake_at].into_iter().flatten().min();
                }
                Err(drop) if i == 0 => reception.outcome = Err(drop),
                Err(_) => {}
            }
        }
        reception
    }

    fn targets(&self, fields: &Fields, bytes: &[u8]) -> Targets {
        let steered = self.steering.targets(fields, bytes);
        if !steered.is_empty() {
            return steered;
        }
        if concerns_all(fields, bytes) { self.stacks().collect() } else { self.stacks().next().into_iter().collect() }
    }

    /// Where frames go that no rule steers.
    fn stacks(&self) -> impl Iterator<Item = Aim> {
        let stacks = self.rings.iter().enumerate().filter(|(_, ring)| ring.open && !ring.steered_only);
        stacks.map(|(ring, _)| Aim { ring, queue: None, tag: 0 })
    }

    fn deliver(
        &mut self,
        now: Instant,
        target: Aim,
        bytes: &Rc<[u8]>,
        (sound, unsolicited): (bool, bool),
    ) -> Result<Option<Instant>, RxDrop> {
        let overruns = self.trouble.strikes(NicFault::CqOverrun, target.ring, now);
        let exhausts = self.trouble.strikes(NicFault::RxExhausted, target.ring, now);
        if overruns.is_some() {
            self.lose_completions(target.ring);
        }
        let ring = &mut self.rings[target.ring];
        if let Some(until) = overruns {
            ring.drop_received();
            ring.until[NicFault::CqOverrun as usize].get_or_insert(until);
        }
        if let Some(until) = exhausts {
            ring.until[NicFault::RxExhausted as usize].get_or_insert(until);
        }
        // Until the driver has dealt with it, that is, until `advance` has told it.
        if ring.until[NicFault::CqOverrun as usize].is_some() {
            return Err(RxDrop::Down);
        }
        if ring.suffers(NicFault::RxExhausted, now) {
            return Err(RxDrop::NoBuffer);
        }
        let checksum = match self.config.rx_checksum {
            true if sound => ChecksumVerdict::Good,
            true => verify(bytes, self.config.vxlan),
            false => ChecksumVerdict::Unknown,
        };
        debug_assert!(!sound || verify(bytes, true) == ChecksumVerdict::Good, "a sound frame with a wrong checksum");
        let hardware_time = self.config.hardware_time.then_some(now);
        let mut meta = RxMeta { flow_tag: target.tag, checksum, hardware_time, ..RxMeta::default() };
        let stripped = if self.config.vlan_strip { strip(bytes) } else { None };
        meta.vlan = stripped.as_ref().map(|(tag, _)| *tag);
        let bytes = stripped.as_ref().map_or(bytes, |(_, bytes)| bytes);
        match target.queue.and_then(|queue| ring.cyclic.get_mut(&queue.0)) {
            Some(cyclic) => cyclic.fill(bytes, meta).then_some(()).ok_or(RxDrop::NoBuffer)?,
            None => ring.push(&self.config, bytes, meta)?,
        }
        Ok(ring.announce(now, unsolicited.then_some(self.config.nap)))
    }

    pub(super) fn transmit(&mut self, now: Instant) -> Option<Departure> {
        self.now = self.now.max(now);
        let now = self.now;
        for _ in 0..self.rings.len() {
            let index = if self.turn < self.rings.len() { self.turn } else { 0 };
            self.turn = index + 1;
            if let Some(frame) = self.transmit_from(now, index) {
                return Some(frame);
            }
        }
        None
    }

    fn transmit_from(&mut self, now: Instant, index: usize) -> Option<Departure> {
        let ring = &mut self.rings[index];
        loop {
            let (first, ready_at) = ring.next_to_leave()?;
            if ready_at > now {
                return None;
            }
            let frame = &mut ring.posted[first].1;
            if frame.dummy {
                ring.end_posted(first, SendStatus::Sent, now);
                continue;
            }
            let fails = self.trouble.strikes(NicFault::SendError, index, now);
            if fails.is_some() {
                ring.until[NicFault::SendError as usize] = fails;
            }
            if ring.until[NicFault::SendError as usize].is_some_and(|until| until > now) {
                // (The buffers come back.)
                ring.end_posted(first, if fails.is_some() { SendStatus::Failed } else { SendStatus::Flushed }, now);
                continue;
            }
            let (flow, len, unsolicited, shown) = (frame.flow, frame.next_len(), frame.unsolicited, frame.shown);
            let (departure, last) = match frame.plain_len() {
                Some(len) => {
                    let (bytes, sound) = self.recycling.make(len, |out| frame.emit_plain(out));
                    (Departure { bytes, sound, unsolicited, shown }, true)
                }
                None => {
                    let Emitted { last, sound } = frame.emit(&mut self.scratch);
                    (Departure { bytes: self.scratch[..].into(), sound, unsolicited, shown }, last)
                }
            };
            ring.take_tokens(now, flow, len);
            let done = if last { ring.posted.remove(first).map(|(_, frame)| frame) } else { None };
            ring.sending += usize::from(last);
            self.wire.push_back(Leaving { ring: index, generation: ring.generation, at: None, done });
            return Some(departure);
        }
    }

    /// Whether a frame of a ring that was handed over may leave late, or never.
    fn holds_frames(&self, ring: usize) -> bool {
        let NicFaults { reset, send_error, doorbell, .. } = &self.config.faults;
        [reset, send_error, doorbell].iter().any(|strength| strength.ppm > 0) || self.rings[ring].is_paced()
    }

    /// A doorbell rang: what was queued is the hardware's.
    pub(super) fn hand_over(&mut self, ring: usize, ready_at: Instant) {
        let (shown, now) = (self.holds_frames(ring), self.now);
        let ring = &mut self.rings[ring];
        for mut frame in ring.queued.drain(..) {
            (frame.handed_at, frame.shown) = (now, shown);
            if shown && !frame.dummy {
                frame.emit_all(&mut self.scratch, &mut self.handed);
            }
            ring.posted.push_back((ready_at, frame));
        }
    }

    pub(super) fn take_handed(&mut self) -> Option<Rc<[u8]>> {
        self.handed.pop_front()
    }

    pub(super) fn complete(&mut self) -> bool {
        let Leaving { ring: index, generation, done, at } = self.wire.pop_front().expect("a completion for a frame that was never read");
        let ring = &mut self.rings[index];
        let Some(frame) = done.filter(|_| ring.generation == generation) else { return false };
        ring.sending -= 1;
        let at = at.unwrap_or(self.now);
        ring.end(frame, SendStatus::Sent, at);
        if let Some(until) = self.trouble.strikes(NicFault::Completion, index, at) {
            ring.until[NicFault::Completion as usize].get_or_insert(until);
        }
        ring.take_starved()
    }

    /// The driver takes back what the hardware is done with, and has told of.
    pub(super) fn reap(&mut self, ring: usize) {
        let (now, hardware_time) = (self.now, self.config.hardware_time);
        let ring = &mut self.rings[ring];
        if !ring.suffers(NicFault::Completion, now) {
            ring.reap(hardware_time);
        }
    }

    /// What was sent so far completes untold.
    fn lose_completions(&mut self, ring: usize) {
        self.rings[ring].lose_completions();
        let own = self.wire.iter_mut().filter(|leaving| leaving.ring == ring);
        own.filter_map(|leaving| leaving.done.as_mut()).for_each(|frame| frame.cookie = 0);
    }

    pub(super) fn leaves(&mut self, at: Instant) {
        if let Some(last) = self.wire.back_mut() {
            last.at = Some(at);
        }
    }

    pub(super) fn settle(&mut self, now: Instant) -> bool {
        let mut wake = false;
        while self.wire.front().and_then(|frame| frame.at).is_some_and(|at| at <= now) {
            wake |= self.complete();
        }
        wake
    }

    /// When a frame completes for which someone waits.
    fn room_at(&self) -> Option<Instant> {
        self.wire.front().filter(|_| self.rings.iter().any(|ring| ring.open && ring.starved)).and_then(|frame| frame.at)
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        let ring_at = |ring: &RingState| {
            let posted = ring.next_to_leave().map(|(_, at)| at);
            let faults = if self.trouble.calm { &[][..] } else { &ring.until[..] };
            faults.iter().copied().flatten().chain(posted).chain(ring.wake_due).min()
        };
        self.rings
            .iter()
            .filter(|ring| ring.open)
            .filter_map(ring_at)
            .chain(self.down_until)
            .chain(self.room_at())
            .chain(self.steering.ripe_at())
            .min()
    }

    pub(super) fn advance(&mut self, now: Instant) -> bool {
        self.now = self.now.max(now);
        let mut wake = self.settle(now) | self.ripen_rules(now);
        let recovered = self.down_until.take_if(|until| *until <= now).is_some();
        for ring in self.rings.iter_mut().filter(|ring| ring.open) {
            let mut ended = false;
            let mut reset = recovered;
            for &fault in if self.trouble.calm { &[][..] } else { &NicFault::ALL[..] } {
                if ring.until[fault as usize].take_if(|until| *until <= now).is_some() {
                    ended = true;
                    reset |= fault == NicFault::CqOverrun;
                }
            }
            if reset {
                ring.events.push_back(DeviceEvent::Reset);
                ring.news = true;
            }
            let woken = ring.wake_due.take_if(|due| *due <= now).is_some();
            wake |= woken || reset || (ended && ring.take_starved());
        }
        wake
    }

    /// Everything on the NIC is lost but rules, buffers that are held, and device memory.
    fn reset(&mut self, until: Instant) {
        self.down_until = Some(until);
        (0..self.rings.len()).for_each(|ring| self.lose_completions(ring));
        for ring in self.rings.iter_mut().filter(|ring| ring.open) {
            ring.drop_received();
            ring.flush_posted();
        }
    }

    pub(super) fn set_faults(&mut self, on: bool) {
        self.trouble.on = on;
        if on {
            return;
        }
        // What they brought about ends now, as it would have in time: whoever was refused is woken.
        let now = self.now;
        let end = |until: &mut Option<Instant>| *until = until.map(|until| until.min(now));
        end(&mut self.down_until);
        for ring in &mut self.rings {
            ring.until.iter_mut().for_each(end);
            for (ready_at, _) in &mut ring.posted {
                *ready_at = (*ready_at).min(now);
            }
        }
    }

    pub(super) fn outstanding(&self) -> Outstanding {
        let mut all = Outstanding { device_memory: self.memory.used(), ..Outstanding::default() };
        for ring in &self.rings {
            all += ring.outstanding(0, 0);
        }
        all.rules = self.steering.len();
        all
    }

    pub(super) fn take_news(&mut self) -> bool {
        let mut news = false;
        for ring in self.rings.iter_mut().filter(|ring| ring.open) {
            news |= core::mem::take(&mut ring.news) && ring.steered_only;
        }
        news
    }

    pub(super) fn check_doorbells(&self) {
        for ring in &self.rings {
            assert!(ring.queued.is_empty(), "device contract: {} frames were queued without a doorbell", ring.queued.len());
        }
    }
}

/// Judges a frame's checksums, those inside a tunnel too if the NIC looks there.
fn verify(frame: &[u8], vxlan: bool) -> ChecksumVerdict {
    let outer = checksum::verify(frame);
    match if vxlan { tunnel(frame) } else { None } {
        // RFC 7348 s5: the outer UDP checksum is usually zero, which says nothing against the frame.
        Some(tunnel) if outer != ChecksumVerdict::Bad => checksum::verify(&frame[tunnel.inner_at..]),
        _ => outer,
    }
}

/// The frame without its VLAN tag, and the tag.
fn strip(frame: &[u8]) -> Option<(u16, Rc<[u8]>)> {
    if be16(frame, 12)? != 0x8100 || frame.len() < ETHERNET_LEN + 4 {
        return None;
    }
    let tag = be16(frame, 14)?;
    let mut bytes = frame[..12].to_vec();
    bytes.extend_from_slice(&frame[16..]);
    Some((tag, bytes.into()))
}
