//! The flows of listeners and UDP sockets: one for each address that what is for the socket may come by.
//!
//! An IPv6 socket that takes IPv4 as well (bound to `::`, without IPV6_V6ONLY) has a flow of each family. One of a socket's flows is its own
//! ([`Kind`]), the rest are [`Socket::others`]. They change places, so that the own one is that where what came first waits
//! ([`ringway_stack::socket::first_of`]): who reads knows of no more than one. Who sends asks for the one of the destination's family ([`Socket::flow_to`]).
//!
//! What is on interfaces is beside all these ([`super::beyond`]).
//!
//! The Extra API's readers (rings, callbacks), and who counts what is dropped (SO_RXQ_OVFL), go by a socket's one flow, which is IPv4's then: what
//! comes by IPv6 comes by the kernel.

use std::net::{Ipv4Addr, SocketAddr};

use ringway_params::rules::Role;
use ringway_stack::device::Protocol;
use ringway_stack::ring::FlowId;
use ringway_stack::{Error, Instant, socket, tcp};

use super::{Family, Kind, Socket, address};
use crate::process::{self, Offload, Process};
use crate::rules;
use crate::slab::Key;

/// One of several flows of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) id: FlowId,
    /// Of which family what comes to it is.
    pub(crate) family: Family,
}

impl Socket {
    /// Whether it takes both families, bound as it is.
    pub(super) fn takes_both(&self) -> bool {
        let is_any6 = self.bound.is_some_and(|bound| bound.is_ipv6() && bound.ip().is_unspecified());
        is_any6 && !address::is_v6_only(self.fd, self.family)
    }

    /// The rule of libvma.conf that leaves a socket in that role to the kernel: by the address that it is bound to, in either family's form.
    pub(super) fn left_by_rule(&self, role: Role, local: SocketAddr) -> Option<String> {
        let of_v4 = || if self.takes_both() { rules::leave(role, any_v4(local), None) } else { None };
        rules::leave(role, local, None).or_else(of_v4)
    }

    /// The flow by which a UDP socket sends to an address.
    #[inline]
    pub(super) fn flow_to(&self, to: SocketAddr) -> Option<FlowId> {
        let Kind::Datagram(own) = self.kind else { return None };
        let family = Family::of(to);
        if family == self.flow_family { own } else { self.others.iter().find(|flow| flow.family == family).map(|flow| flow.id) }
    }

    /// Its flows, its own one first.
    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowId> + use<> {
        // (Few sockets have others: without them nothing is allocated.)
        let others = self.others.clone().into_iter().map(|flow| flow.id);
        self.ring_id().into_iter().chain(others).chain(self.flows_beyond())
    }

    /// Whether that flow is one of its.
    #[inline]
    pub(crate) fn has_flow(&self, flow: FlowId) -> bool {
        self.ring_id() == Some(flow) || self.others.iter().any(|other| other.id == flow) || self.has_beyond(flow)
    }

    /// Makes that flow its own, or says that it has none.
    fn set_own(&mut self, own: Option<FlowId>) {
        self.kind = if self.protocol == Protocol::Tcp { Kind::Listener(own) } else { Kind::Datagram(own) };
    }
}

/// The same port, on every address of IPv4.
fn any_v4(local: SocketAddr) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), local.port())
}

/// (Where there is a ring, there is a process.)
pub(super) fn now() -> Instant {
    process::process().map_or(Instant::ZERO, Process::now)
}

impl Offload {
    /// Opens what a listener, or a UDP socket, has on the ring by the address that it is bound to: all of it, or nothing.
    ///
    /// # Errors
    /// As [`ringway_stack::ring::Ring::tcp_listen`] and [`ringway_stack::ring::Ring::udp_open`].
    pub(super) fn open_flows(&mut self, key: Key, local: SocketAddr) -> Result<(), Error> {
        self.choose_ring(key);
        let Some(socket) = self.sockets.find(key) else { return Err(Error::BadSocket) };
        let both = socket.takes_both();
        let addresses = match both {
            false => vec![local],
            true if self.goes_by_one(socket) => vec![any_v4(local)],
            true => vec![local, any_v4(local)],
        };
        let mut opened: Vec<Flow> = Vec::new();
        for address in addresses {
            match self.open_flow(key, address) {
                Ok(id) => opened.push(Flow { id, family: Family::of(address) }),
                Err(error) => {
                    opened.iter().for_each(|flow| self.rings.of_mut(flow.id).close(now(), flow.id, false));
                    return Err(error);
                }
            }
        }
        let own = opened.remove(0);
        let Some(socket) = self.sockets.find_mut(key) else { return Err(Error::BadSocket) };
        socket.set_own(Some(own.id));
        socket.flow_family = own.family;
        socket.others = opened;
        let flows = socket.flows();
        flows.for_each(|flow| self.link(flow, key.index));
        self.open_beyond(key, both);
        Ok(())
    }

    /// Whether somebody reads it who goes by one flow.
    pub(super) fn goes_by_one(&self, socket: &Socket) -> bool {
        self.rings_are_used() || socket.callback().is_some() || socket.ancillary.drops.is_some()
    }

    fn open_flow(&mut self, key: Key, local: SocketAddr) -> Result<FlowId, Error> {
        let ring = self.sockets.find(key).ok_or(Error::BadSocket)?.ring;
        self.open_flow_on(ring, key, local)
    }

    pub(super) fn open_flow_on(&mut self, ring: u16, key: Key, local: SocketAddr) -> Result<FlowId, Error> {
        let socket = self.sockets.find(key).ok_or(Error::BadSocket)?;
        match socket.protocol {
            // The kernel has let the program bind the address: whoever else has it shares it, by fork or by SO_REUSEPORT.
            Protocol::Tcp => {
                // (An interface's rules are one socket's each: so is what comes by it.)
                let reuse_port = !self.rings.interfaces.contains(ring);
                let config = tcp::Config { reuse_port, ..self.rings.tcp_config(ring, &socket.tcp).into_owned() };
                self.rings.at_mut(ring).ring.tcp_listen(local, usize::try_from(socket.backlog).unwrap_or(1), &config)
            }
            Protocol::Udp => self.rings.at_mut(ring).ring.udp_open(local, &socket.udp),
        }
    }

    /// Makes that flow the socket's own where what came first waits, if it is shared memory's. Which one that is.
    #[cold]
    pub(crate) fn turn(&mut self, key: Key) -> Option<FlowId> {
        if let Some(first) = self.first_beyond(key) {
            return Some(first);
        }
        let socket = self.sockets.find(key)?;
        let own = socket.ring_id().filter(|_| !socket.others.is_empty())?;
        let first = match socket.others.as_slice() {
            // (One of each family, for nearly all: nothing is allocated for a receive.)
            &[other] => socket::first_of(&mut self.rings, &[own, other.id]),
            others => {
                let flows: Vec<_> = core::iter::once(own).chain(others.iter().map(|flow| flow.id)).collect();
                socket::first_of(&mut self.rings, &flows)
            }
        };
        let first = first.unwrap_or(own);
        self.make_own(key, |flow| flow.id == first);
        Some(first)
    }

    /// The first of the other flows that is so becomes the own one, and the own one another; if the own one isn't so itself.
    fn make_own(&mut self, key: Key, is_so: impl Fn(&Flow) -> bool) {
        let Some(socket) = self.sockets.find_mut(key) else { return };
        let Some(own) = socket.ring_id().map(|id| Flow { id, family: socket.flow_family }).filter(|own| !is_so(own)) else { return };
        let Some(at) = socket.others.iter().position(is_so) else { return };
        let next = core::mem::replace(&mut socket.others[at], own);
        socket.set_own(Some(next.id));
        socket.flow_family = next.family;
    }

    /// A UDP socket is connected: of its flows, the one of its peer's family stays. One that is connected no more has both again.
    pub(super) fn keep_peers_flow(&mut self, key: Key) {
        let Some(socket) = self.sockets.find(key) else { return };
        match (socket.peer, socket.others.is_empty()) {
            (Some(peer), false) => {
                self.make_own(key, |flow| flow.family == Family::of(peer));
                self.close_others(key);
            }
            (None, true) => self.open_other_family_again(key),
            _ => {}
        }
    }

    fn open_other_family_again(&mut self, key: Key) {
        let Some(socket) = self.sockets.find(key) else { return };
        let (Some(bound), true) = (socket.bound, matches!(socket.kind, Kind::Datagram(Some(_)))) else { return };
        if !socket.takes_both() || self.goes_by_one(socket) {
            return;
        }
        let local = if socket.flow_family == Family::V4 { bound } else { any_v4(bound) };
        match self.open_flow(key, local) {
            Ok(id) => {
                if let Some(socket) = self.sockets.find_mut(key) {
                    socket.others.push(Flow { id, family: Family::of(local) });
                }
                self.link(id, key.index);
            }
            // What comes by that family comes by the kernel.
            Err(error) => tracing::debug!("{local} is served by the kernel only: {error}"),
        }
    }

    /// Closes all flows of a listener or UDP socket, of which the kernel's half is left.
    pub(crate) fn close_flows(&mut self, key: Key) {
        self.close_others(key);
        self.close_beyond(key, now());
        let Some(socket) = self.sockets.find_mut(key) else { return };
        if let Kind::Listener(Some(own)) | Kind::Datagram(Some(own)) = socket.kind {
            socket.set_own(None);
            self.rings.of_mut(own).close(now(), own, false);
        }
    }

    /// Closes the flows of a socket on shared memory beside its own one.
    fn close_others(&mut self, key: Key) {
        let Some(socket) = self.sockets.find_mut(key) else { return };
        for other in core::mem::take(&mut socket.others) {
            self.rings.of_mut(other.id).close(now(), other.id, false);
        }
    }

    /// Somebody reads the socket who goes by one flow, IPv4's.
    pub(crate) fn keep_one_flow(&mut self, key: Key) {
        self.make_own(key, |flow| flow.family == Family::V4);
        self.close_others(key);
        self.close_beyond(key, now());
    }
}
