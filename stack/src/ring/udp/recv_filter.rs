//! A UDP socket's receive filter: datagrams that the program looks at before its reader does.

use std::net::{IpAddr, SocketAddr};

use super::{OVERHEAD, UdpFlow, Waiting};
use crate::cyclic::made_up_headers;
use crate::device::{Queues, RxBuffer};
use crate::mutants::Mutant;
use crate::ring::recv_filter::Shown;
use crate::tcp::{Decision, Lent, RxPayload};
use crate::time::Instant;

/// A datagram that nobody has decided about.
pub(in crate::ring) struct Undecided<B> {
    /// As it waits to be read once it is admitted, but for its head: nothing of that is in the byte queue yet.
    waiting: Waiting<B>,
    /// The head, where the device lends none.
    head: Vec<u8>,
}

impl<B: RxBuffer> Undecided<B> {
    pub(super) fn as_waiting(&self) -> &Waiting<B> {
        &self.waiting
    }

    fn len(&self) -> usize {
        self.head.len() + self.waiting.len()
    }
}

impl<Q: Queues> UdpFlow<Q> {
    /// `on`: what arrives from now on is not read before it is admitted. Else all that waits for that is admitted: whether there was any.
    pub(in crate::ring) fn set_recv_filter(&mut self, on: bool) -> bool {
        if on {
            self.lend_from_now_on();
            self.filter.get_or_insert_default();
            return false;
        }
        let mut admitted = false;
        let decision = if self.mutation.is(Mutant::FilterOffDrops) { Decision::Drop } else { Decision::Admit };
        while self.decide(decision).is_some() {
            admitted = true;
        }
        self.filter = None;
        admitted
    }

    pub(in crate::ring) fn has_candidate(&self) -> bool {
        self.filter.as_ref().is_some_and(|filter| !filter.is_empty())
    }

    /// The candidate's buffers, where they wait.
    pub(in crate::ring) fn candidate_buffers(&mut self) -> Option<&mut [Q::Rx]> {
        Some(self.filter.as_mut()?.front_mut()?.waiting.buffer.as_mut_slice())
    }

    /// The candidate; handles on its pieces to `take`.
    #[inline]
    pub(in crate::ring) fn candidate(&self, mut take: impl FnMut(Lent<Q::Rx>)) -> Option<Shown> {
        let Undecided { waiting, head } = self.filter.as_ref()?.front()?;
        if !head.is_empty() {
            take(Lent::Copied(head.clone()));
        }
        waiting.buffer.as_slice().iter().for_each(|buffer| take(Lent::Buffer(buffer.clone())));
        Some(Shown {
            from: waiting.from,
            to: SocketAddr::new(waiting.to, self.local.port()),
            received: Some(waiting.received),
            hardware_time: waiting.hardware_time,
            len: head.len() + waiting.len(),
            ready_bytes: self.waiting().0,
            ready_packets: self.queue.len(),
        })
    }

    /// Decides about the candidate; its length in bytes.
    pub(in crate::ring) fn decide(&mut self, decision: Decision) -> Option<usize> {
        let undecided = self.filter.as_mut()?.pop_front()?;
        let len = undecided.len();
        if decision != Decision::Hold {
            self.lent = self.lent.saturating_sub(len + OVERHEAD);
        }
        if decision == Decision::Admit {
            self.admit(undecided, len);
        }
        Some(len)
    }

    fn admit(&mut self, undecided: Undecided<Q::Rx>, len: usize) {
        let Undecided { mut waiting, head } = undecided;
        if !head.is_empty() {
            waiting.head = head.len();
            self.bytes.push(&head, self.mutation);
        }
        if let Some(headers) = &mut self.headers {
            headers.push_back(made_up_headers(waiting.from, SocketAddr::new(waiting.to, self.local.port()), len));
        }
        self.enqueue(waiting, len);
    }

    /// Takes a datagram in that nobody has decided about.
    pub(super) fn push_undecided(&mut self, now: Instant, from: SocketAddr, to: IpAddr, payload: RxPayload<'_, Q::Rx>) {
        let (len, hardware_time) = (payload.len(), payload.hardware_time());
        let (head, buffer) = self.keep(to, payload);
        let drops = self.drops_to_tell();
        self.filter_datagram(Waiting { from, to, received: now, hardware_time, drops, head: 0, buffer }, head.to_vec(), len);
    }

    /// The same, of `len` bytes, as it will wait; and its head if that was copied.
    #[inline]
    pub(super) fn filter_datagram(&mut self, waiting: Waiting<Q::Rx>, head: Vec<u8>, len: usize) {
        if let Some(filter) = &mut self.filter {
            self.lent += len + OVERHEAD;
            filter.push_back(Undecided { waiting, head });
        }
    }
}
