//! Sleeping on descriptors, and the descriptors that wake a sleeper.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::io;
use std::os::fd::RawFd;

use crate::{numbers, syscall};

/// Internal descriptors are numbered from here on, where the limit allows: a program's own numbers stay as they are on the
/// kernel.
const INTERNAL_FROM: RawFd = 600;

/// Waits until one of `fds` is ready, and says how many are: `ppoll(2)`. `None`: without a limit.
///
/// # Errors
/// EINTR (a signal was delivered), EINVAL (more descriptors than RLIMIT_NOFILE), ENOMEM.
pub fn ppoll(fds: &mut [libc::pollfd], timeout: Option<Duration>, sigmask: Option<&libc::sigset_t>) -> io::Result<usize> {
    let mut ts = timeout.map(timespec);
    let ts = ts.as_mut().map_or(core::ptr::null_mut(), core::ptr::from_mut);
    let mask = sigmask.map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: `fds` is valid for reading and writing its whole length; `ts` and `mask` are null or point to live values. The kernel's
    // signal set has 8 bytes, the beginning of libc's.
    let ready = unsafe { libc::syscall(libc::SYS_ppoll, fds.as_mut_ptr(), fds.len(), ts, mask, 8usize) };
    Ok(usize::try_from(syscall::check(ready)?).unwrap_or(0))
}

/// One epoll wait: `epoll_pwait2(2)`, or `epoll_pwait(2)` in whole milliseconds (rounded up) before Linux 5.11.
///
/// # Errors
/// EINTR, EBADF, EINVAL (not an epoll, or no room in `events`).
pub fn epoll_wait(
    epoll: RawFd,
    events: &mut [libc::epoll_event],
    timeout: Option<Duration>,
    sigmask: Option<&libc::sigset_t>,
) -> io::Result<usize> {
    let max = i32::try_from(events.len()).unwrap_or(i32::MAX);
    let mask = sigmask.map_or(core::ptr::null(), core::ptr::from_ref);
    let whole_ms = timeout.is_none_or(|timeout| timeout.subsec_nanos() % 1_000_000 == 0);
    if !whole_ms {
        let ts = timeout.map(timespec);
        let ts = ts.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: `events` is valid for writing `max` entries; `ts` and `mask` are null or point to live values.
        let n = unsafe { libc::syscall(libc::SYS_epoll_pwait2, epoll, events.as_mut_ptr(), max, ts, mask, 8usize) };
        match syscall::check(n) {
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {}
            n => return Ok(usize::try_from(n?).unwrap_or(0)),
        }
    }
    let ms = timeout.map_or(-1, |timeout| i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
    // SAFETY: as above.
    let n = unsafe { libc::syscall(libc::SYS_epoll_pwait, epoll, events.as_mut_ptr(), max, ms, mask, 8usize) };
    Ok(usize::try_from(syscall::check(n)?).unwrap_or(0))
}

/// `epoll_ctl(2)`.
///
/// # Errors
/// The kernel's own.
pub fn epoll_ctl(epoll: RawFd, op: i32, fd: RawFd, event: Option<libc::epoll_event>) -> io::Result<()> {
    let mut event = event;
    let event = event.as_mut().map_or(core::ptr::null_mut(), core::ptr::from_mut);
    // SAFETY: `event` is null or points to a live value that the kernel only reads.
    syscall::check(unsafe { libc::syscall(libc::SYS_epoll_ctl, epoll, op, fd, event) })?;
    Ok(())
}

/// Gives the processor to another thread that wants this core, if there is one.
pub fn yield_core() {
    // SAFETY: no preconditions.
    unsafe { libc::syscall(libc::SYS_sched_yield) };
}

/// One bit an event descriptor.
static OURS: [AtomicU64; (1 << 20) / 64] = [const { AtomicU64::new(0) }; (1 << 20) / 64];

/// Whether a descriptor is an [`EventFd`], a [`Pidfd`] or a [`Fd`](crate::Fd): whoever closes it for the program closes a stranger's.
pub fn is_internal(fd: RawFd) -> bool {
    let word = usize::try_from(fd).ok().and_then(|n| OURS.get(n / 64));
    word.is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (fd % 64) != 0) || crate::fd::is_one(fd)
}

fn remember(fd: RawFd, ours: bool) {
    let Some(word) = usize::try_from(fd).ok().and_then(|n| OURS.get(n / 64)) else { return };
    if ours {
        word.fetch_or(1 << (fd % 64), Ordering::Relaxed);
    } else {
        word.fetch_and(!(1 << (fd % 64)), Ordering::Relaxed);
    }
}

/// Makes an internal descriptor, and moves it to a high number, close-on-exec. If there is no room, it stays where it is.
pub(crate) fn internal_fd(make: impl FnOnce() -> io::Result<libc::c_long>) -> io::Result<RawFd> {
    numbers::make_internal(|| {
        let fd = i32::try_from(make()?).unwrap_or(-1);
        Ok(high(fd))
    })
}

/// Moves a descriptor to a high number, close-on-exec. If there is no room, it stays where it is.
pub(crate) fn high(fd: RawFd) -> RawFd {
    match syscall::dup_above(fd, INTERNAL_FROM) {
        Ok(high) => {
            syscall::close(fd);
            high
        }
        Err(_) => fd,
    }
}

/// An eventfd: what one thread writes to wake another that sleeps. Non-blocking, close-on-exec, numbered high.
#[derive(Debug)]
pub struct EventFd(RawFd);

impl EventFd {
    /// A new one, not signalled.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let fd = internal_fd(|| syscall::check(unsafe { libc::syscall(libc::SYS_eventfd2, 0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) }))?;
        remember(fd, true);
        Ok(Self(fd))
    }

    /// Its number, for the set that a sleeper passes to [`ppoll`].
    pub const fn fd(&self) -> RawFd {
        self.0
    }

    /// Makes it readable.
    pub fn signal(&self) {
        signal(self.0);
    }

    /// Makes it unreadable; leaves errno alone, for it may be so already (EAGAIN).
    pub fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: errno is this thread's own; `count` is valid for writing 8 bytes.
        unsafe {
            let errno = libc::__errno_location();
            let saved = *errno;
            libc::syscall(libc::SYS_read, self.0, &raw mut count, 8usize);
            *errno = saved;
        }
    }
}

/// Makes the eventfd numbered `fd` readable. Async-signal-safe; leaves errno alone.
pub fn signal(fd: RawFd) {
    let one = 1u64;
    // SAFETY: errno is this thread's own; `one` is valid for reading 8 bytes. EAGAIN (the counter is full) means that it is
    // readable, which is what was wanted.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        libc::syscall(libc::SYS_write, fd, &raw const one, 8usize);
        *errno = saved;
    }
}

impl Drop for EventFd {
    fn drop(&mut self) {
        remember(self.0, false);
        syscall::close(self.0);
    }
}

/// Another process, to wait for its end: readable once it has ended, and closed all that it had. Close-on-exec, numbered high.
#[derive(Debug)]
pub struct Pidfd(RawFd);

impl Pidfd {
    /// The process of that id.
    ///
    /// # Errors
    /// ESRCH: it has ended, and was waited for. EMFILE, ENFILE, ENOMEM, ENOSYS (before Linux 5.3).
    pub fn new(pid: i32) -> io::Result<Self> {
        // SAFETY: no memory is passed. The descriptor is close-on-exec without a flag.
        let fd = internal_fd(|| syscall::check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }))?;
        remember(fd, true);
        Ok(Self(fd))
    }

    /// Its number, for the set that a sleeper passes to [`ppoll`].
    pub const fn fd(&self) -> RawFd {
        self.0
    }

    /// Whether the process has ended. Costs a system call.
    pub fn has_ended(&self) -> bool {
        let mut fds = [libc::pollfd { fd: self.0, events: libc::POLLIN, revents: 0 }];
        ppoll(&mut fds, Some(Duration::ZERO), None).is_ok_and(|ready| ready != 0)
    }
}

impl Drop for Pidfd {
    fn drop(&mut self) {
        remember(self.0, false);
        syscall::close(self.0);
    }
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(duration.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests;
