//! Sleeping, until what a wait is for may have come.

use core::time::Duration;

use arrayvec::ArrayVec;
use ringway_devices::Ring;
use ringway_host::queues::{BESIDE, SLEPT_MAX};
use ringway_host::sleep::{epoll_wait, ppoll};
use ringway_stack::time::Instant;

use super::super::Sleeper;
use super::super::sleepers::DOZE;
use super::super::thread::{self, Marks, Thread};
use super::{Waited, Waiting, interrupted};
use crate::process::{Offload, Process, fork_generation};
use crate::rings::{RINGS_MAX, RingSet};

/// A thread that is to sleep on the ring's descriptor while another one has yet to take its wake-up there would find the descriptor readable, and look
/// again and again on a core that the other one may be waiting for. It sleeps for so long instead, and then looks.
const WAKEUP_IS_TAKEN: Duration = Duration::from_micros(100);

/// A thread that could not get an eventfd sleeps at most this long at a time.
const WITHOUT_WAKER: Duration = Duration::from_millis(1);

/// Kernel descriptors that are polled without an allocation.
const FEW: usize = 14;

/// Sleeps until woken, again and again if it was not for this.
pub(super) fn sleep<T>(
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
        let is_signal = match &slept {
            Some(Ok(slept)) if slept.kernel => return Waited::Kernel,
            Some(Ok(_)) => is_signalled(w.sigmask),
            Some(Err(error)) => is_interruption(error),
            None => false,
        };
        // Without a handler of the program's that the library saw, the kernel's word counts.
        if is_signal && (thread.interrupted(marks, w.restart) || !thread.signalled(marks) && !w.outlives_stop()) {
            return Waited::Interrupted;
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
    /// kernel's is beside it: [`super::super::beside`].)
    in_ring: Option<u16>,
    timeout: Option<Duration>,
}

impl Offload {
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
        let key = self.mux.sleepers.insert(Sleeper { waker: asleep.waker, signalled: false, told_to_doze: false, rings, leads });
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

fn is_interruption(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINTR)
}

/// Whether a signal came that only a sleep lets through. (The kernel delivers none in a poll that finds something: as long as each does, for others or in vain, none would
/// ever come.)
fn is_signalled(sigmask: Option<&libc::sigset_t>) -> bool {
    sigmask.is_some() && ppoll(&mut [], Some(Duration::ZERO), sigmask).is_err_and(|error| is_interruption(&error))
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
