//! SIGSEGV, once the program has been lent something: a write into what it was lent is allowed ([`LendBuffer::copy_on_write`]), and any other fault goes
//! the way that it went before, to the program's handler or its end.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libc::{SA_ONSTACK, SA_RESETHAND, SA_SIGINFO, SIG_DFL, SIG_IGN, SIG_SETMASK, SIGSEGV, sighandler_t, siginfo_t, sigset_t};
use ringway_devices::RxBuf;
use ringway_host::all_but_faults;

use super::{CHANGING, handler, lock, trampoline};
use crate::{errno, real};
use ringway_stack::device::LendBuffer;

/// sigaction(2): the mapping does not allow it. (libc has no name for it.)
const SEGV_ACCERR: c_int = 2;

/// The trampoline stays whatever the program installs.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// What the program's action blocks besides, as the kernel has it: a bit a signal.
static MASK: AtomicU64 = AtomicU64::new(0);

/// Whether a signal comes here first, even where the program has no handler.
#[inline]
pub(super) fn are_watched(signal: c_int) -> bool {
    signal == SIGSEGV && WATCHED.load(Ordering::Relaxed)
}

/// What the program's action for SIGSEGV blocks besides, once it is watched.
pub(super) fn mask() -> sigset_t {
    // SAFETY: a set is plain words, for which zero is a value; the kernel's part of it comes first (sigset_t in glibc's and musl's).
    unsafe {
        let mut set: sigset_t = core::mem::zeroed();
        (&raw mut set).cast::<u64>().write(MASK.load(Ordering::Relaxed));
        set
    }
}

pub(super) fn set_mask(set: &sigset_t) {
    MASK.store(bits(set), Ordering::Relaxed);
}

fn bits(set: &sigset_t) -> u64 {
    // SAFETY: as in `mask`.
    unsafe { ptr::from_ref(set).cast::<u64>().read() }
}

/// Remembers what an action blocks, and has it block all but faults: a handler that ran before a write is allowed, and wrote to what is lent itself,
/// would end the process.
pub(super) fn mask_all_others(action: &mut libc::sigaction) {
    set_mask(&action.sa_mask);
    action.sa_mask = all_but_faults();
}

/// Blocks what the kernel would block for the program's handler, which is about to be called.
///
/// # Safety
/// `context` is the kernel's, of a SIGSEGV.
pub(super) unsafe fn mask_as_asked(context: *const c_void) {
    // SAFETY: the caller's promise. (The kernel fills in as much of the set as is read.)
    let before = unsafe { (&raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<u64>().read() };
    // SAFETY: sets are plain words, for which zero is a value, and valid for the calls.
    unsafe {
        let (mut asked, mut now) = (mask(), core::mem::zeroed());
        (&raw mut asked).cast::<u64>().write(bits(&asked) | before);
        real::pthread_sigmask(SIG_SETMASK, ptr::null(), &raw mut now);
        // (Unless SA_NODEFER was asked for.)
        if libc::sigismember(&raw const now, SIGSEGV) == 1 {
            libc::sigaddset(&raw mut asked, SIGSEGV);
        }
        real::pthread_sigmask(SIG_SETMASK, &raw const asked, ptr::null_mut());
    }
}

/// From now on, writes into what is lent are allowed. (In a thread that blocks SIGSEGV, they end the process, as any fault would: sigprocmask(2). See
/// [`super::mask`].)
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
            }
            mask_all_others(&mut action);
            real::sigaction(SIGSEGV, &raw const action, ptr::null_mut());
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
    let is_mended = RxBuf::copy_on_write(address);
    errno::set(saved);
    is_mended
}

cfg_if::cfg_if! {
    if #[cfg(target_arch = "x86_64")] {
        /// Whether it was a write that faulted: who jumps to what is lent would fault there for ever.
        ///
        /// # Safety
        /// As [`is_mended`].
        unsafe fn is_write(context: *const libc::ucontext_t) -> bool {
            /// Intel's manual, volume 3, 4.7: the page fault's error code.
            const WRITE: i64 = 2;
            // SAFETY: the caller's promise.
            unsafe { (*context).uc_mcontext.gregs[libc::REG_ERR as usize] & WRITE != 0 }
        }
    } else if #[cfg(target_arch = "aarch64")] {
        /// The same where the cause is not told: it was no jump.
        ///
        /// # Safety
        /// As [`is_mended`].
        unsafe fn is_write(context: *const libc::ucontext_t) -> bool {
            // SAFETY: the caller's promise.
            unsafe { (*context).uc_mcontext.pc != (*context).uc_mcontext.fault_address }
        }
    }
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
