//! Flow rules: which frames are steered to a ring.

use std::net::SocketAddrV4;

/// The transport protocol of a rule or a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// IP protocol 6.
    Tcp,
    /// IP protocol 17.
    Udp,
}

/// Matches IPv4 frames by protocol and local address, and by the remote address where one is named.
///
/// A rule with a remote address is more specific than one without, and a rule with a local IP than one with
/// `0.0.0.0`; the most specific one wins. (Ethernet, VLAN, ToS, VXLAN and flow-tag fields join with the devices that
/// steer by them.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowRule {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Destination of the frames: our side. `0.0.0.0` matches every local address.
    pub local: SocketAddrV4,
    /// Source of the frames: the peer. `None` matches every peer.
    pub remote: Option<SocketAddrV4>,
}

/// Names an attached rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleId(pub u64);

/// Why a rule was not attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Another ring (perhaps another process) holds it.
    #[error("another ring holds this flow rule")]
    Taken,
    /// The device's table is full, or the system refused a resource.
    #[error("no room for another flow rule")]
    Full,
}
