//! Who hears what comes for a group by an interface: the kernel is asked, each time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ringway_host::netlink::{DiagSocket, SocketDiag};
use ringway_params::rules::Role;
use ringway_stack::device::Protocol;
use ringway_stack::net::LinkId;
use ringway_stack::offload::Reason;
use ringway_stack::ring::{Reuse, SourceFilter};

use super::claims::{Hearers, LOOK_REFUSED, LOOK_SHARED, Place};
use super::membership::{self, Hears};
use crate::descendants;
use crate::process::Offload;
use crate::slab::Key;
use crate::socket::flows::now;
use crate::socket::{Kind, Socket, address, sharing};

/// The kernel's sockets at a port, asked for once.
#[derive(Default)]
struct Ports(BTreeMap<u16, Option<Vec<DiagSocket>>>);

impl Ports {
    /// `None`: the kernel does not say.
    fn sockets(&mut self, port: u16) -> Option<&[DiagSocket]> {
        let ask = || {
            SocketDiag::open()
                .and_then(|mut diag| diag.at_port(Protocol::Udp, port, true))
                .inspect_err(|error| tracing::info!("groups are the kernel's, which does not say who has port {port}: {error}"))
                .ok()
        };
        self.0.entry(port).or_insert_with(ask).as_deref()
    }
}

impl Offload {
    /// The groups that are this process's alone.
    pub(super) fn wanted_groups(&mut self) -> BTreeMap<Place, Hearers> {
        self.forget_groups_left();
        let mut ports = Ports::default();
        let mut wanted = BTreeMap::new();
        for (ring, link, to) in self.groups_on_interfaces() {
            match self.hearers(link, to, &mut ports) {
                Some(hearers) => {
                    if self.share_their_port(&hearers) {
                        self.groups.look_within(now(), LOOK_SHARED);
                    }
                    wanted.insert((ring, to), hearers);
                }
                None => self.groups.look_within(now(), LOOK_REFUSED),
            }
        }
        wanted
    }

    /// Groups that a socket has left, and is a member of on no link, it need not be asked about again.
    fn forget_groups_left(&mut self) {
        let Some(interfaces) = &self.interfaces else { return };
        let mut left = Vec::new();
        for (key, socket) in self.sockets.iter() {
            let Some(rare) = &socket.rare else { continue };
            let is_member = |group: IpAddr| interfaces.all_links().any(|link| membership::filter_on(socket.fd, group, link).is_some());
            let of_it = rare.groups.named.iter().filter(|group| !rare.groups.members.contains(group) && !is_member(**group));
            left.extend(of_it.map(|&group| (key, group)));
        }
        for (key, group) in left {
            if let Some(socket) = self.sockets.find_mut(key) {
                socket.rare().groups.named.retain(|&named| named != group);
            }
        }
    }

    /// Whether others may come to the port.
    fn share_their_port(&self, hearers: &Hearers) -> bool {
        let shares = |key: Key| self.sockets.find(key).is_some_and(|socket| sharing::reuse_of(socket.fd) != Reuse::No);
        hearers.iter().any(|(key, _)| shares(*key))
    }

    /// What members are to hear that are ours, by interfaces of ours.
    fn groups_on_interfaces(&self) -> BTreeSet<(u16, LinkId, SocketAddr)> {
        let Some(interfaces) = &self.interfaces else { return BTreeSet::new() };
        // (A broker gives nobody a group.)
        let is_own = |ring: &u16| self.rings.at(*ring).ring.lender().is_none();
        let links: Vec<_> = interfaces.lone_links().filter(|(ring, _)| is_own(ring)).collect();
        let mut found = BTreeSet::new();
        for (_, socket) in self.sockets.iter() {
            let (Some(rare), Some(bound), Kind::Datagram(_)) = (&socket.rare, socket.bound, socket.kind) else { continue };
            for &group in &rare.groups.named {
                let is_heard = |link: LinkId| membership::filter_on(socket.fd, group, link).is_some_and(|filter| !filter.is_none());
                let heard = links.iter().filter(|(_, link)| is_heard(*link));
                found.extend(heard.map(|&(ring, link)| (ring, link, SocketAddr::new(group, bound.port()))));
            }
        }
        found
    }

    /// Who hears what comes for a group by a link: all who do, if they are ours and can have it from a ring.
    fn hearers(&self, link: LinkId, to: SocketAddr, ports: &mut Ports) -> Option<Hearers> {
        let interfaces = self.interfaces.as_ref().filter(|interfaces| interfaces.is_apart(link))?;
        let (mut hearers, mut followers) = (Vec::new(), Vec::new());
        for other in ports.sockets(to.port())? {
            let at = other.local.ip();
            let is_there = at == to.ip() || at.is_unspecified() && (at.is_ipv6() || to.is_ipv4());
            if !is_there {
                continue;
            }
            // (Somebody else's: whether it is a member the kernel does not say.)
            let (key, socket) = self.socket_named(*other)?;
            if at.is_ipv6() && to.is_ipv4() && address::is_v6_only(socket.fd, socket.family) {
                continue;
            }
            match membership::heard(socket.fd, to.ip(), link, interfaces.all_links()) {
                Hears::Nobody => {}
                Hears::Unclear => return None,
                _ if !self.may_hear_by_ring(socket, to) => return None,
                Hears::As(filter) => hearers.push((key, filter)),
                Hears::WhatMembersDo => followers.push((key, SourceFilter::ANY)),
            }
        }
        // (What members do not hear the kernel may drop, or not, by whatever members there are elsewhere.)
        let is_all_heard = hearers.iter().any(|(_, filter)| *filter == SourceFilter::ANY);
        if !followers.is_empty() && !is_all_heard {
            return None;
        }
        hearers.append(&mut followers);
        (!hearers.is_empty()).then_some(hearers)
    }

    fn socket_named(&self, other: DiagSocket) -> Option<(Key, &Socket)> {
        // (Of few the kernel is asked for the cookie.)
        let is_there = |socket: &Socket| socket.bound.is_some_and(|bound| bound.port() == other.local.port());
        let is_it = |socket: &Socket| socket.protocol == Protocol::Udp && is_there(socket) && sharing::cookie_of(socket.fd) == other.cookie;
        self.sockets.iter().find(|(_, socket)| is_it(socket))
    }

    /// Whether a socket can have a group's datagrams from a ring, and nobody else has the socket.
    fn may_hear_by_ring(&self, socket: &Socket, to: SocketAddr) -> bool {
        let is_published = match socket.kind {
            Kind::Datagram(Some(_)) => true,
            // (Bound to the group's own address, it has had no flow so far.)
            Kind::Datagram(None) => {
                socket.bound == Some(to) && socket.reason == Some(Reason::Multicast) && socket.left_by_rule(Role::UdpReceiver, to).is_none()
            }
            _ => false,
        };
        is_published
            && socket.peer.is_none()
            && !socket.shut.read
            && !socket.has_preference()
            && !self.goes_by_one(socket)
            && !self.rings_are_used()
            && socket.callback().is_none()
            && !descendants::shared_since(socket.birth)
    }
}
