//! The sleep of such a wait: the thread registers itself on each of its rings under that ring's lock, sleeps on the descriptors of all, and takes itself out
//! again.
//!
//! Between two rings it has no lock: so a handler may run there, wait itself, and take this wait for one that was left ([`Offload::forsake`]); leave it by
//! longjmp; or fork. What the thread is registered on is in [`Thread::lone`] at any such time, and whoever finds it otherwise than it was registers nothing more.
//!
//! [`Offload::forsake`]: crate::process::Offload::forsake

use core::time::Duration;
use std::io;
use std::os::fd::RawFd;

use arrayvec::ArrayVec;
use libc::pollfd;
use ringway_host::sleep::ppoll;
use ringway_stack::ring::FlowId;
use ringway_stack::time::Instant;

use crate::lock::{Guard, Lock};
use crate::mux::epoll;
use crate::mux::sleepers::Lone;
use crate::mux::thread::{self, Thread};
use crate::process::{Process, fork_generation};
use crate::rings::{ProcessRing, RINGS_MAX, RingSet};
use crate::socket::{plain, table as sockets};

/// Descriptors that are slept on without an allocation.
const FEW: usize = 24;

/// The rings on which a thread is registered as one that sleeps by their locks alone, and its eventfd. Invariant: it is not without rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnRings {
    pub(in crate::mux) rings: RingSet,
    waker: RawFd,
}

impl OnRings {
    /// The thread sleeps no more for whatever it did, of which nothing is known any more.
    pub(in crate::mux) fn end_sleep(self) {
        sockets::end_sleeps(self.waker);
        epoll::end_sleeps(self.waker);
    }
}

/// What ended a sleep.
pub(super) enum Slept {
    /// Something, perhaps.
    Look,
    /// A descriptor of the kernel's is ready.
    Kernel,
}

/// A thread that is to sleep, on the rings on which it is registered as a sleeper. Whoever makes one sees to [`Registration::deregister`].
pub(super) struct Registration<'a> {
    thread: &'a Thread,
    process: &'a Process,
    waker: RawFd,
    /// When it wakes by itself.
    until: Option<Instant>,
    rings: RingSet,
    /// Their descriptors.
    fds: ArrayVec<RawFd, RINGS_MAX>,
    /// The eventfd stands beside something.
    has_begun: bool,
    is_woken: bool,
    /// On some ring it could not be registered now.
    is_disturbed: bool,
}

impl<'a> Registration<'a> {
    /// On no ring yet; until the deadline, if there is one.
    pub(super) fn new(thread: &'a Thread, process: &'a Process, waker: RawFd, deadline: Option<Instant>) -> Self {
        let (rings, fds) = (RingSet::NONE, ArrayVec::new());
        Self { thread, process, waker, until: deadline, rings, fds, has_begun: false, is_woken: false, is_disturbed: false }
    }

    /// Whether there is a ring on which it could not be registered: somebody else is, or there is something to poll.
    pub(super) const fn is_disturbed(&self) -> bool {
        self.is_disturbed
    }

    pub(super) fn is_of_several(&self) -> bool {
        self.fds.len() > 1
    }

    /// Registers the thread on a ring that it has just looked at, for a flow of it or for any, and arms that. `begin` puts its eventfd beside what it sleeps
    /// for. `None`: that is not plain any more.
    pub(super) fn register(
        &mut self,
        mut own: Guard<'_, ProcessRing>,
        (ring, flow): (u16, Option<FlowId>),
        begin: impl FnOnce(RawFd) -> bool,
    ) -> Option<()> {
        let waker = self.waker;
        if self.is_disturbed || !self.is_as_it_was() || !own.register_alone(Lone { flow, waker, is_woken: false }) {
            self.is_disturbed = true;
            return Some(());
        }
        self.has_begun = true;
        if !begin(waker) {
            self.leave(own, ring);
            return None;
        }
        self.rings = self.rings.with(RingSet::of(ring));
        self.thread.generation.set(fork_generation());
        self.thread.lone.set(Some(OnRings { rings: self.rings, waker }));
        self.until = [own.ring.sleep_deadline(), self.until].into_iter().flatten().min();
        self.fds.push(own.wait_fd());
        Some(())
    }

    /// Whether no handler has taken the thread off its rings.
    fn is_as_it_was(&self) -> bool {
        match self.thread.lone.get() {
            None => self.rings.is_empty(),
            Some(registered) => registered.rings == self.rings && self.thread.generation.get() == fork_generation(),
        }
    }

    /// Sleeps on the thread's eventfd, the rings' descriptors, and the kernel's.
    pub(super) fn poll(&mut self, kernel: &[pollfd], now: Instant) -> io::Result<Slept> {
        let readable = |fd| pollfd { fd, events: libc::POLLIN, revents: 0 };
        let (first, count) = (1 + self.fds.len(), 1 + self.fds.len() + kernel.len());
        let mut on_stack = [readable(self.waker); FEW];
        let mut on_heap = Vec::new();
        let fds = if count <= FEW {
            &mut on_stack[..count]
        } else {
            on_heap.resize(count, readable(self.waker));
            &mut on_heap[..]
        };
        for (slot, &ring) in fds[1..].iter_mut().zip(&self.fds) {
            *slot = readable(ring);
        }
        fds[first..].copy_from_slice(kernel);
        let timeout: Option<Duration> = self.until.map(|until| until.since(now));
        ppoll(fds, timeout, None)?;
        self.is_woken = fds[0].revents != 0;
        Ok(if fds[first..].iter().any(|fd| fd.revents != 0) { Slept::Kernel } else { Slept::Look })
    }

    /// The thread is awake. Whoever relies on a ring's being armed finds it so. `end` takes the eventfd from beside what it slept for.
    pub(super) fn deregister(&mut self, end: impl FnOnce(RawFd)) {
        if !core::mem::take(&mut self.has_begun) {
            return;
        }
        if self.thread.generation.get() != fork_generation() {
            // A handler has forked, and this is the child: the rings are its parent's.
            self.thread.lone.set(None);
        }
        // (First, for a handler may leave the call by longjmp as soon as a ring's lock is released. The thread is awake, and looks at everything anyway.)
        end(self.waker);
        for ring in self.rings.iter() {
            self.deregister_from(ring);
        }
        if self.is_woken {
            thread::clear_waker();
        }
    }

    fn deregister_from(&self, ring: u16) {
        let is_there = || self.thread.lone.get().filter(|registered| registered.rings.contains(ring));
        if is_there().is_none() {
            return;
        }
        let Some(own) = self.process.ring(ring).map(Lock::lock) else { return };
        // (A handler may have waited meanwhile, and taken this wait for one that was left.)
        let Some(OnRings { rings, waker }) = is_there() else { return };
        let others = rings.without(ring);
        self.thread.lone.set((!others.is_empty()).then_some(OnRings { rings: others, waker }));
        self.leave(own, ring);
    }

    /// Takes the thread out of a ring that it is registered on, whose lock it has. Whoever relies on the ring's being armed finds it so: the progress thread may
    /// sleep on it, or somebody who came meanwhile.
    fn leave(&self, mut own: Guard<'_, ProcessRing>, ring: u16) {
        own.deregister_alone();
        let is_relied_on = own.watch.is_relied_on();
        drop(own);
        if is_relied_on {
            plain::see_to_the_rest(self.process, ring, self.process.now(), None);
        }
    }
}
