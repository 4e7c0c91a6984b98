//! pthread_sigmask and sigprocmask: a fault in a thread that blocks SIGSEGV ends the process, and a write into what was lent is one
//! (`faults`). Threads that block all signals are common, so that those of a program which has VMA's table block all others.

use core::ffi::c_int;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use libc::{SIG_UNBLOCK, SIGSEGV, sigset_t};

use crate::real;

/// SIGSEGV is not blocked.
static IS_KEPT_OPEN: AtomicBool = AtomicBool::new(false);

/// From now on, no thread blocks SIGSEGV by these calls; the calling one no longer does, nor will those that it starts.
pub(crate) fn keep_faults_open() {
    if IS_KEPT_OPEN.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: a set is plain words, for which zero is a value, and an empty set.
    unsafe {
        let mut fault: sigset_t = mem::zeroed();
        libc::sigaddset(&raw mut fault, SIGSEGV);
        real::pthread_sigmask(SIG_UNBLOCK, &raw const fault, ptr::null_mut());
    }
}

/// Calls `change` with a set as it may be.
///
/// # Safety
/// `set` is null, or a set.
pub(in crate::exports) unsafe fn without_faults(how: c_int, set: *const sigset_t, change: impl FnOnce(*const sigset_t) -> c_int) -> c_int {
    if set.is_null() || how == SIG_UNBLOCK || !IS_KEPT_OPEN.load(Ordering::Relaxed) {
        return change(set);
    }
    // SAFETY: the caller's promise; the copy is a set too.
    let mut changed = unsafe { set.read() };
    // SAFETY: as above.
    unsafe { libc::sigdelset(&raw mut changed, SIGSEGV) };
    change(&raw const changed)
}
