//! exec: whether it is likely to succeed, and its forms with lists of arguments.

use core::ffi::{CStr, c_char, c_int};

use crate::types::Strings;
use crate::{Intercept, boundary, errno};

/// Calls `exec`, which returns only if it fails. `is_possible`: as far as one can tell before.
pub(crate) fn with<L: Intercept>(is_possible: bool, exec: impl FnOnce() -> c_int) -> c_int {
    if !is_possible {
        return exec();
    }
    boundary!((), L::before_exec());
    let result = exec();
    boundary!((), L::after_exec());
    result
}

/// Whether there is a program under this path, and may be executed: otherwise exec fails, and nothing is to change.
///
/// # Safety
/// The path is a C string, or one that exec fails for.
pub(crate) unsafe fn exists(directory: c_int, path: *const c_char) -> bool {
    let saved = errno::current();
    // SAFETY: the caller's promise.
    let found = unsafe { libc::faccessat(directory, path, libc::X_OK, libc::AT_EACCESS) } == 0;
    let is_known = matches!(errno::current(), libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::ENAMETOOLONG | libc::ELOOP);
    errno::set(saved);
    found || !is_known
}

/// As [`exists`], as execvp(3) searches for it.
///
/// # Safety
/// The name is a C string, or one that exec fails for.
pub(crate) unsafe fn is_found(file: *const c_char) -> bool {
    if file.is_null() {
        return true;
    }
    // SAFETY: the caller's promise; the environment is the program's, which does not change it meanwhile (getenv(3)).
    let (name, places) = unsafe { (CStr::from_ptr(file).to_bytes(), libc::getenv(c"PATH".as_ptr())) };
    if name.contains(&b'/') {
        // SAFETY: the caller's promise.
        return unsafe { exists(libc::AT_FDCWD, file) };
    }
    // (Without a PATH, libc has one of its own.)
    if places.is_null() {
        return true;
    }
    // SAFETY: a variable of the environment is a C string.
    let places = unsafe { CStr::from_ptr(places) }.to_bytes();
    // No allocation: it may be a child of a fork that calls.
    let mut path = [0u8; libc::PATH_MAX as usize];
    places.split(|&byte| byte == b':').any(|place| {
        let place = if place.is_empty() { b"." } else { place };
        let len = place.len() + 1 + name.len();
        let Some(whole) = path.get_mut(..=len) else { return false };
        whole[..place.len()].copy_from_slice(place);
        whole[place.len()] = b'/';
        whole[place.len() + 1..len].copy_from_slice(name);
        whole[len] = 0;
        // SAFETY: it ends with a zero.
        unsafe { exists(libc::AT_FDCWD, whole.as_ptr().cast()) }
    })
}

/// execl(3) and its kin: a list of arguments up to a null, and for execle(3) the environment behind it, both for `exec`.
///
/// Stable Rust defines no variadic functions. So these have as many parameters as such calls ever have arguments: what a caller did not
/// pass is whatever lies above its frame, and is not looked at, for the null comes before it.
pub(crate) fn listed(all: &[*const c_char; 24], exec: impl FnOnce(Strings, Strings) -> c_int) -> c_int {
    let end = all.iter().position(|argument| argument.is_null());
    let Some(behind) = end.and_then(|end| all.get(end + 1)) else { return errno::fail(libc::E2BIG) };
    exec(all.as_ptr(), behind.cast())
}
