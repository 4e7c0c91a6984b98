//! Probes of the end of what was sent (RFC 8985 s7), and what is lost by the time at which it was sent (s6.2).

use core::time::Duration;

use ringway_stack::Instant;

use super::super::super::flow::Endpoint;
use super::super::super::segment::{Segment, before, later};
use super::{Phase, RTO_MIN, State, TICK};

/// What a probe's time is longer than two round trips by: Linux's TCP_TIMEOUT_MIN, and a timer wheel's tick.
const LATENESS: Duration = Duration::from_millis(2);
/// How much sooner a clock may be that is off.
const SLACK: Duration = Duration::from_micros(250);

/// What is remembered of the last probe.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probe {
    /// What had been sent ended here, with it.
    end: u32,
    pub(super) at: Instant,
}

impl State {
    /// Whether a probe may go. s7.2: after two round trips since something was sent or acknowledged, or when the retransmission timer runs out that began before;
    /// and s7.3: there is at most one.
    pub(in crate::checkers) fn may_probe(&self, at: Instant) -> bool {
        let is_first = self.probe.is_none_or(|probe| self.una.is_some_and(|una| !before(una, probe.end)));
        // (The stack may know of a round trip that nothing here shows: of a SYN that was sent again, an echo tells.)
        let shortest = self.rtt.filter(|_| self.syns < 2).map_or(Duration::ZERO, |(shortest, _)| shortest);
        let since = self.data_at.max(self.una_at).max(self.head_at);
        let is_due = at + SLACK >= since + 2 * shortest + LATENESS || self.may_time_out(at);
        // (What was sent again after all of it was acknowledged, in a segment that was lost behind the wire, may look like a loss.)
        let is_over = || self.una.is_some_and(|una| !before(una, self.recover));
        (self.phase == Phase::Open || is_over()) && is_first && is_due
    }

    /// Whether the next new segment may be a probe, as far as is known: when a recovery ended may not be.
    pub(in crate::checkers) fn may_probe_anew(&self, at: Instant) -> bool {
        self.phase != Phase::Open || self.may_probe(at)
    }

    fn may_time_out(&self, at: Instant) -> bool {
        at + TICK >= self.una_at.max(self.head_since) + RTO_MIN
    }

    /// `segment` is one, with which everything before `end` is in flight.
    pub(super) fn probes(&mut self, segment: &Segment, at: Instant, end: u32) {
        self.probe = Some(Probe { end, at });
        self.timed.retain(|&(from, to, _)| !(before(from, segment.end()) && before(segment.seq, to)));
        (self.lossy, self.cwnd_least) = (true, 0);
        self.sent_again.note(segment, end);
        if self.una == Some(segment.seq) {
            self.resent += 1;
            (self.head_at, self.head_since) = (at, at);
        }
    }

    /// Blocks were reported.
    pub(super) fn note_risen(&mut self, una: u32, at: Instant) {
        let highest = self.sacked.iter().chain(&self.perhaps_sacked).fold(una, |high, &(_, end)| later(high, end));
        if highest != una && self.risen.is_none_or(|(known, _)| before(known, highest)) {
            self.risen = Some((highest, at));
        }
    }

    /// Since when nothing is probed any more, and the retransmission timer runs.
    pub(super) fn probed_at(&self) -> Instant {
        self.probe.map_or(Instant::ZERO, |probe| probe.at)
    }
}

/// Whether what is sent again is such a probe: the last segment that was sent.
///
/// s7.2: one that is alone waits for the peer, which may delay its acknowledgment, until the timeout.
pub(super) fn is_one(at: Instant, segment: &Segment, own: &Endpoint) -> bool {
    let state = &own.shadow.sender;
    let is_alone = !before(state.una.unwrap_or(own.una), segment.seq);
    own.agrees_on_sack && segment.end() == own.nxt && state.may_probe(at) && (!is_alone || state.may_time_out(at))
}

/// s6.2: whether something was reported that was sent long enough after the oldest byte in flight, by all that is known of either; or has been, for as long as the
/// reordering window is longer than the time between the two (step 5).
pub(super) fn overtakes(own: &Endpoint, at: Instant) -> bool {
    let state = &own.shadow.sender;
    // (The stack may know of a round trip that nothing here shows: of a SYN that was sent again, an echo tells.)
    let shortest = state.rtt.filter(|_| state.syns < 2).map_or(Duration::ZERO, |(shortest, _)| shortest);
    let arrived = own.shadow.arrivals.iter().flat_map(|arrival| arrival.options.sack());
    let una = later(state.una.unwrap_or(own.una), own.una);
    let highest = state.sacked.iter().chain(&state.perhaps_sacked).chain(arrived).fold(una, |high, &(_, end)| later(high, end));
    if highest == una || !own.agrees_on_sack {
        return false;
    }
    let sent_at = |seq: u32| state.timed.iter().find(|&&(from, to, _)| !before(seq, from) && before(seq, to)).map(|&(.., at)| at);
    let newest = state.probe.filter(|probe| probe.end == highest).map(|probe| probe.at).or_else(|| sent_at(highest.wrapping_sub(1)));
    // (What was sent more than once is not timed: then its first time was before all that was sent since.)
    let oldest = sent_at(una).unwrap_or(state.head_at);
    let Some(newest) = newest.filter(|&newest| newest <= oldest + shortest / 4) else { return true };
    let reported_at = state.risen.filter(|&(known, _)| !before(known, highest)).map_or(at, |(_, at)| at);
    at + SLACK + newest.since(oldest) >= reported_at + shortest / 4
}
