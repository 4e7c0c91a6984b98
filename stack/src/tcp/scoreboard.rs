//! What the peer reported to have received out of order, and what follows about losses (RFC 6675).

use crate::mutants::{Mutant, Mutation};
use crate::wire::tcp::{SackBlock, SeqNumber};

/// The most separate ranges that are remembered; further reports are ignored (the bytes are then sent once more than needed).
pub(super) const RANGES_MAX: usize = 256;

/// The reported ranges above `snd_una`.
#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    /// (Apart, since of most connections nothing is reported.)
    reported: Option<Box<Reported>>,
    mutation: Mutation,
}

#[derive(Debug, Default)]
struct Reported {
    /// Invariant: in order, disjoint, not adjacent, none empty.
    ranges: Vec<SackBlock>,
    bytes: usize,
}

impl Scoreboard {
    /// The same as a mutant.
    pub(super) fn of(self, mutation: Mutation) -> Self {
        Self { mutation, ..self }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.reported.as_ref().is_none_or(|reported| reported.ranges.is_empty())
    }

    /// The reported ranges, in order.
    pub(super) fn ranges(&self) -> &[SackBlock] {
        // (How many bytes they have, follows.)
        self.reported.as_ref().map_or(&[], |reported| &reported.ranges)
    }

    /// Bytes reported.
    pub(super) fn bytes(&self) -> usize {
        self.reported.as_ref().map_or(0, |reported| reported.bytes)
    }

    /// The first reported byte.
    pub(super) fn first(&self) -> Option<SeqNumber> {
        self.ranges().first().map(|range| range.start)
    }

    pub(super) fn clear(&mut self) {
        *self = Self { mutation: self.mutation, ..Self::default() };
    }

    /// Takes in a reported block; what lies outside of `[una, nxt]` is nonsense, or a duplicate's report. Whether it told anything new.
    pub(super) fn add(&mut self, block: SackBlock, una: SeqNumber, nxt: SeqNumber) -> bool {
        let SackBlock { mut start, mut end } = block;
        let beyond = (start.ge(nxt) || end.gt(nxt)) && !self.mutation.is(Mutant::SackOfUnsentTaken);
        // (A block from half the sequence space away seems to begin behind `una` and to end before `nxt`.)
        if start.ge(end) || start.lt(una) || beyond {
            return false;
        }
        let Reported { ranges, bytes } = &mut **self.reported.get_or_insert_default();
        let from = ranges.partition_point(|range| range.end.lt(start));
        let to = ranges.partition_point(|range| range.start.le(end));
        if let Some(touched) = ranges.get(from..to)
            && let (Some(first), Some(last)) = (touched.first(), touched.last())
        {
            if touched.len() == 1 && first.start.le(start) && first.end.ge(end) {
                return false;
            }
            start = start.min(first.start);
            end = end.max(last.end);
        } else if ranges.len() >= RANGES_MAX {
            return false;
        }
        let replaced: usize = ranges[from..to].iter().map(|range| range.end.since(range.start)).sum();
        let replaced = if self.mutation.is(Mutant::SackedTwiceCounted) { 0 } else { replaced };
        *bytes = *bytes - replaced + end.since(start);
        ranges.splice(from..to, [SackBlock { start, end }]);
        true
    }

    /// Everything before `una` is acknowledged.
    pub(super) fn advance(&mut self, una: SeqNumber) {
        let Some(reported) = &mut self.reported else { return };
        let Reported { ranges, bytes } = &mut **reported;
        let done = ranges.partition_point(|range| range.end.le(una));
        ranges.drain(..done);
        if let Some(first) = ranges.first_mut() {
            first.start = first.start.max(una);
        }
        if self.mutation.is(Mutant::ReportedBytesMiscounted) {
            return;
        }
        *bytes = ranges.iter().map(|range| range.end.since(range.start)).sum();
        if ranges.is_empty() {
            self.reported = None;
        }
    }

    /// Holes before this number are lost: more than two segments' worth of bytes arrived behind them (RFC 6675 s4, `IsLost`).
    pub(super) fn loss_edge(&self, mss: usize) -> Option<SeqNumber> {
        let mut above = 0;
        for range in self.ranges().iter().rev() {
            above += range.end.since(range.start);
            let enough = if self.mutation.is(Mutant::LostAfterOne) { 0 } else { 2 * mss };
            if above > enough || (above == enough && self.mutation.is(Mutant::LostAfterExactlyTwo)) {
                return Some(range.start);
            }
        }
        None
    }

    /// Whether so many bytes in a row have arrived behind a hole.
    pub(super) fn has_range_of(&self, len: usize) -> bool {
        self.ranges().iter().any(|range| range.end.since(range.start) >= len)
    }

    /// The first hole in `[from, to)`.
    pub(super) fn next_hole(&self, from: SeqNumber, to: SeqNumber) -> Option<(SeqNumber, SeqNumber)> {
        let mut start = from;
        let first = self.ranges().partition_point(|range| range.end.le(from));
        for range in &self.ranges()[first..] {
            if range.start.gt(start) {
                break;
            }
            start = range.end;
        }
        let next = self.ranges().partition_point(|range| range.start.le(start));
        let end = self.ranges().get(next).map_or(to, |range| range.start.min(to));
        start.lt(end).then_some((start, end))
    }

    /// Bytes of the holes in `[from, to)`.
    pub(super) fn hole_bytes(&self, from: SeqNumber, to: SeqNumber) -> usize {
        let first = self.ranges().partition_point(|range| range.end.le(from));
        let covered: usize = self.ranges()[first..]
            .iter()
            .take_while(|range| range.start.lt(to))
            .map(|range| range.end.min(to).since(range.start.max(from)))
            .sum();
        to.since(from).saturating_sub(covered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_outside_of_what_is_in_flight_tells_nothing() {
        let (una, nxt) = (SeqNumber(1000), SeqNumber(3000));
        let mut board = Scoreboard::default();
        let far = |by: u32| SeqNumber(1000u32.wrapping_add(by));
        let nonsense = [
            (far(2000), far(2001)),
            (far(1500), far(2500)),
            (far(u32::MAX - 500), far(500)),
            (far(1500), far(1500)),
            (far(1500), far(500)),
            // Around the point that is as far ahead as it is behind.
            (far((1 << 31) - 500), far((1 << 31) + 500)),
            (far((1 << 31) - 70_000_000), far((1 << 31) + 40_000_000)),
        ];
        for (start, end) in nonsense {
            assert!(!board.add(SackBlock { start, end }, una, nxt), "{start:?}..{end:?}");
        }
        assert!(board.is_empty());
        assert!(board.add(SackBlock { start: far(500), end: far(2000) }, una, nxt));
        assert_eq!((board.bytes(), board.first()), (1500, Some(far(500))));
    }
}
