//! What a member sleeps on: one descriptor, which is readable once somebody has woken the member.
//!
//! A peer wakes over the connection by which both know that the other lives, and never over an object of the sleeper's. Of an
//! object that is passed around (an eventfd, say) everybody has the same open file description: whoever clears its O_NONBLOCK and fills
//! its counter blocks all others in write(2). The waker's end of a connection is the waker's alone, and a send(2) with MSG_DONTWAIT
//! does not block whatever the other end does. So peers can neither hold up each other nor take each other's wake-ups away, and a link
//! has one descriptor.

use std::io;
use std::os::fd::RawFd;

use arrayvec::ArrayVec;
use ringway_host::queues::{BESIDE, SLEEPER};

use crate::fd::Fd;
use crate::sys::{self, Epoll};

/// What this process signals itself.
const OWN: u64 = u64::MAX;
// (SLEEPER: what its threads signal the one that sleeps on the ring.)
const _: () = assert!(SLEEPER > BESIDE, "the owner of a device has an event of its own beside these");
/// Peers that are told of in one go.
const READY_MAX: usize = 16;
/// Wake-ups of one peer that are left in its connection until they are taken out together. The smallest send buffer that the system can be
/// told to give (net.core.wmem_default, socket(7)) has room for six; and of three that come between one look and the next (one that comes after a
/// sleep has ended, one in a pause, one in the sleep after that), the member learns once.
const LEFT_MAX: u8 = 2;

/// A member's wake-ups.
#[derive(Debug)]
pub(crate) struct WakeUps {
    /// Edge triggered: being asked once, it is not readable before the next wake-up.
    epoll: Epoll,
    /// No other process has it.
    own: Fd,
    /// Nor this one. Only the thread that it is for takes it back, so that nobody who asks the descriptor meanwhile takes its wake-up away.
    sleeper: Fd,
}

impl WakeUps {
    pub(crate) fn new() -> io::Result<Self> {
        let (epoll, own, sleeper) = (Epoll::new()?, sys::eventfd()?, sys::eventfd()?);
        epoll.add(&own, libc::EPOLLIN, OWN)?;
        epoll.add(&sleeper, libc::EPOLLIN, SLEEPER)?;
        Ok(Self { epoll, own, sleeper })
    }

    /// The descriptor to sleep on.
    pub(crate) fn fd(&self) -> RawFd {
        self.epoll.raw()
    }

    /// The eventfd by which threads of this process wake the one that sleeps in epoll_wait on [`WakeUps::fd`].
    pub(crate) fn sleeper_fd(&self) -> RawFd {
        self.sleeper.raw()
    }

    /// That thread is awake.
    pub(crate) fn clear_sleeper(&self) {
        sys::eventfd_clear(&self.sleeper);
    }

    /// Wakes this member.
    pub(crate) fn signal(&self) {
        sys::eventfd_signal(&self.own);
    }

    /// From now on, the peer in `slot` can wake this member over `connection`.
    pub(crate) fn add(&self, connection: &Fd, slot: usize) -> io::Result<()> {
        self.epoll.add(connection, libc::EPOLLIN | libc::EPOLLET, slot as u64)
    }

    /// The end of that.
    pub(crate) fn remove(&self, connection: &Fd) {
        self.epoll.remove(connection);
    }

    /// Makes the descriptor unreadable again (unless more peers than can be told of have woken the member). The slots of those who have.
    pub(crate) fn clear(&self) -> ArrayVec<u64, READY_MAX> {
        let mut slots = self.epoll.ready::<READY_MAX>();
        slots.retain(|&mut slot| !self.is_own(slot));
        slots
    }

    /// Whether this process has woken the member itself: then that is over now.
    pub(crate) fn is_own(&self, slot: u64) -> bool {
        let is_own = slot == OWN;
        if is_own {
            sys::eventfd_clear(&self.own);
        }
        is_own
    }

    /// Whether a thread of this process has woken the one that sleeps.
    pub(crate) const fn is_of_sleeper(slot: u64) -> bool {
        slot == SLEEPER
    }
}

/// Wake-ups of one peer that lie in its connection.
#[derive(Debug, Default)]
pub(crate) struct Left(u8);

impl Left {
    /// The peer has woken this member once more. Now and then, what lies there is taken out. (Left alone, it would fill the peer's
    /// send buffer, and no more wake-up would get through.)
    pub(crate) fn add_one(&mut self, connection: &Fd) {
        self.0 += 1;
        if self.0 >= LEFT_MAX {
            self.0 = 0;
            sys::discard_messages(connection);
        }
    }
}
