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

/// A datagram of which pieces are there.
#[derive(Debug)]
pub(crate) struct Gathered {
    bytes: Vec<u8>,
    to: SocketAddr,
    /// A piece named that, or the socket has been connected elsewhere since: it is not just the peer's address.
    is_named: bool,
}

impl Gathered {
    /// The socket is connected elsewhere now. (Linux keeps a datagram's flow in the socket: connecting by IPv4 looks its route up in that very place,
    /// so that what was gathered goes to the new peer; by IPv6 in one of its own, and so it goes where its first piece was to go. What is disconnected
    /// looks up nothing: __ip4_datagram_connect, ip6_datagram_dst_update, __udp_disconnect.)
    pub(super) fn reconnected(&mut self, peer: Option<SocketAddr>) {
        match peer {
            Some(peer) if peer.is_ipv4() && self.to.is_ipv4() => (self.to, self.is_named) = (peer, false),
            peer => self.is_named |= peer != Some(self.to),
        }
    }
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
    let gathered = match (rare.corked.take(), to) {
        // The first piece says where to: the others' addresses are not looked at.
        (Some(gathered), _) => gathered,
        (None, Some(Address::Ip(to))) => Gathered { bytes: Vec::new(), to: address::destination(to), is_named: true },
        (None, None) => Gathered { bytes: Vec::new(), to: peer.ok_or(Errno(libc::EDESTADDRREQ))?, is_named: false },
        (None, Some(_)) => return Err(Errno(libc::EAFNOSUPPORT)),
    };
    let count = vectors::total(data);
    if gathered.bytes.len() + count > datagram_max(gathered.to) {
        return Err(Errno(libc::EMSGSIZE));
    }
    let Gathered { bytes, .. } = rare.corked.insert(gathered);
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
    let Some(Gathered { bytes, to, is_named }) = socket.rare.as_mut().and_then(|rare| rare.corked.take()) else { return Ok(()) };
    let to = is_named.then_some(to);
    let kernel = || by_kernel(fd, &bytes, flags & !libc::MSG_MORE, to, family);
    datagram::send(process, guard, process.now(), (fd, key), &[IoSlice::new(&bytes)], (to.map(Address::Ip).as_ref(), flags), &kernel)
        .map(drop)
}

fn by_kernel(fd: c_int, bytes: &[u8], flags: c_int, to: Option<SocketAddr>, family: Family) -> ssize_t {
    let raw = to.map(|to| Raw::new(to, family));
    let (to, len) = raw.as_ref().map_or((core::ptr::null(), 0), |raw| (raw.as_ptr(), raw.len()));
    // SAFETY: the bytes and the address are as long as they say.
    unsafe { real::sendto(fd, bytes.as_ptr().cast(), bytes.len(), flags, to, len) }
}
