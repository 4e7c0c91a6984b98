//! Waits by rings' locks alone, for what is plain: a receive or a send on one socket ([`crate::socket::plain`]), poll(2) of some
//! ([`super::poll`]), and an epoll instance ([`super::epoll::plain`]), on one ring or on several. Threads that sleep and wake all the time would else
//! meet at the process's lock, each of them several times for each message.
//!
//! There is one loop ([`run`]) for what such a call waits for ([`Awaited`]): it comes to each ring by that ring's lock, one at a time, and looks; and
//! where a look is to be the last one before the thread sleeps, it arms the ring in the same hold of its lock ([`registration`]). So what happens on a ring after the
//! thread has looked at it wakes the thread, however long the way over the other rings takes.
//!
//! It sleeps where little is gained by spinning (more threads than cores, most often), and nobody else waits on its rings. Who wakes it:
//! - a peer, through the descriptor of the ring that it sends to, which is armed; and each ring's next timer;
//! - whoever polls one of the rings meanwhile, and finds an event that concerns it ([`ProcessRing::take_event`]), or leaves the ring without having armed
//!   it again;
//! - whoever may change what it waits for, and so unsays that it is plain, or tells the instance of something by the process's lock: its eventfd stands
//!   beside that ([`LoneSleeper`]). (That is what brings a socket that comes onto another ring, too.)
//! - the kernel, through its own descriptors;
//! - a signal, or a request to cancel the thread, as in any wait.

mod registration;

use core::sync::atomic::{AtomicI32, Ordering};
use core::time::Duration;
use std::os::fd::RawFd;

use libc::pollfd;
use ringway_host::spin::{Outcome, Spin};
use ringway_stack::ring::FlowId;
use ringway_stack::time::Instant;

pub(super) use self::registration::OnRings;
use self::registration::{Registration, Slept};
use super::thread::{self, Marks, Thread};
use super::wait::{SpinClass, history, limit};
use crate::errno::Errno;
use crate::extra::resume::Resume;
use crate::process::{Process, fork_generation};
use crate::real;
use crate::rings::{ProcessRing, RingSet};
use crate::socket::plain;

/// Times in a row that there is something to be seen to before the sleep, or that it ends at once; then others are busy on the rings.
const TRIES: u32 = 4;

/// A spin that is no longer than this is one on a core which others want.
const SHORT: Duration = Duration::from_micros(2);

/// What a call waits for, as long as all of it is plain.
pub(crate) trait Awaited {
    /// What the call comes to.
    type Found;

    /// A look at all of it begins: the rings on which it is. `None`: it is not plain.
    fn begin(&mut self) -> Option<RingSet>;

    /// Looks at what of it is on a ring, whose lock is held, and polls that first. `None`: it is not plain any more.
    fn look(&mut self, own: &mut ProcessRing, ring: u16, now: Instant) -> Option<Look>;

    /// All rings were looked at, and no lock is held. `false`: more there is that only who has the process's lock can tell.
    fn rest(&mut self) -> bool;

    /// Whether the look has found something by now.
    fn is_ready(&self) -> bool;

    /// What the call comes to, if it has.
    fn take(&mut self) -> Self::Found;

    /// What the call comes to if it ends by that: EINTR, or EAGAIN when the time is over (then, what the kernel has by now counts).
    fn ended(&mut self, by: Errno) -> Self::Found;

    /// Puts the eventfd of a thread that is about to sleep beside what was looked at on a ring, whose lock is held still. `false`: it is not plain any more.
    fn begin_sleep(&mut self, ring: u16, waker: RawFd) -> bool;

    /// The thread with that eventfd sleeps for it no more.
    fn end_sleep(&mut self, waker: RawFd);

    /// The kernel's descriptors that also end the wait.
    fn kernel(&self) -> &[pollfd];

    /// One of these was ready. `None`: there is nothing. (Another thread was quicker, or it is what only the long way can tell.)
    fn ask_kernel(&mut self) -> Option<Self::Found>;
}

/// What was seen on one ring, beside what the call waits for.
pub(crate) struct Look {
    /// There is something that only who has the process's lock can see to.
    pub(crate) has_more: bool,
    /// A flow of which something is held back.
    pub(crate) held: Option<FlowId>,
    /// The one flow on this ring whose events concern the call; `None`: all do.
    pub(crate) flow: Option<FlowId>,
}

/// What was seen on all.
pub(crate) struct Looked {
    /// There was something that only who has the process's lock can see to: it was seen to.
    pub(crate) had_more: bool,
    /// Nothing is left that only that lock's holder can tell.
    pub(crate) is_all: bool,
}

/// Looks at all of it once, by each ring's lock in turn. `None`: it is not plain.
pub(crate) fn look(process: &Process, awaited: &mut impl Awaited, now: Instant) -> Option<Looked> {
    pass(process, awaited, now, None)
}

/// As [`look`], and enters the thread on each ring that it has looked at, as long as nothing was found.
fn pass<W: Awaited>(process: &Process, awaited: &mut W, now: Instant, mut registration: Option<&mut Registration<'_>>) -> Option<Looked> {
    let (mut had_more, forks) = (false, fork_generation());
    for ring in awaited.begin()?.iter() {
        // (A handler that ran since may have forked, and this is the child: the rings are its parent's.)
        if fork_generation() != forks {
            return None;
        }
        let mut own = process.ring(ring)?.lock();
        let Some(Look { has_more, held, flow }) = awaited.look(&mut own, ring, now) else {
            let has_more = own.has_more_to_do();
            drop(own);
            if has_more {
                plain::see_to_the_rest(process, ring, now, None);
            }
            // (What was found on another ring counts: it may be told once only.)
            return awaited.is_ready().then_some(Looked { had_more, is_all: false });
        };
        let registration = registration.as_deref_mut().filter(|_| !awaited.is_ready());
        // (Who sleeps on the ring sees to what is held itself.)
        let held = held.filter(|_| registration.is_none());
        had_more |= has_more;
        if has_more || held.is_some() {
            drop(own);
            plain::see_to_the_rest(process, ring, now, held);
        } else if let Some(registration) = registration.filter(|_| !had_more) {
            registration.register(own, (ring, flow), |waker| awaited.begin_sleep(ring, waker))?;
        }
    }
    Some(Looked { had_more, is_all: awaited.rest() })
}

/// How a wait ended.
pub(crate) enum Ended<T> {
    /// With what the call comes to.
    Found(T),
    /// It is to go on the long way. How the call began, if it has slept.
    LongWay(Option<Resume>),
}

impl<T> Ended<T> {
    /// `None`: the long way.
    pub(crate) fn found(self) -> Option<T> {
        match self {
            Self::Found(found) => Some(found),
            Self::LongWay(_) => None,
        }
    }
}

/// Waits, in a call that found nothing and is to give up after so long. `restarts`: a handler with SA_RESTART does not end it.
pub(crate) fn run<W: Awaited>(
    process: &Process,
    class: SpinClass,
    timeout: Option<Duration>,
    restarts: bool,
    awaited: &mut W,
) -> Ended<W::Found> {
    thread::with(|thread| {
        let Some(mut wait) = Wait::new(thread, process, class, timeout, restarts) else { return Ended::LongWay(None) };
        let saved = crate::errno::current();
        let found = wait.run(awaited);
        crate::errno::set(saved);
        found.map_or_else(|| Ended::LongWay(wait.begun()), Ended::Found)
    })
}

/// A call that waits.
struct Wait<'a> {
    thread: &'a Thread,
    process: &'a Process,
    class: SpinClass,
    began: Instant,
    spins_until: Instant,
    deadline: Option<Instant>,
    restarts: bool,
    marks: Marks,
    waker: RawFd,
    tries: u32,
    has_slept: bool,
    /// A signal has ended it, as far as the kernel knows.
    is_over: bool,
}

impl<'a> Wait<'a> {
    /// `None`: this thread is to spin, or cannot sleep so.
    fn new(thread: &'a Thread, process: &'a Process, class: SpinClass, timeout: Option<Duration>, restarts: bool) -> Option<Self> {
        let spin = short_spin(thread, process, class)?;
        let (began, marks) = (process.now(), thread.marks());
        // (Who is not registered yet finds out whether it was cancelled before: the long way.)
        if !real::handlers_are_seen() || thread.is_waiting() || !thread.is_registered() {
            return None;
        }
        let (spins_until, deadline) = (began + spin, timeout.map(|timeout| began + timeout));
        let waker = thread::waker()?;
        let (tries, has_slept, is_over) = (0, false, false);
        Some(Wait { thread, process, class, began, spins_until, deadline, restarts, marks, waker, tries, has_slept, is_over })
    }

    /// Looks, spins and sleeps. `None`: the wait is to go on the long way.
    fn run<W: Awaited>(&mut self, awaited: &mut W) -> Option<W::Found> {
        // (A thread that was woken finds something on one of several rings, most likely: it looks at all before it arms any.)
        let mut looks_first = false;
        let (found, outcome) = loop {
            let now = self.process.now();
            let end = self.end(now);
            // (A thread that is to end takes nothing any more.)
            if let Some(end) = end.filter(|_| self.thread.is_cancelled()) {
                break (awaited.ended(end), Outcome::InVain);
            }
            let mut registration = Registration::new(self.thread, self.process, self.waker, self.deadline);
            let sleeps = end.is_none() && now >= self.spins_until && !core::mem::take(&mut looks_first);
            let looked = pass(self.process, awaited, now, sleeps.then_some(&mut registration));
            if awaited.is_ready() {
                registration.deregister(|waker| awaited.end_sleep(waker));
                break (awaited.take(), Outcome::Satisfied);
            }
            let had_more = match (looked, end) {
                (Some(_), Some(end @ Errno(libc::EINTR))) => break (awaited.ended(end), Outcome::InVain),
                (Some(Looked { had_more: false, is_all: true }), Some(end)) => break (awaited.ended(end), Outcome::InVain),
                // (Who saw to the rest may have found something.)
                (_, Some(_)) => return None,
                (Some(Looked { had_more, is_all: true }), None) => had_more,
                (_, None) => {
                    registration.deregister(|waker| awaited.end_sleep(waker));
                    return None;
                }
            };
            if !sleeps {
                continue;
            }
            let slept =
                if had_more || registration.is_disturbed() { None } else { Some(self.sleep(&mut registration, awaited.kernel(), now)) };
            registration.deregister(|waker| awaited.end_sleep(waker));
            match slept {
                Some(Slept::Look) => {
                    self.tries = 0;
                    looks_first = registration.is_of_several();
                }
                Some(Slept::Kernel) => match awaited.ask_kernel() {
                    Some(found) => break (found, Outcome::Satisfied),
                    None => self.tries += 1,
                },
                None => self.tries += 1,
            }
            if self.tries == TRIES {
                return None;
            }
        };
        self.note(outcome);
        Some(found)
    }

    /// How the call began, if it has slept.
    fn begun(&self) -> Option<Resume> {
        self.has_slept.then(|| Resume::since(self.began, self.marks))
    }

    /// How it ends, if it does and nothing is there at `now`: EINTR, or EAGAIN when the time is over.
    fn end(&self, now: Instant) -> Option<Errno> {
        let is_interrupted = self.is_over || self.thread.interrupted(self.marks, self.restarts);
        let is_late = self.deadline.is_some_and(|deadline| deadline <= now);
        let end = if is_interrupted { Some(libc::EINTR) } else { is_late.then_some(libc::EAGAIN) };
        end.map(Errno)
    }

    /// Sleeps, on the rings on which it is registered, until something wakes the thread.
    fn sleep(&mut self, registration: &mut Registration<'_>, kernel: &[pollfd], now: Instant) -> Slept {
        self.has_slept = true;
        let slept = self.thread.sleeping(self.waker, self.marks, || registration.poll(kernel, now));
        let is_signalled = self.thread.signalled(self.marks);
        // Without a handler of the program's that the library saw, the kernel's word counts.
        self.is_over |= !is_signalled && matches!(&slept, Some(Err(error)) if error.raw_os_error() == Some(libc::EINTR));
        if is_signalled && !self.thread.interrupted(self.marks, self.restarts) {
            // (One with SA_RESTART ends no wait that restarts.)
            self.marks = self.thread.marks();
        }
        match slept {
            Some(Ok(slept)) => slept,
            _ => Slept::Look,
        }
    }

    /// It has ended.
    fn note(&self, outcome: Outcome) {
        let (history, limit) = (history(self.thread, self.class), limit(self.process, self.class));
        let mut learned = history.get();
        learned.ended(limit, self.process.now().since(self.began), outcome, &Spin::new(self.began, &learned, limit));
        history.set(learned);
    }
}

/// How long a wait of the calling thread is to spin, where that is so short, for its core is shared, that it needs no claim on the core. `None`: longer.
fn short_spin(thread: &Thread, process: &Process, class: SpinClass) -> Option<Duration> {
    Some(history(thread, class).get().budget(limit(process, class))).filter(|budget| *budget <= SHORT)
}

/// Beside what is plain: the eventfd of the thread that sleeps for it by rings' locks alone, plus one. Zero: none does.
pub(crate) struct LoneSleeper(AtomicI32);

impl LoneSleeper {
    #[expect(clippy::declare_interior_mutable_const, reason = "it is what each of a table's cells begins with")]
    pub(crate) const NOBODY: Self = Self(AtomicI32::new(0));

    /// A thread is about to sleep. `false`: it is not `still` plain, and is not to. (Whoever unsays that looks for the sleeper thereafter, and this looks
    /// whether it was unsaid: one of them sees the other.)
    pub(crate) fn begin(&self, waker: RawFd, still: impl FnOnce() -> bool) -> bool {
        self.0.store(waker + 1, Ordering::SeqCst);
        let is_plain = still();
        if !is_plain {
            self.end(waker);
        }
        is_plain
    }

    /// That thread sleeps no more. Whether it did. (Another one may by now, for what has the place by now.)
    pub(crate) fn end(&self, waker: RawFd) -> bool {
        self.0.compare_exchange(waker + 1, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    #[inline]
    pub(crate) fn wake(&self) {
        let sleeper = self.0.load(Ordering::SeqCst);
        if sleeper != 0 {
            ringway_host::sleep::signal(sleeper - 1);
        }
    }

    /// In the child of a fork: it was a parent's thread.
    pub(crate) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
