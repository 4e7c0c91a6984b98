//! write, send and their kin.

use core::ffi::{c_int, c_uint, c_void};
use std::io::IoSlice;

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use ringway_preload::{control, messages};
use ringway_stack::Instant;

use super::{rights, short};
use crate::cancel::Masked;
use crate::errno::{self, Errno, THEIRS, to_ssize};
use crate::extra::dummy;
use crate::extra::rings::Direction;
use crate::fd_counters::{self, Way};
use crate::fdtable::{self, Entry, Found};
use crate::lock::Guard;
use crate::process::{Offload, Process, process_or_init};
use crate::real;
use crate::slab::Key;
use crate::socket::address::{self, Address};
use crate::socket::{Family, Kind, Socket, connect, cork, datagram, lifecycle, stream, vectors};

/// The longest address.
const NAME_MAX: socklen_t = core::mem::size_of::<libc::sockaddr_storage>() as socklen_t;

/// linux/socket.h.
const MSG_PROBE: c_int = 0x10;

/// linux/socket.h.
pub(super) const MSG_CMSG_COMPAT: c_int = 1 << 31;

/// Sends on a socket of ours, and counts how that ends; `kernel` hands the call to the kernel.
#[inline]
fn send_on(
    fd: c_int,
    found: Found,
    data: &[IoSlice<'_>],
    flags: c_int,
    to: impl Fn(Family) -> Option<Address>,
    kernel: &dyn Fn() -> isize,
) -> Result<usize, Errno> {
    if flags & dummy::FLAG != 0 {
        let sent = dummy::send(fd, found.key, data, flags, to);
        fd_counters::warmed(fd, sent.as_ref().err().map(|error| error.0));
        return sent;
    }
    let sent = send_uncounted(fd, found, data, flags, to, kernel);
    fd_counters::ended(fd, Way::Tx, sent.as_ref().err().map(|error| error.0));
    sent
}

#[inline(always)]
fn send_uncounted(
    fd: c_int,
    found: Found,
    data: &[IoSlice<'_>],
    flags: c_int,
    to: impl Fn(Family) -> Option<Address>,
    kernel: &dyn Fn() -> isize,
) -> Result<usize, Errno> {
    let Some(process) = process_or_init() else { return by_kernel(fd, kernel) };
    let now = process.now();
    let key = found.key;
    if found.is_stale(fd, now) {
        lifecycle::displaced(fd, Entry::Socket(key));
        return by_kernel(fd, kernel);
    }
    if process.has_several_rings()
        && let Some(sent) = stream::send_plain(process, now, key, data, (&to, flags))
    {
        return sent;
    }
    send_locked(process, process.lock(), now, (fd, key), data, (flags, to), kernel)
}

/// What goes on here from the short way: all but a plain send on a stream.
///
/// # Errors
/// As send(2).
#[inline(never)]
pub(super) fn send_any(
    process: &Process,
    guard: Guard<'_, Offload>,
    now: Instant,
    (fd, key): (c_int, Key),
    data: IoSlice<'_>,
    (flags, kernel): (c_int, &dyn Fn() -> isize),
) -> Result<usize, Errno> {
    send_locked(process, guard, now, (fd, key), &[data], (flags, |_| None), kernel)
}

/// Of a connection that was to move, and is on its ring again.
#[cold]
#[inline(never)]
fn send_again(
    process: &Process,
    (fd, key): (c_int, Key),
    data: &[IoSlice<'_>],
    (flags, to): (c_int, impl Fn(Family) -> Option<Address>),
    kernel: &dyn Fn() -> isize,
) -> Result<usize, Errno> {
    send_locked(process, process.lock(), process.now(), (fd, key), data, (flags, to), kernel)
}

/// The same, under the process's lock.
#[inline(always)]
fn send_locked(
    process: &Process,
    mut guard: Guard<'_, Offload>,
    now: Instant,
    (fd, key): (c_int, Key),
    data: &[IoSlice<'_>],
    (flags, to): (c_int, impl Fn(Family) -> Option<Address>),
    kernel: &dyn Fn() -> isize,
) -> Result<usize, Errno> {
    if guard.extra_rings.migrate[Direction::Tx as usize] {
        guard.note_use(key, Direction::Tx);
    }
    let Some(socket) = guard.sockets.find(key) else { return Err(Errno(libc::EBADF)) };
    match socket.kind {
        // tcp(7): an address given to a connected stream is ignored.
        Kind::Stream(id) | Kind::Connecting(id) => match stream::send(process, guard, now, key, id, data, flags) {
            Err(Errno(libc::EBADF)) if fdtable::has_moved(fd) => by_kernel(fd, kernel),
            Err(Errno(libc::EBADF)) if crate::moving::is_back(process, (fd, key), Some(id)) => {
                send_again(process, (fd, key), data, (flags, to), kernel)
            }
            result => result,
        },
        // (MSG_OOB is refused, and what is sent with MSG_PROBE only asks for the way.)
        Kind::Datagram(_) if flags & (libc::MSG_OOB | MSG_PROBE) != 0 => {
            drop(guard);
            by_kernel(fd, kernel)
        }
        Kind::Datagram(_) => {
            let to = to(socket.family);
            if cork::concerns(&guard, key, flags) {
                return cork::send(process, guard, fd, key, data, flags, to);
            }
            datagram::send(process, guard, now, (fd, key), data, (to.as_ref(), flags), kernel)
        }
        Kind::Fresh | Kind::Listener(_) | Kind::Kernel | Kind::Moving => {
            if let Some(error) = guard.sockets.find_mut(key).and_then(Socket::take_left_error) {
                return Err(Errno(error));
            }
            let was_moving = guard.sockets.find(key).is_some_and(|socket| socket.kind == Kind::Moving);
            drop(guard);
            if let Entry::Socket(_) = fdtable::lookup_with(fd, flags)
                && fdtable::is_moving(fd)
            {
                // What goes first has not gone for a long time: nothing may overtake it.
                let is_impatient = crate::moving::is_impatient(fd, flags);
                return Err(Errno(if is_impatient { libc::EAGAIN } else { libc::ETIMEDOUT }));
            }
            if was_moving && crate::moving::is_back(process, (fd, key), None) {
                return send_again(process, (fd, key), data, (flags, to), kernel);
            }
            by_kernel(fd, kernel)
        }
    }
}

/// What the kernel is asked in the middle of a call of ours ends no thread: the call's end does.
#[cold]
#[inline(never)]
fn by_kernel(fd: c_int, kernel: &dyn Fn() -> isize) -> Result<usize, Errno> {
    let _masked = Masked::new();
    let sent = usize::try_from(kernel()).map_err(|_| Errno::last())?;
    fdtable::count_kernel_tx(fd);
    fd_counters::kernel_said(fd, Way::Tx, sent.cast_signed());
    Ok(sent)
}

/// Looks up who is to send. `Err` is the kernel's own result.
#[inline(always)]
fn ours(fd: c_int, flags: c_int, kernel: impl FnOnce() -> isize) -> Result<Found, isize> {
    match fdtable::lookup_socket(fd, flags) {
        Ok(found) => Ok(found),
        // The kernel knows no packet that is to reach nobody.
        Err(_) if flags & dummy::FLAG != 0 => Err(errno::fail(libc::EINVAL) as isize),
        Err(Entry::Kernel(_)) => {
            let sent = kernel();
            if sent >= 0 {
                fdtable::count_kernel_tx(fd);
            }
            fd_counters::kernel_said(fd, Way::Tx, sent);
            Err(sent)
        }
        Err(_) => Err(kernel()),
    }
}

/// write(2).
#[inline(always)]
pub(super) unsafe fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the program's promise to write(2).
    match unsafe { short::send(fd, buffer, len, 0, move || real::write(fd, buffer, len)) } {
        Some(Ok(count)) => count.cast_signed(),
        // SAFETY: as above.
        other => unsafe { send_at_length(fd, buffer, len, 0, &move || real::write(fd, buffer, len), other.and_then(Result::err)) },
    }
}

/// send(2), or write(2), which `kernel` asks of the kernel. `failed`: it went the short way, and so it ended.
#[inline(never)]
unsafe fn send_at_length(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    kernel: &dyn Fn() -> isize,
    mut failed: Option<Errno>,
) -> ssize_t {
    crate::cancellation_point!({
        match failed.take().map_or_else(|| ours(fd, flags, kernel), |error| Err(to_ssize(Err(error)))) {
            Err(result) => result,
            Ok(found) => crate::bare_boundary!(
                -1,
                // SAFETY: the program's promise to send(2).
                to_ssize(unsafe { vectors::readable(buffer, len) }.and_then(|data| send_on(fd, found, &[data], flags, |_| None, kernel)))
            ),
        }
    })
}

/// writev(2).
#[inline(always)]
pub(super) unsafe fn writev(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t {
    crate::cancellation_point!({
        // SAFETY: the program's promise to writev(2).
        let kernel = || unsafe { real::writev(fd, buffers, count) };
        match ours(fd, 0, kernel) {
            Err(result) => result,
            Ok(found) => {
                crate::bare_boundary!(
                    -1,
                    // SAFETY: the program's promise to writev(2).
                    to_ssize(vectors::count(count).and_then(|count| unsafe {
                        vectors::with_readable(buffers, count, |data| match data.iter().all(|part| part.is_empty()) {
                            // Linux writes nothing to a descriptor without asking it, whatever its state; write(2) of nothing asks.
                            true => Ok(0),
                            false => send_on(fd, found, data, 0, |_| None, &kernel),
                        })
                    }))
                )
            }
        }
    })
}

/// send(2).
#[inline(always)]
pub(super) unsafe fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's promise to send(2).
    match unsafe { short::send(fd, buffer, len, flags, move || real::send(fd, buffer, len, flags)) } {
        Some(Ok(count)) => count.cast_signed(),
        // SAFETY: as above.
        other => unsafe {
            send_at_length(fd, buffer, len, flags, &move || real::send(fd, buffer, len, flags), other.and_then(Result::err))
        },
    }
}

/// sendto(2).
#[inline(always)]
pub(super) unsafe fn sendto(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    crate::cancellation_point!({
        // SAFETY: the program's promise to sendto(2).
        let kernel = || unsafe { real::sendto(fd, buffer, len, flags, to, to_len) };
        match ours(fd, flags, kernel) {
            Err(result) => result,
            Ok(found) => crate::bare_boundary!(
                -1,
                // SAFETY: the program's promise to sendto(2).
                to_ssize(unsafe { vectors::readable(buffer, len) }.and_then(|data| {
                    address::check(to, to_len)?;
                    // SAFETY: as above.
                    send_on(fd, found, &[data], flags, |family| unsafe { destination(to, to_len, family) }, &kernel)
                }))
            ),
        }
    })
}

/// MSG_FASTOPEN on a socket that is not connected: it is connected first, as the kernel does where it has no cookie. `false`: that is the
/// kernel's to do, with the data.
///
/// # Errors
/// As connect(2); EINPROGRESS: nothing was sent.
unsafe fn connected_first(fd: c_int, key: Key, to: *const sockaddr, len: socklen_t) -> Result<bool, Errno> {
    let Some(process) = process_or_init() else { return Ok(false) };
    if !matches!(process.lock().sockets.find(key).map(|socket| socket.kind), Some(Kind::Fresh)) {
        return Ok(false);
    }
    // SAFETY: the caller's promise: null, or so many bytes.
    match unsafe { connect::connect(process, fd, key, to, len) } {
        Ok(_) => Ok(true),
        Err(THEIRS) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A call's destination; none if it names none.
unsafe fn destination(to: *const sockaddr, len: socklen_t, family: Family) -> Option<Address> {
    if to.is_null() {
        return None;
    }
    // SAFETY: the caller's promise: the program gave `len` bytes there.
    Some(unsafe { address::read(to, len, family) })
}

/// sendmsg(2).
#[inline(always)]
pub(super) unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's promise to sendmsg(2).
    unsafe { rights::before(message) };
    crate::cancellation_point!({
        // SAFETY: the program's promise to sendmsg(2).
        let kernel = || unsafe { real::sendmsg(fd, message, flags) };
        match ours(fd, flags, kernel) {
            Err(result) => result,
            // SAFETY: the program's promise to sendmsg(2).
            Ok(found) => crate::bare_boundary!(-1, to_ssize(unsafe { send_message(fd, found, message, flags, &kernel) })),
        }
    })
}

unsafe fn send_message(fd: c_int, found: Found, message: *const msghdr, flags: c_int, kernel: &dyn Fn() -> isize) -> Result<usize, Errno> {
    if errno::is_nowhere(message) {
        return Err(Errno(libc::EFAULT));
    }
    // (The kernel's mark of 32-bit programs is nobody else's to set.)
    if flags & MSG_CMSG_COMPAT != 0 {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the caller's promise.
    let header = unsafe { &*message };
    if header.msg_iovlen > vectors::VECTORS_MAX {
        return Err(Errno(libc::EMSGSIZE));
    }
    let flags = if flags & dummy::FLAG != 0 { flags & !libc::MSG_FASTOPEN } else { flags };
    // What the control messages ask for (segmentation, a source address, …) is the kernel's to do.
    if header.msg_controllen != 0 && flags & dummy::FLAG == 0 {
        if process_or_init().is_some_and(|p| p.lock().sockets.find(found.key).is_some_and(|s| matches!(s.kind, Kind::Datagram(_)))) {
            return by_kernel(fd, kernel);
        }
        // SAFETY: the caller's promise.
        unsafe { control::check_of_stream(header) }?;
    }
    // (A negative length is refused, and one that is too long cut.)
    let (to, to_len) = (header.msg_name.cast::<sockaddr>().cast_const(), header.msg_namelen);
    address::check(to, if i32::try_from(to_len).is_ok() { to_len.min(NAME_MAX) } else { to_len })?;
    // SAFETY: the caller's promise.
    if flags & libc::MSG_FASTOPEN != 0 && unsafe { connected_first(fd, found.key, to, to_len) }? {
        // SAFETY: the caller's promise.
        return unsafe {
            vectors::with_readable(header.msg_iov, header.msg_iovlen, |data| {
                send_on(fd, found, data, flags & !libc::MSG_FASTOPEN, |_| None, kernel)
            })
        };
    }
    // SAFETY: the caller's promise, for the vectors and for the address.
    unsafe {
        vectors::with_readable(header.msg_iov, header.msg_iovlen, |data| {
            send_on(fd, found, data, flags, |family| destination(to, to_len, family), kernel)
        })
    }
}

/// sendmmsg(2).
#[inline(always)]
pub(super) unsafe fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    if !matches!(fdtable::lookup(fd), Entry::Socket(_)) {
        if flags & dummy::FLAG != 0 {
            return errno::fail(libc::EINVAL);
        }
        for at in 0..if errno::is_nowhere(messages) { 0 } else { count as usize } {
            // SAFETY: the program's promise to sendmmsg(2): `count` messages are there.
            unsafe { rights::before(&raw const (*messages.add(at)).msg_hdr) };
        }
        // SAFETY: the program's promise to sendmmsg(2).
        return unsafe { real::sendmmsg(fd, messages, count, flags) };
    }
    if errno::is_nowhere(messages) && count > 0 {
        return crate::errno::fail(libc::EFAULT);
    }
    // SAFETY: the program's promise to sendmmsg(2), both times.
    unsafe { messages::send_each(messages, count, |message| super::sendmsg(fd, message, flags)) }
}
