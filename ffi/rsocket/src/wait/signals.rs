//! Signals while a call waits: a handler of the program's that runs meanwhile ends a call on a socket with EINTR, unless it was installed with SA_RESTART. A call that
//! waits for several descriptors ends in either case (signal(7)).
//!
//! Of a system call the kernel says that a handler ended it, but to who only looks at memory it says nothing. So a wait that has looked for a while blocks signals, and
//! then opens the door to them now and then, by a system call. A signal that comes before that is as good as one that came before the call: no program can tell the
//! two apart, for it cannot know when the call began. But programs hang that come upon it (they look at what their handlers have set, and then call), and so that time is as
//! short as can be.

use core::mem;
use core::ptr::{null, null_mut};
use core::time::Duration;

use libc::{SA_RESTART, SIG_DFL, SIG_IGN, SIG_SETMASK, sigset_t};
use ringway_host::sleep::ppoll;
use ringway_host::{Blocked, all_but_faults};
use ringway_preload::Errno;
use ringway_stack::Instant;

/// So long a wait looks before it blocks signals, which takes two system calls: those of programs that answer each other are over by then.
const OPEN_FOR: Duration = Duration::from_micros(5);
/// How often those that wait are let in.
const LET_IN_EVERY: Duration = Duration::from_micros(100);

/// The greatest number of a signal.
const LAST: i32 = 64;

/// What one wait does about signals.
pub(crate) struct Signals {
    /// It goes on after a handler with SA_RESTART.
    restarts: bool,
    /// What the program wants to be blocked while it sleeps, if it said so.
    mask: Option<sigset_t>,
    blocked: Option<Blocked>,
    /// When those that wait are let in next.
    let_in_at: Instant,
    is_over: bool,
}

impl Signals {
    pub(crate) fn new(restarts: bool, mask: Option<&sigset_t>) -> Self {
        Self { restarts, mask: mask.copied(), blocked: None, let_in_at: Instant::ZERO, is_over: false }
    }

    /// Whether a handler ended the wait. What has come by now goes before that.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Between two looks, at `now`, of a wait that began at `began`. Handlers of the program's may run here.
    pub(crate) fn between_looks(&mut self, began: Instant, now: Instant) {
        if now.since(began) < OPEN_FOR {
            return;
        }
        if self.blocked.is_none() {
            self.block();
        } else if now >= self.let_in_at {
            self.let_in();
        } else {
            return;
        }
        self.let_in_at = now + LET_IN_EVERY;
    }

    /// Before it sleeps, or yields the core: a signal that comes from now on is found.
    pub(crate) fn block(&mut self) {
        self.blocked.get_or_insert_with(Blocked::new);
    }

    /// What is blocked while it sleeps; `None`: what the thread blocks.
    pub(crate) fn mask(&self) -> Option<&sigset_t> {
        self.mask.as_ref().or(self.blocked.as_ref().map(Blocked::before))
    }

    /// What a system call says in which the wait slept, or asked. `None`: a handler ran; whether that ends the wait, [`Signals::is_over`] says.
    ///
    /// # Errors
    /// The call's, but EINTR.
    pub(crate) fn heard<T>(&mut self, said: Result<T, Errno>) -> Result<Option<T>, Errno> {
        match said {
            Err(Errno(libc::EINTR)) => {
                // (Whose it was, the kernel does not say. Faults come to none that sleep.)
                let may_come = all_but_faults();
                self.is_over |= !self.restarts || (1..=LAST).any(|signal| contains(&may_come, signal) && ends_calls(signal));
                Ok(None)
            }
            said => said.map(Some),
        }
    }

    /// Has the handlers run of signals that came while they were blocked.
    fn let_in(&mut self) {
        let Some(outside) = self.mask() else { return };
        let (pending, mut open) = (pending(), mask_of_thread());
        let mut is_any = false;
        let mut ends = false;
        for signal in (1..=LAST).filter(|&signal| contains(&pending, signal) && !contains(outside, signal)) {
            is_any = true;
            // (Before it runs: SA_RESETHAND takes it away.)
            ends |= ends_calls(signal);
            // SAFETY: a set.
            unsafe { libc::sigdelset(&raw mut open, signal) };
        }
        // (Without a handler the call is not ended, but what else a signal does is done.)
        if is_any && ppoll(&mut [], Some(Duration::ZERO), Some(&open)).is_err() {
            self.is_over |= !self.restarts || ends;
        }
    }
}

/// Whether a signal has a handler that ends calls on sockets.
fn ends_calls(signal: i32) -> bool {
    // SAFETY: zero is a value of it; the call only writes there.
    let action = unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        // (The C library keeps two signals to itself: no program has handlers of these.)
        (libc::sigaction(signal, null(), &raw mut action) == 0).then_some(action)
    };
    action.is_some_and(|action| !matches!(action.sa_sigaction, SIG_DFL | SIG_IGN) && action.sa_flags & SA_RESTART == 0)
}

fn pending() -> sigset_t {
    // SAFETY: zero is a set; the call only writes there.
    unsafe {
        let mut set = mem::zeroed();
        libc::sigpending(&raw mut set);
        set
    }
}

fn mask_of_thread() -> sigset_t {
    // SAFETY: as above.
    unsafe {
        let mut set = mem::zeroed();
        libc::pthread_sigmask(SIG_SETMASK, null_mut(), &raw mut set);
        set
    }
}

fn contains(set: &sigset_t, signal: i32) -> bool {
    // SAFETY: a set.
    unsafe { libc::sigismember(set, signal) == 1 }
}

#[cfg(test)]
pub(super) mod tests;
