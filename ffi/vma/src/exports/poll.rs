//! poll(2) and ppoll(2).

use core::ffi::c_int;
use core::time::Duration;

use libc::{nfds_t, pollfd, sigset_t};
use ringway_preload::Timeout;

use crate::boundary;
use crate::errno::{Errno, is_nowhere, to_int};
use crate::mux::poll::{concerns, poll as poll_both};
use crate::process::process_or_init;

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

/// poll(2) and ppoll(2).
#[inline(always)]
pub(super) unsafe fn poll(fds: *mut pollfd, count: nfds_t, timeout: Timeout, mask: *const sigset_t, next: impl Fn() -> c_int) -> c_int {
    crate::receiving_point!({
        let found = boundary!(Some(-1), {
            // SAFETY: the caller's promise: each is null or valid.
            unsafe { ours(fds, count).and_then(|fds| mixed(fds, timeout.read(), mask.as_ref())) }
        });
        found.unwrap_or_else(&next)
    })
}
