//! Groups: which of them a program has told the kernel of, for each socket, and the interface that it sends to groups by.
//!
//! The kernel's half of a socket is the member, and the kernel alone tells routers. On shared memory that is all. On an interface, what comes for a group that this
//! process alone hears on the machine comes by a ring ([`claims`]), as the kernel's half would hear it ([`membership`]). What is sent to a group is the kernel's to
//! send: so time to live, IP_MULTICAST_IF and IP_MULTICAST_LOOP are as ever, and members on this machine get their copies by the kernel.

pub(crate) mod claims;
mod hearers;
mod membership;
mod taking;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libc::c_int;

use super::Socket;

/// linux/in.h; libc has no names for them.
const IP_MSFILTER: c_int = 41;
const MCAST_JOIN_GROUP: c_int = 42;
const MCAST_BLOCK_SOURCE: c_int = 43;
const MCAST_UNBLOCK_SOURCE: c_int = 44;
const MCAST_LEAVE_GROUP: c_int = 45;
const MCAST_JOIN_SOURCE_GROUP: c_int = 46;
const MCAST_LEAVE_SOURCE_GROUP: c_int = 47;
const MCAST_MSFILTER: c_int = 48;

/// Where `struct group_req` and its kin have the group's `sockaddr`, and where the address is in that of IPv4 and that of IPv6.
const GROUP_AT: usize = 8;
const V4_AT: usize = GROUP_AT + 4;
const V6_AT: usize = GROUP_AT + 8;

/// The groups of a socket, and the interface that it sends to groups by.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Groups that it is a member of, as it has said.
    pub(crate) members: Vec<IpAddr>,
    pub(crate) interface: Option<Ipv4Addr>,
    /// Groups that it was ever told anything about. (On which links it is a member, and whom it hears there, the kernel is asked.)
    named: Vec<IpAddr>,
    /// What a ring has for it came before what the kernel has: a group was the ring's, and is no more.
    pub(crate) reads_ring_first: bool,
}

/// What an option says of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Join,
    Leave,
    /// Of whose datagrams it hears.
    Filter,
}

/// The kernel has taken an option. Whether that concerns who hears a group.
pub(super) fn note(socket: &mut Socket, (level, name): (c_int, c_int), value: &[u8]) -> bool {
    match (level, name) {
        // An address alone, or (ip_mreqn) behind another one.
        (libc::IPPROTO_IP, libc::IP_MULTICAST_IF) => {
            let address = v4_at(value, if value.len() >= 8 { 4 } else { 0 });
            socket.rare().groups.interface = address.filter(|address| !address.is_unspecified());
            return false;
        }
        (libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP) => {
            socket.udp.multicast_loop = value.iter().any(|&byte| byte != 0);
            return false;
        }
        (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL) | (libc::IPPROTO_IPV6, membership::IPV6_MULTICAST_ALL) => return true,
        _ => {}
    }
    let Some((group, wish)) = wish(level, name, value).filter(|(group, _)| group.is_multicast()) else { return false };
    let groups = &mut socket.rare().groups;
    if wish != Wish::Filter {
        groups.members.retain(|&member| member != group);
    }
    if wish == Wish::Join {
        groups.members.push(group);
    }
    if !groups.named.contains(&group) {
        groups.named.push(group);
    }
    true
}

fn wish(level: c_int, name: c_int, value: &[u8]) -> Option<(IpAddr, Wish)> {
    let v4 = |at| v4_at(value, at).map(IpAddr::V4);
    let v6 = |at| v6_at(value, at).map(IpAddr::V6);
    let in_group_req = || if level == libc::IPPROTO_IP { v4(V4_AT) } else { v6(V6_AT) };
    let (group, wish) = match (level, name) {
        // struct ip_mreq and its kin begin with the group, and so does struct ipv6_mreq.
        (libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP | libc::IP_ADD_SOURCE_MEMBERSHIP) => (v4(0), Wish::Join),
        (libc::IPPROTO_IP, libc::IP_DROP_MEMBERSHIP | libc::IP_DROP_SOURCE_MEMBERSHIP) => (v4(0), Wish::Leave),
        (libc::IPPROTO_IP, libc::IP_BLOCK_SOURCE | libc::IP_UNBLOCK_SOURCE | IP_MSFILTER) => (v4(0), Wish::Filter),
        (libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP) => (v6(0), Wish::Join),
        (libc::IPPROTO_IPV6, libc::IPV6_DROP_MEMBERSHIP) => (v6(0), Wish::Leave),
        // struct group_req and its kin have an interface's number and the address of either family.
        (libc::IPPROTO_IP | libc::IPPROTO_IPV6, MCAST_JOIN_GROUP | MCAST_JOIN_SOURCE_GROUP) => (in_group_req(), Wish::Join),
        (libc::IPPROTO_IP | libc::IPPROTO_IPV6, MCAST_LEAVE_GROUP | MCAST_LEAVE_SOURCE_GROUP) => (in_group_req(), Wish::Leave),
        (libc::IPPROTO_IP | libc::IPPROTO_IPV6, MCAST_BLOCK_SOURCE | MCAST_UNBLOCK_SOURCE | MCAST_MSFILTER) => {
            (in_group_req(), Wish::Filter)
        }
        _ => return None,
    };
    Some((group?, wish))
}

fn v4_at(value: &[u8], at: usize) -> Option<Ipv4Addr> {
    value.get(at..)?.first_chunk::<4>().map(|bytes| Ipv4Addr::from(*bytes))
}

fn v6_at(value: &[u8], at: usize) -> Option<Ipv6Addr> {
    value.get(at..)?.first_chunk::<16>().map(|bytes| Ipv6Addr::from(*bytes))
}

#[cfg(test)]
mod tests {
    use ringway_stack::device::Protocol;
    use ringway_stack::tcp;

    use super::super::Family;
    use super::*;

    const IP: c_int = libc::IPPROTO_IP;
    const IPV6: c_int = libc::IPPROTO_IPV6;

    #[test]
    fn memberships_are_noted_in_each_of_their_forms() {
        let mut socket = Socket::new(-1, Family::V4, Protocol::Udp, false, tcp::Config::default());
        let (a, b) = ([239, 1, 1, 1], [239, 1, 1, 2]);
        let c: Ipv6Addr = "ff15::7".parse().unwrap();
        let mreq = |group: [u8; 4]| [group, [127, 0, 0, 1]].concat();
        let mreq_v6 = || [&c.octets()[..], &[0; 4]].concat();
        let group_req = |group: [u8; 4]| [&[0; 8][..], &[2, 0, 0, 0], &group, &[0; 120]].concat();
        let group_req_v6 = || [&[0; 8][..], &[10, 0, 0, 0, 0, 0, 0, 0], &c.octets(), &[0; 104]].concat();
        assert!(note(&mut socket, (IP, libc::IP_ADD_MEMBERSHIP), &mreq(a)));
        assert!(note(&mut socket, (IP, libc::IP_ADD_SOURCE_MEMBERSHIP), &mreq(a)));
        assert!(note(&mut socket, (IP, MCAST_JOIN_GROUP), &group_req(b)));
        assert!(note(&mut socket, (IPV6, libc::IPV6_ADD_MEMBERSHIP), &mreq_v6()));
        assert!(note(&mut socket, (IPV6, MCAST_MSFILTER), &group_req_v6()));
        assert_eq!(socket.rare().groups.members, [a.into(), b.into(), IpAddr::V6(c)]);
        assert!(note(&mut socket, (IP, libc::IP_DROP_MEMBERSHIP), &mreq(a)));
        assert!(note(&mut socket, (IP, MCAST_LEAVE_GROUP), &group_req(b)));
        assert!(note(&mut socket, (IPV6, MCAST_LEAVE_SOURCE_GROUP), &group_req_v6()));
        assert!(!note(&mut socket, (IP, libc::IP_ADD_MEMBERSHIP), &[239, 1]));
        assert!(!note(&mut socket, (IP, libc::IP_TTL), &a));
        assert!(!note(&mut socket, (IPV6, libc::IP_ADD_MEMBERSHIP), &mreq(a)));
        assert!(socket.rare().groups.members.is_empty());
        assert_eq!(socket.rare().groups.named, [a.into(), b.into(), IpAddr::V6(c)]);
        for (value, interface) in [
            (vec![127, 0, 0, 1], Some(Ipv4Addr::LOCALHOST)),
            ([a, [127, 0, 0, 1], [0; 4]].concat(), Some(Ipv4Addr::LOCALHOST)),
            (vec![0; 4], None),
        ] {
            note(&mut socket, (IP, libc::IP_MULTICAST_IF), &value);
            assert_eq!(socket.rare().groups.interface, interface);
        }
    }
}
