//! Datagrams of plain UDP sockets, by their ring's lock alone.
//!
//! What such a call needs to know of its socket lies beside the ring ([`Known`]): the call that went the long way has left it there, and whoever changes
//! the socket unsays that it is plain, so that nothing that lies there is old.

use core::ffi::c_int;
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use ringway_devices::Rendezvous;
use ringway_stack::ring::{Datagram, FlowId, RecvFlags};
use ringway_stack::socket::Direction;
use ringway_stack::{Error, Instant};

use super::super::address::{self, Address};
use super::super::datagram::{KernelPoll, V6_MAX, ask_kernel, from_kernel};
use super::super::routes::{Recent, Sending, Way};
use super::super::{Ancillary, Family, Kind, Socket, vectors};
use super::Entered;
use crate::errno::Errno;
use crate::process::{Offload, Process};
use crate::slab::Key;

/// Flags that change nothing here.
const SEND_FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
const RECEIVE_FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CMSG_CLOEXEC | libc::MSG_TRUNC;

/// What is known of the socket above a flow.
#[derive(Debug)]
struct Known {
    /// The flow's, for its slot may have had another one.
    generation: u32,
    family: Family,
    /// Of which family what goes by the flow is.
    flow_family: Family,
    ancillary: Ancillary,
    peer: Option<SocketAddr>,
    /// When the kernel's half of the socket is asked, until a call that goes the long way takes it back.
    kernel: Option<KernelPoll>,
    /// The ways that its datagrams went over the ring.
    ways: Recent<Way>,
}

/// What is known of the UDP sockets of a ring, by their flows' slots.
#[derive(Debug, Default)]
pub(crate) struct Beside(BTreeMap<u32, Known>);

impl Beside {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    #[inline]
    fn find(&mut self, flow: FlowId) -> Option<&mut Known> {
        self.0.get_mut(&flow.index).filter(|known| known.generation == flow.generation)
    }

    /// The slot has another flow from now on.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.0.remove(&slot);
    }

    /// Lets go of members that are no more, and of what is known of a ring's flows that do not live.
    pub(crate) fn forget_dead(&mut self, rendezvous: &Rendezvous, ring: u16, lives: impl Fn(FlowId) -> bool) {
        self.0.retain(|&index, known| {
            known.ways.retain(|way| way.is_alive(rendezvous));
            lives(FlowId { ring, index, generation: known.generation })
        });
    }

    /// The kernel's half of a socket was found readable.
    pub(super) fn hint(&mut self, flow: FlowId) {
        if let Some(kernel) = self.find(flow).and_then(|known| known.kernel.as_mut()) {
            kernel.hint = true;
        }
    }

    /// What a receive that came by a plain socket's flow tells. `None`: nothing is known of the flow.
    pub(super) fn taken(&mut self, flow: FlowId, received: Result<Datagram, Error>) -> Option<Result<Taken, Errno>> {
        let known = self.find(flow)?;
        let (family, ancillary) = (known.family, known.ancillary);
        Some(received.map(|datagram| Taken::Ring { datagram, family, ancillary }).map_err(Errno::from))
    }

    /// When the kernel's half of the socket is asked, as calls that went by the ring's lock have left it.
    pub(crate) fn take_kernel_poll(&mut self, flow: FlowId) -> Option<KernelPoll> {
        self.find(flow)?.kernel.take()
    }
}

/// What a receive took.
pub(crate) enum Taken {
    /// A datagram of the ring's, and what its reader asked to be told of it.
    Ring { datagram: Datagram, family: Family, ancillary: Ancillary },
    /// What the kernel put into the program's own structures.
    Kernel(usize),
}

/// Sends a datagram of a plain UDP socket. `None`: it is to go the long way; nothing was sent.
#[inline]
pub(in crate::socket) fn send<'a>(
    process: &'a Process,
    now: Instant,
    key: Key,
    mut entered: Entered<'a>,
    data: &[IoSlice<'_>],
    (to, flags): (impl FnOnce(Family) -> Option<Address>, c_int),
) -> Option<Result<usize, Error>> {
    if flags & !SEND_FLAGS != 0 {
        return None;
    }
    entered = entered.used(process, key, Direction::Tx)?;
    let flow = entered.flow;
    let own = &mut *entered.own;
    let known = own.datagrams.find(flow)?;
    let to = match to(known.family) {
        None => known.peer?,
        Some(Address::Ip(to)) => address::destination(to),
        Some(Address::Unspecified | Address::Other) => return None,
    };
    if Family::of(to) != known.flow_family || to.is_ipv6() && vectors::total(data) > V6_MAX {
        return None;
    }
    let (to, way) = known.ways.find(&to)?;
    let sending = Some(way).filter(|way| way.holds(process.rendezvous_of(flow), now))?.sending();
    // (What is too long for its route is the kernel's.)
    let Sending { source, hop, .. } = Some(sending).filter(|sending| sending.carries(data, to))?;
    let result = own.ring.udp_try_send(now, flow, data, source, Some((to, hop)));
    entered.leave(process, now);
    match result {
        Err(Error::BadSocket | Error::WouldBlock | Error::HostUnreachable | Error::Pipe) => None,
        result => Some(result),
    }
}

/// As [`send`], to where the socket is connected.
#[inline(never)]
pub(super) fn send_at_once<'a>(
    process: &'a Process,
    now: Instant,
    key: Key,
    entered: Entered<'a>,
    data: &[IoSlice<'_>],
    flags: c_int,
) -> Option<Result<usize, Error>> {
    send(process, now, key, entered, data, (|_| None, flags))
}

/// Receives a datagram on a plain UDP socket, with `kernel` to receive one from the kernel. `None`: it is to go the long way; nothing was taken.
#[inline]
pub(in crate::socket) fn receive<'a>(
    process: &'a Process,
    now: Instant,
    (fd, key): (c_int, Key),
    mut entered: Entered<'a>,
    into: &mut [IoSliceMut<'_>],
    (flags, kernel): (c_int, &dyn Fn(c_int) -> isize),
) -> Option<Result<Taken, Errno>> {
    if flags & !RECEIVE_FLAGS != 0 {
        return None;
    }
    entered = entered.used(process, key, Direction::Rx)?;
    let ratio = process.params.rx_udp_poll_os_ratio;
    let (flow, plain) = (entered.flow, entered.plain);
    if entered.own.datagrams.find(flow)?.kernel.as_mut()?.on_call(fd, ratio) {
        // (No lock is held while the kernel is asked.)
        drop(entered);
        if let Some(received) = ask_kernel(fd, kernel) {
            return Some(received.map(Taken::Kernel));
        }
        entered = Entered::new(process, key).filter(|entered| entered.flow == flow)?;
    }
    let own = &mut *entered.own;
    let mut result = own.ring.udp_recv(flow, into, RecvFlags::empty());
    if result == Err(Error::WouldBlock) {
        own.poll_if_due(now);
        result = own.ring.udp_recv(flow, into, RecvFlags::empty());
    }
    let known = own.datagrams.find(flow)?;
    let (family, ancillary) = (known.family, known.ancillary);
    if result != Err(Error::WouldBlock) {
        entered.leave(process, now);
        return match result {
            Err(Error::BadSocket) => None,
            result => Some(result.map(|datagram| Taken::Ring { datagram, family, ancillary }).map_err(Errno::from)),
        };
    }
    let asks_kernel = plain.has_nothing(flags) && known.kernel.as_mut()?.on_empty(now, ratio);
    entered.leave(process, now);
    match plain.has_nothing(flags) {
        true if asks_kernel => Some(from_kernel(fd, kernel, libc::MSG_DONTWAIT).map(Taken::Kernel)),
        true => Some(Err(Errno(libc::EAGAIN))),
        false => None,
    }
}

/// As [`receive`], where nothing is asked but how many bytes were received.
#[inline(never)]
pub(super) fn receive_at_once<'a>(
    process: &'a Process,
    now: Instant,
    (fd, key): (c_int, Key),
    entered: Entered<'a>,
    into: &mut [IoSliceMut<'_>],
    (flags, kernel): (c_int, &dyn Fn(c_int) -> isize),
) -> Option<Result<usize, Errno>> {
    let received = receive(process, now, (fd, key), entered, into, (flags, kernel))?;
    Some(received.map(|taken| match taken {
        Taken::Ring { datagram, .. } => datagram.copied,
        Taken::Kernel(count) => count,
    }))
}

impl Offload {
    /// A call has gone the long way with a UDP socket, and something came or went by its ring. If it is plain, the next one need not.
    #[inline]
    pub(in crate::socket) fn say_if_datagrams_are_plain(&mut self, key: Key, flow: FlowId) {
        if self.rings.are_locked() {
            self.say_of_datagrams(key, flow);
        }
    }

    fn say_of_datagrams(&mut self, key: Key, flow: FlowId) {
        let may_be = !self.is_heard() && !self.rings_are_used();
        let Some(socket) = self.sockets.find(key).filter(|socket| may_be && are_plain(socket, flow)) else { return };
        let Beside(all) = &mut self.rings.at_mut(flow.ring).datagrams;
        let known = all.entry(flow.index).and_modify(|known| known.follow(flow, socket)).or_insert_with(|| Known::new(flow, socket));
        if let Some((to, way)) = socket.routes.last_by(flow) {
            known.ways.put(to, way.clone());
        }
        self.say_that_it_is_plain(key, flow);
    }
}

impl Known {
    fn new(flow: FlowId, socket: &Socket) -> Self {
        Self {
            generation: flow.generation,
            family: socket.family,
            flow_family: Family::of_ip(socket.flow_at),
            ancillary: socket.ancillary,
            peer: socket.peer,
            kernel: Some(socket.kernel_poll),
            ways: Recent::default(),
        }
    }

    /// The same flow, unless its slot had another one, of a socket that may have changed.
    fn follow(&mut self, flow: FlowId, socket: &Socket) {
        let before = core::mem::take(&mut self.ways);
        let is_same = self.generation == flow.generation;
        *self = Self::new(flow, socket);
        if is_same {
            self.ways = before;
        }
    }
}

/// Whether nothing but its flow, and what is in [`Known`], says what becomes of a socket's datagrams.
pub(crate) fn are_plain(socket: &Socket, flow: FlowId) -> bool {
    // (Who is connected to a program that is not on the ring hears of it through the kernel.)
    let is_kernels = socket.peer.is_some_and(|peer| socket.routes.is_by_kernel(peer));
    socket.kind == Kind::Datagram(Some(flow))
        && !socket.has_several_flows()
        && !is_kernels
        && !socket.shut.read
        && !socket.is_shared
        // (Whoever is told of drops is told of the ring's with the kernel's.)
        && socket.ancillary.drops.is_none()
        && socket.rare.as_ref().is_none_or(|rare| rare.lets_datagrams_be_plain())
}
