//! What was sent and is not acknowledged, segment by segment: when each of them left, whether it did so again, and what had been delivered by then.
//! Round trips (RFC 6298 s3) and delivery rates (draft-ietf-ccwg-bbr s4.1) are taken from here.
//!
//! What the device cuts into several segments has one record, of which pieces become records of their own where the peer reports a part of it, or where a
//! part of it is sent again. Small segments that are sent one after the other while many are on their way share one. So there are not many more records than
//! full segments in flight, and none where nothing is, nor of one that is alone, until it is more than acknowledged.

mod again;
mod flight;
mod lone;
mod overtaken;

use core::time::Duration;
use std::collections::VecDeque;

use super::congestion::{RateSample, RateSampler, Report, Summary};
use super::rtt::Rtt;
use crate::mutants::{Mutant, Mutation};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use self::flight::SMALL_MAX;
pub(super) use self::flight::{Flight, Record};
pub(super) use self::lone::Lone;

/// What comes from elsewhere is paced by so much at most at first.
const PACE_MAX: Duration = Duration::from_secs(1);

/// What one acknowledgment tells of what was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrived {
    /// When the oldest of the segments was sent that it acknowledges in order for the first time and that were sent once.
    oldest: Option<Instant>,
    /// The same of the one that was sent last among those that it reports in any way.
    latest: Option<Instant>,
    /// It acknowledges something that was sent more than once.
    ambiguous: bool,
    /// It acknowledges a part of a segment that was sent once.
    partial: bool,
    report: Report,
}

/// The round trip that an acknowledgment shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timed {
    /// Of what was sent then.
    Since(Instant),
    /// What it acknowledges was sent more than once, or was not noted: it takes a timestamp to tell.
    Ambiguous,
    /// It will be shown by a later one.
    Later,
}

impl Arrived {
    /// The round trip of the segment that was sent last.
    #[inline]
    pub(super) fn latest(&self, now: Instant) -> Option<Duration> {
        self.latest.map(|at| now.since(at))
    }

    #[inline(always)]
    fn take(&mut self, record: &Record) {
        if !record.again {
            self.latest = self.latest.max(Some(record.sent.sent_at));
        }
    }

    /// The round trip for the retransmission timeout. RFC 6298 s3: "RTT samples MUST NOT be made using segments that were retransmitted". What was reported
    /// before and is acknowledged with what filled a hole has arrived long ago, so that nothing that comes with the latter counts.
    #[inline(always)]
    pub(super) fn timed(&self) -> Timed {
        match self.oldest {
            Some(at) if !self.ambiguous => Timed::Since(at),
            None if self.partial && !self.ambiguous => Timed::Later,
            _ => Timed::Ambiguous,
        }
    }
}

/// The records of a connection, and what else it has to know while anything is in flight.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// (Apart, since a million connections have nothing in flight.) `None`: nor has there been anything lately.
    flight: Option<Box<Flight>>,
    /// What a flight goes on from, where there is none.
    rested: Rested,
    mutation: Mutation,
}

/// What outlasts a rest.
#[derive(Clone, Copy, Debug, Default)]
struct Rested {
    delivered: u64,
    latest: Summary,
}

impl Records {
    /// The same as a mutant.
    pub(super) fn of(self, mutation: Mutation) -> Self {
        Self { mutation, ..self }
    }

    /// `[start, end)` was sent for the first time, with `in_flight` bytes in the network before it, in full segments of `mss` bytes.
    #[inline(always)]
    pub(super) fn push(&mut self, now: Instant, (start, end): (SeqNumber, SeqNumber), in_flight: usize, mss: usize) {
        if !self.begun().push_alone(now, (start, end), in_flight) {
            self.push_beside(now, (start, end), in_flight, mss);
        }
    }

    /// The same, of what is not alone.
    #[inline(never)]
    fn push_beside(&mut self, now: Instant, (start, end): (SeqNumber, SeqNumber), in_flight: usize, mss: usize) {
        let flight = self.flight_mut();
        let len = end.since(start);
        let sent = flight.sampler.on_sent(now, len as u64, in_flight as u64);
        flight.note_used(in_flight + len);
        if flight.queue.len() >= SMALL_MAX && len < mss && flight.merges(end, len, mss, &sent) {
            return;
        }
        flight.queue.push_back(Record { start, end, sent, again: false, reported: false, lost: false, due: false });
    }

    /// Everything before `ack` is acknowledged in order, which are `acked` bytes.
    #[inline(always)]
    pub(super) fn acknowledge(&mut self, now: Instant, ack: SeqNumber, acked: usize, rtt: &Rtt, arrived: &mut Arrived) {
        let mutation = self.mutation;
        // (Of a handshake there is no record.)
        let Some(flight) = &mut self.flight else { return };
        let flight = flight.in_full();
        flight.una_at += acked as u64;
        let newest = mutation.is(Mutant::RttOfLastSegment).then(|| flight.queue.back().map(|last| last.sent.sent_at)).flatten();
        flight.acknowledge(now, ack, rtt.shortest_ns(), arrived);
        if mutation.is(Mutant::RttEndsAtAnyAck)
            && let Some(front) = flight.queue.front()
        {
            arrived.oldest = Some(front.sent.sent_at);
        }
        arrived.oldest = newest.or(arrived.oldest);
    }

    /// The segment that is alone in flight, if `ack` acknowledges all of it.
    #[inline(always)]
    pub(super) fn lone(&self, ack: SeqNumber) -> Option<Lone> {
        self.flight.as_ref()?.lone.filter(|lone| lone.ends_at(ack))
    }

    /// It is acknowledged, by what acknowledges `acked` bytes: all that [`Records::acknowledge`] and [`Records::sample`] do of it. `rtt` knows of its round trip.
    #[inline(always)]
    pub(super) fn acknowledge_lone(&mut self, now: Instant, lone: &Lone, acked: usize, rtt: &Rtt) {
        let Some(flight) = &mut self.flight else { return };
        flight.lone = None;
        flight.una_at += acked as u64;
        let judged = flight.sampler.on_delivered_alone(now, lone.sent(), lone.len(), rtt.shortest_ns());
        flight.latest.take(&judged);
    }

    /// The peer reports `[start, end)` by SACK, of which it may have reported parts before.
    pub(super) fn report(&mut self, now: Instant, range: (SeqNumber, SeqNumber), mss: usize, rtt: &Rtt, arrived: &mut Arrived) {
        self.flight_mut().report(now, range, mss, rtt.shortest_ns(), arrived);
    }

    /// Nothing counts as reported any more (RFC 2018 s8).
    pub(super) fn forget_reports(&mut self) {
        self.flight_mut().queue.iter_mut().for_each(|record| record.reported = false);
    }

    /// `[start, end)` was sent again, with `in_flight` bytes in the network before it.
    pub(super) fn resend(&mut self, now: Instant, range: (SeqNumber, SeqNumber), in_flight: usize, mss: usize) {
        let karn = !self.mutation.is(Mutant::KarnIgnored);
        self.flight_mut().resend(now, range, in_flight, mss, karn);
    }

    /// What is newly lost lies at `from` or behind it: a recovery begins.
    pub(super) fn look_from(&mut self, from: SeqNumber) {
        self.flight_mut().lost_to = from;
    }

    /// The first that counts as lost now, before `edge`, that has not arrived, and does not count as lost already. Everything before it was looked at.
    pub(super) fn lose(&mut self, edge: SeqNumber, mss: usize) -> Option<Record> {
        self.flight_mut().lose(edge, mss)
    }

    /// A recovery begins, in which the peer reports what arrives: what is sent again is looked after.
    pub(super) fn follow(&mut self, now: Instant) {
        self.flight_mut().follow(now);
    }

    /// It is over.
    pub(super) fn unfollow(&mut self) {
        if let Some(flight) = &mut self.flight {
            flight.unfollow();
        }
    }

    /// The next that was sent again and counts as lost again now; and whether that is one loss more, and not of those that a reduction was for.
    pub(super) fn lose_again(&mut self, now: Instant, rtt: &Rtt) -> Option<(Record, bool)> {
        if self.mutation.is(Mutant::LostAgainNeverFound) {
            return None;
        }
        self.flight.as_mut()?.lose_again(now, rtt.shortest_ns())
    }

    /// The first of those that is to be sent once more.
    pub(super) fn due(&mut self) -> Option<(SeqNumber, SeqNumber)> {
        self.flight.as_mut()?.due()
    }

    /// How many bytes they have.
    pub(super) fn due_bytes(&self) -> usize {
        self.flight.as_ref().map_or(0, |flight| flight.due_bytes())
    }

    /// All that was counted as lost since the last rest.
    pub(super) fn lost(&self) -> u64 {
        self.flight.as_ref().map_or(0, |flight| flight.sampler.lost())
    }

    /// All that was ever delivered.
    #[inline(always)]
    pub(super) fn delivered(&self) -> u64 {
        self.flight.as_ref().map_or(self.rested.delivered, |flight| flight.sampler.delivered())
    }

    /// Bytes that count as lost and have not been sent again since.
    pub(super) fn lost_bytes(&self) -> usize {
        let Some(flight) = &self.flight else { return 0 };
        flight.queue.iter().filter(|record| record.lost && !record.reported).map(Record::len).sum()
    }

    /// How fast the path delivered, as an acknowledgment tells that was given to [`Records::acknowledge`] or [`Records::report`].
    #[inline(always)]
    pub(super) fn sample(&mut self, mut arrived: Arrived, rtt: &Rtt) -> Option<RateSample> {
        let flight = self.flight.as_mut()?;
        let judged = flight.sampler.judge(&mut arrived.report, rtt.shortest_ns())?;
        flight.latest.take(&judged);
        Some(judged.into())
    }

    /// The delivery rate in bytes per second, and whether the program limited it.
    pub(super) fn delivery_rate(&self) -> (u64, bool) {
        self.flight.as_ref().map_or(self.rested.latest, |flight| flight.latest.summary()).rate()
    }

    /// What is sent from now on tells less of the path than it could. (What is sent after a rest does so anyway.)
    #[inline(always)]
    pub(super) fn mark_app_limited(&mut self, in_flight: u64) {
        if let Some(flight) = &mut self.flight {
            flight.sampler.mark_app_limited(in_flight);
        }
    }

    /// Whether it does.
    #[inline(always)]
    pub(super) fn is_app_limited(&self) -> bool {
        self.flight.as_ref().is_none_or(|flight| flight.sampler.is_app_limited())
    }

    /// SND.UNA as a place in the stream.
    #[inline(always)]
    pub(super) fn una_at(&self) -> u64 {
        self.flight.as_ref().map_or(self.rested.delivered, |flight| flight.una_at)
    }

    /// The window has no room for more than the `in_flight` bytes that are on their way.
    #[inline(always)]
    pub(super) fn note_limited(&mut self, in_flight: usize) {
        if let Some(flight) = &mut self.flight {
            flight.limited_at = flight.una_at + in_flight as u64;
        }
    }

    /// Whether it has had none since the beginning of what is in flight.
    #[inline(always)]
    pub(super) fn is_limited(&self) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.limited_at >= flight.una_at)
    }

    /// The most that was in flight since what was in flight when something was sent last, in bytes; zero: no more than one segment.
    #[inline(always)]
    pub(super) fn used(&self) -> u64 {
        self.flight.as_ref().map_or(0, |flight| flight.used)
    }

    /// Where the last one that is in flight begins.
    pub(super) fn last_start(&self) -> Option<SeqNumber> {
        let flight = self.flight.as_ref()?;
        flight.queue.back().map(|last| last.start).or(flight.lone.map(|lone| lone.start()))
    }

    /// What is in flight times out then.
    #[inline(always)]
    pub(super) fn note_timeout(&mut self, at: Instant) {
        if let Some(flight) = &mut self.flight {
            flight.timeout_at = at;
        }
    }

    /// See [`Records::note_timeout`].
    #[inline(always)]
    pub(super) fn timeout_at(&self) -> Instant {
        self.flight.as_ref().map_or(Instant::ZERO, |flight| flight.timeout_at)
    }

    /// A probe was sent, and everything before `end`, with so many bytes in flight.
    pub(super) fn note_probe(&mut self, end: SeqNumber, in_flight: usize) {
        let flight = self.flight_mut();
        (flight.probe_end, flight.probe_flight) = (Some(end), in_flight as u64);
    }

    /// Where what had been sent ended when a probe was sent last.
    pub(super) fn probe_end(&self) -> Option<SeqNumber> {
        self.flight.as_ref()?.probe_end
    }

    /// How many bytes were in flight then.
    pub(super) fn probe_flight(&self) -> usize {
        self.flight.as_ref().map_or(0, |flight| flight.probe_flight as usize)
    }

    /// Something was reported: looks at what was sent before it. Whether anything of that is overtaken, now or before.
    pub(super) fn note_overtaken(&mut self, rtt: &Rtt) -> bool {
        let is_any = self.mutation.is(Mutant::OvertakenAtOnce);
        self.flight_mut().note_overtaken(rtt, is_any)
    }

    /// When all that was sent before something that has arrived counts as lost, if nothing more arrives.
    pub(super) fn reordering_ends(&self, rtt: &Rtt) -> Option<Instant> {
        self.flight.as_ref()?.reordering_ends(rtt)
    }

    /// That time has come.
    pub(super) fn end_reordering(&mut self) {
        self.flight_mut().end_reordering();
    }

    /// The peer tells, with everything before `una` acknowledged, that something which was sent again had arrived.
    pub(super) fn widen_reordering(&mut self, una: SeqNumber, nxt: SeqNumber) {
        self.flight_mut().reordering.widen(una, nxt);
    }

    /// A recovery is over.
    pub(super) fn note_recovered(&mut self) {
        if let Some(flight) = &mut self.flight {
            flight.reordering.recovered();
        }
    }

    /// What was sent once, and begins before this, was overtaken.
    pub(super) fn overtaken(&self) -> Option<SeqNumber> {
        self.flight.as_ref()?.overtaken.map(|overtaken| overtaken.edge)
    }

    /// No new segment before then, by the controller's pace.
    pub(super) fn pace_at(&self) -> Instant {
        self.flight.as_ref().map_or(Instant::ZERO, |flight| flight.pace_at)
    }

    /// The controller's pace has new segments wait until then.
    pub(super) fn pace(&mut self, at: Instant) {
        self.begun().pace_at = at;
    }

    /// With a record of each segment.
    #[inline(always)]
    fn flight_mut(&mut self) -> &mut Flight {
        self.begun().in_full()
    }

    #[inline(always)]
    fn begun(&mut self) -> &mut Flight {
        if self.flight.is_none() {
            self.begin();
        }
        self.flight.get_or_insert_default()
    }

    #[cold]
    #[inline(never)]
    fn begin(&mut self) {
        self.flight = Some(Box::new(self.rested.flight()));
    }

    /// Nothing is in flight any more, and nobody will acknowledge anything.
    pub(super) fn clear(&mut self) {
        if let Some(flight) = &mut self.flight {
            flight.queue.clear();
            (flight.lone, flight.again) = (None, None);
        }
        self.rest();
    }

    /// Lets go of all that an idle connection need not hold.
    pub(super) fn rest(&mut self) {
        let Some(flight) = self.flight.take_if(|flight| flight.is_empty()) else { return };
        self.rested = Rested { delivered: flight.sampler.delivered(), latest: flight.latest.summary() };
    }

    /// The same, where the controller goes on to count from places in the stream.
    pub(super) fn release_idle(&mut self) {
        if let Some(flight) = self.flight.as_mut().filter(|flight| flight.is_empty()) {
            flight.queue = VecDeque::new();
        }
    }

    /// Whether it holds memory.
    #[cfg(test)]
    pub(super) fn holds_memory(&self) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.queue.capacity() > 0)
    }

    /// What a snapshot has of it.
    pub(super) fn written(&self) -> Flight {
        let mut flight = self.flight.as_deref().cloned().unwrap_or_else(|| self.rested.flight());
        flight.in_full();
        flight
    }

    /// As it was elsewhere. (A pace that has it wait for longer than this belongs to another clock, or is made up.)
    pub(super) fn resume(&mut self, now: Instant, written: &Flight) {
        let pace_at = written.pace_at.min(now + PACE_MAX);
        self.flight = Some(Box::new(Flight { pace_at, ..written.clone() }));
    }
}

impl Rested {
    /// What begins after a rest. Until then the program had nothing to send.
    fn flight(&self) -> Flight {
        let &Self { delivered, latest } = self;
        Flight { sampler: RateSampler::after_a_rest(delivered), latest: latest.into(), una_at: delivered, ..Flight::default() }
    }
}

#[cfg(test)]
mod tests;
