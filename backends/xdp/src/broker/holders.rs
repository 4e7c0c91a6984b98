//! Whose the kernel's sockets are that have an address: sock_diag(7).

use std::io;

use ringway_host::netlink::{DiagSocket, SocketDiag};
use ringway_stack::device::{FiveTuple, Protocol};
use ringway_stack::net::LinkId;

/// Asks the kernel of the network namespace in which it was opened.
#[derive(Debug)]
pub(super) struct Holders(SocketDiag);

impl Holders {
    /// # Errors
    /// The kernel does not tell of all sockets: then nobody could be given anything.
    pub(super) fn open() -> io::Result<Self> {
        let mut diag = SocketDiag::open()?;
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            diag.at_port(protocol, 1, true)?;
        }
        Ok(Self(diag))
    }

    /// Whether a socket of somebody else's than that user receives what belongs to a flow, or part of it.
    /// `link`: by which it comes, since a socket may be bound to a link.
    ///
    /// # Errors
    /// The kernel does not say.
    pub(super) fn is_anothers(&mut self, flow: &FiveTuple, link: LinkId, uid: u32) -> io::Result<bool> {
        let local = flow.local;
        let is_conflict = |holder: &DiagSocket| {
            let is_there = holder.local.ip().is_unspecified() || holder.local.ip() == local.ip();
            is_there && holder.local.port() == local.port() && holder.uid != uid
        };
        Ok(match flow.remote {
            Some(remote) if flow.protocol == Protocol::Tcp => self.0.of_connection(local, remote, link)?.as_ref().is_some_and(is_conflict),
            _ => self.0.at_port(flow.protocol, local.port(), local.is_ipv4())?.iter().any(is_conflict),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

    use super::*;

    /// Whether that user, and another one, are told that it is somebody else's.
    fn told(protocol: Protocol, local: SocketAddr, remote: Option<SocketAddr>) -> [bool; 2] {
        let mut holders = Holders::open().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        [uid, uid + 1].map(|uid| holders.is_anothers(&FiveTuple { protocol, local, remote }, LinkId(1), uid).unwrap())
    }

    #[test]
    fn what_has_a_socket_of_the_kernels_is_its_users() {
        for host in ["127.0.0.1", "[::1]"] {
            let loopback: SocketAddr = format!("{host}:0").parse().unwrap();
            let listener = TcpListener::bind(loopback).unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (listens, connected) = (listener.local_addr().unwrap(), stream.local_addr().unwrap());
            assert_eq!(told(Protocol::Tcp, listens, None), [false, true]);
            assert_eq!(told(Protocol::Tcp, connected, None), [false, true]);
            assert_eq!(told(Protocol::Tcp, connected, Some(listens)), [false, true]);
            // (A connection that the listener would have.)
            assert_eq!(told(Protocol::Tcp, listens, Some(SocketAddr::new(loopback.ip(), 7))), [false, true]);
            let socket = UdpSocket::bind(loopback).unwrap();
            assert_eq!(told(Protocol::Udp, socket.local_addr().unwrap(), None), [false, true]);
            assert_eq!(
                told(Protocol::Udp, SocketAddr::new("192.0.2.7".parse().unwrap(), socket.local_addr().unwrap().port()), None),
                [false; 2]
            );
            drop((listener, stream, socket));
            assert_eq!(told(Protocol::Tcp, listens, None), [false; 2]);
        }
    }

    #[test]
    fn one_that_is_bound_to_every_address_of_either_family_has_them_all() {
        let both = UdpSocket::bind("[::]:0").unwrap();
        let local = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 7).into(), both.local_addr().unwrap().port());
        assert_eq!(told(Protocol::Udp, local, None), [false, true]);
    }
}
