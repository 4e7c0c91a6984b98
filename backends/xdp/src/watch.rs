//! Whether the program is in front of the interface still. Nothing tells a socket of AF_XDP when it no longer is, or when the interface is gone (poll(2) reports no error of
//! it), and somebody who waits would wait for ever: so the ring that is polled looks, twice a second, and who sleeps is woken for it by a timer.
//!
//! - **The interface is deleted, or goes to another network namespace**: it is gone.
//! - **Somebody has detached the program** (`bpftool link detach`; ip(8) cannot): it is attached again. But whoever does so twice means it.
//! - **Another program is there in its place**: that stays, and after a moment the interface is gone for this process. If ours is there again by then, all goes on.
//!
//! What came for the rings meanwhile was the kernel's, which answers by a reset where it knows of no connection.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::io;
use std::os::fd::RawFd;
use std::sync::Mutex;

use ringway_host::Fd;
use ringway_stack::time::Instant;

use crate::bpf::{self, LinkInfo};

/// How often the ring looks.
const EVERY: Duration = Duration::from_millis(500);
/// And how soon again, where another program is there: one that is replaced by ours again in this time was in nobody's way.
const MOMENT: Duration = Duration::from_millis(200);
/// Who detaches the program again in this time means it.
const MEANT_WITHIN: Duration = Duration::from_secs(60);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Watch {
    /// When somebody is to look, in nanoseconds.
    look_at: AtomicU64,
    is_gone: AtomicBool,
    seen: Mutex<Seen>,
    /// Readable from about then on.
    timer: Fd,
}

/// What was seen before.
#[derive(Debug, Default)]
struct Seen {
    /// Another program was there.
    foreign: bool,
    /// When ours was attached again.
    attached_again: Option<Instant>,
}

/// How the interface is found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// With our program in front of it; or nothing is to be known.
    Ours,
    /// Without a program of anybody's.
    Detached,
    /// With another program.
    Foreign(u32),
    /// Not at all.
    NoInterface,
}

impl Front {
    /// What the kernel says of the link with our program.
    pub(crate) fn of(link: &Fd, program: u32) -> Self {
        match bpf::link_info(link) {
            Ok(LinkInfo { interface: 0, .. }) => Self::Detached,
            Ok(info) if info.program != program => Self::Foreign(info.program),
            Ok(_) => Self::Ours,
            Err(error) => {
                tracing::debug!("the kernel does not say what is in front of the interface: {error}");
                Self::Ours
            }
        }
    }
}

impl Watch {
    /// The first poll looks.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no memory is involved.
        let timer = Fd::make(|| unsafe { libc::syscall(libc::SYS_timerfd_create, libc::CLOCK_MONOTONIC, flags) })?;
        Ok(Self { look_at: AtomicU64::new(0), is_gone: AtomicBool::new(false), seen: Mutex::default(), timer })
    }

    /// What wakes who sleeps.
    pub(crate) fn fd(&self) -> RawFd {
        self.timer.raw()
    }

    /// Whether somebody is to look.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now.as_nanos() >= self.look_at.load(Ordering::Relaxed)
    }

    /// Something has failed: the next poll looks.
    pub(crate) fn look_soon(&self) {
        if !self.is_gone() {
            self.look_at.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the interface is gone, for good.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Looks, of several rings one at a time. `attach`: our program is to be in front of the interface again. `true`: the interface is gone from now on.
    pub(crate) fn look(
        &self,
        now: Instant,
        interface: &str,
        front: impl FnOnce() -> Front,
        attach: impl FnOnce() -> io::Result<()>,
    ) -> bool {
        let Ok(mut seen) = self.seen.try_lock() else { return false };
        if self.is_gone() {
            self.look_at.store(u64::MAX, Ordering::Relaxed);
            return false;
        }
        if !self.is_due(now) {
            return false;
        }
        let why = match front() {
            Front::Ours => {
                if core::mem::take(&mut seen.foreign) {
                    tracing::warn!("our program is in front of {interface} again: its sockets go on");
                }
                return self.look_again(now, EVERY);
            }
            Front::NoInterface => "it was deleted, or is in another network namespace".to_owned(),
            Front::Detached if seen.attached_again.is_some_and(|at| now.since(at) < MEANT_WITHIN) => {
                "somebody has detached our program from it twice".to_owned()
            }
            Front::Detached => match attach() {
                Ok(()) => {
                    tracing::warn!(
                        "somebody has detached our program from {interface}: it is attached again. Connections that had traffic meanwhile may have been reset by the kernel"
                    );
                    seen.attached_again = Some(now);
                    return self.look_again(now, EVERY);
                }
                Err(error) => format!("our program was detached from it, and is not attached again: {error}"),
            },
            Front::Foreign(id) if !core::mem::replace(&mut seen.foreign, true) => {
                tracing::warn!(
                    "another program is in front of {interface} in place of ours (bpftool prog show id {id}): what comes is the kernel's"
                );
                return self.look_again(now, MOMENT);
            }
            Front::Foreign(id) => format!("another program is in front of it (bpftool prog show id {id})"),
        };
        tracing::warn!(
            "{interface} is gone: {why}. Its connections fail, and new ones are the kernel's until the program is started again"
        );
        self.is_gone.store(true, Ordering::Release);
        self.look_at.store(u64::MAX, Ordering::Relaxed);
        self.set_timer(Duration::ZERO);
        true
    }

    /// (Who sleeps is not to be woken before it is time to look, by whichever clock.)
    fn look_again(&self, now: Instant, after: Duration) -> bool {
        self.look_at.store((now + after * 9 / 10).as_nanos(), Ordering::Relaxed);
        self.set_timer(after);
        false
    }

    /// It is readable after that time; zero: never.
    fn set_timer(&self, after: Duration) {
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let once = libc::itimerspec { it_interval: none, it_value: libc::timespec { tv_nsec: after.as_nanos() as i64, ..none } };
        // SAFETY: a readable value; no old one is asked for.
        unsafe { libc::syscall(libc::SYS_timerfd_settime, self.timer.raw(), 0, &raw const once, core::ptr::null::<u8>()) };
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// Looks at that time, whether it is time to or not. Whether the interface is gone.
    fn look(watch: &Watch, ms: u64, front: Front, attach: impl FnOnce() -> io::Result<()>) -> bool {
        watch.look_soon();
        watch.look(at(ms), "a0", || front, attach)
    }

    fn never() -> io::Result<()> {
        panic!("there is something in front of it")
    }

    #[test]
    fn it_is_looked_at_twice_a_second_and_no_more_often() {
        let watch = Watch::new().unwrap();
        assert!(watch.is_due(at(0)) && !watch.look(at(7), "a0", || Front::Ours, never));
        assert!(!watch.is_due(at(400)) && watch.is_due(at(500)));
        assert!(!watch.look(at(400), "a0", || panic!("it is not due"), never));
        watch.look_soon();
        assert!(watch.is_due(at(8)));
    }

    #[test]
    fn who_detaches_the_program_once_has_it_back_and_who_does_so_twice_means_it() {
        let watch = Watch::new().unwrap();
        let attached = Cell::new(0);
        let attach = || {
            attached.set(attached.get() + 1);
            Ok(())
        };
        assert!(!look(&watch, 0, Front::Detached, attach));
        assert!(!look(&watch, 500, Front::Ours, never));
        assert!(!look(&watch, 61_000, Front::Detached, attach), "that is another time");
        assert!(look(&watch, 90_000, Front::Detached, never) && watch.is_gone());
        assert_eq!(attached.get(), 2);
        assert!(!look(&watch, 91_000, Front::NoInterface, never) && !watch.is_due(at(99_000)), "once");
        let refused = || Err(io::ErrorKind::PermissionDenied.into());
        assert!(look(&Watch::new().unwrap(), 0, Front::Detached, refused));
    }

    #[test]
    fn another_program_is_given_a_moment_to_go() {
        let watch = Watch::new().unwrap();
        assert!(!look(&watch, 0, Front::Foreign(7), never) && watch.is_due(at(200)));
        assert!(!look(&watch, 200, Front::Ours, never));
        assert!(!look(&watch, 700, Front::Foreign(7), never));
        assert!(look(&watch, 900, Front::Foreign(8), never) && watch.is_gone());
        assert!(look(&Watch::new().unwrap(), 0, Front::NoInterface, never));
    }
}
