//! Addresses of hosts, and what drills, which speak IPv4 alone, make of those that the ring speaks of.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

use ringway_stack::ring::NextHop;

/// The IPv4 address and port that the ring means.
#[inline]
pub(crate) fn v4(address: SocketAddr) -> SocketAddrV4 {
    match address {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(address) => panic!("the ring speaks of {address}, and this is about IPv4"),
    }
}

/// The IPv4 address that the ring means.
#[inline]
pub(crate) fn ipv4(ip: IpAddr) -> Ipv4Addr {
    match ip {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(ip) => panic!("the ring speaks of {ip}, and this is about IPv4"),
    }
}

/// The way to a host: all are on one Ethernet, and each is asked for.
#[inline]
pub(crate) fn neighbour(address: impl Into<SocketAddr>) -> NextHop {
    NextHop::Neighbour(address.into().ip())
}

/// Every address of the family of one.
pub(crate) fn every(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// Which IP a world speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// IPv4, with ARP: 10.0.0.1 for the first host, 10.0.0.2 for the second, and so on.
    #[default]
    V4,
    /// IPv6, with neighbour discovery: fd00::1, fd00::2, and so on.
    V6,
}

impl Family {
    /// The address of the host of that number, from one on.
    pub(crate) fn address(self, number: u32) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::from_bits((10 << 24) + number)),
            Self::V6 => IpAddr::V6(Ipv6Addr::from_bits((0xfd00 << 112) + u128::from(number))),
        }
    }

    /// The link-local address of the host that has this one, if it has one: fe80::1, fe80::2, and so on.
    pub(crate) fn link_local(ip: IpAddr) -> Option<IpAddr> {
        match ip {
            IpAddr::V4(_) => None,
            IpAddr::V6(ip) => Some(IpAddr::V6(Ipv6Addr::from_bits((0xfe80 << 112) + (ip.to_bits() & u128::from(u32::MAX))))),
        }
    }

    /// What a SYN without the option means, and what is assumed of a peer until it sends larger segments (RFC 9293 s3.7.1).
    pub(crate) fn mss_default(ip: IpAddr) -> u16 {
        if ip.is_ipv6() { 1220 } else { 536 }
    }

    /// Bytes of IP's header and TCP's without options.
    pub(crate) fn headers(ip: IpAddr) -> usize {
        if ip.is_ipv6() { 60 } else { 40 }
    }
}
