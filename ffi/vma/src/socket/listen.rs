//! bind(2), listen(2) and shutdown(2), in both worlds: bind first in the kernel, so that both show the same address; listen first on the ring, so that who finds
//! the kernel's listener finds the ring's.

use core::ffi::c_int;

use libc::{sockaddr, socklen_t};
use ringway_params::rules::Role;
use ringway_stack::offload::Reason;
use ringway_stack::ring::{FlowId, Shutdown};
use ringway_stack::{Error, tcp};

use super::address::{self};
use super::connect::kernel_result;
use super::{Kind, Socket, datagram, sharing};
use crate::cancel::Masked;
use crate::errno::{self, Errno};
use crate::interfaces::cards;
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::{mux, real};

/// Linux's net.core.somaxconn: the ceiling of a backlog.
const BACKLOG_MAX: i32 = 4096;

/// bind(2).
///
/// # Errors
/// As bind(2): the kernel's; EINVAL where the socket is connected.
///
/// # Safety
/// `raw` is null, or `len` bytes can be read there.
pub(crate) unsafe fn bind(process: &Process, fd: c_int, key: Key, raw: *const sockaddr, len: socklen_t) -> Result<c_int, Errno> {
    // A connection that was accepted is bound; its placeholder is not.
    if matches!(process.lock().sockets.find(key).map(|s| s.kind), Some(Kind::Stream(_))) {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the caller's promise.
    let former = unsafe { sharing::former_receiver_of_address(process, fd, key, raw, len) };
    // SAFETY: the caller's promise.
    kernel_result(unsafe { real::bind(fd, raw, len) })?;
    cards::provide_for_datagrams(key, fd);
    let mut guard = process.lock();
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find_mut(key) else { return Ok(0) };
    let local = address::of_placeholder(fd, socket.family);
    let is_chosen = socket.reuse_port && local.is_some_and(|local| sharing::is_chosen_by_program(offload, key, local));
    let Some(socket) = offload.sockets.find_mut(key) else { return Ok(0) };
    match (socket.kind, local) {
        (Kind::Fresh | Kind::Datagram(None), Some(_)) if is_chosen => offload.leave_to_kernel(key, "bind", Reason::KernelOnlyOption),
        (Kind::Fresh, Some(local)) => socket.bound = Some(local),
        (Kind::Datagram(None), Some(local)) => {
            socket.bound = Some(local);
            datagram::publish(process, offload, key);
        }
        (Kind::Fresh | Kind::Datagram(None), None) => offload.leave_to_kernel(key, "bind", Reason::Family),
        _ => {}
    }
    offload.settle_groups();
    drop(guard);
    if let Some(former) = former {
        former.lets_go(process);
    }
    Ok(0)
}

/// listen(2).
///
/// # Errors
/// As listen(2): the kernel's.
pub(crate) fn listen(process: &Process, fd: c_int, key: Key, backlog: c_int) -> Result<c_int, Errno> {
    let connected = |kind| matches!(kind, Kind::Connecting(_) | Kind::Stream(_) | Kind::Moving);
    if process.lock().sockets.find(key).is_some_and(|s| connected(s.kind)) {
        return Err(Errno(libc::EINVAL));
    }
    // Who finds the kernel's listener is to find the ring's: that is there first, unless the kernel has yet to choose a port.
    let is_early = process.lock().sockets.find(key).is_some_and(|socket| socket.kind == Kind::Fresh && socket.bound.is_some());
    if is_early {
        listen_on_ring(process, fd, key, backlog);
    }
    // SAFETY: plain integers.
    if let Err(refused) = kernel_result(unsafe { real::listen(fd, backlog) }) {
        if is_early {
            take_back(&mut process.lock(), key);
        }
        return Err(refused);
    }
    if !is_early {
        listen_on_ring(process, fd, key, backlog);
    }
    Ok(0)
}

/// The ring's half of listen(2).
fn listen_on_ring(process: &Process, fd: c_int, key: Key, backlog: c_int) {
    cards::provide_for_bound(key);
    let mut guard = process.lock();
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find_mut(key) else { return };
    // A negative backlog is a huge one: the kernel compares it unsigned.
    // (A backlog of zero lets one connection wait: one more than its number, as any.)
    socket.backlog = if backlog < 0 { BACKLOG_MAX } else { backlog.min(BACKLOG_MAX) };
    match socket.kind {
        Kind::Fresh => {
            socket.bound = address::of_placeholder(fd, socket.family);
            inherit_v6_only(socket);
            socket.waited |= socket.watch.is_watched();
            let is_shared = socket.reuse_port;
            publish(offload, key);
            let ring = offload.sockets.find(key).map_or(0, |socket| socket.ring);
            drop(guard);
            if is_shared {
                let _masked = Masked::new();
                process.rendezvous_at(ring).await_joined();
            }
        }
        Kind::Listener(Some(_)) => {
            for id in socket.flows() {
                if let Err(error) = offload.rings.of_mut(id).tcp_set_backlog(id, socket.backlog as usize) {
                    tracing::debug!("the backlog was not changed: {error}");
                }
            }
        }
        _ => {}
    }
}

/// The kernel does not listen after all: nor does the ring.
fn take_back(offload: &mut Offload, key: Key) {
    offload.close_flows(key);
    let Some(socket) = offload.sockets.find_mut(key).filter(|socket| matches!(socket.kind, Kind::Listener(_))) else { return };
    (socket.kind, socket.reason) = (Kind::Fresh, None);
    socket.others.clear();
    mux::refresh(offload, key.index);
    offload.dispatch();
}

/// What is accepted shows IPV6_V6ONLY as its listener does: by the kernel's account, one has it that is bound to an address of IPv6 (inet6_bind).
fn inherit_v6_only(socket: &mut Socket) {
    if address::is_v6_only(socket.fd, socket.family) {
        socket.inherited.retain(|&(level, name, _)| (level, name) != (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY));
        socket.inherited.push((libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1));
    }
}

/// Makes the ring listen where the placeholder does. What does not work is left to the kernel, with its reason.
pub(crate) fn publish(offload: &mut Offload, key: Key) {
    let Some(socket) = offload.sockets.find_mut(key) else { return };
    let Some(local) = socket.bound else {
        offload.leave_to_kernel(key, "listen", Reason::Family);
        return;
    };
    if let Some(rule) = socket.left_by_rule(Role::TcpServer, local) {
        offload.leave_by_rule(key, "listen", rule);
        return;
    }
    let before = socket.kind;
    // (A wait that publishes leaves errno alone, and the names that others have make it EADDRINUSE.)
    let saved = errno::current();
    let opened = offload.open_flows(key);
    errno::set(saved);
    match opened {
        Ok(()) => {
            if let Some(socket) = offload.sockets.find_mut(key) {
                socket.reason = None;
            }
            offload.decided("listen", None);
        }
        Err(error) => {
            let reason = if error == Error::AddressInUse { Reason::RuleTaken } else { Reason::TooManyRules };
            let Some(socket) = offload.sockets.find_mut(key) else { return };
            socket.kind = Kind::Listener(None);
            // Tried again and again, it is said and counted once.
            let is_news = socket.reason.replace(reason) != Some(reason);
            if is_news {
                tracing::info!("{local} is served by the kernel only: {error}");
                offload.decided("listen", Some(reason));
            }
        }
    }
    if offload.sockets.find(key).is_some_and(|socket| socket.kind != before) {
        mux::refresh(offload, key.index);
    }
    offload.dispatch();
}

/// The process is about to wait for a listener's connections. If it left the rule to others so far, it tries to have it now.
pub(crate) fn awaited(offload: &mut Offload, key: Key) {
    let Some(socket) = offload.sockets.find_mut(key).filter(|socket| matches!(socket.kind, Kind::Listener(_))) else { return };
    let had_waited = core::mem::replace(&mut socket.waited, true);
    if socket.is_left_by_fork {
        offload.return_to_interfaces(key);
    }
    if !had_waited {
        retry(offload, key);
    }
}

/// A listener whose rule another process held may have it now (that process is gone, or gave it up).
pub(crate) fn retry(offload: &mut Offload, key: Key) {
    let Some(socket) = offload.sockets.find(key) else { return };
    if socket.kind == Kind::Listener(None) && socket.reason == Some(Reason::RuleTaken) {
        publish(offload, key);
    }
}

/// Before a fork: the rules of listeners that nobody here ever waited on are given up, so that a child that does wait can have
/// them. A server that merely forks a helper gets them back with its first wait. `true`: some have connections that wait to be
/// accepted, and must go to the kernel first, where any of the processes will find them ([`crate::moving::retreat`]).
pub(crate) fn give_up_unawaited(process: &Process, offload: &mut Offload) -> bool {
    // A handshake's last segment may be there already.
    offload.poll_if_due(process.now());
    let unawaited = unawaited(offload);
    let mut some_wait = false;
    for (key, _) in unawaited {
        if !is_quiet(offload, key) {
            some_wait = true;
            continue;
        }
        give_up(offload, key);
    }
    some_wait
}

/// Whether nobody is on the way to a listener, or waits there to be accepted.
pub(crate) fn is_quiet(offload: &Offload, key: Key) -> bool {
    let is_quiet = |id| offload.rings.of(id).tcp_half_open(id) == 0 && offload.rings.of(id).tcp_waiting(id).is_empty();
    offload.sockets.find(key).is_none_or(|socket| socket.flows().all(is_quiet))
}

/// Leaves a listener's rule to other processes, until this one waits on it.
pub(crate) fn give_up(offload: &mut Offload, key: Key) {
    offload.close_flows(key);
    left_to_others(offload, key);
    offload.dispatch();
}

/// A listener has its kernel's half only, until this process waits on it.
pub(crate) fn left_to_others(offload: &mut Offload, key: Key) {
    let Some(socket) = offload.sockets.find_mut(key) else { return };
    socket.kind = Kind::Listener(None);
    socket.others.clear();
    socket.reason = Some(Reason::RuleTaken);
    socket.waited = false;
    mux::refresh(offload, key.index);
}

/// What the listeners of the ring have there that nobody here ever waited on.
pub(crate) fn unawaited(offload: &Offload) -> Vec<(Key, FlowId)> {
    let unawaited = offload.sockets.iter().filter(|(_, socket)| !socket.waited && matches!(socket.kind, Kind::Listener(_)));
    unawaited.flat_map(|(key, socket)| socket.flows().map(move |id| (key, id))).collect()
}

/// The kernel's listener has ended, or is about to: it is published no more, and has nothing on any ring.
pub(super) fn end(offload: &mut Offload, key: Key) {
    let Some(socket) = offload.sockets.find_mut(key) else { return };
    if let Kind::Listener(id) = socket.kind {
        socket.reason = None;
        if id.is_some() {
            offload.close_flows(key);
            mux::refresh(offload, key.index);
            offload.dispatch();
        }
    }
}

/// shutdown(2).
///
/// # Errors
/// As shutdown(2): ENOTCONN, EINVAL.
pub(crate) fn shutdown(process: &Process, fd: c_int, key: Key, how: c_int) -> Result<c_int, Errno> {
    let ends = match how {
        libc::SHUT_RD => Shutdown::Read,
        libc::SHUT_WR => Shutdown::Write,
        libc::SHUT_RDWR => Shutdown::Both,
        _ => return Err(Errno(libc::EINVAL)),
    };
    let mut guard = process.lock();
    let offload = &mut *guard;
    offload.catch_up(process.now());
    let Some(socket) = offload.sockets.find_mut(key) else { return Err(Errno(libc::EBADF)) };
    match socket.kind {
        // inet_shutdown: a handshake under way is given up, and the socket as new.
        Kind::Connecting(id) if offload.rings.of(id).info(id).is_some_and(|info| info.state == Some(tcp::State::SynSent)) => {
            socket.kind = Kind::Fresh;
            socket.peer = None;
            socket.rare().error = Some(libc::ECONNRESET);
            offload.rings.of_mut(id).close(process.now(), id, true);
            mux::refresh(offload, key.index);
            offload.dispatch();
            Ok(0)
        }
        Kind::Connecting(id) | Kind::Stream(id) => {
            let result = offload.rings.of_mut(id).shutdown(process.now(), id, ends);
            // The program knows now how its connect ended, as far as the kernel is concerned (inet_shutdown).
            socket.kind = Kind::Stream(id);
            if result.is_ok() {
                // Linux takes a connection whose end it shut down for connected, whoever asked how connect went (inet_shutdown).
                if offload.rings.of(id).info(id).and_then(|info| info.state).is_some_and(|state| state.is_synchronized()) {
                    socket.kind = Kind::Stream(id);
                }
                socket.shut.read |= ends != Shutdown::Write;
                socket.shut.write |= ends != Shutdown::Read;
            }
            mux::refresh(offload, key.index);
            offload.dispatch();
            result.map(|()| 0).map_err(Errno::from)
        }
        // The kernel's listener ends with SHUT_RD, and the ring's with it.
        Kind::Listener(_) if ends != Shutdown::Write => {
            end(offload, key);
            drop(guard);
            // SAFETY: plain integers.
            kernel_result(unsafe { real::shutdown(fd, how) })
        }
        Kind::Moving => {
            drop(guard);
            // (What is done to the placeholder of a connection that stays would be lost.)
            if crate::moving::stays(process, fd, key) {
                return shutdown(process, fd, key, how);
            }
            // SAFETY: plain integers.
            kernel_result(unsafe { real::shutdown(fd, how) })
        }
        Kind::Datagram(Some(_)) => {
            // The kernel knows whether it is connected; it ends its half, and wakes who waits there. Where it says ENOTCONN it has
            // ended it nevertheless, as the ring does.
            // SAFETY: plain integers.
            let result = kernel_result(unsafe { real::shutdown(fd, how) });
            if matches!(result, Ok(_) | Err(Errno(libc::ENOTCONN))) {
                socket.shut.write |= ends != Shutdown::Read;
                for id in socket.flows() {
                    // Its answer is the kernel's.
                    let _ = offload.rings.of_mut(id).shutdown(process.now(), id, ends);
                }
            }
            mux::refresh(offload, key.index);
            offload.dispatch();
            result
        }
        Kind::Fresh => {
            // ENOTCONN, and yet it is remembered: the kernel's poll shows it.
            socket.shut.read |= ends != Shutdown::Write;
            drop(guard);
            // SAFETY: plain integers.
            kernel_result(unsafe { real::shutdown(fd, how) })
        }
        _ => {
            drop(guard);
            // SAFETY: plain integers.
            kernel_result(unsafe { real::shutdown(fd, how) })
        }
    }
}
