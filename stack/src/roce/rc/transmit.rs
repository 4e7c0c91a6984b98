//! The requester's packets.

use core::time::Duration;

use super::congestion::path_of;
use super::rnr_wait;
use crate::roce::memory::{Access, Memory};
use crate::roce::message::{body, packets};
use crate::roce::packet::Header;
use crate::roce::psn::Psn;
use crate::roce::qp::{Context, Events, Qp, SendWqe, Started, State, Transport};
use crate::roce::work::{SendOp, Status};
use crate::roce::{Flaw, Tuning};
use crate::time::Instant;

/// Of a long message every so many packets ask for an acknowledgment, so that the window moves on; the last one always does.
const ACK_EVERY: u32 = 32;
/// No more packet numbers than half of the space may be unacknowledged, reads' responses included.
pub(super) const NUMBERS_MAX: u32 = (1 << 23) - 1;

impl Qp {
    /// Writes the requester's next IP packet to `out` and gives its length; `None` if there is nothing to send now.
    pub(in crate::roce) fn transmit_request<M: Memory>(&mut self, cx: &mut Context<'_, M>, id: u16, out: &mut [u8]) -> Option<usize> {
        if !matches!(self.state, State::Rts | State::Sqd) || self.req.rnr_until.is_some() {
            return None;
        }
        if cx.tuning.predicts()
            && let Some(len) = self.transmit_predicted(cx, out)
        {
            *cx.predicted += 1;
            return Some(len);
        }
        let peer = self.peer?;
        let (index, packet) = self.req.cursor;
        let started = self.begin(cx, index, peer.mtu.bytes())?;
        if self.is_held_back(cx.now) {
            return None;
        }
        let psn = started.first + packet;
        let wqe = self.sq.get(index)?;
        let takes_receive = wqe.op.takes_receive();
        let limited = takes_receive && self.is_beyond_credits(started.ssn);
        if limited && !self.may_probe(&started, packet) {
            // (Its first packets may have been sent while there were credits, and asked for nothing.)
            self.start_timer(cx.now);
            return None;
        }
        let is_read = wqe.op.is_read_or_atomic();
        let window = cx.tuning.window.max(1);
        if !is_read && psn.distance(self.req.una) >= window {
            return None;
        }
        let mtu = peer.mtu.bytes();
        let offset = packet * mtu;
        let last = is_read || packet + 1 == started.packets;
        let len = if is_read { 0 } else { (wqe.len - offset).min(mtu) as usize };
        // There is one in each window, or it would never move.
        let ack_every = ACK_EVERY.min(window);
        let begins_at = if is_read && cx.tuning.has(Flaw::AsksFromTheStart) { 0 } else { offset };
        let mut header = Header::new(body(wqe, packet, last, begins_at), peer.dest_qp, psn);
        header.pkey = self.pkey;
        header.solicited = wqe.solicited && last && takes_receive;
        header.ack_request = last || limited || packet % ack_every == ack_every - 1;
        let (sq, pd) = (&self.sq, self.config.pd);
        let fill = |out: &mut [u8]| sq.read(index, offset, out, pd, cx.regions).ok();
        let Some(len) = path_of(cx.tuning, &peer.path).emit_with(id, cx.tuning.crc(), &header, len, out, fill) else {
            // Its memory went away meanwhile.
            self.fail_at(cx, index, Status::LocalProtection);
            return None;
        };
        self.on_paced(cx, len);
        let after = if is_read { started.end() } else { psn + 1 };
        if self.req.sent_max.lt(after) {
            self.req.sent_max = after;
        }
        self.req.cursor = if last { (index + 1, 0) } else { (index, packet + 1) };
        // The timer is for answers that were asked for (IBTA spec, s9.7.6.1.3). Of a message that is held to a rate, the packet that asks may be far behind the first one.
        if header.ack_request {
            self.req.asked = after;
            self.start_timer(cx.now);
        }
        Some(len)
    }

    /// Starts the timer of answers, if packets are on their way and it does not run.
    #[inline]
    pub(super) fn start_timer(&mut self, now: Instant) {
        if self.req.ack_deadline.is_none() && self.req.is_outstanding() {
            self.req.ack_deadline = self.ack_timeout().map(|timeout| now + timeout);
        }
    }

    /// Whether there is something to send that an acknowledgment, or an answer, has to come for first.
    pub(in crate::roce) fn is_held_up(&self) -> bool {
        self.config.transport == Transport::Rc && self.state == State::Rts && self.sq.get(self.req.cursor.0).is_some()
    }

    /// Whether all that was posted has been sent, and, as far as is known, nothing of it is to be sent again.
    pub(in crate::roce) fn has_sent_all(&self) -> bool {
        // (Of an unreliable connection, what was sent is in the queue no more.)
        self.config.transport != Transport::Ud
            && self.state == State::Rts
            && self.req.rnr_until.is_none()
            && self.sq.get(self.req.cursor.0).is_none()
    }

    /// Gives the request at `index` its packet numbers, if it has none and may begin.
    fn begin<M: Memory>(&mut self, cx: &mut Context<'_, M>, index: usize, mtu: u32) -> Option<Started> {
        let wqe = self.sq.get(index)?;
        if wqe.failed.is_some() {
            return None;
        }
        if wqe.started.is_some() {
            return wqe.started;
        }
        let is_read = wqe.op.is_read_or_atomic();
        let reads_full = is_read && self.req.reads >= u32::from(self.sending.max_rd_atomic);
        if let Err(status) = self.check_local(cx, index, wqe) {
            self.fail_at(cx, index, status);
            return None;
        }
        let packets = if matches!(wqe.op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }) { 1 } else { packets(wqe.len, mtu) };
        let ahead = self.req.next_psn.distance(self.req.una);
        let window_full = ahead >= cx.tuning.window.max(1) || ahead + packets > NUMBERS_MAX;
        if self.state == State::Sqd || reads_full || window_full || wqe.fence && self.req.reads > 0 {
            return None;
        }
        self.req.ssn += 1;
        let started = Started { first: self.req.next_psn, packets, ssn: self.req.ssn };
        self.req.next_psn = started.end();
        self.req.reads += u32::from(is_read);
        self.sq.get_mut(index)?.started = Some(started);
        Some(started)
    }

    /// Whether a request can be done as far as this side is concerned.
    fn check_local<M: Memory>(&self, cx: &Context<'_, M>, index: usize, wqe: &SendWqe) -> Result<(), Status> {
        let access = if wqe.op.is_read_or_atomic() { Access::LOCAL_WRITE } else { Access::empty() };
        cx.regions.check_list(self.config.pd, self.sq.sges(index), access).map_err(|_| Status::LocalProtection)?;
        match wqe.op {
            _ if wqe.op.is_read_or_atomic() && self.sending.max_rd_atomic == 0 => Err(Status::LocalQpOperation),
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } if wqe.len != 8 => Err(Status::LocalLength),
            _ => Ok(()),
        }
    }

    /// Whether the peer may have no receive for this request, as far as it told.
    fn is_beyond_credits(&self, ssn: Psn) -> bool {
        self.req.lsn.is_some_and(|lsn| lsn.lt(ssn))
    }

    /// Without credits, the first packet of one request may go once all before it are acknowledged, and the others once it is (IBTA spec,
    /// s9.7.7.2.5).
    fn may_probe(&self, started: &Started, packet: u32) -> bool {
        (packet == 0) == (self.req.una == started.first)
    }

    /// Ends the request at `index` in failure when its turn comes.
    pub(super) fn fail_at<M: Memory>(&mut self, cx: &mut Context<'_, M>, index: usize, status: Status) {
        if let Some(wqe) = self.sq.get_mut(index) {
            wqe.failed = Some(status);
        }
        self.fail_first(cx);
    }

    /// If the first request has failed, ends it and all others.
    pub(super) fn fail_first<M: Memory>(&mut self, cx: &mut Context<'_, M>) {
        if let Some(status) = self.sq.head().and_then(|wqe| wqe.failed) {
            self.complete_send(cx, status);
            self.resp.stop();
            self.enter_error(cx);
        }
    }

    /// 4.096 us * 2^v (IBTA spec, s9.9.2.1.1); `None`: for ever.
    pub(super) fn ack_timeout(&self) -> Option<Duration> {
        (self.sending.timeout != 0).then(|| Duration::from_nanos(4096 << self.sending.timeout))
    }

    /// Sends again from the oldest packet that is not acknowledged.
    pub(super) fn go_back(&mut self, tuning: &Tuning) {
        let packet = self.sq.head().and_then(|wqe| wqe.started).map_or(0, |started| self.req.una.distance(started.first));
        self.req.cursor = (0, packet + u32::from(tuning.has(Flaw::GoesBackTooLittle)));
        (self.req.ack_deadline, self.req.asked) = (None, self.req.una);
    }

    /// Tells, once, that SQD was reached: all that was begun is done.
    pub(in crate::roce) fn tell_drained(&mut self) {
        let done = self.sq.head().is_none_or(|wqe| wqe.started.is_none());
        if self.state == State::Sqd && done && core::mem::take(&mut self.req.draining) {
            self.events |= Events::SEND_QUEUE_DRAINED;
        }
    }

    /// Waits, since the peer has no receive.
    pub(super) fn wait_for_receive(&mut self, now: Instant, code: u8) {
        self.req.rnr_until = Some(now + rnr_wait(code));
        self.req.ack_deadline = None;
    }
}
