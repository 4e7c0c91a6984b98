//! Retransmission timeouts (RFC 6298) and TIME-WAIT (RFC 9293 s3.4.2): neither comes early.

use core::time::Duration;

use ringway_stack::Instant;
use ringway_stack::tcp;

use super::Moment;
use super::flow::Endpoint;
use super::segment::{SYN, Segment, before};

const NAME: &str = "rto";

/// Linux's TCP_RTO_MIN, which the stack follows; RFC 6298 s2.4 would have a second.
const RTO_MIN: Duration = Duration::from_millis(200);
/// Without a sample (RFC 6298 s2.1).
const RTO_INITIAL: Duration = Duration::from_secs(1);
/// Linux's TCP_RTO_MAX.
const RTO_MAX: Duration = Duration::from_secs(120);
/// Linux's tcp_orphan_retries: after so many timeouts in a row, an orphan is given up at the next one. RFC 9293 s3.8.3 has R2 correspond to "at least 100
/// seconds" (SHLD-11), and with the least of timeouts that is after 102.2 s.
const ORPHAN_RETRIES: u32 = 8;
/// How long a frame may wait for a device that refuses it: the ring tries again after 5 ms at the latest.
pub(super) const STALL_MAX: Duration = Duration::from_millis(10);
/// RFC 7323 s5.4: a timestamp clock's slowest.
const TIMESTAMP_TICK_MAX: Duration = Duration::from_secs(1);
/// A timer wheel's tick.
const TICK: Duration = Duration::from_millis(2);

/// What it remembers of an endpoint.
#[derive(Debug, Default)]
pub(super) struct State {
    /// When the oldest byte in flight was sent last.
    sent_at: Instant,
    /// Something arrived since.
    heard: bool,
    /// Since when bytes are sent again, with none sent for the first time that is the oldest in flight.
    resends_since: Option<Instant>,
    /// When the timer may have begun that watches what is sent again since then.
    timed_since: Option<Instant>,
    /// Since it sent something last: when something new was acknowledged last, or first since the device refuses frames.
    acked_at: Option<Instant>,
    /// Since when its ring's device has no room for what is to be sent, at most.
    refused_since: Option<Instant>,
    /// Timeouts in a row without a word from the peer, and when the first one's timer began.
    timeouts: u32,
    since: Instant,
    /// When its SYN went first, which nobody took for its then.
    began_at: Option<Instant>,
    /// How often the oldest byte in flight was sent again, for whatever cause; which one it was last, and when.
    resends: u32,
    resent: u32,
    resent_at: Option<Instant>,
    /// That is counted since then: what was acknowledged at that time shows that nothing had timed out since something new was acknowledged.
    counted_since: Instant,
}

impl State {
    /// Something arrived.
    pub(super) fn delivered(&mut self) {
        self.heard = true;
    }

    /// Its SYN, which seems to go for the first time now, went at that time already, and its timer began.
    pub(super) fn began(&mut self, at: Instant) {
        self.began_at = Some(at);
    }

    /// Something new was acknowledged.
    pub(super) fn acknowledged(&mut self, moment: &Moment) {
        let hampered_since = (moment.at <= moment.hampered + STALL_MAX).then_some(moment.hampered_since);
        let since = [hampered_since, self.refused_since].into_iter().flatten().min();
        let is_first = since.is_none_or(|since| self.acked_at.is_none_or(|at| at < since));
        if is_first {
            self.acked_at = Some(moment.at);
        }
    }

    /// Since when the device of its ring refuses frames for which its queue has no room, if it does.
    pub(super) fn refused(&mut self, since: Option<Instant>) {
        self.refused_since = since;
    }

    /// What is sent again next has another reason than the timer.
    pub(super) fn forgive(&mut self) {
        self.heard = true;
    }

    /// Since when nothing but what had been sent before was sent.
    pub(super) fn resends_since(&self) -> Option<Instant> {
        self.resends_since
    }

    /// Something was certainly acknowledged. If that lies behind all that was sent again for being the oldest, whatever timed out before is forgotten.
    pub(super) fn surely_acknowledged(&mut self, at: Instant, ack: u32) {
        if self.resends == 0 || before(self.resent, ack) {
            (self.resends, self.counted_since) = (0, at);
        }
    }

    /// Whether so many timeouts may have come in a row that an orphan is given up at the next one, without another word. Each of them sent the oldest byte in
    /// flight again, of which nothing else need be known: how often that went out for another reason (RFC 5681 s3.2, RFC 6582 s3.2 step 3) is not to be seen.
    /// But each took twice as long as the one before (RFC 6298 s5.5). (The first one's timer may have begun before what was acknowledged last: RFC 6582 s3.2 step
    /// 3 has partial acknowledgments leave it as it is.)
    pub(super) fn may_have_tried_enough(&self) -> bool {
        let least = RTO_MIN * ((1 << ORPHAN_RETRIES) - 2);
        let taken = |at: Instant| at.since(self.counted_since) + TICK * ORPHAN_RETRIES;
        self.resends >= ORPHAN_RETRIES && self.resent_at.is_some_and(|at| taken(at) >= least)
    }

    /// When the oldest byte in flight was sent last.
    pub(super) fn sent_at(&self) -> Instant {
        self.sent_at
    }
}

/// An endpoint sent a segment, which is no reset.
pub(super) fn sent(moment: &Moment, segment: &Segment, own: &mut Endpoint) {
    let acked_at = own.rto.acked_at.take();
    if segment.span() == 0 {
        return;
    }
    let again = before(segment.seq, own.nxt);
    // (A stack's oldest byte lies no later than what was acknowledged for all that arrived; and how often it sent its SYN, it forgets with the handshake.)
    let oldest = again && !before(own.una, segment.seq) && !segment.has(SYN);
    if oldest && own.rto.resent_at.replace(moment.at) != Some(moment.at) {
        (own.rto.resends, own.rto.resent) = (own.rto.resends + 1, segment.seq);
    }
    if again && own.rto.resends_since.is_none() {
        // RFC 6582 s3.2 step 3: "For the first partial ACK that arrives during fast recovery, also reset the retransmit timer". That is when it arrives: what
        // it asks for may wait for a device that refuses it.
        let full = |at: Instant| own.rto.refused_since.is_some_and(|since| at >= since);
        let acked_at = acked_at.filter(|&at| at >= moment.hampered_since && at <= moment.hampered || full(at));
        (own.rto.resends_since, own.rto.timed_since) = (Some(moment.at), Some(acked_at.unwrap_or(moment.at)));
    }
    if before(segment.seq, own.una) {
        // What is sent again here has not been acknowledged to the stack, though an acknowledgment of it arrived: in a segment that was dropped for its number
        // (RFC 9293 s3.10.7.4). This is its oldest byte in flight, and what follows is no timeout of its own.
        own.rto.forgive();
        return;
    }
    if segment.seq != own.una {
        return;
    }
    let least = if segment.has(SYN) { RTO_INITIAL } else { RTO_MIN };
    let state = &mut own.rto;
    // Heard of nothing, it can only be the timer. This soon, or where the device has refused frames all the time, it answers what was heard before, and the
    // device refused it then.
    let refused_until = state.sent_at.max(moment.hampered) + STALL_MAX;
    let is_refused = moment.at < refused_until || state.refused_since.is_some_and(|since| since <= state.sent_at);
    if !again || state.heard || is_refused {
        // A SYN-ACK that answers the peer's SYN once more leaves the timer as it was (RFC 6298 s5.1); so do partial acknowledgments after the first (RFC 6582
        // s3.2 step 3).
        let since = match again {
            true if segment.has(SYN) => state.since,
            true => state.timed_since.unwrap_or(moment.at),
            false => state.began_at.take().unwrap_or(moment.at),
        };
        (state.timeouts, state.since) = (0, since);
    } else {
        state.timeouts += 1;
        let waited = moment.at.since(state.since);
        // RFC 8985 s7.3: the first one may be a probe's time, after which the timer begins anew.
        let probes = u32::from(own.agrees_on_sack && !segment.has(SYN));
        let lawful = (0..state.timeouts).map(|k| (least * (1 << k.saturating_sub(probes).min(16))).min(RTO_MAX)).sum::<Duration>();
        // (What had to wait for its neighbour's address counts as sent from when it began to wait.)
        if waited + TICK < lawful && moment.excused < state.since {
            let law = "RFC 6298 s2.4, s5.5: a timeout is no shorter than its least, and doubles";
            moment.breach(NAME, format_args!("{law}: {} of them within {waited:?}, {lawful:?} at least", state.timeouts));
        }
        if !segment.has(SYN) && state.timeouts > probes {
            own.info.timed_out();
        }
    }
    (own.rto.sent_at, own.rto.heard) = (moment.at, false);
    if !again {
        (own.rto.resends_since, own.rto.timed_since) = (None, None);
    }
}

/// A connection that waits out its TIME-WAIT.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) since: Instant,
    pub(super) time: Duration,
}

impl Waiting {
    /// Whether its time is not up yet.
    pub(super) fn lasts(&self, at: Instant) -> bool {
        at.since(self.since) + TICK < self.time
    }
}

/// How a connection is said to stand that waits by what the wire shows; `excused`: something arrived that may end it early. Whether its time is not up yet.
pub(super) fn is_kept(moment: &Moment, waiting: Waiting, state: Option<tcp::State>, excused: bool) -> bool {
    let waited = moment.at.since(waiting.since);
    if !waiting.lasts(moment.at) || excused {
        return false;
    }
    if state != Some(tcp::State::TimeWait) {
        let time = waiting.time;
        moment.breach(NAME, format_args!("RFC 9293 s3.4.2: TIME-WAIT ended after {waited:?} of {time:?}: {state:?}"));
    }
    true
}

/// A pair of addresses was connected anew, though a connection of theirs waited.
pub(super) fn reused(moment: &Moment, waiting: Waiting, timestamps: bool) {
    let waited = moment.at.since(waiting.since);
    if waited + TICK < TIMESTAMP_TICK_MAX {
        moment.breach(
            NAME,
            format_args!("RFC 6191 s2: a pair of addresses in TIME-WAIT was used again after {waited:?}, before timestamps tell"),
        );
    }
    if !timestamps {
        moment.breach(NAME, "RFC 9293 s3.6.1, RFC 6191 s2: a pair of addresses in TIME-WAIT was used again, without timestamps to tell");
    }
}

#[cfg(test)]
mod tests;
