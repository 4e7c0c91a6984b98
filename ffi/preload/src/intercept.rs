//! What a library does with the calls that come to it.

use crate::types::*;
use crate::{Exports, Timeout, next};

/// The means that a process gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// Its user, its root or its namespaces.
    Identity,
    /// Its system calls: a filter decides over them from now on.
    SystemCalls,
}

/// A library in front of libc: what it does not say is the next definition's to do.
///
/// Methods with the name of a function get that function's arguments, as the program passed them, and return its result, with errno set where
/// it failed. Those of a family get `next`, which is the very call that the program made.
///
/// A method on the way of data is to be `#[inline(always)]`: its exported function is then nothing else. A panic ends the program unless the
/// method keeps it from crossing into C ([`boundary!`](crate::boundary)); hooks, which return nothing to the program, need not.
pub trait Intercept: Exports + Sized {
    /// The library was loaded; no constructor of the program's has run.
    fn loaded() {}

    /// Whether the descriptor means anything to the library. Calls in unusual forms (by number, fortified) on others go straight on. It costs a
    /// load or two, and neither waits nor changes anything: many of the numbers that it is asked about are no descriptors.
    #[inline]
    fn is_known(fd: c_int) -> bool {
        let _ = fd;
        true
    }

    /// Whether the descriptor is a socket which the library carries now: preadv2(2) and pwritev2(2) with an offset of -1 are recvmsg and
    /// sendmsg on it.
    #[inline]
    fn is_socket(fd: c_int) -> bool {
        let _ = fd;
        false
    }

    crate::functions!(method []);

    /// accept(2) and accept4(2), whose flags are zero in the former.
    ///
    /// # Safety
    /// As accept4(2).
    #[inline(always)]
    unsafe fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int, next: impl Fn() -> c_int) -> c_int {
        let _ = (fd, address, len, flags);
        next()
    }

    /// poll(2) and ppoll(2), whose mask may be null.
    ///
    /// # Safety
    /// As ppoll(2).
    #[inline(always)]
    unsafe fn poll(fds: *mut pollfd, count: nfds_t, timeout: Timeout, mask: *const sigset_t, next: impl Fn() -> c_int) -> c_int {
        let _ = (fds, count, timeout, mask);
        next()
    }

    /// select(2) and pselect(2), whose mask may be null. The sets: to be read, to be written, and what is exceptional. The time that is left is
    /// the program's to know, where it may be written ([`Timeout::write_left`]).
    ///
    /// # Safety
    /// As pselect(2).
    #[inline(always)]
    unsafe fn select(count: c_int, sets: [*mut fd_set; 3], timeout: Timeout, mask: *const sigset_t, next: impl Fn() -> c_int) -> c_int {
        let _ = (count, sets, timeout, mask);
        next()
    }

    /// epoll_create(2) and epoll_create1(2).
    #[inline(always)]
    fn epoll_create(next: impl Fn() -> c_int) -> c_int {
        next()
    }

    /// epoll_wait(2), epoll_pwait(2) and epoll_pwait2(2), whose mask may be null.
    ///
    /// # Safety
    /// As epoll_pwait2(2).
    #[inline(always)]
    unsafe fn epoll_wait(
        instance: c_int,
        events: *mut epoll_event,
        count: c_int,
        timeout: Timeout,
        mask: *const sigset_t,
        next: impl Fn() -> c_int,
    ) -> c_int {
        let _ = (instance, events, count, timeout, mask);
        next()
    }

    /// fcntl(2), with 64-bit offsets and without.
    ///
    /// # Safety
    /// As fcntl(2).
    #[inline(always)]
    unsafe fn fcntl(fd: c_int, command: c_int, argument: usize, next: impl Fn() -> c_int) -> c_int {
        let _ = (fd, command, argument);
        next()
    }

    /// Whatever hands out one descriptor that is neither a socket nor an epoll instance: open(2) and its kin, eventfd(2), timerfd_create(2),
    /// memfd_create(2), inotify_init(2).
    #[inline(always)]
    fn open(next: impl Fn() -> c_int) -> c_int {
        next()
    }

    /// open(2) and openat(2) in all their forms, whose `directory` is AT_FDCWD in the former.
    ///
    /// # Safety
    /// As openat(2).
    #[inline(always)]
    unsafe fn open_path(directory: c_int, path: *const c_char, flags: c_int, next: impl Fn() -> c_int) -> c_int {
        let _ = (directory, path, flags);
        <Self as Intercept>::open(next)
    }

    /// pipe(2), pipe2(2) and socketpair(2): after a result of zero, both descriptors are at `ends`.
    ///
    /// # Safety
    /// As pipe(2).
    #[inline(always)]
    unsafe fn open_pair(ends: *const c_int, next: impl Fn() -> c_int) -> c_int {
        let _ = ends;
        next()
    }

    /// The ways to fork that pass by the handlers of pthread_atfork(3): `_Fork`, clone(2), and the system calls by their numbers. `next` forks
    /// with these of clone's flags, and returns the child's id, zero in the child, or -1. A library that suspends the parent itself takes
    /// CLONE_VFORK out.
    #[inline]
    fn fork(flags: u64, next: impl FnOnce(u64) -> c_long) -> c_long {
        next(flags)
    }

    /// In a child of clone(3) that begins with a function of its own: what [`Intercept::fork`] does in the child where `next` returned zero.
    fn forked() {}

    /// Before an exec that is likely to succeed.
    fn before_exec() {}

    /// After an exec that failed: the program goes on.
    fn after_exec() {}

    /// The process ends, by a way that passes by exit handlers. Async-signal-safe.
    fn before_exit() {}

    /// The process gives up means to reach others, which the library may need to get what it needs later.
    fn before_giving_up(means: Means) {
        let _ = means;
    }

    /// The thread leaves the functions that it is in by longjmp(3). Async-signal-safe.
    fn before_jump() {}

    /// How often processes have forked that led to this one: what the parent's threads held, nobody holds.
    fn fork_generation() -> u32 {
        0
    }

    /// The thread may be cancelled, and is to be found by whoever does it: [`cancel::register`](crate::cancel::register).
    fn may_be_cancelled() {}

    /// Whether the calling thread's wait ended only because it may have been cancelled; asked once.
    fn ended_unsure() -> bool {
        false
    }
}
