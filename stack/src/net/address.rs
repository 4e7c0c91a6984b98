//! Addresses of links.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};

use super::link::LinkId;
use super::prefix::Prefix;

/// How far an address or a route reaches (rtnetlink(7), `rtm_scope`): the greater, the nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope(pub u8);

impl Scope {
    /// Anywhere.
    pub const UNIVERSE: Self = Self(0);
    /// Within the site.
    pub const SITE: Self = Self(200);
    /// On the link.
    pub const LINK: Self = Self(253);
    /// In this host.
    pub const HOST: Self = Self(254);
    /// Nowhere: the destination does not exist.
    pub const NOWHERE: Self = Self(255);
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UNIVERSE => f.write_str("global"),
            Self::SITE => f.write_str("site"),
            Self::LINK => f.write_str("link"),
            Self::HOST => f.write_str("host"),
            Self::NOWHERE => f.write_str("nowhere"),
            Self(other) => write!(f, "{other}"),
        }
    }
}

/// One address of one link (rtnetlink(7), RTM_NEWADDR).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Whose.
    pub link: LinkId,
    /// The address itself (`IFA_LOCAL`).
    pub address: IpAddr,
    /// Which addresses are its neighbours: `IFA_ADDRESS` (the other end's on a point-to-point link) and the prefix length.
    pub prefix: Prefix,
    /// How far it is valid.
    pub scope: Scope,
    /// Not the first of its subnet (IPv4, IFA_F_SECONDARY): never chosen as a source.
    pub is_secondary: bool,
    /// Still under duplicate address detection, or found to be a duplicate (RFC 4862 s5.4): never chosen.
    pub is_tentative: bool,
    /// Usable although detection is under way (RFC 4429).
    pub is_optimistic: bool,
    /// Its preferred lifetime is over (RFC 4862 s5.5.4).
    pub is_deprecated: bool,
    /// A temporary one (RFC 8981; IPv6 alone).
    pub is_temporary: bool,
    /// A mobile node's home address (RFC 6275).
    pub is_home: bool,
}

impl Address {
    /// A permanent address with a prefix; `None`: the length is more than the family has.
    pub fn new(link: LinkId, address: IpAddr, length: u8) -> Option<Self> {
        let scope = match address {
            _ if address.is_loopback() => Scope::HOST,
            IpAddr::V6(address) if address.is_unicast_link_local() => Scope::LINK,
            _ => Scope::UNIVERSE,
        };
        Some(Self {
            link,
            address,
            prefix: Prefix::new(address, length)?,
            scope,
            is_secondary: false,
            is_tentative: false,
            is_optimistic: false,
            is_deprecated: false,
            is_temporary: false,
            is_home: false,
        })
    }
}

/// An IPv6 address's scope as RFC 4291 s2.7 numbers them: 1 interface, 2 link, 5 site, 14 global. RFC 6724 s3.1 gives unicast addresses the
/// same numbers, loopback link-local's.
pub(crate) const fn scope_v6(address: Ipv6Addr) -> u8 {
    let [high, low, ..] = address.octets();
    match high {
        0xff => low & 0x0f,
        0xfe if low & 0xc0 == 0x80 => 2,
        0xfe if low & 0xc0 == 0xc0 => 5,
        _ if address.is_loopback() => 2,
        _ => 14,
    }
}
