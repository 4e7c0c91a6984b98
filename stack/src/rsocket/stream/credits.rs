//! What the peer may send: so many messages, and into which piece of the buffer.

use super::Stream;
use super::post::Target;
use crate::device::messages::Messages;
use crate::roce::Flaw;
use crate::rsocket::wire::{Message, TargetSge};
use crate::time::Instant;

impl Stream {
    /// Tells the peer of credits, if it is time to. The first time that is at once: of the second half of the buffer it does not know.
    pub(super) fn update_credits<D: Messages>(&mut self, now: Instant, device: &mut D) {
        let half = self.sizes.recv_buffer / 2;
        let has_half = self.rx.free >= half;
        let is_due = has_half || self.rx.seq.wrapping_sub(self.rx.tell_at) as i16 >= 0;
        let Some(peer) = self.peer.filter(|_| is_due && self.is_live() && self.has_control_slot(has_half)) else { return };
        self.post_spent(now, device);
        self.rx.tell_at = self.rx.seq.wrapping_add(self.sizes.recv_queue / 2);
        let message = Message::Sgl(self.rx.seq.wrapping_add(self.sizes.recv_queue));
        // What fails has failed the stream.
        if !has_half {
            let _ = self.post_control(now, device, message);
            return;
        }
        let address = self.recv_buffer.address + u64::from(self.rx.free_offset);
        let piece = TargetSge { address, key: self.recv_buffer.key, len: half };
        let order = if self.host.has(Flaw::OwnByteOrder) { self.host.order } else { peer.order };
        let slot = peer.targets.address.wrapping_add(u64::from(self.rx.next_slot) * TargetSge::LEN as u64);
        self.rx.free -= half;
        self.rx.granted += u64::from(half);
        let further = if self.host.has(Flaw::OffersTwice) { 0 } else { half };
        self.rx.free_offset = (self.rx.free_offset + further) % self.sizes.recv_buffer;
        self.rx.next_slot = (self.rx.next_slot + 1) % peer.targets.len;
        let _ = self.post_control_sge(now, device, message, &piece.emit(order), Target { address: slot, key: peer.targets.key });
    }
}
