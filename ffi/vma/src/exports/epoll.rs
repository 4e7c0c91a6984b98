//! epoll(7).

use core::ffi::c_int;

use libc::{epoll_event, sigset_t};
use ringway_host::numbers;
use ringway_preload::Timeout;

use crate::errno::{self, fail, to_int};
use crate::fdtable::{self, Entry};
use crate::mux::{beside, epoll};
use crate::process::process_or_init;
use crate::socket::lifecycle;
use crate::{boundary, real};

/// epoll_create(2) and epoll_create1(2).
pub(super) fn create(next: impl Fn() -> c_int) -> c_int {
    created(numbers::lowest(next))
}

fn created(fd: c_int) -> c_int {
    if fd >= 0 {
        lifecycle::arriving(fd);
        epoll::on_create(fd);
    }
    fd
}

/// epoll_ctl(2).
pub(super) unsafe fn control(instance: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    boundary!(-1, {
        // SAFETY: the caller's promise; the structure is packed, so that it has no alignment to keep.
        let wanted = (!errno::is_nowhere(event) && operation != libc::EPOLL_CTL_DEL).then(|| unsafe { event.read_unaligned() });
        if let entry @ Entry::Socket(_) = fdtable::lookup(fd)
            && fdtable::is_stale_now(fd)
        {
            lifecycle::displaced(fd, entry);
        }
        let saved = errno::current();
        let control = || match epoll::control(instance, operation, fd, wanted) {
            Some(result) => to_int(result.map(|()| 0)),
            // SAFETY: the caller's arguments, as they are.
            None => unsafe { real::epoll_ctl(instance, operation, fd, event) },
        };
        match control() {
            // The library's own instance, in which one of the program's may lie, is no part of the program's nesting.
            -1 if errno::current() == libc::ELOOP && beside::makes_way() => {
                errno::set(saved);
                control()
            }
            result => result,
        }
    })
}

/// epoll_wait(2), epoll_pwait(2) and epoll_pwait2(2).
#[inline(always)]
pub(super) unsafe fn wait(
    instance: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: Timeout,
    mask: *const sigset_t,
    next: impl Fn() -> c_int,
) -> c_int {
    // SAFETY: the program's promise to epoll_pwait2(2).
    crate::receiving_point!(unsafe { wait_once(instance, events, count, timeout, mask, &next) })
}

/// One wait, plain or not.
///
/// # Safety
/// The program's promise to epoll_pwait2(2): `events` is valid for writing `count` entries, or `plain` (the kernel's call with the same arguments) says EFAULT.
unsafe fn wait_once(
    instance: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: Timeout,
    mask: *const sigset_t,
    plain: impl Fn() -> c_int,
) -> c_int {
    let Entry::Epoll(mut index) = fdtable::lookup(instance) else { return plain() };
    let (Ok(room), false) = (usize::try_from(count), errno::is_nowhere(events)) else { return plain() };
    if room == 0 {
        return plain();
    }
    if epoll::is_plain(index) {
        // SAFETY: the caller's promise.
        match unsafe { plain_wait(instance, events, &plain) } {
            Plain::Done(found) => return found,
            Plain::Registered(registered) => index = registered,
        }
    }
    // After a fork, the state is made anew here.
    let Some(process) = process_or_init() else { return plain() };
    boundary!(-1, {
        // SAFETY: the caller's promise; entries are written before they are read.
        let events = unsafe { core::slice::from_raw_parts_mut(events, room.min(EVENTS_MAX)) };
        // SAFETY: the caller's promise.
        let (timeout, mask) = unsafe { (timeout.read(), mask.as_ref()) };
        let found = timeout.and_then(|timeout| epoll::wait_on(process, index, instance, events, timeout, mask));
        crate::fd_counters::waited(instance, found.as_ref().ok().copied());
        to_int(found.map(|found| c_int::try_from(found).unwrap_or(c_int::MAX)))
    })
}

/// How a wait in the plain real epoll ended.
enum Plain {
    /// This is what the call returns.
    Done(c_int),
    /// The instance was registered meanwhile, or is by now: the wait begins anew, with what we carry.
    Registered(u32),
}

/// # Safety
/// After `plain` returned a positive number, so many entries at `events` are valid.
unsafe fn plain_wait(instance: c_int, events: *mut epoll_event, plain: &impl Fn() -> c_int) -> Plain {
    fdtable::begin_plain_wait(instance);
    // Whoever registers it after this look sees that a thread waits.
    let found = match fdtable::lookup(instance) {
        Entry::Epoll(index) if !epoll::is_plain(index) => Err(index),
        _ => Ok(plain()),
    };
    fdtable::end_plain_wait(instance);
    let found = match found {
        Ok(found) => found,
        Err(index) => return Plain::Registered(index),
    };
    let Some(got) = usize::try_from(found).ok().filter(|&got| got != 0) else { return Plain::Done(found) };
    // SAFETY: the kernel wrote that many.
    let got = unsafe { core::slice::from_raw_parts_mut(events, got) };
    match boundary!(None, epoll::after_plain_wait(instance, got)) {
        None => Plain::Done(found),
        Some(0) => match fdtable::lookup(instance) {
            Entry::Epoll(index) if !epoll::is_plain(index) => Plain::Registered(index),
            _ => Plain::Done(fail(libc::EBADF)),
        },
        Some(left) => Plain::Done(c_int::try_from(left).unwrap_or(c_int::MAX)),
    }
}

/// More than this in one call are not reported (a program may pass a count that its array does not have, knowing that it has
/// few descriptors).
const EVENTS_MAX: usize = 1 << 16;
