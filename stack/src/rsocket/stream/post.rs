//! Requests to the send queue. Each says in its number what it was, so that its completion needs no other memory.

use super::Stream;
use crate::device::messages::{Data, Memory, Messages, SendOp, SendWr, Sge};
use crate::error::Error;
use crate::roce::Flaw;
use crate::rsocket::config::CONTROL_SLOTS;
use crate::rsocket::wire::{Message, TargetSge};
use crate::time::Instant;

/// In a request's number: it is a receive.
pub(super) const RECEIVE: u64 = 1 << 63;
/// It is a message whose data went before it: by a write, if messages are sends, or without a request.
pub(super) const PART: u64 = 1 << 62;

/// Where a message's bytes go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) address: u64,
    pub(super) key: u32,
}

/// There are no bytes to write.
pub(super) const NOWHERE: Target = Target { address: 0, key: 0 };

impl Stream {
    /// How many requests a message takes.
    pub(super) const fn requests_of_a_message(&self) -> u16 {
        if self.host.by_sends { 2 } else { 1 }
    }

    /// Writes bytes, and says so by `message`: in one request, or where the device cannot, in two.
    pub(super) fn post_message<D: Messages>(
        &mut self,
        now: Instant,
        device: &mut D,
        message: Message,
        data: Data<'_>,
        target: Target,
    ) -> Result<(), Error> {
        let word = message.word();
        let id = u64::from(word);
        let op = |immediate| SendOp::Write { address: target.address, rkey: target.key, immediate };
        if !self.host.by_sends {
            return self.post(now, device, &SendWr::new(id, op(Some(word)), data));
        }
        let has_bytes = match data {
            Data::Gather(sges) => !sges.is_empty(),
            Data::Inline(bytes) => !bytes.is_empty(),
        };
        if has_bytes {
            self.post(now, device, &SendWr::new(id, op(None), data))?;
        }
        // The second request gives no bytes back: the first one has.
        let id = if has_bytes { u64::from(word & !Message::DATA_MAX) | PART } else { id };
        let bytes = self.host.order.word_bytes(word);
        self.post(now, device, &SendWr::new(id, SendOp::Send { immediate: None }, Data::Inline(&bytes)))
    }

    /// Says that so many bytes were placed. They are not in the send buffer, so its completion gives none back.
    pub(super) fn post_placed<D: Messages>(&mut self, now: Instant, device: &mut D, len: u32) -> Result<(), Error> {
        let word = Message::Data(len).word();
        let op = SendOp::Write { address: NOWHERE.address, rkey: NOWHERE.key, immediate: Some(word) };
        self.post(now, device, &SendWr::new(u64::from(word) | PART, op, Data::Inline(&[])))
    }

    /// Writes bytes of which the peer's program is not told.
    pub(super) fn post_write<D: Messages>(
        &mut self,
        now: Instant,
        device: &mut D,
        message: Message,
        data: Data<'_>,
        target: Target,
    ) -> Result<(), Error> {
        let op = SendOp::Write { address: target.address, rkey: target.key, immediate: None };
        self.post(now, device, &SendWr::new(u64::from(message.word()), op, data))
    }

    /// The queues are counted, so that a request that is not taken means that the queue pair is not what it was.
    fn post<D: Messages>(&mut self, now: Instant, device: &mut D, wr: &SendWr<'_>) -> Result<(), Error> {
        device.post_send(now, self.qp, wr).map_err(|_| {
            self.fail(Error::Reset);
            Error::Reset
        })
    }

    /// Whether a control message fits, with something to write or without.
    pub(super) const fn has_control_slot(&self, with_bytes: bool) -> bool {
        let wanted = if with_bytes { self.requests_of_a_message() } else { 1 };
        self.tx.controls + wanted <= CONTROL_SLOTS
    }

    /// Sends a control message, which [`Stream::has_control_slot`].
    pub(super) fn post_control<D: Messages>(&mut self, now: Instant, device: &mut D, message: Message) -> Result<(), Error> {
        self.tx.controls += u16::from(!self.host.has(Flaw::UncountedControls));
        self.post_message(now, device, message, Data::Inline(&[]), NOWHERE)
    }

    /// Sends a control message with 16 bytes: inline if there is room for so many, and from a place of their own if not.
    pub(super) fn post_control_sge<D: Messages>(
        &mut self,
        now: Instant,
        device: &mut D,
        message: Message,
        bytes: &[u8; TargetSge::LEN],
        target: Target,
    ) -> Result<(), Error> {
        self.tx.controls += self.requests_of_a_message();
        if usize::from(self.sizes.inline) >= TargetSge::LEN {
            return self.post_message(now, device, message, Data::Inline(bytes), target);
        }
        let offset = u64::from(self.sizes.send_buffer) + u64::from(self.tx.control_place) * TargetSge::LEN as u64;
        self.tx.control_place = (self.tx.control_place + 1) % CONTROL_SLOTS;
        self.write_local(device, offset, bytes);
        let sge = Sge { address: self.send_buffer.address + offset, len: TargetSge::LEN as u32, lkey: self.send_buffer.key };
        self.post_message(now, device, message, Data::Gather(&[sge]), target)
    }

    /// Copies bytes into the send buffer's region.
    pub(super) fn write_local<D: Messages>(&self, device: &mut D, offset: u64, bytes: &[u8]) {
        if let Some(memory) = device.memory_mut(self.send_buffer.key) {
            memory.write(offset, bytes);
        }
    }

    /// Makes `bytes` ready to be posted, which the send buffer has room for: as they are if they are short, and else copied there, in two pieces if it ends
    /// between. Then `post` posts them.
    pub(super) fn with_bytes<D: Messages>(
        &mut self,
        device: &mut D,
        bytes: &[u8],
        post: impl FnOnce(&mut Self, &mut D, Data<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let len = bytes.len() as u32;
        if !self.host.has(Flaw::OverfillsSendBuffer) {
            self.tx.room -= len;
        }
        if bytes.len() <= usize::from(self.sizes.inline) {
            return post(self, device, Data::Inline(bytes));
        }
        let first = len.min(self.sizes.send_buffer - self.tx.offset);
        let (head, tail) = bytes.split_at(first as usize);
        let sge = |offset: u32, len: u32| Sge { address: self.send_buffer.address + u64::from(offset), len, lkey: self.send_buffer.key };
        let sges = [sge(self.tx.offset, first), sge(0, len - first)];
        self.write_local(device, self.tx.offset.into(), head);
        if !self.host.has(Flaw::DoesNotWrap) {
            self.write_local(device, 0, tail);
        }
        self.tx.offset = (self.tx.offset + first) % self.sizes.send_buffer;
        if !tail.is_empty() {
            self.tx.offset = len - first;
        }
        let used = if tail.is_empty() { 1 } else { 2 };
        post(self, device, Data::Gather(&sges[..used]))
    }
}
