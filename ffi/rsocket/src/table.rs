//! What a descriptor is. Its number is that of an eventfd which is never signalled: nobody else gets the number, and calls that are not rsockets' find nothing
//! there.

use std::os::fd::{OwnedFd, RawFd};

use ringway_preload::Errno;
use ringway_stack::device::RuleId;
use ringway_stack::device::messages::Region;
use ringway_stack::rsocket::SocketId;
use rustix::event::{EventfdFlags, eventfd};

/// The protocol family that a socket was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
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

/// An rsocket's descriptor.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: SocketId,
    pub(crate) family: Family,
    pub(crate) is_nonblocking: bool,
    /// IPV6_V6ONLY, as bind looks at it.
    pub(crate) v6_only: bool,
    /// IP_TOS: kept; shared memory has no routers.
    pub(crate) tos: u8,
    /// The ports that it has.
    pub(crate) rules: Vec<RuleId>,
    pub(crate) mapped: Vec<Mapped>,
    /// Its number.
    _placeholder: OwnedFd,
}

impl Entry {
    pub(crate) const fn new(id: SocketId, family: Family, is_nonblocking: bool, placeholder: OwnedFd) -> Self {
        Self { id, family, is_nonblocking, v6_only: false, tos: 0, rules: Vec::new(), mapped: Vec::new(), _placeholder: placeholder }
    }
}

/// A descriptor for one more.
///
/// # Errors
/// EMFILE, ENFILE, ENOMEM.
pub(crate) fn placeholder(close_on_exec: bool) -> Result<(RawFd, OwnedFd), Errno> {
    use std::os::fd::AsRawFd as _;
    let flags = if close_on_exec { EventfdFlags::CLOEXEC } else { EventfdFlags::empty() };
    let fd = eventfd(0, flags).map_err(|error| Errno(error.raw_os_error()))?;
    Ok((fd.as_raw_fd(), fd))
}
