//! The ring's addresses are of either family, and sockets of IPv6 are the kernel's so far: so all that a ring of this process has are IPv4's.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

/// An end of a flow.
#[inline]
pub(crate) fn v4(address: SocketAddr) -> SocketAddrV4 {
    match address {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(address) => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, address.port()),
    }
}

/// A host's or a group's address.
#[inline]
pub(crate) fn ip4(ip: IpAddr) -> Ipv4Addr {
    match ip {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}
