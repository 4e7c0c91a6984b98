//! Writing to a stream: into which buffers, so that streams share them.

use std::io::IoSlice;

use super::Ring;
use super::types::{FlowId, SendFlags};
use crate::device::{Queues, TxBuffer};
use crate::error::Error;
use crate::mutants::Mutant;
use crate::time::Instant;

/// Bytes so few that a stream which has nothing else queued takes no others' share by them.
const ALONE: usize = 1024;

impl<Q: Queues> Ring<Q> {
    /// Writes to a TCP stream, as much as fits (at least one byte), and sends what may be sent.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]: no room in its send buffer, or the device has no buffers for it; [`crate::flow::Readiness::OUT`] is raised when it is worth
    /// trying again. [`Error::Pipe`], the connection's own pending error, [`Error::NotConnected`], [`Error::BadSocket`].
    #[inline(always)]
    pub fn tcp_send(&mut self, now: Instant, flow: FlowId, data: &[IoSlice<'_>], flags: SendFlags) -> Result<usize, Error> {
        self.send_holding(now, flow, data, flags).0
    }

    /// As [`Ring::tcp_send`]. And whether something of the connection is held afterwards ([`Ring::is_held`]).
    #[inline(always)]
    fn send_holding(&mut self, now: Instant, flow: FlowId, data: &[IoSlice<'_>], flags: SendFlags) -> (Result<usize, Error>, bool) {
        let written = match self.write(now, flow, data, flags) {
            Err(Error::NoBuffers) => self.write_after_reap(now, flow, data, flags),
            written => written,
        };
        if flags.contains(SendFlags::END_OF_RECORD)
            && let Ok(stream) = self.slots.stream(flow)
        {
            stream.connection.end_record(data, &written);
        }
        let is_held = self.transmit_written(now, flow.index);
        self.output.flush(&mut self.queues);
        (written, is_held)
    }

    /// As [`Ring::tcp_send`], but where the last poll was before `stale`, it polls first, unless something of the connection is held
    /// ([`Ring::is_held`]): a reset, or an end, that has lain there for a while is known to who sends. And whether something is held afterwards.
    ///
    /// # Errors
    /// As [`Ring::tcp_send`].
    #[inline(always)]
    pub fn tcp_send_polling(
        &mut self,
        now: Instant,
        flow: FlowId,
        data: &[IoSlice<'_>],
        flags: SendFlags,
        stale: Instant,
    ) -> (Result<usize, Error>, bool) {
        if self.polled_at < stale && self.is_due_here(now) && !self.is_held(flow) {
            self.poll(now);
        }
        self.send_holding(now, flow, data, flags)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn write_after_reap(&mut self, now: Instant, flow: FlowId, data: &[IoSlice<'_>], flags: SendFlags) -> Result<usize, Error> {
        self.queues.reap();
        let written = self.write(now, flow, data, flags);
        let told = self.config.is(Mutant::NoBuffersTold);
        written.map_err(|error| if error == Error::NoBuffers && !told { Error::WouldBlock } else { error })
    }

    /// Writes to a stream. A few bytes that wait for nothing need no look at what is left for others.
    #[inline(always)]
    pub(super) fn write(&mut self, now: Instant, flow: FlowId, data: &[IoSlice<'_>], flags: SendFlags) -> Result<usize, Error> {
        let Self { slots, queues, .. } = self;
        let connection = &mut slots.stream(flow)?.connection;
        if connection.send_queue() > 0 || data.len() != 1 || data[0].len() > ALONE {
            return self.write_sharing(now, flow, data, flags);
        }
        connection.write(now, data, flags.contains(SendFlags::MORE), &mut |len| queues.tx_alloc(len))
    }

    /// Writes to a stream, unless it would queue more than it leaves buffers for: so that streams whose peers acknowledge slowly share them (with n
    /// of them, each has an (n+1)th at most), and there are some for others.
    #[inline(never)]
    fn write_sharing(&mut self, now: Instant, flow: FlowId, data: &[IoSlice<'_>], flags: SendFlags) -> Result<usize, Error> {
        let greedy = self.config.is(Mutant::WritersTakeAll);
        let Self { slots, queues, .. } = self;
        let connection = &mut slots.stream(flow)?.connection;
        let mut queued = connection.send_queue();
        let mut alloc = |len| {
            if queued > 0 && queued > queues.tx_free(len) && !greedy {
                return None;
            }
            let buffer = queues.tx_alloc(len)?;
            queued += buffer.capacity();
            Some(buffer)
        };
        connection.write(now, data, flags.contains(SendFlags::MORE), &mut alloc)
    }
}
