//! Calls by which a process gives up the means to reach others: its user, its root, its system calls.

use core::ffi::c_long;

use crate::{Intercept, Means, boundary};

/// Before such a call.
pub(crate) fn before<L: Intercept>(means: Means) {
    boundary!((), L::before_giving_up(means));
}

/// Before a system call of these by its number, and with this first argument. (Of those that change the user, libc's functions do so for all
/// threads, the system calls for one.)
pub(crate) fn by_number<L: Intercept>(number: c_long, first: c_long) {
    /// SECCOMP_SET_MODE_STRICT and SECCOMP_SET_MODE_FILTER of linux/seccomp.h; the others only ask.
    const SETS_MODE: core::ops::RangeInclusive<c_long> = 0..=1;
    match number {
        libc::SYS_seccomp if !SETS_MODE.contains(&first) => {}
        libc::SYS_prctl if first != c_long::from(libc::PR_SET_SECCOMP) => {}
        libc::SYS_seccomp | libc::SYS_prctl => before::<L>(Means::SystemCalls),
        _ => before::<L>(Means::Identity),
    }
}
