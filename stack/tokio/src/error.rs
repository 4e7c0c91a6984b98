//! The stack's errors as `std::io`'s.

use std::io::{self, ErrorKind};

use ringway_stack::Error;

/// The error that the kernel would have given: same kind, with the stack's as its source. What `std` has no kind for, such as
/// ENOBUFS and EMSGSIZE, is [`ErrorKind::Other`].
pub fn io_error(error: Error) -> io::Error {
    let kind = match error {
        Error::WouldBlock | Error::InProgress => ErrorKind::WouldBlock,
        Error::Refused => ErrorKind::ConnectionRefused,
        Error::Reset => ErrorKind::ConnectionReset,
        Error::Aborted => ErrorKind::ConnectionAborted,
        Error::TimedOut => ErrorKind::TimedOut,
        Error::NotConnected => ErrorKind::NotConnected,
        Error::Pipe => ErrorKind::BrokenPipe,
        Error::AddressInUse => ErrorKind::AddrInUse,
        Error::Invalid | Error::DestinationRequired => ErrorKind::InvalidInput,
        Error::NotSupported => ErrorKind::Unsupported,
        Error::HostUnreachable => ErrorKind::HostUnreachable,
        Error::NetworkUnreachable => ErrorKind::NetworkUnreachable,
        Error::Prohibited => ErrorKind::PermissionDenied,
        Error::NetworkDown => ErrorKind::NetworkDown,
        _ => ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
