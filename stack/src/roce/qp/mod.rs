//! A queue pair: its queues, its state, and what it was told of its peer (IBTA spec, volume 1, s10.2 and s10.3).

mod modify;
mod queues;

pub use modify::RD_ATOMIC_MAX;
pub(super) use queues::{RecvQueue, SendQueue, SendWqe, Started};

pub use crate::device::messages::{Modify, ModifyError, Mtu, Peer, QpConfig, QpEvents as Events, Sending, State, Transport};

use super::cq::{CompletionQueue, Pushed};
use super::dcqcn::{Notifier, Rate};
use super::flaws::Flaw;
use super::memory::{Access, Memory, Regions};
use super::packet::PKEY_DEFAULT;
use super::psn::Psn;
use super::rc::{Requester, Responder};
use super::slab::Slab;
use super::uc::Unreliable;
use super::work::{Completion, Opcode, PostError, SendOp, SendWr, Sge, Status};
use crate::time::Instant;

impl Mtu {
    /// The largest one that fits into IP packets of `ip_mtu` bytes with the longest headers, as rxe computes it.
    pub fn fitting(ip_mtu: usize) -> Option<Self> {
        let room = ip_mtu.checked_sub(super::packet::datagram::OVERHEAD_MAX)?;
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes() as usize <= room)
    }
}

/// What an event of a queue pair touches beside itself.
pub(super) struct Context<'a, M> {
    pub(super) now: Instant,
    pub(super) regions: &'a mut Regions<M>,
    pub(super) cqs: &'a mut Slab<CompletionQueue>,
    pub(super) tuning: &'a super::Tuning,
    /// A completion queue was overrun.
    pub(super) overrun: &'a mut Option<u32>,
    /// Packets that were sent the short way.
    pub(super) predicted: &'a mut u64,
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct Qp {
    pub(super) number: u32,
    pub(super) config: QpConfig,
    pub(super) state: State,
    /// What peers may do at all.
    pub(super) access: Access,
    pub(super) qkey: u32,
    pub(super) pkey: u16,
    /// Of connections, from RTR on.
    pub(super) peer: Option<Peer>,
    /// Of RC, from RTS on.
    pub(super) sending: Sending,
    pub(super) sq: SendQueue,
    pub(super) rq: RecvQueue,
    pub(super) req: Requester,
    pub(super) resp: Responder,
    /// The rate that it is held to; `None`: the link's.
    pub(super) rate: Option<Box<Rate>>,
    pub(super) notifier: Notifier,
    pub(super) uc: Unreliable,
    /// UD's next packet number.
    pub(super) ud_psn: Psn,
    /// Of UD: what it sends to a group of its own comes to it, too.
    pub(super) has_multicast_loopback: bool,
    pub(super) events: Events,
    /// It stands in the adapter's list of those that may want to send.
    pub(super) listed: bool,
    /// The same in the list of those that owe an acknowledgment.
    pub(super) owes: bool,
    /// The time at which it stands in the adapter's list of timers: never later than its deadline.
    pub(super) timer: Option<Instant>,
}

impl Qp {
    /// Whether it has something to send, or to find out that it may not.
    pub(super) fn may_transmit(&self) -> bool {
        let has_request = match self.config.transport {
            Transport::Rc => self.sq.get(self.req.next_request()).is_some() || self.resp.may_transmit(),
            Transport::Uc | Transport::Ud => self.sq.head().is_some(),
        };
        has_request || self.notifier.is_due
    }

    /// Whether all that it has to send is an acknowledgment that may wait.
    pub(super) fn only_acknowledges(&self) -> bool {
        self.config.transport == Transport::Rc
            && self.resp.may_wait()
            && self.sq.get(self.req.next_request()).is_none()
            && !self.notifier.is_due
    }

    pub(super) fn new(number: u32, config: QpConfig) -> Self {
        Self {
            number,
            config,
            state: State::Reset,
            access: Access::empty(),
            qkey: 0,
            pkey: PKEY_DEFAULT,
            peer: None,
            sending: Sending::default(),
            sq: SendQueue::new(config.send_depth, config.sges_max, config.inline_max),
            rq: RecvQueue::new(config.recv_depth, config.sges_max),
            req: Requester::default(),
            resp: Responder::default(),
            rate: None,
            notifier: Notifier::default(),
            uc: Unreliable::default(),
            ud_psn: Psn::default(),
            has_multicast_loopback: true,
            events: Events::empty(),
            listed: false,
            owes: false,
            timer: None,
        }
    }

    /// Posts a request to send.
    pub(super) fn post_send<M: Memory>(&mut self, cx: &mut Context<'_, M>, wr: &SendWr<'_>) -> Result<(), PostError> {
        let is_of = match self.config.transport {
            Transport::Rc => !matches!(wr.op, SendOp::Datagram { .. }),
            Transport::Uc => matches!(wr.op, SendOp::Send { .. } | SendOp::Write { .. }),
            Transport::Ud => matches!(wr.op, SendOp::Datagram { .. }),
        };
        if !is_of {
            return Err(PostError::Operation);
        }
        match self.state {
            State::Rts | State::Sqd => self.sq.post(wr),
            State::Sqe | State::Err => {
                self.sq.post(wr)?;
                self.flush_sends(cx);
                Ok(())
            }
            State::Reset | State::Init | State::Rtr => Err(PostError::State),
        }
    }

    /// Posts a receive. (In the error state it is to be flushed.)
    #[inline]
    pub(super) fn post_recv(&mut self, id: u64, sges: &[Sge]) -> Result<(), PostError> {
        if self.state == State::Reset {
            return Err(PostError::State);
        }
        self.rq.post(id, sges)
    }

    /// Ends the first request to send.
    pub(super) fn complete_send<M: Memory>(&mut self, cx: &mut Context<'_, M>, status: Status) {
        let Some(wqe) = self.sq.head() else { return };
        if !wqe.signaled && status == Status::Success {
            return self.sq.pop();
        }
        let completion = Completion { len: wqe.len, ..self.completion(wqe.id, status, wqe.op.opcode()) };
        self.sq.pop();
        cx.complete(self.config.send_cq, completion);
        if cx.tuning.has(Flaw::CompletesTwice) {
            cx.complete(self.config.send_cq, completion);
        }
    }

    /// Ends the first receive without success.
    pub(super) fn fail_receive<M: Memory>(&mut self, cx: &mut Context<'_, M>, status: Status) {
        let Some(wqe) = self.rq.pop() else { return };
        cx.complete(self.config.recv_cq, self.completion(wqe.id, status, Opcode::Receive));
    }

    /// A completion without data.
    pub(super) const fn completion(&self, id: u64, status: Status, opcode: Opcode) -> Completion {
        Completion { id, status, opcode, len: 0, immediate: None, qpn: self.number, src_qp: 0, grh: false, solicited: false }
    }

    pub(super) fn flush_sends<M: Memory>(&mut self, cx: &mut Context<'_, M>) {
        while self.sq.head().is_some() {
            self.complete_send(cx, Status::Flushed);
        }
    }

    pub(super) fn flush_receives<M: Memory>(&mut self, cx: &mut Context<'_, M>) {
        while self.rq.head().is_some() {
            self.fail_receive(cx, Status::Flushed);
        }
    }

    /// Goes into the error state: all that was posted ends (IBTA spec, s10.3.1.7).
    pub(super) fn enter_error<M: Memory>(&mut self, cx: &mut Context<'_, M>) {
        self.state = State::Err;
        (self.rate, self.notifier) = (None, Notifier::default());
        self.req.stop();
        self.uc.stop();
        self.flush_sends(cx);
        self.flush_receives(cx);
    }
}

impl<M> Context<'_, M> {
    /// Puts a completion into its queue.
    pub(super) fn complete(&mut self, cq: u32, completion: Completion) {
        if self.cqs.get_mut(cq).map(|queue| queue.push(completion)) == Some(Pushed::Overrun) {
            *self.overrun = Some(cq);
        }
    }
}
