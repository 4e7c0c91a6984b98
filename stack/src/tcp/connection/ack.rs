//! What an acknowledgment does: the send window, round-trip times, losses, congestion.

use core::time::Duration;

use super::congestion::Before;
use super::tail::TailProbe;
use super::{Connection, Phase};
use crate::device::{RxBuffer, TxBuffer};
use crate::flow::Readiness;
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::tcp::records::{Arrived, Timed};
use crate::tcp::timers::Timer;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, SeqNumber};

/// Duplicate acknowledgments that mean a loss (RFC 5681 s3.2).
const DUPACK_THRESHOLD: u16 = 3;
/// How long an idle connection keeps buffers that it might use again.
pub(super) const RELEASE_AFTER: Duration = Duration::from_secs(1);

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// Processes the acknowledgment of a segment with `len` payload bytes (RFC 9293 s3.10.7.4, fifth check). `false`: the
    /// segment is to be dropped.
    pub(super) fn on_ack(&mut self, now: Instant, header: &Header, len: usize) -> bool {
        let ack = header.ack;
        // RFC 5961 s5.2: nobody who is in the connection acknowledges what is older than the largest window.
        let unsent = ack.gt(self.snd_nxt);
        if unsent && self.config.is(Mutant::IgnoreUnsentAck) {
            return true;
        }
        let reach = if self.config.is(Mutant::AckFloorOfCurrentWindow) { self.snd_wnd } else { self.snd_wnd_max } as usize;
        if unsent || (ack.lt(self.snd_una - reach) && !self.config.is(Mutant::AcceptAncientAck)) {
            mark!(self, UnacceptableAck);
            if !self.config.is(Mutant::SilentOnAck) {
                self.challenge(now);
            }
            return self.config.is(Mutant::AckOfUnsentKeepsData);
        }
        let counts = !self.config.is(Mutant::ProbesNeverAnswered) && (header.window > 0 || !self.config.is(Mutant::PersistGivesUp));
        if counts {
            (self.unanswered_probes, self.probe_due) = (0, false);
        }
        self.last_rx = now;
        let (mut before, mut arrived) = (self.before_ack(), Arrived::default());
        let sacked = self.take_sack(now, header, &mut arrived);
        let same_window = !self.update_window(header, len);
        if ack.gt(self.snd_una) {
            if self.tail_probe == TailProbe::Due {
                // The device has refused it until now, and its time begins anew.
                self.tail_probe = TailProbe::None;
            }
            self.acknowledge_rarely(now, header, &mut arrived);
        } else if ack == self.snd_una && (self.in_flight() > 0 || self.config.is(Mutant::DuplicatesWithNothingInFlight)) {
            let pure =
                (len == 0 || self.config.is(Mutant::DataSegmentsCountAsDuplicates)) && !header.flags.intersects(Flags::SYN | Flags::FIN);
            if sacked || (pure && (same_window || self.config.is(Mutant::WindowUpdatesCountAsDuplicates)) && !self.agreement.sack) {
                self.on_duplicate_ack(now, &before);
            }
        }
        if sacked && self.phase == Phase::Open && (self.note_overtaken() || self.scoreboard.loss_edge(self.mss).is_some()) {
            self.enter_recovery(now, &before);
        } else if sacked && self.phase == Phase::Recovery {
            self.note_overtaken();
        }
        if self.phase == Phase::Open && !self.scoreboard.is_empty() {
            self.time_reordering(now);
        }
        if !self.tail_probe.is_none() {
            self.judge_probe(now, header, (len, sacked), &before);
        }
        if header.flags.contains(Flags::ECE) || !self.ecn.is_quiet() {
            self.on_echo(now, header.flags, &mut before);
        }
        self.tell_ack(now, &before, arrived);
        if self.snd_una.gt(before.una()) {
            self.note_room(before.was_writable());
        }
        true
    }

    /// Takes the peer's window from the segment of `len` payload bytes, unless an older one is newer (RFC 9293 s3.10.7.4). Whether it changed.
    fn update_window(&mut self, header: &Header, len: usize) -> bool {
        let (seq, ack) = (self.window_number(header, len), header.ack);
        // A retransmission that acknowledges more comes with an old number and a new window: with the old one kept, the right edge
        // would move by what was acknowledged (Linux's tcp_may_update_window).
        let newer = ack.gt(self.snd_una) || self.snd_wl1.lt(seq) || (self.snd_wl1 == seq && self.snd_wl2.le(ack));
        let newer = newer || self.config.is(Mutant::WindowOfOldSegments);
        let stays = self.config.is(Mutant::WindowNeedsNewAck) && ack == self.snd_una;
        if !newer || ack.lt(self.snd_una) || stays {
            return false;
        }
        self.snd_wl1 = seq;
        self.snd_wl2 = ack;
        self.set_send_window(self.window_of(header))
    }

    /// The number that a segment of `len` payload bytes has in the comparison of SND.WL1. What repeats old bytes before new ones counts from the new ones:
    /// RFC 9293 s3.10.7.4 compares "the idealized segment that begins at RCV.NXT". And of several that the device merged, the window is the last one's,
    /// which is no longer than the others. (A retransmission that is merged with what follows it is both.)
    fn window_number(&self, header: &Header, len: usize) -> SeqNumber {
        let (end, nxt) = (header.seq + len, self.window.nxt);
        let first = match self.acks.segments {
            0 | 1 => header.seq,
            segments => end - len / usize::from(segments),
        };
        if first.lt(nxt) && end.gt(nxt) { nxt } else { first }
    }

    /// A segment's window in bytes. A SYN's is never scaled (RFC 7323 s2.2), nor is that of the SYN-ACK that ends a simultaneous open.
    pub(super) fn window_of(&self, header: &Header) -> u32 {
        let scale =
            if header.flags.contains(Flags::SYN) && !self.config.is(Mutant::SynWindowScaled) { 0 } else { self.agreement.send_scale };
        u32::from(header.window) << scale
    }

    #[inline(always)]
    pub(super) fn set_send_window(&mut self, window: u32) -> bool {
        window != self.snd_wnd && self.change_send_window(window)
    }

    #[inline(never)]
    fn change_send_window(&mut self, window: u32) -> bool {
        if window == 0 {
            mark!(self, ZeroWindowReceived);
        }
        if window > self.snd_wnd {
            if !self.config.is(Mutant::PersistOutlivesWindow) {
                self.timers.stop(Timer::Persist);
            }
            if !self.config.is(Mutant::PersistBackoffKept) {
                self.persist_backoff = 0;
            }
            self.tx_pending = !self.config.is(Mutant::OpenedWindowUnused) || self.tx_pending;
            // On shared memory, what the peer's program has read is what gives buffers back: a writer that found none is told when all that came
            // with this has been looked at.
            if self.starved > 0 && self.write_blocked {
                self.timers.set(Timer::Release, self.last_rx);
            }
        }
        self.snd_wnd = window;
        self.snd_wnd_max = self.snd_wnd_max.max(window);
        true
    }

    fn take_sack(&mut self, now: Instant, header: &Header, arrived: &mut Arrived) -> bool {
        if header.options.sack.as_slice().is_empty() || !self.agreement.sack {
            return false;
        }
        let una = self.snd_una.max(header.ack);
        let mut news = false;
        let blocks = header.options.sack.as_slice();
        let blocks = if self.config.is(Mutant::FirstSackBlockOnly) { &blocks[..1] } else { blocks };
        for block in blocks {
            if self.scoreboard.add(*block, una, self.snd_nxt) {
                news = true;
                self.records.report(now, (block.start, block.end), self.mss, &self.rtt, arrived);
            }
            news |= self.config.is(Mutant::DuplicateSackIsLoss) && block.end.le(una);
        }
        if news {
            mark!(self, SackReceived);
        }
        if self.counters.retransmissions > 0 && self.says_twice(header) {
            self.records.widen_reordering(una, self.snd_nxt);
        }
        news
    }

    /// [`Connection::acknowledge`] as one copy of the code, for segments that were not predicted.
    #[inline(never)]
    pub(super) fn acknowledge_rarely(&mut self, now: Instant, header: &Header, arrived: &mut Arrived) {
        self.acknowledge(now, header.ack, header.options.timestamps, arrived);
    }

    /// Something new was acknowledged, up to `ack`, which is in `(snd_una, snd_nxt]`, by a segment with these timestamps, and of which SACK has told `arrived`.
    #[inline(always)]
    pub(super) fn acknowledge(&mut self, now: Instant, ack: SeqNumber, timestamps: Option<(u32, u32)>, arrived: &mut Arrived) {
        let acked = self.advance_una(ack);
        self.records.acknowledge(now, ack, acked, &self.rtt, arrived);
        let echo = timestamps.filter(|_| self.agreement.timestamps);
        let clock = self.timestamp(now);
        self.rtt.acknowledged(now, arrived.timed(), || {
            let (_, echoed) = echo?;
            // An age beyond any timeout is an echo of nothing that we sent.
            let age = clock.wrapping_sub(echoed);
            (age < 120_000 || self.config.is(Mutant::EchoOfAnyAge)).then(|| Duration::from_millis(u64::from(age.max(1))))
        });
        self.after_acknowledgment(now, acked);
    }

    /// An acknowledgment, which was predicted, of the segment that is alone in flight, and of a window that is too little used to grow. Whether it was that: then all
    /// is done that [`Connection::acknowledge`] does, and [`Connection::tell_ack`], and little is left of both.
    #[inline(always)]
    pub(super) fn acknowledge_lone(&mut self, now: Instant, ack: SeqNumber) -> bool {
        let Some(lone) = self.records.lone(ack) else { return false };
        if !self.leaves_window_unused(self.in_flight()) || !self.congestion.takes_unused(now) {
            return false;
        }
        let was_writable = self.is_writable();
        let acked = self.advance_una(ack);
        self.rtt.acknowledged(now, Timed::Since(lone.sent_at()), || None);
        self.after_acknowledgment(now, acked);
        self.records.acknowledge_lone(now, &lone, acked, &self.rtt);
        self.note_room(was_writable);
        true
    }

    /// Everything before `ack` is acknowledged. How many bytes that are.
    #[inline(always)]
    fn advance_una(&mut self, ack: SeqNumber) -> usize {
        let acked = ack.since(self.snd_una);
        self.snd_una = ack;
        self.send.acknowledge(ack, self.config.is(Mutant::AckedBuffersKept));
        if !self.config.is(Mutant::RetriesAddUp) {
            self.retries = 0;
        }
        // The path works: what was said of it is not why the connection ends, if it does.
        if !self.config.is(Mutant::SoftErrorSticks) {
            self.soft_error = None;
        }
        acked
    }

    /// What `acked` bytes that are acknowledged lead to, once their round trip is known.
    #[inline(always)]
    fn after_acknowledgment(&mut self, now: Instant, acked: usize) {
        let ack = self.snd_una;
        // RFC 6582 s3.2 step 3: the first partial acknowledgment starts the timer anew, and the next ones don't, where each of them shows a hole that nothing
        // told of. Many such holes then end in slow start, and do not take a round trip each (s4). (With SACK they do as well, if the peer had no room for
        // all that it would have reported.)
        let impatient = self.phase == Phase::Recovery && self.partially_acked && self.high_rxt.le(ack);
        let impatient = impatient && ack.lt(self.recover) && !self.config.is(Mutant::EachPartialAckRestartsTimer);
        if self.phase == Phase::Open {
            if !self.config.is(Mutant::DuplicatesAddUp) {
                self.dupacks = 0;
            }
        } else {
            self.acknowledge_in_recovery(now, acked);
        }
        if !self.scoreboard.is_empty() {
            self.scoreboard.advance(ack);
        }
        if self.snd_una == self.snd_nxt {
            if !self.config.is(Mutant::TimerOutlivesFlight) {
                self.timers.stop(Timer::Retransmit);
            }
            self.timers.set(Timer::Release, now + RELEASE_AFTER);
        } else if self.config.is(Mutant::LostTimer) {
            self.timers.stop(Timer::Retransmit);
        } else if !impatient {
            // RFC 6298 s5.3.
            if self.config.is(Mutant::TimerNotRestarted) {
                self.start_timeout(self.rtt.timeout_at(now));
            } else {
                self.set_timeout(self.rtt.timeout_at(now));
            }
            self.time_probe(now);
        }
    }

    /// What an acknowledgment makes room for, once the congestion window is what it makes of that.
    #[inline(always)]
    pub(super) fn note_room(&mut self, was_writable: bool) {
        let told = self.write_blocked || (!was_writable && !self.config.is(Mutant::EdgeOnlyAfterRefusal));
        if told && self.is_writable() {
            self.write_blocked = false;
            if !self.config.is(Mutant::DropWriteEdge) {
                self.edges |= Readiness::OUT;
            }
        }
        let stalls = self.config.is(Mutant::StallsAfterAck) && self.phase == Phase::Open;
        if (self.send.end().gt(self.snd_nxt) || self.fin_queued || self.phase != Phase::Open) && !stalls {
            self.tx_pending = true;
        }
    }

    fn acknowledge_in_recovery(&mut self, now: Instant, acked: usize) {
        let beyond = self.snd_una.gt(self.recover) || !self.config.is(Mutant::RecoveryEndsBeyond);
        if (self.snd_una.ge(self.recover) && beyond) || (self.config.is(Mutant::PartialAckEndsRecovery) && self.phase == Phase::Recovery) {
            mark!(self, Recovered);
            self.tell_recovered(now);
            self.records.unfollow();
            self.records.note_recovered();
            self.phase = Phase::Open;
            self.retransmit_now = false;
            self.dupacks = 0;
            return;
        }
        if self.phase == Phase::Recovery {
            mark!(self, PartialAck);
            self.partially_acked = true;
            // RFC 6582 s3.2 step 3, partial acknowledgment: the next hole begins here.
            let segments = acked.div_ceil(self.mss) as u16;
            if !self.config.is(Mutant::PartialAckDeflatesNothing) {
                self.dupacks = self.dupacks.saturating_sub(segments.saturating_sub(1));
            }
            self.retransmit_now |= self.high_rxt.le(self.snd_una) && !self.config.is(Mutant::PartialAckWaits);
        }
        self.tx_pending = true;
    }

    /// Notes what was sent long enough before something that has arrived (RFC 8985 s6.2). Whether there is any of it.
    fn note_overtaken(&mut self) -> bool {
        let found = !self.config.is(Mutant::OvertakenNeverFound) && self.records.note_overtaken(&self.rtt) && self.overtaken().is_some();
        if found {
            mark!(self, Overtaken);
        }
        found
    }

    /// Whether the peer says that something came twice (RFC 2883 s4) which was lost by all that was known. (A probe is not sent for that.)
    fn says_twice(&self, header: &Header) -> bool {
        let blocks = header.options.sack.as_slice();
        let Some(first) = blocks.first() else { return false };
        let is_known = first.end.le(header.ack) || blocks.get(1).is_some_and(|next| next.start.le(first.start) && next.end.ge(first.end));
        let is_probe = || !self.tail_probe.is_none() && self.records.probe_end().is_some_and(|end| first.end.ge(end - 1));
        is_known && !is_probe() && !self.config.is(Mutant::ReorderingWindowStays)
    }

    /// Holes before this number are lost by the time at which they were sent.
    fn overtaken(&self) -> Option<SeqNumber> {
        self.records.overtaken().filter(|edge| edge.gt(self.snd_una))
    }

    fn on_duplicate_ack(&mut self, now: Instant, before: &Before) {
        if self.answers_what_was_sent_twice() {
            return;
        }
        self.dupacks = self.dupacks.saturating_add(1);
        // A segment has left the network: another may enter (RFC 3042, RFC 6675).
        self.tx_pending = true;
        let enough = if self.config.is(Mutant::TwoDuplicatesSuffice) { 2 } else { DUPACK_THRESHOLD };
        if self.phase == Phase::Open && self.dupacks >= enough {
            self.enter_recovery(now, before);
        }
    }

    /// Without SACK, duplicates of the acknowledgment that ended a recovery may answer what was sent again although it had arrived: they say nothing of
    /// what was sent since (RFC 6582 s3.2 step 2, "covers more than recover").
    fn answers_what_was_sent_twice(&self) -> bool {
        let ended_here = self.phase == Phase::Open && self.snd_una == self.recover;
        ended_here && !self.agreement.sack && !self.config.is(Mutant::DuplicatesOfRecoverCount)
    }

    pub(super) fn enter_recovery(&mut self, now: Instant, before: &Before) {
        if self.config.is(Mutant::NoFastRetransmit) {
            return;
        }
        mark!(self, FastRetransmit);
        self.phase = Phase::Recovery;
        self.tail_probe = TailProbe::None;
        self.partially_acked = false;
        self.recover = self.snd_nxt;
        self.high_rxt = self.snd_una;
        self.retransmit_now = true;
        let flight = if self.config.is(Mutant::HalvesItsWindow) { self.cwnd } else { self.in_flight() };
        self.tell_loss(now, flight, self.delivered_since(before));
        if self.agreement.sack {
            self.records.follow(now);
        }
        self.tx_pending = true;
    }

    /// The retransmission timer ran out: everything that isn't reported by SACK counts as lost (RFC 5681 s3.1, RFC 6675 s5.1).
    pub(super) fn enter_loss(&mut self, now: Instant) {
        let first = self.retries == 0;
        self.went_elsewhere = self.is_nowhere();
        // The peer acknowledged up to a block that it reported before: it has dropped it (RFC 2018 s8).
        if self.scoreboard.first() == Some(self.snd_una) && !self.config.is(Mutant::TrustSack) {
            mark!(self, SackReneged);
            self.scoreboard.clear();
            self.records.forget_reports();
        }
        if !self.config.is(Mutant::NoCollapse) {
            self.tell_timeout(now, first);
        }
        self.phase = Phase::Loss;
        self.tail_probe = TailProbe::None;
        self.oversized = None;
        self.recover = self.snd_nxt;
        if !self.config.is(Mutant::TimeoutKeepsHighRxt) {
            self.high_rxt = self.snd_una;
        }
        self.records.unfollow();
        self.records.look_from(self.snd_una);
        self.note_losses(now);
        self.retransmit_now = true;
        self.dupacks = 0;
        self.tx_pending = true;
    }

    /// Holes before this number are lost.
    pub(super) fn loss_edge(&self) -> SeqNumber {
        match self.phase {
            Phase::Open => self.snd_una,
            Phase::Loss => self.recover,
            Phase::Recovery => {
                // (What was sent since it began is not known to be lost, however short the segment is that is: RFC 6582 s3.2 step 3.)
                let head = (self.snd_una + self.mss).min(self.recover);
                let head = self.scoreboard.first().map_or(head, |first| head.min(first));
                let head = self.overtaken().map_or(head, |edge| edge.max(head));
                self.scoreboard.loss_edge(self.mss).map_or(head, |edge| edge.max(head))
            }
        }
    }

    /// Bytes that are thought to be in the network (RFC 6675 s4, `SetPipe`).
    #[inline]
    pub(super) fn pipe(&self) -> usize {
        let flight = self.in_flight();
        let unlimited = self.config.is(Mutant::NoLimitedTransmit) && self.phase == Phase::Open;
        if unlimited || self.phase == Phase::Open && self.dupacks == 0 && self.scoreboard.is_empty() {
            return flight;
        }
        self.pipe_of(flight)
    }

    #[inline(never)]
    fn pipe_of(&self, flight: usize) -> usize {
        let arrived = if self.agreement.sack {
            if self.config.is(Mutant::PipeIgnoresSacked) { 0 } else { self.scoreboard.bytes() }
        } else if self.phase == Phase::Loss {
            0
        } else {
            // Without SACK each duplicate acknowledgment stands for a segment that arrived.
            (usize::from(self.dupacks) * self.mss).min(flight.saturating_sub(self.mss))
        };
        let resent = if self.config.is(Mutant::PipeForgetsRetransmissions) { self.snd_una } else { self.high_rxt };
        let lost = self.scoreboard.hole_bytes(resent.max(self.snd_una), self.loss_edge());
        flight.saturating_sub(arrived + lost + self.records.due_bytes())
    }
}
