//! Addresses of sockets in C's form, as librdmacm takes and gives them.

use core::mem;
use std::net::{IpAddr, SocketAddr};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

/// An address in C's form.
pub(crate) fn to_c(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: all bytes zero is a value of it: numbers, and padding.
    let mut storage: sockaddr_storage = unsafe { mem::zeroed() };
    let start = &raw mut storage;
    match address {
        SocketAddr::V4(v4) => {
            let of_c = sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: v4.ip().to_bits().to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage has room for, and is aligned for, an address of any family.
            unsafe { start.cast::<sockaddr_in>().write(of_c) };
        }
        SocketAddr::V6(v6) => {
            let of_c = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { start.cast::<sockaddr_in6>().write(of_c) };
        }
    }
    storage
}

/// An address of C's; `None`: it is of another family, or there is none.
///
/// # Safety
/// It leads to an address that has as many bytes as its family says.
pub(crate) unsafe fn from_c(address: *const sockaddr) -> Option<SocketAddr> {
    // SAFETY: the caller's promise. (What lies in the library's structures is aligned for any of them; reads here do not count on it.)
    unsafe {
        match i32::from((&raw const (*address).sa_family).read_unaligned()) {
            libc::AF_INET => {
                let v4 = address.cast::<sockaddr_in>().read_unaligned();
                Some(SocketAddr::new(IpAddr::V4(u32::from_be(v4.sin_addr.s_addr).into()), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<sockaddr_in6>().read_unaligned();
                Some(SocketAddr::new(IpAddr::V6(v6.sin6_addr.s6_addr.into()).to_canonical(), u16::from_be(v6.sin6_port)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_as_it_was() {
        for text in ["10.9.0.1:7471", "[fd00::1]:80", "0.0.0.0:0", "[::]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let of_c = to_c(address);
            // SAFETY: it was just made.
            assert_eq!(unsafe { from_c((&raw const of_c).cast()) }, Some(address));
        }
    }

    #[test]
    fn what_is_mapped_is_of_ipv4_and_nothing_is_nothing() {
        let mapped = to_c("[::ffff:10.9.0.1]:1".parse().unwrap());
        // SAFETY: it was just made.
        assert_eq!(unsafe { from_c((&raw const mapped).cast()) }, Some("10.9.0.1:1".parse().unwrap()));
        // SAFETY: zeros are an address of no family.
        let none: sockaddr_storage = unsafe { mem::zeroed() };
        // SAFETY: as above.
        assert_eq!(unsafe { from_c((&raw const none).cast()) }, None);
    }
}
