//! When the bytes of a stream came, for a program that asks (SO_TIMESTAMPING and its kin).

use std::collections::VecDeque;

use crate::time::Instant;

/// When a segment came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When the ring took it from the device.
    pub received: Instant,
    /// When its frame arrived, by the device's clock; none where the device says nothing of it.
    pub hardware_time: Option<Instant>,
}

/// Most runs of bytes that are kept apart, so that a peer's tiny segments take no more memory than this. What comes when there are so many is one with the last run, which
/// has the newest segment's time then: so has what Linux merges in its receive queue (tcp_try_coalesce).
const RUNS_MAX: usize = 1024;

/// Bytes that came at once, behind those of the run before.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// How many bytes had come with its last one.
    end: u64,
    at: Option<Arrival>,
}

/// When the bytes of a receive queue came.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// Invariant: in order; of those that were read, at most one, whose last byte was the last that was read.
    runs: VecDeque<Run>,
    /// Bytes that have come.
    appended: u64,
}

impl Arrivals {
    /// From now on; of `waiting` bytes that are there nothing is known.
    pub(super) fn new(waiting: usize) -> Self {
        let mut arrivals = Self { runs: VecDeque::new(), appended: 0 };
        arrivals.append(waiting, None, waiting);
        arrivals
    }

    /// `len` bytes came; with them, `unread` wait.
    pub(super) fn append(&mut self, len: usize, at: Option<Arrival>, unread: usize) {
        if len == 0 {
            return;
        }
        self.appended += len as u64;
        let read = self.appended - unread as u64;
        while self.runs.front().is_some_and(|first| first.end < read) {
            self.runs.pop_front();
        }
        let is_full = self.runs.len() >= RUNS_MAX;
        match self.runs.back_mut() {
            Some(last) if is_full || last.at == at => *last = Run { end: self.appended, at },
            _ => self.runs.push_back(Run { end: self.appended, at }),
        }
    }

    /// All that came was read: keeps what is known of the last byte, and room for no more.
    pub(super) fn release_read(&mut self) {
        self.runs.drain(..self.runs.len().saturating_sub(1));
        self.runs.shrink_to_fit();
    }

    /// Whether there is room for more than the last byte's.
    #[cfg(test)]
    pub(super) fn holds_memory(&self) -> bool {
        self.runs.capacity() > 1
    }

    /// When the last byte came that was read, or, of those `unread`, the last of `peeked`.
    pub(super) fn of_last(&self, unread: usize, peeked: usize) -> Option<Arrival> {
        let end = (self.appended - unread as u64 + peeked as u64).min(self.appended);
        if end == 0 {
            return None;
        }
        self.runs.get(self.runs.partition_point(|run| run.end < end))?.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Option<Arrival> {
        Some(Arrival { received: Instant::from_nanos(nanos), hardware_time: None })
    }

    #[test]
    fn a_read_has_the_time_of_the_last_byte_that_it_took() {
        let mut arrivals = Arrivals::new(10);
        assert_eq!(arrivals.of_last(10, 0), None, "nothing was read");
        arrivals.append(5, at(1), 15);
        arrivals.append(5, at(2), 20);
        assert_eq!([1, 10, 11, 15, 16, 20].map(|peeked| arrivals.of_last(20, peeked)), [None, None, at(1), at(1), at(2), at(2)]);
        assert_eq!([19, 10, 9, 5, 4, 0].map(|unread| arrivals.of_last(unread, 0)), [None, None, at(1), at(1), at(2), at(2)]);
        // What was read is forgotten when more comes, but for the last byte's.
        arrivals.append(1, at(3), 1);
        assert_eq!((arrivals.runs.len(), arrivals.of_last(1, 0), arrivals.of_last(0, 0)), (2, at(2), at(3)));
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let (mut arrivals, count) = (Arrivals::new(0), 3 * RUNS_MAX);
        for number in 1..=count {
            arrivals.append(1, at(number as u64), number);
        }
        assert_eq!(arrivals.runs.len(), RUNS_MAX);
        assert_eq!(arrivals.of_last(count, RUNS_MAX - 1), at(RUNS_MAX as u64 - 1));
        assert_eq!(arrivals.of_last(count, RUNS_MAX), at(count as u64), "what came since is one with it");
        arrivals.append(1, at(0), 1);
        assert_eq!(arrivals.runs.len(), 2);
        assert!(arrivals.holds_memory());
        arrivals.release_read();
        assert_eq!((arrivals.holds_memory(), arrivals.of_last(0, 0)), (false, at(0)));
    }
}
