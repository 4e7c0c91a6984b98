//! Waiting: poll, select, epoll, and the waits inside blocking calls, over offloaded and kernel descriptors at once.
//!
//! Everything that waits comes down to [`wait::wait`]. What makes a wait end arrives through [`Offload::dispatch`], which
//! every call runs after it touched the ring: it puts the ring's events onto the ready lists of the epoll instances that
//! watch the socket ([`interest`]), and wakes the threads that sleep for it ([`sleepers`]). The kernel's half of a
//! socket (a listener's and a UDP socket's placeholder) is watched by the kernel: by ppoll while a thread sleeps, and by
//! the real epoll behind an epoll instance ([`epoll`]).

pub(crate) mod alone;
pub(crate) mod beside;
pub(crate) mod epoll;
mod held;
pub(crate) mod interest;
pub(crate) mod poll;
pub(crate) mod progress;
pub(crate) mod select;
mod sleepers;
pub(crate) mod thread;
pub(crate) mod turns;
pub(crate) mod wait;
mod wakes;

use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::RawFd;

use ringway_host::EventFd;
use ringway_host::spin::Cores;
use ringway_stack::ring::{FlowId, Readiness};

use crate::moving::owner;
use crate::process::Offload;
use crate::rings::{Only, ProcessRing, RingSet, Rings};
use crate::slab::Slab;
use crate::socket::{Socket, refused};
use epoll::Epolls;
use interest::Edge;
pub(crate) use sleepers::{RingWatch, Sleeper};
pub(crate) use wakes::Wakes;

pub(crate) const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
pub(crate) const OUT: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;

/// As the kernel's tcp_poll reports a socket that was never connected.
const FRESH: u32 = OUT | libc::EPOLLHUP as u32;

/// Where a socket's readiness comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A TCP socket that is neither connected nor listening: a constant.
    Fresh,
    /// The ring alone: a connection.
    Ring(FlowId),
    /// The kernel, and the ring where there is an id: a listener or a UDP socket.
    Both(Option<FlowId>),
    /// The kernel alone, for good.
    Kernel,
    /// Neither yet: on its way from the ring to the kernel.
    Nobody,
}

impl Source {
    /// What the placeholder is watched for in the kernel, of what the program wants; `None`: it is not watched.
    pub(crate) const fn kernel_mask(self, events: u32) -> Option<u32> {
        match self {
            Self::Fresh | Self::Ring(_) | Self::Nobody => None,
            // There is always room to send on the ring; asking the kernel too would report it twice.
            Self::Both(Some(_)) => Some(events & !(OUT | libc::EPOLLWRBAND as u32)),
            Self::Both(None) | Self::Kernel => Some(events),
        }
    }
}

/// An item of an epoll instance, seen from what it watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watcher {
    pub(crate) epoll: u32,
    pub(crate) item: u32,
    /// The number under which it was added.
    pub(crate) fd: RawFd,
}

/// Who watches a socket.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    items: Vec<Watcher>,
    /// Threads that sleep for it, by their place in the sleepers' table.
    sleepers: Vec<u32>,
}

impl Watch {
    /// Whether an epoll instance watches it.
    pub(crate) const fn is_watched(&self) -> bool {
        !self.items.is_empty()
    }

    /// The item of the one epoll instance that watches it, if nobody else does.
    pub(crate) fn only(&self) -> Option<Only> {
        match (&self.items[..], &self.sleepers[..]) {
            (&[Watcher { epoll, item, .. }], []) => Some(Only { epoll, item }),
            _ => None,
        }
    }

    /// What is watched has a flow on these rings now.
    pub(crate) fn concerns(&self, mux: &mut State, rings: RingSet) {
        for watcher in &self.items {
            mux.concerns(watcher.epoll, rings, 0);
        }
        // Who waits for it may not look at them.
        note_activity();
        for &sleeper in &self.sleepers {
            mux.wake(sleeper);
        }
    }

    /// Whether a thread sleeps for it.
    pub(crate) const fn is_slept_for(&self) -> bool {
        !self.sleepers.is_empty()
    }
}

/// Moves whenever something that a wait looks at may have become ready. Changed under the process's lock; a thread that spins looks without.
static ACTIVITY: AtomicU64 = AtomicU64::new(0);

/// Whoever waits for anything is to look.
#[inline]
pub(crate) fn note_activity() {
    ACTIVITY.store(activity().wrapping_add(1), Ordering::Release);
}

/// See [`note_activity`].
#[inline]
fn activity() -> u64 {
    ACTIVITY.load(Ordering::Acquire)
}

/// What waiting keeps under the process's lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) epolls: Epolls,
    pub(crate) sleepers: Slab<Sleeper>,
    /// Threads that are to be woken.
    wakes: Wakes,
    /// Eventfds of threads that have ended.
    spare_wakers: Vec<EventFd>,
    /// The progress thread's eventfd.
    pub(super) progress: Option<RawFd>,
    /// What that thread looks after until it is sent.
    held: held::Held,
    /// Where threads spin.
    cores: Cores,
    /// Moves whenever a descriptor's readiness comes from elsewhere than before.
    pub(crate) changes: u64,
    /// Moves with every call that touches a ring.
    pub(crate) calls: u64,
    /// Times that a wait stopped spinning and slept.
    pub(crate) sleeps: u64,
    /// Times that a spinning wait claimed its core.
    pub(crate) core_claims: u64,
    /// Times that it found its core claimed.
    pub(crate) core_claims_refused: u64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            epolls: Epolls::new(),
            sleepers: Slab::new(),
            wakes: Wakes::default(),
            spare_wakers: Vec::new(),
            progress: None,
            held: held::Held::default(),
            cores: Cores::new(),
            changes: 0,
            calls: 0,
            sleeps: 0,
            core_claims: 0,
            core_claims_refused: 0,
        }
    }
}

impl State {
    /// An item's target is ready, or got something new.
    #[inline]
    pub(crate) fn edge(&mut self, epoll: u32, item: u32, edges: u32) {
        note_activity();
        if let Some(instance) = self.epolls.get(epoll) {
            let edge = instance.lists().interest.edge(item, edges);
            if edge != Edge::Nothing {
                epoll::wake_lone(epoll);
            }
            if edge == Edge::New || edge == Edge::Again && !instance.parents.is_empty() {
                self.epoll_ready(epoll, edge, 0);
            }
        }
    }

    /// Whether whoever watches a socket would learn nothing new by further events of that kind, until somebody looks.
    fn are_told(&self, watch: &Watch, edges: u32) -> bool {
        let is_told = |watcher: &Watcher| {
            let instance = self.epolls.get(watcher.epoll);
            // (One that it is nested in is told each time.)
            instance.is_none_or(|instance| instance.parents.is_empty() && instance.lists().interest.is_told(watcher.item, edges))
        };
        watch.sleepers.is_empty() && watch.items.iter().all(is_told)
    }

    /// An epoll instance has something to report: one of the threads that sleep in it is woken, and so are the instances
    /// that it is nested in.
    fn epoll_ready(&mut self, epoll: u32, edge: Edge, depth: u32) {
        let Some(instance) = self.epolls.get(epoll) else { return };
        let parents = instance.parents.len();
        if edge == Edge::New
            && let Some(&sleeper) = instance.sleepers.iter().find(|&&s| self.sleepers.get(s).is_some_and(|s| !s.signalled))
        {
            self.wake(sleeper);
        }
        if depth == epoll::NESTING_MAX {
            return;
        }
        for place in 0..parents {
            let Some(&parent) = self.epolls.get(epoll).and_then(|instance| instance.parents.get(place)) else { break };
            let edge = self.epolls.get(parent.epoll).map_or(Edge::Nothing, |outer| outer.lists().interest.edge(parent.item, IN));
            if edge != Edge::Nothing {
                epoll::wake_lone(parent.epoll);
                self.epoll_ready(parent.epoll, edge, depth + 1);
            }
        }
    }
}

impl ProcessRing {
    #[inline(always)]
    fn has_to_tell(&self) -> bool {
        self.has_events() || self.watch.is_deep() || self.awaits_acknowledgments()
    }

    /// Whether a call has left something that waits for an acknowledgment, while whoever sleeps on the ring sleeps through those.
    #[inline(always)]
    pub(crate) fn awaits_acknowledgments(&self) -> bool {
        self.ring.may_await_acknowledgment() && self.watch.ignores_acknowledgments()
    }
}

impl Offload {
    /// How many calls have touched a ring.
    fn calls(&self) -> u64 {
        self.mux.calls + self.rings.calls()
    }

    /// Hands on what the rings have to tell. Every call that touched one ends with it, under the same lock.
    #[inline(always)]
    pub(crate) fn dispatch(&mut self) {
        self.mux.calls += 1;
        // (A ring that is alone is on no interface, and asks for no neighbours.)
        let has_to_tell = self.rings.are_locked() || {
            let ring = self.rings.first();
            ring.note_received();
            ring.has_to_tell()
        };
        if has_to_tell {
            self.tell_of_touched();
        }
    }

    #[inline(never)]
    fn tell_of_touched(&mut self) {
        let touched = self.rings.touched();
        match touched.only() {
            Some(ring) => self.dispatch_from(ring),
            None => touched.iter().for_each(|ring| self.dispatch_from(ring)),
        }
        self.ask_for_neighbours(touched);
    }

    /// As [`Offload::dispatch`], of rings that something but a call has polled.
    pub(crate) fn tell_of_these(&mut self, rings: RingSet) {
        rings.iter().for_each(|ring| self.dispatch_from(ring));
    }

    #[inline]
    fn dispatch_from(&mut self, ring: u16) {
        if self.rings.at_mut(ring).has_to_tell() {
            self.tell_of(ring);
        }
    }

    /// There are events of a ring's, or somebody sleeps on it.
    #[inline]
    fn tell_of(&mut self, ring: u16) {
        while let Some(event) = self.rings.at_mut(ring).take_event() {
            if let Some(socket) = self.socket_of(event.flow) {
                if self.is_heard() {
                    self.hear(socket, event.edges);
                }
                if event.edges.contains(Readiness::PRI) {
                    owner::leave_for_peer(self, socket);
                }
                let goes_on = event.edges.contains(Readiness::ERR)
                    && (refused::connects_again(self, socket) || self.leave_gone_ring(socket, event.flow));
                if !goes_on {
                    self.announce(socket, expand((event.edges - Readiness::PRI).bits()));
                }
            } else if event.edges.contains(Readiness::PRI) {
                // (The program has closed it.)
                self.mux.call_progress();
            }
        }
        let own = self.rings.at(ring);
        if own.watch.is_deep() {
            self.check_deep_sleep(ring);
        }
        let own = self.rings.at(ring);
        if own.awaits_acknowledgments() {
            self.await_acknowledgments(ring);
        }
    }

    /// A socket is ready for something, or got something new.
    pub(crate) fn announce(&mut self, index: u32, edges: u32) {
        note_activity();
        let Some(socket) = self.sockets.get(index) else { return };
        for watcher in &socket.watch.items {
            self.mux.edge(watcher.epoll, watcher.item, edges);
        }
        for &sleeper in &socket.watch.sleepers {
            self.mux.wake(sleeper);
        }
        if self.rings.are_locked()
            && let Some(above) = socket.ring_id().and_then(|flow| self.rings.at(flow.ring).above(flow))
        {
            above.note_told(|edge| self.mux.are_told(&socket.watch, expand(edge.bits())));
        }
    }
}

/// The ring names one bit a kind; the kernel sets its synonyms too.
#[inline]
pub(crate) const fn expand(bits: u32) -> u32 {
    let input = if bits & libc::EPOLLIN as u32 != 0 { IN } else { 0 };
    let output = if bits & libc::EPOLLOUT as u32 != 0 { OUT } else { 0 };
    bits | input | output
}

/// What its ring knows of a socket's readiness, in epoll's bits. The kernel's half is the kernel's to say.
#[inline]
pub(crate) fn readiness(rings: &Rings, socket: &Socket) -> u32 {
    let ready = match socket.source() {
        Source::Ring(id) if socket.receive_low_water > 1 => expand(above_low_water(rings, socket, id).bits()),
        Source::Ring(id) => expand(rings.of(id).readiness(id).bits()),
        Source::Both(Some(id)) => {
            let others = socket.others.iter().map(|flow| rings.of(flow.id).readiness(flow.id));
            expand(others.fold(rings.of(id).readiness(id), |all, ready| all | ready).bits())
        }
        Source::Fresh if socket.shut.read => FRESH | IN | libc::EPOLLRDHUP as u32,
        Source::Fresh => FRESH,
        Source::Both(None) | Source::Kernel | Source::Nobody => 0,
    };
    ready | socket.rare.as_ref().map_or(0, |rare| rare.readiness())
}

/// SO_RCVLOWAT: fewer bytes are nothing to read, unless no more will come (tcp_poll).
#[cold]
fn above_low_water(rings: &Rings, socket: &Socket, id: FlowId) -> Readiness {
    let ready = rings.of(id).readiness(id);
    let ended = ready.intersects(Readiness::RDHUP | Readiness::HUP | Readiness::ERR);
    let there = rings.of(id).info(id).map_or(usize::MAX, |info| info.recv_queue);
    if ended || there >= socket.receive_low_water { ready } else { ready - Readiness::IN }
}

/// A socket's [`Source`] changed: what watches it is set up anew. Call it under the lock, after the change.
pub(crate) fn refresh(offload: &mut Offload, index: u32) {
    let Some(socket) = offload.sockets.get(index) else { return };
    let source = socket.source();
    offload.mux.changes += 1;
    let watchers = socket.watch.items.clone();
    for watcher in watchers {
        epoll::resettle(offload, index, watcher, source);
    }
    let Some(socket) = offload.sockets.get(index) else { return };
    let ready = readiness(&offload.rings, socket);
    offload.announce(index, ready);
}

/// As [`refresh`], of a connection that is on another ring than before.
pub(crate) fn went_over(offload: &mut Offload, index: u32) {
    refresh(offload, index);
    let Some(socket) = offload.sockets.get(index) else { return };
    for watcher in socket.watch.items.clone() {
        epoll::leave_rings(offload, watcher.epoll);
    }
}

/// A socket's last descriptor is closed: nothing watches it any more. Call it under the lock, before it is removed.
pub(crate) fn forget(offload: &mut Offload, index: u32) {
    let Some(socket) = offload.sockets.get_mut(index) else { return };
    let watch = std::mem::take(&mut socket.watch);
    for watcher in watch.items {
        epoll::drop_item(&mut offload.mux, watcher);
    }
    for sleeper in watch.sleepers {
        offload.mux.wake(sleeper);
    }
    note_activity();
}

#[cfg(test)]
mod tests;
