//! What a descriptor is. A stream's number is that of an eventfd which is never signalled: nobody else gets the number, and calls that are not rsockets' find
//! nothing there. A datagram socket's is its UDP socket's.

use core::sync::atomic::{AtomicI32, Ordering};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd, RawFd};

use ringway_preload::Errno;
use ringway_stack::device::RuleId;
use ringway_stack::device::messages::Region;
use ringway_stack::rsocket::SocketId;
use rustix::event::{EventfdFlags, eventfd};

use crate::datagram::{Datagram, Open};

/// The protocol family that a socket was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// PF_INET.
    V4,
    /// PF_INET6.
    V6,
}

/// A buffer that riomap has mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapped {
    /// The program's address of it.
    pub(crate) start: usize,
    /// Its length in bytes.
    pub(crate) len: usize,
    pub(crate) region: Region,
}

/// What is behind a descriptor.
pub(crate) enum Kind {
    Stream(SocketId),
    Datagram(Box<Datagram>),
}

/// An rsocket's descriptor.
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) family: Family,
    pub(crate) is_nonblocking: bool,
    /// IPV6_V6ONLY, as bind looks at it.
    pub(crate) v6_only: bool,
    /// IP_TOS: kept; shared memory has no routers.
    pub(crate) tos: u8,
    /// The ports that it has.
    pub(crate) rules: Vec<RuleId>,
    pub(crate) mapped: Vec<Mapped>,
    /// Its number; of a datagram socket, its UDP socket. `None`: the stream's number is a [`key`].
    pub(crate) descriptor: Option<OwnedFd>,
}

impl Entry {
    pub(crate) const fn new(kind: Kind, family: Family, is_nonblocking: bool, descriptor: Option<OwnedFd>) -> Self {
        Self { kind, family, is_nonblocking, v6_only: false, tos: 0, rules: Vec::new(), mapped: Vec::new(), descriptor }
    }
}

impl Entry {
    /// The stream.
    ///
    /// # Errors
    /// EOPNOTSUPP: it is a datagram socket.
    pub(crate) const fn stream(&self) -> Result<SocketId, Errno> {
        match self.kind {
            Kind::Stream(id) => Ok(id),
            Kind::Datagram(_) => Err(Errno(libc::EOPNOTSUPP)),
        }
    }

    /// The datagram socket.
    ///
    /// # Errors
    /// EOPNOTSUPP: it is a stream.
    pub(crate) fn datagram(&mut self) -> Result<(&mut Datagram, BorrowedFd<'_>), Errno> {
        match (&mut self.kind, &self.descriptor) {
            (Kind::Datagram(datagram), Some(udp)) => Ok((datagram, udp.as_fd())),
            _ => Err(Errno(libc::EOPNOTSUPP)),
        }
    }

    /// The datagram socket, bound.
    ///
    /// # Errors
    /// EOPNOTSUPP: it is a stream; ENOTCONN: it is not bound.
    pub(crate) fn open_datagram(&mut self) -> Result<(&mut Open, BorrowedFd<'_>), Errno> {
        let (datagram, udp) = self.datagram()?;
        Ok((datagram.open.as_mut().ok_or(Errno(libc::ENOTCONN))?, udp))
    }
}

/// A descriptor for one more stream.
///
/// # Errors
/// EMFILE, ENFILE, ENOMEM.
pub(crate) fn placeholder(close_on_exec: bool) -> Result<(RawFd, OwnedFd), Errno> {
    use std::os::fd::AsRawFd as _;
    let flags = if close_on_exec { EventfdFlags::CLOEXEC } else { EventfdFlags::empty() };
    let fd = eventfd(0, flags).map_err(|error| Errno(error.raw_os_error()))?;
    Ok((fd.as_raw_fd(), fd))
}

/// Numbers from here on are none of the kernel's (fs.nr_open is less).
const KEYS_FROM: RawFd = 1 << 30;

/// A number for a stream that has no descriptor of the kernel's: whoever stands on this library has one of its own for it.
pub(crate) fn key() -> RawFd {
    static NEXT: AtomicI32 = AtomicI32::new(0);
    KEYS_FROM | NEXT.fetch_add(1, Ordering::Relaxed) & (KEYS_FROM - 1)
}
