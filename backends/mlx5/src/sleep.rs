//! What a ring's owner sleeps on: an epoll instance over the channel of its receive completions, which is in it for as long as the ring is armed, over what the
//! card's events come by, and over what threads of the process wake its one sleeper by.

use std::io;
use std::os::fd::RawFd;

use ringway_host::queues::SLEEPER;
use ringway_host::{EventFd, Fd, sleep};

/// Data of the two descriptors beside the sleeper's.
const FRAMES: u64 = 0;
const EVENTS: u64 = 1;

#[derive(Debug)]
pub(crate) struct Sleep {
    epoll: Fd,
    sleeper: EventFd,
    channel: RawFd,
    is_armed: bool,
}

impl Sleep {
    /// Over these descriptors, disarmed.
    pub(crate) fn new(channel: RawFd, events: RawFd) -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let epoll = Fd::make(|| unsafe { libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) })?;
        let sleep = Self { epoll, sleeper: EventFd::new()?, channel, is_armed: false };
        sleep.control(libc::EPOLL_CTL_ADD, sleep.sleeper.fd(), libc::EPOLLIN, SLEEPER)?;
        sleep.control(libc::EPOLL_CTL_ADD, events, libc::EPOLLIN, EVENTS)?;
        sleep.control(libc::EPOLL_CTL_ADD, channel, 0, FRAMES)?;
        Ok(sleep)
    }

    fn control(&self, what: i32, of: RawFd, events: i32, data: u64) -> io::Result<()> {
        sleep::epoll_ctl(self.epoll.raw(), what, of, Some(libc::epoll_event { events: events as u32, u64: data }))
    }

    /// Whether completions make the descriptor readable. Whether that is a change.
    pub(crate) fn set_armed(&mut self, on: bool) -> bool {
        if core::mem::replace(&mut self.is_armed, on) == on {
            return false;
        }
        let events = if on { libc::EPOLLIN } else { 0 };
        if let Err(error) = self.control(libc::EPOLL_CTL_MOD, self.channel, events, FRAMES) {
            tracing::error!("completions cannot be slept on: {error}");
        }
        true
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.epoll.raw()
    }

    /// What wakes the sleeper.
    pub(crate) fn sleeper(&self) -> RawFd {
        self.sleeper.fd()
    }

    /// The sleeper has seen that it was woken.
    pub(crate) fn clear_sleeper(&self) {
        self.sleeper.clear();
    }
}
