//! Socket addresses between C's forms and ours.

use core::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use crate::errno::Errno;
use crate::socket::Family;

/// An address that the program passed, as far as offloading can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// IPv4, or IPv4-mapped IPv6 on an IPv6 socket.
    V4(SocketAddrV4),
    /// `::` on an IPv6 socket: every address of both families, if the socket is not V6ONLY.
    Any6(u16),
    /// `AF_UNSPEC`: a connect with it dissolves the association.
    Unspecified,
    /// Any other: the kernel's business.
    Other,
}

/// Reads an address in C's form.
///
/// # Safety
/// `address` is null, or `len` bytes can be read there.
pub(crate) unsafe fn read(address: *const sockaddr, len: socklen_t, family: Family) -> Address {
    if address.is_null() || (len as usize) < size_of::<libc::sa_family_t>() {
        return Address::Other;
    }
    // SAFETY: the length was checked; the caller vouches for the pointer, which may be unaligned.
    let declared = i32::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() });
    match (declared, family) {
        (libc::AF_UNSPEC, _) => Address::Unspecified,
        (libc::AF_INET, Family::V4) if len as usize >= size_of::<sockaddr_in>() => {
            // SAFETY: as above.
            let a = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            Address::V4(SocketAddrV4::new(Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr)), u16::from_be(a.sin_port)))
        }
        // RFC 2133's sockaddr_in6 lacks the scope id; Linux takes it (SIN6_LEN_RFC2133).
        (libc::AF_INET6, Family::V6) if len as usize >= size_of::<sockaddr_in6>() - 4 => {
            // SAFETY: as above; only fields before the scope id are read.
            let (ip, port) = unsafe {
                let a = address.cast::<sockaddr_in6>();
                let ip = core::ptr::addr_of!((*a).sin6_addr).cast::<[u8; 16]>().read_unaligned();
                (Ipv6Addr::from(ip), u16::from_be(core::ptr::addr_of!((*a).sin6_port).read_unaligned()))
            };
            match ip.to_ipv4_mapped() {
                Some(v4) => Address::V4(SocketAddrV4::new(v4, port)),
                None if ip.is_unspecified() => Address::Any6(port),
                None => Address::Other,
            }
        }
        _ => Address::Other,
    }
}

/// An address in C's form, of the socket's family.
pub(crate) enum Raw {
    V4(sockaddr_in),
    V6(sockaddr_in6),
}

impl Raw {
    pub(crate) fn new(address: SocketAddrV4, family: Family) -> Self {
        match family {
            Family::V4 => {
                // SAFETY: all of it is integers, for which zero is a value.
                let mut raw: sockaddr_in = unsafe { core::mem::zeroed() };
                raw.sin_family = libc::AF_INET as libc::sa_family_t;
                raw.sin_port = address.port().to_be();
                raw.sin_addr.s_addr = u32::from(*address.ip()).to_be();
                Self::V4(raw)
            }
            Family::V6 => {
                // SAFETY: as above.
                let mut raw: sockaddr_in6 = unsafe { core::mem::zeroed() };
                raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                raw.sin6_port = address.port().to_be();
                let ip = if address.ip().is_unspecified() { Ipv6Addr::UNSPECIFIED } else { address.ip().to_ipv6_mapped() };
                raw.sin6_addr.s6_addr = ip.octets();
                Self::V6(raw)
            }
        }
    }

    pub(crate) fn as_ptr(&self) -> *const sockaddr {
        match self {
            Self::V4(raw) => (&raw const *raw).cast(),
            Self::V6(raw) => (&raw const *raw).cast(),
        }
    }

    pub(crate) fn len(&self) -> socklen_t {
        match self {
            Self::V4(_) => size_of::<sockaddr_in>() as socklen_t,
            Self::V6(_) => size_of::<sockaddr_in6>() as socklen_t,
        }
    }

    /// Writes it out as accept(2) and its like do: cut to the room there is, with the whole length in `len`.
    ///
    /// # Errors
    /// EINVAL for a negative length, EFAULT for a null one with an address to write.
    ///
    /// # Safety
    /// `out` is null, or `*len` bytes can be written there; `len` is null or points to a length.
    pub(crate) unsafe fn write(&self, out: *mut sockaddr, len: *mut socklen_t) -> Result<(), Errno> {
        if out.is_null() {
            return Ok(());
        }
        if len.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the caller's promise.
        let room = unsafe { len.read() };
        if i32::try_from(room).is_err() {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: at most `room` bytes are written, and at most the structure's own are read.
        unsafe {
            core::ptr::copy_nonoverlapping(self.as_ptr().cast::<u8>(), out.cast::<u8>(), room.min(self.len()) as usize);
            len.write(self.len());
        }
        Ok(())
    }
}

/// The placeholder's own address, as the kernel has it. `None`: of another kind than we handle.
pub(crate) fn of_placeholder(fd: i32, family: Family) -> Option<SocketAddrV4> {
    asked(fd, family, crate::real::getsockname)
}

/// Who is at the other end of a connection of the kernel's. `None`: nobody, or somebody of another kind.
pub(crate) fn of_peer(fd: i32, family: Family) -> Option<SocketAddrV4> {
    asked(fd, family, crate::real::getpeername)
}

fn asked(fd: i32, family: Family, ask: unsafe fn(i32, *mut sockaddr, *mut socklen_t) -> i32) -> Option<SocketAddrV4> {
    // SAFETY: all of it is integers, for which zero is a value.
    let mut raw: libc::sockaddr_storage = unsafe { core::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_storage>() as socklen_t;
    // SAFETY: the storage is as long as it says.
    if unsafe { ask(fd, (&raw mut raw).cast(), &raw mut len) } != 0 {
        return None;
    }
    // SAFETY: the kernel filled in `len` bytes.
    match unsafe { read((&raw const raw).cast(), len, family) } {
        Address::V4(address) => Some(address),
        Address::Any6(port) => Some(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)),
        Address::Unspecified | Address::Other => None,
    }
}

/// Whether an IPv6 socket was told to leave IPv4 alone (IPV6_V6ONLY, or net.ipv6.bindv6only): then nothing of it is offloaded.
pub(crate) fn is_v6_only(fd: i32, family: Family) -> bool {
    if family == Family::V4 {
        return false;
    }
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as socklen_t;
    // SAFETY: the value is as long as it says.
    let asked = unsafe { crate::real::getsockopt(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, (&raw mut value).cast(), &raw mut len) };
    asked == 0 && value != 0
}

/// The address that Linux would send from, to a local destination: its route for 127.0.0.0/8 prefers 127.0.0.1, any other
/// local address is its own source.
pub(crate) const fn source_for(destination: Ipv4Addr) -> Ipv4Addr {
    if destination.is_loopback() || destination.is_unspecified() { Ipv4Addr::LOCALHOST } else { destination }
}

/// Where a destination really is: `0.0.0.0` means this host (Linux connects to the loopback).
pub(crate) fn destination(address: SocketAddrV4) -> SocketAddrV4 {
    if address.ip().is_unspecified() { SocketAddrV4::new(Ipv4Addr::LOCALHOST, address.port()) } else { address }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through_c(address: SocketAddrV4, family: Family) -> Address {
        let raw = Raw::new(address, family);
        // SAFETY: the structure is as long as it says.
        unsafe { read(raw.as_ptr(), raw.len(), family) }
    }

    #[test]
    fn addresses_survive_the_way_through_c() {
        let address = SocketAddrV4::new(Ipv4Addr::new(127, 1, 2, 3), 0xabcd);
        assert_eq!(through_c(address, Family::V4), Address::V4(address));
        assert_eq!(through_c(address, Family::V6), Address::V4(address));
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 80);
        assert_eq!(through_c(any, Family::V4), Address::V4(any));
        assert_eq!(through_c(any, Family::V6), Address::Any6(80));
    }

    #[test]
    fn a_short_address_is_the_kernels_to_refuse() {
        let raw = Raw::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1), Family::V4);
        // SAFETY: fewer bytes than there are.
        assert_eq!(unsafe { read(raw.as_ptr(), raw.len() - 1, Family::V4) }, Address::Other);
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read(core::ptr::null(), 16, Family::V4) }, Address::Other);
    }

    #[test]
    fn writing_cuts_to_the_room_and_tells_the_whole_length() {
        let raw = Raw::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0x0102), Family::V4);
        let mut out = [0xeeu8; 16];
        let mut len: socklen_t = 4;
        // SAFETY: four bytes of sixteen.
        unsafe { raw.write(out.as_mut_ptr().cast(), &raw mut len) }.expect("valid");
        assert_eq!(len, 16);
        assert_eq!(out[2..6], [1, 2, 0xee, 0xee]);
        len = u32::MAX;
        // SAFETY: refused before anything is written.
        assert_eq!(unsafe { raw.write(out.as_mut_ptr().cast(), &raw mut len) }, Err(Errno(libc::EINVAL)));
    }
}
