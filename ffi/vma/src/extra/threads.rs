//! `thread_offload`: whose new sockets are offloaded, whatever VMA_OFFLOADED_SOCKETS says.
//!
//! A list that only grows, an entry a thread, so that a fork at any moment leaves it whole.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use libc::pthread_t;
use ringway_params::Id;

use super::thread_name::Thread;
use crate::{errno, params, process};

/// What was said of one thread.
struct Said {
    thread: pthread_t,
    /// Whose number that was when it was said, or the first to ask with it since: a thread that ends leaves its pthread_t to another. Zero: not known yet.
    name: AtomicU64,
    offload: AtomicBool,
    next: *const Self,
}

/// Invariant: null, or leaked; and so is every `next`.
static LATEST: AtomicPtr<Said> = AtomicPtr::new(ptr::null_mut());

impl Said {
    /// Whether it was said of the calling thread, which has that pthread_t.
    fn is_of_current(&self) -> bool {
        let name = Thread::current().number();
        self.name.compare_exchange(0, name, Ordering::Relaxed, Ordering::Relaxed).map_or_else(|known| known == name, |_| true)
    }
}

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
    // SAFETY: as above; and pthread_self has no preconditions.
    let is_own = unsafe { libc::pthread_equal(libc::pthread_self(), thread) } != 0;
    let name = if is_own { Thread::current().number() } else { 0 };
    if let Some(said) = said_of(thread) {
        said.name.store(name, Ordering::Relaxed);
        return said.offload.store(offload, Ordering::Release);
    }
    let (name, offload) = (AtomicU64::new(name), AtomicBool::new(offload));
    let fresh = Box::leak(Box::new(Said { thread, name, offload, next: ptr::null() }));
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
    let said = said_of(unsafe { libc::pthread_self() });
    let said = said.map(|said| (said, said.offload.load(Ordering::Acquire))).filter(|(said, _)| said.is_of_current());
    said.map_or_else(|| params::settings().flag(Id::OffloadedSockets), |(_, offload)| offload)
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
    fn what_was_said_of_a_thread_is_not_said_of_the_next_with_its_number() {
        // (As a thread's stack is used again, so is its pthread_t.)
        let speak = || {
            // SAFETY: no preconditions.
            let own = unsafe { libc::pthread_self() };
            say(own, false);
            (own, wants_offload())
        };
        // SAFETY: no preconditions.
        let listen = || (unsafe { libc::pthread_self() }, wants_offload());
        let ran = (0..1000).any(|_| {
            let (first, wanted) = std::thread::spawn(speak).join().expect("it does not panic");
            let (second, wants) = std::thread::spawn(listen).join().expect("it does not panic");
            assert!(!wanted);
            assert!(wants, "a thread is taken for one that has ended");
            first == second
        });
        assert!(ran, "no number was given again");
    }

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
