//! The snapshot, and how it is made.

use core::net::IpAddr;
use std::collections::BTreeMap;

use super::address::Address;
use super::fib::Fib;
use super::link::{Link, LinkId};
use super::neighbour::Neighbour;
use super::prefix::Family;
use super::route::{RouteEntry, Table};
use super::rule::Rule;

/// What a snapshot is made of, in the order in which the kernel lists it: among equals it takes the first.
#[derive(Clone, Debug)]
pub struct Builder {
    /// Links.
    pub links: Vec<Link>,
    /// Their addresses.
    pub addresses: Vec<Address>,
    /// Routes of all tables.
    pub routes: Vec<RouteEntry>,
    /// Rules of both families.
    pub rules: Vec<Rule>,
    /// Neighbours.
    pub neighbours: Vec<Neighbour>,
    /// Whether IPv6 packets are forwarded (`net.ipv6.conf.all.forwarding`): a router does not leave out routers that fail to answer.
    pub forwards_v6: bool,
}

impl Default for Builder {
    /// No links, and the rules that a kernel starts with.
    fn default() -> Self {
        let mut rules = Rule::defaults(Family::V4);
        rules.extend(Rule::defaults(Family::V6));
        Self { links: Vec::new(), addresses: Vec::new(), routes: Vec::new(), rules, neighbours: Vec::new(), forwards_v6: false }
    }
}

impl Builder {
    /// Sorts everything for lookup: O(n log n) in the number of routes.
    pub fn build(self, generation: u64) -> Tables {
        let Self { mut links, mut addresses, routes, mut rules, mut neighbours, forwards_v6 } = self;
        links.sort_by_key(|link| link.id);
        links.dedup_by_key(|link| link.id);
        addresses.sort_by_key(|address| address.link);
        rules.sort_by_key(|rule| rule.priority);
        neighbours.sort_by_key(|neighbour| (neighbour.link, neighbour.address));
        neighbours.dedup_by_key(|neighbour| (neighbour.link, neighbour.address));
        let (rules_v4, rules_v6): (Vec<_>, Vec<_>) = rules.into_iter().partition(|rule| rule.family == Family::V4);
        let mut members: BTreeMap<(Family, Table), Vec<u32>> = BTreeMap::new();
        for (index, route) in (0u32..).zip(&routes) {
            members.entry((route.destination.family(), route.table)).or_default().push(index);
        }
        let united = (rules_v4 == Rule::defaults(Family::V4)).then(|| {
            let of = |table| members.get(&(Family::V4, table)).into_iter().flatten().copied();
            Fib::new(&routes, of(Table::LOCAL).chain(of(Table::MAIN)))
        });
        let fibs = members.into_iter().map(|(key, members)| (key, Fib::new(&routes, members))).collect();
        Tables { generation, links, addresses, routes, rules_v4, rules_v6, neighbours, forwards_v6, fibs, united }
    }
}

/// Links, addresses, routes, rules and neighbours of one moment.
#[derive(Clone, Debug)]
pub struct Tables {
    generation: u64,
    /// Sorted by index.
    pub(super) links: Vec<Link>,
    /// Sorted by link, each link's in the kernel's order.
    pub(super) addresses: Vec<Address>,
    pub(super) routes: Vec<RouteEntry>,
    /// Sorted by priority.
    pub(super) rules_v4: Vec<Rule>,
    pub(super) rules_v6: Vec<Rule>,
    /// Sorted by link and address.
    pub(super) neighbours: Vec<Neighbour>,
    pub(super) forwards_v6: bool,
    fibs: BTreeMap<(Family, Table), Fib>,
    /// As long as nobody touches IPv4's rules, Linux keeps the local and the main table in one tree, and takes the longest prefix of both: a
    /// narrow route of main then goes before a wide one of the local table. `None`: somebody did.
    united: Option<Fib>,
}

impl Tables {
    /// Grows with each snapshot of one source.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// All links, by index.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// One link.
    pub fn link(&self, id: LinkId) -> Option<&Link> {
        self.links.binary_search_by_key(&id, |link| link.id).ok().map(|at| &self.links[at])
    }

    /// The link of that name.
    pub fn link_named(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| *link.name == *name)
    }

    /// The loopback link.
    pub fn loopback(&self) -> Option<&Link> {
        self.links.iter().find(|link| link.is_loopback())
    }

    /// The members of a bond, bridge or VRF.
    pub fn members(&self, master: LinkId) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(move |link| link.master == Some(master))
    }

    /// All addresses, by link.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// One link's addresses, in the kernel's order.
    pub fn addresses_of(&self, link: LinkId) -> &[Address] {
        let first = self.addresses.partition_point(|address| address.link < link);
        let end = self.addresses.partition_point(|address| address.link <= link);
        &self.addresses[first..end]
    }

    /// The link that has an address.
    pub fn owner(&self, address: IpAddr) -> Option<LinkId> {
        self.addresses.iter().find(|own| own.address == address).map(|own| own.link)
    }

    /// All routes, in the order of the dump.
    pub fn routes(&self) -> &[RouteEntry] {
        &self.routes
    }

    /// A family's rules, in the order in which they are tried.
    pub fn rules(&self, family: Family) -> &[Rule] {
        match family {
            Family::V4 => &self.rules_v4,
            Family::V6 => &self.rules_v6,
        }
    }

    /// All neighbours, by link and address.
    pub fn neighbours(&self) -> &[Neighbour] {
        &self.neighbours
    }

    /// What is known of one neighbour.
    pub fn neighbour(&self, link: LinkId, address: IpAddr) -> Option<&Neighbour> {
        let at = self.neighbours.binary_search_by_key(&(link, address), |neighbour| (neighbour.link, neighbour.address));
        at.ok().map(|at| &self.neighbours[at])
    }

    /// Whether packets to `address` stay on this host: the local table says so (127.0.0.0/8, the links' own addresses, and what an
    /// administrator added). The unspecified address, as a destination, is this host.
    pub fn is_local(&self, address: IpAddr) -> bool {
        address.is_unspecified() || self.local_route(address).is_some()
    }

    pub(super) fn fib(&self, family: Family, table: Table) -> Option<&Fib> {
        self.fibs.get(&(family, table))
    }

    /// The local and the main table, if they are one.
    pub(super) const fn united(&self) -> Option<&Fib> {
        self.united.as_ref()
    }
}
