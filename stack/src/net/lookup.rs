//! How a destination's route is found: rules, routes, next hops. It is what Linux does (ip-rule(8), ip-route(8)), so that a socket on
//! Ringway goes the way that it would go in the kernel.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::address::Scope;
use super::fib::Fib;
use super::link::{Link, LinkId, LinkKind};
use super::neighbour::NeighbourState;
use super::prefix::{Family, bits_of};
use super::query::{Delivery, Query, Route, Unroutable};
use super::route::{NextHop, RouteEntry, RouteKind, Table};
use super::rule::{Action, Rule};
use super::tables::Tables;

/// The longest IPv4 packet (RFC 791 s3.1).
const MTU_V4_MAX: u32 = 65_535;

/// The longest IPv6 packet without a jumbo payload option: 65,535 bytes behind the header (RFC 8200 s3).
const MTU_V6_MAX: u32 = 65_535 + 40;

/// What the tables say of a flow.
#[derive(Clone, Copy)]
struct Found<'a> {
    entry: &'a RouteEntry,
    hop: &'a NextHop,
}

impl Tables {
    /// How Linux would reach a destination now.
    ///
    /// # Errors
    /// Why it would not ([`Unroutable::errno`] is the kernel's answer), or that only the kernel can tell.
    pub fn route(&self, query: &Query) -> Result<Route, Unroutable> {
        let family = Family::of(query.destination);
        if query.source.is_some_and(|source| Family::of(source) != family) {
            return Err(Unroutable::InvalidDestination);
        }
        let bound = query.link.map(|id| self.link(id).ok_or(Unroutable::UnknownLink)).transpose()?;
        if bound.is_some_and(|link| !link.is_up) {
            return Err(Unroutable::LinkDown);
        }
        match query.destination {
            destination if destination.is_unspecified() => self.route_to_self(query, family),
            IpAddr::V4(destination) => self.route_v4(query, destination),
            IpAddr::V6(destination) => self.route_v6(query, destination),
        }
    }

    /// The unspecified address: this host, from its loopback address, unless the source says which of its addresses is meant.
    fn route_to_self(&self, query: &Query, family: Family) -> Result<Route, Unroutable> {
        let loopback: IpAddr = match family {
            Family::V4 => Ipv4Addr::LOCALHOST.into(),
            Family::V6 => Ipv6Addr::LOCALHOST.into(),
        };
        let address = query.given_source().unwrap_or(loopback);
        self.route(&Query { destination: address, source: Some(address), link: None, ..*query })
    }

    fn route_v4(&self, query: &Query, destination: Ipv4Addr) -> Result<Route, Unroutable> {
        let mut query = *query;
        let is_group = destination.is_multicast() || destination.is_broadcast();
        if let Some(source) = query.given_source() {
            if matches!(source, IpAddr::V4(source) if source.is_multicast() || source.is_broadcast()) {
                return Err(Unroutable::InvalidSource);
            }
            let local = self.local_route(source).ok_or(Unroutable::ForeignSource)?;
            // "Special hack: user can direct multicasts and limited broadcast via necessary interface without fiddling with
            // IP_MULTICAST_IF": a program that binds an address means its link.
            if let (true, None) = (is_group, query.link) {
                let link = self.owner(source).or_else(|| local.next_hops.first().map(|hop| hop.link));
                return self.on_link(link.ok_or(Unroutable::ForeignSource)?, destination, Some(source));
            }
        }
        if let Some(link) = query.link {
            // What no router forwards (RFC 5771 s4, RFC 1122 s3.2.1.3 (c)) needs no route.
            if is_link_local_group(destination) {
                return self.on_link(link, destination, query.given_source());
            }
            if query.given_source().is_none() && destination.is_multicast() {
                query.source = self.select_v4(link, None, Scope::UNIVERSE).map(IpAddr::V4);
            }
        }
        let found = match (self.find(&query), query.link) {
            (Ok(found), _) => found,
            // A socket that is bound to a link reaches there what no route is known for.
            (Err(error), Some(link)) if !is_opaque(error) => return self.on_link(link, destination, query.given_source()),
            (Err(error), _) => return Err(error),
        };
        if found.entry.kind == RouteKind::Local {
            let link = self.loopback().ok_or(Unroutable::NoRoute)?;
            let source = query.given_source().or(found.entry.preferred_source).unwrap_or(query.destination);
            let mtu = found.entry.mtu.unwrap_or(link.mtu).min(MTU_V4_MAX);
            return Ok(Route { link: link.id, source, next_hop: None, mtu, scope: Scope::HOST, delivery: Delivery::Local });
        }
        let source = match query.given_source() {
            Some(source) => source,
            None => self.source_v4(found.entry, found.hop).ok_or(Unroutable::NoSource)?,
        };
        let delivery = match destination {
            _ if destination.is_multicast() => Delivery::Multicast,
            _ if destination.is_broadcast() || found.entry.kind == RouteKind::Broadcast => Delivery::Broadcast,
            _ => Delivery::Unicast,
        };
        // Broadcasts have no router, and multicasts none unless the route is one for groups.
        let is_routed = match delivery {
            Delivery::Multicast => found.entry.destination.length() >= 4,
            other => other == Delivery::Unicast,
        };
        let link = self.link(found.hop.link).ok_or(Unroutable::NoRoute)?;
        check_v4(link, source)?;
        let next_hop = found.hop.gateway.filter(|_| is_routed);
        let mtu = found.entry.mtu.filter(|_| is_routed).unwrap_or(link.mtu).min(MTU_V4_MAX);
        let scope = if next_hop.is_some() { Scope::UNIVERSE } else { Scope::LINK };
        Ok(Route { link: link.id, source, next_hop, mtu, scope, delivery })
    }

    /// An IPv4 destination that is on a link without a route that says so.
    fn on_link(&self, link: LinkId, destination: Ipv4Addr, source: Option<IpAddr>) -> Result<Route, Unroutable> {
        let source = source.or_else(|| self.select_v4(link, None, Scope::LINK).map(IpAddr::V4)).ok_or(Unroutable::NoSource)?;
        let link = self.link(link).ok_or(Unroutable::UnknownLink)?;
        check_v4(link, source)?;
        let delivery = match destination {
            _ if destination.is_multicast() => Delivery::Multicast,
            _ if destination.is_broadcast() => Delivery::Broadcast,
            _ => Delivery::Unicast,
        };
        Ok(Route { link: link.id, source, next_hop: None, mtu: link.mtu.min(MTU_V4_MAX), scope: Scope::LINK, delivery })
    }

    fn route_v6(&self, query: &Query, destination: Ipv6Addr) -> Result<Route, Unroutable> {
        let Found { entry, hop } = self.find(query)?;
        let source = match query.given_source().or(entry.preferred_source) {
            Some(source) => source,
            None => IpAddr::V6(self.source_v6(destination, hop.link).ok_or(Unroutable::NoSource)?),
        };
        let is_local = matches!(entry.kind, RouteKind::Local | RouteKind::Anycast);
        let link = if is_local { self.loopback() } else { self.link(hop.link) };
        let link = link.ok_or(Unroutable::NoRoute)?;
        let mtu = entry.mtu.or(link.mtu_v6).unwrap_or(link.mtu).min(MTU_V6_MAX);
        let (delivery, scope) = match hop.gateway {
            _ if is_local => (Delivery::Local, Scope::HOST),
            _ if destination.is_multicast() => (Delivery::Multicast, Scope::LINK),
            Some(_) => (Delivery::Unicast, Scope::UNIVERSE),
            None => (Delivery::Unicast, Scope::LINK),
        };
        Ok(Route { link: link.id, source, next_hop: hop.gateway, mtu, scope, delivery })
    }

    /// The route by which `address` is this host's own.
    pub(super) fn local_route(&self, address: IpAddr) -> Option<&RouteEntry> {
        let family = Family::of(address);
        let united = self.united().filter(|_| family == Family::V4);
        let fib = united.or_else(|| self.fib(family, Table::LOCAL))?;
        let found = self.search(fib, &Query::to(address))?.ok()?;
        matches!(found.entry.kind, RouteKind::Local | RouteKind::Anycast).then_some(found.entry)
    }

    /// Tries rule after rule.
    fn find(&self, query: &Query) -> Result<Found<'_>, Unroutable> {
        let family = Family::of(query.destination);
        if let (Family::V4, Some(united)) = (family, self.united()) {
            // The default table, if anybody made it, speaks last, and even after a route of main that says no.
            let found = match (self.search(united, query), self.fib(family, Table::DEFAULT)) {
                (None | Some(Err(_)), Some(default)) => self.search(default, query),
                (found, _) => found,
            };
            return found.unwrap_or(Err(Unroutable::NoRoute));
        }
        let mut skip_to = 0;
        for rule in self.rules(family) {
            if rule.priority < skip_to || !self.applies(rule, query)? {
                continue;
            }
            match rule.action {
                Action::Nop => {}
                // (A rule that is not there yet is gone to by nobody.)
                Action::Goto(priority) if self.rules(family).iter().any(|rule| rule.priority == priority) => skip_to = priority,
                Action::Goto(_) => {}
                Action::Unreachable => return Err(Unroutable::NoRoute),
                Action::Prohibit => return Err(Unroutable::Prohibited),
                Action::Blackhole => return Err(Unroutable::Blackhole),
                Action::Lookup(table) => {
                    let Some(found) = self.fib(family, table).and_then(|fib| self.search(fib, query)).transpose()? else {
                        continue;
                    };
                    if rule.suppress_length.is_none_or(|length| found.entry.destination.length() > length) {
                        return Ok(found);
                    }
                }
            }
        }
        Err(Unroutable::NoRoute)
    }

    /// Whether a rule matches.
    fn applies(&self, rule: &Rule, query: &Query) -> Result<bool, Unroutable> {
        let within = |prefix: Option<super::Prefix>, address: Option<IpAddr>| {
            prefix.is_none_or(|prefix| prefix.contains(address.unwrap_or(prefix.family().unspecified())))
        };
        // Linux compares no IPv6 source that is not there, and IPv4's as 0.0.0.0.
        let has_source = rule.family == Family::V4 || rule.from.is_none_or(|from| from.length() == 0) || query.given_source().is_some();
        // A legacy `tos` of IPv4 is compared with those bits that RFC 1349 left to it and RFC 3168 did not take.
        let tos = if rule.family == Family::V4 { query.tos & 0x1c } else { query.tos & 0xfc };
        let is_bound_to = |name: &str| query.link.is_some() && self.link_named(name).map(|link| link.id) == query.link;
        let is_match = has_source
            && within(rule.from, query.given_source())
            && within(rule.to, Some(query.destination))
            && rule.tos.is_none_or(|wanted| wanted == tos)
            && rule.dscp.is_none_or(|dscp| dscp == query.tos >> 2)
            && rule.mark.is_none_or(|(value, mask)| query.mark & mask == value & mask)
            && rule.uid.as_ref().is_none_or(|range| range.contains(&query.uid))
            && rule.input.as_deref().is_none_or(|name| self.link_named(name).is_some_and(Link::is_loopback))
            && rule.output.as_deref().is_none_or(is_bound_to)
            && rule.protocol.is_none_or(|protocol| protocol == query.protocol)
            && rule.source_port.as_ref().is_none_or(|range| range.contains(&query.source_port))
            && rule.destination_port.as_ref().is_none_or(|range| range.contains(&query.destination_port));
        let is_in_vrf = rule.is_vrf && query.link.is_some_and(|link| self.is_in_vrf(link));
        if is_match && (rule.is_opaque || is_in_vrf) {
            return Err(Unroutable::Opaque { priority: rule.priority });
        }
        Ok((is_match && !rule.is_vrf) != rule.is_inverted)
    }

    fn is_in_vrf(&self, link: LinkId) -> bool {
        let is_vrf = |id: LinkId| self.link(id).is_some_and(|link| matches!(link.kind, LinkKind::Vrf { .. }));
        is_vrf(link) || self.link(link).and_then(|link| link.master).is_some_and(is_vrf)
    }

    /// The route of one table; `None`: the next rule's turn.
    fn search<'a>(&'a self, fib: &Fib, query: &Query) -> Option<Result<Found<'a>, Unroutable>> {
        match query.destination {
            IpAddr::V4(_) => self.search_v4(fib, query),
            IpAddr::V6(_) => {
                // RFC 4861 s6.3.6: routers that are known not to answer come last. (A router itself does not look at that.)
                let among_reachable = (!self.forwards_v6).then(|| self.search_v6(fib, query, true)).flatten();
                match among_reachable.or_else(|| self.search_v6(fib, query, false))? {
                    Ok(found) => Some(Ok(found)),
                    Err(End::Throw) => None,
                    Err(End::Error(error)) => Some(Err(error)),
                }
            }
        }
    }

    fn search_v4<'a>(&'a self, fib: &Fib, query: &Query) -> Option<Result<Found<'a>, Unroutable>> {
        for &index in fib.matches(bits_of(query.destination)).flatten() {
            let entry = &self.routes[index as usize];
            // (Of routes, too, Linux compares these bits alone.)
            if entry.tos != 0 && entry.tos != query.tos & 0x1c || entry.scope == Scope::NOWHERE {
                continue;
            }
            match End::of(entry.kind) {
                Some(End::Throw) => return None,
                Some(End::Error(error)) => return Some(Err(error)),
                None => {}
            }
            let is_usable = |hop: &&NextHop| !hop.is_dead && query.link.is_none_or(|link| link == hop.link);
            let mut hops = entry.next_hops.iter().filter(is_usable);
            let Some(first) = hops.next() else {
                continue;
            };
            // A bound socket takes the first way over its link.
            let hop = if query.link.is_some() || entry.next_hops.len() == 1 { first } else { self.spread_v4(entry, query, first) };
            return Some(found(entry, hop));
        }
        None
    }

    /// One of an IPv4 route's ways for a flow. One whose own source address is the flow's goes before the others, since its provider may
    /// drop what has another's (RFC 2827).
    fn spread_v4<'a>(&self, entry: &'a RouteEntry, query: &Query, first: &'a NextHop) -> &'a NextHop {
        let usable = || entry.next_hops.iter().filter(|hop| !hop.is_dead);
        let own = |hop: &&NextHop| query.given_source().is_some() && self.own_source_v4(entry, hop) == query.given_source();
        let hash = query.flow_hash();
        spread(usable().filter(own), hash).or_else(|| spread(usable(), hash)).unwrap_or(first)
    }

    fn search_v6<'a>(&'a self, fib: &Fib, query: &Query, reachable_only: bool) -> Option<Result<Found<'a>, End>> {
        let source = query.given_source().unwrap_or(Family::V6.unspecified());
        let is_usable =
            |hop: &NextHop| !hop.is_dead && query.link.is_none_or(|link| link == hop.link) && !(reachable_only && self.has_failed(hop));
        let mut has_begun = false;
        for candidates in fib.matches(bits_of(query.destination)) {
            has_begun = has_begun || !self.is_passed_over(candidates, source);
            if !has_begun {
                continue;
            }
            let mut best: Option<&RouteEntry> = None;
            let entries = candidates.iter().map(|&index| &self.routes[index as usize]).filter(|entry| entry.source.contains(source));
            let mut least = None;
            for entry in entries {
                // The longest prefix of the source, then the least metric, then the router's preference, then the first. But if no route of the
                // least metric is of use, all others are equal in that.
                if best.is_some_and(|best| {
                    best.source != entry.source || Some((best.source, best.metric)) == least && best.metric != entry.metric
                }) {
                    break;
                }
                if least.is_none_or(|(of, _)| of != entry.source) {
                    least = Some((entry.source, entry.metric));
                }
                let is_better = best.is_none_or(|best| entry.preference > best.preference);
                let has_way = entry.next_hops.iter().any(is_usable) || (entry.next_hops.is_empty() && query.link.is_none());
                if is_better && has_way {
                    best = Some(entry);
                }
            }
            let Some(entry) = best else {
                continue;
            };
            if let Some(end) = End::of(entry.kind) {
                return Some(Err(end));
            }
            let hop = spread(entry.next_hops.iter().filter(|hop| is_usable(hop)), query.flow_hash())?;
            return Some(found(entry, hop).map_err(End::Error));
        }
        None
    }

    /// Linux keeps the source-specific routes of a prefix in a tree of their own. A lookup that begins at a prefix with such a tree, and finds no
    /// source in it, goes on to shorter prefixes, and does not look at the prefix's other routes; except for the default route. (One that
    /// began at a longer prefix, whose links or routers were of no use, does look.)
    fn is_passed_over(&self, candidates: &[u32], source: IpAddr) -> bool {
        let specific = || candidates.iter().map(|&index| &self.routes[index as usize]).filter(|entry| entry.source.length() > 0);
        let is_default = specific().any(|entry| entry.destination.length() == 0);
        !is_default && specific().next().is_some() && !specific().any(|entry| entry.source.contains(source))
    }

    /// Whether a router is known not to answer.
    fn has_failed(&self, hop: &NextHop) -> bool {
        let neighbour = hop.gateway.and_then(|gateway| self.neighbour(hop.link, gateway));
        neighbour.is_some_and(|neighbour| neighbour.state == NeighbourState::Failed)
    }
}

fn found<'a>(entry: &'a RouteEntry, hop: &'a NextHop) -> Result<Found<'a>, Unroutable> {
    if hop.is_encapsulated { Err(Unroutable::Encapsulated) } else { Ok(Found { entry, hop }) }
}

/// What a route says that leads nowhere.
enum End {
    /// The next rule's turn.
    Throw,
    Error(Unroutable),
}

impl End {
    const fn of(kind: RouteKind) -> Option<Self> {
        match kind {
            RouteKind::Unreachable => Some(Self::Error(Unroutable::Unreachable)),
            RouteKind::Blackhole => Some(Self::Error(Unroutable::Blackhole)),
            RouteKind::Prohibit => Some(Self::Error(Unroutable::Prohibited)),
            RouteKind::Throw => Some(Self::Throw),
            RouteKind::Unicast | RouteKind::Local | RouteKind::Broadcast | RouteKind::Anycast | RouteKind::Multicast => None,
        }
    }
}

/// One of several ways, each for its weight's part of all hashes (RFC 2992's hash threshold).
fn spread<'a>(hops: impl Iterator<Item = &'a NextHop> + Clone, hash: u32) -> Option<&'a NextHop> {
    let total: u64 = hops.clone().map(|hop| u64::from(hop.weight.max(1))).sum();
    let mut point = (u64::from(hash) * total) >> 32;
    for hop in hops {
        let weight = u64::from(hop.weight.max(1));
        if point < weight {
            return Some(hop);
        }
        point -= weight;
    }
    None
}

/// Whether only the kernel can answer, so that no guess may stand in.
const fn is_opaque(error: Unroutable) -> bool {
    matches!(error, Unroutable::Opaque { .. } | Unroutable::Encapsulated)
}

/// 224.0.0.0/24 and the limited broadcast address.
fn is_link_local_group(destination: Ipv4Addr) -> bool {
    destination.is_broadcast() || matches!(destination.octets(), [224, 0, 0, _])
}

/// RFC 1122 s3.2.1.3 (g): no packet from 127.0.0.0/8 leaves the host. (Of (a), Linux only keeps 0.0.0.0 itself, which is this host.)
fn check_v4(link: &Link, source: IpAddr) -> Result<(), Unroutable> {
    if source.is_loopback() && !link.is_loopback() { Err(Unroutable::InvalidSource) } else { Ok(()) }
}
