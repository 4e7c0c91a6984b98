//! Names in the kernel's abstract Unix namespace. The user is in them, so users don't get in each other's way.

use std::net::SocketAddr;

use ringway_host::members;
use ringway_stack::device::Protocol;

use crate::settings::Ports;

/// How many members may have a rule for one address: workers that share a listener, or have SO_REUSEPORT.
pub(crate) const GROUP_MAX: usize = 16;

/// Among whose rules one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whose {
    pub(crate) uid: u32,
    pub(crate) ports: Ports,
}

impl From<u32> for Whose {
    /// That user's sockets.
    fn from(uid: u32) -> Self {
        Self { uid, ports: Ports::Sockets }
    }
}

/// Of a rule's `place` in its group.
pub(crate) fn rule_at(whose: impl Into<Whose>, protocol: Protocol, address: SocketAddr, place: usize) -> String {
    match place {
        0 => rule(whose, protocol, address),
        _ => format!("{}#{place}", rule(whose, protocol, address)),
    }
}

/// Of a rule.
pub(crate) fn rule(whose: impl Into<Whose>, protocol: Protocol, address: impl Into<SocketAddr>) -> String {
    let protocol = match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    };
    let whose = whose.into();
    let space = match whose.ports {
        Ports::Sockets => "",
        Ports::RdmaCm => "rdma-",
    };
    format!("ringway/{}/{space}{protocol}/{}", whose.uid, address.into())
}

/// Of a rule beside which the kernel has a socket: whoever asked the kernel for a datagram's receiver finds its member by that.
pub(crate) fn socket(uid: u32, cookie: u64) -> String {
    format!("ringway/{uid}/socket/{cookie}")
}

/// Of a member's control socket.
pub(crate) fn member(uid: u32, pid: i32, id: u64) -> String {
    format!("{}{pid}-{id:016x}", members::prefix(uid))
}

/// Of the socket where a member is talked to: by whoever knows its id, which nobody can guess, and so nobody can be there before it.
pub(crate) fn dialogues(uid: u32, id: u64) -> String {
    format!("ringway/{uid}/dialogue/{id:016x}")
}
