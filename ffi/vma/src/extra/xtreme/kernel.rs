//! What the kernel has for the sockets of a ring: datagrams and connections of programs that are not on Ringway, or not of this machine.
//!
//! They are told of like everything else. Their data had to be copied out of the kernel, into memory of the library's own that is lent in its turn.
//! The ring's descriptor, a real epoll instance, watches the kernel's half of listeners and UDP sockets, and connections that the kernel has accepted.

use core::ffi::c_int;
use core::time::Duration;
use std::net::SocketAddrV4;

use libc::{epoll_event, sockaddr, socklen_t};
use ringway_host::sleep::epoll_wait;
use ringway_stack::ring::Lent;

use super::abi::{ACCEPTED, Completed, PACKET};
use super::buffers::Owner;
use super::harvest::Sink;
use crate::errno::Errno;
use crate::extra::rings::options::default_user_data;
use crate::fdtable::{self, Entry};
use crate::mux::epoll::ring as descriptor;
use crate::process::Process;
use crate::real;
use crate::slab::Key;
use crate::socket::address::{self, Address};
use crate::socket::{Family, Kind, accept};

/// Sockets that one look finds.
const FOUND_MAX: usize = 16;
/// Datagrams of one socket that one look takes.
const DATAGRAMS_MAX: usize = 16;
/// The most bytes of a packet.
const BYTES_MAX: usize = u16::MAX as usize;
/// What the program holds of one socket's; more stays in the kernel.
pub(crate) const HELD_MAX: usize = 1 << 20;

const IN: u64 = libc::EPOLLIN as u64;
const ERR: u64 = libc::EPOLLERR as u64;
const HUP: u64 = libc::EPOLLHUP as u64;
const RDHUP: u64 = libc::EPOLLRDHUP as u64;

/// Tells what the kernel has, as far as there is room.
pub(super) fn look(process: &Process, ring_fd: c_int, sink: &mut impl Sink) {
    let mut found = [epoll_event { events: 0, u64: 0 }; FOUND_MAX];
    let Ok(count) = epoll_wait(ring_fd, &mut found, Some(Duration::ZERO), None) else { return };
    for event in &found[..count] {
        if sink.is_full() {
            return;
        }
        let Some(key) = descriptor::member(&process.lock(), ring_fd, event.u64) else { continue };
        tell(process, key, u64::from(event.events), sink);
    }
}

fn tell(process: &Process, key: Key, events: u64, sink: &mut impl Sink) {
    let (kind, fd, family, held, told) = {
        let guard = process.lock();
        let Some(socket) = guard.sockets.find(key) else { return };
        let on = socket.rare.as_ref().map(|rare| &rare.rings);
        let user_data = on.and_then(|on| on.user_data).unwrap_or_else(|| default_user_data(socket.fd));
        let told = Completed { packet: None, events: 0, user_data, from: socket.peer, listener: None };
        (socket.kind, socket.fd, socket.family, on.map_or(0, |on| on.waiting.kernel_held), told)
    };
    match kind {
        Kind::Listener(_) => connection(process, key, (fd, family), sink),
        Kind::Datagram(_) if held < HELD_MAX => datagrams(process, key, (fd, family), told, sink),
        Kind::Kernel if held < HELD_MAX => stream(process, key, fd, events, told, sink),
        // It is looked at again when some was given back.
        Kind::Datagram(_) | Kind::Kernel => process.lock().rest_from_kernel(key, true),
        _ => {}
    }
}

/// A connection that the kernel has for a listener.
fn connection(process: &Process, listener: Key, (fd, family): (c_int, Family), sink: &mut impl Sink) {
    let Ok(connection) = accept::from_kernel_by_itself(process, fd, listener) else { return };
    let peer = peer_of(connection, family);
    let mut guard = process.lock();
    if let Entry::Kernel(key) = fdtable::peek(connection) {
        guard.put_kernels_on_ring(key, listener, peer);
    }
    let user_data = default_user_data(connection);
    sink.put(&Completed { packet: None, events: ACCEPTED, user_data, from: peer, listener: Some(fd) });
}

/// Room for an address that the kernel tells.
struct Name {
    raw: libc::sockaddr_storage,
    len: socklen_t,
}

impl Name {
    const fn new() -> Self {
        // SAFETY: all of it is integers, for which zero is a value.
        Self { raw: unsafe { core::mem::zeroed() }, len: size_of::<libc::sockaddr_storage>() as socklen_t }
    }

    const fn room(&mut self) -> (*mut sockaddr, *mut socklen_t) {
        ((&raw mut self.raw).cast(), &raw mut self.len)
    }

    fn told(&self, family: Family) -> Option<SocketAddrV4> {
        // SAFETY: the structure is longer than any address that the kernel writes.
        match unsafe { address::read((&raw const self.raw).cast(), self.len, family) } {
            Address::V4(told) => Some(told),
            _ => None,
        }
    }
}

fn peer_of(fd: c_int, family: Family) -> Option<SocketAddrV4> {
    let mut name = Name::new();
    let (at, len) = name.room();
    // SAFETY: there is as much room as it says.
    if unsafe { real::getpeername(fd, at, len) } == 0 { name.told(family) } else { None }
}

fn datagrams(process: &Process, key: Key, (fd, family): (c_int, Family), told: Completed, sink: &mut impl Sink) {
    for _ in 0..DATAGRAMS_MAX {
        if sink.is_full() {
            return;
        }
        let mut bytes = vec![0u8; BYTES_MAX];
        let mut name = Name::new();
        let (at, len) = name.room();
        // SAFETY: there is as much room as it says, for both.
        let got = unsafe { real::recvfrom(fd, bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT, at, len) };
        let got = match usize::try_from(got) {
            Ok(got) => got,
            Err(_) if Errno::last().0 == libc::EAGAIN => return,
            Err(_) => {
                let mut guard = process.lock();
                if let Some(socket) = guard.sockets.find_mut(key) {
                    socket.rare().error = Some(Errno::last().0);
                }
                sink.put(&Completed { events: ERR, from: None, ..told });
                return;
            }
        };
        fdtable::count_kernel_rx(fd);
        bytes.truncate(got);
        lend(process, key, bytes, &Completed { from: name.told(family), ..told }, sink);
    }
}

fn stream(process: &Process, key: Key, fd: c_int, events: u64, told: Completed, sink: &mut impl Sink) {
    if events & ERR != 0 {
        // (Its error is left for SO_ERROR.)
        sink.put(&Completed { events: IN | ERR | HUP | RDHUP, from: None, ..told });
        return process.lock().rest_from_kernel(key, false);
    }
    let mut bytes = vec![0u8; BYTES_MAX];
    // SAFETY: there is as much room as it says.
    match usize::try_from(unsafe { real::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) }) {
        Ok(0) => {
            sink.put(&Completed { events: IN | RDHUP | events & HUP, from: None, ..told });
            process.lock().rest_from_kernel(key, false);
        }
        Ok(got) => {
            fdtable::count_kernel_rx(fd);
            bytes.truncate(got);
            lend(process, key, bytes, &told, sink);
        }
        Err(_) => {}
    }
}

/// Lends what was copied.
fn lend(process: &Process, key: Key, mut bytes: Vec<u8>, told: &Completed, sink: &mut impl Sink) {
    bytes.shrink_to_fit();
    let mut guard = process.lock();
    let offload = &mut *guard;
    let charge = bytes.len() + CHARGE;
    // (Where all nodes are held, a datagram is lost as where there is no buffer. A stream's bytes are not: nothing was read, for the
    // socket rests once the program holds [`HELD_MAX`], which is long before.)
    if !offload.buffers.have_room() {
        return;
    }
    let pieces = (!bytes.is_empty()).then(|| Lent::Copied(bytes));
    let Some(packet) = offload.buffers.lend(Owner::Kernel(key, charge), pieces) else { return };
    if let Some(socket) = offload.sockets.find_mut(key) {
        socket.rare().rings.waiting.kernel_held += charge;
    }
    sink.put(&Completed { packet: Some(packet), events: PACKET, ..*told });
}

/// What a packet counts beside its bytes.
const CHARGE: usize = 256;
