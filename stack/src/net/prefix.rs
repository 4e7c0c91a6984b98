//! Address families and prefixes.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The two families. Their tables, rules and addresses are apart from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Of which family an address is. An IPv4-mapped one (RFC 4291 s2.5.5.2) is IPv6: whoever routes it unmaps it before.
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// An address's length in bits.
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// `0.0.0.0` or `::`.
    pub const fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Self::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }
}

/// An address's bits, from the top: those of both families compare and mask alike.
pub(crate) const fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => (address.to_bits() as u128) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// `length` ones, from the top.
pub(crate) const fn mask(length: u8) -> u128 {
    match length {
        0 => 0,
        1..128 => u128::MAX << (128 - length),
        _ => u128::MAX,
    }
}

/// The first `length` bits of an address.
///
/// Invariant: the bits behind are zero, and `length` is at most the family's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    network: IpAddr,
    length: u8,
}

impl Prefix {
    /// The first `length` bits of `address`; what is behind them does not count. `None`: more bits than the family has.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        if length > Family::of(address).bits() {
            return None;
        }
        let bits = bits_of(address) & mask(length);
        let network = match address {
            // (The shift leaves 32 bits.)
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits((bits >> 96) as u32)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        };
        Some(Self { network, length })
    }

    /// One address alone.
    pub const fn host(address: IpAddr) -> Self {
        Self { network: address, length: Family::of(address).bits() }
    }

    /// Every address of a family: the default route's.
    pub const fn all(family: Family) -> Self {
        Self { network: family.unspecified(), length: 0 }
    }

    /// The first address in it.
    pub const fn network(self) -> IpAddr {
        self.network
    }

    /// How many bits are given.
    pub const fn length(self) -> u8 {
        self.length
    }

    /// Of which family it is.
    pub const fn family(self) -> Family {
        Family::of(self.network)
    }

    /// Whether `address` begins so; none of another family does.
    pub fn contains(self, address: IpAddr) -> bool {
        self.family() == Family::of(address) && bits_of(address) & mask(self.length) == self.bits()
    }

    /// The last address in it: IPv4's broadcast address of a subnet (RFC 922 s7).
    pub fn last(self) -> IpAddr {
        let bits = self.bits() | !mask(self.length);
        match self.network {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits((bits >> 96) as u32)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        }
    }

    pub(crate) const fn bits(self) -> u128 {
        bits_of(self.network)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.length)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
