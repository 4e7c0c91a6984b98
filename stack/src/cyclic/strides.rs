//! Runs of packets where the device wrote them: what a striding receive queue has received, given out as a [`super::CyclicBuffer`]'s records are.
//!
//! The queue's buffer is two of the size that the program asked for, one behind the other, and each of them ends at a linear end: no run reaches over it. What was given
//! out stays in the program's hands until a call goes on from one to the other; then the device may write there again. So it has a whole buffer to write to
//! while the program reads the last packets of the other one, and packets that come between two calls are not lost for the end of a buffer.

use std::collections::VecDeque;

use super::{CyclicError, Layout, Records, Refused, Run};
use crate::device::{CyclicConfig, CyclicPacket, RxBuffer};
use crate::time::Instant;

/// The least strides of a buffer: a device's entries hold several each, and there are to be some of them (vma.md s2.14: libvma's queues have as many).
const STRIDES_MIN: usize = 1024;

impl Layout {
    /// The striding queue that writes such records by itself: of packets that are whole, each in a power of two of bytes. `None`: none does.
    pub fn striding(&self) -> Option<CyclicConfig> {
        let is_whole = matches!(self.records, Records::Raw | Records::Padded);
        let strides = self.count.checked_next_power_of_two()?.max(STRIDES_MIN).checked_mul(2)?;
        (is_whole && self.record_bytes.is_power_of_two()).then_some(CyclicConfig { stride_bytes: self.record_bytes, strides })
    }
}

/// A packet that was not given out. Where it lies is counted in bytes since the queue began.
#[derive(Clone, Copy, Debug)]
struct Ready {
    start: u64,
    end: u64,
    is_oversized: bool,
    /// The slot of the socket that it is for.
    socket: u32,
    received: Instant,
    hardware_time: Option<Instant>,
}

/// A handle on bytes that the device may not write to while it is there.
#[derive(Debug)]
struct Held<B> {
    buffer: B,
    /// Where its first packet begins, which is its first byte; and where its last ends.
    start: u64,
    end: u64,
}

/// What a striding queue has received, between the device and the program. See the module's documentation.
#[derive(Debug)]
pub struct Strides<B> {
    config: CyclicConfig,
    /// A packet takes as many strides as it needs; else one that needs several is too long.
    is_padded: bool,
    ready: VecDeque<Ready>,
    /// In the order of their ends. Invariant: what is ready, and what was given out of the part that the next packet is in, lies in one of them.
    held: VecDeque<Held<B>>,
    /// Where the last packet that came begins, and where it ends.
    last: u64,
    seen: u64,
    oversized: u64,
}

impl<B: RxBuffer> Strides<B> {
    /// For records of this layout, of the queue that [`Layout::striding`] says. `None`: as there.
    pub fn new(layout: &Layout) -> Option<Self> {
        let config = layout.striding()?;
        let (is_padded, ready, held) = (layout.records == Records::Padded, VecDeque::new(), VecDeque::new());
        Some(Self { config, is_padded, ready, held, last: 0, seen: 0, oversized: 0 })
    }

    /// The queue that it is of.
    pub const fn config(&self) -> &CyclicConfig {
        &self.config
    }

    /// Packets that came and were not given out.
    pub fn waiting(&self) -> usize {
        self.ready.len()
    }

    /// Packets that were longer than their record.
    pub const fn oversized(&self) -> u64 {
        self.oversized
    }

    /// Bytes of the whole buffer.
    const fn bytes(&self) -> u64 {
        (self.config.strides * self.config.stride_bytes) as u64
    }

    /// Which of the parts between linear ends, since the queue began, something lies in that ends there.
    const fn part(&self, end: u64) -> u64 {
        end.saturating_sub(1) / (self.bytes() / 2)
    }

    /// A run that the device has given: packets, each with the slot of the socket that it is for, or `None` if it is for nobody. `buffer` is on all of them.
    pub(crate) fn add(&mut self, buffer: B, packets: impl IntoIterator<Item = (CyclicPacket, Option<u32>)>, now: Instant) {
        let (before, mut first) = (self.ready.len(), None);
        for (packet, socket) in packets {
            let strides = packet.len.div_ceil(self.config.stride_bytes).max(1);
            // (What comes at a place before the last one has gone around.)
            let round = self.last - self.last % self.bytes();
            let here = round + packet.place as u64;
            self.last = if here < self.last { here + self.bytes() } else { here };
            self.seen = self.last + (strides * self.config.stride_bytes) as u64;
            let start = *first.get_or_insert(self.last);
            debug_assert_eq!(start + packet.offset as u64, self.last, "a run's packets lie behind each other");
            let Some(socket) = socket else { continue };
            let is_oversized = !self.is_padded && strides > 1;
            let hardware_time = packet.meta.hardware_time;
            self.ready.push_back(Ready { start: self.last, end: self.seen, is_oversized, socket, received: now, hardware_time });
        }
        if let Some(start) = first.filter(|_| self.ready.len() > before) {
            self.held.push_back(Held { buffer, start, end: self.seen });
        }
    }

    /// A socket is gone, and what came for it.
    pub(crate) fn forget(&mut self, socket: u32) {
        self.ready.retain(|ready| ready.socket != socket);
    }

    /// Gives out the next run, as [`super::CyclicBuffer::read`] does; `tell` hears the slot of each packet's socket. There are fewer than `min` also where the device has
    /// left strides out, or a packet was dropped.
    ///
    /// # Errors
    /// [`CyclicError::Invalid`], [`CyclicError::Oversized`].
    pub(crate) fn read(&mut self, min: usize, max: usize, mut tell: impl FnMut(u32)) -> Result<Option<Run>, CyclicError> {
        CyclicError::check(min, max)?;
        self.rewind();
        let Some(&first) = self.ready.front() else { return Ok(None) };
        if first.is_oversized {
            self.ready.pop_front();
            self.oversized += 1;
            tell(first.socket);
            return Err(CyclicError::Oversized(Refused::Oversized));
        }
        let part = self.part(first.end);
        let (mut packets, mut end) = (0, first.start);
        for ready in self.ready.iter().take(max) {
            if ready.is_oversized || ready.start != end || self.part(ready.end) != part {
                break;
            }
            (packets, end) = (packets + 1, ready.end);
        }
        // (What comes next does not lie behind it, then.)
        let is_at_end = packets < self.ready.len() || end.is_multiple_of(self.bytes() / 2);
        if packets < min && !is_at_end {
            return Ok(None);
        }
        self.ready.drain(..packets).for_each(|ready| tell(ready.socket));
        let start = (first.start % self.bytes()) as usize;
        let payload = start..start + (end - first.start) as usize;
        let Ready { received, hardware_time, .. } = first;
        Ok(Some(Run { packets, payload, headers: 0..0, received, hardware_time }))
    }

    /// Copies bytes of what was given out, and may not be written to yet, from that place of the buffer on. `false`: they are not all of one run of the device's.
    pub fn copy_to(&self, place: usize, out: &mut [u8]) -> bool {
        let bytes = self.bytes();
        let is_there = |held: &&Held<B>| {
            let first = (held.start % bytes) as usize;
            first <= place && place + out.len() <= first + held.buffer.len()
        };
        let Some(held) = self.held.iter().rev().find(is_there) else { return false };
        held.buffer.copy_to(place - (held.start % bytes) as usize, out);
        true
    }

    /// Lets go of the parts that nothing more comes of.
    fn rewind(&mut self) {
        let next = self.part(self.ready.front().map_or(self.seen, |ready| ready.end));
        while self.held.front().is_some_and(|held| self.part(held.end) < next) {
            self.held.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
