//! Calls that hand out descriptors: a number that was a socket's, and was closed by a call that the library did not see, is not
//! taken for that socket any more.

use core::ffi::{c_char, c_int, c_uint};

use libc::sigset_t;
use ringway_host::numbers;

use crate::real;
use crate::socket::lifecycle;

/// What a call returned: a descriptor, or a failure.
#[inline]
fn new(fd: c_int) -> c_int {
    if fd >= 0 {
        crate::boundary!((), lifecycle::arriving(fd));
    }
    fd
}

macro_rules! openers {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal ($($arg:ident: $type:ty),*) by $real:ident($($pass:expr),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As libc's function of that name.
        #[cfg_attr(not(test), unsafe(export_name = $symbol))]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
            // SAFETY: the program's promise to the function.
            new(numbers::lowest_if_at_once(|| unsafe { real::$real($($pass),*) }))
        }
    )*};
}

openers! {
    /// open(2). (On 64-bit machines it and the next are one; a mode that was not passed is not looked at.)
    open = "open"(path: *const c_char, flags: c_int, mode: c_uint) by open(path, flags, mode);
    /// open64.
    open64 = "open64"(path: *const c_char, flags: c_int, mode: c_uint) by open(path, flags, mode);
    /// openat(2).
    openat = "openat"(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) by openat(directory, path, flags, mode);
    /// openat64.
    openat64 = "openat64"(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) by openat(directory, path, flags, mode);
    /// creat(2).
    creat = "creat"(path: *const c_char, mode: c_uint) by creat(path, mode);
    /// creat64.
    creat64 = "creat64"(path: *const c_char, mode: c_uint) by creat(path, mode);
    /// open(2), fortified.
    open_2 = "__open_2"(path: *const c_char, flags: c_int) by open_2(path, flags);
    /// open64, fortified.
    open64_2 = "__open64_2"(path: *const c_char, flags: c_int) by open_2(path, flags);
    /// openat(2), fortified.
    openat_2 = "__openat_2"(directory: c_int, path: *const c_char, flags: c_int) by openat_2(directory, path, flags);
    /// openat64, fortified.
    openat64_2 = "__openat64_2"(directory: c_int, path: *const c_char, flags: c_int) by openat_2(directory, path, flags);
    /// eventfd(2).
    eventfd = "eventfd"(count: c_uint, flags: c_int) by eventfd(count, flags);
    /// timerfd_create(2).
    timerfd_create = "timerfd_create"(clock: c_int, flags: c_int) by timerfd_create(clock, flags);
    /// memfd_create(2).
    memfd_create = "memfd_create"(name: *const c_char, flags: c_uint) by memfd_create(name, flags);
    /// inotify_init(2).
    inotify_init = "inotify_init"() by inotify_init1(0);
    /// inotify_init1(2).
    inotify_init1 = "inotify_init1"(flags: c_int) by inotify_init1(flags);
}

/// signalfd(2): a new descriptor, unless one is named.
///
/// # Safety
/// As signalfd(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn signalfd(fd: c_int, mask: *const sigset_t, flags: c_int) -> c_int {
    // SAFETY: the program's promise to signalfd(2).
    let result = numbers::lowest(|| unsafe { real::signalfd(fd, mask, flags) });
    if fd == -1 { new(result) } else { result }
}

/// Both of a pair.
unsafe fn pair(result: c_int, ends: *const c_int) -> c_int {
    if result == 0 {
        // SAFETY: the kernel wrote both just now.
        let (first, second) = unsafe { (ends.read(), ends.add(1).read()) };
        new(first);
        new(second);
    }
    result
}

/// pipe(2).
///
/// # Safety
/// As pipe(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pipe(ends: *mut c_int) -> c_int {
    // SAFETY: the program's promise to pipe(2).
    unsafe { pair(numbers::lowest(|| real::pipe2(ends, 0)), ends) }
}

/// pipe2(2).
///
/// # Safety
/// As pipe2(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pipe2(ends: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: the program's promise to pipe2(2).
    unsafe { pair(numbers::lowest(|| real::pipe2(ends, flags)), ends) }
}

/// socketpair(2).
///
/// # Safety
/// As socketpair(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn socketpair(domain: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int {
    // SAFETY: the program's promise to socketpair(2).
    unsafe { pair(numbers::lowest(|| real::socketpair(domain, kind, protocol, ends)), ends) }
}
