//! Addresses: IPv4 only, as the stack below.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, SocketAddrV4};

/// The IPv4 address in `address`.
///
/// # Errors
/// [`ErrorKind::Unsupported`]: it is an IPv6 one, and not a mapped IPv4 one.
pub(crate) fn v4(address: SocketAddr) -> io::Result<SocketAddrV4> {
    match address {
        SocketAddr::V4(v4) => Ok(v4),
        SocketAddr::V6(v6) => v6
            .ip()
            .to_ipv4_mapped()
            .map(|ip| SocketAddrV4::new(ip, v6.port()))
            .ok_or_else(|| io::Error::new(ErrorKind::Unsupported, "the stack below speaks IPv4")),
    }
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
