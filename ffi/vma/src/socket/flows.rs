//! A socket's flows: one for each address that what is for it may come by, and for each ring that it may come to.
//!
//! A connection has one. A listener, and a UDP socket, has one on shared memory for each family that it takes (one that is bound to `::`, without
//! IPV6_V6ONLY, takes both), and on each ring of each interface one for each address there that it is bound to. The first of them, which is on shared memory
//! and is there as long as any is, is in the socket's [`Kind`]; the others are [`Socket::others`]. A UDP socket has one more for each group that it hears by an
//! interface's ring ([`super::groups::claims`]).
//!
//! Who reads takes what came first, whichever flow it came by ([`Offload::turn`]). Who sends goes by the flow that the way to the destination names
//! ([`super::routes`]). A flow on shared memory is to be had, or the socket is the kernel's; what cannot be had on an interface is the kernel's there.
//!
//! A socket of a cyclic ring, and who counts what is dropped (SO_RXQ_OVFL), go by the first flow, which is IPv4's then: what comes by IPv6, or by an interface, comes by the
//! kernel.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ringway_params::rules::Role;
use ringway_stack::device::Protocol;
use ringway_stack::net::LinkId;
use ringway_stack::ring::{FlowId, Reuse};
use ringway_stack::socket::Direction;
use ringway_stack::{Error, Instant, socket, tcp};

use super::{Kind, Socket, address};
use crate::process::{self, Offload, Process};
use crate::rings::RingSet;
use crate::rules;
use crate::slab::Key;

/// One of several flows of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) id: FlowId,
    /// For which address it is.
    pub(crate) at: IpAddr,
}

/// Where a socket has a flow: on that ring, for that address.
pub(crate) type Place = (u16, IpAddr);

impl Flow {
    const fn place(self) -> Place {
        (self.id.ring, self.at)
    }
}

/// Where a UDP socket was before it went over to another ring of the process. Who was about to send to that one still does; nobody else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Former {
    /// One of the socket's flows ([`Socket::others`]), which no rule leads to.
    pub(crate) id: FlowId,
    /// When nobody is about to send there any more.
    pub(crate) until: Instant,
}

impl Socket {
    /// Where it was before.
    pub(crate) fn former(&self) -> Option<Former> {
        self.rare.as_ref()?.former
    }

    /// Whether it has such a flow, which is that one.
    pub(super) fn is_former(&self, flow: FlowId) -> bool {
        self.former().is_some_and(|former| former.id == flow)
    }

    /// It has gone over: its first flow is that one, and the other the former one.
    pub(crate) fn went_over(&mut self, flow: FlowId, former: Former) {
        let before = self.first_flow();
        (self.kind, self.ring) = (Kind::Datagram(Some(flow)), flow.ring);
        self.others.extend(before.filter(|before| before.id == former.id));
        self.rare().former = Some(former);
    }

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

    /// Whether others may have its address too, of which the kernel chooses one, and it is not known that none has ([`super::shared_ports`]).
    pub(super) fn shares_address(&self) -> bool {
        self.reuse_port || self.protocol == Protocol::Udp && self.udp.reuse != Reuse::No && !self.is_alone_at_port
    }

    /// The flow by which a UDP socket sends to an address of this machine's.
    #[inline]
    pub(super) fn flow_to(&self, to: SocketAddr) -> Option<FlowId> {
        // (Nothing is sent from a group's address.)
        let is_meant = |flow: &Flow| flow.id.ring == self.ring && flow.at.is_ipv4() == to.is_ipv4() && !flow.at.is_multicast();
        self.flows_and_addresses().find(is_meant).map(|flow| flow.id)
    }

    /// The flow by which it sends to its peer. `None`: the kernel sends, as far as is known.
    pub(crate) fn flow_to_peer(&self) -> Option<FlowId> {
        match self.kind {
            Kind::Datagram(_) => self.routes.flow_to(self.peer?).filter(|&flow| self.has_flow(flow)),
            kind => kind.stream(),
        }
    }

    /// The flow that it has there.
    pub(super) fn flow_at(&self, place: Place) -> Option<FlowId> {
        self.flows_and_addresses().find(|flow| flow.place() == place).map(|flow| flow.id)
    }

    /// The flows of a listener or a UDP socket, and for which addresses they are.
    #[inline]
    pub(super) fn flows_and_addresses(&self) -> impl Iterator<Item = Flow> {
        self.first_flow().into_iter().chain(self.others.iter().copied())
    }

    /// The flow that it has for an address on such a ring.
    pub(super) fn flow_from(&self, at: IpAddr, is_such: impl Fn(u16) -> bool) -> Option<FlowId> {
        self.flows_and_addresses().find(|flow| flow.at == at && is_such(flow.id.ring)).map(|flow| flow.id)
    }

    pub(super) fn first_flow(&self) -> Option<Flow> {
        match self.kind {
            Kind::Listener(first) | Kind::Datagram(first) => first.map(|id| Flow { id, at: self.flow_at }),
            _ => None,
        }
    }

    /// Its flows.
    #[inline]
    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowId> {
        self.ring_id().into_iter().chain(self.others.iter().map(|flow| flow.id))
    }

    /// Whether that flow is one of its.
    #[inline]
    pub(crate) fn has_flow(&self, flow: FlowId) -> bool {
        self.ring_id() == Some(flow) || self.others.iter().any(|other| other.id == flow)
    }

    /// Whether it reads from more than one.
    #[inline]
    pub(crate) const fn has_several_flows(&self) -> bool {
        !self.others.is_empty()
    }

    /// On a card's link it has its flows on that ring from now on; `None`: on the first.
    pub(crate) fn goes_on_card(&mut self, link: LinkId, ring: Option<u16>) {
        if ring.is_none() && self.on_cards().is_empty() {
            return;
        }
        let on_cards = &mut self.rare().on_cards;
        on_cards.retain(|(of, _)| *of != link);
        on_cards.extend(ring.map(|ring| (link, ring)));
    }

    fn on_cards(&self) -> &[(LinkId, u16)] {
        self.rare.as_ref().map_or(&[], |rare| &rare.on_cards)
    }

    /// One flow more; or the first.
    pub(super) fn add_flow(&mut self, flow: Flow) {
        if self.ring_id().is_some() { self.others.push(flow) } else { self.set_first(Some(flow)) }
    }

    /// Makes that flow the first one, or says that there is none.
    fn set_first(&mut self, first: Option<Flow>) {
        let id = first.map(|flow| flow.id);
        self.kind = if self.protocol == Protocol::Tcp { Kind::Listener(id) } else { Kind::Datagram(id) };
        self.flow_at = first.map_or(self.flow_at, |flow| flow.at);
    }
}

/// The same port, on every address of IPv4.
fn any_v4(local: SocketAddr) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), local.port())
}

/// (Where there is a ring, there is a process.)
pub(crate) fn now() -> Instant {
    process::process().map_or(Instant::ZERO, Process::now)
}

impl Offload {
    /// Opens the flows that a listener, or a UDP socket, has by the address that it is bound to: all of them that are on shared memory, or none.
    ///
    /// # Errors
    /// As [`ringway_stack::ring::Ring::tcp_listen`] and [`ringway_stack::ring::Ring::udp_open`].
    pub(super) fn open_flows(&mut self, key: Key) -> Result<(), Error> {
        self.choose_ring(key);
        self.choose_rings_on_cards(key);
        self.look_at_port_of(key);
        let opened = self.open_missing(key);
        if opened.is_err() {
            self.close_flows(key);
        }
        self.want_interfaces();
        opened
    }

    /// Chooses the ring of each card on which a listener, or a UDP socket, is to have its flows, by whose call this is.
    fn choose_rings_on_cards(&mut self, key: Key) {
        let links: Vec<_> = self.interfaces.iter().flat_map(|interfaces| interfaces.steered_links()).collect();
        for (link, first) in links {
            let ring = self.ring_of_interface(key, first, Direction::Rx);
            if let Some(socket) = self.sockets.find_mut(key) {
                socket.goes_on_card(link, Some(ring).filter(|ring| *ring != first));
            }
        }
    }

    /// Whether somebody reads it who goes by one flow.
    pub(super) fn goes_by_one(&self, socket: &Socket) -> bool {
        socket.ancillary.drops.is_some() || self.is_on_cyclic_ring(socket)
    }

    /// Where a socket is to have flows, as it is bound and connected; shared memory's come first.
    fn places(&self, socket: &Socket) -> Vec<Place> {
        let Some(bound) = socket.bound else { return Vec::new() };
        let (takes_both, goes_by_one) = (socket.takes_both(), self.goes_by_one(socket));
        let of_v4 = any_v4(bound).ip();
        let mut places = match socket.first_flow() {
            Some(first) if goes_by_one => vec![first.place()],
            _ if takes_both && goes_by_one => vec![(socket.ring, of_v4)],
            _ if takes_both => vec![(socket.ring, bound.ip()), (socket.ring, of_v4)],
            _ => vec![(socket.ring, bound.ip())],
        };
        if let Some(peer) = socket.peer {
            places.retain(|(_, at)| at.is_ipv4() == peer.is_ipv4());
        }
        // (Of a group that shares an address, the kernel chooses one.)
        let is_for_strides = self.is_for_strides(socket);
        let is_kernels = goes_by_one && !is_for_strides || socket.shares_address() || socket.stays_within;
        let is_kernels = is_kernels || socket.is_left_by_fork && socket.protocol == Protocol::Udp;
        let Some(interfaces) = self.interfaces.as_ref().filter(|_| !is_kernels) else { return places };
        let to_peer = socket.peer.map(|peer| interfaces.path(socket.protocol, socket.bound, peer).map(|path| (path.ring, path.source)));
        // (What the peer sends comes to any ring of the interface.)
        let is_on_way = |(ring, source), place: &Place| source == place.1 && interfaces.are_together(ring, place.0);
        let is_meant = |place: &Place| to_peer.is_none_or(|to_peer| to_peer.is_some_and(|way| is_on_way(way, place)));
        let is_there = |ring: u16| !self.rings.at(ring).ring.is_gone();
        let is_taken = |place: &Place| is_there(place.0) && (socket.protocol == Protocol::Udp || interfaces.takes_streams(place.0));
        // (Of what a card's striding queues write to, a program that goes by one flow reads all.)
        let is_read = |place: &Place| !goes_by_one || place.1.is_ipv4() && self.has_strides(place.0);
        places
            .extend(interfaces.places(bound, takes_both, socket.on_cards()).into_iter().filter(is_meant).filter(is_taken).filter(is_read));
        places
    }

    /// Opens the flows that a socket is to have, and has not.
    ///
    /// # Errors
    /// One on shared memory cannot be had.
    fn open_missing(&mut self, key: Key) -> Result<(), Error> {
        let Some(socket) = self.sockets.find(key) else { return Err(Error::BadSocket) };
        let port = socket.bound.map_or(0, |bound| bound.port());
        let is_left = |ring| socket.is_left_by_fork && self.rings.interfaces.contains(ring);
        let is_missing = |&(ring, at): &Place| socket.flow_at((ring, at)).is_none() && !is_left(ring);
        let missing: Vec<Place> = self.places(socket).into_iter().filter(is_missing).collect();
        let (mut result, mut opened) = (Ok(()), RingSet::NONE);
        for (ring, at) in missing {
            let local = SocketAddr::new(at, port);
            match self.open_flow_on(ring, key, local) {
                Ok(id) => {
                    if let Some(socket) = self.sockets.find_mut(key) {
                        socket.add_flow(Flow { id, at });
                    }
                    opened = opened.with(RingSet::of(ring));
                    self.link(id, key.index);
                }
                Err(error) if self.rings.interfaces.contains(ring) => tracing::info!("{local} is served by the kernel only: {error}"),
                Err(error) => result = Err(error),
            }
        }
        if let Some(socket) = self.sockets.find_mut(key).filter(|_| !opened.is_empty()) {
            socket.routes.ask_tables_again();
        }
        result
    }

    fn open_flow_on(&mut self, ring: u16, key: Key, local: SocketAddr) -> Result<FlowId, Error> {
        let socket = self.sockets.find(key).ok_or(Error::BadSocket)?;
        match socket.protocol {
            // The kernel has let the program bind the address: whoever else has it shares it, by fork or by SO_REUSEPORT.
            Protocol::Tcp => {
                // (An interface's rules are one socket's each: so is what comes by it.)
                let reuse_port = !self.rings.interfaces.contains(ring);
                let config = tcp::Config { reuse_port, ..self.rings.tcp_config(ring, &socket.tcp, (None, u16::MAX)).into_owned() };
                self.rings.at_mut(ring).ring.tcp_listen(local, usize::try_from(socket.backlog).unwrap_or(1), &config)
            }
            Protocol::Udp => {
                let options = self.rings.udp_options(ring, &socket.udp);
                self.rings.at_mut(ring).ring.udp_open(local, &options)
            }
        }
    }

    /// The flow from which a socket reads next: that where what came first waits.
    #[cold]
    pub(crate) fn turn(&mut self, key: Key) -> Option<FlowId> {
        if let Some(former) = self.sockets.find(key)?.former() {
            return self.turn_of_two(key, former);
        }
        let Self { sockets, rings, .. } = self;
        let socket = sockets.find(key)?;
        let first = socket.ring_id().filter(|_| socket.has_several_flows())?;
        Some(socket::first_of(rings, socket.flows()).unwrap_or(first))
    }

    /// Gives a socket the flows that it is to have from now on: it has a peer, or has none any more; or its options, or the interfaces' addresses, have changed.
    pub(crate) fn fit_flows(&mut self, key: Key) {
        if self.sockets.find(key).and_then(Socket::first_flow).is_none() {
            return;
        }
        if let Err(error) = self.open_missing(key) {
            tracing::debug!("what a socket lacks on shared memory comes by the kernel: {error}");
        }
        let Some(places) = self.sockets.find(key).map(|socket| self.places(socket)) else { return };
        let former = self.sockets.find(key).and_then(Socket::former).map(|former| former.id);
        // (Those of groups come and go with these.)
        self.retain_flows(key, |flow| places.contains(&flow.place()) || flow.at.is_multicast() || Some(flow.id) == former);
    }

    /// Closes those flows of a listener or UDP socket that are not so. One on shared memory is left: the first that is so, or the first.
    pub(super) fn retain_flows(&mut self, key: Key, is_so: impl Fn(&Flow) -> bool) {
        let Self { sockets, rings, .. } = self;
        let Some(socket) = sockets.find_mut(key) else { return };
        let Some(first) = socket.first_flow() else { return };
        let is_within = |flow: &Flow| !rings.interfaces.contains(flow.id.ring);
        if !is_so(&first)
            && let Some(at) = socket.others.iter().position(|flow| is_so(flow) && is_within(flow))
        {
            let next = core::mem::replace(&mut socket.others[at], first);
            socket.set_first(Some(next));
        }
        socket.others.retain(|flow| {
            let stays = is_so(flow);
            if !stays {
                rings.of_mut(flow.id).close(now(), flow.id, false);
            }
            stays
        });
    }

    /// A flow has failed. `true`: its ring's device is gone, and its socket, a listener or of UDP, goes on by its other flows and by the kernel, as the kernel's
    /// own do when an interface is removed.
    #[cold]
    pub(crate) fn leave_gone_ring(&mut self, index: u32, flow: FlowId) -> bool {
        let Some(key) = self.sockets.key_at(index).filter(|_| self.rings.at(flow.ring).ring.is_gone()) else { return false };
        let has_others = self.sockets.find(key).is_some_and(|socket| socket.others.iter().any(|other| other.id == flow));
        if has_others {
            self.close_flow(key, flow);
            self.sockets.find_mut(key).into_iter().for_each(|socket| socket.routes.ask_tables_again());
        }
        has_others
    }

    /// Closes one of its flows.
    pub(super) fn close_flow(&mut self, key: Key, id: FlowId) {
        self.retain_flows(key, |flow| flow.id != id);
    }

    /// Closes those that are on these rings.
    pub(crate) fn close_flows_on(&mut self, key: Key, rings: RingSet) {
        self.retain_flows(key, |flow| !rings.contains(flow.id.ring));
    }

    /// Closes all flows of a listener or UDP socket, of which the kernel's half is left.
    pub(crate) fn close_flows(&mut self, key: Key) {
        let Self { sockets, rings, .. } = self;
        let Some(socket) = sockets.find_mut(key) else { return };
        let Some(first) = socket.first_flow() else { return };
        let others = core::mem::take(&mut socket.others);
        socket.set_first(None);
        socket.rare.iter_mut().for_each(|rare| rare.former = None);
        socket.routes.ask_tables_again();
        others.iter().chain([&first]).for_each(|flow| rings.of_mut(flow.id).close(now(), flow.id, false));
    }

    /// Somebody reads the socket who goes by one flow, IPv4's on shared memory.
    pub(crate) fn keep_one_flow(&mut self, key: Key) {
        self.end_former(key);
        let interfaces = self.rings.interfaces;
        self.retain_flows(key, |flow| flow.at.is_ipv4() && !interfaces.contains(flow.id.ring));
    }

    /// By its options, what comes for a socket by interfaces, or goes there, is the kernel's from now on.
    pub(super) fn keep_within(&mut self, key: Key) {
        if let Some(socket) = self.sockets.find_mut(key) {
            socket.stays_within = true;
            socket.routes.ask_tables_again();
            self.fit_flows(key);
        }
    }

    /// The interfaces have other addresses: what is bound to all of them has flows for these from now on.
    pub(crate) fn follow_addresses(&mut self) {
        let is_concerned = |socket: &Socket| socket.first_flow().is_some() && socket.peer.is_none();
        let keys: Vec<Key> = self.sockets.iter().filter(|(_, socket)| is_concerned(socket)).map(|(key, _)| key).collect();
        for key in keys {
            self.fit_flows(key);
            crate::mux::refresh(self, key.index);
        }
        self.dispatch();
    }

    /// The kernel's tables have changed: connections keep to the MTU of the routes that they have now.
    pub(crate) fn follow_path_mtus(&mut self, now: Instant) {
        let interfaces = self.rings.interfaces;
        let is_concerned = |socket: &Socket| socket.protocol == Protocol::Tcp && socket.peer.is_some() && interfaces.contains(socket.ring);
        let keys: Vec<Key> = self.sockets.iter().filter(|(_, socket)| is_concerned(socket)).map(|(key, _)| key).collect();
        for key in keys {
            self.follow_path_mtu(now, key);
        }
        self.dispatch();
    }

    /// The same for one of them.
    pub(super) fn follow_path_mtu(&mut self, now: Instant, key: Key) {
        let Self { sockets, interfaces: Some(interfaces), rings, .. } = self else { return };
        let Some(socket) = sockets.find_mut(key) else { return };
        let (Some(peer), Some(id)) = (socket.peer, socket.ring_id()) else { return };
        // (Where no route leads any more, the last one's holds.)
        let Some(path) = interfaces.path(Protocol::Tcp, socket.bound, peer).filter(|path| path.mtu != socket.path_mtu) else { return };
        socket.path_mtu = path.mtu;
        let mss_max = rings.tcp_config(id.ring, &socket.tcp, (socket.peer, path.mtu)).mss_max;
        if let Err(error) = rings.of_mut(id).tcp_configure(now, id, |config| config.mss_max = mss_max) {
            tracing::debug!("a connection does not follow its route's MTU: {error}");
        }
    }
}
