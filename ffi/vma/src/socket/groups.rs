//! Multicast, as far as a program has told the kernel of it: for statistics. (Groups are the kernel's.)

use std::net::Ipv4Addr;

use libc::c_int;

use super::Socket;

/// linux/in.h; libc has no names for them.
const MCAST_JOIN_GROUP: c_int = 42;
const MCAST_LEAVE_GROUP: c_int = 45;
const MCAST_JOIN_SOURCE_GROUP: c_int = 46;
const MCAST_LEAVE_SOURCE_GROUP: c_int = 47;

/// The groups of a socket, and the interface that it sends to groups by.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(crate) members: Vec<Ipv4Addr>,
    pub(crate) interface: Option<Ipv4Addr>,
}

/// The kernel has taken an option of the level IPPROTO_IP.
pub(super) fn note(socket: &mut Socket, name: c_int, value: &[u8]) {
    let at = |at: usize| value.get(at..at + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()).map(Ipv4Addr::from);
    // struct ip_mreq and its kin begin with the group; struct group_req and its kin have an interface's number and a sockaddr_in.
    let (group, joins) = match name {
        libc::IP_ADD_MEMBERSHIP | libc::IP_ADD_SOURCE_MEMBERSHIP => (at(0), true),
        libc::IP_DROP_MEMBERSHIP | libc::IP_DROP_SOURCE_MEMBERSHIP => (at(0), false),
        MCAST_JOIN_GROUP | MCAST_JOIN_SOURCE_GROUP => (at(12), true),
        MCAST_LEAVE_GROUP | MCAST_LEAVE_SOURCE_GROUP => (at(12), false),
        // An address alone, or (ip_mreqn) behind another one.
        libc::IP_MULTICAST_IF => {
            socket.rare().groups.interface = at(if value.len() >= 8 { 4 } else { 0 }).filter(|address| !address.is_unspecified());
            return;
        }
        libc::IP_MULTICAST_LOOP => {
            socket.udp.multicast_loop = value.iter().any(|&byte| byte != 0);
            return;
        }
        _ => return,
    };
    let Some(group) = group.filter(Ipv4Addr::is_multicast) else { return };
    let members = &mut socket.rare().groups.members;
    members.retain(|&member| member != group);
    if joins {
        members.push(group);
    }
}

#[cfg(test)]
mod tests {
    use ringway_stack::device::Protocol;
    use ringway_stack::tcp;

    use super::super::Family;
    use super::*;

    #[test]
    fn memberships_are_noted_in_each_of_their_forms() {
        let mut socket = Socket::new(-1, Family::V4, Protocol::Udp, false, tcp::Config::default());
        let (a, b) = ([239, 1, 1, 1], [239, 1, 1, 2]);
        let mreq = |group: [u8; 4]| [group, [127, 0, 0, 1]].concat();
        let group_req = |group: [u8; 4]| [&[0; 8][..], &[2, 0, 0, 0], &group, &[0; 120]].concat();
        note(&mut socket, libc::IP_ADD_MEMBERSHIP, &mreq(a));
        note(&mut socket, libc::IP_ADD_SOURCE_MEMBERSHIP, &mreq(a));
        note(&mut socket, MCAST_JOIN_GROUP, &group_req(b));
        assert_eq!(socket.rare().groups.members, [a, b].map(Ipv4Addr::from));
        note(&mut socket, libc::IP_DROP_MEMBERSHIP, &mreq(a));
        note(&mut socket, MCAST_LEAVE_GROUP, &group_req(b));
        note(&mut socket, libc::IP_ADD_MEMBERSHIP, &[239, 1]);
        note(&mut socket, libc::IP_TTL, &a);
        assert!(socket.rare().groups.members.is_empty());
        for (value, interface) in [
            (vec![127, 0, 0, 1], Some(Ipv4Addr::LOCALHOST)),
            ([a, [127, 0, 0, 1], [0; 4]].concat(), Some(Ipv4Addr::LOCALHOST)),
            (vec![0; 4], None),
        ] {
            note(&mut socket, libc::IP_MULTICAST_IF, &value);
            assert_eq!(socket.rare().groups.interface, interface);
        }
    }
}
