//! What happened between two snapshots, as far as a socket must hear of it.

use core::net::IpAddr;
use std::collections::BTreeMap;

use super::address::Address;
use super::link::{Link, LinkAddress, LinkId};
use super::neighbour::Neighbour;
use super::prefix::{Family, Prefix};
use super::query::{Query, Route};
use super::route::{RouteEntry, Table};
use super::tables::Tables;

/// One thing that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A link appeared.
    LinkAdded(LinkId),
    /// A link is gone: whatever is bound to it fails with ENODEV.
    LinkGone(LinkId),
    /// A link was set down, or lost its carrier.
    LinkDown(LinkId),
    /// A link is up and has a carrier again.
    LinkUp(LinkId),
    /// A link carries packets of another length, in bytes.
    MtuChanged {
        /// Which.
        link: LinkId,
        /// The length, for IPv4.
        mtu: u32,
        /// The length, for IPv6.
        mtu_v6: u32,
    },
    /// A link's name, link-layer address, master or kind is another.
    LinkChanged(LinkId),
    /// A link has an address more.
    AddressAdded {
        /// Which.
        link: LinkId,
        /// The address.
        address: IpAddr,
    },
    /// A link lost an address. Linux lets its connections be; their packets no longer come.
    AddressGone {
        /// Which.
        link: LinkId,
        /// The address.
        address: IpAddr,
    },
    /// An address became deprecated or preferred, or is no longer tentative: other sources may be chosen.
    AddressChanged {
        /// Which.
        link: LinkId,
        /// The address.
        address: IpAddr,
    },
    /// Packets to a neighbour go to another link-layer address; `None`: to none that is known.
    NeighbourChanged {
        /// On which link.
        link: LinkId,
        /// Whose.
        address: IpAddr,
        /// Where to.
        link_address: Option<LinkAddress>,
    },
    /// There are other routes to destinations in a prefix.
    RoutesChanged {
        /// In which table.
        table: Table,
        /// Which destinations.
        destination: Prefix,
    },
    /// Other rules: any destination of the family may have another route.
    RulesChanged(Family),
}

/// All of it, in the order of [`Change`]'s variants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(Vec<Change>);

impl Changes {
    /// From `old` to `new`. A neighbour that only became stale, or was confirmed, has not changed.
    pub fn between(old: &Tables, new: &Tables) -> Self {
        let mut changes = Vec::new();
        links(old, new, &mut changes);
        addresses(old, new, &mut changes);
        neighbours(old, new, &mut changes);
        routes(old, new, &mut changes);
        for family in [Family::V4, Family::V6] {
            if old.rules(family) != new.rules(family) {
                changes.push(Change::RulesChanged(family));
            }
        }
        Self(changes)
    }

    /// Whether nothing happened that a socket must hear of.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One by one.
    pub fn iter(&self) -> impl Iterator<Item = &Change> {
        self.0.iter()
    }

    /// Whether the flow of `query`, which went by `route`, is to be routed anew. May say yes needlessly, never no.
    pub fn concern(&self, query: &Query, route: &Route) -> bool {
        let family = Family::of(query.destination);
        let next_hop = route.neighbour(query.destination);
        self.0.iter().any(|change| match *change {
            // (A route appears by a change of its own; a link's address may be another for multicast.)
            Change::LinkAdded(_) | Change::LinkUp(_) => false,
            Change::LinkGone(link) | Change::LinkDown(link) | Change::LinkChanged(link) | Change::MtuChanged { link, .. } => {
                link == route.link || Some(link) == query.link
            }
            // A socket that chose its source has it chosen again.
            Change::AddressAdded { address, .. } | Change::AddressChanged { address, .. } => {
                query.given_source().is_none() && Family::of(address) == family
            }
            Change::AddressGone { address, .. } => Family::of(address) == family,
            Change::NeighbourChanged { link, address, .. } => link == route.link && address == next_hop || next_router(family, address),
            Change::RoutesChanged { destination, .. } => destination.contains(query.destination),
            Change::RulesChanged(of) => of == family,
        })
    }
}

/// An IPv6 route depends on whether its router answers, so another router's state may matter, too (RFC 4861 s6.3.6).
fn next_router(family: Family, neighbour: IpAddr) -> bool {
    family == Family::V6 && Family::of(neighbour) == Family::V6
}

fn links(old: &Tables, new: &Tables, changes: &mut Vec<Change>) {
    let gone = old.links().iter().filter(|link| new.link(link.id).is_none());
    changes.extend(gone.map(|link| Change::LinkGone(link.id)));
    for link in new.links() {
        let Some(before) = old.link(link.id) else {
            changes.push(Change::LinkAdded(link.id));
            continue;
        };
        match (before.is_running(), link.is_running()) {
            (true, false) => changes.push(Change::LinkDown(link.id)),
            (false, true) => changes.push(Change::LinkUp(link.id)),
            _ => {}
        }
        if mtus(before) != mtus(link) {
            let (mtu, mtu_v6) = mtus(link);
            changes.push(Change::MtuChanged { link: link.id, mtu, mtu_v6 });
        }
        let identity = |link: &Link| (link.name.clone(), link.kind.clone(), link.address.clone(), link.master, link.parent);
        if identity(before) != identity(link) {
            changes.push(Change::LinkChanged(link.id));
        }
    }
}

fn mtus(link: &Link) -> (u32, u32) {
    (link.mtu, link.mtu_v6.unwrap_or(link.mtu))
}

fn addresses(old: &Tables, new: &Tables, changes: &mut Vec<Change>) {
    let by_address = |tables: &Tables| -> BTreeMap<(LinkId, IpAddr, Prefix), Address> {
        tables.addresses().iter().map(|own| ((own.link, own.address, own.prefix), own.clone())).collect()
    };
    let (before, after) = (by_address(old), by_address(new));
    for (key, own) in &before {
        let (link, address) = (own.link, own.address);
        match after.get(key) {
            None => changes.push(Change::AddressGone { link, address }),
            Some(now) if now != own => changes.push(Change::AddressChanged { link, address }),
            Some(_) => {}
        }
    }
    let added = after.iter().filter(|(key, _)| !before.contains_key(key));
    changes.extend(added.map(|(_, own)| Change::AddressAdded { link: own.link, address: own.address }));
}

fn neighbours(old: &Tables, new: &Tables, changes: &mut Vec<Change>) {
    let mut tell = |of: &Neighbour, link_address: Option<&LinkAddress>| {
        let link_address = link_address.cloned();
        changes.push(Change::NeighbourChanged { link: of.link, address: of.address, link_address });
    };
    for before in old.neighbours() {
        let now = new.neighbour(before.link, before.address).and_then(Neighbour::destination);
        if before.destination() != now {
            tell(before, now);
        }
    }
    for now in new.neighbours().iter().filter(|now| old.neighbour(now.link, now.address).is_none()) {
        if now.destination().is_some() {
            tell(now, now.destination());
        }
    }
}

fn routes(old: &Tables, new: &Tables, changes: &mut Vec<Change>) {
    let (before, after) = (by_prefix(old), by_prefix(new));
    let gone = before.keys().filter(|key| !after.contains_key(key));
    let other = after.iter().filter(|(key, routes)| before.get(key) != Some(routes)).map(|(key, _)| key);
    changes.extend(gone.chain(other).map(|&(table, destination)| Change::RoutesChanged { table, destination }));
}

fn by_prefix(tables: &Tables) -> BTreeMap<(Table, Prefix), Vec<&RouteEntry>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for route in tables.routes() {
        groups.entry((route.table, route.destination)).or_default().push(route);
    }
    groups
}
