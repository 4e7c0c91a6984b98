//! Explicit congestion notification (RFC 3168): routers mark packets that are capable of it instead of dropping them, the receiver tells of marks with ECE in all that
//! it sends until the sender says with CWR that its window has come down. Beside DCTCP it tells of each byte whether it was marked (RFC 8257).

use super::congestion::Before;
use super::{Connection, Phase};
use crate::device::{RxBuffer, TxBuffer};
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::tcp::congestion::Algorithm;
use crate::tcp::fields::{Fields, SnapshotError};
use crate::tcp::timers::Timer;
use crate::time::Instant;
use crate::wire::tcp::{Flags, SeqNumber};

bitflags::bitflags! {
    /// What is under way.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Doing: u8 {
        /// Packets of the peer's were marked, and it has not said that it knows.
        const ECHOES = 1;
        /// The window came down, and the peer has not heard of that.
        const TELLS = 2;
        /// The window came down, and what had been sent by then is not acknowledged with anything behind it.
        const REACTED = 4;
        /// For a mark, and not for a loss: it is a reduction of the controller's.
        const REDUCES = 8;
        /// A mark came although the window was one segment: the next new one waits for the timer.
        const WAITS = 16;
    }
}

/// What a connection has to do with marks. (Packed: all connections have it.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, packed)]
pub(super) struct Ecn {
    doing: Doing,
    /// SND.NXT when the window came down.
    until: SeqNumber,
}

impl Ecn {
    /// Whether nothing has been marked lately, nor has the window come down: then there is nothing to be said or done about it.
    #[inline(always)]
    pub(super) fn is_quiet(self) -> bool {
        self.doing.is_empty()
    }

    /// What all segments say that acknowledge something.
    #[inline(always)]
    pub(super) fn flags(self) -> Flags {
        if self.doing.contains(Doing::ECHOES) { Flags::ECE } else { Flags::empty() }
    }

    /// Whether a controller's reduction for a mark is under way.
    #[inline(always)]
    pub(super) fn reduces(self) -> bool {
        self.doing.contains(Doing::REDUCES)
    }

    /// Whether new segments wait for the timer.
    #[inline(always)]
    pub(super) fn waits(self) -> bool {
        self.doing.contains(Doing::WAITS)
    }

    /// What it consists of, for a snapshot.
    pub(super) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let mut bits = self.doing.bits();
        fields.byte(&mut bits)?;
        self.doing = Doing::from_bits(bits).ok_or(SnapshotError::Value)?;
        let mut until = self.until;
        fields.number(&mut until)?;
        self.until = until;
        Ok(())
    }
}

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// New bytes came in the window. RFC 3168 s6.1.3: of those that a router marked, the peer is told until it answers. One that answers may be marked as well.
    pub(super) fn take_mark(&mut self, flags: Flags, marked: bool) {
        if self.echoes_exactly() {
            self.ecn.doing.set(Doing::ECHOES, marked);
            return;
        }
        if flags.contains(Flags::CWR) && !self.config.is(Mutant::EchoesForever) {
            self.ecn.doing -= Doing::ECHOES;
        }
        if marked && self.agreement.echoes && !self.config.is(Mutant::MarksUntold) {
            mark!(self, MarkEchoed);
            self.ecn.doing |= Doing::ECHOES;
        }
    }

    /// Whether what acknowledges bytes tells of them, and of nothing else, whether they were marked (RFC 8257 s3.2). A DCTCP is on both ends, if on one.
    fn echoes_exactly(&self) -> bool {
        self.config.congestion == Algorithm::Dctcp && self.agreement.echoes && !self.config.is(Mutant::EchoesUntilAnswered)
    }

    /// Whether what has come is to be acknowledged before a segment is looked at that is `marked`, or is not, with `len` bytes (RFC 8257 s3.2): what acknowledges
    /// that one tells otherwise. Then it is [`Connection::wants_transmit`] that it asks for.
    #[inline]
    pub(crate) fn acknowledges_before(&mut self, marked: bool, len: usize) -> bool {
        let differs = marked != self.ecn.doing.contains(Doing::ECHOES) && len > 0;
        if !differs || self.window.wup == self.window.nxt || !self.echoes_exactly() || self.config.is(Mutant::EchoesTogether) {
            return false;
        }
        self.ack_now();
        true
    }

    /// Something was sent that said so.
    pub(super) fn echoed(&mut self) {
        if self.config.is(Mutant::EchoesOnce) {
            self.ecn.doing -= Doing::ECHOES;
        }
    }

    /// Whether new bytes say that the window came down (RFC 3168 s6.1.2: "the first new data packet sent after the window reduction").
    #[inline(always)]
    pub(super) fn reduction_flags(&self) -> Flags {
        if self.ecn.doing.contains(Doing::TELLS) { Flags::CWR } else { Flags::empty() }
    }

    /// New bytes went, which said so.
    #[inline(always)]
    pub(super) fn told_of_reduction(&mut self) {
        self.ecn.doing -= Doing::TELLS;
    }

    /// An acknowledgment came, with ECE if `flags` say so: what was reacted to may be over, and what has been marked is reacted to, once for all that was in flight.
    pub(super) fn on_echo(&mut self, now: Instant, flags: Flags, before: &mut Before) {
        // (Beyond what was in flight: only then has the peer heard that the window came down.)
        if self.ecn.doing.contains(Doing::REACTED) && self.snd_una.gt(self.ecn.until) {
            self.end_reaction(now);
        }
        if !flags.contains(Flags::ECE) || !self.agreement.ecn || self.config.is(Mutant::MarkChangesNothing) {
            return;
        }
        before.note_mark();
        let again = self.config.is(Mutant::EachEchoReduces);
        let has_reacted = self.ecn.doing.contains(Doing::REACTED) && !again;
        if self.phase != Phase::Open || has_reacted || !before.was_open_with_something_in_flight() {
            return;
        }
        mark!(self, MarkHeeded);
        // RFC 3168 s6.1.2: with a window of one segment, "the sending TCP MUST reset the retransmit timer on receiving the ECN-Echo packet when the congestion window is
        // one [and] will then be able to send a new packet only when the retransmit timer expires".
        if self.cwnd <= self.mss {
            self.ecn.doing |= Doing::WAITS;
            self.timers.set(Timer::Pace, self.rtt.timeout_at(now));
        }
        self.tell_mark(now, before);
        self.react();
        self.ecn.doing |= Doing::REDUCES;
    }

    /// The window came down, for whatever reason (RFC 3168 s6.1.2).
    pub(super) fn react(&mut self) {
        if !self.agreement.ecn {
            return;
        }
        self.ecn.doing -= Doing::REDUCES;
        self.ecn.doing |= Doing::REACTED;
        if !self.config.is(Mutant::ReductionUntold) {
            self.ecn.doing |= Doing::TELLS;
        }
        self.ecn.until = self.snd_nxt;
    }

    /// Whether a loss finds the window reduced already, for a mark among what was in flight with it. RFC 3168 s6.1.2: it "should be reduced only once in response to a series of dropped
    /// and/or CE packets from a single window of data". (But RFC 8257 s3.5: DCTCP, whose reductions for marks may be small, MUST react to losses.)
    pub(super) fn has_reduced_for_mark(&self) -> bool {
        self.ecn.reduces() && self.congestion.algorithm() != Algorithm::Dctcp
    }

    /// Nothing of what was in flight then is any more.
    pub(super) fn end_reaction(&mut self, now: Instant) {
        if self.ecn.reduces() && self.phase == Phase::Open {
            self.tell_reduced(now);
        }
        self.ecn.doing -= Doing::REACTED | Doing::REDUCES;
    }

    /// The timer let the next segment go.
    pub(super) fn stop_waiting(&mut self) {
        self.ecn.doing -= Doing::WAITS;
    }
}
