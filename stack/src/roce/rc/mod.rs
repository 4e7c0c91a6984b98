//! Reliable connections (IBTA spec, volume 1, s9.7): a requester that goes back N, as hardware and rxe do, and a responder.
//!
//! - `transmit`: the requester's packets, the first time and again
//! - `answers`: acknowledgments, read responses, and the timers that stand in for them
//! - `requests`: what the responder does with a peer's requests
//! - `respond`: the responder's answers, those to duplicates included
//! - `congestion`: the rate that it is held to, and what its peer is told
//! - `credits`: two tables of the specification
//! - `prediction`: the short way of most messages

mod answers;
mod congestion;
mod credits;
mod prediction;
mod requests;
mod respond;
mod transmit;

pub(super) use congestion::path_of;
pub use credits::rnr_wait;

use std::collections::VecDeque;

use super::memory::AtomicOp;
use super::message::Message;
use super::packet::{Reth, Syndrome};
use super::psn::Psn;
use super::qp::{Peer, Sending};
use crate::time::{Instant, earlier};

/// So many packets that asked for an acknowledgment may wait for it, where it may wait at all: a fraction of the window, which the peer is to find open. (Whose own queues are shorter
/// makes the last request that there is room for a solicited one.)
const UNANSWERED_MAX: u32 = 32;
/// A packet counts once more for so many bytes of it: whoever sent many waits for the room that they take.
const UNANSWERED_BYTES: usize = 512;

/// The requester's half of a queue pair.
#[derive(Debug, Default)]
pub(super) struct Requester {
    /// The number of the next packet that was never sent: requests get theirs when they are begun.
    next_psn: Psn,
    /// The oldest packet that is not acknowledged.
    una: Psn,
    /// After the highest one sent. Invariant: `una <= sent_max <= next_psn`.
    sent_max: Psn,
    /// What is sent next: a request of the send queue, counted from its head, and a packet of it.
    cursor: (usize, u32),
    /// How many requests were begun.
    ssn: Psn,
    /// Up to which request the peer has receives; `None` while it does not count.
    lsn: Option<Psn>,
    /// Reads and atomics that were begun and are not done.
    reads: u32,
    /// How often it may still be sent again without progress.
    retries: u8,
    /// The same, if there was no receive.
    rnr_retries: u8,
    /// After the last packet that asked for an answer, of those sent since it went back; what is before `una` was answered.
    asked: Psn,
    /// By when something must be acknowledged.
    ack_deadline: Option<Instant>,
    /// Nothing is sent before.
    rnr_until: Option<Instant>,
    /// An answer is missing, and was asked for again: once for each packet, or all that follow would ask, too.
    asked_again: Option<Psn>,
    /// Entered SQD, and has not yet told that it rests.
    pub(super) draining: bool,
}

impl Requester {
    pub(super) fn new(sending: &Sending) -> Self {
        let psn = sending.sq_psn;
        let (retries, rnr_retries) = (sending.retry_count, sending.rnr_retry);
        Self { next_psn: psn, una: psn, sent_max: psn, asked: psn, retries, rnr_retries, ..Self::default() }
    }

    /// Sends no more.
    pub(super) fn stop(&mut self) {
        self.ack_deadline = None;
        self.rnr_until = None;
        self.cursor = (0, 0);
        self.reads = 0;
    }

    /// The request that is sent next, or goes on.
    pub(super) const fn next_request(&self) -> usize {
        self.cursor.0
    }

    /// When [`super::qp::Qp::on_timer`] has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        earlier(self.ack_deadline, self.rnr_until)
    }

    /// Whether packets are on their way.
    pub(super) fn is_outstanding(&self) -> bool {
        self.una != self.sent_max
    }

    /// Whether the peer was asked for an answer that did not come.
    fn awaits_answer(&self) -> bool {
        self.una.lt(self.asked)
    }
}

/// The responder's half of a queue pair.
#[derive(Debug, Default)]
pub(super) struct Responder {
    /// The packet that is expected.
    epsn: Psn,
    /// How many messages are complete.
    msn: Psn,
    message: Message,
    /// Reads and atomics, the oldest first: the last ones, for they may be asked for again. At most [`Peer::max_dest_rd_atomic`].
    resources: VecDeque<Resource>,
    /// An acknowledgment to send, after all answers to packets before it.
    ack: Option<(Psn, Syndrome)>,
    /// Packets that asked for one since the last one was sent, long ones several times.
    unanswered: u32,
    /// The peer was told that a packet is missing, or has to come again: silence until it does.
    nak_sent: bool,
    /// A read's packet was sent last: the requester's turn, or a peer that reads for ever would silence it.
    pub(super) was_served: bool,
}

/// A read or an atomic operation of the peer's.
#[derive(Clone, Copy, Debug)]
struct Resource {
    first: Psn,
    packets: u32,
    kind: ResourceKind,
    /// What of it is still to be answered.
    pending: Option<Pending>,
}

#[derive(Clone, Copy, Debug)]
enum ResourceKind {
    Read(Reth),
    /// The value from before.
    Atomic(AtomicOp, u64),
}

/// The packets of a resource that are to be sent.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// The first of this answer, which says so.
    start: Psn,
    /// The next one.
    next: Psn,
    /// It was answered before.
    replay: bool,
}

impl Resource {
    fn end(&self) -> Psn {
        self.first + self.packets
    }
}

impl Responder {
    /// Whether there is an answer to send.
    pub(super) fn may_transmit(&self) -> bool {
        self.ack.is_some() || self.resources.iter().any(|resource| resource.pending.is_some())
    }

    /// Whether there is an acknowledgment alone to send, and of few packets: the peer can go on without it.
    pub(super) fn may_wait(&self) -> bool {
        matches!(self.ack, Some((_, Syndrome::Ack(_))))
            && self.unanswered <= UNANSWERED_MAX
            && self.resources.iter().all(|resource| resource.pending.is_none())
    }

    /// A packet of `len` bytes asks for an acknowledgment.
    #[inline]
    fn owe(&mut self, psn: Psn, len: usize) {
        self.ack = Some((psn, Syndrome::Ack(0)));
        self.unanswered = self.unanswered.saturating_add(1 + (len / UNANSWERED_BYTES) as u32);
    }

    pub(super) fn new(peer: &Peer) -> Self {
        let resources = VecDeque::with_capacity(usize::from(peer.max_dest_rd_atomic));
        Self { epsn: peer.rq_psn, resources, ..Self::default() }
    }

    /// Answers no more.
    pub(super) fn stop(&mut self) {
        self.ack = None;
        self.resources.clear();
        self.message = Message::None;
    }
}
