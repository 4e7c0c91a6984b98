//! Ends the process before its k-th store to shared memory: how tests die at every instant that a peer can see.

use core::sync::atomic::{AtomicI64, Ordering};

/// Stores left until the end; negative: no end is set.
static LEFT: AtomicI64 = AtomicI64::new(-1);

/// Lets `stores` more stores happen, and ends the process by SIGKILL before the one after.
pub fn kill_after(stores: u32) {
    LEFT.store(i64::from(stores), Ordering::SeqCst);
}

/// Whether an end is set (copies are then counted in pieces of eight bytes).
#[inline]
pub(crate) fn is_set() -> bool {
    LEFT.load(Ordering::Relaxed) >= 0
}

#[inline]
pub(crate) fn before_store() {
    if is_set() && LEFT.fetch_sub(1, Ordering::SeqCst) == 0 {
        // SAFETY: no memory is involved; SIGKILL to oneself does not return.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}
