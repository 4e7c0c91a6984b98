//! setsockopt, getsockopt, fcntl and ioctl: the kernel keeps what its socket can keep, and the rsocket beside it is told what it knows.

use core::ffi::{c_int, c_void};
use core::time::Duration;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use libc::{socklen_t, timeval};
use ringway_preload::errno::{THEIRS, is_nowhere, to_int};
use ringway_preload::{Errno, bare_boundary, next, timeout, vectors};
use rsocket::api;

use crate::socket::{Socket, State, carrier, leave_to_kernel, look_at_connecting};
use crate::{datagram, handover, table};

/// rsockets' own options.
const SOL_RDMA: c_int = 0x1_0000;
/// Options that are remembered for the rsocket that a socket gets.
const OPTIONS_MAX: usize = 64;
/// Bytes that FIONREAD counts to.
const COUNTED_MAX: usize = 256 * 1024;

/// setsockopt(2).
///
/// # Safety
/// As setsockopt(2).
pub(crate) unsafe fn set(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int {
    let Some(socket) = table::socket(fd) else {
        // SAFETY: the caller's promise.
        return unsafe { next::setsockopt(fd, level, name, value, len) };
    };
    bare_boundary!(-1, {
        // SAFETY: the caller's promise.
        let bytes = unsafe { vectors::readable(value, len as usize) }.map(|bytes| bytes.to_vec());
        match bytes {
            Ok(bytes) if level == SOL_RDMA => to_int(set_ours(&socket, level, name, &bytes).map(|()| 0)),
            bytes => {
                // SAFETY: the caller's promise.
                let done = unsafe { next::setsockopt(fd, level, name, value, len) };
                if let (0, Ok(bytes)) = (done, bytes) {
                    after_kernel(&socket, level, name, &bytes);
                }
                done
            }
        }
    })
}

/// What the kernel's socket was told, the rsocket is.
fn after_kernel(socket: &Arc<Socket>, level: c_int, name: c_int, bytes: &[u8]) {
    if socket.is_datagram && datagram::asks_for_more(level, name) {
        leave_to_kernel(socket, format_args!("option {name} of level {level} is the kernel's alone"));
        return;
    }
    if level == libc::SOL_SOCKET && matches!(name, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) && bytes.len() >= size_of::<timeval>() {
        let word = |at: usize| i64::from_ne_bytes(core::array::from_fn(|i| bytes[at + i]));
        let time = timeout::from_timeval(Some(&timeval { tv_sec: word(0), tv_usec: word(8) })).ok().flatten();
        let ns = u64::try_from(time.unwrap_or(Duration::ZERO).as_nanos()).unwrap_or(u64::MAX);
        socket.timeouts[usize::from(name == libc::SO_SNDTIMEO)].store(ns, Ordering::Relaxed);
        return;
    }
    // (ENOTSUP: the kernel alone knows it.)
    let _ = set_ours(socket, level, name, bytes);
}

fn set_ours(socket: &Socket, level: c_int, name: c_int, bytes: &[u8]) -> Result<(), Errno> {
    if let Some(key) = socket.key() {
        return api::set_option(key, level, name, bytes);
    }
    let options = &mut socket.more().options;
    options.retain(|(l, n, _)| (*l, *n) != (level, name));
    if options.len() >= OPTIONS_MAX {
        return Err(Errno(libc::ENOMEM));
    }
    options.push((level, name, bytes.to_vec()));
    Ok(())
}

/// getsockopt(2); `None`: the kernel's socket knows.
///
/// # Safety
/// As getsockopt(2).
pub(crate) unsafe fn get(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> Option<c_int> {
    let socket = table::socket(fd)?;
    let is_ours = level == SOL_RDMA
        || matches!((level, name), (libc::SOL_SOCKET, libc::SO_ERROR) | (libc::IPPROTO_TCP, libc::TCP_MAXSEG | libc::TCP_INFO));
    if !is_ours {
        return None;
    }
    bare_boundary!(Some(-1), {
        if is_nowhere(value) || is_nowhere(len) {
            return None;
        }
        if look_at_connecting(fd, &socket) {
            return None;
        }
        let kept = |socket: &Socket| {
            let more = socket.more();
            more.options.iter().find(|(l, n, _)| (*l, *n) == (level, name)).map(|(.., bytes)| bytes.clone())
        };
        let bytes = match socket.key() {
            Some(key) if socket.is_kernels_too() && level != SOL_RDMA => {
                let _ = key;
                return None;
            }
            Some(key) => match api::option(key, level, name) {
                Ok(bytes) => bytes,
                Err(_) if level != SOL_RDMA => return None,
                Err(error) => return Some(to_int(Err(error))),
            },
            None => kept(&socket).filter(|_| level == SOL_RDMA)?,
        };
        // SAFETY: the caller's promise: a length, and as many bytes.
        unsafe {
            let room = (len.read_unaligned() as usize).min(bytes.len());
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), room);
            len.write_unaligned(room as socklen_t);
        }
        Some(0)
    })
}

/// fcntl(2): flags that the program set; a listener's are kept here.
pub(crate) fn control(fd: c_int, command: c_int, argument: usize, kernel: impl Fn() -> c_int) -> c_int {
    let Some(socket) = table::socket(fd) else { return kernel() };
    let listens = matches!(socket.state(), State::Listening(_));
    match command {
        libc::F_SETFL => {
            let is_nonblocking = argument & libc::O_NONBLOCK as usize != 0;
            let done = if listens {
                // SAFETY: plain integers.
                unsafe { next::fcntl(fd, libc::F_SETFL, argument | libc::O_NONBLOCK as usize) }
            } else {
                kernel()
            };
            if done == 0 {
                socket.is_nonblocking.store(is_nonblocking, Ordering::Relaxed);
            }
            done
        }
        libc::F_GETFL if listens && socket.blocks() => match kernel() {
            flags if flags >= 0 => flags & !libc::O_NONBLOCK,
            failure => failure,
        },
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            let copy = kernel();
            duplicated(fd, copy);
            copy
        }
        _ => kernel(),
    }
}

/// A descriptor of ours has another number, too.
pub(crate) fn duplicated(fd: c_int, copy: c_int) {
    if copy < 0 || copy == fd {
        return;
    }
    crate::socket::forgotten(copy);
    if let Some(socket) = table::socket(fd) {
        table::lock().insert(copy, socket);
    }
}

/// Sets or clears O_NONBLOCK of the kernel's socket.
pub(crate) fn set_kernel_nonblocking(fd: c_int, is_nonblocking: bool) {
    // SAFETY: plain integers.
    unsafe {
        let flags = next::fcntl(fd, libc::F_GETFL, 0);
        let changed = if is_nonblocking { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
        if flags >= 0 && flags != changed {
            next::fcntl(fd, libc::F_SETFL, changed as usize);
        }
    }
}

/// ioctl(2): FIONREAD counts what is there, FIONBIO is as F_SETFL; `None`: the kernel's.
///
/// # Safety
/// As ioctl(2).
pub(crate) unsafe fn ioctl(fd: c_int, request: u64, argument: usize) -> Option<c_int> {
    let socket = table::socket(fd)?;
    let place: *mut c_int = core::ptr::with_exposed_provenance_mut(argument);
    if is_nowhere(place) {
        return None;
    }
    match request {
        libc::FIONBIO => {
            // SAFETY: the caller's promise: an int is there.
            let is_nonblocking = unsafe { place.read_unaligned() } != 0;
            socket.is_nonblocking.store(is_nonblocking, Ordering::Relaxed);
            if matches!(socket.state(), State::Listening(_)) { Some(0) } else { None }
        }
        libc::FIONREAD => {
            let count = bare_boundary!(Err(Errno(libc::EIO)), count(fd, &socket));
            if count == Err(THEIRS) {
                return None;
            }
            // SAFETY: the caller's promise: an int is to be written there.
            Some(to_int(count.map(|count| unsafe {
                place.write_unaligned(count as c_int);
                0
            })))
        }
        _ => None,
    }
}

/// How many bytes are there to be read: of a datagram socket, in the next datagram.
fn count(fd: c_int, socket: &Arc<Socket>) -> Result<usize, Errno> {
    let key = carrier(fd, socket, libc::MSG_DONTWAIT)?;
    let mut bytes = vec![0; COUNTED_MAX];
    let pieces = &mut [IoSliceMut::new(&mut bytes)];
    let counted = if socket.is_datagram {
        api::recv_from(key, pieces, libc::MSG_PEEK).map(|received| received.whole)
    } else {
        api::recv(key, pieces, libc::MSG_PEEK)
    };
    match counted {
        Err(Errno(libc::EAGAIN)) => Ok(0),
        counted => counted,
    }
}

/// shutdown(2); `None`: the kernel's.
pub(crate) fn shutdown(fd: c_int, how: c_int) -> Option<c_int> {
    let socket = table::socket(fd)?;
    if let State::ForkActive | State::ForkPassive = socket.state() {
        let _ = bare_boundary!(Err(Errno(libc::EIO)), handover::settle(fd, &socket, true));
    }
    match socket.state() {
        State::Connected(key) | State::Connecting(key) => Some(bare_boundary!(-1, to_int(api::shutdown(key, how).map(|()| 0)))),
        State::Listening(Some(key)) if how != libc::SHUT_WR => {
            // (It accepts nobody any more, as with Linux's sockets.)
            if socket.turn(State::Listening(Some(key)), State::Fresh) {
                api::close(key);
            }
            None
        }
        _ => None,
    }
}
