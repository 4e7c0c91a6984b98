//! The process's registered instances, and which of them are *plain*: those that a thread collects from by rings' locks alone ([`super::plain`]).
//!
//! Beside each instance is a cell that threads read without a lock: the rings on which what it watches has flows. Who collected under the process's
//! lock, and found the instance plain, says so there; whoever may change an instance unsays it, as with sockets ([`crate::socket::table`]).

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::os::fd::RawFd;

use super::{Epoll, Lists};
use crate::byfd::{ByFd, Empty};
use crate::lock::{Guard, Lock};
use crate::mux::alone::LoneSleeper;
use crate::rings::RingSet;
use crate::slab::{Key, Slab};

/// What is to be known of an instance without the process's lock. (Threads write to theirs all the time: no two are in one line, nor in a pair of them.)
#[repr(align(128))]
struct Cell {
    /// The rings, as [`RingSet::bits`]; zero: it is not plain.
    rings: AtomicU64,
    /// The thread that sleeps for it by its rings' locks alone.
    sleeper: LoneSleeper,
    lists: Lock<Lists>,
}

impl Empty for Cell {
    const EMPTY: Self = Self { rings: AtomicU64::new(0), sleeper: LoneSleeper::NOBODY, lists: Lock::new(Lists::new()) };
}

/// By the instances' indices. Beyond, no instance is plain.
static CELLS: ByFd<Cell, 32, 2048> = ByFd::new();

/// Some instance was plain once.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// The rings of an instance, if it is plain.
#[inline]
pub(super) fn rings_of(index: u32) -> Option<RingSet> {
    let rings = CELLS.find(index.cast_signed())?.rings.load(Ordering::Acquire);
    (rings != 0).then_some(RingSet::from_bits(rings))
}

/// What is collected from, of an instance that is plain, on that ring among others: for who has the ring's lock.
#[inline]
pub(super) fn lists_of(index: u32, ring: u16) -> Option<Guard<'static, Lists>> {
    let lists = CELLS.find(index.cast_signed())?.lists.lock();
    // (Who unsays it, and looks at the lists then, comes to this lock later.)
    rings_of(index).is_some_and(|rings| rings.contains(ring)).then_some(lists)
}

/// Says that an instance is plain on these rings, if there are any.
pub(super) fn publish(index: u32, rings: RingSet) {
    if let Some(cell) = CELLS.find(index.cast_signed()) {
        IN_USE.store(true, Ordering::Relaxed);
        cell.rings.store(rings.bits(), Ordering::Release);
    }
}

#[inline]
fn unsay(index: u32) {
    if IN_USE.load(Ordering::Relaxed)
        && let Some(cell) = CELLS.find(index.cast_signed())
        && cell.rings.load(Ordering::Relaxed) != 0
    {
        // (SeqCst: see `LoneSleeper::begin`.)
        cell.rings.swap(0, Ordering::SeqCst);
        cell.sleeper.wake();
    }
}

/// A thread is about to sleep for an instance that is plain on these rings, and is woken by that eventfd when it may be plain no more, or has something from
/// who has none of their locks. `false`: it may be plain no more. (What was on the list before is for the thread to see.)
pub(super) fn begin_sleep(index: u32, rings: RingSet, waker: RawFd) -> bool {
    let Some(cell) = CELLS.find(index.cast_signed()) else { return false };
    cell.sleeper.begin(waker, || cell.rings.load(Ordering::SeqCst) == rings.bits())
}

/// The thread with that eventfd sleeps no more for that instance by its rings' locks.
pub(super) fn end_sleep(index: u32, waker: RawFd) {
    if let Some(cell) = CELLS.find(index.cast_signed()) {
        cell.sleeper.end(waker);
    }
}

/// As [`end_sleep`], for whichever instance it did.
#[cold]
pub(crate) fn end_sleeps(waker: RawFd) {
    if IN_USE.load(Ordering::Relaxed) {
        CELLS.numbers().filter_map(|index| CELLS.find(index)).for_each(|cell| _ = cell.sleeper.end(waker));
    }
}

/// An instance has got something to report from who has the process's lock: whoever sleeps for it by its rings' alone is to look.
#[inline]
pub(crate) fn wake_lone(index: u32) {
    if IN_USE.load(Ordering::Relaxed)
        && let Some(cell) = CELLS.find(index.cast_signed())
    {
        cell.sleeper.wake();
    }
}

/// In the child of a fork: its parent's threads sleep for nothing of its own. Async-signal-safe.
pub(crate) fn forget_sleepers() {
    if IN_USE.load(Ordering::Relaxed) {
        CELLS.numbers().filter_map(|index| CELLS.find(index)).for_each(|cell| cell.sleeper.forget());
    }
}

/// None may be plain any more.
pub(crate) fn unsay_all() {
    if IN_USE.load(Ordering::Relaxed) {
        CELLS.numbers().for_each(|index| unsay(index.cast_unsigned()));
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Epolls(Slab<Epoll>);

impl Epolls {
    pub(crate) const fn new() -> Self {
        Self(Slab::new())
    }

    /// An instance of that number. `kernel_members`: its real epoll may have members.
    pub(super) fn insert(&mut self, epfd: RawFd, kernel_members: bool) -> Key {
        static NOWHERE: Lock<Lists> = Lock::new(Lists::new());
        let key = self.0.insert(Epoll::new(epfd, &NOWHERE));
        // (An index beyond the table has lists of its own, which stay.)
        let lists = match CELLS.find_or_make(key.index.cast_signed()) {
            Some(cell) => &cell.lists,
            None => Box::leak(Box::new(Lock::new(Lists::new()))),
        };
        *lists.lock() = Lists { kernel_members, ..Lists::new() };
        if let Some(instance) = self.get_mut(key.index) {
            instance.shared = lists;
        }
        key
    }

    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<&Epoll> {
        self.0.find(key)
    }

    /// As [`Slab::get`].
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Epoll> {
        self.0.get(index)
    }

    /// As [`Slab::get_mut`].
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Epoll> {
        unsay(index);
        self.0.get_mut(index)
    }

    /// As [`Slab::key_at`].
    #[inline]
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        self.0.key_at(index)
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Epoll> {
        unsay(key.index);
        self.0.remove(key)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut Epoll)> {
        self.0.iter_mut().inspect(|(key, _)| unsay(key.index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_may_change_an_instance_unsays_that_it_is_plain() {
        type Change = fn(&mut Epolls, Key);
        let changes: [Change; 4] = [
            |epolls, key| assert!(epolls.get_mut(key.index).is_some()),
            |epolls, _| assert!(epolls.iter_mut().count() > 0),
            |epolls, key| drop(epolls.remove(key)),
            |_, _| unsay_all(),
        ];
        let mut epolls = Epolls::new();
        // (The cells are the process's: slots that no other test has.)
        let before: Vec<Key> = (0..40).map(|_| epolls.insert(-1, false)).collect();
        for change in changes {
            let key = epolls.insert(-1, true);
            assert!(rings_of(key.index).is_none() && lists_of(key.index, 3).is_none());
            let rings = [3, 5].into_iter().collect();
            publish(key.index, rings);
            assert_eq!(rings_of(key.index), Some(rings));
            assert!(lists_of(key.index, 3).is_some_and(|lists| lists.kernel_members) && lists_of(key.index, 4).is_none());
            assert!(epolls.get(key.index).is_some() && epolls.find(key).is_some(), "who looks changes nothing");
            assert_eq!(rings_of(key.index), Some(rings));
            change(&mut epolls, key);
            assert!(rings_of(key.index).is_none() && lists_of(key.index, 3).is_none() && !begin_sleep(key.index, rings, 1));
        }
        assert!(before.iter().all(|key| rings_of(key.index).is_none()));
    }

    #[test]
    fn an_instance_has_lists_of_its_own_which_begin_empty() {
        let mut epolls = Epolls::new();
        let [one, other] = [(); 2].map(|()| epolls.insert(-1, false));
        let lists = |epolls: &Epolls, key: Key| core::ptr::from_ref(epolls.get(key.index).expect("it is there").shared);
        assert_ne!(lists(&epolls, one), lists(&epolls, other));
        epolls.get(one.index).expect("it is there").lists().kernel_members = true;
        assert!(!epolls.get(other.index).expect("it is there").lists().kernel_members);
        drop(epolls.remove(one));
        let again = epolls.insert(-1, false);
        assert_eq!(again.index, one.index, "the place is used again");
        assert!(!epolls.get(again.index).expect("it is there").lists().kernel_members);
    }
}
