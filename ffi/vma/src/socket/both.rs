//! IPv6 sockets that take IPv4 as well (bound to `::`, without IPV6_V6ONLY): the ring has a flow of each family for them.
//!
//! One of the two is the socket's own ([`Kind`]), the other its twin. They change places, so that the own one is that where what came first waits
//! ([`ringway_stack::socket::first_of`]): who reads knows of no more than one. Who sends asks for the one of the destination's family ([`Socket::flow_to`]).
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
        if Family::of(to) == self.flow_family { own } else { self.twin }
    }

    /// Its flows on the rings.
    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowId> + use<> {
        [self.ring_id(), self.twin].into_iter().flatten().chain(self.flows_beyond())
    }
}

/// The same port, on every address of IPv4.
fn any_v4(local: SocketAddr) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), local.port())
}

/// (Where there is a ring, there is a process.)
fn now() -> Instant {
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
        let (both, is_for_one) = (socket.takes_both(), self.goes_by_one(socket));
        let first = if both && is_for_one { any_v4(local) } else { local };
        let id = self.open_flow(key, first)?;
        let twin = if both && !is_for_one { Some(self.open_flow(key, any_v4(local))) } else { None };
        let twin = match twin.transpose() {
            Ok(twin) => twin,
            Err(error) => {
                self.rings.of_mut(id).close(now(), id, false);
                return Err(error);
            }
        };
        let Some(socket) = self.sockets.find_mut(key) else { return Err(Error::BadSocket) };
        socket.kind = if socket.protocol == Protocol::Tcp { Kind::Listener(Some(id)) } else { Kind::Datagram(Some(id)) };
        socket.flow_family = Family::of(first);
        socket.twin = twin;
        self.link(id, key.index);
        if let Some(twin) = twin {
            self.link(twin, key.index);
        }
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
        let (own, twin) = self.flows_of(key)?;
        if socket::first_of(&mut self.rings, &[own, twin]) == Some(twin) {
            return self.change_places(key);
        }
        Some(own)
    }

    /// `None`: it has no two.
    fn flows_of(&self, key: Key) -> Option<(FlowId, FlowId)> {
        let socket = self.sockets.find(key)?;
        socket.ring_id().zip(socket.twin)
    }

    fn change_places(&mut self, key: Key) -> Option<FlowId> {
        let (own, twin) = self.flows_of(key)?;
        let socket = self.sockets.find_mut(key)?;
        socket.kind = if socket.protocol == Protocol::Tcp { Kind::Listener(Some(twin)) } else { Kind::Datagram(Some(twin)) };
        socket.twin = Some(own);
        socket.flow_family = socket.flow_family.other();
        Some(twin)
    }

    /// A UDP socket is connected: of its flows, the one of its peer's family stays. One that is connected no more has both again.
    pub(super) fn keep_peers_flow(&mut self, key: Key) {
        let Some(socket) = self.sockets.find(key) else { return };
        match (socket.peer, socket.twin) {
            (Some(peer), Some(_)) => {
                if Family::of(peer) != socket.flow_family {
                    self.change_places(key);
                }
                self.close_only_twin(key);
            }
            (None, None) => self.open_twin_again(key),
            _ => {}
        }
    }

    fn open_twin_again(&mut self, key: Key) {
        let Some(socket) = self.sockets.find(key) else { return };
        let (Some(bound), true) = (socket.bound, matches!(socket.kind, Kind::Datagram(Some(_)))) else { return };
        if !socket.takes_both() || self.goes_by_one(socket) {
            return;
        }
        let local = if socket.flow_family == Family::V4 { bound } else { any_v4(bound) };
        match self.open_flow(key, local) {
            Ok(twin) => {
                if let Some(socket) = self.sockets.find_mut(key) {
                    socket.twin = Some(twin);
                }
                self.link(twin, key.index);
            }
            // What comes by that family comes by the kernel.
            Err(error) => tracing::debug!("{local} is served by the kernel only: {error}"),
        }
    }

    /// Closes the other flows of a socket whose own one is being closed.
    pub(crate) fn close_twin(&mut self, key: Key) {
        self.close_only_twin(key);
        self.close_beyond(key, now());
    }

    fn close_only_twin(&mut self, key: Key) {
        if let Some(twin) = self.sockets.find_mut(key).and_then(|socket| socket.twin.take()) {
            self.rings.of_mut(twin).close(now(), twin, false);
        }
    }

    /// Somebody reads the socket who goes by one flow, IPv4's.
    pub(crate) fn keep_one_flow(&mut self, key: Key) {
        if self.sockets.find(key).is_some_and(|socket| socket.twin.is_some() && socket.flow_family == Family::V6) {
            self.change_places(key);
        }
        self.close_twin(key);
    }
}
