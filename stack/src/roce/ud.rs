//! Unreliable datagrams (IBTA spec, volume 1, s9.8.3).

use super::memory::Memory;
use super::packet::datagram::Datagram;
use super::packet::{Body, Deth, Header};
use super::qp::{Context, Qp, State, Transport};
use super::work::{Completion, Opcode, SendOp, Status};
use crate::wire::{ipv4, ipv6};

/// Bytes before a received datagram's payload. The name is InfiniBand's (global route header); over RoCEv2 the sender's IP header is there:
/// IPv6's takes all of it, IPv4's the last 20 (annex A17.4.5.1).
pub const GRH_LEN: usize = 40;
/// In a request to send, this bit says that the sender's own key is meant.
const QKEY_OWN: u32 = 1 << 31;

/// Why a datagram was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreceived {
    /// The queue pair does not receive.
    State,
    /// Another key.
    Qkey,
    /// There is no receive, or none that is long enough.
    NoReceive,
}

impl Qp {
    /// Writes the next datagram's IP packet to `out` and gives its length; `None` if there is none.
    pub(super) fn transmit_datagram<M: Memory>(&mut self, cx: &mut Context<'_, M>, id: u16, out: &mut [u8]) -> Option<usize> {
        if self.state != State::Rts {
            return None;
        }
        let wqe = self.sq.head()?;
        let SendOp::Datagram { path, dest_qp, qkey, immediate } = wqe.op else { return None };
        if wqe.len > cx.tuning.datagram_mtu.bytes() {
            self.fail_sends(cx, Status::LocalLength);
            return None;
        }
        let qkey = if qkey & QKEY_OWN != 0 { self.qkey } else { qkey };
        let body = Body::Datagram(Deth { qkey, src_qp: self.number }, immediate);
        let header = Header { solicited: wqe.solicited, pkey: self.pkey, ..Header::new(body, dest_qp, self.ud_psn) };
        let (sq, pd) = (&self.sq, self.config.pd);
        let fill = |out: &mut [u8]| sq.read(0, 0, out, pd, cx.regions).ok();
        let Some(len) = path.emit_with(id, cx.tuning.crc(), &header, wqe.len as usize, out, fill) else {
            self.fail_sends(cx, Status::LocalProtection);
            return None;
        };
        self.ud_psn += 1;
        self.complete_send(cx, Status::Success);
        Some(len)
    }

    /// The send queue of datagrams or of an unreliable connection fails; receiving goes on (IBTA spec, s10.3.1.6).
    pub(super) fn fail_sends<M: Memory>(&mut self, cx: &mut Context<'_, M>, status: Status) {
        self.complete_send(cx, status);
        self.stop_sends(cx);
    }

    /// No more is sent: what is posted is flushed. A reliable connection is in error as a whole (s10.3.1.7), of the others the send queue alone.
    pub(super) fn stop_sends<M: Memory>(&mut self, cx: &mut Context<'_, M>) {
        if self.config.transport == Transport::Rc {
            return self.enter_error(cx);
        }
        self.state = State::Sqe;
        self.uc.stop_sending();
        self.flush_sends(cx);
    }

    /// Takes a datagram.
    pub(super) fn on_datagram<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        datagram: &Datagram<'_>,
        deth: Deth,
        immediate: Option<u32>,
    ) -> Result<(), Unreceived> {
        if !matches!(self.state, State::Rtr | State::Rts | State::Sqd | State::Sqe) {
            return Err(Unreceived::State);
        }
        if deth.qkey != self.qkey {
            return Err(Unreceived::Qkey);
        }
        let payload = datagram.packet.payload;
        let len = GRH_LEN as u32 + payload.len() as u32;
        self.rq.head().filter(|wqe| wqe.len >= len).ok_or(Unreceived::NoReceive)?;
        let grh = grh(datagram.ip_header);
        let (pd, sges) = (self.config.pd, self.rq.first_sges());
        let written = cx.regions.scatter(pd, sges, 0, &grh).and_then(|()| cx.regions.scatter(pd, sges, GRH_LEN as u32, payload));
        if written.is_err() {
            self.fail_receive(cx, Status::LocalProtection);
            self.enter_error(cx);
            return Ok(());
        }
        let Some(wqe) = self.rq.pop() else { return Ok(()) };
        let completion = self.completion(wqe.id, Status::Success, Opcode::Receive);
        let solicited = datagram.packet.header.solicited;
        cx.complete(self.config.recv_cq, Completion { len, immediate, src_qp: deth.src_qp, grh: true, solicited, ..completion });
        Ok(())
    }
}

fn grh(ip_header: &[u8]) -> [u8; GRH_LEN] {
    let mut grh = [0; GRH_LEN];
    let at = if ip_header.len() == ipv6::LEN { 0 } else { GRH_LEN - ipv4::LEN };
    for (to, from) in grh[at..].iter_mut().zip(ip_header) {
        *to = *from;
    }
    grh
}
