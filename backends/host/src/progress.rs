//! The progress thread: it serves what must be served while the program's own threads compute.
//!
//! Generic: a [`Work`] is told that it is its turn, does what there is to do, and says on what to sleep next.

use core::time::Duration;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::thread::{Builder, JoinHandle};

use crate::sleep::{EventFd, ppoll};

/// On what, and how long at most, the thread sleeps after a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Readable descriptors that end the sleep. Negative ones are ignored.
    pub descriptors: Vec<RawFd>,
    /// The longest sleep; `None`: until woken.
    pub timeout: Option<Duration>,
}

/// What the thread does.
pub trait Work: Send + 'static {
    /// One turn: at the start, and whenever a descriptor of the last plan is readable, [`Progress::wake`] was called, or, which is all that it is where it
    /// is not called, the plan's timeout is over.
    fn turn(&mut self, is_called: bool) -> Plan;
}

/// A running progress thread.
#[derive(Debug)]
pub struct Progress {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    wake: EventFd,
    stop: AtomicBool,
    /// A `fn()` to be run, or null.
    errand: AtomicPtr<()>,
}

impl Progress {
    /// Starts the thread, with every signal blocked: handlers belong to the program's threads.
    ///
    /// # Errors
    /// No descriptor or no thread could be had.
    pub fn start(name: &str, mut work: impl Work) -> io::Result<Self> {
        let shared = Arc::new(Shared { wake: EventFd::new()?, stop: AtomicBool::new(false), errand: AtomicPtr::default() });
        let theirs = Arc::clone(&shared);
        let unmasked = block_signals();
        let thread = Builder::new().name(name.to_owned()).spawn(move || run(&theirs, &mut work));
        restore_signals(&unmasked);
        Ok(Self { shared, thread: Some(thread?) })
    }

    /// Gives the thread a turn now.
    pub fn wake(&self) {
        self.shared.wake.signal();
    }

    /// Has the thread run `errand` before its next turn, which is now. A second request before the first was served replaces it.
    /// Async-signal-safe.
    pub fn request(&self, errand: fn()) {
        self.shared.errand.store(errand as *mut (), Ordering::Release);
        self.wake();
    }

    /// The eventfd that [`Progress::wake`] writes to, for those that cannot hold on to this value.
    pub fn descriptor(&self) -> RawFd {
        self.shared.wake.fd()
    }

    /// Ends the thread after its current turn, and waits for that.
    pub fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the progress thread panicked");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(shared: &Shared, work: &mut impl Work) {
    let mut fds = Vec::new();
    let mut is_called = true;
    while !shared.stop.load(Ordering::Acquire) {
        let errand = shared.errand.swap(core::ptr::null_mut(), Ordering::Acquire);
        if !errand.is_null() {
            // SAFETY: only `Progress::request` stores anything but null there: a `fn()`.
            let errand: fn() = unsafe { core::mem::transmute(errand) };
            errand();
        }
        let plan = work.turn(is_called);
        fds.clear();
        let all = [shared.wake.fd()].into_iter().chain(plan.descriptors);
        fds.extend(all.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }));
        match ppoll(&mut fds, plan.timeout, None) {
            Ok(ready) => {
                is_called = ready > 0;
                if fds[0].revents != 0 {
                    shared.wake.clear();
                }
            }
            Err(error) => {
                is_called = true;
                // ENOMEM or a limit: better late than spinning.
                if error.raw_os_error() != Some(libc::EINTR) {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are valid for the calls; sigfillset initialises the first, pthread_sigmask the second.
    unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut old: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        old
    }
}

fn restore_signals(old: &libc::sigset_t) {
    // SAFETY: `old` was filled in by pthread_sigmask.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old, core::ptr::null_mut()) };
}

#[cfg(test)]
mod tests;
