//! An epoll instance's interest list and ready list, as pure data: no descriptor is touched here, and readiness is asked
//! of a closure.
//!
//! An item is on the ready list at most once. A level-triggered item that was reported goes back to the list's end, and
//! leaves it when it is found not ready; an edge-triggered one comes back with its next edge. That is the kernel's own
//! scheme (epoll(7), "Level-triggered and edge-triggered"), and makes collecting fair: each call begins where the last
//! one stopped. Everything is O(1) in the number of items.

use std::ops::Range;
use std::os::fd::RawFd;

/// Always reported, whether asked for or not (epoll_ctl(2)).
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

const EDGE: u32 = libc::EPOLLET as u32;
const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;

/// Bits of an item's events that say how to report, not what.
const MANNER: u32 = EDGE | ONE_SHOT | libc::EPOLLWAKEUP as u32 | libc::EPOLLEXCLUSIVE as u32;

/// The end of a list.
const NONE: u32 = u32::MAX;

/// What an item watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A socket, by its index.
    Socket(u32),
    /// The kernel's half of a socket, by its index: in the instance of a ring whose completions tell of the ring's half.
    KernelHalf(u32),
    /// Another epoll instance, by its index.
    Epoll(u32),
    /// The ring of the Extra API whose descriptor an instance is: by that instance's own index.
    Ring(u32),
    /// A descriptor that is the kernel's alone, whose data could be taken for one of our tokens.
    Kernel,
}

/// One descriptor in an epoll instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) target: Target,
    /// The number under which it was added: with the target, its name (two duplicates are two items).
    pub(crate) fd: RawFd,
    /// As passed to epoll_ctl, manner included.
    pub(crate) events: u32,
    /// The program's.
    pub(crate) data: u64,
    /// What the kernel's epoll watches its descriptor for; `None`: it does not.
    pub(crate) kernel: Option<u32>,
}

impl Item {
    /// The readiness that is reported.
    pub(crate) const fn mask(&self) -> u32 {
        self.events & !MANNER | ALWAYS
    }
}

#[derive(Debug)]
struct Slot {
    item: Item,
    used: bool,
    /// Which use of the slot: it is part of the token that the kernel's epoll gives back.
    generation: u16,
    /// The last collection that reported it, and where.
    reported: (u32, u32),
    /// A one-shot item that has been reported, and waits to be re-armed.
    disarmed: bool,
    queued: bool,
    /// Neighbours on the ready list; meaningless unless `queued`. `next` links the free slots too.
    prev: u32,
    next: u32,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Interest {
    slots: Vec<Slot>,
    free: u32,
    len: usize,
    head: u32,
    tail: u32,
    /// Items on the ready list.
    queued: usize,
}

/// What an event meant for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// Nobody asked for it.
    Nothing,
    /// The item was on the ready list. (An instance that this one is in is told all the same: ep_poll_callback.)
    Again,
    /// The item came onto the ready list.
    New,
}

impl Interest {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: NONE, len: 0, head: NONE, tail: NONE, queued: 0 }
    }

    /// How many items there are.
    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Whether something may be ready: a look without asking.
    #[inline]
    pub(crate) const fn may_be_ready(&self) -> bool {
        self.queued != 0
    }

    pub(crate) fn item(&self, index: u32) -> Option<&Item> {
        self.slots.get(index as usize).filter(|slot| slot.used).map(|slot| &slot.item)
    }

    pub(crate) fn item_mut(&mut self, index: u32) -> Option<&mut Item> {
        self.slots.get_mut(index as usize).filter(|slot| slot.used).map(|slot| &mut slot.item)
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = (u32, &Item)> {
        (0u32..).zip(&self.slots).filter(|(_, slot)| slot.used).map(|(index, slot)| (index, &slot.item))
    }

    /// Adds an item, not ready; the caller follows up with [`Interest::edge`].
    pub(crate) fn add(&mut self, item: Item) -> u32 {
        self.len += 1;
        let mut slot = Slot { item, used: true, generation: 0, reported: (0, 0), disarmed: false, queued: false, prev: NONE, next: NONE };
        if self.free == NONE {
            self.slots.push(slot);
            return u32::try_from(self.slots.len() - 1).expect("descriptors are fewer than 2^32");
        }
        let index = self.free;
        let place = &mut self.slots[index as usize];
        self.free = place.next;
        slot.generation = place.generation;
        *place = slot;
        index
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<Item> {
        let item = *self.item(index)?;
        self.unqueue(index);
        let slot = &mut self.slots[index as usize];
        slot.used = false;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next = self.free;
        self.free = index;
        self.len -= 1;
        Some(item)
    }

    /// EPOLL_CTL_MOD: new events and data, armed again; the caller follows up with [`Interest::edge`].
    pub(crate) fn modify(&mut self, index: u32, events: u32, data: u64) {
        self.unqueue(index);
        if let Some(slot) = self.slots.get_mut(index as usize).filter(|slot| slot.used) {
            slot.item.events = events;
            slot.item.data = data;
            slot.disarmed = false;
        }
    }

    /// Something arrived, or (after adding and modifying) is ready.
    #[inline]
    pub(crate) fn edge(&mut self, index: u32, edges: u32) -> Edge {
        let Some(slot) = self.slots.get(index as usize) else { return Edge::Nothing };
        if !slot.used || slot.disarmed || slot.item.mask() & edges == 0 {
            return Edge::Nothing;
        }
        if slot.queued {
            return Edge::Again;
        }
        self.enqueue(index);
        Edge::New
    }

    /// Whether a further event of that kind would change nothing: nobody asked for it, or the item is on the ready list.
    pub(crate) fn is_told(&self, index: u32, edges: u32) -> bool {
        self.slots.get(index as usize).is_none_or(|slot| slot.queued || slot.disarmed || slot.item.mask() & edges == 0)
    }

    /// Which use of its slot an item is.
    pub(crate) fn generation(&self, index: u32) -> u16 {
        self.slots.get(index as usize).map_or(0, |slot| slot.generation)
    }

    /// Where the collection `round` reported an item already.
    pub(crate) fn reported_in(&self, round: u32, index: u32) -> Option<u32> {
        self.slots.get(index as usize).and_then(|slot| (slot.reported.0 == round).then_some(slot.reported.1))
    }

    /// Takes an event that the kernel's epoll found on an item. What to report; `None`: nothing, it is disarmed or gone.
    pub(crate) fn kernel_event(&mut self, index: u32, events: u32) -> Option<(u64, u32)> {
        let slot = self.slots.get_mut(index as usize).filter(|slot| slot.used && !slot.disarmed)?;
        let events = events & slot.item.mask();
        if events == 0 {
            return None;
        }
        let data = slot.item.data;
        if slot.item.events & ONE_SHOT != 0 {
            slot.disarmed = true;
            self.unqueue(index);
        }
        Some((data, events))
    }

    /// Reports ready items as (place, data, events), to places from the first of these on, and says how many; `readiness` says what an item's target is ready
    /// for, or ends this part of the collection before the item (`None`). `round` names the collection, never zero.
    #[inline]
    pub(crate) fn collect(
        &mut self,
        round: u32,
        places: Range<usize>,
        mut readiness: impl FnMut(&Item) -> Option<u32>,
        mut report: impl FnMut(usize, u64, u32),
    ) -> usize {
        let first = places.start;
        let mut next = first;
        // Those that go back to the end are not looked at twice: in this part, or in one after another.
        for _ in 0..self.queued {
            if next >= places.end {
                break;
            }
            let index = self.head;
            let Slot { item, reported, .. } = &self.slots[index as usize];
            if reported.0 == round {
                break;
            }
            let Some(ready) = readiness(item).map(|ready| ready & item.mask()) else { break };
            self.unqueue(index);
            if ready == 0 {
                continue;
            }
            let slot = &mut self.slots[index as usize];
            slot.reported = (round, u32::try_from(next).unwrap_or(u32::MAX));
            let (data, events) = (slot.item.data, slot.item.events);
            if events & ONE_SHOT != 0 {
                slot.disarmed = true;
            } else if events & EDGE == 0 {
                self.enqueue(index);
            }
            report(next, data, ready);
            next += 1;
        }
        next - first
    }

    /// What the item watches with which the next collection begins.
    pub(crate) fn first(&self) -> Option<Target> {
        self.slots.get(self.head as usize).map(|slot| slot.item.target)
    }

    /// Whether [`Interest::collect`] would report anything. Takes off the list what turns out not to be ready.
    pub(crate) fn is_ready(&mut self, mut readiness: impl FnMut(&Item) -> u32) -> bool {
        while self.head != NONE {
            let slot = &self.slots[self.head as usize];
            if readiness(&slot.item) & slot.item.mask() != 0 {
                return true;
            }
            self.unqueue(self.head);
        }
        false
    }

    fn enqueue(&mut self, index: u32) {
        let last = self.tail;
        let slot = &mut self.slots[index as usize];
        debug_assert!(!slot.queued);
        (slot.queued, slot.prev, slot.next) = (true, last, NONE);
        match last {
            NONE => self.head = index,
            last => self.slots[last as usize].next = index,
        }
        self.tail = index;
        self.queued += 1;
    }

    fn unqueue(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index as usize).filter(|slot| slot.queued) else { return };
        slot.queued = false;
        let (prev, next) = (slot.prev, slot.next);
        match prev {
            NONE => self.head = next,
            prev => self.slots[prev as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => self.slots[next as usize].prev = prev,
        }
        self.queued -= 1;
    }
}

impl Default for Interest {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
