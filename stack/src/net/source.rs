//! Which source address a packet gets whose socket has none.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::address::{Address, Scope, scope_v6};
use super::link::LinkId;
use super::prefix::{Prefix, bits_of, mask};
use super::route::{NextHop, RouteEntry};
use super::tables::Tables;

impl Tables {
    /// IPv4's: what the route prefers, or else an address of its link.
    pub(super) fn source_v4(&self, entry: &RouteEntry, hop: &NextHop) -> Option<IpAddr> {
        entry.preferred_source.or_else(|| self.own_source_v4(entry, hop))
    }

    /// The address that one way of a route has by itself.
    pub(super) fn own_source_v4(&self, entry: &RouteEntry, hop: &NextHop) -> Option<IpAddr> {
        let gateway = match hop.gateway {
            Some(IpAddr::V4(gateway)) => Some(gateway),
            _ => None,
        };
        self.select_v4(hop.link, gateway, entry.scope).map(IpAddr::V4)
    }

    /// The first primary address of a link that reaches as far as `scope`, one whose subnet has `peer` before the others; or else the first
    /// of any link that does. (ip-route(8): "the kernel chooses"; RFC 1122 s3.3.4.3 asks for an address of the interface.)
    pub(super) fn select_v4(&self, link: LinkId, peer: Option<Ipv4Addr>, scope: Scope) -> Option<Ipv4Addr> {
        let primary = |address: &&Address| !address.is_secondary && address.scope.min(Scope::HOST) <= scope;
        let mut own = self.addresses_of(link).iter().filter(primary).filter_map(|own| Some((own, v4(own)?)));
        let matching = own.clone().find(|(own, _)| peer.is_some_and(|peer| own.prefix.contains(peer.into())));
        if let Some((_, address)) = matching.or_else(|| own.next()) {
            return Some(address);
        }
        let mut others = self.addresses.iter().filter(primary).filter(|other| other.scope != Scope::LINK);
        others.find_map(|other| v4(other).filter(|_| self.link(other.link).is_some_and(|link| link.is_up)))
    }

    /// IPv6's by RFC 6724 s5, whose rules are the fields of [`Score`], for a destination that `out` leads to.
    pub(super) fn source_v6(&self, destination: Ipv6Addr, out: LinkId) -> Option<Ipv6Addr> {
        let scope = scope_v6(destination);
        // Section 4: for multicast and link-local destinations only addresses of the outgoing interface are candidates.
        let is_on_link = destination.is_multicast() || scope <= 2;
        let candidates = if is_on_link { self.addresses_of(out) } else { &self.addresses };
        let mut best: Option<(Score, Ipv6Addr)> = None;
        for candidate in candidates {
            let IpAddr::V6(address) = candidate.address else {
                continue;
            };
            // RFC 4862 s5.4: a tentative address is not used; RFC 4429 s3.1 makes an exception.
            if candidate.is_tentative && !candidate.is_optimistic || address.is_multicast() || address.is_unspecified() {
                continue;
            }
            let score = self.score(candidate, address, destination, out);
            // Of equals, the first is kept.
            if best.is_none_or(|(best, _)| score > best) {
                best = Some((score, address));
            }
        }
        best.map(|(_, address)| address)
    }

    fn score(&self, candidate: &Address, address: Ipv6Addr, destination: Ipv6Addr, out: LinkId) -> Score {
        let (own_scope, scope) = (i16::from(scope_v6(address)), i16::from(scope_v6(destination)));
        let prefers_temporary = self.link(candidate.link).is_some_and(|link| link.prefers_temporary);
        let common = (bits_of(address.into()) ^ bits_of(destination.into())).leading_zeros() as u8;
        Score {
            is_destination: address == destination,
            // The least scope that is enough, or else the greatest.
            scope: if own_scope >= scope { -own_scope } else { own_scope - 128 },
            is_preferred: address.is_loopback() || !(candidate.is_deprecated || candidate.is_optimistic),
            is_home: candidate.is_home,
            is_of_link: candidate.link == out,
            has_label: label(address) == label(destination),
            is_wanted_kind: candidate.is_temporary == prefers_temporary,
            is_orchid_as_well: is_orchid(address) == is_orchid(destination),
            common: common.min(candidate.prefix.length()),
            is_not_optimistic: !candidate.is_optimistic,
        }
    }
}

/// What speaks for a source address: RFC 6724 s5, compared from the first field to the last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Score {
    /// Rule 1: prefer same address.
    is_destination: bool,
    /// Rule 2: prefer appropriate scope.
    scope: i16,
    /// Rule 3: avoid deprecated addresses. (RFC 4429 s3.1: and optimistic ones.)
    is_preferred: bool,
    /// Rule 4: prefer home addresses.
    is_home: bool,
    /// Rule 5: prefer outgoing interface.
    is_of_link: bool,
    /// Rule 6: prefer matching label.
    has_label: bool,
    /// Rule 7: prefer temporary addresses, where the link's owner wants them.
    is_wanted_kind: bool,
    /// Linux's: overlay identifiers (RFC 4843) speak to each other.
    is_orchid_as_well: bool,
    /// Rule 8: use longest matching prefix, of the source's own prefix.
    common: u8,
    is_not_optimistic: bool,
}

fn v4(address: &Address) -> Option<Ipv4Addr> {
    match address.address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

fn is_orchid(address: Ipv6Addr) -> bool {
    Prefix::new(address.into(), 28) == Prefix::new(Ipv6Addr::new(0x2001, 0x10, 0, 0, 0, 0, 0, 0).into(), 28)
}

/// The policy table of RFC 6724 s2.1, with Linux's labels: its entry for 2001:10::/28, and other numbers. (An administrator's own table,
/// ip-addrlabel(8), is not looked at.)
fn label(address: Ipv6Addr) -> u8 {
    const POLICY: [(u128, u8, u8); 9] = [
        (1, 128, 0),
        (0xffff << 32, 96, 4),
        (0, 96, 3),
        (0x2001 << 112, 32, 6),
        (0x2001_0010 << 96, 28, 7),
        (0x3ffe << 112, 16, 12),
        (0x2002 << 112, 16, 2),
        (0xfec0 << 112, 10, 11),
        (0xfc00 << 112, 7, 5),
    ];
    let bits = address.to_bits();
    POLICY.iter().find(|(network, length, _)| bits & mask(*length) == *network).map_or(1, |&(_, _, label)| label)
}
