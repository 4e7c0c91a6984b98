//! Which of the kernel's sockets gets a datagram, or a connection: the kernel is asked (sock_diag(7)), which looks it up as it would to deliver
//! it. Offloaded sockets stand beside sockets of the kernel's that are bound and connected like them, so that all sockets of a port take part
//! in the choice, those of other users and of processes without this library included; and who publishes an address that it has not bound
//! gets nothing of what is for others.
//!
//! The kernel answers within the system call that asks, some microseconds.

use core::sync::atomic::{AtomicBool, Ordering};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use ringway_host::Blocked;
use ringway_stack::device::Protocol;

use crate::fd::Fd;
use crate::rules::wildcard_of;
use crate::sys;

/// SOCK_DIAG_BY_FAMILY (linux/sock_diag.h), and NLMSG_ERROR.
const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
/// Bytes of struct nlmsghdr and of struct inet_diag_req_v2.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 56;
/// Where struct inet_diag_sockid begins in a request and in an answer, and where its cookie is within.
const REQUEST_SOCKET_AT: usize = HEADER_BYTES + 8;
const ANSWER_SOCKET_AT: usize = HEADER_BYTES + 4;
const COOKIE_AT: usize = 40;
/// Where struct inet_diag_msg has the socket's user.
const USER_AT: usize = HEADER_BYTES + 64;
/// The loopback interface is the first of every network namespace. What is sent to an address of the machine's own comes by it.
const LOOPBACK_INDEX: u32 = 1;
/// More than an answer about a socket has.
const ANSWER_BYTES: usize = 1024;
/// Answers that nobody took (a thread died waiting), before this one.
const STALE_MAX: usize = 64;

/// The kernel's name of a socket (socket(7), SO_COOKIE). Never zero.
pub(super) type Cookie = u64;

/// A socket of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelSocket {
    pub(super) cookie: Cookie,
    /// Who made it.
    pub(super) uid: u32,
}

/// Asks the kernel.
#[derive(Debug, Default)]
pub(super) struct Receivers {
    /// The socket to ask by, once there is one, and the number of the last question.
    asked: Mutex<(Option<Fd>, u32)>,
    /// The kernel has no answers (CONFIG_INET_UDP_DIAG), or a sandbox none for us.
    is_mute: AtomicBool,
    /// As that, about listeners (CONFIG_INET_TCP_DIAG).
    is_mute_of_listeners: AtomicBool,
}

impl Receivers {
    /// Whether the kernel answers.
    pub(super) fn answer(&self) -> bool {
        let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        self.of(any, any).is_ok()
    }

    /// Which socket gets a datagram from there to there.
    ///
    /// # Errors
    /// The kernel does not say.
    pub(super) fn of(&self, from: SocketAddr, to: SocketAddr) -> io::Result<Option<KernelSocket>> {
        self.ask(Protocol::Udp, from, to)
    }

    /// Which socket gets connections to there; of those that share the address, any.
    ///
    /// # Errors
    /// The kernel does not say.
    pub(super) fn listener(&self, to: SocketAddr) -> io::Result<Option<KernelSocket>> {
        self.ask(Protocol::Tcp, wildcard_of(SocketAddr::new(to.ip(), 0)), to)
    }

    fn ask(&self, protocol: Protocol, from: SocketAddr, to: SocketAddr) -> io::Result<Option<KernelSocket>> {
        let (is_mute, what) = match protocol {
            Protocol::Udp => (&self.is_mute, "a datagram"),
            Protocol::Tcp => (&self.is_mute_of_listeners, "a connection"),
        };
        if is_mute.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // (A signal's handler that sends must not find the lock taken by its own thread.)
        let _blocked = Blocked::new();
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let (socket, number) = &mut *asked;
        *number = number.wrapping_add(1);
        let answered = ask(socket, *number, protocol, from, to);
        if let Err(e) = &answered
            && !matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS))
        {
            tracing::info!("the kernel does not say which socket {what} is for: {e}");
            is_mute.store(true, Ordering::Relaxed);
        }
        answered
    }
}

fn ask(socket: &mut Option<Fd>, number: u32, protocol: Protocol, from: SocketAddr, to: SocketAddr) -> io::Result<Option<KernelSocket>> {
    let socket = match socket {
        Some(socket) => socket,
        none => none.insert(sys::netlink_socket(libc::NETLINK_SOCK_DIAG)?),
    };
    sys::send(socket, &request(number, protocol, from, to))?;
    let mut answer = [0; ANSWER_BYTES];
    for _ in 0..STALE_MAX {
        let len = sys::receive(socket, &mut answer)?;
        let answer = answer.get(..len).unwrap_or(&answer);
        if word(answer, 8) == Some(number) {
            return parse(answer);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// struct nlmsghdr and struct inet_diag_req_v2 (linux/inet_diag.h). Of a UDP socket the kernel wants to know its peer first, of a TCP socket
/// its own address.
fn request(number: u32, protocol: Protocol, from: SocketAddr, to: SocketAddr) -> [u8; HEADER_BYTES + REQUEST_BYTES] {
    let (number_of_protocol, first, second) = match protocol {
        Protocol::Udp => (libc::IPPROTO_UDP, from, to),
        Protocol::Tcp => (libc::IPPROTO_TCP, to, from),
    };
    let mut bytes = [0; HEADER_BYTES + REQUEST_BYTES];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(0, &((HEADER_BYTES + REQUEST_BYTES) as u32).to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    put(8, &number.to_ne_bytes());
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    put(HEADER_BYTES, &[family as u8, number_of_protocol as u8]);
    // In any state.
    put(HEADER_BYTES + 4, &u32::MAX.to_ne_bytes());
    put(REQUEST_SOCKET_AT, &first.port().to_be_bytes());
    put(REQUEST_SOCKET_AT + 2, &second.port().to_be_bytes());
    for (at, address) in [(4, first), (20, second)] {
        match address.ip() {
            IpAddr::V4(ip) => put(REQUEST_SOCKET_AT + at, &ip.octets()),
            IpAddr::V6(ip) => put(REQUEST_SOCKET_AT + at, &ip.octets()),
        }
    }
    put(REQUEST_SOCKET_AT + 36, &LOOPBACK_INDEX.to_ne_bytes());
    // INET_DIAG_NOCOOKIE: whichever it is.
    put(REQUEST_SOCKET_AT + COOKIE_AT, &[0xff; 8]);
    bytes
}

fn parse(answer: &[u8]) -> io::Result<Option<KernelSocket>> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    match kind.ok_or_else(malformed)? {
        ERROR => match word(answer, HEADER_BYTES).ok_or_else(malformed)?.cast_signed() {
            code if code == -libc::ENOENT => Ok(None),
            code => Err(io::Error::from_raw_os_error(-code)),
        },
        BY_FAMILY => {
            let at = ANSWER_SOCKET_AT + COOKIE_AT;
            let [low, high, uid] = [at, at + 4, USER_AT].map(|at| word(answer, at));
            let ((low, high), uid) = low.zip(high).zip(uid).ok_or_else(malformed)?;
            Ok(Some(KernelSocket { cookie: u64::from(high) << 32 | u64::from(low), uid }))
        }
        _ => Err(malformed()),
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn the_kernel_tells_a_connected_socket_from_a_bound_one_and_both_from_none() {
        let receivers = Receivers::default();
        assert!(receivers.answer(), "CONFIG_INET_UDP_DIAG");
        for own in ["127.0.0.1", "::1"].map(|ip| ip.parse().unwrap()) {
            tells_a_connected_socket(&receivers, own);
        }
    }

    fn tells_a_connected_socket(receivers: &Receivers, own: IpAddr) {
        let [server, client] = [(); 2].map(|()| UdpSocket::bind((own, 0)).unwrap());
        let (to, from) = (server.local_addr().unwrap(), client.local_addr().unwrap());
        let cookie =
            |socket: &UdpSocket| Some(KernelSocket { cookie: sys::cookie(socket.as_raw_fd()).unwrap(), uid: sys::effective_uid() });
        assert_eq!(receivers.of(from, to).unwrap(), cookie(&server));
        assert_eq!(receivers.of(to, from).unwrap(), cookie(&client));
        client.connect((own, 1)).unwrap();
        assert_eq!(receivers.of(to, from).unwrap(), None);
        assert_eq!(receivers.of(SocketAddr::new(own, 1), from).unwrap(), cookie(&client));
        drop(server);
        assert_eq!(receivers.of(from, to).unwrap(), None);
    }

    #[test]
    fn the_kernel_tells_who_listens_and_nobody_else() {
        let receivers = Receivers::default();
        let cases =
            [("127.0.0.1:0", "127.0.0.1"), ("0.0.0.0:0", "127.0.0.1"), ("[::]:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "::1")];
        for (own, by) in cases {
            let listener = TcpListener::bind(own).unwrap();
            let to = SocketAddr::new(by.parse().unwrap(), listener.local_addr().unwrap().port());
            let expected = KernelSocket { cookie: sys::cookie(listener.as_raw_fd()).unwrap(), uid: sys::effective_uid() };
            assert_eq!(receivers.listener(to).unwrap(), Some(expected), "{own}: CONFIG_INET_TCP_DIAG");
            // A connection that it has accepted does not listen, and has the port for longer.
            let (client, server) = (TcpStream::connect(to).unwrap(), listener.accept().unwrap());
            drop(listener);
            assert_eq!(receivers.listener(to).unwrap(), None, "{own}");
            drop((client, server));
        }
    }
}
