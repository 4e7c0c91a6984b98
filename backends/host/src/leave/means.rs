//! What takes CAP_NET_ADMIN and CAP_NET_RAW: the process does it itself, or a broker for it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ringway_stack::tcp::State;

use super::inject::Injector;
use super::repair::Socket;
use super::{LeaveError, at};
use crate::lender::Lender;

/// See the module's documentation.
#[derive(Debug)]
pub(super) enum Means {
    /// Raw sockets of IPv4 and of IPv6; `None`: not allowed, or not there.
    Own([Option<Injector>; 2]),
    Lent(Arc<dyn Lender>),
}

impl Means {
    /// Whether the kernel can be told of packets for that address.
    pub(super) fn injects(&self, local: SocketAddr) -> bool {
        match self {
            Self::Own(injectors) => injectors[usize::from(local.is_ipv6())].is_some(),
            Self::Lent(lender) => lender.injects(),
        }
    }

    pub(super) fn inject(&self, packet: &[u8], local: SocketAddr) -> io::Result<()> {
        match self {
            Self::Own(injectors) => {
                injectors[usize::from(local.is_ipv6())].as_ref().ok_or(io::ErrorKind::Unsupported)?.inject(packet, local)
            }
            Self::Lent(lender) => lender.inject(packet, local),
        }
    }

    /// Begins repair mode; the socket is bound to `local` afterwards, to become a connection with `remote`.
    pub(super) fn begin_repair(&self, socket: Socket<'_>, local: SocketAddr, remote: SocketAddr) -> Result<(), LeaveError> {
        match self {
            Self::Own(_) => begin(socket, local),
            Self::Lent(lender) => lender.begin_repair(socket.0, local, remote).map_err(at("TCP_REPAIR by the broker")),
        }
    }

    pub(super) fn end_repair(&self, socket: Socket<'_>, probes: bool) -> io::Result<()> {
        match self {
            Self::Own(_) => end(socket, probes),
            Self::Lent(lender) => lender.end_repair(socket.0, probes),
        }
    }

    pub(super) fn reserve(&self, socket: Socket<'_>, receive: usize, send: usize) -> io::Result<()> {
        match self {
            Self::Own(_) => socket.reserve(receive, send),
            Self::Lent(lender) => lender.reserve(socket.0, receive, send),
        }
    }
}

fn begin(socket: Socket<'_>, local: SocketAddr) -> Result<(), LeaveError> {
    let reuses_address = socket.reuses_address().map_err(at("SO_REUSEADDR"))?;
    socket.begin_repair()?;
    let bound = || -> io::Result<()> {
        // (In repair mode, a port that a listener has is to be had as well: SK_FORCE_REUSE.)
        if socket.address(false)?.port() == 0 { socket.bind(local) } else { Ok(()) }
    };
    bound().map_err(|error| {
        socket.abandon(&Means::Own([None, None]), reuses_address);
        at("bind")(error)
    })
}

/// For a broker: puts a TCP socket into repair mode that is bound to that port, or to nothing yet, and then to `local`. As it was where this fails.
///
/// # Errors
/// The kernel's; [`io::ErrorKind::AddrInUse`]: it is bound to something else.
pub fn begin_repair(socket: BorrowedFd<'_>, local: SocketAddr) -> io::Result<()> {
    let socket = Socket(socket);
    let bound = socket.address(false)?;
    if bound.port() != 0 && !is_at(bound, local) || socket.info()?.state == Some(State::Listen) {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    begin(socket, local).map_err(|error| match error {
        LeaveError::Step { source, .. } => source,
        error => io::Error::new(io::ErrorKind::PermissionDenied, error),
    })?;
    // (Whoever has the socket as well may have bound it elsewhere meanwhile, where in repair mode nothing is in the way.)
    match socket.address(false) {
        Ok(bound) if is_at(bound, local) => Ok(()),
        _ => retire(socket.0).and(Err(io::ErrorKind::AddrInUse.into())),
    }
}

/// Whether a socket that is bound there has that address.
pub(super) fn is_at(bound: SocketAddr, local: SocketAddr) -> bool {
    bound.port() == local.port() && (bound.ip() == local.ip() || bound.ip().is_unspecified())
}

/// For a broker: ends repair mode, with a window probe or without, of a socket that is the connection from `local` to `remote`, or one that is connected to nobody.
/// Where this fails it is [`retire`]d.
///
/// # Errors
/// The kernel's; [`io::ErrorKind::AddrInUse`]: it is another connection's, or listens.
pub fn end_repair(socket: BorrowedFd<'_>, (local, remote): (SocketAddr, SocketAddr), probes: bool) -> io::Result<()> {
    let socket = Socket(socket);
    let is_its = || -> io::Result<()> {
        let is_its = match socket.info()?.state {
            Some(State::Listen) | None => false,
            Some(State::Closed) => is_at(socket.address(false)?, local),
            Some(_) => are(socket.address(false)?, local) && are(socket.address(true)?, remote),
        };
        if is_its { Ok(()) } else { Err(io::ErrorKind::AddrInUse.into()) }
    };
    // (Once more afterwards: whoever has the socket as well may have connected it elsewhere meanwhile.)
    let ended = is_its().and_then(|()| end(socket, probes)).and_then(|()| is_its());
    ended.or_else(|error| retire(socket.0).and(Err(error)))
}

fn are(address: SocketAddr, other: SocketAddr) -> bool {
    (address.ip(), address.port()) == (other.ip(), other.port())
}

fn end(socket: Socket<'_>, probes: bool) -> io::Result<()> {
    if probes { socket.end_repair() } else { socket.end_repair_unconnected() }
}

/// For a broker: takes a socket out of repair mode that is not to be in it, whatever it is connected to. It is connected to nobody afterwards, and hears of no interface
/// any more: whoever has it as well may connect it again before this is through, but not bind it to another device, which takes CAP_NET_RAW.
///
/// # Errors
/// The kernel's. [`io::ErrorKind::ResourceBusy`]: it was connected anew each time.
pub fn retire(socket: BorrowedFd<'_>) -> io::Result<()> {
    /// So often it is taken away from who connects it.
    const TIMES_MAX: usize = 16;
    let socket = Socket(socket);
    socket.bind_to_loopback()?;
    for _ in 0..TIMES_MAX {
        // (One that listens takes no such option; dropped, it does.)
        let _ = socket.begin_repair();
        let _ = socket.drop_connection();
        let _ = socket.end_repair_unconnected();
        if socket.info()?.state == Some(State::Closed) && !socket.is_in_repair()? {
            return Ok(());
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// For a broker: buffers of at least so many bytes.
///
/// # Errors
/// The kernel's.
pub fn reserve(socket: BorrowedFd<'_>, receive: usize, send: usize) -> io::Result<()> {
    Socket(socket).reserve(receive, send)
}

/// Whether a descriptor is a TCP socket of IPv4 or IPv6.
pub fn is_tcp(descriptor: &impl AsFd) -> bool {
    Socket(descriptor.as_fd()).is_tcp().unwrap_or(false)
}
