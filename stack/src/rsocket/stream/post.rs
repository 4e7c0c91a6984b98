//! Requests to the send queue. Each says in its number what it was, so that its completion needs no other memory, but for what those took that complete in silence ([`Silent`]).

use std::collections::VecDeque;

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

/// It completes in silence, unless it fails: a later one speaks for it.
pub(super) const SILENT: u64 = 1 << 61;
/// It speaks for those that completed in silence before it ([`Silent`]).
pub(super) const SPEAKS: u64 = 1 << 60;

/// One request in such a fraction of the queue, or of the send buffer, asks for a completion.
const SILENT_PART: u16 = 4;

/// Requests that complete in silence: what they took is given back once a later one completes, for requests do so in their order. A completion costs both the device and who
/// takes it.
#[derive(Debug, Default)]
pub(super) struct Silent {
    /// Those since the last request that asked for a completion.
    last: Took,
    /// Of those that have been spoken for by a request that is not completed, the oldest first.
    spoken_for: VecDeque<Took>,
}

/// What requests took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Took {
    /// Of the send queue.
    pub(super) requests: u16,
    /// Of the send buffer.
    pub(super) bytes: u32,
}

impl Silent {
    /// Whether there are any that no request speaks for.
    pub(super) const fn is_any(&self) -> bool {
        self.last.requests > 0
    }

    /// One completes that speaks for those before it; with the flaw, for those after it as well.
    pub(super) fn spoken(&mut self, is_flawed: bool) -> Took {
        let before = self.spoken_for.pop_front().unwrap_or_default();
        let after = if is_flawed { self.last } else { Took::default() };
        Took { requests: before.requests + after.requests, bytes: before.bytes + after.bytes }
    }

    /// A request is posted that asks for a completion: whether it speaks for any.
    fn speak(&mut self) -> u64 {
        if !self.is_any() {
            return 0;
        }
        self.spoken_for.push_back(core::mem::take(&mut self.last));
        SPEAKS
    }
}

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
    #[inline(always)]
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
            let wr = SendWr::new(id, op(Some(word)), data);
            return match message {
                Message::Data(len) => self.post_data(now, device, wr, len),
                _ => self.post(now, device, wr),
            };
        }
        let has_bytes = match data {
            Data::Gather(sges) => !sges.is_empty(),
            Data::Inline(bytes) => !bytes.is_empty(),
        };
        if has_bytes {
            self.post(now, device, SendWr::new(id, op(None), data))?;
        }
        // The second request gives no bytes back: the first one has.
        let id = if has_bytes { u64::from(word & !Message::DATA_MAX) | PART } else { id };
        let bytes = self.host.order.word_bytes(word);
        self.post(now, device, SendWr::new(id, SendOp::Send { immediate: None }, Data::Inline(&bytes)))
    }

    /// Says that so many bytes were placed. They are not in the send buffer, so its completion gives none back.
    pub(super) fn post_placed<D: Messages>(&mut self, now: Instant, device: &mut D, len: u32) -> Result<(), Error> {
        let word = Message::Data(len).word();
        let op = SendOp::Write { address: NOWHERE.address, rkey: NOWHERE.key, immediate: Some(word) };
        self.post_data(now, device, SendWr::new(u64::from(word) | PART, op, Data::Inline(&[])), 0)
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
        self.post(now, device, SendWr::new(u64::from(message.word()), op, data))
    }

    /// Posts a message of data, of which so many bytes are counted in the send buffer. Most complete in silence.
    #[inline(always)]
    fn post_data<D: Messages>(&mut self, now: Instant, device: &mut D, wr: SendWr<'_>, bytes: u32) -> Result<(), Error> {
        let Took { requests: silent, bytes: silent_bytes } = self.tx.silent.last;
        let took = Took { requests: silent + 1, bytes: silent_bytes + bytes };
        let is_many = took.requests >= self.sizes.send_queue / SILENT_PART || took.bytes >= self.sizes.send_buffer / u32::from(SILENT_PART);
        // Where there is room for no more, what gives it back must not wait for more, neither here nor at the peer.
        let is_last = !(self.has_room() || self.host.has(Flaw::SilentToTheLast));
        if is_many || is_last {
            return self.post(now, device, SendWr { solicited: is_last, ..wr });
        }
        self.tx.silent.last = took;
        self.post_as(now, device, &SendWr { id: SILENT, signaled: false, ..wr })
    }

    /// Posts a request that asks for a completion.
    fn post<D: Messages>(&mut self, now: Instant, device: &mut D, wr: SendWr<'_>) -> Result<(), Error> {
        let id = wr.id | self.tx.silent.speak();
        self.post_as(now, device, &SendWr { id, ..wr })
    }

    /// The queues are counted, so that a request that is not taken means that the queue pair is not what it was.
    #[inline(always)]
    fn post_as<D: Messages>(&mut self, now: Instant, device: &mut D, wr: &SendWr<'_>) -> Result<(), Error> {
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
    #[inline(always)]
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
        let is_inline = bytes.len() <= usize::from(self.sizes.inline);
        let (sges, used) = if is_inline { ([Sge { address: 0, len: 0, lkey: 0 }; 2], 0) } else { self.buffered(device, bytes) };
        post(self, device, if is_inline { Data::Inline(bytes) } else { Data::Gather(&sges[..used]) })
    }

    /// Copies bytes into the send buffer, which has room for them. The pieces, and how many these are.
    fn buffered<D: Messages>(&mut self, device: &mut D, bytes: &[u8]) -> ([Sge; 2], usize) {
        let len = bytes.len() as u32;
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
        (sges, if tail.is_empty() { 1 } else { 2 })
    }
}
