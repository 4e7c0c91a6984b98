//! connect(2) on a TCP socket: over the ring where an offloaded process of this machine listens, else by the kernel.

use core::ffi::c_int;
use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use libc::{sockaddr, socklen_t};
use ringway_params::rules::Role;
use ringway_stack::device::Protocol;
use ringway_stack::offload::Reason;
use ringway_stack::ring::{FlowId, NextHop};
use ringway_stack::{Error, tcp};

use super::address::{self, Address, Raw};
use super::greeting::Question;
use super::ways::{Ahead, Unreachable, ahead};
use super::{Family, Kind, common, datagram, greeting, lifecycle, ports, stream};
use crate::errno::{Errno, THEIRS};
use crate::interfaces::Lands;
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::{mux, real, rules};

/// Ports that are tried where the kernel chooses one which the ring still uses.
const PORTS_TRIED: u32 = 64;

/// How long a connect waits for the addresses of a connection that lacks nothing but its peer's last acknowledgment: twice the tick of a peer's
/// progress thread; and the time between two looks.
const LAST_ACK_MAX: Duration = Duration::from_millis(20);
const LAST_ACK_LOOK: Duration = Duration::from_micros(50);

/// connect(2).
///
/// # Errors
/// As connect(2). [`THEIRS`]: the kernel is to connect it.
///
/// # Safety
/// `raw` is null, or `len` bytes can be read there.
pub(crate) unsafe fn connect(process: &Process, fd: c_int, key: Key, raw: *const sockaddr, len: socklen_t) -> Result<c_int, Errno> {
    let Some((kind, family)) = process.lock().sockets.find(key).map(|s| (s.kind, s.family)) else {
        return Err(Errno(libc::EBADF));
    };
    // SAFETY: the caller's promise.
    let to = unsafe { address::read(raw, len, family) };
    match kind {
        // (tcp_disconnect forgets what was shut down, whatever was connected.)
        Kind::Fresh if to == Address::Unspecified => {
            let mut guard = process.lock();
            if let Some(socket) = guard.sockets.find_mut(key) {
                socket.shut = super::Shut::default();
            }
            mux::refresh(&mut guard, key.index);
            Err(THEIRS)
        }
        Kind::Fresh => match allowed(process, fd, key, to).and_then(|to| ahead(process, key, to)) {
            Ok(way) => open(process, fd, key, way),
            Err(Unreachable::NotAnAddress | Unreachable::Unasked) => Err(THEIRS),
            Err(Unreachable::Because(reason)) => {
                process.lock().leave_to_kernel(key, "connect", reason);
                Err(THEIRS)
            }
            Err(Unreachable::ByRule(rule)) => {
                process.lock().leave_by_rule(key, "connect", rule);
                Err(THEIRS)
            }
        },
        Kind::Connecting(_) | Kind::Stream(_) if to == Address::Unspecified => disconnect(process, fd, key, raw, len),
        Kind::Connecting(id) => again(process, key, id),
        Kind::Stream(_) => Err(Errno(libc::EISCONN)),
        Kind::Moving => Err(Errno(libc::EISCONN)),
        // SAFETY: the caller's promise.
        Kind::Datagram(_) => unsafe { datagram::connect(process, fd, key, to, raw, len) },
        Kind::Listener(_) | Kind::Kernel => Err(THEIRS),
    }
}

pub(crate) fn kernel_result(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(Errno::last()) } else { Ok(result) }
}

/// Where a TCP socket connects to over the ring, if it may, and libvma.conf lets it.
fn allowed(process: &Process, fd: c_int, key: Key, to: Address) -> Result<Address, Unreachable> {
    let Address::Ip(to) = to else { return Ok(to) };
    let Some((family, own)) = process.lock().sockets.find(key).map(|socket| (socket.family, socket.bound)) else {
        return Ok(Address::Ip(to));
    };
    let to = address::destination(to);
    if !address::can_reach(fd, family, own, to) {
        return Err(Unreachable::Because(Reason::Family));
    }
    rules::leave(Role::TcpClient, to, own).map_or(Ok(Address::Ip(to)), |rule| Err(Unreachable::ByRule(rule)))
}

/// Opens the connection over the ring, and waits for it unless the socket does not block. Where no port can be had, which the
/// kernel's own connect may still have (it shares ports between destinations, and takes them from TIME-WAITs), that has its turn.
fn open(process: &Process, fd: c_int, key: Key, Ahead { mut ring, remote, hop, source, mtu }: Ahead) -> Result<c_int, Errno> {
    let source = source.unwrap_or(address::source_for(remote.ip()));
    let leave = || {
        process.lock().leave_to_kernel(key, "connect", Reason::NoFreePort);
        Err(THEIRS)
    };
    let family = process.lock().sockets.find(key).map_or(Family::V4, |s| s.family);
    let mut tries = 0;
    let (mut guard, local, id) = loop {
        let Some(local) = local_for(process, (fd, key, family), (source, remote), ring)? else { return leave() };
        let mut guard = process.lock();
        let offload = &mut *guard;
        let Some(socket) = offload.sockets.find(key) else { return Err(Errno(libc::EBADF)) };
        if socket.kind != Kind::Fresh || socket.ring != ring {
            // Another thread connected it meanwhile.
            return Err(Errno(libc::EALREADY));
        }
        // (By the port that it has, its answers may come to another ring than was wanted.)
        match offload.lands_at(ring, Protocol::Tcp, (local, remote)) {
            Lands::At(other) => ring = other,
            Lands::Unknown => {}
            // (To the kernel's placeholder, which has the port.)
            Lands::Elsewhere => {
                drop(guard);
                return leave();
            }
        }
        let Some(socket) = offload.sockets.find_mut(key) else { return Err(Errno(libc::EBADF)) };
        socket.ring = ring;
        let chosen_by_program = socket.bound.is_some() && !socket.bound_by_connect;
        let replaceable = socket.fds == 1 && !chosen_by_program;
        let config = offload.rings.tcp_config(ring, &socket.tcp, (Some(remote), mtu));
        match offload.rings.at_mut(ring).ring.tcp_connect(process.now(), local, remote, hop, &config) {
            Ok(id) => break (guard, local, id),
            // The kernel gave a port that a closed connection of the ring's still uses.
            Err(Error::AddressInUse) if replaceable && tries < PORTS_TRIED => {
                tries += 1;
                drop(guard);
                lifecycle::renew_placeholder(process, fd, key)?;
            }
            Err(Error::AddressInUse) if chosen_by_program && tries == 0 => {
                tries += 1;
                drop(guard);
                await_last_ack(process, local, remote);
            }
            Err(Error::AddressInUse) if chosen_by_program => return Err(Errno(libc::EADDRNOTAVAIL)),
            Err(Error::AddressInUse) => {
                drop(guard);
                return leave();
            }
            // (No room for its flow rule, or no broker any more that would see to one: the kernel connects.)
            Err(Error::NoBuffers) if offload.rings.interfaces.contains(ring) => {
                drop(guard);
                process.lock().leave_to_kernel(key, "connect", Reason::NoResources);
                return Err(THEIRS);
            }
            Err(error) => return Err(error.into()),
        }
    };
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find_mut(key) else { return Err(Errno(libc::EBADF)) };
    socket.kind = Kind::Connecting(id);
    socket.take_left_error();
    socket.shut = super::Shut::default();
    socket.bound_by_connect |= socket.bound.is_none();
    socket.bound = Some(local);
    socket.peer = Some(remote);
    socket.path_mtu = mtu;
    socket.reason = None;
    let nonblocking = socket.nonblocking;
    offload.link(id, key.index);
    offload.begin_pacing(key);
    if hop != NextHop::Pending {
        offload.decided("connect", None);
    } else if !greeting::join(offload, Question { ring: id.ring, from: None, to: remote }, key) {
        // The answer came first.
        greeting::settle(process, offload, key, remote, None);
    }
    mux::refresh(offload, key.index);
    offload.dispatch();
    if nonblocking {
        offload.watch_held(process.now(), id);
    }
    drop(guard);
    if nonblocking { Err(Errno(libc::EINPROGRESS)) } else { finish(process, key, id) }
}

/// The program wants the addresses of a connection that it has closed, after its peer had. On the kernel's loopback the peer's last acknowledgment is
/// there before the close returns; here it may lie in the ring, or be on its way. Whatever the peer does, this takes [`LAST_ACK_MAX`] at most.
#[cold]
fn await_last_ack(process: &Process, local: SocketAddr, remote: SocketAddr) {
    let until = process.now() + LAST_ACK_MAX;
    loop {
        let now = process.now();
        let mut offload = process.lock();
        offload.poll_if_due(now);
        if offload.rings.tcp_state(local, remote) != Some(tcp::State::LastAck) || now >= until {
            return;
        }
        drop(offload);
        std::thread::sleep(LAST_ACK_LOOK);
    }
}

/// Binds the placeholder as a connect would have, and says to what. `None`: bind(2) has no port left.
fn local_for(
    process: &Process,
    (fd, key, family): (c_int, Key, Family),
    (source, remote): (IpAddr, SocketAddr),
    ring: u16,
) -> Result<Option<SocketAddr>, Errno> {
    let (is_unbound, has_plain_port) = {
        let guard = process.lock();
        guard.sockets.find(key).map_or((false, false), |socket| (socket.bound.is_none(), socket.has_plain_port))
    };
    // As far as this process has seen, it is bound to nothing; else the kernel says EINVAL, and where it is bound.
    let mut is_tried = false;
    if is_unbound && has_plain_port {
        match ports::bind(process, (fd, key, family), (source, remote), ring) {
            Ok(Some(local)) => return Ok(Some(local)),
            Ok(None) => is_tried = true,
            Err(Errno(libc::EINVAL)) => {}
            Err(error) => return Err(error),
        }
    }
    let mut local = address::of_placeholder(fd, family).ok_or(Errno(libc::EADDRNOTAVAIL))?;
    if local.port() == 0 {
        let ip = if local.ip().is_unspecified() { source } else { local.ip() };
        if has_plain_port
            && !is_tried
            && let Some(local) = ports::bind(process, (fd, key, family), (ip, remote), ring)?
        {
            return Ok(Some(local));
        }
        let raw = Raw::new(SocketAddr::new(ip, 0), family);
        // SAFETY: the address is as long as it says.
        if unsafe { real::bind(fd, raw.as_ptr(), raw.len()) } != 0 {
            return match Errno::last() {
                Errno(libc::EADDRINUSE) => Ok(None),
                other => Err(other),
            };
        }
        local = address::of_placeholder(fd, family).ok_or(Errno(libc::EADDRNOTAVAIL))?;
    }
    if local.ip().is_unspecified() {
        local.set_ip(source);
    }
    Ok(Some(local))
}

/// What became of a handshake.
fn progress(offload: &Offload, key: Key, id: FlowId) -> Result<(), Error> {
    // It was established, or it would not have left the ring.
    if offload.sockets.find(key).is_some_and(|socket| socket.kind == Kind::Moving || socket.moved) {
        return Ok(());
    }
    let id = offload.flow_now(key, id);
    match offload.rings.of(id).info(id).and_then(|info| info.state) {
        Some(tcp::State::SynSent | tcp::State::SynReceived) => Err(Error::WouldBlock),
        Some(tcp::State::Closed) | None => Err(Error::Refused),
        Some(_) => Ok(()),
    }
}

/// The program is told that the handshake is over.
fn connected(offload: &mut Offload, key: Key, id: FlowId) {
    let id = offload.flow_now(key, id);
    if let Some(socket) = offload.sockets.find_mut(key)
        && socket.kind == Kind::Connecting(id)
    {
        socket.kind = Kind::Stream(id);
    }
}

/// Waits for the end of a handshake.
fn finish(process: &Process, key: Key, id: FlowId) -> Result<c_int, Errno> {
    let timeout = process.lock().sockets.find(key).and_then(|s| s.send_timeout);
    match stream::blocking(process, key, timeout, |offload, _| progress(offload, key, id)) {
        Ok(()) => {
            connected(&mut process.lock(), key, id);
            Ok(0)
        }
        // socket(7): a connect that runs into SO_SNDTIMEO fails with EINPROGRESS, and goes on.
        Err(Errno(libc::EAGAIN)) => Err(Errno(libc::EINPROGRESS)),
        // The kernel connects it, after all.
        Err(_) if process.lock().sockets.find(key).is_some_and(|socket| socket.kind == Kind::Kernel && !socket.moved) => Err(THEIRS),
        Err(Errno(libc::ECONNREFUSED)) => Err(failed(process, key, id)),
        Err(error) => Err(error),
    }
}

/// A second connect while (or after) a first one was under way.
fn again(process: &Process, key: Key, id: FlowId) -> Result<c_int, Errno> {
    let mut guard = process.lock();
    let now = process.now();
    guard.poll_if_due(now);
    match progress(&guard, key, id) {
        Ok(()) => {
            connected(&mut guard, key, id);
            Ok(0)
        }
        Err(Error::WouldBlock) => {
            let nonblocking = guard.sockets.find(key).is_none_or(|s| s.nonblocking);
            drop(guard);
            if nonblocking { Err(Errno(libc::EALREADY)) } else { finish(process, key, id) }
        }
        Err(_) => {
            drop(guard);
            Err(failed(process, key, id))
        }
    }
}

/// The handshake failed: the reason, and a socket that may try again, as Linux's may.
fn failed(process: &Process, key: Key, id: FlowId) -> Errno {
    let mut guard = process.lock();
    let offload = &mut *guard;
    // A reason that SO_ERROR took away earlier leaves Linux's connect with ECONNABORTED.
    let error = offload.rings.of_mut(id).take_error(id).unwrap_or(Error::Aborted);
    offload.rings.of_mut(id).close(process.now(), id, true);
    if error == Error::Refused {
        // Whoever listened there has left it to others, perhaps, and they to the kernel: that has the last word.
        offload.leave_to_kernel(key, "connect", Reason::NoOffloadedPeer);
        offload.dispatch();
        return THEIRS;
    }
    if let Some(socket) = offload.sockets.find_mut(key) {
        socket.kind = Kind::Fresh;
        socket.peer = None;
    }
    mux::refresh(offload, key.index);
    offload.dispatch();
    error.into()
}

/// connect with `AF_UNSPEC` on a stream: the connection is reset, the socket is as new, and a port that the program did not choose
/// is given back.
fn disconnect(process: &Process, fd: c_int, key: Key, raw: *const sockaddr, len: socklen_t) -> Result<c_int, Errno> {
    let mut guard = process.lock();
    let offload = &mut *guard;
    common::own(offload, key);
    if let Some(socket) = offload.sockets.find_mut(key)
        && let Kind::Connecting(id) | Kind::Stream(id) = socket.kind
    {
        let state = offload.rings.of(id).info(id).and_then(|info| info.state);
        let error = offload.rings.of_mut(id).take_error(id).map(|error| Errno::from(error).0);
        socket.kind = Kind::Fresh;
        socket.peer = None;
        socket.shut = super::Shut::default();
        // tcp_disconnect: where a reset is sent, or a handshake given up, that is the socket's error. One that waits goes on waiting.
        let is_reset = !matches!(state, None | Some(tcp::State::Closed | tcp::State::TimeWait));
        if let Some(error) = error.or(is_reset.then_some(libc::ECONNRESET)) {
            socket.rare().error = Some(error);
        }
        let replaceable = socket.bound_by_connect && socket.fds == 1;
        if replaceable {
            socket.bound_by_connect = false;
            socket.bound = None;
        }
        offload.rings.of_mut(id).close(process.now(), id, true);
        mux::refresh(offload, key.index);
        offload.dispatch();
        drop(guard);
        if replaceable {
            lifecycle::renew_placeholder(process, fd, key)?;
        }
    } else {
        drop(guard);
    }
    // SAFETY: the caller of `connect` vouched for the address.
    kernel_result(unsafe { real::connect(fd, raw, len) })
}
