//! Descriptors of the Extra API's rings: epoll instances of which the one member is the ring.
//!
//! So a ring can be slept on by poll, select and epoll, under any number, and in any other instance, as every instance can.

use std::os::fd::RawFd;

use super::super::State;
use super::super::interest::{Item, Target};
use super::super::{IN, Watcher};
use super::{Epoll, INDEX_MASK, TOKEN_TAG, TOKEN_TAG_SHIFT, add, destroy, is_plain, remove, token};
use crate::fdtable::{self, Entry};
use crate::process::Offload;
use crate::real;
use crate::slab::Key;

/// What an instance that is a ring's descriptor knows of the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(super) ring: Key,
    /// Its place in its own interest list.
    item: u32,
    /// There are completions to poll.
    ready: bool,
    /// The number by which the library made it, until the program closes that.
    made: Option<RawFd>,
}

impl Epoll {
    pub(super) fn has_completions(&self) -> bool {
        self.ring.is_some_and(|end| end.ready)
    }
}

/// Makes `fd`, a new epoll instance of the kernel's, the descriptor of a ring. Returns its place among the instances; `None`: the number is
/// beyond the table.
pub(crate) fn open(offload: &mut Offload, fd: RawFd, ring: Key, ready: bool) -> Option<u32> {
    let index = offload.mux.epolls.insert(fd, false).index;
    if !fdtable::set(fd, Entry::Epoll(index)) {
        destroy(offload, index);
        return None;
    }
    let instance = offload.mux.epolls.get_mut(index)?;
    let item = instance.lists().interest.add(Item { target: Target::Ring(index), fd, events: IN, data: 0, kernel: None });
    instance.ring = Some(End { ring, item, ready, made: Some(fd) });
    if ready {
        offload.mux.edge(index, item, IN);
    }
    Some(index)
}

/// The ring whose descriptor `fd` is.
#[inline]
pub(crate) fn of(offload: &Offload, fd: RawFd) -> Option<Key> {
    match fdtable::peek(fd) {
        Entry::Epoll(index) if !is_plain(index) => offload.mux.epolls.get(index)?.ring.map(|end| end.ring),
        _ => None,
    }
}

/// The ring got something, or has nothing left.
#[inline]
pub(crate) fn set_ready(mux: &mut State, index: u32, ready: bool) {
    let Some(end) = mux.epolls.get_mut(index).and_then(|instance| instance.ring.as_mut()) else { return };
    end.ready = ready;
    let item = end.item;
    if ready {
        mux.edge(index, item, IN);
    }
}

/// Whether the kernel watches anything for a ring.
#[inline]
pub(crate) fn has_kernel_members(mux: &State, index: u32) -> bool {
    mux.epolls.get(index).is_some_and(|instance| instance.lists().kernel_members)
}

/// Whether `fd` is a number of a ring's descriptor, and stays so for as long as the lock is held.
pub(crate) fn is_numbered(offload: &Offload, fd: RawFd, ring: Key) -> bool {
    instance_of(offload, fd, ring).is_some()
}

fn instance_of(offload: &Offload, fd: RawFd, ring: Key) -> Option<&Epoll> {
    let Entry::Epoll(index) = fdtable::peek(fd) else { return None };
    let instance = offload.mux.epolls.get(index)?;
    // (While a number is being closed, the table still has it.)
    let is_its = instance.ring.is_some_and(|end| end.ring == ring) && instance.fds.contains(&fd);
    is_its.then_some(instance)
}

/// The socket of a ring that an event of the ring's real instance is of.
pub(crate) fn member(offload: &Offload, fd: RawFd, ring: Key, data: u64) -> Option<Key> {
    let instance = instance_of(offload, fd, ring)?;
    let item = u32::try_from(data & INDEX_MASK).ok()?;
    if data >> TOKEN_TAG_SHIFT != TOKEN_TAG || data != token(&instance.lists().interest, item) {
        return None;
    }
    let target = instance.lists().interest.item(item)?.target;
    match target {
        Target::Socket(socket) | Target::KernelHalf(socket) => offload.sockets.key_at(socket),
        _ => None,
    }
}

/// The descriptor is readable, too, while a socket is: or only while the kernel's half of it is, where completions tell of the other.
pub(crate) fn watch(offload: &mut Offload, (epfd, index): (RawFd, u32), socket: u32, has_completions: bool) {
    let Some(fd) = offload.sockets.get(socket).map(|socket| socket.fd) else { return };
    let event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    let target = if has_completions { Target::KernelHalf(socket) } else { Target::Socket(socket) };
    // (That it is watched already is no failure.)
    let _ = add(offload, index, epfd, target, fd, Some(event));
}

/// Ends that.
pub(crate) fn unwatch(offload: &mut Offload, (epfd, index): (RawFd, u32), socket: u32) {
    let Some(socket) = offload.sockets.get(socket) else { return };
    let watchers: Vec<Watcher> = socket.watch.items.iter().filter(|watcher| watcher.epoll == index).copied().collect();
    watchers.into_iter().for_each(|watcher| remove(offload, watcher, epfd));
}

/// A number of an instance was closed, which has others. If it is a ring's, it goes by one of those.
pub(super) fn lost_number(offload: &mut Offload, index: u32, closed: RawFd) {
    let Some(instance) = offload.mux.epolls.get_mut(index) else { return };
    let (Some(end), Some(&other)) = (&mut instance.ring, instance.fds.first()) else { return };
    if end.made == Some(closed) {
        end.made = None;
    }
    offload.extra_rings.renumber(end.ring, closed, other);
}

/// The ring is no more: its descriptor goes, and who sleeps on a duplicate finds nothing any more. (A duplicate is the program's to close.)
pub(crate) fn close(offload: &mut Offload, index: u32) {
    let Some(instance) = offload.mux.epolls.get_mut(index) else { return };
    let made = instance.ring.take().and_then(|end| end.made);
    instance.fds.retain(|&known| Some(known) != made);
    let is_last = instance.fds.is_empty();
    if let Some(fd) = made
        && fdtable::clear_if(fd, Entry::Epoll(index))
    {
        // SAFETY: plain integers; the library made it, and the program has not closed it.
        unsafe { real::close(fd) };
    }
    if is_last {
        destroy(offload, index);
    }
}
