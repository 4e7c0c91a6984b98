//! Who watches a ring: spinning threads, sleeping threads, the progress thread.
//!
//! Each ring has its watchers, and a thread is one of those of the rings that its wait concerns. While a thread spins, it polls the ring, and the ring is not armed: peers need not wake anybody. Of the threads that
//! sleep, one (the *leader*) sleeps on the ring's descriptor as well as on its own; the ring is armed for it. The
//! leader hands on what it finds to the others, each through its own eventfd; when it goes back to the program, another
//! sleeper is woken and takes the lead. When other threads come and go so often that they see everything soon anyhow, the leader is
//! told to *doze*: then the ring is not armed, no peer pays for waking it, and it looks for itself now and then.
//! While no thread waits, the progress thread ticks; when nothing happens it sleeps deeply, on the armed ring, until a peer or a timer
//! wants something.

use core::time::Duration;
use std::os::fd::RawFd;

use ringway_host::spin::current_core;
use ringway_stack::device::Wake;
use ringway_stack::ring::FlowId;
use ringway_stack::time::Instant;

use super::State;
use super::beside::Beside;
use super::thread::Thread;
use crate::process::{Offload, fork_generation};
use crate::rings::{ProcessRing, RingSet};
use crate::slab::Key;

/// A ring that receives faster than this many polls can drain does not let itself be armed: whoever wakes next polls on.
const ARM_TRIES: u32 = 4;

/// Arming costs a store and a fence. After this many in one deep sleep of the progress thread, the program is so
/// active that the thread is to tick instead.
const DEEP_ARMS_MAX: u32 = 64;

/// So many threads that go back to the program in one [`DOZE`] see what comes soon enough.
const LEADER_ARMS_MAX: u32 = 16;

/// How long a thread dozes: what the ring has for it may take as long, when the threads that were so busy suddenly are not.
pub(super) const DOZE: Duration = Duration::from_millis(1);

/// A thread that sleeps in a wait.
#[derive(Debug)]
pub(crate) struct Sleeper {
    /// Its eventfd.
    pub(crate) waker: RawFd,
    /// Whether it was woken already.
    pub(crate) signalled: bool,
    /// It is not to lead: others are busy.
    pub(super) told_to_doze: bool,
    /// The rings that it sleeps for.
    pub(super) rings: RingSet,
    /// Those that it led when it fell asleep: some of these, and others that nobody else looks after.
    pub(super) leads: RingSet,
}

/// A thread that sleeps for a ring by the ring's lock alone ([`super::alone`]): in no other table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lone {
    /// The flow for which it does; `None`: for any.
    pub(crate) flow: Option<FlowId>,
    /// Its eventfd.
    pub(crate) waker: RawFd,
    /// It was woken already.
    pub(super) is_woken: bool,
}

impl Lone {
    pub(crate) fn wake(&mut self) {
        if !core::mem::replace(&mut self.is_woken, true) {
            ringway_host::sleep::signal(self.waker);
        }
    }
}

/// How a ring is watched. See the module's documentation.
#[derive(Debug)]
pub(crate) struct RingWatch {
    /// Threads that spin.
    pub(super) spinning: u32,
    /// Threads that sleep for it.
    pub(super) sleepers: u32,
    /// The sleeper that sleeps on the ring.
    pub(super) leader: Option<u32>,
    /// The sleeper that sleeps in epoll_wait on the ring's descriptor, and on no other, and takes its wake-ups there.
    pub(super) in_ring: Option<Key>,
    /// The thread that sleeps on the ring by its lock alone.
    lone: Option<Lone>,
    /// How often one did.
    pub(super) lone_sleeps: u64,
    /// The sleeper that dozes. Invariant: it wakes within a [`DOZE`].
    pub(super) dozer: Option<u32>,
    /// Until when nobody needs to lead.
    busy_until: Instant,
    /// When the present count of `attended` began.
    busy_since: Instant,
    /// Threads that went back to the program while another led, or dozed.
    attended: u32,
    /// The ring will signal its descriptor.
    armed: bool,
    /// But not for frames that bring nothing but an acknowledgment, since nobody waited for one when the ring was armed.
    sleeps_through_acknowledgments: bool,
    deep: Option<Deep>,
    /// Calls that had the ring's lock alone, when a sleeper last looked whether somebody uses it.
    pub(super) calls_seen: u64,
    /// The epoll instance that the ring's descriptor tells of as well.
    pub(super) beside: Beside,
}

/// The progress thread's deep sleep.
#[derive(Debug)]
struct Deep {
    /// When it wakes by itself.
    until: Option<Instant>,
    arms: u32,
}

impl RingWatch {
    pub(crate) const fn new() -> Self {
        Self {
            spinning: 0,
            sleepers: 0,
            leader: None,
            in_ring: None,
            lone: None,
            lone_sleeps: 0,
            dozer: None,
            busy_until: Instant::ZERO,
            busy_since: Instant::ZERO,
            attended: 0,
            armed: false,
            sleeps_through_acknowledgments: false,
            deep: None,
            calls_seen: 0,
            beside: Beside::new(),
        }
    }

    /// Whether the progress thread sleeps on the ring.
    #[inline]
    pub(crate) const fn is_deep(&self) -> bool {
        self.deep.is_some()
    }

    /// Whether somebody sleeps on the ring whom acknowledgments do not wake.
    #[inline]
    pub(super) const fn ignores_acknowledgments(&self) -> bool {
        self.armed && self.sleeps_through_acknowledgments
    }

    /// A thread goes back to the program while another leads or dozes.
    fn attended(&mut self, now: Instant) {
        if now.since(self.busy_since) > DOZE {
            (self.busy_since, self.attended) = (now, 0);
        }
        self.attended += 1;
        if self.attended > LEADER_ARMS_MAX {
            self.busy_until = now + 2 * DOZE;
        }
    }

    /// Whether a thread spins on the ring.
    #[inline]
    pub(crate) const fn has_spinners(&self) -> bool {
        self.spinning != 0
    }

    /// Whether somebody sleeps until the ring wakes it, which nothing sees to.
    #[inline]
    pub(crate) const fn is_relied_on(&self) -> bool {
        let has_sleepers = self.deep.is_some() || self.leader.is_some() || self.sleepers != 0 || self.lone.is_some();
        self.spinning == 0 && !self.armed && has_sleepers
    }

    /// Whether no thread of the program's waits for it, and it has no leader either.
    const fn is_free(&self) -> bool {
        self.spinning == 0 && self.sleepers == 0 && self.leader.is_none() && self.lone.is_none()
    }

    /// Whether a thread sleeps on the ring's own descriptor.
    pub(crate) const fn is_slept_on(&self) -> bool {
        self.in_ring.is_some()
    }

    /// As [`RingWatch::is_free`], and the progress thread does not sleep on it.
    pub(super) const fn is_left_alone(&self) -> bool {
        self.is_free() && self.deep.is_none()
    }

    /// The thread that sleeps for a flow by the ring's lock alone.
    #[inline]
    pub(crate) fn lone_for(&mut self, flow: FlowId) -> Option<&mut Lone> {
        self.lone.as_mut().filter(|lone| lone.flow.is_none_or(|its| its == flow))
    }

    /// Whether such threads are so many that nobody needs to lead.
    pub(super) fn is_busy(&self, now: Instant) -> bool {
        now < self.busy_until
    }
}

impl State {
    pub(crate) fn wake(&mut self, sleeper: u32) {
        if let Some(sleeper) = self.sleepers.get_mut(sleeper)
            && !sleeper.signalled
        {
            sleeper.signalled = true;
            let waker = sleeper.waker;
            self.wake_by(waker);
        }
    }

    /// A ring's leader is not to lead it. `false`: it is on its way back to the program, perhaps.
    fn tell_to_doze(&mut self, sleeper: u32, ring: u16) -> bool {
        let told = self.sleepers.get_mut(sleeper).is_some_and(|sleeper| {
            if !sleeper.rings.contains(ring) {
                // It looks after this one for others: it sleeps on without it.
                return !sleeper.signalled;
            }
            sleeper.told_to_doze |= !sleeper.signalled;
            sleeper.told_to_doze
        });
        if told {
            self.wake(sleeper);
        }
        told
    }

    /// Wakes one of those that sleep for a ring.
    fn wake_any(&mut self, ring: u16) {
        let awake = self.sleepers.iter().find(|(_, sleeper)| !sleeper.signalled && sleeper.rings.contains(ring));
        if let Some(sleeper) = awake.map(|(key, _)| key.index) {
            self.wake(sleeper);
        }
    }

    /// Calls the progress thread.
    pub(crate) fn call_progress(&self) {
        if let Some(progress) = self.progress {
            ringway_host::sleep::signal(progress);
        }
    }
}

impl Offload {
    /// The progress thread is to tick again, for that ring.
    #[cold]
    pub(super) fn rouse_progress(&mut self, ring: u16) {
        self.rings.at_mut(ring).watch.deep = None;
        self.mux.call_progress();
    }

    /// A thread begins to spin on these rings.
    #[inline]
    pub(super) fn begin_spin(&mut self, thread: &Thread, rings: RingSet) {
        thread.generation.set(fork_generation());
        thread.spinning.set(rings);
        for ring in rings.iter() {
            let own = self.rings.at_mut(ring);
            own.watch.spinning += 1;
            own.disarm();
            own.ring.tidy();
        }
    }

    /// A thread that spins goes on with these rings.
    #[cold]
    pub(super) fn spin_elsewhere(&mut self, thread: &Thread, rings: RingSet, now: Instant) {
        let before = thread.spinning.take();
        self.begin_spin(thread, rings);
        before.iter().for_each(|ring| self.rings.at_mut(ring).watch.spinning -= 1);
        self.attend(now);
    }

    /// A thread stops spinning; what remains to be watched is watched by others.
    #[inline]
    pub(super) fn end_spin(&mut self, thread: &Thread, now: Instant) {
        // Not if a handler waited meanwhile, and took this wait for one that was left.
        let rings = thread.spinning.take();
        if !rings.is_empty() {
            for ring in rings.iter() {
                self.rings.at_mut(ring).watch.spinning -= 1;
                // Timers may have been set while it looked by the ring's lock alone.
                self.check_deep_sleep(ring);
            }
            self.stand_up(thread);
        }
        self.attend(now);
    }

    /// The calling thread, which spins, claims the core that it runs on, and gives up the one that it has.
    /// `false`: somebody spins there already, of this process or of a connected one.
    pub(super) fn sit(&mut self, thread: &Thread) -> bool {
        // (Where it spins no more, a handler waited meanwhile, and took this wait for one that was left: nobody would stand up for it.)
        let Some(ring) = thread.spinning.get().iter().next() else { return true };
        self.stand_up(thread);
        let queues = &mut self.rings.at_mut(ring).ring;
        let claim = self.mux.cores.claim(current_core(), |core| queues.claim_core(core));
        thread.claim.set(claim.map(|claim| (ring, claim)));
        match claim {
            Some(_) => self.mux.core_claims += 1,
            None => self.mux.core_claims_refused += 1,
        }
        claim.is_some()
    }

    #[inline]
    fn stand_up(&mut self, thread: &Thread) {
        if let Some((ring, claim)) = thread.claim.take() {
            let queues = &mut self.rings.at_mut(ring).ring;
            self.mux.cores.release(claim, |core| queues.release_core(core));
        }
    }

    /// Takes the calling thread out of the tables in which a wait entered it that will not go on (a handler left it by longjmp,
    /// or the thread ends), or that has a handler's wait on top of it: it will find out.
    #[cold]
    pub(super) fn forsake(&mut self, thread: &Thread, now: Instant) {
        let (spun, slept) = (thread.spinning.take(), thread.asleep.take());
        if thread.generation.get() != fork_generation() {
            // The tables were a parent's, and so was the claim.
            thread.claim.set(None);
            thread.lone.set(None);
            return;
        }
        if let Some(registered) = thread.lone.take() {
            registered.rings.iter().for_each(|ring| self.rings.at_mut(ring).deregister_alone());
            registered.end_sleep();
        }
        self.stand_up(thread);
        spun.iter().for_each(|ring| self.rings.at_mut(ring).watch.spinning -= 1);
        if let Some(key) = slept
            && let Some(sleeper) = self.mux.sleepers.remove(key)
        {
            for (_, socket) in self.sockets.iter_mut() {
                socket.watch.sleepers.retain(|&sleeper| sleeper != key.index);
            }
            for (_, epoll) in self.mux.epolls.iter_mut() {
                epoll.sleepers.retain(|&sleeper| sleeper != key.index);
            }
            self.stop_watching(key.index, &sleeper);
        }
        self.attend(now);
    }

    /// A sleeper of that number neither sleeps for any ring any more, nor leads, nor dozes.
    pub(super) fn stop_watching(&mut self, sleeper: u32, was: &Sleeper) {
        for ring in was.rings.with(was.leads).iter() {
            let own = self.rings.at_mut(ring);
            own.watch.sleepers -= u32::from(was.rings.contains(ring));
            own.watch.dozer.take_if(|dozer| *dozer == sleeper);
            if own.watch.in_ring.take_if(|key| key.index == sleeper).is_some() {
                own.ring.end_sleep();
            }
            if own.watch.leader.take_if(|leader| *leader == sleeper).is_some() {
                own.disarm();
            }
        }
    }

    /// Before a thread goes back to the program: makes sure that whoever relies on being woken will be.
    #[inline]
    pub(crate) fn attend(&mut self, now: Instant) {
        for ring in self.rings.touched().iter() {
            if self.rings.at(ring).watch.is_relied_on() {
                self.attend_others(ring, now);
            }
        }
    }

    /// A call has left something on a ring that waits for an acknowledgment, while whoever sleeps on it sleeps through those: from now on, they
    /// wake the sleeper too.
    #[cold]
    pub(super) fn await_acknowledgments(&mut self, ring: u16) {
        let own = self.rings.at_mut(ring);
        if own.ring.wake() == Wake::Solicited {
            return;
        }
        own.watch.armed = false;
        if !own.arm() {
            // Some sleep there.
            self.wake_watcher(ring);
        }
    }

    /// The leader, or else the progress thread, is to look.
    fn wake_watcher(&mut self, ring: u16) {
        let Self { rings, mux, .. } = self;
        let watch = &mut rings.at_mut(ring).watch;
        match (watch.leader, &mut watch.lone) {
            (Some(leader), _) => mux.wake(leader),
            (None, Some(lone)) => lone.wake(),
            (None, None) => self.rouse_progress(ring),
        }
    }

    fn attend_others(&mut self, ring: u16, now: Instant) {
        let Self { rings, mux, .. } = self;
        let watch = &mut rings.at_mut(ring).watch;
        match (watch.leader, watch.dozer) {
            (None, None) => {}
            (None, Some(_)) => return watch.attended(now),
            (Some(leader), _) => {
                watch.attended(now);
                if watch.is_busy(now) && mux.tell_to_doze(leader, ring) {
                    return;
                }
            }
        }
        if watch.leader.is_none() && watch.sleepers != 0 {
            // The one who wakes takes the lead; meanwhile the progress thread, if deep asleep, relies on the ring as well.
            mux.wake_any(ring);
        }
        if let Some(deep) = &mut watch.deep {
            deep.arms += 1;
            if deep.arms > DEEP_ARMS_MAX {
                self.rouse_progress(ring);
            }
        }
        let watch = &self.rings.at(ring).watch;
        if watch.leader.is_none() && watch.deep.is_none() && watch.lone.is_none() {
            return;
        }
        for _ in 0..ARM_TRIES {
            if self.rings.at_mut(ring).arm() {
                return;
            }
            self.rings.at_mut(ring).poll(now);
            self.dispatch();
        }
        self.wake_watcher(ring);
    }

    /// Whether no thread spins on a ring, nor sleeps until one wakes it.
    pub(super) fn is_unwatched(&self) -> bool {
        self.mux.sleepers.len() == 0 && self.rings.iter().all(|own| own.watch.spinning == 0 && !own.watch.armed)
    }

    /// The progress thread goes to sleep on all rings. `false`: there is something to do first.
    pub(crate) fn sleep_deeply(&mut self) -> bool {
        for ring in self.rings.all().iter() {
            let own = self.rings.at_mut(ring);
            if own.watch.spinning == 0 && !own.arm() {
                return false;
            }
        }
        self.leave_beside_to_its_sleeper();
        for own in self.rings.iter_mut() {
            own.watch.deep = Some(Deep { until: own.ring.sleep_deadline(), arms: 0 });
        }
        true
    }

    /// The progress thread is awake.
    pub(crate) fn wake_from_deep(&mut self) {
        for own in self.rings.iter_mut() {
            if own.watch.deep.take().is_some() {
                own.disarm();
            }
        }
    }

    /// A call set a timer that ends before the progress thread's sleep does.
    pub(crate) fn check_deep_sleep(&mut self, ring: u16) {
        if self.rings.at_mut(ring).wants_sooner() {
            self.rouse_progress(ring);
        }
    }
}

impl ProcessRing {
    /// A thread is to sleep on the ring by its lock alone, as long as no other thread of the program's watches the ring. `false`: one does, or there is
    /// something to poll. (The progress thread, if deep asleep, relies on the ring as well: whoever rises here finds that, and sees to it.)
    pub(crate) fn register_alone(&mut self, lone: Lone) -> bool {
        let is_registered = self.watch.is_free() && self.watch.in_ring.is_none() && self.watch.dozer.is_none() && self.arm();
        if is_registered {
            // (What is beside a ring is its own sleeper's.)
            self.watch_beside(false);
            self.watch.lone = Some(lone);
            self.watch.lone_sleeps += 1;
        }
        is_registered
    }

    /// That thread is awake.
    pub(crate) fn deregister_alone(&mut self) {
        if self.watch.lone.take().is_some() {
            self.disarm();
        }
    }

    /// Ends what [`ProcessRing::arm`] began.
    #[inline]
    fn disarm(&mut self) {
        if self.watch.armed {
            self.watch.armed = false;
            self.ring.disarm();
        }
    }

    /// Whether a timer ends before the progress thread's deep sleep does.
    pub(crate) fn wants_sooner(&mut self) -> bool {
        let Some(deep) = &self.watch.deep else { return false };
        match (self.ring.sleep_deadline(), deep.until) {
            (Some(deadline), Some(until)) => deadline < until,
            (deadline, None) => deadline.is_some(),
            (None, Some(_)) => false,
        }
    }

    /// Makes the ring signal its descriptor. `false`: it has something to poll right now.
    pub(super) fn arm(&mut self) -> bool {
        if !self.watch.armed {
            let wake = self.ring.wake();
            self.watch.armed = self.ring.arm(wake);
            self.watch.sleeps_through_acknowledgments = wake == Wake::Solicited;
        }
        self.watch.armed
    }
}
