//! What the connection's congestion controller is told, and what it says.

use core::time::Duration;

use super::{Connection, Phase};
use crate::device::{RxBuffer, TxBuffer};
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::tcp::congestion::{
    self, Ack, Beginning, Cause, Congestion, CongestionControl as _, Idle, Lost, Recovered, Reduction, Selected, Sending, Timeout,
};
use crate::tcp::records::Arrived;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// Pacing makes up for no more time than this: a timer may be so late.
const PACING_SLACK: Duration = Duration::from_millis(2);

/// How the connection stood before an acknowledgment was looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    una: SeqNumber,
    flight: usize,
    phase: Phase,
    delivered: u64,
    was_writable: bool,
    /// A reduction for a mark was under way.
    reduces: bool,
    /// It tells of a mark.
    marked: bool,
}

impl Before {
    pub(super) fn una(&self) -> SeqNumber {
        self.una
    }

    pub(super) fn was_writable(&self) -> bool {
        self.was_writable
    }

    /// Whether something was in flight, and nothing of it known to be lost.
    pub(super) fn was_open_with_something_in_flight(&self) -> bool {
        self.phase == Phase::Open && self.flight > 0
    }

    /// It tells of a mark.
    pub(super) fn note_mark(&mut self) {
        self.marked = true;
    }
}

impl Phase {
    /// As controllers call it.
    const fn told(self) -> congestion::Phase {
        match self {
            Self::Open => congestion::Phase::Open,
            Self::Recovery => congestion::Phase::Recovery,
            Self::Loss => congestion::Phase::Loss,
        }
    }
}

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// The handshake is over, after so many timeouts: the controller that the configuration says begins.
    pub(super) fn begin_congestion_control(&mut self, now: Instant, timeouts: u32) {
        self.congestion = self.config.congestion.begin(&self.beginning(now)).of(self.config.mutation());
        if self.config.is(Mutant::InitialWindowTwice) {
            let acked = 10 * self.mss as u64;
            self.congestion.on_ack(&Ack { now, acked, delivered: acked, flight_most: u64::MAX / 4, ..Ack::default() });
        }
        if timeouts > 1 && !self.config.is(Mutant::SynLossUnnoticed) {
            // RFC 5681 s3.1: after a lost SYN the initial window is one segment. As Linux, not yet after the first timeout, which may
            // have been spurious (RFC 6298 s5.7 has the timer start at one second).
            self.congestion.on_timeout(&Timeout { now, ..Timeout::default() });
        }
        self.note_window();
    }

    /// What a controller of this connection begins with. Without SACK nothing tells what has left the network while its window comes down
    /// (RFC 9937 s6.2 wants the number of bytes).
    pub(super) fn beginning(&self, now: Instant) -> Beginning {
        let srtt = self.rtt.srtt();
        Beginning {
            now,
            mss: self.mss as u64,
            sack: self.agreement.sack,
            srtt: (!srtt.is_zero()).then_some(srtt),
            seed: u64::from(self.ts_offset) << 32 | u64::from(self.snd_nxt.0),
            reduction: if self.agreement.sack { Reduction::Proportional } else { Reduction::AtOnce },
        }
    }

    /// The program may have chosen another controller: it goes on where the one before it was.
    pub(super) fn change_congestion_control(&mut self, now: Instant) {
        if !self.state.is_synchronized() || self.congestion.algorithm() == self.config.congestion {
            return;
        }
        let mut next = self.config.congestion.begin(&self.beginning(now)).of(self.config.mutation());
        next.succeed(&self.congestion);
        self.congestion = next;
        self.note_window();
    }

    /// The controller as it goes on if something is sent; `None`: it is not at rest.
    pub(super) fn congestion_awake(&self) -> Option<Selected> {
        self.congestion.woken(|| self.beginning(self.last_tx), self.config.mutation())
    }

    /// Something is sent after a rest.
    #[cold]
    #[inline(never)]
    fn wake_congestion_control(&mut self) {
        if let Some(awake) = self.congestion_awake() {
            self.congestion = awake;
        }
    }

    /// Nothing is in flight, and has not been for a while.
    pub(super) fn rest_congestion_control(&mut self) {
        if self.snd_una != self.snd_nxt || self.phase != Phase::Open {
            return;
        }
        self.end_reaction(self.last_rx);
        self.congestion.rest(self.config.mutation());
        if matches!(self.congestion, Selected::Resting(_)) {
            self.records.rest();
        } else {
            self.records.release_idle();
        }
    }

    /// The window is looked at far more often than it changes.
    #[inline(always)]
    pub(super) fn note_window(&mut self) {
        self.cwnd = self.congestion.cwnd() as usize;
    }

    /// The segments' size became known, or changed.
    pub(super) fn tell_mss(&mut self) {
        self.congestion.set_mss(self.mss as u64);
        self.note_window();
    }

    /// `bytes` are sent, with `in_flight` in the network before them.
    #[inline(always)]
    pub(super) fn tell_sending(&mut self, now: Instant, bytes: usize, in_flight: usize) {
        if self.phase != Phase::Open || self.ecn.reduces() || !self.congestion.takes_sending(now, in_flight) {
            self.tell_sending_at_length(now, bytes, in_flight);
        }
    }

    #[inline(never)]
    fn tell_sending_at_length(&mut self, now: Instant, bytes: usize, in_flight: usize) {
        if matches!(self.congestion, Selected::Resting(_)) {
            self.wake_congestion_control();
        }
        let app_limited = self.records.is_app_limited();
        self.congestion.on_sending(&Sending { now, bytes: bytes as u64, in_flight: in_flight as u64, app_limited });
        self.note_window();
        if let Some(rate) = self.congestion.pacing_rate() {
            let taken = Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / rate.max(1));
            let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(PACING_SLACK.as_nanos() as u64));
            self.records.pace(self.records.pace_at().max(earliest) + taken);
        }
    }

    /// Whether the controller's pace has what is to be sent wait, and until when.
    #[inline(always)]
    pub(super) fn paced_until(&self, now: Instant) -> Option<Instant> {
        if self.congestion.is_paced() { Some(self.records.pace_at()).filter(|&at| at > now) } else { None }
    }

    /// The window has no room for what there is to send.
    #[inline(always)]
    pub(super) fn note_limited(&mut self) {
        self.records.note_limited(self.in_flight());
    }

    /// How it stands before an acknowledgment.
    #[inline(always)]
    pub(super) fn before_ack(&self) -> Before {
        Before {
            una: self.snd_una,
            flight: self.in_flight(),
            phase: self.phase,
            delivered: self.records.delivered(),
            was_writable: self.is_writable(),
            reduces: self.ecn.reduces(),
            marked: false,
        }
    }

    /// Whether `flight` bytes are too little of the window for it to grow.
    #[inline(always)]
    pub(super) fn leaves_window_unused(&self, flight: usize) -> bool {
        2 * flight <= self.cwnd && self.cwnd >= 2 * self.mss && !self.config.is(Mutant::UnusedWindowGrows)
    }

    /// An acknowledgment that moved SND.UNA outside of any recovery, and before it nothing was reported.
    #[inline(always)]
    pub(super) fn tell_predicted_ack(&mut self, now: Instant, before: Before, arrived: Arrived) {
        let flight = before.flight.max(self.records.used() as usize);
        if self.leaves_window_unused(flight) && self.congestion.takes_unused(now) {
            self.records.sample(arrived, &self.rtt);
            return;
        }
        // (A copy, so that the short way has neither in memory.)
        self.tell_ack(now, &{ before }, arrived);
    }

    /// An acknowledgment was worked in, which may have begun or ended a recovery.
    #[inline(never)]
    pub(super) fn tell_ack(&mut self, now: Instant, before: &Before, arrived: Arrived) {
        let acked = self.snd_una.since(before.una) as u64;
        let delivered = self.records.delivered().saturating_sub(before.delivered);
        let mut lost = if self.phase == Phase::Open { 0 } else { self.note_losses(now) };
        if self.phase == Phase::Recovery {
            lost += self.note_lost_again(now, delivered);
        }
        if acked == 0 && delivered == 0 {
            return;
        }
        let rtt = arrived.latest(now);
        let rate = self.records.sample(arrived, &self.rtt);
        let phase = match if before.phase == Phase::Open { self.phase } else { before.phase } {
            Phase::Open if before.reduces || self.ecn.reduces() => congestion::Phase::Reduced,
            phase => phase.told(),
        };
        let in_flight = self.pipe() as u64;
        self.congestion.on_ack(&Ack {
            now,
            acked,
            delivered,
            sacked: delivered.saturating_sub(acked),
            lost,
            flight_most: self.records.used().max(before.flight as u64),
            in_flight,
            una: self.records.una_at(),
            nxt: self.records.una_at() + self.in_flight() as u64,
            delivered_total: self.records.delivered(),
            rtt,
            srtt: self.rtt.srtt(),
            rate,
            cwnd_limited: self.records.is_limited(),
            // RFC 8257 s3.3: without AccECN, all of it.
            ce_bytes: if before.marked { acked } else { 0 },
            phase,
        });
        if self.congestion.is_paced() && self.congestion.holds_back() {
            self.records.mark_app_limited(in_flight);
        }
        self.note_window();
    }

    /// Fast recovery begins, with `flight` bytes that are not acknowledged in order.
    pub(super) fn tell_loss(&mut self, now: Instant, flight: usize, delivered: u64) {
        if !self.has_reduced_for_mark() {
            let sacked = self.scoreboard.bytes() as u64;
            self.congestion.on_congestion(&Congestion { now, cause: Cause::Loss, flight: flight as u64, sacked, delivered });
        }
        self.react();
        self.records.look_from(self.snd_una);
        self.note_window();
    }

    /// A probe repaired the loss of what was sent last (RFC 8985 s7.4.2): the window comes down for it, and that is all.
    pub(super) fn tell_repaired_loss(&mut self, now: Instant, before: &Before) {
        self.tell_loss(now, self.records.probe_flight(), self.delivered_since(before));
        let flight = self.in_flight() as u64;
        self.congestion.on_recovered(&Recovered { now, flight, phase: congestion::Phase::Recovery });
        self.note_window();
    }

    /// The peer tells of a mark among what was in flight.
    pub(super) fn tell_mark(&mut self, now: Instant, before: &Before) {
        let (sacked, delivered) = (self.scoreboard.bytes() as u64, self.delivered_since(before));
        self.congestion.on_congestion(&Congestion { now, cause: Cause::Ecn, flight: before.flight as u64, sacked, delivered });
        self.note_window();
    }

    /// All that was in flight when it told so is acknowledged.
    pub(super) fn tell_reduced(&mut self, now: Instant) {
        let flight = self.in_flight() as u64;
        self.congestion.on_recovered(&Recovered { now, flight, phase: congestion::Phase::Reduced });
        self.note_window();
    }

    /// What was delivered since `before`.
    pub(super) fn delivered_since(&self, before: &Before) -> u64 {
        self.records.delivered().saturating_sub(before.delivered)
    }

    /// The retransmission timer ran out; `first`: the oldest byte had not timed out before.
    pub(super) fn tell_timeout(&mut self, now: Instant, first: bool) {
        let flight = self.in_flight() as u64;
        self.congestion.on_timeout(&Timeout { now, flight, in_flight: 0, first });
        self.react();
        self.note_window();
    }

    /// A recovery is over.
    pub(super) fn tell_recovered(&mut self, now: Instant) {
        let flight = self.in_flight() as u64;
        self.congestion.on_recovered(&Recovered { now, flight, phase: self.phase.told() });
        self.note_window();
    }

    /// Something is to be sent after more than a retransmission timeout.
    pub(super) fn tell_idle(&mut self, now: Instant, silence: Duration) {
        self.wake_congestion_control();
        self.congestion.on_idle(&Idle { now, silence });
        self.note_window();
    }

    /// Counts what is newly known to be lost, in bytes.
    pub(super) fn note_losses(&mut self, now: Instant) -> u64 {
        if self.phase == Phase::Open {
            return 0;
        }
        let (edge, in_flight, mut all) = (self.loss_edge(), self.pipe() as u64, 0);
        while let Some(record) = self.records.lose(edge, self.mss) {
            let bytes = record.end.since(record.start) as u64;
            let offset = self.records.una_at() + record.start.since(self.snd_una) as u64;
            let (lost_total, delivered_total) = (self.records.lost(), self.records.delivered());
            self.congestion.on_lost(&Lost { now, offset, bytes, sent: record.sent, lost_total, delivered_total, in_flight });
            all += bytes;
        }
        all
    }

    /// Counts what is newly known to be lost although it was sent again, in bytes. `delivered`: what came with the news.
    ///
    /// RFC 5681 s4.3: the loss of a retransmission is one more indication of congestion, for which "cwnd (and ssthresh) MUST be lowered twice"; those that are
    /// lost within a round trip are one.
    fn note_lost_again(&mut self, now: Instant, delivered: u64) -> u64 {
        let mut all = 0;
        while let Some((record, is_new)) = self.records.lose_again(now, &self.rtt) {
            mark!(self, LostAgain);
            if is_new && !self.config.is(Mutant::LostAgainKeepsWindow) {
                // (From what it comes down to already.)
                let wanted = self.congestion.ssthresh().unwrap_or(u64::MAX);
                let (flight, sacked) = (wanted.min(self.cwnd as u64).min(self.in_flight() as u64), 0);
                self.congestion.on_congestion(&Congestion { now, cause: Cause::Loss, flight, sacked, delivered });
                self.react();
                self.note_window();
            }
            let bytes = record.end.since(record.start) as u64;
            let offset = self.records.una_at() + record.start.since(self.snd_una) as u64;
            let (lost_total, delivered_total, in_flight) = (self.records.lost(), self.records.delivered(), self.pipe() as u64);
            self.congestion.on_lost(&Lost { now, offset, bytes, sent: record.sent, lost_total, delivered_total, in_flight });
            all += bytes;
            self.tx_pending = true;
        }
        all
    }
}
