//! System calls by number: their libc wrappers may be interposed by the library that this crate is linked into.

use std::io;
use std::os::fd::RawFd;

/// The result of a raw system call, errno turned into an [`io::Error`].
pub(crate) fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Closes a descriptor that the caller owns. Errors are of no use here: the number is free either way.
pub(crate) fn close(fd: RawFd) {
    // SAFETY: closing is memory-safe; the caller owns the number.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// `fcntl(F_DUPFD_CLOEXEC)`: a duplicate numbered `at_least` or above.
pub(crate) fn dup_above(fd: RawFd, at_least: RawFd) -> io::Result<RawFd> {
    // SAFETY: no memory is passed.
    let new = check(unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, at_least) })?;
    Ok(i32::try_from(new).unwrap_or(-1))
}

/// A duplicate with the lowest number, close-on-exec as the descriptor is.
pub(crate) fn dup_lowest(fd: RawFd) -> io::Result<RawFd> {
    // SAFETY: no memory is passed.
    let flags = check(unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFD) })?;
    let command = if flags & libc::c_long::from(libc::FD_CLOEXEC) != 0 { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    // SAFETY: no memory is passed.
    let new = check(unsafe { libc::syscall(libc::SYS_fcntl, fd, command, 0) })?;
    Ok(i32::try_from(new).unwrap_or(-1))
}
