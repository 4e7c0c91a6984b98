//! The program's side: writing and reading.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};

use super::ack::RELEASE_AFTER;
use super::{Config, Connection, Phase, State};
use crate::device::{RxBuffer, TxBuffer};
use crate::error::Error;
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::tcp::arrivals::Arrival;
use crate::tcp::recv_queue::Lent;
use crate::tcp::timers::Timer;
use crate::time::Instant;

/// When a writer that found no buffers is told to try again.
const BUFFERS_AFTER: Duration = Duration::from_millis(1);

/// How often that time doubles, at most, where there are none again.
const BUFFERS_BACKOFF_MAX: u8 = 4;

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// Copies as much of `data` as fits into the device's buffers, and gives how much that was. `more`: a partial segment
    /// need not go out yet (MSG_MORE). `alloc` takes the size wanted, in bytes.
    ///
    /// # Errors
    /// The pending error; [`Error::Pipe`]: our stream ended, or the connection did; [`Error::WouldBlock`]: no room, or not
    /// connected yet; [`Error::NoBuffers`]: `alloc` had none. After the latter two, [`crate::flow::Readiness::OUT`] is
    /// raised when it is worth trying again.
    #[inline(always)]
    pub fn write(
        &mut self,
        now: Instant,
        data: &[IoSlice<'_>],
        more: bool,
        alloc: &mut impl FnMut(usize) -> Option<T>,
    ) -> Result<usize, Error> {
        if !matches!(self.state, State::Established | State::CloseWait) && !self.may_write_early() {
            return Err(self.write_error());
        }
        let wanted: usize = data.iter().map(|slice| slice.len()).sum();
        if wanted == 0 {
            return Ok(0);
        }
        // What no limit excludes needs no look at the limits.
        let queued = self.send.len();
        let room = match queued + wanted <= Config::SEND_LIMIT_MIN {
            true => wanted,
            false => self.config.send_limit(self.cwnd).saturating_sub(queued),
        };
        if room == 0 {
            mark!(self, WriteBlocked);
            self.write_blocked = true;
            return Err(Error::WouldBlock);
        }
        let flight = self.in_flight();
        if self.send.end().le(self.snd_nxt) && flight < self.cwnd && self.phase == Phase::Open {
            // All that was written is on its way, and there was room for more (draft-ietf-ccwg-bbr s4.1.2.4).
            self.records.mark_app_limited(flight as u64);
        }
        let room = if self.config.is(Mutant::SndbufCountedPerWrite) { room + self.send.len() } else { room };
        let copied = self.send.write(data, room, alloc);
        if copied < wanted {
            if copied < room.min(wanted) && !self.config.is(Mutant::NoBuffersNoRetry) {
                self.lacks_buffers(now, copied);
            }
            self.write_blocked = true;
            if copied == 0 {
                return Err(Error::NoBuffers);
            }
        } else {
            self.starved = 0;
        }
        if self.peer_exited {
            // What the peer's host would answer.
            self.on_reset();
            return Ok(copied);
        }
        let more = more && !self.config.is(Mutant::MoreMeansNothing);
        self.more = more || (self.more && self.config.is(Mutant::MoreSticks));
        self.tx_pending = true;
        Ok(copied)
    }

    /// `data` ends a record, of which so much was written: if that is all, no segment has bytes before and after its end (MSG_EOR, as Linux has it; RFC 9293 knows no
    /// records).
    #[cold]
    #[inline(never)]
    pub fn end_record(&mut self, data: &[IoSlice<'_>], written: &Result<usize, Error>) {
        let wanted: usize = data.iter().map(|slice| slice.len()).sum();
        if wanted > 0 && matches!(written, Ok(written) if *written == wanted) {
            self.send.end_record();
        }
    }

    /// A writer found buffers for so many bytes only. It is told when to try again: once the peer has given some back, as it says by acknowledging
    /// more or by opening its window, or after a while.
    #[cold]
    #[inline(never)]
    fn lacks_buffers(&mut self, now: Instant, copied: usize) {
        mark!(self, NoSendBuffers);
        let waits_already = self.write_blocked && self.starved > 0 && self.timers.is_set(Timer::Release);
        if copied == 0 && waits_already {
            return;
        }
        self.timers.set(Timer::Release, now + BUFFERS_AFTER * (1 << self.starved.min(BUFFERS_BACKOFF_MAX)));
        self.starved = if copied > 0 { 1 } else { self.starved.saturating_add(1) };
    }

    #[cold]
    fn write_error(&mut self) -> Error {
        if !self.config.is(Mutant::WriteHidesError)
            && let Some(error) = self.error.take()
        {
            return error;
        }
        match self.state {
            State::SynSent | State::SynReceived if !self.fin_queued => Error::WouldBlock,
            _ => Error::Pipe,
        }
    }

    /// Copies received bytes to `into`, as many as there are and fit, and takes them off the queue unless `peek`. `Ok(0)`, if there
    /// is room in `into`, is the end of the stream.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]: nothing there yet; once everything was read, the pending error.
    #[inline(always)]
    pub fn read(&mut self, now: Instant, into: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Error> {
        if self.recv.len() == 0 {
            return self.read_nothing(into);
        }
        let n = self.recv.read(into, peek && !self.config.is(Mutant::PeekTakes));
        if peek || n == 0 {
            return Ok(n);
        }
        self.made_room(now, n);
        Ok(n)
    }

    /// When the segment came that the last of the bytes came in that were read; or, of those that wait, the last of so many, which were `peeked` at. `None`: it is not known
    /// ([`Config::arrival_times`](crate::tcp::Config::arrival_times) was not set then).
    pub fn arrival(&self, peeked: usize) -> Option<Arrival> {
        self.recv.arrival(peeked)
    }

    /// Whether a read would find nothing but that it has to wait, on a stream of which nothing else is to be told or sent.
    #[inline(always)]
    pub(crate) fn awaits_bytes(&self) -> bool {
        self.state == State::Established
            && self.recv.is_empty_and_copies()
            && !(self.peer_fin | self.read_shut | self.tx_pending)
            && self.error.is_none()
    }

    /// Whether [`Connection::readiness`] may have [`Readiness::IN`](crate::flow::Readiness::IN).
    #[inline(always)]
    pub(crate) fn may_be_readable(&self) -> bool {
        self.recv.len() > 0 || (self.peer_fin | self.read_shut | (self.state != State::Established))
    }

    /// As [`Connection::read`], by reference: the oldest bytes in one piece, as many as `take` says of their buffer. They count against the receive window until
    /// [`Connection::give_back`]; what arrives from now on stays where the device put it.
    ///
    /// # Errors
    /// As [`Connection::read`], whose `Ok(0)` is `None`.
    pub fn lend(&mut self, take: impl FnOnce(&R) -> usize) -> Result<Option<Lent<R>>, Error> {
        self.recv.lend_from_now_on();
        if self.recv.len() == 0 {
            return self.read_nothing(&[IoSliceMut::new(&mut [0])]).map(|_| None);
        }
        let lent = match self.recv.lend(take) {
            Some(Lent::Buffer(buffer)) if self.config.is(Mutant::LendCopies) => {
                let mut copy = vec![0; buffer.len()];
                buffer.copy_to(0, &mut copy);
                Some(Lent::Copied(copy))
            }
            lent => lent,
        };
        #[cfg(feature = "marks")]
        lent.iter().for_each(|piece| self.marks.hit(piece.mark()));
        Ok(lent)
    }

    /// What arrives from now on stays where the device put it, however small it is.
    pub fn lend_from_now_on(&mut self) {
        self.recv.lend_from_now_on();
    }

    /// The program is done with so many of the bytes that it took by reference.
    pub fn give_back(&mut self, now: Instant, n: usize) {
        let n = self.recv.give_back(if self.config.is(Mutant::GivesBackHalf) { n / 2 } else { n });
        if n > 0 && !self.config.is(Mutant::GiveBackUnsaid) {
            self.made_room(now, n);
        }
    }

    /// Bytes that count against the receive window.
    #[inline(always)]
    pub(super) fn charged(&self) -> usize {
        if self.config.is(Mutant::LentUncounted) { self.recv.len() } else { self.recv.charged() }
    }

    /// The program took so many bytes, for good.
    #[inline(always)]
    pub(super) fn made_room(&mut self, now: Instant, n: usize) {
        let queued = self.charged();
        if self.window.on_read(now, n, self.rtt.srtt(), self.acks.peer_mss) {
            mark!(self, ReceiveBufferGrew);
        }
        if self.config.is(Mutant::AckEachRead) && self.state.receives() {
            self.ack_now();
        }
        if self.state.receives() && !self.config.is(Mutant::NoWindowUpdate) && self.window.deserves_update(queued, self.acks.peer_mss) {
            mark!(self, WindowUpdate);
            self.ack_now();
        } else if queued == 0 && self.acks.on_drained() && self.window.nxt != self.window.wup {
            self.ack_now();
        }
        if queued == 0 && !self.write_blocked {
            self.timers.set(Timer::Release, now + RELEASE_AFTER);
        }
    }

    #[cold]
    fn read_nothing(&mut self, into: &[IoSliceMut<'_>]) -> Result<usize, Error> {
        // Whatever comes next comes behind that.
        if self.recv.undecided() > 0 && into.iter().any(|slice| !slice.is_empty()) {
            return Err(Error::WouldBlock);
        }
        if self.peer_fin || into.iter().all(|slice| slice.is_empty()) {
            return Ok(0);
        }
        if self.config.is(Mutant::ResetReadsAsEnd) && self.state == State::Closed {
            return Ok(0);
        }
        let pending = if self.config.is(Mutant::ErrorToldAgain) { self.error } else { self.error.take() };
        if let Some(error) = pending {
            return Err(error);
        }
        match self.state {
            _ if self.read_shut => Ok(0),
            State::Closed => Ok(0),
            _ => Err(Error::WouldBlock),
        }
    }
}
