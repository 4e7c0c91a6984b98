//! What the kernel has for the sockets of a ring: datagrams and connections of programs that are not on Ringway, or not of this machine.
//!
//! They are told of like everything else. Their data had to be copied out of the kernel, into memory of the library's own that is lent in its turn.
//! The ring's descriptor, a real epoll instance, watches the kernel's half of listeners and UDP sockets, connections that the kernel has
//! accepted, and those that have moved there.
//!
//! Another thread may close any number, and somebody else get it, as long as the lock is not held: so each socket is looked up anew, and read from
//! under the lock. (A close takes the number out of the tables and then passes the lock, before the kernel has it.)

use core::ffi::c_int;
use core::time::Duration;
use std::net::SocketAddr;

use libc::{epoll_event, sockaddr, socklen_t};
use ringway_devices::Fd;
use ringway_host::sleep::epoll_wait;
use ringway_stack::ring::{Lent, Readiness};

use super::abi::{ACCEPTED, Completed, PACKET};
use super::buffers::Owner;
use super::harvest::Sink;
use crate::errno::Errno;
use crate::extra::rings::options::default_user_data;
use crate::fdtable::{self, Entry};
use crate::moving;
use crate::mux::epoll::ring as descriptor;
use crate::process::{Offload, Process};
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
pub(super) fn look(process: &Process, ring_fd: c_int, ring: Key, sink: &mut impl Sink) {
    let mut found = [epoll_event { events: 0, u64: 0 }; FOUND_MAX];
    let count = {
        let mut guard = process.lock();
        if !descriptor::is_numbered(&guard, ring_fd, ring) {
            return;
        }
        let Ok(count) = epoll_wait(ring_fd, &mut found, Some(Duration::ZERO), None) else { return };
        if count != 0 {
            guard.kernel_delivered(ring);
        }
        count
    };
    let mut room = Vec::new();
    for event in &found[..count] {
        if sink.is_full() {
            return;
        }
        let listener = {
            let mut guard = process.lock();
            let Some(source) = Source::find(&guard, ring_fd, ring, event) else { continue };
            if source.is_listener {
                source
            } else {
                if room.is_empty() {
                    room = vec![0; BYTES_MAX];
                }
                source.tell(&mut guard, u64::from(event.events), &mut room, sink);
                continue;
            }
        };
        connection(process, &listener, sink);
    }
}

/// A socket that the kernel has something for.
struct Source {
    key: Key,
    is_listener: bool,
    is_stream: bool,
    fd: c_int,
    family: Family,
    /// It ended reading.
    is_shut: bool,
    /// What all its completions say.
    told: Completed,
}

impl Source {
    /// Whose event of the real instance it is. Its number is good as long as the lock is held.
    fn find(offload: &Offload, ring_fd: c_int, ring: Key, event: &epoll_event) -> Option<Self> {
        let key = descriptor::member(offload, ring_fd, ring, event.u64)?;
        let socket = offload.sockets.find(key)?;
        let (is_listener, is_stream) = match socket.kind {
            Kind::Listener(_) => (true, false),
            Kind::Datagram(_) => (false, false),
            Kind::Kernel => (false, true),
            _ => return None,
        };
        let fd = socket.fd;
        if fdtable::peek(fd).socket() != Some(key) {
            return None;
        }
        let is_shut = socket.ring_id().is_some_and(|id| offload.rings.of(id).readiness(id).contains(Readiness::RDHUP));
        let user_data = socket.rare.as_ref().and_then(|rare| rare.rings.user_data).unwrap_or_else(|| default_user_data(fd));
        let told = Completed { packet: None, events: 0, user_data, from: socket.peer, listener: None, by_card: None };
        Some(Self { key, is_listener, is_stream, fd, family: socket.family, is_shut, told })
    }

    fn tell(&self, offload: &mut Offload, events: u64, room: &mut [u8], sink: &mut impl Sink) {
        if self.is_stream { self.stream(offload, events, room, sink) } else { self.datagrams(offload, room, sink) }
    }

    /// Whether the program may have more of it, and there is something to lend it by. If it holds too much, the kernel's half rests until it has
    /// given some back.
    fn has_room(&self, offload: &mut Offload) -> bool {
        let Some(socket) = offload.sockets.find(self.key) else { return false };
        if socket.rare.as_ref().is_some_and(|rare| rare.rings.waiting.kernel_held >= HELD_MAX) {
            offload.rest_from_kernel(self.key, true);
            return false;
        }
        offload.buffers.have_room()
    }

    fn datagrams(&self, offload: &mut Offload, room: &mut [u8], sink: &mut impl Sink) {
        for _ in 0..DATAGRAMS_MAX {
            if sink.is_full() || !self.has_room(offload) {
                return;
            }
            let mut name = Name::new();
            let (at, len) = name.room();
            // SAFETY: there is as much room as it says, for both.
            let got = unsafe { real::recvfrom(self.fd, room.as_mut_ptr().cast(), room.len(), libc::MSG_DONTWAIT, at, len) };
            match usize::try_from(got) {
                Ok(got) => self.lend(offload, &room[..got], name.told(self.family), sink),
                // (It is readable for good; that it has ended was told.)
                Err(_) if Errno::last().0 == libc::EAGAIN && self.is_shut => return offload.rest_from_kernel(self.key, false),
                Err(_) if Errno::last().0 == libc::EAGAIN => return,
                Err(_) => {
                    if let Some(socket) = offload.sockets.find_mut(self.key) {
                        socket.rare().error = Some(Errno::last().0);
                    }
                    return sink.put(&Completed { events: ERR, from: None, ..self.told });
                }
            }
        }
    }

    fn stream(&self, offload: &mut Offload, events: u64, room: &mut [u8], sink: &mut impl Sink) {
        // (What was taken before it moved comes first.)
        let has_rest =
            offload.sockets.find(self.key).and_then(|socket| socket.rare.as_ref()).is_some_and(|rare| rare.rings.waiting.has_rest());
        if has_rest || !self.has_room(offload) {
            return;
        }
        if events & ERR != 0 {
            // (Its error is left for SO_ERROR.)
            sink.put(&Completed { events: IN | ERR | HUP | RDHUP, from: None, ..self.told });
            return offload.rest_from_kernel(self.key, false);
        }
        // SAFETY: there is as much room as it says.
        match usize::try_from(unsafe { real::recv(self.fd, room.as_mut_ptr().cast(), room.len(), libc::MSG_DONTWAIT) }) {
            Ok(0) => {
                sink.put(&Completed { events: IN | RDHUP | events & HUP, from: None, ..self.told });
                offload.rest_from_kernel(self.key, false);
            }
            Ok(got) => self.lend(offload, &room[..got], self.told.from, sink),
            Err(_) => {}
        }
    }

    /// Lends a copy of these bytes, for which there are nodes.
    fn lend(&self, offload: &mut Offload, bytes: &[u8], from: Option<SocketAddr>, sink: &mut impl Sink) {
        fdtable::count_kernel_rx(self.fd);
        let charge = bytes.len() + CHARGE;
        let pieces = (!bytes.is_empty()).then(|| Lent::Copied(bytes.to_vec()));
        let packet = offload.buffers.lend(Owner::Kernel(self.key, charge), pieces);
        if let Some(socket) = offload.sockets.find_mut(self.key) {
            socket.rare().rings.waiting.kernel_held += charge;
        }
        sink.put(&Completed { packet, events: PACKET, from, ..self.told });
    }
}

/// What a packet counts beside its bytes.
pub(super) const CHARGE: usize = 256;

/// A connection that the kernel has for a listener. The state is not locked while it is accepted, so the listener has another number for that.
fn connection(process: &Process, listener: &Source, sink: &mut impl Sink) {
    let Some(copy) = another_number(process, listener) else { return };
    let accepted = accept::from_kernel_by_itself(process, copy.raw(), listener.key);
    accept::alone(|| drop(copy));
    let Ok(connection) = accepted else { return };
    let peer = peer_of(connection, listener.family);
    let mut guard = process.lock();
    if let Entry::Kernel(key) = fdtable::peek(connection) {
        guard.put_kernels_on_ring(key, listener.key, peer);
    }
    drop(guard);
    let user_data = default_user_data(connection);
    sink.put(&Completed { packet: None, events: ACCEPTED, user_data, from: peer, listener: Some(listener.fd), by_card: None });
}

/// Made, like it is closed, where nobody accepts and nobody forks: a close of any of its numbers ends a turn at accepting, and a child would not
/// know of it.
fn another_number(process: &Process, listener: &Source) -> Option<Fd> {
    accept::alone(|| {
        let guard = process.lock();
        let is_its = guard.sockets.find(listener.key).is_some_and(|socket| socket.fd == listener.fd);
        if !is_its || fdtable::peek(listener.fd).socket() != Some(listener.key) {
            return None;
        }
        moving::copy_of(listener.fd)
    })
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

    fn told(&self, family: Family) -> Option<SocketAddr> {
        // SAFETY: the structure is longer than any address that the kernel writes.
        match unsafe { address::read((&raw const self.raw).cast(), self.len, family) } {
            Address::Ip(told) => Some(told),
            _ => None,
        }
    }
}

fn peer_of(fd: c_int, family: Family) -> Option<SocketAddr> {
    let mut name = Name::new();
    let (at, len) = name.room();
    // SAFETY: there is as much room as it says.
    if unsafe { real::getpeername(fd, at, len) } == 0 { name.told(family) } else { None }
}
