//! Addresses in C's forms.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use ringway_preload::Errno;
use ringway_preload::errno::is_nowhere;

use crate::table::Family;

/// Reads an address of a socket's family. IPv4-mapped ones are IPv4's from here on.
///
/// # Errors
/// EFAULT: it leads nowhere; EINVAL: it is too short; EAFNOSUPPORT: it is of another family.
///
/// # Safety
/// `address` [leads nowhere](is_nowhere), or `len` bytes can be read there.
pub(crate) unsafe fn read(address: *const sockaddr, len: socklen_t, family: Family) -> Result<SocketAddr, Errno> {
    let len = len as usize;
    if is_nowhere(address) {
        return Err(Errno(libc::EFAULT));
    }
    if len < size_of::<libc::sa_family_t>() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: so many bytes can be read, whatever their alignment.
    let declared = i32::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() });
    match (declared, family) {
        (libc::AF_INET, Family::V4) if len >= size_of::<sockaddr_in>() => {
            // SAFETY: as above.
            let address = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            Ok(SocketAddr::new(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into(), u16::from_be(address.sin_port)))
        }
        (libc::AF_INET6, Family::V6) if len >= size_of::<sockaddr_in6>() => {
            // SAFETY: as above.
            let address = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            Ok(SocketAddr::new(IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)).to_canonical(), u16::from_be(address.sin6_port)))
        }
        (libc::AF_INET, Family::V4) | (libc::AF_INET6, Family::V6) => Err(Errno(libc::EINVAL)),
        _ => Err(Errno(libc::EAFNOSUPPORT)),
    }
}

/// Writes an address for a socket of that family, as much as there is room for, and its whole length. Null: it is not wanted.
///
/// # Errors
/// EFAULT: one of the two leads nowhere; EINVAL: a length that is negative.
///
/// # Safety
/// Each pointer leads nowhere, or `len` to a length, and `out` to as many writable bytes.
pub(crate) unsafe fn write(address: SocketAddr, family: Family, out: *mut sockaddr, len: *mut socklen_t) -> Result<(), Errno> {
    if out.is_null() {
        return Ok(());
    }
    if is_nowhere(out) || is_nowhere(len) {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise.
    let room = unsafe { len.read_unaligned() };
    let room = usize::try_from(room.cast_signed()).map_err(|_| Errno(libc::EINVAL))?;
    let (port, whole) = (address.port().to_be(), in_family(address.ip(), family));
    let put = |bytes: *const u8, size: usize| {
        // SAFETY: `size` bytes are of a structure that lives, and `room` can be written.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes, out.cast(), size.min(room));
            len.write_unaligned(size as socklen_t);
        }
    };
    match whole {
        IpAddr::V4(ip) => {
            let sin_addr = libc::in_addr { s_addr: ip.to_bits().to_be() };
            let full = sockaddr_in { sin_family: libc::AF_INET as u16, sin_port: port, sin_addr, sin_zero: [0; 8] };
            put((&raw const full).cast(), size_of_val(&full));
        }
        IpAddr::V6(ip) => {
            let sin6_addr = libc::in6_addr { s6_addr: ip.octets() };
            let full = sockaddr_in6 { sin6_family: libc::AF_INET6 as u16, sin6_port: port, sin6_flowinfo: 0, sin6_addr, sin6_scope_id: 0 };
            put((&raw const full).cast(), size_of_val(&full));
        }
    }
    Ok(())
}

/// An address as a socket of that family shows it.
fn in_family(ip: IpAddr, family: Family) -> IpAddr {
    match (ip, family) {
        (IpAddr::V4(ip), Family::V6) if ip.is_unspecified() => Ipv6Addr::UNSPECIFIED.into(),
        (IpAddr::V4(ip), Family::V6) => ip.to_ipv6_mapped().into(),
        (ip, _) => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(address: &str, family: Family, room: socklen_t) -> (Result<SocketAddr, Errno>, socklen_t) {
        // SAFETY: zero is a value of it; both pointers are to values that live.
        unsafe {
            let mut storage: libc::sockaddr_storage = core::mem::zeroed();
            let mut len = room;
            write(address.parse().unwrap(), family, (&raw mut storage).cast(), &raw mut len).unwrap();
            (read((&raw const storage).cast(), room.min(len), family), len)
        }
    }

    #[test]
    fn addresses_go_to_c_and_back() {
        for (address, family, len) in [("127.0.0.1:7471", Family::V4, 16), ("[::1]:7471", Family::V6, 28), ("10.1.2.3:5", Family::V6, 28)] {
            assert_eq!(round(address, family, 128), (Ok(address.parse().unwrap()), len));
            assert_eq!(round(address, family, 8), (Err(Errno(libc::EINVAL)), len), "the length says how much there would be");
        }
        assert_eq!(in_family(Ipv4Addr::UNSPECIFIED.into(), Family::V6), IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        // SAFETY: zero is a value of it; the pointers are null, or to values that live.
        unsafe {
            let mut of_v4: sockaddr_in = core::mem::zeroed();
            of_v4.sin_family = libc::AF_INET as u16;
            let pointer = (&raw const of_v4).cast();
            assert_eq!(read(core::ptr::null(), 16, Family::V4), Err(Errno(libc::EFAULT)));
            assert_eq!(read(pointer, 1, Family::V4), Err(Errno(libc::EINVAL)));
            assert_eq!(read(pointer, 16, Family::V6), Err(Errno(libc::EAFNOSUPPORT)));
            let mut storage: libc::sockaddr_storage = core::mem::zeroed();
            let any = "1.2.3.4:5".parse().unwrap();
            assert_eq!(write(any, Family::V4, (&raw mut storage).cast(), core::ptr::null_mut()), Err(Errno(libc::EFAULT)));
            assert_eq!(write(any, Family::V4, core::ptr::null_mut(), core::ptr::null_mut()), Ok(()));
            let mut len = u32::MAX;
            assert_eq!(write(any, Family::V4, (&raw mut storage).cast(), &raw mut len), Err(Errno(libc::EINVAL)));
        }
    }
}
