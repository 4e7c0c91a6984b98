//! What both worlds have: two hosts, four sockets on each, none of which ever blocks.

use core::fmt;

/// Sockets on each host.
pub const SLOTS_PER_HOST: u8 = 4;
/// Sockets on both hosts.
pub const SLOTS: usize = 2 * SLOTS_PER_HOST as usize;
/// The first port that nobody but the system chooses (the default of net.ipv4.ip_local_port_range).
pub const EPHEMERAL: u16 = 32_768;

/// One of two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// The one with the first four sockets.
    A,
    /// The other.
    B,
}

/// A descriptor: names a socket on one of the hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(u8);

impl Slot {
    /// Socket `number` of a host; numbers beyond the last begin again.
    pub const fn new(host: Host, number: u8) -> Self {
        Self(host as u8 * SLOTS_PER_HOST + number % SLOTS_PER_HOST)
    }

    /// All of both hosts.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..SLOTS as u8).map(Self)
    }

    /// Where it is.
    pub const fn host(self) -> Host {
        if self.0 < SLOTS_PER_HOST { Host::A } else { Host::B }
    }

    /// Its place in a table of all.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.host(), self.0 % SLOTS_PER_HOST)
    }
}

/// SOCK_STREAM or SOCK_DGRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A stream.
    Tcp,
    /// Datagrams.
    Udp,
}

/// An address, with the port's number as the world has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Whose.
    pub host: Host,
    /// Its port.
    pub port: u16,
}

/// Which direction a shutdown ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// SHUT_RD.
    Read,
    /// SHUT_WR.
    Write,
    /// SHUT_RDWR.
    Both,
}

/// Socket options whose effect can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// TCP_NODELAY.
    NoDelay(bool),
    /// TCP_CORK.
    Cork(bool),
    /// SO_LINGER with a time of zero, or off.
    LingerZero(bool),
}

/// How to receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// MSG_PEEK.
    pub peek: bool,
    /// MSG_TRUNC.
    pub trunc: bool,
}

/// What a receive call brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// What it returned.
    pub count: usize,
    /// The bytes in the buffer.
    pub bytes: Vec<u8>,
    /// Who sent them (UDP).
    pub from: Option<Address>,
}

/// An errno of Linux.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// EAGAIN.
    pub const AGAIN: Self = Self(11);
    /// EINVAL.
    pub const INVALID: Self = Self(22);
    /// EPIPE.
    pub const PIPE: Self = Self(32);
    /// EMSGSIZE.
    pub const MESSAGE_TOO_LONG: Self = Self(90);
    /// EOPNOTSUPP.
    pub const NOT_SUPPORTED: Self = Self(95);
    /// EADDRINUSE.
    pub const IN_USE: Self = Self(98);
    /// EADDRNOTAVAIL.
    pub const NOT_AVAILABLE: Self = Self(99);
    /// ECONNABORTED.
    pub const ABORTED: Self = Self(103);
    /// EISCONN.
    pub const IS_CONNECTED: Self = Self(106);
    /// ENOTCONN.
    pub const NOT_CONNECTED: Self = Self(107);
    /// EALREADY.
    pub const ALREADY: Self = Self(114);
    /// EINPROGRESS.
    pub const IN_PROGRESS: Self = Self(115);
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            9 => "EBADF",
            11 => "EAGAIN",
            22 => "EINVAL",
            32 => "EPIPE",
            89 => "EDESTADDRREQ",
            90 => "EMSGSIZE",
            92 => "ENOPROTOOPT",
            95 => "EOPNOTSUPP",
            98 => "EADDRINUSE",
            99 => "EADDRNOTAVAIL",
            103 => "ECONNABORTED",
            104 => "ECONNRESET",
            105 => "ENOBUFS",
            106 => "EISCONN",
            107 => "ENOTCONN",
            110 => "ETIMEDOUT",
            111 => "ECONNREFUSED",
            113 => "EHOSTUNREACH",
            114 => "EALREADY",
            115 => "EINPROGRESS",
            other => return write!(f, "errno {other}"),
        };
        f.write_str(name)
    }
}

/// What poll(2) reports: the bits of POLLIN, POLLPRI, POLLOUT, POLLERR, POLLHUP and POLLRDHUP.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Revents(pub u16);

impl Revents {
    /// POLLIN.
    pub const IN: u16 = 0x1;
    /// POLLOUT.
    pub const OUT: u16 = 0x4;
    /// POLLERR.
    pub const ERR: u16 = 0x8;
    /// POLLHUP.
    pub const HUP: u16 = 0x10;
    /// POLLRDHUP.
    pub const RDHUP: u16 = 0x2000;
    const NAMES: [(u16, &'static str); 6] =
        [(Self::IN, "IN"), (0x2, "PRI"), (Self::OUT, "OUT"), (Self::ERR, "ERR"), (Self::HUP, "HUP"), (Self::RDHUP, "RDHUP")];
}

impl fmt::Debug for Revents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Self::NAMES.iter().filter(|(bit, _)| self.0 & bit != 0).map(|&(_, name)| name).collect();
        f.write_str(if names.is_empty() { "-" } else { "" })?;
        f.write_str(&names.join("|"))
    }
}

/// A world of sockets. Each call is the system call of that name on a nonblocking socket; a slot must hold a socket, except for
/// [`Sockets::socket`] and the second of [`Sockets::accept`], where it must not.
#[expect(clippy::missing_errors_doc, reason = "each call fails as its manual page says")]
pub trait Sockets {
    /// socket(2).
    fn socket(&mut self, slot: Slot, kind: Kind) -> Result<(), Errno>;
    /// bind(2) to the host's address; port zero leaves the choice to the system.
    fn bind(&mut self, slot: Slot, port: u16) -> Result<(), Errno>;
    /// listen(2).
    fn listen(&mut self, slot: Slot, backlog: i32) -> Result<(), Errno>;
    /// connect(2).
    fn connect(&mut self, slot: Slot, to: Address) -> Result<(), Errno>;
    /// connect(2) with `AF_UNSPEC`.
    fn disconnect(&mut self, slot: Slot) -> Result<(), Errno>;
    /// accept(2) into an empty slot; gives the peer's address.
    fn accept(&mut self, slot: Slot, into: Slot) -> Result<Address, Errno>;
    /// send(2) with MSG_NOSIGNAL, and MSG_MORE if `more`.
    fn send(&mut self, slot: Slot, data: &[u8], more: bool) -> Result<usize, Errno>;
    /// sendto(2) on a UDP socket.
    fn send_to(&mut self, slot: Slot, data: &[u8], to: Address) -> Result<usize, Errno>;
    /// recvfrom(2) with a buffer of `len` bytes.
    fn recv(&mut self, slot: Slot, len: usize, flags: Flags) -> Result<Received, Errno>;
    /// shutdown(2).
    fn shutdown(&mut self, slot: Slot, how: How) -> Result<(), Errno>;
    /// close(2).
    fn close(&mut self, slot: Slot);
    /// setsockopt(2).
    fn set(&mut self, slot: Slot, setting: Setting) -> Result<(), Errno>;
    /// SO_ERROR, which it takes; zero is none.
    fn take_error(&mut self, slot: Slot) -> Errno;
    /// getsockname(2); `None`: no port yet.
    fn local(&self, slot: Slot) -> Option<Address>;
    /// getpeername(2).
    fn peer(&self, slot: Slot) -> Result<Address, Errno>;
    /// poll(2), asked for everything.
    fn revents(&self, slot: Slot) -> Revents;
    /// FIONREAD.
    fn unread(&self, slot: Slot) -> Result<u64, Errno>;
    /// Lets time pass, in milliseconds, and everything settle that settles by then.
    fn pass(&mut self, ms: u64);
}
