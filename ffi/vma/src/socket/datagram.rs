//! UDP: one socket, two worlds. The ring's datagrams and the kernel's are received alike; where one is sent is decided
//! for each destination, and remembered.

mod receive;

use core::ffi::c_int;
use core::time::Duration;
use std::io::IoSlice;
use std::net::SocketAddr;

use libc::{sockaddr, socklen_t};
use ringway_host::sleep::ppoll;
use ringway_params::rules::Role;
use ringway_stack::device::MacAddr;
use ringway_stack::offload::Reason;
use ringway_stack::ring::{FlowId, NextHop};
use ringway_stack::{Error, Instant};

pub(crate) use self::receive::{KernelPoll, Received, receive, wait_for_more};
pub(in crate::socket) use self::receive::{ask_kernel, from_kernel};
use super::address::{self, Address};
use super::connect::{Unreachable, kernel_result, reachable};
use super::{Family, Kind, Socket, beyond, sharing, vectors};
use crate::cancel::Masked;
use crate::devices::{Rendezvous, Resolved};
use crate::errno::{self, Errno, THEIRS};
use crate::fd_counters::{self, Way};
use crate::lock::Guard;
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::{fdtable, mux, real, rules};

/// How long a destination that nobody offloads is left to the kernel before it is asked for again: at first, for who has bound it a moment ago may be about
/// to publish it, and at the most. Each time it is twice as long as the last.
const KERNEL_FOR_MIN: Duration = Duration::from_millis(1);
const KERNEL_FOR_MAX: Duration = Duration::from_millis(128);

/// How long a way to an address is believed that other sockets may come to share, of which nobody tells: those of programs that don't run this
/// library. (One that does run it tells at once.)
const SHARED_FOR: Duration = Duration::from_millis(10);

/// How long a sender waits for a receiver that does not empty its queue. On a machine with more to do than processors, the receiver's progress
/// thread may not have its turn for as long.
const ROOM_WITHIN: Duration = Duration::from_millis(500);

/// The same, where the sender is not to block: two of that thread's ticks, as they are by default.
const ROOM_AT_ONCE: Duration = Duration::from_millis(20);

/// The most bytes of a datagram of IPv6 that are one packet of the ring's, which has 65535 bytes with its headers. (The kernel sends a few more, in
/// fragments; of IPv4 there are no longer ones.)
pub(super) const V6_MAX: usize = 65_487;

/// How often it looks.
const ROOM_EVERY: Duration = Duration::from_micros(50);
/// How long one is left to the kernel whose holder is being asked.
const UNASKED_FOR: Duration = Duration::from_millis(1);

/// The last destination, and how it is reached.
#[derive(Debug, Default)]
pub(crate) struct Route {
    to: Option<SocketAddr>,
    by: By,
}

#[derive(Debug, Default)]
enum By {
    #[default]
    Unknown,
    /// Over the ring, until then.
    Station(Resolved, Instant),
    /// Through the kernel, until then, which was said to be for so long.
    Kernel(Instant, Duration),
}

impl By {
    fn station(hop: Resolved, now: Instant) -> Self {
        let until = if hop.is_shared { now + SHARED_FOR } else { Instant::MAX };
        Self::Station(hop, until)
    }

    fn kernel(now: Instant, spell: Duration) -> Self {
        Self::Kernel(now + spell, spell)
    }

    /// The holder is being asked.
    fn unasked(now: Instant) -> Self {
        Self::Kernel(now + UNASKED_FOR, Duration::ZERO)
    }
}

impl Route {
    /// Whether the last datagram, or the connection, was to that address and not the kernel's.
    pub(crate) fn is_by_ring(&self, to: SocketAddr) -> bool {
        self.to == Some(to) && matches!(self.by, By::Station(..))
    }

    /// Where it leads over the ring, and until when that is believed, if it does.
    pub(super) fn over_ring(&self) -> Option<(SocketAddr, &Resolved, Instant)> {
        match (&self.by, self.to) {
            (By::Station(hop, until), Some(to)) => Some((to, hop, *until)),
            _ => None,
        }
    }

    /// The same, if it was the kernel's.
    pub(super) fn is_by_kernel(&self, to: SocketAddr) -> bool {
        self.to == Some(to) && matches!(self.by, By::Kernel(..))
    }

    /// That address is left to the kernel from now on, for longer than it was the last time.
    fn left_to_kernel(&self, to: SocketAddr, now: Instant) -> Self {
        let spell = match self.by {
            By::Kernel(_, last) if self.to == Some(to) => (last * 2).clamp(KERNEL_FOR_MIN, KERNEL_FOR_MAX),
            _ => KERNEL_FOR_MIN,
        };
        Self { to: Some(to), by: By::kernel(now, spell) }
    }

    pub(super) fn is_to(&self, to: SocketAddr) -> bool {
        self.to == Some(to)
    }

    /// Where it leads, if that has been found out.
    pub(super) fn known(&self) -> Option<SocketAddr> {
        self.to.filter(|_| !matches!(self.by, By::Unknown))
    }

    /// Lets go of a station that is no more, and so of its memory.
    pub(crate) fn forget_dead(&mut self, rendezvous: &Rendezvous) {
        if matches!(&self.by, By::Station(hop, _) if !rendezvous.still_valid(hop)) {
            self.by = By::Unknown;
        }
    }
}

/// Publishes the bound address, so that offloaded senders find it. What does not work is left to the kernel.
pub(crate) fn publish(process: &Process, offload: &mut Offload, key: Key) {
    let Some(socket) = offload.sockets.find_mut(key) else { return };
    let (Kind::Datagram(None), Some(local)) = (socket.kind, socket.bound) else { return };
    if local.ip().is_multicast() || !(local.ip().is_unspecified() || process.addresses.contains(local.ip())) {
        socket.reason = Some(Reason::Multicast);
        offload.decided("bind", Some(Reason::Multicast));
        return;
    }
    // Who may not receive on the ring has no address there to send from.
    if let Some(rule) = socket.left_by_rule(Role::UdpReceiver, local) {
        offload.leave_by_rule(key, "bind", rule);
        return;
    }
    if !sharing::is_known_to_the_kernel(process, socket) {
        offload.leave_to_kernel(key, "bind", Reason::KernelOnlyOption);
        return;
    }
    let opened = offload.open_flows(key, local);
    let reason = opened.err().map(|error| if error == Error::AddressInUse { Reason::RuleTaken } else { Reason::TooManyRules });
    if let Some(socket) = offload.sockets.find_mut(key) {
        socket.reason = reason;
    }
    offload.decided("bind", reason);
    mux::refresh(offload, key.index);
}

/// Where the kernel has a socket's datagrams to an address come from. Port zero: it is not bound yet.
fn source(offload: &Offload, key: Key, to: SocketAddr) -> SocketAddr {
    let local = offload.sockets.find(key).and_then(|socket| {
        let on_ring = socket.ring_id().and_then(|id| offload.rings.of(id).info(id)).map(|info| info.local);
        on_ring.or(socket.bound)
    });
    match local {
        Some(local) if !local.ip().is_unspecified() => local,
        bound => SocketAddr::new(address::source_for(to.ip()), bound.map_or(0, |bound| bound.port())),
    }
}

/// The way to `to` for a socket, which gets an address and a rule if it leads over the ring.
fn find_way(process: &Process, fd: c_int, key: Key, to: SocketAddr, waits: bool) -> Result<Resolved, Unreachable> {
    let (ring, from) = {
        let mut guard = process.lock();
        if guard.sockets.find(key).is_some_and(|socket| !address::can_reach(fd, socket.family, socket.bound, to)) {
            return Err(Unreachable::Because(Reason::Family));
        }
        (guard.choose_ring(key), source(&guard, key, to))
    };
    let found = sendable(process, (ring, from), Address::Ip(to), waits);
    if matches!(found, Ok(_) | Err(Unreachable::Unasked)) {
        // Also for what the kernel carries meanwhile: whoever answers that looks for this socket, and takes it for the kernel's for a while if it
        // is nowhere to be found.
        ensure_published(process, fd, key);
    }
    let (_, hop) = found?;
    let (on, bound) = {
        let guard = process.lock();
        (guard.sockets.find(key).map_or(ring, |socket| socket.ring), source(&guard, key, to))
    };
    if (on, bound) == (ring, from) {
        return Ok(hop);
    }
    // It has a port now, by which the kernel may choose another one; or another thread was first, so that it is on that one's ring.
    sendable(process, (on, bound), Address::Ip(to), waits).map(|(_, hop)| hop)
}

/// Gives the socket an address and a rule, if it can have them: what a sender needs to be answered.
pub(super) fn ensure_published(process: &Process, fd: c_int, key: Key) {
    let mut guard = process.lock();
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find_mut(key) else { return };
    // Connected before its server started, it was left to the kernel until now.
    let may_be = matches!(socket.reason, Some(Reason::Undecided | Reason::NoOffloadedPeer));
    if socket.kind != Kind::Datagram(None) || !may_be {
        return;
    }
    let mut local = address::of_placeholder(fd, socket.family);
    if local.is_some_and(|l| l.port() == 0) {
        let raw = address::Raw::new(address::any(socket.family), socket.family);
        // SAFETY: the address is as long as it says.
        if unsafe { real::bind(fd, raw.as_ptr(), raw.len()) } == 0 {
            local = address::of_placeholder(fd, socket.family);
        }
    }
    socket.bound = local.filter(|l| l.port() != 0);
    if socket.bound.is_none() {
        socket.reason = Some(Reason::Family);
    }
    let connected = socket.peer.is_some();
    publish(process, offload, key);
    if connected {
        connect_on_ring(process, offload, fd, key);
    }
}

/// connect(2) on a UDP socket. The placeholder is connected too: the kernel filters, and getpeername is right.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// `raw` is null, or `len` bytes can be read there.
pub(crate) unsafe fn connect(
    process: &Process,
    fd: c_int,
    key: Key,
    to: Address,
    raw: *const sockaddr,
    len: socklen_t,
) -> Result<c_int, Errno> {
    if let Address::Ip(to) = to
        && leave_whole(process, key, to)
    {
        return Err(THEIRS);
    }
    let former = sharing::former_receiver_of_peer(process, fd, key, to);
    // SAFETY: the caller's promise.
    kernel_result(unsafe { real::connect(fd, raw, len) })?;
    if to == Address::Unspecified {
        give_port_back(process, fd, key);
    }
    let (ring, family, waits) = {
        let mut guard = process.lock();
        let ring = guard.choose_ring(key);
        let asked = |socket: &Socket| (ring, Some(socket.family), !socket.is_nonblocking());
        guard.sockets.find(key).map_or((ring, None, false), asked)
    };
    let from = family.and_then(|family| address::of_placeholder(fd, family)).unwrap_or(address::any(Family::V4));
    let found = sendable(process, (ring, from), to, waits);
    // (Whom nobody has yet on this machine, somebody may have soon.)
    let is_beyond = matches!(to, Address::Ip(to) if beyond::leads_to(process, key, to));
    if is_beyond || matches!(found, Ok(_) | Err(Unreachable::Unasked | Unreachable::Because(Reason::NoOffloadedPeer))) {
        // The ring must filter by peer from the first datagram on: publish before connecting there.
        ensure_published_connected(process, fd, key);
    }
    let mut guard = process.lock();
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find_mut(key) else { return Ok(0) };
    let peer = match to {
        Address::Ip(remote) => Some(address::destination(remote)),
        _ => None,
    };
    socket.peer = peer;
    if let Some(gathered) = socket.rare.as_mut().and_then(|rare| rare.corked.as_mut()) {
        gathered.reconnected(peer);
    }
    socket.route = Route { to: peer, by: By::Unknown };
    match found {
        Ok((_, hop)) if socket.ring == ring => socket.route.by = By::station(hop, process.now()),
        // Another thread was first, so that it is on that one's ring.
        Ok(_) => {}
        Err(Unreachable::Because(reason)) => {
            socket.route.by = By::kernel(process.now(), KERNEL_FOR_MIN);
            let is_undecided = matches!(socket.reason, Some(Reason::Undecided | Reason::NoOffloadedPeer));
            if socket.kind == Kind::Datagram(None) && is_undecided {
                socket.reason = Some(reason);
            }
            offload.decided("connect", Some(reason));
        }
        // Sending is the kernel's; what comes may still come on the ring.
        Err(Unreachable::ByRule(rule)) => {
            tracing::info!("datagrams to {peer:?} are left to the kernel by {rule}");
            socket.route.by = By::kernel(process.now(), KERNEL_FOR_MIN);
            offload.decided("connect", Some(Reason::Rule));
        }
        Err(Unreachable::Unasked) => socket.route.by = By::unasked(process.now()),
        Err(Unreachable::NotAnAddress) => {}
    }
    connect_on_ring(process, offload, fd, key);
    offload.dispatch();
    drop(guard);
    if let Some(former) = former {
        former.lets_go(process);
    }
    Ok(0)
}

/// A rule for udp_connect leaves the whole socket to the kernel, in both directions.
fn leave_whole(process: &Process, key: Key, to: SocketAddr) -> bool {
    let mut guard = process.lock();
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find(key) else { return false };
    let Some(rule) = rules::leave(Role::UdpConnect, address::destination(to), socket.bound) else { return false };
    let ring = socket.ring_id();
    if let Some(id) = ring {
        offload.rings.of_mut(id).close(process.now(), id, false);
        offload.close_twin(key);
    }
    offload.leave_by_rule(key, "connect", rule);
    offload.dispatch();
    true
}

/// [`reachable`], unless libvma.conf leaves datagrams to that address to the kernel.
fn sendable(process: &Process, from: (u16, SocketAddr), to: Address, waits: bool) -> Result<(SocketAddr, Resolved), Unreachable> {
    if let Address::Ip(to) = to
        && let Some(rule) = rules::leave(Role::UdpSender, address::destination(to), None)
    {
        return Err(Unreachable::ByRule(rule));
    }
    reachable(process, from, to, waits)
}

/// A disconnected socket has no port any more, unless the program named it in bind(2): nothing that comes for the old one is its.
fn give_port_back(process: &Process, fd: c_int, key: Key) {
    let mut guard = process.lock();
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find_mut(key) else { return };
    let Kind::Datagram(Some(id)) = socket.kind else { return };
    if address::of_placeholder(fd, socket.family).is_none_or(|local| local.port() != 0) {
        return;
    }
    socket.kind = Kind::Datagram(None);
    socket.bound = None;
    socket.reason = Some(Reason::Undecided);
    offload.rings.of_mut(id).close(process.now(), id, false);
    offload.close_twin(key);
    mux::refresh(offload, key.index);
    offload.dispatch();
}

/// As [`ensure_published`], for a socket that the kernel has connected (and so bound to an address of its choice).
fn ensure_published_connected(process: &Process, fd: c_int, key: Key) {
    if let Some(socket) = process.lock().sockets.find_mut(key)
        && socket.kind == Kind::Datagram(None)
        && socket.bound.is_none()
    {
        socket.reason = Some(Reason::Undecided);
    }
    ensure_published(process, fd, key);
}

/// Tells the ring's socket who its peer is, and which local address the kernel has given it for that.
fn connect_on_ring(process: &Process, offload: &mut Offload, fd: c_int, key: Key) {
    offload.keep_peers_flow(key);
    let Some(socket) = offload.sockets.find(key) else { return };
    let Kind::Datagram(Some(id)) = socket.kind else { return };
    // A peer that only the kernel reaches is named so that strangers are filtered; nothing is sent to that station.
    let hop = match &socket.route.by {
        By::Station(hop, _) => NextHop::Station(hop.mac),
        By::Unknown | By::Kernel(..) => NextHop::Station(MacAddr::default()),
    };
    let kernels = address::of_placeholder(fd, socket.family).filter(|local| Family::of(*local) == socket.flow_family);
    let source = kernels.unwrap_or(address::any(socket.flow_family)).ip();
    if let Err(error) = offload.rings.of_mut(id).udp_connect(id, source, socket.peer.map(|peer| (peer, hop))) {
        tracing::info!("a datagram socket that is connected from {source} is left to the kernel: {error}");
        offload.rings.of_mut(id).close(process.now(), id, false);
        offload.close_twin(key);
        let reason = if error == Error::AddressInUse { Reason::RuleTaken } else { Reason::TooManyRules };
        offload.leave_to_kernel(key, "connect", reason);
    }
    offload.set_peer_beyond(key, process.now());
}

/// sendto(2), with `kernel` to hand the datagram to the kernel.
///
/// # Errors
/// As sendto(2).
pub(crate) fn send<'a>(
    process: &'a Process,
    mut guard: Guard<'a, Offload>,
    now: Instant,
    (fd, key): (c_int, Key),
    data: &[IoSlice<'_>],
    (to, flags): (Option<Address>, c_int),
    kernel: &dyn Fn() -> isize,
) -> Result<usize, Errno> {
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find_mut(key) else { return Err(Errno(libc::EBADF)) };
    let to = match to {
        None => socket.peer,
        Some(Address::Ip(to)) => Some(address::destination(to)),
        // The kernel says what it thinks of it.
        Some(_) => None,
    };
    let Some(to) = to else {
        drop(guard);
        return by_kernel(fd, kernel);
    };
    if to.is_ipv6() && vectors::total(data) > V6_MAX {
        drop(guard);
        return by_kernel(fd, kernel);
    }
    if offload.interfaces.is_some() {
        guard = match beyond::send(process, guard, now, (fd, key), data, to) {
            Ok(sent) => return sent,
            Err(guard) => guard,
        };
    }
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find_mut(key) else { return Err(Errno(libc::EBADF)) };
    if let Some(hop) = remembered(process, socket, to, now) {
        if let (Some(hop), Some(id)) = (hop, socket.flow_to(to)) {
            let result = send_on_ring(offload, id, data, to, hop, now);
            offload.dispatch();
            match result {
                Err(Error::HostUnreachable) => {}
                Err(Error::WouldBlock) => {
                    drop(guard);
                    return wait_for_room(process, key, data, (to, flags));
                }
                result => {
                    offload.say_if_datagrams_are_plain(key, id);
                    return result.map_err(Errno::from);
                }
            }
            // The station died meanwhile: whoever has the address now is asked for below.
        } else {
            drop(guard);
            return by_kernel(fd, kernel);
        }
    }
    drop(guard);
    send_after_asking(process, (fd, key), data, (to, flags), kernel)
}

/// Where a datagram to there would go on the ring, which is found out if it is not known. `None`: nowhere.
pub(crate) fn way(process: &Process, fd: c_int, key: Key, to: Option<Address>) -> Option<(FlowId, MacAddr, SocketAddr)> {
    let mut guard = process.lock();
    let socket = guard.sockets.find_mut(key)?;
    let to = match to {
        None => socket.peer?,
        Some(Address::Ip(to)) => address::destination(to),
        Some(_) => return None,
    };
    let now = process.now();
    if let Some(way) = remembered(process, socket, to, now) {
        let id = socket.flow_to(to)?;
        return way.map(|station| (id, station, to));
    }
    drop(guard);
    let _masked = Masked::new();
    let found = find_way(process, fd, key, to, false);
    let mut guard = process.lock();
    let socket = guard.sockets.find_mut(key)?;
    let (Ok(hop), Some(id)) = (found, socket.flow_to(to)) else {
        socket.take_route(socket.route.left_to_kernel(to, now));
        return None;
    };
    let station = hop.mac;
    socket.take_route(Route { to: Some(to), by: By::station(hop, now) });
    Some((id, station, to))
}

/// The remembered way to a destination: `Some(None)` is the kernel, `None` is not known.
#[inline]
fn remembered(process: &Process, socket: &mut Socket, to: SocketAddr, now: Instant) -> Option<Option<MacAddr>> {
    usable(process, socket, to, now).or_else(|| socket.recall_route(to).then(|| usable(process, socket, to, now)).flatten())
}

/// The way to a destination, if it is the one that was used last.
#[inline]
fn usable(process: &Process, socket: &Socket, to: SocketAddr, now: Instant) -> Option<Option<MacAddr>> {
    if socket.route.to != Some(to) {
        return None;
    }
    match &socket.route.by {
        By::Station(hop, until) if now < *until && process.rendezvous_at(socket.ring).still_valid(hop) => Some(Some(hop.mac)),
        By::Kernel(until, _) if now < *until => Some(None),
        _ => None,
    }
}

#[inline]
fn send_on_ring(
    offload: &mut Offload,
    id: FlowId,
    data: &[IoSlice<'_>],
    to: SocketAddr,
    station: MacAddr,
    now: Instant,
) -> Result<usize, Error> {
    let source = address::source_for(to.ip());
    offload.rings.of_mut(id).udp_try_send(now, id, data, source, Some((to, NextHop::Station(station))))
}

/// The way to the receiver is full. It is emptied into the receivers' buffers by whoever waits there, else by the progress thread of the receiver's process,
/// which has been woken: a moment later there is room. The kernel's loopback has no such way, and its sender spends the time of the
/// delivery itself, whether it blocks or not. A receiver that does not move in all that time (it is stopped, say) loses the datagram, and no
/// other is waited for until it has moved.
#[cold]
fn wait_for_room(process: &Process, key: Key, data: &[IoSlice<'_>], (to, flags): (SocketAddr, c_int)) -> Result<usize, Errno> {
    let saved = errno::current();
    let _masked = Masked::new();
    let began = process.now();
    loop {
        let rest = {
            let mut guard = process.lock();
            let offload = &mut *guard;
            let now = process.now();
            // The way may be to this very process; or the receiver may be waiting in the same place for this one.
            offload.poll_if_due(now);
            let Some(socket) = offload.sockets.find_mut(key) else { return Err(Errno(libc::EBADF)) };
            let nonblocking = socket.nonblocking || flags & libc::MSG_DONTWAIT != 0;
            let rest = (began + if nonblocking { ROOM_AT_ONCE } else { ROOM_WITHIN }).since(now);
            let (Some(Some(station)), Some(id)) = (remembered(process, socket, to, now), socket.flow_to(to)) else {
                // What was sent to a process that is gone is lost.
                return Ok(data.iter().map(|part| part.len()).sum());
            };
            let mut sent = send_on_ring(offload, id, data, to, station, now);
            let device = offload.rings.of_mut(id).queues_mut();
            if sent == Err(Error::WouldBlock) && (rest.is_zero() || !device.is_worth_waiting(station)) {
                device.give_up(station);
                let source = address::source_for(to.ip());
                sent = offload.rings.of_mut(id).udp_send(now, id, data, source, Some((to, NextHop::Station(station))));
                // VMA_TX_NONBLOCKED_EAGAINS: it is the program's to send again, where it does not block.
                if sent.is_ok() && nonblocking && process.params.tx_nonblocked_eagains {
                    sent = Err(Error::WouldBlock);
                }
                offload.dispatch();
                errno::set(saved);
                return sent.map_err(Errno::from);
            }
            offload.dispatch();
            if sent != Err(Error::WouldBlock) {
                errno::set(saved);
                return sent.map_err(Errno::from);
            }
            rest
        };
        let _ = ppoll(&mut [], Some(ROOM_EVERY.min(rest)), None);
    }
}

/// The destination is not known: ask the rendezvous (without the lock), remember, send.
#[cold]
fn send_after_asking(
    process: &Process,
    (fd, key): (c_int, Key),
    data: &[IoSlice<'_>],
    (to, flags): (SocketAddr, c_int),
    kernel: &dyn Fn() -> isize,
) -> Result<usize, Errno> {
    let saved = errno::current();
    let _masked = Masked::new();
    let may_wait = |socket: &Socket| flags & libc::MSG_DONTWAIT == 0 && !socket.is_nonblocking();
    let waits = process.lock().sockets.find(key).is_some_and(may_wait);
    let found = find_way(process, fd, key, to, waits);
    errno::set(saved);
    let mut guard = process.lock();
    let offload = &mut *guard;
    let now = process.now();
    let Some(socket) = offload.sockets.find_mut(key) else { return Err(Errno(libc::EBADF)) };
    match (found, socket.flow_to(to)) {
        (Ok(hop), Some(id)) => {
            let station = hop.mac;
            socket.take_route(Route { to: Some(to), by: By::station(hop, now) });
            let result = send_on_ring(offload, id, data, to, station, now);
            offload.dispatch();
            match result {
                Err(Error::HostUnreachable) => {}
                Err(Error::WouldBlock) => {
                    drop(guard);
                    return wait_for_room(process, key, data, (to, flags));
                }
                result => return result.map_err(Errno::from),
            }
        }
        (Err(Unreachable::Unasked), _) => socket.take_route(Route { to: Some(to), by: By::unasked(now) }),
        (Ok(_), _) => socket.take_route(socket.route.left_to_kernel(to, now)),
        (Err(unreachable), _) => {
            socket.take_route(socket.route.left_to_kernel(to, now));
            match unreachable {
                Unreachable::Because(reason) => offload.decided("send", Some(reason)),
                Unreachable::ByRule(rule) => {
                    tracing::debug!("datagrams to {to} are left to the kernel by {rule}");
                    offload.decided("send", Some(Reason::Rule));
                }
                Unreachable::NotAnAddress | Unreachable::Unasked => {}
            }
        }
    }
    drop(guard);
    by_kernel(fd, kernel)
}

fn by_kernel(fd: c_int, kernel: &dyn Fn() -> isize) -> Result<usize, Errno> {
    let _masked = Masked::new();
    let sent = usize::try_from(kernel()).map_err(|_| Errno::last())?;
    fdtable::count_kernel_tx(fd);
    fd_counters::kernel_said(fd, Way::Tx, sent.cast_signed());
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who has bound its address a moment ago is found as soon as it publishes it, and who never does is hardly ever asked for.
    #[test]
    fn what_is_the_kernels_is_asked_for_at_once_and_then_ever_less_often() {
        let (to, other) = (SocketAddr::from(([127, 0, 0, 1], 7)), SocketAddr::from(([127, 0, 0, 1], 8)));
        let mut route = Route::default();
        let mut now = Instant::ZERO;
        let mut spells = Vec::new();
        while spells.len() < 10 {
            route = route.left_to_kernel(to, now);
            let By::Kernel(until, _) = route.by else { panic!("{route:?}") };
            spells.push(until.since(now).as_millis());
            now = until;
        }
        assert_eq!(spells, [1, 2, 4, 8, 16, 32, 64, 128, 128, 128]);
        let By::Kernel(until, _) = route.left_to_kernel(other, now).by else { panic!("{route:?}") };
        assert_eq!(until, now + KERNEL_FOR_MIN, "of another destination nothing is known");
        let asked = Route { to: Some(to), by: By::unasked(now) };
        let By::Kernel(until, _) = asked.left_to_kernel(to, now).by else { panic!("{asked:?}") };
        assert_eq!(until, now + KERNEL_FOR_MIN);
    }
}
