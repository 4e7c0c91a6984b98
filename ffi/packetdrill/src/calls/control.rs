//! Options, and what else controls a descriptor.

use core::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

use libc::{off64_t, socklen_t};

use super::host;
use crate::errno::{Errno, returned, returned_int};
use crate::memory;
use crate::options;

/// SIOCINQ (FIONREAD), SIOCOUTQ (TIOCOUTQ) and SIOCOUTQNSD (linux/sockios.h): what waits to be read, what is not acknowledged, what is not sent.
const SIOCINQ: c_ulong = libc::FIONREAD;
const SIOCOUTQ: c_ulong = libc::TIOCOUTQ;
const SIOCOUTQNSD: c_ulong = 0x894b;
/// The longest option that is read.
const OPTION_MAX: usize = 1024;

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn fcntl(userdata: *mut c_void, fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| {
        host.now(|world| {
            let socket = world.socket(fd)?;
            match command {
                libc::F_GETFL => Ok(libc::O_RDWR | if socket.nonblocking { libc::O_NONBLOCK } else { 0 }),
                libc::F_SETFL => {
                    socket.nonblocking = argument as c_int & libc::O_NONBLOCK != 0;
                    Ok(0)
                }
                libc::F_GETFD | libc::F_SETFD => Ok(0),
                _ => Err(Errno::INVALID),
            }
        })
    })
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn ioctl(userdata: *mut c_void, fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| {
        let number = host.now(|world| {
            let now = world.now();
            let (socket, ring) = world.socket_and_ring(fd)?;
            let flow = socket.flow();
            let info = flow.and_then(|flow| ring.info(flow));
            let details = flow.and_then(|flow| ring.tcp_details(now, flow));
            match request {
                SIOCINQ => Ok(info.map_or(0, |info| info.recv_queue)),
                SIOCOUTQ => Ok(info.map_or(0, |info| info.send_queue)),
                SIOCOUTQNSD => Ok(details.map_or(0, |details| details.not_sent)),
                _ => Err(Errno(libc::ENOTTY)),
            }
        })?;
        memory::put(argument.cast::<c_int>(), &(number as c_int)).map(|()| 0)
    })
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn getsockopt(
    userdata: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| {
        let room = memory::get(len.cast_const())? as usize;
        if room > i32::MAX as usize {
            return Err(Errno::INVALID);
        }
        let bytes = host.now(|world| options::get(world, fd, level, name))?;
        let bytes = &bytes[..bytes.len().min(room)];
        memory::write(value, bytes)?;
        memory::put(len, &(bytes.len() as socklen_t)).map(|()| 0)
    })
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn setsockopt(
    userdata: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| {
        let bytes = memory::read(value, (len as usize).min(OPTION_MAX))?;
        host.now(|world| options::set(world, fd, level, name, &bytes)).map(|()| 0)
    })
}

/// There are no pipes: nothing is spliced here.
///
/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn pipe(_userdata: *mut c_void, _fds: *mut c_int) -> c_int {
    returned_int(|| Err(Errno(libc::ENOSYS)))
}

/// As [`pipe`].
///
/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn splice(
    _userdata: *mut c_void,
    _from: c_int,
    _from_at: *mut off64_t,
    _to: c_int,
    _to_at: *mut off64_t,
    _len: usize,
    _flags: c_uint,
) -> isize {
    returned(|| Err(Errno(libc::ENOSYS)))
}
