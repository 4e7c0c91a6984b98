//! What the ring's owner sleeps on: an epoll instance over the sockets, which are in it for as long as the ring is armed, and over what threads of the
//! process wake its one sleeper by.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use ringway_host::queues::SLEEPER;

#[derive(Debug)]
pub(crate) struct Sleep {
    epoll: OwnedFd,
    sleeper: OwnedFd,
    is_armed: bool,
}

impl Sleep {
    /// Over these sockets, disarmed.
    pub(crate) fn new(sockets: impl Iterator<Item = RawFd>) -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: no memory is involved.
        let sleeper = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        let sleep = Self { epoll, sleeper, is_armed: false };
        sleep.control(libc::EPOLL_CTL_ADD, sleep.sleeper.as_raw_fd(), libc::EPOLLIN, SLEEPER)?;
        for (at, socket) in sockets.enumerate() {
            sleep.control(libc::EPOLL_CTL_ADD, socket, 0, at as u64)?;
        }
        Ok(sleep)
    }

    fn control(&self, what: i32, of: RawFd, events: i32, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: data };
        // SAFETY: the event is readable.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), what, of, &raw mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
        self.epoll.as_raw_fd()
    }

    /// What wakes the sleeper.
    pub(crate) fn sleeper(&self) -> RawFd {
        self.sleeper.as_raw_fd()
    }

    /// The sleeper has seen that it was woken.
    pub(crate) fn clear_sleeper(&self) {
        let mut count = 0_u64;
        // SAFETY: eight bytes are writable. (There may be nothing to read: it does not block.)
        unsafe { libc::read(self.sleeper.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the kernel has just made it, for us.
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) }
}
