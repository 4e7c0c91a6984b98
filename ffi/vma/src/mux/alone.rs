//! A thread that sleeps on one ring by that ring's lock alone, for a plain socket ([`crate::socket::plain`]) or a plain epoll instance
//! ([`super::epoll::plain`]): threads that sleep and wake all the time would else meet at the process's lock, each of them several times for each message.
//!
//! It does so where little is gained by spinning (more threads than cores, most often), and nobody else waits on the ring. Who wakes it:
//! - a peer, through the ring's descriptor, which is armed; and the ring's next timer;
//! - whoever polls the ring meanwhile, and finds an event that concerns it ([`ProcessRing::take_event`]), or leaves the ring without having armed it
//!   again;
//! - whoever may change what it waits for, and so unsays that it is plain, or tells the instance of something by the process's lock: its eventfd stands
//!   beside that ([`LoneSleeper`]);
//! - a signal, or a request to cancel the thread, as in any wait.
//!
//! [`ProcessRing::take_event`]: crate::rings::ProcessRing::take_event

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};
use core::time::Duration;
use std::os::fd::RawFd;

use ringway_host::sleep::ppoll;
use ringway_host::spin::{Outcome, Spin};
use ringway_stack::ring::FlowId;
use ringway_stack::time::Instant;

use super::epoll;
use super::sleepers::Lone;
use super::thread::{self, Marks, Thread};
use super::wait::{SpinClass, history, limit};
use crate::errno::Errno;
use crate::extra::resume::Resume;
use crate::lock::{Guard, Lock};
use crate::process::{Process, fork_generation};
use crate::real;
use crate::rings::ProcessRing;
use crate::socket::{plain, table as sockets};

/// Times in a row that there is something to be seen to before the sleep, or that it ends at once; then others are busy on the ring.
const TRIES: u32 = 4;

/// What a thread sleeps for, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    Socket(u32),
    Epoll(u32),
}

impl Watched {
    /// The thread with that eventfd sleeps for it no more.
    pub(super) fn end_sleep(self, waker: RawFd) {
        match self {
            Self::Socket(index) => sockets::end_sleep(index, waker),
            Self::Epoll(index) => epoll::end_sleep(index, waker),
        }
    }
}

/// Beside what is plain: the eventfd of the thread that sleeps for it by its ring's lock alone, plus one. Zero: none does.
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

    /// That thread sleeps no more. (Another one may by now, for what has the place by now.)
    pub(crate) fn end(&self, waker: RawFd) {
        let _ = self.0.compare_exchange(waker + 1, 0, Ordering::Relaxed, Ordering::Relaxed);
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

/// A spin that is no longer than this is one on a core which others want.
const SHORT: Duration = Duration::from_micros(2);

/// How long a wait of the calling thread is to spin, where that is so short, for its core is shared, that it needs no claim on the core. `None`: longer.
fn short_spin(thread: &Thread, process: &Process, class: SpinClass) -> Option<Duration> {
    Some(history(thread, class).get().budget(limit(process, class))).filter(|budget| *budget <= SHORT)
}

/// Such a wait has ended.
fn note_slept(thread: &Thread, process: &Process, class: SpinClass, (began, now): (Instant, Instant), outcome: Outcome) {
    let (history, limit) = (history(thread, class), limit(process, class));
    let mut learned = history.get();
    learned.ended(limit, now.since(began), outcome, &Spin::new(began, &learned, limit));
    history.set(learned);
}

/// A call that waits for one socket or instance, and sleeps by its ring's lock.
pub(crate) struct Wait<'a> {
    thread: &'a Thread,
    process: &'a Process,
    class: SpinClass,
    began: Instant,
    spins_until: Instant,
    deadline: Option<Instant>,
    /// A handler with SA_RESTART does not end it.
    restarts: bool,
    marks: Marks,
    waker: RawFd,
    tries: u32,
    has_slept: bool,
    /// A signal has ended it, as far as the kernel knows.
    is_over: bool,
}

/// What ended a sleep.
pub(crate) enum Slept {
    /// Something, perhaps.
    Look,
    /// The descriptor of the kernel's is readable.
    Kernel,
    /// Nothing: the wait is to go on the long way.
    LongWay,
}

impl<'a> Wait<'a> {
    /// Runs `wait` for a call that found nothing, and is to give up after so long. `None`: this thread is to spin, or cannot sleep so.
    pub(crate) fn run<T>(
        process: &Process,
        class: SpinClass,
        timeout: Option<Duration>,
        restarts: bool,
        wait: impl FnOnce(&mut Wait<'_>) -> Option<T>,
    ) -> Option<T> {
        thread::with(|thread| {
            let saved = crate::errno::current();
            let result = Wait::new(thread, process, class, timeout, restarts).and_then(|mut waiting| wait(&mut waiting));
            crate::errno::set(saved);
            result
        })
    }

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

    /// How the call began, if it has slept.
    pub(crate) fn begun(&self) -> Option<Resume> {
        self.has_slept.then(|| Resume::since(self.began, self.marks))
    }

    /// What it waited for is there.
    pub(crate) fn found(&self, now: Instant) {
        note_slept(self.thread, self.process, self.class, (self.began, now), Outcome::Satisfied);
    }

    /// Whether the thread is to end: it takes nothing any more.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.thread.is_cancelled()
    }

    /// There was nothing at `now`. How it ends, if it does: EINTR, or EAGAIN when the time is over.
    pub(crate) fn end(&self, now: Instant) -> Option<Errno> {
        let is_interrupted = self.is_over || self.thread.interrupted(self.marks, self.restarts);
        let is_late = self.deadline.is_some_and(|deadline| deadline <= now);
        let end = if is_interrupted { Some(libc::EINTR) } else { is_late.then_some(libc::EAGAIN) };
        if end.is_some() {
            note_slept(self.thread, self.process, self.class, (self.began, now), Outcome::InVain);
        }
        end.map(Errno)
    }

    /// Whether it is to look again at once.
    pub(crate) fn spins(&self, now: Instant) -> bool {
        now < self.spins_until
    }

    /// Sleeps until something wakes the thread: on a ring, for a flow of it or for any, and on the kernel's descriptor if there is one. Nothing was there
    /// at `now`, since when the ring's lock is held, and there is nothing else to be seen to. `begin` puts the thread's eventfd beside what it sleeps for,
    /// unless that is not plain any more.
    pub(crate) fn sleep(
        &mut self,
        mut own: Guard<'_, ProcessRing>,
        (ring, flow, watched): (u16, Option<FlowId>, Watched),
        begin: impl FnOnce(RawFd) -> bool,
        kernel: Option<c_int>,
        now: Instant,
    ) -> Slept {
        let waker = self.waker;
        if !own.lie_down_alone(Lone { flow, waker, is_woken: false }) {
            return self.try_again();
        }
        if !begin(waker) {
            own.rise_alone();
            return Slept::LongWay;
        }
        self.thread.generation.set(fork_generation());
        self.thread.lone.set(Some((ring, watched, waker)));
        let until = [own.ring.sleep_deadline(), self.deadline].into_iter().flatten().min();
        let timeout = until.map(|until| until.since(now));
        let ring_fd = own.wait_fd();
        drop(own);
        self.has_slept = true;
        let slept = self.thread.sleeping(waker, self.marks, || poll(waker, ring_fd, kernel, timeout));
        self.rise();
        let is_signalled = self.thread.signalled(self.marks);
        // Without a handler of the program's that the library saw, the kernel's word counts.
        self.is_over |= !is_signalled && matches!(&slept, Some(Err(error)) if error.raw_os_error() == Some(libc::EINTR));
        if is_signalled && !self.thread.interrupted(self.marks, self.restarts) {
            // (One with SA_RESTART ends no wait that restarts.)
            self.marks = self.thread.marks();
        }
        let Some(Ok((is_woken, is_readable))) = slept else { return Slept::Look };
        if is_woken {
            thread::clear_waker();
        }
        if is_readable { Slept::Kernel } else { Slept::Look }
    }

    /// The thread is awake. Whoever relies on the ring's being armed finds it so.
    fn rise(&self) {
        if self.thread.generation.get() != fork_generation() {
            // A handler has forked, and this is the child: the ring is its parent's.
            self.thread.lone.set(None);
        }
        let Some((ring, watched, waker)) = self.thread.lone.get() else { return };
        let Some(mut own) = self.process.ring(ring).map(Lock::lock) else { return };
        // (A handler may have waited meanwhile, and taken this wait for one that was left.)
        if self.thread.lone.take().is_none() {
            return;
        }
        own.rise_alone();
        watched.end_sleep(waker);
        let is_relied_on = own.watch.is_relied_on();
        drop(own);
        if is_relied_on {
            plain::see_to_the_rest(self.process, ring, self.process.now(), None);
        }
    }

    /// There was something to be seen to before the sleep.
    pub(crate) fn try_again(&mut self) -> Slept {
        self.tries += 1;
        if self.tries < TRIES { Slept::Look } else { Slept::LongWay }
    }

    /// The kernel's descriptor was readable, and nothing was there. (Another thread was quicker, or it is what only the long way can tell.)
    pub(crate) fn was_in_vain(&mut self) -> Slept {
        self.try_again()
    }
}

/// Sleeps on the thread's eventfd, the ring's descriptor, and the kernel's. Whether the first, and the last, are readable.
fn poll(waker: RawFd, ring: RawFd, kernel: Option<c_int>, timeout: Option<Duration>) -> std::io::Result<(bool, bool)> {
    let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // (A number below zero is looked at by nobody.)
    let mut fds = [readable(waker), readable(ring), readable(kernel.unwrap_or(-1))];
    ppoll(&mut fds, timeout, None)?;
    Ok((fds[0].revents != 0, fds[2].revents != 0))
}
