//! signal(2) in its two semantics, by sigaction.

use core::ffi::c_int;

use libc::{SA_NODEFER, SA_RESETHAND, SA_RESTART, SIG_ERR, sighandler_t};

use crate::{Exports, Intercept, errno};

/// BSD's flags.
pub(crate) const BSD: c_int = SA_RESTART;

/// System V's, with SA_INTERRUPT (bits/sigaction.h).
pub(crate) const SYSTEM_V: c_int = SA_RESETHAND | SA_NODEFER | 0x2000_0000;

/// # Safety
/// As signal(2).
pub(crate) unsafe fn install<L: Intercept>(signal: c_int, handler: sighandler_t, flags: c_int) -> sighandler_t {
    if handler == SIG_ERR {
        errno::set(libc::EINVAL);
        return SIG_ERR;
    }
    // SAFETY: all of it is integers, for which zero is a value.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { (core::mem::zeroed(), core::mem::zeroed()) };
    new.sa_sigaction = handler;
    new.sa_flags = flags;
    if flags & SA_NODEFER == 0 {
        // SAFETY: a valid set.
        unsafe { libc::sigaddset(&raw mut new.sa_mask, signal) };
    }
    // SAFETY: valid actions.
    if unsafe { <L as Exports>::sigaction(signal, &raw const new, &raw mut old) } != 0 {
        return SIG_ERR;
    }
    old.sa_sigaction
}
