//! How a connection ends: by both sides' consent, by one side's, or by nobody's.

use super::{Connection, Phase, State};
use crate::device::{RxBuffer, TxBuffer};
use crate::error::Error;
use crate::flow::Readiness;
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::tcp::timers::{Timer, Timers};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

const EVERYTHING: Readiness = Readiness::IN.union(Readiness::OUT).union(Readiness::RDHUP).union(Readiness::HUP);

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// Ends our stream: a FIN follows what is queued (RFC 9293 s3.10.4).
    pub fn shutdown_write(&mut self, _now: Instant) {
        match self.state {
            State::SynReceived => {}
            State::Established => self.state = State::FinWait1,
            // Nobody is left to acknowledge it; a host that lived on would.
            State::CloseWait if self.peer_exited => return self.finish(),
            State::CloseWait if self.config.is(Mutant::CloseWaitBecomesFinWait) => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            State::SynSent => return self.finish(),
            _ => return,
        }
        self.fin_queued = true;
        // Nothing more will follow, whatever a write said (MSG_MORE).
        self.more = false;
        self.tx_pending = true;
        self.edges |= Readiness::OUT;
        if (self.peer_fin || self.read_shut) && !self.config.is(Mutant::OwnEndHangsUpUntold) {
            self.edges |= Readiness::HUP;
        }
    }

    /// The program reads no more. What still arrives is kept, as on Linux.
    pub fn shutdown_read(&mut self) {
        self.read_shut = true;
        if self.config.is(Mutant::ShutReadRaisesNothing) {
            return;
        }
        self.edges |= Readiness::IN | Readiness::RDHUP;
        if self.fin_queued {
            self.edges |= Readiness::HUP;
        }
    }

    /// Ends the connection at once: the peer gets a reset (RFC 9293 s3.10.5).
    pub fn abort(&mut self) {
        mark!(self, Aborted);
        let known_to_peer = match self.state {
            State::Closed | State::Listen | State::SynSent | State::TimeWait => false,
            State::SynReceived => true,
            _ => !self.peer_exited,
        };
        self.finish();
        self.recv.clear();
        if known_to_peer && !self.config.is(Mutant::NoReset) {
            self.reset_due = true;
            self.tx_pending = true;
        }
    }

    /// The program closed the socket: our stream ends after what is queued; unread bytes mean a reset instead
    /// (RFC 9293 s3.10.4, RFC 2525 s2.17).
    pub fn orphan(&mut self, now: Instant) {
        self.orphaned = true;
        self.read_shut = true;
        let unread = self.recv.len() + self.recv.undecided() > 0 && !self.config.is(Mutant::UnreadIsForgotten);
        if unread && self.state != State::TimeWait {
            mark!(self, CloseWithUnread);
            self.abort();
            return;
        }
        self.recv.clear();
        self.shutdown_write(now);
        if self.state == State::FinWait2 && !self.config.is(Mutant::FinWait2ForeverOnceClosed) {
            self.timers.set(Timer::Linger, now + self.config.fin_wait2);
        }
    }

    /// The device says that the peer is dead. `is_finished`: all that its program had written is here, and its program had read, or could
    /// have, all that was sent to it. Then the host that lives on would end the stream as it does when a program closes its socket
    /// (RFC 2525 s2.17, and Linux's tcp_close): by a FIN, after which it answers whatever it is sent by a reset.
    pub fn peer_died(&mut self, is_finished: bool) {
        let is_finished = (is_finished && !self.config.is(Mutant::DeathIsReset)) || self.config.is(Mutant::DeathIsEnd);
        // (What went to where the peer was before, or from where this end was, it never had, whatever it was through with.)
        if !is_finished || self.is_nowhere() || self.reassembly.as_ref().is_some_and(|reassembly| reassembly.has_gap()) {
            return self.peer_gone();
        }
        match self.state {
            State::Established | State::FinWait1 | State::FinWait2 | State::CloseWait => self.end_in_order(),
            State::Closing | State::LastAck => self.finish(),
            _ => self.peer_gone(),
        }
    }

    /// Whether the peer has ended its stream, and has acknowledged all bytes that were written here: a process that ends in order waits for both, where it can.
    pub(crate) fn has_peer_ended(&self) -> bool {
        self.peer_fin && self.send.len() == 0
    }

    /// The peer's stream has ended, what was sent has been acknowledged, and nothing is sent any more.
    fn end_in_order(&mut self) {
        mark!(self, PeerExited);
        if !self.peer_fin {
            self.peer_fin = true;
            self.edges |= Readiness::IN | Readiness::RDHUP;
            if self.fin_queued {
                self.edges |= Readiness::HUP;
            }
        }
        self.reassembly = None;
        let is_unsent = self.send.end().gt(self.snd_nxt);
        match self.state {
            _ if is_unsent => {
                self.state = if self.state == State::Established { State::CloseWait } else { self.state };
                // It would have been sent as soon as the FIN acknowledged what was before it.
                self.on_reset();
            }
            State::Established | State::CloseWait => {
                self.state = State::CloseWait;
                self.peer_exited = true;
                self.snd_una = self.snd_nxt;
                self.send.acknowledge(self.snd_nxt, false);
                self.scoreboard.clear();
                self.phase = Phase::Open;
                (self.timers, self.acks.now, self.probe_due, self.tx_pending) = (Timers::new(), false, false, false);
                if core::mem::take(&mut self.write_blocked) {
                    self.edges |= Readiness::OUT;
                }
            }
            _ => self.finish(),
        }
    }

    /// Whether Linux would end the connection by a reset if the program ended now (tcp_close): somebody's bytes would be lost. That goes for those that
    /// have yet to be sent, too, since here nobody sends them once the process is gone; and for those that the program has by reference, and is not done
    /// with.
    #[inline(always)]
    pub fn is_unfinished(&self) -> bool {
        self.recv.charged() > 0 || self.send.end().gt(self.snd_nxt) || (self.reset_due | self.config.linger_zero) || self.is_nowhere()
    }

    /// Whether bytes may be with nobody, though they were sent: they were on their way to, or from, where an end was before.
    #[inline]
    pub(crate) fn is_nowhere(&self) -> bool {
        let is_resent = || self.phase != Phase::Loss || self.high_rxt.max(self.snd_una).ge(self.recover);
        self.went_elsewhere && !is_resent()
    }

    /// The peer is no more, or another has its addresses: as if it had sent a reset.
    pub fn peer_gone(&mut self) {
        match self.state {
            State::Closed | State::Listen => {}
            State::TimeWait => self.finish(),
            State::SynSent => self.fail(Error::Refused),
            _ => self.on_reset(),
        }
    }

    /// The device is gone: neither the peer nor anybody else will be heard of again. What was received can still be read.
    pub fn device_gone(&mut self) {
        match self.state {
            State::Closed | State::Listen => {}
            State::TimeWait => self.finish(),
            _ => self.fail(Error::NetworkDown),
        }
        self.reset_due = false;
    }

    /// The device has no rule for a connection whose SYN was to wait for it.
    pub fn not_steered(&mut self, error: Error) {
        if self.state == State::SynSent {
            self.fail(error);
        }
    }

    /// Whether bytes, our stream's end or a reset have yet to reach the peer: what an exiting process waits for.
    pub fn is_flushing(&self) -> bool {
        self.reset_due || matches!(self.state, State::FinWait1 | State::Closing | State::LastAck)
    }

    /// A valid reset arrived.
    pub(super) fn on_reset(&mut self) {
        mark!(self, ResetReceived);
        match self.state {
            State::TimeWait => self.finish(),
            // Linux's tcp_reset.
            State::CloseWait if self.config.is(Mutant::ResetAfterEndIsSilent) => self.finish(),
            State::CloseWait => self.fail(Error::Pipe),
            // (Of a program's own connection: as of any other.)
            State::SynReceived if !self.is_open_early() => self.fail(Error::Refused),
            _ => self.fail(Error::Reset),
        }
    }

    /// The connection ended for this reason. What was received can still be read.
    pub(super) fn fail(&mut self, error: Error) {
        self.finish();
        if self.config.is(Mutant::ResetLosesUnread) {
            self.recv.clear();
        }
        self.error = Some(error);
        self.edges |= Readiness::ERR;
    }

    /// The connection is over.
    pub(super) fn finish(&mut self) {
        self.state = State::Closed;
        self.timers = Timers::new();
        if self.config.is(Mutant::DataAfterReset) && self.send.len() > 0 && self.in_flight() > 0 {
            (self.phase, self.recover, self.high_rxt) = (Phase::Loss, self.snd_nxt, self.snd_una);
            self.retransmit_now = true;
            self.edges |= EVERYTHING;
            return;
        }
        if self.config.is(Mutant::LeakBuffer) {
            self.send.leak();
        }
        self.send.clear();
        self.scoreboard.clear();
        self.records.clear();
        // What was lost went with the send buffer: a reset that is still due must not be preceded by it.
        self.phase = Phase::Open;
        self.reassembly = None;
        self.syn_due = false;
        self.probe_due = false;
        self.acks.now = false;
        // What was due to a stranger would now be taken for the end of this connection; whoever ends it by a reset says so anew.
        self.reset_due = false;
        self.edges |= EVERYTHING;
    }

    /// Sends a reset with this sequence number, to a segment that belongs to another connection than this one, which goes on.
    pub(super) fn send_reset_at(&mut self, seq: SeqNumber) {
        // Free before the handshake is complete: nothing is retransmitted by number then.
        self.high_rxt = seq;
        self.reset_due = true;
        self.tx_pending = true;
    }
}
