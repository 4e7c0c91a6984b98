//! The calls of libc's that are about descriptors and the one ioctl.

use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

use libc::{pid_t, sigset_t};
use ringway_preload::types::Action;
use ringway_preload::{Errno, Intercept, boundary, errno, next};

use crate::descriptors::{self, Kind};
use crate::process::undisturbed;
use crate::{abi, commands, forks, paths, process, rdma_cm, trap};

/// The library.
pub(crate) struct Uverbs;

/// Protocol of netlink where a kernel with RDMA tells about its devices (linux/netlink.h).
const NETLINK_RDMA: c_int = 20;

impl Intercept for Uverbs {
    fn loaded() {
        forks::install();
        process::is_this();
        trap::begin();
    }

    fn is_known(fd: c_int) -> bool {
        descriptors::kind(fd).is_some()
    }

    /// The kernel's own devices are not listed: without an answer here, libibverbs looks into sysfs.
    unsafe fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA {
            return errno::fail(libc::EPROTONOSUPPORT);
        }
        // SAFETY: plain integers.
        unsafe { next::socket(domain, kind, protocol) }
    }

    unsafe fn open_path(directory: c_int, path: *const c_char, flags: c_int, next: impl Fn() -> c_int) -> c_int {
        // SAFETY: the program's promise to openat(2).
        match unsafe { paths::find(directory, path) } {
            Some(found) => undisturbed!(-1, errno::to_int(paths::open(found, flags))),
            None => next(),
        }
    }

    unsafe fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
        match descriptors::kind(fd) {
            Some(Kind::Context(context)) if request == abi::VERBS_IOCTL => {
                undisturbed!(-1, errno::to_int(commands::call(context, argument as u64).map(|()| 0)))
            }
            // SAFETY: the program's arguments, as they are.
            _ => unsafe { next::ioctl(fd, request, argument) },
        }
    }

    unsafe fn write(fd: c_int, buffer: *const c_void, len: usize) -> isize {
        match descriptors::kind(fd) {
            Some(Kind::RdmaCm(channel)) => {
                boundary!(-1, errno::to_ssize(rdma_cm::write(channel, buffer.addr() as u64, len)))
            }
            // SAFETY: the program's arguments, as they are.
            _ => unsafe { next::write(fd, buffer, len) },
        }
    }

    unsafe fn close(fd: c_int) -> c_int {
        if is_library_s(fd) {
            // (The program cannot mean it: it was never given that number.)
            return errno::fail(libc::EBADF);
        }
        forget(fd);
        // SAFETY: a plain integer.
        unsafe { next::close(fd) }
    }

    unsafe fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        // SAFETY: plain integers.
        let next = |first, last| unsafe { next::close_range(first, last, flags) };
        // (What the library has is closed on exec already; of a range that is none, the kernel says so.)
        if flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0 || first > last {
            return next(first, last);
        }
        descriptors::known(first, last).for_each(forget);
        around_library_s(first, last, next)
    }

    unsafe fn closefrom(first: c_int) {
        let first = first.max(0).cast_unsigned();
        descriptors::known(first, c_uint::MAX).for_each(forget);
        // SAFETY: plain integers.
        around_library_s(first, c_uint::MAX, |first, last| unsafe { next::close_range(first, last, 0) });
    }

    unsafe fn dup(fd: c_int) -> c_int {
        // SAFETY: a plain integer.
        duplicated(fd, unsafe { next::dup(fd) })
    }

    unsafe fn dup2(old: c_int, new: c_int) -> c_int {
        // SAFETY: plain integers.
        replaced(old, new, || unsafe { next::dup2(old, new) })
    }

    unsafe fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
        // SAFETY: plain integers.
        replaced(old, new, || unsafe { next::dup3(old, new, flags) })
    }

    unsafe fn fcntl(fd: c_int, command: c_int, _: usize, next: impl Fn() -> c_int) -> c_int {
        match command {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, next()),
            _ => next(),
        }
    }

    unsafe fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
        // SAFETY: the program's arguments, as they are.
        unsafe { trap::changed_action(signal, new, old) }
    }

    unsafe fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
        // SAFETY: the program's arguments, as they are, or a set of the same kind.
        unsafe { trap::changed_mask(how, set, |set| next::pthread_sigmask(how, set, old)) }
    }

    unsafe fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
        // SAFETY: the program's arguments, as they are, or a set of the same kind.
        unsafe { trap::changed_mask(how, set, |set| next::sigprocmask(how, set, old)) }
    }

    /// The ways that pass by `pthread_atfork`. (A child of vfork shares the parent's memory, and executes something else at once.)
    fn fork(flags: u64, next: impl FnOnce(u64) -> c_long) -> c_long {
        let shares = flags & (libc::CLONE_VM | libc::CLONE_VFORK) as u64 != 0;
        if shares {
            return next(flags);
        }
        process::before_fork();
        let child = next(flags);
        match child as pid_t {
            0 => process::in_child(),
            _ => process::after_fork(),
        }
        child
    }
}

/// Descriptors that the library's own may have, beyond which none is looked for.
const LIBRARY_S_MAX: c_uint = 1 << 20;

/// Whether a descriptor is the library's own: to the program, that number has none. (A child of vfork has copies of them, which it may close.)
fn is_library_s(fd: c_int) -> bool {
    ringway_host::is_internal(fd) && process::is_own()
}

/// Calls `body` with the parts of a range of descriptors between the library's own, until one fails.
fn around_library_s(first: c_uint, last: c_uint, mut body: impl FnMut(c_uint, c_uint) -> c_int) -> c_int {
    let mut from = first;
    for fd in (first..=last.min(LIBRARY_S_MAX)).filter(|fd| is_library_s(fd.cast_signed())) {
        if fd > from && body(from, fd - 1) != 0 {
            return -1;
        }
        from = fd + 1;
    }
    if from <= last { body(from, last) } else { 0 }
}

/// The descriptor is about to be closed. (What a child of vfork closes is its own copy, though it has the parent's memory.)
fn forget(fd: c_int) {
    if descriptors::kind(fd).is_some()
        && process::is_own()
        && let Some(kind) = descriptors::clear(fd)
    {
        ended(kind);
    }
}

fn ended(kind: Kind) {
    match kind {
        Kind::Context(context) | Kind::RdmaCm(context) => undisturbed!((), process::close(context)),
        Kind::Channel(channel) => undisturbed!((), process::close_channel(channel)),
        Kind::Folder(_) => {}
    }
}

/// `new` is another descriptor of what `old` is one of, if it is one at all.
fn duplicated(old: c_int, new: c_int) -> c_int {
    let Some(kind) = descriptors::kind(old).filter(|_| new >= 0 && process::is_own()) else { return new };
    undisturbed!((), process::hold(kind));
    if !descriptors::set(new, kind) {
        ended(kind);
        // SAFETY: a descriptor that nobody knows yet.
        unsafe { next::close(new) };
        return errno::to_int(Err(Errno(libc::EMFILE)));
    }
    new
}

fn replaced(old: c_int, new: c_int, next: impl Fn() -> c_int) -> c_int {
    if old == new {
        return next();
    }
    if is_library_s(new) {
        return errno::fail(libc::EBADF);
    }
    let result = next();
    if result >= 0 {
        forget(new);
    }
    duplicated(old, result)
}
