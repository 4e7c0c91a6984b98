//! sigaction: a handler that runs while a thread spins in one of our waits must end the wait as it would end a
//! sleep in the kernel. So handlers are installed behind a trampoline that leaves a note for the wait.
//!
//! The trampoline also keeps handlers from running while their thread holds the state's lock: iperf3's leaves by longjmp,
//! and another may call send. Such a signal is raised again once the lock is released. (So the kernel must not take the
//! handler away when it enters the trampoline: SA_RESETHAND is done here, when the handler really runs.)
//!
//! Everything here is async-signal-safe: atomics, and system calls by number.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use libc::{SA_RESETHAND, SA_RESTART, SA_SIGINFO, SIG_DFL, SIG_IGN, sighandler_t, siginfo_t};

use crate::errno;
use crate::lock::{self, DEFERRED};
use crate::mux::wait::{note_signal, run_handler};
use crate::{memory, process, real};

pub(crate) mod faults;
pub(crate) mod mask;

const SIGNALS: usize = 65;

/// The program's handler for a signal.
struct Handler {
    address: AtomicUsize,
    with_info: AtomicBool,
    restart: AtomicBool,
    /// It was installed with SA_RESETHAND: it runs once.
    reset: AtomicBool,
}

impl Handler {
    const fn new() -> Self {
        Self {
            address: AtomicUsize::new(SIG_DFL),
            with_info: AtomicBool::new(false),
            restart: AtomicBool::new(false),
            reset: AtomicBool::new(false),
        }
    }

    /// The flags that matter here.
    fn flags(&self) -> c_int {
        let flag = |set: &AtomicBool, flag| if set.load(Ordering::Relaxed) { flag } else { 0 };
        flag(&self.with_info, SA_SIGINFO) | flag(&self.restart, SA_RESTART) | flag(&self.reset, SA_RESETHAND)
    }

    fn install(&self, address: usize, flags: c_int) {
        self.with_info.store(flags & SA_SIGINFO != 0, Ordering::Relaxed);
        self.restart.store(flags & SA_RESTART != 0, Ordering::Relaxed);
        self.reset.store(flags & SA_RESETHAND != 0, Ordering::Relaxed);
        self.address.store(address, Ordering::Release);
    }
}

static HANDLERS: [Handler; SIGNALS] = [const { Handler::new() }; SIGNALS];

/// Keeps `HANDLERS` and the kernel's table in step between threads. A spin lock, for handlers may install handlers.
static CHANGING: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

fn handler(signal: c_int) -> Option<&'static Handler> {
    HANDLERS.get(usize::try_from(signal).ok().filter(|&s| s > 0)?)
}

/// Signals that can be put off at a time, by all threads.
const PLACES: usize = 64;

/// What came with a deferred signal.
struct Place(UnsafeCell<MaybeUninit<siginfo_t>>);

// SAFETY: a place is used by the thread alone that it is taken for ([`DEFERRED_FOR`]).
unsafe impl Sync for Place {}

static DEFERRED_INFO: [Place; PLACES] = [const { Place(UnsafeCell::new(MaybeUninit::uninit())) }; PLACES];

/// The threads that places are taken for, by their numbers; 0: it is free.
static DEFERRED_FOR: [AtomicI32; PLACES] = [const { AtomicI32::new(0) }; PLACES];

/// Whether the calling thread is in the middle of what no handler may interrupt.
fn holds_a_lock() -> bool {
    lock::is_finishing() || memory::is_mine() || process::process().is_some_and(process::Process::has_lock)
}

/// Puts a signal off if its thread holds the state's lock. Faults are never put off: they would only come again.
fn defer(signal: c_int, info: *mut siginfo_t) -> bool {
    let is_fault = matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP | libc::SIGSYS);
    if is_fault || !holds_a_lock() {
        return false;
    }
    // SAFETY: gettid has no preconditions.
    let tid = unsafe { libc::gettid() };
    // SAFETY: the place was written, by this thread.
    if places_of(tid).any(|place| unsafe { (*DEFERRED_INFO[place].0.get()).assume_init_ref() }.si_signo == signal) {
        // It merges with the one that waits, as a pending signal does.
        return true;
    }
    let free = |place: &AtomicI32| place.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed).is_ok();
    if let Some(place) = DEFERRED_FOR.iter().position(free) {
        // SAFETY: the kernel gave a siginfo; the place is this thread's.
        unsafe { (*DEFERRED_INFO[place].0.get()).write(info.read()) };
        DEFERRED.fetch_or(1 << place, Ordering::Release);
    }
    true
}

/// The places that hold signals which the calling thread, `tid`, put off.
fn places_of(tid: i32) -> impl Iterator<Item = usize> {
    let waiting = DEFERRED.load(Ordering::Acquire);
    (0..PLACES).filter(move |&place| waiting & 1 << place != 0 && DEFERRED_FOR[place].load(Ordering::Relaxed) == tid)
}

/// In the child of a fork: what was put off was for its parent's threads. Async-signal-safe.
pub(crate) fn forget_deferred() {
    DEFERRED.store(0, Ordering::Relaxed);
    DEFERRED_FOR.iter().for_each(|place| place.store(0, Ordering::Relaxed));
}

/// The calling thread has released a lock: its deferred signals are raised again, with what came with them.
#[cold]
pub(crate) fn raise_deferred() {
    // SAFETY: gettid and getpid have no preconditions.
    let (tid, pid) = unsafe { (libc::gettid(), libc::getpid()) };
    let saved = errno::current();
    for place in places_of(tid) {
        // SAFETY: the bit is set, so the place was written; it is this thread's.
        let info = unsafe { (*DEFERRED_INFO[place].0.get()).assume_init_read() };
        DEFERRED.fetch_and(!(1 << place), Ordering::Relaxed);
        DEFERRED_FOR[place].store(0, Ordering::Release);
        // SAFETY: the siginfo is the kernel's own, and the thread is this one. It may not return: handlers longjmp.
        unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, info.si_signo, &raw const info) };
    }
    errno::set(saved);
}

unsafe extern "C" fn trampoline(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(handler) = handler(signal) else { return };
    // SAFETY: the kernel gave both.
    if signal == libc::SIGSEGV && unsafe { faults::is_mended(info, context) } {
        return;
    }
    if defer(signal, info) {
        return;
    }
    let address = handler.address.load(Ordering::Acquire);
    if faults::are_watched(signal) && (address == SIG_DFL || address == SIG_IGN) {
        // SAFETY: as above.
        return unsafe { faults::end_as_without_handler(signal, info, address) };
    }
    let saved = errno::current();
    note_signal(handler.restart.load(Ordering::Relaxed));
    errno::set(saved);
    if address == SIG_DFL || address == SIG_IGN {
        return;
    }
    let with_info = handler.with_info.load(Ordering::Relaxed);
    if handler.reset.swap(false, Ordering::Relaxed) {
        if faults::are_watched(signal) {
            handler.install(SIG_DFL, 0);
        } else {
            reset(signal, with_info);
        }
        errno::set(saved);
    }
    if faults::are_watched(signal) {
        // SAFETY: the context is the kernel's own.
        unsafe { faults::mask_as_asked(context) };
    }
    // SAFETY: the program installed the address as a handler of this form; the arguments are the kernel's own.
    run_handler(|| unsafe { call(address, with_info, signal, info, context) });
}

/// What SA_RESETHAND does when a handler is entered: the action is the default's from now on, flags and mask stay.
fn reset(signal: c_int, with_info: bool) {
    // SAFETY: all of it is integers, for which zero is a value; both calls get valid actions.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        real::sigaction(signal, ptr::null(), &raw mut action);
        if action.sa_sigaction != trampoline as *const () as sighandler_t {
            // Another thread has just changed it.
            return;
        }
        action.sa_sigaction = SIG_DFL;
        action.sa_flags |= SA_RESETHAND;
        if !with_info {
            action.sa_flags &= !SA_SIGINFO;
        }
        real::sigaction(signal, &raw const action, ptr::null_mut());
    }
}

/// Calls a handler.
///
/// # Safety
/// The address is a handler's of the form that `with_info` says.
unsafe fn call(address: usize, with_info: bool, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    if with_info {
        // SAFETY: the caller's promise.
        let call: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = unsafe { core::mem::transmute(address) };
        // SAFETY: as above.
        unsafe { call(signal, info, context) };
    } else {
        // SAFETY: as above.
        let call: unsafe extern "C" fn(c_int) = unsafe { core::mem::transmute(address) };
        // SAFETY: as above.
        unsafe { call(signal) };
    }
}

/// sigaction(2).
pub(super) unsafe fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let Some(slot) = handler(signal) else {
        // SAFETY: the program's promise to sigaction(2).
        return unsafe { real::sigaction(signal, new, old) };
    };
    let me = (&raw const slot.address).cast::<c_void>().cast_mut();
    let locked = lock(me);
    let previous = slot.address.load(Ordering::Acquire);
    let previous_flags = slot.flags();
    let is_watched = faults::are_watched(signal);
    let previous_mask = faults::mask();
    // SAFETY: null, or a valid action, by the program's promise.
    let wanted = unsafe { new.as_ref() }.copied();
    let mut passed = wanted;
    if let Some(action) = &mut passed
        && (is_watched || (action.sa_sigaction != SIG_DFL && action.sa_sigaction != SIG_IGN))
    {
        slot.install(action.sa_sigaction, action.sa_flags);
        action.sa_sigaction = trampoline as *const () as sighandler_t;
        action.sa_flags = action.sa_flags & !SA_RESETHAND | SA_SIGINFO;
        if is_watched {
            faults::mask_all_others(action);
        }
    }
    let raw = passed.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the program's promise to sigaction(2).
    let result = unsafe { real::sigaction(signal, raw, old) };
    if result == 0 {
        // SAFETY: null, or filled in by the kernel just now.
        if let Some(old) = unsafe { old.as_mut() }
            && old.sa_sigaction == trampoline as *const () as sighandler_t
        {
            old.sa_sigaction = previous;
            old.sa_flags = old.sa_flags & !SA_SIGINFO | previous_flags & (SA_SIGINFO | SA_RESETHAND);
            if is_watched {
                old.sa_mask = previous_mask;
            }
        }
    } else {
        slot.install(previous, previous_flags);
        if is_watched {
            faults::set_mask(&previous_mask);
        }
    }
    if locked {
        CHANGING.store(ptr::null_mut(), Ordering::Release);
    }
    result
}

/// Takes the lock; `false` if it did not come free in reasonable time (this very thread's handler interrupted its holder).
fn lock(me: *mut c_void) -> bool {
    for _ in 0..10_000 {
        if CHANGING.compare_exchange(ptr::null_mut(), me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return true;
        }
        core::hint::spin_loop();
    }
    false
}
