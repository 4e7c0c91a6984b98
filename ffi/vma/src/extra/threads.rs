//! `thread_offload`: whose new sockets are offloaded, whatever VMA_OFFLOADED_SOCKETS says.
//!
//! A list that only grows, an entry a thread, so that a fork at any moment leaves it whole.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use libc::pthread_t;
use ringway_params::Id;

use crate::{errno, params, process};

/// What was said of one thread.
struct Said {
    thread: pthread_t,
    offload: AtomicBool,
    next: *const Self,
}

/// Invariant: null, or leaked; and so is every `next`.
static LATEST: AtomicPtr<Said> = AtomicPtr::new(ptr::null_mut());

fn all() -> impl Iterator<Item = &'static Said> {
    // SAFETY: by the invariant. Nothing but the flag is changed once an entry is in the list.
    let entry = |said: *const Said| unsafe { said.as_ref() };
    core::iter::successors(entry(LATEST.load(Ordering::Acquire)), move |said| entry(said.next))
}

fn said_of(thread: pthread_t) -> Option<&'static Said> {
    // SAFETY: both are names of threads; pthread_equal only compares them.
    all().find(|said| unsafe { libc::pthread_equal(said.thread, thread) } != 0)
}

fn say(thread: pthread_t, offload: bool) {
    if let Some(said) = said_of(thread) {
        return said.offload.store(offload, Ordering::Release);
    }
    let fresh = Box::leak(Box::new(Said { thread, offload: AtomicBool::new(offload), next: ptr::null() }));
    let mut latest = LATEST.load(Ordering::Acquire);
    loop {
        fresh.next = latest;
        match LATEST.compare_exchange(latest, ptr::from_mut(fresh), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(now) => latest = now,
        }
    }
}

/// Whether a socket that the calling thread makes is to be offloaded.
pub(crate) fn wants_offload() -> bool {
    // SAFETY: no preconditions.
    let said = said_of(unsafe { libc::pthread_self() }).map(|said| said.offload.load(Ordering::Acquire));
    said.unwrap_or_else(|| params::settings().flag(Id::OffloadedSockets))
}

/// Whether any thread's sockets are.
pub(crate) fn any_wants_offload() -> bool {
    params::settings().flag(Id::OffloadedSockets) || all().any(|said| said.offload.load(Ordering::Acquire))
}

/// See the header.
pub(super) extern "C" fn thread_offload(offload: c_int, thread: pthread_t) -> c_int {
    if process::is_declined() {
        return errno::fail(libc::ENODEV);
    }
    crate::boundary!(-1, {
        say(thread, offload != 0);
        0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_last_counts_and_of_that_thread_alone() {
        assert!(said_of(7).is_none());
        say(7, false);
        say(8, true);
        let of = |thread| said_of(thread).map(|said| said.offload.load(Ordering::Relaxed));
        assert_eq!((of(7), of(8), of(9)), (Some(false), Some(true), None));
        say(7, true);
        assert_eq!(of(7), Some(true));
        assert_eq!(all().filter(|said| said.thread == 7).count(), 1);
    }
}
