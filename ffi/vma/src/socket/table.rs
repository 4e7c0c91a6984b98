//! The process's sockets, and which of them are *plain*: connections and UDP sockets whose data needs their ring's lock alone ([`super::plain`]).
//!
//! Beside each socket is a cell that threads read without a lock: the ring and the flow of a plain one. A call that went the long way, under the
//! process's lock, and found the socket plain, says so there. Whoever may change a socket unsays it, for what makes a socket plain is spread over its
//! fields: that costs a call that goes the long way once more, and nothing that is changed is forgotten.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::os::fd::RawFd;

use ringway_stack::ring::FlowId;

use super::Socket;
use crate::byfd::{ByFd, Empty};
use crate::mux::alone::LoneSleeper;
use crate::slab::{Key, Slab};

/// Of the word: the socket's generation is in the upper half, its ring's number below these.
const PLAIN: u64 = 1;
/// Epoll instances have it, or threads sleep for it.
const WATCHED: u64 = 2;
/// It has a SO_SNDTIMEO.
const SEND_TIMEOUT: u64 = 4;
/// It is a UDP socket.
const DATAGRAMS: u64 = 16;
/// It does not block.
const NONBLOCKING: u64 = 32;
/// A receive that finds nothing, and is not to wait, has nothing else to do.
const EMPTY_IS_ALL: u64 = 64;
/// One epoll instance has it, and nobody else: which one, its ring knows ([`crate::rings::Above`]).
const WATCHED_BY_ONE: u64 = 128;
const RING_SHIFT: u32 = 8;

/// What is to be known of a socket without a lock.
struct Cell {
    /// Zero: nothing.
    word: AtomicU64,
    /// The flow's slot, and its generation.
    flow: AtomicU64,
    /// SO_RCVTIMEO, in nanoseconds; zero: none.
    receive_timeout: AtomicU64,
    /// The thread that sleeps for it by its ring's lock alone.
    sleeper: LoneSleeper,
}

impl Empty for Cell {
    const EMPTY: Self =
        Self { word: AtomicU64::new(0), flow: AtomicU64::new(0), receive_timeout: AtomicU64::new(0), sleeper: LoneSleeper::NOBODY };
}

/// By the sockets' indices. Beyond, no socket is plain.
static CELLS: ByFd<Cell, 1024, 256> = ByFd::new();

/// Some socket was plain once.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// A plain socket, as its cell had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plain {
    pub(super) flow: FlowId,
    word: u64,
    receive_timeout: u64,
}

/// A socket that was plain when it was looked up, seen before its ring's lock is taken.
#[derive(Clone, Copy)]
pub(super) struct Lead {
    cell: &'static Cell,
    word: u64,
}

impl Lead {
    /// `None`: it is not plain.
    #[inline(always)]
    pub(super) fn find(key: Key) -> Option<Self> {
        let cell = CELLS.find(key.index.cast_signed())?;
        let word = cell.word.load(Ordering::Acquire);
        (word & PLAIN != 0 && (word >> 32) as u32 == key.generation).then_some(Self { cell, word })
    }

    /// The ring that it was on.
    #[inline(always)]
    pub(super) const fn ring(self) -> u16 {
        (self.word >> RING_SHIFT) as u16
    }

    /// The plain socket, if it is so still. (What has the ring's lock meanwhile sees to it that it stays so.)
    #[inline(always)]
    pub(super) fn settle(self) -> Option<Plain> {
        let Self { cell, word } = self;
        let (flow, receive_timeout) = (cell.flow.load(Ordering::Acquire), cell.receive_timeout.load(Ordering::Acquire));
        // (Whoever writes another flow has cleared the word before.)
        let flow = FlowId { ring: self.ring(), index: (flow >> 32) as u32, generation: flow as u32 };
        (cell.word.load(Ordering::Acquire) == word).then_some(Plain { flow, word, receive_timeout })
    }
}

/// What a plain socket is, beside its flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traits {
    /// Epoll instances have it, or threads sleep for it.
    pub(super) is_watched: bool,
    /// By one such instance, and by nobody else.
    pub(super) is_watched_by_one: bool,
    /// It is a UDP socket.
    pub(super) is_of_datagrams: bool,
    /// It does not block.
    pub(super) is_nonblocking: bool,
    /// SO_RCVTIMEO.
    pub(super) receive_timeout: Option<Duration>,
    /// There is a SO_SNDTIMEO.
    pub(super) has_send_timeout: bool,
    /// A receive that finds nothing, and is not to wait, has nothing else to do.
    pub(super) empty_is_all: bool,
}

impl Traits {
    const fn bits(self) -> u64 {
        const fn bit(is_set: bool, bit: u64) -> u64 {
            if is_set { bit } else { 0 }
        }
        bit(self.is_watched, WATCHED)
            | bit(self.is_watched_by_one, WATCHED_BY_ONE)
            | bit(self.has_send_timeout, SEND_TIMEOUT)
            | bit(self.is_of_datagrams, DATAGRAMS)
            | bit(self.is_nonblocking, NONBLOCKING)
            | bit(self.empty_is_all, EMPTY_IS_ALL)
    }
}

impl Plain {
    /// Whether it is a UDP socket.
    #[inline]
    pub(super) const fn is_of_datagrams(self) -> bool {
        self.word & DATAGRAMS != 0
    }

    /// Whether a call is not to wait: by its flags, or for what the socket is.
    #[inline]
    pub(super) const fn is_not_to_wait(self, flags: c_int) -> bool {
        self.word & NONBLOCKING != 0 || flags & libc::MSG_DONTWAIT != 0
    }

    /// Whether a call with these flags that found nothing, or no room, waits, and nobody else waits for the socket.
    #[inline]
    pub(super) const fn waits_alone(self, flags: c_int) -> bool {
        self.is_unwatched() && !self.is_not_to_wait(flags)
    }

    /// Whether nobody else waits for the socket, and there are no callbacks.
    pub(super) const fn is_unwatched(self) -> bool {
        self.is_without_callbacks() && self.word & WATCHED == 0
    }

    /// Whether no callback runs in calls that wait.
    pub(super) const fn is_without_callbacks(self) -> bool {
        self.word & EMPTY_IS_ALL != 0
    }

    /// SO_RCVTIMEO.
    pub(super) fn receive_timeout(self) -> Option<Duration> {
        (self.receive_timeout != 0).then(|| Duration::from_nanos(self.receive_timeout))
    }

    /// Whether it has a SO_SNDTIMEO.
    pub(super) const fn has_send_timeout(self) -> bool {
        self.word & SEND_TIMEOUT != 0
    }

    /// A thread is about to sleep for it, and is woken by that eventfd when it may be plain no more. `false`: it may be so already.
    pub(super) fn begin_sleep(self, key: Key, waker: RawFd) -> bool {
        let Some(cell) = CELLS.find(key.index.cast_signed()) else { return false };
        cell.sleeper.begin(waker, || cell.word.load(Ordering::SeqCst) == self.word)
    }

    /// Whether a receive with these flags that found nothing has its answer, which is EAGAIN.
    #[inline]
    pub(super) const fn has_nothing(self, flags: c_int) -> bool {
        self.word & EMPTY_IS_ALL != 0 && self.is_not_to_wait(flags)
    }

    /// A socket of this name, if it is plain. `None`: it may be another thing by now.
    #[inline]
    pub(super) fn find(key: Key) -> Option<Self> {
        Lead::find(key)?.settle()
    }

    /// Whether it is so still: for who has its ring's lock now.
    #[inline]
    pub(super) fn is_still(self, key: Key) -> bool {
        Self::find(key) == Some(self)
    }
}

/// Who is to hear what happened to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    /// Nobody: it is plain, and not watched.
    Nobody,
    /// The one epoll instance that watches it.
    One,
    /// Who watches it, and is told by who has the process's lock.
    Some,
    /// Whoever it concerns, by who has the process's lock.
    Any,
}

/// Who is to hear of what happens to the socket in this slot, as far as they do not know. For who has its ring's lock.
#[inline]
pub(super) fn audience(index: u32) -> Audience {
    match CELLS.find(index.cast_signed()).map_or(0, |cell| cell.word.load(Ordering::Acquire)) {
        word if word & PLAIN == 0 => Audience::Any,
        word if word & WATCHED == 0 => Audience::Nobody,
        word if word & WATCHED_BY_ONE != 0 => Audience::One,
        _ => Audience::Some,
    }
}

/// A plain socket's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It is on the ring, as this flow.
    Here(FlowId),
    /// It is on another ring, of that number.
    There(u16),
}

/// Where the socket in this slot is, if it is plain, seen from a ring whose lock the caller has.
#[inline]
pub(crate) fn place_of(index: u32, ring: u16) -> Option<Place> {
    let cell = CELLS.find(index.cast_signed())?;
    let word = cell.word.load(Ordering::Acquire);
    if word & PLAIN == 0 {
        return None;
    }
    let its = (word >> RING_SHIFT) as u16;
    if its != ring {
        return Some(Place::There(its));
    }
    let flow = cell.flow.load(Ordering::Acquire);
    Some(Place::Here(FlowId { ring, index: (flow >> 32) as u32, generation: flow as u32 }))
}

/// Says that it is plain. `false`: that was said before.
pub(super) fn publish(key: Key, flow: FlowId, traits: Traits) -> bool {
    let Some(cell) = CELLS.find_or_make(key.index.cast_signed()).filter(|_| key.index < i32::MAX as u32) else { return true };
    let word = u64::from(key.generation) << 32 | u64::from(flow.ring) << RING_SHIFT | traits.bits() | PLAIN;
    if cell.word.load(Ordering::Relaxed) == word {
        return false;
    }
    IN_USE.store(true, Ordering::Relaxed);
    cell.word.swap(0, Ordering::SeqCst);
    cell.sleeper.wake();
    let timeout = traits.receive_timeout.map_or(0, |timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX).max(1));
    cell.receive_timeout.store(timeout, Ordering::Release);
    cell.flow.store(u64::from(flow.index) << 32 | u64::from(flow.generation), Ordering::Release);
    cell.word.store(word, Ordering::Release);
    true
}

/// It may be plain no more.
#[inline]
fn unsay(index: u32) {
    if IN_USE.load(Ordering::Relaxed)
        && let Some(cell) = CELLS.find(index.cast_signed())
        && cell.word.load(Ordering::Relaxed) != 0
    {
        // (SeqCst: see `LoneSleeper::begin`.)
        cell.word.swap(0, Ordering::SeqCst);
        cell.sleeper.wake();
    }
}

/// The thread with that eventfd sleeps no more for the socket in that slot by its ring's lock. Whether it did.
pub(super) fn end_sleep(index: u32, waker: RawFd) -> bool {
    CELLS.find(index.cast_signed()).is_some_and(|cell| cell.sleeper.end(waker))
}

/// As [`end_sleep`], for whichever sockets it did.
#[cold]
pub(crate) fn end_sleeps(waker: RawFd) {
    if IN_USE.load(Ordering::Relaxed) {
        CELLS.numbers().filter_map(|index| CELLS.find(index)).for_each(|cell| _ = cell.sleeper.end(waker));
    }
}

/// None may be plain any more. Async-signal-safe.
pub(super) fn unsay_all() {
    if IN_USE.load(Ordering::Relaxed) {
        CELLS.numbers().for_each(|index| unsay(index.cast_unsigned()));
    }
}

/// In the child of a fork: its parent's threads sleep for nothing of its own. Async-signal-safe.
pub(super) fn forget_sleepers() {
    if IN_USE.load(Ordering::Relaxed) {
        CELLS.numbers().filter_map(|index| CELLS.find(index)).for_each(|cell| cell.sleeper.forget());
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Sockets(Slab<Socket>);

impl Sockets {
    pub(crate) const fn new() -> Self {
        Self(Slab::new())
    }

    // (So that large values are built where they stay.)
    #[inline(always)]
    pub(crate) fn insert(&mut self, socket: Socket) -> Key {
        self.0.insert(socket)
    }

    /// As [`Slab::insert_at`].
    pub(crate) fn insert_at(&mut self, key: Key, socket: Socket) {
        unsay(key.index);
        self.0.insert_at(key, socket);
    }

    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<&Socket> {
        self.0.find(key)
    }

    #[inline]
    pub(crate) fn find_mut(&mut self, key: Key) -> Option<&mut Socket> {
        unsay(key.index);
        self.0.find_mut(key)
    }

    /// As [`Slab::get`].
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Socket> {
        self.0.get(index)
    }

    /// As [`Slab::get_mut`].
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Socket> {
        unsay(index);
        self.0.get_mut(index)
    }

    /// As [`Slab::key_at`].
    #[inline]
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        self.0.key_at(index)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<Socket> {
        unsay(key.index);
        self.0.remove(key)
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &Socket)> {
        self.0.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut Socket)> {
        self.0.iter_mut().inspect(|(key, _)| unsay(key.index))
    }
}

#[cfg(test)]
mod tests {
    use ringway_stack::device::Protocol;

    use super::*;
    use crate::socket::Family;

    fn socket() -> Socket {
        Socket::new(3, Family::V4, Protocol::Tcp, false, ringway_stack::tcp::Config::default())
    }

    #[test]
    fn whoever_may_change_a_socket_unsays_that_it_is_plain() {
        type Change = fn(&mut Sockets, Key);
        let changes: [Change; 4] = [
            |sockets, key| assert!(sockets.find_mut(key).is_some()),
            |sockets, key| assert!(sockets.get_mut(key.index).is_some()),
            |sockets, _| assert_eq!(sockets.iter_mut().count(), 1),
            |sockets, key| drop(sockets.remove(key)),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let mut sockets = Sockets::new();
            // (The cells are the process's: a slot that no other test has.)
            let key = Key { index: 70_000 + at as u32, generation: 5 };
            sockets.insert_at(key, socket());
            assert!(Plain::find(key).is_none());
            let flow = FlowId { ring: 7, index: 9, generation: 3 };
            assert!(publish(key, flow, Traits::default()) && !publish(key, flow, Traits::default()));
            let found = Plain::find(key).expect("it is plain");
            assert!(found.flow == flow && found.is_still(key) && audience(key.index) == Audience::Nobody);
            assert_eq!((place_of(key.index, 7), place_of(key.index, 8)), (Some(Place::Here(flow)), Some(Place::There(7))));
            assert!(Plain::find(Key { generation: 6, ..key }).is_none(), "another socket's name");
            assert_eq!(sockets.find(key).map(|socket| socket.fd), Some(3));
            assert!(Plain::find(key).is_some(), "who looks changes nothing");
            change(&mut sockets, key);
            assert!(place_of(key.index, 7).is_none());
            assert!(Plain::find(key).is_none() && !found.is_still(key) && audience(key.index) == Audience::Any, "{at}");
        }
    }
}
