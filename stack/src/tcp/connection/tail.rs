//! Tail loss probes (RFC 8985 s7): behind the end of what was sent nothing comes that would tell of its loss. So, long before the retransmission timeout, the next segment
//! goes, or the last one once more, and what it is answered with tells.
//!
//! There is no timer of their own: the retransmission timer is set to run out sooner, and whether that is a probe's time or a timeout's is decided then, as on Linux.
//! The first time that it runs out on an undisturbed stream is always a probe's. So of one segment alone, where a probe would have to wait for the peer's delayed
//! acknowledgment as well (s7.2), it is the timeout's time that the probe has. And it is set to the end of the reordering window (s6.2 step 5).

use core::time::Duration;

use arrayvec::ArrayVec;

use super::congestion::Before;
use super::{Connection, Phase};
use crate::device::{RxBuffer, SendError, TxBuffer};
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::tcp::Segment;
use crate::tcp::timers::Timer;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, SeqNumber};

/// A timer's tick, and another one: Linux's TCP_TIMEOUT_MIN.
const LATENESS: Duration = Duration::from_millis(2);

/// What became of the probe of what is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TailProbe {
    /// There was none, or it was answered.
    #[default]
    None,
    /// It is to be sent.
    Due,
    /// It was a segment that had never been sent: with any answer it is over.
    New,
    /// It was sent before (TLP.is_retrans).
    Again,
}

impl TailProbe {
    /// As a number, for a snapshot.
    pub(super) const ALL: [Self; 4] = [Self::None, Self::Due, Self::New, Self::Again];

    #[inline(always)]
    pub(super) fn is_none(self) -> bool {
        self == Self::None
    }
}

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// Sets the retransmission timer for what is in flight.
    #[inline(always)]
    pub(super) fn set_timeout(&mut self, at: Instant) {
        self.timers.set(Timer::Retransmit, at);
        self.records.note_timeout(at);
    }

    /// Sets it if it is not set.
    #[inline(always)]
    pub(super) fn start_timeout(&mut self, at: Instant) {
        if !self.timers.is_set(Timer::Retransmit) {
            self.set_timeout(at);
        }
    }

    /// New bytes were sent or acknowledged: if more is in flight than one segment, which the peer need not acknowledge at once (s7.2), a probe's time begins, unless the
    /// timeout is sooner.
    #[inline(always)]
    pub(super) fn time_probe(&mut self, now: Instant) {
        // (A FIN has a number, and no segment of its own.)
        let is_fin_out = self.fin_queued && self.snd_nxt.gt(self.send.end());
        if self.in_flight() > self.mss + usize::from(is_fin_out) && self.may_probe() {
            let wait = self.rtt.srtt_ns().saturating_mul(2).saturating_add(LATENESS.as_nanos() as u64);
            let wait = if self.config.is(Mutant::ProbeTooEarly) { wait / 4 } else { wait };
            let at = Instant::from_nanos(now.as_nanos().saturating_add(wait));
            self.timers.set(Timer::Retransmit, at.min(self.records.timeout_at()));
        }
    }

    /// Whether a probe would tell something, and none is on its way. (s7.2: a probe needs SACK; and while reports or a recovery tell of losses, there is none.)
    #[inline(always)]
    fn may_probe(&self) -> bool {
        self.phase == Phase::Open
            && self.state.is_synchronized()
            && self.agreement.sack
            && self.tail_probe.is_none()
            && self.scoreboard.is_empty()
            && self.rtt.srtt_ns() > 0
            && !self.config.is(Mutant::NoTailProbe)
    }

    /// Whether a probe is due or went, of what is in flight.
    pub(super) fn is_probed(&self) -> bool {
        let is_in_flight = || self.records.probe_end().is_some_and(|end| end.gt(self.snd_una));
        match self.tail_probe {
            TailProbe::None => false,
            TailProbe::Due => true,
            TailProbe::New | TailProbe::Again => is_in_flight(),
        }
    }

    /// The retransmission timer ran out. Whether that was for a probe, or is not the timeout yet.
    pub(super) fn on_probe_timeout(&mut self, now: Instant) -> bool {
        if !self.state.is_synchronized() || self.in_flight() == 0 {
            return false;
        }
        // (The user's timeout counts from when these bytes' timeout began.)
        let due = self.records.timeout_at().max(now).as_nanos();
        let began = Instant::from_nanos(due.saturating_sub(self.rtt.rto_ns())).min(now);
        let is_in_time = self.config.user_timeout.is_none_or(|limit| now.since(began) < limit);
        if self.may_probe() && is_in_time {
            mark!(self, TailLossProbe);
            self.stalled_since = began;
            self.tail_probe = TailProbe::Due;
            self.tx_pending = true;
            // s7.3: "rearm RTO".
            self.set_timeout(self.next_timeout(now));
            return true;
        }
        let timeout_at = self.records.timeout_at();
        if timeout_at > now {
            // What has arrived since took the probe's reason.
            self.timers.set(Timer::Retransmit, timeout_at);
        }
        timeout_at > now
    }

    /// Something was reported, and no loss is known. What was sent before it is lost when the reordering window is over (s6.2 step 5), which the retransmission timer tells.
    pub(super) fn time_reordering(&mut self, now: Instant) {
        if self.config.is(Mutant::NoReorderingTimer) {
            return;
        }
        let ends = self.records.reordering_ends(&self.rtt);
        let ends = if self.config.is(Mutant::ReorderingTimerAtOnce) { ends.map(|_| now) } else { ends };
        if let Some(at) = ends {
            self.timers.set(Timer::Retransmit, at.max(now).min(self.records.timeout_at()));
        }
    }

    /// The retransmission timer ran out. Whether it was set for the end of the reordering window, and is not the timeout yet.
    pub(super) fn on_reordering_timeout(&mut self, now: Instant) -> bool {
        if self.phase != Phase::Open
            || !self.state.is_synchronized()
            || self.scoreboard.is_empty()
            || self.config.is(Mutant::NoReorderingTimer)
        {
            return false;
        }
        let (ends, timeout_at) = (self.records.reordering_ends(&self.rtt), self.records.timeout_at());
        let ends = if self.config.is(Mutant::ReorderingTimerAtOnce) { ends.map(|_| now) } else { ends };
        let Some(ends) = ends.filter(|_| timeout_at > now) else { return false };
        if ends > now {
            self.timers.set(Timer::Retransmit, ends.min(timeout_at));
            return true;
        }
        mark!(self, ReorderingTimeout);
        self.records.end_reordering();
        self.timers.set(Timer::Retransmit, timeout_at);
        let before = self.before_ack();
        self.enter_recovery(now, &before);
        true
    }

    /// Sends the last segment again (s7.3), since there is no new one that could go.
    pub(super) fn emit_tail_probe(
        &mut self,
        now: Instant,
        emit: &mut impl FnMut(&Segment<'_, T>) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        let data_end = self.send.end().min(self.snd_nxt);
        let first = self.records.last_start().unwrap_or(self.snd_una).max(self.snd_una);
        let first = if self.config.is(Mutant::ProbeSendsHead) { self.snd_una } else { first };
        let full = self.segment_max();
        let all = data_end.since(first.min(data_end));
        // (The last one's beginning, where a device cut it from more.)
        let start = if all > 0 { first + (all - 1) / full * full } else { data_end };
        let start = if self.config.is(Mutant::ProbeSendsHead) { self.snd_una } else { self.last_gathered(start, data_end) };
        let len = data_end.since(start).min(full);
        let fin = self.snd_nxt.gt(data_end);
        let flags = if fin && start + len == data_end { Flags::ACK | Flags::FIN } else { Flags::ACK };
        let pipe = self.pipe();
        let sent = self.emit_rarely(now, start, len, flags, emit)?;
        self.tell_sending(now, sent, pipe);
        let resent = (start, start + sent + usize::from(fin && sent == len && start + len == data_end));
        self.records.resend(now, resent, pipe, self.mss);
        self.counters.retransmissions += 1;
        self.counters.retransmitted_bytes += sent as u64;
        self.note_probe(now, TailProbe::Again);
        Ok(())
    }

    /// Where the last segment begins that a device can gather of `[start, end)`, which are no more bytes than one has.
    fn last_gathered(&self, mut start: SeqNumber, end: SeqNumber) -> SeqNumber {
        while start.lt(end) {
            let gathered = self.send.gather(start, end.since(start), usize::from(self.config.gather_max), &mut ArrayVec::new());
            if gathered == 0 || start + gathered == end {
                break;
            }
            start += gathered;
        }
        start
    }

    /// The probe went, with which everything up to SND.NXT is in flight (TLP.end_seq). (The timeout counts from now, however long a device had refused it.)
    pub(super) fn note_probe(&mut self, now: Instant, probe: TailProbe) {
        self.tail_probe = if self.config.is(Mutant::ProbesWithoutEnd) { TailProbe::None } else { probe };
        self.records.note_probe(self.snd_nxt, self.in_flight());
        self.set_timeout(self.next_timeout(now));
    }

    /// What an acknowledgment with `len` bytes says of the probe (s7.4.2). `told`: SACK has told something new with it.
    pub(super) fn judge_probe(&mut self, now: Instant, header: &Header, (len, told): (usize, bool), before: &Before) {
        if self.tail_probe == TailProbe::Due {
            return;
        }
        let Some(end) = self.records.probe_end().filter(|_| self.phase == Phase::Open) else {
            // A pause came before the answer, or what begins now reduces the window anyway.
            self.tail_probe = TailProbe::None;
            return;
        };
        if header.ack.lt(end) {
            return;
        }
        // (Of a FIN, which has a number, not every peer says that it came twice.)
        let came_twice = header.options.sack.as_slice().first().is_some_and(|block| block.end.le(header.ack) && block.end.ge(end - 1));
        let is_bare = header.ack == before.una() && len == 0 && !told && !header.flags.intersects(Flags::SYN | Flags::FIN);
        if self.tail_probe == TailProbe::New || came_twice {
            self.tail_probe = TailProbe::None;
        } else if header.ack.gt(end) {
            // What was sent last was lost, and the probe was it.
            self.tail_probe = TailProbe::None;
            if !self.config.is(Mutant::ProbeHidesLoss) {
                mark!(self, TailLossRepaired);
                self.tell_repaired_loss(now, before);
            }
        } else if is_bare {
            self.tail_probe = TailProbe::None;
        }
    }
}
