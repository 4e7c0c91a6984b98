//! Sending: frames into our ring, and our buffers back from the peer.

use arrayvec::ArrayVec;
use ringway_stack::device::{SendError, TxFrame, TxOffload};

use crate::error::Forged;
use crate::layout::{
    ADDRESSES, FLIGHTS, FRAME_MAX, GATHER_HEAD_MAX, GATHER_MAX, INLINE_MAX, SLOT_DATA, SLOT_GATHER, SLOT_VLAN, WAITING_AT,
};
use crate::layout::{ETHERNET_BYTES, POOL_AT};
use crate::link::Link;
use crate::pool::{Allocator, Pool, TxBuf};
use crate::protocol::{Kicker, ReleaseReader, SlotWord, SlotWriter, WriteWords};
use crate::stores::SharedMemory;
use crate::sync::Ordering;
use std::sync::Arc;

/// Why a frame was not put into the ring.
pub(crate) enum NotSent {
    Refused(SendError),
    /// The peer's memory is not a member's.
    Forged(Forged),
}

/// A frame's buffers, held until the peer hands the flight back.
type Flight = ArrayVec<u32, GATHER_MAX>;

/// The sending half of a channel.
#[derive(Debug)]
pub(crate) struct Sender {
    slots: SlotWriter,
    releases: ReleaseReader,
    pub(crate) kicker: Kicker,
    /// Wakes a peer that pauses.
    presser: Kicker,
    /// What the peer had consumed when somebody last waited for room in vain.
    given_up: Option<u64>,
    /// By flight number. Empty: not in flight. Invariant: at most [`FLIGHTS`].
    flights: Vec<Flight>,
    free_flights: Vec<u16>,
    /// Written to since the last doorbell.
    pub(crate) is_touched: bool,
    /// All that was written to since then may wait ([`ringway_stack::device::TxOffload::unsolicited`]).
    pub(crate) is_unsolicited: bool,
    /// A frame was refused for want of room since the last sleep.
    pub(crate) is_blocked: bool,
}

impl Default for Sender {
    fn default() -> Self {
        Self {
            slots: SlotWriter::default(),
            releases: ReleaseReader::default(),
            kicker: Kicker::default(),
            presser: Kicker::of_pauses(),
            given_up: None,
            flights: Vec::new(),
            free_flights: Vec::new(),
            is_touched: false,
            is_unsolicited: false,
            is_blocked: false,
        }
    }
}

impl Sender {
    /// Whether what was written since the last doorbell is no reason to wake a peer that sleeps through such frames. It is, once they fill half of the
    /// channel: the other half is for what has to wake the peer.
    #[inline]
    pub(crate) fn may_wait(&mut self, link: &Link) -> bool {
        self.is_unsolicited && !self.slots.is_half_full(&link.theirs)
    }

    /// Whether the peer is to be woken because its channel fills while it pauses. The caller has put a sequentially consistent fence between what it
    /// published and this.
    #[inline]
    pub(crate) fn must_press(&mut self, link: &Link) -> bool {
        self.slots.seems_half_full() && self.presser.must_kick_if(&link.peer.view, || self.slots.is_half_full(&link.theirs))
    }

    /// Whether the peer has consumed nothing since somebody waited for that in vain.
    pub(crate) fn is_stalled(&self) -> bool {
        self.given_up == Some(self.slots.consumed())
    }

    /// Somebody waited in vain.
    pub(crate) fn give_up(&mut self) {
        self.given_up = Some(self.slots.consumed());
    }

    /// Puts a frame into the ring, if it is one of headers and one piece that is small, as nearly every one is, and there seems to be room. Whether it did.
    #[inline(always)]
    pub(crate) fn sends_small(&mut self, link: &Link, pool: &Arc<Pool>, member: &SharedMemory, frame: &TxFrame<'_, TxBuf>) -> bool {
        let (head, body) = (frame.head.len(), frame.body.first().map_or(0, |slice| slice.len));
        let is_small = (ETHERNET_BYTES..=INLINE_MAX).contains(&head) && body <= INLINE_MAX - head && frame.body.len() <= 1;
        let TxOffload { tso_mss, dummy, vlan, .. } = frame.offload;
        if !is_small || dummy || vlan.is_some() || tso_mss.is_some() || !self.slots.seems_to_have_room() {
            return false;
        }
        copy_inline(link, pool, member, frame, self.slots.slot());
        self.publish(link, SlotWord { inline_len: head + body, gather_count: 0, vlan: false, flight: 0 });
        true
    }

    /// A frame for the channel of this slot is there since the last doorbell.
    #[inline(always)]
    pub(crate) fn touch(&mut self, slot: usize, touched: &mut Vec<u16>, is_unsolicited: bool) {
        if !self.is_touched {
            self.is_touched = true;
            self.is_unsolicited = true;
            touched.push(slot as u16);
        }
        self.is_unsolicited &= is_unsolicited;
    }

    #[inline(always)]
    fn publish(&mut self, link: &Link, word: SlotWord) {
        self.slots.publish(&link.own, word);
        // The next slot's first line is the one that the peer watches: fetching it now would only take it away from
        // there. The lines behind it are ours to have.
        let next = self.slots.slot();
        link.own.prefetch_for_write(next + 64);
        link.own.prefetch_for_write(next + 128);
    }

    /// Puts a frame into the ring.
    ///
    /// # Errors
    /// It is not there.
    pub(crate) fn send(&mut self, link: &Link, pool: &Arc<Pool>, member: &SharedMemory, frame: &TxFrame<'_, TxBuf>) -> Result<(), NotSent> {
        let len = frame.len();
        if len > FRAME_MAX || frame.body.len() > GATHER_MAX || frame.head.len() < ETHERNET_BYTES {
            return Err(NotSent::Refused(SendError::TooLong));
        }
        if !self.slots.has_room(&link.theirs).map_err(NotSent::Forged)? {
            self.is_blocked = true;
            return Err(NotSent::Refused(SendError::Full));
        }
        let slot = self.slots.slot();
        let word = if len <= INLINE_MAX {
            copy_inline(link, pool, member, frame, slot);
            // A slot that is not published is nobody's: the bytes were written to where the next frame's will be.
            if frame.offload.dummy {
                return Ok(());
            }
            SlotWord { inline_len: len, gather_count: 0, vlan: frame.offload.vlan.is_some(), flight: 0 }
        } else if frame.offload.dummy {
            return Ok(());
        } else {
            self.gather(link, pool, frame, slot)?
        };
        if let Some(tag) = frame.offload.vlan {
            link.own.store(slot + SLOT_VLAN, u64::from(tag), Ordering::Relaxed);
        }
        self.publish(link, word);
        Ok(())
    }

    /// Writes the head, and the list of the body's buffers, which it holds from now on.
    fn gather(&mut self, link: &Link, pool: &Arc<Pool>, frame: &TxFrame<'_, TxBuf>, slot: usize) -> Result<SlotWord, NotSent> {
        if frame.head.len() > GATHER_HEAD_MAX {
            return Err(NotSent::Refused(SendError::TooLong));
        }
        let Some(number) = self.take_flight() else {
            self.is_blocked = true;
            return Err(NotSent::Refused(SendError::Full));
        };
        link.own.write(slot + SLOT_DATA, &frame.head[ADDRESSES..]);
        let flight = &mut self.flights[usize::from(number)];
        for slice in frame.body {
            let buffer = slice.buffer;
            assert!(buffer.is_of(pool), "a send buffer of another device");
            let offset = buffer.segment_offset(slice.offset, slice.len) - POOL_AT;
            let entry = offset as u64 | (slice.len as u64) << 32;
            link.own.store(slot + SLOT_GATHER + flight.len() * 8, entry, Ordering::Relaxed);
            pool.retain(buffer.index());
            flight.push(buffer.index());
        }
        Ok(SlotWord { inline_len: frame.head.len(), gather_count: flight.len(), vlan: frame.offload.vlan.is_some(), flight: number })
    }

    fn take_flight(&mut self) -> Option<u16> {
        self.free_flights.pop().or_else(|| {
            (self.flights.len() < FLIGHTS).then(|| {
                self.flights.push(Flight::new());
                (self.flights.len() - 1) as u16
            })
        })
    }

    /// Whether the peer holds any of our buffers.
    #[inline]
    pub(crate) fn has_flights(&self) -> bool {
        self.free_flights.len() < self.flights.len()
    }

    /// Takes back what the peer handed back.
    pub(crate) fn reap(&mut self, link: &Link, allocator: &mut Allocator) -> Result<(), Forged> {
        while self.has_flights()
            && let Some(number) = self.releases.pop(&link.theirs)
        {
            // A flight that is not out is empty: handing it back twice is as wrong as making it up.
            let flight = self.flights.get_mut(number as usize).filter(|flight| !flight.is_empty()).ok_or(Forged("a released flight"))?;
            for index in flight.drain(..) {
                allocator.release(index);
            }
            self.free_flights.push(number as u16);
        }
        Ok(())
    }

    /// Takes everything back from a peer that is gone.
    pub(crate) fn reclaim(&mut self, allocator: &mut Allocator) {
        for index in self.flights.drain(..).flatten() {
            allocator.release(index);
        }
        self.free_flights.clear();
    }

    /// Whether a frame would find room now (after [`Sender::reap`]).
    pub(crate) fn has_room(&mut self, link: &Link) -> Result<bool, Forged> {
        Ok(self.slots.has_room(&link.theirs)? && (!self.free_flights.is_empty() || self.flights.len() < FLIGHTS))
    }

    /// How many frames were ever put into the ring.
    pub(crate) fn published(&self) -> u64 {
        self.slots.published()
    }

    /// Tells the peer whether we sleep for want of room.
    pub(crate) fn set_waiting(&mut self, link: &Link, is_waiting: bool) {
        link.own.store(WAITING_AT, u64::from(is_waiting), Ordering::Relaxed);
    }
}

/// Bytes of the frame that share the cache line of the publish word.
const FIRST_LINE: usize = 64 - SLOT_DATA;

/// Copies a whole frame into its slot. The line that the reader watches comes last: between the first store to it and the
/// publish word, the reader's next look would take it away once more.
#[inline(always)]
fn copy_inline(link: &Link, pool: &Arc<Pool>, member: &SharedMemory, frame: &TxFrame<'_, TxBuf>, slot: usize) {
    let head = &frame.head[ADDRESSES..];
    let mut at = slot + SLOT_DATA + head.len();
    for slice in frame.body {
        let buffer = slice.buffer;
        assert!(buffer.is_of(pool), "a send buffer of another device");
        link.own.write_from_pool(at, member, buffer.segment_offset(slice.offset, slice.len), slice.len);
        at += slice.len;
    }
    let (first, rest) = head.split_at(head.len().min(FIRST_LINE));
    if !rest.is_empty() {
        link.own.write(slot + 64, rest);
    }
    link.own.write(slot + SLOT_DATA, first);
}
