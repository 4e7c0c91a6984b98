//! sigaction and signal: a handler that runs while a thread spins in one of our waits must end the wait as it would end a
//! sleep in the kernel. So handlers are installed behind a trampoline that leaves a note for the wait.
//!
//! Everything here is async-signal-safe: atomics only.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use libc::{SA_RESTART, SA_SIGINFO, SIG_DFL, SIG_ERR, SIG_IGN, sighandler_t, siginfo_t};

use crate::errno;
use crate::mux::wait::note_signal;
use crate::real;

const SIGNALS: usize = 65;

/// The program's handler for a signal.
struct Handler {
    address: AtomicUsize,
    with_info: AtomicBool,
    restart: AtomicBool,
}

static HANDLERS: [Handler; SIGNALS] =
    [const { Handler { address: AtomicUsize::new(SIG_DFL), with_info: AtomicBool::new(false), restart: AtomicBool::new(false) } }; SIGNALS];

/// Keeps `HANDLERS` and the kernel's table in step between threads. A spin lock, for handlers may install handlers.
static CHANGING: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

fn handler(signal: c_int) -> Option<&'static Handler> {
    HANDLERS.get(usize::try_from(signal).ok().filter(|&s| s > 0)?)
}

unsafe extern "C" fn trampoline(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(handler) = handler(signal) else { return };
    let saved = errno::current();
    note_signal(handler.restart.load(Ordering::Relaxed));
    errno::set(saved);
    let address = handler.address.load(Ordering::Acquire);
    if address == SIG_DFL || address == SIG_IGN {
        return;
    }
    if handler.with_info.load(Ordering::Relaxed) {
        // SAFETY: the program installed the address as a handler of this form.
        let call: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = unsafe { core::mem::transmute(address) };
        // SAFETY: with the kernel's own arguments.
        unsafe { call(signal, info, context) };
    } else {
        // SAFETY: as above.
        let call: unsafe extern "C" fn(c_int) = unsafe { core::mem::transmute(address) };
        // SAFETY: as above.
        unsafe { call(signal) };
    }
}

/// sigaction(2).
///
/// # Safety
/// As sigaction(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let Some(slot) = handler(signal) else {
        // SAFETY: the program's promise to sigaction(2).
        return unsafe { real::sigaction(signal, new, old) };
    };
    let me = (&raw const slot.address).cast::<c_void>().cast_mut();
    let locked = lock(me);
    let previous = slot.address.load(Ordering::Acquire);
    let previous_info = slot.with_info.load(Ordering::Relaxed);
    // SAFETY: null, or a valid action, by the program's promise.
    let wanted = unsafe { new.as_ref() }.copied();
    let mut passed = wanted;
    if let Some(action) = &mut passed
        && action.sa_sigaction != SIG_DFL
        && action.sa_sigaction != SIG_IGN
    {
        slot.with_info.store(action.sa_flags & SA_SIGINFO != 0, Ordering::Relaxed);
        slot.restart.store(action.sa_flags & SA_RESTART != 0, Ordering::Relaxed);
        slot.address.store(action.sa_sigaction, Ordering::Release);
        action.sa_sigaction = trampoline as *const () as sighandler_t;
        action.sa_flags |= SA_SIGINFO;
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
            if !previous_info {
                old.sa_flags &= !SA_SIGINFO;
            }
        }
    } else {
        slot.address.store(previous, Ordering::Release);
        slot.with_info.store(previous_info, Ordering::Relaxed);
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

/// signal(2), with BSD's semantics as glibc has them: the handler stays, and calls are restarted.
///
/// # Safety
/// As signal(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    if handler == SIG_ERR {
        errno::set(libc::EINVAL);
        return SIG_ERR;
    }
    // SAFETY: all of it is integers, for which zero is a value.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { (core::mem::zeroed(), core::mem::zeroed()) };
    new.sa_sigaction = handler;
    new.sa_flags = SA_RESTART;
    // SAFETY: a valid set.
    unsafe { libc::sigaddset(&raw mut new.sa_mask, signal) };
    // SAFETY: valid actions.
    if unsafe { sigaction(signal, &raw const new, &raw mut old) } != 0 {
        return SIG_ERR;
    }
    old.sa_sigaction
}
