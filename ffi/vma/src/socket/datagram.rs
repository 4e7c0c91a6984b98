//! UDP: one socket, two worlds. The ring's datagrams and the kernel's are received alike; where one is sent is decided
//! for each destination, and remembered.

use core::ffi::c_int;
use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddrV4;

use libc::{sockaddr, socklen_t};
use ringway_params::rules::Role;
use ringway_shm::{Rendezvous, Resolved, ShmDevice};
use ringway_stack::device::MacAddr;
use ringway_stack::offload::Reason;
use ringway_stack::ring::{Datagram, NextHop, Readiness, RecvFlags, Ring, SocketId};
use ringway_stack::{Error, Instant};

use super::address::{self, Address};
use super::connect::{Unreachable, kernel_result, reachable};
use super::{Kind, Socket};
use crate::cancel::Masked;
use crate::errno::{self, Errno, THEIRS};
use crate::extra::resume::Resume;
use crate::lock::Guard;
use crate::mux::wait::{SpinClass, Waited, Waiting, wait};
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::tally::{self, Way};
use crate::{mux, real, rules};

/// How long a destination that nobody offloads is left to the kernel before it is asked for again.
const KERNEL_FOR: Duration = Duration::from_millis(100);

/// How long one is whose holder is being asked.
const UNASKED_FOR: Duration = Duration::from_millis(1);

/// Calls that find nothing, this close together, are a program that spins.
const TIGHT: Duration = Duration::from_micros(5);

/// After how many of them the kernel is asked where VMA_RX_UDP_POLL_OS_RATIO is 0.
const SELDOM: u32 = 10_000;

/// The last destination, and how it is reached.
#[derive(Debug, Default)]
pub(crate) struct Route {
    to: Option<SocketAddrV4>,
    by: By,
}

#[derive(Debug, Default)]
enum By {
    #[default]
    Unknown,
    Station(Resolved),
    /// Through the kernel, until then.
    Kernel(Instant),
}

impl Route {
    /// Whether the last datagram, or the connection, was to that address and not the kernel's.
    pub(crate) fn is_by_ring(&self, to: SocketAddrV4) -> bool {
        self.to == Some(to) && matches!(self.by, By::Station(_))
    }

    /// The same, if it was the kernel's.
    fn is_by_kernel(&self, to: SocketAddrV4) -> bool {
        self.to == Some(to) && matches!(self.by, By::Kernel(_))
    }

    pub(super) fn is_to(&self, to: SocketAddrV4) -> bool {
        self.to == Some(to)
    }

    /// Where it leads, if that has been found out.
    pub(super) fn known(&self) -> Option<SocketAddrV4> {
        self.to.filter(|_| !matches!(self.by, By::Unknown))
    }

    /// Lets go of a station that is no more, and so of its memory.
    pub(crate) fn forget_dead(&mut self, rendezvous: &Rendezvous) {
        if matches!(&self.by, By::Station(hop) if !rendezvous.still_valid(hop)) {
            self.by = By::Unknown;
        }
    }
}

/// When the kernel's half of the socket is asked. Asking costs a system call, so a spinning program does not pay for it on
/// every turn, and a stream of the ring's datagrams does not starve the kernel's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KernelPoll {
    /// Something saw the placeholder readable: ask at once.
    pub(crate) hint: bool,
    /// Calls since the kernel was asked.
    since: u32,
    /// When a call last found nothing.
    empty_at: Instant,
}

impl KernelPoll {
    /// A call found nothing on the ring: whether to ask the kernel now.
    pub(crate) fn on_empty(&mut self, now: Instant, ratio: u32) -> bool {
        let tight = now.since(self.empty_at) < TIGHT;
        self.empty_at = now;
        self.since = self.since.saturating_add(1);
        // (Who never does hears of the kernel's all the same.)
        let ask = self.hint || !tight || self.since >= if ratio == 0 { SELDOM } else { ratio };
        if ask {
            self.asked();
        }
        ask
    }

    /// A call found a datagram on the ring: whether the kernel's have waited long enough.
    pub(crate) fn on_ring(&mut self, ratio: u32) -> bool {
        self.since = self.since.saturating_add(1);
        let ask = ratio != 0 && self.since >= ratio;
        if ask {
            self.asked();
        }
        ask
    }

    fn asked(&mut self) {
        self.hint = false;
        self.since = 0;
    }
}

/// Publishes the bound address, so that offloaded senders find it. What does not work is left to the kernel.
pub(crate) fn publish(process: &Process, offload: &mut Offload, key: Key) {
    let Some(socket) = offload.sockets.find_mut(key) else { return };
    let (Kind::Datagram(None), Some(local)) = (socket.kind, socket.bound) else { return };
    if local.ip().is_multicast() || !(local.ip().is_unspecified() || process.addresses.contains(*local.ip())) {
        socket.reason = Some(Reason::Multicast);
        offload.decided("bind", Some(Reason::Multicast));
        return;
    }
    // Who may not receive on the ring has no address there to send from.
    if let Some(rule) = rules::leave(Role::UdpReceiver, local, None) {
        offload.leave_by_rule(key, "bind", rule);
        return;
    }
    match offload.ring.udp_open(local, &socket.udp) {
        Ok(id) => {
            socket.kind = Kind::Datagram(Some(id));
            socket.reason = None;
            offload.link(id, key.index);
            offload.decided("bind", None);
        }
        Err(error) => {
            let reason = if error == Error::AddressInUse { Reason::RuleTaken } else { Reason::DeviceFull };
            socket.reason = Some(reason);
            offload.decided("bind", Some(reason));
        }
    }
    mux::refresh(offload, key.index);
}

/// Gives the socket an address and a rule, if it can have them: what a sender needs to be answered.
fn ensure_published(process: &Process, fd: c_int, key: Key) {
    let mut guard = process.lock();
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find_mut(key) else { return };
    // Connected before its server started, it was left to the kernel until now.
    let may_be = matches!(socket.reason, Some(Reason::Undecided | Reason::NoOffloadedPeer));
    if socket.kind != Kind::Datagram(None) || !may_be {
        return;
    }
    if address::is_v6_only(fd, socket.family) {
        offload.leave_to_kernel(key, "bind", Reason::Family);
        return;
    }
    let mut local = address::of_placeholder(fd, socket.family);
    if local.is_some_and(|l| l.port() == 0) {
        let any = SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0);
        let raw = address::Raw::new(any, socket.family);
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
        connect_on_ring(offload, key);
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
    if let Address::V4(to) = to
        && leave_whole(process, key, to)
    {
        return Err(THEIRS);
    }
    // SAFETY: the caller's promise.
    kernel_result(unsafe { real::connect(fd, raw, len) })?;
    if to == Address::Unspecified {
        give_port_back(process, fd, key);
    }
    let waits = process.lock().sockets.find(key).is_some_and(|socket| !socket.is_nonblocking());
    let found = sendable(process, to, waits);
    // (Whom nobody has yet on this machine, somebody may have soon.)
    if matches!(found, Ok(_) | Err(Unreachable::Unasked | Unreachable::Because(Reason::NoOffloadedPeer))) {
        // The ring must filter by peer from the first datagram on: publish before connecting there.
        ensure_published_connected(process, fd, key);
    }
    let mut guard = process.lock();
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find_mut(key) else { return Ok(0) };
    let peer = match to {
        Address::V4(remote) => Some(address::destination(remote)),
        _ => None,
    };
    socket.peer = peer;
    socket.route = Route { to: peer, by: By::Unknown };
    match found {
        Ok((_, hop)) => socket.route.by = By::Station(hop),
        Err(Unreachable::Because(reason)) => {
            socket.route.by = By::Kernel(process.now() + KERNEL_FOR);
            let is_undecided = matches!(socket.reason, Some(Reason::Undecided | Reason::NoOffloadedPeer));
            if socket.kind == Kind::Datagram(None) && is_undecided {
                socket.reason = Some(reason);
            }
            offload.decided("connect", Some(reason));
        }
        // Sending is the kernel's; what comes may still come on the ring.
        Err(Unreachable::ByRule(rule)) => {
            tracing::info!("datagrams to {peer:?} are left to the kernel by {rule}");
            socket.route.by = By::Kernel(process.now() + KERNEL_FOR);
            offload.decided("connect", Some(Reason::Rule));
        }
        Err(Unreachable::Unasked) => socket.route.by = By::Kernel(process.now() + UNASKED_FOR),
        Err(Unreachable::NotAnAddress) => {}
    }
    connect_on_ring(offload, key);
    offload.dispatch();
    Ok(0)
}

/// A rule for udp_connect leaves the whole socket to the kernel, in both directions.
fn leave_whole(process: &Process, key: Key, to: SocketAddrV4) -> bool {
    let mut guard = process.lock();
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find(key) else { return false };
    let Some(rule) = rules::leave(Role::UdpConnect, address::destination(to), socket.bound) else { return false };
    let ring = socket.ring_id();
    if let Some(id) = ring {
        offload.ring.close(process.now(), id, false);
    }
    offload.leave_by_rule(key, "connect", rule);
    offload.dispatch();
    true
}

/// [`reachable`], unless libvma.conf leaves datagrams to that address to the kernel.
fn sendable(process: &Process, to: Address, waits: bool) -> Result<(SocketAddrV4, Resolved), Unreachable> {
    if let Address::V4(to) = to
        && let Some(rule) = rules::leave(Role::UdpSender, address::destination(to), None)
    {
        return Err(Unreachable::ByRule(rule));
    }
    reachable(process, to, waits)
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
    offload.ring.close(process.now(), id, false);
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

/// Tells the ring's socket who its peer is.
fn connect_on_ring(offload: &mut Offload, key: Key) {
    let Some(socket) = offload.sockets.find(key) else { return };
    let Kind::Datagram(Some(id)) = socket.kind else { return };
    // A peer that only the kernel reaches is named so that strangers are filtered; nothing is sent to that station.
    let hop = match &socket.route.by {
        By::Station(hop) => NextHop::Station(hop.mac),
        By::Unknown | By::Kernel(_) => NextHop::Station(MacAddr::default()),
    };
    if let Err(error) = offload.ring.udp_connect(id, socket.peer.map(|peer| (peer, hop))) {
        tracing::debug!("the ring did not connect a datagram socket: {error}");
    }
}

/// sendto(2), with `kernel` to hand the datagram to the kernel.
///
/// # Errors
/// As sendto(2).
pub(crate) fn send(
    process: &Process,
    mut guard: Guard<'_, Offload>,
    now: Instant,
    (fd, key, flags): (c_int, Key, c_int),
    data: &[IoSlice<'_>],
    to: Option<Address>,
    kernel: &dyn Fn() -> isize,
) -> Result<usize, Errno> {
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find_mut(key) else { return Err(Errno(libc::EBADF)) };
    let to = match to {
        None => socket.peer,
        Some(Address::V4(to)) => Some(address::destination(to)),
        // The kernel says what it thinks of it.
        Some(_) => None,
    };
    let Some(to) = to else {
        drop(guard);
        return by_kernel(fd, kernel);
    };
    if let Some(hop) = remembered(process, socket, to, now) {
        if let (Some(hop), Kind::Datagram(Some(id))) = (hop, socket.kind) {
            let result = send_on_ring(process, offload, (key, id), data, to, hop, now);
            offload.dispatch();
            if result != Err(Error::HostUnreachable) {
                return result.map_err(Errno::from);
            }
            // The station died meanwhile: whoever has the address now is asked for below.
        } else {
            drop(guard);
            return by_kernel(fd, kernel);
        }
    }
    drop(guard);
    send_after_asking(process, (fd, key, flags), data, to, kernel)
}

/// Where a datagram to there would go on the ring, which is found out if it is not known. `None`: nowhere.
pub(crate) fn way(process: &Process, fd: c_int, key: Key, to: Option<Address>) -> Option<(SocketId, MacAddr, SocketAddrV4)> {
    let mut guard = process.lock();
    let socket = guard.sockets.find_mut(key)?;
    let to = match to {
        None => socket.peer?,
        Some(Address::V4(to)) => address::destination(to),
        Some(_) => return None,
    };
    let now = process.now();
    if let Some(way) = remembered(process, socket, to, now) {
        let Kind::Datagram(Some(id)) = socket.kind else { return None };
        return way.map(|station| (id, station, to));
    }
    drop(guard);
    let _masked = Masked::new();
    let found = sendable(process, Address::V4(to), false);
    if found.is_ok() {
        ensure_published(process, fd, key);
    }
    let mut guard = process.lock();
    let socket = guard.sockets.find_mut(key)?;
    let (Ok((_, hop)), Kind::Datagram(Some(id))) = (found, socket.kind) else {
        socket.take_route(Route { to: Some(to), by: By::Kernel(now + KERNEL_FOR) });
        return None;
    };
    let station = hop.mac;
    socket.take_route(Route { to: Some(to), by: By::Station(hop) });
    Some((id, station, to))
}

/// The remembered way to a destination: `Some(None)` is the kernel, `None` is not known.
#[inline]
fn remembered(process: &Process, socket: &mut Socket, to: SocketAddrV4, now: Instant) -> Option<Option<MacAddr>> {
    usable(process, socket, to, now).or_else(|| socket.recall_route(to).then(|| usable(process, socket, to, now)).flatten())
}

/// The way to a destination, if it is the one that was used last.
#[inline]
fn usable(process: &Process, socket: &Socket, to: SocketAddrV4, now: Instant) -> Option<Option<MacAddr>> {
    if socket.route.to != Some(to) {
        return None;
    }
    match &socket.route.by {
        By::Station(hop) if process.rendezvous.still_valid(hop) => Some(Some(hop.mac)),
        By::Kernel(until) if now < *until => Some(None),
        _ => None,
    }
}

#[inline]
fn send_on_ring(
    process: &Process,
    offload: &mut Offload,
    (key, id): (Key, SocketId),
    data: &[IoSlice<'_>],
    to: SocketAddrV4,
    station: MacAddr,
    now: Instant,
) -> Result<usize, Error> {
    let source = address::source_for(*to.ip());
    let to = Some((to, NextHop::Station(station)));
    if process.params.tx_nonblocked_eagains {
        return send_or_say(offload, key, |ring| ring.udp_send(now, id, data, source, to));
    }
    offload.ring.udp_send(now, id, data, source, to)
}

/// VMA_TX_NONBLOCKED_EAGAINS: a datagram that a full queue loses is the program's to send again, where it does not block.
#[cold]
fn send_or_say(offload: &mut Offload, key: Key, send: impl FnOnce(&mut Ring<ShmDevice>) -> Result<usize, Error>) -> Result<usize, Error> {
    let lost_before = offload.ring.counters().tx_drops;
    let sent = send(&mut offload.ring)?;
    let lost = offload.ring.counters().tx_drops != lost_before;
    let may_fail = offload.sockets.find(key).is_some_and(|socket| socket.nonblocking);
    if lost && may_fail { Err(Error::WouldBlock) } else { Ok(sent) }
}

/// The destination is not known: ask the rendezvous (without the lock), remember, send.
#[cold]
fn send_after_asking(
    process: &Process,
    (fd, key, flags): (c_int, Key, c_int),
    data: &[IoSlice<'_>],
    to: SocketAddrV4,
    kernel: &dyn Fn() -> isize,
) -> Result<usize, Errno> {
    let saved = errno::current();
    let _masked = Masked::new();
    let may_wait = |socket: &Socket| flags & libc::MSG_DONTWAIT == 0 && !socket.is_nonblocking();
    let waits = process.lock().sockets.find(key).is_some_and(may_wait);
    let found = sendable(process, Address::V4(to), waits);
    if found.is_ok() {
        ensure_published(process, fd, key);
    }
    errno::set(saved);
    let mut guard = process.lock();
    let offload = &mut *guard;
    let now = process.now();
    let Some(socket) = offload.sockets.find_mut(key) else { return Err(Errno(libc::EBADF)) };
    match (found, socket.kind) {
        (Ok((_, hop)), Kind::Datagram(Some(id))) => {
            let station = hop.mac;
            socket.take_route(Route { to: Some(to), by: By::Station(hop) });
            let result = send_on_ring(process, offload, (key, id), data, to, station, now);
            offload.dispatch();
            if result != Err(Error::HostUnreachable) {
                return result.map_err(Errno::from);
            }
        }
        (Err(Unreachable::Unasked), _) => socket.take_route(Route { to: Some(to), by: By::Kernel(now + UNASKED_FOR) }),
        (Ok(_), _) => socket.take_route(Route { to: Some(to), by: By::Kernel(now + KERNEL_FOR) }),
        (Err(unreachable), _) => {
            socket.take_route(Route { to: Some(to), by: By::Kernel(now + KERNEL_FOR) });
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
    crate::fdtable::count_kernel_tx(fd);
    tally::kernel_said(fd, Way::Tx, sent.cast_signed());
    Ok(sent)
}

/// What a receive call brought: from the ring, or (already in the program's own structures) from the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Received {
    Ring(Datagram),
    Kernel(usize),
}

/// recvmsg(2), with `kernel` to receive from the kernel with extra flags.
///
/// # Errors
/// As recvmsg(2).
pub(crate) fn receive(
    process: &Process,
    mut guard: Guard<'_, Offload>,
    now: Instant,
    (fd, key): (c_int, Key),
    into: &mut [IoSliceMut<'_>],
    flags: c_int,
    kernel: &dyn Fn(c_int) -> isize,
) -> Result<Received, Errno> {
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find_mut(key) else { return Err(Errno(libc::EBADF)) };
    let ratio = process.params.rx_udp_poll_os_ratio;
    let Kind::Datagram(Some(id)) = socket.kind else {
        // Not published, so the ring brings nothing now; but it may be while a blocking call waits.
        let blocking = !socket.nonblocking && flags & libc::MSG_DONTWAIT == 0;
        let timeout = socket.receive_timeout;
        let resume = offload.call_under_way(now);
        drop(guard);
        if blocking && flags & libc::MSG_ERRQUEUE == 0 {
            return wait_to_receive(process, fd, key, into, flags, kernel, (timeout, resume));
        }
        return from_kernel(fd, kernel, 0);
    };
    if flags & (libc::MSG_ERRQUEUE | libc::MSG_OOB) != 0 {
        drop(guard);
        return from_kernel(fd, kernel, 0);
    }
    let ask_first = socket.kernel_poll.on_ring(ratio);
    if ask_first && let Some(received) = ask_kernel(fd, kernel) {
        return received;
    }
    let ring_flags = if flags & libc::MSG_PEEK != 0 { RecvFlags::PEEK } else { RecvFlags::empty() };
    for polled in [false, true] {
        if polled {
            offload.poll_if_due(now);
        }
        match offload.ring.udp_recv(id, into, ring_flags) {
            Err(Error::WouldBlock) => {}
            result => {
                offload.dispatch();
                return result.map(Received::Ring).map_err(Errno::from);
            }
        }
    }
    let resume = offload.call_under_way(now);
    let Some(socket) = offload.sockets.find(key) else { return Err(Errno(libc::EBADF)) };
    let waits = !socket.nonblocking && flags & libc::MSG_DONTWAIT == 0;
    let timeout = socket.receive_timeout;
    if offload.callbacks.are_used() {
        let deadline = if waits { timeout.map(|timeout| resume.began + timeout) } else { Some(resume.began) };
        if let Some(stop) = offload.stop(resume, key, now, deadline) {
            return Err(stop);
        }
    }
    let Some(socket) = offload.sockets.find_mut(key) else { return Err(Errno(libc::EBADF)) };
    if !waits {
        // Who is connected to a program that is not on the ring hears of it through the kernel.
        let ask = socket.kernel_poll.on_empty(now, ratio) || socket.peer.is_some_and(|peer| socket.route.is_by_kernel(peer));
        drop(guard);
        return if ask { from_kernel(fd, kernel, libc::MSG_DONTWAIT) } else { Err(Errno(libc::EAGAIN)) };
    }
    let hinted = core::mem::take(&mut socket.kernel_poll.hint);
    drop(guard);
    if hinted && let Some(received) = ask_kernel(fd, kernel) {
        return received;
    }
    wait_to_receive(process, fd, key, into, flags, kernel, (timeout, resume))
}

/// The kernel's answer, unless it has nothing.
fn ask_kernel(fd: c_int, kernel: &dyn Fn(c_int) -> isize) -> Option<Result<Received, Errno>> {
    let saved = errno::current();
    match from_kernel(fd, kernel, libc::MSG_DONTWAIT) {
        Err(Errno(libc::EAGAIN)) => {
            errno::set(saved);
            None
        }
        result => Some(result),
    }
}

fn from_kernel(fd: c_int, kernel: &dyn Fn(c_int) -> isize, extra: c_int) -> Result<Received, Errno> {
    let _masked = Masked::new();
    let count = usize::try_from(kernel(extra)).map_err(|_| Errno::last())?;
    crate::fdtable::count_kernel_rx(fd);
    tally::kernel_said(fd, Way::Rx, count.cast_signed());
    Ok(Received::Kernel(count))
}

fn wait_to_receive(
    process: &Process,
    fd: c_int,
    key: Key,
    into: &mut [IoSliceMut<'_>],
    flags: c_int,
    kernel: &dyn Fn(c_int) -> isize,
    (timeout, resume): (Option<Duration>, Resume),
) -> Result<Received, Errno> {
    let ring_flags = if flags & libc::MSG_PEEK != 0 { RecvFlags::PEEK } else { RecvFlags::empty() };
    let saved = errno::current();
    let mut descriptors = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
    let deadline = timeout.map(|timeout| resume.began + timeout);
    let mut waiting = Waiting {
        sockets: &[key.index],
        epolls: &[],
        kernel: &mut descriptors,
        deadline,
        sigmask: None,
        spin: SpinClass::Rx,
        restart: timeout.is_none(),
        callbacks: resume.may_stop(|| process.now(), deadline),
        since: resume.marks,
    };
    loop {
        let waited = wait(process, &mut waiting, |offload, _| {
            let id = match offload.sockets.find(key).map(|s| s.kind) {
                Some(Kind::Datagram(Some(id))) => id,
                Some(Kind::Datagram(None) | Kind::Kernel) => return None,
                _ => return Some(Err(Errno(libc::EBADF))),
            };
            match offload.ring.udp_recv(id, into, ring_flags) {
                // Linux's blocking call returns zero once the socket's reading end is shut; one that doesn't block says EAGAIN.
                Err(Error::WouldBlock) if offload.ring.readiness(id).contains(Readiness::RDHUP) => Some(Ok(Received::Kernel(0))),
                Err(Error::WouldBlock) => None,
                result => {
                    offload.dispatch();
                    Some(result.map(Received::Ring).map_err(Errno::from))
                }
            }
        });
        errno::set(saved);
        match waited {
            Waited::Ready(result) => return result,
            // Another thread may have been quicker.
            Waited::Kernel => {
                if let Some(received) = ask_kernel(fd, kernel) {
                    return received;
                }
                // (What poll(2) calls readable need not be: an error queue, a stream of datagrams that was shut.)
                if deadline.is_some_and(|deadline| deadline <= process.now()) {
                    return Err(Errno(libc::EAGAIN));
                }
            }
            Waited::TimedOut => return Err(Errno(libc::EAGAIN)),
            Waited::Due => return Err(resume.due()),
            Waited::Interrupted => return Err(Errno(libc::EINTR)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spinning_program_asks_the_kernel_at_the_ratio_and_a_quiet_one_always() {
        let mut poll = KernelPoll::default();
        let at = |us: u64| Instant::from_nanos(1_000_000_000 + us * 1000);
        assert!(poll.on_empty(at(0), 100), "after a long quiet");
        let asked = (1..=1000).filter(|&us| poll.on_empty(at(us), 100)).count();
        assert_eq!(asked, 10);
        assert!(poll.on_empty(at(1100), 100), "after 100 us of quiet");
        poll.hint = true;
        assert!(poll.on_empty(at(1101), 100), "somebody saw it readable");
        assert!(!poll.on_empty(at(1102), 100));
    }

    #[test]
    fn a_busy_ring_does_not_starve_the_kernel() {
        let mut poll = KernelPoll::default();
        assert_eq!((0..1000).filter(|_| poll.on_ring(100)).count(), 10);
        assert_eq!((0..1000).filter(|_| poll.on_ring(0)).count(), 0);
    }
}
