//! Names in the kernel's abstract Unix namespace. The user is in them, so users don't get in each other's way.

use std::net::SocketAddr;

use ringway_host::members;
use ringway_stack::device::Protocol;

/// How many members may have a rule for one address: workers that share a listener, or have SO_REUSEPORT.
pub(crate) const GROUP_MAX: usize = 16;

/// Of a rule's `place` in its group.
pub(crate) fn rule_at(uid: u32, protocol: Protocol, address: SocketAddr, place: usize) -> String {
    match place {
        0 => rule(uid, protocol, address),
        _ => format!("{}#{place}", rule(uid, protocol, address)),
    }
}

/// Of a rule.
pub(crate) fn rule(uid: u32, protocol: Protocol, address: impl Into<SocketAddr>) -> String {
    let protocol = match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    };
    format!("ringway/{uid}/{protocol}/{}", address.into())
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
