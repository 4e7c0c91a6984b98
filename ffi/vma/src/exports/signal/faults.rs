//! SIGSEGV, once the program has been lent something: a write into what it was lent is allowed ([`ringway_shm::copy_on_write`]), and any other fault goes
//! the way that it went before, to the program's handler or its end.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use libc::{SA_ONSTACK, SA_RESETHAND, SA_SIGINFO, SIG_DFL, SIG_IGN, SIGSEGV, sighandler_t, siginfo_t};

use super::{CHANGING, handler, lock, trampoline};
use crate::{errno, real};

/// sigaction(2): the mapping does not allow it. (libc has no name for it.)
const SEGV_ACCERR: c_int = 2;

/// The trampoline stays whatever the program installs.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Whether a signal comes here first, even where the program has no handler.
#[inline]
pub(super) fn are_watched(signal: c_int) -> bool {
    signal == SIGSEGV && WATCHED.load(Ordering::Relaxed)
}

/// From now on, writes into what is lent are allowed. (Whoever blocks SIGSEGV in a thread has those end the process, as any fault would:
/// sigprocmask(2).)
pub(crate) fn watch() {
    if WATCHED.load(Ordering::Relaxed) {
        return;
    }
    let Some(slot) = handler(SIGSEGV) else { return };
    let locked = lock((&raw const slot.address).cast_mut().cast());
    // SAFETY: all of an action is integers, for which zero is a value; the calls get valid actions.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        if real::sigaction(SIGSEGV, ptr::null(), &raw mut action) == 0 {
            if action.sa_sigaction != trampoline as *const () as sighandler_t {
                slot.install(action.sa_sigaction, action.sa_flags);
                if action.sa_sigaction == SIG_DFL || action.sa_sigaction == SIG_IGN {
                    action.sa_flags |= SA_ONSTACK;
                }
                action.sa_sigaction = trampoline as *const () as sighandler_t;
                action.sa_flags = action.sa_flags & !SA_RESETHAND | SA_SIGINFO;
                real::sigaction(SIGSEGV, &raw const action, ptr::null_mut());
            }
            WATCHED.store(true, Ordering::Release);
        }
    }
    if locked {
        CHANGING.store(ptr::null_mut(), Ordering::Release);
    }
}

/// Whether it was a write into what is lent, which is allowed now: the handler returns to it. Async-signal-safe.
///
/// # Safety
/// `info` and `context` are the kernel's, of a SIGSEGV.
pub(super) unsafe fn is_mended(info: *const siginfo_t, context: *const c_void) -> bool {
    // SAFETY: the caller's promise; the code says that there is an address.
    let address = unsafe {
        if (*info).si_code != SEGV_ACCERR || !is_write(context.cast()) {
            return false;
        }
        (*info).si_addr().addr()
    };
    let saved = errno::current();
    let is_mended = ringway_shm::copy_on_write(address);
    errno::set(saved);
    is_mended
}

/// Whether it was a write that faulted: who jumps to what is lent would fault there for ever.
///
/// # Safety
/// As [`is_mended`].
#[cfg(target_arch = "x86_64")]
unsafe fn is_write(context: *const libc::ucontext_t) -> bool {
    /// Intel's manual, volume 3, 4.7: the page fault's error code.
    const WRITE: i64 = 2;
    // SAFETY: the caller's promise.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_ERR as usize] & WRITE != 0 }
}

/// The same where the cause is not told: it was no jump.
///
/// # Safety
/// As [`is_mended`].
#[cfg(target_arch = "aarch64")]
unsafe fn is_write(context: *const libc::ucontext_t) -> bool {
    // SAFETY: the caller's promise.
    unsafe { (*context).uc_mcontext.pc != (*context).uc_mcontext.fault_address }
}

/// What happens where the program has no handler: its end, by the very fault, so that a core dump shows that. A signal that
/// somebody sent is sent again, for there is no fault to return to.
///
/// # Safety
/// `info` is the kernel's.
pub(super) unsafe fn end_as_without_handler(signal: c_int, info: *const siginfo_t, action: sighandler_t) {
    // SAFETY: the caller's promise. (sigaction(2): a code above zero is the kernel's own.)
    let was_sent = unsafe { (*info).si_code } <= 0;
    if was_sent && action == SIG_IGN {
        return;
    }
    // SAFETY: all of an action is integers, for which zero is a value.
    unsafe {
        let mut default: libc::sigaction = core::mem::zeroed();
        default.sa_sigaction = SIG_DFL;
        real::sigaction(signal, &raw const default, ptr::null_mut());
        if was_sent {
            libc::raise(signal);
        }
    }
}
