//! repoll_create, repoll_ctl, repoll_wait: epoll(7)'s calls for rsockets and other descriptors together, level-triggered.

use core::ffi::c_int;
use core::time::Duration;
use std::collections::BTreeMap;
use std::os::fd::{OwnedFd, RawFd};

use libc::{epoll_event, pollfd};
use ringway_preload::Errno;
use ringway_stack::Instant;

use super::poll::poll_unless;
use crate::library::{Library, enter, enter_first};
use crate::table::placeholder;

/// The events that can be asked for. (EPOLLERR and EPOLLHUP come unasked. Their numbers are poll's.)
const EVENTS: u32 = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLPRI | libc::EPOLLRDHUP | libc::EPOLLERR | libc::EPOLLHUP).cast_unsigned();

/// An instance.
pub(crate) struct Interest {
    /// Which events of each descriptor, and what the program calls it.
    fds: BTreeMap<RawFd, (u32, u64)>,
    /// How often that has changed.
    changes: u64,
    /// Where the next wait begins, so that each gets its turn.
    turn: RawFd,
    _number: OwnedFd,
}

/// A new instance, which rclose ends.
///
/// # Errors
/// EINVAL: other flags than EPOLL_CLOEXEC; EMFILE, ENFILE, ENOMEM; ENODEV: there is no device.
pub(crate) fn create(flags: c_int) -> Result<RawFd, Errno> {
    if flags & !libc::EPOLL_CLOEXEC != 0 {
        return Err(Errno(libc::EINVAL));
    }
    let (fd, number) = placeholder(flags & libc::EPOLL_CLOEXEC != 0)?;
    enter_first()?.repolls.insert(fd, Interest { fds: BTreeMap::new(), changes: 0, turn: 0, _number: number });
    Ok(fd)
}

/// Adds, changes or removes a descriptor; `event` says which events, and what they come with.
///
/// # Errors
/// EBADF: no such instance, or descriptor; EINVAL: another operation, other events than IN, OUT, PRI and RDHUP (there are neither edges nor one shot), or the
/// instance itself; EEXIST; ENOENT; EFAULT: `event` is missing.
pub(crate) fn control(instance: RawFd, operation: c_int, fd: RawFd, event: Option<epoll_event>) -> Result<(), Errno> {
    let mut library = enter()?;
    let is_open = library.table.contains_key(&fd) || is_open(fd);
    let interest = library.repolls.get_mut(&instance).ok_or(Errno(libc::EBADF))?;
    if fd == instance {
        return Err(Errno(libc::EINVAL));
    }
    if !is_open {
        return Err(Errno(libc::EBADF));
    }
    let wanted = || {
        let epoll_event { events, u64: data } = event.ok_or(Errno(libc::EFAULT))?;
        if events & !EVENTS == 0 { Ok((events, data)) } else { Err(Errno(libc::EINVAL)) }
    };
    let is_there = interest.fds.contains_key(&fd);
    match (operation, is_there) {
        (libc::EPOLL_CTL_ADD, true) => return Err(Errno(libc::EEXIST)),
        (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, false) => return Err(Errno(libc::ENOENT)),
        (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _) => drop(interest.fds.insert(fd, wanted()?)),
        (libc::EPOLL_CTL_DEL, true) => drop(interest.fds.remove(&fd)),
        _ => return Err(Errno(libc::EINVAL)),
    }
    interest.changes += 1;
    library.sleepers.wake();
    Ok(())
}

/// A kernel's descriptor.
fn is_open(fd: RawFd) -> bool {
    // SAFETY: no memory is passed.
    fd >= 0 && unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0
}

/// Waits for events, at most `timeout`, and writes them to the front of `events`; how many. What is added meanwhile is waited for as well.
///
/// # Errors
/// EBADF: no such instance; EINVAL: no room for one; EINTR, and the others of rpoll.
pub(crate) fn wait(instance: RawFd, events: &mut [epoll_event], timeout: Option<Duration>) -> Result<usize, Errno> {
    if events.is_empty() {
        return Err(Errno(libc::EINVAL));
    }
    let deadline: Option<Instant> = timeout.map(|timeout| ringway_host::Clock::system().now() + timeout);
    loop {
        let (mut fds, changes) = {
            let library = enter()?;
            let interest = library.repolls.get(&instance).ok_or(Errno(libc::EBADF))?;
            let turn = |(fd, (events, _)): (&RawFd, &(u32, u64))| pollfd { fd: *fd, events: *events as i16, revents: 0 };
            let fds: Vec<pollfd> = interest.fds.range(interest.turn..).chain(interest.fds.range(..interest.turn)).map(turn).collect();
            (fds, interest.changes)
        };
        let has_changed = |library: &Library| library.repolls.get(&instance).is_none_or(|interest| interest.changes != changes);
        let left = deadline.map(|deadline| deadline.since(ringway_host::Clock::system().now()));
        poll_unless(&mut fds, left, has_changed)?;
        let mut library = enter()?;
        let interest = library.repolls.get_mut(&instance).ok_or(Errno(libc::EBADF))?;
        let count = interest.tell(&fds, events);
        if count > 0 || left == Some(Duration::ZERO) {
            return Ok(count);
        }
    }
}

impl Interest {
    /// Writes what is ready to `events`, as much as there is room for.
    fn tell(&mut self, fds: &[pollfd], events: &mut [epoll_event]) -> usize {
        let mut count = 0;
        for fd in fds.iter().filter(|fd| fd.revents != 0) {
            if fd.revents & libc::POLLNVAL != 0 {
                // It was closed, which ends it, as with epoll(7).
                self.fds.remove(&fd.fd);
                continue;
            }
            let Some((wanted, data)) = self.fds.get(&fd.fd).copied() else { continue };
            let always = (libc::EPOLLERR | libc::EPOLLHUP).cast_unsigned();
            let ready = u32::from(fd.revents.cast_unsigned()) & (wanted | always);
            let Some(place) = events.get_mut(count).filter(|_| ready != 0) else { continue };
            *place = epoll_event { events: ready, u64: data };
            self.turn = fd.fd.saturating_add(1);
            count += 1;
        }
        count
    }

    /// An rsocket was closed.
    pub(crate) fn forget(&mut self, fd: RawFd) {
        self.changes += u64::from(self.fds.remove(&fd).is_some());
    }
}
