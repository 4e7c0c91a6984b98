//! Which sockets share a ring: the allocation logics (vma.md s1.3, VMA_RING_ALLOCATION_LOGIC_RX and _TX).

use std::net::{IpAddr, Ipv4Addr};

use crate::extra::cyclic::UserMemory;
use crate::extra::thread_name::{Life, Thread};
use crate::slab::Key;
use crate::socket::Socket;
use crate::socket::table::Sockets;

/// `ring_logic_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logic {
    Interface,
    Ip,
    Socket,
    UserId,
    Thread,
    Core,
    /// As [`Logic::Core`], and threads stay where they were first found.
    CoreAttached,
}

impl Logic {
    pub(crate) const fn from_number(number: i64) -> Option<Self> {
        Some(match number {
            0 => Self::Interface,
            1 => Self::Ip,
            10 => Self::Socket,
            11 => Self::UserId,
            20 => Self::Thread,
            30 => Self::Core,
            31 => Self::CoreAttached,
            _ => return None,
        })
    }
}

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

/// For whom a ring is: sockets of the same place share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    of: Of,
    profile: u32,
    /// Of one with a profile: the memory that the program set aside. Who names other memory has another ring.
    memory: Option<UserMemory>,
}

impl Place {
    /// Its profile, if it has one.
    pub(super) fn profile(self) -> Option<u32> {
        (self.profile != 0).then_some(self.profile)
    }

    /// Whether sockets of both may share a ring, where there is no room for two.
    pub(super) fn is_alike(self, other: Self) -> bool {
        (self.profile, self.memory) == (other.profile, other.memory)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// (The device is one interface.)
    Interface,
    Ip(IpAddr),
    Socket(Key),
    UserId(u32),
    Thread(Thread),
    Core(usize),
}

/// A place, and whether there is still somebody for whom it is.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    place: Place,
    /// Of a thread's.
    life: Option<Life>,
}

impl Home {
    /// Of the calling thread, where the place is one's.
    pub(super) fn of(place: Place) -> Self {
        Self { place, life: matches!(place.of, Of::Thread(_)).then(Life::of_current) }
    }

    /// Whether both are the same place.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.place == other.place
    }

    /// Whether it was a thread's that has ended, or a socket's that is closed.
    pub(crate) fn is_gone(&self, sockets: &Sockets) -> bool {
        match self.place.of {
            Of::Socket(key) => sockets.find(key).is_none(),
            _ => self.life.as_ref().is_some_and(|life| !life.goes_on()),
        }
    }
}

#[cfg(test)]
impl Place {
    pub(super) fn of_core(core: usize) -> Self {
        Self { of: Of::Core(core), profile: 0, memory: None }
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
    /// Where a socket belongs; by the calling thread, where it is that which decides, and which is attached then.
    pub(super) fn place(&mut self, asked: Asked, key: Key, socket: &Socket) -> Place {
        if asked.logic == Logic::CoreAttached {
            self.attach();
        }
        self.seen(asked, key, socket)
    }

    /// Where a socket would belong, as its threads are.
    pub(super) fn seen(&self, asked: Asked, key: Key, socket: &Socket) -> Place {
        let memory = socket.rare.as_ref().filter(|_| asked.profile != 0).and_then(|rare| rare.rings.user_memory);
        let of = match asked.logic {
            // One memory has one writer, whatever the logic.
            _ if memory.is_some() => Of::Interface,
            Logic::Interface => Of::Interface,
            Logic::Ip => {
                Of::Ip(socket.bound.map(|local| local.ip()).filter(|ip| !ip.is_unspecified()).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)))
            }
            Logic::Socket => Of::Socket(key),
            Logic::UserId => Of::UserId(asked.user_id),
            Logic::Thread => Of::Thread(Thread::current()),
            Logic::Core => Of::Core(this_core()),
            Logic::CoreAttached => Of::Core(self.core_of(Thread::current()).unwrap_or_else(this_core)),
        };
        Place { of, profile: asked.profile, memory }
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

    fn place(threads: &mut Threads, asked: Asked, index: u32) -> Place {
        let mut socket = Socket::new(3, Family::V4, Protocol::Udp, false, ringway_stack::tcp::Config::default());
        socket.bound = Some(std::net::SocketAddr::new([127, 0, 0, (index % 2) as u8].into(), 5));
        threads.place(asked, Key { index, generation: 1 }, &socket)
    }

    #[test]
    fn sockets_share_a_ring_by_the_logic() {
        let mut threads = Threads::default();
        let mut same = |asked, other| place(&mut threads, asked, 1) == place(&mut threads, asked, other);
        for (logic, with_2, with_3) in [
            (Logic::Interface, true, true),
            (Logic::Ip, false, true),
            (Logic::Socket, false, false),
            (Logic::UserId, true, true),
            (Logic::Thread, true, true),
        ] {
            assert_eq!((same(Asked::by(logic), 2), same(Asked::by(logic), 3)), (with_2, with_3), "{logic:?}");
        }
        let user = |user_id| Asked { user_id, ..Asked::by(Logic::UserId) };
        assert_ne!(place(&mut threads, user(1), 1), place(&mut threads, user(2), 1));
        let profile = |profile| Asked { profile, ..Asked::by(Logic::Interface) };
        assert_ne!(place(&mut threads, profile(1), 1), place(&mut threads, profile(2), 1));
    }

    #[test]
    fn threads_have_rings_of_their_own_and_attached_ones_stay() {
        let here = place(&mut Threads::default(), Asked::by(Logic::Thread), 1);
        let there = std::thread::spawn(|| place(&mut Threads::default(), Asked::by(Logic::Thread), 1)).join().expect("it does not panic");
        assert_ne!(here, there);
        std::thread::spawn(|| {
            let mut threads = Threads::default();
            let first = place(&mut threads, Asked::by(Logic::CoreAttached), 1);
            assert_eq!(allowed().len(), 1);
            assert_eq!(place(&mut threads, Asked::by(Logic::CoreAttached), 2), first);
            assert_eq!(first.of, Of::Core(this_core()));
        })
        .join()
        .expect("it does not panic");
    }
}
