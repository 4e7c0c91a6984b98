//! What the responder does with a peer's requests (IBTA spec, volume 1, s9.7.4 and table 58).

use super::{Pending, Resource, ResourceKind};
use crate::roce::memory::{Access, AccessError, AtomicOp, Memory};
use crate::roce::message::{Message, Part, packets};
use crate::roce::packet::{AtomicEth, Body, Header, NakCode, Packet, Reth, Syndrome, Tail};
use crate::roce::payload::Payload;
use crate::roce::psn::Psn;
use crate::roce::qp::{Context, Events, Qp, State};
use crate::roce::work::{Completion, MESSAGE_MAX, Opcode, Status};
use crate::roce::{Flaw, Tuning};

/// Why a request is not done.
enum Refusal {
    /// There is no receive; it may come again.
    NotReady,
    /// The peer is at fault: its request's form.
    Invalid,
    /// The peer is at fault: the memory that it named.
    Access,
    /// This side is at fault: its receive ends like this.
    Receive(Status, NakCode),
}

impl From<AccessError> for Refusal {
    fn from(_: AccessError) -> Self {
        Self::Access
    }
}

impl Qp {
    /// Takes a requester's packet. `written`: the payload, if it is a write's.
    pub(in crate::roce) fn on_request<M: Memory>(&mut self, cx: &mut Context<'_, M>, packet: &Packet<'_>, written: Payload<'_>) {
        if !matches!(self.state, State::Rtr | State::Rts | State::Sqd) {
            return;
        }
        let psn = packet.header.psn;
        if psn.lt(self.resp.epsn) {
            self.on_duplicate(cx.tuning, &packet.header);
            return;
        }
        if psn != self.resp.epsn && !cx.tuning.has(Flaw::TakesWhatOvertook) {
            // One NAK for each gap (s9.7.5.2.8).
            if !self.resp.nak_sent {
                self.resp.nak_sent = true;
                self.resp.ack = Some((self.resp.epsn, Syndrome::Nak(NakCode::SequenceError)));
            }
            return;
        }
        if self.state == State::Rtr {
            self.events |= Events::COMMUNICATION_ESTABLISHED;
        }
        self.resp.nak_sent = false;
        let len = written.len();
        match self.execute(cx, packet, written) {
            Ok(packets) => {
                self.resp.epsn += packets;
                if packet.header.ack_request && !is_read_or_atomic(&packet.header.body) {
                    let further = u32::from(cx.tuning.has(Flaw::AcknowledgesTooMuch));
                    self.resp.owe(psn + further, len);
                    // (Its sender waits for that, perhaps.)
                    if packet.header.solicited {
                        self.resp.unanswered = u32::MAX;
                    }
                }
            }
            Err(refusal) => self.refuse(cx, psn, refusal),
        }
    }

    fn refuse<M: Memory>(&mut self, cx: &mut Context<'_, M>, psn: Psn, refusal: Refusal) {
        let code = match refusal {
            Refusal::NotReady => {
                let timer = self.peer.map_or(0, |peer| peer.min_rnr_timer);
                self.resp.nak_sent = true;
                self.resp.ack = Some((psn, Syndrome::RnrNak(timer)));
                return;
            }
            Refusal::Invalid => {
                self.events |= Events::REQUEST_ERROR;
                NakCode::InvalidRequest
            }
            Refusal::Access => {
                self.events |= Events::ACCESS_ERROR;
                NakCode::RemoteAccess
            }
            Refusal::Receive(status, code) => {
                self.events |= Events::FATAL;
                self.fail_receive(cx, status);
                code
            }
        };
        self.resp.ack = Some((psn, Syndrome::Nak(code)));
        self.enter_error(cx);
    }

    /// Does what a packet asks for; gives how many packet numbers it takes.
    fn execute<M: Memory>(&mut self, cx: &mut Context<'_, M>, packet: &Packet<'_>, written: Payload<'_>) -> Result<u32, Refusal> {
        let solicited = packet.header.solicited;
        match packet.header.body {
            Body::SendFirst => self.on_send(cx, Part::First, Tail::None, solicited, packet.payload),
            Body::SendMiddle => self.on_send(cx, Part::Middle, Tail::None, solicited, packet.payload),
            Body::SendLast(tail) => self.on_send(cx, Part::Last, tail, solicited, packet.payload),
            Body::SendOnly(tail) => self.on_send(cx, Part::Only, tail, solicited, packet.payload),
            Body::WriteFirst(reth) => self.on_write(cx, Part::First, Some(reth), None, solicited, written),
            Body::WriteMiddle => self.on_write(cx, Part::Middle, None, None, solicited, written),
            Body::WriteLast(immediate) => self.on_write(cx, Part::Last, None, immediate, solicited, written),
            Body::WriteOnly(reth, immediate) => self.on_write(cx, Part::Only, Some(reth), immediate, solicited, written),
            Body::ReadRequest(reth) => self.on_read(cx, packet.header.psn, reth),
            Body::CompareSwap(eth) => {
                let op = AtomicOp::CompareSwap { compare: eth.compare, swap: eth.swap_add };
                self.on_atomic(cx, packet.header.psn, eth, op)
            }
            Body::FetchAdd(eth) => self.on_atomic(cx, packet.header.psn, eth, AtomicOp::FetchAdd(eth.swap_add)),
            _ => Err(Refusal::Invalid),
        }
    }

    fn on_send<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        part: Part,
        tail: Tail,
        solicited: bool,
        payload: &[u8],
    ) -> Result<u32, Refusal> {
        let offset = match (self.resp.message, part) {
            (Message::None, Part::First | Part::Only) => 0,
            (Message::Send(offset), Part::Middle | Part::Last) => offset,
            _ => return Err(Refusal::Invalid),
        };
        // There are no memory windows, so there is no key that a peer could make invalid.
        if !part.holds(payload.len() as u32, self.mtu()) || matches!(tail, Tail::Invalidate(_)) {
            return Err(Refusal::Invalid);
        }
        let wqe = self.rq.head().ok_or(Refusal::NotReady)?;
        let end = offset + payload.len() as u32;
        if end > wqe.len {
            return Err(Refusal::Receive(Status::LocalLength, NakCode::InvalidRequest));
        }
        if cx.regions.scatter(self.config.pd, self.rq.first_sges(), offset, payload).is_err() {
            return Err(Refusal::Receive(Status::LocalProtection, NakCode::RemoteOperational));
        }
        if part.is_last() {
            let immediate = if let Tail::Immediate(word) = tail { Some(word) } else { None };
            let len = if cx.tuning.has(Flaw::LengthOfLastPacket) { payload.len() as u32 } else { end };
            self.complete_receive(cx, Opcode::Receive, len, immediate, solicited);
            self.end_message();
        } else {
            self.resp.message = Message::Send(end);
        }
        Ok(1)
    }

    fn on_write<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        part: Part,
        reth: Option<Reth>,
        immediate: Option<u32>,
        solicited: bool,
        payload: Payload<'_>,
    ) -> Result<u32, Refusal> {
        let (reth, offset) = match (self.resp.message, part, reth) {
            (Message::None, Part::First | Part::Only, Some(reth)) => (reth, 0),
            (Message::Write(reth, offset), Part::Middle | Part::Last, None) => (reth, offset),
            _ => return Err(Refusal::Invalid),
        };
        let len = payload.len() as u32;
        let left = reth.len - offset;
        let complete = if part.is_last() { len == left } else { len < left };
        if !part.holds(len, self.mtu()) || !complete || reth.len > MESSAGE_MAX || !self.access.contains(Access::REMOTE_WRITE) {
            return Err(Refusal::Invalid);
        }
        // Whole at first, so that no byte is written of what is not allowed. Without bytes the key means nothing (s9.7.4.1.5).
        if offset == 0 && reth.len > 0 {
            cx.regions.check(self.config.pd, reth.rkey, reth.address, u64::from(reth.len), Access::REMOTE_WRITE)?;
        }
        if immediate.is_some() && self.rq.head().is_none() && !cx.tuning.has(Flaw::TakesWithoutReceive) {
            return Err(Refusal::NotReady);
        }
        let offset_there = if cx.tuning.has(Flaw::WritesToTheStart) { 0 } else { u64::from(offset) };
        let further = u64::from(cx.tuning.has(Flaw::WritesFurtherOn));
        let address = reth.address.wrapping_add(offset_there + further);
        cx.regions.place(self.config.pd, reth.rkey, address, Access::REMOTE_WRITE, payload)?;
        if !part.is_last() {
            self.resp.message = Message::Write(reth, offset + len);
            return Ok(1);
        }
        if immediate.is_some() {
            self.complete_receive(cx, Opcode::ReceiveWithImmediate, reth.len, immediate, solicited);
        }
        self.end_message();
        Ok(1)
    }

    fn on_read<M: Memory>(&mut self, cx: &mut Context<'_, M>, psn: Psn, reth: Reth) -> Result<u32, Refusal> {
        if !matches!(self.resp.message, Message::None) || reth.len > MESSAGE_MAX || !self.access.contains(Access::REMOTE_READ) {
            return Err(Refusal::Invalid);
        }
        self.make_room()?;
        if reth.len > 0 {
            cx.regions.check(self.config.pd, reth.rkey, reth.address, u64::from(reth.len), Access::REMOTE_READ)?;
        }
        let packets = packets(reth.len, self.mtu());
        self.remember(psn, packets, ResourceKind::Read(reth));
        Ok(packets)
    }

    fn on_atomic<M: Memory>(&mut self, cx: &mut Context<'_, M>, psn: Psn, eth: AtomicEth, op: AtomicOp) -> Result<u32, Refusal> {
        let allowed = self.access.contains(Access::REMOTE_ATOMIC) && eth.address.is_multiple_of(8);
        if !matches!(self.resp.message, Message::None) || !allowed {
            return Err(Refusal::Invalid);
        }
        self.make_room()?;
        let original = cx.regions.atomic(self.config.pd, eth.rkey, eth.address, op)?;
        self.remember(psn, 1, ResourceKind::Atomic(op, original));
        Ok(1)
    }

    /// Makes room for one more resource. A peer that asks for more at once than it was promised is refused.
    fn make_room(&mut self) -> Result<(), Refusal> {
        let max = self.peer.map_or(0, |peer| usize::from(peer.max_dest_rd_atomic));
        if self.resp.resources.len() < max {
            return Ok(());
        }
        match self.resp.resources.front() {
            Some(oldest) if oldest.pending.is_none_or(|pending| pending.replay) => {
                self.resp.resources.pop_front();
                Ok(())
            }
            _ => Err(Refusal::Invalid),
        }
    }

    fn remember(&mut self, first: Psn, packets: u32, kind: ResourceKind) {
        let pending = Some(Pending { start: first, next: first, replay: false });
        self.resp.resources.push_back(Resource { first, packets, kind, pending });
        self.end_message();
    }

    fn end_message(&mut self) {
        self.resp.message = Message::None;
        self.resp.msn += 1;
    }

    pub(in crate::roce) fn complete_receive<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        opcode: Opcode,
        len: u32,
        immediate: Option<u32>,
        solicited: bool,
    ) {
        let Some(wqe) = self.rq.pop() else { return };
        let completion = self.completion(wqe.id, Status::Success, opcode);
        let immediate = immediate.filter(|_| !cx.tuning.has(Flaw::LosesImmediates));
        cx.complete(self.config.recv_cq, Completion { len, immediate, solicited, ..completion });
    }

    /// A packet that was done before: it is acknowledged again, a read is answered again, and an atomic operation is answered as it was
    /// (s9.7.5.1.4).
    fn on_duplicate(&mut self, tuning: &Tuning, header: &Header) {
        let psn = header.psn;
        if !is_read_or_atomic(&header.body) {
            let refusing = matches!(self.resp.ack, Some((_, Syndrome::Nak(_) | Syndrome::RnrNak(_))));
            if header.ack_request && !refusing && !tuning.has(Flaw::SilentAboutDuplicates) {
                self.resp.ack = Some((self.resp.epsn - 1, Syndrome::Ack(0)));
                // (The peer has waited for it for long.)
                self.resp.unanswered = u32::MAX;
            }
            return;
        }
        let mtu = self.mtu();
        let Some(resource) = self.resp.resources.iter_mut().find(|resource| psn.within(resource.first, resource.end())) else { return };
        let same = match (resource.kind, header.body) {
            (ResourceKind::Read(of), Body::ReadRequest(reth)) => {
                let offset = psn.distance(resource.first) * mtu;
                let address = of.address.wrapping_add(u64::from(offset));
                reth == Reth { address, rkey: of.rkey, len: of.len - offset }
            }
            (ResourceKind::Atomic(AtomicOp::CompareSwap { .. }, _), Body::CompareSwap(_)) => true,
            (ResourceKind::Atomic(AtomicOp::FetchAdd(_), _), Body::FetchAdd(_)) => true,
            _ => false,
        };
        if !same {
            return;
        }
        // What is still to be answered from there on is answered anyway.
        let replay = resource.pending.is_none_or(|pending| pending.replay);
        if resource.pending.is_none_or(|pending| psn.lt(pending.next)) {
            resource.pending = Some(Pending { start: psn, next: psn, replay });
        }
    }

    pub(in crate::roce) fn mtu(&self) -> u32 {
        self.peer.map_or(0, |peer| peer.mtu.bytes())
    }
}

const fn is_read_or_atomic(body: &Body) -> bool {
    matches!(body, Body::ReadRequest(_) | Body::CompareSwap(_) | Body::FetchAdd(_))
}
