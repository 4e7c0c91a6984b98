//! Sections in which no signal handler may run, for one may ask for what the interrupted thread has locked: signal-safety(7) names connect(2) and
//! sendto(2).

use core::{mem, ptr};

/// All signals but faults, which come at once, or end the process. Async-signal-safe.
#[must_use]
pub fn all_but_faults() -> libc::sigset_t {
    // SAFETY: a set is plain words, for which zero is a value; the calls only write to the set that they are given.
    unsafe {
        let mut all: libc::sigset_t = mem::zeroed();
        libc::sigfillset(&raw mut all);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS] {
            libc::sigdelset(&raw mut all, fault);
        }
        all
    }
}

/// The calling thread's signals, as they were: until it is dropped, it gets none but faults. Async-signal-safe.
pub struct Blocked(libc::sigset_t);

impl Blocked {
    /// Blocks them.
    #[expect(clippy::new_without_default, reason = "what is blocked is blocked on purpose")]
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: zero is a set; the call only writes to the set that it is given.
        unsafe {
            let (all, mut before) = (all_but_faults(), mem::zeroed());
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            Self(before)
        }
    }

    /// What the thread blocked before.
    #[must_use]
    pub fn before(&self) -> &libc::sigset_t {
        &self.0
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set was filled in by pthread_sigmask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}
