//! Descriptors: closing, duplicating, and their flags.

use core::ffi::{c_int, c_uint, c_ulong};

use ringway_host::numbers;
use ringway_stack::ring::FlowId;

use super::exec;
use crate::errno;
use crate::fdtable::{self, Entry};
use crate::fork::tables_are_ours;
use crate::moving;
use crate::process::{self, Process};
use crate::real;
use crate::slab::Key;
use crate::socket::{Kind, common, lifecycle};

/// close(2).
#[inline(always)]
pub(super) unsafe fn close(fd: c_int) -> c_int {
    crate::cancellation_point!({
        // The program cannot mean it: it was never given that number.
        if is_internal(fd) && tables_are_ours() {
            return errno::fail(libc::EBADF);
        }
        if fdtable::peek(fd) != Entry::None && tables_are_ours() {
            errno::keeping(|| crate::boundary!((), lifecycle::closing(fd)));
        }
        // SAFETY: plain integers.
        unsafe { real::close(fd) }
    })
}

/// Whether a descriptor is the library's own, of which the program does not know.
fn is_internal(fd: c_int) -> bool {
    ringway_devices::is_internal(fd) || ringway_host::is_internal(fd) || fdtable::peek(fd) == Entry::Internal
}

/// Calls `body` with the parts of a range of descriptors between the library's own, until one fails.
fn around_internals(first: c_uint, last: c_uint, mut body: impl FnMut(c_uint, c_uint) -> c_int) -> c_int {
    let mut from = first;
    for fd in first..=last.min(fdtable::LIMIT) {
        if is_internal(fd.cast_signed()) {
            if fd > from && body(from, fd - 1) != 0 {
                return -1;
            }
            from = fd + 1;
        }
    }
    if from <= last { body(from, last) } else { 0 }
}

/// close_range(2).
pub(super) unsafe fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const UNSHARE: c_int = 2;
    const CLOEXEC: c_int = 4;
    let is_valid = first <= last && flags & !(UNSHARE | CLOEXEC) == 0;
    if !is_valid || !tables_are_ours() || process::process().is_none() {
        if is_valid && flags & CLOEXEC == 0 && tables_are_ours() {
            errno::keeping(|| crate::boundary!((), close_tracked(first, last)));
        }
        // SAFETY: plain integers.
        return unsafe { real::close_range(first, last, flags) };
    }
    if flags & UNSHARE != 0 && crate::boundary!(true, has_other_threads()) {
        // The tables are the process's: a thread with descriptors of its own would be mistaken for the others.
        tracing::warn!(
            "close_range: a thread of several cannot have descriptors of its own beside offloaded sockets (CLOSE_RANGE_UNSHARE)"
        );
        return errno::fail(libc::ENOMEM);
    }
    // With no other thread of the program's there is nobody to unshare from: but for the library's own thread, which must see the same
    // descriptors as the program's.
    let flags = flags & !UNSHARE;
    if flags & CLOEXEC != 0 {
        // The library's own are close-on-exec already.
        // SAFETY: plain integers.
        return unsafe { real::close_range(first, last, flags) };
    }
    errno::keeping(|| crate::boundary!((), close_tracked(first, last)));
    // SAFETY: plain integers.
    around_internals(first, last, |first, last| unsafe { real::close_range(first, last, flags) })
}

/// Whether the program runs more threads than the one that calls: two are that and the library's.
fn has_other_threads() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() > 2)
}

/// closefrom(3).
pub(super) unsafe fn closefrom(first: c_int) {
    let first = c_uint::try_from(first).unwrap_or(0);
    if tables_are_ours() {
        errno::keeping(|| crate::boundary!((), close_tracked(first, c_uint::MAX)));
    }
    if !tables_are_ours() || process::process().is_none() {
        // SAFETY: plain integers.
        unsafe { real::closefrom(first.cast_signed()) };
        return;
    }
    // SAFETY: plain integers.
    around_internals(first, c_uint::MAX, |first, last| unsafe { real::close_range(first, last, 0) });
}

fn close_tracked(first: c_uint, last: c_uint) {
    let of_the_program = fdtable::entries().filter(|&(_, entry)| entry != Entry::Internal);
    let tracked: Vec<c_int> = of_the_program.map(|(fd, _)| fd).filter(|&fd| (first..=last).contains(&fd.cast_unsigned())).collect();
    for fd in tracked {
        lifecycle::closing(fd);
    }
}

/// dup(2).
pub(super) unsafe fn dup(fd: c_int) -> c_int {
    before_duplicating(fd);
    // SAFETY: plain integers.
    duplicate(fd, numbers::lowest(|| unsafe { real::dup(fd) }))
}

/// A vfork child's duplicate is to be of the connection's own descriptor.
fn before_duplicating(fd: c_int) {
    if fdtable::peek(fd) != Entry::None && !tables_are_ours() {
        let _ = errno::keeping(|| crate::boundary!(None, with_common(fd)));
    }
}

/// After `fd` was duplicated to `copy`, or that failed.
fn duplicate(fd: c_int, copy: c_int) -> c_int {
    if copy >= 0 && fdtable::peek(fd) != Entry::None && tables_are_ours() {
        errno::keeping(|| crate::boundary!((), lifecycle::duplicated(fd, copy)));
    }
    if (0..=libc::STDERR_FILENO).contains(&copy) {
        crate::boundary!((), exec::duplicated(fd, copy));
    }
    copy
}

/// dup2(2).
pub(super) unsafe fn dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: plain integers.
    onto(old, new, || numbers::lowest(|| unsafe { real::dup2(old, new) }))
}

/// dup3(2).
pub(super) unsafe fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: plain integers.
    let kernel = || numbers::lowest(|| unsafe { real::dup3(old, new, flags) });
    // What the kernel refuses must leave `new` open, here as well.
    if flags & !libc::O_CLOEXEC != 0 { kernel() } else { onto(old, new, kernel) }
}

/// Duplicates `old` onto the number `new`, which is closed first if that will succeed.
fn onto(old: c_int, new: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    before_duplicating(old);
    // The kernel would close what the library needs; and the program was never given that number.
    if is_internal(new) && tables_are_ours() {
        return errno::fail(libc::EBADF);
    }
    let concerns_us = fdtable::peek(old) != Entry::None || fdtable::peek(new) != Entry::None;
    if !concerns_us || old == new || !tables_are_ours() {
        let copy = kernel();
        if concerns_us && copy >= 0 && old != new {
            crate::boundary!((), exec::duplicated(old, copy));
        }
        return copy;
    }
    // SAFETY: plain integers. A bad `old` must leave `new` open.
    if unsafe { real::fcntl(old, libc::F_GETFD, 0) } >= 0 && fdtable::peek(new) != Entry::None {
        crate::boundary!((), lifecycle::closing(new));
    }
    duplicate(old, kernel())
}

/// fcntl(2).
#[inline(always)]
pub(super) fn fcntl(fd: c_int, command: c_int, argument: usize, next: impl Fn() -> c_int) -> c_int {
    if command == libc::F_SETFL && argument & libc::O_ASYNC as usize != 0 {
        crate::boundary!((), lifecycle::sends_signals(fd));
    }
    if let Some(result) = crate::boundary!(None, control_common(fd, command, argument)) {
        return result;
    }
    control(fd, command, argument, numbered(command, next))
}

/// Commands that make a descriptor give it the lowest number. (Others may wait: locks, pipes.)
fn numbered(command: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) { numbers::lowest(kernel) } else { kernel() }
}

/// fcntl of a connection whose placeholder others have too: O_NONBLOCK puts it onto another; what else is the open file's own needs one of
/// its own. `None`: the kernel's.
fn control_common(fd: c_int, command: c_int, argument: usize) -> Option<c_int> {
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        before_duplicating(fd);
        return None;
    }
    if matches!(command, libc::F_GETFD | libc::F_SETFD | libc::F_GETFL) {
        return None;
    }
    let (key, process) = with_common(fd)?;
    let others = (libc::O_APPEND | libc::O_ASYNC | libc::O_DIRECT | libc::O_NOATIME) as usize;
    let nonblocking = argument & libc::O_NONBLOCK as usize != 0;
    if command == libc::F_SETFL && argument & others == 0 && common::set_nonblocking(process, key, nonblocking) {
        set_nonblocking(fd, nonblocking);
        return Some(0);
    }
    if common::own(&mut process.lock(), key) { None } else { Some(errno::fail(libc::EMFILE)) }
}

/// The connection, if its placeholder is one that others have too.
fn with_common(fd: c_int) -> Option<(Key, &'static Process)> {
    let (Entry::Socket(key), Some(process)) = (fdtable::lookup(fd), process::process()) else { return None };
    process.lock().sockets.find(key)?.common?;
    if fdtable::is_stale_now(fd) && lifecycle::displaced(fd, Entry::Socket(key)) {
        return None;
    }
    if !process.is_owner() {
        // A vfork child, whose own descriptor it is about to be.
        moving::owner::lend(process, fd);
        return None;
    }
    Some((key, process))
}

/// After the kernel's fcntl: what it means for us.
fn control(fd: c_int, command: c_int, argument: usize, result: c_int) -> c_int {
    if result < 0 {
        return result;
    }
    match command {
        libc::F_SETFL => set_nonblocking(fd, argument & libc::O_NONBLOCK as usize != 0),
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            duplicate(fd, result);
        }
        _ => {}
    }
    result
}

fn set_nonblocking(fd: c_int, nonblocking: bool) {
    if let Entry::Socket(key) = fdtable::lookup(fd)
        && let Some(process) = process::process_or_init()
    {
        let saved = errno::current();
        crate::boundary!((), {
            if let Some(socket) = process.lock().sockets.find_mut(key) {
                socket.nonblocking = nonblocking;
            }
        });
        errno::set(saved);
    }
}

/// An ioctl's argument as the address that it is in these.
fn is_nowhere(argument: usize) -> bool {
    errno::is_nowhere(core::ptr::without_provenance::<c_int>(argument))
}

/// ioctl(2).
pub(super) unsafe fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    if let Entry::Socket(key) = fdtable::lookup(fd)
        && matches!(request, libc::FIONREAD | libc::TIOCOUTQ | SIOCOUTQNSD)
        && !is_nowhere(argument)
        && let Some(process) = process::process()
        && let Some(bytes) = crate::boundary!(None, queued(process, key, request))
    {
        // SAFETY: the program's promise to ioctl(2): an int is to be written there.
        unsafe { (argument as *mut c_int).write(bytes) };
        return 0;
    }
    // SAFETY: the program's promise to ioctl(2): an int is there.
    let wants_signals = request == libc::FIOASYNC && !is_nowhere(argument) && unsafe { (argument as *const c_int).read() } != 0;
    if wants_signals {
        crate::boundary!((), lifecycle::sends_signals(fd));
    }
    if matches!(request, libc::FIONBIO | libc::FIOASYNC | FIOSETOWN | SIOCSPGRP)
        && !is_nowhere(argument)
        && let Some((key, process)) = crate::boundary!(None, with_common(fd))
    {
        // SAFETY: the program's promise to ioctl(2): an int is there.
        let value = unsafe { (argument as *const c_int).read() };
        if request == libc::FIONBIO && crate::boundary!(false, common::set_nonblocking(process, key, value != 0)) {
            set_nonblocking(fd, value != 0);
            return 0;
        }
        if !crate::boundary!(false, common::own(&mut process.lock(), key)) {
            return errno::fail(libc::EMFILE);
        }
    }
    // SAFETY: the program's promise to ioctl(2).
    let result = unsafe { real::ioctl(fd, request, argument) };
    if result >= 0 && request == libc::FIONBIO && argument != 0 {
        // SAFETY: the kernel read an int there just now.
        set_nonblocking(fd, unsafe { (argument as *const c_int).read() } != 0);
    }
    result
}

/// Who gets signals.
const FIOSETOWN: c_ulong = 0x8901;
const SIOCSPGRP: c_ulong = 0x8902;
/// Bytes that were not sent yet.
const SIOCOUTQNSD: c_ulong = 0x894b;

/// FIONREAD's or SIOCOUTQ's answer, if the ring has it.
fn queued(process: &Process, key: Key, request: c_ulong) -> Option<c_int> {
    let mut guard = process.lock();
    let id: FlowId = match guard.sockets.find(key)?.kind {
        Kind::Stream(id) | Kind::Connecting(id) | Kind::Datagram(Some(id)) => id,
        _ => return None,
    };
    let is_datagram = matches!(guard.sockets.find(key)?.kind, Kind::Datagram(_));
    let now = process.now();
    guard.poll_if_due(now);
    let id = if is_datagram { guard.turn(key).unwrap_or(id) } else { id };
    let info = guard.rings.of(id).info(id)?;
    let bytes = match request {
        libc::TIOCOUTQ => info.send_queue,
        SIOCOUTQNSD => guard.rings.of(id).tcp_details(now, id)?.not_sent,
        _ => info.next_len,
    };
    // Nothing of the ring's waits on a UDP socket: the kernel's half may have some.
    if is_datagram && bytes == 0 {
        return None;
    }
    Some(c_int::try_from(bytes).unwrap_or(c_int::MAX))
}
