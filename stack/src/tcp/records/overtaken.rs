//! What was sent once and is lost by the time at which it was: RACK (RFC 8985 s6.2), when an acknowledgment comes. (What was sent again is looked after in `again`.)

use super::flight::Flight;
use crate::tcp::fields::{Fields, SnapshotError};
use crate::wire::tcp::SeqNumber;

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

impl Flight {
    /// Something was reported. Whether anything was sent before it, by more than the reordering window, which is a quarter of the shortest round trip (RFC 8985 s6.2
    /// step 4), or by any time at all (`is_any`).
    pub(super) fn note_overtaken(&mut self, shortest_ns: u64, is_any: bool) -> bool {
        let Some(first) = self.queue.front().map(|front| front.start).filter(|_| shortest_ns != u64::MAX) else { return false };
        let window_ns = if is_any { 0 } else { shortest_ns / 4 };
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
}
