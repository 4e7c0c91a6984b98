//! Unreliable connections (IBTA spec, volume 1, s9.8.2): messages as long as reliable ones', of which nobody says whether they arrived.
//!
//! A request is done when its last packet has left. A message of which a packet is missing, or comes out of its turn, is dropped, and so is one that may not be done;
//! the sender hears nothing of it, the receive waits for the next message, and a first or only packet begins one, whatever its number
//! (s9.9.3, classes D and D1). The connection fails by what this side did wrong alone.

use super::Flaw;
use super::memory::{Access, Memory};
use super::message::{Message, Part, body, packets};
use super::packet::{Body, Header, Packet, Reth, Tail};
use super::payload::Payload;
use super::psn::Psn;
use super::qp::{Context, Events, Qp, Started, State};
use super::rc::path_of;
use super::work::{MESSAGE_MAX, Opcode, Status};

/// What a queue pair of this kind knows beside its queues.
#[derive(Debug, Default)]
pub(super) struct Unreliable {
    /// The number of the next packet that belongs to no request yet.
    next_psn: Psn,
    /// Which packet of the first request is sent next.
    packet: u32,
    /// The packet that the message in hand goes on with.
    epsn: Psn,
    message: Message,
}

impl Unreliable {
    /// Sends from this number on. (What the peer is in the middle of goes on.)
    pub(super) fn start(&mut self, sq_psn: Psn) {
        (self.next_psn, self.packet) = (sq_psn, 0);
    }

    /// No request is begun any more.
    pub(super) fn stop_sending(&mut self) {
        self.packet = 0;
    }

    /// Nor is a message of the peer's.
    pub(super) fn stop(&mut self) {
        self.stop_sending();
        self.message = Message::None;
    }
}

impl Qp {
    /// Writes the next packet to `out` and gives its length; `None` if there is nothing to send now.
    pub(super) fn transmit_unreliable<M: Memory>(&mut self, cx: &mut Context<'_, M>, id: u16, out: &mut [u8]) -> Option<usize> {
        if let Some(len) = self.notify(cx, id, out) {
            return Some(len);
        }
        if !matches!(self.state, State::Rts | State::Sqd) {
            return None;
        }
        let peer = self.peer?;
        let mtu = peer.mtu.bytes();
        let started = self.begin_unreliable(cx, mtu)?;
        if self.is_held_back(cx.now) {
            return None;
        }
        let wqe = self.sq.head()?;
        let packet = self.uc.packet;
        let (offset, last) = (packet * mtu, packet + 1 == started.packets);
        let header = Header {
            unreliable: true,
            pkey: self.pkey,
            solicited: wqe.solicited && last && wqe.op.takes_receive(),
            ..Header::new(body(wqe, packet, last, offset), peer.dest_qp, started.first + packet)
        };
        let len = (wqe.len - offset).min(mtu) as usize;
        let (sq, pd) = (&self.sq, self.config.pd);
        let fill = |out: &mut [u8]| sq.read(0, offset, out, pd, cx.regions).ok();
        let Some(len) = path_of(cx.tuning, &peer.path).emit_with(id, cx.tuning.crc(), &header, len, out, fill) else {
            // Its memory went away meanwhile.
            self.fail_sends(cx, Status::LocalProtection);
            return None;
        };
        self.on_paced(cx, len);
        self.uc.packet += 1;
        if last {
            self.uc.packet = 0;
            self.complete_send(cx, Status::Success);
            self.tell_drained();
        }
        Some(len)
    }

    /// Gives the first request its packet numbers, if it has none and may begin.
    fn begin_unreliable<M: Memory>(&mut self, cx: &mut Context<'_, M>, mtu: u32) -> Option<Started> {
        let wqe = self.sq.head()?;
        if wqe.started.is_some() || self.state == State::Sqd {
            return wqe.started;
        }
        if cx.regions.check_list(self.config.pd, self.sq.sges(0), Access::empty()).is_err() {
            self.fail_sends(cx, Status::LocalProtection);
            return None;
        }
        // (Nobody counts messages here.)
        let started = Started { first: self.uc.next_psn, packets: packets(wqe.len, mtu), ssn: Psn::default() };
        self.uc.next_psn = started.end();
        self.sq.get_mut(0)?.started = Some(started);
        Some(started)
    }

    /// Takes a packet of the peer's; `false`: it is dropped, with the message that it belongs to. `written`: the payload, if it is a write's.
    pub(super) fn on_unreliable<M: Memory>(&mut self, cx: &mut Context<'_, M>, packet: &Packet<'_>, written: Payload<'_>) -> bool {
        if !matches!(self.state, State::Rtr | State::Rts | State::Sqd | State::Sqe) {
            return false;
        }
        if self.state == State::Rtr {
            self.events |= Events::COMMUNICATION_ESTABLISHED;
        }
        let psn = packet.header.psn;
        let message = core::mem::take(&mut self.uc.message);
        let Some(part) = part_of(&packet.header.body) else { return false };
        let message = match part {
            Part::First | Part::Only if matches!(message, Message::None) || !cx.tuning.has(Flaw::BeginsNothingAnew) => Message::None,
            Part::Middle | Part::Last if psn == self.uc.epsn || cx.tuning.has(Flaw::GoesOnAfterGaps) => message,
            _ => return false,
        };
        let taken = match packet.header.body {
            Body::WriteFirst(reth) => self.take_write(cx, part, (reth, 0), None, written),
            Body::WriteOnly(reth, immediate) => self.take_write(cx, part, (reth, 0), immediate, written),
            Body::WriteMiddle | Body::WriteLast(None) => {
                of_write(message).and_then(|so_far| self.take_write(cx, part, so_far, None, written))
            }
            Body::WriteLast(immediate) => of_write(message).and_then(|so_far| self.take_write(cx, part, so_far, immediate, written)),
            _ => self.take_send(cx, part, message, packet.payload),
        };
        let Some(taken) = taken else { return false };
        self.uc.epsn = psn + 1;
        match taken {
            Taken::So(message) => self.uc.message = message,
            Taken::Done(None) => {}
            Taken::Done(Some((opcode, len))) => {
                let immediate = immediate_of(&packet.header.body);
                self.complete_receive(cx, opcode, len, immediate, packet.header.solicited);
            }
        }
        true
    }

    fn take_send<M: Memory>(&mut self, cx: &mut Context<'_, M>, part: Part, message: Message, payload: &[u8]) -> Option<Taken> {
        let offset = match (message, part) {
            (Message::None, Part::First | Part::Only) => 0,
            (Message::None, Part::Last) if cx.tuning.has(Flaw::TakesEndsAlone) => 0,
            (Message::Send(offset), Part::Middle | Part::Last) => offset,
            _ => return None,
        };
        let wqe = self.rq.head().filter(|_| part.holds(payload.len() as u32, self.mtu()))?;
        let end = offset + payload.len() as u32;
        if end > wqe.len {
            return None;
        }
        if cx.regions.scatter(self.config.pd, self.rq.first_sges(), offset, payload).is_err() {
            // This side's fault (class A, without an answer).
            self.events |= Events::FATAL;
            self.fail_receive(cx, Status::LocalProtection);
            self.enter_error(cx);
            return None;
        }
        Some(if part.is_last() { Taken::Done(Some((Opcode::Receive, end))) } else { Taken::So(Message::Send(end)) })
    }

    fn take_write<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        part: Part,
        (reth, offset): (Reth, u32),
        immediate: Option<u32>,
        payload: Payload<'_>,
    ) -> Option<Taken> {
        let len = payload.len() as u32;
        let left = reth.len - offset;
        let fits = if part.is_last() { len == left } else { len < left };
        if !fits || !part.holds(len, self.mtu()) || reth.len > MESSAGE_MAX || !self.access.contains(Access::REMOTE_WRITE) {
            return None;
        }
        // Whole at first, so that no byte is written of what is not allowed. Without bytes the key means nothing (s9.7.4.1.5).
        let pd = self.config.pd;
        let is_allowed =
            offset > 0 || reth.len == 0 || cx.regions.check(pd, reth.rkey, reth.address, u64::from(reth.len), Access::REMOTE_WRITE).is_ok();
        if !is_allowed && cx.tuning.has(Flaw::FailsForThePeer) {
            self.enter_error(cx);
        }
        if !is_allowed || immediate.is_some() && self.rq.head().is_none() {
            return None;
        }
        let offset_there = if cx.tuning.has(Flaw::WritesToTheStart) { 0 } else { u64::from(offset) };
        let address = reth.address.wrapping_add(offset_there);
        cx.regions.place(pd, reth.rkey, address, Access::REMOTE_WRITE, payload).ok()?;
        Some(match (part.is_last(), immediate) {
            (false, _) => Taken::So(Message::Write(reth, offset + len)),
            (true, None) => Taken::Done(None),
            (true, Some(_)) => Taken::Done(Some((Opcode::ReceiveWithImmediate, reth.len))),
        })
    }
}

/// What came of a packet.
enum Taken {
    /// Its message came so far.
    So(Message),
    /// Its message is complete: what it is to the receive that it takes, if it takes one, and its length.
    Done(Option<(Opcode, u32)>),
}

const fn part_of(body: &Body) -> Option<Part> {
    Some(match body {
        Body::SendFirst | Body::WriteFirst(_) => Part::First,
        Body::SendMiddle | Body::WriteMiddle => Part::Middle,
        Body::SendLast(_) | Body::WriteLast(_) => Part::Last,
        Body::SendOnly(_) | Body::WriteOnly(..) => Part::Only,
        _ => return None,
    })
}

const fn of_write(message: Message) -> Option<(Reth, u32)> {
    match message {
        Message::Write(reth, offset) => Some((reth, offset)),
        Message::None | Message::Send(_) => None,
    }
}

const fn immediate_of(body: &Body) -> Option<u32> {
    match body {
        Body::SendLast(Tail::Immediate(word)) | Body::SendOnly(Tail::Immediate(word)) => Some(*word),
        Body::WriteLast(immediate) | Body::WriteOnly(_, immediate) => *immediate,
        _ => None,
    }
}
