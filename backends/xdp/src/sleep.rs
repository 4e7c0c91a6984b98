//! What the ring's owner sleeps on: an epoll instance over the sockets, which are in it for as long as the ring is armed, and over what threads of the
//! process wake its one sleeper by.

use std::io;
use std::os::fd::RawFd;

use ringway_host::queues::SLEEPER;
use ringway_host::{EventFd, Fd, sleep};

#[derive(Debug)]
pub(crate) struct Sleep {
    epoll: Fd,
    sleeper: EventFd,
    is_armed: bool,
}

impl Sleep {
    /// Over these sockets, disarmed.
    pub(crate) fn new(sockets: impl Iterator<Item = RawFd>) -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let epoll = Fd::make(|| unsafe { libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) })?;
        let sleeper = EventFd::new()?;
        let sleep = Self { epoll, sleeper, is_armed: false };
        sleep.control(libc::EPOLL_CTL_ADD, sleep.sleeper.fd(), libc::EPOLLIN, SLEEPER)?;
        for (at, socket) in sockets.enumerate() {
            sleep.control(libc::EPOLL_CTL_ADD, socket, 0, at as u64)?;
        }
        Ok(sleep)
    }

    fn control(&self, what: i32, of: RawFd, events: i32, data: u64) -> io::Result<()> {
        sleep::epoll_ctl(self.epoll.raw(), what, of, Some(libc::epoll_event { events: events as u32, u64: data }))
    }

    /// Whether what comes by these sockets makes the descriptor readable.
    pub(crate) fn set_armed(&mut self, on: bool, sockets: impl Iterator<Item = RawFd>) {
        if core::mem::replace(&mut self.is_armed, on) == on {
            return;
        }
        let events = if on { libc::EPOLLIN } else { 0 };
        for (at, socket) in sockets.enumerate() {
            if let Err(error) = self.control(libc::EPOLL_CTL_MOD, socket, events, at as u64) {
                tracing::error!("an AF_XDP socket cannot be slept on: {error}");
            }
        }
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
