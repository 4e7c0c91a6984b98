//! The kernel's TCP and UDP sockets, of whichever user and process: sock_diag(7). So it is known whose an address is, and who else may get what comes for many.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use ringway_stack::device::Protocol;
use ringway_stack::net::LinkId;

use super::Error;
use super::dump::Questions;

const WHAT: &str = "sockets";

/// linux/sock_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;

/// include/net/tcp_states.h: what is no socket of anybody's: SYN-RECEIVED as such, TIME-WAIT, and a SYN that was answered.
const OF_NOBODY: u32 = 1 << 3 | 1 << 6 | 1 << 12;

/// Whether the kernel speaks IPv6 here.
const HAS_IPV6: &str = "/proc/net/if_inet6";

/// A socket of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiagSocket {
    /// Where it is bound. (An IPv4-mapped address is IPv4's.)
    pub local: SocketAddr,
    /// Its user.
    pub uid: u32,
    /// The kernel's name of it (SO_COOKIE).
    pub cookie: u64,
}

/// Asks the kernel of the network namespace in which it was opened.
#[derive(Debug)]
pub struct SocketDiag(Questions);

impl SocketDiag {
    /// # Errors
    /// The system's: there is no socket of netlink to be had.
    pub fn open() -> io::Result<Self> {
        Questions::of(libc::NETLINK_SOCK_DIAG).map(Self).map_err(of_system)
    }

    /// All sockets of a protocol that have that port, and that take what comes by IPv6; or by IPv4, which those of IPv6 may take as well.
    ///
    /// # Errors
    /// The kernel does not say (CONFIG_INET_DIAG, CONFIG_INET_UDP_DIAG).
    pub fn at_port(&mut self, protocol: Protocol, port: u16, takes_v4: bool) -> io::Result<Vec<DiagSocket>> {
        let families: &[i32] = if takes_v4 { &[libc::AF_INET6, libc::AF_INET] } else { &[libc::AF_INET6] };
        let mut all = Vec::new();
        for &family in families {
            let body = question(protocol, family, port, None);
            let listed = self.0.dump(WHAT, SOCK_DIAG_BY_FAMILY, &body, |answer| Ok(parse(answer))).map_err(of_system);
            match listed {
                Ok(listed) => all.extend(listed.into_iter().flatten().filter(|found| found.local.port() == port)),
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) && family == libc::AF_INET6 && !Path::new(HAS_IPV6).exists() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// The TCP socket that gets what comes for a connection by a link: its own, or a listener. It is looked up in the kernel's tables, however many there are.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn of_connection(&mut self, local: SocketAddr, remote: SocketAddr, link: LinkId) -> io::Result<Option<DiagSocket>> {
        let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let body = question(Protocol::Tcp, family, local.port(), Some((local.ip(), remote, link)));
        match self.0.get(WHAT, SOCK_DIAG_BY_FAMILY, &body, |answer| Ok(parse(answer))).map_err(of_system)? {
            Ok(found) => Ok(found),
            Err(libc::ENOENT) => Ok(None),
            Err(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Whether the kernel has that TCP connection, in whichever state: no matter who listens there.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn has_connection(&mut self, local: SocketAddr, remote: SocketAddr, link: LinkId) -> io::Result<bool> {
        let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let body = question(Protocol::Tcp, family, local.port(), Some((local.ip(), remote, link)));
        match self.0.get(WHAT, SOCK_DIAG_BY_FAMILY, &body, |answer| Ok(is_with(answer, remote.port()))).map_err(of_system)? {
            Ok(is_there) => Ok(is_there),
            Err(libc::ENOENT) => Ok(false),
            Err(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

fn of_system(error: Error) -> io::Error {
    match error {
        Error::Open(error) | Error::Ask { error, .. } => error,
        other => io::Error::other(other),
    }
}

/// `struct inet_diag_req_v2`: one connection that comes by a link, or all sockets with that port.
fn question(protocol: Protocol, family: i32, port: u16, one: Option<(IpAddr, SocketAddr, LinkId)>) -> Vec<u8> {
    let protocol = match protocol {
        Protocol::Tcp => libc::IPPROTO_TCP,
        Protocol::Udp => libc::IPPROTO_UDP,
    };
    let mut body = vec![family as u8, protocol as u8, 0, 0];
    body.extend_from_slice(&(!OF_NOBODY).to_ne_bytes());
    body.extend_from_slice(&port.to_be_bytes());
    body.extend_from_slice(&one.map_or(0, |(_, remote, _)| remote.port()).to_be_bytes());
    let address = |ip: Option<IpAddr>| match ip {
        Some(IpAddr::V4(ip)) => [&ip.octets()[..], &[0; 12]].concat(),
        Some(IpAddr::V6(ip)) => ip.octets().to_vec(),
        None => vec![0; 16],
    };
    body.extend_from_slice(&address(one.map(|(local, ..)| local)));
    body.extend_from_slice(&address(one.map(|(_, remote, _)| remote.ip())));
    body.extend_from_slice(&one.map_or(0, |(.., LinkId(link))| link).to_ne_bytes());
    // (No cookie: INET_DIAG_NOCOOKIE.)
    body.extend_from_slice(&[0xff; 8]);
    body
}

/// `struct inet_diag_msg`. `None`: it is nobody's, or of another family.
fn parse(body: &[u8]) -> Option<DiagSocket> {
    let (family, state) = (i32::from(*body.first()?), u32::from(*body.get(1)?));
    let is_of_somebody = 1_u32.checked_shl(state).is_some_and(|bit| bit & OF_NOBODY == 0);
    let port = u16::from_be_bytes(*body.get(4..)?.first_chunk()?);
    let ip = match family {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::from(*body.get(8..)?.first_chunk::<4>()?)),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(*body.get(8..)?.first_chunk::<16>()?)).to_canonical(),
        _ => return None,
    };
    let word = |at: usize| Some(u32::from_ne_bytes(*body.get(at..)?.first_chunk()?));
    // (The cookie is in two words, the lower one first.)
    let cookie = u64::from(word(44)?) | u64::from(word(48)?) << 32;
    is_of_somebody.then_some(DiagSocket { local: SocketAddr::new(ip, port), uid: word(64)?, cookie })
}

/// Of `struct inet_diag_msg`: whether the other end has that port. (A listener has none.)
fn is_with(body: &[u8], port: u16) -> bool {
    body.get(6..8) == Some(&port.to_be_bytes()[..])
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use rustix::net::sockopt::socket_cookie;

    use super::*;

    fn at_port(port: u16) -> Vec<DiagSocket> {
        SocketDiag::open().unwrap().at_port(Protocol::Udp, port, true).unwrap()
    }

    #[test]
    fn whoever_has_a_port_is_listed() {
        let uid = rustix::process::geteuid().as_raw();
        let of = |socket: &UdpSocket| DiagSocket { local: socket.local_addr().unwrap(), uid, cookie: socket_cookie(socket).unwrap() };
        let one = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = one.local_addr().unwrap().port();
        assert_eq!(at_port(port), [of(&one)]);
        let two = UdpSocket::bind(("::1", port)).unwrap();
        let three = UdpSocket::bind(("127.0.0.2", port)).unwrap();
        let all = at_port(port);
        assert_eq!(all.len(), 3);
        assert!([of(&one), of(&two), of(&three)].iter().all(|one| all.contains(one)), "{all:?}");
        assert_eq!(SocketDiag::open().unwrap().at_port(Protocol::Udp, port, false).unwrap(), [of(&two)]);
        drop((one, two));
        assert_eq!(at_port(port), [of(&three)]);
    }

    #[test]
    fn a_connection_is_its_own_sockets_or_its_listeners() {
        let mut diag = SocketDiag::open().unwrap();
        // (The loopback interface is the first of each network namespace.)
        let mut of = |local, remote| diag.of_connection(local, remote, LinkId(1)).unwrap().map(|found| found.cookie);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listens = listener.local_addr().unwrap();
        let stream = TcpStream::connect(listens).unwrap();
        let connected = stream.local_addr().unwrap();
        assert_eq!(of(connected, listens), socket_cookie(&stream).ok());
        assert_eq!(of(listens, "127.0.0.1:7".parse().unwrap()), socket_cookie(&listener).ok());
        let mut diag = SocketDiag::open().unwrap();
        let mut has = |local, remote| diag.has_connection(local, remote, LinkId(1)).unwrap();
        assert!(has(connected, listens) && has(listens, connected));
        assert!(!has(listens, "127.0.0.1:7".parse().unwrap()), "a listener is none");
        drop(stream);
        assert!(has(listens, connected), "nobody has accepted it yet");
        drop(listener);
        assert!(!has(listens, "127.0.0.1:7".parse().unwrap()));
        assert_eq!(SocketDiag::open().unwrap().of_connection(listens, "127.0.0.1:7".parse().unwrap(), LinkId(1)).unwrap(), None);
    }
}
