//! What the requester makes of answers, and of their absence.

use super::credits;
use crate::roce::memory::Memory;
use crate::roce::packet::{Aeth, Body, NakCode, Packet, Syndrome};
use crate::roce::psn::Psn;
use crate::roce::qp::{Context, Qp, State};
use crate::roce::work::{SendOp, Status};
use crate::roce::{Flaw, Tuning};

impl Qp {
    /// Takes a responder's packet.
    pub(in crate::roce) fn on_answer<M: Memory>(&mut self, cx: &mut Context<'_, M>, packet: &Packet<'_>) {
        if !matches!(self.state, State::Rts | State::Sqd) {
            return;
        }
        let psn = packet.header.psn;
        match packet.header.body {
            Body::Acknowledge(aeth) => self.on_acknowledge(cx, psn, aeth),
            Body::AtomicAcknowledge(aeth, original) => {
                self.on_credits(psn, aeth);
                self.on_data(
                    cx,
                    psn,
                    |op| matches!(op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }),
                    true,
                    &original.to_ne_bytes(),
                );
            }
            Body::ReadResponseFirst(aeth) => {
                self.on_credits(psn, aeth);
                self.on_data(cx, psn, is_read, false, packet.payload);
            }
            Body::ReadResponseMiddle => self.on_data(cx, psn, is_read, false, packet.payload),
            Body::ReadResponseLast(aeth) | Body::ReadResponseOnly(aeth) => {
                self.on_credits(psn, aeth);
                self.on_data(cx, psn, is_read, true, packet.payload);
            }
            _ => {}
        }
        self.after_answer(cx);
    }

    /// Tells that SQD was reached, and stops the timer if there is nothing to wait for.
    fn after_answer<M: Memory>(&mut self, cx: &mut Context<'_, M>) {
        self.fail_first(cx);
        if !self.req.is_outstanding() {
            self.req.ack_deadline = None;
        }
        self.tell_drained();
    }

    fn on_acknowledge<M: Memory>(&mut self, cx: &mut Context<'_, M>, psn: Psn, aeth: Aeth) {
        self.on_credits(psn, aeth);
        if !psn.within(self.req.una, self.req.sent_max) {
            // From before, or from nowhere.
            return;
        }
        match aeth.syndrome {
            Syndrome::Ack(_) => self.advance(cx, psn + 1),
            Syndrome::RnrNak(code) => {
                self.advance(cx, psn);
                // While it waits already, this is a copy.
                if self.req.una == psn && self.req.rnr_until.is_none() {
                    self.on_rnr_nak(cx, code);
                }
            }
            Syndrome::Nak(NakCode::SequenceError) => {
                self.advance(cx, psn);
                // If nothing was sent since the last one, this is a copy.
                if self.req.una == psn && !self.is_cursor_at_una() {
                    self.retry(cx, Status::RetryExceeded);
                }
            }
            Syndrome::Nak(code) => {
                self.advance(cx, psn);
                if self.req.una == psn {
                    self.fail_at(cx, 0, refused(code));
                }
            }
        }
    }

    fn on_rnr_nak<M: Memory>(&mut self, cx: &mut Context<'_, M>, code: u8) {
        // The peer is alive. Without this, a receive that is posted late enough would end in RETRY_EXCEEDED on any network that loses
        // packets now and then.
        self.req.retries = self.sending.retry_count;
        // 7: for ever (IBTA spec, s9.7.5.2.8).
        if self.sending.rnr_retry != 7 {
            let Some(left) = self.req.rnr_retries.checked_sub(1) else {
                self.fail_at(cx, 0, Status::RnrRetryExceeded);
                return;
            };
            self.req.rnr_retries = left;
        }
        self.go_back(cx.tuning);
        self.wait_for_receive(cx.now, code);
    }

    fn is_cursor_at_una(&self) -> bool {
        let first = self.sq.head().and_then(|wqe| wqe.started).map(|started| started.first);
        self.req.cursor.0 == 0 && first.is_some_and(|first| first + self.req.cursor.1 == self.req.una)
    }

    /// Sends again, or fails.
    fn retry<M: Memory>(&mut self, cx: &mut Context<'_, M>, status: Status) {
        let left = self.req.retries.checked_sub(1).or(cx.tuning.retries_for_ever.then_some(0));
        let Some(left) = left else {
            self.fail_at(cx, 0, status);
            return;
        };
        self.req.retries = left;
        self.req.asked_again = None;
        self.go_back(cx.tuning);
    }

    /// What the peer says about its receives.
    fn on_credits(&mut self, psn: Psn, aeth: Aeth) {
        let Syndrome::Ack(code) = aeth.syndrome else { return };
        // The last acknowledgment may come again with more credits.
        if psn.within(self.req.una - 1, self.req.sent_max) {
            self.req.lsn = credits::decode(code).map(|credits| Psn::new(aeth.msn) + credits);
            // (A timer that runs for want of credits alone ends with it; the packet that asks for an answer starts the next one.)
            if !self.req.awaits_answer() {
                self.req.ack_deadline = None;
            }
        }
    }

    /// All packets before `to` are acknowledged, but for reads and atomics whose answers did not come: the packets that overtook them ask
    /// for them again (an implied NAK, IBTA spec, s9.7.5.1.2).
    fn advance<M: Memory>(&mut self, cx: &mut Context<'_, M>, to: Psn) {
        let before = self.req.una;
        while let Some((is_answered, started)) = self.sq.head().and_then(|wqe| Some((wqe.op.is_read_or_atomic(), wqe.started?))) {
            if is_answered && !cx.tuning.has(Flaw::DoneWithoutData) {
                if self.req.una.lt(to) {
                    self.ask_again(cx.tuning);
                }
                break;
            }
            if to.lt(started.end()) {
                if self.req.una.lt(to) {
                    self.req.una = to;
                }
                break;
            }
            self.req.una = started.end();
            self.pop_success(cx);
        }
        if self.req.una != before {
            self.on_progress(cx);
        }
    }

    fn pop_success<M: Memory>(&mut self, cx: &mut Context<'_, M>) {
        self.complete_send(cx, Status::Success);
        let (index, packet) = self.req.cursor;
        self.req.cursor = if index == 0 { (0, 0) } else { (index - 1, packet) };
    }

    fn on_progress<M: Memory>(&mut self, cx: &Context<'_, M>) {
        self.req.retries = self.sending.retry_count.saturating_sub(u8::from(cx.tuning.has(Flaw::GivesUpEarly)));
        self.req.rnr_retries = self.sending.rnr_retry;
        // What was acknowledged late need not be sent again.
        if let Some(started) = self.sq.head().and_then(|wqe| wqe.started) {
            let acknowledged = self.req.una.distance(started.first);
            if self.req.cursor.0 == 0 && self.req.cursor.1 < acknowledged {
                self.req.cursor.1 = acknowledged;
            }
        }
        if self.req.rnr_until.is_none() {
            self.req.ack_deadline = self.ack_timeout().filter(|_| self.req.awaits_answer()).map(|timeout| cx.now + timeout);
        }
    }

    /// Asks for the missing answers again, once.
    fn ask_again(&mut self, tuning: &Tuning) {
        if self.req.asked_again != Some(self.req.una) && self.req.rnr_until.is_none() {
            self.req.asked_again = Some(self.req.una);
            self.go_back(tuning);
        }
    }

    /// Data that the request of number `psn` asked for.
    fn on_data<M: Memory>(&mut self, cx: &mut Context<'_, M>, psn: Psn, fits: fn(&SendOp) -> bool, last: bool, data: &[u8]) {
        if !psn.within(self.req.una, self.req.sent_max) {
            return;
        }
        self.advance(cx, psn);
        if self.req.una != psn {
            return;
        }
        let Some((wqe, started)) = self.sq.head().and_then(|wqe| Some((wqe, wqe.started?))) else { return };
        let packet = psn.distance(started.first);
        let mtu = self.peer.map_or(0, |peer| peer.mtu.bytes());
        let offset = packet * mtu;
        let expected = (wqe.len - offset.min(wqe.len)).min(mtu);
        let is_last = packet + 1 == started.packets;
        if !fits(&wqe.op) || last != is_last || data.len() != expected as usize {
            self.fail_at(cx, 0, Status::BadResponse);
            return;
        }
        if cx.regions.scatter(self.config.pd, self.sq.sges(0), offset, data).is_err() {
            self.fail_at(cx, 0, Status::LocalProtection);
            return;
        }
        self.req.una += 1;
        if is_last {
            self.req.reads -= 1;
            self.pop_success(cx);
        }
        self.on_progress(cx);
    }

    /// Does what is due.
    pub(in crate::roce) fn on_timer<M: Memory>(&mut self, cx: &mut Context<'_, M>) {
        self.on_rate_timer(cx);
        if self.req.rnr_until.is_some_and(|at| at <= cx.now) {
            self.req.rnr_until = None;
        }
        if self.req.ack_deadline.is_some_and(|at| at <= cx.now) {
            self.req.ack_deadline = None;
            if self.req.is_outstanding() {
                self.retry(cx, Status::RetryExceeded);
            }
        }
    }
}

fn is_read(op: &SendOp) -> bool {
    matches!(op, SendOp::Read { .. })
}

const fn refused(code: NakCode) -> Status {
    match code {
        NakCode::RemoteAccess => Status::RemoteAccess,
        NakCode::RemoteOperational => Status::RemoteOperation,
        NakCode::SequenceError | NakCode::InvalidRequest | NakCode::InvalidRdRequest => Status::RemoteInvalidRequest,
    }
}
