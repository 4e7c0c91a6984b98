//! recvfrom(2), and what a receive of one datagram tells.

use core::ffi::{c_int, c_void};
use std::io::IoSliceMut;
use std::net::SocketAddr;

use libc::{size_t, sockaddr, socklen_t, ssize_t};
use ringway_stack::Instant;
use ringway_stack::ring::Datagram;

use super::receive::{Got, ours, receive_on, writable};
use super::short::{self, RECEIVE_FLAGS};
use crate::errno::{Errno, is_nowhere, to_ssize};
use crate::extra::rings::Direction;
use crate::fd_counters::Way;
use crate::lock::Guard;
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::socket::address::Raw;
use crate::socket::datagram::{self, First, Received};
use crate::socket::{Family, Kind, Socket};
use crate::{interfaces, real};

/// recvfrom(2).
#[inline(always)]
pub(super) unsafe fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    let kernel = move |extra| {
        // SAFETY: the program's promise to recvfrom(2).
        unsafe { real::recvfrom(fd, buffer, len, flags | extra, from, from_len) }
    };
    // SAFETY: as above.
    match unsafe { receive_at_once(fd, buffer, len, flags, (from, from_len), kernel) } {
        Some(Ok(count)) => count.cast_signed(),
        // SAFETY: as above.
        other => unsafe { recvfrom_at_length(fd, buffer, len, flags, (from, from_len), other.and_then(Result::err)) },
    }
}

/// The same. `failed`: it went the short way, and so it ended.
#[inline(never)]
unsafe fn recvfrom_at_length(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    (from, from_len): (*mut sockaddr, *mut socklen_t),
    mut failed: Option<Errno>,
) -> ssize_t {
    crate::receiving_point!(match failed.take() {
        Some(error) => to_ssize(Err(error)),
        // SAFETY: the program's promise.
        None => unsafe { recvfrom_once(fd, buffer, len, flags, (from, from_len)) },
    })
}

#[inline(always)]
unsafe fn recvfrom_once(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    (from, from_len): (*mut sockaddr, *mut socklen_t),
) -> ssize_t {
    // SAFETY: the program's promise to recvfrom(2).
    let kernel = |extra| unsafe { real::recvfrom(fd, buffer, len, flags | extra, from, from_len) };
    match ours(fd, flags, || kernel(0)) {
        Err(result) => result,
        Ok(found) => crate::bare_boundary!(-1, {
            let received = writable(buffer, len).and_then(|slice| {
                let got = receive_on(fd, found, &mut [slice], flags, &kernel)?;
                match got {
                    // SAFETY: the program's promise to recvfrom(2).
                    Got::Datagram(datagram, family, _, ring) => unsafe { sender(&datagram, family, ring).write(from, from_len)? },
                    // SAFETY: as above.
                    Got::Stream(_) if !from.is_null() => unsafe { name_nobody(from_len)? },
                    _ => {}
                }
                Ok(got.count(flags))
            });
            to_ssize(received)
        }),
    }
}

/// recvfrom(2) of a datagram, in a process that has one ring. `None`: it goes the long way.
///
/// # Safety
/// As recvfrom(2).
#[inline(always)]
unsafe fn receive_at_once(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    (from, from_len): (*mut sockaddr, *mut socklen_t),
    kernel: impl Fn(c_int) -> isize + Copy,
) -> Option<Result<usize, Errno>> {
    if flags & !RECEIVE_FLAGS != 0 || short::is_nothing(buffer, len) {
        return None;
    }
    let (process, found, now) = short::find(fd)?;
    if process.has_several_rings() {
        return None;
    }
    let received = crate::bare_boundary!(Some(Err(Errno(libc::EIO))), {
        writable(buffer, len).ok().and_then(|into| {
            let guard = process.lock();
            let family = match guard.sockets.find(found.key) {
                Some(Socket { kind: Kind::Datagram(_), family, .. }) if !guard.extra_rings.migrate[Direction::Rx as usize] => *family,
                _ => return None,
            };
            // (What an address of one link belongs to is known to nobody who has the lock.)
            let mut of_one_link = None;
            let tell = |datagram: &Datagram, ring| match datagram.from {
                _ if from.is_null() => Ok(()),
                SocketAddr::V6(sender) if sender.ip().is_unicast_link_local() => {
                    of_one_link = Some((datagram.from, ring));
                    Ok(())
                }
                // SAFETY: the caller's promise.
                sender => unsafe { Raw::new(sender, family).write(from, from_len) },
            };
            let received = receive_datagram(process, guard, now, (fd, found.key), into, (flags, &{ kernel }), tell);
            if let Some((sender, ring)) = of_one_link {
                let raw = Raw::of_sender(sender, family, || interfaces::link_of(ring));
                // SAFETY: the caller's promise.
                return Some(unsafe { raw.write(from, from_len) }.and_then(|()| received.map(|taken| taken.count())));
            }
            Some(received.and_then(|taken| match taken {
                TakenOne::Ring(count, told) => told.map(|()| count),
                // SAFETY: the caller's promise.
                TakenOne::End if !from.is_null() => unsafe { name_nobody(from_len) }.map(|()| 0),
                taken => Ok(taken.count()),
            }))
        })
    });
    short::ended(fd, Way::Rx, received?)
}

/// What a receive of [`receive_datagram`] took.
pub(super) enum TakenOne<T> {
    /// So many bytes of a datagram of the ring's, and what was to be known of it.
    Ring(usize, T),
    /// Whatever the kernel put into the program's structures.
    Kernel(usize),
    /// Nothing: the reading end is shut.
    End,
}

impl<T> TakenOne<T> {
    pub(super) const fn count(&self) -> usize {
        match self {
            Self::Ring(count, _) | Self::Kernel(count) => *count,
            Self::End => 0,
        }
    }
}

/// A datagram, of which `tell` says what is to be known, beside how many bytes were received.
///
/// # Errors
/// As recv(2).
#[inline(always)]
pub(super) fn receive_datagram<T>(
    process: &Process,
    guard: Guard<'_, Offload>,
    now: Instant,
    names: (c_int, Key),
    mut into: IoSliceMut<'_>,
    (flags, kernel): (c_int, &dyn Fn(c_int) -> isize),
    mut tell: impl FnMut(&Datagram, u16) -> T,
) -> Result<TakenOne<T>, Errno> {
    let into = core::slice::from_mut(&mut into);
    let mut told = |datagram: Datagram, ring| TakenOne::Ring(datagram.copied, tell(&datagram, ring));
    let received = match datagram::look_first(process, guard, now, names, into, flags, |datagram| told(datagram, 0)) {
        First::Datagram(received) => return Ok(received),
        First::Error(error) => return Err(error),
        First::Nothing(guard, id) => datagram::nothing_came(process, (guard, id), now, names, into, flags, kernel),
        First::Other(guard) => datagram::receive_at_length(process, guard, now, names, into, flags, kernel),
    };
    Ok(match received? {
        Received::Ring(datagram, ring) => told(datagram, ring),
        Received::Kernel(count) => TakenOne::Kernel(count),
        Received::End => TakenOne::End,
    })
}

/// What has no more to come, or a stream, names nobody, where it was asked who sent (move_addr_to_user).
unsafe fn name_nobody(len: *mut socklen_t) -> Result<(), Errno> {
    if is_nowhere(len) {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise.
    if i32::try_from(unsafe { len.read() }).is_err() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: as above.
    unsafe { len.write(0) };
    Ok(())
}

/// Who sent a datagram that came by that ring.
pub(super) fn sender(datagram: &Datagram, family: Family, ring: u16) -> Raw {
    Raw::of_sender(datagram.from, family, || interfaces::link_of(ring))
}
