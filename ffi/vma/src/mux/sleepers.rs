//! Who watches the ring: spinning threads, sleeping threads, the progress thread.
//!
//! While a thread spins, it polls the ring, and the ring is not armed: peers need not wake anybody. Of the threads that
//! sleep, one (the *leader*) sleeps on the ring's descriptor as well as on its own; the ring is armed for it. The
//! leader hands on what it finds to the others, each through its own eventfd; when it goes back to the program, another
//! sleeper is woken and takes the lead. When other threads come and go so often that they see everything soon anyhow, the leader is
//! told to *doze*: then the ring is not armed, no peer pays for waking it, and it looks for itself now and then.
//! While no thread waits, the progress thread ticks; when nothing happens it sleeps deeply, on the armed ring, until a peer or a timer
//! wants something.

use core::time::Duration;
use std::os::fd::RawFd;

use ringway_host::HostQueues;
use ringway_host::spin::current_core;
use ringway_stack::device::{Queues, Wake};
use ringway_stack::time::Instant;

use super::State;
use super::beside::Beside;
use super::held::Held;
use super::thread::Thread;
use crate::process::{Offload, fork_generation};
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
}

/// How the ring is watched. See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct RingWatch {
    /// Threads that spin.
    pub(crate) spinning: u32,
    /// The sleeper that sleeps on the ring.
    pub(crate) leader: Option<u32>,
    /// The sleeper that sleeps in epoll_wait on the ring's descriptor, and on no other, and takes its wake-ups there.
    pub(super) in_ring: Option<Key>,
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
    /// The progress thread's eventfd.
    pub(crate) progress: Option<RawFd>,
    /// The epoll instance that the ring's descriptor tells of as well.
    pub(super) beside: Beside,
    /// What the progress thread looks after until it is sent.
    pub(super) held: Held,
}

/// The progress thread's deep sleep.
#[derive(Debug)]
struct Deep {
    /// When it wakes by itself.
    until: Option<Instant>,
    arms: u32,
}

impl RingWatch {
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
            ringway_host::sleep::signal(sleeper.waker);
        }
    }

    /// `false`: it is on its way back to the program, perhaps.
    fn tell_to_doze(&mut self, sleeper: u32) -> bool {
        let told = self.sleepers.get_mut(sleeper).is_some_and(|sleeper| {
            sleeper.told_to_doze |= !sleeper.signalled;
            sleeper.told_to_doze
        });
        if told {
            self.wake(sleeper);
        }
        told
    }

    fn wake_any(&mut self) -> bool {
        let awake = self.sleepers.iter().find(|(_, sleeper)| !sleeper.signalled).map(|(key, _)| key.index);
        awake.inspect(|&sleeper| self.wake(sleeper)).is_some()
    }

    /// The progress thread is to tick again.
    #[cold]
    pub(super) fn rouse_progress(&mut self) {
        self.watch.deep = None;
        if let Some(progress) = self.watch.progress {
            ringway_host::sleep::signal(progress);
        }
    }
}

impl Offload {
    /// A thread begins to spin.
    #[inline]
    pub(super) fn begin_spin(&mut self, thread: &Thread) {
        thread.generation.set(fork_generation());
        thread.spinning.set(true);
        self.mux.watch.spinning += 1;
        self.disarm();
        self.ring.tidy();
    }

    /// A thread stops spinning; what remains to be watched is watched by others.
    #[inline]
    pub(super) fn end_spin(&mut self, thread: &Thread, now: Instant) {
        // Not if a handler waited meanwhile, and took this wait for one that was left.
        if thread.spinning.take() {
            self.mux.watch.spinning -= 1;
            self.stand_up(thread);
        }
        self.attend(now);
    }

    /// The calling thread, which spins, claims the core that it runs on, and gives up the one that it has.
    /// `false`: somebody spins there already, of this process or of a connected one.
    pub(super) fn sit(&mut self, thread: &Thread) -> bool {
        if !thread.spinning.get() {
            // A handler waited meanwhile, and took this wait for one that was left: nobody would stand up for it.
            return true;
        }
        self.stand_up(thread);
        let device = self.ring.queues_mut();
        let claim = self.mux.cores.claim(current_core(), |core| device.claim_core(core));
        thread.claim.set(claim);
        match claim {
            Some(_) => self.mux.core_claims += 1,
            None => self.mux.core_claims_refused += 1,
        }
        claim.is_some()
    }

    #[inline]
    fn stand_up(&mut self, thread: &Thread) {
        if let Some(claim) = thread.claim.take() {
            let device = self.ring.queues_mut();
            self.mux.cores.release(claim, |core| device.release_core(core));
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
            return;
        }
        self.stand_up(thread);
        if spun {
            self.mux.watch.spinning -= 1;
        }
        if let Some(key) = slept
            && self.mux.sleepers.remove(key).is_some()
        {
            for (_, socket) in self.sockets.iter_mut() {
                socket.watch.sleepers.retain(|&sleeper| sleeper != key.index);
            }
            for (_, epoll) in self.mux.epolls.iter_mut() {
                epoll.sleepers.retain(|&sleeper| sleeper != key.index);
            }
            self.stop_watching(key.index);
        }
        self.attend(now);
    }

    /// A sleeper neither leads nor dozes any more.
    pub(super) fn stop_watching(&mut self, sleeper: u32) {
        let watch = &mut self.mux.watch;
        watch.dozer = watch.dozer.filter(|&dozer| dozer != sleeper);
        if watch.in_ring.take_if(|key| key.index == sleeper).is_some() {
            self.ring.queues_mut().end_sleep();
        }
        let watch = &mut self.mux.watch;
        if watch.leader == Some(sleeper) {
            watch.leader = None;
            self.disarm();
        }
    }

    /// Ends what [`Offload::arm`] began.
    #[inline]
    pub(crate) fn disarm(&mut self) {
        if self.mux.watch.armed {
            self.mux.watch.armed = false;
            self.ring.queues_mut().disarm();
        }
    }

    /// Makes the ring signal its descriptor. `false`: it has something to poll right now.
    pub(crate) fn arm(&mut self) -> bool {
        if !self.mux.watch.armed {
            let wake = self.ring.wake();
            self.mux.watch.armed = self.ring.queues_mut().arm(wake);
            self.mux.watch.sleeps_through_acknowledgments = wake == Wake::Solicited;
        }
        self.mux.watch.armed
    }

    /// Before a thread goes back to the program: makes sure that whoever relies on being woken will be.
    #[inline]
    pub(crate) fn attend(&mut self, now: Instant) {
        let watch = &self.mux.watch;
        let relied_on = watch.deep.is_some() || watch.leader.is_some();
        if watch.spinning == 0 && !watch.armed && (relied_on || self.mux.sleepers.len() != 0) {
            self.attend_others(now);
        }
    }

    /// A call has left something that waits for an acknowledgment, while whoever sleeps on the ring sleeps through those: from now on, they wake the
    /// sleeper too.
    #[cold]
    pub(super) fn await_acknowledgments(&mut self) {
        if self.ring.wake() == Wake::Solicited {
            return;
        }
        self.mux.watch.armed = false;
        if self.arm() {
            return;
        }
        // Some lie there.
        match self.mux.watch.leader {
            Some(leader) => self.mux.wake(leader),
            None => self.mux.rouse_progress(),
        }
    }

    fn attend_others(&mut self, now: Instant) {
        let watch = &mut self.mux.watch;
        match (watch.leader, watch.dozer) {
            (None, None) => {}
            (None, Some(_)) => return watch.attended(now),
            (Some(leader), _) => {
                watch.attended(now);
                if watch.is_busy(now) && self.mux.tell_to_doze(leader) {
                    return;
                }
            }
        }
        if self.mux.watch.leader.is_none() && self.mux.sleepers.len() != 0 {
            // The one who wakes takes the lead; meanwhile the progress thread, if deep asleep, relies on the ring as well.
            self.mux.wake_any();
        }
        if let Some(deep) = &mut self.mux.watch.deep {
            deep.arms += 1;
            if deep.arms > DEEP_ARMS_MAX {
                self.mux.rouse_progress();
            }
        }
        if self.mux.watch.leader.is_none() && self.mux.watch.deep.is_none() {
            return;
        }
        for _ in 0..ARM_TRIES {
            if self.arm() {
                return;
            }
            self.ring.poll(now);
            self.dispatch();
        }
        match self.mux.watch.leader {
            Some(leader) => self.mux.wake(leader),
            None => self.mux.rouse_progress(),
        }
    }

    /// Whether no thread spins, nor sleeps until the ring wakes it.
    pub(super) fn is_unwatched(&self) -> bool {
        self.mux.watch.spinning == 0 && !self.mux.watch.armed && self.mux.sleepers.len() == 0
    }

    /// The progress thread goes to sleep on the ring. `false`: there is something to do first.
    pub(crate) fn sleep_deeply(&mut self) -> bool {
        if self.mux.watch.spinning == 0 && !self.arm() {
            return false;
        }
        self.leave_beside_to_its_sleeper();
        self.mux.watch.deep = Some(Deep { until: self.ring.sleep_deadline(), arms: 0 });
        true
    }

    /// The progress thread is awake.
    pub(crate) fn wake_from_deep(&mut self) {
        if self.mux.watch.deep.take().is_some() {
            self.disarm();
        }
    }

    /// A call set a timer that ends before the progress thread's sleep does.
    pub(crate) fn check_deep_sleep(&mut self) {
        let Some(deep) = &self.mux.watch.deep else { return };
        let sooner = match (self.ring.sleep_deadline(), deep.until) {
            (Some(deadline), Some(until)) => deadline < until,
            (deadline, None) => deadline.is_some(),
            (None, Some(_)) => false,
        };
        if sooner {
            self.mux.rouse_progress();
        }
    }
}
