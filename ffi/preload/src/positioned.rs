//! preadv2(2) and pwritev2(2): with an offset of -1 they are readv and writev with flags. (With any other, and in their kin without
//! flags, a socket is a thing that cannot seek: the kernel says so of the placeholder.)

use core::ffi::c_int;

use libc::{iovec, msghdr, off64_t, ssize_t};

use crate::{Exports, Intercept, errno, next, vectors};

/// Don't wait.
const RWF_NOWAIT: c_int = 8;
/// Flags that mean nothing to a socket: high priority, two ways to be durable, and where a file ends.
const RWF_OTHERS: c_int = 1 | 2 | 4 | 0x10 | 0x20;

/// The flags of recvmsg and sendmsg.
fn message_flags(flags: c_int) -> Option<c_int> {
    (flags & !(RWF_NOWAIT | RWF_OTHERS) == 0).then_some(if flags & RWF_NOWAIT != 0 { libc::MSG_DONTWAIT } else { 0 })
}

fn message(vectors: *const iovec, count: c_int) -> Option<msghdr> {
    // SAFETY: all of it is integers and pointers, for which zero is a value.
    let mut message: msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = vectors.cast_mut();
    message.msg_iovlen = usize::try_from(count).ok().filter(|&count| count <= vectors::VECTORS_MAX)?;
    Some(message)
}

/// # Safety
/// As preadv2(2).
pub(crate) unsafe fn read<L: Intercept>(fd: c_int, vectors: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t {
    if offset != -1 || !L::is_socket(fd) {
        // SAFETY: the program's promise to preadv2(2).
        return unsafe { next::preadv2(fd, vectors, count, offset, flags) };
    }
    let Some(flags) = message_flags(flags) else { return errno::fail(libc::EOPNOTSUPP) as ssize_t };
    let Some(mut message) = message(vectors, count) else { return errno::fail(libc::EINVAL) as ssize_t };
    // SAFETY: the program's promise to preadv2(2).
    unsafe { <L as Exports>::recvmsg(fd, &raw mut message, flags) }
}

/// # Safety
/// As pwritev2(2).
pub(crate) unsafe fn write<L: Intercept>(fd: c_int, vectors: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t {
    if offset != -1 || !L::is_socket(fd) {
        // SAFETY: the program's promise to pwritev2(2).
        return unsafe { next::pwritev2(fd, vectors, count, offset, flags) };
    }
    let Some(flags) = message_flags(flags) else { return errno::fail(libc::EOPNOTSUPP) as ssize_t };
    let Some(message) = message(vectors, count) else { return errno::fail(libc::EINVAL) as ssize_t };
    // SAFETY: the program's promise to pwritev2(2).
    unsafe { <L as Exports>::sendmsg(fd, &raw const message, flags) }
}
