//! TCP_CONGESTION: which congestion controller a connection has.

use core::ffi::{c_int, c_void};

use libc::socklen_t;
use ringway_stack::device::Protocol;
use ringway_stack::tcp::congestion::Algorithm;

use super::options::{Argument, push};
use super::{Kind, common};
use crate::errno::Errno;
use crate::process::Process;
use crate::slab::Key;

/// Linux's: of a name, the byte that ends it included.
const TCP_CA_NAME_MAX: socklen_t = 16;

/// TCP_CONGESTION. The placeholder has it too, if its kernel has such a controller: the socket may yet be the kernel's. A connection of the ring's has the ring's
/// controllers, and no others.
///
/// # Errors
/// As setsockopt(2).
///
/// # Safety
/// `value` is null, or `len` bytes can be read there; `len` is not zero.
pub(super) unsafe fn set(process: &Process, (fd, key): (c_int, Key), value: *const c_void, len: socklen_t) -> Result<c_int, Errno> {
    // SAFETY: the caller's promise; the kernel reads the bytes first, so that a bad pointer fails there.
    let by_kernel = unsafe { common::set_of_placeholder(process, (fd, key), (libc::IPPROTO_TCP, libc::TCP_CONGESTION), value, len) };
    if value.is_null() || by_kernel.is_err_and(|error| !matches!(error.0, libc::ENOENT | libc::EPERM)) {
        return by_kernel;
    }
    // SAFETY: the kernel has read a name there just now. (What is longer than the longest of its names is cut off: do_tcp_setsockopt.)
    let argument = unsafe { Argument::read(value, len.min(TCP_CA_NAME_MAX - 1)) };
    let name = argument.bytes[..argument.len].split(|&byte| byte == 0).next().unwrap_or_default();
    let algorithm = core::str::from_utf8(name).ok().and_then(Algorithm::by_name);
    let mut guard = process.lock();
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find_mut(key).filter(|socket| socket.protocol == Protocol::Tcp) else { return by_kernel };
    match (algorithm, socket.kind) {
        (_, Kind::Kernel | Kind::Moving | Kind::Datagram(_)) => by_kernel,
        // (Of a controller that the kernel alone has, it tells. A connection of the ring's begins with the default.)
        (None, Kind::Fresh | Kind::Listener(_)) => {
            if by_kernel.is_ok() {
                socket.tcp.congestion = process.params.tcp_congestion;
            }
            by_kernel
        }
        (None, Kind::Connecting(_) | Kind::Stream(_)) => Err(Errno(libc::ENOENT)),
        (Some(algorithm), _) => {
            socket.tcp.congestion = algorithm;
            push(offload, process, key);
            Ok(0)
        }
    }
}

/// A controller's name, as long as the kernel's are.
pub(super) fn name_of(algorithm: Algorithm) -> [u8; TCP_CA_NAME_MAX as usize] {
    let mut name = [0; TCP_CA_NAME_MAX as usize];
    name.iter_mut().zip(algorithm.name().bytes()).for_each(|(to, byte)| *to = byte);
    name
}
