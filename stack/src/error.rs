//! Why a socket's call failed, and the one table from that to errno.

/// One variant a cause; the doc line says who is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nobody: nothing to read, no room to write, or no connection to accept yet (EAGAIN).
    #[error("the call would block")]
    WouldBlock,
    /// Nobody: the handshake is under way (EINPROGRESS).
    #[error("connection in progress")]
    InProgress,
    /// The program: a handshake is already under way (EALREADY).
    #[error("connection already in progress")]
    Already,
    /// The peer: it answered the SYN with a reset, or a datagram with port unreachable (ECONNREFUSED).
    #[error("connection refused")]
    Refused,
    /// The peer: it reset the connection, or died (ECONNRESET).
    #[error("connection reset by peer")]
    Reset,
    /// The program: it aborted the connection itself (ECONNABORTED).
    #[error("connection aborted")]
    Aborted,
    /// The network or the peer: no answer within the retransmission or keepalive limit (ETIMEDOUT).
    #[error("connection timed out")]
    TimedOut,
    /// The program: the socket isn't connected (ENOTCONN).
    #[error("not connected")]
    NotConnected,
    /// The program: the socket is connected already (EISCONN).
    #[error("already connected")]
    AlreadyConnected,
    /// The program: it wrote after its side, or the peer, closed (EPIPE).
    #[error("broken pipe")]
    Pipe,
    /// The program: another socket of this ring has that address (EADDRINUSE).
    #[error("address in use")]
    AddressInUse,
    /// The program: it is no member of that group (EADDRNOTAVAIL).
    #[error("cannot assign requested address")]
    AddressNotAvailable,
    /// The program: an argument that the call's documentation excludes (EINVAL).
    #[error("invalid argument")]
    Invalid,
    /// The program: it named a socket that was closed (EBADF).
    #[error("no such socket")]
    BadSocket,
    /// The program: it used a call that this kind of socket lacks (EOPNOTSUPP).
    #[error("operation not supported by this socket")]
    NotSupported,
    /// The program: a datagram longer than the protocol can carry (EMSGSIZE).
    #[error("message too long")]
    MessageTooLong,
    /// The program: a datagram without a destination (EDESTADDRREQ).
    #[error("destination address required")]
    DestinationRequired,
    /// The machine: the device's buffers, or a stated limit, are used up (ENOBUFS).
    #[error("no buffer space")]
    NoBuffers,
    /// The network: no path to that host (EHOSTUNREACH).
    #[error("host unreachable")]
    HostUnreachable,
    /// The network: no route to that address (ENETUNREACH).
    #[error("network unreachable")]
    NetworkUnreachable,
    /// The network: a route forbids it (EACCES).
    #[error("permission denied")]
    Prohibited,
    /// The program: the way to that address is another device's (ENODEV).
    #[error("no such device")]
    NoDevice,
    /// The device: the link is down, or the device is gone (ENETDOWN).
    #[error("network is down")]
    NetworkDown,
}

impl Error {
    /// Takes what is pending. That the device is gone stays: nothing will come by it any more.
    #[inline]
    pub(crate) fn take(pending: &mut Option<Self>) -> Option<Self> {
        match *pending {
            Some(Self::NetworkDown) => *pending,
            _ => pending.take(),
        }
    }

    /// Linux's number for it (include/uapi/asm-generic/errno.h), as errno has it.
    pub const fn errno(self) -> i32 {
        match self {
            Self::WouldBlock => 11,
            Self::Prohibited => 13,
            Self::NoDevice => 19,
            Self::Invalid => 22,
            Self::Pipe => 32,
            Self::BadSocket => 9,
            Self::DestinationRequired => 89,
            Self::MessageTooLong => 90,
            Self::NotSupported => 95,
            Self::AddressInUse => 98,
            Self::AddressNotAvailable => 99,
            Self::NetworkDown => 100,
            Self::NetworkUnreachable => 101,
            Self::Aborted => 103,
            Self::Reset => 104,
            Self::NoBuffers => 105,
            Self::AlreadyConnected => 106,
            Self::NotConnected => 107,
            Self::TimedOut => 110,
            Self::Refused => 111,
            Self::HostUnreachable => 113,
            Self::Already => 114,
            Self::InProgress => 115,
        }
    }
}
