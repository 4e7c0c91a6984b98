//! UDP sockets that share a port: the kernel knows all of them, those of programs without this library included, and says which one a
//! datagram is for ([`Rendezvous::resolve_datagram`](ringway_devices::Rendezvous::resolve_datagram)). Here is what it needs to know of a socket, and who is told where another one comes
//! between.

use core::ffi::c_int;
use core::mem::size_of;
use std::net::SocketAddr;

use libc::{sockaddr, socklen_t};
use ringway_stack::offload::Reason;
use ringway_stack::ring::Reuse;

use super::address::{self, Address};
use super::{Family, Kind, Socket};
use crate::cancel::Masked;
use crate::process::{Offload, Process};
use crate::real;
use crate::slab::Key;

/// Notes whether others may share the socket's address, and by which name the kernel, which chooses among all that do, will say that something is
/// for this one. `false`: they may, and this kernel does not say.
pub(super) fn is_known_to_the_kernel(process: &Process, socket: &mut Socket) -> bool {
    socket.udp.reuse = reuse_of(socket.fd);
    socket.udp.cookie = if process.rendezvous().knows_receivers() { cookie_of(socket.fd) } else { 0 };
    socket.udp.reuse == Reuse::No || socket.udp.cookie != 0 && !socket.has_preference()
}

/// A socket that shares its address, and that the kernel prefers to the others for a reason which no ring knows (it is bound to the interface, or
/// wants what comes on a processor), is the kernel's.
pub(super) fn leave_choice_to_kernel(offload: &mut Offload, key: Key) {
    let Some(socket) = offload.sockets.find(key) else { return };
    let Kind::Datagram(Some(_)) = socket.kind else { return };
    if !socket.has_preference() || reuse_of(socket.fd) == Reuse::No {
        return;
    }
    offload.close_flows(key);
    offload.leave_to_kernel(key, "setsockopt", Reason::KernelOnlyOption);
    offload.dispatch();
}

/// Whether a socket is bound where a program of the kernel's chooses among all that share the address (SO_ATTACH_REUSEPORT_EBPF), as far as it was
/// given to a socket of this process.
pub(super) fn is_chosen_by_program(offload: &Offload, key: Key, local: SocketAddr) -> bool {
    let Some(protocol) = offload.sockets.find(key).map(|socket| socket.protocol) else { return false };
    offload.sockets.iter().any(|(_, socket)| {
        socket.protocol == protocol
            && socket.rare.as_ref().is_some_and(|rare| rare.has_group_program)
            && address::of_placeholder(socket.fd, socket.family) == Some(local)
    })
}

/// How a socket of the kernel's shares its address (SO_REUSEPORT, SO_REUSEADDR).
pub(super) fn reuse_of(fd: c_int) -> Reuse {
    let is_set = |name| int_option(fd, name).is_some_and(|value| value != 0);
    match () {
        () if is_set(libc::SO_REUSEPORT) => Reuse::Port,
        () if is_set(libc::SO_REUSEADDR) => Reuse::Address,
        () => Reuse::No,
    }
}

pub(super) fn cookie_of(fd: c_int) -> u64 {
    int_option(fd, libc::SO_COOKIE).unwrap_or(0)
}

/// An option that is an integer of up to eight bytes; of a shorter one, whether it is zero is all that can be told.
fn int_option(fd: c_int, name: c_int) -> Option<u64> {
    let mut value = 0u64;
    let mut len = size_of::<u64>() as socklen_t;
    // SAFETY: the value is as long as it says.
    let asked = unsafe { real::getsockopt(fd, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut len) };
    (asked == 0).then_some(value)
}

/// Who gets an address's datagrams until a socket is bound to it.
///
/// # Safety
/// `raw` is null, or `len` bytes can be read there.
pub(super) unsafe fn former_receiver_of_address(
    process: &Process,
    fd: c_int,
    key: Key,
    raw: *const sockaddr,
    len: socklen_t,
) -> Option<FormerReceiver> {
    let (kind, family) = process.lock().sockets.find(key).map(|socket| (socket.kind, socket.family))?;
    if !matches!(kind, Kind::Datagram(_)) {
        return None;
    }
    // SAFETY: the caller's promise.
    let to = match unsafe { address::read(raw, len, family) } {
        Address::Ip(to) => to,
        Address::Unspecified | Address::Other => return None,
    };
    former_receiver(process, fd, None, to)
}

/// Who gets what the peer of a socket sends until it is connected; or what anybody sends, until it isn't any more.
pub(super) fn former_receiver_of_peer(process: &Process, fd: c_int, key: Key, to: Address) -> Option<FormerReceiver> {
    let bound = process.lock().sockets.find(key)?.bound?;
    let Address::Ip(peer) = to else { return former_receiver(process, fd, None, bound) };
    let peer = address::destination(peer);
    let ip = if bound.ip().is_unspecified() { address::source_for(peer.ip()) } else { bound.ip() };
    former_receiver(process, fd, Some(peer), SocketAddr::new(ip, bound.port()))
}

/// Who gets what comes for a socket's address until an option of the socket changes that.
pub(super) fn former_receiver_of_own(process: &Process, fd: c_int, key: Key) -> Option<FormerReceiver> {
    let bound = process.lock().sockets.find(key).filter(|socket| matches!(socket.kind, Kind::Datagram(_)))?.bound?;
    former_receiver(process, fd, None, bound)
}

/// Which of the kernel's sockets gets now what another one is about to get: what goes from `from` to `to`. `None`: that is nobody's matter, for no
/// two sockets share the address.
fn former_receiver(process: &Process, fd: c_int, from: Option<SocketAddr>, to: SocketAddr) -> Option<FormerReceiver> {
    let is_shared = to.port() != 0 && reuse_of(fd) != Reuse::No;
    // (One that takes both families comes between in both.)
    let takes_both = from.is_none() && to.is_ipv6() && to.ip().is_unspecified() && !address::is_v6_only(fd, Family::V6);
    let also = takes_both.then(|| SocketAddr::new(address::any(Family::V4).ip(), to.port()));
    let ask = |to| process.rendezvous().receiver(from.unwrap_or(address::any(Family::of(to))), to);
    is_shared.then(|| FormerReceiver(ask(to), also.map(ask)))
}

/// See [`former_receiver`].
pub(super) struct FormerReceiver(Option<u64>, Option<Option<u64>>);

impl FormerReceiver {
    /// It gets that no more: whoever sends there asks again.
    pub(super) fn lets_go(self, process: &Process) {
        let _masked = Masked::new();
        let unsettle = |former: Option<u64>| match former {
            Some(_) => process.rendezvous().unsettle(former),
            // Whoever sends to one of ours.
            None => process.rendezvous_of_all().for_each(|own| own.unsettle(None)),
        };
        unsettle(self.0);
        if let Some(of_v4) = self.1.filter(|&of_v4| of_v4 != self.0) {
            unsettle(of_v4);
        }
    }
}
