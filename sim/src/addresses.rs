//! Addresses at the border to the ring, which knows IPv6 too: a simulated world has only IPv4 yet.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use ringway_stack::ring::NextHop;

/// The IPv4 address and port that the ring means.
#[inline]
pub(crate) fn v4(address: SocketAddr) -> SocketAddrV4 {
    match address {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(address) => panic!("the ring speaks of {address}, and a simulated world has no IPv6 yet"),
    }
}

/// The IPv4 address that the ring means.
#[inline]
pub(crate) fn ipv4(ip: IpAddr) -> Ipv4Addr {
    match ip {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(ip) => panic!("the ring speaks of {ip}, and a simulated world has no IPv6 yet"),
    }
}

/// The way to a host: all are on one Ethernet, and each is asked for.
#[inline]
pub(crate) fn neighbour(address: SocketAddrV4) -> NextHop {
    NextHop::Neighbour(IpAddr::V4(*address.ip()))
}
