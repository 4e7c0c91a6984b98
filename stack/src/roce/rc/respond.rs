//! The responder's answers: in the order of packet numbers, whatever order duplicates came in.

use super::congestion::path_of;
use super::credits;
use super::{Resource, ResourceKind};
use crate::roce::memory::{Access, Memory};
use crate::roce::packet::{Aeth, Body, Header, NakCode, Syndrome};
use crate::roce::psn::Psn;
use crate::roce::qp::{Context, Qp, State};
use crate::roce::{Flaw, Tuning};

impl Qp {
    /// Writes the responder's next IP packet to `out` and gives its length; `None` if there is nothing to answer.
    pub(in crate::roce) fn transmit_response<M: Memory>(&mut self, cx: &mut Context<'_, M>, id: u16, out: &mut [u8]) -> Option<usize> {
        // In the error state, the refusal that led there is still to be told.
        if matches!(self.state, State::Reset | State::Init) {
            return None;
        }
        if let Some(len) = self.notify(cx, id, out) {
            return Some(len);
        }
        let pending = self.resp.resources.iter().position(|resource| resource.pending.is_some());
        let next = pending.and_then(|index| self.resp.resources[index].pending).map(|pending| pending.next);
        let is_read = pending.is_some_and(|index| matches!(self.resp.resources[index].kind, ResourceKind::Read(_)));
        let is_held_back = is_read && !cx.tuning.has(Flaw::ReadsUnpaced) && self.is_held_back(cx.now);
        match (self.resp.ack, pending, next) {
            (Some((psn, _)), Some(_), Some(next)) if next.lt(psn) && is_held_back => None,
            (Some((psn, _)), Some(index), Some(next)) if next.lt(psn) => self.answer(cx, index, id, out),
            (Some((psn, syndrome)), ..) => {
                self.resp.ack = None;
                self.acknowledge(cx, psn, syndrome, id, out)
            }
            (None, Some(index), _) if !is_held_back => self.answer(cx, index, id, out),
            (None, Some(_), _) => None,
            (None, None, _) => None,
        }
    }

    /// Writes the acknowledgment that is owed, unless something else is to be answered first.
    pub(in crate::roce) fn last_acknowledgment<M: Memory>(&mut self, cx: &Context<'_, M>, id: u16, out: &mut [u8]) -> Option<usize> {
        let is_answered = self.resp.resources.iter().all(|resource| resource.pending.is_none());
        let is_connected = !matches!(self.state, State::Reset | State::Init);
        let (psn, syndrome) = self.resp.ack.take_if(|_| is_answered && is_connected)?;
        self.acknowledge(cx, psn, syndrome, id, out)
    }

    fn acknowledge<M: Memory>(&mut self, cx: &Context<'_, M>, psn: Psn, syndrome: Syndrome, id: u16, out: &mut [u8]) -> Option<usize> {
        self.resp.unanswered = 0;
        let aeth = match syndrome {
            Syndrome::Ack(_) => self.aeth(cx),
            refusal => Aeth { syndrome: refusal, msn: self.resp.msn.value() },
        };
        self.emit(cx.tuning, Body::Acknowledge(aeth), psn, 0, id, out, |_| Some(()))
    }

    /// The acknowledgment that goes with answers.
    fn aeth<M: Memory>(&self, cx: &Context<'_, M>) -> Aeth {
        let code = if cx.tuning.count_credits { credits::encode(self.rq.len()) } else { credits::UNCOUNTED };
        Aeth { syndrome: Syndrome::Ack(code), msn: self.resp.msn.value() }
    }

    /// The next packet of what was asked for.
    fn answer<M: Memory>(&mut self, cx: &mut Context<'_, M>, index: usize, id: u16, out: &mut [u8]) -> Option<usize> {
        let resource = self.resp.resources[index];
        let pending = resource.pending?;
        let psn = pending.next;
        let aeth = self.aeth(cx);
        let len = match resource.kind {
            ResourceKind::Atomic(_, original) => {
                let original = if pending.replay && cx.tuning.has(Flaw::ForgetsOriginals) { 0 } else { original };
                self.emit(cx.tuning, Body::AtomicAcknowledge(aeth, original), psn, 0, id, out, |_| Some(()))
            }
            ResourceKind::Read(_) => self.answer_read(cx, &resource, pending.start, psn, aeth, id, out),
        };
        if len.is_none() {
            // The memory went away after the request was taken.
            self.resp.resources.clear();
            if self.state != State::Err {
                self.enter_error(cx);
            }
            return self.acknowledge(cx, psn, Syndrome::Nak(NakCode::RemoteAccess), id, out);
        }
        if let Some(len) = len.filter(|_| matches!(resource.kind, ResourceKind::Read(_))) {
            self.on_paced(cx, len);
        }
        self.resp.was_served = true;
        let resource = &mut self.resp.resources[index];
        resource.pending = resource.pending.filter(|_| psn + 1 != resource.end());
        if let Some(pending) = &mut resource.pending {
            pending.next = psn + 1;
        }
        len
    }

    #[expect(clippy::too_many_arguments, reason = "all of them say which packet of which answer it is")]
    fn answer_read<M: Memory>(
        &self,
        cx: &Context<'_, M>,
        resource: &Resource,
        start: Psn,
        psn: Psn,
        aeth: Aeth,
        id: u16,
        out: &mut [u8],
    ) -> Option<usize> {
        let ResourceKind::Read(reth) = resource.kind else { return None };
        let (first, last) = (psn == start, psn + 1 == resource.end());
        let body = match (first, last) {
            (true, true) => Body::ReadResponseOnly(aeth),
            (true, false) => Body::ReadResponseFirst(aeth),
            (false, false) => Body::ReadResponseMiddle,
            (false, true) => Body::ReadResponseLast(aeth),
        };
        let offset = psn.distance(resource.first) * self.mtu();
        let offset_there = if cx.tuning.has(Flaw::ReadsFromTheStart) { 0 } else { offset };
        let len = (reth.len - offset).min(self.mtu()) as usize;
        let address = reth.address.wrapping_add(u64::from(offset_there));
        let pd = self.config.pd;
        self.emit(cx.tuning, body, psn, len, id, out, |out| cx.regions.read(pd, reth.rkey, address, Access::REMOTE_READ, out).ok())
    }

    #[expect(clippy::too_many_arguments, reason = "all of them say which packet it is")]
    fn emit(
        &self,
        tuning: &Tuning,
        body: Body,
        psn: Psn,
        len: usize,
        id: u16,
        out: &mut [u8],
        fill: impl FnOnce(&mut [u8]) -> Option<()>,
    ) -> Option<usize> {
        let peer = self.peer?;
        let header = Header { pkey: self.pkey, ..Header::new(body, peer.dest_qp, psn) };
        // Answers without data are not what queues consist of, and are not marked.
        let path = if is_read_response(&body) { path_of(tuning, &peer.path) } else { peer.path };
        path.emit_with(id, tuning.crc(), &header, len, out, fill)
    }
}

const fn is_read_response(body: &Body) -> bool {
    matches!(body, Body::ReadResponseFirst(_) | Body::ReadResponseMiddle | Body::ReadResponseLast(_) | Body::ReadResponseOnly(_))
}
