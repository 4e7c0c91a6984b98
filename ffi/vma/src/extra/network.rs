//! `get_socket_network_header`: what a connected socket puts in front of its payload.

use core::ffi::{c_int, c_void};

use crate::errno;
use crate::fdtable::{self, Entry};
use crate::process::process_or_init;
use crate::socket::address;

/// See the header.
pub(super) unsafe extern "C" fn get_socket_network_header(fd: c_int, out: *mut c_void, len: *mut u16) -> c_int {
    let Entry::Socket(key) = fdtable::lookup(fd) else { return errno::fail(libc::EINVAL) };
    let Some(process) = process_or_init().filter(|process| process.is_owner() && !len.is_null()) else {
        return errno::fail(libc::EINVAL);
    };
    crate::boundary!(-1, {
        let mut guard = process.lock();
        let found = guard.sockets.find(key).and_then(|socket| Some((socket.flow_to_peer(), socket.peer?)));
        let Some((flow, peer)) = found else { return errno::fail(libc::ENOTCONN) };
        let Some(id) = flow else { return errno::fail(libc::EINVAL) };
        let Ok(headers) = guard.rings.of_mut(id).headers(id, address::source_for(peer.ip())) else { return errno::fail(libc::ENOTCONN) };
        drop(guard);
        // SAFETY: the program's promise: a number, and that many bytes at `out`.
        unsafe {
            let room = usize::from(len.read_unaligned());
            if !out.is_null() && room < headers.len() {
                return errno::fail(libc::ENOBUFS);
            }
            len.write_unaligned(headers.len() as u16);
            if !out.is_null() {
                core::ptr::copy_nonoverlapping(headers.as_ptr(), out.cast::<u8>(), headers.len());
            }
        }
        0
    })
}
