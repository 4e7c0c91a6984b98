//! Waiting for several descriptors.

use core::ffi::{c_int, c_short, c_void};
use core::time::Duration;

use libc::{epoll_event, nfds_t, pollfd};

use super::host;
use crate::epoll::{self, Epoll};
use crate::errno::{Errno, returned_int};
use crate::memory;
use crate::world::Object;

/// The most that one call looks at.
const MOST: usize = 1 << 16;

/// What a timeout in milliseconds means: whether to sleep, and for how long at most.
fn sleep(timeout_ms: c_int) -> (bool, Option<Duration>) {
    match u64::try_from(timeout_ms) {
        Ok(ms) => (ms > 0, Some(Duration::from_millis(ms))),
        Err(_) => (true, None),
    }
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn poll(userdata: *mut c_void, fds: *mut pollfd, number: nfds_t, timeout_ms: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| {
        let number = usize::try_from(number).ok().filter(|number| *number <= MOST).ok_or(Errno::INVALID)?;
        let bytes = memory::read(fds.cast_const().cast(), number * size_of::<pollfd>())?;
        let mut asked: Vec<pollfd> = bytes.chunks(size_of::<pollfd>()).map(memory::of_bytes).collect();
        let always = libc::POLLERR | libc::POLLHUP;
        let (may_sleep, timeout) = sleep(timeout_ms);
        let found = host.wait(may_sleep, timeout, |world| {
            for one in &mut asked {
                one.revents = match world.readiness(one.fd) {
                    _ if one.fd < 0 => 0,
                    Ok(ready) => ready as c_short & (one.events | always),
                    Err(_) => libc::POLLNVAL,
                };
            }
            let found = asked.iter().filter(|one| one.revents != 0).count();
            if found == 0 { Err(Errno::AGAIN) } else { Ok(found as c_int) }
        });
        let bytes: Vec<u8> = asked.iter().flat_map(memory::bytes_of).collect();
        memory::write(fds.cast(), &bytes)?;
        none_in_time(found)
    })
}

/// A wait that was in vain found nothing.
fn none_in_time(found: Result<c_int, Errno>) -> Result<c_int, Errno> {
    if found == Err(Errno::AGAIN) { Ok(0) } else { found }
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn epoll_create(userdata: *mut c_void, size: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| {
        if size <= 0 {
            return Err(Errno::INVALID);
        }
        host.now(|world| world.add(Object::Epoll(Epoll::default())))
    })
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn epoll_ctl(
    userdata: *mut c_void,
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| {
        let (events, data) = match operation {
            libc::EPOLL_CTL_DEL => (0, 0),
            _ => {
                let event = memory::get(event.cast_const())?;
                (event.events, event.u64)
            }
        };
        host.now(|world| {
            world.epoll(epoll)?;
            if !world.has(fd) {
                return Err(Errno::BAD_DESCRIPTOR);
            }
            if fd == epoll {
                return Err(Errno::INVALID);
            }
            world.epoll(epoll)?.control(operation, fd, events, data).map(|()| 0)
        })
    })
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn epoll_wait(
    userdata: *mut c_void,
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| {
        let most = usize::try_from(most).ok().filter(|most| (1..=MOST).contains(most)).ok_or(Errno::INVALID)?;
        let (may_sleep, timeout) = sleep(timeout_ms);
        let mut told = Vec::new();
        let found = host.wait(may_sleep, timeout, |world| {
            told = epoll::ready(world, epoll, most)?;
            Ok(told.len() as c_int)
        });
        let bytes: Vec<u8> = told.iter().flat_map(|&(events, data)| memory::bytes_of(&epoll_event { events, u64: data })).collect();
        memory::write(events.cast(), &bytes)?;
        none_in_time(found)
    })
}
