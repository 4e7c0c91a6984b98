//! Socket addresses between C's forms and ours.

use core::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use crate::errno::{Errno, is_nowhere};
use crate::socket::Family;

/// An address that the program passed, as far as offloading can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A host's, or none in particular. IPv4-mapped addresses of IPv6 sockets are IPv4's here: so are the packets.
    Ip(SocketAddr),
    /// `AF_UNSPEC`: a connect with it dissolves the association.
    Unspecified,
    /// Any other: the kernel's business. So are link-local addresses of IPv6, which an interface belongs to.
    Other,
}

/// Reads an address in C's form.
///
/// # Safety
/// `address` is null, or `len` bytes can be read there.
pub(crate) unsafe fn read(address: *const sockaddr, len: socklen_t, family: Family) -> Address {
    if is_nowhere(address) || (len as usize) < size_of::<libc::sa_family_t>() {
        return Address::Other;
    }
    // SAFETY: the length was checked; the caller vouches for the pointer, which may be unaligned.
    let declared = i32::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() });
    match (declared, family) {
        (libc::AF_UNSPEC, _) => Address::Unspecified,
        (libc::AF_INET, Family::V4) if len as usize >= size_of::<sockaddr_in>() => {
            // SAFETY: as above.
            let a = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            Address::Ip(SocketAddr::new(Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr)).into(), u16::from_be(a.sin_port)))
        }
        // RFC 2133's sockaddr_in6 lacks the scope id; Linux takes it (SIN6_LEN_RFC2133).
        (libc::AF_INET6, Family::V6) if len as usize >= size_of::<sockaddr_in6>() - 4 => {
            // SAFETY: as above; only fields before the scope id are read.
            let (ip, port) = unsafe {
                let a = address.cast::<sockaddr_in6>();
                let ip = core::ptr::addr_of!((*a).sin6_addr).cast::<[u8; 16]>().read_unaligned();
                (Ipv6Addr::from(ip), u16::from_be(core::ptr::addr_of!((*a).sin6_port).read_unaligned()))
            };
            if ip.is_unicast_link_local() {
                return Address::Other;
            }
            Address::Ip(SocketAddr::new(IpAddr::V6(ip).to_canonical(), port))
        }
        _ => Address::Other,
    }
}

/// What the kernel says of a destination before it looks at the socket (move_addr_to_kernel).
///
/// # Errors
/// EINVAL: a length that no address has; EFAULT: it leads nowhere.
pub(crate) fn check(address: *const sockaddr, len: socklen_t) -> Result<(), Errno> {
    if address.is_null() || len == 0 {
        return Ok(());
    }
    if len as usize > size_of::<libc::sockaddr_storage>() {
        return Err(Errno(libc::EINVAL));
    }
    if is_nowhere(address) { Err(Errno(libc::EFAULT)) } else { Ok(()) }
}

/// An address in C's form, of the socket's family.
pub(crate) enum Raw {
    V4(sockaddr_in),
    V6(sockaddr_in6),
}

impl Raw {
    /// (An IPv4 socket's address is IPv4's.)
    #[inline]
    pub(crate) fn new(address: SocketAddr, family: Family) -> Self {
        match (family, address.ip()) {
            (Family::V4, ip) => {
                // SAFETY: all of it is integers, for which zero is a value.
                let mut raw: sockaddr_in = unsafe { core::mem::zeroed() };
                raw.sin_family = libc::AF_INET as libc::sa_family_t;
                raw.sin_port = address.port().to_be();
                raw.sin_addr.s_addr = if let IpAddr::V4(ip) = ip { ip.to_bits().to_be() } else { 0 };
                Self::V4(raw)
            }
            (Family::V6, ip) => {
                // SAFETY: as above.
                let mut raw: sockaddr_in6 = unsafe { core::mem::zeroed() };
                raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                raw.sin6_port = address.port().to_be();
                let ip = match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                raw.sin6_addr.s6_addr = ip.octets();
                Self::V6(raw)
            }
        }
    }

    /// The sender of a datagram that came by a link, of which it is asked where that says who it was: a link-local address.
    pub(crate) fn of_sender(from: SocketAddr, family: Family, link: impl FnOnce() -> u32) -> Self {
        let mut raw = Self::new(from, family);
        if let (Self::V6(raw), IpAddr::V6(ip)) = (&mut raw, from.ip())
            && ip.is_unicast_link_local()
        {
            raw.sin6_scope_id = link();
        }
        raw
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
    /// EINVAL for a negative length, EFAULT for one that leads nowhere, with an address to write, and for an address that does.
    ///
    /// # Safety
    /// `out` is null, or `*len` bytes can be written there; `len` is null or points to a length.
    #[inline]
    pub(crate) unsafe fn write(&self, out: *mut sockaddr, len: *mut socklen_t) -> Result<(), Errno> {
        if out.is_null() {
            return Ok(());
        }
        if is_nowhere(len) {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the caller's promise.
        let room = unsafe { len.read() };
        if i32::try_from(room).is_err() {
            return Err(Errno(libc::EINVAL));
        }
        if room > 0 && is_nowhere(out) {
            return Err(Errno(libc::EFAULT));
        }
        if let Self::V4(raw) = self
            && room as usize >= size_of::<sockaddr_in>()
        {
            // (Nearly all are written so: what is copied by its length is first put together in memory.)
            // SAFETY: there is room for it.
            unsafe {
                out.cast::<sockaddr_in>().write_unaligned(*raw);
                len.write(size_of::<sockaddr_in>() as socklen_t);
            }
            return Ok(());
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
pub(crate) fn of_placeholder(fd: i32, family: Family) -> Option<SocketAddr> {
    asked(fd, family, crate::real::getsockname)
}

/// Who is at the other end of a connection of the kernel's. `None`: nobody, or somebody of another kind.
pub(crate) fn of_peer(fd: i32, family: Family) -> Option<SocketAddr> {
    asked(fd, family, crate::real::getpeername)
}

fn asked(fd: i32, family: Family, ask: unsafe fn(i32, *mut sockaddr, *mut socklen_t) -> i32) -> Option<SocketAddr> {
    // SAFETY: all of it is integers, for which zero is a value.
    let mut raw: libc::sockaddr_storage = unsafe { core::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_storage>() as socklen_t;
    // SAFETY: the storage is as long as it says.
    if unsafe { ask(fd, (&raw mut raw).cast(), &raw mut len) } != 0 {
        return None;
    }
    // SAFETY: the kernel filled in `len` bytes.
    match unsafe { read((&raw const raw).cast(), len, family) } {
        Address::Ip(address) => Some(address),
        Address::Unspecified | Address::Other => None,
    }
}

/// No address in particular, as a socket has it that is not bound.
pub(crate) const fn any(family: Family) -> SocketAddr {
    let ip = match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(ip, 0)
}

/// Whether an IPv6 socket was told to leave IPv4 alone (IPV6_V6ONLY, or net.ipv6.bindv6only).
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

/// Whether the kernel lets a socket that has that address send to another: not to an IPv4-mapped one with IPV6_V6ONLY, nor to one of another family
/// than its own.
pub(crate) fn can_reach(fd: i32, family: Family, own: Option<SocketAddr>, to: SocketAddr) -> bool {
    let has_another = own.is_some_and(|own| own.is_ipv4() != to.is_ipv4() && !(own.is_ipv6() && own.ip().is_unspecified()));
    !has_another && (to.is_ipv6() || !is_v6_only(fd, family))
}

/// The address that Linux would send from, to a local destination: its route for 127.0.0.0/8 prefers 127.0.0.1, any other
/// local address is its own source (of IPv6 by RFC 6724 s5 rule 1).
#[inline]
pub(crate) const fn source_for(destination: IpAddr) -> IpAddr {
    match destination {
        IpAddr::V4(ip) if ip.is_loopback() || ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    }
}

/// Where a destination really is: `0.0.0.0` and `::` mean this host (Linux connects to the loopback).
#[inline]
pub(crate) const fn destination(address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() { SocketAddr::new(source_for(address.ip()), address.port()) } else { address }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through_c(address: SocketAddr, family: Family) -> Address {
        let raw = Raw::new(address, family);
        // SAFETY: the structure is as long as it says.
        unsafe { read(raw.as_ptr(), raw.len(), family) }
    }

    #[test]
    fn addresses_survive_the_way_through_c() {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        for v4 in ["127.1.2.3:43981", "0.0.0.0:80"].map(at) {
            assert_eq!(through_c(v4, Family::V4), Address::Ip(v4));
            // In its mapped form.
            assert_eq!(through_c(v4, Family::V6), Address::Ip(v4));
        }
        for v6 in ["[::1]:43981", "[::]:80", "[2001:db8::7]:1"].map(at) {
            assert_eq!(through_c(v6, Family::V6), Address::Ip(v6));
        }
        assert_eq!(through_c(at("[fe80::1]:80"), Family::V6), Address::Other, "an interface belongs to it");
    }

    #[test]
    fn what_is_sent_to_this_host_comes_from_where_linux_has_it_come_from() {
        for (to, really, from) in [
            ("127.9.9.9:1", "127.9.9.9:1", "127.0.0.1"),
            ("0.0.0.0:1", "127.0.0.1:1", "127.0.0.1"),
            ("10.0.0.7:1", "10.0.0.7:1", "10.0.0.7"),
            ("[::]:1", "[::1]:1", "::1"),
            ("[::1]:1", "[::1]:1", "::1"),
            ("[2001:db8::7]:1", "[2001:db8::7]:1", "2001:db8::7"),
        ] {
            let really: SocketAddr = really.parse().expect("an address");
            assert_eq!(destination(to.parse().expect("an address")), really);
            assert_eq!(source_for(really.ip()).to_string(), from, "{to}");
        }
    }

    #[test]
    fn a_link_local_sender_is_one_of_its_link() {
        let scope = |from: &str| match Raw::of_sender(from.parse().expect("an address"), Family::V6, || 7) {
            Raw::V6(raw) => raw.sin6_scope_id,
            Raw::V4(_) => panic!("of another family"),
        };
        assert_eq!(["[fe80::1]:80", "[fd00::1]:80", "10.0.0.1:80"].map(scope), [7, 0, 0]);
    }

    #[test]
    fn a_short_address_is_the_kernels_to_refuse() {
        let raw = Raw::new(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1), Family::V4);
        // SAFETY: fewer bytes than there are.
        assert_eq!(unsafe { read(raw.as_ptr(), raw.len() - 1, Family::V4) }, Address::Other);
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read(core::ptr::null(), 16, Family::V4) }, Address::Other);
    }

    #[test]
    fn writing_cuts_to_the_room_and_tells_the_whole_length() {
        let raw = Raw::new(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0x0102), Family::V4);
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
