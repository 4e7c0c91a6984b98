//! select(2) and pselect(2).

use core::ffi::c_int;
use core::time::Duration;

use libc::{fd_set, sigset_t, timespec, timeval};

use super::timeout::{from_timespec, from_timeval};
use crate::errno::{self, Errno, to_int};
use crate::extra::resume::{self, DUE};
use crate::mux::select::{Set, Sets, select as select_both};
use crate::process::{process, process_or_init};
use crate::{boundary, real};

/// The call's sets, if any descriptor in them is one that the kernel cannot answer for.
///
/// # Safety
/// Each set is null, or valid for reading and writing `count` bits in whole words.
unsafe fn ours<'a>(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set) -> Option<Sets<'a>> {
    let count = usize::try_from(count).ok()?;
    if [read, write, except].into_iter().any(|set| !set.is_null() && errno::is_nowhere(set)) {
        return None;
    }
    // SAFETY: the caller's promise.
    let [read, write, except] = [read, write, except].map(|set| unsafe { Set::new(set, count) });
    let sets = Sets { count, read, write, except };
    sets.concern_us().then_some(sets)
}

fn mixed(sets: &mut Sets<'_>, timeout: Result<Option<Duration>, Errno>, mask: Option<&sigset_t>) -> Option<c_int> {
    // After a fork, the state is made anew here.
    let process = process_or_init()?;
    let ready = timeout.and_then(|timeout| select_both(process, sets, timeout, mask));
    crate::fd_counters::SELECT.waited(ready.as_ref().ok().copied());
    Some(to_int(ready.map(|ready| c_int::try_from(ready).unwrap_or(c_int::MAX))))
}

/// `select(2)`: leaves the ready ones of the descriptors below `count` in the sets, says how many bits that is, and writes the time that
/// was left back to `timeout` (null: without limit), as Linux does. -1 with errno EBADF, EINTR, EINVAL, ENOMEM.
///
/// # Safety
/// As select(2): the sets must have `count` bits; more than FD_SETSIZE are allowed.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    crate::receiving_point!({
        let found = boundary!(Some(-1), {
            // SAFETY: the caller's promise: each is null or valid.
            unsafe {
                ours(count, read, write, except).and_then(|mut sets| {
                    let limit = errno::optional(timeout).and_then(from_timeval);
                    let started = process_or_init().map(|process| resume::began_or(process.now()));
                    let found = mixed(&mut sets, limit, None);
                    // (A call that is made again has its time yet.)
                    let is_over = found != Some(-1) || errno::current() != DUE.0;
                    if is_over
                        && let (Some(left), Ok(Some(limit)), Some(started), Some(process)) = (timeout.as_mut(), limit, started, process())
                    {
                        *left = to_timeval(limit.saturating_sub(process.now().since(started)));
                    }
                    found
                })
            }
        });
        // SAFETY: the caller's arguments, as they are.
        found.unwrap_or_else(|| unsafe { real::select(count, read, write, except, timeout) })
    })
}

/// `pselect(2)`: as [`select`], with a finer timeout that is left alone, and a signal mask for the time of the call.
///
/// # Safety
/// As pselect(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    crate::receiving_point!({
        let found = boundary!(Some(-1), {
            // SAFETY: the caller's promise: each is null or valid.
            unsafe {
                ours(count, read, write, except)
                    .and_then(|mut sets| mixed(&mut sets, errno::optional(timeout).and_then(from_timespec), mask.as_ref()))
            }
        });
        // SAFETY: the caller's arguments, as they are.
        found.unwrap_or_else(|| unsafe { real::pselect(count, read, write, except, timeout, mask) })
    })
}

fn to_timeval(left: Duration) -> timeval {
    timeval {
        tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_usec: libc::suseconds_t::from(left.subsec_micros()),
    }
}
