//! sockaddr, as bytes. A socket of AF_INET6 that speaks IPv4 has IPv4-mapped addresses in front, and IPv4's behind.

use core::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::socklen_t;

use crate::errno::Errno;
use crate::memory;

/// sizeof(struct sockaddr_in), and of sockaddr_in6.
const LEN_V4: usize = 16;
const LEN_V6: usize = 28;

/// What a caller's sockaddr says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// AF_UNSPEC.
    Nothing,
    /// An address; IPv4-mapped ones are IPv4's.
    Address(SocketAddr),
}

/// Reads a sockaddr for a socket of that domain.
///
/// # Errors
/// EFAULT; EINVAL: too short; EAFNOSUPPORT: another family.
pub(crate) fn read(domain: c_int, from: *const c_void, len: socklen_t) -> Result<Named, Errno> {
    let len = len as usize;
    if !(2..=128).contains(&len) {
        return Err(Errno::INVALID);
    }
    let bytes = memory::read(from, len)?;
    let family = c_int::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    match family {
        libc::AF_UNSPEC => return Ok(Named::Nothing),
        _ if family != domain => return Err(Errno(libc::EAFNOSUPPORT)),
        libc::AF_INET if len >= LEN_V4 => {}
        libc::AF_INET6 if len >= LEN_V6 => {}
        _ => return Err(Errno::INVALID),
    }
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let ip = if family == libc::AF_INET {
        IpAddr::V4(Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]))
    } else {
        let mut octets = [0; 16];
        octets.copy_from_slice(&bytes[8..24]);
        IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
    };
    Ok(Named::Address(SocketAddr::new(ip, port)))
}

/// Writes an address as a socket of that domain has it, cut to the room that the caller has; `len` becomes its length. Nothing is written where `to` is null.
///
/// # Errors
/// EFAULT.
pub(crate) fn write(domain: c_int, address: SocketAddr, to: *mut c_void, len: *mut socklen_t) -> Result<(), Errno> {
    if to.is_null() {
        return Ok(());
    }
    let room = memory::get(len.cast_const())? as usize;
    let bytes = bytes_of(domain, address);
    memory::write(to, &bytes[..bytes.len().min(room)])?;
    memory::put(len, &(bytes.len() as socklen_t))
}

/// A sockaddr's bytes.
pub(crate) fn bytes_of(domain: c_int, address: SocketAddr) -> Vec<u8> {
    let mut bytes = vec![0; if domain == libc::AF_INET { LEN_V4 } else { LEN_V6 }];
    bytes[..2].copy_from_slice(&(domain as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match (domain, address.ip()) {
        (libc::AF_INET, IpAddr::V4(ip)) => bytes[4..8].copy_from_slice(&ip.octets()),
        (_, IpAddr::V4(ip)) => bytes[8..24].copy_from_slice(&ip.to_ipv6_mapped().octets()),
        (libc::AF_INET, IpAddr::V6(_)) => {}
        (_, IpAddr::V6(ip)) => bytes[8..24].copy_from_slice(&ip.octets()),
    }
    bytes
}
