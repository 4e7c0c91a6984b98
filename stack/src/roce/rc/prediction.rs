//! The short way of a message that is a write of one packet with immediate data, on a connection that nothing disturbs: what header prediction is to a segment of TCP's.
//!
//! Most of rsockets' messages are that. What such a packet needs of the long way (`transmit`, `requests`) is here in one piece; whatever else may be the matter leads to the
//! long way. Both do the same to the queue pair, and put the same on the wire.

use super::UNANSWERED_MAX;
use super::transmit::NUMBERS_MAX;
use crate::roce::Tuning;
use crate::roce::flaws::Flaw;
use crate::roce::memory::{Access, Memory};
use crate::roce::message::Message;
use crate::roce::packet::datagram::Addresses;
use crate::roce::packet::write::WriteOnly;
use crate::roce::qp::{Context, Qp, Started, State, Transport};
use crate::roce::work::{Completion, Opcode, SendOp, Status};

impl Qp {
    /// Whether a packet is the next one of the peer's, with nothing in its way so far as the queue pair knows: what it names may still not be its to write.
    #[inline(always)]
    pub(in crate::roce) fn expects(&self, tuning: &Tuning, write: &WriteOnly<'_>) -> bool {
        let Some(peer) = &self.peer else { return false };
        let Addresses::V6 { src, dst } = peer.path.addresses else { return false };
        // (The membership bit may differ: IBTA spec, s10.9.3.)
        self.state == State::Rts
            && self.config.transport == Transport::Rc
            && (self.pkey ^ write.pkey) & 0x7fff == 0
            && (write.src == dst && write.dst == src)
            && (write.psn == self.resp.epsn || tuning.has(Flaw::PredictsAnyNumber))
            && !self.resp.nak_sent
            && matches!(self.resp.message, Message::None)
            && write.payload.len() <= peer.mtu.bytes() as usize
            && self.access.contains(Access::REMOTE_WRITE)
            && self.rq.head().is_some()
    }

    /// A packet that was expected is done: its bytes are where they belong. What its receive ends with.
    #[inline(always)]
    pub(in crate::roce) fn take_expected(&mut self, write: &WriteOnly<'_>) -> Option<Completion> {
        let recv = self.rq.pop()?;
        self.resp.epsn += 1;
        self.resp.msn += 1;
        if write.ack_request {
            self.resp.owe(write.psn, write.payload.len());
        }
        let completion = self.completion(recv.id, Status::Success, Opcode::ReceiveWithImmediate);
        Some(Completion { len: write.payload.len() as u32, immediate: Some(write.immediate), ..completion })
    }

    /// Whether it owes an acknowledgment that may still wait, and the adapter knows of it.
    #[inline(always)]
    pub(in crate::roce) fn goes_on_owing(&self) -> bool {
        self.owes && self.resp.unanswered <= UNANSWERED_MAX
    }

    /// Whether it is a reliable connection of which nothing was posted that was not sent, and that owes nothing which cannot wait.
    #[inline(always)]
    pub(in crate::roce) fn has_nothing_to_send(&self) -> bool {
        self.config.transport == Transport::Rc && !self.listed && self.sq.get(self.req.cursor.0).is_none()
    }

    /// Writes the requester's next IP packet to `out`, if it is one that goes the short way, and gives its length.
    #[inline(always)]
    pub(in crate::roce) fn transmit_predicted<M: Memory>(&mut self, cx: &Context<'_, M>, out: &mut [u8]) -> Option<usize> {
        let (index, packet) = self.req.cursor;
        let peer = self.peer.as_ref()?;
        let Addresses::V6 { src, dst } = peer.path.addresses else { return None };
        let waits = self.req.rnr_until.is_some() || self.req.reads > 0 || self.req.lsn.is_some() || self.rate.is_some();
        let psn = self.req.next_psn;
        let is_open = psn.distance(self.req.una) < cx.tuning.window.clamp(1, NUMBERS_MAX);
        if self.state != State::Rts || packet != 0 || waits || !is_open {
            return None;
        }
        let (wqe, payload) = self.sq.inline_mut(index)?;
        let SendOp::Write { address, rkey, immediate: Some(immediate) } = wqe.op else { return None };
        if wqe.started.is_some() || wqe.failed.is_some() || wqe.solicited || wqe.len > peer.mtu.bytes() {
            return None;
        }
        let write =
            WriteOnly { src, dst, pkey: self.pkey, dest_qp: peer.dest_qp, psn, ack_request: true, address, rkey, immediate, payload };
        let len = write.emit(&peer.path, cx.tuning.crc(), out)?;
        self.req.ssn += 1;
        wqe.started = Some(Started { first: psn, packets: 1, ssn: self.req.ssn });
        let further = u32::from(!cx.tuning.has(Flaw::PredictsTheSameAgain));
        self.req.next_psn = psn + further;
        let after = psn + 1;
        if self.req.sent_max.lt(after) {
            self.req.sent_max = after;
        }
        self.req.cursor = (index + 1, 0);
        self.req.asked = after;
        self.start_timer(cx.now);
        Some(len)
    }
}
