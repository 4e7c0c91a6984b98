//! Which of the kernel's UDP sockets have a port: sock_diag(7). So it is known who else may get what comes for many.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::io;
use std::path::Path;

use super::socket::Socket;

/// linux/sock_diag.h, linux/netlink.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER_LEN: usize = 16;

/// More than a message of a list has.
const ROOM: usize = 1 << 16;

/// Whether the kernel speaks IPv6 here.
const HAS_IPV6: &str = "/proc/net/if_inet6";

/// A UDP socket of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSocket {
    /// Where it is bound. (An IPv4-mapped address is IPv4's.)
    pub local: IpAddr,
    /// The kernel's name of it (SO_COOKIE).
    pub cookie: u64,
}

/// The UDP sockets of the calling thread's network namespace that have that port, of whichever user and process.
///
/// # Errors
/// The kernel does not say (CONFIG_INET_UDP_DIAG).
pub fn udp_sockets(port: u16) -> io::Result<Vec<PortSocket>> {
    let mut all = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        match list(family, port, &mut all) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) && family == libc::AF_INET6 && !Path::new(HAS_IPV6).exists() => {}
            listed => listed?,
        }
    }
    Ok(all)
}

fn list(family: i32, port: u16, all: &mut Vec<PortSocket>) -> io::Result<()> {
    let socket = Socket::open_of(libc::NETLINK_SOCK_DIAG)?;
    socket.send(&question(family, port))?;
    let mut buffer = vec![0; ROOM];
    loop {
        let mut rest = socket.receive(&mut buffer)?;
        while let Some((kind, body, next)) = split(rest) {
            rest = next;
            match kind {
                // (A list that broke off says so at its end.)
                NLMSG_DONE | NLMSG_ERROR => {
                    let errno = body.first_chunk().map_or(0, |bytes| -i32::from_ne_bytes(*bytes));
                    return if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) };
                }
                _ => all.extend(parse(body).filter(|(found, _)| *found == port).map(|(_, socket)| socket)),
            }
        }
    }
}

/// `struct nlmsghdr`, and `struct inet_diag_req_v2`: all sockets of a family with that port, whatever else they are.
fn question(family: i32, port: u16) -> Vec<u8> {
    let mut body = vec![family as u8, libc::IPPROTO_UDP as u8, 0, 0];
    body.extend_from_slice(&u32::MAX.to_ne_bytes());
    body.extend_from_slice(&port.to_be_bytes());
    // The peer's port, both addresses, and the interface; and no cookie (INET_DIAG_NOCOOKIE).
    body.extend_from_slice(&[0; 2 + 16 + 16 + 4]);
    body.extend_from_slice(&[0xff; 8]);
    let mut message = ((HEADER_LEN + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(&body);
    message
}

/// The first message of several: its type, what it says, and the others.
fn split(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(HEADER_LEN..len)?;
    Some((kind, body, bytes.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

/// `struct inet_diag_msg`: the port, and the socket.
fn parse(body: &[u8]) -> Option<(u16, PortSocket)> {
    let port = u16::from_be_bytes(*body.get(4..)?.first_chunk()?);
    let local = match i32::from(*body.first()?) {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::from(*body.get(8..)?.first_chunk::<4>()?)),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(*body.get(8..)?.first_chunk::<16>()?)).to_canonical(),
        _ => return None,
    };
    // (In two words, the lower one first.)
    let word = |at: usize| Some(u64::from(u32::from_ne_bytes(*body.get(at..)?.first_chunk()?)));
    Some((port, PortSocket { local, cookie: word(44)? | word(48)? << 32 }))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use rustix::net::sockopt::socket_cookie;

    use super::*;

    #[test]
    fn whoever_has_a_port_is_listed() {
        let one = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = one.local_addr().unwrap().port();
        let of = |socket: &UdpSocket, local: &str| PortSocket { local: local.parse().unwrap(), cookie: socket_cookie(socket).unwrap() };
        assert_eq!(udp_sockets(port).unwrap(), [of(&one, "127.0.0.1")]);
        let two = UdpSocket::bind(("::1", port)).unwrap();
        let three = UdpSocket::bind(("127.0.0.2", port)).unwrap();
        let all = udp_sockets(port).unwrap();
        assert_eq!(all.len(), 3);
        assert!([of(&one, "127.0.0.1"), of(&two, "::1"), of(&three, "127.0.0.2")].iter().all(|one| all.contains(one)), "{all:?}");
        drop((one, two));
        assert_eq!(udp_sockets(port).unwrap(), [of(&three, "127.0.0.2")]);
    }
}
