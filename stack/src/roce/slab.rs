//! A bounded table whose keys change when a place is used again: 16 bits of place, then 8 bits that count its tenants, so that a key of
//! before names nobody. Keys of memory regions look like this in every adapter, and queue pairs and completion queues gain by it, too.

use std::collections::VecDeque;

/// The most places: queue pair numbers have 24 bits, and all ones mean a multicast group.
pub(super) const PLACES_MAX: usize = (1 << 16) - 2;

#[derive(Debug)]
struct Slot<T> {
    tenant: u8,
    value: Option<T>,
}

/// The table. No key is below 256: zero is no key, and queue pairs 0 and 1 are special.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Slot<T>>,
    /// Places that were used, the longest unused first.
    free: VecDeque<u16>,
    max: usize,
    /// The number of the first place.
    first: usize,
    /// How many numbers after that one the first tenant has.
    turned: usize,
    /// Of how many tenants before it each place's first one counts.
    before: u8,
}

impl<T> Slab<T> {
    pub(super) fn new(max: usize) -> Self {
        Self::with_first(max, 0)
    }

    /// Its places are numbered from `first` on: where several tables share one space of keys.
    pub(super) fn with_first(max: usize, first: usize) -> Self {
        let first = first.min(PLACES_MAX);
        Self { slots: Vec::new(), free: VecDeque::new(), max: max.min(PLACES_MAX - first), first, turned: 0, before: 0 }
    }

    /// Its first tenants have other numbers than the first ones, and count as if others had been there before them: a table that is made after it, by another `by`,
    /// has other keys at first.
    pub(super) fn turned(self, by: u64) -> Self {
        let max = self.max.max(1) as u64;
        Self { turned: (by % max) as usize, before: (by / max) as u8, ..self }
    }

    /// Puts in what `make` makes of its key; `None` if the table is full.
    pub(super) fn insert_with(&mut self, make: impl FnOnce(u32) -> T) -> Option<u32> {
        let place = if self.slots.len() < self.max {
            self.slots.push(Slot { tenant: self.before, value: None });
            self.slots.len() - 1
        } else {
            usize::from(self.free.pop_front()?)
        };
        let slot = &self.slots[place];
        let tenant = slot.tenant;
        let key = key(self.number(place), tenant);
        self.slots[place].value = Some(make(key));
        Some(key)
    }

    #[inline]
    pub(super) fn get(&self, key: u32) -> Option<&T> {
        let slot = self.slots.get(self.place(key)?)?;
        slot.value.as_ref().filter(|_| slot.tenant == key as u8)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        let place = self.place(key)?;
        let slot = self.slots.get_mut(place)?;
        slot.value.as_mut().filter(|_| slot.tenant == key as u8)
    }

    pub(super) fn remove(&mut self, key: u32) -> Option<T> {
        let place = self.place(key)?;
        let slot = self.slots.get_mut(place).filter(|slot| slot.tenant == key as u8)?;
        let value = slot.value.take()?;
        slot.tenant = slot.tenant.wrapping_add(1);
        self.free.push_back(place as u16);
        Some(value)
    }

    /// The keys of all that is in, in the order of places.
    pub(super) fn keys(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().enumerate().filter(|(_, slot)| slot.value.is_some()).map(|(place, slot)| key(self.number(place), slot.tenant))
    }

    const fn number(&self, place: usize) -> usize {
        self.first + (place + self.turned) % self.max
    }

    #[inline]
    fn place(&self, key: u32) -> Option<usize> {
        let number = ((key >> 8) as usize).checked_sub(1 + self.first).filter(|number| *number < self.max)?;
        Some(if number < self.turned { number + self.max - self.turned } else { number - self.turned })
    }
}

const fn key(place: usize, tenant: u8) -> u32 {
    (place as u32 + 1) << 8 | tenant as u32
}
