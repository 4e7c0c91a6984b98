//! An ordinary network, as an adapter on one of its host's links sees it: addresses, routes and path MTU are what the host's tables say.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::packet::datagram::OVERHEAD_MAX;
use super::qp::Mtu;
use crate::device::MacAddr;
use crate::net::{Delivery, Link, LinkId, Query, Tables};

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Network {
    link: LinkId,
    tables: Arc<Tables>,
}

impl Network {
    /// Of an adapter on that link, by these tables.
    pub const fn new(link: LinkId, tables: Arc<Tables>) -> Self {
        Self { link, tables }
    }

    pub(super) const fn tables(&self) -> &Arc<Tables> {
        &self.tables
    }

    pub(super) const fn link_id(&self) -> LinkId {
        self.link
    }

    fn link(&self) -> Option<&Link> {
        self.tables.link(self.link)
    }

    /// Whether the link is there, up, and has a carrier.
    pub fn is_running(&self) -> bool {
        self.link().is_some_and(Link::is_running)
    }

    /// The adapter's addresses, in the host's order. (Those of one link alone, fe80::/10, need their link's name beside them, which no rsocket has.)
    pub fn addresses(&self) -> Vec<IpAddr> {
        let is_of_link = |ip: IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let all = self.tables.addresses_of(self.link).iter();
        all.filter(|own| !own.is_tentative || own.is_optimistic).map(|own| own.address).filter(|ip| !is_of_link(*ip)).collect()
    }

    /// How much of a message goes into one packet on the link; `None`: its packets are too short for RoCE.
    pub fn mtu(&self) -> Option<Mtu> {
        mtu_of(self.link()?.mtu)
    }

    /// Whether `to` is reached by this link.
    pub fn leads_to(&self, to: IpAddr) -> bool {
        self.way(None, to).is_some()
    }

    /// From which address `to` is reached by this link, and how much of a message goes into one packet there. `from`: if that is given. `None`: it is not, or only the
    /// kernel knows.
    pub(super) fn way(&self, from: Option<IpAddr>, to: IpAddr) -> Option<(IpAddr, Mtu)> {
        let route = self.tables.route(&Query { source: from, protocol: 17, ..Query::to(to) }).ok()?;
        let is_ours = route.link == self.link && route.delivery == Delivery::Unicast && self.is_running();
        let mtu = mtu_of(route.mtu.min(self.link()?.mtu))?;
        is_ours.then_some((route.source, mtu))
    }
}

/// The longest payload whose packet, with all headers, is no longer than a link's or a route's packets.
fn mtu_of(packet: u32) -> Option<Mtu> {
    Mtu::ALL.into_iter().rev().find(|mtu| mtu.bytes() + OVERHEAD_MAX as u32 <= packet)
}

/// The Ethernet address that stands for a group (RFC 1112 s6.4, RFC 2464 s7); `None`: it is no group.
pub fn group_mac(to: IpAddr) -> Option<MacAddr> {
    fn v4(group: Ipv4Addr) -> [u8; 6] {
        let [_, b, c, d] = group.octets();
        [0x01, 0x00, 0x5e, b & 0x7f, c, d]
    }
    fn v6(group: Ipv6Addr) -> [u8; 6] {
        let [.., a, b, c, d] = group.octets();
        [0x33, 0x33, a, b, c, d]
    }
    to.is_multicast().then(|| {
        MacAddr(match to {
            IpAddr::V4(group) => v4(group),
            IpAddr::V6(group) => v6(group),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_holds_as_much_as_fits_behind_all_headers() {
        let of = |packet| mtu_of(packet).map(Mtu::bytes);
        assert_eq!([1500, 4200, 9000, 65_535].map(of), [1024, 4096, 4096, 4096].map(Some));
        assert_eq!([1024 + OVERHEAD_MAX as u32, 1023 + OVERHEAD_MAX as u32, 576].map(of), [1024, 512, 256].map(Some));
        assert_eq!([0, 350].map(of), [None; 2]);
    }

    #[test]
    fn groups_have_ethernet_addresses_of_their_own() {
        let of = |ip: &str| group_mac(ip.parse().unwrap()).map(|mac| mac.0);
        // RFC 1112 s6.4: the low 23 bits; RFC 2464 s7: the low 32.
        assert_eq!(of("224.129.2.3"), Some([0x01, 0x00, 0x5e, 0x01, 2, 3]));
        assert_eq!(of("ff02::1:ff0e:8c6c"), Some([0x33, 0x33, 0xff, 0x0e, 0x8c, 0x6c]));
        assert_eq!([of("10.0.0.1"), of("fe80::1")], [None; 2]);
    }
}
