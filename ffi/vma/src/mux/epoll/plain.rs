//! Collecting events by rings' locks alone: from an instance all of whose sockets are plain ([`crate::socket::plain`]), on one ring as those of a thread
//! with a ring of its own are, or on several.
//!
//! An event of a plain socket is put onto the list of the one instance that watches it by whoever has the lock of the socket's ring. What is on the list is
//! collected in its order, and each item by who has its socket's ring's lock: so a collection goes from ring to ring as the list does, and the sockets of one
//! ring keep nobody's waiting. What is not plain, of sockets or of instances, is for who has the process's lock.

use core::time::Duration;
use std::os::fd::RawFd;

use libc::{epoll_event, pollfd};
use ringway_stack::ring::{Event, FlowId};
use ringway_stack::time::Instant;

use super::super::alone::{self, Awaited, Look};
use super::super::expand;
use super::super::interest::Target;
use super::super::turns::Ratio;
use super::super::wait::SpinClass;
use super::collect::{collect_kernel, ours_of};
use super::table;
use crate::errno::Errno;
use crate::fdtable::{self, Entry};
use crate::process::{Offload, Process};
use crate::rings::{Above, Only, ProcessRing, RINGS_MAX, RingSet};
use crate::socket::table::{self as sockets, Place};

/// Tells the instance that alone watches a socket what happened to that. `false`: it is for who has the process's lock. For who has the ring's.
pub(crate) fn tell(event: Event, above: &Above, only: Only) -> bool {
    let Some(mut lists) = table::lists_of(only.epoll, event.flow.ring) else { return false };
    lists.interest.edge(only.item, expand(event.edges.bits()));
    above.note_told(|edge| lists.interest.is_told(only.item, expand(edge.bits())));
    true
}

/// A collection under the process's lock is over. If the instance is plain, the next one need not have that.
pub(super) fn say_if_plain(offload: &Offload, index: u32) {
    let may_be = offload.rings.are_locked() && !offload.is_heard() && !offload.rings_are_used();
    let Some(instance) = offload.mux.epolls.get(index).filter(|_| may_be) else { return };
    if instance.parents.is_empty() && instance.sleepers.is_empty() && instance.ring.is_none() && !instance.adopted {
        table::publish(index, instance.rings);
    }
}

/// `epoll_wait` on a plain instance, if there is something to report, or nothing to wait for. `None`: it is to go the long way.
pub(super) fn collect(
    process: &Process,
    (index, epfd): (u32, RawFd),
    now: Instant,
    events: &mut [epoll_event],
    timeout: Option<Duration>,
) -> Option<Result<usize, Errno>> {
    let mut found = Collection::new(process, (index, epfd), events, Some(process.params.select_skip_os));
    let mut looked = alone::look(process, &mut found, now)?;
    if found.asks_kernel {
        match collect_kernel(process, index, epfd, found.count, found.events, found.round) {
            Ok(count) => found.count = count,
            Err(error) => return Some(Err(error)),
        }
        if found.count == 0 {
            // (Both had their turn: of one event, ours had none.)
            found.ratio = None;
            looked = alone::look(process, &mut found, now)?;
        }
    }
    // (Where there is nothing, and nothing is to be waited for, what the kernel has by now counts, however seldom it is asked.)
    let is_all = looked.is_all && !looked.had_more && (found.has_asked_kernel || !found.has_members);
    (found.count != 0 || is_all && timeout == Some(Duration::ZERO)).then_some(Ok(found.count))
}

/// As [`collect`], of a call that found nothing and waits. `None`: it is to go the long way.
pub(super) fn wait(
    process: &Process,
    (index, epfd): (u32, RawFd),
    events: &mut [epoll_event],
    timeout: Option<Duration>,
) -> Option<Result<usize, Errno>> {
    table::rings_of(index)?;
    // (The real epoll is among what the thread sleeps on.)
    alone::run(process, SpinClass::Select, timeout, false, &mut Collection::new(process, (index, epfd), events, None)).found()
}

/// Where a collection stopped, if not at the list's end, nor for want of room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// At an item whose socket is on that ring.
    Ring(u16),
    /// At one that is not plain.
    NotPlain,
}

/// A collection from a plain instance.
///
/// A thread that sleeps for it is entered on each of the instance's rings, for any flow of these, and its eventfd stands beside the instance. Whoever puts an item
/// onto the list by a ring's lock has taken the event from that ring before, and so has woken the thread; whoever does by the process's lock finds the eventfd,
/// and so does who adds a socket, or brings one of them to a ring more.
struct Collection<'a> {
    process: &'a Process,
    index: u32,
    epfd: RawFd,
    events: &'a mut [epoll_event],
    /// When the real epoll has its turn; `None`: it has none.
    ratio: Option<Ratio>,
    half: [pollfd; 1],
    /// On which its sockets are.
    rings: RingSet,
    /// Its name; zero: it has not begun.
    round: u32,
    count: usize,
    room: usize,
    stop: Option<Stop>,
    /// The real epoll has members.
    has_members: bool,
    /// It is the real epoll's turn, in this look or in one before.
    asks_kernel: bool,
    has_asked_kernel: bool,
}

impl<'a> Collection<'a> {
    fn new(process: &'a Process, (index, epfd): (u32, RawFd), events: &'a mut [epoll_event], ratio: Option<Ratio>) -> Self {
        let half = [pollfd { fd: epfd, events: libc::POLLIN, revents: 0 }];
        let (rings, round, count, room, stop) = (RingSet::NONE, 0, 0, 0, None);
        let (has_members, asks_kernel, has_asked_kernel) = (false, false, false);
        Self { process, index, epfd, events, ratio, half, rings, round, count, room, stop, has_members, asks_kernel, has_asked_kernel }
    }

    /// Collects what is next on the list, up to an item that is not of this ring, whose lock is held. A first part begins the collection, `at` a time.
    /// `None`: the instance is not plain.
    fn collect(&mut self, own: &ProcessRing, ring: u16, at: Option<Instant>) -> Option<()> {
        let mut lists = table::lists_of(self.index, ring)?;
        if let Some(now) = at.filter(|_| self.round == 0) {
            // (Its number may be another instance's by now.)
            if fdtable::peek(self.epfd) != Entry::Epoll(self.index) {
                return None;
            }
            (self.round, self.has_members) = lists.begin();
            let room = self.events.len();
            self.asks_kernel = self.ratio.is_some_and(|ratio| lists.asks_kernel(self.index, now, ratio, room));
            self.has_asked_kernel |= self.asks_kernel;
            self.room = if self.asks_kernel { ours_of(room) } else { room };
        } else if !lists.is_in(self.round) {
            // Another thread collects from it: what it has put to the list's end would be reported twice.
            self.stop = (self.count == 0).then_some(Stop::NotPlain);
            return Some(());
        }
        let Self { round, events, .. } = self;
        let mut stop = None;
        self.count += lists.interest.collect(
            *round,
            self.count..self.room,
            |item| {
                let flow = match place_of(item.target, ring) {
                    Ok(Some(flow)) => flow,
                    Ok(None) => return Some(0),
                    Err(other) => {
                        stop = Some(other);
                        return None;
                    }
                };
                // The item leaves the list, perhaps.
                if let Some(above) = own.above(flow) {
                    above.look();
                }
                Some(expand(own.ring.readiness(flow).bits()))
            },
            |place, data, ready| events[place] = epoll_event { events: ready, u64: data },
        );
        self.stop = stop;
        Some(())
    }
}

impl Collection<'_> {
    /// Where the next part of the collection is to begin. `None`: the list is empty.
    fn first(&self) -> Option<Stop> {
        // (By any one's lock: without it a handler, or a fork, might come between while the lists are held.)
        let of_first = self.rings.iter().next().and_then(|ring| Some((ring, self.process.ring(ring)?.lock())));
        let Some((ring, _own)) = of_first else { return Some(Stop::NotPlain) };
        let is_same = table::rings_of(self.index) == Some(self.rings);
        let Some(lists) = table::lists_of(self.index, ring).filter(|_| is_same) else { return Some(Stop::NotPlain) };
        // (No ring has that number. What is on no ring may be collected by who has any one's lock.)
        lists.interest.first().map(|target| place_of(target, u16::MAX).err().unwrap_or(Stop::Ring(ring)))
    }
}

/// The flow of what an item watches, if it is on that ring, whose lock the caller has; none of what the kernel alone has. Or why it is not to be looked at now.
fn place_of(target: Target, ring: u16) -> Result<Option<FlowId>, Stop> {
    match target {
        Target::Socket(socket) => match sockets::place_of(socket, ring) {
            Some(Place::Here(flow)) => Ok(Some(flow)),
            Some(Place::There(other)) => Err(Stop::Ring(other)),
            None => Err(Stop::NotPlain),
        },
        Target::KernelHalf(_) | Target::Kernel => Ok(None),
        Target::Epoll(_) | Target::Ring(_) => Err(Stop::NotPlain),
    }
}

impl Awaited for Collection<'_> {
    type Found = Result<usize, Errno>;

    fn begin(&mut self) -> Option<RingSet> {
        (self.round, self.count, self.stop) = (0, 0, None);
        self.rings = table::rings_of(self.index)?;
        Some(self.rings)
    }

    fn look(&mut self, own: &mut ProcessRing, ring: u16, now: Instant) -> Option<Look> {
        // (Who spins there tells of what comes, by the process's lock.)
        if own.watch.has_spinners() {
            return None;
        }
        own.poll_if_due(now);
        let has_more = own.has_more_to_do();
        self.collect(own, ring, Some(now))?;
        Some(Look { has_more, held: None, flow: None })
    }

    fn rest(&mut self) -> bool {
        // Each turn takes an item off the list, or puts it to the end of what is reported: unless its socket has gone over to another ring meanwhile.
        for _ in 0..self.events.len() + RINGS_MAX {
            let next = match self.stop {
                // (What came onto the list since its ring was looked at came before whoever put it there could find the thread's eventfd.)
                None if self.count == 0 && self.room != 0 => self.first(),
                stop => stop,
            };
            let ring = match next {
                None => return true,
                Some(Stop::NotPlain) => return false,
                Some(Stop::Ring(ring)) => ring,
            };
            if self.process.ring(ring).and_then(|own| self.collect(&own.lock(), ring, None)).is_none() {
                return false;
            }
        }
        false
    }

    fn is_ready(&self) -> bool {
        self.count != 0
    }

    fn take(&mut self) -> Self::Found {
        Ok(self.count)
    }

    fn ended(&mut self, by: Errno) -> Self::Found {
        match by {
            Errno(libc::EAGAIN) if self.has_members => collect_kernel(self.process, self.index, self.epfd, 0, self.events, 0),
            Errno(libc::EAGAIN) => Ok(0),
            by => Err(by),
        }
    }

    fn begin_sleep(&mut self, _: u16, waker: RawFd) -> bool {
        table::begin_sleep(self.index, self.rings, waker)
    }

    fn end_sleep(&mut self, waker: RawFd) {
        table::end_sleep(self.index, waker);
    }

    fn kernel(&self) -> &[pollfd] {
        if self.has_members { &self.half } else { &[] }
    }

    fn ask_kernel(&mut self) -> Option<Self::Found> {
        match collect_kernel(self.process, self.index, self.epfd, 0, self.events, 0) {
            Ok(0) => None,
            found => Some(found),
        }
    }
}
