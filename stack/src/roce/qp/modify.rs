//! From state to state (IBTA spec, volume 1, s10.3.1 and table 91).

use super::{Context, Events, Modify, ModifyError, Peer, Qp, Sending, State, Transport};
use crate::roce::dcqcn::Notifier;
use crate::roce::memory::{Access, Memory};
use crate::roce::rc::{Requester, Responder};
use crate::roce::uc::Unreliable;

/// The most reads and atomics at once that a peer can be promised.
pub const RD_ATOMIC_MAX: u8 = 128;

impl Qp {
    /// Changes the state.
    pub(in crate::roce) fn modify<M: Memory>(&mut self, cx: &mut Context<'_, M>, modify: &Modify) -> Result<(), ModifyError> {
        let transport = self.config.transport;
        self.state = match (self.state, transport, *modify) {
            (_, _, Modify::Reset) => {
                self.reset(cx);
                State::Reset
            }
            (State::Reset, _, Modify::Err) => return Err(ModifyError::Transition),
            (_, _, Modify::Err) => {
                self.resp.stop();
                self.enter_error(cx);
                State::Err
            }
            (State::Reset | State::Init, _, Modify::Init { access, qkey }) => {
                self.access = access;
                self.qkey = qkey;
                State::Init
            }
            (State::Init, Transport::Rc, Modify::Rtr(peer)) => {
                check_peer(&peer)?;
                self.resp = Responder::new(&peer);
                self.peer = Some(peer);
                State::Rtr
            }
            // (Any number begins a message there: the first one need not be known.)
            (State::Init, Transport::Uc, Modify::Rtr(peer)) => {
                let peer = Peer { max_dest_rd_atomic: 0, min_rnr_timer: 0, ..peer };
                check_peer(&peer)?;
                self.peer = Some(peer);
                State::Rtr
            }
            (State::Init, Transport::Ud, Modify::RtrDatagram) => State::Rtr,
            (State::Rtr, Transport::Rc, Modify::Rts(sending)) => {
                if sending.timeout > 31 || sending.retry_count > 7 || sending.rnr_retry > 7 || sending.max_rd_atomic > RD_ATOMIC_MAX {
                    return Err(ModifyError::Attribute);
                }
                self.req = Requester::new(&sending);
                self.sending = sending;
                State::Rts
            }
            (State::Rtr, Transport::Uc, Modify::Rts(Sending { sq_psn, .. })) => {
                self.uc.start(sq_psn);
                State::Rts
            }
            (State::Rtr, Transport::Ud, Modify::RtsDatagram { sq_psn }) => {
                self.ud_psn = sq_psn;
                State::Rts
            }
            (State::Sqd | State::Sqe, _, Modify::Resume) => State::Rts,
            (State::Rtr | State::Rts, Transport::Uc, Modify::Update { min_rnr_timer: Some(_), .. }) => return Err(ModifyError::Attribute),
            (State::Rtr | State::Rts, Transport::Rc | Transport::Uc, Modify::Update { access, min_rnr_timer }) => {
                self.update(access, min_rnr_timer)?;
                self.state
            }
            (State::Rts, _, Modify::Sqd) => {
                self.req.draining = true;
                State::Sqd
            }
            _ => return Err(ModifyError::Transition),
        };
        self.tell_drained();
        Ok(())
    }

    fn update(&mut self, access: Option<Access>, min_rnr_timer: Option<u8>) -> Result<(), ModifyError> {
        let timer = min_rnr_timer.unwrap_or_default();
        let peer = self.peer.as_mut().filter(|_| timer <= 31).ok_or(ModifyError::Attribute)?;
        peer.min_rnr_timer = min_rnr_timer.unwrap_or(peer.min_rnr_timer);
        self.access = access.unwrap_or(self.access);
        Ok(())
    }

    fn reset<M: Memory>(&mut self, cx: &mut Context<'_, M>) {
        self.sq.clear();
        self.rq.clear();
        self.req = Requester::default();
        self.resp = Responder::default();
        self.uc = Unreliable::default();
        (self.rate, self.notifier) = (None, Notifier::default());
        (self.peer, self.sending) = (None, Sending::default());
        (self.access, self.qkey, self.events) = (Access::empty(), 0, Events::empty());
        for cq in [self.config.send_cq, self.config.recv_cq] {
            if let Some(cq) = cx.cqs.get_mut(cq) {
                cq.forget(self.number);
            }
        }
    }
}

fn check_peer(peer: &Peer) -> Result<(), ModifyError> {
    let in_range = peer.dest_qp < 1 << 24 && peer.max_dest_rd_atomic <= RD_ATOMIC_MAX && peer.min_rnr_timer <= 31;
    if in_range { Ok(()) } else { Err(ModifyError::Attribute) }
}
