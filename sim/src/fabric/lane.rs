//! One way along a link: a queue, a serialiser, a delay, and whatever goes wrong in between.

use core::time::Duration;

use arrayvec::ArrayVec;
use ringway_stack::Instant;

use super::classes::Classes;
use super::{Arrival, Conditions, Direction, Frame, LinkConfig, Marks, Strike};
use crate::dissect;

/// Preamble, start delimiter, frame check sequence and inter-frame gap (IEEE 802.3): they take time on the wire.
const ETHERNET_OVERHEAD: u64 = 24;

/// A frame's way along a lane.
#[derive(Debug, Default)]
pub(crate) struct Passage {
    /// When its last bit left the sender.
    pub(crate) departs: Instant,
    /// None, one, or two copies.
    pub(crate) arrivals: ArrayVec<Arrival, 2>,
    /// What befell it.
    pub(crate) strikes: ArrayVec<Strike, 8>,
    /// The frame as it was before; absent only if nothing befell it.
    pub(crate) before: Option<Frame>,
}

/// One way along a link.
#[derive(Debug)]
pub(crate) struct Lane {
    config: LinkConfig,
    conditions: Conditions,
    direction: Direction,
    busy_until: Instant,
    /// The last frame's length, the bandwidth, and the time that it took: most are as long as the one before, and a division takes its time.
    recent: (usize, u64, Duration),
    /// The last arrival on the slower link: none overtakes it.
    behind: Instant,
    classes: Classes,
}

impl Lane {
    pub(crate) fn new(seed: u64, link: usize, direction: Direction, config: LinkConfig) -> Self {
        let index = u32::try_from(link).unwrap_or(u32::MAX);
        let classes = Classes::new(seed, index, direction);
        let (busy_until, behind) = (Instant::ZERO, Instant::ZERO);
        Self { config, conditions: Conditions::default(), direction, busy_until, recent: (0, 0, Duration::ZERO), behind, classes }
    }

    pub(crate) fn config(&self) -> &LinkConfig {
        &self.config
    }

    pub(crate) fn config_mut(&mut self) -> &mut LinkConfig {
        &mut self.config
    }

    pub(crate) fn conditions_mut(&mut self) -> &mut Conditions {
        &mut self.conditions
    }

    /// Sends a frame of `len` bytes at `now` that nothing can befall: when its last bit leaves, and when it arrives. `None`: something may, and
    /// nothing was sent.
    #[inline]
    pub(crate) fn pass(&mut self, now: Instant, len: usize, faults_on: bool) -> Option<(Instant, Instant)> {
        let plain = !self.conditions.down && self.conditions.mtu.is_none() && self.config.mtu.is_none();
        if !plain || (self.direction == Direction::Down && (self.is_full(now, len) || self.marks(now))) {
            return None;
        }
        let departs = now.max(self.busy_until) + self.serialisation(len);
        let at = departs + self.config.latency;
        if faults_on && !self.is_calm(at) {
            return None;
        }
        self.busy_until = departs;
        Some((departs, at.max(self.behind)))
    }

    /// Sends `frame` at `now`.
    pub(crate) fn offer(&mut self, now: Instant, mut frame: Frame, faults_on: bool) -> Passage {
        let mut passage = Passage { departs: now, ..Passage::default() };
        // The switch's end of the link is the router that knows its MTU; what the host sends has yet to get there.
        let mut stop = self.too_long(&frame);
        if self.direction == Direction::Down {
            stop = stop.or(self.is_full(now, frame.bytes.len()).then_some(Strike::QueueFull));
            if let Some(strike) = stop {
                passage.strikes.push(strike);
                passage.before = Some(frame);
                return passage;
            }
            if self.marks(now)
                && let Some(marked) = super::ecn::marked(&frame.bytes)
            {
                // (Its checksums are still right.)
                frame.bytes = marked;
            }
        }
        let departs = now.max(self.busy_until) + self.serialisation(frame.bytes.len());
        self.busy_until = departs;
        passage.departs = departs;
        if let Some(strike) = self.conditions.down.then_some(Strike::LinkDown).or(stop) {
            passage.strikes.push(strike);
            passage.before = Some(frame);
            return passage;
        }
        let mut arrival = Arrival { at: departs + self.config.latency, frame };
        if faults_on && !self.is_calm(arrival.at) {
            passage.before = Some(arrival.frame.clone());
            self.delay(&mut arrival, &mut passage);
            self.classes.judge(&self.config.faults, arrival, &mut passage);
        } else {
            arrival.at = arrival.at.max(self.behind);
            passage.arrivals.push(arrival);
        }
        passage
    }

    /// Whether no fault can strike a frame that arrives at `at`.
    fn is_calm(&self, at: Instant) -> bool {
        self.conditions.delay.is_none() && self.behind <= at && self.classes.are_calm(&self.config.faults)
    }

    /// A slower link's share.
    fn delay(&mut self, arrival: &mut Arrival, passage: &mut Passage) {
        let on_time = arrival.at;
        if let Some((delay, jitter)) = self.conditions.delay {
            arrival.at += delay + self.classes.jitter(jitter);
        }
        arrival.at = arrival.at.max(self.behind);
        if arrival.at > on_time {
            self.behind = arrival.at;
            arrival.frame.marks |= Marks::DELAYED;
            passage.strikes.push(Strike::Delayed { by: arrival.at.since(on_time) });
        }
    }

    fn too_long(&self, frame: &Frame) -> Option<Strike> {
        let mtu = least(self.conditions.mtu, self.config.mtu)?;
        (dissect::packet_len(&frame.bytes)? > usize::from(mtu)).then_some(Strike::TooLong { mtu })
    }

    fn bandwidth_bps(&self) -> Option<u64> {
        least(self.conditions.bandwidth_bps, self.config.bandwidth_bps)
    }

    fn queue_bytes_max(&self) -> usize {
        self.conditions.queue_bytes_max.unwrap_or(usize::MAX).min(self.config.queue_bytes_max)
    }

    /// Whether `len` more bytes find no room.
    fn is_full(&self, now: Instant, len: usize) -> bool {
        self.backlog_bytes(now) + len as u64 > self.queue_bytes_max() as u64
    }

    /// Whether a frame that comes now finds a queue that is long enough to be marked.
    fn marks(&self, now: Instant) -> bool {
        self.config.mark_bytes.is_some_and(|from| self.backlog_bytes(now) > from as u64)
    }

    fn backlog_bytes(&self, now: Instant) -> u64 {
        if self.busy_until <= now {
            return 0;
        }
        self.bandwidth_bps().map_or(0, |bps| bits(self.busy_until.since(now), bps) / 8)
    }

    fn serialisation(&mut self, len: usize) -> Duration {
        let Some(bps) = self.bandwidth_bps() else { return Duration::ZERO };
        if self.recent.0 != len || self.recent.1 != bps {
            self.recent = (len, bps, Self::time_of(len, bps));
        }
        self.recent.2
    }

    fn time_of(len: usize, bps: u64) -> Duration {
        let wire_bits = (len as u64 + ETHERNET_OVERHEAD) * 8;
        Duration::from_nanos((wire_bits * 1_000_000_000).div_ceil(bps.max(1)))
    }
}

/// The lesser limit of those that there are.
fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn bits(time: Duration, bps: u64) -> u64 {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    // The wide division takes as long as all the rest of a frame's way.
    ns.checked_mul(bps).map_or_else(
        || u64::try_from(u128::from(ns) * u128::from(bps) / 1_000_000_000).unwrap_or(u64::MAX),
        |product| product / 1_000_000_000,
    )
}
