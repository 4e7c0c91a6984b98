//! Routing, source addresses and changes on tables made by hand; and against a model that scans everything.

mod changes;
mod model;
mod route;
mod source;

use core::net::IpAddr;

use super::*;

/// Links with addresses, written as ip(8) prints them.
fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn net(text: &str) -> Prefix {
    let (address, length) = text.split_once('/').expect("a prefix");
    Prefix::new(ip(address), length.parse().expect("a length")).expect("a prefix")
}

/// Loopback, and links 2 and 3 with one subnet of each family, and the routes that a kernel makes for that.
fn two_links() -> Builder {
    let mut builder = Builder::default();
    builder.links.push(Link { mtu: 65_536, ..Link::new(1, "lo", LinkKind::Loopback) });
    builder.links.extend([Link::new(2, "eth0", LinkKind::Ethernet), Link::new(3, "eth1", LinkKind::Ethernet)]);
    for (link, own) in
        [(1, "127.0.0.1/8"), (1, "::1/128"), (2, "10.0.2.1/24"), (3, "10.0.3.1/24"), (2, "fd00:2::1/64"), (3, "fd00:3::1/64")]
    {
        add_address(&mut builder, link, own);
    }
    builder
}

/// Adds an address and what comes with it: a route to itself, and one to its subnet.
fn add_address(builder: &mut Builder, link: u32, text: &str) {
    let (address, length) = text.split_once('/').expect("a prefix");
    let (link, address) = (LinkId(link), ip(address));
    builder.addresses.push(Address::new(link, address, length.parse().expect("a length")).expect("an address"));
    let prefix = net(text);
    let source = Some(address).filter(IpAddr::is_ipv4);
    let local = if address.is_loopback() { prefix } else { Prefix::host(address) };
    let hop = NextHop::new(link, None);
    let base = RouteEntry { preferred_source: source, ..RouteEntry::new(local, hop) };
    builder.routes.push(RouteEntry { table: Table::LOCAL, kind: RouteKind::Local, scope: Scope::HOST, ..base.clone() });
    if address.is_ipv4() && !address.is_loopback() {
        let broadcast = Prefix::host(prefix.last());
        builder.routes.push(RouteEntry { table: Table::LOCAL, kind: RouteKind::Broadcast, destination: broadcast, ..base.clone() });
    }
    if !address.is_loopback() {
        builder.routes.push(RouteEntry { destination: prefix, ..base });
    }
}

fn via(destination: &str, link: u32, gateway: &str) -> RouteEntry {
    RouteEntry::new(net(destination), NextHop::new(LinkId(link), Some(ip(gateway))))
}

/// What a test looks at of a route.
fn brief(route: Result<Route, Unroutable>) -> Result<(u32, IpAddr, Option<IpAddr>), Unroutable> {
    route.map(|route| (route.link.0, route.source, route.next_hop))
}
