//! The host behind its lock, and waiting in virtual time.
//!
//! The tester has two threads. The first, which also made the host, sends and receives packets, and says how far the clock goes on. The second makes the
//! calls that block. One that finds nothing to do sleeps; whenever something may have changed, the first thread lets it look again, and waits until it
//! sleeps again or has returned *and* asked for the time (the tester notes when a call ended): before that the clock stands still. So when a call returned
//! depends on no scheduler.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use ringway_stack::Instant;
use ringway_stack::time::earlier;

use crate::errno::Errno;
use crate::settings::Settings;
use crate::world::World;

/// How long (of real time) the first thread waits for the second: who takes longer than that is not coming back.
const PATIENCE: Duration = Duration::from_secs(2);
/// The least that the clock moves between two looks at it.
const TICK: Duration = Duration::from_micros(1);

/// See the module's documentation.
pub(crate) struct Host {
    first: ThreadId,
    state: Mutex<State>,
    /// Something may have changed.
    changed: Condvar,
    /// Who was woken by that has looked.
    looked: Condvar,
}

/// What the lock is for.
pub(crate) struct State {
    pub(crate) world: World,
    /// Those that sleep, by name, and until when.
    sleepers: BTreeMap<u64, Option<Instant>>,
    names: u64,
    /// Counts the occasions on which they were woken.
    occasions: u64,
    /// Of those that were woken, how many have not slept again or asked for the time.
    awake: usize,
    /// Who returned from a call that slept, and has not asked for the time since.
    returned: Option<ThreadId>,
    /// Who has, since the first thread slept last: the kernel's name of the thread.
    finishing: Option<libc::pid_t>,
}

type Guard<'a> = MutexGuard<'a, State>;

impl Host {
    /// A host; the calling thread is the first.
    pub(crate) fn new(settings: Settings) -> Self {
        let world = World::new(settings);
        let state = State { world, sleepers: BTreeMap::new(), names: 0, occasions: 0, awake: 0, returned: None, finishing: None };
        Self { first: thread::current().id(), state: Mutex::new(state), changed: Condvar::new(), looked: Condvar::new() }
    }

    /// The world as it is.
    pub(crate) fn lock(&self) -> Guard<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something that never blocks, and all that follows from it at once.
    ///
    /// # Errors
    /// Those of `work`.
    pub(crate) fn now<T>(&self, work: impl FnOnce(&mut World) -> Result<T, Errno>) -> Result<T, Errno> {
        let mut guard = self.lock();
        guard.world.look_at_sysctls();
        let result = work(&mut guard.world);
        drop(self.settle(guard));
        result
    }

    /// Does something as soon as it does not answer EAGAIN, or, if `may_sleep` is false or after `timeout`, answers that.
    ///
    /// # Errors
    /// Those of `work`; EDEADLK: the first thread would wait for what can no longer come.
    pub(crate) fn wait<T>(
        &self,
        may_sleep: bool,
        timeout: Option<Duration>,
        mut work: impl FnMut(&mut World) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut guard = self.lock();
        let deadline = timeout.map(|timeout| guard.world.now() + timeout);
        let mut slept = None;
        let result = loop {
            let result = work(&mut guard.world);
            let is_over = !may_sleep || deadline.is_some_and(|at| at <= guard.world.now());
            if !matches!(result, Err(Errno::AGAIN)) || is_over {
                break result;
            }
            if self.is_first() {
                let Some(at) = earlier(guard.world.next_deadline(), deadline) else { break Err(Errno(libc::EDEADLK)) };
                let at = at.max(guard.world.now() + TICK);
                guard = self.advance(guard, at);
            } else {
                let name = *slept.get_or_insert(guard.names);
                guard.names = guard.names.max(name + 1);
                guard = self.sleep(guard, name, deadline);
            }
        };
        if slept.is_some() {
            guard.returned = Some(thread::current().id());
        }
        drop(self.settle(guard));
        result
    }

    /// Sleeps until something may have changed.
    fn sleep<'a>(&self, mut guard: Guard<'a>, name: u64, deadline: Option<Instant>) -> Guard<'a> {
        // (Nothing that it has done so far is to wait for others.)
        guard.world.run();
        guard.sleepers.insert(name, deadline);
        guard.awake = guard.awake.saturating_sub(1);
        self.looked.notify_all();
        let before = guard.occasions;
        while guard.occasions == before {
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        guard
    }

    /// Does all that is to be done by now; then whoever sleeps has a look.
    fn settle<'a>(&self, mut guard: Guard<'a>) -> Guard<'a> {
        guard.world.run();
        if !self.is_first() || guard.sleepers.is_empty() {
            return guard;
        }
        guard.awake = guard.sleepers.len();
        guard.sleepers.clear();
        guard.occasions += 1;
        self.changed.notify_all();
        while guard.awake > 0 {
            let (back, timed_out) = self.looked.wait_timeout(guard, PATIENCE).unwrap_or_else(PoisonError::into_inner);
            guard = back;
            if timed_out.timed_out() {
                guard.awake = 0;
            }
        }
        guard
    }

    /// Lets time pass until `until`, and all happen that happens meanwhile.
    pub(crate) fn advance<'a>(&self, mut guard: Guard<'a>, until: Instant) -> Guard<'a> {
        while let Some(at) = guard.next_moment()
            && at <= until
        {
            // (What does not come to rest at one moment does not hold the next one up.)
            let at = if at <= guard.world.now() { guard.world.now() + TICK } else { at };
            guard.world.set_now(at.min(until));
            guard = self.settle(guard);
            if guard.world.now() >= until {
                return guard;
            }
        }
        guard.world.set_now(until);
        self.settle(guard)
    }

    /// Lets time pass until a packet was sent. `None`: nothing will be, as long as nobody does anything.
    pub(crate) fn next_packet(&self) -> Option<crate::device::Sent> {
        let mut guard = self.lock();
        loop {
            if let Some(sent) = guard.world.ring.queues_mut().take_sent() {
                return Some(sent);
            }
            let at = guard.next_moment()?;
            let at = at.max(guard.world.now() + TICK);
            guard = self.advance(guard, at);
        }
    }

    /// The time, which goes on with every look at it.
    pub(crate) fn time(&self) -> Instant {
        let mut guard = self.lock();
        if guard.returned == Some(thread::current().id()) {
            guard.returned = None;
            // SAFETY: the call has no memory to care for.
            guard.finishing = Some(unsafe { libc::gettid() });
            guard.awake = guard.awake.saturating_sub(1);
            self.looked.notify_all();
            return guard.world.now();
        }
        let until = guard.world.now() + TICK;
        let guard = self.advance(guard, until);
        guard.world.now()
    }

    /// Lets so much time pass. The tester's own lock is free meanwhile: who returned from a call has yet to take it and to note what became of the call,
    /// which comes before what the tester does next.
    pub(crate) fn pass(&self, time: Duration) {
        let finishing = self.lock().finishing.take();
        if let Some(thread) = finishing {
            wait_for_sleep(thread);
        }
        let guard = self.lock();
        let until = guard.world.now() + time;
        drop(self.advance(guard, until));
    }

    fn is_first(&self) -> bool {
        thread::current().id() == self.first
    }
}

impl State {
    /// When something is to be done next.
    fn next_moment(&self) -> Option<Instant> {
        self.sleepers.values().fold(self.world.next_deadline(), |soonest, deadline| earlier(soonest, *deadline))
    }
}

/// Waits until a thread of this process sleeps, or is gone.
fn wait_for_sleep(thread: libc::pid_t) {
    let file = format!("/proc/self/task/{thread}/stat");
    let end = std::time::Instant::now() + PATIENCE;
    while std::time::Instant::now() < end {
        // (The state stands behind the name, which is in parentheses and may have any in it; proc_pid_stat(5).)
        let Ok(stat) = std::fs::read_to_string(&file) else { return };
        if stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('S')) {
            return;
        }
        thread::sleep(Duration::from_micros(50));
    }
}
