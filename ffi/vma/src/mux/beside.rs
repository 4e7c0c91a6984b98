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
use crate::rings::ProcessRing;
use crate::slab::Key;
use crate::{descendants, fdtable, real};

/// After so many sleeps of others on the ring, the place is free for one of them.
const OTHERS_MAX: u32 = 16;

/// Which instance has the place beside the ring, if any.
#[derive(Debug)]
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

impl Beside {
    pub(super) const fn new() -> Self {
        Self { member: None, others: 0, refused: None }
    }
}

impl Offload {
    /// A thread is about to sleep on a ring, and on what its wait names. Whether the ring's descriptor tells it of all that.
    pub(super) fn sleeps_on_ring_alone(&mut self, w: &Waiting<'_>, ring: u16) -> bool {
        let instance = match (w.epolls, &*w.kernel) {
            (&[index], &[half]) if w.sockets.is_empty() && half.events == libc::POLLIN => {
                self.mux.epolls.get(index).filter(|epoll| epoll.is_named(half.fd)).and_then(|_| self.mux.epolls.key_at(index))
            }
            _ => None,
        };
        if let Some(key) = instance {
            return self.put_beside(key, ring);
        }
        self.rings.at_mut(ring).watch_beside(false);
        w.kernel.is_empty()
    }

    fn put_beside(&mut self, epoll: Key, ring: u16) -> bool {
        let Self { rings, mux, .. } = self;
        let own = rings.at_mut(ring);
        // (The progress thread sleeps on the ring as well, and what is the instance's concerns it not.)
        let is_deep = own.watch.is_deep();
        let beside = &mut own.watch.beside;
        if is_deep || beside.refused == Some(epoll) {
            own.watch_beside(false);
            return false;
        }
        match beside.member {
            Some(member) if member.epoll == epoll => beside.others = 0,
            Some(_) if beside.others < OTHERS_MAX => {
                beside.others += 1;
                own.watch_beside(false);
                return false;
            }
            Some(_) | None => {
                own.empty_place();
                let Some(instance) = mux.epolls.find(epoll) else { return false };
                match add(own.wait_fd(), instance.fd()) {
                    Some(fd) => own.watch.beside.member = Some(Member { epoll, fd, is_watched: true }),
                    None => own.watch.beside.refused = Some(epoll),
                }
            }
        }
        own.watch_beside(true)
    }

    /// Somebody sleeps on the rings, and perhaps nobody of those who wait in the instances does.
    pub(super) fn leave_beside_to_its_sleeper(&mut self) {
        for own in self.rings.iter_mut().filter(|own| own.watch.in_ring.is_none()) {
            own.watch_beside(false);
        }
    }

    /// Whether some instance's sleeper, whom nobody else may take it from, is told of it.
    pub(super) fn is_told_of_beside(&self) -> bool {
        self.rings.iter().any(|own| own.watch.beside.member.is_some_and(|member| member.is_watched))
    }

    /// An instance ends.
    pub(super) fn forget_beside(&mut self, epoll: Key) {
        for own in self.rings.iter_mut() {
            own.watch.beside.refused.take_if(|refused| *refused == epoll);
            if own.watch.beside.member.is_some_and(|member| member.epoll == epoll) {
                own.empty_place();
            }
        }
    }
}

impl ProcessRing {
    /// Whether the sleeper on the ring is to be told of it from now on. `false`: it is not told.
    pub(super) fn watch_beside(&mut self, is_watched: bool) -> bool {
        let ring = self.wait_fd();
        let Some(member) = &mut self.watch.beside.member else { return false };
        if member.is_watched == is_watched {
            return is_watched;
        }
        if epoll_ctl(ring, EPOLL_CTL_MOD, member.fd, Some(event(is_watched))).is_err() {
            self.empty_place();
            return false;
        }
        member.is_watched = is_watched;
        is_watched
    }

    fn empty_place(&mut self) {
        self.watch.beside.others = 0;
        if let Some(member) = self.watch.beside.member.take() {
            // (Closing is not enough: the program, or a child, may have the instance still.)
            let _ = epoll_ctl(self.wait_fd(), EPOLL_CTL_DEL, member.fd, None);
            close(member.fd);
        }
    }
}

/// The kernel would not have one instance of the program's in another: epoll instances nest five deep at most, and a ring's was one of them. Whether
/// one was: now it is not.
pub(crate) fn makes_way() -> bool {
    let Some(process) = process::process() else { return false };
    let mut offload = process.lock();
    let mut has_been = false;
    for own in offload.rings.iter_mut() {
        if let Some(member) = own.watch.beside.member {
            own.empty_place();
            own.watch.beside.refused = Some(member.epoll);
            has_been = true;
        }
    }
    has_been
}

/// In the child of a fork: the copies of numbers that are its parent's. (The rings' epolls are shared with the parent, and are left as they are.)
/// Async-signal-safe.
pub(crate) fn leave_to_parent(parent: &Offload) {
    for member in parent.rings.iter().filter_map(|own| own.watch.beside.member) {
        if fdtable::peek(member.fd) == fdtable::Entry::Internal {
            close(member.fd);
        }
    }
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
