//! Frames on their way in.

use std::sync::Arc;

use libc::xdp_desc;
use ringway_stack::device::{ChecksumVerdict, HEAD_MAX, RxBatch};
use ringway_stack::time::Instant;

use super::XdpQueues;
use crate::coalesce::Segment;
use crate::partial;
use crate::umem::{Piece, Received};

impl XdpQueues {
    /// Takes frames of one queue.
    pub(super) fn receive(&mut self, now: Instant, queue: usize, batch: &mut RxBatch<Received>) {
        let umem = Arc::clone(&self.umem);
        let mut taken = 0;
        while !batch.is_full() {
            let Some(xdp_desc { addr, len, .. }) = self.socket_mut(queue).received.pop() else { break };
            taken += 1;
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
