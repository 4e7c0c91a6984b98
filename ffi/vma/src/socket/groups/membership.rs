//! Whom a socket of the kernel's hears in a group, as the kernel itself says: by MCAST_MSFILTER (RFC 3678 s5.2.3), link by link.

use core::ffi::c_int;
use core::mem::size_of;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libc::socklen_t;
use ringway_stack::net::LinkId;
use ringway_stack::ring::SourceFilter;

use super::{GROUP_AT, MCAST_MSFILTER, V4_AT, V6_AT, v4_at, v6_at};
use crate::real;

/// linux/in6.h.
pub(super) const IPV6_MULTICAST_ALL: c_int = 29;

/// `struct group_filter`, behind the group's address: the mode, how many sources follow, and these.
const ADDRESS_LEN: usize = 128;
const MODE_AT: usize = GROUP_AT + ADDRESS_LEN;
const COUNT_AT: usize = MODE_AT + 4;
const SOURCES_AT: usize = MODE_AT + 8;
/// linux/in.h.
const MCAST_INCLUDE: u32 = 1;

/// Sources that there is room for in the first question.
const SOURCES_FIRST: usize = 64;

/// Whom a socket hears in a group on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hears {
    /// It is a member: these.
    As(SourceFilter),
    /// It is none, and hears whatever comes for members (IP_MULTICAST_ALL, which is so unless the program says otherwise).
    WhatMembersDo,
    /// It is none, and hears nobody.
    Nobody,
    /// The kernel goes by an order of memberships that it does not tell.
    Unclear,
}

/// Whom the kernel has a socket hear. (ip_mc_sf_allow looks for a membership on the link, inet6_mc_check for one on any.)
pub(super) fn heard(fd: c_int, group: IpAddr, link: LinkId, links: impl Iterator<Item = LinkId>) -> Hears {
    let member = match group {
        IpAddr::V4(_) => filter_on(fd, group, link),
        IpAddr::V6(_) => {
            let mut filters = links.filter_map(|link| filter_on(fd, group, link));
            let first = filters.next();
            if first.is_some() && filters.any(|other| Some(&other) != first.as_ref()) {
                return Hears::Unclear;
            }
            first
        }
    };
    match member {
        Some(filter) if filter.is_none() => Hears::Nobody,
        Some(filter) => Hears::As(filter),
        None if hears_all(fd, group) => Hears::WhatMembersDo,
        None => Hears::Nobody,
    }
}

/// The filter that a socket has for a group on a link. `None`: it is no member there.
pub(super) fn filter_on(fd: c_int, group: IpAddr, link: LinkId) -> Option<SourceFilter> {
    let (mut bytes, count) = ask(fd, group, link, SOURCES_FIRST)?;
    if count > SOURCES_FIRST {
        bytes = ask(fd, group, link, count)?.0;
    }
    let sources = bytes[SOURCES_AT..].chunks_exact(ADDRESS_LEN).take(count).filter_map(|source| match group {
        IpAddr::V4(_) => v4_at(source, V4_AT - GROUP_AT).map(IpAddr::V4),
        IpAddr::V6(_) => v6_at(source, V6_AT - GROUP_AT).map(IpAddr::V6),
    });
    let sources: BTreeSet<IpAddr> = sources.collect();
    let mode = u32_at(&bytes, MODE_AT);
    Some(if mode == MCAST_INCLUDE { SourceFilter::Include(sources) } else { SourceFilter::Exclude(sources) })
}

/// `struct group_filter` with room for so many sources, filled in, and how many there are.
fn ask(fd: c_int, group: IpAddr, link: LinkId, room: usize) -> Option<(Vec<u8>, usize)> {
    let mut bytes = vec![0; SOURCES_AT + room * ADDRESS_LEN];
    bytes[..4].copy_from_slice(&link.0.to_ne_bytes());
    let level = match group {
        IpAddr::V4(group) => {
            put_address(&mut bytes, libc::AF_INET, V4_AT, &group.octets());
            libc::IPPROTO_IP
        }
        IpAddr::V6(group) => {
            put_address(&mut bytes, libc::AF_INET6, V6_AT, &group.octets());
            libc::IPPROTO_IPV6
        }
    };
    bytes[COUNT_AT..COUNT_AT + 4].copy_from_slice(&(room as u32).to_ne_bytes());
    let mut len = bytes.len() as socklen_t;
    // SAFETY: so many bytes are there.
    let asked = unsafe { real::getsockopt(fd, level, MCAST_MSFILTER, bytes.as_mut_ptr().cast(), &raw mut len) };
    let count = u32_at(&bytes, COUNT_AT) as usize;
    (asked == 0).then_some((bytes, count))
}

fn put_address(bytes: &mut [u8], family: c_int, at: usize, address: &[u8]) {
    bytes[GROUP_AT..GROUP_AT + 2].copy_from_slice(&(family as libc::sa_family_t).to_ne_bytes());
    bytes[at..at + address.len()].copy_from_slice(address);
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

fn hears_all(fd: c_int, group: IpAddr) -> bool {
    let (level, name) = match group {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL),
    };
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: the value is as long as it says.
    let asked = unsafe { real::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    // (An older kernel has it so, and no option.)
    asked != 0 || value != 0
}

/// No address of a group's family.
pub(super) const fn any_of(group: IpAddr) -> IpAddr {
    match group {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd as _;

    use super::*;

    /// The loopback interface, which is the first of each network namespace.
    const LO: LinkId = LinkId(1);

    fn heard_by(socket: &UdpSocket, group: IpAddr) -> Hears {
        heard(socket.as_raw_fd(), group, LO, [LO].into_iter())
    }

    fn set(socket: &UdpSocket, level: c_int, name: c_int, value: &[u8]) {
        // SAFETY: so many bytes are there.
        let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), value.len() as socklen_t) };
        assert_eq!(set, 0, "{:?}", std::io::Error::last_os_error());
    }

    #[test]
    fn the_kernel_says_whom_a_socket_hears() {
        let group = Ipv4Addr::new(239, 1, 2, 3);
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        assert_eq!(heard_by(&socket, group.into()), Hears::WhatMembersDo);
        set(&socket, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, &0_u32.to_ne_bytes());
        assert_eq!(heard_by(&socket, group.into()), Hears::Nobody);
        socket.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST).unwrap();
        assert_eq!(heard_by(&socket, group.into()), Hears::As(SourceFilter::ANY));
        // struct ip_mreq_source.
        let source = |last: u8| [group.octets(), [127, 0, 0, 1], [10, 0, 0, last]].concat();
        set(&socket, libc::IPPROTO_IP, libc::IP_BLOCK_SOURCE, &source(7));
        let sources = |all: &[u8]| all.iter().map(|&last| IpAddr::from([10, 0, 0, last])).collect::<BTreeSet<_>>();
        assert_eq!(heard_by(&socket, group.into()), Hears::As(SourceFilter::Exclude(sources(&[7]))));
        socket.leave_multicast_v4(&group, &Ipv4Addr::LOCALHOST).unwrap();
        assert_eq!(heard_by(&socket, group.into()), Hears::Nobody);
        for last in [7, 8] {
            set(&socket, libc::IPPROTO_IP, libc::IP_ADD_SOURCE_MEMBERSHIP, &source(last));
        }
        assert_eq!(heard_by(&socket, group.into()), Hears::As(SourceFilter::Include(sources(&[7, 8]))));
    }

    #[test]
    fn and_of_ipv6() {
        let group: Ipv6Addr = "ff15::7".parse().unwrap();
        let socket = UdpSocket::bind("[::]:0").unwrap();
        assert_eq!(heard_by(&socket, group.into()), Hears::WhatMembersDo);
        socket.join_multicast_v6(&group, LO.0).unwrap();
        assert_eq!(heard_by(&socket, group.into()), Hears::As(SourceFilter::ANY));
        // On another link it is none, and IPv6 does not mind.
        assert_eq!(filter_on(socket.as_raw_fd(), group.into(), LinkId(77)), None);
        assert_eq!(heard(socket.as_raw_fd(), group.into(), LinkId(77), [LinkId(77), LO].into_iter()), Hears::As(SourceFilter::ANY));
        // It takes IPv4's as well, of which it is asked apart. (Of those it hears only where it is a member: inet6_create leaves IP_MULTICAST_ALL off.)
        let of_v4 = Ipv4Addr::new(239, 1, 2, 3);
        assert_eq!(heard_by(&socket, of_v4.into()), Hears::Nobody);
        set(&socket, libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &[of_v4.octets(), [127, 0, 0, 1]].concat());
        assert_eq!(heard_by(&socket, of_v4.into()), Hears::As(SourceFilter::ANY));
    }
}
