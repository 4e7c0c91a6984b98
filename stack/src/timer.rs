//! A hierarchical timer wheel: insertion and expiry in constant time, whatever the number of connections.
//!
//! It is meant to be used lazily. A flow keeps one entry; moving its deadline *later* costs nothing (when the entry fires,
//! the flow looks at its true deadline and inserts itself again), moving it *earlier* inserts a second entry and the
//! first is ignored when it fires. Who is about to sleep until the next entry forgets those that would be ignored ([`Wheel::forget`]).

mod entries;

use crate::time::Instant;

use self::entries::{Entries, Entry, List};

/// One tick: 2^20 ns, about a millisecond.
const TICK_SHIFT: u32 = 20;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// 64^5 ticks are 13 days; later deadlines fire early, and insert themselves again.
const LEVELS: usize = 5;
const DELTA_MAX: u64 = (1 << (SLOT_BITS * LEVELS as u32)) - 1;

#[derive(Clone, Copy, Debug)]
struct Level {
    /// Invariant: bit i is set exactly if `slots[i]` has entries.
    occupied: u64,
    slots: [List; SLOTS],
}

/// The wheel. `T` names what fires.
#[derive(Debug)]
pub struct Wheel<T> {
    now_tick: u64,
    levels: Box<[Level; LEVELS]>,
    entries: Entries<T>,
    /// Entries that were due when they were inserted.
    overdue: Vec<T>,
    /// The earliest tick at which `advance` has work to do; `u64::MAX` if none.
    next_tick: u64,
}

impl<T: Copy> Default for Wheel<T> {
    fn default() -> Self {
        let level = Level { occupied: 0, slots: [List::EMPTY; SLOTS] };
        Self { now_tick: 0, levels: Box::new([level; LEVELS]), entries: Entries::default(), overdue: Vec::new(), next_tick: u64::MAX }
    }
}

impl<T: Copy> Wheel<T> {
    /// Makes `token` come out of the first [`Wheel::advance`] at or after `at` (rounded up to a tick).
    pub fn insert(&mut self, at: Instant, token: T) {
        let tick = (at.as_nanos() >> TICK_SHIFT) + u64::from(at.as_nanos() & ((1 << TICK_SHIFT) - 1) != 0);
        self.insert_tick(Entry { token, tick });
    }

    fn insert_tick(&mut self, entry: Entry<T>) {
        let Some(delta) = entry.tick.checked_sub(self.now_tick).filter(|d| *d > 0) else {
            self.overdue.push(entry.token);
            return;
        };
        let tick = self.now_tick + delta.min(DELTA_MAX);
        let level = (63 - delta.min(DELTA_MAX).leading_zeros()) / SLOT_BITS;
        let shifted = tick >> (level * SLOT_BITS);
        let slot = shifted as usize % SLOTS;
        let wheel = &mut self.levels[level as usize];
        self.entries.push(&mut wheel.slots[slot], Entry { token: entry.token, tick });
        wheel.occupied |= 1 << slot;
        self.next_tick = self.next_tick.min(shifted << (level * SLOT_BITS));
    }

    /// When [`Wheel::advance`] has something to do next (which may be no more than sorting entries).
    pub fn next(&self) -> Option<Instant> {
        if !self.overdue.is_empty() {
            return Some(Instant::from_nanos(self.now_tick << TICK_SHIFT));
        }
        (self.next_tick != u64::MAX).then(|| Instant::from_nanos(self.next_tick << TICK_SHIFT))
    }

    /// Whether [`Wheel::advance`] to `now` would do anything: two comparisons.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        self.next_tick <= now.as_nanos() >> TICK_SHIFT || !self.overdue.is_empty()
    }

    /// Entries, stale ones included.
    pub fn len(&self) -> usize {
        self.overdue.len() + self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes out entries that would be ignored when they fire, as far as nothing else comes before them: the others put nobody's sleep
    /// to an end. Costs as much as they are.
    pub fn forget(&mut self, mut is_ignored: impl FnMut(T) -> bool) {
        // (Where slots of other levels may begin, entries are to be sorted then.)
        while self.overdue.is_empty() && self.next_tick != u64::MAX && !self.next_tick.is_multiple_of(SLOTS as u64) {
            let slot = self.next_tick as usize % SLOTS;
            let list = &mut self.levels[0].slots[slot];
            self.entries.take_out(list, &mut is_ignored);
            if !list.is_empty() {
                return;
            }
            self.levels[0].occupied &= !(1 << slot);
            self.next_tick = self.earliest();
        }
    }

    /// Moves to `now` and appends what fired to `fired`.
    pub fn advance(&mut self, now: Instant, fired: &mut Vec<T>) {
        fired.append(&mut self.overdue);
        let target = now.as_nanos() >> TICK_SHIFT;
        while self.next_tick <= target {
            self.now_tick = self.next_tick;
            self.turn(fired);
            self.next_tick = self.earliest();
        }
        self.now_tick = self.now_tick.max(target);
        self.entries.release();
    }

    /// Cascades the slots that begin at `now_tick`, then fires those of the lowest level.
    fn turn(&mut self, fired: &mut Vec<T>) {
        for level in (1..LEVELS).rev() {
            let shift = level as u32 * SLOT_BITS;
            if self.now_tick & ((1 << shift) - 1) == 0 {
                let mut list = self.take_slot(level, (self.now_tick >> shift) as usize % SLOTS);
                while let Some(entry) = self.entries.pop(&mut list) {
                    if entry.tick == self.now_tick {
                        fired.push(entry.token);
                    } else {
                        self.insert_tick(entry);
                    }
                }
            }
        }
        let mut list = self.take_slot(0, self.now_tick as usize % SLOTS);
        while let Some(entry) = self.entries.pop(&mut list) {
            fired.push(entry.token);
        }
    }

    fn take_slot(&mut self, level: usize, slot: usize) -> List {
        self.levels[level].occupied &= !(1 << slot);
        core::mem::replace(&mut self.levels[level].slots[slot], List::EMPTY)
    }

    fn earliest(&self) -> u64 {
        let mut earliest = u64::MAX;
        for (level, wheel) in self.levels.iter().enumerate() {
            if wheel.occupied != 0 {
                let shift = level as u32 * SLOT_BITS;
                let current = self.now_tick >> shift;
                // A slot lies 1 to 64 slots ahead; the current one itself has been emptied.
                let ahead = wheel.occupied.rotate_right((current as u32 + 1) % 64).trailing_zeros();
                earliest = earliest.min((current + 1 + u64::from(ahead)) << shift);
            }
        }
        earliest
    }
}

#[cfg(test)]
mod tests;
