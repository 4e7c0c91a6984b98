//! poll(2), ppoll(2) and their fortified forms.

use core::ffi::c_int;
use core::time::Duration;

use libc::{nfds_t, pollfd, sigset_t, size_t, timespec};

use super::timeout::{from_ms, from_timespec};
use crate::errno::{Errno, is_nowhere, optional, to_int};
use crate::mux::poll::{concerns, poll as poll_both};
use crate::process::process_or_init;
use crate::{boundary, real};

/// The set, if any descriptor in it is one that the kernel cannot answer for.
///
/// # Safety
/// `fds` is null, or valid for reading and writing `count` entries.
unsafe fn ours<'a>(fds: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    if is_nowhere(fds) {
        return None;
    }
    // SAFETY: the caller's promise.
    let fds = unsafe { core::slice::from_raw_parts_mut(fds, usize::try_from(count).ok()?) };
    fds.iter().any(|fd| concerns(fd.fd)).then_some(fds)
}

fn mixed(fds: &mut [pollfd], timeout: Result<Option<Duration>, Errno>, mask: Option<&sigset_t>) -> Option<c_int> {
    // After a fork, the state is made anew here.
    let process = process_or_init()?;
    let ready = timeout.and_then(|timeout| poll_both(process, fds, timeout, mask));
    crate::fd_counters::POLL.waited(ready.as_ref().ok().copied());
    Some(to_int(ready.map(|ready| c_int::try_from(ready).unwrap_or(c_int::MAX))))
}

/// `poll(2)`: how many of `count` descriptors are ready within `timeout` milliseconds (negative: without limit). -1 with errno
/// EFAULT, EINTR, EINVAL, ENOMEM.
///
/// # Safety
/// As poll(2): `fds` must be valid for `count` entries.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    crate::receiving_point!({
        // SAFETY: the caller's promise.
        let found = boundary!(Some(-1), unsafe { ours(fds, count) }.and_then(|fds| mixed(fds, Ok(from_ms(timeout)), None)));
        // SAFETY: the caller's arguments, as they are.
        found.unwrap_or_else(|| unsafe { real::poll(fds, count, timeout) })
    })
}

/// `ppoll(2)`: as [`poll`], with a finer timeout, and a signal mask for the time of the call.
///
/// # Safety
/// As ppoll(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
    crate::receiving_point!({
        let found = boundary!(Some(-1), {
            // SAFETY: the caller's promise: each is null or valid.
            unsafe { ours(fds, count).and_then(|fds| mixed(fds, optional(timeout).and_then(from_timespec), mask.as_ref())) }
        });
        // SAFETY: the caller's arguments, as they are.
        found.unwrap_or_else(|| unsafe { real::ppoll(fds, count, timeout, mask) })
    })
}

/// [`poll`], fortified: aborts if `room` bytes cannot hold `count` entries.
///
/// # Safety
/// As poll(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int {
    if fits(count, room) {
        // SAFETY: the caller's arguments, as they are.
        unsafe { poll(fds, count, timeout) }
    } else {
        // SAFETY: libc reports the overflow, and aborts.
        unsafe { real::poll_chk(fds, count, timeout, room) }
    }
}

/// [`ppoll`], fortified: aborts if `room` bytes cannot hold `count` entries.
///
/// # Safety
/// As ppoll(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    if fits(count, room) {
        // SAFETY: the caller's arguments, as they are.
        unsafe { ppoll(fds, count, timeout, mask) }
    } else {
        // SAFETY: libc reports the overflow, and aborts.
        unsafe { real::ppoll_chk(fds, count, timeout, mask, room) }
    }
}

fn fits(count: nfds_t, room: size_t) -> bool {
    usize::try_from(count).is_ok_and(|count| count <= room / size_of::<pollfd>())
}
