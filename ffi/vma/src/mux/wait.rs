//! The one place where threads wait: look, spin, sleep.
//!
//! A wait may end without returning: by a handler's longjmp (see [`leave_wait`]), or by a panic ([`Spinning`]). Thread
//! cancellation is not among the ways: a request ends the wait as a signal does, and takes effect where the call ends
//! ([`crate::cancel`]). Asynchronous cancellation of a thread inside our calls is undefined behaviour, as it is in all but three
//! functions of POSIX.

use core::cell::Cell;
use core::time::Duration;

use arrayvec::ArrayVec;
use ringway_host::Blocked;
use ringway_host::queues::{BESIDE, SLEPT_MAX};
use ringway_host::sleep::{epoll_wait, ppoll, yield_core};
use ringway_host::spin::{History, Limit, Outcome, Spin, Step};
use ringway_stack::time::Instant;

use super::sleepers::DOZE;
use super::thread::{self, Marks, Thread};
pub(crate) use super::thread::{in_handler, note_signal, run_handler};
use crate::devices::Ring;
use crate::errno;
use crate::lock::Guard;
use crate::params::POLL_US_DEFAULT;
use crate::process::{self, Offload, Process, fork_generation};
use crate::rings::{RINGS_MAX, RingSet};
use crate::socket::Socket;
use crate::{fd_counters, real};

/// Looks at the rings in one hold of the lock, unless another thread asks for it. (Without pauses in between: on
/// recent processors a pause costs as much as a line's way from core to core.)
const LOOKS: u32 = 64;

/// A spin shorter than this needs no claim on its core.
const UNCLAIMED: Duration = Duration::from_micros(20);

/// A thread that is to sleep on the ring's descriptor while another one has yet to take its wake-up there would find the descriptor readable, and look
/// again and again on a core that the other one may be waiting for. It sleeps for so long instead, and then looks.
const WAKEUP_IS_TAKEN: Duration = Duration::from_micros(100);

/// A thread that could not get an eventfd sleeps at most this long at a time.
const WITHOUT_WAKER: Duration = Duration::from_millis(1);

/// A spin that has a signal mask of its own asks the kernel for signals so often.
const SIGNALS_EVERY: Duration = Duration::from_micros(100);

/// Kernel descriptors that are polled without an allocation.
const FEW: usize = 14;

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
    thread: &Thread,
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
    // (Nearly always nothing that is in the way of looking on asks for the lock.)
    let is_ready_to_spin = thread.is_registered() && (w.sigmask.is_some() || real::handlers_are_seen());
    if is_ready_to_spin && w.deadline.is_none_or(|deadline| deadline > started) && !process.has_several_rings() {
        return spin_and_sleep(thread, process, Some(offload), w, marks, started, counted, check);
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
        return spin_and_sleep(thread, process, None, w, marks, started, counted, check);
    }
    // A handler that was installed past this library leaves no note. A signal that came in the middle of the looks would be lost on the wait: so
    // signals are blocked but while the kernel is asked, which tells of them.
    let blocked = Blocked::new();
    let &mut Waiting { sockets, epolls, deadline, spin, restart, callbacks, since, polls, .. } = w;
    let sigmask = Some(blocked.before());
    let mut w = Waiting { sockets, epolls, kernel: &mut *w.kernel, deadline, sigmask, spin, restart, callbacks, since, polls };
    spin_and_sleep(thread, process, None, &mut w, marks, started, counted, check)
}

/// Nothing was there at `started`: looks on for as long as that is worth it, then sleeps. `held`: the lock, if nothing can have come since.
fn spin_and_sleep<'a, T>(
    thread: &Thread,
    process: &'a Process,
    held: Option<Guard<'a, Offload>>,
    w: &mut Waiting<'_>,
    marks: Marks,
    started: Instant,
    counted: &fd_counters::FdCounters,
    check: &mut impl FnMut(&mut Offload, Instant) -> Option<T>,
) -> Waited<T> {
    let limit = limit(process, w.spin);
    let history = history(thread, w.spin);
    let before = history.get();
    let mut state = Spin::new(started, &before, limit);
    let (spun, until) = spin(thread, process, held, w, marks, &mut state, started, check);
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

/// Looks at the ring again and again, and gives the time of the last look. `None`: the budget is spent.
fn spin<'a, T>(
    thread: &Thread,
    process: &'a Process,
    held: Option<Guard<'a, Offload>>,
    w: &mut Waiting<'_>,
    marks: Marks,
    spin: &mut Spin,
    started: Instant,
    check: &mut impl FnMut(&mut Offload, Instant) -> Option<T>,
) -> (Option<Waited<T>>, Instant) {
    if spin.step(started) == Step::Stop {
        return (None, started);
    }
    let ratio = match w.spin {
        SpinClass::Rx => process.params.rx_udp_poll_os_ratio,
        SpinClass::Select => process.params.select_poll_os_ratio,
    };
    let mut yields = Yields::new(process, w.spin);
    // What the user set is spun to the letter, on a taken core as well; but others give way to it.
    let exact = matches!(limit(process, w.spin), Limit::Exact(_));
    let mut claimed = false;
    let _spinning = Spinning { process, thread };
    // What happened since the first look, if that was in another hold of the lock, is looked at in the first round.
    let mut seen = super::activity().wrapping_sub(u64::from(held.is_none()));
    let mut offload = held.unwrap_or_else(|| process.lock());
    let rings = offload.rings_of(w);
    offload.begin_spin(thread, rings);
    let mut held = Some(offload).filter(|_| w.polls && !process.has_several_rings());
    // A signal that the mask lets through while the thread's own mask blocks it can only be noticed by the kernel.
    let mut next_ask = w.sigmask.map(|_| started);
    let ended = loop {
        let now = process.now();
        if let Some(found) = look(thread, process, held.take(), w, now, &mut seen, check) {
            return (Some(found), now);
        }
        if thread.interrupted(marks, w.restart) {
            break Some(Waited::Interrupted);
        }
        if w.deadline.is_some_and(|deadline| deadline <= now) {
            // What the kernel has by now counts, however seldom it is asked.
            break Some(match ask_kernel(w) {
                Asked::Nothing => Waited::TimedOut,
                Asked::Ready => Waited::Kernel,
                Asked::Signal => Waited::Interrupted,
            });
        }
        let signals_are_due = next_ask.is_some_and(|next| next <= now);
        if signals_are_due || !w.kernel.is_empty() && thread.kernel_is_due(ratio) {
            next_ask = next_ask.map(|_| now + SIGNALS_EVERY);
            match ask_kernel(w) {
                Asked::Nothing => {}
                Asked::Ready => break Some(Waited::Kernel),
                Asked::Signal => break Some(Waited::Interrupted),
            }
        }
        if !claimed && now.since(started) > UNCLAIMED {
            claimed = true;
            if !process.lock().sit(thread) && !exact {
                spin.refused(now);
                break None;
            }
        }
        match yields.apply(spin.step(now)) {
            Step::Poll if process.state().has_waiters() => (0..16).for_each(|_| core::hint::spin_loop()),
            Step::Poll => {}
            Step::Yield => {
                yield_core();
                spin.yielded(now, process.now());
                if thread.has_moved() && !process.lock().sit(thread) && !exact {
                    spin.refused(now);
                    break None;
                }
            }
            Step::Stop => break None,
        }
    };
    let now = process.now();
    process.lock().end_spin(thread, now);
    (ended, now)
}

/// VMA_RX_POLL_YIELD: a receive lets others have the core after so many rounds, as well as from time to time.
struct Yields {
    every: u32,
    rounds: u32,
}

impl Yields {
    fn new(process: &Process, class: SpinClass) -> Self {
        Self { every: if class == SpinClass::Rx { process.params.rx_poll_yield } else { 0 }, rounds: 0 }
    }

    #[inline]
    fn apply(&mut self, step: Step) -> Step {
        if self.every == 0 || step != Step::Poll {
            return step;
        }
        self.rounds += 1;
        if self.rounds < self.every {
            return step;
        }
        self.rounds = 0;
        Step::Yield
    }
}

/// Ends a thread's spinning where a panic would leave it entered.
struct Spinning<'a> {
    process: &'a Process,
    thread: &'a Thread,
}

impl Drop for Spinning<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.thread.spinning.get().is_empty() {
            crate::boundary!((), self.process.lock().end_spin(self.thread, self.process.now()));
        }
    }
}

/// A few looks in one hold of the lock.
#[inline]
fn look<'a, T>(
    thread: &Thread,
    process: &'a Process,
    held: Option<Guard<'a, Offload>>,
    w: &Waiting<'_>,
    now: Instant,
    seen: &mut u64,
    check: &mut impl FnMut(&mut Offload, Instant) -> Option<T>,
) -> Option<Waited<T>> {
    if w.polls && !process.has_several_rings() {
        return look_by_polling(thread, process, held, w, now, seen, check);
    }
    drop(held);
    let rings = thread.spinning.get();
    let by_rings = process.has_several_rings() && !rings.is_empty();
    if by_rings && super::activity() == *seen && !has_something(process, rings, now) {
        return None;
    }
    let mut offload = process.lock();
    let mut rings = rings;
    if process.has_several_rings() && super::activity() != *seen {
        // What the wait is for may have come onto another ring. (Unless a handler waited meanwhile, and took this wait for one that was left.)
        let wanted = offload.rings_of(w);
        if !rings.is_empty() && wanted != rings {
            offload.spin_elsewhere(thread, wanted, now);
        }
        rings = wanted;
    }
    let rings = if rings.is_empty() { offload.rings_of(w) } else { rings };
    for _ in 0..LOOKS {
        offload.poll_these(rings, now);
        let activity = super::activity();
        if activity != *seen {
            *seen = activity;
            if let Some(found) = w.look(&mut offload, now, check) {
                offload.end_spin(thread, now);
                return Some(found);
            }
        }
        if process.state().has_waiters() {
            break;
        }
    }
    None
}

/// The same where the check polls the process's one ring itself: what comes for it goes to it at once, and is no event for anybody.
#[inline]
fn look_by_polling<'a, T>(
    thread: &Thread,
    process: &'a Process,
    held: Option<Guard<'a, Offload>>,
    w: &Waiting<'_>,
    now: Instant,
    seen: &mut u64,
    check: &mut impl FnMut(&mut Offload, Instant) -> Option<T>,
) -> Option<Waited<T>> {
    let mut offload = held.unwrap_or_else(|| process.lock());
    for _ in 0..LOOKS {
        let activity = super::activity();
        if activity != *seen || offload.rings.first().ring.is_due(now) {
            *seen = activity;
            if let Some(found) = w.look(&mut offload, now, check) {
                offload.end_spin(thread, now);
                return Some(found);
            }
        }
        if process.state().has_waiters() {
            break;
        }
    }
    None
}

/// A few looks at the rings, by their own locks alone. Whether they have something to tell, which takes the process's lock.
fn has_something(process: &Process, rings: RingSet, now: Instant) -> bool {
    for _ in 0..LOOKS {
        for ring in rings.iter().filter_map(|ring| process.ring(ring)) {
            {
                let mut own = ring.lock();
                if own.ring.is_due(now) {
                    own.poll(now);
                }
                if own.has_events() {
                    return true;
                }
            }
            if ring.has_waiters() {
                // Whoever wants it may have the process's lock, which others wait for.
                (0..16).for_each(|_| core::hint::spin_loop());
                return false;
            }
        }
    }
    false
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

/// Sleeps until woken, again and again if it was not for this.
fn sleep<T>(
    thread: &Thread,
    process: &Process,
    w: &mut Waiting<'_>,
    mut marks: Marks,
    check: &mut impl FnMut(&mut Offload, Instant) -> Option<T>,
) -> Waited<T> {
    let waker = thread::waker();
    let mut dozes = false;
    loop {
        if thread.interrupted(marks, w.restart) {
            return interrupted(thread, process, w, check);
        }
        let asleep = {
            let now = process.now();
            let mut offload = process.lock();
            let rings = offload.rings_of(w);
            offload.poll_these(rings, now);
            if let Some(found) = w.look(&mut offload, now, check) {
                offload.attend(now);
                return found;
            }
            match offload.fall_asleep(thread, w, waker, now, dozes) {
                Some(asleep) => asleep,
                None => continue,
            }
        };
        let slept = thread.sleeping(asleep.waker, marks, || sleep_on(w.kernel, &asleep, w.sigmask));
        let now = process.now();
        let (woken, found) = {
            let mut offload = process.lock();
            if let Some(Ok(slept)) = &slept {
                offload.slept(thread, &asleep, slept);
            }
            let (woken, told) = offload.wake_up(thread, w, &asleep);
            dozes = told || dozes && offload.is_any_busy(asleep.rings, now);
            offload.poll_these(asleep.rings.with(asleep.leads), now);
            let found = w.look(&mut offload, now, check);
            offload.attend(now);
            (woken, found)
        };
        if asleep.in_ring.is_none() && (woken || matches!(slept, Some(Ok(Slept { waker: true, .. })) | None)) {
            thread::clear_waker();
        }
        if let Some(found) = found {
            return found;
        }
        match slept {
            Some(Ok(slept)) if slept.kernel => return Waited::Kernel,
            // Without a handler of the program's that the library saw, the kernel's word counts.
            Some(Err(error))
                if error.raw_os_error() == Some(libc::EINTR)
                    && (thread.interrupted(marks, w.restart) || !thread.signalled(marks) && !w.outlives_stop()) =>
            {
                return Waited::Interrupted;
            }
            _ => {}
        }
        if thread.signalled(marks) {
            if thread.interrupted(marks, w.restart) {
                return interrupted(thread, process, w, check);
            }
            marks = thread.marks();
        }
        if w.deadline.is_some_and(|deadline| deadline <= now) {
            return Waited::TimedOut;
        }
    }
}

/// A thread's place among the sleepers.
struct Asleep {
    key: Option<crate::slab::Key>,
    waker: i32,
    /// The rings that it sleeps for, and those that it leads.
    rings: RingSet,
    leads: RingSet,
    /// The descriptors of these.
    led: ArrayVec<i32, RINGS_MAX>,
    /// The ring on whose descriptor alone the thread sleeps, in epoll_wait; it is woken by the device's own eventfd. (What its wait names of the
    /// kernel's is beside it: [`super::beside`].)
    in_ring: Option<u16>,
    timeout: Option<Duration>,
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

    /// Whether threads come and go on one of these rings so often that nobody needs to lead.
    fn is_any_busy(&self, rings: RingSet, now: Instant) -> bool {
        rings.iter().any(|ring| self.rings.at(ring).watch.is_busy(now))
    }

    /// The rings, of these, that nobody leads. (A leader that was woken is about to let go.)
    fn without_leader(&self, rings: RingSet) -> RingSet {
        let is_led = |leader: u32| self.mux.sleepers.get(leader).is_some_and(|leader| !leader.signalled);
        rings.iter().filter(|&ring| !self.rings.at(ring).watch.leader.is_some_and(is_led)).collect()
    }

    /// Of the other rings, those that have flows, and that nobody looks after while their threads are in the program: whoever sleeps does.
    fn left_alone(&mut self, rings: RingSet, now: Instant) -> RingSet {
        let all = self.rings.all();
        if all == rings {
            return RingSet::NONE;
        }
        let is_left = |ring: &u16| {
            let own = self.rings.at_mut(*ring);
            // (A thread that uses it all the time looks by itself.)
            let is_in_use = core::mem::replace(&mut own.watch.calls_seen, own.calls.so_far()) != own.calls.so_far();
            !is_in_use && own.watch.is_left_alone() && !own.watch.is_busy(now) && own.ring.usage().flows > 0
        };
        all.iter().filter(|&ring| !rings.contains(ring)).filter(is_left).collect()
    }

    /// Enters the calling thread among the sleepers. `dozes`: it is not to lead. `None`: a ring has something, look again.
    fn fall_asleep(&mut self, thread: &Thread, w: &Waiting<'_>, waker: Option<i32>, now: Instant, dozes: bool) -> Option<Asleep> {
        let rings = self.rings_of(w);
        let leads = match dozes || waker.is_none() {
            true => RingSet::NONE,
            false => self.without_leader(rings).with(self.left_alone(rings, now)),
        };
        for ring in leads.iter() {
            let own = self.rings.at_mut(ring);
            if own.watch.spinning == 0 && !own.arm() {
                // (Nobody else sees to what lies on another's ring.)
                self.poll_these(RingSet::of(ring), now);
                return None;
            }
        }
        self.mux.sleeps += 1;
        let timeout = w.deadline.map(|deadline| deadline.since(now));
        let Some(waker) = waker else {
            let timeout = Some(timeout.unwrap_or(WITHOUT_WAKER).min(WITHOUT_WAKER));
            return Some(Asleep { key: None, waker: -1, rings, leads, led: ArrayVec::new(), in_ring: None, timeout });
        };
        let mut asleep = Asleep { key: None, waker, rings, leads, led: ArrayVec::new(), in_ring: None, timeout };
        self.enter_sleep(&mut asleep, w, now);
        let key = self.mux.sleepers.insert(super::Sleeper { waker: asleep.waker, signalled: false, told_to_doze: false, rings, leads });
        asleep.key = Some(key);
        thread.generation.set(fork_generation());
        thread.asleep.set(Some(key));
        for &socket in w.sockets {
            if let Some(socket) = self.sockets.get_mut(socket) {
                socket.watch.sleepers.push(key.index);
            }
        }
        for &epoll in w.epolls {
            if let Some(epoll) = self.mux.epolls.get_mut(epoll) {
                epoll.sleepers.push(key.index);
            }
        }
        for ring in leads.iter() {
            self.rings.at_mut(ring).watch.leader = Some(key.index);
        }
        for ring in rings.iter() {
            let watch = &mut self.rings.at_mut(ring).watch;
            watch.sleepers += 1;
            if asleep.in_ring == Some(ring) {
                watch.in_ring = Some(key);
            }
            if dozes && watch.dozer.is_none() {
                watch.dozer = Some(key.index);
                asleep.wake_within(DOZE);
            }
        }
        Some(asleep)
    }

    /// On what the thread sleeps that leads these rings, and how long.
    fn enter_sleep(&mut self, asleep: &mut Asleep, w: &Waiting<'_>, now: Instant) {
        for ring in asleep.leads.iter() {
            let own = self.rings.at_mut(ring);
            if let Some(deadline) = own.ring.sleep_deadline() {
                asleep.wake_within(deadline.since(now));
            }
            // (One at a time: a leader that was woken has its wake-up yet to take.)
            if own.watch.in_ring.is_some() {
                asleep.wake_within(WAKEUP_IS_TAKEN);
                continue;
            }
            asleep.led.extend(own.ring.wait_fd());
        }
        if let Some(ring) = asleep.rings.only().filter(|_| asleep.leads == asleep.rings && !asleep.led.is_empty())
            && self.sleeps_on_ring_alone(w, ring)
        {
            asleep.in_ring = Some(ring);
            asleep.waker = self.rings.at_mut(ring).ring.begin_sleep();
            return;
        }
        for ring in asleep.leads.iter() {
            // (What is beside a ring is its own sleeper's.)
            self.rings.at_mut(ring).watch_beside(false);
        }
    }

    /// Tells the device what the leader has seen of its descriptor, which saves it asking.
    fn slept(&mut self, thread: &Thread, asleep: &Asleep, slept: &Slept) {
        let Some(key) = asleep.key.filter(|_| thread.asleep.get() == asleep.key) else { return };
        // (Of several, each asks for itself.)
        let Some(ring) = asleep.leads.only() else { return };
        let own = self.rings.at_mut(ring);
        if own.watch.leader == Some(key.index) && slept.is_ring_known {
            own.ring.slept(slept.ring.iter().copied());
        }
        if asleep.in_ring.is_some() && slept.ring.iter().any(|&event| Ring::is_of_sleeper(event)) {
            own.ring.clear_sleeper();
        }
    }

    /// Undoes [`Offload::fall_asleep`]. Whether somebody had woken the thread, and whether to doze.
    fn wake_up(&mut self, thread: &Thread, w: &Waiting<'_>, asleep: &Asleep) -> (bool, bool) {
        let Some(key) = asleep.key else { return (false, false) };
        if thread.asleep.take() != Some(key) {
            // A handler waited meanwhile, and took this wait for one that was left.
            return (true, false);
        }
        for &socket in w.sockets {
            if let Some(socket) = self.sockets.get_mut(socket) {
                socket.watch.sleepers.retain(|&sleeper| sleeper != key.index);
            }
        }
        for &epoll in w.epolls {
            if let Some(epoll) = self.mux.epolls.get_mut(epoll) {
                epoll.sleepers.retain(|&sleeper| sleeper != key.index);
            }
        }
        let Some(sleeper) = self.mux.sleepers.remove(key) else { return (false, false) };
        self.stop_watching(key.index, &sleeper);
        (sleeper.signalled, sleeper.told_to_doze)
    }
}

impl Asleep {
    fn wake_within(&mut self, longest: Duration) {
        self.timeout = Some(self.timeout.map_or(longest, |timeout| timeout.min(longest)));
    }
}

/// What ended a sleep; nothing: the timeout.
struct Slept {
    kernel: bool,
    waker: bool,
    /// Nothing more has woken the leader than this.
    is_ring_known: bool,
    ring: ArrayVec<u64, SLEPT_MAX>,
}

fn sleep_on(kernel: &mut [libc::pollfd], asleep: &Asleep, sigmask: Option<&libc::sigset_t>) -> std::io::Result<Slept> {
    if asleep.in_ring.is_some() {
        return sleep_in_ring(asleep, sigmask);
    }
    let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // The thread's own, the rings' that it leads, and the kernel's that its wait names.
    let (first, count) = (1 + asleep.led.len(), 1 + asleep.led.len() + kernel.len());
    let mut on_stack = [readable(asleep.waker); FEW + 2];
    let mut on_heap = Vec::new();
    let fds = if count <= on_stack.len() {
        &mut on_stack[..count]
    } else {
        on_heap.resize(count, readable(asleep.waker));
        &mut on_heap[..]
    };
    for (slot, &ring) in fds[1..].iter_mut().zip(&asleep.led) {
        *slot = readable(ring);
    }
    fds[first..].copy_from_slice(kernel);
    ppoll(fds, asleep.timeout, sigmask)?;
    kernel.copy_from_slice(&fds[first..]);
    Ok(Slept {
        kernel: kernel.iter().any(|fd| fd.revents != 0),
        waker: fds[0].revents != 0,
        is_ring_known: asleep.led.len() == 1 && fds[1].revents == 0,
        ring: ArrayVec::new(),
    })
}

/// Sleeps on the ring alone: one system call, and no other to find out who woke the thread. (And the kernel lets who wakes a thread in epoll_wait
/// finish what it does; a thread in poll(2) on an epoll instance takes its core away.)
fn sleep_in_ring(asleep: &Asleep, sigmask: Option<&libc::sigset_t>) -> std::io::Result<Slept> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; SLEPT_MAX];
    let ring = asleep.led.first().copied().unwrap_or(-1);
    let count = epoll_wait(ring, &mut events, asleep.timeout, sigmask)?;
    let kernel = events.iter().take(count).any(|event| event.u64 == BESIDE);
    let ring = events.iter().take(count).map(|event| event.u64).collect();
    Ok(Slept { kernel, waker: false, is_ring_known: count != 0, ring })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_yields_as_often_as_it_is_told() {
        let steps = |every, step| {
            let mut yields = Yields { every, rounds: 0 };
            (0..100).filter(|_| yields.apply(step) == Step::Yield).count()
        };
        assert_eq!((steps(0, Step::Poll), steps(1, Step::Poll), steps(10, Step::Poll)), (0, 100, 10));
        assert_eq!((steps(1, Step::Stop), steps(10, Step::Yield)), (0, 100), "what is over is over");
    }
}
