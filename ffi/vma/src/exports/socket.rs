//! Making, naming and connecting sockets.

use core::ffi::{c_int, c_void};

use libc::{sockaddr, socklen_t};
use ringway_host::numbers;

use crate::errno::{self, Errno, THEIRS, to_int};
use crate::extra;
use crate::fdtable::{self, Entry};
use crate::process::{Process, process_or_init};
use crate::real;
use crate::slab::Key;
use crate::socket::names::{self, Which};
use crate::socket::{accept, connect, lifecycle, listen, options};

/// Whether the kernel is to say what is wrong with an argument that leads nowhere. (Null is an argument.)
fn is_bad<T>(pointer: *const T) -> bool {
    !pointer.is_null() && errno::is_nowhere(pointer)
}

/// Whether the kernel does not get to see what the name is (move_addr_to_kernel): that comes before all else that may be wrong with a call.
fn is_nameless(address: *const sockaddr, len: socklen_t) -> bool {
    len > 0 && (errno::is_nowhere(address) || len as usize > size_of::<libc::sockaddr_storage>())
}

/// Runs `ours` if the descriptor is a socket that may be offloaded, in the process that owns it; else `theirs`, and also where `ours`
/// says that it is [`THEIRS`].
fn route(fd: c_int, theirs: impl FnOnce() -> c_int, ours: impl FnOnce(&'static Process, Key) -> Result<c_int, Errno>) -> c_int {
    route_if(fd, |_| fdtable::is_stale_now(fd), theirs, ours)
}

/// As [`route`], for a call of which a program makes as many as of recv(2): the number is looked at now and then, as it is there.
fn route_often(fd: c_int, theirs: impl FnOnce() -> c_int, ours: impl FnOnce(&'static Process, Key) -> Result<c_int, Errno>) -> c_int {
    route_if(fd, |process| fdtable::is_stale(fd, process.now()), theirs, ours)
}

#[inline]
fn route_if(
    fd: c_int,
    is_stale: impl FnOnce(&Process) -> bool,
    theirs: impl FnOnce() -> c_int,
    ours: impl FnOnce(&'static Process, Key) -> Result<c_int, Errno>,
) -> c_int {
    let Entry::Socket(key) = fdtable::lookup(fd) else { return theirs() };
    let saved = errno::current();
    let found = crate::boundary!(Some(-1), {
        match process_or_init().filter(|process| process.is_callers()) {
            Some(process) if !(is_stale(process) && lifecycle::displaced(fd, Entry::Socket(key))) => match ours(process, key) {
                Err(THEIRS) => None,
                result => Some(to_int(result)),
            },
            _ => None,
        }
    });
    if found.is_none_or(|result| result >= 0) {
        errno::set(saved);
    }
    found.unwrap_or_else(theirs)
}

/// socket(2).
#[inline(always)]
pub(super) unsafe fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: plain integers.
    let fd = numbers::lowest(|| unsafe { real::socket(domain, kind, protocol) });
    if fd >= 0 && matches!(domain, libc::AF_INET | libc::AF_INET6) {
        let saved = errno::current();
        crate::boundary!((), lifecycle::opened(fd, domain, kind, protocol));
        errno::set(saved);
    }
    fd
}

/// bind(2).
#[inline(always)]
pub(super) unsafe fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the program's promise to bind(2), both times.
    route(
        fd,
        || unsafe { real::bind(fd, address, len) },
        |process, key| match is_nameless(address, len) {
            true => Err(THEIRS),
            // SAFETY: the program's promise to bind(2).
            false => unsafe { listen::bind(process, fd, key, address, len) },
        },
    )
}

/// listen(2).
#[inline(always)]
pub(super) unsafe fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: plain integers.
    route(fd, || unsafe { real::listen(fd, backlog) }, |process, key| listen::listen(process, fd, key, backlog))
}

/// connect(2).
#[inline(always)]
pub(super) unsafe fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    crate::cancellation_point!({
        // SAFETY: the program's promise to connect(2), both times.
        route(
            fd,
            || unsafe { real::connect(fd, address, len) },
            |process, key| match is_nameless(address, len) {
                true => Err(THEIRS),
                // SAFETY: as above.
                false => unsafe { connect::connect(process, fd, key, address, len) },
            },
        )
    })
}

/// accept(2) and accept4(2).
#[inline(always)]
pub(super) unsafe fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int, next: impl Fn() -> c_int) -> c_int {
    crate::cancellation_point!({
        // SAFETY: the program's promise to accept4(2).
        route_often(
            fd,
            || lifecycle::lowest_after_waiting(&next),
            |process, key| unsafe { accept::accept(process, fd, key, address, len, flags) },
        )
    })
}

/// shutdown(2).
#[inline(always)]
pub(super) unsafe fn shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: plain integers.
    route(fd, || unsafe { real::shutdown(fd, how) }, |process, key| listen::shutdown(process, fd, key, how))
}

/// getsockname(2).
#[inline(always)]
pub(super) unsafe fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the program's promise to getsockname(2).
    if let Some(result) = crate::boundary!(None, unsafe { names::of_moved(fd, address, len, real::getsockname, Which::Local) }) {
        return result;
    }
    // SAFETY: the program's promise to getsockname(2), both times.
    route(
        fd,
        || unsafe { real::getsockname(fd, address, len) },
        |process, key| {
            if process.params.dummy_send_getsockname {
                extra::dummy::warm(fd, key);
            }
            // SAFETY: as above.
            unsafe { names::local(process, fd, key, address, len) }
        },
    )
}

/// getpeername(2).
#[inline(always)]
pub(super) unsafe fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the program's promise to getpeername(2).
    if let Some(result) = crate::boundary!(None, unsafe { names::of_moved(fd, address, len, real::getpeername, Which::Remote) }) {
        return result;
    }
    // SAFETY: the program's promise to getpeername(2), both times.
    route(fd, || unsafe { real::getpeername(fd, address, len) }, |process, key| unsafe { names::remote(process, fd, key, address, len) })
}

/// getsockopt(2).
#[inline(always)]
pub(super) unsafe fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int {
    if is_bad(value) || errno::is_nowhere(len) {
        // SAFETY: the kernel finds out.
        return unsafe { real::getsockopt(fd, level, name, value, len) };
    }
    // SAFETY: the program's promise to getsockopt(2).
    if extra::is_asked_for(fd, level, name) && crate::boundary!(false, unsafe { extra::hand_out(value, len) }) {
        return 0;
    }
    // SAFETY: the program's promise to getsockopt(2), both times.
    route(
        fd,
        || unsafe {
            let result = real::getsockopt(fd, level, name, value, len);
            if result == 0 && (level, name) == (libc::SOL_SOCKET, libc::SO_DOMAIN) {
                crate::boundary!((), names::correct_domain(fd, value, len));
            }
            result
        },
        |process, key| unsafe { options::get(process, fd, key, (level, name), value, len) },
    )
}

/// setsockopt(2).
#[inline(always)]
pub(super) unsafe fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int {
    if is_bad(value) {
        // SAFETY: the kernel finds out.
        return unsafe { real::setsockopt(fd, level, name, value, len) };
    }
    // SAFETY: the program's promise to setsockopt(2), both times.
    route(
        fd,
        || unsafe { real::setsockopt(fd, level, name, value, len) },
        |process, key| unsafe { options::set(process, fd, key, (level, name), value, len) },
    )
}
