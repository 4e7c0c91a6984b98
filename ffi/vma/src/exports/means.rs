//! Calls by which a process gives up the means to reach others: its user, its root, its system calls. What it inherited and may
//! use later is fetched before.

use core::ffi::{c_char, c_int};

use libc::uid_t;

use crate::moving::{self, heir};
use crate::{process, real};

fn before() {
    let saved = crate::errno::current();
    heir::settle_all(|_| true);
    crate::errno::set(saved);
}

/// Before a filter decides over system calls: what the ring needs may not be among those that are left.
fn before_sandbox() {
    before();
    if let Some(process) = process::process()
        && process.is_owner()
    {
        moving::owner::all(process);
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
