//! connect(2) on a UDP socket.

use core::ffi::c_int;
use std::net::SocketAddr;

use libc::{sockaddr, socklen_t};
use ringway_devices::Resolved;
use ringway_params::rules::Role;
use ringway_stack::Error;
use ringway_stack::device::MacAddr;
use ringway_stack::offload::Reason;
use ringway_stack::ring::NextHop;

use super::ensure_published;
use crate::errno::{Errno, THEIRS};
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::socket::address::{self, Address};
use crate::socket::connect::kernel_result;
use crate::socket::flows::Flow;
use crate::socket::routes::Way;
use crate::socket::ways::{self, Unreachable, sendable};
use crate::socket::{Family, Kind, Socket, sharing};
use crate::{mux, real, rules};

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
    let is_out = matches!(to, Address::Ip(to) if ways::is_out(process, key, to, &found));
    // (Whom nobody has yet on this machine, somebody may have soon.)
    if is_out || matches!(found, Ok(_) | Err(Unreachable::Unasked | Unreachable::Because(Reason::NoOffloadedPeer))) {
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
    offload.fit_flows(key);
    if let Some(remote) = peer {
        let is_chosen = offload.sockets.find(key).is_some_and(|socket| socket.ring == ring);
        note_way(process, offload, key, remote, found.map(|(_, hop)| is_chosen.then_some(hop)));
    }
    connect_flows(offload, fd, key);
    offload.settle_groups();
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
    let out = if matches!(found, Err(Unreachable::Because(Reason::NotLocal))) { offload.way_out(key, remote) } else { None };
    let generation = offload.interfaces.as_ref().map_or(0, |interfaces| interfaces.generation());
    let Some(socket) = offload.sockets.find_mut(key) else { return };
    socket.routes.follow(generation);
    socket.routes.forget(remote);
    if let Some(way) = out {
        return socket.routes.by_flow(remote, way);
    }
    match found {
        Ok(Some(member)) => match socket.flow_to(remote) {
            Some(flow) => socket.routes.by_flow(remote, Way::to_member(flow, remote, member, now)),
            None => socket.routes.left_to_kernel(remote, now),
        },
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

/// Tells the flows of a UDP socket who its peer is, and which local address the kernel has given it for that.
pub(super) fn connect_flows(offload: &mut Offload, fd: c_int, key: Key) {
    let Some(socket) = offload.sockets.find(key) else { return };
    let Kind::Datagram(Some(first)) = socket.kind else { return };
    let (peer, kernels) = (socket.peer, address::of_placeholder(fd, socket.family));
    // A peer that only the kernel reaches is named so that strangers are filtered; nothing is sent to that address.
    let nowhere = NextHop::Mac(MacAddr::default());
    let remote = |id| peer.map(|peer| (peer, socket.routes.sending_by(id, peer).map_or(nowhere, |sending| sending.hop)));
    // (What came to where it was before came before.)
    let hears = socket.flows_and_addresses().filter(|flow| !socket.is_former(flow.id));
    let flows: Vec<_> = hears.map(|flow| (flow, remote(flow.id))).collect();
    for (Flow { id, at }, remote) in flows {
        let source = kernels.filter(|local| local.is_ipv4() == at.is_ipv4()).unwrap_or(address::any(Family::of_ip(at))).ip();
        let Err(error) = offload.rings.of_mut(id).udp_connect(id, source, remote) else { continue };
        tracing::info!("what comes for a datagram socket that is connected from {source} is left to the kernel: {error}");
        if id == first {
            offload.close_flows(key);
            let reason = if error == Error::AddressInUse { Reason::RuleTaken } else { Reason::TooManyRules };
            return offload.leave_to_kernel(key, "connect", reason);
        }
        offload.close_flow(key, id);
    }
}
