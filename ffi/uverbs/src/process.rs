//! The process's one lock, what it holds, and the thread that is the card's.
//!
//! A forked child has none of its parent's contexts: their memory, and the card that reads it, are the parent's. Its descriptors of them
//! answer EIO, and it may open the device anew. (The kernel would let it use them, as long as it does not touch the parent's queues.)

use core::cell::RefCell;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use core::time::Duration;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use ringway_host::{Blocked, Fd};
use ringway_preload::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpid;

use crate::descriptors::Kind;
use crate::engine::{Ends, Engine, Life, SLEEP_MAX, SLEEP_MIN};
use crate::log::say;
use crate::trap;

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

/// The lock, held by a call. A thread that forks holds it from before the fork until after it, and lends it to calls that other handlers of pthread_atfork(3) make meanwhile.
pub(crate) struct Locked {
    /// Invariant: it is there until it is dropped.
    guard: Option<Guard>,
    is_lent: bool,
    /// In trap mode, no handler of the program's runs in the thread meanwhile: should it ring, the fault would wait for this lock for ever. (Dropped behind the lock.)
    _blocked: Option<Blocked>,
}

impl Deref for Locked {
    type Target = Option<Engine>;

    fn deref(&self) -> &Self::Target {
        self.guard.as_ref().expect("it is held")
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.guard.as_mut().expect("it is held")
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if self.is_lent {
            FORKING.with(|forking| *forking.borrow_mut() = self.guard.take());
        }
    }
}

/// The lock. The card is there while the device is open.
pub(crate) fn lock() -> Locked {
    // (A thread that is over forks no more.)
    let blocked = trap::is_on().then(Blocked::new);
    let lent = FORKING.try_with(|forking| forking.borrow_mut().take()).ok().flatten();
    let is_lent = lent.is_some();
    Locked { guard: lent.or_else(|| Some(ENGINE.lock().unwrap_or_else(PoisonError::into_inner))), is_lent, _blocked: blocked }
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
    let mut guard = lock();
    RINGING.fetch_sub(1, Ordering::Relaxed);
    let rings = guard.as_mut().and_then(|engine| engine.registers.store(page, offset, bytes));
    if rings == Some(true) {
        work(&mut guard, has_room);
    }
    rings.is_some()
}

/// Trap mode: a program's instruction has been executed with a register page writable.
pub(crate) fn looked_for(has_room: bool) {
    let mut guard = lock();
    if let Some(engine) = guard.as_mut() {
        engine.registers.trapped[1] += 1;
        work(&mut guard, has_room);
    }
}

/// Trap mode: a program is about to read the clock's page. Whether there is a card.
pub(crate) fn clock_is_read() -> bool {
    let guard = lock();
    guard.as_ref().map(Engine::set_clock).is_some()
}

/// Trap mode: whether a register page is still the card's.
pub(crate) fn has_page(number: u32) -> bool {
    lock().as_ref().is_some_and(|engine| engine.registers.has(number))
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
            let mut guard = lock();
            // Another card, of a later opening, has its own thread.
            if !guard.as_ref().is_some_and(|engine| engine.is_of(borrowed(&ends.bus))) {
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
        let all = [Some(&ends.bus), Some(&ends.bell), ends.wire.as_ref()].into_iter().flatten().map(borrowed).collect::<Vec<_>>();
        let mut polled: Vec<_> = all.iter().map(|end| PollFd::new(end, PollFlags::IN)).collect();
        let _ = poll(&mut polled, Some(&timeout));
        if !polled[1].revents().is_empty() {
            // (Reading it sets it back.)
            let _ = rustix::io::read(all[1], &mut [0; 8]);
        }
    }
}

fn borrowed(fd: &Fd) -> BorrowedFd<'_> {
    // SAFETY: it is open as long as the value is there.
    unsafe { BorrowedFd::borrow_raw(fd.raw()) }
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

thread_local! {
    /// The lock, while the thread forks: the child gets it free.
    static FORKING: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

/// Before a fork.
pub(crate) extern "C" fn before_fork() {
    let guard = ENGINE.lock().unwrap_or_else(PoisonError::into_inner);
    FORKING.with(|forking| *forking.borrow_mut() = Some(guard));
}

/// After it, in the parent.
pub(crate) extern "C" fn after_fork() {
    FORKING.with(|forking| drop(forking.borrow_mut().take()));
}

/// After it, in the child. (The card's copies of descriptors are closed, so that its place on the bus ends with the parent.)
pub(crate) extern "C" fn in_child() {
    is_this();
    RINGING.store(0, Ordering::Relaxed);
    FORKING.with(|forking| {
        if let Some(mut guard) = forking.borrow_mut().take() {
            // (What the interface steers is the parent's.)
            ringway_host::fd::close_all_in_child();
            *guard = None;
        }
    });
}
