//! Cyclic buffers, filled from UDP sockets ([`crate::cyclic`]): datagrams that keep their network headers, and go as records to where a program
//! reads them.
//!
//! Until a call takes them they wait in their sockets, where the receive buffer bounds them, and where those that find no room in it are counted
//! as dropped.

use std::net::{IpAddr, SocketAddr};

use super::UdpFlow;
use crate::cyclic::{CyclicBuffer, CyclicError, NetworkHeaders, Packet, RecordMemory, Refused, Run, made_up_headers};
use crate::device::Queues;
use crate::error::Error;
use crate::mutants::Mutant;
use crate::ring::{FlowId, Ring};
use crate::tcp::RxPayload;
use crate::time::Instant;

impl<Q: Queues> Ring<Q> {
    /// Writes what has arrived at these UDP sockets to a cyclic buffer, the oldest first and at most as much as is asked for, and gives out the
    /// next run: see [`CyclicBuffer::read`]. Sockets keep their datagrams' headers from the first such call on, if they are wanted; those of earlier ones, and of
    /// what this ring's own programs told a group, are made up, with Ethernet addresses of zeros.
    ///
    /// # Errors
    /// [`CyclicError`]. [`crate::Error::BadSocket`], [`crate::Error::NotSupported`]: one of them is none, or not of UDP; another [`crate::Error`]: that socket's own, which is gone with it.
    pub fn cyclic_read<M: RecordMemory>(
        &mut self,
        sockets: &[FlowId],
        buffer: &mut CyclicBuffer<M>,
        min: usize,
        max: usize,
    ) -> Result<Option<Run>, CyclicError> {
        CyclicError::check(min, max)?;
        for &id in sockets {
            let flow = self.slots.udp(id)?;
            if let Some(error) = Error::take(&mut flow.error) {
                return Err(error.into());
            }
            if buffer.layout().keeps_headers() {
                flow.keep_headers();
            }
        }
        buffer.mutation = self.config.mutation();
        buffer.rewind_at_end();
        while buffer.waiting() < max
            && let Some(id) = self.oldest(sockets)
        {
            match self.slots.udp(id)?.move_first(|packet| buffer.write(packet)) {
                Ok(()) => {}
                // All before the end was given out: this is a call that may rewind.
                Err(Refused::End) if buffer.waiting() == 0 => buffer.rewind_at_end(),
                Err(Refused::End) => break,
                Err(refused) => return Err(CyclicError::Oversized(refused)),
            }
        }
        Ok(buffer.take(min, max))
    }

    /// From now on, a UDP socket's datagrams keep their network headers, for [`Ring::cyclic_read`].
    ///
    /// # Errors
    /// [`crate::Error::BadSocket`], [`crate::Error::NotSupported`]: it is none, or not of UDP.
    pub fn udp_keep_headers(&mut self, flow: FlowId) -> Result<(), crate::Error> {
        self.slots.udp(flow)?.keep_headers();
        Ok(())
    }

    /// The socket whose next datagram came first.
    fn oldest(&mut self, sockets: &[FlowId]) -> Option<FlowId> {
        let youngest = self.config.is(Mutant::CyclicYoungestFirst);
        let received = |id: FlowId| Some((self.slots.udp(id).ok()?.first_received()?, id));
        let waiting = sockets.iter().copied().filter_map(received);
        let first = if youngest { waiting.max_by_key(|&(at, _)| at) } else { waiting.min_by_key(|&(at, _)| at) };
        first.map(|(_, id)| id)
    }
}

impl<Q: Queues> UdpFlow<Q> {
    /// From now on, datagrams keep their headers. Those of what waits already are made up.
    fn keep_headers(&mut self) {
        if self.headers.is_none() {
            let port = self.local.port();
            let made_up = self.queue.iter().map(|waiting| made_up_headers(waiting.from, SocketAddr::new(waiting.to, port), waiting.len()));
            self.headers = Some(made_up.collect());
            self.is_plain = false;
        }
    }

    /// Keeps the headers of a datagram that is about to be queued.
    #[cold]
    pub(super) fn keep_headers_of(&mut self, from: SocketAddr, to: IpAddr, payload: &RxPayload<'_, Q::Rx>) {
        let to = SocketAddr::new(to, self.local.port());
        let seen = payload.network_headers().and_then(|headers| NetworkHeaders::try_from(headers).ok());
        if let Some(headers) = &mut self.headers {
            headers.push_back(seen.unwrap_or_else(|| made_up_headers(from, to, payload.len())));
        }
    }

    /// When the oldest datagram was received.
    fn first_received(&self) -> Option<Instant> {
        self.queue.front().map(|first| first.received)
    }

    /// Shows `take` the oldest datagram, which is gone afterwards, unless it was refused for being at an end.
    fn move_first(&mut self, take: impl FnOnce(&Packet<'_, Q::Rx>) -> Result<(), Refused>) -> Result<(), Refused> {
        let Some(first) = self.queue.front() else { return Ok(()) };
        let headers: &[u8] = self.headers.as_ref().and_then(|headers| headers.front()).map_or(&[], |headers| headers);
        let copied = [self.bytes.first(first.head), &[]];
        let taken = take(&Packet { headers, copied, buffers: first.buffer.as_slice(), received: first.received });
        if taken != Err(Refused::End) && !(taken.is_err() && self.mutation.is(Mutant::OversizedStays)) {
            let (head, len) = (first.head, first.len());
            self.forget_first(head, len);
        }
        taken
    }
}

#[cfg(test)]
mod tests;
