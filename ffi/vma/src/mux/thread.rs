//! What waiting keeps for each thread: its spinning history, its eventfd, and what signal handlers tell it.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering, compiler_fence, fence};
use std::os::fd::RawFd;

use ringway_host::EventFd;
use ringway_host::spin::{CoreClaim, History};

use super::alone::OnRings;
use super::turns::{Ratio, Turns};
use crate::extra::resume::Resume;
use crate::fdtable::{self, Entry};
use crate::process::{self, fork_generation};
use crate::rings::RingSet;
use crate::slab::Key;

/// Invariant: no destructor, so that a signal handler may use it at any time of the thread's life.
pub(crate) struct Thread {
    pub(super) rx: Cell<History>,
    pub(super) select: Cell<History>,
    /// When its waits ask the kernel.
    turns: Cell<Turns>,
    /// The epoll instance, by its index, whose real epoll had something when the thread last looked.
    pub(super) kernel_half_of: Cell<Option<u32>>,
    /// Handlers of the program that ran.
    signals: AtomicU32,
    /// Of these, the ones without SA_RESTART.
    interrupting: AtomicU32,
    /// Requests to cancel the thread.
    cancels: AtomicU32,
    /// Whether those who cancel it find it: the [`fork_generation`] in which it was entered, plus one.
    registered: Cell<u32>,
    /// A wait ended because the thread may have been cancelled before anybody could find it.
    unsure: Cell<bool>,
    /// While the thread is about to sleep: the eventfd that ends the sleep. Else -1.
    sleeping_on: AtomicI32,
    /// Handlers of the program that run. One that left by longjmp counts for ever.
    handlers: Cell<u32>,
    /// The rings on which the thread spins, as their [`super::RingWatch`]es have it, and its place among the sleepers. A handler may leave a wait by longjmp; then
    /// whoever finds this set puts the tables right ([`crate::process::Offload::forsake`]). Changed under the state's lock, where
    /// no handler runs.
    pub(super) spinning: Cell<RingSet>,
    pub(super) asleep: Cell<Option<Key>>,
    /// The rings on which it sleeps, or is about to, by their locks alone. As `asleep`, but a ring is put to it, and taken from it, under that ring's lock.
    pub(super) lone: Cell<Option<OnRings>>,
    /// The [`fork_generation`] of the tables that these speak of.
    pub(super) generation: Cell<u32>,
    /// How the call under way began, which is made again once callbacks have run.
    pub(crate) resume: Cell<Option<Resume>>,
    /// Callbacks run in a call that waits for readiness, rather than receives.
    pub(crate) polls: Cell<bool>,
    /// Its claim on the core where it spins, and the ring whose peers are told. Invariant: none unless `spinning`, so that who ends the one ends
    /// the other.
    pub(super) claim: Cell<Option<(u16, CoreClaim)>>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            rx: Cell::new(History::new()),
            select: Cell::new(History::new()),
            turns: Cell::new(Turns::new()),
            kernel_half_of: Cell::new(None),
            signals: AtomicU32::new(0),
            interrupting: AtomicU32::new(0),
            cancels: AtomicU32::new(0),
            registered: Cell::new(0),
            unsure: Cell::new(false),
            sleeping_on: AtomicI32::new(-1),
            handlers: Cell::new(0),
            spinning: Cell::new(RingSet::NONE),
            asleep: Cell::new(None),
            lone: Cell::new(None),
            generation: Cell::new(0),
            resume: Cell::new(None),
            polls: Cell::new(false),
            claim: Cell::new(None),
        }
    };
    static WAKER: RefCell<Option<Waker>> = const { RefCell::new(None) };
    static REGISTERED: Registered = const { Registered };
}

/// A thread's own eventfd.
struct Waker {
    event: Option<EventFd>,
    /// A child of a fork shares its parent's open file, and must not wake it.
    generation: u32,
}

impl Drop for Waker {
    fn drop(&mut self) {
        // The thread ends, perhaps out of the middle of a wait.
        super::wait::leave_wait();
        let Some(event) = self.event.take() else { return };
        // (A parent's is the parent's.)
        match process::process().filter(|process| self.generation == fork_generation() && !process.has_lock()) {
            Some(process) => process.lock().mux.keep_waker(event),
            None => drop(fdtable::clear(event.fd())),
        }
    }
}

/// Takes the thread out of [`crate::cancel`]'s list when it ends.
struct Registered;

impl Drop for Registered {
    fn drop(&mut self) {
        THREAD.with(|thread| {
            if thread.registered.replace(0) != 0 {
                crate::cancel::deregister(thread);
            }
        });
    }
}

/// Enters the calling thread among those that can be cancelled in a wait.
pub(crate) fn register() {
    THREAD.with(|thread| {
        let generation = fork_generation() + 1;
        // Without a destructor the entry would outlive the thread.
        if thread.registered.get() != generation && REGISTERED.try_with(|_| ()).is_ok() {
            thread.registered.set(generation);
            crate::cancel::register(thread);
        }
    });
}

/// Whether a wait of the calling thread ended only because it could not be sure that nobody had cancelled it.
pub(crate) fn take_unsure() -> bool {
    THREAD.with(|thread| thread.unsure.take())
}

#[inline]
pub(crate) fn with<T>(f: impl FnOnce(&Thread) -> T) -> T {
    THREAD.with(f)
}

/// The calling thread's eventfd; `None`: it cannot have one now (no descriptors, or the thread is about to end).
pub(super) fn waker() -> Option<RawFd> {
    let own = |waker: &RefCell<Option<Waker>>| {
        let waker = waker.try_borrow().ok()?;
        waker.as_ref().filter(|waker| waker.generation == fork_generation())?.event.as_ref().map(EventFd::fd)
    };
    WAKER.try_with(|waker| own(waker).or_else(|| make_waker(waker))).ok().flatten()
}

#[cold]
fn make_waker(waker: &RefCell<Option<Waker>>) -> Option<RawFd> {
    // (A handler may run when the lock is released, and leave by longjmp: nothing is borrowed then.)
    let spare = process::process().and_then(|process| process.lock().mux.spare_waker());
    let event = match spare {
        Some(event) => event,
        None => EventFd::new().ok()?,
    };
    // (Somebody may have written to it since.)
    event.clear();
    let fd = event.fd();
    // Borrowed: a handler interrupted this very function, perhaps for good.
    let mut waker = waker.try_borrow_mut().ok()?;
    fdtable::set(fd, Entry::Internal);
    *waker = Some(Waker { event: Some(event), generation: fork_generation() });
    Some(fd)
}

/// Makes the calling thread's eventfd unreadable.
pub(super) fn clear_waker() {
    let _ =
        WAKER.try_with(|waker| waker.try_borrow().map(|waker| waker.as_ref().and_then(|waker| waker.event.as_ref()).map(EventFd::clear)));
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

/// Runs a handler of the program. What the calls in it begin is their own: the call that it interrupts goes on as it was.
pub(crate) fn run_handler(handler: impl FnOnce()) {
    let outer = THREAD.with(|thread| {
        let handlers = thread.handlers.replace(thread.handlers.get().wrapping_add(1));
        (handlers, thread.resume.take(), thread.polls.replace(false))
    });
    handler();
    THREAD.with(|thread| {
        thread.handlers.set(outer.0);
        thread.resume.set(outer.1);
        thread.polls.set(outer.2);
    });
}

/// Whether the calling thread runs a handler of the program, or left one by longjmp.
pub(crate) fn in_handler() -> bool {
    THREAD.with(|thread| thread.handlers.get() != 0)
}

impl Thread {
    /// The ring was looked at: whether the kernel is to be asked now.
    #[inline]
    pub(super) fn kernel_is_due(&self, ratio: Ratio) -> bool {
        let mut turns = self.turns.get();
        turns.looked();
        let due = turns.is_due(ratio);
        if due {
            turns.asked();
        }
        self.turns.set(turns);
        due
    }

    /// Something came from the kernel, so that the next wait asks it soon.
    #[inline]
    pub(crate) fn kernel_delivered(&self) {
        let mut turns = self.turns.get();
        turns.delivered();
        self.turns.set(turns);
    }

    #[inline]
    pub(crate) fn marks(&self) -> Marks {
        Marks { signals: self.signals.load(Ordering::Relaxed), interrupting: self.interrupting.load(Ordering::Relaxed) }
    }

    /// Whether a handler ran since then that ends a wait: any, or (where the call restarts) one without SA_RESTART. Or the thread is to
    /// end.
    #[inline]
    pub(crate) fn interrupted(&self, marks: Marks, restart: bool) -> bool {
        let now = self.marks();
        let by_signal = if restart { now.interrupting != marks.interrupting } else { now.signals != marks.signals };
        by_signal || self.is_cancelled()
    }

    /// Whether a handler ran since then, or the thread is to end.
    pub(super) fn signalled(&self, marks: Marks) -> bool {
        self.marks().signals != marks.signals || self.is_cancelled()
    }

    /// Whether the thread is to end, and lets itself be ended.
    #[inline]
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancels.load(Ordering::Relaxed) != 0 && crate::cancel::is_enabled()
    }

    /// Another thread (or this one) cancels it.
    pub(crate) fn cancel(&self) {
        self.cancels.fetch_add(1, Ordering::SeqCst);
        let sleeping_on = self.sleeping_on.load(Ordering::SeqCst);
        if sleeping_on >= 0 {
            ringway_host::sleep::signal(sleeping_on);
        }
    }

    /// Before a wait: whoever cancels the thread from now on ends the wait. `false`: somebody may have cancelled it just before.
    #[inline]
    pub(super) fn can_be_cancelled(&self) -> bool {
        if self.is_registered() {
            return true;
        }
        register();
        self.unsure.set(crate::cancel::is_in_use());
        !self.unsure.get()
    }

    /// Whether those who cancel it find it already.
    #[inline]
    pub(super) fn is_registered(&self) -> bool {
        self.registered.get() == fork_generation() + 1
    }

    /// Whether the tables of who waits name this thread.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        !self.spinning.get().is_empty() || self.asleep.get().is_some() || self.lone.get().is_some()
    }

    /// Whether it was moved to another core than it has its claim on.
    #[inline]
    pub(super) fn has_moved(&self) -> bool {
        self.claim.get().is_some_and(|(_, claim)| claim.is_left())
    }

    /// Runs `sleep` such that a signal which arrives before it really sleeps ends it. `None`: one arrived already.
    pub(super) fn sleeping<T>(&self, waker: RawFd, marks: Marks, sleep: impl FnOnce() -> T) -> Option<T> {
        // A handler runs on this very thread; who cancels it does not, and looks here after it has counted.
        self.sleeping_on.store(waker, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let result = (!self.signalled(marks)).then(sleep);
        compiler_fence(Ordering::SeqCst);
        self.sleeping_on.store(-1, Ordering::Relaxed);
        result
    }
}

/// How many handlers had run at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    signals: u32,
    interrupting: u32,
}

#[cfg(test)]
mod tests {
    use ringway_stack::time::Instant;

    use super::*;
    use crate::extra::resume;

    #[test]
    fn a_handlers_calls_begin_anew_and_leave_the_interrupted_call_as_it_was() {
        let began = Instant::ZERO + core::time::Duration::from_secs(7);
        resume::put_back(Resume::new(began).with(3));
        run_handler(|| {
            assert!(resume::taken().is_none());
            resume::put_back(Resume::new(Instant::ZERO));
        });
        let after = resume::taken().unwrap();
        assert_eq!((after.began, after.done), (began, 3));
    }
}
