//! UDP: one socket, two worlds. The ring's datagrams and the kernel's are received alike; where one is sent is decided
//! for each destination, and remembered.

mod connect;
mod receive;

use core::ffi::c_int;
use core::time::Duration;
use std::io::IoSlice;
use std::net::SocketAddr;

use ringway_host::sleep::ppoll;
use ringway_params::rules::Role;
use ringway_stack::offload::Reason;
use ringway_stack::ring::{FlowId, NextHop};
use ringway_stack::socket::Direction;
use ringway_stack::{Error, Instant};

pub(crate) use self::connect::connect;
pub(crate) use self::receive::{First, KernelPoll, Received, look_first, nothing_came, receive, receive_at_length, wait_for_more};
pub(in crate::socket) use self::receive::{ask_kernel, from_kernel};
use super::address::{self, Address};
use super::routes::Sending;
use super::ways::{self, Unreachable};
use super::{Kind, Socket, sharing, vectors};
use crate::cancel::Masked;
use crate::errno::{self, Errno};
use crate::fd_counters::{self, Way};
use crate::interfaces::{Interfaces, cards};
use crate::lock::Guard;
use crate::process::{Offload, Process};
use crate::rings::Rings;
use crate::slab::Key;
use crate::{fdtable, mux, real};

/// How long a sender waits for a receiver that does not empty its queue. On a machine with more to do than processors, the receiver's progress
/// thread may not have its turn for as long.
const ROOM_WITHIN: Duration = Duration::from_millis(500);

/// The same, where the sender is not to block: two of that thread's ticks, as they are by default.
const ROOM_AT_ONCE: Duration = Duration::from_millis(20);

/// The most bytes of a datagram of IPv6 that are one packet of the ring's, which has 65535 bytes with its headers. (The kernel sends a few more, in
/// fragments; of IPv4 there are no longer ones.)
pub(super) const V6_MAX: usize = 65_487;

/// How often a destination is asked for whose way ends while its sender waits there for room.
const ASKED_MAX: usize = 16;

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
    let opened = offload.open_flows(key);
    let reason = opened.err().map(|error| if error == Error::AddressInUse { Reason::RuleTaken } else { Reason::TooManyRules });
    if let Some(socket) = offload.sockets.find_mut(key) {
        socket.reason = reason;
    }
    offload.decided("bind", reason);
    mux::refresh(offload, key.index);
}

/// Gives the socket an address and a rule, if it can have them: what a sender needs to be answered.
pub(super) fn ensure_published(process: &Process, fd: c_int, key: Key) {
    cards::provide_for_datagrams(key, fd);
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
        connect::connect_flows(offload, fd, key);
    }
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
    (to, flags): (Option<&Address>, c_int),
    kernel: &dyn Fn() -> isize,
) -> Result<usize, Errno> {
    let is_expected = !guard.rings.are_locked() && guard.rings.first().callers.expects_caller();
    if !is_expected && let Some(id) = guard.sockets.find(key).and_then(Socket::ring_id) {
        guard.note_caller(key, id, Direction::Tx);
    }
    let Offload { sockets, interfaces, rings, .. } = &mut *guard;
    let Some(socket) = sockets.find_mut(key) else { return Err(Errno(libc::EBADF)) };
    let (peer, this_host);
    let to = match to {
        None => {
            peer = socket.peer;
            peer.as_ref()
        }
        Some(Address::Ip(to)) if to.ip().is_unspecified() => {
            this_host = address::destination(*to);
            Some(&this_host)
        }
        Some(Address::Ip(to)) => Some(to),
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
    match remembered(process, interfaces.as_deref(), socket, to, now) {
        Some(Some((known, sending))) => {
            let (flow, result) = (sending.flow, send_by(rings, sending, data, known, now));
            let offload = &mut *guard;
            offload.dispatch();
            match fate(offload, flow, result) {
                Fate::Told(result) => {
                    offload.say_if_datagrams_are_plain(key, flow);
                    return result;
                }
                // Whoever has the address now is asked for below.
                Fate::Gone => {}
                Fate::NoRoom => {
                    drop(guard);
                    return match wait_for_room(process, key, data, (*to, flags)) {
                        Some(sent) => sent,
                        None => send_after_asking(process, (fd, key), data, (*to, flags), kernel),
                    };
                }
                Fate::TooLong => {
                    drop(guard);
                    return by_kernel(fd, kernel);
                }
            }
        }
        Some(None) => {
            drop(guard);
            return by_kernel(fd, kernel);
        }
        None => {}
    }
    drop(guard);
    send_after_asking(process, (fd, key), data, (*to, flags), kernel)
}

/// How a datagram to there would go on a ring, which is found out if it is not known. `None`: on none.
pub(crate) fn way(process: &Process, fd: c_int, key: Key, to: Option<Address>) -> Option<(Sending, SocketAddr)> {
    let mut guard = process.lock();
    let Offload { sockets, interfaces, .. } = &mut *guard;
    let socket = sockets.find_mut(key)?;
    let to = match to {
        None => socket.peer?,
        Some(Address::Ip(to)) => address::destination(to),
        Some(_) => return None,
    };
    let now = process.now();
    if let Some(sending) = remembered(process, interfaces.as_deref(), socket, &to, now) {
        let sending = sending.map(|(_, sending)| *sending);
        return sending.filter(|sending| socket.has_flow(sending.flow)).map(|sending| (sending, to));
    }
    drop(guard);
    let _masked = Masked::new();
    let found = ways::way(process, (fd, key), to, false);
    let mut guard = process.lock();
    let socket = guard.sockets.find_mut(key)?;
    let Ok(way) = found else {
        socket.routes.left_to_kernel(to, now);
        return None;
    };
    let sending = way.sending();
    socket.routes.by_flow(to, way);
    Some((sending, to))
}

/// The remembered way to a destination: `Some(None)` is the kernel, `None` is not known.
#[inline]
fn remembered<'s>(
    process: &Process,
    interfaces: Option<&Interfaces>,
    socket: &'s mut Socket,
    to: &SocketAddr,
    now: Instant,
) -> Option<Option<(&'s SocketAddr, &'s Sending)>> {
    if let Some(interfaces) = interfaces {
        socket.routes.follow(interfaces.generation());
    }
    socket.routes.find(to, process.rendezvous_at(socket.ring), now)
}

#[inline(always)]
fn send_by(rings: &mut Rings, sending: &Sending, data: &[IoSlice<'_>], to: &SocketAddr, now: Instant) -> Result<usize, Error> {
    let &Sending { flow, source, hop, .. } = sending;
    if !sending.carries(data, to) {
        return Err(Error::MessageTooLong);
    }
    rings.of_mut(flow).udp_try_send(now, flow, data, source, Some((to, hop)))
}

/// What becomes of a datagram.
enum Fate {
    /// Its sender is told so.
    Told(Result<usize, Errno>),
    /// Its way leads there no more: the member died, or the flow was closed.
    Gone,
    NoRoom,
    /// It is no packet of the ring's. The kernel sends it in fragments, or says what it thinks of it.
    TooLong,
}

#[inline]
fn fate(offload: &Offload, flow: FlowId, result: Result<usize, Error>) -> Fate {
    match result {
        // (Of an interface it is the network's answer.)
        Err(Error::HostUnreachable) if !offload.rings.interfaces.contains(flow.ring) => Fate::Gone,
        Err(Error::BadSocket) => Fate::Gone,
        Err(Error::WouldBlock) => Fate::NoRoom,
        Err(Error::MessageTooLong) => Fate::TooLong,
        result => Fate::Told(result.map_err(Errno::from)),
    }
}

/// The way to the receiver is full. It is emptied into the receivers' buffers by whoever waits there, else by the progress thread of the receiver's process,
/// which has been woken: a moment later there is room. The kernel's loopback has no such way, and its sender spends the time of the
/// delivery itself, whether it blocks or not. A receiver that does not move in all that time (it is stopped, say) loses the datagram, and no
/// other is waited for until it has moved. `None`: the way leads there no more; whoever has the address now is to be asked for.
#[cold]
fn wait_for_room(process: &Process, key: Key, data: &[IoSlice<'_>], (to, flags): (SocketAddr, c_int)) -> Option<Result<usize, Errno>> {
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
            let Offload { sockets, interfaces, .. } = &mut *offload;
            let Some(socket) = sockets.find_mut(key) else { return Some(Err(Errno(libc::EBADF))) };
            let nonblocking = socket.nonblocking || flags & libc::MSG_DONTWAIT != 0;
            let rest = (began + if nonblocking { ROOM_AT_ONCE } else { ROOM_WITHIN }).since(now);
            let Some(Some((_, sending))) = remembered(process, interfaces.as_deref(), socket, &to, now) else {
                errno::set(saved);
                return None;
            };
            let sending = *sending;
            let mut sent = send_by(&mut offload.rings, &sending, data, &to, now);
            if sent == Err(Error::WouldBlock) && gives_up(offload, sending, rest) {
                let Sending { flow, source, hop, .. } = sending;
                sent = offload.rings.of_mut(flow).udp_send(now, flow, data, source, Some((to, hop)));
                // VMA_TX_NONBLOCKED_EAGAINS: it is the program's to send again, where it does not block.
                if sent.is_ok() && nonblocking && process.params.tx_nonblocked_eagains {
                    sent = Err(Error::WouldBlock);
                }
                offload.dispatch();
                errno::set(saved);
                return Some(sent.map_err(Errno::from));
            }
            offload.dispatch();
            if sent != Err(Error::WouldBlock) {
                errno::set(saved);
                return Some(sent.map_err(Errno::from));
            }
            rest
        };
        let _ = ppoll(&mut [], Some(ROOM_EVERY.min(rest)), None);
    }
}

/// Whether no room is waited for any longer, for there is no time left, or nothing moves there: then nobody else waits there until it does.
fn gives_up(offload: &mut Offload, Sending { flow, hop, .. }: Sending, rest: Duration) -> bool {
    let NextHop::Mac(mac) = hop else { return true };
    let ring = offload.rings.of_mut(flow);
    let gives_up = rest.is_zero() || !ring.is_worth_waiting(mac);
    if gives_up {
        ring.give_up(mac);
    }
    gives_up
}

/// The destination is not known: ask who has it, or where it is, and send; and again, if it has another ring since.
#[cold]
fn send_after_asking(
    process: &Process,
    names: (c_int, Key),
    data: &[IoSlice<'_>],
    way: (SocketAddr, c_int),
    kernel: &dyn Fn() -> isize,
) -> Result<usize, Errno> {
    let sent = (0..ASKED_MAX).find_map(|_| ask_and_send(process, names, data, way, kernel));
    // (What was sent to who is always somewhere else is lost.)
    sent.unwrap_or_else(|| Ok(vectors::total(data)))
}

/// Asks (without the lock), remembers, and sends. `None`: the way that it had for a moment leads there no more.
fn ask_and_send(
    process: &Process,
    (fd, key): (c_int, Key),
    data: &[IoSlice<'_>],
    (to, flags): (SocketAddr, c_int),
    kernel: &dyn Fn() -> isize,
) -> Option<Result<usize, Errno>> {
    let saved = errno::current();
    let _masked = Masked::new();
    let may_wait = |socket: &Socket| flags & libc::MSG_DONTWAIT == 0 && !socket.is_nonblocking();
    let waits = process.lock().sockets.find(key).is_some_and(may_wait);
    let found = ways::way(process, (fd, key), to, waits);
    errno::set(saved);
    let mut guard = process.lock();
    let offload = &mut *guard;
    let now = process.now();
    let Some(socket) = offload.sockets.find_mut(key) else { return Some(Err(Errno(libc::EBADF))) };
    match found {
        Ok(way) => {
            let sending = way.sending();
            socket.routes.by_flow(to, way);
            // (While it was left to the kernel, nothing else was.)
            socket.reason.take_if(|reason| *reason == Reason::NotLocal);
            let result = send_by(&mut offload.rings, &sending, data, &to, now);
            offload.dispatch();
            match fate(offload, sending.flow, result) {
                Fate::Told(result) => return Some(result),
                Fate::Gone | Fate::TooLong => {}
                Fate::NoRoom => {
                    drop(guard);
                    return wait_for_room(process, key, data, (to, flags));
                }
            }
        }
        Err(Unreachable::Unasked) => socket.routes.unasked(to, now),
        Err(unreachable) => {
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
    Some(by_kernel(fd, kernel))
}

fn by_kernel(fd: c_int, kernel: &dyn Fn() -> isize) -> Result<usize, Errno> {
    let _masked = Masked::new();
    let sent = usize::try_from(kernel()).map_err(|_| Errno::last())?;
    fdtable::count_kernel_tx(fd);
    fd_counters::kernel_said(fd, Way::Tx, sent.cast_signed());
    Ok(sent)
}
