//! What waiting keeps for each thread: its spinning history, its eventfd, and what signal handlers tell it.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering, compiler_fence};
use std::os::fd::RawFd;

use ringway_host::EventFd;
use ringway_host::spin::History;

use crate::fdtable::{self, Entry};
use crate::process::fork_generation;

/// Invariant: no destructor, so that a signal handler may use it at any time of the thread's life.
pub(super) struct Thread {
    pub(super) rx: Cell<History>,
    pub(super) select: Cell<History>,
    /// Looks at the ring since the kernel was last asked.
    pub(super) since_kernel: Cell<u32>,
    /// Handlers of the program that ran.
    signals: AtomicU32,
    /// Of these, the ones without SA_RESTART.
    interrupting: AtomicU32,
    /// While the thread is about to sleep: the eventfd that ends the sleep. Else -1.
    sleeping_on: AtomicI32,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            rx: Cell::new(History::new()),
            select: Cell::new(History::new()),
            since_kernel: Cell::new(0),
            signals: AtomicU32::new(0),
            interrupting: AtomicU32::new(0),
            sleeping_on: AtomicI32::new(-1),
        }
    };
    static WAKER: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

/// A thread's own eventfd.
struct Waker {
    event: EventFd,
    /// A child of a fork shares its parent's open file, and must not wake it.
    generation: u32,
}

impl Drop for Waker {
    fn drop(&mut self) {
        fdtable::clear(self.event.fd());
    }
}

#[inline]
pub(super) fn with<T>(f: impl FnOnce(&Thread) -> T) -> T {
    THREAD.with(f)
}

/// The calling thread's eventfd; `None`: it cannot have one now (no descriptors, or the thread is about to end).
pub(super) fn waker() -> Option<RawFd> {
    WAKER
        .try_with(|waker| {
            let mut waker = waker.borrow_mut();
            if waker.as_ref().is_none_or(|waker| waker.generation != fork_generation()) {
                let event = EventFd::new().ok()?;
                fdtable::set(event.fd(), Entry::Internal);
                *waker = Some(Waker { event, generation: fork_generation() });
            }
            waker.as_ref().map(|waker| waker.event.fd())
        })
        .ok()
        .flatten()
}

/// Makes the calling thread's eventfd unreadable.
pub(super) fn clear_waker() {
    let _ = WAKER.try_with(|waker| waker.borrow().as_ref().map(|waker| waker.event.clear()));
}

/// A handler of the program ran on this thread. Async-signal-safe.
pub(crate) fn note_signal(restart: bool) {
    THREAD.with(|thread| {
        thread.signals.fetch_add(1, Ordering::Relaxed);
        if !restart {
            thread.interrupting.fetch_add(1, Ordering::Relaxed);
        }
        compiler_fence(Ordering::SeqCst);
        let sleeping_on = thread.sleeping_on.load(Ordering::Relaxed);
        if sleeping_on >= 0 {
            ringway_host::sleep::signal(sleeping_on);
        }
    });
}

/// How many handlers had run at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    signals: u32,
    interrupting: u32,
}

impl Marks {
    #[inline]
    pub(super) fn now() -> Self {
        THREAD.with(|thread| Self {
            signals: thread.signals.load(Ordering::Relaxed),
            interrupting: thread.interrupting.load(Ordering::Relaxed),
        })
    }

    /// Whether a handler ran since then that ends a wait: any, or (where the call restarts) one without SA_RESTART.
    #[inline]
    pub(super) fn interrupted(&self, restart: bool) -> bool {
        let now = Self::now();
        if restart { now.interrupting != self.interrupting } else { now.signals != self.signals }
    }

    /// Whether a handler ran since then.
    pub(super) fn any(&self) -> bool {
        Self::now().signals != self.signals
    }
}

/// Runs `sleep` such that a signal which arrives before it really sleeps ends it. `None`: one arrived already.
pub(super) fn sleeping<T>(waker: RawFd, marks: Marks, sleep: impl FnOnce() -> T) -> Option<T> {
    THREAD.with(|thread| {
        thread.sleeping_on.store(waker, Ordering::Relaxed);
        // The handler runs on this very thread: program order is all there is to keep.
        compiler_fence(Ordering::SeqCst);
        let result = (!marks.any()).then(sleep);
        compiler_fence(Ordering::SeqCst);
        thread.sleeping_on.store(-1, Ordering::Relaxed);
        result
    })
}
