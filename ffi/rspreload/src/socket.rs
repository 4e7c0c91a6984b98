//! What a socket is, and its way from socket to close.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use libc::{pollfd, sockaddr, sockaddr_storage, socklen_t};
use ringway_preload::errno::THEIRS;
use ringway_preload::{Errno, next};
use rsocket::api::{self, Family, Waiting, Woken};

use crate::{config, epoll, handover, options, table};

/// What carries a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The kernel, so far.
    Fresh,
    /// It listens, in the kernel and, if it has a key, as an rsocket.
    Listening(Option<RawFd>),
    /// It begins to connect as an rsocket.
    Connecting(RawFd),
    /// A connected rsocket.
    Connected(RawFd),
    /// A datagram socket, of both worlds.
    Datagram(RawFd),
    /// RDMAV_FORK_SAFE: a client's TCP connection, which becomes an rsocket when the server says so.
    ForkActive,
    /// RDMAV_FORK_SAFE: a server's, which becomes one in the process that uses it first.
    ForkPassive,
    /// A thread is about that.
    Moving,
    /// It was the rsocket of a process that forked: it is not this one's.
    Lost,
    /// The kernel, for good.
    Kernel,
}

/// A socket of the program's.
pub(crate) struct Socket {
    pub(crate) family: Family,
    pub(crate) is_datagram: bool,
    /// How many descriptors it has.
    pub(crate) names: AtomicUsize,
    /// [`State`], with its key in the lower half.
    state: AtomicU64,
    pub(crate) is_nonblocking: AtomicBool,
    /// It was the kernel's connection first, whose names it keeps.
    pub(crate) keeps_names: AtomicBool,
    pub(crate) backlog: AtomicI32,
    /// A listener without a key is to try again.
    pub(crate) retries: AtomicBool,
    /// How often something was received, and how often there was no room: an edge-triggered epoll tells again after that.
    pub(crate) received: AtomicU32,
    pub(crate) found_full: AtomicU32,
    /// SO_RCVTIMEO and SO_SNDTIMEO in nanoseconds; zero: none.
    pub(crate) timeouts: [AtomicU64; 2],
    pub(crate) more: Mutex<More>,
}

/// What is seldom looked at.
#[derive(Default)]
pub(crate) struct More {
    /// Options that were set, for the rsocket that it gets.
    pub(crate) options: Vec<(c_int, c_int, Vec<u8>)>,
    /// Where it connects to.
    pub(crate) to: Option<SocketAddr>,
    /// The port that says to others what it is (RDMAV_FORK_SAFE).
    pub(crate) claim: Option<handover::Claim>,
}

impl Socket {
    fn new(family: Family, is_datagram: bool, is_nonblocking: bool, state: State) -> Self {
        Self {
            family,
            is_datagram,
            names: AtomicUsize::new(0),
            state: AtomicU64::new(pack(state)),
            is_nonblocking: AtomicBool::new(is_nonblocking),
            keeps_names: AtomicBool::new(false),
            backlog: AtomicI32::new(0),
            retries: AtomicBool::new(false),
            received: AtomicU32::new(0),
            found_full: AtomicU32::new(0),
            timeouts: [AtomicU64::new(0), AtomicU64::new(0)],
            more: Mutex::default(),
        }
    }

    pub(crate) fn state(&self) -> State {
        unpack(self.state.load(Ordering::Acquire))
    }

    pub(crate) fn set_state(&self, to: State) {
        self.state.store(pack(to), Ordering::Release);
    }

    /// Whether it was `from`, and is `to` now.
    pub(crate) fn turn(&self, from: State, to: State) -> bool {
        self.state.compare_exchange(pack(from), pack(to), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Its rsocket, if one carries it or listens for it.
    pub(crate) fn key(&self) -> Option<RawFd> {
        match self.state() {
            State::Connecting(key) | State::Connected(key) | State::Datagram(key) | State::Listening(Some(key)) => Some(key),
            _ => None,
        }
    }

    /// Whether the kernel has a part in what it is ready for.
    pub(crate) fn is_kernels_too(&self) -> bool {
        !matches!(self.state(), State::Connecting(_) | State::Connected(_) | State::Datagram(_))
    }

    pub(crate) fn more(&self) -> std::sync::MutexGuard<'_, More> {
        self.more.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn blocks(&self) -> bool {
        !self.is_nonblocking.load(Ordering::Relaxed)
    }

    /// When a call that receives (0) or sends (1) is to give up.
    pub(crate) fn deadline(&self, which: usize) -> Option<Instant> {
        match self.timeouts[which].load(Ordering::Relaxed) {
            0 => None,
            ns => Some(Instant::now() + Duration::from_nanos(ns)),
        }
    }

    /// Waits until its rsocket is ready for one of these, or one of the kernel's descriptors is.
    ///
    /// # Errors
    /// EAGAIN: the time is up; EINTR.
    pub(crate) fn wait(&self, key: RawFd, events: i16, others: &mut [pollfd], deadline: Option<Instant>) -> Result<Woken, Errno> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let events = events | libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
        // (A call with a limit is never begun anew: signal(7).)
        let waiting = Waiting { timeout: left, mask: None, restarts: deadline.is_none() };
        match api::wait(others, waiting, |look| look.events(key) & events != 0)? {
            Woken::Nothing => Err(Errno(libc::EAGAIN)),
            woken => Ok(woken),
        }
    }
}

fn pack(state: State) -> u64 {
    let (kind, key) = match state {
        State::Fresh => (0, None),
        State::Listening(key) => (1, key),
        State::Connecting(key) => (2, Some(key)),
        State::Connected(key) => (3, Some(key)),
        State::Datagram(key) => (4, Some(key)),
        State::ForkActive => (5, None),
        State::ForkPassive => (6, None),
        State::Moving => (7, None),
        State::Lost => (8, None),
        State::Kernel => (9, None),
    };
    kind << 32 | u64::from(key.unwrap_or(-1).cast_unsigned())
}

fn unpack(word: u64) -> State {
    let key = (word as u32).cast_signed();
    match word >> 32 {
        0 => State::Fresh,
        1 => State::Listening((key >= 0).then_some(key)),
        2 => State::Connecting(key),
        3 => State::Connected(key),
        4 => State::Datagram(key),
        5 => State::ForkActive,
        6 => State::ForkPassive,
        7 => State::Moving,
        8 => State::Lost,
        _ => State::Kernel,
    }
}

/// The kernel has made a socket.
pub(crate) fn made(fd: c_int, domain: c_int, kind: c_int, protocol: c_int) {
    forgotten(fd);
    if !table::is_owner() || !config::wants(domain, kind, protocol) {
        return;
    }
    let family = if domain == libc::AF_INET { Family::V4 } else { Family::V6 };
    let is_datagram = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) == libc::SOCK_DGRAM;
    let socket = Socket::new(family, is_datagram, kind & libc::SOCK_NONBLOCK != 0, State::Fresh);
    table::lock().insert(fd, Arc::new(socket));
}

/// Leaves a socket to the kernel for good, under all of its descriptors.
pub(crate) fn leave_to_kernel(socket: &Arc<Socket>, why: impl core::fmt::Display) {
    socket.set_state(State::Kernel);
    if let Some(claim) = socket.more().claim.take() {
        claim.give_up();
    }
    let mut names = Vec::new();
    {
        let mut table = table::lock();
        names.extend(table.sockets.iter().filter(|(_, other)| Arc::ptr_eq(other, socket)).map(|(fd, _)| *fd));
        for fd in &names {
            epoll::hand_to_kernel(&mut table, *fd);
            table.remove(*fd);
        }
    }
    tracing::debug!("descriptor {names:?} stays the kernel's: {why}");
    api::wake();
}

/// A descriptor is closed, or is another one's. Nobody has it any more: its rsocket closes.
pub(crate) fn forgotten(fd: c_int) {
    if !table::is_known(fd) || !table::is_owner() {
        return;
    }
    let last = table::lock().remove(fd);
    api::wake();
    let Some(socket) = last else { return };
    if let Some(claim) = socket.more().claim.take() {
        claim.give_up();
    }
    if let Some(key) = socket.key() {
        if socket.is_datagram {
            table::set_internal(key, false);
        }
        api::close(key);
    }
}

/// The name that the kernel has for its socket.
pub(crate) fn kernel_name(fd: c_int, family: Family, is_peer: bool) -> Option<SocketAddr> {
    let mut storage = MaybeUninit::<sockaddr_storage>::zeroed();
    let mut len = size_of::<sockaddr_storage>() as socklen_t;
    let address = storage.as_mut_ptr().cast::<sockaddr>();
    // SAFETY: room for any address, and its length.
    let got = unsafe { if is_peer { next::getpeername(fd, address, &raw mut len) } else { next::getsockname(fd, address, &raw mut len) } };
    // SAFETY: as above.
    (got == 0).then(|| unsafe { api::read_address(address, len, family) }.ok()).flatten()
}

/// A new rsocket with the options that were set.
pub(crate) fn rsocket_for(socket: &Socket) -> Result<RawFd, Errno> {
    let key = api::stream(socket.family)?;
    for (level, number, value) in &socket.more().options {
        // What rsockets do not have is the kernel's alone.
        let _ = api::set_option(key, *level, *number, value);
    }
    Ok(key)
}

/// listen(2), after the kernel's.
pub(crate) fn listening(fd: c_int, socket: &Arc<Socket>, backlog: c_int) {
    if socket.is_datagram || !matches!(socket.state(), State::Fresh | State::Listening(_)) {
        return;
    }
    socket.backlog.store(backlog, Ordering::Relaxed);
    if let State::Listening(Some(key)) = socket.state() {
        let _ = api::listen(key, backlog);
        return;
    }
    // Accepting looks in both places, and waits in none: what the program says about waiting is kept here.
    options::set_kernel_nonblocking(fd, true);
    socket.set_state(State::Listening(None));
    if handover::is_on() {
        handover::listening(fd, socket);
        return;
    }
    socket.retries.store(true, Ordering::Relaxed);
    listen_too(fd, socket);
}

/// How long a child may take, and how long to wait between two looks.
const COPY_LIFE: Duration = Duration::from_millis(10);
const COPY_LOOK: Duration = Duration::from_micros(500);

/// A listener without an rsocket gets one, if nobody else has the port: a child's, say, which has inherited the socket and waits on it.
pub(crate) fn listen_too(fd: c_int, socket: &Arc<Socket>) {
    if socket.state() != State::Listening(None) || !socket.retries.swap(false, Ordering::Relaxed) {
        return;
    }
    let Some(name) = kernel_name(fd, socket.family, false) else { return };
    let began = Instant::now();
    let bind = |key| loop {
        match api::bind(key, name) {
            // Just after a fork, the child has its parent's port until it closes what it has inherited.
            Err(Errno(libc::EADDRINUSE)) if began.elapsed() < COPY_LIFE => std::thread::sleep(COPY_LOOK),
            bound => return bound,
        }
    };
    let listened = rsocket_for(socket).and_then(|key| {
        let listened = bind(key).and_then(|()| api::listen(key, socket.backlog.load(Ordering::Relaxed)));
        if listened.is_err() || !socket.turn(State::Listening(None), State::Listening(Some(key))) {
            api::close(key);
        }
        listened
    });
    if let Err(Errno(code)) = listened {
        tracing::debug!("descriptor {fd} listens at {name} in the kernel alone: errno {code}");
    }
}

/// A process that forks stops listening, unless somebody waits to be accepted: whichever of the two waits for connections next listens again.
pub(crate) fn stop_listening(socket: &Socket) {
    if let State::Listening(Some(key)) = socket.state()
        && api::look(|look| look.events(key)).is_none_or(|events| events & libc::POLLIN == 0)
        && socket.turn(State::Listening(Some(key)), State::Listening(None))
    {
        api::close(key);
        socket.retries.store(true, Ordering::Relaxed);
    }
}

/// accept4(2), of a listener. The connection's descriptor; [`THEIRS`]: the kernel has one.
///
/// # Errors
/// EAGAIN; EINTR; EMFILE, ENFILE, ENOMEM; [`THEIRS`].
pub(crate) fn accept(fd: c_int, socket: &Arc<Socket>, flags: c_int) -> Result<(c_int, SocketAddr), Errno> {
    let deadline = socket.deadline(0);
    let mut kernels = [pollfd { fd, events: libc::POLLIN, revents: 0 }];
    loop {
        listen_too(fd, socket);
        socket.received.fetch_add(1, Ordering::Relaxed);
        let State::Listening(key) = socket.state() else { return Err(THEIRS) };
        if let Some(key) = key {
            match api::accept(key) {
                Ok((accepted, peer)) => return accepted_as(socket.family, accepted, flags).map(|fd| (fd, peer)),
                Err(Errno(libc::EAGAIN)) => {}
                Err(error) => tracing::debug!("raccept: {error:?}"),
            }
        }
        kernels[0].revents = 0;
        let left = if socket.blocks() { deadline.map(|at| at.saturating_duration_since(Instant::now())) } else { Some(Duration::ZERO) };
        let waiting = Waiting { timeout: left, mask: None, restarts: deadline.is_none() };
        let woken = api::wait(&mut kernels, waiting, |look| {
            key.is_some_and(|key| look.events(key) != 0) || key.is_none() && socket.retries.load(Ordering::Relaxed)
        })?;
        match woken {
            Woken::Ours => {}
            Woken::Others => return Err(THEIRS),
            Woken::Nothing => return Err(Errno(libc::EAGAIN)),
        }
    }
}

/// A connection that came as an rsocket gets a descriptor.
fn accepted_as(family: Family, key: RawFd, flags: c_int) -> Result<c_int, Errno> {
    let domain = if family == Family::V4 { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: plain integers.
    let fd = unsafe { next::socket(domain, libc::SOCK_STREAM | flags, 0) };
    if fd < 0 {
        let error = Errno::last();
        api::close(key);
        return Err(error);
    }
    forgotten(fd);
    let socket = Socket::new(family, false, flags & libc::SOCK_NONBLOCK != 0, State::Connected(key));
    table::lock().insert(fd, Arc::new(socket));
    Ok(fd)
}

/// The kernel has accepted a connection.
pub(crate) fn accepted_by_kernel(listener: &Socket, fd: c_int, flags: c_int) {
    forgotten(fd);
    if listener.more().claim.is_some() {
        let socket = Socket::new(listener.family, false, flags & libc::SOCK_NONBLOCK != 0, State::ForkPassive);
        table::lock().insert(fd, Arc::new(socket));
    }
}

/// connect(2) of a socket that the kernel has so far.
///
/// # Errors
/// rconnect's; [`THEIRS`]: it is the kernel's to connect.
pub(crate) fn connect(fd: c_int, socket: &Arc<Socket>, to: SocketAddr) -> Result<(), Errno> {
    if !api::may_reach(to.ip()) {
        leave_to_kernel(socket, format_args!("{to} is another machine's"));
        return Err(THEIRS);
    }
    if handover::is_on()
        && let Some(result) = handover::connecting(fd, socket, to)
    {
        return result;
    }
    let begun = rsocket_for(socket).and_then(|key| {
        let name = kernel_name(fd, socket.family, false).filter(|name| name.port() != 0);
        let bound = name.map_or(Ok(()), |name| api::bind(key, name));
        match bound.and_then(|()| api::connect(key, to)) {
            Ok(()) | Err(Errno(libc::EINPROGRESS)) => Ok(key),
            Err(error) => {
                api::close(key);
                Err(error)
            }
        }
    });
    let key = match begun {
        Ok(key) => key,
        Err(Errno(code)) => {
            leave_to_kernel(socket, format_args!("no rsocket at {to}: errno {code}"));
            return Err(THEIRS);
        }
    };
    socket.more().to = Some(to);
    socket.set_state(State::Connecting(key));
    epoll::moved(socket);
    if !socket.blocks() {
        return Err(Errno(libc::EINPROGRESS));
    }
    match socket.wait(key, libc::POLLOUT, &mut [], socket.deadline(1)) {
        Ok(_) => {}
        // As connect(2) has it (socket(7), SO_SNDTIMEO).
        Err(Errno(libc::EAGAIN)) => return Err(Errno(libc::EINPROGRESS)),
        Err(error) => return Err(error),
    }
    match connected(socket, key) {
        Some(Errno(code)) => {
            leave_to_kernel(socket, format_args!("no rsocket at {to}: errno {code}"));
            Err(THEIRS)
        }
        None => Ok(()),
    }
}

/// An rsocket has an answer: `None`, it is connected; otherwise it is closed.
fn connected(socket: &Arc<Socket>, key: RawFd) -> Option<Errno> {
    let error = api::option(key, libc::SOL_SOCKET, libc::SO_ERROR).ok();
    let code = error.and_then(|bytes| bytes.first_chunk().map(|&bytes| c_int::from_ne_bytes(bytes))).unwrap_or(libc::ECONNREFUSED);
    if code == 0 {
        socket.turn(State::Connecting(key), State::Connected(key));
        return None;
    }
    api::close(key);
    Some(Errno(code))
}

/// Looks how far a socket is that connects without waiting. One that found no rsocket goes on in the kernel: whether it does.
pub(crate) fn look_at_connecting(fd: c_int, socket: &Arc<Socket>) -> bool {
    let State::Connecting(key) = socket.state() else { return false };
    let events = api::look(|look| look.events(key)).unwrap_or(libc::POLLERR);
    if events & (libc::POLLOUT | libc::POLLERR | libc::POLLHUP) == 0 {
        return false;
    }
    let Some(Errno(code)) = connected(socket, key) else { return false };
    let to = socket.more().to;
    leave_to_kernel(socket, format_args!("no rsocket at {to:?}: errno {code}"));
    if let Some(to) = to {
        let _ = kernel_connect(fd, socket.family, to);
    }
    true
}

/// connect(2) of the kernel's.
pub(crate) fn kernel_connect(fd: c_int, family: Family, to: SocketAddr) -> c_int {
    let mut storage = MaybeUninit::<sockaddr_storage>::zeroed();
    let mut len = size_of::<sockaddr_storage>() as socklen_t;
    // SAFETY: room for any address, and its length; then an address of that length.
    unsafe {
        let address = storage.as_mut_ptr().cast::<sockaddr>();
        if api::write_address(to, family, address, &raw mut len).is_err() {
            return -1;
        }
        next::connect(fd, address, len)
    }
}

/// What a socket's calls for data are to do: its rsocket's key.
///
/// # Errors
/// [`THEIRS`]: the kernel has it. EAGAIN, EINTR: it is on its way to an rsocket. ENOTCONN: it was its parent's.
pub(crate) fn carrier(fd: c_int, socket: &Arc<Socket>, flags: c_int) -> Result<RawFd, Errno> {
    loop {
        match socket.state() {
            State::Connected(key) | State::Datagram(key) => return Ok(key),
            State::Connecting(key) => {
                if look_at_connecting(fd, socket) {
                    return Err(THEIRS);
                }
                return Ok(key);
            }
            State::ForkActive | State::ForkPassive | State::Moving => {
                handover::settle(fd, socket, socket.blocks() && flags & libc::MSG_DONTWAIT == 0)?;
            }
            State::Lost => {
                tracing::warn!("descriptor {fd} is an rsocket of the parent's: RDMAV_FORK_SAFE=1 on both sides has it used after a fork");
                return Err(Errno(libc::ENOTCONN));
            }
            State::Fresh | State::Kernel | State::Listening(_) => return Err(THEIRS),
        }
    }
}

/// bind(2) of the kernel's: whether it is bound.
pub(crate) fn kernel_bind(fd: c_int, family: Family, at: SocketAddr) -> bool {
    let mut storage = MaybeUninit::<sockaddr_storage>::zeroed();
    let mut len = size_of::<sockaddr_storage>() as socklen_t;
    // SAFETY: room for any address, and its length; then an address of that length.
    unsafe {
        let address = storage.as_mut_ptr().cast::<sockaddr>();
        api::write_address(at, family, address, &raw mut len).is_ok() && next::bind(fd, address, len) == 0
    }
}
