//! epoll(7), as far as scripts use it: level and edge triggered, and once only.

use core::ffi::c_int;
use std::collections::BTreeMap;

use crate::errno::Errno;
use crate::world::World;

const ERR: u32 = libc::EPOLLERR as u32;
const HUP: u32 = libc::EPOLLHUP as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;

/// What it waits for on one descriptor.
#[derive(Clone, Copy, Debug)]
struct Interest {
    events: u32,
    data: u64,
    /// Something has changed since it was told last.
    is_new: bool,
    /// It was to be told once, and has been.
    is_over: bool,
}

/// An instance of epoll.
#[derive(Debug, Default)]
pub(crate) struct Epoll {
    interests: BTreeMap<c_int, Interest>,
}

impl Epoll {
    /// epoll_ctl(2), of a descriptor that exists.
    ///
    /// # Errors
    /// EEXIST, ENOENT, EINVAL.
    pub(crate) fn control(&mut self, operation: c_int, fd: c_int, events: u32, data: u64) -> Result<(), Errno> {
        let interest = Interest { events, data, is_new: true, is_over: false };
        match (operation, self.interests.contains_key(&fd)) {
            (libc::EPOLL_CTL_ADD, true) => Err(Errno(libc::EEXIST)),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, false) => Err(Errno(libc::ENOENT)),
            (libc::EPOLL_CTL_ADD, false) | (libc::EPOLL_CTL_MOD, true) => {
                self.interests.insert(fd, interest);
                Ok(())
            }
            (libc::EPOLL_CTL_DEL, true) => {
                self.interests.remove(&fd);
                Ok(())
            }
            _ => Err(Errno::INVALID),
        }
    }

    /// A descriptor has events.
    pub(crate) fn changed(&mut self, fd: c_int) {
        if let Some(interest) = self.interests.get_mut(&fd) {
            interest.is_new = true;
        }
    }

    /// A descriptor is gone.
    pub(crate) fn forget(&mut self, fd: c_int) {
        self.interests.remove(&fd);
    }
}

/// What is ready of an instance's descriptors, at most `most` of them: events, and the caller's data.
///
/// # Errors
/// EAGAIN: nothing; EBADF, EINVAL.
pub(crate) fn ready(world: &mut World, epoll: c_int, most: usize) -> Result<Vec<(u32, u64)>, Errno> {
    let fds: Vec<c_int> = world.epoll(epoll)?.interests.keys().copied().collect();
    let mut found = Vec::new();
    for fd in fds {
        if found.len() == most {
            break;
        }
        let ready = world.readiness(fd)?;
        let Some(interest) = world.epoll(epoll)?.interests.get_mut(&fd) else { continue };
        let events = ready & (interest.events | ERR | HUP);
        if events == 0 || interest.is_over || (interest.events & EDGE != 0 && !interest.is_new) {
            continue;
        }
        interest.is_new = false;
        interest.is_over = interest.events & ONCE != 0;
        found.push((events, interest.data));
    }
    if found.is_empty() { Err(Errno::AGAIN) } else { Ok(found) }
}
