//! The one place where threads wait: look, spin, sleep.
//!
//! A wait may end without returning: by a handler's longjmp (see [`leave_wait`]), or by a panic ([`spin`]). Thread
//! cancellation is not among the ways: a request ends the wait as a signal does, and takes effect where the call ends
//! ([`crate::cancel`]). Asynchronous cancellation of a thread inside our calls is undefined behaviour, as it is in all but three
//! functions of POSIX.

mod sleep;
mod spin;

use core::cell::Cell;
use core::time::Duration;

use ringway_host::Blocked;
use ringway_host::sleep::ppoll;
use ringway_host::spin::{History, Limit, Outcome, Spin};
use ringway_stack::time::Instant;

use self::sleep::sleep;
use self::spin::spin;
use super::thread::{self, Marks, Thread};
pub(crate) use super::thread::{in_handler, note_signal, run_handler};
use crate::errno;
use crate::lock::Guard;
use crate::params::POLL_US_DEFAULT;
use crate::process::{self, Offload, Process};
use crate::rings::RingSet;
use crate::socket::Socket;
use crate::{fd_counters, real};

/// Which of VMA's limits applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpinClass {
    /// VMA_RX_POLL: blocking calls on one socket.
    Rx,
    /// VMA_SELECT_POLL: poll, select, epoll.
    Select,
}

/// What a wait is for.
pub(crate) struct Waiting<'a> {
    /// Sockets (by index) whose events end it.
    pub(crate) sockets: &'a [u32],
    /// Epoll instances (by index) whose readiness ends it.
    pub(crate) epolls: &'a [u32],
    /// Kernel descriptors that also end it.
    pub(crate) kernel: &'a mut [libc::pollfd],
    /// When to give up.
    pub(crate) deadline: Option<Instant>,
    /// The signal mask while asleep.
    pub(crate) sigmask: Option<&'a libc::sigset_t>,
    pub(crate) spin: SpinClass,
    /// A signal handler with SA_RESTART does not end it.
    pub(crate) restart: bool,
    /// Callbacks that are due end it.
    pub(crate) callbacks: bool,
    /// Handlers that had run when the call began, if that was before this wait.
    pub(crate) since: Option<Marks>,
    /// The check is a receive that polls: where the process has one ring, nobody polls it for the check before that is asked.
    pub(crate) polls: bool,
}

/// How a wait ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Waited<T> {
    /// The check found this.
    Ready(T),
    /// A kernel descriptor is ready: see its `revents`.
    Kernel,
    TimedOut,
    /// By a signal (EINTR).
    Interrupted,
    /// Callbacks are due.
    Due,
}

impl Waiting<'_> {
    /// Whether it goes on after the process was stopped and goes on: of all waits, epoll_wait(2) alone ends by that (signal(7)), and it is what others sleep by
    /// here. (Where the library has not seen all handlers, EINTR may be one's.)
    fn outlives_stop(&self) -> bool {
        let is_epolls = self.sockets.is_empty() && !self.epolls.is_empty();
        !is_epolls && real::handlers_are_seen()
    }

    /// What a look finds.
    #[inline]
    fn look<T>(
        &self,
        offload: &mut Offload,
        now: Instant,
        check: &mut impl FnMut(&mut Offload, Instant) -> Option<T>,
    ) -> Option<Waited<T>> {
        match check(offload, now) {
            Some(found) => Some(Waited::Ready(found)),
            None if self.callbacks && offload.callbacks.are_due() => Some(Waited::Due),
            None => None,
        }
    }
}

/// Waits until `check` finds something. It runs under the lock, on a ring freshly polled (or polls that itself), once before anything else.
pub(crate) fn wait<T>(process: &Process, w: &mut Waiting<'_>, mut check: impl FnMut(&mut Offload, Instant) -> Option<T>) -> Waited<T> {
    thread::with(|thread| wait_as(thread, process, None, w, &mut check))
}

/// The same for who has the lock, and has just found nothing by it: it is held until the thread has looked for a while.
pub(crate) fn wait_on<'a, T>(
    process: &'a Process,
    held: (Guard<'a, Offload>, Instant),
    w: &mut Waiting<'_>,
    mut check: impl FnMut(&mut Offload, Instant) -> Option<T>,
) -> Waited<T> {
    thread::with(|thread| wait_as(thread, process, Some(held), w, &mut check))
}

/// The program leaves, by longjmp, what may be a wait; or the thread ends. Async-signal-safe outside the state's lock, where
/// handlers run.
pub(crate) fn leave_wait() {
    thread::with(|thread| {
        if thread.is_waiting()
            && let Some(process) = process::process()
            && !process.has_lock()
        {
            process.lock().forsake(thread, process.now());
        }
    });
}

fn wait_as<'a, T>(
    thread: &'a Thread,
    process: &'a Process,
    held: Option<(Guard<'a, Offload>, Instant)>,
    w: &mut Waiting<'_>,
    check: &mut impl FnMut(&mut Offload, Instant) -> Option<T>,
) -> Waited<T> {
    let marks = w.since.unwrap_or_else(|| thread.marks());
    let has_looked = held.is_some();
    let (mut offload, started) = held.unwrap_or_else(|| {
        let now = process.now();
        (process.lock(), now)
    });
    if thread.is_waiting() {
        offload.forsake(thread, started);
    }
    if !has_looked {
        if !w.polls || process.has_several_rings() {
            let rings = offload.rings_of(w);
            offload.poll_these(rings, started);
        }
        match w.look(&mut offload, started, check) {
            Some(Waited::Due) if w.since.is_some() && thread.interrupted(marks, w.restart) => return Waited::Interrupted,
            Some(found) => return found,
            None => {}
        }
    }
    let counted = fd_counters::of_wait(counted_fd(&offload, w));
    let waiter = Waiter { thread, process, marks, started };
    // (Nearly always nothing that is in the way of looking on asks for the lock.)
    let is_ready_to_spin = thread.is_registered() && (w.sigmask.is_some() || real::handlers_are_seen());
    if is_ready_to_spin && w.deadline.is_none_or(|deadline| deadline > started) && !process.has_several_rings() {
        return spin_and_sleep(&waiter, Some(offload), w, counted, check);
    }
    drop(offload);
    if w.deadline.is_some_and(|deadline| deadline <= started) {
        return match ask_kernel(w) {
            Asked::Nothing => Waited::TimedOut,
            Asked::Ready => Waited::Kernel,
            Asked::Signal => Waited::Interrupted,
        };
    }
    if !thread.can_be_cancelled() {
        return Waited::Interrupted;
    }
    if w.sigmask.is_some() || real::handlers_are_seen() {
        return spin_and_sleep(&waiter, None, w, counted, check);
    }
    // A handler that was installed past this library leaves no note. A signal that came in the middle of the looks would be lost on the wait: so
    // signals are blocked but while the kernel is asked, which tells of them.
    let blocked = Blocked::new();
    let &mut Waiting { sockets, epolls, deadline, spin, restart, callbacks, since, polls, .. } = w;
    let sigmask = Some(blocked.before());
    let mut w = Waiting { sockets, epolls, kernel: &mut *w.kernel, deadline, sigmask, spin, restart, callbacks, since, polls };
    spin_and_sleep(&waiter, None, &mut w, counted, check)
}

/// Who waits: since when, and which handlers had run by then.
struct Waiter<'a> {
    thread: &'a Thread,
    process: &'a Process,
    marks: Marks,
    started: Instant,
}

/// Nothing was there when it began: looks on for as long as that is worth it, then sleeps. `held`: the lock, if nothing can have come since.
fn spin_and_sleep<'a, T>(
    waiter: &Waiter<'a>,
    held: Option<Guard<'a, Offload>>,
    w: &mut Waiting<'_>,
    counted: &fd_counters::FdCounters,
    check: &mut impl FnMut(&mut Offload, Instant) -> Option<T>,
) -> Waited<T> {
    let &Waiter { thread, process, marks, started } = waiter;
    let limit = limit(process, w.spin);
    let history = history(thread, w.spin);
    let before = history.get();
    let mut state = Spin::new(started, &before, limit);
    let (spun, until) = spin(waiter, held, w, &mut state, check);
    counted.spun(matches!(spun, Some(Waited::Ready(_) | Waited::Kernel | Waited::Due)));
    let (waited, until) = match spun {
        Some(Waited::Interrupted) => (interrupted(thread, process, w, check), until),
        Some(waited) => (waited, until),
        None => {
            // What a sleep's system calls say of themselves is not what the program's call says.
            let saved = errno::current();
            let waited = sleep(thread, process, w, marks, check);
            errno::set(saved);
            (waited, process.now())
        }
    };
    if matches!(waited, Waited::Kernel) {
        thread.kernel_delivered();
    }
    let outcome = match waited {
        Waited::Ready(_) | Waited::Kernel | Waited::Due => Outcome::Satisfied,
        Waited::TimedOut | Waited::Interrupted => Outcome::InVain,
    };
    if outcome == Outcome::Satisfied && before.is_content(until.as_nanos().saturating_sub(started.as_nanos()), &state) {
        return waited;
    }
    let mut learned = before;
    learned.ended(limit, until.since(started), outcome, &state);
    if learned != before {
        history.set(learned);
    }
    waited
}

/// A handler ran while the thread looked, or was about to sleep. What had come by then comes first, as on the kernel, whose waits look before they say
/// EINTR. (One that a sleep's system call reports is the kernel's own, which has looked at its descriptors; the ring was looked at
/// thereafter. A thread that is to be cancelled takes nothing any more.)
#[cold]
fn interrupted<T>(
    thread: &Thread,
    process: &Process,
    w: &mut Waiting<'_>,
    check: &mut impl FnMut(&mut Offload, Instant) -> Option<T>,
) -> Waited<T> {
    if thread.is_cancelled() {
        return Waited::Interrupted;
    }
    let found = {
        let now = process.now();
        let mut offload = process.lock();
        let rings = offload.rings_of(w);
        offload.poll_these(rings, now);
        let found = w.look(&mut offload, now, check);
        offload.attend(now);
        found
    };
    match found {
        Some(found) => found,
        None if matches!(ask_kernel(w), Asked::Ready) => Waited::Kernel,
        None => Waited::Interrupted,
    }
}

/// The descriptor that a wait is counted for: a socket's, or an epoll instance's; else poll and select have it.
#[inline]
fn counted_fd(offload: &Offload, w: &Waiting<'_>) -> i32 {
    match (w.spin, w.sockets, w.epolls) {
        (SpinClass::Rx, &[socket], _) => offload.sockets.get(socket).map_or(fd_counters::NO_FD, |socket| socket.fd),
        (SpinClass::Select, [], &[epoll]) => offload.mux.epolls.get(epoll).map_or(fd_counters::NO_FD, super::epoll::Epoll::fd),
        _ => fd_counters::NO_FD,
    }
}

/// The calling thread's history of one class.
pub(super) fn history(thread: &Thread, class: SpinClass) -> &Cell<History> {
    match class {
        SpinClass::Rx => &thread.rx,
        SpinClass::Select => &thread.select,
    }
}

pub(super) fn limit(process: &Process, class: SpinClass) -> Limit {
    let set = match class {
        SpinClass::Rx => process.params.rx_poll_us,
        SpinClass::Select => process.params.select_poll_us,
    };
    Limit::from_vma(set.unwrap_or(POLL_US_DEFAULT), set.is_some())
}

enum Asked {
    Nothing,
    Ready,
    Signal,
}

/// One look at the kernel's descriptors, and at signals that only the sleep's mask lets through.
fn ask_kernel(w: &mut Waiting<'_>) -> Asked {
    if w.kernel.is_empty() && w.sigmask.is_none() {
        return Asked::Nothing;
    }
    match ppoll(w.kernel, Some(Duration::ZERO), w.sigmask) {
        Ok(0) => Asked::Nothing,
        Ok(_) => Asked::Ready,
        Err(error) if error.raw_os_error() == Some(libc::EINTR) => Asked::Signal,
        Err(_) => Asked::Nothing,
    }
}

impl Offload {
    /// The rings that a wait concerns: of one that concerns none, all.
    fn rings_of(&self, w: &Waiting<'_>) -> RingSet {
        let all = self.rings.all();
        if all.only().is_some() {
            return all;
        }
        let of_sockets = w.sockets.iter().filter_map(|&socket| self.sockets.get(socket)).map(Socket::rings);
        let of_epolls = w.epolls.iter().filter_map(|&epoll| self.mux.epolls.get(epoll)).map(|instance| instance.rings);
        // (A child has its parent's instances, and rings of its own.)
        let rings = of_sockets.chain(of_epolls).fold(RingSet::NONE, RingSet::with).and(all);
        if rings.is_empty() { all } else { self.rings.with_those_beside(rings) }
    }
}
