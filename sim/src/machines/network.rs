//! Where machines are, and how they reach each other: a subnet for each link, and later a detour.

use std::net::{IpAddr, Ipv4Addr};

use ringway_stack::net::{Address, Builder, Link, LinkId, LinkKind, NextHop, Prefix, RouteEntry, RouteKind, Scope, Table, Tables};

/// A machine's links, from 0 on. In the tables, the first one is number 2, behind loopback.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    pub(super) machine: u8,
    pub(super) count: u8,
}

/// The peer's address on one link is reached over another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Detour {
    pub(super) to: u8,
    pub(super) over: u8,
}

impl Links {
    pub(super) fn own(self, link: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 1, link, 1 + self.machine))
    }

    pub(super) fn peer(self, link: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 1, link, 2 - self.machine))
    }

    pub(super) const fn id(link: u8) -> LinkId {
        LinkId(link as u32 + 2)
    }

    /// The link of a destination that is on it.
    pub(super) fn link_of(destination: IpAddr) -> u8 {
        match destination {
            IpAddr::V4(ip) => ip.octets()[2],
            IpAddr::V6(_) => 0,
        }
    }

    /// By which link a destination is reached.
    pub(super) fn over(destination: IpAddr, detour: Option<Detour>) -> u8 {
        let link = Self::link_of(destination);
        detour.filter(|detour| detour.to == link).map_or(link, |detour| detour.over)
    }

    /// What the machine's kernel would say.
    pub(super) fn tables(self, detour: Option<Detour>, generation: u64) -> Tables {
        let mut builder = Builder::default();
        builder.links.push(Link::new(1, "lo", LinkKind::Loopback));
        for link in 0..self.count {
            let (id, own) = (Self::id(link), self.own(link));
            builder.links.push(Link::new(id.0, &format!("eth{link}"), LinkKind::Ethernet));
            builder.addresses.push(Address::new(id, own, 24).expect("a prefix"));
            let base = RouteEntry { preferred_source: Some(own), ..RouteEntry::new(Prefix::host(own), NextHop::new(id, None)) };
            builder.routes.push(RouteEntry { table: Table::LOCAL, kind: RouteKind::Local, scope: Scope::HOST, ..base.clone() });
            builder.routes.push(RouteEntry { destination: Prefix::new(own, 24).expect("a prefix"), ..base });
        }
        if let Some(Detour { to, over }) = detour {
            let hop = NextHop::new(Self::id(over), None);
            let source = Some(self.own(over));
            builder.routes.push(RouteEntry { preferred_source: source, ..RouteEntry::new(Prefix::host(self.peer(to)), hop) });
        }
        builder.build(generation)
    }
}
