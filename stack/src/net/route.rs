//! Entries of routing tables (rtnetlink(7), RTM_NEWROUTE; ip-route(8)).

use core::net::IpAddr;

use super::address::Scope;
use super::link::LinkId;
use super::prefix::{Family, Prefix};

/// A routing table's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table(pub u32);

impl Table {
    /// The host's own and broadcast addresses; the kernel keeps it.
    pub const LOCAL: Self = Self(255);
    /// Where routes go unless told otherwise.
    pub const MAIN: Self = Self(254);
    /// Looked at last (IPv4).
    pub const DEFAULT: Self = Self(253);
}

/// What a route does with packets (`rtm_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Sends them on.
    Unicast,
    /// They are for this host.
    Local,
    /// Sends them as link-layer broadcast (IPv4).
    Broadcast,
    /// For this host, and for others that have the address as well.
    Anycast,
    /// Sends them as link-layer multicast.
    Multicast,
    /// "Packets are discarded and the ICMP message host unreachable is generated. The local senders get an EHOSTUNREACH error."
    Unreachable,
    /// "Packets are discarded silently. The local senders get an EINVAL error."
    Blackhole,
    /// "Packets are discarded and the ICMP message communication administratively prohibited is generated. The local senders get an
    /// EACCES error."
    Prohibit,
    /// The lookup goes on with the next rule.
    Throw,
}

/// A router's preference (RFC 4191 s2.1; IPv6 alone). Among routes of one prefix and one metric the greatest is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Preference {
    /// 11.
    Low,
    /// 00.
    #[default]
    Medium,
    /// 01.
    High,
}

/// One way that a route goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Over which link.
    pub link: LinkId,
    /// To which router; `None`: the destination is on the link. It may be an IPv6 address for an IPv4 destination (RFC 8950).
    pub gateway: Option<IpAddr>,
    /// Its part of the flows of a multipath route, at least 1.
    pub weight: u16,
    /// The kernel does not use it (RTNH_F_DEAD): its link is down, or has no carrier and is set to be left out then.
    pub is_dead: bool,
    /// Packets get another header on their way (a lightweight tunnel, MPLS, segment routing): the kernel's alone.
    pub is_encapsulated: bool,
}

impl NextHop {
    /// Over `link` to `gateway`, with the least weight.
    pub const fn new(link: LinkId, gateway: Option<IpAddr>) -> Self {
        Self { link, gateway, weight: 1, is_dead: false, is_encapsulated: false }
    }
}

/// One route. Its order among those of the same prefix and metric is the kernel's, so a builder must be given them in the order of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteEntry {
    /// In which table.
    pub table: Table,
    /// Where to.
    pub destination: Prefix,
    /// From where (IPv6's source-specific routes); all of the family otherwise.
    pub source: Prefix,
    /// For which type of service (IPv4), bits 2 to 7; 0: any.
    pub tos: u8,
    /// The lower, the better (ip-route(8), `metric`).
    pub metric: u32,
    /// What it does.
    pub kind: RouteKind,
    /// How far its destinations are.
    pub scope: Scope,
    /// Which source address to prefer (`src`).
    pub preferred_source: Option<IpAddr>,
    /// The path MTU (`mtu`), in bytes, rather than the link's.
    pub mtu: Option<u32>,
    /// The router's preference.
    pub preference: Preference,
    /// Its ways; several: a multipath route. None where packets end.
    pub next_hops: Vec<NextHop>,
}

impl RouteEntry {
    /// A unicast route in the main table.
    pub fn new(destination: Prefix, next_hop: NextHop) -> Self {
        let scope = if next_hop.gateway.is_some() { Scope::UNIVERSE } else { Scope::LINK };
        Self { scope, next_hops: vec![next_hop], ..Self::ending(destination, RouteKind::Unicast) }
    }

    /// A route without next hops in the main table, such as an unreachable one.
    pub fn ending(destination: Prefix, kind: RouteKind) -> Self {
        Self {
            table: Table::MAIN,
            destination,
            source: Prefix::all(destination.family()),
            tos: 0,
            metric: if destination.family() == Family::V6 { 1024 } else { 0 },
            kind,
            scope: Scope::UNIVERSE,
            preferred_source: None,
            mtu: None,
            preference: Preference::Medium,
            next_hops: Vec::new(),
        }
    }
}
