//! Which addresses are this machine's, who has a port there, and what of it a program is told.

use std::net::{IpAddr, SocketAddr};

use ringway_devices::ResolveError;
use ringway_devices::messages::{Fabric, Found};
use ringway_host::Addresses;
use ringway_preload::Errno;
use ringway_stack::device::{Protocol, RuleError, RuleId};

use crate::memory::Plane;

static ADDRESSES: Addresses = Addresses::new();

/// Whether connections to `address` stay on this machine.
pub(crate) fn is_ours(address: IpAddr) -> bool {
    ADDRESSES.contains(address)
}

/// Whether connections to `address` can be: on shared memory, to this machine alone.
pub(crate) fn is_reached(fabric: &Fabric, address: IpAddr) -> bool {
    !fabric.is_this_machine() || is_ours(address)
}

/// Who has a port for connections. No lock is to be held: see [`Fabric::resolve`].
///
/// # Errors
/// ECONNREFUSED: nobody of this user has; ETIMEDOUT: who has does not answer; EHOSTUNREACH: the system is at fault, and ENOMEM, if it lacks room.
pub(crate) fn resolve(fabric: &Fabric, to: SocketAddr) -> Result<Found, Errno> {
    fabric.resolve(to).map_err(|error| errno(&error))?.ok_or(Errno(libc::ECONNREFUSED))
}

/// The same of a port for datagrams.
///
/// # Errors
/// As [`resolve`].
pub(crate) fn resolve_datagrams(fabric: &Fabric, to: SocketAddr) -> Result<Found, Errno> {
    fabric.resolve_datagrams(to).map_err(|error| errno(&error))?.ok_or(Errno(libc::ECONNREFUSED))
}

/// Takes a port, so that others find it here.
///
/// # Errors
/// EADDRINUSE: another process of this user's, or a socket of this one, has it; ENOMEM: no room for one more.
pub(crate) fn claim(plane: &mut Plane, protocol: Protocol, at: SocketAddr) -> Result<RuleId, Errno> {
    Fabric::claim(plane, protocol, at).map_err(|error| match error {
        RuleError::Taken => Errno(libc::EADDRINUSE),
        _ => Errno(libc::ENOMEM),
    })
}

const fn errno(error: &ResolveError) -> Errno {
    Errno(match error {
        ResolveError::Silent => libc::ETIMEDOUT,
        ResolveError::Full => libc::ENOMEM,
        ResolveError::OtherUser { .. } | ResolveError::Unverified => libc::ECONNREFUSED,
        _ => libc::EHOSTUNREACH,
    })
}
