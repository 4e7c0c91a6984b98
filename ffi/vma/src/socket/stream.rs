//! Sending and receiving on a TCP connection of the ring.
//!
//! The order of attempts: what is queued already, then one poll of the ring, then (for a blocking call) the wait, which
//! spins or sleeps. So a call that finds its bytes costs a lookup, a lock, the clock and the ring's own work.

use core::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use ringway_stack::ring::{Readiness, RecvFlags, SendFlags, SocketId};
use ringway_stack::{Error, Instant};

use super::vectors;
use crate::errno::{self, Errno};
use crate::lock::Guard;
use crate::mux::wait::{SpinClass, Waited, Waiting, wait};
use crate::process::{Offload, Process};
use crate::slab::Key;

/// Receives as recv(2) does.
///
/// # Errors
/// As recv(2): EAGAIN, EINTR, ENOTCONN, ECONNRESET, ETIMEDOUT, EINVAL, EBADF (closed by another thread meanwhile).
#[inline]
pub(crate) fn receive(
    process: &Process,
    mut offload: Guard<'_, Offload>,
    now: Instant,
    key: Key,
    id: SocketId,
    into: &mut [IoSliceMut<'_>],
    flags: c_int,
) -> Result<usize, Errno> {
    const PLAIN: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CMSG_CLOEXEC | libc::MSG_PEEK;
    if flags & !PLAIN != 0 || into.first().is_none_or(|first| first.is_empty()) {
        return receive_specially(process, offload, key, id, into, flags);
    }
    let ring_flags = if flags & libc::MSG_PEEK != 0 { RecvFlags::PEEK } else { RecvFlags::empty() };
    let state = &mut *offload;
    match state.ring.tcp_recv(now, id, into, ring_flags) {
        Err(Error::WouldBlock) => {}
        result => {
            state.dispatch();
            return result.map_err(Errno::from);
        }
    }
    state.poll_if_due(now);
    match state.ring.tcp_recv(now, id, into, ring_flags) {
        Err(Error::WouldBlock) => {}
        result => {
            state.dispatch();
            return result.map_err(Errno::from);
        }
    }
    let Some(socket) = state.sockets.find(key) else { return Err(Errno(libc::EBADF)) };
    if socket.nonblocking || flags & libc::MSG_DONTWAIT != 0 {
        return Err(Errno(libc::EAGAIN));
    }
    let timeout = socket.receive_timeout;
    drop(offload);
    wait_to_receive(process, key, id, into, ring_flags, timeout)
}

fn wait_to_receive(
    process: &Process,
    key: Key,
    id: SocketId,
    into: &mut [IoSliceMut<'_>],
    flags: RecvFlags,
    timeout: Option<Duration>,
) -> Result<usize, Errno> {
    blocking(process, key, timeout, |offload, now| {
        let result = offload.ring.tcp_recv(now, id, into, flags);
        offload.dispatch();
        result
    })
}

/// Waits until `attempt` no longer says that it would block.
///
/// # Errors
/// The attempt's; EAGAIN when the time is over, EINTR, EBADF when the socket was closed meanwhile.
pub(crate) fn blocking<T>(
    process: &Process,
    key: Key,
    timeout: Option<Duration>,
    attempt: impl FnMut(&mut Offload, Instant) -> Result<T, Error>,
) -> Result<T, Errno> {
    waiting(process, key, timeout, timeout.is_none(), attempt)
}

/// [`blocking`]; `restart`: a handler with SA_RESTART does not end it.
fn waiting<T>(
    process: &Process,
    key: Key,
    timeout: Option<Duration>,
    restart: bool,
    mut attempt: impl FnMut(&mut Offload, Instant) -> Result<T, Error>,
) -> Result<T, Errno> {
    let saved = errno::current();
    let mut waiting = Waiting {
        sockets: &[key.index],
        epolls: &[],
        kernel: &mut [],
        deadline: timeout.map(|t| process.now() + t),
        sigmask: None,
        spin: SpinClass::Rx,
        restart,
    };
    let waited = wait(process, &mut waiting, |offload, now| {
        if offload.sockets.find(key).is_none() {
            return Some(Err(Errno(libc::EBADF)));
        }
        match attempt(offload, now) {
            Err(Error::WouldBlock) => None,
            result => Some(result.map_err(Errno::from)),
        }
    });
    match waited {
        Waited::Ready(result) => {
            errno::set(saved);
            result
        }
        Waited::Interrupted => Err(Errno(libc::EINTR)),
        Waited::TimedOut | Waited::Kernel => Err(Errno(libc::EAGAIN)),
    }
}

/// MSG_WAITALL, MSG_TRUNC, MSG_OOB and MSG_ERRQUEUE.
#[cold]
fn receive_specially(
    process: &Process,
    offload: Guard<'_, Offload>,
    key: Key,
    id: SocketId,
    into: &mut [IoSliceMut<'_>],
    flags: c_int,
) -> Result<usize, Errno> {
    if flags & libc::MSG_OOB != 0 {
        // What the kernel says where there is no urgent data (tcp_recv_urg).
        return Err(Errno(libc::EINVAL));
    }
    if flags & libc::MSG_ERRQUEUE != 0 {
        return Err(Errno(libc::EAGAIN));
    }
    let plain = flags & (libc::MSG_DONTWAIT | libc::MSG_PEEK);
    if vectors::total_mut(into) == 0 {
        return receive_nothing(process, offload, key, id, flags);
    }
    if flags & libc::MSG_TRUNC != 0 && flags & libc::MSG_PEEK == 0 {
        return discard(process, offload, key, id, vectors::total_mut(into), plain | flags & libc::MSG_WAITALL);
    }
    let wanted = vectors::total_mut(into);
    let mut into = into;
    if flags & (libc::MSG_WAITALL | libc::MSG_PEEK | libc::MSG_DONTWAIT) == libc::MSG_WAITALL | libc::MSG_PEEK {
        return peek_all(process, offload, key, id, into, wanted);
    }
    // Empty vectors in front would lead back here.
    IoSliceMut::advance_slices(&mut into, 0);
    let mut result = receive(process, offload, process.now(), key, id, into, plain);
    if flags & libc::MSG_WAITALL == 0 || flags & (libc::MSG_DONTWAIT | libc::MSG_PEEK) != 0 {
        return result;
    }
    let mut left = into;
    let mut done = 0;
    loop {
        match result {
            Ok(0) => return Ok(done),
            Ok(count) => {
                done += count;
                if done >= wanted {
                    return Ok(done);
                }
                IoSliceMut::advance_slices(&mut left, count);
            }
            // The error stays pending for the next call, as in the kernel, unless it was the only result.
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
        // What has begun to fill ends with a signal, whether or not its handler restarts calls.
        let timeout = process.lock().sockets.find(key).and_then(|socket| socket.receive_timeout);
        result = waiting(process, key, timeout, false, |offload, now| {
            let result = offload.ring.tcp_recv(now, id, left, RecvFlags::empty());
            offload.dispatch();
            result
        });
    }
}

/// MSG_WAITALL looks for everything even if it takes nothing (tcp_recvmsg goes on while it peeks).
fn peek_all<'a>(
    process: &'a Process,
    offload: Guard<'a, Offload>,
    key: Key,
    id: SocketId,
    into: &mut [IoSliceMut<'_>],
    wanted: usize,
) -> Result<usize, Errno> {
    let Some(socket) = offload.sockets.find(key) else { return Err(Errno(libc::EBADF)) };
    let (nonblocking, timeout) = (socket.nonblocking, socket.receive_timeout);
    drop(offload);
    let mut waited = Ok(());
    if !nonblocking {
        waited = blocking(process, key, timeout, |offload, _| {
            let over = offload.ring.readiness(id).intersects(Readiness::ERR | Readiness::HUP | Readiness::RDHUP);
            let there = offload.ring.info(id).is_none_or(|info| info.next_len >= wanted);
            if over || there { Ok(()) } else { Err(Error::WouldBlock) }
        });
    }
    // Whatever ended the wait: what is there by then is the answer.
    match receive(process, process.lock(), process.now(), key, id, into, libc::MSG_PEEK | libc::MSG_DONTWAIT) {
        Err(Errno(libc::EAGAIN)) => Err(waited.err().unwrap_or(Errno(libc::EAGAIN))),
        result => result,
    }
}

/// No room: Linux waits for a byte (sock_rcvlowat is never zero), and takes none.
fn receive_nothing(process: &Process, mut offload: Guard<'_, Offload>, key: Key, id: SocketId, flags: c_int) -> Result<usize, Errno> {
    let look = |offload: &mut Offload| {
        let ready = Readiness::IN | Readiness::ERR | Readiness::HUP | Readiness::RDHUP;
        if offload.ring.readiness(id).intersects(ready) { Ok(0) } else { Err(Error::WouldBlock) }
    };
    offload.poll_if_due(process.now());
    let Some(socket) = offload.sockets.find(key) else { return Err(Errno(libc::EBADF)) };
    let (nonblocking, timeout) = (socket.nonblocking, socket.receive_timeout);
    let result = look(&mut offload).map_err(Errno::from);
    drop(offload);
    if result.is_ok() || nonblocking || flags & libc::MSG_DONTWAIT != 0 {
        return result;
    }
    blocking(process, key, timeout, |offload, _| look(offload))
}

/// tcp(7): with MSG_TRUNC the bytes are discarded, the buffer is not touched (it may well be null).
///
/// # Errors
/// As [`receive`].
pub(crate) fn discard<'a>(
    process: &'a Process,
    mut offload: Guard<'a, Offload>,
    key: Key,
    id: SocketId,
    len: usize,
    flags: c_int,
) -> Result<usize, Errno> {
    let all = flags & libc::MSG_WAITALL != 0;
    let flags = flags & libc::MSG_DONTWAIT;
    let mut scratch = [0u8; 4096];
    let mut done = 0;
    while done < len {
        let room = (len - done).min(scratch.len());
        let flags = if done == 0 || all { flags } else { flags | libc::MSG_DONTWAIT };
        match receive(process, offload, process.now(), key, id, &mut [IoSliceMut::new(&mut scratch[..room])], flags) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
        offload = process.lock();
    }
    Ok(done)
}

/// Sends as send(2) does: a blocking call returns when everything was taken.
///
/// # Errors
/// As send(2): EAGAIN, EINTR, EPIPE (with SIGPIPE), ENOTCONN, ECONNRESET, ETIMEDOUT, EBADF.
#[inline]
pub(crate) fn send(
    process: &Process,
    mut offload: Guard<'_, Offload>,
    now: Instant,
    key: Key,
    id: SocketId,
    data: &[IoSlice<'_>],
    flags: c_int,
) -> Result<usize, Errno> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let total = vectors::total(data);
    let ring_flags = if flags & libc::MSG_MORE != 0 { SendFlags::MORE } else { SendFlags::empty() };
    let state = &mut *offload;
    let mut result = state.ring.tcp_send(now, id, data, ring_flags);
    if result == Err(Error::WouldBlock) {
        state.poll_if_due(now);
        result = state.ring.tcp_send(now, id, data, ring_flags);
    }
    state.dispatch();
    let done = match result {
        Ok(done) if done >= total => return Ok(done),
        Ok(done) => done,
        Err(Error::WouldBlock) => 0,
        Err(error) => {
            drop(offload);
            return Err(failed(error.into(), flags));
        }
    };
    let Some(socket) = state.sockets.find(key) else { return Err(Errno(libc::EBADF)) };
    if socket.nonblocking || flags & libc::MSG_DONTWAIT != 0 {
        return if done > 0 || total == 0 { Ok(done) } else { Err(Errno(libc::EAGAIN)) };
    }
    let timeout = socket.send_timeout;
    drop(offload);
    send_rest(process, key, id, &mut vectors::rest(data, done), done, timeout, flags)
}

fn send_rest(
    process: &Process,
    key: Key,
    id: SocketId,
    mut left: &mut [IoSlice<'_>],
    mut done: usize,
    timeout: Option<Duration>,
    flags: c_int,
) -> Result<usize, Errno> {
    let ring_flags = if flags & libc::MSG_MORE != 0 { SendFlags::MORE } else { SendFlags::empty() };
    while !left.is_empty() {
        let sent = blocking(process, key, timeout, |offload, now| {
            let result = offload.ring.tcp_send(now, id, left, ring_flags);
            offload.dispatch();
            result
        });
        match sent {
            Ok(count) => {
                done += count;
                IoSlice::advance_slices(&mut left, count);
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(failed(error, flags)),
        }
    }
    Ok(done)
}

/// A send failed: EPIPE comes with SIGPIPE unless MSG_NOSIGNAL says otherwise.
#[cold]
fn failed(error: Errno, flags: c_int) -> Errno {
    if error.0 == libc::EPIPE && flags & libc::MSG_NOSIGNAL == 0 {
        // SAFETY: raise has no preconditions.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    error
}
