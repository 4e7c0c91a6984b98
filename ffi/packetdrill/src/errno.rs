//! The C edge: errno, and the boundary that no panic crosses.

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ringway_stack::Error;

/// What a call failed with, as errno has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const AGAIN: Self = Self(libc::EAGAIN);
    pub(crate) const INVALID: Self = Self(libc::EINVAL);
    pub(crate) const FAULT: Self = Self(libc::EFAULT);
    pub(crate) const BAD_DESCRIPTOR: Self = Self(libc::EBADF);
    pub(crate) const NOT_SUPPORTED: Self = Self(libc::EOPNOTSUPP);
    pub(crate) const NO_OPTION: Self = Self(libc::ENOPROTOOPT);
    pub(crate) const NOT_CONNECTED: Self = Self(libc::ENOTCONN);
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        Self(error.errno())
    }
}

/// Runs a call: what it returns, or -1 with errno set. A panic is EIO.
pub(crate) fn returned(call: impl FnOnce() -> Result<isize, Errno>) -> isize {
    let code = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return value,
        Ok(Err(Errno(code))) => code,
        Err(_) => libc::EIO,
    };
    // SAFETY: the address is the calling thread's own, and valid for its life.
    unsafe { *libc::__errno_location() = code };
    -1
}

/// As [`returned`], of a call that returns an int.
pub(crate) fn returned_int(call: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    returned(|| call().map(|value| value as isize)) as c_int
}
