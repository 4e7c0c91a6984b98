//! Which sockets share a ring: the allocation logics (vma.md s1.3, VMA_RING_ALLOCATION_LOGIC_RX and _TX).

use std::net::{IpAddr, Ipv4Addr};

use ringway_stack::socket::{Allocation, Caller, Direction, Logic, Place, SocketId};

use crate::extra::cyclic::UserMemory;
use crate::extra::thread_name::{Life, Thread};
use crate::slab::Key;
use crate::socket::Socket;
use crate::socket::table::Sockets;

/// What a socket's ring is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(super) logic: Logic,
    /// Of [`Logic::UserId`].
    pub(super) user_id: u32,
    /// A key of vma_add_ring_profile; zero: none.
    pub(super) profile: u32,
}

impl Asked {
    pub(super) const fn by(logic: Logic) -> Self {
        Self { logic, user_id: 0, profile: 0 }
    }
}

/// What a ring is for: sockets of the same place, with the same profile, share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingKey {
    place: Place,
    profile: u32,
    /// Of one with a profile: the memory that the program set aside. Who names other memory has another ring.
    memory: Option<UserMemory>,
}

impl RingKey {
    /// Its profile, if it has one.
    pub(super) fn profile(self) -> Option<u32> {
        (self.profile != 0).then_some(self.profile)
    }

    /// For whom it is, whatever its profile.
    pub(super) const fn place(self) -> Place {
        self.place
    }

    /// Whether sockets of both may share a ring, where there is no room for two.
    pub(super) fn is_alike(self, other: Self) -> bool {
        (self.profile, self.memory) == (other.profile, other.memory)
    }
}

/// Who is to be alive for a place to be one: the thread that it is for.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    place: Place,
    life: Life,
}

impl Owner {
    /// Of the calling thread's place; `None`: the place is no thread's.
    pub(crate) fn of(place: Place) -> Option<Self> {
        place.is_threads().then(|| Self { place, life: Life::of_current() })
    }

    /// Whether the place is one that this speaks of.
    pub(crate) fn is_of(&self, place: Place) -> bool {
        self.place == place
    }

    /// Whether the thread has ended.
    pub(crate) fn is_gone(&self) -> bool {
        !self.life.goes_on()
    }
}

/// A socket's name among the process's, as a place has it.
fn name_of(key: Key) -> SocketId {
    SocketId(u64::from(key.generation) << 32 | u64::from(key.index))
}

/// The place of those on cards that share a profile's ring, by its number: of names of sockets, one that no socket has, whose index would be beyond all.
fn place_of_profile(number: u32) -> Place {
    Place::Socket(SocketId(u64::from(number) << 32 | u64::from(u32::MAX)))
}

/// Whether a place is that of a profile's ring.
pub(crate) const fn is_of_profile(place: Place) -> bool {
    matches!(place, Place::Socket(SocketId(name)) if name as u32 == u32::MAX)
}

/// Whether a place is a socket's that is closed, or that of a profile's ring which no socket is for.
pub(crate) fn is_closed(place: Place, sockets: &Sockets) -> bool {
    let Place::Socket(SocketId(name)) = place else { return false };
    if is_of_profile(place) {
        return sockets.iter().all(|(_, socket)| profiled(socket) != Some((name >> 32) as u32));
    }
    sockets.find(Key { index: name as u32, generation: (name >> 32) as u32 }).is_none()
}

/// The number of the profile's ring that a socket is for on cards.
fn profiled(socket: &Socket) -> Option<u32> {
    socket.rare.as_ref()?.rings.profiled
}

/// The rings of profiles that cards have, or are to have, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Profiled(Vec<RingKey>);

impl Profiled {
    /// The place of a socket's flows on cards, whose ring is that one: with who names the same, and with nobody else.
    pub(super) fn place(&mut self, by: RingKey, key: Key, sockets: &mut Sockets) -> Option<Place> {
        // (A number that no socket has any more is the next one's.)
        let is_free = |number: u32| sockets.iter().all(|(of, socket)| of == key || profiled(socket) != Some(number));
        let known = self.0.iter().position(|known| *known == by);
        let number = known.or_else(|| (0..self.0.len()).find(|&number| is_free(number as u32))).unwrap_or(self.0.len());
        if number == self.0.len() {
            self.0.push(by);
        }
        self.0[number] = by;
        sockets.find_mut(key)?.rare().rings.profiled = Some(number as u32);
        Some(place_of_profile(number as u32))
    }
}

/// The threads that [`Logic::CoreAttached`] has attached, each to its core.
#[derive(Debug, Default)]
pub(super) struct Threads {
    attached: Vec<Attached>,
}

#[derive(Debug)]
struct Attached {
    thread: Thread,
    life: Life,
    core: usize,
}

impl Threads {
    /// Which ring a socket belongs to; by the calling thread, where it is that which decides, and which is attached then.
    pub(super) fn key(&mut self, asked: Asked, key: Key, socket: &Socket) -> RingKey {
        if asked.logic == Logic::CoreAttached {
            self.attach();
        }
        self.seen(asked, key, socket)
    }

    /// Which one it would belong to, as its threads are.
    pub(super) fn seen(&self, asked: Asked, key: Key, socket: &Socket) -> RingKey {
        let Asked { logic, user_id, profile } = asked;
        let memory = socket.rare.as_ref().filter(|_| profile != 0).and_then(|rare| rare.rings.user_memory);
        // One memory has one writer, whatever the logic.
        let logic = if memory.is_some() { Logic::Interface } else { logic };
        let local = socket.bound.map(|local| local.ip()).filter(|ip| !ip.is_unspecified()).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let allocation = Allocation { rx: logic, tx: logic, user_id };
        let place = allocation.place(Direction::Rx, name_of(key), local, self.caller(logic));
        RingKey { place, profile, memory }
    }

    /// Who calls, as far as the logic asks for it.
    fn caller(&self, logic: Logic) -> Caller {
        match logic {
            Logic::Thread => Caller { thread: Thread::current().number(), ..Caller::default() },
            Logic::Core => Caller { core: this_core() as u32, ..Caller::default() },
            Logic::CoreAttached => {
                let core = self.core_of(Thread::current()).unwrap_or_else(this_core);
                Caller { core: core as u32, ..Caller::default() }
            }
            _ => Caller::default(),
        }
    }

    fn core_of(&self, thread: Thread) -> Option<usize> {
        self.attached.iter().find(|known| known.thread == thread).map(|known| known.core)
    }

    /// Keeps the calling thread on one core from now on: of those that it may run on, one with the fewest threads so attached.
    fn attach(&mut self) {
        let thread = Thread::current();
        if self.core_of(thread).is_some() {
            return;
        }
        self.attached.retain(|known| known.life.goes_on());
        let here = this_core();
        let load = |core: usize| self.attached.iter().filter(|known| known.core == core).count();
        // (Where there is nothing to choose between, the one that it is on.)
        let core = allowed().into_iter().min_by_key(|&core| (load(core), core != here)).unwrap_or(here);
        if stay_on(core) {
            self.attached.push(Attached { thread, life: Life::of_current(), core });
        }
    }
}

fn this_core() -> usize {
    // SAFETY: sched_getcpu has no preconditions.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// The cores that the calling thread may run on.
fn allowed() -> Vec<usize> {
    // SAFETY: all of it is bits, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the set is as long as it says; 0 is the calling thread.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: within the set.
    (0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
}

fn stay_on(core: usize) -> bool {
    if core >= libc::CPU_SETSIZE as usize {
        return false;
    }
    // SAFETY: as above; and the core is within the set.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0
    }
}

#[cfg(test)]
mod tests {
    use ringway_stack::device::Protocol;

    use super::*;
    use crate::socket::Family;

    fn key(threads: &mut Threads, asked: Asked, index: u32) -> RingKey {
        let mut socket = Socket::new(3, Family::V4, Protocol::Udp, false, ringway_stack::tcp::Config::default());
        socket.bound = Some(std::net::SocketAddr::new([127, 0, 0, (index % 2) as u8].into(), 5));
        threads.key(asked, Key { index, generation: 1 }, &socket)
    }

    #[test]
    fn sockets_share_a_ring_by_the_logic() {
        let mut threads = Threads::default();
        let mut same = |asked, other| key(&mut threads, asked, 1) == key(&mut threads, asked, other);
        for (logic, with_2, with_3) in [
            (Logic::Interface, true, true),
            (Logic::Address, false, true),
            (Logic::Socket, false, false),
            (Logic::UserId, true, true),
            (Logic::Thread, true, true),
        ] {
            assert_eq!((same(Asked::by(logic), 2), same(Asked::by(logic), 3)), (with_2, with_3), "{logic:?}");
        }
        let user = |user_id| Asked { user_id, ..Asked::by(Logic::UserId) };
        assert_ne!(key(&mut threads, user(1), 1), key(&mut threads, user(2), 1));
        let profile = |profile| Asked { profile, ..Asked::by(Logic::Interface) };
        assert_ne!(key(&mut threads, profile(1), 1), key(&mut threads, profile(2), 1));
    }

    #[test]
    fn a_profile_s_ring_is_for_those_who_name_it_and_then_for_the_next() {
        let (mut profiled, mut threads, mut sockets) = (Profiled::default(), Threads::default(), Sockets::new());
        let open =
            |sockets: &mut Sockets| sockets.insert(Socket::new(3, Family::V4, Protocol::Udp, false, ringway_stack::tcp::Config::default()));
        let keys: [Key; 4] = core::array::from_fn(|_| open(&mut sockets));
        let by = |threads: &mut Threads, profile| key(threads, Asked { profile, ..Asked::by(Logic::Interface) }, 1);
        let mut place =
            |of: Key, profile, sockets: &mut Sockets| profiled.place(by(&mut threads, profile), of, sockets).expect("it is there");
        let (one, alike, other) = (place(keys[0], 1, &mut sockets), place(keys[1], 1, &mut sockets), place(keys[2], 2, &mut sockets));
        assert!(one == alike && one != other && !is_closed(one, &sockets) && !is_closed(other, &sockets));
        sockets.remove(keys[0]);
        assert!(!is_closed(one, &sockets), "the second one has it still");
        sockets.remove(keys[2]);
        assert!(is_closed(other, &sockets));
        assert_eq!(place(keys[3], 3, &mut sockets), other, "it is nobody's");
        assert_eq!(place(keys[3], 3, &mut sockets), other);
    }

    #[test]
    fn threads_have_rings_of_their_own_and_attached_ones_stay() {
        let here = key(&mut Threads::default(), Asked::by(Logic::Thread), 1);
        let there = std::thread::spawn(|| key(&mut Threads::default(), Asked::by(Logic::Thread), 1)).join().expect("it does not panic");
        assert_ne!(here, there);
        std::thread::spawn(|| {
            let mut threads = Threads::default();
            let first = key(&mut threads, Asked::by(Logic::CoreAttached), 1);
            assert_eq!(allowed().len(), 1);
            assert_eq!(key(&mut threads, Asked::by(Logic::CoreAttached), 2), first);
            assert_eq!(first.place(), Place::Core(this_core() as u32));
        })
        .join()
        .expect("it does not panic");
    }
}
