//! Several rings of one interface: which of them a socket's flow is on, and which one what is for it comes to.

use std::net::{IpAddr, SocketAddr};

use ringway_devices::Landing;
use ringway_stack::device::Protocol;
use ringway_stack::net::LinkId;
use ringway_stack::socket::Direction;

use super::{Interface, Interfaces};
use crate::process::Offload;
use crate::slab::Key;

/// Where what comes for a flow comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lands {
    /// Nobody says.
    Unknown,
    /// On that ring.
    At(u16),
    /// To none of the process's.
    Elsewhere,
}

impl Interfaces {
    /// The rings that are their links' only ones, or to which rules lead, and these. (A group's datagrams would come to any of several, and no longer in order.)
    pub(crate) fn lone_links(&self) -> impl Iterator<Item = (u16, LinkId)> {
        let is_alone = |interface: &&Interface| interface.is_steered() || interface.rings.len() == 1 && !interface.is_partial;
        self.all.iter().filter(is_alone).map(|interface| (interface.first(), interface.link))
    }

    /// The first ring of each interface that has several, of which not rules, but its queues say what comes to which.
    pub(crate) fn firsts_of_several(&self) -> impl Iterator<Item = u16> {
        self.all.iter().filter(|interface| interface.rings.len() > 1 && !interface.is_steered()).map(Interface::first)
    }

    /// The link of an interface's ring, if it has several by whose queues things come, or somebody else has.
    pub(crate) fn shared_link(&self, ring: u16) -> Option<LinkId> {
        let is_shared = |interface: &&Interface| !interface.is_steered() && (interface.rings.len() > 1 || interface.is_partial);
        self.all.iter().filter(is_shared).find(|interface| interface.has(ring)).map(|interface| interface.link)
    }

    /// The link of a ring that rules lead to.
    pub(crate) fn steered_link(&self, ring: u16) -> Option<LinkId> {
        self.all.iter().find(|interface| interface.is_steered() && interface.has(ring)).map(|interface| interface.link)
    }

    /// Whether a link has that address, or one of those that are meant by none.
    pub(super) fn has_address(&self, link: LinkId, ip: IpAddr) -> bool {
        ip.is_unspecified() || self.monitor.tables().addresses_of(link).iter().any(|own| own.address == ip)
    }

    /// The links of all cards whose rings rules lead to, and the first ring of each.
    pub(crate) fn steered_links(&self) -> impl Iterator<Item = (LinkId, u16)> {
        self.all.iter().filter(|interface| interface.is_steered()).map(|interface| (interface.link, interface.first()))
    }

    /// Whether a connection that is on an interface's rings stays there: all that comes for it comes to these. (By another queue, its next segment would find a kernel that
    /// knows nothing of it. Who has all queues finds it on the ring that has it.)
    pub(crate) fn takes_streams(&self, ring: u16) -> bool {
        self.all.iter().any(|interface| interface.has(ring) && (interface.knows_queues || !interface.is_partial))
    }

    /// Whether two rings are of one interface.
    pub(crate) fn are_together(&self, ring: u16, other: u16) -> bool {
        self.all.iter().any(|interface| interface.has(ring) && interface.has(other))
    }

    /// The ring of that number among those of another one's interface.
    pub(crate) fn beside(&self, ring: u16, at: usize) -> Option<u16> {
        self.all.iter().find(|interface| interface.has(ring))?.rings.get(at).map(|own| own.number)
    }
}

impl Offload {
    /// The ring of an interface by which a socket goes there, of several by the allocation logic; where `first` is the first one.
    pub(crate) fn ring_of_interface(&mut self, key: Key, first: u16, direction: Direction) -> u16 {
        let link = self.interfaces.as_ref().and_then(|interfaces| interfaces.shared_link(first).or_else(|| interfaces.steered_link(first)));
        let Some(link) = link else { return first };
        let is_steered = self.interfaces.as_ref().is_some_and(|interfaces| interfaces.steered_link(first).is_some());
        let place = match direction {
            Direction::Rx if is_steered => self.place_on_card(key).map(|(place, _)| place),
            Direction::Rx => self.place_of(key).map(|(place, _)| place),
            Direction::Tx => self.place_to_send(key),
        };
        place.and_then(|place| self.ring_on(link, place)).unwrap_or(first)
    }

    /// Where what comes for a flow comes to, if its interface says so; where `ring` is one of the interface's.
    pub(crate) fn lands_at(&self, ring: u16, protocol: Protocol, (local, remote): (SocketAddr, SocketAddr)) -> Lands {
        let Some(interfaces) = self.interfaces.as_ref().filter(|interfaces| interfaces.shared_link(ring).is_some()) else {
            return Lands::Unknown;
        };
        match self.rings.at(ring).ring.lands_at(protocol, local, remote) {
            Landing::Unknown => Lands::Unknown,
            Landing::At(at) => interfaces.beside(ring, at.0 as usize).map_or(Lands::Unknown, Lands::At),
            Landing::Elsewhere => Lands::Elsewhere,
        }
    }
}
