//! The process's one lock, what it holds, and the thread that is the card's.
//!
//! A forked child has none of its parent's contexts: their memory, and the card that reads it, are the parent's. Its descriptors of them
//! answer EIO, and it may open the device anew; once it has, it may ask about the device by them, and make protection domains, which librdmacm wants of the context that it keeps. (The
//! kernel would let it use them, as long as it does not touch the parent's queues.)

use core::cell::UnsafeCell;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use core::time::Duration;
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use ringway_host::{Blocked, Fd};
use ringway_preload::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpid;

use crate::descriptors::Kind;
use crate::engine::{Ends, Engine, Life, SLEEP_MAX, SLEEP_MIN, numbers_in_child};
use crate::log::say;
use crate::{heap, trap};

static ENGINE: Mutex<Option<Engine>> = Mutex::new(None);

/// The card was removed: there is none any more, and none comes back.
static REMOVED: AtomicBool = AtomicBool::new(false);

/// Whether the card was removed.
pub(crate) fn is_removed() -> bool {
    REMOVED.load(Ordering::Relaxed)
}

/// Turns that the card has in a thread that has rung before it goes on in its own.
const TURNS_MAX: usize = 4;

/// The lock, held.
type Guard = MutexGuard<'static, Option<Engine>>;

/// What a call of the program's comes to in here: it is not cancelled in the middle, a panic is a failure, and no handler of the program's runs in the thread meanwhile. Such a handler may ring, or wait for what only
/// the card can bring: it is not to find this thread in the allocator, by which the card works as well. (What waits for events of the card's is not to be called so.)
macro_rules! undisturbed {
    ($failure:expr, $body:expr) => {
        ringway_preload::boundary!($failure, {
            let _blocked = ringway_host::Blocked::new();
            $body
        })
    };
}
pub(crate) use undisturbed;

/// The lock, held by a call.
pub(crate) struct Locked {
    guard: Guard,
    /// No handler of the program's runs in the thread meanwhile: should it ring, or wait for a completion, it would wait for this lock for ever. (Dropped behind the lock.)
    _blocked: Option<Blocked>,
}

impl Deref for Locked {
    type Target = Option<Engine>;

    fn deref(&self) -> &Self::Target {
        &self.guard
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.guard
    }
}

/// The lock. The card is there while the device is open.
pub(crate) fn lock() -> Locked {
    locked(Some(Blocked::new()))
}

/// The same, where signals are blocked already: in the handlers of faults, and in the card's own thread.
fn lock_undisturbed() -> Locked {
    locked(None)
}

fn locked(blocked: Option<Blocked>) -> Locked {
    Locked { guard: ENGINE.lock().unwrap_or_else(PoisonError::into_inner), _blocked: blocked }
}

/// Opens a context; starts the card for the first.
///
/// # Errors
/// EMFILE, ENOMEM: no place on the bus, or no thread. ENXIO: the card was removed.
pub(crate) fn open() -> Result<u32, Errno> {
    let mut engine = lock();
    if is_removed() || engine.as_ref().is_some_and(|engine| engine.life() == Life::Removed) {
        return Err(Errno(libc::ENXIO));
    }
    if let Some(engine) = engine.as_mut() {
        return Ok(engine.open());
    }
    let mut new = Engine::new()?;
    let context = new.open();
    let ends = new.to_wait_on()?;
    *engine = Some(new);
    // It takes none of the program's signals: it inherits the mask.
    let old = all_signals_blocked();
    let started = thread::Builder::new().name("connectx".into()).spawn(move || run(&ends));
    restore_signals(&old);
    match started {
        Ok(_) => Ok(context),
        Err(_) => {
            *engine = None;
            Err(Errno(libc::ENOMEM))
        }
    }
}

/// A descriptor of a context was closed; with the last one, all that is the context's ends, and with the last context the card.
pub(crate) fn close(context: u32) {
    let mut engine = lock();
    if engine.as_mut().is_some_and(|engine| engine.close(context)) {
        *engine = None;
    }
}

/// Another descriptor of a context or a channel.
pub(crate) fn hold(kind: Kind) {
    if let Some(engine) = lock().as_mut() {
        match kind {
            Kind::Context(context) | Kind::RdmaCm(context) => engine.hold(context),
            Kind::Channel(channel) => engine.hold_channel(channel),
            Kind::Folder(_) => {}
        }
    }
}

/// A descriptor of a channel was closed; with the last one the channel ends.
pub(crate) fn close_channel(channel: u32) {
    if let Some(engine) = lock().as_mut() {
        engine.close_channel(channel);
    }
}

/// The process whose memory this is.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// This process is it.
pub(crate) fn is_this() {
    OWNER.store(getpid().as_raw_nonzero().get(), Ordering::Relaxed);
}

/// Whether the caller is it, and not a child that shares its memory until it executes something.
pub(crate) fn is_own() -> bool {
    OWNER.load(Ordering::Relaxed) == getpid().as_raw_nonzero().get()
}

/// The card has a turn; whether it has worked. `None`: it has failed, and is gone.
fn turn(guard: &mut Locked) -> Option<bool> {
    let engine = guard.as_mut()?;
    let turn = catch_unwind(AssertUnwindSafe(|| engine.turn()));
    if turn.is_err() {
        say(format_args!("the card has failed; what is open answers EIO"));
        **guard = None;
    }
    turn.ok()
}

/// Threads that have rung, and wait for the lock.
static RINGING: AtomicUsize = AtomicUsize::new(0);

/// Trap mode: whether a doorbell has been rung that the card does not know of yet.
pub(crate) fn is_ringing() -> bool {
    RINGING.load(Ordering::Relaxed) > 0
}

/// Trap mode: a program has stored to a register page, within it. The card does at once what it was rung for, if this thread has room for that. Whether there is such a page.
pub(crate) fn stored(page: u32, offset: usize, bytes: &[u8], has_room: bool) -> bool {
    RINGING.fetch_add(1, Ordering::Relaxed);
    let mut guard = lock_undisturbed();
    RINGING.fetch_sub(1, Ordering::Relaxed);
    let rings = guard.as_mut().and_then(|engine| engine.registers.store(page, offset, bytes));
    if rings == Some(true) {
        work(&mut guard, has_room);
    }
    rings.is_some()
}

/// Trap mode: a program's instruction has been executed with a register page writable.
pub(crate) fn looked_for(has_room: bool) {
    let mut guard = lock_undisturbed();
    if let Some(engine) = guard.as_mut() {
        engine.registers.trapped[1] += 1;
        work(&mut guard, has_room);
    }
}

/// Trap mode: a program is about to read the clock's page. Whether there is a card.
pub(crate) fn clock_is_read() -> bool {
    let guard = lock_undisturbed();
    guard.as_ref().map(Engine::set_clock).is_some()
}

/// Trap mode: whether a register page is still the card's.
pub(crate) fn has_page(number: u32) -> bool {
    lock_undisturbed().as_ref().is_some_and(|engine| engine.registers.has(number))
}

/// The card works in the calling thread, and in its own as soon as there is more to do.
fn work(guard: &mut Locked, has_room: bool) {
    let mut has_more = true;
    for _ in 0..if has_room { TURNS_MAX } else { 0 } {
        match turn(guard) {
            Some(true) => {}
            Some(false) => {
                has_more = false;
                break;
            }
            None => return,
        }
    }
    if let Some(engine) = guard.as_ref()
        && (has_more || engine.sleep_max() < SLEEP_MAX)
    {
        engine.ring();
    }
}

/// The card's thread.
fn run(ends: &Ends) {
    let mut busy = Instant::now();
    loop {
        let pause = {
            let mut guard = lock_undisturbed();
            trap::close_left_open();
            // Another card, of a later opening, has its own thread.
            if !guard.as_ref().is_some_and(|engine| engine.is_of(ends.bus.as_fd())) {
                return;
            }
            let Some(worked) = turn(&mut guard) else { return };
            if worked {
                busy = Instant::now();
            }
            let Some(engine) = guard.as_mut() else { return };
            if engine.life() == Life::Removed {
                // (What was told is in descriptors, whose other ends close now.)
                REMOVED.store(true, Ordering::Relaxed);
                *guard = None;
                return;
            }
            let pause = match trap::is_on() {
                true if worked => SLEEP_MIN,
                true => engine.sleep_max(),
                false => pause(busy.elapsed(), engine.has_queues()),
            };
            if engine.arm() { pause } else { Duration::ZERO }
        };
        let Ok(timeout) = Timespec::try_from(pause) else { continue };
        // A packet ends the pause.
        let all = [Some(&ends.bus), Some(&ends.bell), ends.wire.as_ref()].into_iter().flatten().map(Fd::as_fd).collect::<Vec<_>>();
        let mut polled: Vec<_> = all.iter().map(|end| PollFd::new(end, PollFlags::IN)).collect();
        let _ = poll(&mut polled, Some(&timeout));
        if !polled[1].revents().is_empty() {
            // (Reading it sets it back.)
            let _ = rustix::io::read(all[1], &mut [0; 8]);
        }
    }
}

/// How long the card's thread sleeps in poll mode: it looks at doorbells often while there is something to do, and seldom when there was nothing for long.
fn pause(idle: Duration, has_queues: bool) -> Duration {
    match idle.as_micros() {
        _ if !has_queues => Duration::from_millis(5),
        0..20_000 => Duration::from_micros(10),
        20_000..200_000 => Duration::from_micros(200),
        _ => Duration::from_millis(1),
    }
}

fn all_signals_blocked() -> libc::sigset_t {
    // SAFETY: both sets are places of this function's; the call fills the second before it is read.
    unsafe {
        let (mut all, mut old) = (mem::zeroed(), mem::zeroed());
        libc::sigfillset(&raw mut all);
        ringway_preload::next::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        old
    }
}

fn restore_signals(old: &libc::sigset_t) {
    // SAFETY: a set that was filled.
    unsafe { ringway_preload::next::pthread_sigmask(libc::SIG_SETMASK, old, core::ptr::null_mut()) };
}

/// What the thread that forks holds meanwhile: the lock, which the child gets free; and what signals the thread had before, for no handler of the program's runs in it. (In no variable of the thread's own: one
/// whose value has an end is made with the program's malloc, whose locks may be held by then.)
struct Forking {
    guard: Guard,
    _blocked: Blocked,
}

struct OfForks(UnsafeCell<Option<Forking>>);

// SAFETY: it is touched by the thread that forks alone, from when it has the lock until it lets go of it.
unsafe impl Sync for OfForks {}

static FORKING: OfForks = OfForks(UnsafeCell::new(None));

/// Before a fork.
pub(crate) extern "C" fn before_fork() {
    let blocked = Blocked::new();
    let guard = ENGINE.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the lock is held.
    unsafe { *FORKING.0.get() = Some(Forking { guard, _blocked: blocked }) };
    heap::before_fork();
}

/// After it, in the parent.
pub(crate) extern "C" fn after_fork() {
    heap::after_fork();
    // SAFETY: this thread forks. (The lock is let go of once nothing is touched any more.)
    let forking = unsafe { (*FORKING.0.get()).take() };
    drop(forking);
}

/// After it, in the child. (The card's copies of descriptors are closed, so that its place on the bus ends with the parent.)
pub(crate) extern "C" fn in_child() {
    is_this();
    numbers_in_child();
    RINGING.store(0, Ordering::Relaxed);
    // SAFETY: this thread forks.
    let forking = unsafe { (*FORKING.0.get()).take() };
    let Some(Forking { mut guard, _blocked }) = forking else { return };
    // What follows asks the kernel, by way of libraries that may only notice now that this is a child, and then close what they have of the card: there is none any more, and nothing is locked.
    let engine = guard.take();
    drop(guard);
    heap::after_fork();
    // (What the interface steers is the parent's.)
    ringway_host::fd::close_all_in_child();
    drop(engine);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_blocked(signal: i32) -> bool {
        // SAFETY: a set is plain words, for which zero is a value, and the call fills it in.
        unsafe {
            let mut set: libc::sigset_t = mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), &raw mut set);
            libc::sigismember(&raw const set, signal) == 1
        }
    }

    /// (One that rang would have waited for the lock for ever, or found the thread's own cell borrowed.)
    #[test]
    fn no_handler_of_the_program_runs_while_the_lock_is_held_or_the_thread_forks() {
        let held = || [libc::SIGUSR1, libc::SIGALRM].map(is_blocked);
        assert_eq!((held(), is_blocked(libc::SIGSEGV)), ([false; 2], false));
        let lock = super::lock();
        assert_eq!((held(), is_blocked(libc::SIGSEGV)), ([true; 2], false));
        drop(lock);
        assert_eq!(held(), [false; 2]);
        before_fork();
        assert_eq!(held(), [true; 2]);
        after_fork();
        assert_eq!(held(), [false; 2]);
    }
}
