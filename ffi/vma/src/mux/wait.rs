//! The one place where threads wait: look, spin, sleep.

use core::time::Duration;

use ringway_host::sleep::{ppoll, yield_core};
use ringway_host::spin::{Cores, Limit, Outcome, Seat, Spin, Step};
use ringway_stack::device::Device;
use ringway_stack::time::Instant;
use std::sync::LazyLock;

pub(crate) use super::thread::note_signal;
use super::thread::{self, Marks};
use crate::params::POLL_US_DEFAULT;
use crate::process::{Offload, Process};

/// Looks at the ring in one hold of the lock, unless another thread asks for it. (Without pauses in between: on
/// recent processors a pause costs as much as a line's way from core to core.)
const LOOKS: u32 = 64;

/// A spin shorter than this needs no seat on its core.
const UNSEATED: Duration = Duration::from_micros(20);

/// A thread that could not get an eventfd sleeps at most this long at a time.
const WITHOUT_WAKER: Duration = Duration::from_millis(1);

/// Kernel descriptors that are polled without an allocation.
const FEW: usize = 14;

static CORES: LazyLock<Cores> = LazyLock::new(Cores::new);

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
}

/// Waits until `check` finds something. It runs under the lock, on a ring freshly polled, once before anything else.
pub(crate) fn wait<T>(process: &Process, w: &mut Waiting<'_>, mut check: impl FnMut(&mut Offload, Instant) -> Option<T>) -> Waited<T> {
    let marks = Marks::now();
    let started = process.now();
    {
        let mut offload = process.lock();
        offload.poll_if_due(started);
        if let Some(found) = check(&mut offload, started) {
            return Waited::Ready(found);
        }
    }
    if w.deadline.is_some_and(|deadline| deadline <= started) {
        return match ask_kernel(w) {
            Asked::Nothing => Waited::TimedOut,
            Asked::Ready => Waited::Kernel,
            Asked::Signal => Waited::Interrupted,
        };
    }
    let limit = limit(process, w.spin);
    let before = history(w.spin).get();
    let mut state = Spin::new(started, &before, limit);
    let (spun, until) = spin(process, w, marks, &mut state, started, &mut check);
    let (waited, until) = match spun {
        Some(waited) => (waited, until),
        None => (sleep(process, w, marks, &mut check), process.now()),
    };
    let outcome = match waited {
        Waited::Ready(_) | Waited::Kernel => Outcome::Satisfied,
        Waited::TimedOut | Waited::Interrupted => Outcome::InVain,
    };
    let mut learned = before;
    learned.ended(limit, until.since(started), outcome, &state);
    if learned != before {
        history(w.spin).set(learned);
    }
    waited
}

fn history(class: SpinClass) -> HistoryCell {
    HistoryCell(class)
}

/// The calling thread's history of one class.
struct HistoryCell(SpinClass);

impl HistoryCell {
    fn get(&self) -> ringway_host::spin::History {
        thread::with(|thread| match self.0 {
            SpinClass::Rx => thread.rx.get(),
            SpinClass::Select => thread.select.get(),
        })
    }

    fn set(&self, history: ringway_host::spin::History) {
        thread::with(|thread| match self.0 {
            SpinClass::Rx => thread.rx.set(history),
            SpinClass::Select => thread.select.set(history),
        });
    }
}

fn limit(process: &Process, class: SpinClass) -> Limit {
    let set = match class {
        SpinClass::Rx => process.params.rx_poll_us,
        SpinClass::Select => process.params.select_poll_us,
    };
    Limit::from_vma(set.unwrap_or(POLL_US_DEFAULT), set.is_some())
}

/// Looks at the ring again and again, and gives the time of the last look. `None`: the budget is spent.
fn spin<T>(
    process: &Process,
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
    let exact = matches!(limit(process, w.spin), Limit::Exact(_));
    let mut seat: Option<Seat<'_>> = None;
    let mut seen = {
        let mut offload = process.lock();
        offload.begin_spin();
        // What happened since the first look is looked at in the first round.
        offload.mux.activity.wrapping_sub(1)
    };
    // A signal that the mask lets through while the thread's own mask blocks it can only be noticed by the kernel.
    let mut ask_now = w.sigmask.is_some();
    let ended = loop {
        let now = process.now();
        if let Some(found) = look(process, now, &mut seen, check) {
            return (Some(Waited::Ready(found)), now);
        }
        if marks.interrupted(w.restart) {
            break Some(Waited::Interrupted);
        }
        if w.deadline.is_some_and(|deadline| deadline <= now) {
            break Some(Waited::TimedOut);
        }
        if ask_now || kernel_is_due(w, ratio) {
            ask_now = false;
            match ask_kernel(w) {
                Asked::Nothing => {}
                Asked::Ready => break Some(Waited::Kernel),
                Asked::Signal => break Some(Waited::Interrupted),
            }
        }
        if !exact && seat.is_none() && now.since(started) > UNSEATED {
            seat = CORES.sit();
            if seat.is_none() {
                break None;
            }
        }
        match spin.step(now) {
            Step::Poll if process.state().has_waiters() => (0..16).for_each(|_| core::hint::spin_loop()),
            Step::Poll => {}
            Step::Yield => {
                yield_core();
                spin.yielded(now, process.now());
            }
            Step::Stop => break None,
        }
    };
    let now = process.now();
    process.lock().end_spin(now);
    (ended, now)
}

/// A few looks in one hold of the lock.
#[inline]
fn look<T>(process: &Process, now: Instant, seen: &mut u64, check: &mut impl FnMut(&mut Offload, Instant) -> Option<T>) -> Option<T> {
    let mut offload = process.lock();
    for _ in 0..LOOKS {
        offload.poll_if_due(now);
        if offload.mux.activity != *seen {
            *seen = offload.mux.activity;
            if let Some(found) = check(&mut offload, now) {
                offload.end_spin(now);
                return Some(found);
            }
        }
        if process.state().has_waiters() {
            break;
        }
    }
    None
}

#[inline]
fn kernel_is_due(w: &Waiting<'_>, ratio: u32) -> bool {
    !w.kernel.is_empty()
        && ratio != 0
        && thread::with(|thread| {
            let since = thread.since_kernel.get() + 1;
            thread.since_kernel.set(if since >= ratio { 0 } else { since });
            since >= ratio
        })
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
    process: &Process,
    w: &mut Waiting<'_>,
    mut marks: Marks,
    check: &mut impl FnMut(&mut Offload, Instant) -> Option<T>,
) -> Waited<T> {
    let waker = thread::waker();
    loop {
        if marks.interrupted(w.restart) {
            return Waited::Interrupted;
        }
        let asleep = {
            let now = process.now();
            let mut offload = process.lock();
            offload.poll_if_due(now);
            if let Some(found) = check(&mut offload, now) {
                offload.attend(now);
                return Waited::Ready(found);
            }
            match offload.fall_asleep(w, waker, now) {
                Some(asleep) => asleep,
                None => continue,
            }
        };
        let slept = thread::sleeping(waker.unwrap_or(-1), marks, || sleep_on(w.kernel, &asleep, w.sigmask));
        let now = process.now();
        let (woken, found) = {
            let mut offload = process.lock();
            let woken = offload.wake_up(w, &asleep);
            offload.poll_if_due(now);
            let found = check(&mut offload, now);
            offload.attend(now);
            (woken, found)
        };
        if woken || matches!(slept, Some(Ok(Slept { waker: true, .. })) | None) {
            thread::clear_waker();
        }
        if let Some(found) = found {
            return Waited::Ready(found);
        }
        match slept {
            Some(Ok(slept)) if slept.kernel => return Waited::Kernel,
            // Without a handler of the program's that the library saw, the kernel's word counts.
            Some(Err(error)) if error.raw_os_error() == Some(libc::EINTR) && (marks.interrupted(w.restart) || !marks.any()) => {
                return Waited::Interrupted;
            }
            _ => {}
        }
        if marks.any() {
            if marks.interrupted(w.restart) {
                return Waited::Interrupted;
            }
            marks = Marks::now();
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
    /// The ring's descriptor, if this thread is the leader.
    ring: i32,
    leads: bool,
    timeout: Option<Duration>,
}

impl Offload {
    /// Enters the calling thread among the sleepers. `None`: the ring has something, look again.
    fn fall_asleep(&mut self, w: &Waiting<'_>, waker: Option<i32>, now: Instant) -> Option<Asleep> {
        let leads = self.mux.watch.leader.is_none() && waker.is_some();
        if leads && self.mux.watch.spinning == 0 && !self.arm() {
            return None;
        }
        self.mux.sleeps += 1;
        let mut timeout = w.deadline.map(|deadline| deadline.since(now));
        let Some(waker) = waker else {
            let timeout = Some(timeout.unwrap_or(WITHOUT_WAKER).min(WITHOUT_WAKER));
            return Some(Asleep { key: None, waker: -1, ring: -1, leads, timeout });
        };
        let key = self.mux.sleepers.insert(super::Sleeper { waker, signalled: false });
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
        let mut ring = -1;
        if leads {
            self.mux.watch.leader = Some(key.index);
            ring = self.ring.device().wait_fd().unwrap_or(-1);
            let timer = self.ring.next_deadline().map(|deadline| deadline.since(now));
            timeout = [timeout, timer].into_iter().flatten().min();
        }
        Some(Asleep { key: Some(key), waker, ring, leads, timeout })
    }

    /// Undoes [`Offload::fall_asleep`]. Whether somebody had woken the thread.
    fn wake_up(&mut self, w: &Waiting<'_>, asleep: &Asleep) -> bool {
        let Some(key) = asleep.key else { return false };
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
        if asleep.leads {
            self.mux.watch.leader = None;
            self.disarm();
        }
        self.mux.sleepers.remove(key).is_some_and(|sleeper| sleeper.signalled)
    }
}

/// What ended a sleep; nothing: the timeout.
struct Slept {
    kernel: bool,
    waker: bool,
}

fn sleep_on(kernel: &mut [libc::pollfd], asleep: &Asleep, sigmask: Option<&libc::sigset_t>) -> std::io::Result<Slept> {
    let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let (own, few) = ([readable(asleep.waker), readable(asleep.ring)], kernel.len() <= FEW);
    let mut on_stack = [readable(-1); FEW + 2];
    let mut on_heap = Vec::new();
    let count = kernel.len() + own.len();
    let fds = if few {
        &mut on_stack[..count]
    } else {
        on_heap.resize(count, readable(-1));
        &mut on_heap[..]
    };
    fds[..own.len()].copy_from_slice(&own);
    fds[own.len()..].copy_from_slice(kernel);
    ppoll(fds, asleep.timeout, sigmask)?;
    kernel.copy_from_slice(&fds[own.len()..]);
    Ok(Slept { kernel: kernel.iter().any(|fd| fd.revents != 0), waker: fds[0].revents != 0 })
}
