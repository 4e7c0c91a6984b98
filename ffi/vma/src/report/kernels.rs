//! What the kernel knows of a socket that is its own: the library kept nothing of what became of it there. Asked while a report is made, and at no other
//! time.

use core::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use ringway_stack::device::Protocol;
use ringway_stack::tcp::State;

use crate::{errno, real};

/// A socket's names, and its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    /// A TCP socket's.
    pub(super) state: Option<State>,
}

/// Asks by a descriptor of the socket's. (By a thread of the program's too, which is to find errno as it was.)
pub(super) fn ask(fd: c_int, protocol: Protocol) -> Told {
    let saved = errno::current();
    let told = Told {
        local: address(fd, real::getsockname),
        remote: address(fd, real::getpeername),
        state: (protocol == Protocol::Tcp).then(|| state(fd)).flatten(),
    };
    errno::set(saved);
    told
}

/// `None`: it has none, or one of another family.
fn address(fd: c_int, ask: unsafe fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int) -> Option<SocketAddr> {
    // SAFETY: all of it is integers, for which zero is a value.
    let mut raw: libc::sockaddr_storage = unsafe { core::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_storage>() as socklen_t;
    // SAFETY: the storage is as long as it says.
    if unsafe { ask(fd, (&raw mut raw).cast(), &raw mut len) } != 0 {
        return None;
    }
    let (ip, port) = match c_int::from(raw.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is one; and the storage is aligned for any.
            let raw = unsafe { (&raw const raw).cast::<sockaddr_in>().read() };
            (IpAddr::V4(Ipv4Addr::from(u32::from_be(raw.sin_addr.s_addr))), raw.sin_port)
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let raw = unsafe { (&raw const raw).cast::<sockaddr_in6>().read() };
            (IpAddr::V6(Ipv6Addr::from(raw.sin6_addr.s6_addr)).to_canonical(), raw.sin6_port)
        }
        _ => return None,
    };
    // (The kernel has an address for what has none yet: port 0.)
    (port != 0).then(|| SocketAddr::new(ip, u16::from_be(port)))
}

/// The first byte of struct tcp_info; the kernel writes as much as there is room for.
fn state(fd: c_int) -> Option<State> {
    let mut number = 0_u8;
    let mut len = size_of::<u8>() as socklen_t;
    // SAFETY: there is as much room as it says.
    let asked = unsafe { real::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut number).cast(), &raw mut len) };
    (asked == 0).then(|| by_number(number)).flatten()
}

/// TCP_NEW_SYN_RECV (include/net/tcp_states.h): a handshake before there is a socket, which programs see as SYN-RECEIVED.
const NEW_SYN_RECV: u8 = 12;

fn by_number(number: u8) -> Option<State> {
    if number == NEW_SYN_RECV { Some(State::SynReceived) } else { ringway_host::leave::state_of(number) }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn the_kernel_tells_of_its_sockets() {
        for ip in ["127.0.0.1", "::1"] {
            let Ok(listener) = TcpListener::bind((ip, 0)) else { continue };
            let at = listener.local_addr().unwrap();
            assert_eq!(ask(listener.as_raw_fd(), Protocol::Tcp), Told { local: Some(at), remote: None, state: Some(State::Listen) });
            let client = TcpStream::connect(at).unwrap();
            let (local, remote) = (client.local_addr().ok(), Some(at));
            assert_eq!(ask(client.as_raw_fd(), Protocol::Tcp), Told { local, remote, state: Some(State::Established) });
            drop(listener.accept().unwrap());
            assert_eq!(ask(client.as_raw_fd(), Protocol::Tcp).state, Some(State::CloseWait));
        }
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let told = Told { local: datagrams.local_addr().ok(), ..Told::default() };
        assert_eq!(ask(datagrams.as_raw_fd(), Protocol::Udp), told);
    }

    #[test]
    fn what_is_no_socket_tells_nothing_and_leaves_errno() {
        errno::set(77);
        assert_eq!((ask(-1, Protocol::Tcp), errno::current()), (Told::default(), 77));
    }
}
