//! Whose the kernel's sockets are that have an address: sock_diag(7).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ringway_stack::device::{FiveTuple, Protocol};
use ringway_stack::net::LinkId;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// linux/sock_diag.h, linux/netlink.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER_LEN: usize = 16;

/// include/net/tcp_states.h: what has no socket of anybody's: SYN-RECEIVED as such, TIME-WAIT, and a SYN that was answered.
const OF_NOBODY: u32 = 1 << 3 | 1 << 6 | 1 << 12;

/// Whether the kernel speaks IPv6 here.
const HAS_IPV6: &str = "/proc/net/if_inet6";

/// Asks the kernel of the calling thread's network namespace.
#[derive(Debug)]
pub(super) struct Holders(());

/// A socket of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    state: u8,
    port: u16,
    local: IpAddr,
    uid: u32,
}

impl Holders {
    /// # Errors
    /// The kernel does not tell of all sockets: then nobody could be given anything.
    pub(super) fn open() -> io::Result<Self> {
        let holders = Self(());
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let local = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 1);
            holders.is_anothers(&FiveTuple { protocol, local, remote: None }, LinkId(0), 0)?;
        }
        Ok(holders)
    }

    /// Whether a socket of somebody else's than that user receives what belongs to a flow, or part of it.
    /// `link`: by which it comes, since a socket may be bound to a link.
    ///
    /// # Errors
    /// The kernel does not say.
    pub(super) fn is_anothers(&self, flow: &FiveTuple, link: LinkId, uid: u32) -> io::Result<bool> {
        let is_conflict = |holder: Holder| {
            let local = match holder.local {
                IpAddr::V6(ip) => ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4),
                v4 @ IpAddr::V4(_) => v4,
            };
            let is_there = local.is_unspecified() || local == flow.local.ip();
            let is_of_somebody = OF_NOBODY >> holder.state & 1 == 0;
            is_there && is_of_somebody && holder.port == flow.local.port() && holder.uid != uid
        };
        let mut is_found = false;
        let mut look = |holder| is_found |= is_conflict(holder);
        match flow.remote {
            // One connection, or a listener that has it: looked up in the kernel's tables, however many there are.
            Some(_) if flow.protocol == Protocol::Tcp => ask(flow, family_of(flow.local.ip()), Some(link), &mut look)?,
            _ => {
                ask(flow, libc::AF_INET6, None, &mut look)?;
                if flow.local.is_ipv4() {
                    ask(flow, libc::AF_INET, None, &mut look)?;
                }
            }
        }
        Ok(is_found)
    }
}

/// Asks for the one socket that has a flow which comes by a link; or, without one, for all that have its port. (By a socket of the question's own: what is left of
/// an answer that broke off is nobody's.)
fn ask(flow: &FiveTuple, family: i32, link: Option<LinkId>, look: &mut dyn FnMut(Holder)) -> io::Result<()> {
    let is_all = link.is_none();
    let socket = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    net::send(&socket, &question(flow, family, link), SendFlags::empty())?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (len, _) = net::recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = &buffer[..len];
        while let Some((kind, body, next)) = split(rest) {
            rest = next;
            match kind {
                // (A list that broke off says so at its end.)
                NLMSG_DONE | NLMSG_ERROR => {
                    let errno = body.get(..4).map_or(0, |bytes| -i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
                    let has_family = family == libc::AF_INET || std::path::Path::new(HAS_IPV6).exists();
                    return match errno {
                        0 => Ok(()),
                        libc::ENOENT if !is_all || !has_family => Ok(()),
                        errno => Err(io::Error::from_raw_os_error(errno)),
                    };
                }
                _ => {
                    parse(body).into_iter().for_each(&mut *look);
                    if !is_all {
                        return Ok(());
                    }
                }
            }
        }
    }
}

fn family_of(ip: IpAddr) -> i32 {
    if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

/// `struct inet_diag_req_v2`, behind `struct nlmsghdr`.
fn question(flow: &FiveTuple, family: i32, link: Option<LinkId>) -> Vec<u8> {
    let all = link.is_none();
    let protocol = match flow.protocol {
        Protocol::Tcp => libc::IPPROTO_TCP,
        Protocol::Udp => libc::IPPROTO_UDP,
    };
    let mut body = vec![family as u8, protocol as u8, 0, 0];
    body.extend_from_slice(&(!OF_NOBODY).to_ne_bytes());
    let remote = flow.remote.filter(|_| !all);
    body.extend_from_slice(&flow.local.port().to_be_bytes());
    body.extend_from_slice(&remote.map_or(0, |remote| remote.port()).to_be_bytes());
    let address = |ip: Option<IpAddr>| match ip {
        Some(IpAddr::V4(ip)) => [&ip.octets()[..], &[0; 12]].concat(),
        Some(IpAddr::V6(ip)) => ip.octets().to_vec(),
        None => vec![0; 16],
    };
    body.extend_from_slice(&address((!all).then_some(flow.local.ip())));
    body.extend_from_slice(&address(remote.map(|remote| remote.ip())));
    // The interface, and no cookie (INET_DIAG_NOCOOKIE).
    body.extend_from_slice(&link.map_or(0, |LinkId(link)| link).to_ne_bytes());
    body.extend_from_slice(&[0xff; 8]);
    let mut message = ((HEADER_LEN + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend_from_slice(&(NLM_F_REQUEST | if all { NLM_F_DUMP } else { 0 }).to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(&body);
    message
}

/// The first message of several: its type, what it says, and the others.
fn split(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let body = bytes.get(HEADER_LEN..len)?;
    Some((kind, body, bytes.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

/// `struct inet_diag_msg`.
fn parse(body: &[u8]) -> Option<Holder> {
    let (family, state) = (i32::from(*body.first()?), *body.get(1)?);
    let port = u16::from_be_bytes(body.get(4..6)?.try_into().ok()?);
    let local = match family {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(body.get(8..12)?).ok()?)),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(body.get(8..24)?).ok()?)),
        _ => return None,
    };
    let uid = u32::from_ne_bytes(body.get(64..68)?.try_into().ok()?);
    (state < 32).then_some(Holder { state, port, local, uid })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    /// Whether that user, and another one, are told that it is somebody else's.
    fn told(protocol: Protocol, local: SocketAddr, remote: Option<SocketAddr>) -> [bool; 2] {
        let holders = Holders::open().unwrap();
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
