//! Frames on shared memory that are seen at both ends: they are shown where they were sent.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

use ringway_host::capture::Frame;

/// Frames that may be on their way, of which it is remembered that they were sent.
const UNDER_WAY_MAX: usize = 1 << 18;

/// The Ethernet header is each end's own.
const LINK: usize = 14;

/// What was sent, and is not known to have come.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    hasher: RandomState,
    counts: HashMap<u64, u32>,
    oldest: VecDeque<u64>,
}

impl UnderWay {
    /// A frame was sent.
    pub(super) fn sent(&mut self, frame: &Frame) {
        let sum = self.sum(frame);
        *self.counts.entry(sum).or_default() += 1;
        self.oldest.push_back(sum);
        if self.oldest.len() > UNDER_WAY_MAX
            && let Some(sum) = self.oldest.pop_front()
        {
            self.forget(sum);
        }
    }

    /// A frame has come. Whether it is one that was seen when it was sent.
    pub(super) fn has_come(&mut self, frame: &Frame) -> bool {
        let sum = self.sum(frame);
        self.forget(sum)
    }

    fn forget(&mut self, sum: u64) -> bool {
        let Some(count) = self.counts.get_mut(&sum) else { return false };
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&sum);
        }
        true
    }

    fn sum(&self, frame: &Frame) -> u64 {
        self.hasher.hash_one((frame.len, frame.bytes.get(LINK..).unwrap_or_default()))
    }
}
