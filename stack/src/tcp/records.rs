//! What was sent and is not acknowledged, segment by segment: when each of them left, whether it did so again, and what had been delivered by then.
//! Round trips (RFC 6298 s3) and delivery rates (draft-ietf-ccwg-bbr s4.1) are taken from here.
//!
//! What the device cuts into several segments has one record, of which pieces become records of their own where the peer reports a part of it, or where a
//! part of it is sent again. Small segments that are sent one after the other while many are on their way share one. So there are not many more records than
//! full segments in flight, and none where nothing is.

use core::time::Duration;
use std::collections::VecDeque;

use super::congestion::{Latest, RateSample, RateSampler, Report, SendRecord};
use super::fields::{Fields, SnapshotError};
use super::rtt::Rtt;
use crate::mutants::{Mutant, Mutation};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// Up to so many, each segment has a record of its own, however small it is.
const SMALL_MAX: usize = 32;
/// So many pieces of records there may be beside those that full segments in flight explain: what a peer that reports byte by byte can have of memory.
const PIECES_MAX: usize = 512;
/// No snapshot has more.
const SNAPSHOT_MAX: u32 = 1 << 24;

/// One transmission that is not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) start: SeqNumber,
    pub(super) end: SeqNumber,
    /// What was noted when it was sent last.
    pub(super) sent: SendRecord,
    /// It was sent more than once: its acknowledgment says nothing of a round trip (Karn's algorithm).
    pub(super) again: bool,
    /// The peer has reported it by SACK.
    pub(super) reported: bool,
    /// It counts as lost since it was sent last.
    pub(super) lost: bool,
}

impl Record {
    fn len(&self) -> usize {
        self.end.since(self.start)
    }

    fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { start, end, sent, again, reported, lost: is_lost } = self;
        fields.number(start)?;
        fields.number(end)?;
        let SendRecord { sent_at, delivered, delivered_at, first_sent_at, lost, tx_in_flight, app_limited } = sent;
        for instant in [sent_at, delivered_at, first_sent_at] {
            fields.instant(instant)?;
        }
        for count in [delivered, lost, tx_in_flight] {
            fields.long(count)?;
        }
        for flag in [app_limited, again, reported, is_lost] {
            fields.flag(flag)?;
        }
        Ok(())
    }
}

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

/// The records of a connection.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Invariant: in order, disjoint, none empty.
    queue: VecDeque<Record>,
    sampler: RateSampler,
    latest: Latest,
    mutation: Mutation,
}

impl Records {
    /// The same as a mutant.
    pub(super) fn of(self, mutation: Mutation) -> Self {
        Self { mutation, ..self }
    }

    /// `[start, end)` was sent for the first time, with `in_flight` bytes in the network before it, in full segments of `mss` bytes.
    #[inline(always)]
    pub(super) fn push(&mut self, now: Instant, (start, end): (SeqNumber, SeqNumber), in_flight: usize, mss: usize) {
        let len = end.since(start);
        let sent = self.sampler.on_sent(now, len as u64, in_flight as u64);
        if self.queue.len() >= SMALL_MAX && self.merges(end, len, mss, &sent) {
            return;
        }
        self.queue.push_back(Record { start, end, sent, again: false, reported: false, lost: false });
    }

    /// Whether the last record takes in what follows it: then both are no more than a full segment, and count as sent when the last part was.
    #[inline(never)]
    fn merges(&mut self, end: SeqNumber, len: usize, mss: usize, sent: &SendRecord) -> bool {
        let Some(last) = self.queue.back_mut() else { return false };
        if last.reported || last.len() + len > mss {
            return false;
        }
        (last.end, last.sent) = (end, *sent);
        true
    }

    /// Everything before `ack` is acknowledged in order.
    #[inline(always)]
    pub(super) fn acknowledge(&mut self, now: Instant, ack: SeqNumber, arrived: &mut Arrived) {
        let newest = self.mutation.is(Mutant::RttOfLastSegment).then(|| self.queue.back().map(|last| last.sent.sent_at)).flatten();
        while let Some(front) = self.queue.front_mut() {
            if front.start.ge(ack) {
                break;
            }
            let is_whole = front.end.le(ack);
            if !front.reported {
                let bytes = if is_whole { front.len() } else { ack.since(front.start) };
                let id = u64::from(front.end.0);
                self.sampler.on_delivered(&mut arrived.report, now, &front.sent, bytes as u64, id);
                arrived.ambiguous |= front.again;
                if is_whole && arrived.oldest.is_none() && !front.again {
                    arrived.oldest = Some(front.sent.sent_at);
                }
                if is_whole {
                    arrived.take(front);
                }
                arrived.partial = !is_whole;
            }
            if !is_whole {
                front.start = ack;
                break;
            }
            self.queue.pop_front();
        }
        if self.mutation.is(Mutant::RttEndsAtAnyAck)
            && let Some(front) = self.queue.front()
        {
            arrived.oldest = Some(front.sent.sent_at);
        }
        arrived.oldest = newest.or(arrived.oldest);
    }

    /// The peer reports `[start, end)` by SACK, of which it may have reported parts before.
    pub(super) fn report(&mut self, now: Instant, (start, end): (SeqNumber, SeqNumber), mss: usize, arrived: &mut Arrived) {
        self.split(start, mss);
        self.split(end, mss);
        let from = self.queue.partition_point(|record| record.start.lt(start));
        let mut to = from;
        while let Some(record) = self.queue.get_mut(to).filter(|record| record.end.le(end)) {
            if !core::mem::replace(&mut record.reported, true) {
                let id = u64::from(record.end.0);
                self.sampler.on_delivered(&mut arrived.report, now, &record.sent, record.len() as u64, id);
                arrived.take(record);
            }
            to += 1;
        }
        self.unite(from, to);
    }

    /// What has arrived is never sent again, nor asked after, so that all that was reported in a row needs but one record: those at `[from, to)` and what was
    /// reported beside them.
    fn unite(&mut self, from: usize, to: usize) {
        let is_reported = |index: Option<usize>| index.and_then(|index| self.queue.get(index)).is_some_and(|record| record.reported);
        let first = if is_reported(from.checked_sub(1)) { from - 1 } else { from };
        let end = if is_reported(Some(to)) { to + 1 } else { to };
        if from == to || end - first < 2 {
            return;
        }
        let Some(&last) = self.queue.get(end - 1) else { return };
        let start = self.queue[first].start;
        self.queue.drain(first + 1..end);
        self.queue[first] = Record { start, ..last };
    }

    /// Nothing counts as reported any more (RFC 2018 s8).
    pub(super) fn forget_reports(&mut self) {
        self.queue.iter_mut().for_each(|record| record.reported = false);
    }

    /// `[start, end)` was sent again, with `in_flight` bytes in the network before it.
    pub(super) fn resend(&mut self, now: Instant, (start, end): (SeqNumber, SeqNumber), in_flight: usize, mss: usize) {
        self.split(start, mss);
        self.split(end, mss);
        let sent = self.sampler.on_sent(now, end.since(start) as u64, in_flight as u64);
        let karn = !self.mutation.is(Mutant::KarnIgnored);
        let from = self.queue.partition_point(|record| record.end.le(start));
        for record in self.queue.range_mut(from..).take_while(|record| record.start.lt(end)) {
            // (A mutant goes on to time the first transmission.)
            if karn {
                (record.sent, record.again) = (sent, true);
            }
            record.lost = false;
        }
    }

    /// The first that counts as lost now, of what was sent from `looked_to` to `edge`, has not arrived, and does not count as lost already. Everything before it
    /// was looked at.
    pub(super) fn lose(&mut self, looked_to: &mut SeqNumber, edge: SeqNumber, mss: usize) -> Option<Record> {
        self.split(edge, mss);
        let from = self.queue.partition_point(|record| record.end.le(*looked_to));
        for record in self.queue.range_mut(from..).take_while(|record| record.start.lt(edge)) {
            *looked_to = record.end;
            if !record.reported && !core::mem::replace(&mut record.lost, true) {
                self.sampler.on_lost(record.len() as u64);
                return Some(*record);
            }
        }
        None
    }

    /// All that was ever counted as lost.
    pub(super) fn lost(&self) -> u64 {
        self.sampler.lost()
    }

    /// All that was ever delivered.
    #[inline]
    pub(super) fn delivered(&self) -> u64 {
        self.sampler.delivered()
    }

    /// Bytes that count as lost and have not been sent again since.
    pub(super) fn lost_bytes(&self) -> usize {
        self.queue.iter().filter(|record| record.lost && !record.reported).map(Record::len).sum()
    }

    /// How fast the path delivered, as an acknowledgment tells that was given to [`Records::acknowledge`] or [`Records::report`].
    #[inline]
    pub(super) fn sample(&mut self, arrived: &mut Arrived, rtt: &Rtt) -> Option<RateSample> {
        let sample = self.sampler.sample(&mut arrived.report, rtt.shortest());
        if let Some(sample) = &sample {
            self.latest.take(sample);
        }
        sample
    }

    /// The delivery rate in bytes per second, and whether the program limited it.
    pub(super) fn delivery_rate(&self) -> (u64, bool) {
        self.latest.rate()
    }

    /// What is sent from now on tells less of the path than it could.
    #[inline(always)]
    pub(super) fn mark_app_limited(&mut self, in_flight: u64) {
        self.sampler.mark_app_limited(in_flight);
    }

    /// Whether it does.
    #[inline(always)]
    pub(super) fn is_app_limited(&self) -> bool {
        self.sampler.is_app_limited()
    }

    /// Makes two of the record that `at` lies in, unless there are too many pieces.
    fn split(&mut self, at: SeqNumber, mss: usize) {
        let index = self.queue.partition_point(|record| record.end.le(at));
        let Some(&record) = self.queue.get(index).filter(|record| record.start.lt(at)) else { return };
        if self.queue.len() >= self.most(mss) {
            return;
        }
        self.queue[index].start = at;
        self.queue.insert(index, Record { end: at, ..record });
    }

    /// The most records that there are, for what is in flight.
    fn most(&self, mss: usize) -> usize {
        let flight = match (self.queue.front(), self.queue.back()) {
            (Some(first), Some(last)) => last.end.since(first.start),
            _ => 0,
        };
        PIECES_MAX + SMALL_MAX + 2 * flight / mss.max(1)
    }

    /// Nothing is in flight any more, and nobody will acknowledge anything.
    pub(super) fn clear(&mut self) {
        self.queue = VecDeque::new();
    }

    /// Lets go of what an idle connection need not hold.
    pub(super) fn release_idle(&mut self) {
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
    }

    /// Whether it holds memory.
    #[cfg(test)]
    pub(super) fn holds_memory(&self) -> bool {
        self.queue.capacity() > 0
    }

    /// What a snapshot has of it.
    pub(super) fn written(&self) -> Written {
        Written { records: self.queue.iter().copied().collect(), sampler: self.sampler.clone(), latest: self.latest }
    }

    /// As it was elsewhere.
    pub(super) fn resume(&mut self, written: &Written) {
        let Written { records, sampler, latest } = written;
        self.queue.clear();
        self.queue.extend(records);
        (self.sampler, self.latest) = (sampler.clone(), *latest);
    }
}

/// Records that were written down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    records: Vec<Record>,
    sampler: RateSampler,
    latest: Latest,
}

impl Written {
    /// What is in flight, of which nobody knows when it was sent.
    pub(super) fn of_unknown((una, nxt): (SeqNumber, SeqNumber), now: Instant) -> Self {
        let sent = SendRecord { sent_at: now, delivered_at: now, first_sent_at: now, ..SendRecord::default() };
        let record = Record { start: una, end: nxt, sent, again: true, reported: false, lost: false };
        Self { records: (una != nxt).then_some(record).into_iter().collect(), ..Self::default() }
    }

    /// What they consist of, for a snapshot. (One after the other: there is no room for more than the bytes say.)
    pub(super) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { records, sampler, latest } = self;
        let mut count = records.len() as u32;
        fields.word_at_most(&mut count, SNAPSHOT_MAX)?;
        for index in 0..count as usize {
            if index == records.len() {
                records.push(Record::default());
            }
            records[index].walk(fields)?;
        }
        sampler.walk(fields)?;
        latest.walk(fields)
    }

    /// Whether they can be of what is in flight.
    pub(super) fn fit(&self, una: SeqNumber, nxt: SeqNumber) -> bool {
        let are_apart = self.records.windows(2).all(|pair| pair[0].end.le(pair[1].start));
        are_apart && self.records.iter().all(|record| record.start.ge(una) && record.end.gt(record.start) && record.end.le(nxt))
    }
}

#[cfg(test)]
mod tests;
