//! The C edge: errno, and the boundary that no panic crosses. (The one table from errors to errno is [`Error::errno`].)

use core::any::Any;
use core::ffi::c_int;

use libc::{nfds_t, pollfd};
use ringway_stack::Error;

/// The calling thread's errno.
#[inline]
pub fn current() -> c_int {
    // SAFETY: the address is the calling thread's own, and valid for its life.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's errno.
#[inline]
pub fn set(code: c_int) {
    // SAFETY: as in `current`.
    unsafe { *libc::__errno_location() = code };
}

/// What a body does to errno is not to be seen: "The value of errno is significant only when the return value of the call indicated an error", says errno(3),
/// but programs look at it without one, and a kernel's calls that succeed leave it alone.
#[inline]
pub fn keeping<T>(body: impl FnOnce() -> T) -> T {
    let saved = current();
    let value = body();
    set(saved);
    value
}

/// Sets errno, and is what a failed call returns.
#[inline]
pub fn fail(code: c_int) -> c_int {
    set(code);
    -1
}

/// What a call failed with, as errno has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub c_int);

/// Not a failure: the call is the kernel's to do, outside of all that is ours.
pub const THEIRS: Errno = Errno(0);

impl Errno {
    /// What the last call of libc's failed with.
    pub fn last() -> Self {
        Self(current())
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        Self(error.errno())
    }
}

/// What is mapped at least, and at the least: no process has anything in the first page of memory or in the last.
const PAGE: usize = 4096;

/// Whether a program's pointer certainly leads nowhere: null, a field of a structure at null, -1. The kernel fails such a call with EFAULT. (Other
/// bad pointers end the program, as with any library.)
#[inline(always)]
pub fn is_nowhere<T>(pointer: *const T) -> bool {
    pointer.addr().wrapping_add(PAGE) < 2 * PAGE
}

/// What a pointer that may be null points to.
///
/// # Errors
/// EFAULT: it leads nowhere.
///
/// # Safety
/// It [leads nowhere](is_nowhere), or to a `T` for as long as the call lasts.
#[inline]
pub unsafe fn optional<'a, T>(pointer: *const T) -> Result<Option<&'a T>, Errno> {
    if !pointer.is_null() && is_nowhere(pointer) {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { pointer.as_ref() })
}

/// Whether `room` bytes can hold `count` entries of poll(2).
pub(crate) fn fits(count: nfds_t, room: usize) -> bool {
    usize::try_from(count).is_ok_and(|count| count <= room / size_of::<pollfd>())
}

/// The result of a call that returns a count or a descriptor, in C's form.
#[inline]
pub fn to_ssize(result: Result<usize, Errno>) -> isize {
    match result {
        Ok(count) => count.cast_signed(),
        Err(Errno(code)) => fail(code) as isize,
    }
}

/// The result of a call that returns zero or a descriptor, in C's form.
#[inline]
pub fn to_int(result: Result<c_int, Errno>) -> c_int {
    match result {
        Ok(value) => value,
        Err(Errno(code)) => fail(code),
    }
}

/// A panic was caught at the boundary: says so, and fails the call with EIO.
#[cold]
#[doc(hidden)]
pub fn panicked<T>(failure: T, payload: &(dyn Any + Send)) -> T {
    let message =
        payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    tracing::error!("a call failed inside the library: {message}");
    set(libc::EIO);
    failure
}

/// Runs the body of an exported function; a panic fails the call instead of crossing into C, and the thread is not cancelled inside.
#[macro_export]
macro_rules! boundary {
    ($failure:expr, $body:expr) => {
        $crate::bare_boundary!($failure, {
            let _masked = $crate::cancel::Masked::new();
            $body
        })
    };
}

/// The same for the calls that send and receive: it costs nothing unless something panics, and the body must see to it itself that no
/// cancellation point of libc's is called in it.
#[macro_export]
macro_rules! bare_boundary {
    ($failure:expr, $body:expr) => {
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| $body)) {
            Ok(value) => value,
            Err(payload) => $crate::errno::panicked($failure, &*payload),
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stacks_table_has_this_machines_numbers() {
        for (error, code) in [
            (Error::WouldBlock, libc::EAGAIN),
            (Error::InProgress, libc::EINPROGRESS),
            (Error::Already, libc::EALREADY),
            (Error::Refused, libc::ECONNREFUSED),
            (Error::Reset, libc::ECONNRESET),
            (Error::Aborted, libc::ECONNABORTED),
            (Error::TimedOut, libc::ETIMEDOUT),
            (Error::NotConnected, libc::ENOTCONN),
            (Error::AlreadyConnected, libc::EISCONN),
            (Error::Pipe, libc::EPIPE),
            (Error::AddressInUse, libc::EADDRINUSE),
            (Error::Invalid, libc::EINVAL),
            (Error::BadSocket, libc::EBADF),
            (Error::NotSupported, libc::EOPNOTSUPP),
            (Error::MessageTooLong, libc::EMSGSIZE),
            (Error::DestinationRequired, libc::EDESTADDRREQ),
            (Error::NoBuffers, libc::ENOBUFS),
            (Error::HostUnreachable, libc::EHOSTUNREACH),
            (Error::NetworkDown, libc::ENETDOWN),
        ] {
            assert_eq!(Errno::from(error).0, code, "{error:?}");
        }
    }
}
