//! Calls by which a process gives up the means to reach others: its user, its root, its system calls. What it inherited and may
//! use later is fetched before.

use core::ffi::{c_char, c_int, c_long};

use libc::uid_t;

use crate::moving::{self, inherited};
use crate::{process, real};

fn before() {
    let saved = crate::errno::current();
    inherited::settle_all(|_| true);
    if let Some(process) = process::process()
        && process.is_owner()
    {
        moving::owner::adopted(process);
    }
    crate::errno::set(saved);
}

/// Before a filter decides over system calls: what the ring needs may not be among those that are left.
pub(super) fn before_sandbox() {
    before();
    if let Some(process) = process::process()
        && process.is_owner()
    {
        moving::owner::all(process);
    }
}

/// Before a system call of these by its number, and with this first argument. (Of those that change the user, libc's functions do so for all
/// threads, the system calls for one.)
pub(super) fn by_number(number: c_long, first: c_long) {
    /// SECCOMP_SET_MODE_STRICT and SECCOMP_SET_MODE_FILTER of linux/seccomp.h; the others only ask.
    const SETS_MODE: core::ops::RangeInclusive<c_long> = 0..=1;
    match number {
        libc::SYS_seccomp if !SETS_MODE.contains(&first) => {}
        libc::SYS_prctl if first != c_long::from(libc::PR_SET_SECCOMP) => {}
        libc::SYS_seccomp | libc::SYS_prctl => crate::boundary!((), before_sandbox()),
        _ => crate::boundary!((), before()),
    }
}

/// setuid(2).
///
/// # Safety
/// As setuid(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn setuid(user: uid_t) -> c_int {
    crate::boundary!((), before());
    // SAFETY: plain integers.
    unsafe { real::setuid(user) }
}

/// seteuid(2).
///
/// # Safety
/// As seteuid(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn seteuid(user: uid_t) -> c_int {
    crate::boundary!((), before());
    // SAFETY: plain integers.
    unsafe { real::seteuid(user) }
}

/// setreuid(2).
///
/// # Safety
/// As setreuid(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn setreuid(user: uid_t, effective: uid_t) -> c_int {
    crate::boundary!((), before());
    // SAFETY: plain integers.
    unsafe { real::setreuid(user, effective) }
}

/// setresuid(2).
///
/// # Safety
/// As setresuid(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn setresuid(user: uid_t, effective: uid_t, saved: uid_t) -> c_int {
    crate::boundary!((), before());
    // SAFETY: plain integers.
    unsafe { real::setresuid(user, effective, saved) }
}

/// chroot(2).
///
/// # Safety
/// As chroot(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn chroot(path: *const c_char) -> c_int {
    crate::boundary!((), before());
    // SAFETY: the program's promise to chroot(2).
    unsafe { real::chroot(path) }
}

/// unshare(2): another network namespace has other processes.
///
/// # Safety
/// As unshare(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    crate::boundary!((), before());
    // SAFETY: plain integers.
    unsafe { real::unshare(flags) }
}

/// setns(2): as unshare.
///
/// # Safety
/// As setns(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    crate::boundary!((), before());
    // SAFETY: plain integers.
    unsafe { real::setns(fd, kind) }
}

/// prctl(2).
///
/// # Safety
/// As prctl(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    if option == libc::PR_SET_SECCOMP {
        crate::boundary!((), before_sandbox());
    }
    // SAFETY: the program's promise to prctl(2).
    unsafe { real::prctl(option, a, b, c, d) }
}
