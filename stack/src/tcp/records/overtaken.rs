//! What was sent once and is lost by the time at which it was: RACK (RFC 8985 s6.2), when an acknowledgment comes, or when the reordering window is over. (What was sent
//! again is looked after in `again`.)

use super::flight::Flight;
use crate::tcp::fields::{Fields, SnapshotError};
use crate::tcp::rtt::Rtt;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// How many recoveries a window outlasts that was too small (RFC 8985 s6.2 step 4).
const PERSISTS: u32 = 16;

/// How far what is in flight has been looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tcp) struct Overtaken {
    /// What was sent once, and begins before this, is lost unless it is reported.
    pub(super) edge: SeqNumber,
    /// What begins before this is either that, or was reported or sent again.
    seen: SeqNumber,
}

impl Overtaken {
    pub(super) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { edge, seen } = self;
        fields.number(edge)?;
        fields.number(seen)
    }
}

/// How much later than another segment one may have been sent, and arrive before it, without that being lost (RFC 8985 s6.2 step 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tcp) struct ReorderingWindow {
    /// By how many quarters of the shortest round trip it is more than one (RACK.reo_wnd_mult).
    more: u32,
    /// How many recoveries that will last (RACK.reo_wnd_persist).
    persists: u32,
    /// No second one is added before what was sent by then is acknowledged (RACK.dsack_round).
    round: Option<SeqNumber>,
}

impl ReorderingWindow {
    pub(super) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { more, persists, round } = self;
        fields.word_at_most(more, u32::MAX)?;
        fields.word_at_most(persists, PERSISTS)?;
        fields.option(round, |fields, round| fields.number(round))
    }

    /// In nanoseconds; none, until a round trip is known.
    pub(super) fn ns(&self, rtt: &Rtt) -> Option<u64> {
        let shortest_ns = Some(rtt.shortest_ns()).filter(|&ns| ns != u64::MAX)?;
        let window_ns = (shortest_ns / 4).saturating_mul(u64::from(self.more) + 1);
        Some(if self.more == 0 { window_ns } else { window_ns.min(rtt.srtt_ns().max(shortest_ns / 4)) })
    }

    /// The peer tells, with everything before `una` acknowledged, that something which was sent again had arrived (RFC 2883).
    pub(super) fn widen(&mut self, una: SeqNumber, nxt: SeqNumber) {
        if self.round.is_none_or(|round| una.ge(round)) {
            *self = Self { more: self.more.saturating_add(1), persists: PERSISTS, round: Some(nxt) };
        }
    }

    /// A recovery is over.
    pub(super) fn recovered(&mut self) {
        self.persists = self.persists.saturating_sub(1);
        if self.persists == 0 {
            self.more = 0;
        }
    }
}

impl Flight {
    /// Something was reported. Whether anything was sent before it, by more than the reordering window, or by any time at all (`is_any`).
    pub(super) fn note_overtaken(&mut self, rtt: &Rtt, is_any: bool) -> bool {
        let Some(first) = self.queue.front().map(|front| front.start) else { return false };
        let Some(window_ns) = self.reordering.ns(rtt).map(|ns| if is_any { 0 } else { ns }) else { return false };
        let before = self.overtaken.map_or(first, |overtaken| overtaken.seen.max(first));
        let mut found = self.overtaken.filter(|overtaken| overtaken.edge.gt(first));
        let from = self.queue.partition_point(|record| record.end.le(before));
        for record in self.queue.range(from..) {
            if !record.reported && !record.again {
                if record.sent.sent_at.as_nanos().saturating_add(window_ns) >= self.newest.as_nanos() {
                    break;
                }
                found = Some(Overtaken { edge: record.end, seen: record.end });
            }
            if let Some(found) = &mut found {
                found.seen = record.end;
            }
        }
        self.overtaken = found;
        found.is_some()
    }

    /// The last of those that were sent once, and before something that was reported. (What was sent once was sent in order.)
    fn last_overtakable(&self) -> Option<(Instant, SeqNumber)> {
        let reported = self.queue.iter().rposition(|record| record.reported)?;
        let last = self.queue.range(..reported).rev().find(|record| !record.reported && !record.again)?;
        (last.sent.sent_at <= self.newest).then_some((last.sent.sent_at, last.end))
    }

    /// When all that was sent before something that has arrived counts as lost, if nothing more arrives (RFC 8985 s6.2 step 5): a round trip after it was sent, as long
    /// as the one of what arrived, and the reordering window.
    pub(super) fn reordering_ends(&self, rtt: &Rtt) -> Option<Instant> {
        let window_ns = self.reordering.ns(rtt)?;
        let (sent_at, _) = self.last_overtakable()?;
        Some(Instant::from_nanos(sent_at.as_nanos().saturating_add(self.newest_rtt_ns).saturating_add(window_ns)))
    }

    /// That time has come.
    pub(super) fn end_reordering(&mut self) {
        if let Some((_, end)) = self.last_overtakable() {
            self.overtaken = Some(Overtaken { edge: end, seen: end });
        }
    }
}
