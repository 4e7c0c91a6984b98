//! Options of the header that a socket has beside the kernel's.

use core::ffi::{c_int, c_void};
use core::mem::size_of;
use std::sync::Once;

use libc::socklen_t;

use crate::errno::Errno;
use crate::mux;
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::socket::Kind;
use crate::socket::pacing::{self, RATE_VMA};

const SO_VMA_FLOW_TAG: c_int = 2820;
const SO_VMA_SHUTDOWN_RX: c_int = 2821;

/// vma.md s2.15: tags are 20 bits wide; the last, and zero, mean none.
const FLOW_TAGS: core::ops::Range<u32> = 1..0xf_ffff;

/// setsockopt(2). `None`: it is not one of these.
///
/// # Safety
/// As setsockopt(2).
pub(crate) unsafe fn set(
    process: &Process,
    key: Key,
    (level, name): (c_int, c_int),
    value: *const c_void,
    len: socklen_t,
) -> Option<Result<c_int, Errno>> {
    if level != libc::SOL_SOCKET || !matches!(name, SO_VMA_FLOW_TAG | SO_VMA_SHUTDOWN_RX | libc::SO_MAX_PACING_RATE) {
        return None;
    }
    if value.is_null() {
        return Some(Err(Errno(libc::EFAULT)));
    }
    let mut guard = process.lock();
    let offload = &mut *guard;
    match name {
        SO_VMA_FLOW_TAG if len as usize != size_of::<u32>() => Some(Err(Errno(libc::EINVAL))),
        SO_VMA_FLOW_TAG => {
            // SAFETY: the caller's promise: so many bytes.
            let tag = unsafe { value.cast::<u32>().read_unaligned() };
            if !FLOW_TAGS.contains(&tag) {
                return Some(Err(Errno(libc::EINVAL)));
            }
            let Some(socket) = offload.sockets.find_mut(key) else { return Some(Err(Errno(libc::EBADF))) };
            socket.rare().flow_tag = tag;
            Some(Ok(0))
        }
        SO_VMA_SHUTDOWN_RX => Some(shut_rx(offload, key)),
        _ => {
            let mut bytes = [0; RATE_VMA];
            let len = len as usize;
            if len <= RATE_VMA {
                // SAFETY: the caller's promise: so many bytes, and as many have room.
                unsafe { core::ptr::copy_nonoverlapping(value.cast::<u8>(), bytes.as_mut_ptr(), len) };
            }
            pace(offload, key, bytes.get(..len).unwrap_or(&[]))
        }
    }
}

/// Nothing comes from the device any more: for a UDP socket or listener, what others send goes to the kernel's half.
fn shut_rx(offload: &mut Offload, key: Key) -> Result<c_int, Errno> {
    let Some(socket) = offload.sockets.find_mut(key) else { return Err(Errno(libc::EBADF)) };
    match socket.kind {
        Kind::Listener(Some(_)) => {
            offload.close_flows(key);
            mux::refresh(offload, key.index);
            offload.dispatch();
        }
        Kind::Datagram(Some(_)) | Kind::Stream(_) | Kind::Connecting(_) => {
            for id in socket.flows() {
                offload.rings.of_mut(id).shutdown_rx(id)?;
            }
        }
        Kind::Fresh | Kind::Listener(None) | Kind::Datagram(None) | Kind::Kernel | Kind::Moving => {}
    }
    Ok(0)
}

/// SO_MAX_PACING_RATE. `None`: the kernel is to have it as well, for what it sends: it knows the short forms.
fn pace(offload: &mut Offload, key: Key, bytes: &[u8]) -> Option<Result<c_int, Errno>> {
    static TOLD: Once = Once::new();
    let Some(rate) = pacing::parse(bytes) else { return Some(Err(Errno(libc::EINVAL))) };
    let capabilities = offload.rings.first().ring.capabilities();
    let (device, device_paces) = (capabilities.kind, capabilities.paced_flows_max > 0);
    let is_short = bytes.len() < RATE_VMA;
    let Some(socket) = offload.sockets.find(key) else { return Some(Err(Errno(libc::EBADF))) };
    if !pacing::is_kept(socket.protocol, device_paces) {
        TOLD.call_once(|| tracing::warn!("SO_MAX_PACING_RATE: the device {device} does not pace datagrams"));
        return if is_short { None } else { Some(Err(Errno(libc::EOPNOTSUPP))) };
    }
    match offload.pace(key, rate) {
        Err(error) => Some(Err(error)),
        Ok(()) if is_short => None,
        Ok(()) => Some(Ok(0)),
    }
}

/// getsockopt(2). `None`: it is not one of these.
///
/// # Safety
/// As getsockopt(2).
pub(crate) unsafe fn get(
    process: &Process,
    key: Key,
    (level, name): (c_int, c_int),
    value: *mut c_void,
    len: *mut socklen_t,
) -> Option<Result<c_int, Errno>> {
    if (level, name) != (libc::SOL_SOCKET, SO_VMA_FLOW_TAG) {
        return None;
    }
    if value.is_null() || len.is_null() {
        return Some(Err(Errno(libc::EFAULT)));
    }
    // SAFETY: the caller's promise.
    if (unsafe { len.read() } as usize) < size_of::<u32>() {
        return Some(Err(Errno(libc::EINVAL)));
    }
    let tag = process.lock().sockets.find(key).and_then(|socket| socket.rare.as_ref()).map_or(0, |rare| rare.flow_tag);
    // SAFETY: the caller's promise: there is room.
    unsafe {
        value.cast::<u32>().write_unaligned(tag);
        len.write(size_of::<u32>() as socklen_t);
    }
    Some(Ok(0))
}
