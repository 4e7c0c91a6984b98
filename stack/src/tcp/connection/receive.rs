//! A segment arrives (RFC 9293 s3.10.7).

use core::time::Duration;

use super::ack::RELEASE_AFTER;
use super::ecn::Ecn;
use super::{Connection, Phase};
use crate::device::{RxBuffer, RxFrame, TxBuffer};
use crate::error::Error;
use crate::flow::Readiness;
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::tcp::payload::RxPayload;
use crate::tcp::reassembly::Reassembly;
use crate::tcp::records::Arrived;
use crate::tcp::timers::Timer;
use crate::tcp::{Carriage, State, control_len};
use crate::time::Instant;
use crate::wire::fixed;
use crate::wire::tcp::{Flags, Header, SeqNumber};

/// Linux's tcp_invalid_ratelimit: answers to segments that don't belong here are no more frequent.
pub(super) const CHALLENGE_INTERVAL: Duration = Duration::from_millis(500);
/// RFC 7323 s5.5: a timestamp that is older than this says nothing.
const TS_RECENT_VALID: Duration = Duration::from_secs(24 * 24 * 3600);

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// Takes in a segment of this connection, whose checksum was right.
    #[inline]
    pub fn on_segment(&mut self, now: Instant, header: &Header, payload: RxPayload<'_, R>) {
        self.on_coalesced(now, header, payload, Carriage::default());
    }

    /// As [`Connection::on_segment`], for one that came in a special way.
    #[inline(never)]
    pub fn on_coalesced(&mut self, now: Instant, header: &Header, payload: RxPayload<'_, R>, carriage: Carriage) {
        let Carriage { segments, marked } = carriage;
        self.acks.segments = if self.config.is(Mutant::MergedCountsOnce) { 1 } else { segments.max(1) };
        self.acks.pushed |= header.flags.contains(Flags::PSH);
        if self.config.is(Mutant::MssOfAnySegment)
            && let Some(mss) = header.options.mss
        {
            self.agreement.peer_mss = mss.max(super::Config::MSS_MIN);
            self.update_mss();
        }
        let len = payload.len();
        self.counters.rx_packets += 1;
        if !marked && self.is_predicted(header, len) {
            self.on_predicted(now, header, len);
            if len > 0 {
                self.recv.push(payload, now);
            }
        } else {
            self.on_any_segment(now, header, (payload, marked), len);
        }
    }

    /// As [`Connection::on_coalesced`], for a segment of fixed shape that is all in the head of `frame`, if it is what was expected: then the connection is
    /// open, and holds nothing out of order. (Not for mutants.) Else nothing was done, and it is one for [`Connection::on_fixed_segment_at_length`].
    #[inline(always)]
    pub(crate) fn on_fixed_segment(&mut self, now: Instant, segment: &fixed::Segment<'_>, frame: &RxFrame<R>) -> bool {
        let (header, payload) = (segment.header(), segment.payload());
        if segment.is_marked() || !self.is_predicted(&header, payload.len()) || !self.recv.only_copies() {
            return false;
        }
        self.acks.segments = frame.meta.coalesced.max(1);
        self.acks.pushed |= header.flags.contains(Flags::PSH);
        self.counters.rx_packets += 1;
        self.on_predicted(now, &header, payload.len());
        if !payload.is_empty() {
            self.recv.append_bytes(payload);
        }
        true
    }

    /// As [`Connection::on_coalesced`], for a segment of fixed shape that is all in the head of `frame`.
    pub(crate) fn on_fixed_segment_at_length(&mut self, now: Instant, segment: &fixed::Segment<'_>, frame: &RxFrame<R>) {
        let payload = RxPayload { head: segment.payload(), frame: Some(frame), body: None };
        self.on_coalesced(now, &segment.header(), payload, Carriage { segments: frame.meta.coalesced, marked: segment.is_marked() });
    }

    /// Whether this is the next segment of an undisturbed stream: nothing of the long way would apply to it but what
    /// [`Connection::on_predicted`] does (Van Jacobson's header prediction).
    #[inline(always)]
    fn is_predicted(&self, header: &Header, len: usize) -> bool {
        let timestamps_good = match header.options.timestamps {
            Some((value, _)) => !self.agreement.timestamps || value.wrapping_sub(self.ts_recent) as i32 >= 0,
            None => !self.agreement.timestamps,
        };
        let advances = header.ack != self.snd_una
            || len > 0
            || (self.snd_una == self.snd_nxt && !self.config.is(Mutant::DuplicatesWithNothingInFlight));
        self.state == State::Established
            && header.flags.union(Flags::PSH).bits() == (Flags::ACK.bits() | Flags::PSH.bits())
            && header.seq == self.window.nxt
            && len <= self.window.offered()
            && header.ack.ge(self.snd_una)
            && header.ack.le(self.snd_nxt)
            // A later segment may have come first, and brought a newer window (RFC 9293 s3.10.7.4).
            && (self.snd_wl1.le(header.seq) || self.config.is(Mutant::WindowOfOldPredicted))
            && advances
            && timestamps_good
            && self.phase == Phase::Open
            && self.ecn.is_quiet()
            && self.reassembly.is_none()
            && self.scoreboard.is_empty()
            && self.tail_probe.is_none()
            && header.options.sack.is_empty()
    }

    /// All but that its `len` bytes are put into the receive queue.
    #[inline(always)]
    fn on_predicted(&mut self, now: Instant, header: &Header, len: usize) {
        if !self.config.is(Mutant::PredictedIsSilence) {
            self.last_rx = now;
        }
        // (A probe that the device has refused so far asks nothing any more.)
        self.probe_due = false;
        if !self.config.is(Mutant::ProbesCountedForever) {
            self.unanswered_probes = 0;
        }
        let bare = len == 0 && self.config.is(Mutant::StampOfBareAckIgnored);
        if !self.config.is(Mutant::PredictedTimestampForgotten) && !bare {
            self.take_timestamp(now, header);
        }
        if header.ack != self.snd_una && !self.acknowledge_lone(now, header.ack) {
            self.acknowledge_predicted(now, header.ack, header.options.timestamps);
        }
        if !self.config.is(Mutant::PredictionForgetsWl1) {
            self.snd_wl1 = header.seq;
            self.snd_wl2 = header.ack;
        }
        if len == 0 || !self.config.is(Mutant::WindowOfDataIgnored) {
            self.set_send_window(u32::from(header.window) << self.agreement.send_scale);
        }
        if len > 0 {
            if self.recv.len() == 0 || !self.config.is(Mutant::DropReadEdge) {
                self.edges |= Readiness::IN;
            }
            self.window.nxt += len;
            self.counters.rx_bytes += len as u64;
            self.schedule_ack(now, len);
        }
    }

    /// What a predicted segment acknowledges, of more than one that was alone.
    #[inline(never)]
    fn acknowledge_predicted(&mut self, now: Instant, ack: SeqNumber, timestamps: Option<(u32, u32)>) {
        let (before, mut arrived) = (self.before_ack(), Arrived::default());
        self.acknowledge(now, ack, timestamps, &mut arrived);
        self.tell_predicted_ack(now, before, arrived);
        self.note_room(before.was_writable());
    }

    fn on_any_segment(&mut self, now: Instant, header: &Header, (payload, marked): (RxPayload<'_, R>, bool), len: usize) {
        match self.state {
            State::Closed | State::Listen => {}
            State::SynSent => self.on_segment_in_syn_sent(now, header, payload),
            State::SynReceived if self.is_fast_syn_again(header, len) => {
                mark!(self, FastSynRepeated);
                self.repeat_syn_ack(header);
            }
            _ => {
                if self.is_acceptable(now, header, len) {
                    if self.config.is(Mutant::TimestampBeforeAck) {
                        self.take_timestamp(now, header);
                    }
                    self.on_acceptable(now, header, (payload, marked), len);
                }
            }
        }
    }

    /// RFC 9293 s3.10.7.3.
    fn on_segment_in_syn_sent(&mut self, now: Instant, header: &Header, payload: RxPayload<'_, R>) {
        let flags = header.flags;
        let acknowledges = flags.contains(Flags::ACK);
        let strange = header.ack.le(self.snd_una) || header.ack.gt(self.snd_nxt);
        let strange = strange && !(self.config.is(Mutant::IssAckTaken) && header.ack == self.snd_una);
        let excused = self.config.is(Mutant::StrangeSynAckAccepted) && flags.contains(Flags::SYN) && !flags.contains(Flags::RST);
        if acknowledges && strange && !excused {
            mark!(self, StrangeAckInSynSent);
            // Something of an older connection: tell it that this one isn't it.
            if !flags.contains(Flags::RST) && !self.config.is(Mutant::StrangeAckUnanswered) {
                self.send_reset_at(header.ack);
            }
            return;
        }
        if flags.contains(Flags::RST) {
            if acknowledges || self.config.is(Mutant::SynSentResetBlindly) {
                mark!(self, ConnectionRefused);
                self.fail(if self.config.is(Mutant::RefusedIsReset) { Error::Reset } else { Error::Refused });
            }
            return;
        }
        if !flags.contains(Flags::SYN) {
            return;
        }
        self.last_rx = now;
        self.take_syn(now, header);
        if !acknowledges {
            // Simultaneous open.
            mark!(self, SimultaneousOpen);
            self.state = State::SynReceived;
            self.syn_due = !self.config.is(Mutant::SimultaneousOpenUnanswered);
            self.tx_pending = true;
            return;
        }
        self.window.adv = self.window.select_syn(0).1;
        let timeouts = self.retries;
        self.conclude_fast_open(header);
        self.acknowledge_rarely(now, header, &mut Arrived::default());
        self.snd_wl2 = header.ack;
        self.establish(now, timeouts);
        self.ack_now();
        if !payload.is_empty() || flags.contains(Flags::FIN) {
            self.take_syn_ack_bytes(now, header, payload);
        }
    }

    /// The first checks: timestamps (RFC 7323 s5.3), sequence numbers, RST and SYN (RFC 9293 s3.10.7.4, RFC 5961).
    fn is_acceptable(&mut self, now: Instant, header: &Header, len: usize) -> bool {
        let flags = header.flags;
        if self.config.is(Mutant::CongestionFlagsRefused) && flags.intersects(Flags::ECE | Flags::CWR) {
            return false;
        }
        let reset = flags.contains(Flags::RST);
        let exempt = reset && !self.config.is(Mutant::PawsDropsResets);
        if !exempt && !self.config.is(Mutant::NoPaws) && self.is_old_duplicate(now, header) {
            mark!(self, PawsDrop);
            self.refuse(now, header, len);
            return false;
        }
        if self.config.is(Mutant::ShutWindowRefusesAcks) && len > 0 && self.window.adv.le(self.window.nxt) {
            self.refuse(now, header, len);
            return false;
        }
        let end = header.seq + len + control_len(flags);
        if end.lt(self.window.wup) || header.seq.gt(self.window.adv.max(self.window.nxt)) {
            mark!(self, OutOfWindow);
            if !reset {
                self.refuse(now, header, len);
            }
            return false;
        }
        if self.config.is(Mutant::StraddlerRefused) && !reset && header.seq.lt(self.window.wup) && end.gt(self.window.nxt) {
            self.refuse(now, header, len);
            return false;
        }
        if reset && self.state == State::TimeWait && !self.config.is(Mutant::TimeWaitAssassinated) {
            // RFC 1337 s3: whoever lost track of the connection before may say so, but old duplicates are still to be waited for.
            mark!(self, TimeWaitReset);
            return false;
        }
        if reset {
            // RFC 5961 s3.2: exactly the next number, or else the peer must prove itself.
            let beside = (self.config.is(Mutant::ResetOneBelowAccepted) && header.seq + 1 == self.window.nxt)
                || (self.config.is(Mutant::ResetAtLastAckAccepted) && header.seq == self.window.wup);
            if header.seq == self.window.nxt || beside || self.config.is(Mutant::InexactResetAccepted) {
                self.on_reset();
            } else {
                mark!(self, InexactReset);
                if !self.config.is(Mutant::SilentOnReset) {
                    self.challenge(now);
                }
            }
            return false;
        }
        if flags.contains(Flags::SYN) {
            let peers_own = header.seq + 1 == self.window.nxt && len == 0;
            if self.state == State::SynReceived && peers_own && !flags.contains(Flags::ACK) {
                self.repeat_syn_ack(header);
                return false;
            }
            // The other half of a simultaneous open goes on below.
            if self.state != State::SynReceived || !peers_own {
                if self.config.is(Mutant::SynResets) {
                    // RFC 793 s3.9, before RFC 5961.
                    self.reset_due = true;
                    self.tx_pending = true;
                    self.fail(Error::Reset);
                    return false;
                }
                if !self.config.is(Mutant::SilentOnSyn) {
                    self.challenge(now);
                }
                return false;
            }
        }
        if flags.contains(Flags::URG) && self.config.urgent_waits {
            self.edges |= Readiness::PRI;
            return false;
        }
        flags.contains(Flags::ACK) || self.config.is(Mutant::AckBitUnchecked)
    }

    /// Our SYN-ACK was lost.
    fn repeat_syn_ack(&mut self, syn: &Header) {
        mark!(self, SynAckRepeated);
        if !syn.flags.contains(Flags::ECE | Flags::CWR) && !self.config.is(Mutant::EcnKeptAfterPlainSyn) {
            self.agreement.give_up_ecn();
        }
        self.syn_due = !self.config.is(Mutant::SynAckNotRepeated);
        self.tx_pending = true;
    }

    /// Protection against wrapped sequence numbers.
    fn is_old_duplicate(&self, now: Instant, header: &Header) -> bool {
        let Some((value, _)) = header.options.timestamps else { return false };
        let old = (value.wrapping_sub(self.ts_recent) as i32) < i32::from(self.config.is(Mutant::PawsStrict));
        let old = if self.config.is(Mutant::PawsComparesUnsigned) { value < self.ts_recent } else { old };
        let valid = if self.config.is(Mutant::PawsForgetsSoon) { TS_RECENT_VALID / 1440 } else { TS_RECENT_VALID };
        let old = old && self.ts_recent_known;
        self.agreement.timestamps && old && (now.since(self.ts_recent_at) < valid || self.config.is(Mutant::PawsKeepsAncientStamps))
    }

    /// RFC 7323 s4.3: the timestamp to echo is that of the segment at the left edge of what wasn't acknowledged yet.
    #[inline]
    fn take_timestamp(&mut self, now: Instant, header: &Header) {
        let Some((value, _)) = header.options.timestamps else { return };
        let counts = header.seq.le(self.window.wup) || self.config.is(Mutant::EchoEveryTimestamp);
        if counts && self.agreement.timestamps {
            (self.ts_recent, self.ts_recent_known) = (value, true);
            self.ts_recent_at = now;
        }
    }

    /// Answers a segment outside of the window. Only one that brings bytes does so without limit: it cannot be part of an endless
    /// exchange of acknowledgments.
    fn refuse(&mut self, now: Instant, header: &Header, len: usize) {
        self.counters.rx_drops += 1;
        if self.config.is(Mutant::OldDataUnanswered) && len > 0 && header.seq.lt(self.window.nxt) {
            return;
        }
        if self.config.is(Mutant::KeepaliveProbeUnanswered) && len == 0 && header.seq + 1 == self.window.nxt {
            return;
        }
        if self.config.is(Mutant::TimeWaitFinUnanswered) && self.state == State::TimeWait {
            return;
        }
        if self.agreement.sack && len > 0 && (header.seq + len).le(self.window.nxt) && !self.config.is(Mutant::NoDuplicateSack) {
            let (start, end) = (header.seq, header.seq + len);
            self.reassembly_mut().note_duplicate(start, end);
        }
        if self.state == State::TimeWait && self.config.is(Mutant::TimeWaitRestartedByAnything) {
            self.timers.set(Timer::Linger, now + self.config.time_wait);
        }
        if self.state == State::TimeWait && header.flags.contains(Flags::FIN) {
            mark!(self, TimeWaitRestarted);
            // RFC 9293 s3.10.7.4: the peer didn't get our last acknowledgment.
            if !self.config.is(Mutant::TimeWaitNotRestarted) {
                self.timers.set(Timer::Linger, now + self.config.time_wait);
            }
        }
        if self.state == State::TimeWait && self.config.is(Mutant::TimeWaitEndsByFin) && header.flags.contains(Flags::FIN) {
            self.timers.set(Timer::Linger, now);
        }
        if self.config.is(Mutant::OldDataRateLimited) {
            return self.challenge(now);
        }
        if len > 0 && !header.flags.contains(Flags::SYN) {
            self.ack_now();
        } else {
            self.challenge(now);
        }
    }

    /// Sends an acknowledgment that makes a peer prove or resynchronise itself, within limits (RFC 5961 s7).
    pub(super) fn challenge(&mut self, now: Instant) {
        if now < self.challenge_at && !self.config.is(Mutant::ChallengeUnlimited) {
            mark!(self, ChallengeLimited);
        } else {
            mark!(self, ChallengeAck);
            let slow = if self.config.is(Mutant::ChallengeSeldom) { 40 } else { 1 };
            self.challenge_at = now + CHALLENGE_INTERVAL * slow;
            self.acks.asks = !self.config.is(Mutant::ChallengeIsQuiet);
            self.ack_now();
        }
    }

    fn on_acceptable(&mut self, now: Instant, header: &Header, (mut payload, marked): (RxPayload<'_, R>, bool), len: usize) {
        let opens = self.state == State::SynReceived;
        if opens && !self.complete_passive_open(now, header) {
            return;
        }
        let finning = header.flags.contains(Flags::FIN) && self.state == State::FinWait1;
        let flying = self.state == State::FinWait1;
        if !self.on_ack(now, header, len) {
            return;
        }
        // Not before the acknowledgment was looked at (as Linux's tcp_replace_ts_recent): else somebody who guesses a number in the window, and
        // nothing more, leaves a timestamp behind by which all that the peer sends is old (RFC 5961 s5, RFC 7323 s7.1).
        if len > 0 || !self.config.is(Mutant::StampOfBareAckIgnored) {
            self.take_timestamp(now, header);
        }
        if opens && len > 0 && self.config.is(Mutant::DataWithHandshakeAckDropped) {
            return;
        }
        if !(finning && self.config.is(Mutant::FinBeforeItsAck)) {
            self.on_fin_acknowledged(now);
        }
        if flying && self.state == State::FinWait2 && len > 0 && self.config.is(Mutant::DataWithFinAckDropped) {
            return;
        }
        if self.state == State::Closed {
            return;
        }
        let mut fin = header.flags.contains(Flags::FIN);
        if len == 0 && !fin {
            return;
        }
        let drops_data = self.config.is(Mutant::HalfClosedReceivesNothing) && self.state == State::FinWait2 && len > 0;
        if self.config.is(Mutant::DuplicateFinAdvances) && fin && self.state == State::CloseWait {
            self.window.nxt += 1;
            self.window.adv = self.window.adv.max(self.window.nxt);
        }
        if !self.state.receives() || drops_data {
            // Nothing can follow the peer's FIN but that FIN again.
            if header.seq.lt(self.window.nxt) {
                self.refuse(now, header, len);
            }
            return;
        }
        let mut seq = header.seq;
        let kept = self.trim(&mut seq, &mut payload, &mut fin);
        let new_data = kept > 0 || payload.is_empty() && fin;
        if self.orphaned && kept > 0 && self.config.is(Mutant::OrphanSwallowsData) {
            self.receive(now, seq, payload, kept, fin);
            self.recv.clear();
            return;
        }
        if self.orphaned && (kept > 0 || (len > 0 && self.config.is(Mutant::OrphanResetByOldBytes))) {
            mark!(self, OrphanGotData);
            // RFC 9293 s3.10.4, RFC 2525 s2.17: nobody will read this.
            self.abort();
            return;
        }
        if self.read_shut && self.state.has_ended() && kept > 0 {
            // RFC 1122 s4.2.2.13: the program ended both directions, which is a close to the peer. (With only its reading ended,
            // what arrives is kept.) What came before can still be read.
            self.fail(Error::Reset);
            self.reset_due = true;
            self.tx_pending = true;
            return;
        }
        if !new_data {
            self.ack_now();
            return;
        }
        if kept > 0 {
            self.take_mark(header.flags, marked);
        }
        self.receive(now, seq, payload, kept, fin);
    }

    /// Cuts off what was received already and what lies behind the window, and gives how many bytes are left.
    pub(super) fn trim(&mut self, seq: &mut SeqNumber, payload: &mut RxPayload<'_, R>, fin: &mut bool) -> usize {
        let len = payload.len();
        let old = self.window.nxt.since(*seq).min(len + 1);
        if old > 0 {
            mark!(self, OldBytesTrimmed);
            if self.agreement.sack && len > 0 && !self.config.is(Mutant::NoDuplicateSack) {
                let whole = self.config.is(Mutant::DuplicateSackWhole);
                let (start, end) = (*seq, if whole { *seq + len } else { (*seq + len).min(self.window.nxt) });
                self.reassembly_mut().note_duplicate(start, end);
            }
            *fin &= old <= len && !(self.config.is(Mutant::FinBehindOldBytesLost) && old == len);
            payload.split_to(old.min(len));
            *seq += old;
        }
        let from = if self.config.is(Mutant::RoomFromNextByte) { self.window.nxt } else { *seq };
        let room = self.window.adv.since(from);
        if payload.len() > room {
            mark!(self, WindowTrimmed);
            payload.truncate(room);
            *fin &= self.config.is(Mutant::FinBeyondWindowTaken);
        }
        payload.len()
    }

    /// Takes bytes in that are in the window, in order or not.
    pub(super) fn receive(&mut self, now: Instant, seq: SeqNumber, payload: RxPayload<'_, R>, len: usize, fin: bool) {
        if fin && seq != self.window.nxt && self.config.is(Mutant::EofEarly) {
            self.on_fin(now);
            return;
        }
        if seq != self.window.nxt {
            mark!(self, OutOfOrder);
            if fin {
                mark!(self, FinOutOfOrder);
            }
            let forgetful = self.config.is(Mutant::EarlyFinForgotten);
            let behind = if self.config.is(Mutant::EarlyFinMisplaced) { 0 } else { len };
            let reassembly = self.reassembly_mut();
            if fin && !forgetful {
                reassembly.fin = Some(seq + behind);
            }
            let at = payload.arrival(now);
            reassembly.insert(seq, payload, Some(at));
            // RFC 5681 s4.2: a gap is reported at once.
            if self.config.is(Mutant::GapNotUrgent) {
                self.timers.start(Timer::DelayedAck, now + self.config.delayed_ack);
                return;
            }
            self.ack_now();
            return;
        }
        let before = self.window.nxt;
        if self.reassembly.is_some() && self.config.is(Mutant::DeliverDuplicate) {
            self.recv.push(payload.clone(), now);
        }
        self.recv.push(payload, now);
        self.window.nxt += len;
        let mut fin = fin;
        let mut filled_gap = false;
        if let Some(mut reassembly) = self.reassembly.take() {
            filled_gap = reassembly.has_gap();
            self.window.nxt = reassembly.drain(self.window.nxt, &mut self.recv);
            fin |= reassembly.fin == Some(self.window.nxt);
            if !fin && !reassembly.is_empty() && !self.config.is(Mutant::SecondHoleForgotten) {
                self.reassembly = Some(reassembly);
            }
        }
        let arrived = self.window.nxt.since(before);
        if arrived > 0 {
            self.counters.rx_bytes += arrived as u64;
            if self.recv.len() == arrived || !self.config.is(Mutant::DropReadEdge) {
                self.edges |= Readiness::IN;
            }
            self.schedule_ack(now, len);
        }
        if filled_gap {
            mark!(self, GapFilled);
            if self.recv.lends() {
                mark!(self, LentOutOfOrder);
            }
            if self.config.is(Mutant::SkipByteOnReassembly) && self.recv.len() > 1 {
                self.recv.read(&mut [std::io::IoSliceMut::new(&mut [0])], false);
            }
            if !self.config.is(Mutant::FilledGapNotUrgent) {
                self.ack_now();
            }
        }
        if fin {
            self.on_fin(now);
        }
    }

    #[inline(always)]
    fn schedule_ack(&mut self, now: Instant, len: usize) {
        let unacknowledged = self.window.nxt.since(self.window.wup);
        let seldom = self.config.is(Mutant::AckSeldom) && unacknowledged < 6 * self.acks.peer_mss;
        let slow = if self.config.is(Mutant::DelayedAckSlow) { 8 } else { 1 };
        if self.config.is(Mutant::AckEverySegment) || self.acks.on_data(now, len, unacknowledged, self.config.quickack) && !seldom {
            self.ack_now();
        } else {
            if self.config.is(Mutant::DelayedAckPutOff) {
                self.timers.stop(Timer::DelayedAck);
            }
            let after_ns = self.config.delayed_ack_ns.saturating_mul(slow);
            self.timers.start(Timer::DelayedAck, Instant::from_nanos(now.as_nanos().saturating_add(after_ns)));
        }
    }

    /// SYN-RECEIVED: the acknowledgment of our SYN completes the handshake.
    fn complete_passive_open(&mut self, now: Instant, header: &Header) -> bool {
        let excused = self.config.is(Mutant::SynReceivedAckUnchecked) && header.ack.gt(self.snd_nxt);
        if !excused && (header.ack.le(self.snd_una) || header.ack.gt(self.snd_nxt)) {
            mark!(self, StrangeAckInSynReceived);
            self.send_reset_at(header.ack);
            return false;
        }
        self.window.adv = self.window.adv.max(self.window.select_syn(self.charged()).1);
        let fin_queued = self.fin_queued;
        self.conclude_fast_open(header);
        self.establish(now, self.retries);
        if fin_queued && !self.config.is(Mutant::ShutInHandshakeForgotten) {
            self.state = State::FinWait1;
        }
        self.fast_open = None;
        self.snd_wl1 = header.seq;
        self.snd_wl2 = header.ack;
        self.set_send_window(self.window_of(header));
        self.tx_pending = true;
        true
    }

    /// Our FIN was acknowledged, if it was.
    fn on_fin_acknowledged(&mut self, now: Instant) {
        let any = self.config.is(Mutant::LastAckEndsByAnyAck) && self.state == State::LastAck;
        let early = self.config.is(Mutant::FinAckedByLastByte) && self.snd_una == self.send.end();
        if !self.snd_una.gt(self.send.end()) && !any && !early {
            return;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                let own = self.orphaned || self.config.is(Mutant::HalfCloseTimesOut);
                if own && !self.config.is(Mutant::FinWait2Forever) {
                    self.timers.set(Timer::Linger, now + self.config.fin_wait2);
                }
            }
            State::Closing if self.config.is(Mutant::ClosingSkipsTimeWait) => self.finish(),
            State::Closing => self.enter_time_wait(now),
            State::LastAck => self.finish(),
            _ => {}
        }
    }

    /// The peer's stream ended, and all of it is here.
    fn on_fin(&mut self, now: Instant) {
        self.window.nxt += 1;
        self.window.adv = self.window.adv.max(self.window.nxt);
        self.peer_fin = true;
        self.reassembly = None;
        if self.config.is(Mutant::KeepaliveStopsAtFin) {
            self.timers.stop(Timer::Keepalive);
        }
        if !self.config.is(Mutant::FinRaisesNothing) {
            self.edges |= Readiness::IN | Readiness::RDHUP;
        }
        if self.config.is(Mutant::FinNotUrgent) {
            self.timers.start(Timer::DelayedAck, now + self.config.delayed_ack);
        } else {
            self.ack_now();
        }
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => {
                mark!(self, SimultaneousClose);
                self.state = State::Closing;
            }
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
        if self.fin_queued && !self.config.is(Mutant::HangUpUntold) {
            self.edges |= Readiness::HUP;
        }
        if !self.write_blocked {
            self.timers.set(Timer::Release, now + RELEASE_AFTER);
        }
    }

    fn enter_time_wait(&mut self, now: Instant) {
        mark!(self, TimeWait);
        self.state = State::TimeWait;
        self.send.clear();
        self.records.clear();
        self.ecn = Ecn::default();
        self.timers.stop(Timer::Retransmit);
        self.timers.stop(Timer::Persist);
        self.timers.stop(Timer::Keepalive);
        if self.config.is(Mutant::NoTimeWait) {
            self.timers.set(Timer::Linger, now + Duration::from_millis(1));
            return;
        }
        let shorter = if self.config.is(Mutant::ShortTimeWait) { 4 } else { 1 };
        self.timers.set(Timer::Linger, now + self.config.time_wait / shorter);
    }

    /// Whether bytes wait here for a gap before them to be filled.
    #[inline]
    pub fn holds_out_of_order(&self) -> bool {
        self.reassembly.as_ref().is_some_and(|reassembly| reassembly.has_bytes())
    }

    /// Drops what arrived out of order, reported by SACK or not (RFC 2018 s8, as Linux's tcp_prune_ofo_queue): the peer keeps it until
    /// it is acknowledged, and sends it again.
    #[cold]
    pub fn prune_out_of_order(&mut self) {
        if let Some(reassembly) = &mut self.reassembly {
            mark!(self, ReassemblyPruned);
            reassembly.prune();
            if reassembly.is_empty() {
                self.reassembly = None;
            }
        }
    }

    pub(super) fn reassembly_mut(&mut self) -> &mut Reassembly<R> {
        let lends = self.recv.lends();
        let reassembly = self.reassembly.get_or_insert_with(|| Box::new(Reassembly::new()));
        reassembly.mutation = self.config.mutation();
        reassembly.lends = lends;
        reassembly
    }

    /// Whether a SYN for this connection's addresses may take the place of this connection, which is in TIME-WAIT
    /// (RFC 9293 s3.10.7.4, RFC 6191 s2).
    pub fn accepts_new_syn(&self, syn: &Header) -> bool {
        if self.state != State::TimeWait || !syn.opens() {
            return false;
        }
        let newer = match syn.options.timestamps {
            Some((value, _)) if self.agreement.timestamps && self.ts_recent_known => {
                value.wrapping_sub(self.ts_recent) as i32 >= i32::from(!self.config.is(Mutant::TimeWaitTakesEqualStamp))
            }
            _ => false,
        };
        if self.config.is(Mutant::TimeWaitSynRefused) {
            return false;
        }
        newer || syn.seq.gt(self.window.nxt) || self.config.is(Mutant::TimeWaitSynOfAnyNumber)
    }
}
