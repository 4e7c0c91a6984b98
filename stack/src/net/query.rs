//! What is asked of a snapshot, and the answer.

use core::net::IpAddr;

use super::address::Scope;
use super::link::LinkId;

/// A flow, as far as its route depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Where to. An IPv4-mapped address is to be unmapped before. The unspecified address is this host (RFC 1122 s3.2.1.3 (a), and Linux).
    pub destination: IpAddr,
    /// From which address; `None`, or the unspecified one: that is to be chosen.
    pub source: Option<IpAddr>,
    /// The link that the socket is bound to (SO_BINDTODEVICE), that a multicast option names (IP_MULTICAST_IF), or that is a link-local
    /// address's scope (`sin6_scope_id`).
    pub link: Option<LinkId>,
    /// The type of service or traffic class, all eight bits (IP_TOS, IPV6_TCLASS).
    pub tos: u8,
    /// The socket's mark (SO_MARK).
    pub mark: u32,
    /// The socket's owner.
    pub uid: u32,
    /// The protocol's number (6 TCP, 17 UDP).
    pub protocol: u8,
    /// The socket's port; 0: not bound yet.
    pub source_port: u16,
    /// The peer's port.
    pub destination_port: u16,
}

impl Query {
    /// A packet without any peculiarity.
    pub const fn to(destination: IpAddr) -> Self {
        Self { destination, source: None, link: None, tos: 0, mark: 0, uid: 0, protocol: 0, source_port: 0, destination_port: 0 }
    }

    /// The source, if it is chosen.
    pub(crate) fn given_source(&self) -> Option<IpAddr> {
        self.source.filter(|source| !source.is_unspecified())
    }

    /// The same for all packets of a flow, and much different for another flow (RFC 2992 s2: flows stay on their path).
    pub(crate) fn flow_hash(&self) -> u32 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut add = |word: u64| {
            // The finaliser of SplitMix64: every bit of the result depends on every bit before.
            hash ^= word;
            hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            hash ^= hash >> 31;
        };
        for address in [Some(self.destination), self.given_source()] {
            let bits = address.map_or(0, super::prefix::bits_of);
            add((bits >> 64) as u64);
            add(bits as u64);
        }
        add(u64::from(self.protocol) << 32 | u64::from(self.source_port) << 16 | u64::from(self.destination_port));
        (hash >> 32) as u32
    }
}

/// How a packet is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// To one host.
    Unicast,
    /// To this host itself.
    Local,
    /// To all on the link.
    Broadcast,
    /// To a group's members.
    Multicast,
}

/// How a destination is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Over which link; the loopback link for this host's own addresses.
    pub link: LinkId,
    /// From which address.
    pub source: IpAddr,
    /// By which router; `None`: the destination itself is on the link.
    pub next_hop: Option<IpAddr>,
    /// The longest packet, in bytes: the route's, or else the link's. What the path is found to carry less is not in it.
    pub mtu: u32,
    /// How far the destination is.
    pub scope: Scope,
    /// To whom.
    pub delivery: Delivery,
}

impl Route {
    /// Whose link-layer address a frame to `destination` is sent to.
    pub fn neighbour(&self, destination: IpAddr) -> IpAddr {
        self.next_hop.unwrap_or(destination)
    }
}

/// Why a destination cannot be reached, or not by a snapshot alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unroutable {
    /// No route matches, or a rule says so (ENETUNREACH).
    #[error("network is unreachable: no route to the destination")]
    NoRoute,
    /// An `unreachable` route (EHOSTUNREACH).
    #[error("host is unreachable: an `unreachable` route matches")]
    Unreachable,
    /// A `prohibit` route or rule (EACCES).
    #[error("a `prohibit` route or rule matches")]
    Prohibited,
    /// A `blackhole` route or rule (EINVAL).
    #[error("a `blackhole` route or rule matches")]
    Blackhole,
    /// The program: there is no such link (ENODEV).
    #[error("no such link")]
    UnknownLink,
    /// The link that the socket is bound to is down (ENETUNREACH).
    #[error("the link that was asked for is down")]
    LinkDown,
    /// The program: the source is not an address of this host (ENETUNREACH; EINVAL in older kernels).
    #[error("the source is not an address of this host")]
    ForeignSource,
    /// The program: no packet, or none on that link, may have that source (EINVAL).
    #[error("the source address cannot be used")]
    InvalidSource,
    /// The program: no packet may have that destination, or it is of another family than the source (EINVAL).
    #[error("the destination address cannot be used")]
    InvalidDestination,
    /// No link has an address that would do as source (EADDRNOTAVAIL).
    #[error("no link has an address to send from")]
    NoSource,
    /// Only the kernel knows: the rule of that priority asks for what a snapshot does not have.
    #[error("rule {priority} depends on what only the kernel knows")]
    Opaque {
        /// Which rule.
        priority: u32,
    },
    /// Only the kernel can: the route gives packets another header (a tunnel, MPLS, segment routing).
    #[error("the route leads through a tunnel of the kernel's")]
    Encapsulated,
}

impl Unroutable {
    /// What the kernel's connect(2) says then; `None`: it may well have a route.
    pub const fn errno(self) -> Option<i32> {
        match self {
            Self::NoRoute | Self::LinkDown | Self::ForeignSource => Some(101),
            Self::Unreachable => Some(113),
            Self::Prohibited => Some(13),
            Self::Blackhole | Self::InvalidSource | Self::InvalidDestination => Some(22),
            Self::UnknownLink => Some(19),
            Self::NoSource => Some(99),
            Self::Opaque { .. } | Self::Encapsulated => None,
        }
    }
}
