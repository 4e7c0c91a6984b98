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
use crate::devices::Resolved;
use crate::errno::{self, Errno, THEIRS};
use crate::fd_counters::{self, Way};
use crate::lock::Guard;
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::{fdtable, mux, real, rules};

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
        connect_on_ring(offload, fd, key);
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
    if let Some(remote) = peer {
        let is_chosen = socket.ring == ring;
        note_way(process, offload, key, remote, found.map(|(_, hop)| is_chosen.then_some(hop)));
    }
    connect_on_ring(offload, fd, key);
    offload.dispatch();
    drop(guard);
    if let Some(former) = former {
        former.lets_go(process);
    }
    Ok(0)
}

/// How a socket's peer was found to be reached. `Ok(None)`: another thread was first, so that it is on that one's ring.
fn note_way(process: &Process, offload: &mut Offload, key: Key, remote: SocketAddr, found: Result<Option<Resolved>, Unreachable>) {
    let now = process.now();
    let Some(socket) = offload.sockets.find_mut(key) else { return };
    socket.routes.forget(remote);
    match found {
        Ok(Some(hop)) => socket.routes.over_ring(remote, hop, now),
        Ok(None) | Err(Unreachable::NotAnAddress) => {}
        Err(Unreachable::Because(reason)) => {
            socket.routes.left_to_kernel(remote, now);
            let is_undecided = matches!(socket.reason, Some(Reason::Undecided | Reason::NoOffloadedPeer));
            if socket.kind == Kind::Datagram(None) && is_undecided {
                socket.reason = Some(reason);
            }
            offload.decided("connect", Some(reason));
        }
        // Sending is the kernel's; what comes may still come on the ring.
        Err(Unreachable::ByRule(rule)) => {
            tracing::info!("datagrams to {remote} are left to the kernel by {rule}");
            socket.routes.left_to_kernel(remote, now);
            offload.decided("connect", Some(Reason::Rule));
        }
        Err(Unreachable::Unasked) => socket.routes.unasked(remote, now),
    }
}

/// A rule for udp_connect leaves the whole socket to the kernel, in both directions.
fn leave_whole(process: &Process, key: Key, to: SocketAddr) -> bool {
    let mut guard = process.lock();
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find(key) else { return false };
    let Some(rule) = rules::leave(Role::UdpConnect, address::destination(to), socket.bound) else { return false };
    offload.close_flows(key);
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
    let Kind::Datagram(Some(_)) = socket.kind else { return };
    if address::of_placeholder(fd, socket.family).is_none_or(|local| local.port() != 0) {
        return;
    }
    socket.bound = None;
    socket.reason = Some(Reason::Undecided);
    offload.close_flows(key);
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
fn connect_on_ring(offload: &mut Offload, fd: c_int, key: Key) {
    offload.keep_peers_flow(key);
    let Some(socket) = offload.sockets.find(key) else { return };
    let Kind::Datagram(Some(id)) = socket.kind else { return };
    // A peer that only the kernel reaches is named so that strangers are filtered; nothing is sent to that MAC address.
    let way = socket.peer.and_then(|peer| socket.routes.way_to(peer));
    let hop = NextHop::Mac(way.map_or(MacAddr::default(), |way| way.hop.mac));
    let kernels = address::of_placeholder(fd, socket.family).filter(|local| Family::of(*local) == socket.flow_family);
    let source = kernels.unwrap_or(address::any(socket.flow_family)).ip();
    if let Err(error) = offload.rings.of_mut(id).udp_connect(id, source, socket.peer.map(|peer| (peer, hop))) {
        tracing::info!("a datagram socket that is connected from {source} is left to the kernel: {error}");
        offload.close_flows(key);
        let reason = if error == Error::AddressInUse { Reason::RuleTaken } else { Reason::TooManyRules };
        offload.leave_to_kernel(key, "connect", reason);
    }
    offload.set_peer_beyond(key);
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
            // The member died meanwhile: whoever has the address now is asked for below.
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
        return way.map(|mac| (id, mac, to));
    }
    drop(guard);
    let _masked = Masked::new();
    let found = find_way(process, fd, key, to, false);
    let mut guard = process.lock();
    let socket = guard.sockets.find_mut(key)?;
    let (Ok(hop), Some(id)) = (found, socket.flow_to(to)) else {
        socket.routes.left_to_kernel(to, now);
        return None;
    };
    let mac = hop.mac;
    socket.routes.over_ring(to, hop, now);
    Some((id, mac, to))
}

/// The remembered way to a destination: `Some(None)` is the kernel, `None` is not known.
#[inline]
fn remembered(process: &Process, socket: &mut Socket, to: SocketAddr, now: Instant) -> Option<Option<MacAddr>> {
    socket.routes.find(to, process.rendezvous_at(socket.ring), now)
}

#[inline]
fn send_on_ring(
    offload: &mut Offload,
    id: FlowId,
    data: &[IoSlice<'_>],
    to: SocketAddr,
    mac: MacAddr,
    now: Instant,
) -> Result<usize, Error> {
    let source = address::source_for(to.ip());
    offload.rings.of_mut(id).udp_try_send(now, id, data, source, Some((to, NextHop::Mac(mac))))
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
            let (Some(Some(mac)), Some(id)) = (remembered(process, socket, to, now), socket.flow_to(to)) else {
                // What was sent to a process that is gone is lost.
                return Ok(data.iter().map(|part| part.len()).sum());
            };
            let mut sent = send_on_ring(offload, id, data, to, mac, now);
            let device = offload.rings.of_mut(id).queues_mut();
            if sent == Err(Error::WouldBlock) && (rest.is_zero() || !device.is_worth_waiting(mac)) {
                device.give_up(mac);
                let source = address::source_for(to.ip());
                sent = offload.rings.of_mut(id).udp_send(now, id, data, source, Some((to, NextHop::Mac(mac))));
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
            let mac = hop.mac;
            socket.routes.over_ring(to, hop, now);
            let result = send_on_ring(offload, id, data, to, mac, now);
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
        (Err(Unreachable::Unasked), _) => socket.routes.unasked(to, now),
        (Ok(_), _) => socket.routes.left_to_kernel(to, now),
        (Err(unreachable), _) => {
            socket.routes.left_to_kernel(to, now);
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
