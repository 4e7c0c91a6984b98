//! The calls that send and receive, in their many forms: `None`, it is the kernel's to do.

use core::ffi::{c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;

use libc::{iovec, msghdr, off64_t, size_t, sockaddr, socklen_t, ssize_t};
use ringway_preload::errno::{THEIRS, is_nowhere, to_ssize};
use ringway_preload::{Errno, bare_boundary, next, vectors};
use rsocket::api;

use crate::socket::{Socket, State};
use crate::{datagram, stream, table};

/// Bytes of a file that sendfile(2) reads at a time.
const PIECE: usize = 128 * 1024;

/// What was received.
struct Got {
    len: usize,
    /// A datagram was longer than its room.
    is_cut: bool,
    from: Option<SocketAddr>,
}

/// Has `body` answer for a socket of ours.
fn ours(fd: c_int, body: impl FnOnce(&Arc<Socket>) -> Result<usize, Errno>) -> Option<ssize_t> {
    let socket = table::socket(fd)?;
    let result = bare_boundary!(Err(Errno(libc::EIO)), body(&socket));
    if result == Err(THEIRS) { None } else { Some(to_ssize(result)) }
}

fn get(fd: c_int, socket: &Arc<Socket>, pieces: &mut [IoSliceMut<'_>], flags: c_int) -> Result<Got, Errno> {
    if !socket.is_datagram {
        return stream::receive(fd, socket, pieces, flags).map(|len| Got { len, is_cut: false, from: None });
    }
    let received = datagram::receive(fd, socket, pieces, flags)?;
    let is_cut = received.whole > received.len;
    let len = if is_cut && flags & libc::MSG_TRUNC != 0 { received.whole } else { received.len };
    Ok(Got { len, is_cut, from: Some(received.from) })
}

fn put(fd: c_int, socket: &Arc<Socket>, pieces: &[IoSlice<'_>], flags: c_int, to: Option<SocketAddr>) -> Result<usize, Errno> {
    if socket.is_datagram {
        return datagram::send(fd, socket, pieces, flags, to);
    }
    // (A stream's bytes go to its peer; tcp_sendmsg looks at no address.)
    stream::send(fd, socket, pieces, flags)
}

/// recv(2), and read(2).
///
/// # Safety
/// As recv(2).
pub(crate) unsafe fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> Option<ssize_t> {
    // SAFETY: the caller's promise.
    ours(fd, |socket| get(fd, socket, &mut [unsafe { vectors::writable(buffer, len) }?], flags).map(|got| got.len))
}

/// recvfrom(2).
///
/// # Safety
/// As recvfrom(2).
pub(crate) unsafe fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> Option<ssize_t> {
    ours(fd, |socket| {
        // SAFETY: the caller's promise.
        let got = get(fd, socket, &mut [unsafe { vectors::writable(buffer, len) }?], flags)?;
        // SAFETY: the caller's promise.
        unsafe { tell_source(socket, &got, from, from_len) }?;
        Ok(got.len)
    })
}

/// # Safety
/// As [`api::write_address`].
unsafe fn tell_source(socket: &Socket, got: &Got, from: *mut sockaddr, from_len: *mut socklen_t) -> Result<(), Errno> {
    match got.from {
        // SAFETY: the caller's promise.
        Some(source) => unsafe { api::write_address(source, socket.family, from, from_len) },
        None if from.is_null() || is_nowhere(from_len) => Ok(()),
        None => {
            // SAFETY: the caller's promise: it leads to a length.
            unsafe { from_len.write_unaligned(0) };
            Ok(())
        }
    }
}

/// readv(2).
///
/// # Safety
/// As readv(2).
pub(crate) unsafe fn readv(fd: c_int, iov: *const iovec, count: c_int) -> Option<ssize_t> {
    ours(fd, |socket| {
        let count = vectors::count(count)?;
        // SAFETY: the caller's promise.
        unsafe { vectors::with_writable(iov, count, |pieces| get(fd, socket, pieces, 0).map(|got| got.len)) }
    })
}

/// recvmsg(2). There are no control messages.
///
/// # Safety
/// As recvmsg(2).
pub(crate) unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> Option<ssize_t> {
    ours(fd, |socket| {
        if is_nowhere(message) {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the caller's promise.
        let message = unsafe { &mut *message };
        // SAFETY: the caller's promise.
        let got = unsafe { vectors::with_writable(message.msg_iov, message.msg_iovlen, |pieces| get(fd, socket, pieces, flags)) }?;
        // SAFETY: the caller's promise.
        unsafe { tell_source(socket, &got, message.msg_name.cast(), &raw mut message.msg_namelen) }?;
        message.msg_controllen = 0;
        message.msg_flags = if got.is_cut { libc::MSG_TRUNC } else { 0 };
        Ok(got.len)
    })
}

/// send(2), and write(2).
///
/// # Safety
/// As send(2).
pub(crate) unsafe fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> Option<ssize_t> {
    // SAFETY: the caller's promise.
    ours(fd, |socket| put(fd, socket, &[unsafe { vectors::readable(buffer, len) }?], flags, None))
}

/// To whom a datagram is to go.
///
/// # Safety
/// As [`api::read_address`].
unsafe fn destination(socket: &Socket, to: *const sockaddr, len: socklen_t) -> Result<Option<SocketAddr>, Errno> {
    if to.is_null() || !socket.is_datagram {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { api::read_address(to, len, socket.family) }.map(Some)
}

/// sendto(2).
///
/// # Safety
/// As sendto(2).
pub(crate) unsafe fn sendto(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> Option<ssize_t> {
    ours(fd, |socket| {
        // SAFETY: the caller's promise.
        let to = unsafe { destination(socket, to, to_len) }?;
        // SAFETY: the caller's promise.
        put(fd, socket, &[unsafe { vectors::readable(buffer, len) }?], flags, to)
    })
}

/// writev(2).
///
/// # Safety
/// As writev(2).
pub(crate) unsafe fn writev(fd: c_int, iov: *const iovec, count: c_int) -> Option<ssize_t> {
    ours(fd, |socket| {
        let count = vectors::count(count)?;
        // SAFETY: the caller's promise.
        unsafe { vectors::with_readable(iov, count, |pieces| put(fd, socket, pieces, 0, None)) }
    })
}

/// sendmsg(2). Control messages, which say how the kernel is to send, say nothing to rsockets.
///
/// # Safety
/// As sendmsg(2).
pub(crate) unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> Option<ssize_t> {
    ours(fd, |socket| {
        if is_nowhere(message) {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the caller's promise.
        let message = unsafe { &*message };
        // SAFETY: the caller's promise.
        let to = unsafe { destination(socket, message.msg_name.cast(), message.msg_namelen) }?;
        // SAFETY: the caller's promise.
        unsafe { vectors::with_readable(message.msg_iov, message.msg_iovlen, |pieces| put(fd, socket, pieces, flags, to)) }
    })
}

/// sendfile(2) to a stream: the file is read, and sent.
///
/// # Safety
/// As sendfile(2).
pub(crate) unsafe fn sendfile(out: c_int, input: c_int, offset: *mut off64_t, count: size_t) -> Option<ssize_t> {
    ours(out, |socket| {
        if !matches!(socket.state(), State::Connected(_) | State::Connecting(_) | State::ForkActive | State::ForkPassive | State::Moving) {
            return Err(THEIRS);
        }
        // A first look at who carries it: what the kernel has is not read for it.
        crate::socket::carrier(out, socket, 0)?;
        let mut buffer = vec![0; count.min(PIECE)];
        let mut done = 0;
        while done < count {
            let wanted = buffer.len().min(count - done);
            // SAFETY: the caller's promise; room for as many bytes.
            let read = unsafe {
                if offset.is_null() {
                    next::read(input, buffer.as_mut_ptr().cast(), wanted)
                } else {
                    next::pread(input, buffer.as_mut_ptr().cast(), wanted, offset.read_unaligned())
                }
            };
            let Ok(read) = usize::try_from(read) else { return if done > 0 { Ok(done) } else { Err(Errno::last()) } };
            if read == 0 {
                break;
            }
            let sent = stream::send(out, socket, &[IoSlice::new(&buffer[..read])], 0);
            let taken = *sent.as_ref().unwrap_or(&0);
            // SAFETY: the caller's promise. (What was read and not sent is read again.)
            unsafe {
                if offset.is_null() {
                    libc::lseek64(input, taken as off64_t - read as off64_t, libc::SEEK_CUR);
                } else {
                    offset.write_unaligned(offset.read_unaligned() + taken as off64_t);
                }
            }
            done += taken;
            if taken < read {
                return if done > 0 { Ok(done) } else { sent };
            }
        }
        Ok(done)
    })
}
