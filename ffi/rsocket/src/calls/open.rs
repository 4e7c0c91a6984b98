//! From rsocket to rclose.

use core::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;

use ringway_devices::messages::Fabric;
use ringway_preload::Errno;
use ringway_stack::device::{Protocol, RuleId};
use ringway_stack::rsocket::{Shutdown, SocketId};
use ringway_stack::{Error, Instant};

use super::datagram;
use super::direct::await_writers;
use crate::library::{EPHEMERAL, Library, enter, enter_first, errno};
use crate::ports;
use crate::table::{Entry, Family, Kind, key, placeholder};
use crate::wait::{Looking, until};

/// A new rsocket.
///
/// # Errors
/// ENOTSUP: another family, kind or protocol than PF_INET's and PF_INET6's SOCK_STREAM and SOCK_DGRAM; ENODEV: there is no device; EMFILE, ENFILE, ENOMEM.
pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> Result<RawFd, Errno> {
    let family = match domain {
        libc::AF_INET => Family::V4,
        libc::AF_INET6 => Family::V6,
        _ => return Err(Errno(libc::ENOTSUP)),
    };
    const FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let (closes, is_nonblocking) = (kind & libc::SOCK_CLOEXEC != 0, kind & libc::SOCK_NONBLOCK != 0);
    match kind & !FLAGS {
        libc::SOCK_STREAM if matches!(protocol, 0 | libc::IPPROTO_TCP) => {
            let (fd, number) = placeholder(closes)?;
            let mut library = enter_first()?;
            let stream = Kind::Stream(library.sockets.socket());
            library.insert(fd, Entry::new(stream, family, is_nonblocking, Some(number)));
            Ok(fd)
        }
        libc::SOCK_DGRAM if matches!(protocol, 0 | libc::IPPROTO_UDP) => datagram::socket(family, closes, is_nonblocking),
        _ => Err(Errno(libc::ENOTSUP)),
    }
}

/// A stream without a descriptor of the kernel's, which does not block.
///
/// # Errors
/// ENODEV: there is no device.
pub(crate) fn keyed_stream(family: Family) -> Result<RawFd, Errno> {
    let mut library = enter_first()?;
    let stream = Kind::Stream(library.sockets.socket());
    let key = key();
    library.insert(key, Entry::new(stream, family, true, None));
    Ok(key)
}

/// Binds to an address of this machine's. `at` gives it, for the socket's family.
///
/// # Errors
/// EBADF; `at`'s; EINVAL: it has a name already; EADDRNOTAVAIL: no address of this machine; EADDRINUSE: somebody of this user has the port; ENOMEM.
pub(crate) fn bind(fd: RawFd, at: impl FnOnce(Family) -> Result<SocketAddr, Errno>) -> Result<(), Errno> {
    let mut library = enter()?;
    library.poll();
    let entry = library.entry(fd)?;
    let (family, v6_only) = (entry.family, entry.v6_only);
    let at = at(family)?;
    let Ok(id) = entry.stream() else { return datagram::bind(&mut library, fd, at) };
    if !at.ip().is_unspecified() && !ports::is_ours(at.ip()) {
        return Err(Errno(libc::EADDRNOTAVAIL));
    }
    if library.sockets.local(id).map_err(errno)?.port() != 0 {
        return Err(Errno(libc::EINVAL));
    }
    let wanted = if at.port() == 0 { None } else { Some(at.port()) };
    let mut tries = if wanted.is_some() { 1 } else { EPHEMERAL.len() };
    let (name, rules) = loop {
        let port = wanted.unwrap_or_else(|| library.ephemeral_port());
        let name = SocketAddr::new(at.ip(), port);
        tries -= 1;
        match claim(&mut library, Protocol::Tcp, name, family == Family::V6 && !v6_only) {
            Err(Errno(libc::EADDRINUSE)) if tries > 0 => {}
            claimed => break (name, claimed?),
        }
    };
    if let Err(error) = library.sockets.bind(id, name) {
        rules.into_iter().for_each(|rule| Fabric::give_up(&mut library.plane, rule));
        return Err(errno(error));
    }
    library.entry(fd)?.rules = rules;
    Ok(())
}

/// The port, on all of the addresses that a name stands for: `::` is IPv4's addresses, too, if that is not excluded.
pub(super) fn claim(library: &mut Library, protocol: Protocol, name: SocketAddr, both: bool) -> Result<Vec<RuleId>, Errno> {
    let mut names = vec![name];
    if both && name.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        names.push(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), name.port()));
    }
    let mut rules = Vec::new();
    for name in names {
        match ports::claim(&mut library.plane, protocol, name) {
            Ok(rule) => rules.push(rule),
            Err(error) => {
                rules.into_iter().for_each(|rule| Fabric::give_up(&mut library.plane, rule));
                return Err(error);
            }
        }
    }
    Ok(rules)
}

/// Listens. One that has no port gets one, as with listen(2).
///
/// # Errors
/// EBADF; EINVAL: it is connected; EADDRINUSE: another socket of this process listens at the port; [`bind`]'s.
pub(crate) fn listen(fd: RawFd, backlog: c_int) -> Result<(), Errno> {
    let is_nameless = {
        let mut library = enter()?;
        let id = library.stream(fd)?;
        library.sockets.local(id).map_err(errno)?.port() == 0
    };
    if is_nameless {
        let any = |family| match family {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        bind(fd, |family| Ok(SocketAddr::new(any(family), 0)))?;
    }
    let mut library = enter()?;
    library.poll();
    let id = library.stream(fd)?;
    let (sockets, device) = library.parts();
    // (Negative: as many as there can be, as Linux has it.)
    sockets.listen(device, id, usize::try_from(backlog).unwrap_or(usize::MAX)).map_err(errno)
}

/// Takes a listener's next connection; gives it with its peer's name, and its family. It blocks, whatever the listener does, as with accept(2).
///
/// # Errors
/// EBADF; EINVAL: it does not listen; EAGAIN: nobody is there; EINTR; EMFILE, ENFILE, ENOMEM.
pub(crate) fn accept(fd: RawFd) -> Result<(RawFd, SocketAddr, Family), Errno> {
    // Before a connection is taken, so that none is lost for want of it.
    let (number, made) = placeholder(false)?;
    let mut made = Some(made);
    until(fd, false, None, |library, id, _| {
        let family = library.entry(fd)?.family;
        let (accepted, peer) = library.sockets.accept(id).map_err(errno)?;
        if let Some(made) = made.take() {
            library.insert(number, Entry::new(Kind::Stream(accepted), family, false, Some(made)));
        }
        Ok((number, peer, family))
    })
}

/// Takes a listener's next connection, as a stream without a descriptor of the kernel's, which does not block.
///
/// # Errors
/// EBADF; EINVAL: it does not listen; EAGAIN: nobody is there.
pub(crate) fn accept_keyed(fd: RawFd) -> Result<(RawFd, SocketAddr), Errno> {
    let mut library = enter()?;
    library.poll();
    let id = library.stream(fd)?;
    let family = library.entry(fd)?.family;
    let (accepted, peer) = library.sockets.accept(id).map_err(errno)?;
    let key = key();
    library.insert(key, Entry::new(Kind::Stream(accepted), family, true, None));
    Ok((key, peer))
}

/// Ends a direction, or both. On a socket that blocks, all that was sent has arrived then, or the time of [`ringway_stack::rsocket::Settings::close_timeout`]
/// is over.
///
/// # Errors
/// EBADF; EINVAL: no such direction; ENOTCONN; EINTR: it goes on by itself.
pub(crate) fn shutdown(fd: RawFd, how: c_int) -> Result<(), Errno> {
    let how = match how {
        libc::SHUT_RD => Shutdown::Read,
        libc::SHUT_WR => Shutdown::Write,
        libc::SHUT_RDWR => Shutdown::Both,
        _ => return Err(Errno(libc::EINVAL)),
    };
    let deadline = {
        let mut library = enter()?;
        let now = library.poll();
        let id = library.stream(fd)?;
        let (sockets, device) = library.parts();
        sockets.shutdown(now, device, id, how).map_err(errno)?;
        // Other threads may wait for what has ended now.
        library.sleepers.wake();
        now + library.sockets.settings().close_timeout
    };
    let drained = until(fd, false, Some(deadline), |library, id, now| {
        // (Its completions are looked at by that.)
        let (sockets, device) = library.parts();
        sockets.readiness(now, device, id).map_err(errno)?;
        if sockets.is_drained(id).map_err(errno)? { Ok(()) } else { Err(Errno(libc::EAGAIN)) }
    });
    match drained {
        Err(Errno(libc::EAGAIN)) => Ok(()),
        drained => drained,
    }
}

/// Lets go of a socket, or of an instance of repoll. On one that blocks, all that was sent has arrived then, or the time is over, as with [`shutdown`]; what a socket that does not block has
/// sent arrives afterwards.
///
/// # Errors
/// EBADF. (librdmacm returns EBADF, positive, instead of -1.)
pub(crate) fn close(fd: RawFd) -> Result<(), Errno> {
    let mut library = enter()?;
    let now = library.poll();
    if library.repolls.remove(&fd).is_some() {
        library.sleepers.wake();
        return Ok(());
    }
    let mut entry = library.remove(fd).ok_or(Errno(libc::EBADF))?;
    library.repolls.values_mut().for_each(|interest| interest.forget(fd));
    for rule in &entry.rules {
        Fabric::give_up(&mut library.plane, *rule);
    }
    let Ok(id) = entry.stream() else {
        if let Ok((open, _)) = entry.open_datagram() {
            open.state.destroy(&mut library.plane);
        }
        return Ok(());
    };
    // (Its mappings go with it, before the program may use their memory for something else.)
    for mapped in &entry.mapped {
        library.fabric.close_to_peer(mapped.region.key);
        let (sockets, device) = library.parts();
        let _ = sockets.unmap(device, id, mapped.region.address, mapped.region.len);
    }
    let (sockets, device) = library.parts();
    let closed = sockets.close(now, device, id);
    library.sleepers.wake();
    let until = now + library.sockets.settings().close_timeout;
    let fabric = library.fabric.clone();
    drop(library);
    if !entry.mapped.iter().all(|mapped| await_writers(&fabric, mapped.region.key)) {
        tracing::warn!("a peer is stopped in the middle of a write to a buffer that was mapped for it");
    }
    if !entry.is_nonblocking && closed.is_ok() {
        wait_for_closing(id, until);
    }
    closed.map_err(errno)
}

fn wait_for_closing(id: SocketId, until: Instant) {
    let mut looking = Looking::new(true);
    while let Ok(mut library) = enter() {
        let now = looking.poll(&mut library);
        if !library.sockets.is_closing(id) || now >= until {
            return;
        }
        looking.began(&library);
        if looking.goes_on(now) {
            drop(library);
            looking.pause(now);
            continue;
        }
        // A signal does not end it. Where there is nothing to sleep on, what is on its way arrives by itself.
        if looking.sleep(library, &mut [], Some(until.since(now))).is_err() {
            return;
        }
    }
}

/// A socket's own name, and its family.
///
/// # Errors
/// EBADF.
pub(crate) fn local(fd: RawFd) -> Result<(SocketAddr, Family), Errno> {
    let mut library = enter()?;
    let entry = library.entry(fd)?;
    let family = entry.family;
    let Ok(id) = entry.stream() else {
        let none = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        return Ok((entry.open_datagram().map_or(none, |(open, _)| open.local), family));
    };
    Ok((library.sockets.local(id).map_err(errno)?, family))
}

/// Its peer's name, and its family.
///
/// # Errors
/// EBADF; ENOTCONN.
pub(crate) fn remote(fd: RawFd) -> Result<(SocketAddr, Family), Errno> {
    let mut library = enter()?;
    library.poll();
    let entry = library.entry(fd)?;
    let family = entry.family;
    let Ok(id) = entry.stream() else {
        let peer = entry.open_datagram()?.0.peer;
        return Ok((peer.ok_or(Errno(libc::ENOTCONN))?, family));
    };
    if library.sockets.is_connecting(id).map_err(errno)? {
        return Err(errno(Error::NotConnected));
    }
    Ok((library.sockets.remote(id).map_err(errno)?, family))
}
