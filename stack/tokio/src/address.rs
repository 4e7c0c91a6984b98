//! Addresses and ports, as programs name them and as the ring does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ringway_stack::Error;

/// The address as the ring knows it: an IPv4-mapped IPv6 address (RFC 4291 s2.5.5.2) is the IPv4 address in it, and IPv6's flow label and scope
/// are left out, since no frame says the latter, and a ring has one link.
pub(crate) fn unmapped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Whether a packet can have both addresses.
///
/// # Errors
/// [`Error::NotSupported`]: one is of IPv4, the other of IPv6.
pub(crate) fn same_version(local: IpAddr, peer: IpAddr) -> Result<(), Error> {
    if local.is_ipv4() == peer.is_ipv4() { Ok(()) } else { Err(Error::NotSupported) }
}

/// No address in particular, of the version of `ip`.
pub(crate) fn any_like(ip: IpAddr) -> IpAddr {
    if ip.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) }
}

/// The ports that are given out to sockets whose program asks for none: the dynamic ones (RFC 6335 s6).
#[derive(Debug)]
pub(crate) struct Ports {
    next: u16,
}

impl Ports {
    /// The first dynamic port.
    pub(crate) const FIRST: u16 = 49_152;
    /// How many there are.
    pub(crate) const COUNT: u16 = u16::MAX - Self::FIRST + 1;

    /// Begins at `first`, or at the first dynamic port if that is none.
    pub(crate) fn from(first: u16) -> Self {
        Self { next: first.max(Self::FIRST) }
    }

    /// The next port; after the last comes the first.
    pub(crate) fn take(&mut self) -> u16 {
        let port = self.next;
        self.next = port.checked_add(1).unwrap_or(Self::FIRST);
        port
    }
}
