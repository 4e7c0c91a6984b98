//! The short way of a call that receives or sends: nothing is asked for that few programs ask for. Whatever else may be the matter leads to the long way
//! (`receive.rs`, `send.rs`), which begins anew: nothing was done.
//!
//! On a stream it is the same call (`socket/stream.rs`) with less to ask, so that what the long way keeps at hand for other cases is not even computed: in a
//! process that has one ring by its lock, else on a plain connection or UDP socket by its ring's (`socket/plain.rs`). What is no such socket goes on as in the long
//! way, in functions of its own.

use core::ffi::{c_int, c_void};

use libc::size_t;
use ringway_preload::vectors::{readable, writable};
use ringway_stack::Instant;

use super::recvfrom::receive_datagram;
use super::{receive as long_receive, send as long_send};
use crate::cancel;
use crate::errno::{Errno, is_nowhere};
use crate::extra::rings::Direction;
use crate::fd_counters::{self, Way};
use crate::fdtable::{self, Found};
use crate::process::{Process, process};
use crate::socket::{Kind, cork, datagram, plain, stream};

/// Flags that change nothing of it.
pub(super) const RECEIVE_FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CMSG_CLOEXEC;
const SEND_FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// recv(2), or read(2), which `kernel` asks of the kernel, with extra flags. `None`: it goes the long way.
///
/// # Safety
/// As recv(2).
#[inline(always)]
pub(super) unsafe fn receive(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    kernel: impl Fn(c_int) -> isize + Copy,
) -> Option<Result<usize, Errno>> {
    if flags & !RECEIVE_FLAGS != 0 || is_nothing(buffer, len) {
        return None;
    }
    let (process, found, now) = find(fd)?;
    if process.has_several_rings() {
        let received = crate::bare_boundary!(Some(Err(Errno(libc::EIO))), {
            // SAFETY: the caller's promise.
            let into = unsafe { writable(buffer, len) };
            into.ok().and_then(|into| plain::receive_at_once(process, now, (fd, found.key), &mut [into], (flags, kernel)))
        });
        return ended(fd, Way::Rx, received?);
    }
    let received = crate::bare_boundary!(Err(Errno(libc::EIO)), {
        // SAFETY: the caller's promise.
        unsafe { writable(buffer, len) }.and_then(|into| {
            let guard = process.lock();
            let kind = match guard.sockets.find(found.key) {
                Some(socket) if !guard.extra_rings.migrate[Direction::Rx as usize] && socket.receive_low_water <= 1 => Some(&socket.kind),
                _ => None,
            };
            // (The kernel's part is copied for each, so that it need not be in memory where nobody asks for it.)
            match kind {
                Some(&Kind::Stream(id) | &Kind::Connecting(id)) => {
                    stream::receive_some(process, guard, now, found.key, id, &mut [into], flags)
                }
                Some(Kind::Datagram(_)) => {
                    let received = receive_datagram(process, guard, now, (fd, found.key), into, (flags, &{ kernel }), |_, _| ());
                    received.map(|taken| taken.count())
                }
                _ => long_receive::receive_any(process, guard, now, (fd, found.key), into, (flags, &{ kernel })),
            }
        })
    });
    ended(fd, Way::Rx, received)
}

/// send(2), or write(2), which `kernel` asks of the kernel. `None`: it goes the long way.
///
/// # Safety
/// As send(2).
#[inline(always)]
pub(super) unsafe fn send(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    kernel: impl Fn() -> isize + Copy,
) -> Option<Result<usize, Errno>> {
    if flags & !SEND_FLAGS != 0 || is_nothing(buffer, len) {
        return None;
    }
    let (process, found, now) = find(fd)?;
    if process.has_several_rings() {
        let sent = crate::bare_boundary!(Some(Err(Errno(libc::EIO))), {
            // SAFETY: the caller's promise.
            unsafe { readable(buffer, len) }.ok().and_then(|data| stream::send_plain_at_once(process, now, found.key, data, flags))
        });
        return ended(fd, Way::Tx, sent?);
    }
    let sent = crate::bare_boundary!(Err(Errno(libc::EIO)), {
        // SAFETY: the caller's promise.
        unsafe { readable(buffer, len) }.and_then(|data| {
            let guard = process.lock();
            let kind = match guard.sockets.find(found.key) {
                Some(socket) if !guard.extra_rings.migrate[Direction::Tx as usize] => Some(&socket.kind),
                _ => None,
            };
            match kind {
                Some(&Kind::Stream(id) | &Kind::Connecting(id)) => stream::send(process, guard, now, found.key, id, &[data], flags),
                Some(Kind::Datagram(_)) if !cork::concerns(&guard, found.key, flags) => {
                    datagram::send(process, guard, now, (fd, found.key), &[data], (None, flags), &{ kernel })
                }
                _ => long_send::send_any(process, guard, now, (fd, found.key), data, (flags, &{ kernel })),
            }
        })
    });
    ended(fd, Way::Tx, sent)
}

/// Whether there is nothing to be received into, or sent.
#[inline(always)]
pub(super) fn is_nothing<T>(buffer: *const T, len: size_t) -> bool {
    len == 0 || is_nowhere(buffer)
}

/// The process, the socket that a number names for certain, and the time. `None`: there may be more to it.
#[inline(always)]
pub(super) fn find(fd: c_int) -> Option<(&'static Process, Found, Instant)> {
    if cancel::is_in_use() {
        return None;
    }
    let process = process()?;
    let found = fdtable::find_socket(fd)?;
    let now = process.now();
    found.is_fresh(now).then_some((process, found, now))
}

/// Counts how it ended. What has moved to the kernel meanwhile begins anew.
#[inline(always)]
pub(super) fn ended(fd: c_int, way: Way, result: Result<usize, Errno>) -> Option<Result<usize, Errno>> {
    match result {
        Err(Errno(libc::EBADF)) if fdtable::has_moved(fd) => return None,
        Err(error) => fd_counters::ended(fd, way, Some(error.0)),
        Ok(_) => fd_counters::ended(fd, way, None),
    }
    Some(result)
}
