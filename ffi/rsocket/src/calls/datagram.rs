//! Datagram sockets.

use core::ffi::c_int;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use ringway_devices::messages::Fabric;
use ringway_preload::Errno;
use ringway_stack::device::Protocol;
use ringway_stack::rsocket::Options;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::connect::destination;
use super::open::claim;
use crate::datagram::{Datagram, send_plain};
use crate::library::{Library, enter, enter_first, errno};
use crate::ports;
use crate::table::{Entry, Family, Kind};
use crate::wait::until_any;

fn system(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

/// A new datagram socket.
///
/// # Errors
/// ENODEV: there is no device; EMFILE, ENFILE, ENOMEM.
pub(super) fn socket(family: Family, close_on_exec: bool, is_nonblocking: bool) -> Result<RawFd, Errno> {
    let domain = match family {
        Family::V4 => AddressFamily::INET,
        Family::V6 => AddressFamily::INET6,
    };
    let flags = if close_on_exec { SocketFlags::CLOEXEC } else { SocketFlags::empty() };
    let udp = rustix::net::socket_with(domain, SocketType::DGRAM, flags, None).map_err(system)?;
    let fd = udp.as_raw_fd();
    let mut library = enter_first()?;
    let options = Options::new(library.sockets.settings().sizes);
    library.insert(fd, Entry::new(Kind::Datagram(Box::new(Datagram::new(options))), family, is_nonblocking, Some(udp)));
    Ok(fd)
}

/// Binds one.
///
/// # Errors
/// EBADF; EINVAL: it is bound; the kernel's, from its UDP socket; EADDRINUSE; ENOMEM, ENOSPC.
pub(super) fn bind(library: &mut Library, fd: RawFd, at: SocketAddr) -> Result<(), Errno> {
    let entry = library.entry(fd)?;
    let (family, both) = (entry.family, entry.family == Family::V6 && !entry.v6_only);
    let (datagram, udp) = entry.datagram()?;
    if datagram.open.is_some() {
        return Err(Errno(libc::EINVAL));
    }
    let kernels = match (at.ip(), family) {
        (IpAddr::V4(ip), Family::V6) => SocketAddr::new(ip.to_ipv6_mapped().into(), at.port()),
        _ => at,
    };
    rustix::net::bind(udp, &kernels).map_err(system)?;
    open_bound(library, fd, both)
}

/// Makes an rsocket of a UDP socket that is bound, which does not block: its key.
///
/// # Errors
/// ENODEV: there is no device; [`bind`]'s.
pub(crate) fn adopt(udp: OwnedFd, family: Family) -> Result<RawFd, Errno> {
    let v6_only = family == Family::V6 && rustix::net::sockopt::ipv6_v6only(&udp).unwrap_or(false);
    let key = udp.as_raw_fd();
    let mut library = enter_first()?;
    let options = Options::new(library.sockets.settings().sizes);
    library.insert(key, Entry::new(Kind::Datagram(Box::new(Datagram::new(options))), family, true, Some(udp)));
    let opened = open_bound(&mut library, key, family == Family::V6 && !v6_only);
    if let Ok((open, _)) = library.entry(key)?.open_datagram() {
        open.plain = Some(VecDeque::new());
    }
    if opened.is_err() {
        library.remove(key);
    }
    opened.map(|()| key)
}

/// Opens one whose UDP socket is bound. `both`: `::` is IPv4's addresses, too.
fn open_bound(library: &mut Library, fd: RawFd, both: bool) -> Result<(), Errno> {
    let (_, udp) = library.entry(fd)?.datagram()?;
    let bound = rustix::net::getsockname(udp).and_then(SocketAddr::try_from).map_err(system)?;
    let local = SocketAddr::new(bound.ip().to_canonical(), bound.port());
    library.watch_udp(fd)?;
    let rules = claim(library, Protocol::Udp, local, both)?;
    let Library { table, plane, .. } = library;
    let entry = table.get_mut(&fd).ok_or(Errno(libc::EBADF))?;
    if let Err(error) = entry.datagram()?.0.open(plane, local) {
        rules.into_iter().for_each(|rule| Fabric::give_up(plane, rule));
        return Err(error);
    }
    entry.rules = rules;
    Ok(())
}

/// Binds one that is not bound, to any address and any port.
fn bind_any(library: &mut Library, fd: RawFd) -> Result<(), Errno> {
    let entry = library.entry(fd)?;
    if entry.datagram()?.0.open.is_some() {
        return Ok(());
    }
    let any = match entry.family {
        Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    bind(library, fd, SocketAddr::new(any, 0))
}

/// From now on, it is about this peer alone.
///
/// # Errors
/// [`bind`]'s.
pub(super) fn connect(library: &mut Library, fd: RawFd, to: SocketAddr) -> Result<(), Errno> {
    bind_any(library, fd)?;
    let (open, _) = library.entry(fd)?.open_datagram()?;
    open.peer = Some(to);
    open.state.connect(Some(to));
    Ok(())
}

/// Sends a datagram, to `to`, or to whom it was connected. To nobody, it is lost; where it was connected to nobody, it is ECONNREFUSED.
///
/// # Errors
/// EBADF; EOPNOTSUPP: it is a stream; EDESTADDRREQ; EMSGSIZE: it is longer than 2040 bytes (of IPv6: 2024; 2032 and 2020 to who has not answered yet);
/// ENETUNREACH: no address of this machine; EAGAIN: no room; ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH: as with rconnect; EINTR; ENOMEM.
pub(crate) fn send(fd: RawFd, pieces: &[IoSlice<'_>], flags: c_int, to: Option<SocketAddr>) -> Result<usize, Errno> {
    let (to, is_connected, fabric, is_known, is_of_both) = {
        let mut library = enter()?;
        library.poll();
        bind_any(&mut library, fd)?;
        let fabric = library.fabric.clone();
        let (open, _) = library.entry(fd)?.open_datagram()?;
        let to = destination(to.or(open.peer).ok_or(Errno(libc::EDESTADDRREQ))?);
        (to, open.peer == Some(to), fabric.clone(), open.knows(&fabric, to), open.plain.is_some())
    };
    let bytes = pieces.iter().fold(Vec::new(), |mut all, piece| {
        all.extend_from_slice(piece);
        all
    });
    let plainly = || {
        let mut library = enter()?;
        let (_, udp) = library.entry(fd)?.open_datagram()?;
        send_plain(udp, &bytes, to)
    };
    if !is_known {
        if is_of_both
            && (!ports::is_reached(&fabric, to.ip()) || matches!(ports::resolve_datagrams(&fabric, to), Err(Errno(libc::ECONNREFUSED))))
        {
            return plainly();
        }
        if !ports::is_reached(&fabric, to.ip()) {
            return Err(Errno(libc::ENETUNREACH));
        }
        let found = match ports::resolve_datagrams(&fabric, to) {
            Ok(found) => found,
            Err(Errno(libc::ECONNREFUSED)) if !is_connected => return Ok(bytes.len()),
            Err(error) => return Err(error),
        };
        let mut library = enter()?;
        library.entry(fd)?.open_datagram()?.0.learn(&fabric, to, found);
    }
    let sent = until_any(fd, flags & libc::MSG_DONTWAIT != 0, None, |library, now| {
        let Library { table, plane, .. } = library;
        let (open, udp) = table.get_mut(&fd).ok_or(Errno(libc::EBADF))?.open_datagram()?;
        open.send(now, udp, plane, &bytes, to)
    });
    match sent {
        // (UDP's own are up to 64 KiB long.)
        Err(Errno(libc::EMSGSIZE)) if is_of_both => plainly(),
        sent => sent,
    }
}

/// A datagram that was received.
pub struct Received {
    /// How many bytes were copied.
    pub len: usize,
    /// How long it was: what there was no room for is gone.
    pub whole: usize,
    /// From whom.
    pub from: SocketAddr,
    /// The socket's.
    pub family: Family,
}

/// Receives a datagram.
///
/// # Errors
/// EBADF; EOPNOTSUPP: it is a stream; EAGAIN: there is none; EINTR; [`bind`]'s, where it was not bound.
pub(crate) fn recv(fd: RawFd, pieces: &mut [IoSliceMut<'_>], flags: c_int) -> Result<Received, Errno> {
    bind_any(&mut *enter()?, fd)?;
    let wanted = pieces.iter().map(|piece| piece.len()).sum();
    let mut bytes = vec![0; wanted];
    let received = until_any(fd, flags & libc::MSG_DONTWAIT != 0, None, |library, now| {
        let Library { table, plane, fabric, .. } = library;
        let entry = table.get_mut(&fd).ok_or(Errno(libc::EBADF))?;
        let family = entry.family;
        let (open, udp) = entry.open_datagram()?;
        open.take_udp(now, udp, plane, fabric);
        let (len, whole, from) = open.recv(now, plane, &mut bytes, flags & libc::MSG_PEEK != 0).map_err(errno)?;
        Ok(Received { len, whole, from, family })
    })?;
    super::stream::scatter(&bytes[..received.len], pieces);
    Ok(received)
}
