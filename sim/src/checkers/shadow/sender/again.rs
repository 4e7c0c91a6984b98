//! What was sent again, and may be lost again.

use std::collections::VecDeque;

use super::super::super::segment::{Segment, before};

/// Retransmissions that are remembered.
const SENT_MAX: usize = 4096;

/// Retransmissions, in the order in which they were sent.
#[derive(Clone, Debug, Default)]
pub(super) struct SentAgain(VecDeque<Sent>);

/// One of them.
#[derive(Clone, Copy, Debug)]
struct Sent {
    start: u32,
    end: u32,
    /// What was to be sent next by then, of what had never been sent.
    nxt: u32,
}

impl Sent {
    /// Whether the peer says that it has it.
    fn is_told(&self, una: u32, blocks: &[(u32, u32)]) -> bool {
        !before(una, self.end) || blocks.iter().any(|&(from, to)| before(from, self.end) && before(self.start, to))
    }
}

impl SentAgain {
    /// `segment` is sent again, with `nxt` next of what was never sent.
    pub(super) fn note(&mut self, segment: &Segment, nxt: u32) {
        if self.0.len() >= SENT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Sent { start: segment.seq, end: segment.end(), nxt });
    }

    /// RFC 8985 s6.2: whether what is sent again for the first time may be known to be lost, since something arrived that was sent again after it was sent.
    pub(super) fn may_overtake(&self, segment: &Segment, una: u32, blocks: &[(u32, u32)]) -> bool {
        self.0.iter().rev().any(|again| before(segment.seq, again.nxt) && again.is_told(una, blocks))
    }

    /// RFC 8985 s6.2: whether what is sent once more, after it was sent again, may be known to be lost again: something that was sent after it has arrived, of which the
    /// peer says so by acknowledging everything before `una`, and by `blocks`.
    pub(super) fn may_be_lost(&self, segment: &Segment, una: u32, blocks: &[(u32, u32)]) -> bool {
        let is_it = |sent: &Sent| before(sent.start, segment.end()) && before(segment.seq, sent.end);
        let Some(last) = self.0.iter().rposition(is_it) else { return false };
        let is_new_told = blocks.iter().any(|&(_, to)| before(self.0[last].nxt, to));
        let is_later_told = self.0.range(last + 1..).any(|later| later.is_told(una, blocks));
        is_new_told || is_later_told
    }
}
