//! poll(2) of plain sockets, and of descriptors that are the kernel's, by the sockets' rings' locks alone.

use core::time::Duration;
use std::os::fd::RawFd;

use arrayvec::ArrayVec;
use libc::pollfd;
use ringway_host::sleep::ppoll;
use ringway_stack::time::Instant;

use super::super::alone::{self, Awaited, Look};
use super::super::thread::{self, Thread};
use super::super::wait::SpinClass;
use super::{ALWAYS, kernel_is_due};
use crate::errno::Errno;
use crate::fdtable::{self, Entry};
use crate::process::Process;
use crate::rings::{ProcessRing, RingSet};
use crate::socket::plain::Asked;
use crate::socket::table as sockets;

/// What may be asked for: all else, the kernel has to be asked about.
const READS: i16 = libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND;
const MEANT: i16 = READS | libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLRDHUP;

/// So many descriptors are the kernel's, or have a half there; of more, the long way.
const KERNEL_MAX: usize = 32;

/// Polls a set. `None`: it is to be polled the long way.
pub(super) fn poll(process: &Process, fds: &mut [pollfd], started: Instant, deadline: Option<Instant>) -> Option<Result<usize, Errno>> {
    if !process.has_several_rings() || crate::extra::was_any_held() || fds.iter().any(|fd| fdtable::is_stale(fd.fd, started)) {
        return None;
    }
    let mut set = Set { process, fds, kernel: ArrayVec::new(), sockets: 0, seen: 0, here: 0, begun: 0, ready: 0, is_unwatched: true };
    alone::look(process, &mut set, started).filter(|_| set.is_whole())?;
    if set.is_ready() {
        return Some(set.take());
    }
    if deadline.is_some_and(|deadline| deadline <= started) {
        return Some(set.ended(Errno(libc::EAGAIN)));
    }
    if !set.is_unwatched {
        return None;
    }
    let timeout = deadline.map(|deadline| deadline.since(started));
    alone::run(process, SpinClass::Select, timeout, false, &mut set).found()
}

/// A set that is polled. What is found stands in it.
///
/// A thread that sleeps for it is entered on each ring that it has a socket on, and its eventfd stands beside each socket: so whoever finds something for one on
/// its ring, or closes it, changes it, or takes it to another ring or to the kernel, wakes the thread. What is the kernel's, that tells of.
struct Set<'a> {
    process: &'a Process,
    fds: &'a mut [pollfd],
    /// What the kernel is asked of it, in the set's order.
    kernel: ArrayVec<pollfd, KERNEL_MAX>,
    /// How many of its entries are plain sockets, and how many of these were looked at: of all of them, and of one ring's.
    sockets: usize,
    seen: usize,
    here: usize,
    /// How many the thread sleeps for.
    begun: usize,
    /// How many were ready.
    ready: usize,
    /// Nobody else waits for any of them.
    is_unwatched: bool,
}

/// The socket at a place in the set, if it is plain and on that ring: for who has the ring's lock.
fn socket_at(fd: &pollfd, ring: u16) -> Option<Asked> {
    let Entry::Socket(key) = fdtable::peek(fd.fd) else { return None };
    Asked::find(key).filter(|asked| asked.flow().ring == ring)
}

impl Set<'_> {
    /// Whether all were looked at. (One that came onto another ring meanwhile may have been there too late.)
    const fn is_whole(&self) -> bool {
        self.seen == self.sockets
    }

    /// Asks the kernel, and adds what it has to what was found. How many are ready in all.
    fn merge(&mut self) -> usize {
        if self.kernel.is_empty() || !matches!(ppoll(&mut self.kernel, Some(Duration::ZERO), None), Ok(1..)) {
            return self.ready;
        }
        thread::with(Thread::kernel_delivered);
        let mut kernel = self.kernel.iter().peekable();
        for fd in &mut *self.fds {
            let Some(half) = kernel.next_if(|half| half.fd == fd.fd).filter(|half| half.revents != 0) else { continue };
            self.ready += usize::from(fd.revents == 0);
            fd.revents |= half.revents;
            if half.revents & libc::POLLIN != 0
                && let Entry::Socket(key) = fdtable::peek(fd.fd)
            {
                Asked::hint(self.process, key);
            }
        }
        self.ready
    }
}

impl Awaited for Set<'_> {
    type Found = Result<usize, Errno>;

    fn begin(&mut self) -> Option<RingSet> {
        self.kernel.clear();
        (self.sockets, self.seen, self.ready, self.is_unwatched) = (0, 0, 0, true);
        let mut rings = RingSet::NONE;
        for fd in &mut *self.fds {
            fd.revents = 0;
            if fd.fd < 0 {
                continue;
            }
            let events = match fdtable::peek(fd.fd) {
                Entry::Socket(key) => {
                    let asked = Asked::find(key).filter(|_| fd.events & !MEANT == 0)?;
                    rings = rings.with(RingSet::of(asked.flow().ring));
                    self.sockets += 1;
                    // (There is always room to send on the ring.)
                    asked.is_of_datagrams().then_some(fd.events & READS)
                }
                Entry::None | Entry::Kernel(_) => Some(fd.events),
                _ => return None,
            };
            if let Some(events) = events {
                self.kernel.try_push(pollfd { fd: fd.fd, events, revents: 0 }).ok()?;
            }
        }
        (self.sockets != 0).then_some(rings)
    }

    fn look(&mut self, own: &mut ProcessRing, ring: u16, now: Instant) -> Option<Look> {
        own.poll_if_due(now);
        self.here = 0;
        let (mut flow, mut held) = (None, None);
        for fd in &mut *self.fds {
            let Some(asked) = socket_at(fd, ring) else { continue };
            // The bits of poll and epoll are the same, and those that poll knows are the lower half.
            #[expect(clippy::cast_possible_truncation, reason = "the upper half is epoll's own")]
            let found = (asked.readiness(own) as u16).cast_signed() & (fd.events | ALWAYS);
            fd.revents = found;
            self.ready += usize::from(found != 0);
            self.is_unwatched &= asked.is_unwatched();
            self.here += 1;
            flow = Some(asked.flow());
            held = held.or_else(|| flow.filter(|&flow| own.ring.is_held(flow)));
        }
        self.seen += self.here;
        Some(Look { has_more: own.has_more_to_do(), held, flow: flow.filter(|_| self.here == 1) })
    }

    fn rest(&mut self) -> bool {
        self.is_unwatched && self.is_whole()
    }

    fn is_ready(&self) -> bool {
        self.ready != 0
    }

    fn take(&mut self) -> Self::Found {
        // (The kernel has its turn although ours has something.)
        if !self.kernel.is_empty() && kernel_is_due(self.process) {
            self.merge();
        }
        Ok(self.ready)
    }

    fn ended(&mut self, by: Errno) -> Self::Found {
        if by == Errno(libc::EAGAIN) { Ok(self.merge()) } else { Err(by) }
    }

    fn begin_sleep(&mut self, ring: u16, waker: RawFd) -> bool {
        let begins = |fd: &&pollfd| socket_at(fd, ring).is_some_and(|asked| asked.begin_sleep(waker));
        let begun = self.fds.iter().filter(begins).count();
        self.begun += begun;
        begun == self.here
    }

    fn end_sleep(&mut self, waker: RawFd) {
        let ends = |fd: &&pollfd| matches!(fdtable::peek(fd.fd), Entry::Socket(key) if Asked::end_sleep(key, waker));
        if self.fds.iter().filter(ends).count() < core::mem::take(&mut self.begun) {
            // (Some number names another thing by now, or one socket is there twice.)
            sockets::end_sleeps(waker);
        }
    }

    fn kernel(&self) -> &[pollfd] {
        &self.kernel
    }

    fn ask_kernel(&mut self) -> Option<Self::Found> {
        if self.sockets > 1 {
            // What is ready of ours is told of, too.
            alone::look(self.process, self, self.process.now())?;
        }
        (self.merge() != 0).then_some(Ok(self.ready))
    }
}
