//! Which sequence numbers arrived.

use super::segment::{before, later};

/// Everything before `next`, and what lies above gaps.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    pub(super) next: u32,
    /// Invariant: disjoint, not adjacent, all above `next`; in no order.
    above: Vec<(u32, u32)>,
}

impl Ranges {
    pub(super) fn from(next: u32) -> Self {
        Self { next, above: Vec::new() }
    }

    /// Adds `[start, end)`.
    pub(super) fn add(&mut self, start: u32, end: u32) {
        if !before(self.next, end) {
            return;
        }
        if self.above.is_empty() && !before(self.next, start) {
            self.next = end;
            return;
        }
        let (mut start, mut end) = (start, end);
        self.above.retain(|&(a, b)| {
            let apart = before(end, a) || before(b, start);
            if !apart {
                start = if before(a, start) { a } else { start };
                end = later(end, b);
            }
            apart
        });
        if before(self.next, start) {
            self.above.push((start, end));
        } else {
            self.next = end;
        }
    }

    /// Whether nothing lies above a gap.
    pub(super) fn is_whole(&self) -> bool {
        self.above.is_empty()
    }

    /// Whether all of `[start, end)` arrived.
    pub(super) fn has(&self, start: u32, end: u32) -> bool {
        !before(self.next, end) || self.above.iter().any(|&(a, b)| !before(start, a) && !before(b, end))
    }

    /// Whether something lies above a gap.
    pub(super) fn has_gaps(&self) -> bool {
        !self.above.is_empty()
    }

    /// How many ranges lie above gaps.
    pub(super) fn count_above(&self) -> usize {
        self.above.len()
    }
}
