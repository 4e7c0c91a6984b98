//! Receiving by a call that looks for frames itself.
//!
//! A program that asks for bytes, or for a datagram, mostly finds them in a frame that nobody has looked at yet. The call polls, and what comes for its flow meanwhile goes
//! to the caller without having been announced to anybody: who waits for that flow waits for bytes that are there, and these are there no more when
//! the call ends. Nor is the device told that the flow has unread bytes and then that it has none. Instead, it hears that the frames were processed
//! only once the caller has the bytes: until then, what lies in the queue speaks for itself.

use std::io::IoSliceMut;

use super::Ring;
use super::types::{Datagram, FlowId, RecvFlags};
use crate::device::Queues;
use crate::error::Error;
use crate::flow::Readiness;
use crate::mutants::Mutant;
use crate::time::Instant;

/// Not a slot.
const NONE: u32 = u32::MAX;

/// Whose call polls just now.
#[derive(Debug)]
pub(super) struct Reader {
    slot: u32,
    /// Bytes, or datagrams, came for it that nobody was told of.
    has_untold: bool,
}

impl Reader {
    pub(super) const NOBODY: Self = Self { slot: NONE, has_untold: false };

    /// Whether it is the flow in this slot.
    #[inline(always)]
    pub(super) fn is(&self, slot: u32) -> bool {
        self.slot == slot
    }

    #[inline(always)]
    pub(super) fn is_nobody(&self) -> bool {
        self.slot == NONE
    }

    /// Its flow, which this is, has these edges. Whether they are its own business until the call ends.
    #[inline(always)]
    pub(super) fn keeps(&mut self, edges: Readiness) -> bool {
        self.has_untold |= edges == Readiness::IN;
        edges == Readiness::IN
    }
}

impl<Q: Queues> Ring<Q> {
    /// As [`Ring::tcp_recv`], but where nothing waits, it polls first. Bytes that go to the caller at once are no event ([`Ring::take_event`]).
    ///
    /// # Errors
    /// As [`Ring::tcp_recv`].
    pub fn tcp_recv_polling(&mut self, now: Instant, flow: FlowId, into: &mut [IoSliceMut<'_>]) -> Result<usize, Error> {
        if !self.slots.stream(flow)?.connection.awaits_bytes() {
            return self.tcp_recv_at_hand(now, flow, into);
        }
        if !self.is_due_here(now) {
            return Err(Error::WouldBlock);
        }
        self.reader = Reader { slot: flow.index, has_untold: false };
        self.poll_here(now);
        let has_untold = core::mem::replace(&mut self.reader, Reader::NOBODY).has_untold;
        let (read, is_done) = match self.slots.stream(flow) {
            Ok(stream) => {
                let read = stream.connection.read(now, into, false);
                // (Most take all that came, and leave nothing behind.)
                let leaves_nothing = !stream.connection.may_be_readable() && !stream.connection.wants_transmit();
                (read, leaves_nothing && stream.noted == stream.is_unfinished())
            }
            Err(error) => (Err(error), false),
        };
        if !is_done {
            self.after_polling_read(now, flow, has_untold);
        }
        self.queues.note_processed();
        read
    }

    /// As [`Ring::udp_recv`], but where nothing waits, it polls first. A datagram that goes to the caller at once is no event ([`Ring::take_event`]).
    /// `tell` says what is to be known of it.
    ///
    /// # Errors
    /// As [`Ring::udp_recv`].
    #[inline(always)]
    pub fn udp_recv_polling<T>(
        &mut self,
        now: Instant,
        flow: FlowId,
        into: &mut [IoSliceMut<'_>],
        tell: impl FnOnce(Datagram) -> T,
    ) -> Result<T, Error> {
        let has_polled = !self.slots.udp(flow)?.has_something_to_tell();
        if has_polled && !self.is_due_here(now) {
            return Err(Error::WouldBlock);
        }
        let has_untold = has_polled && self.poll_for_reader(now, flow);
        let received = self.udp_recv_here(flow, into, RecvFlags::empty(), tell);
        if has_polled {
            self.after_polling_datagram(flow, has_untold);
        }
        received
    }

    /// The device hears that the frames were processed; and who waits, that more datagrams came than the caller has taken.
    #[inline(always)]
    fn after_polling_datagram(&mut self, flow: FlowId, has_untold: bool) {
        let is_told = !self.config.is(Mutant::RestOfPolledReadUntold);
        if has_untold && is_told && self.slots.udp(flow).is_ok_and(|udp| udp.has_something_to_tell()) {
            self.raise(flow.index, Readiness::IN);
        }
        self.queues.note_processed();
    }

    /// Polls for a datagram. Whether there is one that nobody was told of.
    #[inline(never)]
    fn poll_for_reader(&mut self, now: Instant, flow: FlowId) -> bool {
        self.reader = Reader { slot: flow.index, has_untold: false };
        self.poll_here(now);
        core::mem::replace(&mut self.reader, Reader::NOBODY).has_untold
    }

    /// [`Ring::tcp_recv_polling`] where there is something to be had, or to be told.
    #[inline(never)]
    fn tcp_recv_at_hand(&mut self, now: Instant, flow: FlowId, into: &mut [IoSliceMut<'_>]) -> Result<usize, Error> {
        match self.tcp_recv(now, flow, into, RecvFlags::empty()) {
            // An end that the program itself made may have bytes behind it.
            Err(Error::WouldBlock) | Ok(0) => {}
            read => return read,
        }
        if self.is_due(now) {
            self.poll(now);
        }
        self.tcp_recv(now, flow, into, RecvFlags::empty())
    }

    /// What a read has left to be done by [`Ring::tcp_recv_polling`].
    #[inline(never)]
    fn after_polling_read(&mut self, now: Instant, flow: FlowId, has_untold: bool) {
        let may_have_more = self.after_read(now, flow);
        // Bytes came that nobody was told of, and their reader has taken what it wanted.
        let is_told = !self.config.is(Mutant::RestOfPolledReadUntold);
        if has_untold && is_told && may_have_more && self.readiness(flow).contains(Readiness::IN) {
            self.raise(flow.index, Readiness::IN);
        }
    }

    /// Reads from a TCP stream.
    #[inline(always)]
    pub(super) fn read(&mut self, now: Instant, flow: FlowId, into: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Error> {
        let read = self.slots.stream(flow)?.connection.read(now, into, peek);
        self.after_read(now, flow);
        read
    }

    /// A stream was read from. Whether there may be more to be read, or an end.
    #[inline(always)]
    fn after_read(&mut self, now: Instant, flow: FlowId) -> bool {
        let Ok(stream) = self.slots.stream(flow) else { return true };
        let may_have_more = stream.connection.may_be_readable();
        if stream.connection.wants_transmit() && !self.config.is(Mutant::ReadSendsLater) {
            self.transmit_after_read(now, flow.index);
            // (Its peer may be found to be gone.)
            return true;
        }
        if stream.noted != stream.is_unfinished() {
            self.renote(flow.index);
        }
        may_have_more
    }

    #[inline(never)]
    fn transmit_after_read(&mut self, now: Instant, index: u32) {
        self.transmit(now, index);
        if !self.config.is(Mutant::ReadRingsNoDoorbell) {
            self.output.flush(&mut self.queues);
        }
    }
}
