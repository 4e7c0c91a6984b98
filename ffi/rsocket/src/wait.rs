//! How threads wait: they look for a while, and then sleep on the device, and on what else they wait for.
//!
//! How long they look is what recent waits of the thread have earned ([`ringway_host::spin`]), so that there is no cliff where polling_time ends; where the
//! administrator has set polling_time, it is that.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::os::fd::RawFd;

use libc::pollfd;
use ringway_devices::messages::Fabric;
use ringway_host::sleep::{ppoll, yield_core};
use ringway_host::spin::{History, Limit, Outcome, Spin, Step};
use ringway_host::{Clock, EventFd};
use ringway_preload::Errno;
use ringway_stack::Instant;
use ringway_stack::rsocket::{Settings, SocketId};

use self::signals::Signals;
use crate::fork;
use crate::library::{self, Entered, Library, enter};

pub(crate) mod signals;

/// The longest that a wait looks, if the administrator says nothing.
const LOOKS_MAX: Duration = Duration::from_millis(2);

/// Looks at the device in one hold of the lock: some microseconds, in which most answers come that come soon. What is between two holds takes as long as a message.
const LOOKS: u32 = 2048;
/// The same of a wait that is to sleep sooner: the administrator says so, or recent waits of the thread do.
const LOOKS_OF_SHORT: u32 = 256;
/// The shortest that is not.
const SHORT_BELOW: Duration = Duration::from_micros(10);

/// So many looks of a wait that find something, but not what it waits for, are one hold of the lock at most.
const TURNS: u32 = 16;

thread_local! {
    /// What this thread's waits have earned.
    static HISTORY: Cell<History> = const { Cell::new(History::new()) };

    /// By which this thread is woken, and in which of the process's forks it was made: a child's copy is its parent's as well.
    static WAKE: RefCell<Option<(u32, EventFd)>> = const { RefCell::new(None) };
}

/// One wait.
pub(crate) struct Looking {
    /// What there is of it while it looks.
    began: Option<Began>,
    signals: Signals,
}

struct Began {
    clock: Clock,
    at: Instant,
    limit: Limit,
    history: History,
    spin: Spin,
}

impl Looking {
    /// A wait that a handler ends with SA_RESTART, too, unless it `restarts`.
    pub(crate) fn new(restarts: bool) -> Self {
        Self { began: None, signals: Signals::new(restarts, None) }
    }

    /// When the wait began, which is now if it had not yet.
    pub(crate) fn began(&mut self, library: &Library) -> Instant {
        let began = self.began.get_or_insert_with(|| {
            let now = library.now();
            let (set, history) = (library.sockets.settings().polling_time, HISTORY.get());
            let limit = if set == Settings::default().polling_time { Limit::Ceiling(LOOKS_MAX) } else { Limit::Exact(set) };
            Began { clock: library.clock(), at: now, limit, history, spin: Spin::new(now, &history, limit) }
        });
        began.at
    }

    /// Polls, at first for a call, and says when that was.
    pub(crate) fn poll(&self, library: &mut Library) -> Instant {
        if self.began.is_some() { library.poll_again() } else { library.poll() }
    }

    /// Whether it goes on, having found nothing at `now`.
    pub(crate) fn goes_on(&self, now: Instant) -> bool {
        self.began.as_ref().is_some_and(|began| began.spin.step(now) != Step::Stop)
    }

    /// How often it looks at the device in one hold of the lock.
    fn looks(&self) -> u32 {
        let is_short = self.began.as_ref().is_none_or(|began| began.spin.step(began.at + SHORT_BELOW) == Step::Stop);
        if is_short { LOOKS_OF_SHORT } else { LOOKS }
    }

    /// Before it looks again: others have their turn, and handlers of signals. The library is not entered.
    pub(crate) fn pause(&mut self, now: Instant) {
        let Some(began) = &mut self.began else { return };
        self.signals.between_looks(began.at, now);
        if began.spin.step(now) == Step::Yield {
            let (switches, before) = (switches(), began.clock.now());
            yield_core();
            let after = began.clock.now();
            // (It may have taken long because a hypervisor had the core: that is not what ends by sleeping.)
            let has_switched = switches != self::switches();
            began.spin.yielded(if has_switched { before } else { after }, after);
        } else {
            library::let_others_enter();
        }
    }

    /// Whether a handler of a signal ends it: there was nothing when it had looked after that.
    pub(crate) const fn is_interrupted(&self) -> bool {
        self.signals.is_over()
    }

    /// Has it sleep, as [`sleep`] does.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM: there is nothing to sleep on.
    pub(crate) fn sleep(&mut self, library: Entered, others: &mut [pollfd], timeout: Option<Duration>) -> Result<(), Errno> {
        self.signals.block();
        let slept = sleep(library, others, timeout, self.signals.mask());
        self.signals.heard(slept).map(|_| ())
    }

    /// The wait has ended, at `now`.
    pub(crate) fn ended(&self, now: Instant, outcome: Outcome) {
        let Some(Began { at, limit, history, spin, .. }) = &self.began else { return };
        let mut history = *history;
        history.ended(*limit, now.since(*at), outcome, spin);
        HISTORY.set(history);
    }
}

/// How often this thread's core was another one's, as the kernel counts.
fn switches() -> i64 {
    // SAFETY: zeros are a value of it, and the call writes no more than that.
    let usage = unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    usage.ru_nvcsw + usage.ru_nivcsw
}

/// The threads that sleep.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    /// By what each is woken, and whether it was.
    asleep: Vec<(RawFd, bool)>,
}

impl Sleepers {
    pub(crate) const fn is_empty(&self) -> bool {
        self.asleep.is_empty()
    }

    /// Wakes all.
    pub(crate) fn wake(&mut self) {
        for (fd, is_woken) in &mut self.asleep {
            if !core::mem::replace(is_woken, true) {
                ringway_host::sleep::signal(*fd);
            }
        }
    }
}

/// Sleeps until something happened, one of `others` is ready, or `timeout` is over.
///
/// # Errors
/// EINTR: a signal was delivered; EMFILE, ENFILE, ENOMEM: there is nothing to sleep on.
pub(crate) fn sleep(
    mut library: Entered,
    others: &mut [pollfd],
    timeout: Option<Duration>,
    mask: Option<&libc::sigset_t>,
) -> Result<(), Errno> {
    WAKE.with_borrow_mut(|wake| {
        if wake.as_ref().is_none_or(|(generation, _)| *generation != fork::generation()) {
            let made = EventFd::new().map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::ENOMEM)))?;
            // (One that was made before a fork is closed: in the child it is a copy.)
            *wake = Some((fork::generation(), made));
        }
        let Some((_, wake)) = wake else { return Ok(()) };
        library.sleepers.asleep.push((wake.fd(), false));
        // Where that fails, it is woken at once.
        let is_armed = library.arm();
        let now = library.now();
        let timers = library.deadline().map(|at| at.since(now));
        let timeout = if is_armed { [timeout, timers].into_iter().flatten().min() } else { Some(Duration::ZERO) };
        let entry = |fd| pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = vec![entry(Fabric::wait_fd(&mut library.plane)), entry(wake.fd())];
        fds.extend_from_slice(others);
        drop(library);
        let slept = ppoll(&mut fds, timeout, mask);
        if fds[1].revents != 0 {
            wake.clear();
        }
        others.copy_from_slice(&fds[2..]);
        // All may be gone, in a fork's child.
        if let Ok(mut library) = enter() {
            if fds[0].revents != 0 {
                library.plane.on_woken();
            }
            library.sleepers.asleep.retain(|(fd, _)| *fd != wake.fd());
        }
        slept.map(|_| ()).map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EINTR)))
    })
}

/// Attempts something on a stream until it does not fail with EAGAIN, if the socket blocks and `dont_wait` does not say otherwise; until `deadline`, if there
/// is one.
///
/// # Errors
/// The attempt's; EBADF; EOPNOTSUPP: it is a datagram socket; EINTR: a handler without SA_RESTART ran meanwhile; EAGAIN: the time is up.
pub(crate) fn until<T>(
    fd: RawFd,
    dont_wait: bool,
    deadline: Option<Instant>,
    attempt: impl FnMut(&mut Library, SocketId, Instant) -> Result<T, Errno>,
) -> Result<T, Errno> {
    until_by(fd, dont_wait, deadline, |library| (library.poll(), true), &mut AnyAttempt(attempt))
}

/// The same of an attempt that is to be a part of the caller's code.
///
/// # Errors
/// As [`until`].
#[inline(always)]
pub(crate) fn until_quick<A: Attempt>(fd: RawFd, dont_wait: bool, attempt: &mut A) -> Result<A::Done, Errno> {
    until_by(fd, dont_wait, None, |library| (library.poll(), true), attempt)
}

/// The same for what sends: it needs nothing that came, as long as there is room, and does not look for it where somebody has just now.
///
/// # Errors
/// As [`until`].
pub(crate) fn until_sent<T>(
    fd: RawFd,
    dont_wait: bool,
    attempt: impl FnMut(&mut Library, SocketId, Instant) -> Result<T, Errno>,
) -> Result<T, Errno> {
    until_sent_quick(fd, dont_wait, &mut AnyAttempt(attempt))
}

/// Both.
///
/// # Errors
/// As [`until`].
#[inline(always)]
pub(crate) fn until_sent_quick<A: Attempt>(fd: RawFd, dont_wait: bool, attempt: &mut A) -> Result<A::Done, Errno> {
    until_by(fd, dont_wait, None, Library::poll_unless_recent, attempt)
}

/// What is attempted on a stream. (A compiler that finds a closure called in several places has it called in each; a method can say that it is to be there.)
pub(crate) trait Attempt {
    /// What comes of it.
    type Done;

    /// One attempt.
    ///
    /// # Errors
    /// EAGAIN: it cannot be done yet; others.
    fn attempt(&mut self, library: &mut Library, id: SocketId, now: Instant) -> Result<Self::Done, Errno>;
}

struct AnyAttempt<F>(F);

impl<T, F: FnMut(&mut Library, SocketId, Instant) -> Result<T, Errno>> Attempt for AnyAttempt<F> {
    type Done = T;

    fn attempt(&mut self, library: &mut Library, id: SocketId, now: Instant) -> Result<T, Errno> {
        self.0(library, id, now)
    }
}

/// `poll`: says when it is, and whether it has polled.
#[inline(always)]
fn until_by<A: Attempt>(
    fd: RawFd,
    dont_wait: bool,
    deadline: Option<Instant>,
    poll: impl FnOnce(&mut Library) -> (Instant, bool),
    attempt: &mut A,
) -> Result<A::Done, Errno> {
    let mut library = enter()?;
    // (A device brings a stream's completions by itself. What else it has to tell is for who finds nothing there.)
    let is_patient = library.plane.is_patient();
    let (now, has_polled) = if is_patient { (library.called_at, true) } else { poll(&mut library) };
    let id = library.stream(fd)?;
    match attempt.attempt(&mut library, id, now) {
        Err(Errno(libc::EAGAIN)) => {}
        result => return result,
    }
    if !dont_wait && !library.entry(fd)?.is_nonblocking {
        return wait_until(library, fd, deadline, &mut |library, now| {
            let id = library.stream(fd)?;
            attempt.attempt(library, id, now)
        });
    }
    if !has_polled {
        let now = library.poll();
        return attempt.attempt(&mut library, id, now);
    }
    if is_patient {
        library.poll_now_and_then();
    }
    Err(Errno(libc::EAGAIN))
}

/// The same for any rsocket.
///
/// # Errors
/// As [`until`].
pub(crate) fn until_any<T>(
    fd: RawFd,
    dont_wait: bool,
    deadline: Option<Instant>,
    mut attempt: impl FnMut(&mut Library, Instant) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut library = enter()?;
    let now = library.poll();
    match attempt(&mut library, now) {
        Err(Errno(libc::EAGAIN)) if !dont_wait && !library.entry(fd)?.is_nonblocking => {}
        result => return result,
    }
    wait_until(library, fd, deadline, &mut attempt)
}

/// The same, once an attempt was in vain. (What does not wait has none of this in its way.)
#[cold]
#[inline(never)]
fn wait_until<T>(
    mut library: Entered,
    fd: RawFd,
    deadline: Option<Instant>,
    attempt: &mut impl FnMut(&mut Library, Instant) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut looking = Looking::new(true);
    looking.began(&library);
    // (There was nothing just now.)
    let looks = looking.looks();
    library.look_on(looks);
    loop {
        let mut now = library.poll_again();
        let mut attempted = attempt(&mut library, now);
        // What comes while it looks on is this call's at once; but others have their turn sooner or later.
        for _ in 0..TURNS {
            if !matches!(attempted, Err(Errno(libc::EAGAIN))) || !looking.goes_on(now) || !library.look_on(looks) {
                break;
            }
            now = library.poll_again();
            attempted = attempt(&mut library, now);
        }
        match attempted {
            Err(Errno(libc::EAGAIN)) if !library.entry(fd)?.is_nonblocking => {}
            result => {
                looking.ended(now, Outcome::Satisfied);
                return result;
            }
        }
        let left = deadline.map(|deadline| deadline.since(now));
        if looking.is_interrupted() || left == Some(Duration::ZERO) {
            looking.ended(now, Outcome::InVain);
            return Err(Errno(if looking.is_interrupted() { libc::EINTR } else { libc::EAGAIN }));
        }
        if looking.goes_on(now) {
            drop(library);
            looking.pause(now);
        } else {
            looking.sleep(library, &mut [], left)?;
        }
        library = enter()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that would look for ever, from now on.
    fn looking(restarts: bool) -> Looking {
        let (clock, limit, history) = (Clock::new(), Limit::Exact(Duration::MAX), History::new());
        let at = clock.now();
        let began = Began { clock, at, limit, history, spin: Spin::new(at, &history, limit) };
        Looking { began: Some(began), ..Looking::new(restarts) }
    }

    #[test]
    fn a_wait_that_is_to_sleep_soon_looks_less_often() {
        let clock = Clock::new();
        let at = clock.now();
        let looks = |limit, history| {
            let began = Began { clock, at, limit, history, spin: Spin::new(at, &history, limit) };
            Looking { began: Some(began), ..Looking::new(true) }.looks()
        };
        let mut tired = History::new();
        (0..64).for_each(|_| {
            let spin = Spin::new(at, &tired, Limit::Ceiling(LOOKS_MAX));
            tired.ended(Limit::Ceiling(LOOKS_MAX), Duration::from_secs(1), Outcome::Satisfied, &spin);
        });
        assert_eq!(looks(Limit::Ceiling(LOOKS_MAX), History::new()), LOOKS);
        assert_eq!(looks(Limit::Exact(SHORT_BELOW + Duration::from_nanos(1)), History::new()), LOOKS);
        assert_eq!(looks(Limit::Exact(Duration::ZERO), History::new()), LOOKS_OF_SHORT);
        assert_eq!(looks(Limit::Ceiling(LOOKS_MAX), tired), LOOKS_OF_SHORT);
    }

    #[test]
    fn a_thread_that_slept_was_switched_from() {
        let before = switches();
        std::thread::sleep(Duration::from_millis(1));
        assert!(switches() > before);
    }

    #[test]
    fn a_handler_ends_a_wait_that_never_sleeps() {
        let clock = Clock::new();
        let mut looking = looking(false);
        let thread = signals::tests::signalled_every(Duration::from_millis(1));
        while !looking.is_interrupted() {
            let now = clock.now();
            assert!(looking.goes_on(now));
            looking.pause(now);
        }
        drop(thread);
    }
}
