//! Descriptors of the library's own: numbered high, closed by number, and closed in the child of a fork, whose they are not.
//!
//! What an interface's program, maps and sockets do ends with their last descriptor: a child that kept copies would keep them alive beyond its parent's end.

use core::sync::atomic::{AtomicU64, Ordering};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd as _, OwnedFd, RawFd};

use crate::sleep::{high, internal_fd};
use crate::{numbers, syscall};

/// The highest number that can be remembered, plus one.
const LIMIT: usize = 1 << 20;

/// One bit a descriptor. (A child of fork may find any lock held for ever; these words are always usable.)
static OURS: [AtomicU64; LIMIT / 64] = [const { AtomicU64::new(0) }; LIMIT / 64];

/// See the module's documentation.
#[derive(Debug)]
pub struct Fd(RawFd);

impl Fd {
    /// Of what a system call makes.
    ///
    /// # Errors
    /// Its own.
    pub fn make(make: impl FnOnce() -> libc::c_long) -> io::Result<Self> {
        let fd = internal_fd(|| syscall::check(make()))?;
        Ok(Self::known(fd))
    }

    /// Of what another library's call makes.
    ///
    /// # Errors
    /// Its own.
    pub fn of<E>(make: impl FnOnce() -> Result<OwnedFd, E>) -> Result<Self, E> {
        numbers::make_internal(|| Ok(Self::known(high(make()?.into_raw_fd()))))
    }

    /// Of those that a message brought.
    ///
    /// # Errors
    /// What receiving it says.
    pub fn receive<T>(receive: impl FnOnce() -> io::Result<(T, Vec<OwnedFd>)>) -> io::Result<(T, Vec<Self>)> {
        numbers::make_internal(|| {
            let (message, fds) = receive()?;
            let moved = fds.into_iter().map(|fd| Self::known(high(fd.into_raw_fd())));
            Ok((message, moved.collect()))
        })
    }

    fn known(fd: RawFd) -> Self {
        if let Some((word, bit)) = place(fd) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Self(fd)
    }

    /// Its number.
    #[inline]
    pub const fn raw(&self) -> RawFd {
        self.0
    }
}

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as the value is there.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // (In a child, its number may be the program's by now.)
        if place(self.0).is_none_or(|(word, bit)| word.fetch_and(!bit, Ordering::Relaxed) & bit != 0) {
            syscall::close(self.0);
        }
    }
}

/// A descriptor that another library has opened for this process, and will close: until then it is no number of the program's, and it is closed in the child of a fork.
#[derive(Debug)]
pub struct Adopted(RawFd);

impl Adopted {
    /// Of an open descriptor. It is to be dropped before that is closed.
    pub fn new(fd: RawFd) -> Self {
        if let Some((word, bit)) = place(fd) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Self(fd)
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        if let Some((word, bit)) = place(self.0) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

fn place(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let at = usize::try_from(fd).ok()?;
    Some((OURS.get(at / 64)?, 1 << (at % 64)))
}

/// Whether a descriptor is one of these: whoever closes it for the program closes a stranger's.
pub(crate) fn is_one(fd: RawFd) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// In the child of a fork: closes them all. Async-signal-safe.
pub fn close_all_in_child() {
    for (at, word) in OURS.iter().enumerate() {
        // (Pages of zeros stay unwritten.)
        let mut bits = word.load(Ordering::Relaxed);
        if bits != 0 {
            word.store(0, Ordering::Relaxed);
        }
        while bits != 0 {
            syscall::close((at * 64) as RawFd + bits.trailing_zeros() as RawFd);
            bits &= bits - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_while_it_is_open() {
        // SAFETY: no memory is involved.
        let fd = Fd::make(|| unsafe { libc::syscall(libc::SYS_eventfd2, 0, libc::EFD_CLOEXEC) }).unwrap();
        let raw = fd.raw();
        assert!(is_one(raw) && crate::is_internal(raw));
        drop(fd);
        assert!(!is_one(raw) && !is_one(-1) && !is_one(i32::MAX));
        // SAFETY: no memory is involved.
        let other = syscall::check(unsafe { libc::syscall(libc::SYS_eventfd2, 0, libc::EFD_CLOEXEC) }).unwrap() as RawFd;
        // SAFETY: a descriptor that is this test's.
        let same = Fd::of(|| unsafe { BorrowedFd::borrow_raw(other) }.try_clone_to_owned()).unwrap();
        assert!(is_one(same.raw()) && same.as_fd().as_raw_fd() == same.raw() && same.raw() > other);
        let adopted = Adopted::new(other);
        assert!(is_one(other));
        drop(adopted);
        assert!(!is_one(other));
        syscall::close(other);
    }
}
