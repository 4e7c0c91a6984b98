//! A queue pair: its queues, its state, and what it was told of its peer (IBTA spec, volume 1, s10.2 and s10.3).

mod modify;
mod queues;

use bitflags::bitflags;

pub use modify::{Modify, ModifyError, Peer, RD_ATOMIC_MAX, Sending};
pub(super) use queues::{RecvQueue, SendQueue, SendWqe, Started};

use super::cq::{CompletionQueue, Pushed};
use super::memory::{Access, Memory, Pd, Regions};
use super::packet::PKEY_DEFAULT;
use super::psn::Psn;
use super::rc::{Requester, Responder};
use super::slab::Slab;
use super::work::{Completion, Opcode, PostError, SendOp, SendWr, Sge, Status};
use crate::time::Instant;

/// What a queue pair speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable datagrams.
    Ud,
}

/// A queue pair's state (IBTA spec, s10.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Made, or made anew.
    Reset,
    /// Receives can be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// What was begun is sent, and no more.
    Sqd,
    /// The send queue failed; receiving goes on. Of UD alone.
    Sqe,
    /// It failed.
    Err,
}

/// The path MTU: bytes of payload in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// All, the smallest first.
    pub const ALL: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// In bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// The one with that number on the wire.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| *mtu as u8 == code)
    }

    /// The largest one that fits into IP packets of `ip_mtu` bytes with the longest headers, as rxe computes it.
    pub fn fitting(ip_mtu: usize) -> Option<Self> {
        let room = ip_mtu.checked_sub(super::packet::datagram::OVERHEAD_MAX)?;
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes() as usize <= room)
    }
}

bitflags! {
    /// What happened to a queue pair beside completions (`enum ibv_event_type`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Events: u8 {
        /// A packet came before it was made ready to send.
        const COMMUNICATION_ESTABLISHED = 1;
        /// What was begun is done, and it rests.
        const SEND_QUEUE_DRAINED = 2;
        /// The peer's request was refused for its form.
        const REQUEST_ERROR = 4;
        /// The peer's request was refused for the memory that it named.
        const ACCESS_ERROR = 8;
        /// It failed: one of its own receives, or its completion queue.
        const FATAL = 16;
    }
}

/// What a queue pair is made with.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// What it speaks.
    pub transport: Transport,
    /// Whose memory it reaches.
    pub pd: Pd,
    /// Where sends complete.
    pub send_cq: u32,
    /// Where receives complete.
    pub recv_cq: u32,
    /// The most sends that are not completed.
    pub send_depth: usize,
    /// The most receives that are not completed.
    pub recv_depth: usize,
    /// The most pieces of memory in one request; at most [`super::work::SGES_MAX`].
    pub sges_max: usize,
    /// The most inline bytes.
    pub inline_max: usize,
}

/// What an event of a queue pair touches beside itself.
pub(super) struct Context<'a, M> {
    pub(super) now: Instant,
    pub(super) regions: &'a mut Regions<M>,
    pub(super) cqs: &'a mut Slab<CompletionQueue>,
    pub(super) tuning: &'a super::Tuning,
    /// A completion queue was overrun.
    pub(super) overrun: &'a mut Option<u32>,
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
    /// Of RC, from RTR on.
    pub(super) peer: Option<Peer>,
    /// Of RC, from RTS on.
    pub(super) sending: Sending,
    pub(super) sq: SendQueue,
    pub(super) rq: RecvQueue,
    pub(super) req: Requester,
    pub(super) resp: Responder,
    /// UD's next packet number.
    pub(super) ud_psn: Psn,
    pub(super) events: Events,
    /// It stands in the adapter's list of those that may want to send.
    pub(super) listed: bool,
    /// The time at which it stands in the adapter's list of timers: never later than its deadline.
    pub(super) timer: Option<Instant>,
}

impl Qp {
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
            ud_psn: Psn::default(),
            events: Events::empty(),
            listed: false,
            timer: None,
        }
    }

    /// Posts a request to send.
    pub(super) fn post_send<M: Memory>(&mut self, cx: &mut Context<'_, M>, wr: &SendWr<'_>) -> Result<(), PostError> {
        let datagram = matches!(wr.op, SendOp::Datagram { .. });
        if datagram != (self.config.transport == Transport::Ud) {
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

    /// Posts a receive.
    pub(super) fn post_recv<M: Memory>(&mut self, cx: &mut Context<'_, M>, id: u64, sges: &[Sge]) -> Result<(), PostError> {
        if self.state == State::Reset {
            return Err(PostError::State);
        }
        self.rq.post(id, sges)?;
        if self.state == State::Err {
            self.flush_receives(cx);
        }
        Ok(())
    }

    /// Ends the first request to send.
    pub(super) fn complete_send<M: Memory>(&mut self, cx: &mut Context<'_, M>, status: Status) {
        let Some(wqe) = self.sq.pop() else { return };
        if status == Status::Success && !wqe.signaled {
            return;
        }
        let completion = self.completion(wqe.id, status, wqe.op.opcode());
        cx.complete(self.config.send_cq, Completion { len: wqe.len, ..completion });
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

    fn flush_receives<M: Memory>(&mut self, cx: &mut Context<'_, M>) {
        while self.rq.head().is_some() {
            self.fail_receive(cx, Status::Flushed);
        }
    }

    /// Goes into the error state: all that was posted ends (IBTA spec, s10.3.1.7).
    pub(super) fn enter_error<M: Memory>(&mut self, cx: &mut Context<'_, M>) {
        self.state = State::Err;
        self.req.stop();
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
