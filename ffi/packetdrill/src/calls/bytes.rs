//! Reading and writing.

use core::ffi::{c_int, c_void};
use core::mem::offset_of;

use libc::{cmsghdr, iovec, msghdr, sockaddr, socklen_t};
use ringway_stack::ring::SendFlags;

use super::host;
use crate::address::{self, Named};
use crate::errno::{Errno, returned};
use crate::host::Host;
use crate::memory;
use crate::sockets::Kind;

/// TCP_INQ, and the control message of that name (linux/tcp.h).
pub(crate) const TCP_INQ: c_int = 36;
/// Flags of sends that change nothing here: there is no SIGPIPE, and no neighbour to confirm.
const SEND_NEUTRAL: c_int = libc::MSG_NOSIGNAL | libc::MSG_CONFIRM | libc::MSG_DONTWAIT | libc::MSG_MORE | libc::MSG_EOR;
/// Flags of receives that are known.
const RECV_KNOWN: c_int =
    libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_TRUNC | libc::MSG_WAITALL | libc::MSG_NOSIGNAL | libc::MSG_CMSG_CLOEXEC;

/// What ends the wait of who writes, in poll(2)'s bits.
const WRITABLE: u32 = (libc::POLLOUT | libc::POLLERR | libc::POLLHUP) as u32;

type Parts = Vec<(*mut c_void, usize)>;

/// Receives into these parts: how many bytes.
fn receive(host: &Host, fd: c_int, parts: &Parts, flags: c_int) -> Result<usize, Errno> {
    if flags & libc::MSG_ERRQUEUE != 0 {
        // Nothing is ever queued there.
        host.lock().world.socket(fd)?;
        return Err(Errno::AGAIN);
    }
    if flags & !RECV_KNOWN != 0 {
        return Err(Errno::NOT_SUPPORTED);
    }
    let (nonblocking, timeout) = {
        let mut guard = host.lock();
        let socket = guard.world.socket(fd)?;
        (socket.nonblocking, socket.timeouts[0])
    };
    let room: usize = parts.iter().map(|(_, len)| len).sum();
    let is_peek = flags & libc::MSG_PEEK != 0;
    let may_sleep = !nonblocking && flags & libc::MSG_DONTWAIT == 0;
    let is_whole = flags & libc::MSG_WAITALL != 0 && !is_peek;
    // TCP: "discard received bytes" instead of storing them (tcp(7), MSG_TRUNC).
    let is_stored = flags & libc::MSG_TRUNC == 0;
    let is_nowhere = is_stored && parts.iter().any(|&(at, len)| memory::read(at.cast_const(), len).is_err());
    let mut got = Vec::new();
    let outcome = host.wait(may_sleep, timeout, |world| {
        // What cannot be stored stays where it is.
        if is_nowhere && !world.recv(fd, room, true)?.is_empty() {
            return Err(Errno::FAULT);
        }
        loop {
            let bytes = world.recv(fd, room - got.len(), is_peek)?;
            let is_end = bytes.is_empty();
            got.extend(bytes);
            if is_end || got.len() == room || !is_whole {
                return Ok(());
            }
        }
    });
    if got.is_empty() {
        outcome?;
    }
    if is_stored {
        let mut left = &got[..];
        for (at, len) in parts {
            let (now, later) = left.split_at(left.len().min(*len));
            memory::write(*at, now)?;
            left = later;
        }
    }
    Ok(got.len())
}

/// Opens a connection with these bytes (MSG_FASTOPEN), or begins one that waited for them: how many were taken. Who may sleep is told when it is established.
fn open_fast(host: &Host, fd: c_int, name: Named, bytes: &[u8], flags: c_int) -> Result<usize, Errno> {
    if flags & !(SEND_NEUTRAL | libc::MSG_FASTOPEN) != 0 {
        return Err(Errno::NOT_SUPPORTED);
    }
    let (taken, may_sleep, timeout) = host.now(|world| {
        let socket = world.socket(fd)?;
        let may_sleep = !socket.nonblocking && flags & libc::MSG_DONTWAIT == 0;
        let timeout = socket.timeouts[1];
        Ok((world.connect_fast(fd, name, bytes, may_sleep)?, may_sleep, timeout))
    })?;
    match host.wait(may_sleep, timeout, |world| world.connected(fd)) {
        Err(Errno::AGAIN) if taken > 0 && !may_sleep => Ok(taken),
        Err(Errno::AGAIN) => Err(Errno(libc::EINPROGRESS)),
        Err(other) => Err(other),
        Ok(()) if taken < bytes.len() && may_sleep => Ok(taken + transmit(host, fd, &bytes[taken..], flags & SEND_NEUTRAL)?),
        Ok(()) => Ok(taken),
    }
}

/// Sends these bytes: how many were taken.
fn transmit(host: &Host, fd: c_int, bytes: &[u8], flags: c_int) -> Result<usize, Errno> {
    // (MSG_ZEROCOPY and MSG_OOB ask for what the stack does not have.)
    if flags & !SEND_NEUTRAL != 0 {
        return Err(Errno::NOT_SUPPORTED);
    }
    let (nonblocking, timeout) = {
        let mut guard = host.lock();
        let socket = guard.world.socket(fd)?;
        if let Kind::Deferred(remote) = socket.kind {
            drop(guard);
            return open_fast(host, fd, Named::Address(remote), bytes, flags);
        }
        (socket.nonblocking, socket.timeouts[1])
    };
    let may_sleep = !nonblocking && flags & libc::MSG_DONTWAIT == 0;
    let mut how = SendFlags::empty();
    how.set(SendFlags::MORE, flags & libc::MSG_MORE != 0);
    how.set(SendFlags::END_OF_RECORD, flags & libc::MSG_EOR != 0);
    let mut sent = 0;
    let mut has_slept = false;
    let outcome = host.wait(may_sleep, timeout, |world| {
        // (Who sleeps for room is woken when it is worth it, as on Linux.)
        if core::mem::replace(&mut has_slept, true) && world.readiness(fd)? & WRITABLE == 0 {
            return Err(Errno::AGAIN);
        }
        loop {
            sent += world.send(fd, &bytes[sent..], how)?;
            if sent == bytes.len() {
                return Ok(());
            }
        }
    });
    if sent == 0 {
        outcome?;
    }
    Ok(sent)
}

/// sendto(2) and sendmsg(2) with MSG_FASTOPEN. On a connection that is there already, it is as without.
fn fast(host: &Host, fd: c_int, name: *const sockaddr, name_len: socklen_t, bytes: &[u8], flags: c_int) -> Result<isize, Errno> {
    let (name, is_established) = {
        let mut guard = host.lock();
        let domain = guard.world.socket(fd)?.domain;
        let is_established = matches!(guard.world.socket(fd)?.kind, Kind::Stream { .. }) && guard.world.connected(fd) != Err(Errno::AGAIN);
        (address::read(domain, name.cast(), name_len)?, is_established)
    };
    let sent = match is_established {
        true => transmit(host, fd, bytes, flags & !libc::MSG_FASTOPEN),
        false => open_fast(host, fd, name, bytes, flags),
    };
    sent.map(|len| len as isize)
}

fn gathered(parts: &Parts) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    for (at, len) in parts {
        bytes.extend(memory::read(at.cast_const(), *len)?);
    }
    Ok(bytes)
}

fn count(number: c_int) -> Result<usize, Errno> {
    usize::try_from(number).map_err(|_| Errno::INVALID)
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn read(userdata: *mut c_void, fd: c_int, buffer: *mut c_void, len: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { recv(userdata, fd, buffer, len, 0) }
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn readv(userdata: *mut c_void, fd: c_int, parts: *const iovec, number: c_int) -> isize {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned(|| receive(host, fd, &memory::vector(parts, count(number)?)?, 0).map(|len| len as isize))
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn recv(userdata: *mut c_void, fd: c_int, buffer: *mut c_void, len: usize, flags: c_int) -> isize {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned(|| receive(host, fd, &vec![(buffer, len)], flags).map(|len| len as isize))
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn recvfrom(
    userdata: *mut c_void,
    fd: c_int,
    buffer: *mut c_void,
    len: usize,
    flags: c_int,
    _name: *mut sockaddr,
    name_len: *mut socklen_t,
) -> isize {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned(|| {
        let got = receive(host, fd, &vec![(buffer, len)], flags)?;
        // A stream's bytes come from nobody in particular.
        if !name_len.is_null() {
            memory::put(name_len, &0)?;
        }
        Ok(got as isize)
    })
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn recvmsg(userdata: *mut c_void, fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned(|| {
        let mut header = memory::get(message.cast_const())?;
        let got = receive(host, fd, &memory::vector(header.msg_iov, header.msg_iovlen)?, flags)?;
        (header.msg_namelen, header.msg_flags) = (0, 0);
        let room = header.msg_controllen;
        header.msg_controllen = 0;
        if let Some(rest) = host.now(|world| world.rest(fd))? {
            let control = control_message(libc::IPPROTO_TCP, TCP_INQ, rest as c_int);
            if control.len() <= room {
                memory::write(header.msg_control, &control)?;
                header.msg_controllen = control.len();
            } else {
                header.msg_flags |= libc::MSG_CTRUNC;
            }
        }
        memory::put(message, &header)?;
        Ok(got as isize)
    })
}

/// A control message with an int (cmsg(3)).
fn control_message(level: c_int, kind: c_int, value: c_int) -> Vec<u8> {
    let head = size_of::<cmsghdr>();
    let mut bytes = vec![0; head.next_multiple_of(size_of::<usize>()) + size_of::<usize>()];
    let len = head + size_of::<c_int>();
    bytes[..size_of::<usize>()].copy_from_slice(&len.to_ne_bytes());
    bytes[offset_of!(cmsghdr, cmsg_level)..][..4].copy_from_slice(&level.to_ne_bytes());
    bytes[offset_of!(cmsghdr, cmsg_type)..][..4].copy_from_slice(&kind.to_ne_bytes());
    bytes[head..][..4].copy_from_slice(&value.to_ne_bytes());
    bytes
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn write(userdata: *mut c_void, fd: c_int, buffer: *const c_void, len: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { send(userdata, fd, buffer, len, 0) }
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn writev(userdata: *mut c_void, fd: c_int, parts: *const iovec, number: c_int) -> isize {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned(|| transmit(host, fd, &gathered(&memory::vector(parts, count(number)?)?)?, 0).map(|len| len as isize))
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn send(userdata: *mut c_void, fd: c_int, buffer: *const c_void, len: usize, flags: c_int) -> isize {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned(|| transmit(host, fd, &memory::read(buffer, len)?, flags).map(|len| len as isize))
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn sendto(
    userdata: *mut c_void,
    fd: c_int,
    buffer: *const c_void,
    len: usize,
    flags: c_int,
    name: *const sockaddr,
    name_len: socklen_t,
) -> isize {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned(|| {
        if !name.is_null() && flags & libc::MSG_FASTOPEN != 0 {
            return fast(host, fd, name, name_len, &memory::read(buffer, len)?, flags);
        }
        if !name.is_null() {
            let mut guard = host.lock();
            let socket = guard.world.socket(fd)?;
            address::read(socket.domain, name.cast(), name_len)?;
            // (A connected stream ignores the address.)
            if socket.kind == Kind::Fresh {
                return Err(Errno(libc::EPIPE));
            }
        }
        transmit(host, fd, &memory::read(buffer, len)?, flags).map(|len| len as isize)
    })
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn sendmsg(userdata: *mut c_void, fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned(|| {
        let header = memory::get(message)?;
        let bytes = gathered(&memory::vector(header.msg_iov, header.msg_iovlen)?)?;
        if !header.msg_name.is_null() && flags & libc::MSG_FASTOPEN != 0 {
            return fast(host, fd, header.msg_name.cast_const().cast(), header.msg_namelen, &bytes, flags);
        }
        transmit(host, fd, &bytes, flags).map(|len| len as isize)
    })
}
