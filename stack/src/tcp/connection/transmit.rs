//! What may be sent now, and with which header.

use core::time::Duration;

use arrayvec::ArrayVec;

use super::tail::TailProbe;
use super::{Connection, Phase};
use crate::device::{GATHER_LIMIT, RxBuffer, SendError, TxBuffer, TxSlice};
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::tcp::congestion::CongestionControl as _;
use crate::tcp::timers::Timer;
use crate::tcp::{Segment, State};
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, Options, SeqNumber};

/// How long a cork holds a partial segment (tcp(7), TCP_CORK).
const CORK_MAX: Duration = Duration::from_millis(200);

/// Why no further new segment goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// There is nothing.
    Drained,
    /// The peer's window.
    Window,
    /// The congestion window, Nagle's algorithm: an acknowledgment will come.
    Acknowledgment,
    /// A cork.
    Cork,
}

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// Calls `emit` for each segment that may be sent now. What `emit` took counts as sent; at [`SendError::Full`] this stops, and
    /// [`Connection::wants_transmit`] stays true. (Other errors lose the segment, as a network might.) Whether anything
    /// was sent.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant, emit: &mut impl FnMut(&Segment<'_, T>) -> Result<(), SendError>) -> bool {
        let Some((predicted, slice)) = self.predict(now) else { return self.poll_at_length(now, emit) };
        let sent = emit(&predicted.segment(&[slice]));
        self.on_predicted_sent(now, &predicted, &sent);
        !self.tx_pending
    }

    /// As [`Connection::poll_transmit`], whatever there is to send.
    #[inline(never)]
    pub(crate) fn poll_at_length(&mut self, now: Instant, emit: &mut impl FnMut(&Segment<'_, T>) -> Result<(), SendError>) -> bool {
        if !self.tx_pending {
            return false;
        }
        if self.peer_exited {
            // Nobody is there to be told of a window, or of bytes that arrived.
            (self.tx_pending, self.reset_due) = (false, false);
            return false;
        }
        let before = self.counters.tx_packets;
        self.tx_pending = self.transmit(now, emit).is_err();
        self.counters.tx_packets != before
    }

    /// Whoever sends for it keeps it to a rate, and may just have refused bytes. What is none waits for nobody, least of all an acknowledgment, for which the peer has
    /// a timer; and what went has its own timer, however long the rest waits.
    pub(crate) fn held_by_rate(&mut self, now: Instant, emit: &mut impl FnMut(&Segment<'_, T>) -> Result<(), SendError>) {
        if !self.tx_pending || !self.state.is_synchronized() {
            return;
        }
        if self.acks.now && !self.config.is(Mutant::RateHoldsAcknowledgments) {
            // (What the device does not take either is sent as soon as it takes something.)
            let _ = self.emit_rarely(now, self.snd_nxt, 0, Flags::ACK, emit);
        }
        if !self.config.is(Mutant::RateHoldsTimers) {
            self.arm(now, Stop::Acknowledgment);
        }
    }

    /// Whether something of the connection's waits for the peer or for the device to make room, and goes on as soon as they do: bytes that Nagle's
    /// algorithm or a window holds, a segment that the device refused, a handshake. (A cork waits for the program, or its time.)
    #[inline]
    pub fn is_held(&self) -> bool {
        if self.state == State::Established { self.held || self.tx_pending } else { self.is_held_otherwise() }
    }

    /// [`Connection::is_held`], of one that is not established: apart, so that the others are asked by one comparison.
    #[cold]
    #[inline(never)]
    fn is_held_otherwise(&self) -> bool {
        match self.state {
            State::Closed | State::Listen | State::TimeWait => false,
            State::SynSent | State::SynReceived => true,
            _ => self.held || self.tx_pending,
        }
    }

    /// Whether somebody waits for what the peer's next pure acknowledgment says, so that whoever sleeps is to be woken for it. These are all:
    ///
    /// - a handshake: the program's connect or accept goes on when it is over;
    /// - bytes that a window, the congestion window or Nagle's algorithm holds, or that the device refused: they are sent then. (A cork waits for the
    ///   program or its time, and a keepalive for its own time: no acknowledgment ends them.)
    /// - the recovery from a loss, and the suspicion of one: what is lost is sent again;
    /// - a writer: one who found no room, or no buffers, and one who would find less than a third of the room free (a poll for output);
    /// - the end of our stream, as long as the program has the socket: a close with SO_LINGER, or a poll for the hang-up ([`Connection::awaits_end`]).
    ///
    /// Bytes that are in flight are not reason enough: nothing but a timer that is stopped comes of their acknowledgment, and the timer's end is time
    /// enough for that, since frames are looked at before timers. Whoever asks how much is in flight (SIOCOUTQ, TCP_INFO) polls first.
    #[inline(always)]
    pub fn awaits_acknowledgment(&self) -> bool {
        match self.state == State::Established {
            true => self.holds_something() || self.keeps_writers_waiting(),
            false => self.awaits_acknowledgment_otherwise(),
        }
    }

    /// [`Connection::awaits_acknowledgment`], of one that is not established.
    #[cold]
    #[inline(never)]
    fn awaits_acknowledgment_otherwise(&self) -> bool {
        match self.state {
            State::Closed | State::Listen | State::TimeWait => false,
            State::SynSent | State::SynReceived => true,
            _ => self.holds_something() || self.keeps_writers_waiting(),
        }
    }

    /// See [`Connection::awaits_acknowledgment`].
    #[inline(always)]
    fn keeps_writers_waiting(&self) -> bool {
        (self.write_blocked || !self.is_writable()) && !self.config.is(Mutant::ForgetsWriters)
    }

    /// See [`Connection::awaits_acknowledgment`].
    #[inline(always)]
    fn holds_something(&self) -> bool {
        self.held || self.tx_pending || self.phase != Phase::Open || self.dupacks > 0
    }

    /// Whether our stream's end is not acknowledged.
    #[inline]
    pub fn awaits_end(&self) -> bool {
        matches!(self.state, State::FinWait1 | State::Closing | State::LastAck)
    }

    #[inline]
    fn transmit(&mut self, now: Instant, emit: &mut impl FnMut(&Segment<'_, T>) -> Result<(), SendError>) -> Result<(), SendError> {
        if self.reset_due || self.syn_due || self.probe_due || self.phase != Phase::Open || self.tail_probe == TailProbe::Due {
            self.transmit_special(now, emit)?;
        }
        if !self.state.is_synchronized() {
            return self.transmit_early(now, emit);
        }
        let stop = self.transmit_new(now, emit)?;
        if self.acks.now {
            let told = self.emit_rarely(now, self.snd_nxt, 0, Flags::ACK, emit);
            if told.is_err() && self.config.is(Mutant::RefusedAckForgotten) {
                self.acks.now = false;
                return Ok(());
            }
            told?;
        }
        self.note_stop(now, stop);
        Ok(())
    }

    /// No more goes out for now.
    #[inline(always)]
    pub(super) fn note_stop(&mut self, now: Instant, stop: Stop) {
        self.push &= self.config.is(Mutant::PushNeverCleared);
        self.held = matches!(stop, Stop::Window | Stop::Acknowledgment);
        self.arm(now, stop);
    }

    /// All that an undisturbed stream doesn't need.
    #[cold]
    fn transmit_special(&mut self, now: Instant, emit: &mut impl FnMut(&Segment<'_, T>) -> Result<(), SendError>) -> Result<(), SendError> {
        if self.reset_due {
            self.emit_reset(now, emit)?;
        }
        if self.syn_due {
            self.emit_syn(now, emit)?;
        }
        if self.probe_due {
            // Below the window, so that the peer must answer (RFC 9293 s3.8.4; as Linux, for shut windows too).
            let below = if self.config.is(Mutant::ProbeAsksNothing) { 0 } else { 1 };
            self.emit_rarely(now, self.snd_una - below, 0, Flags::ACK, emit)?;
            self.probe_due = false;
        }
        while self.phase != Phase::Open && self.retransmit_hole(now, emit)? {}
        if self.tail_probe == TailProbe::Due {
            if self.phase != Phase::Open || self.in_flight() == 0 || !self.state.is_synchronized() {
                // (What was aborted has nothing to send but its reset.)
                self.tail_probe = TailProbe::None;
            } else if !self.has_room_for_new() {
                self.emit_tail_probe(now, emit)?;
            }
        }
        Ok(())
    }

    fn emit_reset(&mut self, now: Instant, emit: &mut impl FnMut(&Segment<'_, T>) -> Result<(), SendError>) -> Result<(), SendError> {
        let (seq, flags) = match self.state {
            // RFC 9293 s3.10.7.1 and s3.10.7.3: at what the stranger acknowledged.
            State::SynSent | State::SynReceived => (self.high_rxt, Flags::RST),
            _ if self.config.is(Mutant::ResetBehindWhatWasSent) => (self.snd_nxt + 1, Flags::RST | Flags::ACK),
            _ if self.config.is(Mutant::ResetAtSndUna) => (self.snd_una, Flags::RST | Flags::ACK),
            _ => (self.snd_nxt, Flags::RST | Flags::ACK),
        };
        self.emit_rarely(now, seq, 0, flags, emit)?;
        self.reset_due = false;
        Ok(())
    }

    fn emit_syn(&mut self, now: Instant, emit: &mut impl FnMut(&Segment<'_, T>) -> Result<(), SendError>) -> Result<(), SendError> {
        let seq = self.snd_una;
        let answers = self.state == State::SynReceived;
        if self.snd_nxt != seq && !answers && !self.config.is(Mutant::SynAsksAgain) {
            // RFC 3168 s6.1.1.1: a router or a host on the way may drop what asks for ECN.
            self.agreement.give_up_ecn();
        }
        let flags = if answers { Flags::SYN | Flags::ACK } else { Flags::SYN } | self.agreement.syn_flags(answers);
        if (self.snd_nxt == seq || !answers && self.config.is(Mutant::SynAgainWithCookie)) && self.fast_open.is_some() {
            self.emit_fast_syn(now, flags, emit)?;
            self.rtt.sent_syn(now);
            self.syn_due = false;
            self.timers.start(Timer::Retransmit, now + self.rtt.rto());
            return Ok(());
        }
        self.emit_rarely(now, seq, 0, flags, emit)?;
        if self.snd_nxt == seq {
            self.snd_nxt = seq + 1;
            self.rtt.sent_syn(now);
        } else {
            mark!(self, SynRetransmitted);
            if !self.config.is(Mutant::SynRttOfRetransmission) {
                self.rtt.sent_syn_again();
            }
            self.counters.retransmissions += 1;
        }
        self.syn_due = false;
        self.timers.start(Timer::Retransmit, now + self.rtt.rto());
        Ok(())
    }

    /// Sends the next lost segment again. Whether there may be another.
    fn retransmit_hole(
        &mut self,
        now: Instant,
        emit: &mut impl FnMut(&Segment<'_, T>) -> Result<(), SendError>,
    ) -> Result<bool, SendError> {
        let from = self.high_rxt.max(self.snd_una);
        let blind = self.config.is(Mutant::RetransmitsReported) && from.lt(self.loss_edge());
        let due = self.records.due();
        let hole = match due {
            Some(due) => Some(due),
            None if blind => Some((from, self.loss_edge())),
            None => self.scoreboard.next_hole(from, self.loss_edge()),
        };
        let Some((start, end)) = hole else { return Ok(false) };
        let data_end = self.send.end();
        let len = end.min(data_end).since(start).min(self.segment_max());
        let freely = self.config.is(Mutant::RetransmitsBeyondCwnd);
        if !self.retransmit_now && !freely && self.exceeds_cwnd(self.cwnd, start, len) {
            return Ok(false);
        }
        let fin = end.gt(data_end) && start + len == data_end;
        if (len == 0 && !fin) || (fin && self.config.is(Mutant::FinNotRetransmitted)) {
            return Ok(false);
        }
        if fin {
            mark!(self, FinRetransmitted);
        }
        let bare = self.config.is(Mutant::FinLostWithBytesSentAgain) && len > 0;
        let flags = if fin && !bare { Flags::ACK | Flags::FIN } else { Flags::ACK };
        if !self.retransmit_now && self.must_pace(now) {
            return Ok(false);
        }
        let pipe = self.pipe();
        let sent = self.emit_rarely(now, start, len, flags, emit)?;
        self.tell_sending(now, sent, pipe);
        self.retransmit_now = false;
        let resent = (start, start + sent + usize::from(fin && sent == len));
        self.records.resend(now, resent, pipe, self.mss);
        // (What is sent once more lies before it.)
        self.high_rxt = resent.1.max(from);
        self.counters.retransmissions += u64::from(!self.config.is(Mutant::RetransmissionsUncounted));
        self.counters.retransmitted_bytes += sent as u64;
        // (After a partial acknowledgment that has been decided: RFC 6582 s3.2 step 3. But what is lost again is known to be, and its next transmission has a time of its
        // own.)
        if start == self.snd_una && (due.is_some() || !(self.phase == Phase::Recovery && self.partially_acked)) {
            self.set_timeout(self.next_timeout(now));
        }
        Ok(true)
    }

    /// Sends what was never sent.
    #[inline]
    pub(super) fn transmit_new(
        &mut self,
        now: Instant,
        emit: &mut impl FnMut(&Segment<'_, T>) -> Result<(), SendError>,
    ) -> Result<Stop, SendError> {
        loop {
            let unsent = self.send.end().since(self.snd_nxt);
            let fin_due = self.fin_queued && self.snd_nxt.le(self.send.end());
            if unsent == 0 && !fin_due {
                return Ok(Stop::Drained);
            }
            let full = self.segment_max();
            let mut usable = (self.snd_una + self.snd_wnd as usize).since(self.snd_nxt);
            if self.config.is(Mutant::IgnorePeerWindow) {
                usable = usize::MAX;
            }
            let mut len = unsent.min(full).min(usable);
            // A FIN has a number, which needs room in the peer's window as a byte does (RFC 9293 s3.4). Beyond it, all that is acknowledged later would come from
            // outside of the window as well, and be refused while anything is missing there.
            let takes_room = !self.config.is(Mutant::FinTakesNoRoom);
            if usable == 0 && (unsent > 0 || takes_room) {
                mark!(self, WindowLimited);
                return Ok(Stop::Window);
            }
            let probes = self.tail_probe == TailProbe::Due;
            if !probes && let Some(stop) = self.holds_back(now, len, unsent, full, fin_due) {
                return Ok(stop);
            }
            self.restart_after_idle(now);
            // (Of what a device cuts, each piece would say that the window came down, and what is marked of the first ones would not be told of after the last.)
            if self.config.tso_max as usize >= 2 * full && len == full && !probes && self.reduction_flags().is_empty() {
                let usable = if self.config.is(Mutant::CutSegmentIgnoresWindow) { usize::MAX } else { usable };
                len = self.full_segments(full, unsent.min(usable)) * full;
            }
            if self.dupacks > 0 && self.phase == Phase::Open {
                mark!(self, LimitedTransmit);
            }
            let ends = fin_due && len == unsent && (len < usable || !takes_room);
            let mut flags = if ends { Flags::ACK | Flags::FIN } else { Flags::ACK };
            if len > 0 {
                flags |= self.reduction_flags();
            }
            let (seq, pipe) = (self.snd_nxt, self.pipe());
            let emitted = self.emit(now, seq, len, flags, emit);
            if emitted.is_err() && self.config.is(Mutant::RefusedCountsAsSent) {
                self.snd_nxt = seq + len.min(full);
            }
            let sent = emitted?;
            if sent < len {
                mark!(self, GatherLimited);
            }
            if sent > 0 {
                self.told_of_reduction();
            }
            self.snd_nxt = seq + sent + usize::from(ends && sent == len);
            if self.config.is(Mutant::DataAfterFin) && ends && self.send.len() > 0 {
                self.emit(now, self.snd_nxt, 1, Flags::ACK, emit)?;
            }
            if sent < full && sent == len {
                self.snd_small = self.snd_nxt;
            }
            self.tell_sending(now, sent, pipe);
            self.records.push(now, (seq, self.snd_nxt), pipe, self.mss);
            if probes {
                self.note_probe(now, TailProbe::New);
            }
            self.acks.on_answer(now, self.config.delayed_ack_ns);
        }
    }

    /// Whether there is something that was never sent, for which the peer's window has room, and which the program does not hold back.
    fn has_room_for_new(&self) -> bool {
        let unsent = self.send.end().since(self.snd_nxt.min(self.send.end()));
        let fin_due = self.fin_queued && self.snd_nxt.le(self.send.end());
        let is_corked = (self.config.cork || self.more) && unsent < self.segment_max() && !fin_due;
        (unsent > 0 || fin_due) && !is_corked && (self.snd_una + self.snd_wnd as usize).gt(self.snd_nxt)
    }

    /// Why a new segment of `len` bytes must not go out, if so (RFC 9293 s3.8.6.2.1 and s3.7.4, RFC 5681 s3.1).
    #[inline]
    fn holds_back(&mut self, now: Instant, len: usize, unsent: usize, full: usize, fin_due: bool) -> Option<Stop> {
        let cwnd = self.cwnd * if self.config.is(Mutant::CwndTwice) { 2 } else { 1 };
        if self.exceeds_cwnd(cwnd, self.snd_nxt, len) && !self.config.is(Mutant::IgnoreCwnd) {
            mark!(self, CongestionLimited);
            self.note_limited();
            return Some(Stop::Acknowledgment);
        }
        if self.must_pace(now) || (self.ecn.waits() && len > 0) {
            return Some(Stop::Acknowledgment);
        }
        if self.config.cork && !self.push && len > 0 && self.config.is(Mutant::CorkHoldsFullSegments) {
            return Some(Stop::Cork);
        }
        if len >= full || self.push {
            return None;
        }
        if len < unsent && self.config.is(Mutant::SillyWindowFilled) {
            return None;
        }
        if len < unsent {
            // The window cuts the segment short: half of the largest window is worth sending, less is silly.
            let worthwhile = self.in_flight() == 0
                && 2 * len >= if self.config.is(Mutant::SillyHalfOfCurrentWindow) { self.snd_wnd } else { self.snd_wnd_max } as usize;
            return (!worthwhile).then_some(Stop::Window);
        }
        let nodelay = self.config.nodelay && !self.config.is(Mutant::NodelayIgnored);
        let fin_due = fin_due && !self.config.is(Mutant::NagleHoldsFin);
        if fin_due || (nodelay && !self.config.cork && !self.more) {
            return None;
        }
        if self.config.cork || self.more {
            return Some(Stop::Cork);
        }
        // Nagle's algorithm, in Minshall's variant: one partial segment at a time.
        let unsigned = self.config.is(Mutant::NagleComparesUnsigned);
        let small = if unsigned { self.snd_small.0 > self.snd_una.0 } else { self.snd_small.gt(self.snd_una) };
        let held = small && !self.config.is(Mutant::NagleIgnored);
        if held {
            mark!(self, NagleHeld);
        }
        held.then_some(Stop::Acknowledgment)
    }

    /// Whether the controller's pace has the next segment wait; then a timer runs.
    #[inline(always)]
    fn must_pace(&mut self, now: Instant) -> bool {
        let Some(until) = self.paced_until(now) else { return false };
        self.timers.set(Timer::Pace, until);
        true
    }

    /// Whether a segment with up to `len` bytes from `seq` on is more than the congestion window has room for, beside what is on its way (RFC 5681 s3.1). What
    /// counts is what would go: where the bytes lie in more buffers than the device gathers, that is less than a full segment, of which a window of one
    /// takes several. (If it took but the first, less than half of the window would be used, and it would never grow.)
    #[inline]
    fn exceeds_cwnd(&self, cwnd: usize, seq: SeqNumber, len: usize) -> bool {
        let pipe = self.pipe();
        if pipe == 0 || pipe + len <= cwnd {
            return false;
        }
        let Some(room) = cwnd.checked_sub(pipe).filter(|&room| room > 0) else { return true };
        self.config.is(Mutant::CwndCountsWhatIsNotGathered) || self.gathers_more_than(seq, room)
    }

    /// Whether the device gathers more than `room` bytes from `seq` on.
    #[inline(never)]
    fn gathers_more_than(&self, seq: SeqNumber, room: usize) -> bool {
        self.send.gather(seq, room + 1, usize::from(self.config.gather_max), &mut ArrayVec::new()) > room
    }

    /// How many full segments can go as one that the device cuts, of `available` bytes: each of them might have gone by itself. Where there is a pace they would not have gone
    /// at once, so there it is a burst that the controller thinks is short (draft-ietf-ccwg-bbr s5.6.3).
    fn full_segments(&self, full: usize, available: usize) -> usize {
        let pipe = if self.config.is(Mutant::CutSegmentIgnoresPipe) { 0 } else { self.pipe() };
        let room = self.cwnd.saturating_sub(pipe);
        let burst = self.congestion.send_quantum().map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        (available.min(room).min(burst).min(self.config.tso_max as usize) / full).max(1)
    }

    #[inline]
    fn restart_after_idle(&mut self, now: Instant) {
        if self.config.is(Mutant::NoRestartAfterIdle) {
            return;
        }
        // RFC 5681 s4.1: "has not sent data in an interval exceeding the RTO". What was acknowledged meanwhile is no data.
        let idle_since = if self.config.is(Mutant::IdleMeasuredByReceipt) { self.last_rx } else { self.last_data_tx };
        if self.snd_una == self.snd_nxt && now.as_nanos().saturating_sub(idle_since.as_nanos()) > self.rtt.rto_ns() {
            mark!(self, RestartAfterIdle);
            self.tell_idle(now, now.since(idle_since));
        }
    }

    /// Payload bytes of a full segment right now.
    #[inline]
    pub(super) fn segment_max(&self) -> usize {
        let mut max = self.mss;
        if let Some(reassembly) = &self.reassembly
            && self.agreement.sack
        {
            let more = if self.config.is(Mutant::SackLengthForgotten) { 0 } else { 4 + 8 * reassembly.sack().as_slice().len() };
            max -= more.min(max - 1);
        }
        // A peer with a small window gets it in halves, so that one is acknowledged while the other travels (Linux's
        // tcp_bound_to_half_wnd).
        let widest = self.snd_wnd_max as usize;
        let half = if widest > 536 { widest / 2 } else { widest };
        let whole = self.config.is(Mutant::SmallWindowInOnePiece);
        if half > 0 && half < max && !whole { half.max(28).min(max) } else { max }
    }

    /// [`Connection::emit`] as one copy of the code, for all but new segments.
    #[inline(never)]
    pub(super) fn emit_rarely(
        &mut self,
        now: Instant,
        seq: SeqNumber,
        len: usize,
        flags: Flags,
        emit: &mut impl FnMut(&Segment<'_, T>) -> Result<(), SendError>,
    ) -> Result<usize, SendError> {
        self.emit(now, seq, len, flags, emit)
    }

    /// Whether a pure acknowledgment at `seq` says nothing that somebody would have to be woken for unless he waits for it: it is no probe (which lies
    /// below the window), no challenge (both ask for an answer), tells of no gap, and is no duplicate, of which three make a sender send again.
    fn is_unsolicited(&self, seq: SeqNumber, edge: SeqNumber) -> bool {
        let is_new = self.window.nxt != self.window.wup || edge != self.window.adv;
        is_new && seq == self.snd_nxt && !self.acks.asks && (self.reassembly.is_none() || self.config.is(Mutant::QuietAboutGaps))
    }

    /// Emits one segment with up to `len` bytes from `seq` on, and gives how many it had: less if they lie in more buffers than the
    /// device gathers. A FIN goes only with the last of them.
    #[inline(always)]
    fn emit(
        &mut self,
        now: Instant,
        seq: SeqNumber,
        len: usize,
        mut flags: Flags,
        emit: &mut impl FnMut(&Segment<'_, T>) -> Result<(), SendError>,
    ) -> Result<usize, SendError> {
        let mut slices = ArrayVec::<TxSlice<'_, T>, GATHER_LIMIT>::new();
        let mut sent = 0;
        let mut cut = None;
        if len > 0 {
            let wrong = self.config.is(Mutant::RetransmitWrongBytes) && seq != self.snd_nxt && len > 1;
            let (mut from, len) = if wrong { (seq + 1, len - 1) } else { (seq, len) };
            if self.config.is(Mutant::DataAfterFin) && from.gt(self.send.end()) {
                from = self.send.end() - 1;
            }
            sent = self.send.gather(from, len, usize::from(self.config.gather_max), &mut slices);
            debug_assert!(sent > 0, "bytes to send are in the buffer");
            if self.config.tso_max > 0 && len > self.segment_max() {
                let full = self.segment_max();
                // What the device gathers is seldom a whole number of segments; the rest goes with the next. (At the end of a record there is none.)
                if sent < len && sent > full && !self.config.is(Mutant::CutUnevenly) && !self.send.ends_record_at(seq + sent) {
                    sent = sent / full * full;
                    shorten(&mut slices, sent);
                }
                cut = (sent > full).then_some(full as u16);
            }
            if self.pushes(seq + sent, cut.is_some() || sent < len && self.send.ends_record_at(seq + sent)) {
                flags |= Flags::PSH;
            }
            if sent < len && !self.config.is(Mutant::FinBeforeItsBytes) {
                flags -= Flags::FIN;
            }
        }
        let (header, edge) = self.header(now, seq, flags);
        let unsolicited = sent == 0 && header.flags == Flags::ACK && self.is_unsolicited(seq, edge);
        let capable = self.is_capable(seq, sent, flags);
        let emitted = emit(&Segment { header, payload: &slices, payload_len: sent, cut, unsolicited, capable });
        drop(slices);
        match emitted {
            Err(SendError::Full) => return Err(SendError::Full),
            Ok(()) | Err(SendError::NoPeer | SendError::TooLong | SendError::Unsupported(_)) => {}
        }
        self.counters.tx_packets += cut.map_or(1, |mss| sent.div_ceil(usize::from(mss)) as u64);
        self.counters.tx_bytes += sent as u64;
        self.last_tx = self.last_tx.max(now);
        if sent > 0 {
            self.last_data_tx = now;
        }
        if flags.contains(Flags::ACK) {
            if seq.lt(self.snd_una) && !self.config.is(Mutant::ProbeCountsAsAck) {
                // A probe: the peer drops it for its number, acknowledgment and all. What it is owed, it is owed still.
                self.note_sent_window(edge);
                self.window.adv = edge;
            } else {
                self.acknowledged_peer(edge);
            }
        }
        Ok(sent)
    }

    /// Whether a segment up to `end` says PSH: where nothing follows that is there by now, unless the program said that more will (RFC 9293 s3.9.1.2: a MUST where no
    /// more is buffered and nobody could say so). And, as Linux, where a device cuts it, so that the peer's card does not wait for more to put together; and where a
    /// record ends.
    #[inline(always)]
    fn pushes(&self, end: SeqNumber, is_cut_or_record: bool) -> bool {
        let is_last = end == self.send.end() && !self.more;
        (is_last || is_cut_or_record) && !self.config.is(Mutant::NoPush)
    }

    /// Whether a segment of so many bytes from `seq` on may be marked instead of dropped: new bytes, and nothing else (RFC 3168 s6.1.4 to s6.1.6).
    #[inline(always)]
    fn is_capable(&self, seq: SeqNumber, sent: usize, flags: Flags) -> bool {
        let is_new = sent > 0 && (seq == self.snd_nxt || self.config.is(Mutant::RetransmissionCapable));
        let is_bare = sent == 0 && !flags.contains(Flags::SYN) && self.config.is(Mutant::BareAckCapable);
        (is_new || is_bare) && (self.agreement.ecn || self.config.is(Mutant::CapableUnasked))
    }

    /// A segment went out that acknowledges everything received.
    #[inline(always)]
    pub(super) fn acknowledged_peer(&mut self, edge: SeqNumber) {
        self.note_sent_window(edge);
        self.window.adv = edge;
        self.window.wup = self.window.nxt;
        (self.acks.now, self.acks.asks) = (false, false);
        self.acks.pushed = false;
        self.echoed();
        if !self.config.is(Mutant::DelayedAckNotStopped) {
            self.timers.stop(Timer::DelayedAck);
        }
        if let Some(reassembly) = &mut self.reassembly {
            if !self.config.is(Mutant::DuplicateSackRepeated) {
                reassembly.duplicate_reported();
            }
            if reassembly.is_empty() {
                self.reassembly = None;
            }
        }
    }

    /// Marks what the acknowledgment says beside its number.
    #[inline]
    fn note_sent_window(&mut self, edge: SeqNumber) {
        if edge == self.window.nxt {
            mark!(self, ZeroWindowSent);
            if self.recv.charged() > self.recv.len() {
                mark!(self, WindowShutByLoans);
            }
        }
        if let Some(reassembly) = &self.reassembly
            && self.agreement.sack
        {
            if reassembly.has_gap() {
                mark!(self, SackSent);
            }
            if reassembly.has_duplicate() {
                mark!(self, DuplicateSack);
            }
        }
    }

    /// The header of a segment, and the right edge of our window that it announces.
    #[inline(always)]
    pub(super) fn header(&self, now: Instant, seq: SeqNumber, flags: Flags) -> (Header, SeqNumber) {
        let stamps = (self.timestamp(now), self.ts_recent);
        let (mut options, (mut window, edge)) = if flags.contains(Flags::SYN) {
            let offer = match flags.contains(Flags::ACK) {
                true if self.config.is(Mutant::SynAckEchoesNothing) => (stamps.0, 0),
                true => stamps,
                false => (stamps.0, 0),
            };
            (self.agreement.syn_options(&self.config, offer), self.window.select_syn(self.charged()))
        } else {
            let bare = self.config.is(Mutant::PureAckWithoutTimestamp) && flags == Flags::ACK && seq != self.snd_nxt;
            let mut options = Options { timestamps: (self.agreement.timestamps && !bare).then_some(stamps), ..Options::default() };
            if let Some(reassembly) = &self.reassembly
                && self.agreement.sack
            {
                options.sack = reassembly.sack();
                if self.config.is(Mutant::OneSackBlock) {
                    options.sack.truncate(1);
                }
                if self.config.is(Mutant::OldestSackFirst) {
                    let blocks: ArrayVec<_, 4> = options.sack.as_slice().iter().rev().copied().collect();
                    options.sack.truncate(0);
                    for block in blocks {
                        options.sack.push(block);
                    }
                }
            }
            (options, self.window.select(self.charged(), self.acks.peer_mss))
        };
        let mut ack = if flags.contains(Flags::ACK) { self.window.nxt } else { SeqNumber(0) };
        if self.config.is(Mutant::ShrinkWindow) && self.recv.len() > 0 {
            window /= 2;
        }
        if self.config.is(Mutant::WrongSack) && !options.sack.is_empty() {
            let mut wrong = options.sack.as_slice().to_vec();
            options.sack.truncate(0);
            for block in &mut wrong {
                block.end += 1;
                options.sack.push(*block);
            }
        }
        if self.config.is(Mutant::AckBeyondReceived) && self.reassembly.as_ref().is_some_and(|r| r.has_gap()) {
            ack += 1;
        }
        let echo = if flags.intersects(Flags::SYN | Flags::RST) { Flags::empty() } else { self.ecn.flags() };
        let flags = flags | echo;
        let header =
            Header { src_port: self.local_port, dst_port: self.remote_port, seq, ack, flags, window, options, ..Header::default() };
        (header, edge)
    }

    /// Sets the timers that what was sent, or couldn't be, needs.
    #[inline]
    fn arm(&mut self, now: Instant, stop: Stop) {
        if self.snd_una != self.snd_nxt {
            if self.config.is(Mutant::RtoTooEarly) {
                self.start_timeout(now + self.rtt.rto() / 8);
            } else if self.config.is(Mutant::RtoTooLate) {
                self.start_timeout(now + self.rtt.rto() * 16);
            } else if self.config.is(Mutant::TimerRestartedBySending) {
                self.set_timeout(self.rtt.timeout_at(now));
            } else if !self.config.is(Mutant::LostTimer) {
                self.start_timeout(self.rtt.timeout_at(now));
            }
            if self.last_data_tx == now {
                self.time_probe(now);
            }
        } else if stop == Stop::Window && !self.config.is(Mutant::NoPersist) {
            self.timers.start(Timer::Persist, now + self.persist_interval());
        }
        if stop == Stop::Cork && !self.config.is(Mutant::CorkForever) {
            if self.config.is(Mutant::CorkTimerRestarted) {
                self.timers.stop(Timer::Cork);
            }
            self.timers.start(Timer::Cork, now + CORK_MAX);
        }
    }
}

/// Cuts slices off at the end, so that `len` bytes are left.
fn shorten<T>(slices: &mut ArrayVec<TxSlice<'_, T>, GATHER_LIMIT>, mut len: usize) {
    slices.retain(|slice| {
        slice.len = slice.len.min(len);
        len -= slice.len;
        slice.len > 0
    });
}
