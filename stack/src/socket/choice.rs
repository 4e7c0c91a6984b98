//! Which ring a flow is on: VMA_RING_ALLOCATION_LOGIC_RX and _TX, SO_VMA_RING_ALLOC_LOGIC, VMA_RING_LIMIT_PER_INTERFACE.
//!
//! Flows of the same *place* (a thread, a core, an address …) share a ring on each link. The first place that asks for a ring of a link gets one that no
//! place has; when each has one, the next place shares that with the fewest. Rings stay when their places are gone, and go to the next ones.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::state::SocketId;
use crate::mutants::{Mutant, Mutation};
use crate::net::LinkId;

/// What a flow's ring is chosen by: `ring_logic_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Logic {
    /// One ring for all of an interface (0).
    #[default]
    Interface,
    /// One for each local address (1).
    Address,
    /// One for each socket (10).
    Socket,
    /// One for each number that the program gives (11).
    UserId,
    /// One for each thread (20).
    Thread,
    /// One for each core (30).
    Core,
    /// The same, and threads stay on the core where they were first found (31). That is the owner's to see to: [`Caller::core`] is that core.
    CoreAttached,
}

impl Logic {
    /// The logic of that number in `vma_extra.h`; `None`: there is none.
    pub const fn from_number(number: i64) -> Option<Self> {
        Some(match number {
            0 => Self::Interface,
            1 => Self::Address,
            10 => Self::Socket,
            11 => Self::UserId,
            20 => Self::Thread,
            30 => Self::Core,
            31 => Self::CoreAttached,
            _ => return None,
        })
    }

    /// Whether the ring depends on who makes the call, so that flows migrate.
    pub const fn is_by_caller(self) -> bool {
        matches!(self, Self::Thread | Self::Core | Self::CoreAttached)
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The program receives.
    Rx,
    /// The program sends.
    Tx,
}

/// A socket's ring allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// By what it receives.
    pub rx: Logic,
    /// By what it sends.
    pub tx: Logic,
    /// Of [`Logic::UserId`].
    pub user_id: u32,
}

/// Who calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Which thread; never the same as one before it in this process.
    pub thread: u64,
    /// On which core.
    pub core: u32,
}

/// For whom a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// For everybody.
    Interface,
    /// For sockets with that local address.
    Address(IpAddr),
    /// For one socket.
    Socket(SocketId),
    /// For sockets with that number.
    UserId(u32),
    /// For one thread's sockets.
    Thread(u64),
    /// For one core's.
    Core(u32),
    /// For what has both in common: a ring to receive by one logic, and to send by another.
    Both(Half, Half),
}

/// A half of a place that two logics make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Half {
    /// See [`Place::Address`].
    Address(IpAddr),
    /// See [`Place::UserId`].
    UserId(u32),
    /// See [`Place::Thread`].
    Thread(u64),
    /// See [`Place::Core`].
    Core(u32),
}

impl Place {
    /// Where those share a ring that share this one to receive, and `tx` to send.
    #[must_use]
    pub fn and(self, tx: Self) -> Self {
        match (self, tx) {
            (one, Self::Interface) => one,
            (Self::Interface, other) => other,
            // (A socket's ring is nobody else's, whatever else it is by.)
            (Self::Socket(socket), _) | (_, Self::Socket(socket)) => Self::Socket(socket),
            (one, other) if one == other => one,
            (one, other) => match (one.half(), other.half()) {
                (Some(one), Some(other)) => Self::Both(one, other),
                _ => one,
            },
        }
    }

    fn half(self) -> Option<Half> {
        Some(match self {
            Self::Address(address) => Half::Address(address),
            Self::UserId(user_id) => Half::UserId(user_id),
            Self::Thread(thread) => Half::Thread(thread),
            Self::Core(core) => Half::Core(core),
            Self::Interface | Self::Socket(_) | Self::Both(..) => return None,
        })
    }

    /// Whether it is one thread's.
    pub const fn is_threads(self) -> bool {
        matches!(self, Self::Thread(_) | Self::Both(Half::Thread(_), _) | Self::Both(_, Half::Thread(_)))
    }

    /// Whether it is one core's.
    pub const fn is_cores(self) -> bool {
        matches!(self, Self::Core(_) | Self::Both(Half::Core(_), _) | Self::Both(_, Half::Core(_)))
    }
}

impl Allocation {
    /// Where a flow belongs of a socket with that local address, by whom it is called. A flow is in one ring, with a receive queue and a send queue: it shares both with those
    /// alone that either logic puts together with it.
    pub fn home(&self, socket: SocketId, local: IpAddr, caller: Caller) -> Place {
        self.place(Direction::Rx, socket, local, caller).and(self.place(Direction::Tx, socket, local, caller))
    }

    /// Whether calls that receive, or send, may have a flow go over to the caller's ring: where that direction goes by the caller. (A send, where nothing is said of sending.)
    pub fn counts(&self, direction: Direction) -> bool {
        match direction {
            Direction::Rx => self.rx.is_by_caller(),
            Direction::Tx => self.tx.is_by_caller() || self.tx == Logic::Interface && self.rx.is_by_caller(),
        }
    }

    /// Where a socket with that local address belongs, by whom it is called.
    pub fn place(&self, direction: Direction, socket: SocketId, local: IpAddr, caller: Caller) -> Place {
        let logic = match direction {
            Direction::Rx => self.rx,
            Direction::Tx => self.tx,
        };
        match logic {
            Logic::Interface => Place::Interface,
            Logic::Address => Place::Address(local),
            Logic::Socket => Place::Socket(socket),
            Logic::UserId => Place::UserId(self.user_id),
            Logic::Thread => Place::Thread(caller.thread),
            Logic::Core | Logic::CoreAttached => Place::Core(caller.core),
        }
    }
}

/// In how many rings of a link a listener or datagram socket has flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// In one, by the allocation logic.
    #[default]
    One,
    /// In every one: the device shares out what comes, by a hash of its addresses. It must be able to ([`crate::device::Steering::RSS`]).
    Every,
}

/// Places that are remembered; the flows of more are spread over the rings.
const PLACES_MAX: usize = 512;

/// A ring, and how many places have it.
#[derive(Debug)]
struct Placed {
    number: u16,
    link: LinkId,
    places: usize,
}

/// The owner's rings by their links, and whose they are.
#[derive(Debug)]
pub struct Choice {
    rings: Vec<Placed>,
    known: BTreeMap<(LinkId, Place), u16>,
    /// Places that could not be remembered.
    others: usize,
    /// The most rings of a link.
    limit: usize,
    /// Calls in a row by another place after which a flow goes over to that: for receiving and for sending. `None`: never.
    ratios: [Option<u32>; 2],
    mutation: Mutation,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            rings: Vec::new(),
            known: BTreeMap::new(),
            others: 0,
            limit: usize::MAX,
            ratios: [Some(100); 2],
            mutation: Mutation::HEALTHY,
        }
    }
}

impl Choice {
    /// Without rings yet; `limit`: the most that a link is to have (VMA_RING_LIMIT_PER_INTERFACE), zero for no limit.
    pub fn new(limit: usize) -> Self {
        Self { limit: if limit == 0 { usize::MAX } else { limit }, ..Self::default() }
    }

    /// Sets VMA_RING_MIGRATION_RATIO_RX and _TX; `None`: -1.
    pub const fn set_ratios(&mut self, rx: Option<u32>, tx: Option<u32>) {
        self.ratios = [rx, tx];
    }

    /// How many calls in a row another place makes before a flow goes over to it.
    pub(super) const fn ratio(&self, direction: Direction) -> Option<u32> {
        self.ratios[direction as usize]
    }

    /// A ring of that link is there.
    pub fn add(&mut self, link: LinkId, number: u16) {
        self.rings.push(Placed { number, link, places: 0 });
    }

    /// A link's rings are no more.
    pub fn remove(&mut self, link: LinkId) {
        self.rings.retain(|ring| ring.link != link);
        self.known.retain(|(of, _), _| *of != link);
    }

    /// The link that a ring is on.
    pub fn link_of(&self, number: u16) -> Option<LinkId> {
        self.rings.iter().find(|ring| ring.number == number).map(|ring| ring.link)
    }

    /// The links that have rings, each once, in the order in which they came.
    pub fn links(&self) -> Vec<LinkId> {
        let mut links = Vec::new();
        for ring in &self.rings {
            if !links.contains(&ring.link) {
                links.push(ring.link);
            }
        }
        links
    }

    /// The rings of a link.
    pub fn rings_of(&self, link: LinkId) -> impl Iterator<Item = u16> {
        self.rings.iter().filter(move |ring| ring.link == link).map(|ring| ring.number)
    }

    /// Whether a ring is to be opened for that place before [`Choice::ring`] is asked: it has none, none is free, and the limit allows another one.
    pub fn wants_ring(&self, link: LinkId, place: Place) -> bool {
        let mut count = 0;
        let has_free = self.rings.iter().filter(|ring| ring.link == link).inspect(|_| count += 1).any(|ring| ring.places == 0);
        !has_free && count < self.limit && self.known.len() < PLACES_MAX && !self.known.contains_key(&(link, place))
    }

    /// The ring of a place on a link, which it has from now on. `None`: the link has no ring.
    pub fn ring(&mut self, link: LinkId, place: Place) -> Option<u16> {
        if let Some(&ring) = self.known.get(&(link, place)) {
            return Some(ring);
        }
        if self.known.len() >= PLACES_MAX {
            self.others += 1;
            let rings = self.rings.iter().filter(|ring| ring.link == link).count();
            return self.rings.iter().filter(|ring| ring.link == link).nth(self.others.checked_rem(rings)?).map(|ring| ring.number);
        }
        let ring = self.rings.iter_mut().filter(|ring| ring.link == link).min_by_key(|ring| ring.places)?;
        ring.places += 1;
        self.known.insert((link, place), ring.number);
        Some(ring.number)
    }

    /// The ring that a place has on a link, if it has one.
    pub fn known(&self, link: LinkId, place: Place) -> Option<u16> {
        self.known.get(&(link, place)).copied()
    }

    /// Places of a link that have rings.
    pub fn places_of(&self, link: LinkId) -> impl Iterator<Item = Place> {
        self.known.keys().filter(move |(at, _)| *at == link).map(|(_, place)| *place)
    }

    /// A place is no more (a thread that ended, a socket that is closed): its rings are free for others.
    pub fn release(&mut self, place: Place) {
        let Self { rings, known, .. } = self;
        known.retain(|(_, at), number| {
            if *at != place {
                return true;
            }
            if let Some(ring) = rings.iter_mut().find(|ring| ring.number == *number) {
                ring.places -= 1;
            }
            false
        });
    }

    /// Makes the sockets that use it mutants.
    #[cfg(feature = "mutants")]
    pub const fn mutate(&mut self, mutant: Mutant) {
        self.mutation.mutant = mutant;
    }

    pub(super) const fn mutation(&self) -> Mutation {
        self.mutation
    }

    /// Whether it is this mutant.
    #[inline(always)]
    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutation.is(mutant)
    }
}
