//! How a connection ends: by both sides' consent, by one side's, or by nobody's.

use super::{Connection, Phase, State};
use crate::device::{RxBuffer, TxBuffer};
use crate::error::Error;
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::ring::Readiness;
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
            // Nobody is left to acknowledge it; a station that lived on would.
            State::CloseWait if self.forsaken => return self.finish(),
            State::CloseWait => self.state = State::LastAck,
            State::SynSent => return self.finish(),
            _ => return,
        }
        self.fin_queued = true;
        self.tx_pending = true;
        self.edges |= Readiness::OUT;
        if self.peer_fin || self.read_shut {
            self.edges |= Readiness::HUP;
        }
    }

    /// The program reads no more. What still arrives is kept, as on Linux.
    pub fn shutdown_read(&mut self) {
        self.read_shut = true;
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
            _ => true,
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
        if self.recv.len() + self.recv.undecided() > 0 && self.state != State::TimeWait {
            mark!(self, CloseWithUnread);
            self.abort();
            return;
        }
        self.recv.clear();
        self.shutdown_write(now);
        if self.state == State::FinWait2 {
            self.timers.set(Timer::Linger, now + self.config.fin_wait2);
        }
    }

    /// The device says that the peer's station is gone. Where the peer had sent everything, and has everything that we sent, its end
    /// may well be that of a program that was done: ours sees the end of the stream and no more, as it would of a host that lives on,
    /// until it sends.
    pub fn station_gone(&mut self) {
        if self.state == State::CloseWait && self.send.len() == 0 {
            self.forsaken = true;
        } else {
            self.peer_gone();
        }
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
            State::CloseWait => self.fail(Error::Pipe),
            State::SynReceived => self.fail(Error::Refused),
            _ => self.fail(Error::Reset),
        }
    }

    /// The connection ended for this reason. What was received can still be read.
    pub(super) fn fail(&mut self, error: Error) {
        self.finish();
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
