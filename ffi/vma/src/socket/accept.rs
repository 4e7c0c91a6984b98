//! accept4(2): connections from both worlds, those of the ring first.

use core::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use libc::{sockaddr, socklen_t};
use ringway_stack::Error;
use ringway_stack::device::Protocol;
use ringway_stack::offload::Reason;
use ringway_stack::ring::{Readiness, SocketId};

use super::address::Raw;
use super::connect::kernel_result;
use super::{Family, Kind, Socket, lifecycle, listen};
use crate::errno::Errno;
use crate::fdtable::{self, Entry};
use crate::mux::wait::{SpinClass, Waited, Waiting, wait};
use crate::process::{Offload, Process};
use crate::real;
use crate::slab::Key;

/// One kernel accept at a time: between "a connection waits" and taking it, no other thread may take it, or this one would
/// block in the kernel and never see the ring's.
static KERNEL_ACCEPT: Mutex<()> = Mutex::new(());

/// accept4(2).
///
/// # Errors
/// As accept4(2).
///
/// # Safety
/// As accept4(2): `out` and `len` are null, or valid for writing.
pub(crate) unsafe fn accept(
    process: &Process,
    fd: c_int,
    key: Key,
    out: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> Result<c_int, Errno> {
    loop {
        let mut guard = process.lock();
        let Some(socket) = guard.sockets.find(key) else { return Err(Errno(libc::EBADF)) };
        let (kind, nonblocking, timeout) = (socket.kind, socket.nonblocking, socket.receive_timeout);
        let Kind::Listener(id) = kind else {
            drop(guard);
            // SAFETY: the caller's promise.
            return kernel_result(unsafe { real::accept4(fd, out, len, flags) });
        };
        if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
            return Err(Errno(libc::EINVAL));
        }
        let id = id.or_else(|| retry(&mut guard, key));
        if let Some(id) = id {
            if !waits(&guard, id) {
                let now = process.now();
                guard.poll_if_due(now);
            }
            if waits(&guard, id) {
                drop(guard);
                // SAFETY: the caller's promise.
                match unsafe { from_ring(process, key, id, out, len, flags) } {
                    Err(Errno(libc::EAGAIN)) => continue,
                    result => return result,
                }
            }
        }
        drop(guard);
        // SAFETY: the caller's promise.
        match unsafe { from_kernel(process, fd, key, out, len, flags, nonblocking) } {
            Err(Errno(libc::EAGAIN)) if !nonblocking => {}
            result => return result,
        }
        let mut kernel = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
        let mut waiting = Waiting {
            sockets: &[key.index],
            epolls: &[],
            kernel: &mut kernel,
            deadline: timeout.map(|t| process.now() + t),
            sigmask: None,
            spin: SpinClass::Rx,
            restart: timeout.is_none(),
        };
        let ready = |offload: &mut Offload, _| match offload.sockets.find(key).map(|s| s.kind) {
            Some(Kind::Listener(Some(id))) => waits(offload, id).then_some(()),
            Some(Kind::Listener(None)) => None,
            _ => Some(()),
        };
        match wait(process, &mut waiting, ready) {
            Waited::Ready(()) | Waited::Kernel => {}
            Waited::TimedOut => return Err(Errno(libc::EAGAIN)),
            Waited::Interrupted => return Err(Errno(libc::EINTR)),
        }
    }
}

fn waits(offload: &Offload, id: SocketId) -> bool {
    offload.ring.readiness(id).contains(Readiness::IN)
}

/// A listener whose rule another process held may have it now (the parent of a daemon is gone).
fn retry(offload: &mut Offload, key: Key) -> Option<SocketId> {
    if offload.sockets.find(key)?.reason != Some(Reason::RuleTaken) {
        return None;
    }
    listen::publish(offload, key);
    offload.sockets.find(key)?.ring_id()
}

/// Takes a connection from the ring's queue, with a fresh placeholder.
unsafe fn from_ring(
    process: &Process,
    listener: Key,
    id: SocketId,
    out: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> Result<c_int, Errno> {
    let family = process.lock().sockets.find(listener).ok_or(Errno(libc::EBADF))?.family;
    // The placeholder comes first: with no descriptor left, the connection stays in the queue, as in the kernel.
    let fd = lifecycle::placeholder(family, flags)?;
    let mut guard = process.lock();
    let offload = &mut *guard;
    let accepted = match offload.ring.tcp_accept(id) {
        Ok(accepted) => accepted,
        Err(error) => {
            drop(guard);
            // SAFETY: the descriptor was made above, and nobody knows of it.
            unsafe { real::close(fd) };
            return Err(if error == Error::WouldBlock { Errno(libc::EAGAIN) } else { Errno(libc::EINVAL) });
        }
    };
    let info = offload.ring.info(accepted);
    let Some(parent) = offload.sockets.find(listener) else { return Err(Errno(libc::EBADF)) };
    let mut socket = Socket::accepted(parent, fd, flags & libc::SOCK_NONBLOCK != 0);
    socket.kind = Kind::Stream(accepted);
    socket.reason = None;
    socket.bound = info.map(|i| i.local);
    socket.peer = info.and_then(|i| i.remote);
    let peer = socket.peer;
    lifecycle::replay_options(&socket);
    let key = offload.sockets.insert(socket);
    offload.link(accepted, key.index);
    offload.decided("accept", None);
    offload.dispatch();
    if !fdtable::set(fd, Entry::Socket(key)) {
        offload.sockets.remove(key);
        offload.ring.close(process.now(), accepted, true);
        return Err(Errno(libc::EMFILE));
    }
    drop(guard);
    if let Some(peer) = peer {
        // SAFETY: the caller's promise.
        unsafe { Raw::new(peer, family).write(out, len)? };
    }
    Ok(fd)
}

/// Takes a connection from the kernel's queue if one waits there: EAGAIN if none does.
unsafe fn from_kernel(
    process: &Process,
    fd: c_int,
    listener: Key,
    out: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
    nonblocking: bool,
) -> Result<c_int, Errno> {
    let one = (!nonblocking).then(|| KERNEL_ACCEPT.lock().unwrap_or_else(PoisonError::into_inner));
    if one.is_some() {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        if unsafe { real::poll(&raw mut poll, 1, 0) } == 0 {
            return Err(Errno(libc::EAGAIN));
        }
    }
    // SAFETY: the caller's promise.
    let accepted = kernel_result(unsafe { real::accept4(fd, out, len, flags) })?;
    drop(one);
    let mut guard = process.lock();
    let offload = &mut *guard;
    let family = offload.sockets.find(listener).map_or(Family::V4, |s| s.family);
    let mut socket = Socket::new(accepted, family, Protocol::Tcp, false, process.tcp_config());
    socket.kind = Kind::Kernel;
    socket.reason = Some(Reason::NoOffloadedPeer);
    let key = offload.sockets.insert(socket);
    offload.decided("accept", Some(Reason::NoOffloadedPeer));
    if !fdtable::set(accepted, Entry::Kernel(key)) {
        offload.sockets.remove(key);
    }
    Ok(accepted)
}
