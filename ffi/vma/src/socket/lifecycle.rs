//! The beginning and end of a socket: socket(2), dup(2), close(2).

use core::ffi::c_int;
use core::time::Duration;

use ringway_host::numbers;
use ringway_report::SocketReport;
use ringway_stack::device::Protocol;
use ringway_stack::offload::Reason;
use ringway_stack::{Error, tcp};

use super::connect::kernel_result;
use super::{Family, Kind, Socket, stream};
use crate::errno::{self, Errno};
use crate::extra::threads;
use crate::fdtable::{self, Entry};
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::{descendants, moving, mux, process, real, report};

/// The part of a socket's type that says what it is.
const TYPE_MASK: c_int = 0xf;

/// After socket(2) made `fd`: takes it up if it is of a kind that is offloaded.
pub(crate) fn opened(fd: c_int, domain: c_int, kind: c_int, protocol: c_int) {
    let family = match domain {
        libc::AF_INET => Family::V4,
        libc::AF_INET6 => Family::V6,
        _ => return,
    };
    let transport = match (kind & TYPE_MASK, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Protocol::Tcp,
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Protocol::Udp,
        _ => return,
    };
    arriving(fd);
    let Some(process) = process::process_or_init() else { return };
    if !threads::wants_offload() {
        process.lock().decided("socket", Some(Reason::SwitchedOff));
        return;
    }
    let mut socket = Socket::new(fd, family, transport, kind & libc::SOCK_NONBLOCK != 0, process.tcp_config());
    if transport == Protocol::Udp {
        socket.udp = process.params.udp_defaults();
        if !socket.udp.multicast_loop {
            no_multicast_loop(fd, family);
        }
    }
    let mut guard = process.lock();
    let key = guard.sockets.insert(socket);
    if !fdtable::set(fd, Entry::Socket(key)) {
        guard.sockets.remove(key);
    }
}

/// VMA_TX_MC_LOOPBACK=0: what the program sends to groups does not come back, unless it asks for that. Groups are the kernel's.
fn no_multicast_loop(fd: c_int, family: Family) {
    let off: c_int = 0;
    let (v4, v6) = ((libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP), (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP));
    for (level, name) in [Some(v4), (family == Family::V6).then_some(v6)].into_iter().flatten() {
        // SAFETY: the value is as long as it says.
        unsafe { real::setsockopt(fd, level, name, (&raw const off).cast(), size_of::<c_int>() as libc::socklen_t) };
    }
}

/// What a call that waits in the kernel made, under the lowest number ([`numbers::lowest_after_waiting`]).
pub(crate) fn lowest_after_waiting(make: impl FnOnce() -> c_int) -> c_int {
    numbers::lowest_after_waiting(|| {
        let fd = make();
        if fd >= 0 {
            // (What duplicates it takes it for nothing that it was before.)
            let saved = errno::current();
            arriving(fd);
            errno::set(saved);
        }
        fd
    })
}

/// A fresh kernel socket to stand for a connection of the ring.
pub(crate) fn placeholder(family: Family, flags: c_int) -> Result<c_int, Errno> {
    // SAFETY: plain integers.
    let fd = kernel_result(numbers::lowest(|| unsafe { real::socket(domain(family), libc::SOCK_STREAM | flags, 0) }))?;
    arriving(fd);
    Ok(fd)
}

/// Whether IPv6 sockets leave IPv4 alone that have not been told anything (net.ipv6.bindv6only).
pub(crate) fn is_v6_only_from_the_start() -> bool {
    numbers::make_internal(|| {
        let Ok(fd) = placeholder(Family::V6, libc::SOCK_CLOEXEC) else { return false };
        let is_v6_only = super::address::is_v6_only(fd, Family::V6);
        // SAFETY: the descriptor was made above, and nobody knows of it.
        unsafe { real::close(fd) };
        is_v6_only
    })
}

pub(crate) const fn domain(family: Family) -> c_int {
    match family {
        Family::V4 => libc::AF_INET,
        Family::V6 => libc::AF_INET6,
    }
}

/// Puts a new placeholder, bound to nothing, under the number of an old one.
pub(crate) fn renew_placeholder(process: &Process, fd: c_int, key: Key) -> Result<(), Errno> {
    // SAFETY: plain integers.
    let (status, descriptor) = unsafe { (real::fcntl(fd, libc::F_GETFL, 0), real::fcntl(fd, libc::F_GETFD, 0)) };
    let nonblocking = if status & libc::O_NONBLOCK != 0 { libc::SOCK_NONBLOCK } else { 0 };
    let family = process.lock().sockets.find(key).ok_or(Errno(libc::EBADF))?.family;
    let cloexec = if descriptor & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
    numbers::make_internal(|| {
        let fresh = placeholder(family, libc::SOCK_CLOEXEC | nonblocking)?;
        let replaced = fdtable::renew(fd, fresh, cloexec);
        // SAFETY: the fresh one was made here, and nobody knows of it.
        unsafe { real::close(fresh) };
        replaced
    })?;
    if let Some(socket) = process.lock().sockets.find(key) {
        replay_options(socket);
    }
    Ok(())
}

impl Socket {
    /// A connection that a listener accepted: it inherits the listener's options, as Linux's do.
    pub(crate) fn accepted(listener: &Self, fd: c_int, nonblocking: bool) -> Self {
        let mut socket = Self::new(fd, listener.family, Protocol::Tcp, nonblocking, listener.tcp.clone());
        socket.receive_timeout = listener.receive_timeout;
        socket.send_timeout = listener.send_timeout;
        socket.linger = listener.linger;
        socket.receive_low_water = listener.receive_low_water;
        socket.keepalive = listener.keepalive;
        socket.inherited.extend(listener.inherited_by_accepted());
        socket.ancillary = listener.ancillary;
        if listener.rare.as_ref().is_some_and(|rare| rare.zerocopy) {
            socket.rare().zerocopy = true;
        }
        if let Some(rare) = &listener.rare {
            socket.rare().rings = rare.rings.inherited();
            socket.rare().rate = rare.rate;
        }
        socket
    }
}

impl Socket {
    /// The options that a connection has of this listener, as Linux's sk_clone has it: what is sent begins with the priority of all.
    pub(super) fn inherited_by_accepted(&self) -> impl Iterator<Item = (c_int, c_int, c_int)> {
        self.inherited.iter().copied().filter(|&(level, name, _)| (level, name) != (libc::SOL_SOCKET, libc::SO_PRIORITY))
    }

    /// What the child of a fork has of a parent's socket: its options, not what carried it.
    pub(crate) fn copy_for_child(&self, fd: c_int) -> Self {
        let mut copy = Self::new(fd, self.family, self.protocol, self.nonblocking, self.tcp.clone());
        copy.udp = self.udp;
        copy.receive_timeout = self.receive_timeout;
        copy.send_timeout = self.send_timeout;
        copy.linger = self.linger;
        copy.receive_low_water = self.receive_low_water;
        copy.reuse_port = self.reuse_port;
        copy.ancillary = self.ancillary;
        copy.bound = self.bound;
        copy.stays_within = self.stays_within;
        copy.peer = self.peer;
        copy.reason = self.reason;
        copy.backlog = self.backlog;
        copy.keepalive = self.keepalive;
        copy.moved = self.moved;
        if let Some(rule) = self.rare.as_ref().and_then(|rare| rare.rule.clone()) {
            copy.rare().rule = Some(rule);
        }
        if let Some(callback) = self.callback() {
            copy.rare().callback = callback.for_child();
        }
        copy.inherited.clone_from(&self.inherited);
        copy
    }
}

/// Sets the options that a listener's connections inherit on an accepted one's placeholder, so that getsockopt tells them.
pub(crate) fn replay_options(socket: &Socket) {
    for &(level, name, value) in &socket.inherited {
        // SAFETY: the value is an integer of the length given.
        unsafe { real::setsockopt(socket.fd, level, name, (&raw const value).cast(), size_of::<c_int>() as libc::socklen_t) };
    }
}

impl Process {
    /// What connections start with, by the parameters.
    pub(crate) fn tcp_config(&self) -> tcp::Config {
        self.tcp_defaults.clone()
    }
}

/// The kernel has just handed out the number `fd`. Whatever is known of it was closed by a call that the library did not see: that
/// socket has lost a name.
pub(crate) fn arriving(fd: c_int) {
    let entry = fdtable::peek(fd);
    if entry != Entry::None {
        displaced(fd, entry);
    }
}

/// `fd` has come to name something else than what it was entered for, which is `entry`: unless another thread has taken that out
/// meanwhile, and perhaps entered something new. `false`: this is a vfork child, whose descriptors are its own while the tables are its
/// parent's.
#[cold]
pub(crate) fn displaced(fd: c_int, entry: Entry) -> bool {
    if !crate::fork::tables_are_ours() {
        return false;
    }
    let saved = errno::current();
    if entry.socket().is_some() && fdtable::peek(fd) == entry && fdtable::note_unseen() {
        tracing::warn!(
            "descriptor {fd} was closed by a call that the library does not see (fork and exec helpers, raw system calls, io_uring)"
        );
    }
    match entry {
        Entry::Internal => drop(fdtable::clear_if(fd, entry)),
        _ => take_out(fd, Some(entry)),
    }
    errno::set(saved);
    true
}

/// A program wants to be told by signals what happens to a socket (O_ASYNC), which only the kernel does: a socket that is not connected
/// is left to it, and so is a connection, with all that it has.
pub(crate) fn sends_signals(fd: c_int) {
    moving::hand_out(fd, Reason::KernelOnlyOption);
    let (Entry::Socket(key), Some(process)) = (fdtable::lookup(fd), process::process()) else { return };
    let mut guard = process.lock();
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find(key) else { return };
    match socket.kind {
        Kind::Listener(Some(_)) | Kind::Datagram(Some(_)) => {
            offload.close_flows(key);
            offload.leave_to_kernel(key, "O_ASYNC", Reason::KernelOnlyOption);
            offload.dispatch();
        }
        Kind::Fresh | Kind::Listener(None) | Kind::Datagram(None) => offload.leave_to_kernel(key, "O_ASYNC", Reason::KernelOnlyOption),
        Kind::Kernel | Kind::Moving | Kind::Stream(_) | Kind::Connecting(_) => {}
    }
}

/// `copy` is another name for what `fd` names. Control calls of a vfork child never come here.
pub(crate) fn duplicated(fd: c_int, copy: c_int) {
    arriving(copy);
    match fdtable::peek(fd) {
        entry @ (Entry::Socket(key) | Entry::Kernel(key) | Entry::Moving(key)) => {
            if let Some(process) = process::process() {
                let mut guard = process.lock();
                let Some(socket) = guard.sockets.find_mut(key) else { return };
                socket.fds += 1;
                if !fdtable::set(copy, entry) {
                    socket.fds -= 1;
                }
            } else {
                // A child of a fork that has no state yet: it will count from the table.
                fdtable::set(copy, entry);
            }
        }
        Entry::Epoll(_) => mux::epoll::on_dup(fd, copy),
        entry @ (Entry::Inherited(_) | Entry::Settled(_)) => {
            fdtable::set(copy, entry);
        }
        Entry::None | Entry::Internal => {}
    }
}

/// `fd` is about to be closed (or replaced, by dup2): takes it out of the tables; the last name ends the socket.
pub(crate) fn closing(fd: c_int) {
    take_out(fd, None);
}

/// `displaced`: what the number named, and does not any more.
fn take_out(fd: c_int, displaced: Option<Entry>) {
    let is_open = displaced.is_none();
    let clear = || match displaced {
        None => fdtable::clear(fd),
        Some(entry) if fdtable::clear_if(fd, entry) => entry,
        Some(_) => Entry::None,
    };
    // What is on its way to the kernel is closed there.
    if let Entry::Moving(_) = fdtable::peek(fd) {
        fdtable::lookup(fd);
    }
    if let Entry::Epoll(index) = fdtable::peek(fd)
        && displaced.is_none_or(|entry| entry == Entry::Epoll(index))
    {
        mux::epoll::on_close(fd, index);
        fdtable::clear(fd);
        return;
    }
    let (rx, tx) = fdtable::kernel_counts(fd);
    let Some(key) = clear().socket() else { return };
    let Some(process) = process::process() else { return };
    if is_open {
        linger(process, key);
    }
    let mut guard = moving::lock_at_rest(process, key);
    guard.closed.kernel_rx_packets += rx;
    guard.closed.kernel_tx_packets += tx;
    let last_words = release(process, &mut guard, key, fd, is_open);
    drop(guard);
    // (A file may be slow, and nobody is to wait for it but who closes.)
    if let Some(report) = last_words {
        report::write_closed(&report);
    }
}

/// What is to be written of a socket whose last name this was, if anybody wants to know.
fn release(process: &Process, offload: &mut Offload, key: Key, fd: c_int, is_open: bool) -> Option<Box<SocketReport>> {
    let socket = offload.sockets.find_mut(key)?;
    socket.fds = socket.fds.saturating_sub(1);
    if socket.fds > 0 {
        if socket.fd == fd
            && let Some((other, _)) = fdtable::entries().find(|(_, entry)| entry.socket() == Some(key))
        {
            socket.fd = other;
        }
        return None;
    }
    mux::forget(offload, key.index);
    let mut socket = offload.sockets.remove(key)?;
    let last_words = report::of_closed(offload, &socket, (fd, is_open), process.now());
    if let Some(rare) = &mut socket.rare {
        offload.forget_rings(key, core::mem::take(&mut rare.rings));
    }
    end(process, offload, (key, &socket), fd, is_open);
    if socket.protocol == Protocol::Udp {
        offload.settle_groups();
    }
    last_words
}

/// The end of a socket that has no name any more.
fn end(process: &Process, offload: &mut Offload, (key, socket): (Key, &Socket), fd: c_int, is_open: bool) {
    if matches!(socket.kind, Kind::Stream(_) | Kind::Connecting(_))
        && is_open
        && descendants::shared_since(socket.birth)
        && let Some(process) = process::process()
        && outlives(process, offload, socket, fd)
    {
        return;
    }
    if let Some(process) = process::process()
        && moving::retreat::close(process, offload, socket)
    {
        return;
    }
    if let Some(id) = socket.ring_id() {
        // Bytes that have come and were not read make the end a reset (RFC 2525 s2.17), wherever they lie.
        offload.catch_up(process.now());
        for info in socket.flows().filter_map(|id| offload.rings.of(id).info(id)) {
            offload.closed.rx_bytes += info.counters.rx_bytes;
            offload.closed.tx_bytes += info.counters.tx_bytes;
        }
        offload.closed.offloaded += 1;
        let abort = socket.linger == Some(Duration::ZERO);
        offload.drop_shown(process.now(), key);
        offload.rings.of_mut(id).close(process.now(), id, abort);
        for other in socket.flows().filter(|flow| *flow != id) {
            offload.rings.of_mut(other).close(process.now(), other, false);
        }
        offload.dispatch();
        offload.watch_held(process.now(), id);
    } else if socket.reason != Some(Reason::Undecided) {
        offload.closed.kernel += 1;
    }
}

/// Whether a child goes on with the connection whose last descriptor is being closed. (The close leaves errno as it is.)
fn outlives(process: &'static Process, offload: &mut Offload, socket: &Socket, fd: c_int) -> bool {
    let saved = errno::current();
    let outlives = moving::awaiting_child::keep(process, offload, socket, fd) || moving::owner::begin_closed(process, offload, socket, fd);
    errno::set(saved);
    outlives
}

/// SO_LINGER with a time: the last close waits until the peer has everything (socket(7)).
fn linger(process: &Process, key: Key) {
    let mut guard = process.lock();
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find(key) else { return };
    // A non-blocking connect leaves the kind at connecting until somebody asks how it ended.
    let (Some(time), Kind::Stream(id) | Kind::Connecting(id), 1) = (socket.linger, socket.kind, socket.fds) else { return };
    // Linux's tcp_close lingers for blocking and non-blocking descriptors alike, but not for an unfinished handshake.
    let state = offload.rings.of(id).info(id).and_then(|info| info.state);
    if time.is_zero()
        || descendants::shared_since(socket.birth)
        || matches!(state, None | Some(tcp::State::SynSent | tcp::State::SynReceived))
    {
        return;
    }
    if offload.rings.of_mut(id).shutdown(process.now(), id, ringway_stack::ring::Shutdown::Write).is_err() {
        return;
    }
    offload.dispatch();
    drop(guard);
    // Time over or interrupted: the close goes on in the background.
    let saved = errno::current();
    let _ = stream::blocking(process, key, Some(time), |offload, _| {
        match offload.rings.of(id).info(id).and_then(|info| info.state.map(|state| (state, info.send_queue))) {
            Some((tcp::State::FinWait1 | tcp::State::Closing | tcp::State::LastAck, _)) => Err(Error::WouldBlock),
            Some((_, queued)) if queued > 0 => Err(Error::WouldBlock),
            _ => Ok(()),
        }
    });
    errno::set(saved);
}
