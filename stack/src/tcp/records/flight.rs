//! Records in a queue: how they are split, united, acknowledged and lost, and what goes along with them into a snapshot.

use std::collections::VecDeque;

use super::Arrived;
use super::again::Again;
use super::lone::Lone;
use super::overtaken::{Overtaken, ReorderingWindow};
use crate::tcp::congestion::{Latest, RateSampler, SendRecord};
use crate::tcp::fields::{Fields, SnapshotError};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// Up to so many, each segment has a record of its own, however small it is.
pub(super) const SMALL_MAX: usize = 32;
/// So many pieces of records there may be beside those that full segments in flight explain: what a peer that reports byte by byte can have of memory.
pub(super) const PIECES_MAX: usize = 512;
/// No snapshot has more.
const SNAPSHOT_MAX: u32 = 1 << 24;

/// One transmission that is not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tcp) struct Record {
    pub(in crate::tcp) start: SeqNumber,
    pub(in crate::tcp) end: SeqNumber,
    /// What was noted when it was sent last.
    pub(in crate::tcp) sent: SendRecord,
    /// It was sent more than once: its acknowledgment says nothing of a round trip (Karn's algorithm).
    pub(in crate::tcp) again: bool,
    /// The peer has reported it by SACK.
    pub(in crate::tcp) reported: bool,
    /// It counts as lost since it was sent last.
    pub(in crate::tcp) lost: bool,
    /// It was sent again, is lost again, and is to be sent once more.
    pub(in crate::tcp) due: bool,
}

impl Record {
    pub(super) fn len(&self) -> usize {
        self.end.since(self.start)
    }

    fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { start, end, sent, again, reported, lost: is_lost, due } = self;
        fields.number(start)?;
        fields.number(end)?;
        let SendRecord { sent_at, delivered, delivered_at, first_sent_at, lost, tx_in_flight, app_limited } = sent;
        for instant in [sent_at, delivered_at, first_sent_at] {
            fields.instant(instant)?;
        }
        for count in [delivered, lost, tx_in_flight] {
            fields.long(count)?;
        }
        for flag in [app_limited, again, reported, is_lost, due] {
            fields.flag(flag)?;
        }
        Ok(())
    }
}

/// What is in flight, and what has been not long ago.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tcp) struct Flight {
    /// Invariant: in order, disjoint, none empty.
    pub(super) queue: VecDeque<Record>,
    /// What is in flight, if that is one segment of which there is no record: then the queue is empty.
    pub(super) lone: Option<Lone>,
    /// What a recovery has sent again.
    pub(super) again: Option<Box<Again>>,
    pub(super) sampler: RateSampler,
    pub(super) latest: Latest,
    /// Something that begins before this was reported, or sent again: it did not leave in order.
    pub(super) disturbed: Option<SeqNumber>,
    /// SND.UNA as a place in the stream, which does not wrap; and up to where the stream was sent when the window last had no room for more.
    pub(in crate::tcp) una_at: u64,
    pub(in crate::tcp) limited_at: u64,
    /// The most that was in flight since SND.UNA was at `used_to`, or when something was sent then; and up to where it was sent.
    pub(super) used: u64,
    pub(super) used_to: u64,
    /// When the oldest of it times out, whatever comes before.
    pub(in crate::tcp) timeout_at: Instant,
    /// Where what had been sent ended when a probe was sent last, and how many bytes were in flight.
    pub(in crate::tcp) probe_end: Option<SeqNumber>,
    pub(in crate::tcp) probe_flight: u64,
    /// RACK.xmit_ts of what was reported: when that was sent which was sent last.
    pub(super) newest: Instant,
    /// RACK.rtt: how long the report of that took, in nanoseconds.
    pub(super) newest_rtt_ns: u64,
    pub(super) reordering: ReorderingWindow,
    /// What that tells of the rest, until nothing of it is in flight.
    pub(super) overtaken: Option<Overtaken>,
    /// What is newly lost lies behind this: everything before it was looked at since the recovery began.
    pub(in crate::tcp) lost_to: SeqNumber,
    /// No new segment before then, by the controller's pace.
    pub(in crate::tcp) pace_at: Instant,
}

impl Flight {
    /// Whether the last record takes in what follows it: then both are no more than a full segment, and count as sent when the last part was.
    #[inline(never)]
    pub(super) fn merges(&mut self, end: SeqNumber, len: usize, mss: usize, sent: &SendRecord) -> bool {
        let Some(last) = self.queue.back_mut() else { return false };
        // (What is sent after a retransmission is not as old as what was sent before it.)
        let is_older = self.again.as_ref().and_then(|again| again.sent_at()).is_some_and(|at| last.sent.sent_at < at);
        if last.reported || last.again || is_older || last.len() + len > mss {
            return false;
        }
        (last.end, last.sent) = (end, *sent);
        true
    }

    /// Something was sent, after which so many bytes are in flight. (Linux's tcp_cwnd_validate: what counts is the most of a round trip.)
    #[inline(always)]
    pub(super) fn note_used(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        if self.una_at >= self.used_to || bytes > self.used {
            (self.used, self.used_to) = (bytes, self.una_at + bytes);
        }
    }

    /// Everything before `ack` is acknowledged.
    #[inline(always)]
    pub(super) fn acknowledge(&mut self, now: Instant, ack: SeqNumber, shortest_ns: u64, arrived: &mut Arrived) {
        if self.disturbed.is_some() || !arrived.report.is_empty() {
            return self.acknowledge_at_length(now, ack, shortest_ns, arrived);
        }
        loop {
            let is_only = self.queue.len() == 1;
            let Some(front) = self.queue.front_mut().filter(|front| front.start.lt(ack)) else { return };
            let is_whole = front.end.le(ack);
            let bytes = if is_whole { front.len() } else { ack.since(front.start) } as u64;
            if is_whole {
                arrived.oldest = arrived.oldest.or(Some(front.sent.sent_at));
                arrived.latest = Some(front.sent.sent_at);
            }
            // What was sent once was sent in order.
            if front.end.lt(ack) && !is_only {
                self.sampler.on_older_delivered(bytes);
                self.queue.pop_front();
                continue;
            }
            self.sampler.on_newest_delivered(&mut arrived.report, now, &front.sent, bytes, u64::from(front.end.0));
            arrived.partial = !is_whole;
            if is_whole {
                self.queue.pop_front();
            } else {
                front.start = ack;
            }
            return;
        }
    }

    /// The same, where something was sent again or reported of what is acknowledged.
    #[inline(never)]
    fn acknowledge_at_length(&mut self, now: Instant, ack: SeqNumber, shortest_ns: u64, arrived: &mut Arrived) {
        while let Some(front) = self.queue.front_mut() {
            if front.start.ge(ack) {
                break;
            }
            let is_whole = front.end.le(ack);
            if !front.reported {
                let bytes = if is_whole { front.len() } else { ack.since(front.start) };
                let id = u64::from(front.end.0);
                self.sampler.on_delivered(&mut arrived.report, now, &front.sent, bytes as u64, id);
                if let Some(again) = &mut self.again {
                    again.on_delivered(now, front, bytes, shortest_ns);
                }
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
        self.disturbed = self.disturbed.filter(|end| end.gt(ack));
        self.overtaken = self.overtaken.filter(|_| self.disturbed.is_some());
    }

    /// Of what is in flight, something is reported or sent again.
    fn disturb(&mut self) {
        self.disturbed = self.queue.back().map(|last| last.end);
    }

    pub(super) fn report(
        &mut self,
        now: Instant,
        (start, end): (SeqNumber, SeqNumber),
        mss: usize,
        shortest_ns: u64,
        arrived: &mut Arrived,
    ) {
        self.disturb();
        self.split(start, mss);
        self.split(end, mss);
        let from = self.queue.partition_point(|record| record.start.lt(start));
        let mut to = from;
        while let Some(record) = self.queue.get_mut(to).filter(|record| record.end.le(end)) {
            if !core::mem::replace(&mut record.reported, true) {
                let id = u64::from(record.end.0);
                self.sampler.on_delivered(&mut arrived.report, now, &record.sent, record.len() as u64, id);
                if let Some(again) = &mut self.again {
                    again.on_delivered(now, record, record.len(), shortest_ns);
                }
                record.due = false;
                // RFC 8985 s6.2 step 2: what is reported sooner than anything can be answered had arrived before it was sent again.
                let took_ns = now.as_nanos().saturating_sub(record.sent.sent_at.as_nanos());
                if (!record.again || took_ns >= shortest_ns) && record.sent.sent_at >= self.newest {
                    (self.newest, self.newest_rtt_ns) = (record.sent.sent_at, took_ns);
                }
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

    /// `karn`: what is sent again is not timed. (A mutant goes on to time the first transmission.)
    pub(super) fn resend(&mut self, now: Instant, (start, end): (SeqNumber, SeqNumber), in_flight: usize, mss: usize, karn: bool) {
        self.disturb();
        self.split(start, mss);
        self.split(end, mss);
        let sent = self.sampler.on_sent(now, end.since(start) as u64, in_flight as u64);
        let from = self.queue.partition_point(|record| record.end.le(start));
        for record in self.queue.range_mut(from..).take_while(|record| record.start.lt(end)) {
            if karn {
                (record.sent, record.again) = (sent, true);
            }
            record.lost = false;
        }
        self.follow_resent(now, (start, end));
    }

    pub(super) fn lose(&mut self, edge: SeqNumber, mss: usize) -> Option<Record> {
        self.split(edge, mss);
        let from = self.queue.partition_point(|record| record.end.le(self.lost_to));
        for record in self.queue.range_mut(from..).take_while(|record| record.start.lt(edge)) {
            self.lost_to = record.end;
            if !record.reported && !core::mem::replace(&mut record.lost, true) {
                self.sampler.on_lost(record.len() as u64);
                return Some(*record);
            }
        }
        None
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

    /// What is in flight, of which nobody knows when it was sent.
    pub(in crate::tcp) fn of_unknown((una, nxt): (SeqNumber, SeqNumber), now: Instant) -> Self {
        let sent = SendRecord { sent_at: now, delivered_at: now, first_sent_at: now, ..SendRecord::default() };
        let record = Record { start: una, end: nxt, sent, again: true, reported: false, lost: false, due: false };
        Self {
            queue: (una != nxt).then_some(record).into_iter().collect(),
            disturbed: (una != nxt).then_some(nxt),
            lost_to: una,
            ..Self::default()
        }
    }

    /// What it consists of, for a snapshot. (One record after the other: there is no room for more than the bytes say.)
    pub(in crate::tcp) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        // (What is written down has a record of each: see [`super::Records::written`].)
        let Self { queue, lone: _, again, sampler, latest, disturbed, una_at, limited_at, used, used_to, lost_to, pace_at, .. } = self;
        let Self { timeout_at, probe_end, probe_flight, newest, newest_rtt_ns, reordering, overtaken, .. } = self;
        let mut count = queue.len() as u32;
        fields.word_at_most(&mut count, SNAPSHOT_MAX)?;
        for index in 0..count as usize {
            if index == queue.len() {
                queue.push_back(Record::default());
            }
            queue[index].walk(fields)?;
        }
        sampler.walk(fields)?;
        latest.walk(fields)?;
        fields.option(disturbed, |fields, end| fields.number(end))?;
        fields.option(again, |fields, again| again.walk(fields, queue))?;
        fields.count_of(una_at)?;
        fields.count_of(limited_at)?;
        fields.count_of(used)?;
        fields.count_of(used_to)?;
        fields.instant(timeout_at)?;
        fields.option(probe_end, |fields, end| fields.number(end))?;
        fields.count_of(probe_flight)?;
        fields.instant(newest)?;
        fields.count_of(newest_rtt_ns)?;
        reordering.walk(fields)?;
        fields.option(overtaken, |fields, overtaken| overtaken.walk(fields))?;
        fields.number(lost_to)?;
        fields.instant(pace_at)
    }

    /// Whether it can be what is in flight.
    pub(in crate::tcp) fn fits(&self, una: SeqNumber, nxt: SeqNumber) -> bool {
        let nexts = self.queue.iter().skip(1);
        let are_apart = self.queue.iter().zip(nexts).all(|(record, next)| record.end.le(next.start));
        let in_order = |record: &Record| !(record.again || record.reported) || self.disturbed.is_some_and(|end| record.end.le(end));
        are_apart
            && self.queue.iter().all(|record| record.start.ge(una) && record.end.gt(record.start) && record.end.le(nxt) && in_order(record))
    }
}
