//! Signals while a call waits. A handler that was installed with SA_RESTART does not end the kernel's calls on sockets (signal(7)), and so does not end
//! those here, as long as all of the program's handlers are of that kind.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use libc::{SA_RESTART, SIG_DFL, SIG_IGN};
use ringway_preload::types::Action;
use ringway_preload::{Errno, next};

/// The signals whose handlers end calls.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

/// sigaction(2), which is noted.
///
/// # Safety
/// As sigaction(2).
pub(crate) unsafe fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: the caller's promise.
    let done = unsafe { next::sigaction(signal, new, old) };
    if done == 0 && !new.is_null() && (1..=64).contains(&signal) {
        // SAFETY: the caller's promise: the kernel has read it.
        let action = unsafe { &*new };
        let ends_calls = !matches!(action.sa_sigaction, SIG_DFL | SIG_IGN) && action.sa_flags & SA_RESTART == 0;
        let bit = 1 << (signal - 1);
        if ends_calls {
            INTERRUPTING.fetch_or(bit, Ordering::Relaxed);
        } else {
            INTERRUPTING.fetch_and(!bit, Ordering::Relaxed);
        }
    }
    done
}

/// Does it again if it was ended by a signal that ends no call.
///
/// # Errors
/// The attempt's.
pub(crate) fn retried<T>(mut attempt: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match attempt() {
            Err(Errno(libc::EINTR)) if INTERRUPTING.load(Ordering::Relaxed) == 0 => {}
            result => return result,
        }
    }
}

/// A write to a connection that is closed ends the program, unless it has said otherwise.
pub(crate) fn broken_pipe() {
    // SAFETY: the calling thread, and a signal.
    unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE) };
}
