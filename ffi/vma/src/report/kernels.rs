//! What the kernel knows of a socket that is its own: the library kept nothing of what became of it there. Asked while a report is made, and at no other
//! time.

use core::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use ringway_report::{SocketReport, TcpReport};
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

/// What waits at a socket of the kernel's, and what its TCP knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct More {
    recv_queue: u64,
    send_queue: u64,
    backlog: u64,
    tcp: Option<TcpReport>,
}

impl More {
    pub(super) fn add_to(self, report: &mut SocketReport) {
        (report.kernel_recv_queue, report.kernel_send_queue, report.kernel_tcp) = (self.recv_queue, self.send_queue, self.tcp);
        // (A listener's is the same for both worlds; one that is the kernel's alone may have got it there.)
        report.backlog = report.backlog.max(self.backlog);
    }
}

/// Asks by a descriptor of the socket's, as [`ask`] does.
pub(super) fn ask_more(fd: c_int, protocol: Protocol) -> More {
    let saved = errno::current();
    let more = match protocol {
        Protocol::Tcp => of_tcp(fd),
        Protocol::Udp => of_udp(fd),
    };
    errno::set(saved);
    more
}

fn of_tcp(fd: c_int) -> More {
    // SAFETY: all of it is integers, for which zero is a value; an older kernel leaves its end so.
    let Some(info) = (unsafe { option::<libc::tcp_info>(fd, libc::IPPROTO_TCP, libc::TCP_INFO) }) else { return More::default() };
    match by_number(info.tcpi_state) {
        // (Of a listener, these are its accept queue, and how long that may be: net/ipv4/tcp.c, tcp_get_info.)
        Some(State::Listen) => More { recv_queue: info.tcpi_unacked.into(), backlog: info.tcpi_sacked.into(), ..More::default() },
        None | Some(State::Closed) => More::default(),
        Some(_) => More {
            recv_queue: queued(fd, libc::FIONREAD),
            send_queue: queued(fd, libc::TIOCOUTQ),
            backlog: 0,
            tcp: Some(tcp_report(&info)),
        },
    }
}

fn tcp_report(info: &libc::tcp_info) -> TcpReport {
    let bytes = |segments: u32| u64::from(segments) * u64::from(info.tcpi_snd_mss);
    let has = |option: u8| info.tcpi_options & option != 0;
    TcpReport {
        rtt_us: info.tcpi_rtt.into(),
        rtt_var_us: info.tcpi_rttvar.into(),
        rto_us: info.tcpi_rto.into(),
        mss: info.tcpi_snd_mss.into(),
        cwnd: bytes(info.tcpi_snd_cwnd),
        ssthresh: (info.tcpi_snd_ssthresh < NO_SSTHRESH).then(|| bytes(info.tcpi_snd_ssthresh)),
        in_flight: bytes(info.tcpi_unacked),
        retries: info.tcpi_retransmits.into(),
        recovering: info.tcpi_ca_state >= CA_RECOVERY,
        timestamps: has(OPTION_TIMESTAMPS),
        sack: has(OPTION_SACK),
        window_scales: has(OPTION_WINDOW_SCALE).then_some((info.tcpi_snd_rcv_wscale & 15, info.tcpi_snd_rcv_wscale >> 4)),
        probes: info.tcpi_probes.into(),
        retransmissions: info.tcpi_total_retrans.into(),
        since_sent_ms: info.tcpi_last_data_sent.into(),
        since_received_ms: info.tcpi_last_data_recv.into(),
        ..TcpReport::default()
    }
}

/// Of TCP_INFO (linux/tcp.h): its options, and the state of congestion control from which on something is to be recovered.
const OPTION_TIMESTAMPS: u8 = 1;
const OPTION_SACK: u8 = 2;
const OPTION_WINDOW_SCALE: u8 = 4;
const CA_RECOVERY: u8 = 3;
/// TCP_INFINITE_SSTHRESH.
const NO_SSTHRESH: u32 = 0x7fff_ffff;

/// SO_MEMINFO (linux/sock_diag.h): nine words; the first is what waits to be read, and the third what is yet to be sent, both as memory, as `ss` shows them.
const SO_MEMINFO: c_int = 55;

fn of_udp(fd: c_int) -> More {
    // SAFETY: words.
    let words = unsafe { option::<[u32; 9]>(fd, libc::SOL_SOCKET, SO_MEMINFO) }.unwrap_or_default();
    More { recv_queue: words[0].into(), send_queue: words[2].into(), ..More::default() }
}

/// What an option says.
///
/// # Safety
/// All bytes are a value of that type.
unsafe fn option<T>(fd: c_int, level: c_int, name: c_int) -> Option<T> {
    // SAFETY: what the caller promises.
    let mut value: T = unsafe { core::mem::zeroed() };
    let mut len = size_of::<T>() as socklen_t;
    // SAFETY: there is as much room as it says.
    let asked = unsafe { real::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    (asked == 0).then_some(value)
}

/// Bytes, as an ioctl says (tcp(7): SIOCINQ, SIOCOUTQ).
fn queued(fd: c_int, request: libc::c_ulong) -> u64 {
    let mut bytes: c_int = 0;
    // SAFETY: both write an int.
    let asked = unsafe { real::ioctl(fd, request, (&raw mut bytes).expose_provenance()) };
    if asked == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
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
    use std::io::Write as _;
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
    fn the_kernel_tells_what_waits() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let waiting = ask_more(listener.as_raw_fd(), Protocol::Tcp);
        assert_eq!((waiting.recv_queue, waiting.backlog > 0, waiting.tcp), (1, true, None));
        let (server, _) = listener.accept().unwrap();
        client.write_all(b"seven by").unwrap();
        let (ours, theirs) = (ask_more(client.as_raw_fd(), Protocol::Tcp), ask_more(server.as_raw_fd(), Protocol::Tcp));
        assert_eq!((theirs.recv_queue, theirs.send_queue), (8, 0));
        let tcp = ours.tcp.unwrap();
        assert!(tcp.mss > 1000 && tcp.cwnd >= tcp.mss && tcp.rtt_us > 0 && tcp.rto_us > 0 && tcp.ssthresh.is_none(), "{tcp:?}");
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(ask_more(datagrams.as_raw_fd(), Protocol::Udp), More::default());
        datagrams.send_to(b"one", datagrams.local_addr().unwrap()).unwrap();
        assert!(ask_more(datagrams.as_raw_fd(), Protocol::Udp).recv_queue >= 3);
        errno::set(77);
        assert_eq!((ask_more(-1, Protocol::Tcp), ask_more(-1, Protocol::Udp), errno::current()), (More::default(), More::default(), 77));
    }

    #[test]
    fn what_is_no_socket_tells_nothing_and_leaves_errno() {
        errno::set(77);
        assert_eq!((ask(-1, Protocol::Tcp), errno::current()), (Told::default(), 77));
    }
}
