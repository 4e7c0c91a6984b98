//! Datagrams. A UDP socket that is bound to a port, or sends to an rsocket, becomes one itself, and goes on with its UDP socket: peers without
//! rsockets reach it by UDP, and it them.

use core::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringway_preload::errno::THEIRS;
use ringway_preload::{Errno, next};
use rsocket::api::{self, Family, Received};

use crate::socket::{Socket, State, carrier, kernel_bind, kernel_name, leave_to_kernel};
use crate::{epoll, table};

/// The library's own descriptors are numbered from here on.
const INTERNAL_FROM: usize = 600;

/// Options with which a program asks for what comes beside datagrams, or for other ways of sending them: those are the kernel's alone.
pub(crate) fn asks_for_more(level: c_int, number: c_int) -> bool {
    match level {
        libc::SOL_SOCKET => {
            matches!(number, libc::SO_TIMESTAMP | libc::SO_TIMESTAMPNS | libc::SO_TIMESTAMPING | libc::SO_BINDTODEVICE | libc::SO_RXQ_OVFL)
        }
        libc::IPPROTO_IP => matches!(
            number,
            libc::IP_PKTINFO
                | libc::IP_RECVTTL
                | libc::IP_RECVTOS
                | libc::IP_RECVERR
                | libc::IP_HDRINCL
                | libc::IP_TRANSPARENT
                | libc::IP_RECVORIGDSTADDR
        ),
        libc::IPPROTO_IPV6 => {
            matches!(number, libc::IPV6_RECVPKTINFO | libc::IPV6_RECVHOPLIMIT | libc::IPV6_RECVTCLASS | libc::IPV6_RECVERR)
        }
        libc::SOL_UDP => true,
        _ => false,
    }
}

/// After bind(2) of the kernel's.
pub(crate) fn bound(fd: c_int, socket: &Arc<Socket>) {
    if !api::has_datagrams() {
        return leave_to_kernel(socket, "datagrams go by UDP on a network");
    }
    if let Err(Errno(code)) = adopt(fd, socket) {
        leave_to_kernel(socket, format_args!("no rsocket for datagrams at its port: errno {code}"));
    }
}

/// Makes an rsocket of a UDP socket that is bound.
fn adopt(fd: c_int, socket: &Arc<Socket>) -> Result<(), Errno> {
    // SAFETY: plain integers.
    let copy = unsafe { next::fcntl(fd, libc::F_DUPFD_CLOEXEC, INTERNAL_FROM) };
    if copy < 0 {
        return Err(Errno::last());
    }
    // SAFETY: a descriptor of our own, just made.
    let key = api::datagrams(unsafe { OwnedFd::from_raw_fd(copy) }, socket.family)?;
    table::set_internal(key, true);
    for (level, number, value) in &socket.more().options {
        let _ = api::set_option(key, *level, *number, value);
    }
    socket.set_state(State::Datagram(key));
    epoll::moved(socket);
    Ok(())
}

/// A socket that the kernel has so far is about to send to `to`, or to connect to it.
fn begin(fd: c_int, socket: &Arc<Socket>, to: SocketAddr) {
    if !api::is_there(to, true) {
        leave_to_kernel(socket, format_args!("no rsocket for datagrams at {to}"));
        return;
    }
    let any = match socket.family {
        Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    if kernel_name(fd, socket.family, false).is_none_or(|name| name.port() == 0) {
        kernel_bind(fd, socket.family, SocketAddr::new(any, 0));
    }
    bound(fd, socket);
}

/// connect(2).
///
/// # Errors
/// As connect(2)'s; [`THEIRS`].
pub(crate) fn connect(fd: c_int, socket: &Arc<Socket>, to: SocketAddr) -> Result<(), Errno> {
    if socket.state() == State::Fresh {
        begin(fd, socket, to);
    }
    let State::Datagram(key) = socket.state() else { return Err(THEIRS) };
    socket.more().to = Some(to);
    api::connect(key, to)
}

/// Sends a datagram.
///
/// # Errors
/// As sendto(2)'s; [`THEIRS`].
pub(crate) fn send(fd: c_int, socket: &Arc<Socket>, pieces: &[IoSlice<'_>], flags: c_int, to: Option<SocketAddr>) -> Result<usize, Errno> {
    if socket.state() == State::Fresh
        && let Some(to) = to
    {
        begin(fd, socket, to);
    }
    let key = carrier(fd, socket, flags)?;
    let deadline = socket.deadline(1);
    loop {
        match api::send_to(key, pieces, to) {
            Err(Errno(libc::EAGAIN)) if socket.blocks() && flags & libc::MSG_DONTWAIT == 0 => {
                socket.wait(key, libc::POLLOUT, &mut [], deadline)?;
            }
            Err(Errno(libc::EAGAIN)) => {
                socket.found_full.fetch_add(1, Ordering::Relaxed);
                return Err(Errno(libc::EAGAIN));
            }
            sent => return sent,
        }
    }
}

/// Receives a datagram.
///
/// # Errors
/// As recvfrom(2)'s; [`THEIRS`].
pub(crate) fn receive(fd: c_int, socket: &Arc<Socket>, pieces: &mut [IoSliceMut<'_>], flags: c_int) -> Result<Received, Errno> {
    let key = carrier(fd, socket, flags)?;
    let deadline = socket.deadline(0);
    loop {
        socket.received.fetch_add(1, Ordering::Relaxed);
        match api::recv_from(key, pieces, flags & libc::MSG_PEEK) {
            Err(Errno(libc::EAGAIN)) if socket.blocks() && flags & libc::MSG_DONTWAIT == 0 => {
                socket.wait(key, libc::POLLIN, &mut [], deadline)?;
            }
            received => return received,
        }
    }
}
