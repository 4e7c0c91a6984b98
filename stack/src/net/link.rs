//! Links: interfaces, as netdevice(7) and rtnetlink(7) describe them.

use core::fmt;

use arrayvec::ArrayVec;

/// An interface's index (netdevice(7), SIOCGIFINDEX): unique in its network namespace, not used again soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {}", self.0)
    }
}

/// The longest link-layer address that Linux has (`MAX_ADDR_LEN`).
pub const LINK_ADDRESS_MAX: usize = 32;

/// A link-layer address: 6 bytes on Ethernet, 20 on InfiniBand (RFC 4391 s9.1.1), none on tunnels.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LinkAddress(ArrayVec<u8, LINK_ADDRESS_MAX>);

impl LinkAddress {
    /// `None`: longer than any link's.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        ArrayVec::try_from(bytes).ok().map(Self)
    }

    /// As it stands in frames.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// As an Ethernet address; `None`: it is none.
    pub fn ethernet(&self) -> Option<[u8; 6]> {
        self.0.as_slice().try_into().ok()
    }
}

impl fmt::Display for LinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let colon = if i == 0 { "" } else { ":" };
            write!(f, "{colon}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for LinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What stands behind a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// The loopback interface.
    Loopback,
    /// A NIC, or whatever calls itself Ethernet and nothing else.
    Ethernet,
    /// IP over InfiniBand (RFC 4391).
    InfiniBand,
    /// A VLAN of another link, [`Link::parent`] (IEEE 802.1Q s9).
    Vlan {
        /// The VLAN identifier, 12 bits.
        id: u16,
        /// The tag protocol identifier: 0x8100, or 0x88a8 for a service VLAN.
        protocol: u16,
    },
    /// Several links as one: those whose [`Link::master`] it is.
    Bond {
        /// Which algorithm (`BOND_MODE_*`: 0 round robin, 1 active-backup, 4 IEEE 802.3ad...).
        mode: u8,
        /// The one that carries traffic, in the modes that have one.
        active: Option<LinkId>,
    },
    /// A bridge of links, whose [`Link::master`] it is.
    Bridge,
    /// A VRF: sockets bound to it or to its members are routed by its own table.
    Vrf {
        /// Its table.
        table: u32,
    },
    /// Anything else, by the kernel's name for it (`veth`, `tun`, `macvlan`...).
    Other(Box<str>),
}

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub id: LinkId,
    /// Its name, of at most 15 bytes.
    pub name: Box<str>,
    /// What it is.
    pub kind: LinkKind,
    /// Whether somebody set it up (IFF_UP). Routes over a link that is down do not exist.
    pub is_up: bool,
    /// Whether it has a carrier (IFF_LOWER_UP). Without one, routes stay and packets are lost.
    pub has_carrier: bool,
    /// The longest packet, in bytes, IP header and all.
    pub mtu: u32,
    /// The same for IPv6, where a router advertised less (RFC 4861 s4.6.4).
    pub mtu_v6: Option<u32>,
    /// Its own link-layer address.
    pub address: LinkAddress,
    /// Its link-layer broadcast address.
    pub broadcast: LinkAddress,
    /// The link below: a VLAN's, a macvlan's. (The other end's index in its own namespace, for a veth.)
    pub parent: Option<LinkId>,
    /// The bond, bridge or VRF that it is a member of.
    pub master: Option<LinkId>,
    /// Whether temporary addresses are preferred as source (RFC 8981; `use_tempaddr` is 2 or more).
    pub prefers_temporary: bool,
}

impl Link {
    /// A link that is up and has a carrier, of 1500 bytes.
    pub fn new(id: u32, name: &str, kind: LinkKind) -> Self {
        Self {
            id: LinkId(id),
            name: name.into(),
            kind,
            is_up: true,
            has_carrier: true,
            mtu: 1500,
            mtu_v6: None,
            address: LinkAddress::default(),
            broadcast: LinkAddress::default(),
            parent: None,
            master: None,
            prefers_temporary: false,
        }
    }

    /// Whether packets on it reach this host alone.
    pub fn is_loopback(&self) -> bool {
        self.kind == LinkKind::Loopback
    }

    /// Whether a packet sent on it goes anywhere.
    pub const fn is_running(&self) -> bool {
        self.is_up && self.has_carrier
    }
}
