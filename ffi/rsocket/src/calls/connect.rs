//! rconnect.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;

use ringway_preload::Errno;
use ringway_stack::rsocket::{OptionName, OptionValue, SocketId};
use ringway_stack::{Error, Instant};

use super::datagram;
use crate::library::{Library, enter, errno};
use crate::ports;
use crate::table::Family;
use crate::wait::until;

/// Connects; `to` gives the address, for the socket's family. A socket that does not block goes on by itself: once it is writable, SO_ERROR tells how it ended.
///
/// # Errors
/// EBADF; `to`'s; EINPROGRESS; EALREADY; EISCONN; ECONNREFUSED: nobody of this user listens there; ETIMEDOUT: who does, does not answer; ENETUNREACH: on shared
/// memory the address is none of this machine's, elsewhere there is no route to it; EHOSTUNREACH, EACCES: as its route says; ENODEV: its route leads over another interface than the device's; EINVAL: it
/// listens, or is bound to another family's address; EINTR: it goes on by itself; ENOMEM.
pub(crate) fn connect(fd: RawFd, to: impl FnOnce(Family) -> Result<SocketAddr, Errno>) -> Result<(), Errno> {
    let (to, fabric, is_begun) = {
        let mut library = enter()?;
        library.poll();
        let entry = library.entry(fd)?;
        let to = destination(to(entry.family)?);
        let Ok(id) = entry.stream() else { return datagram::connect(&mut library, fd, to) };
        (to, library.fabric.clone(), library.sockets.remote(id).is_ok())
    };
    // (What was begun already says so itself.)
    let gid = if is_begun {
        None
    } else if ports::is_reached(&fabric, to.ip()) {
        ports::resolve(&fabric, to)?.gid()
    } else {
        return Err(Errno(libc::ENETUNREACH));
    };
    let is_nonblocking = {
        let mut library = enter()?;
        let now = library.poll();
        match begin(&mut library, now, fd, to, gid) {
            Err(Error::InProgress) => {}
            begun => return begun.map_err(errno),
        }
        library.entry(fd)?.is_nonblocking
    };
    if is_nonblocking {
        return Err(Errno(libc::EINPROGRESS));
    }
    until(fd, false, None, |library, id, now| ended(library, now, id))
}

fn begin(library: &mut Library, now: Instant, fd: RawFd, to: SocketAddr, gid: Option<IpAddr>) -> Result<(), Error> {
    let id = library.stream(fd).map_err(|_| Error::BadSocket)?;
    let local = library.sockets.local(id)?;
    // (Where the adapter is not known, the device finds the way, and our name by it.)
    let is_fresh = gid.is_some() && library.sockets.remote(id).is_err();
    if is_fresh {
        let ip = if local.ip().is_unspecified() { to.ip() } else { local.ip() };
        let port = if local.port() == 0 { library.ephemeral_port() } else { local.port() };
        // A listener keeps its name, and is refused below.
        let _ = library.sockets.assign(id, SocketAddr::new(ip, port));
    }
    let (sockets, device) = library.parts();
    if let Some(gid) = gid.filter(|_| is_fresh) {
        device.resolve(to, gid);
    }
    sockets.connect(now, device, id, to)
}

/// How it ended; EAGAIN: it has not yet.
fn ended(library: &mut Library, now: Instant, id: SocketId) -> Result<(), Errno> {
    let (sockets, device) = library.parts();
    sockets.readiness(now, device, id).map_err(errno)?;
    if sockets.is_connecting(id).map_err(errno)? {
        return Err(Errno(libc::EAGAIN));
    }
    match sockets.option(device, id, OptionName::Error).map_err(errno)? {
        OptionValue::Number(0) => Ok(()),
        OptionValue::Number(code) => Err(Errno(code.cast_signed())),
        _ => Err(Errno(libc::EIO)),
    }
}

/// An address that is none in particular is this machine's.
pub(crate) fn destination(to: SocketAddr) -> SocketAddr {
    let ip = match to.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, to.port())
}
