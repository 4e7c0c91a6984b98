//! Frames on their way in.

use std::sync::Arc;

use arrayvec::ArrayVec;
use libc::xdp_desc;
use ringway_stack::device::{ChecksumVerdict, HEAD_MAX, RxBatch};
use ringway_stack::time::Instant;

use super::XdpQueues;
use crate::coalesce::Segment;
use crate::partial;
use crate::socket::CONTINUES;
use crate::umem::{Piece, Received};

/// Chunks of one frame at the most: more than its 64 KiB take. (MAX_SKB_FRAGS, and the first.)
const PIECES_MAX: usize = 18;

impl XdpQueues {
    /// Takes frames of one queue.
    pub(super) fn receive(&mut self, now: Instant, queue: usize, batch: &mut RxBatch<Received>) {
        let umem = Arc::clone(&self.umem);
        let mut taken = 0;
        while !batch.is_full() {
            let Some(first) = self.socket_mut(queue).received.pop() else { break };
            taken += 1;
            if first.options & CONTINUES != 0 {
                self.receive_long(queue, first, batch);
                continue;
            }
            let xdp_desc { addr, len, .. } = first;
            let Some((chunk, at)) = umem.received(addr, len) else { continue };
            // SAFETY: the kernel has given the chunk back, and has written the frame there; nobody has a handle yet.
            let bytes = unsafe { umem.bytes(chunk, at, len) };
            if let Some(exchange) = &self.exchange
                && exchange.takes_syn(now, bytes, self.id)
            {
                self.refill.push(chunk);
                continue;
            }
            self.counters.received += 1;
            self.put(batch, bytes, Piece::new(chunk, at, len));
        }
        if taken > 0 {
            self.socket_mut(queue).received.release();
        }
    }

    /// Takes the rest of a frame that lies in several chunks. (The kernel tells of all of them at once.)
    fn receive_long(&mut self, queue: usize, first: xdp_desc, batch: &mut RxBatch<Received>) {
        let mut pieces: ArrayVec<Piece, PIECES_MAX> = ArrayVec::new();
        let (mut next, mut len, mut is_whole) = (Some(first), 0, true);
        while let Some(desc) = next {
            if let Some((chunk, at)) = self.umem.received(desc.addr, desc.len) {
                len += desc.len as usize;
                if let Err(more) = pieces.try_push(Piece::new(chunk, at, desc.len)) {
                    (is_whole, _) = (false, self.refill.push(more.element().chunk));
                }
            } else {
                is_whole = false;
            }
            if desc.options & CONTINUES == 0 {
                break;
            }
            next = self.socket_mut(queue).received.pop();
            is_whole &= next.is_some();
        }
        self.counters.received += 1;
        if !is_whole || len > usize::from(u16::MAX) {
            return self.refill.extend(pieces.iter().map(|piece| piece.chunk));
        }
        self.put_long(batch, &pieces);
    }

    /// A frame, whose bytes are in `pieces`, goes into the batch, which has room for it.
    fn put_long(&mut self, batch: &mut RxBatch<Received>, pieces: &[Piece]) {
        let Some(frame) = batch.push_slot() else { return self.refill.extend(pieces.iter().map(|piece| piece.chunk)) };
        let umem = Arc::clone(&self.umem);
        let mut head = 0;
        let mut held: Option<(Received, u32)> = None;
        for &place in pieces {
            // SAFETY: the kernel has given the chunk back, and has written this part of the frame there; nobody has a handle yet.
            let bytes = unsafe { umem.bytes(place.chunk, place.at.into(), place.len.into()) };
            let of_head = bytes.len().min(HEAD_MAX - head);
            frame.head[head..head + of_head].copy_from_slice(&bytes[..of_head]);
            head += of_head;
            let piece = self.keep(bytes, place);
            held = Some(match held {
                None => (umem.hold(piece), piece.chunk),
                Some((mut whole, last)) => {
                    whole.append(last, piece);
                    (whole, piece.chunk)
                }
            });
        }
        frame.set_whole(head, held.map(|(whole, _)| whole));
        if self.device.interface().is_virtual && partial::is_left_to_device(&frame.head[..head]) {
            frame.meta.checksum = ChecksumVerdict::Good;
        }
    }

    /// A frame, whose bytes are in `place`, goes into the batch, which has room for it.
    fn put(&mut self, batch: &mut RxBatch<Received>, bytes: &[u8], place: Piece) {
        // (What goes from ring to ring is one frame that came.)
        let may_join = bytes.len() > HEAD_MAX && self.exchange.is_none() && self.device.coalesces();
        let segment = if may_join { Segment::parse(bytes) } else { None };
        let is_left = self.device.interface().is_virtual && partial::is_left_to_device(&bytes[..bytes.len().min(HEAD_MAX)]);
        let segment = segment.filter(|segment| is_left || segment.is_sound(bytes));
        if let Some(segment) = &segment
            && let Some(found) = self.coalescing.find(batch, segment, bytes)
        {
            let payload = segment.payload();
            let piece = self.keep(&bytes[payload..], place.without(payload));
            self.coalescing.merge(batch, found, segment, piece);
            return;
        }
        let Some(frame) = batch.push_slot() else { return self.refill.push(place.chunk) };
        let head = bytes.len().min(HEAD_MAX);
        frame.head[..head].copy_from_slice(&bytes[..head]);
        if is_left || segment.is_some() {
            frame.meta.checksum = ChecksumVerdict::Good;
        }
        if bytes.len() <= HEAD_MAX && !self.lends_heads {
            frame.set_whole(head, None);
            self.refill.push(place.chunk);
            return;
        }
        let piece = self.keep(bytes, place);
        frame.set_whole(head, Some(self.umem.hold(piece)));
        if let Some(segment) = &segment {
            self.coalescing.open(batch, segment, piece.chunk);
        }
    }

    /// Where bytes stay that came in `place`. (What programs leave unread is not to be what others are to receive into.)
    fn keep(&mut self, bytes: &[u8], place: Piece) -> Piece {
        if self.held >= self.held_max()
            && let Some(copy) = self.umem.copy(bytes)
        {
            self.counters.copied += 1;
            self.refill.push(place.chunk);
            return copy;
        }
        self.held += 1;
        place
    }
}
