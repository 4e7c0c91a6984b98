//! Calls that hand out descriptors: a number that was a socket's, and was closed by a call that the library did not see, is not
//! taken for that socket any more.

use core::ffi::c_int;

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

/// open(2) and its kin.
#[inline]
pub(super) fn one(next: impl Fn() -> c_int) -> c_int {
    new(numbers::lowest_if_at_once(next))
}

/// signalfd(2): a new descriptor, unless one is named.
pub(super) unsafe fn signalfd(fd: c_int, mask: *const sigset_t, flags: c_int) -> c_int {
    // SAFETY: the program's promise to signalfd(2).
    let result = numbers::lowest(|| unsafe { real::signalfd(fd, mask, flags) });
    if fd == -1 { new(result) } else { result }
}

/// Both of a pair.
///
/// # Safety
/// As pipe(2).
pub(super) unsafe fn pair(ends: *const c_int, next: impl Fn() -> c_int) -> c_int {
    let result = numbers::lowest(next);
    if result == 0 {
        // SAFETY: the kernel wrote both just now.
        let (first, second) = unsafe { (ends.read(), ends.add(1).read()) };
        new(first);
        new(second);
    }
    result
}
