//! Virtual time's agenda: what happens next, and in which order what happens at once.

use core::cmp::Ordering;
use std::collections::BinaryHeap;

use ringway_stack::Instant;

/// Events by time. Those of the same instant come out in the order in which they were put in, so that a run never depends
/// on anything but its seed.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    events: BinaryHeap<Entry<E>>,
    sequence: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Instant,
    sequence: u64,
    event: E,
}

impl<E> EventQueue<E> {
    /// Nothing is to happen.
    pub(crate) fn new() -> Self {
        Self { events: BinaryHeap::new(), sequence: 0 }
    }

    /// Lets `event` happen at `at`.
    pub(crate) fn push(&mut self, at: Instant, event: E) {
        self.events.push(Entry { at, sequence: self.sequence, event });
        self.sequence += 1;
    }

    /// When the next event happens.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.events.peek().map(|entry| entry.at)
    }

    /// Takes the next event, if it happens no later than `until`.
    pub(crate) fn pop_until(&mut self, until: Instant) -> Option<(Instant, E)> {
        if self.next_at()? > until {
            return None;
        }
        self.events.pop().map(|entry| (entry.at, entry.event))
    }
}

/// The heap's greatest comes first: the earliest, and of those the first put in.
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests;
