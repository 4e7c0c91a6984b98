//! Timeouts as the calls that wait are given them.

use core::ffi::c_int;
use core::time::Duration;

use libc::{timespec, timeval};

use crate::errno::{Errno, optional};

/// A call's timeout in its form. Null: without limit.
#[derive(Clone, Copy, Debug)]
pub enum Timeout {
    /// Milliseconds; negative: without limit.
    Ms(c_int),
    /// ppoll's, pselect's and epoll_pwait2's.
    Timespec(*const timespec),
    /// select's, who wants to know what is left of it.
    Timeval(*mut timeval),
}

impl Timeout {
    /// How long it is.
    ///
    /// # Errors
    /// EINVAL, EFAULT.
    ///
    /// # Safety
    /// The pointer [leads nowhere](crate::errno::is_nowhere), or the program's promise holds for it.
    pub unsafe fn read(self) -> Result<Option<Duration>, Errno> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Ms(ms) => Ok(from_ms(ms)),
                Self::Timespec(time) => from_timespec(optional(time)?),
                Self::Timeval(time) => from_timeval(optional(time)?),
            }
        }
    }

    /// Tells the program what is left, as Linux does where the program gave a timeval.
    ///
    /// # Safety
    /// As [`Timeout::read`], which succeeded.
    pub unsafe fn write_left(self, left: Duration) {
        let Self::Timeval(time) = self else { return };
        // SAFETY: the caller's promise.
        if let Some(time) = unsafe { time.as_mut() } {
            *time = timeval {
                tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_usec: libc::suseconds_t::from(left.subsec_micros()),
            };
        }
    }
}

/// Milliseconds; negative: without limit.
pub fn from_ms(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// Null: without limit. EINVAL as in the kernel's poll_select_set_timeout.
///
/// # Errors
/// EINVAL.
pub fn from_timespec(timeout: Option<&timespec>) -> Result<Option<Duration>, Errno> {
    let Some(timeout) = timeout else { return Ok(None) };
    match (u64::try_from(timeout.tv_sec), u32::try_from(timeout.tv_nsec)) {
        (Ok(s), Ok(ns)) if ns < 1_000_000_000 => Ok(Some(Duration::new(s, ns))),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// The same for a timeval, whose microseconds select(2) lets exceed a second.
///
/// # Errors
/// EINVAL.
pub fn from_timeval(timeout: Option<&timeval>) -> Result<Option<Duration>, Errno> {
    let Some(timeout) = timeout else { return Ok(None) };
    match (u64::try_from(timeout.tv_sec), u64::try_from(timeout.tv_usec)) {
        (Ok(s), Ok(us)) => Ok(Some(Duration::from_secs(s).saturating_add(Duration::from_micros(us)))),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// A time as it is written back.
pub fn to_timespec(left: Duration) -> timespec {
    timespec { tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX), tv_nsec: left.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_the_kernel_reads_them() {
        assert_eq!((from_ms(-1), from_ms(0), from_ms(7)), (None, Some(Duration::ZERO), Some(Duration::from_millis(7))));
        assert_eq!(from_timespec(None), Ok(None));
        let ts = |tv_sec, tv_nsec| from_timespec(Some(&timespec { tv_sec, tv_nsec }));
        assert_eq!(ts(1, 5), Ok(Some(Duration::new(1, 5))));
        for bad in [ts(-1, 0), ts(0, -1), ts(0, 1_000_000_000)] {
            assert_eq!(bad, Err(Errno(libc::EINVAL)));
        }
        let tv = |tv_sec, tv_usec| from_timeval(Some(&timeval { tv_sec, tv_usec }));
        assert_eq!(tv(1, 2_500_000), Ok(Some(Duration::from_millis(3500))));
        assert_eq!(tv(-1, 0), Err(Errno(libc::EINVAL)));
    }
}
