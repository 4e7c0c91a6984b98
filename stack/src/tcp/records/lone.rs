//! One segment alone in flight, as most are that small messages make: little of it has to be noted, since what else there is to know of it does not change before it
//! is acknowledged.

use super::flight::{Flight, Record};
use crate::tcp::congestion::Alone;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// It was sent once, with nothing in the network before it, and nothing was delivered, nor counted as lost, since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcp) struct Lone {
    start: SeqNumber,
    end: SeqNumber,
    sent: Alone,
}

impl Lone {
    #[inline(always)]
    pub(in crate::tcp) fn sent_at(&self) -> Instant {
        self.sent.sent_at
    }

    pub(super) fn start(&self) -> SeqNumber {
        self.start
    }

    #[inline(always)]
    pub(super) fn ends_at(&self, ack: SeqNumber) -> bool {
        self.end == ack
    }

    #[inline(always)]
    pub(super) fn len(&self) -> u64 {
        self.end.since(self.start) as u64
    }

    #[inline(always)]
    pub(super) fn sent(&self) -> &Alone {
        &self.sent
    }
}

impl Flight {
    /// `[start, end)` is sent for the first time, with `in_flight` bytes in the network before it. Whether it is alone, and noted.
    #[inline(always)]
    pub(super) fn push_alone(&mut self, now: Instant, (start, end): (SeqNumber, SeqNumber), in_flight: usize) -> bool {
        if in_flight != 0 || self.lone.is_some() || !self.queue.is_empty() {
            return false;
        }
        self.lone = Some(Lone { start, end, sent: self.sampler.on_sent_alone(now) });
        self.used = 0;
        true
    }

    /// Whatever comes next for what is alone, it is more than an acknowledgment: then it has a record as all have.
    #[inline(always)]
    pub(super) fn in_full(&mut self) -> &mut Self {
        if self.lone.is_some() {
            self.record_lone();
        }
        self
    }

    #[inline(never)]
    fn record_lone(&mut self) {
        let Some(lone) = self.lone.take() else { return };
        let Lone { start, end, sent } = lone;
        let sent = self.sampler.record_of(&sent, lone.len());
        self.queue.push_back(Record { start, end, sent, again: false, reported: false, lost: false, due: false });
    }

    /// Whether nothing is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.lone.is_none()
    }
}
