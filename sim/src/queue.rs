//! Virtual time's agenda: what happens next, and in which order what happens at once.

use core::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

use ringway_stack::Instant;

/// Events by time. Those of the same instant come out in the order in which they were put in, so that a run never depends
/// on anything but its seed.
///
/// Most events follow each other in lanes: what enters a wire first leaves it first. Of each lane only the head is sorted, so that
/// thousands of frames under way cost no more than the few wires that they are on.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    /// The head of each lane that isn't empty, and each loose event.
    heads: BinaryHeap<Reverse<Key>>,
    lanes: Vec<VecDeque<Waiting<E>>>,
    /// What is to happen at once, which is in order as it comes.
    prompt: VecDeque<Waiting<E>>,
    loose: Vec<Option<E>>,
    free: Vec<usize>,
    sequence: u64,
}

/// Sorted by time, then by age; where the event is comes last, and never matters. All in one number, which compares at once: 64 bits of
/// nanoseconds, 40 of the sequence, 24 of the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u128);

const PLACE_BITS: u32 = 24;
const SEQUENCE_BITS: u32 = 40;
/// Of places: not a lane.
const LOOSE: usize = 1 << (PLACE_BITS - 1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Lane(usize),
    Loose(usize),
}

impl Key {
    fn new(at: Instant, sequence: u64, place: Place) -> Self {
        let (number, mark) = match place {
            Place::Lane(lane) => (lane, 0),
            Place::Loose(slot) => (slot, LOOSE),
        };
        assert!(number < LOOSE && sequence >> SEQUENCE_BITS == 0, "an agenda of 2^23 places and 2^40 events is full");
        let age = u128::from(sequence) << PLACE_BITS | (number | mark) as u128;
        Self(u128::from(at.as_nanos()) << (SEQUENCE_BITS + PLACE_BITS) | age)
    }

    fn at(self) -> Instant {
        Instant::from_nanos((self.0 >> (SEQUENCE_BITS + PLACE_BITS)) as u64)
    }

    fn place(self) -> Place {
        let place = self.0 as usize & ((1 << PLACE_BITS) - 1);
        if place & LOOSE == 0 { Place::Lane(place) } else { Place::Loose(place & (LOOSE - 1)) }
    }

    /// Whether something with this time and age comes before it.
    fn is_behind(self, at: Instant, sequence: u64) -> bool {
        Self::new(at, sequence, Place::Lane(0)) < self
    }
}

/// An event in a lane. Invariant: none is earlier than the one before it.
#[derive(Debug)]
struct Waiting<E> {
    at: Instant,
    sequence: u64,
    event: E,
}

impl<E> EventQueue<E> {
    /// Nothing is to happen.
    pub(crate) fn new() -> Self {
        Self { heads: BinaryHeap::new(), lanes: Vec::new(), prompt: VecDeque::new(), loose: Vec::new(), free: Vec::new(), sequence: 0 }
    }

    /// Lets `event` happen at `at`.
    pub(crate) fn push(&mut self, at: Instant, event: E) {
        let sequence = self.next_sequence();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.loose.push(None);
            self.loose.len() - 1
        });
        self.loose[slot] = Some(event);
        self.heads.push(Reverse(Key::new(at, sequence, Place::Loose(slot))));
    }

    /// The same for an event that is likely to be the last one of `lane`; if it isn't, that costs time and nothing else.
    pub(crate) fn push_in(&mut self, lane: usize, at: Instant, event: E) {
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, VecDeque::new);
        }
        match self.lanes[lane].back() {
            Some(last) if at < last.at => return self.push(at, event),
            Some(_) => {}
            None => self.heads.push(Reverse(Key::new(at, self.sequence, Place::Lane(lane)))),
        }
        let sequence = self.next_sequence();
        self.lanes[lane].push_back(Waiting { at, sequence, event });
    }

    /// The same for an event that happens now, as those before it did; else that costs time and nothing else.
    pub(crate) fn push_now(&mut self, at: Instant, event: E) {
        if self.prompt.back().is_some_and(|last| at < last.at) {
            return self.push(at, event);
        }
        let sequence = self.next_sequence();
        self.prompt.push_back(Waiting { at, sequence, event });
    }

    /// When the next event happens.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let head = self.heads.peek().map(|Reverse(key)| key.at());
        head.into_iter().chain(self.prompt.front().map(|first| first.at)).min()
    }

    /// Takes the next event, if it happens no later than `until`.
    pub(crate) fn pop_until(&mut self, until: Instant) -> Option<(Instant, E)> {
        if let Some(first) = self.prompt.front()
            && self.heads.peek().is_none_or(|Reverse(head)| head.is_behind(first.at, first.sequence))
        {
            return if first.at > until { None } else { self.prompt.pop_front().map(|first| (first.at, first.event)) };
        }
        let mut head = self.heads.peek_mut()?;
        let (at, place) = (head.0.at(), head.0.place());
        if at > until {
            return None;
        }
        let event = match place {
            Place::Lane(lane) => {
                let waiting = &mut self.lanes[lane];
                let event = waiting.pop_front().map(|first| first.event);
                match waiting.front() {
                    Some(next) => *head = Reverse(Key::new(next.at, next.sequence, place)),
                    None => drop(PeekMut::pop(head)),
                }
                event
            }
            Place::Loose(slot) => {
                PeekMut::pop(head);
                self.free.push(slot);
                self.loose[slot].take()
            }
        };
        event.map(|event| (at, event))
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence - 1
    }
}

#[cfg(test)]
mod tests;
