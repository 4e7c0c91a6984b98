//! MSG_MORE and UDP_CORK: a datagram that is put together by several sends (udp(7)). The pieces are gathered here, whoever carries the
//! whole in the end.

use core::ffi::c_int;
use std::io::IoSlice;
use std::net::SocketAddr;

use libc::ssize_t;

use super::address::{self, Address, Raw};
use super::{Family, datagram, vectors};
use crate::errno::Errno;
use crate::lock::Guard;
use crate::process::{Offload, Process};
use crate::real;
use crate::slab::Key;

/// The most that a UDP datagram holds: 65535 less both headers, and by IPv6, whose packets' lengths are without theirs, less its own.
const fn datagram_max(to: SocketAddr) -> usize {
    if to.is_ipv4() { 65_507 } else { 65_527 }
}

/// Whether a send on a UDP socket is a piece of a datagram.
#[inline]
pub(crate) fn concerns(offload: &Offload, key: Key, flags: c_int) -> bool {
    let rare = offload.sockets.find(key).and_then(|socket| socket.rare.as_ref());
    flags & libc::MSG_MORE != 0 || rare.is_some_and(|rare| rare.cork || rare.corked.is_some())
}

/// Sends a piece: the last one, without MSG_MORE or UDP_CORK, sends the whole.
///
/// # Errors
/// EMSGSIZE: what was gathered is dropped. EPIPE, EDESTADDRREQ; else as sendto(2).
pub(crate) fn send(
    process: &Process,
    mut guard: Guard<'_, Offload>,
    fd: c_int,
    key: Key,
    data: &[IoSlice<'_>],
    flags: c_int,
    to: Option<Address>,
) -> Result<usize, Errno> {
    let Some(socket) = guard.sockets.find_mut(key) else { return Err(Errno(libc::EBADF)) };
    if socket.shut.write {
        // (Linux asks at the first piece only, and sends after the shutdown what was begun before it.)
        return Err(Errno(libc::EPIPE));
    }
    let peer = socket.peer;
    let rare = socket.rare();
    let corked = &mut rare.corked;
    let to = match (to, &corked) {
        // The first piece says where to; the others' addresses are not looked at.
        (_, Some((_, first))) => *first,
        (Some(Address::Ip(to)), None) => Some(address::destination(to)),
        (None, None) if peer.is_some() => None,
        (None, None) => return Err(Errno(libc::EDESTADDRREQ)),
        (Some(_), None) => return Err(Errno(libc::EAFNOSUPPORT)),
    };
    let (bytes, _) = corked.get_or_insert_with(|| (Vec::new(), to));
    let count = vectors::total(data);
    if to.or(peer).is_none_or(|to| bytes.len() + count > datagram_max(to)) {
        *corked = None;
        return Err(Errno(libc::EMSGSIZE));
    }
    data.iter().for_each(|piece| bytes.extend_from_slice(piece));
    if rare.cork || flags & libc::MSG_MORE != 0 {
        return Ok(count);
    }
    push(process, guard, fd, key, flags)?;
    Ok(count)
}

/// Sends what was gathered, if there is any.
///
/// # Errors
/// As sendto(2).
pub(crate) fn push(process: &Process, mut guard: Guard<'_, Offload>, fd: c_int, key: Key, flags: c_int) -> Result<(), Errno> {
    let Some(socket) = guard.sockets.find_mut(key) else { return Err(Errno(libc::EBADF)) };
    let family = socket.family;
    let Some((bytes, to)) = socket.rare.as_mut().and_then(|rare| rare.corked.take()) else { return Ok(()) };
    let kernel = || by_kernel(fd, &bytes, flags & !libc::MSG_MORE, to, family);
    datagram::send(process, guard, process.now(), (fd, key), &[IoSlice::new(&bytes)], (to.map(Address::Ip), flags), &kernel).map(drop)
}

fn by_kernel(fd: c_int, bytes: &[u8], flags: c_int, to: Option<SocketAddr>, family: Family) -> ssize_t {
    let raw = to.map(|to| Raw::new(to, family));
    let (to, len) = raw.as_ref().map_or((core::ptr::null(), 0), |raw| (raw.as_ptr(), raw.len()));
    // SAFETY: the bytes and the address are as long as they say.
    unsafe { real::sendto(fd, bytes.as_ptr().cast(), bytes.len(), flags, to, len) }
}
