//! `get_socket_rings_num`, `get_socket_rings_fds`, `get_socket_tx_ring_fd`.

use core::ffi::c_int;

use libc::{sockaddr, socklen_t};
use ringway_host::numbers;
use ringway_stack::device::Protocol;

use super::Direction;
use crate::errno::{self, Errno, to_int};
use crate::fdtable::{self, Entry};
use crate::mux::epoll::ring as descriptor;
use crate::process::{Offload, Process, process};
use crate::real;
use crate::slab::Key;
use crate::socket::address::{self, Address};
use crate::socket::{Socket, lifecycle, plain};

/// See the header.
pub(in crate::extra) extern "C" fn get_socket_rings_num(fd: c_int) -> c_int {
    let Some((process, key)) = ours(fd) else { return 0 };
    crate::boundary!(0, {
        let mut offload = process.lock();
        offload.begin_rings();
        c_int::from(receiving(&mut offload, key).is_some())
    })
}

/// See the header.
pub(in crate::extra) unsafe extern "C" fn get_socket_rings_fds(fd: c_int, out: *mut c_int, room: c_int) -> c_int {
    if out.is_null() || room <= 0 {
        return errno::fail(libc::EINVAL);
    }
    let Some((process, key)) = ours(fd) else { return 0 };
    crate::boundary!(-1, {
        let ring = {
            let mut offload = process.lock();
            offload.begin_rings();
            receiving(&mut offload, key)
        };
        let Some(ring) = ring else { return 0 };
        to_int(descriptor_of(process, ring).map(|number| {
            // SAFETY: the program's promise: there is room for one.
            unsafe { out.write_unaligned(number) };
            1
        }))
    })
}

/// See the header.
pub(in crate::extra) unsafe extern "C" fn get_socket_tx_ring_fd(fd: c_int, to: *mut sockaddr, len: socklen_t) -> c_int {
    let Some((process, key)) = ours(fd) else { return errno::fail(libc::EINVAL) };
    crate::boundary!(-1, {
        let ring = {
            let mut offload = process.lock();
            // SAFETY: the program's promise: null, or an address of that length.
            match unsafe { sending(&mut offload, key, to, len) } {
                Ok(ring) => ring,
                Err(error) => return errno::fail(error.0),
            }
        };
        to_int(descriptor_of(process, ring))
    })
}

/// The socket that `fd` is, in the process that owns it.
fn ours(fd: c_int) -> Option<(&'static Process, Key)> {
    let Entry::Socket(key) = fdtable::lookup(fd) else { return None };
    Some((process().filter(|process| process.is_owner())?, key))
}

impl Offload {
    /// The program has asked for a ring: from now on sockets are on theirs, those as well that are there already.
    pub(super) fn begin_rings(&mut self) {
        if core::mem::replace(&mut self.extra_rings.is_active, true) {
            return;
        }
        plain::unsay_all();
        let there: Vec<Key> = self.sockets.iter().filter(|(_, socket)| socket.ring_id().is_some()).map(|(key, _)| key).collect();
        for key in there {
            self.end_former(key);
            self.fit_flows(key);
            self.join_ring(key.index, Direction::Rx);
        }
    }
}

/// The ring that a socket receives from: one that it has addresses, or a device, for.
fn receiving(offload: &mut Offload, key: Key) -> Option<Key> {
    let socket = offload.sockets.find(key)?;
    let is_on_device = socket.rare.as_ref().is_some_and(|rare| rare.rings.is_on_device);
    if socket.ring_id().is_none() && !is_on_device {
        return None;
    }
    offload.join_ring(key.index, Direction::Rx)
}

/// The ring by which a UDP socket sends to an address.
///
/// # Safety
/// `to` is null, or `len` bytes can be read there.
unsafe fn sending(offload: &mut Offload, key: Key, to: *const sockaddr, len: socklen_t) -> Result<Key, Errno> {
    let socket = offload.sockets.find(key).ok_or(Errno(libc::EINVAL))?;
    if socket.protocol == Protocol::Tcp {
        return Err(Errno(libc::ENOSYS));
    }
    if to.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the caller's promise.
    let to = unsafe { address::read(to, len, socket.family) };
    if !sends_there(socket, to) {
        return Err(Errno(libc::ENODATA));
    }
    offload.join_ring(key.index, Direction::Tx).ok_or(Errno(libc::ENODATA))
}

fn sends_there(socket: &Socket, to: Address) -> bool {
    matches!(to, Address::Ip(to) if socket.ring_id().is_some() && socket.routes.is_by_ring(address::destination(to)))
}

/// A ring's descriptor, made if it has none.
fn descriptor_of(process: &Process, ring: Key) -> Result<c_int, Errno> {
    let known = |offload: &Offload| offload.extra_rings.all.find(ring)?.descriptor.map(|(fd, _)| fd);
    if let Some(fd) = known(&process.lock()) {
        return Ok(fd);
    }
    // SAFETY: no memory is passed.
    let fd = numbers::lowest(|| unsafe { real::epoll_create1(libc::EPOLL_CLOEXEC) });
    if fd < 0 {
        return Err(Errno::last());
    }
    lifecycle::arriving(fd);
    let mut guard = process.lock();
    let offload = &mut *guard;
    // Another thread may have been quicker; or the last socket of the ring was closed.
    let taken = known(offload).or_else(|| {
        let is_ready = !offload.extra_rings.all.find(ring)?.waiting.is_empty();
        let instance = descriptor::open(offload, fd, ring, is_ready)?;
        offload.extra_rings.all.find_mut(ring)?.descriptor = Some((fd, instance));
        watch_all(offload, ring);
        Some(fd)
    });
    if taken != Some(fd) {
        // SAFETY: made above, and nobody knows of it.
        unsafe { real::close(fd) };
    }
    taken.ok_or(Errno(libc::ENODATA))
}

/// A ring's new descriptor is readable when its sockets have something.
fn watch_all(offload: &mut Offload, ring: Key) {
    let is_its = |socket: &Socket| socket.rare.as_ref().is_some_and(|rare| rare.rings.ring(Direction::Rx) == Some(ring));
    let sockets: Vec<u32> = offload.sockets.iter().filter(|(_, socket)| is_its(socket)).map(|(key, _)| key.index).collect();
    sockets.into_iter().for_each(|socket| offload.watch(socket));
}
