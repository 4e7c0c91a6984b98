//! Rings as the Extra API knows them: which sockets share one, its descriptor, and what happened on it.
//!
//! The API's rings are sets of sockets, beside the process's own ([`crate::rings`]), which the same logic chooses: sockets that share one by
//! the allocation logic (VMA_RING_ALLOCATION_LOGIC_*, SO_VMA_RING_ALLOC_LOGIC) are polled by one call, and slept on by one descriptor. A ring
//! begins with its first socket and ends, descriptor and all, with its last.
//!
//! Under VMA_SOCKETXTREME=1 every socket is put onto its ring when it gets one of the stack's, and its events are noted there for
//! [`super::xtreme`]. Without, sockets are put onto rings from the first time on that the program asks for one, and a ring's descriptor is readable
//! while one of its sockets is.

mod allocation;
pub(crate) mod calls;
pub(super) mod direct;
mod migration;
pub(crate) mod options;
mod told;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use ringway_params::{Id, Settings};
use ringway_stack::ring::{FlowId, Readiness};
use ringway_stack::time::Instant;

pub(crate) use allocation::{Asked, Owner, is_closed, is_of_profile};
use allocation::{Profiled, RingKey, Threads};
pub(crate) use ringway_stack::socket::Direction;
use ringway_stack::socket::{Logic, Place, Stranger};
pub(crate) use told::Told;

use super::cyclic::UserMemory;
use super::xtreme::{HELD_MAX, Waiting};
use crate::mux::Source;
use crate::mux::epoll::ring as descriptor;
use crate::mux::turns::Ratio;
use crate::process::Offload;
use crate::slab::{Key, Slab};
use crate::socket::Kind;
use crate::socket::datagram::KernelPoll;

/// The most rings of a process whose user has not asked for several: further threads share them. (A ring has eight descriptors and 95 KiB.)
const AUTOMATIC_MAX: usize = 16;

/// What a socket has to do with rings.
#[derive(Debug, Default)]
pub(crate) struct OnRings {
    /// The rings it is on: to receive, to send.
    rings: [Option<On>; 2],
    /// SO_VMA_RING_ALLOC_LOGIC, for both directions.
    asked: [Option<Asked>; 2],
    /// Who else uses it, in both directions.
    strangers: [Stranger; 2],
    /// How often it went over to another ring, in both directions.
    migrations: [u64; 2],
    /// SO_VMA_RING_ALLOC_LOGIC has named a profile, which can be done once.
    has_profile: bool,
    /// The number of the ring that the profile has on cards.
    profiled: Option<u32>,
    /// SO_BINDTODEVICE has named the device that the stack's ring stands for.
    is_on_device: bool,
    /// SO_VMA_USER_DATA.
    pub(super) user_data: Option<u64>,
    /// SO_VMA_RING_USER_MEMORY.
    pub(super) user_memory: Option<UserMemory>,
    /// What completions have yet to tell of it.
    pub(super) waiting: Waiting,
}

impl OnRings {
    /// What an accepted connection has of its listener's.
    pub(crate) fn inherited(&self) -> Self {
        Self { asked: self.asked, has_profile: self.has_profile, ..Self::default() }
    }

    /// The profile that its ring is to have, to receive. Zero: none.
    pub(in crate::extra) fn profile(&self) -> u32 {
        self.asked[Direction::Rx as usize].map_or(0, |asked| asked.profile)
    }

    fn ring(&self, direction: Direction) -> Option<Key> {
        self.rings[direction as usize].map(|on| on.ring)
    }
}

/// That a socket is on a ring.
#[derive(Clone, Copy, Debug)]
struct On {
    ring: Key,
    /// What it is there by; `None`: by its listener.
    by: Option<RingKey>,
}

/// A ring.
#[derive(Debug)]
struct LogicalRing {
    /// What it is for, and how many sockets and directions that is of each; more than one where VMA_RING_LIMIT_PER_INTERFACE allows no further ring.
    keys: Vec<(RingKey, u32)>,
    /// Sockets and directions that use it.
    users: u32,
    /// Its descriptor, and the instance behind that, once the program has asked for it.
    descriptor: Option<(RawFd, u32)>,
    /// Sockets that something happened to. Invariant: each at most once.
    waiting: VecDeque<Key>,
    /// How the kernel's half of its sockets is asked.
    kernel_poll: KernelPoll,
}

impl LogicalRing {
    fn is_for(&self, key: RingKey) -> bool {
        self.keys.iter().any(|(known, _)| *known == key)
    }
}

/// The process's rings.
#[derive(Debug)]
pub(crate) struct Rings {
    all: Slab<LogicalRing>,
    threads: Threads,
    profiled: Profiled,
    /// VMA_SOCKETXTREME.
    pub(super) has_completions: bool,
    /// Sockets are put onto rings as they come.
    is_active: bool,
    /// VMA_RING_ALLOCATION_LOGIC_RX and _TX.
    logics: [Logic; 2],
    /// Nobody has set the first of them: each thread's flows have a ring of their own, as far as that pays.
    is_automatic: bool,
    /// VMA_RING_LIMIT_PER_INTERFACE; 0: none.
    limit: usize,
    /// VMA_RING_MIGRATION_RATIO_RX and _TX; `None`: sockets stay.
    ratios: [Option<u32>; 2],
    /// Sockets may change rings by who receives, and who sends.
    pub(crate) migrate: [bool; 2],
}

impl Rings {
    pub(crate) fn new(settings: &Settings) -> Self {
        let logic = |id| Logic::from_number(settings.number(id)).unwrap_or(Logic::Interface);
        let has_completions = settings.flag(Id::Socketxtreme);
        Self {
            all: Slab::new(),
            threads: Threads::default(),
            profiled: Profiled::default(),
            has_completions,
            is_active: has_completions,
            logics: [logic(Id::RingAllocationRx), logic(Id::RingAllocationTx)],
            is_automatic: !settings.is_set(Id::RingAllocationRx) && logic(Id::RingAllocationRx) == Logic::Interface,
            limit: settings.count(Id::RingLimit) as usize,
            ratios: [Id::RingMigrationRx, Id::RingMigrationTx].map(|id| u32::try_from(settings.number(id)).ok()),
            migrate: [false; 2],
        }
    }

    /// How many rings an interface is to have, of as many as it may: one, unless a logic asks for more; or if nobody says anything, and the interface says what comes to which
    /// of them.
    pub(crate) fn wanted_of_interface(&self, knows_queues: bool) -> u32 {
        let is_one = self.logics == [Logic::Interface; 2] && !(self.is_automatic && knows_queues);
        let most = if self.limit == 0 { AUTOMATIC_MAX } else { self.limit.min(AUTOMATIC_MAX) };
        if is_one || self.is_active { 1 } else { most as u32 }
    }

    /// The ring for that, made if there is none and there may be one more. It has one user more.
    fn join(&mut self, by: RingKey) -> Key {
        let known = self.all.iter().find(|(_, ring)| ring.is_for(by)).map(|(key, _)| key);
        let key = known.or_else(|| self.least_used(by)).unwrap_or_else(|| {
            self.all.insert(LogicalRing {
                keys: Vec::new(),
                users: 0,
                descriptor: None,
                waiting: VecDeque::new(),
                kernel_poll: KernelPoll::default(),
            })
        });
        if let Some(ring) = self.all.find_mut(key) {
            ring.users += 1;
            match ring.keys.iter_mut().find(|(known, _)| *known == by) {
                Some((_, users)) => *users += 1,
                None => ring.keys.push((by, 1)),
            }
        }
        key
    }

    /// Where the limit is reached: of the rings with the same profile, and the same memory, the one with the fewest users. `None`: there is none, and
    /// there has to be one more. (Their packets lie elsewhere, or otherwise.)
    fn least_used(&self, by: RingKey) -> Option<Key> {
        if self.limit == 0 || self.all.len() < self.limit {
            return None;
        }
        let alike = self.all.iter().filter(|(_, ring)| ring.keys.iter().any(|(known, _)| known.is_alike(by)));
        alike.min_by_key(|(_, ring)| ring.users).map(|(key, _)| key)
    }

    /// A user less. The instance that is left to close, if it was the last.
    fn leave(&mut self, On { ring: key, by }: On) -> Option<u32> {
        let ring = self.all.find_mut(key)?;
        ring.users -= 1;
        if ring.users == 0 {
            return self.all.remove(key)?.descriptor.map(|(_, instance)| instance);
        }
        if let Some(index) = ring.keys.iter().position(|(known, _)| Some(*known) == by) {
            ring.keys[index].1 -= 1;
            // (The last stays: who came along with a listener may be all that is left.)
            if ring.keys[index].1 == 0 && ring.keys.len() > 1 {
                ring.keys.swap_remove(index);
            }
        }
        None
    }

    /// The program closed the number that a ring's descriptor went by, and has another of it.
    pub(crate) fn renumber(&mut self, ring: Key, closed: RawFd, other: RawFd) {
        if let Some((number, _)) = self.all.find_mut(ring).and_then(|ring| ring.descriptor.as_mut())
            && *number == closed
        {
            *number = other;
        }
    }

    /// The program closed a ring's descriptor: the next time it asks, it gets another.
    pub(crate) fn lost_descriptor(&mut self, ring: Key) {
        if let Some(ring) = self.all.find_mut(ring) {
            ring.descriptor = None;
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.all.len()
    }
}

impl Offload {
    /// Whether the program has asked for rings.
    pub(crate) const fn rings_are_used(&self) -> bool {
        self.extra_rings.is_active
    }

    /// One of our sockets has a socket of the stack's now: it goes onto its ring, if sockets do.
    pub(crate) fn put_on_ring(&mut self, id: FlowId, socket: u32) {
        if !self.extra_rings.is_active || self.join_ring(socket, Direction::Rx).is_none() {
            return;
        }
        self.prepare_for_records(socket);
        self.lead_to_strides(id, socket);
        if self.extra_rings.has_completions {
            self.begin_lending();
            if let Some(socket) = self.sockets.get_mut(socket) {
                socket.rare().rings.waiting.begin();
                // Who polls the ring waits for a listener's connections.
                socket.waited = true;
            }
            // What came before has told nobody. (That it can be written to is no news.)
            self.note_event(socket, self.rings.of(id).readiness(id) - Readiness::OUT);
            self.watch(socket);
        }
    }

    /// A connection that the kernel accepted for a listener: what it has is told on the listener's ring.
    pub(super) fn put_kernels_on_ring(&mut self, key: Key, listener: Key, peer: Option<SocketAddr>) {
        let Some(ring) = self.sockets.find(listener).and_then(|listener| listener.rare.as_ref()?.rings.ring(Direction::Rx)) else { return };
        let Some(socket) = self.sockets.find_mut(key) else { return };
        socket.peer = peer;
        socket.rare().rings.rings[Direction::Rx as usize] = Some(On { ring, by: None });
        if let Some(ring) = self.extra_rings.all.find_mut(ring) {
            ring.users += 1;
        }
        self.watch(key.index);
    }

    /// A connection that is the kernel's now, and on a ring still: what happens there is told on it. That it can be written to is told once, for who
    /// waits for that.
    pub(crate) fn follow_to_kernel(&mut self, key: Key) {
        if self.extra_rings.has_completions && self.is_on_ring(key.index) {
            self.watch(key.index);
            self.note_event(key.index, Readiness::OUT);
        }
    }

    fn is_on_ring(&self, index: u32) -> bool {
        self.sockets.get(index).and_then(|socket| socket.rare.as_ref()?.rings.ring(Direction::Rx)).is_some()
    }

    /// The descriptor of a socket's ring is readable for what completions do not tell of: without them, all that it has; with them, what
    /// only the kernel has.
    fn watch(&mut self, index: u32) {
        let Some(socket) = self.sockets.get(index) else { return };
        let Some(on) = socket.rare.as_ref().map(|rare| &rare.rings) else { return };
        let is_meant = !self.extra_rings.has_completions || matches!(socket.source(), Source::Both(_) | Source::Kernel);
        if is_meant
            && !on.waiting.kernel_pauses
            && let Some(descriptor) = on.ring(Direction::Rx).and_then(|ring| self.extra_rings.all.find(ring)?.descriptor)
        {
            descriptor::watch(self, descriptor, index, self.extra_rings.has_completions);
        }
    }

    fn unwatch(&mut self, index: u32) {
        let on = self.sockets.get(index).and_then(|socket| socket.rare.as_ref()).map(|rare| &rare.rings);
        if let Some(descriptor) = on.and_then(|on| self.extra_rings.all.find(on.ring(Direction::Rx)?)?.descriptor) {
            descriptor::unwatch(self, descriptor, index);
        }
    }

    /// The kernel's half of a socket has nothing to tell: for good, or until the program has given something back.
    pub(super) fn rest_from_kernel(&mut self, key: Key, comes_back: bool) {
        if self.sockets.find(key).is_none() {
            return;
        }
        self.unwatch(key.index);
        if let Some(socket) = self.sockets.find_mut(key) {
            socket.rare().rings.waiting.kernel_pauses = comes_back;
        }
    }

    /// The program gave back what it held of the kernel's half of a socket.
    pub(super) fn given_back_to_kernel(&mut self, key: Key, bytes: usize) {
        let Some(waiting) = self.sockets.find_mut(key).map(|socket| &mut socket.rare().rings.waiting) else { return };
        waiting.kernel_held = waiting.kernel_held.saturating_sub(bytes);
        if waiting.kernel_pauses && waiting.kernel_held <= HELD_MAX / 2 {
            waiting.kernel_pauses = false;
            self.watch(key.index);
        }
    }

    /// Whether a poll of a ring, which found nothing or something on it, asks the kernel as well.
    pub(super) fn asks_kernel(&mut self, ring: Key, now: Instant, found_nothing: bool, ratio: Ratio) -> bool {
        let Some(ring) = self.extra_rings.all.find_mut(ring) else { return false };
        let Some((_, instance)) = ring.descriptor else { return false };
        descriptor::has_kernel_members(&self.mux, instance)
            && (ring.kernel_poll.on_ring(ratio) || found_nothing && ring.kernel_poll.on_empty(now, ratio))
    }

    /// Such a look found something.
    pub(super) fn kernel_delivered(&mut self, ring: Key) {
        if let Some(ring) = self.extra_rings.all.find_mut(ring) {
            ring.kernel_poll.delivered();
        }
    }

    /// The ring that a socket is on, which it joins if it is on none. `None`: there is no such socket.
    fn join_ring(&mut self, index: u32, direction: Direction) -> Option<Key> {
        let socket = self.sockets.get(index)?;
        if let Some(ring) = socket.rare.as_ref().and_then(|rare| rare.rings.ring(direction)) {
            return Some(ring);
        }
        let by = self.key_of(index, direction)?;
        let ring = self.extra_rings.join(by);
        self.enter_ring(index, direction, On { ring, by: Some(by) });
        Some(ring)
    }

    /// What a socket's ring is for.
    fn key_of(&mut self, index: u32, direction: Direction) -> Option<RingKey> {
        let asked = self.asked(index, direction);
        self.begin_migrating(asked, direction);
        let (key, socket) = (self.sockets.key_at(index)?, self.sockets.get(index)?);
        Some(self.extra_rings.threads.key(asked, key, socket))
    }

    /// The place by which a socket's flows have their ring, as the calling thread uses it, and how many rings there may be for that. `None`: whatever ring
    /// there is. A ring has a receive queue and a send queue: sockets share it that share it to receive, and to send.
    pub(crate) fn place_of(&mut self, key: Key) -> Option<(Place, usize)> {
        let said = [Direction::Rx, Direction::Tx].map(|direction| self.said(key, direction));
        // (Who polls rings by the Extra API has the interface's, by the document, unless it says otherwise.)
        let is_automatic = said == [None; 2] && self.extra_rings.is_automatic && !self.rings_are_used();
        if is_automatic {
            return Some((self.place_by(key, Asked::by(Logic::Thread))?, AUTOMATIC_MAX));
        }
        let [rx, tx] = said.map(|asked| asked.unwrap_or(Asked::by(Logic::Interface)));
        // (Records of a profile's ring are written by software: senders of the process's own are to reach it without being introduced first.)
        if rx.profile != 0 {
            return None;
        }
        let place = self.place_by(key, rx)?.and(self.place_by(key, tx)?);
        (place != Place::Interface).then_some((place, usize::MAX))
    }

    /// The same on cards, where a profile has a ring of its own: what names the same profile, and the same memory, shares it as the logic says.
    pub(crate) fn place_on_card(&mut self, key: Key) -> Option<(Place, usize)> {
        let Some(asked) = self.said(key, Direction::Rx).filter(|asked| asked.profile != 0) else { return self.place_of(key) };
        let Self { extra_rings, sockets, .. } = self;
        let by = extra_rings.threads.key(asked, key, sockets.find(key)?);
        Some((extra_rings.profiled.place(by, key, sockets)?, usize::MAX))
    }

    /// The place by which a socket sends, of rings where it has a flow on each. (Where nobody says otherwise, what is sent goes by the ring that it would come by.)
    pub(crate) fn place_to_send(&mut self, key: Key) -> Option<Place> {
        match self.said(key, Direction::Tx) {
            Some(tx) => self.place_by(key, tx).filter(|place| *place != Place::Interface),
            None => self.place_of(key).map(|(place, _)| place),
        }
    }

    /// By what a socket's ring is chosen, if somebody says so.
    fn said(&self, key: Key, direction: Direction) -> Option<Asked> {
        let own = self.sockets.find(key).and_then(|socket| socket.rare.as_ref()?.rings.asked[direction as usize]);
        own.or_else(|| Some(Asked::by(self.extra_rings.logics[direction as usize])).filter(|asked| asked.logic != Logic::Interface))
    }

    fn place_by(&mut self, key: Key, asked: Asked) -> Option<Place> {
        let Self { extra_rings, sockets, .. } = self;
        Some(extra_rings.threads.key(asked, key, sockets.find(key)?).place())
    }

    /// A socket is on a ring that it has joined.
    fn enter_ring(&mut self, index: u32, direction: Direction, on: On) {
        let Some(socket) = self.sockets.get_mut(index) else { return };
        socket.rare().rings.rings[direction as usize] = Some(on);
        if direction == Direction::Rx {
            if let Some(profile) = on.by.and_then(RingKey::profile) {
                self.join_cyclic(on.ring, index, profile);
            }
            self.watch(index);
        }
    }

    /// What a socket's ring is chosen by.
    fn asked(&self, index: u32, direction: Direction) -> Asked {
        let asked = self.sockets.get(index).and_then(|socket| socket.rare.as_ref()?.rings.asked[direction as usize]);
        asked.unwrap_or(Asked::by(self.extra_rings.logics[direction as usize]))
    }

    fn leave_ring(&mut self, index: u32, direction: Direction) {
        if direction == Direction::Rx {
            self.unwatch(index);
        }
        let Some(rare) = self.sockets.get_mut(index).and_then(|socket| socket.rare.as_mut()) else { return };
        let Some(on) = rare.rings.rings[direction as usize].take() else { return };
        if direction == Direction::Rx && rare.rings.waiting.unqueue() {
            self.unqueue(on.ring, |key| key.index == index);
        }
        if direction == Direction::Rx {
            self.leave_cyclic(on.ring, index);
        }
        self.drop_user(on);
    }

    /// A socket is the kernel's from now on, and on no ring: but a connection stays where its completions are polled
    /// ([`Offload::follow_to_kernel`]).
    pub(crate) fn leave_rings(&mut self, index: u32) {
        let is_told = self.extra_rings.has_completions
            && self.sockets.get(index).is_some_and(|socket| matches!(socket.kind, Kind::Stream(_) | Kind::Connecting(_) | Kind::Moving));
        if !is_told {
            self.leave_ring(index, Direction::Rx);
        }
        self.leave_ring(index, Direction::Tx);
    }

    fn drop_user(&mut self, on: On) {
        if let Some(instance) = self.extra_rings.leave(on) {
            descriptor::close(self, instance);
        }
    }

    fn unqueue(&mut self, ring: Key, is_it: impl Fn(&Key) -> bool) {
        if let Some(ring) = self.extra_rings.all.find_mut(ring) {
            ring.waiting.retain(|key| !is_it(key));
        }
    }

    /// The socket that had this name is gone; this is what it had to do with rings.
    pub(crate) fn forget_rings(&mut self, key: Key, mut on: OnRings) {
        if on.waiting.unqueue()
            && let Some(ring) = on.ring(Direction::Rx)
        {
            self.unqueue(ring, |&queued| queued == key);
        }
        if let Some(ring) = on.ring(Direction::Rx) {
            self.leave_cyclic(ring, key.index);
        }
        on.rings.into_iter().flatten().for_each(|on| self.drop_user(on));
    }

    /// SO_VMA_RING_ALLOC_LOGIC was set, or another thread uses it: a socket that is on a ring goes over, with what is to be told of it, to the one it belongs to now.
    fn change_ring(&mut self, index: u32, direction: Direction) {
        let Some(on) = self.sockets.get(index).and_then(|socket| socket.rare.as_ref()).map(|rare| &rare.rings) else { return };
        let (Some(old), pending) = (on.rings[direction as usize], on.waiting.pending()) else { return };
        let Some(by) = self.key_of(index, direction) else { return };
        let new = On { ring: self.extra_rings.join(by), by: Some(by) };
        if new.ring == old.ring {
            // It stays, and a cyclic buffer where it was.
            if let Some(rare) = self.sockets.get_mut(index).and_then(|socket| socket.rare.as_mut()) {
                rare.rings.rings[direction as usize] = Some(new);
            }
            return self.drop_user(old);
        }
        self.leave_ring(index, direction);
        self.enter_ring(index, direction, new);
        if let Some(socket) = self.sockets.get_mut(index) {
            socket.rare().rings.migrations[direction as usize] += 1;
        }
        if direction == Direction::Rx {
            let flows = self.sockets.get(index).into_iter().flat_map(|socket| socket.flows());
            let ready = flows.fold(Readiness::empty(), |ready, id| ready | self.rings.of(id).readiness(id));
            self.note_event(index, (ready - Readiness::OUT) | pending);
        }
    }

    /// Something happened to a socket: it is told to who polls its ring, and sleeps on it.
    pub(crate) fn note_event(&mut self, index: u32, edges: Readiness) {
        if self.extra_rings.has_completions && !edges.is_empty() {
            self.queue_event(index, edges);
        }
    }

    fn queue_event(&mut self, index: u32, edges: Readiness) {
        let Some(key) = self.sockets.key_at(index) else { return };
        let Some(rare) = self.sockets.get_mut(index).and_then(|socket| socket.rare.as_mut()) else { return };
        let Some(ring) = rare.rings.ring(Direction::Rx) else { return };
        if rare.rings.waiting.note(edges) {
            self.queue_on(ring, key);
        }
    }

    /// Puts a socket at the end of its ring's queue.
    fn queue_on(&mut self, ring: Key, socket: Key) {
        let Some(ring) = self.extra_rings.all.find_mut(ring) else { return };
        ring.waiting.push_back(socket);
        if let Some((_, instance)) = ring.descriptor {
            descriptor::set_ready(&mut self.mux, instance, true);
        }
    }

    /// The next socket of a ring that something happened to. With the last, the ring's descriptor is readable no more.
    pub(super) fn take_waiting(&mut self, ring: Key) -> Option<Key> {
        let ring = self.extra_rings.all.find_mut(ring)?;
        let next = ring.waiting.pop_front();
        if ring.waiting.is_empty()
            && let Some((_, instance)) = ring.descriptor
        {
            descriptor::set_ready(&mut self.mux, instance, false);
        }
        next
    }

    /// A socket has more to tell than there was room for.
    pub(super) fn requeue(&mut self, ring: Key, socket: Key) {
        self.queue_on(ring, socket);
    }

    /// How many sockets wait on a ring.
    pub(super) fn waiting_on(&self, ring: Key) -> usize {
        self.extra_rings.all.find(ring).map_or(0, |ring| ring.waiting.len())
    }
}

#[cfg(test)]
mod tests;
