//! An epoll instance's kernel half beside the ring's own wake-ups, so that a thread sleeps on both in one epoll_wait(2).
//!
//! A sleep in poll(2) on the two costs more system calls (poll tells that the ring was woken, but not by whom), and whoever wakes
//! it loses its core to it: the kernel lets a waker finish what it does only where the sleeper is in epoll_wait (a hint that the
//! wake-up of an epoll instance in a poll loses). So the real epoll is a member of the ring's, by a number of the library's own,
//! which no close of the program's takes away unseen. It stays one between two sleeps; but only its own sleeper is to be woken by
//! it, so whoever else sleeps on the ring takes it out of the watch first.

use std::os::fd::RawFd;

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
use ringway_host::queues::BESIDE;
use ringway_host::sleep::epoll_ctl;

use super::wait::Waiting;
use crate::process::{self, Offload};
use crate::slab::Key;
use crate::{descendants, fdtable, real};

/// After so many sleeps of others on the ring, the place is free for one of them.
const OTHERS_MAX: u32 = 16;

/// Which instance has the place beside the ring, if any.
#[derive(Debug, Default)]
pub(super) struct Beside {
    member: Option<Member>,
    /// Sleeps of others since its own last.
    others: u32,
    /// The kernel would not have this one.
    refused: Option<Key>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    epoll: Key,
    /// The library's own number for it.
    fd: RawFd,
    is_watched: bool,
}

impl Offload {
    /// A thread is about to sleep on the ring, and on what its wait names. Whether the ring's descriptor tells it of all that.
    pub(super) fn sleeps_on_ring_alone(&mut self, w: &Waiting<'_>, ring: RawFd) -> bool {
        let instance = match (w.epolls, &*w.kernel) {
            (&[index], &[half]) if w.sockets.is_empty() && half.events == libc::POLLIN => {
                self.mux.epolls.get(index).filter(|epoll| epoll.is_named(half.fd)).and_then(|_| self.mux.epolls.key_at(index))
            }
            _ => None,
        };
        if let Some(key) = instance {
            return self.put_beside(key, ring);
        }
        self.watch_beside(false);
        w.kernel.is_empty()
    }

    fn put_beside(&mut self, epoll: Key, ring: RawFd) -> bool {
        // (The progress thread sleeps on the ring as well, and what is the instance's concerns it not.)
        let is_deep = self.mux.watch.is_deep();
        let beside = &mut self.mux.watch.beside;
        if is_deep || beside.refused == Some(epoll) {
            self.watch_beside(false);
            return false;
        }
        match beside.member {
            Some(member) if member.epoll == epoll => beside.others = 0,
            Some(_) if beside.others < OTHERS_MAX => {
                beside.others += 1;
                self.watch_beside(false);
                return false;
            }
            Some(_) | None => {
                self.empty_place();
                let Some(instance) = self.mux.epolls.find(epoll) else { return false };
                let added = add(ring, instance.fd());
                let beside = &mut self.mux.watch.beside;
                match added {
                    Some(fd) => beside.member = Some(Member { epoll, fd, is_watched: true }),
                    None => beside.refused = Some(epoll),
                }
            }
        }
        self.watch_beside(true)
    }

    /// Whether the sleeper on the ring is to be told of it from now on. `false`: it is not told.
    pub(super) fn watch_beside(&mut self, is_watched: bool) -> bool {
        let Some(member) = self.mux.watch.beside.member.filter(|member| member.is_watched != is_watched) else {
            return is_watched && self.mux.watch.beside.member.is_some();
        };
        let ring = ring_fd(self);
        if epoll_ctl(ring, EPOLL_CTL_MOD, member.fd, Some(event(is_watched))).is_err() {
            self.empty_place();
            return false;
        }
        if let Some(member) = &mut self.mux.watch.beside.member {
            member.is_watched = is_watched;
        }
        is_watched
    }

    /// Somebody sleeps on the ring, and perhaps nobody of those who wait in the instance does.
    pub(super) fn leave_beside_to_its_sleeper(&mut self) {
        if self.mux.watch.in_ring.is_none() {
            self.watch_beside(false);
        }
    }

    /// Whether its sleeper, whom nobody else may take it from, is told of it.
    pub(super) fn is_told_of_beside(&self) -> bool {
        self.mux.watch.beside.member.is_some_and(|member| member.is_watched)
    }

    /// An instance ends.
    pub(super) fn forget_beside(&mut self, epoll: Key) {
        let beside = &mut self.mux.watch.beside;
        beside.refused.take_if(|refused| *refused == epoll);
        if beside.member.is_some_and(|member| member.epoll == epoll) {
            self.empty_place();
        }
    }

    fn empty_place(&mut self) {
        self.mux.watch.beside.others = 0;
        if let Some(member) = self.mux.watch.beside.member.take() {
            // (Closing is not enough: the program, or a child, may have the instance still.)
            let _ = epoll_ctl(ring_fd(self), EPOLL_CTL_DEL, member.fd, None);
            close(member.fd);
        }
    }
}

/// The kernel would not have one instance of the program's in another: epoll instances nest five deep at most, and the ring's was one of them. Whether
/// it was: now it is not.
pub(crate) fn makes_way() -> bool {
    let Some(process) = process::process() else { return false };
    let mut offload = process.lock();
    let Some(member) = offload.mux.watch.beside.member else { return false };
    offload.empty_place();
    offload.mux.watch.beside.refused = Some(member.epoll);
    true
}

/// In the child of a fork: the copy of a number that is its parent's. (The ring's epoll is shared with the parent, and is left as it is.)
/// Async-signal-safe.
pub(crate) fn leave_to_parent(parent: &Offload) {
    if let Some(member) = parent.mux.watch.beside.member
        && fdtable::peek(member.fd) == fdtable::Entry::Internal
    {
        close(member.fd);
    }
}

fn ring_fd(offload: &Offload) -> RawFd {
    ringway_stack::device::Queues::wait_fd(offload.ring.queues()).unwrap_or(-1)
}

/// The library's own number for the instance, which is a member from now on.
fn add(ring: RawFd, instance: RawFd) -> Option<RawFd> {
    let fd = descendants::copy_out_of_the_way(instance)?;
    if epoll_ctl(ring, EPOLL_CTL_ADD, fd, Some(event(true))).is_err() {
        close(fd);
        return None;
    }
    Some(fd)
}

fn close(fd: RawFd) {
    fdtable::clear(fd);
    // SAFETY: made in `add`, and nobody else closes it.
    unsafe { real::close(fd) };
}

fn event(is_watched: bool) -> libc::epoll_event {
    libc::epoll_event { events: if is_watched { libc::EPOLLIN as u32 } else { 0 }, u64: BESIDE }
}
