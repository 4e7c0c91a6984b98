//! Receiving: frames out of the peer's ring.

use std::sync::Arc;

use arrayvec::ArrayVec;
use ringway_stack::device::{ChecksumVerdict, MacAddr, RxBatch, RxFrame};

use crate::error::Forged;
use crate::heads::Heads;
use crate::layout::{ADDRESSES, ETHERNET_BYTES, FLIGHTS, GATHER_MAX, SLOT_DATA, SLOT_GATHER, SLOT_VLAN};
use crate::link::Link;
use crate::protocol::{ReadWords, SlotReader, SlotWord};
use crate::rx_buf::{Piece, RxBuf};
use crate::sync::Ordering;

/// Flights held here, above which further ones are copied out and handed back at once: one program that does not read must not
/// use up the numbers that all connections between two members share.
const HELD_MAX: u64 = FLIGHTS as u64 / 2;

/// What one turn of receiving found.
pub(crate) struct Received {
    /// Frames added to the batch.
    pub(crate) count: usize,
    /// Whether the writer was told of consumed slots.
    pub(crate) has_told: bool,
    /// What ended it, if the peer is at fault.
    pub(crate) forged: Option<Forged>,
}

/// The receiving half of a channel.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    pub(crate) slots: SlotReader,
    /// Flights received so far.
    flights: u64,
}

impl Receiver {
    /// Whether the next slot is published. If it is, all of its frame is on its way here by this.
    #[inline]
    pub(crate) fn is_ready(&self, link: &Link) -> bool {
        let Some(found) = self.slots.peek(&link.theirs) else { return false };
        if let Ok((slot, word)) = found {
            fetch_ahead(link, slot, word);
        }
        true
    }

    /// Moves at most `quota` frames into `batch`; small ones with a handle, if there are `heads` for that.
    #[inline(always)]
    pub(crate) fn receive(
        &mut self,
        link: &Arc<Link>,
        own: MacAddr,
        mut heads: Option<&mut Heads>,
        batch: &mut RxBatch<RxBuf>,
        quota: usize,
    ) -> Received {
        let mut received = Received { count: 0, has_told: false, forged: None };
        while received.count < quota && !batch.is_full() {
            match self.next(link, own, heads.as_deref_mut(), batch) {
                Ok(true) => received.count += 1,
                Ok(false) => break,
                Err(forged) => {
                    received.forged = Some(forged);
                    break;
                }
            }
        }
        if self.slots.should_publish() {
            self.slots.publish_consumed(&link.own);
            received.has_told = true;
        }
        received
    }

    /// Copies the next slot, if one is published, and checks the copy.
    #[inline(always)]
    fn next(&mut self, link: &Arc<Link>, own: MacAddr, heads: Option<&mut Heads>, batch: &mut RxBatch<RxBuf>) -> Result<bool, Forged> {
        let Some(found) = self.slots.peek(&link.theirs) else { return Ok(false) };
        let (slot, word) = found?;
        if word.inline_len < ETHERNET_BYTES {
            return Err(Forged("a frame without an Ethernet header"));
        }
        fetch_ahead(link, slot, word);
        if word.gather_count > 0 || word.vlan || heads.is_some() {
            return self.take_any(link, own, heads, batch, (slot, word));
        }
        let Some(frame) = batch.push_slot() else { return Ok(false) };
        copy_head(link, own, frame, (slot, word));
        frame.set_head(word.inline_len);
        frame.meta.checksum = ChecksumVerdict::Good;
        self.slots.advance();
        Ok(true)
    }

    /// A frame that is more than its bytes in the slot.
    #[inline(never)]
    fn take_any(
        &mut self,
        link: &Arc<Link>,
        own: MacAddr,
        heads: Option<&mut Heads>,
        batch: &mut RxBatch<RxBuf>,
        (slot, word): (usize, SlotWord),
    ) -> Result<bool, Forged> {
        let body = if word.gather_count > 0 { Some(self.body(link, slot, word)?) } else { None };
        let Some(frame) = batch.push_slot() else { return Ok(false) };
        copy_head(link, own, frame, (slot, word));
        match (heads, body) {
            // (With a body, the head is headers: whoever has a gather list needs no payload beside it.)
            (_, Some(body)) => frame.set_parted(word.inline_len, Some(body)),
            (None, None) => frame.set_parted(word.inline_len, None),
            (Some(heads), None) => {
                let held = heads.hold(&frame.head[..word.inline_len]).map(|head| RxBuf::of_head(head, word.inline_len));
                frame.set_whole(word.inline_len, held);
            }
        }
        frame.meta.checksum = ChecksumVerdict::Good;
        if word.vlan {
            frame.meta.vlan = Some(link.theirs.load(slot + SLOT_VLAN, Ordering::Relaxed) as u16);
        }
        self.slots.advance();
        Ok(true)
    }

    fn body(&mut self, link: &Arc<Link>, slot: usize, word: SlotWord) -> Result<RxBuf, Forged> {
        let mut pieces = ArrayVec::<Piece, GATHER_MAX>::new();
        for i in 0..word.gather_count {
            let entry = link.theirs.load(slot + SLOT_GATHER + i * 8, Ordering::Relaxed);
            pieces.push(Piece { offset: entry as u32, len: (entry >> 32) as u32 });
        }
        let body = RxBuf::receive(link, word.flight, &pieces)?;
        self.flights += 1;
        if self.flights - link.releases.count() > HELD_MAX {
            link.copied.fetch_add(1, Ordering::Relaxed);
            return Ok(body.into_copy());
        }
        Ok(body)
    }
}

/// Fetches the lines of a slot's frame that lie behind its first one, all at once: a copy meets one after the other.
#[inline(always)]
fn fetch_ahead(link: &Link, slot: usize, word: SlotWord) {
    let end = SLOT_DATA + word.inline_len.saturating_sub(ADDRESSES);
    for line in [64, 128] {
        if line < end {
            link.theirs.prefetch(slot + line);
        }
    }
}

/// Copies a frame's bytes out of its slot, behind the addresses that it has by where it came from: which also makes them impossible to forge.
#[inline(always)]
fn copy_head(link: &Link, own: MacAddr, frame: &mut RxFrame<RxBuf>, (slot, word): (usize, SlotWord)) {
    link.theirs.copy_out(slot + SLOT_DATA, &mut frame.head[ADDRESSES..word.inline_len]);
    frame.head[..6].copy_from_slice(&own.0);
    frame.head[6..12].copy_from_slice(&link.mac.0);
}
