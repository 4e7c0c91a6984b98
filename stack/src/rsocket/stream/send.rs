//! The program's bytes, as they go.

use super::post::Target;
use super::{State, Stream};
use crate::device::messages::{Memory, Messages};
use crate::error::Error;
use crate::roce::Flaw;
use crate::rsocket::config::{SEND_LOW_WATER, TARGET_ENTRIES, TRANSFER_MAX};
use crate::rsocket::wire::{Message, TargetSge};
use crate::time::Instant;

/// The lengths of a long send's messages.
#[derive(Debug)]
pub(super) struct Transfers(u32);

impl Transfers {
    pub(super) const fn new(first: u32) -> Self {
        Self(first)
    }

    /// The next message's length, of `left` bytes.
    #[inline(always)]
    pub(super) fn next(&mut self, left: usize) -> u32 {
        let left = left.min(Message::DATA_MAX as usize) as u32;
        if self.0 >= left {
            return left;
        }
        let len = self.0;
        if len < TRANSFER_MAX {
            self.0 *= 2;
        }
        len
    }
}

impl Stream {
    /// Whether there is room for a message: in the send queue, in the send buffer, in what the peer counts, and in its buffer.
    #[inline(always)]
    pub(super) fn can_send<D: Messages>(&self, device: &D) -> bool {
        self.is_live()
            && self.has_room()
            && (self.tx.seq != self.tx.limit || self.host.has(Flaw::SendsWithoutCredits))
            && (self.tx.target.len > 0 || self.offered_target(device).is_some())
    }

    /// Whether there is room for a message on this side.
    #[inline(always)]
    pub(super) const fn has_room(&self) -> bool {
        self.tx.free_requests >= self.requests_of_a_message() && self.tx.room >= SEND_LOW_WATER
    }

    /// The next piece of the peer's buffer, if the peer has written of it.
    fn offered_target<D: Messages>(&self, device: &D) -> Option<TargetSge> {
        if self.tx.offered == 0 {
            return None;
        }
        let mut bytes = [0; TargetSge::LEN];
        device.memory(self.tables.key)?.read(self.target_offset(), &mut bytes);
        Some(TargetSge::parse(&bytes, self.host.order)).filter(|sge| sge.len > 0)
    }

    fn target_offset(&self) -> u64 {
        u64::from(self.tx.next_target) * TargetSge::LEN as u64
    }

    /// Goes on to the next piece if the last one is full. The entry is emptied at once: the peer writes it anew before we come to it again.
    #[inline(always)]
    fn take_target<D: Messages>(&mut self, device: &mut D) {
        if self.tx.target.len > 0 {
            return;
        }
        let Some(next) = self.offered_target(device) else { return };
        if let Some(memory) = device.memory_mut(self.tables.key).filter(|_| !self.host.has(Flaw::TargetStays)) {
            memory.write(self.target_offset(), &[0; TargetSge::LEN]);
        }
        self.tx.target = next;
        self.tx.offered -= 1;
        self.tx.next_target = (self.tx.next_target + 1) % TARGET_ENTRIES;
    }

    /// Whether the program may send at all.
    #[inline(always)]
    pub(super) fn check_writable(&self) -> Result<(), Error> {
        match self.state {
            State::Failed(error) => Err(error),
            State::Opening => Err(Error::WouldBlock),
            State::Disconnected if self.writable => Err(Error::Reset),
            State::Connected if self.writable => Ok(()),
            State::Connected | State::Disconnected => Err(Error::Pipe),
        }
    }

    /// Sends bytes from the front of `bytes`, as many as there is room for, and gives how many.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]: none; [`Error::Pipe`]: the program has ended its side; [`Error::Reset`]: the peer ended both; why the connection failed.
    pub fn send<D: Messages>(&mut self, now: Instant, device: &mut D, bytes: &[u8]) -> Result<usize, Error> {
        if !(self.writable && self.state == State::Connected) {
            self.check_writable().or_else(|error| if error == Error::WouldBlock { Ok(()) } else { Err(error) })?;
        }
        if self.has_mappings_to_tell() {
            self.send_mappings(now, device)?;
        }
        let (mut done, mut transfers) = (0, Transfers::new(self.first_transfer()));
        while done < bytes.len() {
            if !self.may_send(now, device) {
                break;
            }
            self.take_target(device);
            let len = transfers.next(bytes.len() - done).min(self.tx.target.len);
            match self.send_piece(now, device, &bytes[done..done + len as usize]) {
                Ok(sent) => done += sent as usize,
                Err(_) => break,
            }
        }
        if done == 0 && !bytes.is_empty() { Err(self.check_writable().err().unwrap_or(Error::WouldBlock)) } else { Ok(done) }
    }

    /// How long a long send's first message is. It is short, so that the peer copies it while the rest is copied here. Of sends that nobody answers, the peer copies
    /// one while the next is copied here: where bytes are placed, shorter messages cost more than they gain then.
    #[inline(always)]
    fn first_transfer(&mut self) -> u32 {
        let received = self.rx.totals.messages();
        let is_answered = core::mem::replace(&mut self.tx.answered, received) != received;
        if self.tx.was_placed && !is_answered { TRANSFER_MAX } else { self.host.transfer_first }
    }

    /// Whether a message can go now, perhaps after another look at what completed. If the connection has ended meanwhile, what went before is not undone: the next
    /// call says so.
    #[inline(always)]
    pub(super) fn may_send<D: Messages>(&mut self, now: Instant, device: &mut D) -> bool {
        if !(self.writable && self.can_send(device)) {
            self.poll(now, device);
        }
        self.writable && self.can_send(device)
    }

    /// Sends bytes, which the peer has room for, as far as there is room here, and gives how many.
    #[inline(always)]
    fn send_piece<D: Messages>(&mut self, now: Instant, device: &mut D, bytes: &[u8]) -> Result<u32, Error> {
        let target = Target { address: self.tx.target.address, key: self.tx.target.key };
        let is_placed = self.places(bytes.len()) && device.place(self.qp, target.key, target.address, bytes);
        self.tx.was_placed = is_placed;
        let bytes = if is_placed { bytes } else { &bytes[..bytes.len().min(self.tx.room as usize)] };
        let len = bytes.len() as u32;
        self.tx.seq = self.tx.seq.wrapping_add(1);
        self.tx.totals.add(len);
        self.tx.free_requests -= self.requests_of_a_message();
        let further = if self.host.has(Flaw::TargetStandsStill) { 0 } else { u64::from(len) };
        self.tx.target.address = self.tx.target.address.wrapping_add(further);
        self.tx.target.len -= len;
        if is_placed {
            self.post_placed(now, device, len)?;
        } else {
            self.with_bytes(device, bytes, |stream, device, data| stream.post_message(now, device, Message::Data(len), data, target))?;
        }
        Ok(len)
    }

    /// Whether so many bytes are worth being placed: a few are sooner there in the request.
    #[inline(always)]
    fn places(&self, len: usize) -> bool {
        !self.host.by_sends && len > usize::from(self.sizes.inline)
    }
}
