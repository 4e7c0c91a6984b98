//! The program's own actions for the signals of trap mode, which are called for faults that are not a register page's; and that it does not block SIGSEGV, for a
//! fault in a thread that does ends the process (sigprocmask(2)), and threads that block all signals are common.
//!
//! What a program asks for is told as it set it. Everything here is async-signal-safe, as sigaction(2) is.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use libc::{
    SA_NODEFER, SA_RESETHAND, SA_SIGINFO, SIG_DFL, SIG_IGN, SIG_SETMASK, SIG_UNBLOCK, SIGSEGV, SIGTRAP, sighandler_t, siginfo_t, sigset_t,
};
use ringway_preload::next;
use ringway_preload::types::Action;

/// An action. (Its parts are read one by one: who changes an action while it is called gets either, as far as a handler's address and its flags go together.)
pub(super) struct Own {
    handler: AtomicUsize,
    flags: AtomicI32,
    /// What it blocks besides, as the kernel has it: a bit a signal.
    mask: AtomicU64,
}

static FAULT: Own = Own::new();
static STEP: Own = Own::new();

/// The program's action for a signal of trap mode.
pub(super) fn own(signal: c_int) -> Option<&'static Own> {
    match signal {
        SIGSEGV => Some(&FAULT),
        SIGTRAP => Some(&STEP),
        _ => None,
    }
}

/// The kernel's part of a set: it comes first.
pub(super) fn bits(set: &sigset_t) -> u64 {
    // SAFETY: a set is plain words, of which there is one at least.
    unsafe { ptr::from_ref(set).cast::<u64>().read() }
}

pub(super) fn set_of(bits: u64) -> sigset_t {
    // SAFETY: a set is plain words, for which zero is a value, and there is one at least.
    unsafe {
        let mut set: sigset_t = core::mem::zeroed();
        (&raw mut set).cast::<u64>().write(bits);
        set
    }
}

pub(super) const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

impl Own {
    const fn new() -> Self {
        Self { handler: AtomicUsize::new(SIG_DFL), flags: AtomicI32::new(0), mask: AtomicU64::new(0) }
    }

    pub(super) fn take(&self, action: &Action) {
        self.flags.store(action.sa_flags, Ordering::Relaxed);
        self.mask.store(bits(&action.sa_mask), Ordering::Relaxed);
        self.handler.store(action.sa_sigaction, Ordering::Release);
    }

    fn tell(&self) -> Action {
        // SAFETY: all of an action is integers, for which zero is a value.
        let mut action: Action = unsafe { core::mem::zeroed() };
        action.sa_sigaction = self.handler.load(Ordering::Acquire);
        action.sa_flags = self.flags.load(Ordering::Relaxed);
        action.sa_mask = set_of(self.mask.load(Ordering::Relaxed));
        action
    }

    /// Has the program's action happen.
    ///
    /// # Safety
    /// All three are the kernel's, given to a handler that returns right after this.
    pub(super) unsafe fn call(&self, signal: c_int, info: *mut siginfo_t, context: *mut libc::ucontext_t) {
        let action = self.tell();
        if action.sa_sigaction == SIG_DFL || action.sa_sigaction == SIG_IGN {
            // SAFETY: the caller's promise.
            return unsafe { end(signal, info, action.sa_sigaction) };
        }
        if action.sa_flags & SA_RESETHAND != 0 {
            self.handler.store(SIG_DFL, Ordering::Relaxed);
        }
        let itself = if action.sa_flags & SA_NODEFER == 0 { bit(signal) } else { 0 };
        // SAFETY: the caller's promise; the handler is the program's own, of the form that its flags say. (It may leave by siglongjmp: nothing is held here.)
        unsafe {
            // (What was blocked before is blocked still; the kernel's return from this handler restores it.)
            let before = (&raw const (*context).uc_sigmask).cast::<u64>().read();
            let blocked = set_of(before | bits(&action.sa_mask) | itself);
            next::pthread_sigmask(SIG_SETMASK, &raw const blocked, ptr::null_mut());
            if action.sa_flags & SA_SIGINFO != 0 {
                let handler: extern "C" fn(c_int, *mut siginfo_t, *mut libc::ucontext_t) = core::mem::transmute(action.sa_sigaction);
                handler(signal, info, context);
            } else {
                let handler: extern "C" fn(c_int) = core::mem::transmute(action.sa_sigaction);
                handler(signal);
            }
        }
    }
}

/// What happens where the program has no handler: its end, by the very fault, so that a core dump shows that. A signal that somebody sent is sent
/// again, for there is no fault to return to; nor is there one of a breakpoint, behind which the processor would go on.
///
/// # Safety
/// `info` is the kernel's.
unsafe fn end(signal: c_int, info: *const siginfo_t, action: sighandler_t) {
    // SAFETY: the caller's promise. (sigaction(2): a code above zero is the kernel's own.)
    let was_sent = unsafe { (*info).si_code } <= 0;
    if was_sent && action == SIG_IGN {
        return;
    }
    // SAFETY: all of an action is integers, for which zero is a value.
    unsafe {
        let mut default: Action = core::mem::zeroed();
        default.sa_sigaction = SIG_DFL;
        next::sigaction(signal, &raw const default, ptr::null_mut());
        if was_sent || signal == SIGTRAP {
            libc::raise(signal);
        }
    }
}

/// sigaction(2) in trap mode.
///
/// # Safety
/// As sigaction(2).
pub(crate) unsafe fn changed_action(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    if !super::is_on() {
        // SAFETY: the program's promise.
        return unsafe { next::sigaction(signal, new, old) };
    }
    let Some(own) = own(signal) else {
        // SAFETY: the program's promise.
        let changed = unsafe { new.as_ref() }.map(|new| Action { sa_mask: set_of(bits(&new.sa_mask) & !bit(SIGSEGV)), ..*new });
        let new = changed.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the program's promise, and an action that is as valid as its own.
        return unsafe { next::sigaction(signal, new, old) };
    };
    // SAFETY: the program's promise. (Both may be the same.)
    unsafe {
        let (before, new) = (own.tell(), new.as_ref().copied());
        if !old.is_null() {
            old.write(before);
        }
        if let Some(new) = new {
            own.take(&new);
        }
    }
    0
}

/// pthread_sigmask(3) and sigprocmask(2) in trap mode: `change` with a set as it may be.
///
/// # Safety
/// `set` is null, or a set.
pub(crate) unsafe fn changed_mask(how: c_int, set: *const sigset_t, change: impl FnOnce(*const sigset_t) -> c_int) -> c_int {
    if set.is_null() || how == SIG_UNBLOCK || !super::is_on() {
        return change(set);
    }
    // SAFETY: the caller's promise.
    let changed = set_of(bits(unsafe { &*set }) & !bit(SIGSEGV));
    change(&raw const changed)
}
