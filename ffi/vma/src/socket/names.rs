//! getsockname(2) and getpeername(2).

use core::ffi::{c_int, c_void};
use std::net::SocketAddr;

use libc::{sockaddr, socklen_t};
use ringway_stack::tcp;

use super::address::Raw;
use super::connect::kernel_result;
use super::{Family, Kind, lifecycle};
use crate::errno::{Errno, is_nowhere, to_int};
use crate::fdtable::{self, Entry};
use crate::moving::inherited;
use crate::process::{self, Process};
use crate::real;
use crate::slab::Key;

/// getsockname(2).
///
/// # Errors
/// As getsockname(2).
///
/// # Safety
/// As getsockname(2): `out` and `len` are valid for writing.
pub(crate) unsafe fn local(process: &Process, fd: c_int, key: Key, out: *mut sockaddr, len: *mut socklen_t) -> Result<c_int, Errno> {
    let known = process.lock().sockets.find(key).and_then(|socket| match socket.kind {
        Kind::Connecting(_) | Kind::Stream(_) | Kind::Moving => socket.bound.map(|local| (local, socket.family)),
        _ => None,
    });
    match known {
        None => {
            // SAFETY: the caller's promise.
            kernel_result(unsafe { real::getsockname(fd, out, len) })
        }
        Some(_) if is_nowhere(out) || is_nowhere(len) => Err(Errno(libc::EFAULT)),
        Some((local, family)) => {
            // SAFETY: the caller's promise.
            unsafe { Raw::new(local, family).write(out, len)? };
            Ok(0)
        }
    }
}

/// SO_DOMAIN of a connection that moved to the kernel, where it is one of two sockets of one family: the program's is the one that it made.
/// (The kernel has answered.)
///
/// # Safety
/// `value` is valid for writing `len` bytes, which is valid for reading.
pub(crate) unsafe fn correct_domain(fd: c_int, value: *mut c_void, len: *const socklen_t) {
    let Some((.., family)) = ends_of_moved(fd) else { return };
    let domain = lifecycle::domain(family).to_ne_bytes();
    // SAFETY: the caller's promise.
    unsafe { value.copy_from_nonoverlapping(domain.as_ptr().cast(), domain.len().min(len.read() as usize)) };
}

/// What the program knows of a connection that moved to the kernel: its addresses, its own first, and the family of its socket.
fn ends_of_moved(fd: c_int) -> Option<(SocketAddr, SocketAddr, Family)> {
    match fdtable::lookup(fd) {
        Entry::Kernel(key) => {
            // (In a child of a fork, also what its parent moved before.)
            let guard = process::process_or_init()?.lock();
            let socket = guard.sockets.find(key).filter(|socket| socket.moved)?;
            Some((socket.bound?, socket.peer?, socket.family))
        }
        Entry::None => inherited::names(fd),
        _ => None,
    }
}

/// Which of a connection's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Local,
    Remote,
}

/// A call of either kind on a connection that moved to the kernel, where one of its ports may be another one than the program knows:
/// the kernel's answer, with the address that `which` tells. `None`: it is none.
///
/// # Safety
/// As getsockname(2) and getpeername(2), which is `kernel`: `out` and `len` are valid for writing.
pub(crate) unsafe fn of_moved(
    fd: c_int,
    out: *mut sockaddr,
    len: *mut socklen_t,
    kernel: unsafe fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    which: Which,
) -> Option<c_int> {
    let (local, remote, family) = ends_of_moved(fd)?;
    let known = match which {
        Which::Local => local,
        Which::Remote => remote,
    };
    // SAFETY: the caller's promise; the length is the program's again for the second call.
    unsafe {
        let room = if is_nowhere(len) { 0 } else { len.read() };
        let result = kernel(fd, out, len);
        if result == 0 {
            len.write(room);
            return Some(to_int(Raw::new(known, family).write(out, len).map(|()| 0)));
        }
        Some(result)
    }
}

/// getpeername(2).
///
/// # Errors
/// As getpeername(2).
///
/// # Safety
/// As getpeername(2): `out` and `len` are valid for writing.
pub(crate) unsafe fn remote(process: &Process, fd: c_int, key: Key, out: *mut sockaddr, len: *mut socklen_t) -> Result<c_int, Errno> {
    let mut guard = process.lock();
    // Who has reset the connection, or ended it, is no peer any more.
    guard.catch_up(process.now());
    let Some(socket) = guard.sockets.find(key) else { return Err(Errno(libc::EBADF)) };
    let (peer, family) = (socket.peer, socket.family);
    let connected = match socket.kind {
        Kind::Connecting(id) | Kind::Stream(id) => {
            let state = guard.rings.of(id).info(id).and_then(|info| info.state);
            // A TIME-WAIT goes on without the socket, which is connected to nobody any more.
            !matches!(state, None | Some(tcp::State::Closed | tcp::State::SynSent | tcp::State::TimeWait))
        }
        Kind::Moving => true,
        _ => {
            drop(guard);
            // SAFETY: the caller's promise.
            return kernel_result(unsafe { real::getpeername(fd, out, len) });
        }
    };
    drop(guard);
    let peer = peer.filter(|_| connected).ok_or(Errno(libc::ENOTCONN))?;
    if is_nowhere(out) || is_nowhere(len) {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise.
    unsafe { Raw::new(peer, family).write(out, len)? };
    Ok(0)
}
