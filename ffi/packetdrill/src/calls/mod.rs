//! The calls of C: each reads its arguments, and does what the world does of that name. Descriptors' lives are here, the rest by what they are about.

mod bytes;
mod control;
mod netdev;
mod waits;

use core::ffi::{c_int, c_void};

use libc::{sockaddr, socklen_t};

pub(crate) use self::bytes::{TCP_INQ, read, readv, recv, recvfrom, recvmsg, send, sendmsg, sendto, write, writev};
pub(crate) use self::control::{fcntl, getsockopt, ioctl, pipe, setsockopt, splice};
pub(crate) use self::netdev::{gettimeofday, netdev_receive, netdev_send, usleep};
pub(crate) use self::waits::{epoll_create, epoll_ctl, epoll_wait, poll};
use crate::address::{self, Named};
use crate::errno::{Errno, returned_int};
use crate::host::Host;
use crate::preloaded;
use crate::sockets::Kind;

/// The host that a call is for.
///
/// # Safety
/// `userdata` is what the interface has, and the host was not freed.
unsafe fn host<'a>(userdata: *mut c_void) -> &'a Host {
    // SAFETY: the caller's promise; a host is shared between threads, and never moves.
    unsafe { &*userdata.cast::<Host>() }
}

/// # Safety
/// `userdata` is the interface's, and no call is under way or follows.
pub(crate) unsafe extern "C" fn free(userdata: *mut c_void) {
    preloaded::forget(userdata.cast());
    let _ = returned_int(|| {
        // SAFETY: it was made by Box::into_raw, and the caller gives it up.
        drop(unsafe { Box::from_raw(userdata.cast::<Host>()) });
        Ok(0)
    });
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn socket(userdata: *mut c_void, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| host.now(|world| world.open(domain, kind, protocol)))
}

fn named(host: &Host, fd: c_int, name: *const sockaddr, len: socklen_t) -> Result<Named, Errno> {
    let domain = host.lock().world.socket(fd)?.domain;
    address::read(domain, name.cast(), len)
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn bind(userdata: *mut c_void, fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| {
        let name = named(host, fd, name, len)?;
        host.now(|world| world.bind(fd, name)).map(|()| 0)
    })
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn listen(userdata: *mut c_void, fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| host.now(|world| world.listen(fd, backlog)).map(|()| 0))
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn accept(userdata: *mut c_void, fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| {
        let (domain, may_sleep, timeout) = {
            let mut guard = host.lock();
            let socket = guard.world.socket(fd)?;
            (socket.domain, !socket.nonblocking, socket.timeouts[0])
        };
        let (accepted, remote) = host.wait(may_sleep, timeout, |world| world.accept(fd))?;
        address::write(domain, remote, name.cast(), len)?;
        Ok(accepted)
    })
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn connect(userdata: *mut c_void, fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| {
        let name = named(host, fd, name, len)?;
        let (may_sleep, timeout, is_new) = host.now(|world| {
            let before = world.socket(fd)?.kind;
            world.connect(fd, name)?;
            let socket = world.socket(fd)?;
            let is_begun = matches!(socket.kind, Kind::Stream { .. });
            Ok((!socket.nonblocking, socket.timeouts[1], is_begun && socket.kind != before && name != Named::Nothing))
        })?;
        if !is_new {
            return Ok(0);
        }
        // (An answer of the peer's that is there at once is one all the same.)
        match host.wait(may_sleep, timeout, |world| world.connected(fd)) {
            Ok(()) => Ok(0),
            Err(Errno::AGAIN) => Err(Errno(libc::EINPROGRESS)),
            Err(other) => Err(other),
        }
    })
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn close(userdata: *mut c_void, fd: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| host.now(|world| world.close(fd)).map(|()| 0))
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn shutdown(userdata: *mut c_void, fd: c_int, how: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| host.now(|world| world.shutdown(fd, how)).map(|()| 0))
}
