//! exec: what a new program is to go on with must be the kernel's, since the new program knows of no ring.
//!
//! The calls of libc's that exec by themselves (posix_spawn, system, popen) cannot be seen; so a connection that is put under one of
//! the three standard numbers, or named to posix_spawn, moves right then.

use core::ffi::{CStr, c_char, c_int, c_void};

use ringway_stack::offload::Reason;

use crate::exit;
use crate::fdtable::{self, Entry};
use crate::moving::{self, inherited};
use crate::process;
use crate::real;

/// Before this process's program is replaced.
fn before() {
    let saved = crate::errno::current();
    match process::process() {
        // Also what exec closes: the peer is to see an end, and not a reset, and all of what was written before it.
        Some(process) if process.is_owner() => exit::before_exec(process, keeps),
        Some(_) => lend_all(),
        None => inherited::share_listeners(keeps),
    }
    inherited::settle_all(keeps);
    crate::errno::set(saved);
}

/// After an exec that failed: the program goes on, and so do its connections.
fn after() {
    if let Some(process) = process::process().filter(|process| process.is_owner()) {
        let saved = crate::errno::current();
        moving::owner::after_exec(process);
        process.published.restore();
        crate::errno::set(saved);
    }
}

/// Calls `exec`, which returns only if it fails. `is_possible`: as far as one can tell before.
fn with(is_possible: bool, exec: impl FnOnce() -> c_int) -> c_int {
    if !is_possible {
        return exec();
    }
    crate::boundary!((), before());
    let result = exec();
    crate::boundary!((), after());
    result
}

/// Whether there is a program under this path, and may be executed: otherwise exec fails, and nothing is to change.
///
/// # Safety
/// The path is a C string, or one that exec fails for.
unsafe fn exists(directory: c_int, path: *const c_char) -> bool {
    let saved = crate::errno::current();
    // SAFETY: the caller's promise.
    let found = unsafe { libc::faccessat(directory, path, libc::X_OK, libc::AT_EACCESS) } == 0;
    let is_known = matches!(crate::errno::current(), libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::ENAMETOOLONG | libc::ELOOP);
    crate::errno::set(saved);
    found || !is_known
}

/// As [`exists`], as execvp(3) searches for it.
///
/// # Safety
/// The name is a C string, or one that exec fails for.
unsafe fn is_found(file: *const c_char) -> bool {
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

/// In a vfork child, which has its parent's memory and descriptors of its own.
fn lend_all() {
    for (fd, entry) in fdtable::entries() {
        if matches!(entry, Entry::Socket(_)) && keeps(fd) {
            moving::hand_out(fd, Reason::SharedConnection);
        }
    }
}

/// Whether exec keeps a descriptor.
fn keeps(fd: c_int) -> bool {
    // SAFETY: plain integers.
    let flags = unsafe { real::fcntl(fd, libc::F_GETFD, 0) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}

/// After `old` got the number `new` as well.
pub(super) fn duplicated(old: c_int, new: c_int) {
    if new > libc::STDERR_FILENO {
        return;
    }
    moving::hand_out(old, Reason::SharedConnection);
    if process::process().is_some_and(|process| !process.is_owner()) {
        // A vfork child, of whose `new` no table says anything.
        // SAFETY: plain integers.
        unsafe { real::dup2(old, new) };
    }
    let _ = fdtable::lookup(new);
}

/// execve(2).
///
/// # Safety
/// As execve(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int {
    // SAFETY: the program's promise to execve(2).
    unsafe { with(exists(libc::AT_FDCWD, path), || real::execve(path, arguments, environment)) }
}

/// execv(3).
///
/// # Safety
/// As execv(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: the program's promise to execv(3).
    unsafe { with(exists(libc::AT_FDCWD, path), || real::execv(path, arguments)) }
}

/// execvp(3).
///
/// # Safety
/// As execvp(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: the program's promise to execvp(3).
    unsafe { with(is_found(file), || real::execvp(file, arguments)) }
}

/// execvpe(3).
///
/// # Safety
/// As execvpe(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int {
    // SAFETY: the program's promise to execvpe(3).
    unsafe { with(is_found(file), || real::execvpe(file, arguments, environment)) }
}

/// fexecve(3).
///
/// # Safety
/// As fexecve(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int {
    // SAFETY: the program's promise to fexecve(3).
    unsafe { with(true, || real::fexecve(fd, arguments, environment)) }
}

/// execveat(2).
///
/// # Safety
/// As execveat(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execveat(
    directory: c_int,
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's promise to execveat(2).
    unsafe {
        with(flags & libc::AT_EMPTY_PATH != 0 || exists(directory, path), || real::execveat(directory, path, arguments, environment, flags))
    }
}

/// execl(3) and its kin: a list of arguments up to a null, and for execle(3) the environment behind it.
///
/// Stable Rust defines no variadic functions. So these have as many parameters as such calls ever have arguments: what a caller did not
/// pass is whatever lies above its frame, and is not looked at, for the null comes before it.
macro_rules! listed {
    ($(#[$doc:meta])* $name:ident($environment:ident) $call:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As execl(3).
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(clippy::too_many_arguments, clippy::similar_names, reason = "in place of a variadic list")]
        pub unsafe extern "C" fn $name(
            path: *const c_char, a: *const c_char, b: *const c_char, c: *const c_char, d: *const c_char, e: *const c_char,
            f: *const c_char, g: *const c_char, h: *const c_char, i: *const c_char, j: *const c_char, k: *const c_char,
            l: *const c_char, m: *const c_char, n: *const c_char, o: *const c_char, p: *const c_char, q: *const c_char,
            r: *const c_char, s: *const c_char, t: *const c_char, u: *const c_char, v: *const c_char, w: *const c_char, x: *const c_char,
        ) -> c_int {
            let all = [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x];
            let end = all.iter().position(|argument| argument.is_null());
            let Some(behind) = end.and_then(|end| all.get(end + 1)) else { return crate::errno::fail(libc::E2BIG) };
            let $environment = behind.cast::<*const c_char>();
            let call: unsafe fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int = $call;
            // SAFETY: the program's promise to execl(3); the array ends with a null.
            unsafe { call(path, all.as_ptr(), $environment) }
        }
    };
}

listed! {
    /// execl(3), with up to 22 arguments.
    execl(_environment)
    // SAFETY: the caller's, as the macro says.
    |path, arguments, _| unsafe { execv(path, arguments) }
}
listed! {
    /// execlp(3), with up to 22 arguments.
    execlp(_environment)
    // SAFETY: the caller's, as the macro says.
    |path, arguments, _| unsafe { execvp(path, arguments) }
}
listed! {
    /// execle(3), with up to 22 arguments.
    execle(environment)
    // SAFETY: the caller's, as the macro says.
    |path, arguments, environment| unsafe { execve(path, arguments, environment) }
}

/// posix_spawn_file_actions_adddup2(3).
///
/// # Safety
/// As posix_spawn_file_actions_adddup2(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_spawn_file_actions_adddup2(actions: *mut c_void, old: c_int, new: c_int) -> c_int {
    crate::boundary!((), moving::hand_out(old, Reason::SharedConnection));
    // SAFETY: the program's promise to posix_spawn_file_actions_adddup2(3).
    unsafe { real::posix_spawn_file_actions_adddup2(actions, old, new) }
}
