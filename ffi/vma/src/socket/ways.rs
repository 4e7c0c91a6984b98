//! Which way leads to a destination: to a process of this machine, over an interface, or by the kernel.

use core::ffi::c_int;
use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ringway_devices::{Reach, ResolveError, Resolved, Search};
use ringway_params::rules::Role;
use ringway_stack::device::Protocol;
use ringway_stack::net::LinkId;
use ringway_stack::offload::Reason;
use ringway_stack::ring::NextHop;
use ringway_stack::socket::Direction;
use ringway_stack::time::Instant;

use super::address::{self, Address};
use super::greeting::Question;
use super::routes::Way;
use super::{Kind, datagram, greeting};
use crate::interfaces::{Path, cards};
use crate::process::{self, Offload, Process};
use crate::rules;
use crate::slab::Key;

/// Why a destination is the kernel's.
pub(crate) enum Unreachable {
    /// `AF_UNSPEC`, or nothing that connects at all: the kernel says what it thinks of it, and nothing is decided.
    NotAnAddress,
    Because(Reason),
    /// Somebody may have it who is being asked.
    Unasked,
    /// A rule of libvma.conf says so.
    ByRule(String),
}

/// Where a TCP connection goes, as a ring's peers are known to it.
pub(super) struct Ahead {
    pub(super) ring: u16,
    pub(super) remote: SocketAddr,
    pub(super) hop: NextHop,
    /// From which address, if an interface leads there.
    pub(super) source: Option<IpAddr>,
    /// The longest packet, in bytes, beside what the ring's device carries.
    pub(super) mtu: u16,
}

impl Ahead {
    const fn to_member(ring: u16, remote: SocketAddr, hop: NextHop) -> Self {
        Self { ring, remote, hop, source: None, mtu: u16::MAX }
    }
}

/// Where a TCP connection goes. Who waits for nothing does not wait for a peer that has to be asked first either: a thread asks, and the
/// connection goes on from there ([`greeting`]).
pub(super) fn ahead(process: &Process, key: Key, to: Address) -> Result<Ahead, Unreachable> {
    let remote = match candidate(process, to) {
        Err(Unreachable::Because(Reason::NotLocal)) => return ahead_over_interface(process, key, to),
        remote => remote?,
    };
    let (waits, ring) = {
        let mut guard = process.lock();
        let ring = guard.choose_ring(key);
        (guard.sockets.find(key).is_none_or(|socket| !socket.is_nonblocking()), ring)
    };
    let rendezvous = process.rendezvous_at(ring);
    if waits {
        return match rendezvous.resolve(Protocol::Tcp, remote) {
            Ok(Some(hop)) => Ok(Ahead::to_member(ring, remote, NextHop::Mac(hop.mac))),
            Ok(None) => Err(Unreachable::Because(Reason::NoOffloadedPeer)),
            Err(error) => Err(unreachable(remote, &error)),
        };
    }
    let Search { found, unasked } = rendezvous.search(Protocol::Tcp, remote).map_err(|error| unreachable(remote, &error))?;
    let is_asked = unasked && greeting::begin(process, Question { ring, from: None, to: remote });
    match found {
        Some(hop) => Ok(Ahead::to_member(ring, remote, NextHop::Mac(hop.mac))),
        None if is_asked => Ok(Ahead::to_member(ring, remote, NextHop::Pending)),
        None if unasked => Err(Unreachable::Because(Reason::NoResources)),
        None => Err(Unreachable::Because(Reason::NoOffloadedPeer)),
    }
}

fn ahead_over_interface(process: &Process, key: Key, to: Address) -> Result<Ahead, Unreachable> {
    let Address::Ip(remote) = to else { return Err(Unreachable::NotAnAddress) };
    await_reach(process, key, remote);
    cards::provide(key, |offload, link| offload.is_way_over(key, remote, link));
    let Path { ring, source, hop, mtu } = process.lock().path_of(key, remote).ok_or(Unreachable::Because(Reason::NotLocal))?;
    Ok(Ahead { ring, remote, hop, source: Some(source), mtu })
}

/// How long a connect waits for a verbs device's peer to say whether it is there; and how old its last answer may be.
const REACH_WITHIN: Duration = Duration::from_millis(1000);
const REACH_FRESH: Duration = Duration::from_millis(100);
const REACH_EVERY: Duration = Duration::from_micros(500);

/// On a device whose peers are others of its kind, somebody has to be there, and is asked: a round trip. Elsewhere: nothing.
fn await_reach(process: &Process, key: Key, to: SocketAddr) {
    let start = process.now();
    let mut fresh = Some(REACH_FRESH);
    while process.lock().is_asked(process.now(), key, to, fresh.take()) && process.now().since(start) < REACH_WITHIN {
        // (No signal ends it sooner: it is short.)
        let _ = ringway_host::sleep::ppoll(&mut [], Some(REACH_EVERY), None);
    }
}

/// The way of a UDP socket's datagrams to `to`. If it leads over a ring, the socket gets an address and flows.
pub(super) fn way(process: &Process, (fd, key): (c_int, Key), to: SocketAddr, waits: bool) -> Result<Way, Unreachable> {
    let (ring, from) = {
        let mut guard = process.lock();
        // (From a group's address nothing is sent, and from which other one, the kernel's routes say.)
        if guard.sockets.find(key).and_then(|socket| socket.bound).is_some_and(|bound| bound.ip().is_multicast()) {
            return Err(Unreachable::Because(Reason::Multicast));
        }
        if guard.sockets.find(key).is_some_and(|socket| !address::can_reach(fd, socket.family, socket.bound, to)) {
            return Err(Unreachable::Because(Reason::Family));
        }
        (guard.choose_ring(key), guard.source(key, to))
    };
    let found = sendable(process, (ring, from), Address::Ip(to), waits);
    let is_out = is_out(process, key, to, &found);
    if is_out || matches!(found, Ok(_) | Err(Unreachable::Unasked)) {
        // Also for what the kernel carries meanwhile: whoever answers that looks for this socket, and takes it for the kernel's for a while if it
        // is nowhere to be found.
        datagram::ensure_published(process, fd, key);
    }
    if is_out {
        return process.lock().way_out(key, to).ok_or(Unreachable::Because(Reason::NotLocal));
    }
    let (_, mut hop) = found?;
    let (on, bound) = {
        let guard = process.lock();
        (guard.sockets.find(key).map_or(ring, |socket| socket.ring), guard.source(key, to))
    };
    if (on, bound) != (ring, from) {
        // It has a port now, by which the kernel may choose another one; or another thread was first, so that it is on that one's ring.
        hop = sendable(process, (on, bound), Address::Ip(to), waits)?.1;
    }
    let flow = process.lock().sockets.find(key).and_then(|socket| socket.flow_to(to));
    // (What may not receive on a ring has no address there to send from.)
    Ok(Way::to_member(flow.ok_or(Unreachable::NotAnAddress)?, to, hop, process.now()))
}

/// [`reachable`], unless libvma.conf leaves datagrams to that address to the kernel.
pub(super) fn sendable(
    process: &Process,
    from: (u16, SocketAddr),
    to: Address,
    waits: bool,
) -> Result<(SocketAddr, Resolved), Unreachable> {
    if let Address::Ip(to) = to
        && let Some(rule) = rules::leave(Role::UdpSender, address::destination(to), None)
    {
        return Err(Unreachable::ByRule(rule));
    }
    reachable(process, from, to, waits)
}

/// Whether what was not found on this machine is where an interface leads.
pub(super) fn is_out<T>(process: &Process, key: Key, to: SocketAddr, found: &Result<T, Unreachable>) -> bool {
    matches!(found, Err(Unreachable::Because(Reason::NotLocal))) && process.lock().udp_path(key, address::destination(to)).is_some()
}

/// Whether an offloaded process gets the datagrams from a socket on that ring, and from there, to there, and where it is. Takes no longer than a
/// datagram may: `waits` says whether its sender may block.
pub(crate) fn reachable(
    process: &Process,
    (ring, from): (u16, SocketAddr),
    to: Address,
    waits: bool,
) -> Result<(SocketAddr, Resolved), Unreachable> {
    let remote = candidate(process, to)?;
    let question = Question { ring, from: Some(from), to: remote };
    let search = || process.rendezvous_at(ring).search_datagram(from, remote).map_err(|error| unreachable(remote, &error));
    let mut known = search()?;
    if known.found.is_none() && known.unasked && greeting::begin(process, question) {
        greeting::await_end(process, question, waits);
        known = search()?;
    }
    let nobody = if known.unasked { Unreachable::Unasked } else { Unreachable::Because(Reason::NoOffloadedPeer) };
    known.found.map(|hop| (remote, hop)).ok_or(nobody)
}

/// Why an address is the kernel's that could not be resolved.
pub(super) fn unreachable(remote: SocketAddr, error: &ResolveError) -> Unreachable {
    tracing::debug!("{remote} cannot be reached by shared memory: {error}");
    Unreachable::Because(error.reason())
}

/// An address that an offloaded process may have.
fn candidate(process: &Process, to: Address) -> Result<SocketAddr, Unreachable> {
    let remote = match to {
        Address::Ip(remote) => address::destination(remote),
        Address::Other => return Err(Unreachable::Because(Reason::Family)),
        Address::Unspecified => return Err(Unreachable::NotAnAddress),
    };
    if remote.ip().is_multicast() || remote.ip() == IpAddr::V4(Ipv4Addr::BROADCAST) {
        return Err(Unreachable::Because(Reason::Multicast));
    }
    if remote.port() == 0 {
        return Err(Unreachable::NotAnAddress);
    }
    if !process.addresses.contains(remote.ip()) {
        return Err(Unreachable::Because(Reason::NotLocal));
    }
    Ok(remote)
}

impl Offload {
    /// The way of a connection to a destination that is not on this machine, for a socket that is neither connected nor listening; which is on that ring from now on.
    /// `None`: no interface leads there, or the kernel is to have it.
    fn path_of(&mut self, key: Key, to: SocketAddr) -> Option<Path> {
        let socket = self.sockets.find(key)?;
        if socket.stays_within {
            return None;
        }
        let Some(interfaces) = self.interfaces.as_ref() else {
            self.want_interfaces_to_connect();
            return None;
        };
        let Some(mut path) = interfaces.path(socket.protocol, socket.bound, to) else {
            self.want_interfaces_to_connect();
            return None;
        };
        // (What the Extra API's readers have of a connection is its ring's: it could not go over to another one, where the answers come.)
        let is_tied = (self.rings_are_used() || self.is_heard()) && interfaces.shared_link(path.ring).is_some();
        if is_tied
            || !interfaces.takes_streams(path.ring)
            || self.rings.at(path.ring).ring.is_gone()
            || !self.reaches(socket.protocol, &path, to)
        {
            return None;
        }
        path.ring = self.ring_of_interface(key, path.ring, Direction::Rx);
        let socket = self.sockets.find_mut(key).filter(|socket| socket.kind == Kind::Fresh)?;
        socket.ring = path.ring;
        Some(path)
    }

    /// Whether the way of a connection to there leads over that link.
    fn is_way_over(&self, key: Key, to: SocketAddr, link: LinkId) -> bool {
        let (Some(interfaces), Some(socket)) = (&self.interfaces, self.sockets.find(key)) else { return false };
        let path = interfaces.path(socket.protocol, socket.bound, to).filter(|_| !socket.stays_within);
        path.is_some_and(|path| interfaces.steered_link(path.ring) == Some(link))
    }

    fn udp_path(&self, key: Key, to: SocketAddr) -> Option<Path> {
        let socket = self.sockets.find(key).filter(|socket| !socket.stays_within)?;
        // (Until it is known that somebody is there, the kernel has them.)
        self.interfaces.as_ref()?.path(Protocol::Udp, socket.bound, to).filter(|path| self.reaches(Protocol::Udp, path, to))
    }

    /// Whether the device of a way has a peer there.
    fn reaches(&self, protocol: Protocol, path: &Path, to: SocketAddr) -> bool {
        let Some(process) = process::process() else { return false };
        self.rings.at(path.ring).ring.reach(process.now(), protocol, path.source, to, None) == Reach::Yes
    }

    /// Whether the answer to that is awaited.
    fn is_asked(&self, now: Instant, key: Key, to: SocketAddr, fresh: Option<Duration>) -> bool {
        let socket = self.sockets.find(key).filter(|socket| !socket.stays_within);
        let path = socket.and_then(|socket| self.interfaces.as_ref()?.path(socket.protocol, socket.bound, to).map(|path| (socket, path)));
        path.is_some_and(|(socket, path)| self.rings.at(path.ring).ring.reach(now, socket.protocol, path.source, to, fresh) == Reach::Asked)
    }

    /// The way of a UDP socket's datagrams over the interface that leads to a destination, where it has a flow.
    pub(super) fn way_out(&mut self, key: Key, to: SocketAddr) -> Option<Way> {
        let path = self.udp_path(key, to)?;
        let is_steered = self.interfaces.as_ref()?.steered_link(path.ring).is_some();
        // (On a card it has flows on one ring, by which it sends as well.)
        let ring = if is_steered { path.ring } else { self.ring_of_interface(key, path.ring, Direction::Tx) };
        let socket = self.sockets.find(key)?;
        let interfaces = self.interfaces.as_ref()?;
        let beside = || socket.flow_from(path.source, |ring| interfaces.are_together(ring, path.ring));
        let flow = socket.flow_at((ring, path.source)).or_else(|| socket.flow_at((path.ring, path.source))).or_else(beside)?;
        Some(Way::by_tables(flow, path, interfaces.generation()))
    }

    /// Where the kernel has a socket's datagrams to an address come from. Port zero: it is not bound yet.
    fn source(&self, key: Key, to: SocketAddr) -> SocketAddr {
        let local = self.sockets.find(key).and_then(|socket| {
            let on_ring = socket.ring_id().and_then(|id| self.rings.of(id).info(id)).map(|info| info.local);
            on_ring.or(socket.bound)
        });
        match local {
            Some(local) if !local.ip().is_unspecified() => local,
            bound => SocketAddr::new(address::source_for(to.ip()), bound.map_or(0, |bound| bound.port())),
        }
    }
}
