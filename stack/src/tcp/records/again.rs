//! What was sent again and is lost again: RACK (RFC 8985), by which the time of sending tells of a loss, and not the place in the stream, where all that is sent again lies
//! below what has arrived.
//!
//! Of the RFC this is the part that nothing else does: first transmissions are lost by RFC 6675. And a loss is found when an acknowledgment comes (s6.2); for what none
//! comes after, there is the retransmission timer.

use std::collections::VecDeque;

use super::flight::{Flight, Record};
use crate::tcp::fields::{Fields, SnapshotError};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// So many retransmissions are looked after at a time; of more, the oldest ones are left to the timer.
const RESENT_MAX: usize = 4096;
/// No snapshot has more that is to be sent once more.
const DUE_MAX: u32 = 1 << 24;

/// The retransmissions of one recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Again {
    /// RACK.xmit_ts: when that was sent which was sent last of all that has arrived.
    newest: Instant,
    /// In the order in which they left. (So what an acknowledgment tells costs no more than what it tells of.)
    resent: VecDeque<Resent>,
    /// What is to be sent once more: those of its records that say so.
    due: VecDeque<(SeqNumber, SeqNumber)>,
    /// How many bytes they have.
    due_bytes: usize,
    /// When the window came down last for a loss.
    reduced_at: Instant,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Resent {
    at: Instant,
    start: SeqNumber,
    end: SeqNumber,
}

impl Again {
    /// `bytes` of `record` have arrived, which had not before.
    pub(super) fn on_delivered(&mut self, now: Instant, record: &Record, bytes: usize, shortest_ns: u64) {
        if record.due {
            self.due_bytes = self.due_bytes.saturating_sub(bytes);
        }
        // RFC 8985 s6.2 step 2: what comes sooner after a retransmission than the shortest round trip answers what was sent before it, and tells nothing of that.
        let sent_at = record.sent.sent_at;
        if record.again && now.as_nanos().saturating_sub(sent_at.as_nanos()) < shortest_ns {
            return;
        }
        self.newest = self.newest.max(sent_at);
    }

    /// What it consists of beside the records, for a snapshot.
    pub(super) fn walk(&mut self, fields: &mut impl Fields, queue: &VecDeque<Record>) -> Result<(), SnapshotError> {
        let Self { newest, resent, due, due_bytes, reduced_at } = self;
        fields.instant(newest)?;
        fields.instant(reduced_at)?;
        let mut count = resent.len() as u32;
        fields.word_at_most(&mut count, RESENT_MAX as u32)?;
        for index in 0..count as usize {
            if index == resent.len() {
                resent.push_back(Resent::default());
            }
            let Resent { at, start, end } = &mut resent[index];
            fields.instant(at)?;
            fields.number(start)?;
            fields.number(end)?;
        }
        let mut count = due.len() as u32;
        fields.word_at_most(&mut count, DUE_MAX)?;
        for index in 0..count as usize {
            if index == due.len() {
                due.push_back(Default::default());
            }
            let (start, end) = &mut due[index];
            fields.number(start)?;
            fields.number(end)?;
        }
        *due_bytes = queue.iter().filter(|record| record.due && !record.reported).map(Record::len).sum();
        Ok(())
    }

    pub(super) fn sent_at(&self) -> Option<Instant> {
        self.resent.back().map(|resent| resent.at)
    }

    fn on_resent(&mut self, at: Instant, (start, end): (SeqNumber, SeqNumber)) {
        if self.resent.len() >= RESENT_MAX {
            self.resent.pop_front();
        }
        self.resent.push_back(Resent { at, start, end });
    }
}

impl Flight {
    /// A recovery begins, in which the peer reports what arrives.
    pub(super) fn follow(&mut self, now: Instant) {
        self.unfollow();
        self.again = Some(Box::new(Again { reduced_at: now, ..Again::default() }));
    }

    /// It is over.
    pub(super) fn unfollow(&mut self) {
        if self.again.take().is_some_and(|again| again.due_bytes > 0) {
            self.queue.iter_mut().for_each(|record| record.due = false);
        }
    }

    /// `[start, end)` was sent again.
    pub(super) fn follow_resent(&mut self, now: Instant, (start, end): (SeqNumber, SeqNumber)) {
        let Some(again) = &mut self.again else { return };
        let from = self.queue.partition_point(|record| record.end.le(start));
        for record in self.queue.range_mut(from..).take_while(|record| record.start.lt(end)) {
            if core::mem::take(&mut record.due) {
                again.due_bytes = again.due_bytes.saturating_sub(record.len());
            }
        }
        again.on_resent(now, (start, end));
    }

    /// The next that counts as lost again, which it did not before; and whether it was sent since the window came down last: then it is one loss more.
    ///
    /// RFC 8985 s6.2 step 5: it is, if what was sent later has arrived, by more than the reordering window, which is a quarter of the shortest round trip (step 4).
    pub(super) fn lose_again(&mut self, now: Instant, shortest_ns: u64) -> Option<(Record, bool)> {
        let again = self.again.as_mut().filter(|_| shortest_ns != u64::MAX)?;
        let window_ns = shortest_ns / 4;
        while let Some(resent) = again.resent.front_mut() {
            let at = resent.at.as_nanos();
            if at >= again.newest.as_nanos() || at.saturating_add(window_ns) > again.newest.as_nanos() {
                return None;
            }
            let from = self.queue.partition_point(|record| record.end.le(resent.start));
            let (sent_at, end) = (resent.at, resent.end);
            let mut range = self.queue.range_mut(from..).take_while(|record| record.start.lt(end));
            let on_its_way = |record: &Record| record.again && !record.reported && !record.lost && record.sent.sent_at == sent_at;
            let Some(record) = range.find(|record| on_its_way(record)) else {
                again.resent.pop_front();
                continue;
            };
            (record.lost, record.due) = (true, true);
            resent.start = record.end;
            again.due_bytes += record.len();
            again.due.push_back((record.start, record.end));
            self.sampler.on_lost(record.len() as u64);
            let is_new = sent_at >= again.reduced_at;
            if is_new {
                again.reduced_at = now;
            }
            return Some((*record, is_new));
        }
        None
    }

    /// The first that is to be sent once more.
    pub(super) fn due(&mut self) -> Option<(SeqNumber, SeqNumber)> {
        let again = self.again.as_mut()?;
        while let Some((start, end)) = again.due.front_mut() {
            let from = self.queue.partition_point(|record| record.end.le(*start));
            let mut range = self.queue.range(from..).take_while(|record| record.start.lt(*end));
            if let Some(record) = range.find(|record| record.due && !record.reported) {
                *start = record.start;
                return Some((record.start, record.end));
            }
            again.due.pop_front();
        }
        None
    }

    pub(super) fn due_bytes(&self) -> usize {
        self.again.as_ref().map_or(0, |again| again.due_bytes)
    }
}
