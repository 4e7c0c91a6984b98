//! The calls in Rust, for a library that stands on this one and has descriptors of its own for its sockets (librspreload.so). Streams have keys instead, which
//! are above all descriptors of the kernel's; none of these calls blocks, but for [`wait`] and for asking who has an address, which takes half a second
//! at most.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{OwnedFd, RawFd};

use libc::{pollfd, sigset_t, sockaddr, socklen_t};
use ringway_devices::messages::Fabric;
use ringway_host::sleep::ppoll;
use ringway_preload::Errno;
use ringway_stack::Instant;
use ringway_stack::device::{Protocol, RuleId};

use crate::calls::{connect, datagram, open, options, poll, stream};
use crate::library::{Library, enter_first, enter_or_none};
use crate::ports;
use crate::wait::signals::Signals;
use crate::{address, config, exit, fork, library, wait};

pub use crate::calls::datagram::Received;
pub use crate::table::Family;

/// Threads in [`wait`] look again.
pub fn wake() {
    if let Some(mut library) = enter_or_none() {
        library.sleepers.wake();
    }
}

/// Registers the handlers of forks now. Handlers that are registered later run, in the parent and in the child, when rsockets can be used again.
pub fn prepare_for_forks() {
    fork::install();
}

/// Says, before the first rsocket, that whoever connects has TCP as well: a peer that does not answer within two seconds has no rsockets.
pub fn has_tcp_as_well() {
    config::HAS_TCP.store(true, Ordering::Relaxed);
}

/// Whether UDP sockets are to be rsockets as well: on a network nobody knows whose are, without asking.
pub fn has_datagrams() -> bool {
    !config::is_on_network()
}

/// Whether there is any rsocket in this process, or was.
pub fn is_begun() -> bool {
    enter_or_none().is_some()
}

/// Whether a descriptor is this library's own, of which its program does not know. Takes no lock.
pub fn is_internal(fd: RawFd) -> bool {
    ringway_devices::is_internal(fd) || library::udp_fd() == fd
}

/// Lets what was sent arrive, for two seconds at most, and ends all connections as rclose does: the process ends. Unless the calls' lock is not to be had: the
/// thread itself may have it, interrupted by a signal.
pub fn close_all_if_free() {
    exit::close_all_if_free();
}

/// Reads an address of a socket's family. IPv4-mapped ones are IPv4's from here on.
///
/// # Errors
/// EFAULT; EINVAL: it is too short; EAFNOSUPPORT.
///
/// # Safety
/// It leads nowhere for certain, or `len` bytes can be read there.
pub unsafe fn read_address(address: *const sockaddr, len: socklen_t, family: Family) -> Result<SocketAddr, Errno> {
    // SAFETY: the caller's promise.
    unsafe { address::read(address, len, family) }
}

/// Writes an address for a socket of that family, as much as there is room for, and its whole length. Null: it is not wanted.
///
/// # Errors
/// EFAULT; EINVAL: a length that is negative.
///
/// # Safety
/// Each pointer leads nowhere for certain, or `len` to a length, and `out` to as many writable bytes.
pub unsafe fn write_address(address: SocketAddr, family: Family, out: *mut sockaddr, len: *mut socklen_t) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { address::write(address, family, out, len) }
}

/// Whether connections to `address` stay on this machine.
pub fn is_ours(address: IpAddr) -> bool {
    ports::is_ours(address)
}

/// Whether a stream to `address` is to be tried, by who has TCP for it as well: it stays on this machine, or the device leads there and soon says that nobody answers.
pub fn may_reach(address: IpAddr) -> bool {
    // (On shared memory nobody need be asked.)
    let may_ask = || config::is_on_network() && enter_first().is_ok_and(|library| library.fabric.may_ask(&library.plane, address));
    address.is_unspecified() || ports::is_ours(address) || may_ask()
}

/// A new stream: its key.
///
/// # Errors
/// ENODEV: there is no device.
pub fn stream(family: Family) -> Result<RawFd, Errno> {
    open::keyed_stream(family)
}

/// A datagram socket with this UDP socket, which is bound: its key.
///
/// # Errors
/// ENODEV: there is no device; EADDRINUSE: another rsocket has the port; ENOMEM, ENOSPC.
pub fn datagrams(udp: OwnedFd, family: Family) -> Result<RawFd, Errno> {
    datagram::adopt(udp, family)
}

/// rbind.
///
/// # Errors
/// As rbind's.
pub fn bind(key: RawFd, at: SocketAddr) -> Result<(), Errno> {
    open::bind(key, |_| Ok(at))
}

/// rlisten.
///
/// # Errors
/// As rlisten's.
pub fn listen(key: RawFd, backlog: i32) -> Result<(), Errno> {
    open::listen(key, backlog)
}

/// raccept: the connection's key, and its peer's name.
///
/// # Errors
/// As raccept's; EAGAIN: nobody is there.
pub fn accept(key: RawFd) -> Result<(RawFd, SocketAddr), Errno> {
    open::accept_keyed(key)
}

/// rconnect.
///
/// # Errors
/// As rconnect's; EINPROGRESS, of a stream.
pub fn connect(key: RawFd, to: SocketAddr) -> Result<(), Errno> {
    connect::connect(key, |_| Ok(to))
}

/// Who has a port for rsockets, as far as this machine goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Nobody of this user's.
    Nobody,
    /// A process that does not answer in time (it is stopped, or the machine has much else to do), or for whose memory there is no room.
    Silent,
    /// A process that answers.
    There,
}

/// Which of these it is. (Streams' and datagram sockets' ports are two.)
pub fn presence(to: SocketAddr, is_datagram: bool) -> Presence {
    let Ok(fabric) = enter_first().map(|library| library.fabric.clone()) else { return Presence::Nobody };
    let to = connect::destination(to);
    // (Of other machines nobody knows without asking.)
    if !fabric.is_this_machine() || !ports::is_ours(to.ip()) {
        return Presence::Nobody;
    }
    match if is_datagram { ports::resolve_datagrams(&fabric, to) } else { ports::resolve(&fabric, to) } {
        Ok(_) => Presence::There,
        Err(Errno(libc::ETIMEDOUT | libc::ENOMEM)) => Presence::Silent,
        Err(_) => Presence::Nobody,
    }
}

/// Whether a process of this user's has that port for rsockets, and answers.
pub fn is_there(to: SocketAddr, is_datagram: bool) -> bool {
    presence(to, is_datagram) == Presence::There
}

/// Takes a stream's port, so that [`is_there`] says so to others, without a socket: who connects there is refused.
///
/// # Errors
/// EADDRINUSE; ENOMEM; ENODEV: there is no device.
pub fn claim(at: SocketAddr) -> Result<RuleId, Errno> {
    ports::claim(&mut enter_first()?.plane, Protocol::Tcp, at)
}

/// Gives it back.
pub fn give_up(rule: RuleId) {
    if let Some(mut library) = enter_or_none() {
        Fabric::give_up(&mut library.plane, rule);
    }
}

/// rshutdown, which does not wait.
///
/// # Errors
/// As rshutdown's.
pub fn shutdown(key: RawFd, how: i32) -> Result<(), Errno> {
    open::shutdown(key, how)
}

/// rclose, which does not wait.
pub fn close(key: RawFd) {
    // (That a child has none of its parent's is no failure.)
    let _ = open::close(key);
}

/// Its own name.
///
/// # Errors
/// EBADF.
pub fn local(key: RawFd) -> Result<SocketAddr, Errno> {
    open::local(key).map(|(name, _)| name)
}

/// Its peer's.
///
/// # Errors
/// EBADF; ENOTCONN.
pub fn remote(key: RawFd) -> Result<SocketAddr, Errno> {
    open::remote(key).map(|(name, _)| name)
}

/// rsetsockopt.
///
/// # Errors
/// As rsetsockopt's; ENOTSUP: rsockets have no such option.
pub fn set_option(key: RawFd, level: i32, number: i32, value: &[u8]) -> Result<(), Errno> {
    options::set(key, level, number, value)
}

/// rgetsockopt.
///
/// # Errors
/// EBADF; ENOTSUP: rsockets have no such option.
pub fn option(key: RawFd, level: i32, number: i32) -> Result<Vec<u8>, Errno> {
    options::get(key, level, number)
}

/// Sends what there is room for.
///
/// # Errors
/// As rsend's.
pub fn send(key: RawFd, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
    stream::send(key, pieces, libc::MSG_DONTWAIT)
}

/// Receives what is there. Of the flags, MSG_PEEK counts.
///
/// # Errors
/// As rrecv's.
pub fn recv(key: RawFd, pieces: &mut [IoSliceMut<'_>], flags: i32) -> Result<usize, Errno> {
    stream::recv(key, pieces, flags | libc::MSG_DONTWAIT)
}

/// Sends a datagram to `to`, or to whom it was connected.
///
/// # Errors
/// As rsendto's.
pub fn send_to(key: RawFd, pieces: &[IoSlice<'_>], to: Option<SocketAddr>) -> Result<usize, Errno> {
    datagram::send(key, pieces, libc::MSG_DONTWAIT, to)
}

/// Receives a datagram. Of the flags, MSG_PEEK counts.
///
/// # Errors
/// As rrecvfrom's.
pub fn recv_from(key: RawFd, pieces: &mut [IoSliceMut<'_>], flags: i32) -> Result<Received, Errno> {
    datagram::recv(key, pieces, flags | libc::MSG_DONTWAIT)
}

/// Looks at rsockets, while nothing about them changes.
pub struct Look<'a> {
    library: &'a mut Library,
    now: Instant,
}

impl Look<'_> {
    /// What an rsocket is ready for, as poll(2) says it.
    pub fn events(&mut self, key: RawFd) -> i16 {
        poll::readiness_of(self.library, self.now, key).map_or(libc::POLLNVAL, poll::events_of)
    }
}

/// Looks once.
pub fn look<T>(what: impl FnOnce(&mut Look<'_>) -> T) -> Option<T> {
    enter_or_none().map(|mut library| {
        let now = library.poll();
        what(&mut Look { library: &mut library, now })
    })
}

/// How a [`wait`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// `look` found something.
    Ours,
    /// One of the others is ready: their `revents` say which. (They are asked after `look` found something, too.)
    Others,
    /// Neither: the time is up.
    Nothing,
}

/// What a [`wait`] is about, beside what it waits for.
#[derive(Clone, Copy, Default)]
pub struct Waiting<'a> {
    /// How long; `None`: without a limit.
    pub timeout: Option<Duration>,
    /// The signals that are blocked meanwhile; `None`: those that are.
    pub mask: Option<&'a sigset_t>,
    /// Handlers with SA_RESTART do not end it.
    pub restarts: bool,
}

/// Waits until `look` says that something is ready, one of the kernel's descriptors is, or the time is up. `look` is called whenever something happened, and is
/// to call none of the others here.
///
/// # Errors
/// EINTR: a handler of a signal ran; EMFILE, ENFILE, ENOMEM: there is nothing to sleep on.
pub fn wait(others: &mut [pollfd], waiting: Waiting<'_>, mut look: impl FnMut(&mut Look<'_>) -> bool) -> Result<Woken, Errno> {
    let Waiting { timeout, mask, restarts } = waiting;
    let mut signals = Signals::new(restarts, mask);
    let mut began = None;
    loop {
        let Some(mut library) = enter_or_none() else {
            match signals.heard(ask(others, timeout, mask))? {
                Some(ready) => return Ok(woken(ready)),
                None if signals.is_over() => return Err(Errno(libc::EINTR)),
                None => continue,
            }
        };
        let now = library.poll_again();
        let is_found = look(&mut Look { library: &mut library, now });
        let began = *began.get_or_insert(now);
        let left = timeout.map(|timeout| (began + timeout).since(now));
        if is_found || left == Some(Duration::ZERO) || signals.is_over() {
            drop(library);
            let ready = ask(others, Some(Duration::ZERO), mask);
            return match ready {
                _ if is_found => Ok(Woken::Ours),
                Ok(0) if signals.is_over() => Err(Errno(libc::EINTR)),
                ready => ready.map(woken),
            };
        }
        signals.block();
        if now.since(began) < library.sockets.settings().polling_time {
            drop(library);
            if signals.heard(ask(others, Some(Duration::ZERO), mask))?.is_some_and(|ready| ready > 0) {
                return Ok(Woken::Others);
            }
            ringway_host::sleep::yield_core();
            signals.between_looks(began, now);
            continue;
        }
        let slept = wait::sleep(library, others, left, signals.mask());
        signals.heard(slept)?;
        if others.iter().any(|fd| fd.revents != 0) {
            if let Some(mut library) = enter_or_none() {
                let now = library.poll();
                look(&mut Look { library: &mut library, now });
            }
            return Ok(Woken::Others);
        }
    }
}

/// How many of the kernel's descriptors are ready.
fn ask(others: &mut [pollfd], timeout: Option<Duration>, mask: Option<&sigset_t>) -> Result<usize, Errno> {
    if others.is_empty() && mask.is_none() && timeout == Some(Duration::ZERO) {
        return Ok(0);
    }
    ppoll(others, timeout, mask).map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EINTR)))
}

const fn woken(ready: usize) -> Woken {
    if ready > 0 { Woken::Others } else { Woken::Nothing }
}
