//! Virtual time's agenda: what happens next, and in which order what happens at once.

use std::collections::BTreeMap;

use ringway_stack::Instant;

/// Events by time. Those of the same instant come out in the order in which they were put in, so that a run never depends
/// on anything but its seed.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    events: BTreeMap<(Instant, u64), E>,
    sequence: u64,
}

impl<E> EventQueue<E> {
    /// Nothing is to happen.
    pub(crate) fn new() -> Self {
        Self { events: BTreeMap::new(), sequence: 0 }
    }

    /// Lets `event` happen at `at`.
    pub(crate) fn push(&mut self, at: Instant, event: E) {
        self.events.insert((at, self.sequence), event);
        self.sequence += 1;
    }

    /// When the next event happens.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.events.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Takes the next event, if it happens no later than `until`.
    pub(crate) fn pop_until(&mut self, until: Instant) -> Option<(Instant, E)> {
        if self.next_at()? > until {
            return None;
        }
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}

#[cfg(test)]
mod tests;
