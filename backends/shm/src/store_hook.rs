//! Ends the process before its k-th store to shared memory: how tests die at every instant that a peer can see.
//!
//! What peers see besides are system calls: a name that appears, a connection, descriptors that are passed, a wake-up, a
//! descriptor that is closed. [`end_at`] counts those, too.

use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Stores (and system calls) left until the end; negative: no end is set.
static LEFT: AtomicI64 = AtomicI64::new(-1);
/// Whether system calls that peers see count.
static CALLS_COUNT: AtomicBool = AtomicBool::new(false);
/// Whether the process is stopped rather than killed.
static STOPS: AtomicBool = AtomicBool::new(false);
static STORES: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

/// What happens to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// SIGKILL.
    Killed,
    /// SIGSTOP; whoever sent it on goes on as if nothing had happened.
    Stopped,
}

/// Lets `stores` more stores happen, and ends the process by SIGKILL before the one after.
pub(crate) fn kill_after(stores: u32) {
    LEFT.store(i64::from(stores), Ordering::SeqCst);
}

/// Lets `points` more stores and visible system calls happen, counted from here on, and ends the process before the one after.
pub(crate) fn end_at(points: u32, end: End) {
    STORES.store(0, Ordering::SeqCst);
    CALLS.store(0, Ordering::SeqCst);
    STOPS.store(end == End::Stopped, Ordering::SeqCst);
    CALLS_COUNT.store(true, Ordering::SeqCst);
    kill_after(points);
}

/// Sets no end any more. Returns how many stores, and how many visible system calls, there were since [`end_at`].
pub(crate) fn finish() -> (u64, u64) {
    LEFT.store(-1, Ordering::SeqCst);
    (STORES.load(Ordering::SeqCst), CALLS.load(Ordering::SeqCst))
}

/// Whether an end is set (copies are then counted in pieces of eight bytes).
#[inline]
pub(crate) fn is_set() -> bool {
    LEFT.load(Ordering::Relaxed) >= 0
}

#[inline]
pub(crate) fn before_store() {
    if is_set() {
        step(&STORES);
    }
}

/// To be called before each system call by which a peer learns something of this process.
#[inline]
pub(crate) fn before_call() {
    if is_set() && CALLS_COUNT.load(Ordering::Relaxed) {
        step(&CALLS);
    }
}

fn step(count: &AtomicU64) {
    if LEFT.fetch_sub(1, Ordering::SeqCst) == 0 {
        let signal = if STOPS.load(Ordering::SeqCst) { libc::SIGSTOP } else { libc::SIGKILL };
        // SAFETY: no memory is involved; SIGKILL to oneself does not return, SIGSTOP only when it is continued.
        unsafe { libc::kill(libc::getpid(), signal) };
    }
    count.fetch_add(1, Ordering::SeqCst);
}
