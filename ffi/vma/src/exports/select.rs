//! select(2) and pselect(2).

use core::ffi::c_int;
use core::time::Duration;

use libc::{fd_set, sigset_t};
use ringway_preload::Timeout;
use ringway_preload::sets::Sets;

use crate::boundary;
use crate::errno::{self, Errno, to_int};
use crate::extra::resume::{self, DUE};
use crate::mux::poll::concerns;
use crate::mux::select::select as select_both;
use crate::process::{process, process_or_init};

/// The call's sets, if any descriptor in them is one that the kernel cannot answer for.
///
/// # Safety
/// Each set is null, or valid for reading and writing `count` bits in whole words.
unsafe fn ours<'a>(count: c_int, sets: [*mut fd_set; 3]) -> Option<Sets<'a>> {
    let count = usize::try_from(count).ok()?;
    if sets.into_iter().any(|set| !set.is_null() && errno::is_nowhere(set)) {
        return None;
    }
    // SAFETY: the caller's promise.
    let sets = unsafe { Sets::new(count, sets) };
    sets.any(concerns).then_some(sets)
}

fn mixed(sets: &mut Sets<'_>, timeout: Result<Option<Duration>, Errno>, mask: Option<&sigset_t>) -> Option<c_int> {
    // After a fork, the state is made anew here.
    let process = process_or_init()?;
    let ready = timeout.and_then(|timeout| select_both(process, sets, timeout, mask));
    crate::fd_counters::SELECT.waited(ready.as_ref().ok().copied());
    Some(to_int(ready.map(|ready| c_int::try_from(ready).unwrap_or(c_int::MAX))))
}

/// select(2) and pselect(2).
#[inline(always)]
pub(super) unsafe fn select(
    count: c_int,
    sets: [*mut fd_set; 3],
    timeout: Timeout,
    mask: *const sigset_t,
    next: impl Fn() -> c_int,
) -> c_int {
    crate::receiving_point!({
        let found = boundary!(Some(-1), {
            // SAFETY: the caller's promise: each is null or valid.
            unsafe {
                ours(count, sets).and_then(|mut sets| {
                    let limit = timeout.read();
                    let started = process_or_init().map(|process| resume::began_or(process.now()));
                    let found = mixed(&mut sets, limit, mask.as_ref());
                    // (A call that is made again has its time yet.)
                    let is_over = found != Some(-1) || errno::current() != DUE.0;
                    if is_over && let (Ok(Some(limit)), Some(started), Some(process)) = (limit, started, process()) {
                        timeout.write_left(limit.saturating_sub(process.now().since(started)));
                    }
                    found
                })
            }
        });
        found.unwrap_or_else(&next)
    })
}
