//! The ring of slots: one writer, one reader, each storing only to its own memory.
//!
//! A slot is published by its first word, which carries the position: the reader needs no tail to know how far the writer
//! is, and a small frame costs one line's transfer. The reader's progress comes back as a counter in the
//! reader's memory, stored rarely, and read by the writer only when the ring looks full.

use super::{ReadWords, WriteWords};
use crate::error::Forged;
use crate::layout::{CONSUMED_AT, GATHER_HEAD_MAX, GATHER_MAX, INLINE_MAX, SLOTS, slot_at};
use crate::sync::Ordering;

/// The publish word of a slot, unpacked. Layout from the low end: position + 1 (32 bits), inline length (8), gather count
/// (4), flags (4), flight (16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotWord {
    /// Bytes inside the slot.
    pub(crate) inline_len: usize,
    /// Entries of the gather list; zero for a frame that is wholly inside.
    pub(crate) gather_count: usize,
    /// Whether a VLAN tag is in the slot.
    pub(crate) vlan: bool,
    /// Names the gather list's buffers when they are handed back.
    pub(crate) flight: u16,
}

const VLAN_FLAG: u64 = 1 << 44;

impl SlotWord {
    const fn pack(self, position: u64) -> u64 {
        let flags = if self.vlan { VLAN_FLAG } else { 0 };
        (position.wrapping_add(1) & 0xffff_ffff)
            | (self.inline_len as u64) << 32
            | (self.gather_count as u64) << 40
            | flags
            | (self.flight as u64) << 48
    }

    /// Of a word that is known to be published.
    pub(crate) fn parse(word: u64) -> Result<Self, Forged> {
        let inline_len = (word >> 32 & 0xff) as usize;
        let gather_count = (word >> 40 & 0xf) as usize;
        let is_right =
            if gather_count == 0 { inline_len <= INLINE_MAX } else { inline_len <= GATHER_HEAD_MAX && gather_count <= GATHER_MAX };
        if !is_right {
            return Err(Forged("a slot's lengths"));
        }
        Ok(Self { inline_len, gather_count, vlan: word & VLAN_FLAG != 0, flight: (word >> 48) as u16 })
    }
}

/// The writing end.
#[derive(Debug, Default)]
pub(crate) struct SlotWriter {
    pub(super) tail: u64,
    /// Invariant: `consumed <= tail <= consumed + SLOTS`.
    pub(super) consumed: u64,
}

impl SlotWriter {
    /// Whether the next slot is free.
    #[inline]
    pub(crate) fn has_room(&mut self, peer: &impl ReadWords) -> Result<bool, Forged> {
        if self.seems_to_have_room() {
            return Ok(true);
        }
        // Acquire: the reader's loads from the slot come before our next stores to it.
        let consumed = peer.load(CONSUMED_AT, Ordering::Acquire);
        if consumed < self.consumed || consumed > self.tail {
            return Err(Forged("the count of consumed slots"));
        }
        self.consumed = consumed;
        Ok(self.tail - consumed < SLOTS as u64)
    }

    /// Whether the next slot is known to be free.
    #[inline]
    pub(crate) fn seems_to_have_room(&self) -> bool {
        self.tail - self.consumed < SLOTS as u64
    }

    /// Whether half of the ring is unread, as far as the reader said when it was last asked.
    #[inline]
    pub(crate) fn seems_half_full(&self) -> bool {
        self.tail - self.consumed >= (SLOTS / 2) as u64
    }

    /// Whether half of it is. (A reader that forges its count is found out by [`SlotWriter::has_room`].)
    #[inline]
    pub(crate) fn is_half_full(&mut self, peer: &impl ReadWords) -> bool {
        self.seems_half_full() && !self.has_half(peer)
    }

    fn has_half(&mut self, peer: &impl ReadWords) -> bool {
        // Acquire: as in `has_room`.
        let consumed = peer.load(CONSUMED_AT, Ordering::Acquire);
        if (self.consumed..=self.tail).contains(&consumed) {
            self.consumed = consumed;
        }
        !self.seems_half_full()
    }

    /// How many slots the reader is known to have consumed.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// How many were published.
    pub(crate) fn published(&self) -> u64 {
        self.tail
    }

    /// Byte offset of the next slot.
    #[inline]
    pub(crate) fn slot(&self) -> usize {
        slot_at(self.tail)
    }

    /// Makes the next slot, which was filled before, visible to the reader.
    #[inline]
    pub(crate) fn publish(&mut self, own: &impl WriteWords, word: SlotWord) {
        own.store(slot_at(self.tail), word.pack(self.tail), Ordering::Release);
        self.tail += 1;
    }
}

/// The reading end.
#[derive(Debug, Default)]
pub(crate) struct SlotReader {
    pub(super) head: u64,
    pub(super) published: u64,
}

impl SlotReader {
    /// Whether [`SlotReader::peek`] would find a slot. One load.
    #[inline]
    pub(crate) fn is_ready(&self, peer: &impl ReadWords) -> bool {
        peer.load(slot_at(self.head), Ordering::Relaxed) as u32 == (self.head as u32).wrapping_add(1)
    }

    /// The next published slot: its offset and word.
    #[inline]
    pub(crate) fn peek(&self, peer: &impl ReadWords) -> Option<Result<(usize, SlotWord), Forged>> {
        let at = slot_at(self.head);
        let word = peer.load(at, Ordering::Acquire);
        // A word of an earlier lap is short by a multiple of SLOTS, so it never looks published.
        if word as u32 != (self.head as u32).wrapping_add(1) {
            return None;
        }
        Some(SlotWord::parse(word).map(|word| (at, word)))
    }

    /// Passes over the slot just copied.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.head += 1;
    }

    /// Whether enough was consumed for the writer to be told. A writer that sees a full ring has at least three
    /// quarters of it unread, so it can't starve between two stores.
    #[inline]
    pub(crate) fn should_publish(&self) -> bool {
        self.head - self.published >= (SLOTS / 4).max(1) as u64
    }

    /// How many slots were consumed, whether the writer has been told or not.
    #[inline]
    pub(crate) fn consumed(&self) -> u64 {
        self.head
    }

    /// Whether the writer has not been told everything.
    #[inline]
    pub(crate) fn has_unpublished(&self) -> bool {
        self.head != self.published
    }

    /// Tells the writer.
    #[inline]
    pub(crate) fn publish_consumed(&mut self, own: &impl WriteWords) {
        own.store(CONSUMED_AT, self.head, Ordering::Release);
        self.published = self.head;
    }
}
