//! A TCP socket of the kernel's in repair mode (tcp(7) does not describe it: Linux, net/ipv4/tcp.c, and CRIU's documents do).

use core::mem;
use core::time::Duration;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use ringway_stack::tcp::State;

use super::LeaveError;
use super::means::Means;
use crate::syscall::check;

const TCP_MAXSEG: i32 = 2;
const TCP_INFO: i32 = 11;
const TCP_REPAIR: i32 = 19;
const TCP_REPAIR_QUEUE: i32 = 20;
const TCP_QUEUE_SEQ: i32 = 21;
const TCP_REPAIR_OPTIONS: i32 = 22;
const TCP_TIMESTAMP: i32 = 24;
const TCP_REPAIR_WINDOW: i32 = 29;
/// include/uapi/asm-generic/socket.h; since Linux 5.0.
const SO_BINDTOIFINDEX: i32 = 62;
/// The same; since Linux 5.15.
const SO_BUF_LOCK: i32 = 72;
const SIOCOUTQ: u32 = 0x5411;
const SIOCOUTQNSD: u32 = 0x894b;
const FIONREAD: u32 = 0x541b;

/// TCP_MAXSEG takes no more (Linux's MAX_TCP_WINDOW).
const MAXSEG_MAX: u16 = 32_767;
/// What is written to a queue at once.
const PIECE: usize = 32 << 10;

/// Which queue calls are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    Receive = 1,
    Send = 2,
}

/// `struct tcp_repair_window`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) snd_wl1: u32,
    pub(super) snd_wnd: u32,
    pub(super) max_window: u32,
    pub(super) rcv_wnd: u32,
    pub(super) rcv_wup: u32,
}

/// What both ends agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) mss: u16,
    /// The peer's shift count, and ours.
    pub(super) scales: Option<(u8, u8)>,
    pub(super) sack: bool,
    pub(super) timestamps: bool,
}

/// What TCP_INFO tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Info {
    /// `None`: one that has no name here (Linux's NEW_SYN_RECV).
    pub(super) state: Option<State>,
    /// (The segment size is not in it.)
    pub(super) options: Options,
    pub(super) rtt: Duration,
    pub(super) rtt_var: Duration,
}

/// A state by its number in the kernel (include/net/tcp_states.h). `None`: there is none, or none by that name here (12, TCP_NEW_SYN_RECV: there is no
/// socket yet).
#[must_use]
pub const fn state_of(number: u8) -> Option<State> {
    Some(match number {
        1 => State::Established,
        2 => State::SynSent,
        3 => State::SynReceived,
        4 => State::FinWait1,
        5 => State::FinWait2,
        6 => State::TimeWait,
        7 => State::Closed,
        8 => State::CloseWait,
        9 => State::LastAck,
        10 => State::Listen,
        11 => State::Closing,
        _ => return None,
    })
}

/// A socket, by system calls: libc's functions may be those of the library that this crate is linked into.
#[derive(Clone, Copy, Debug)]
pub(super) struct Socket<'fd>(pub(super) BorrowedFd<'fd>);

impl Socket<'_> {
    fn set(self, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
        let fd = self.0.as_raw_fd();
        // SAFETY: the value is readable for its length.
        check(unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, value.as_ptr(), value.len()) }).map(drop)
    }

    fn set_number(self, level: i32, name: i32, value: u32) -> io::Result<()> {
        self.set(level, name, &value.to_ne_bytes())
    }

    /// How many bytes the value has.
    fn value(self, level: i32, name: i32, value: &mut [u8]) -> io::Result<usize> {
        let mut len = value.len() as libc::socklen_t;
        let fd = self.0.as_raw_fd();
        // SAFETY: the value is writable for its length, which is itself writable.
        check(unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value.as_mut_ptr(), &raw mut len) })?;
        Ok((len as usize).min(value.len()))
    }

    fn number(self, level: i32, name: i32) -> io::Result<u32> {
        let mut value = [0; 4];
        self.value(level, name, &mut value)?;
        Ok(u32::from_ne_bytes(value))
    }

    fn count(self, request: u32) -> io::Result<usize> {
        let (mut count, fd) = (0i32, self.0.as_raw_fd());
        // SAFETY: these requests write one int.
        check(unsafe { libc::syscall(libc::SYS_ioctl, fd, request, &raw mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Begins repair mode. Afterwards all that had arrived has been worked off, for it takes the socket's lock.
    pub(super) fn begin_repair(self) -> Result<(), LeaveError> {
        self.set_number(libc::IPPROTO_TCP, TCP_REPAIR, 1).map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => LeaveError::NeedsNetAdmin,
            Some(libc::ENOPROTOOPT) => LeaveError::KernelTooOld { lacks: "TCP_REPAIR", since: "3.5" },
            _ => super::at("TCP_REPAIR")(error),
        })
    }

    /// Ends it; a connected socket sends a window probe, whose answer brings the peer's state.
    pub(super) fn end_repair(self) -> io::Result<()> {
        self.set_number(libc::IPPROTO_TCP, TCP_REPAIR, 0)
    }

    /// Ends it in silence: of a socket that is connected to nobody.
    pub(super) fn end_repair_unconnected(self) -> io::Result<()> {
        // TCP_REPAIR_OFF_NO_WP.
        self.set_number(libc::IPPROTO_TCP, TCP_REPAIR, u32::MAX)
    }

    /// Whether it can tell and take windows in repair mode.
    pub(super) fn knows_windows(self) -> bool {
        self.window().is_ok()
    }

    pub(super) fn select(self, queue: Queue) -> io::Result<()> {
        self.set_number(libc::IPPROTO_TCP, TCP_REPAIR_QUEUE, queue as u32)
    }

    /// The number behind the last byte of the selected queue.
    pub(super) fn queue_seq(self) -> io::Result<u32> {
        self.number(libc::IPPROTO_TCP, TCP_QUEUE_SEQ)
    }

    pub(super) fn set_queue_seq(self, seq: u32) -> io::Result<()> {
        self.set_number(libc::IPPROTO_TCP, TCP_QUEUE_SEQ, seq)
    }

    /// In repair mode the value that is read is the peer's.
    pub(super) fn peer_mss(self) -> io::Result<u16> {
        self.number(libc::IPPROTO_TCP, TCP_MAXSEG).map(|mss| u16::try_from(mss).unwrap_or(u16::MAX))
    }

    /// Zero: not limited.
    pub(super) fn set_mss(self, mss: u16) -> io::Result<()> {
        self.set_number(libc::IPPROTO_TCP, TCP_MAXSEG, mss.min(MAXSEG_MAX).into())
    }

    /// An array of `struct tcp_repair_opt`.
    pub(super) fn set_options(self, options: &Options) -> io::Result<()> {
        let scales = options.scales.map(|(peers, ours)| (3, u32::from(ours) << 16 | u32::from(peers)));
        let flags = [(4, options.sack), (8, options.timestamps)].map(|(code, is_on)| is_on.then_some((code, 0)));
        let all = [Some((2, u32::from(options.mss))), scales, flags[0], flags[1]];
        let words = all.into_iter().flatten().flat_map(|(code, value): (u32, u32)| [code.to_ne_bytes(), value.to_ne_bytes()]);
        self.set(libc::IPPROTO_TCP, TCP_REPAIR_OPTIONS, &words.flatten().collect::<Vec<u8>>())
    }

    pub(super) fn timestamp(self) -> io::Result<u32> {
        self.number(libc::IPPROTO_TCP, TCP_TIMESTAMP)
    }

    /// Rounded up to an even number: since Linux 6.7 an odd one lets the clock tick in microseconds.
    pub(super) fn set_timestamp(self, clock: u32) -> io::Result<()> {
        self.set_number(libc::IPPROTO_TCP, TCP_TIMESTAMP, clock.wrapping_add(clock & 1))
    }

    pub(super) fn window(self) -> io::Result<Window> {
        let mut bytes = [0; 20];
        if self.value(libc::IPPROTO_TCP, TCP_REPAIR_WINDOW, &mut bytes)? < bytes.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Ok(Window { snd_wl1: word(0), snd_wnd: word(4), max_window: word(8), rcv_wnd: word(12), rcv_wup: word(16) })
    }

    pub(super) fn set_window(self, window: &Window) -> io::Result<()> {
        let Window { snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup } = *window;
        let words = [snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup].map(u32::to_ne_bytes);
        self.set(libc::IPPROTO_TCP, TCP_REPAIR_WINDOW, words.as_flattened())
    }

    /// `struct tcp_info`, as far as Linux 3.5 had it.
    pub(super) fn info(self) -> io::Result<Info> {
        let mut bytes = [0; 104];
        if self.value(libc::IPPROTO_TCP, TCP_INFO, &mut bytes)? < 76 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let micros = |at: usize| {
            let word = u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            Duration::from_micros(word.into())
        };
        let (flags, scales) = (bytes[5], bytes[6]);
        // (Bit fields: the first one is in the low bits where the low byte is first.)
        let (peers, ours) = if cfg!(target_endian = "little") { (scales & 15, scales >> 4) } else { (scales >> 4, scales & 15) };
        let options =
            Options { mss: 0, scales: (flags & 4 != 0).then_some((peers, ours)), sack: flags & 2 != 0, timestamps: flags & 1 != 0 };
        Ok(Info { state: state_of(bytes[0]), options, rtt: micros(68), rtt_var: micros(72) })
    }

    /// Bytes that can be read.
    pub(super) fn unread(self) -> io::Result<usize> {
        self.count(FIONREAD)
    }

    /// What was written and not acknowledged, and of that what was not sent; both count a FIN.
    pub(super) fn unacknowledged(self) -> io::Result<(usize, usize)> {
        Ok((self.count(SIOCOUTQ)?, self.count(SIOCOUTQNSD)?))
    }

    /// The bytes of the selected queue, at most so many.
    pub(super) fn peek(self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        if len == 0 {
            return Ok(bytes);
        }
        let (fd, flags, none) = (self.0.as_raw_fd(), libc::MSG_PEEK | libc::MSG_DONTWAIT, core::ptr::null::<u8>());
        // SAFETY: the buffer is writable for its length; the address is not asked for.
        let read = check(unsafe { libc::syscall(libc::SYS_recvfrom, fd, bytes.as_mut_ptr(), len, flags, none, none) })?;
        bytes.truncate(usize::try_from(read).unwrap_or(0));
        Ok(bytes)
    }

    /// Writes what it takes. In repair mode: to the selected queue.
    pub(super) fn send(self, bytes: &[u8]) -> io::Result<usize> {
        let (fd, flags, none) = (self.0.as_raw_fd(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL, core::ptr::null::<u8>());
        // SAFETY: the bytes are readable for their length; there is no address.
        let sent = check(unsafe { libc::syscall(libc::SYS_sendto, fd, bytes.as_ptr(), bytes.len(), flags, none, 0) })?;
        Ok(usize::try_from(sent).unwrap_or(0))
    }

    /// Writes all bytes to the selected queue, in pieces.
    pub(super) fn fill(self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(PIECE) {
            let mut rest = piece;
            while !rest.is_empty() {
                rest = rest.get(self.send(rest)?..).unwrap_or_default();
            }
        }
        Ok(())
    }

    pub(super) fn shut_writing(self) -> io::Result<()> {
        // SAFETY: no memory is passed.
        check(unsafe { libc::syscall(libc::SYS_shutdown, self.0.as_raw_fd(), libc::SHUT_WR) }).map(drop)
    }

    /// Buffers of at least so many bytes as the kernel counts them (it doubles what it is told), which it may make larger afterwards.
    pub(super) fn reserve(self, receive: usize, send: usize) -> io::Result<()> {
        for (force, plain, len) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, receive), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, send)] {
            let len = u32::try_from(len).unwrap_or(u32::MAX).min(i32::MAX as u32 / 2);
            let len = len.max(self.number(libc::SOL_SOCKET, plain)? / 2);
            self.set_number(libc::SOL_SOCKET, force, len)?;
        }
        // (Where there is no such option, the buffers stay as large as they are.)
        let _ = self.set_number(libc::SOL_SOCKET, SO_BUF_LOCK, 0);
        Ok(())
    }

    /// What the program had set.
    pub(super) fn set_buffers(self, (receive, send): (Option<usize>, Option<usize>)) -> io::Result<()> {
        for (name, len) in [(libc::SO_RCVBUF, receive), (libc::SO_SNDBUF, send)] {
            if let Some(len) = len {
                self.set_number(libc::SOL_SOCKET, name, u32::try_from(len).unwrap_or(u32::MAX))?;
            }
        }
        Ok(())
    }

    /// SO_REUSEADDR, which the end of repair mode clears.
    pub(super) fn reuses_address(self) -> io::Result<bool> {
        self.number(libc::SOL_SOCKET, libc::SO_REUSEADDR).map(|value| value != 0)
    }

    pub(super) fn set_reuses_address(self, reuses: bool) -> io::Result<()> {
        self.set_number(libc::SOL_SOCKET, libc::SO_REUSEADDR, reuses.into())
    }

    pub(super) fn is_in_repair(self) -> io::Result<bool> {
        self.number(libc::IPPROTO_TCP, TCP_REPAIR).map(|value| value != 0)
    }

    pub(super) fn is_tcp(self) -> io::Result<bool> {
        let of = |name| self.number(libc::SOL_SOCKET, name).map(u32::cast_signed);
        Ok(matches!(of(libc::SO_DOMAIN)?, libc::AF_INET | libc::AF_INET6)
            && of(libc::SO_TYPE)? == libc::SOCK_STREAM
            && of(libc::SO_PROTOCOL)? == libc::IPPROTO_TCP)
    }

    pub(super) fn is_v6(self) -> io::Result<bool> {
        self.number(libc::SOL_SOCKET, libc::SO_DOMAIN).map(|domain| domain == libc::AF_INET6 as u32)
    }

    pub(super) fn bind(self, to: SocketAddr) -> io::Result<()> {
        self.with_address(libc::SYS_bind, to)
    }

    /// In repair mode: without a word, and at once.
    pub(super) fn connect(self, to: SocketAddr) -> io::Result<()> {
        self.with_address(libc::SYS_connect, to)
    }

    fn with_address(self, call: libc::c_long, address: SocketAddr) -> io::Result<()> {
        let address = encode(address, self.is_v6()?);
        // SAFETY: the address is readable for its length.
        check(unsafe { libc::syscall(call, self.0.as_raw_fd(), address.as_ptr(), address.len()) }).map(drop)
    }

    /// Its own address, or the peer's; IPv4-mapped ones as IPv4's.
    pub(super) fn address(self, is_peers: bool) -> io::Result<SocketAddr> {
        let (mut bytes, call) = ([0u8; 28], if is_peers { libc::SYS_getpeername } else { libc::SYS_getsockname });
        let mut len = bytes.len() as libc::socklen_t;
        // SAFETY: the address is writable for its length, which is itself writable.
        check(unsafe { libc::syscall(call, self.0.as_raw_fd(), bytes.as_mut_ptr(), &raw mut len) })?;
        decode(&bytes).ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// In repair mode, connect(2) to no address drops the connection and sends no reset.
    pub(super) fn drop_connection(self) -> io::Result<()> {
        let unspecified = [0u8; mem::size_of::<libc::sockaddr_in>()];
        // SAFETY: the address (of AF_UNSPEC) is readable for its length.
        let dropped = unsafe { libc::syscall(libc::SYS_connect, self.0.as_raw_fd(), unspecified.as_ptr(), unspecified.len()) };
        check(dropped).map(drop)
    }

    /// It hears from now on only of what comes by the loopback, which is the first device of each network namespace.
    pub(super) fn bind_to_loopback(self) -> io::Result<()> {
        self.set_number(libc::SOL_SOCKET, SO_BINDTOIFINDEX, 1)
    }

    /// It hears no segment with a reset, until [`Socket::hear_all`]. `false`: the program has a filter of its own there, or there is no room for one.
    pub(super) fn hear_no_resets(self) -> bool {
        /// The flags' byte of the TCP header, where what a filter sees begins; bit 2: a reset, which is dropped.
        const FILTER: [libc::sock_filter; 4] = [
            libc::sock_filter { code: 0x30, jt: 0, jf: 0, k: 13 },
            libc::sock_filter { code: 0x45, jt: 0, jf: 1, k: 4 },
            libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 },
            libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: u32::MAX },
        ];
        let (mut len, fd) = (0 as libc::socklen_t, self.0.as_raw_fd());
        let none = core::ptr::null_mut::<u8>();
        // SAFETY: the length is writable, and says that nothing is to be written; what is, is how long its filter is.
        let asked = unsafe { libc::syscall(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, none, &raw mut len) };
        if asked < 0 || len > 0 {
            return false;
        }
        let mut filter = FILTER;
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        let len = mem::size_of::<libc::sock_fprog>();
        // SAFETY: the program, and its instructions, are readable for their lengths; the kernel copies them.
        let set = unsafe {
            libc::syscall(libc::SYS_setsockopt, fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, (&raw const program).cast::<u8>(), len)
        };
        set >= 0
    }

    pub(super) fn hear_all(self) {
        let _ = self.set_number(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0);
    }

    /// Undoes all that was restored, in silence: the socket is as it was before, bound and connected to nobody.
    pub(super) fn abandon(self, means: &Means, reuses_address: bool) {
        let dropped = self.drop_connection();
        if dropped.is_err() && self.info().is_ok_and(|info| info.state != Some(State::Closed)) {
            // It stays in repair mode, where closing it is silent, too.
            return;
        }
        // (Being dropped left an error behind, which nobody is to hear of.)
        let _ = self.number(libc::SOL_SOCKET, libc::SO_ERROR);
        let _ = means.end_repair(self, false).or_else(|_| means.end_repair(self, true));
        let _ = self.set_reuses_address(reuses_address);
    }
}

/// `struct sockaddr_in`, or `sockaddr_in6` for a socket of IPv6.
pub(super) fn encode(address: SocketAddr, is_v6: bool) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    if let (IpAddr::V4(ip), false) = (address.ip(), is_v6) {
        let family = (libc::AF_INET as libc::sa_family_t).to_ne_bytes();
        return [&family[..], &port, &ip.octets(), &[0; 8]].concat();
    }
    let (ip, scope) = match address {
        SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
        SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
    };
    let family = (libc::AF_INET6 as libc::sa_family_t).to_ne_bytes();
    [&family[..], &port, &[0; 4], &ip.octets(), &u32::to_ne_bytes(scope)].concat()
}

fn decode(bytes: &[u8; 28]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    if family == libc::AF_INET {
        let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
        return Some(SocketAddrV4::new(ip, port).into());
    }
    if family != libc::AF_INET6 {
        return None;
    }
    let octets: [u8; 16] = bytes[8..24].try_into().ok()?;
    let ip = Ipv6Addr::from(octets);
    if let Some(v4) = ip.to_ipv4_mapped() {
        return Some(SocketAddrV4::new(v4, port).into());
    }
    let scope = u32::from_ne_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
    Some(SocketAddrV6::new(ip, port, 0, scope).into())
}
