//! Several messages in one call, as recvmmsg(2) and sendmmsg(2) take them one by one; and the descriptors that a message passes.

use core::ffi::{c_int, c_uint};
use core::time::Duration;
use std::time::Instant;

use libc::{mmsghdr, msghdr, ssize_t, timespec};

use crate::cmsg;
use crate::errno::{self, is_nowhere};
use crate::timeout::to_timespec;

/// Linux takes no more at a time (UIO_MAXIOV).
const MESSAGES_MAX: c_uint = 1024;

/// recvmmsg(2) by `receive`, which is recvmsg(2) with these flags. `limit` is what was read at `timeout`.
///
/// # Safety
/// The program's promise to recvmmsg(2); the messages lead somewhere, or there is none.
pub unsafe fn receive_each(
    messages: *mut mmsghdr,
    count: c_uint,
    mut flags: c_int,
    timeout: *mut timespec,
    limit: Option<Duration>,
    receive: impl Fn(*mut msghdr, c_int) -> ssize_t,
) -> c_int {
    let saved = errno::current();
    let began = Instant::now();
    let count = count.min(MESSAGES_MAX) as usize;
    for done in 0..count {
        // SAFETY: the program's promise to recvmmsg(2): `count` messages are there.
        let one = unsafe { &mut *messages.add(done) };
        let received = receive(&raw mut one.msg_hdr, flags & !libc::MSG_WAITFORONE);
        if received < 0 {
            // An error after the first message is the next call's to report.
            if done > 0 {
                errno::set(saved);
                return done as c_int;
            }
            return -1;
        }
        one.msg_len = c_uint::try_from(received).unwrap_or(c_uint::MAX);
        if flags & libc::MSG_WAITFORONE != 0 {
            flags |= libc::MSG_DONTWAIT;
        }
        // recvmmsg(2), BUGS: the time is only looked at after each datagram. What is left of it is the program's to know.
        if let Some(limit) = limit {
            let left = limit.saturating_sub(began.elapsed());
            // SAFETY: the program's promise to recvmmsg(2): the time was read there.
            unsafe { timeout.write(to_timespec(left)) };
            if left.is_zero() {
                return (done + 1) as c_int;
            }
        }
    }
    count as c_int
}

/// sendmmsg(2) by `send`, which is sendmsg(2).
///
/// # Safety
/// The program's promise to sendmmsg(2); the messages lead somewhere, or there is none.
pub unsafe fn send_each(messages: *mut mmsghdr, count: c_uint, send: impl Fn(*const msghdr) -> ssize_t) -> c_int {
    let saved = errno::current();
    let count = count.min(MESSAGES_MAX) as usize;
    for done in 0..count {
        // SAFETY: the program's promise to sendmmsg(2): `count` messages are there.
        let one = unsafe { &mut *messages.add(done) };
        let sent = send(&raw const one.msg_hdr);
        if sent < 0 {
            if done > 0 {
                errno::set(saved);
            }
            // An error after the first message is the next call's to report.
            return if done == 0 { -1 } else { done as c_int };
        }
        one.msg_len = c_uint::try_from(sent).unwrap_or(c_uint::MAX);
    }
    count as c_int
}

/// Whether a message has control messages at all.
///
/// # Safety
/// `message` leads nowhere for certain, or the program's promise to sendmsg(2) holds for it.
#[inline]
pub unsafe fn has_control(message: *const msghdr) -> bool {
    // SAFETY: the caller's promise.
    !is_nowhere(message) && unsafe { (*message).msg_controllen } != 0
}

/// Calls `each` with the descriptors that a message passes to another process (SCM_RIGHTS, unix(7)).
///
/// # Safety
/// The program's promise to sendmsg(2) for a message that [has control messages](has_control).
#[cold]
pub unsafe fn passed(message: *const msghdr, mut each: impl FnMut(c_int)) {
    // SAFETY: the caller's promise: the control room is readable for the length that the message says.
    let Some(room) = (unsafe { cmsg::room((*message).msg_control, (*message).msg_controllen) }) else { return };
    // (One that is cut is the kernel's to refuse, with all of the message.)
    let _whole = cmsg::each::<cmsg::Cut>(room, |message| {
        if (message.level, message.kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            for fd in message.payload.as_chunks().0 {
                each(c_int::from_ne_bytes(*fd));
            }
        }
        Ok(())
    });
}
