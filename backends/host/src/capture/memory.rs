//! Memory that one process writes, and another one reads.

use core::ffi::CStr;
use core::ops::RangeInclusive;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use crate::Fd;
use crate::syscall::check;

/// The first page has the words that are not frames'.
pub(super) const PAGE: usize = 4096;

const NAME: &CStr = c"ringway-capture";

/// Nobody makes it shorter (a read would raise SIGBUS) or longer, or writes to it but by the mapping that its maker has already (fcntl(2)).
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE;

/// A mapping; it ends when it is dropped. A fork's child does not have it.
#[derive(Debug)]
pub(super) struct Memory {
    base: NonNull<u8>,
    /// Invariant: whole words, at least a page.
    len: usize,
    pid: i32,
}

// SAFETY: it is plain memory, which is reached as atomic words alone.
unsafe impl Send for Memory {}

impl Memory {
    /// Zeroed memory, and a descriptor of it for others.
    pub(super) fn make(len: usize) -> io::Result<(Self, Fd)> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a C string.
        let fd = Fd::make(|| unsafe { libc::syscall(libc::SYS_memfd_create, NAME.as_ptr(), flags) })?;
        // (Where that would raise SIGXFSZ, the thread has it blocked, and the call fails.)
        // SAFETY: plain integers.
        check(unsafe { libc::syscall(libc::SYS_ftruncate, fd.raw(), len) })?;
        let memory = Self::map(fd.raw(), len, libc::PROT_READ | libc::PROT_WRITE)?;
        // SAFETY: plain integers.
        check(unsafe { libc::syscall(libc::SYS_fcntl, fd.raw(), libc::F_ADD_SEALS, SEALS) })?;
        Ok((memory, fd))
    }

    /// Maps what another process has made, to read it.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::InvalidData`]: it may become shorter, or is of another length than a page and so many bytes, a power of two.
    pub(super) fn open(fd: &OwnedFd, lengths: RangeInclusive<usize>) -> io::Result<Self> {
        let len = usize::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0);
        // SAFETY: plain integers.
        let seals = check(unsafe { libc::syscall(libc::SYS_fcntl, fd.as_raw_fd(), libc::F_GET_SEALS) })?;
        // (That length is none of huge pages, of which there may be none left when one is read, which raises SIGBUS.)
        let is_one = |bytes: usize| lengths.contains(&bytes) && bytes.is_power_of_two();
        if seals & i64::from(libc::F_SEAL_SHRINK) == 0 || !len.checked_sub(PAGE).is_some_and(is_one) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::map(fd.as_raw_fd(), len, libc::PROT_READ)
    }

    fn map(fd: RawFd, len: usize, protection: i32) -> io::Result<Self> {
        // SAFETY: a new mapping, at an address of the kernel's choice, touches no memory that is there.
        let base = unsafe { libc::mmap(core::ptr::null_mut(), len, protection, libc::MAP_SHARED | libc::MAP_NORESERVE, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = Self { base, len, pid: own_pid() };
        // SAFETY: the mapping that was made just now.
        check(unsafe { libc::syscall(libc::SYS_madvise, base.as_ptr(), len, libc::MADV_DONTFORK) })?;
        Ok(memory)
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// A word of the first page.
    pub(super) fn word(&self, number: usize) -> &AtomicU64 {
        assert!(number < PAGE / 8, "the first page has no such word");
        self.at(number * 8)
    }

    /// A word of the rest, by its offset there.
    #[inline]
    pub(super) fn data(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < self.len - PAGE, "there is no such word");
        self.at(PAGE + offset)
    }

    #[inline]
    fn at(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: a whole, aligned word of the mapping (the callers have looked), which lives as long as `self`. A mapping to read is only loaded from:
        // who has it has a `Reader`.
        unsafe { &*self.base.as_ptr().add(offset).cast::<AtomicU64>() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // (In the child of a fork, there is something else at that address, or nothing.)
        if self.pid == own_pid() {
            // SAFETY: mapped by this process, and nothing refers to it any more.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

fn own_pid() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_getpid) as i32 }
}
