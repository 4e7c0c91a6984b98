//! Which link and next hop.

use super::*;

fn route(builder: &Builder, destination: &str) -> Result<(u32, IpAddr, Option<IpAddr>), Unroutable> {
    brief(builder.clone().build(1).route(&Query::to(ip(destination))))
}

#[test]
fn a_neighbour_is_on_its_link_and_an_own_address_on_loopback() {
    let tables = two_links().build(1);
    let on_link = tables.route(&Query::to(ip("10.0.3.9"))).expect("on the link");
    let wanted =
        Route { link: LinkId(3), source: ip("10.0.3.1"), next_hop: None, mtu: 1500, scope: Scope::LINK, delivery: Delivery::Unicast };
    assert_eq!(on_link, wanted);
    assert_eq!(on_link.neighbour(ip("10.0.3.9")), ip("10.0.3.9"));
    for own in ["10.0.3.1", "fd00:2::1", "127.4.4.4", "::1"] {
        let own = ip(own);
        let route = tables.route(&Query::to(own)).expect("this host");
        assert_eq!((route.link, route.source, route.delivery, route.scope), (LinkId(1), own_source(own), Delivery::Local, Scope::HOST));
        assert!(tables.is_local(own));
    }
    assert!(!tables.is_local(ip("10.0.3.9")) && !tables.is_local(ip("fd00:2::2")));
}

/// 127.0.0.1 speaks for 127.0.0.0/8.
fn own_source(own: IpAddr) -> IpAddr {
    if own == ip("127.4.4.4") { ip("127.0.0.1") } else { own }
}

#[test]
fn the_unspecified_address_is_this_host() {
    let tables = two_links().build(1);
    assert_eq!(brief(tables.route(&Query::to(ip("0.0.0.0")))), Ok((1, ip("127.0.0.1"), None)));
    assert_eq!(brief(tables.route(&Query::to(ip("::")))), Ok((1, ip("::1"), None)));
    let from = Query { source: Some(ip("10.0.2.1")), ..Query::to(ip("0.0.0.0")) };
    assert_eq!(brief(tables.route(&from)), Ok((1, ip("10.0.2.1"), None)));
}

#[test]
fn the_longest_prefix_and_then_the_least_metric() {
    let mut builder = two_links();
    builder.routes.extend([via("0.0.0.0/0", 2, "10.0.2.254"), via("10.8.0.0/16", 3, "10.0.3.254")]);
    builder.routes.push(RouteEntry { metric: 9, ..via("10.8.7.0/24", 2, "10.0.2.9") });
    builder.routes.push(RouteEntry { metric: 5, ..via("10.8.7.0/24", 2, "10.0.2.5") });
    let gateway = |destination| route(&builder, destination).expect("a route").2;
    assert_eq!(gateway("192.0.2.1"), Some(ip("10.0.2.254")));
    assert_eq!(gateway("10.8.6.1"), Some(ip("10.0.3.254")));
    assert_eq!(gateway("10.8.7.1"), Some(ip("10.0.2.5")));
}

#[test]
fn a_type_of_service_has_routes_of_its_own() {
    let mut builder = two_links();
    builder.routes.push(via("0.0.0.0/0", 2, "10.0.2.254"));
    builder.routes.push(RouteEntry { tos: 0x10, metric: 7, ..via("0.0.0.0/0", 3, "10.0.3.254") });
    let tables = builder.build(1);
    let of = |tos| tables.route(&Query { tos, ..Query::to(ip("192.0.2.1")) }).map(|route| route.link.0);
    // (RFC 3168: the last two bits are none of it.)
    assert_eq!([of(0), of(0x10), of(0x13), of(0x08)], [Ok(2), Ok(3), Ok(3), Ok(2)]);
}

#[test]
fn a_route_that_ends_says_why() {
    let kinds = [
        (RouteKind::Unreachable, Unroutable::Unreachable, 113),
        (RouteKind::Blackhole, Unroutable::Blackhole, 22),
        (RouteKind::Prohibit, Unroutable::Prohibited, 13),
        (RouteKind::Throw, Unroutable::NoRoute, 101),
    ];
    for (kind, why, errno) in kinds {
        for destination in ["10.8.0.0/16", "fd00:8::/32"] {
            let mut builder = two_links();
            builder.routes.push(RouteEntry::ending(net(destination), kind));
            let within = net(destination).last().to_string();
            assert_eq!(route(&builder, &within), Err(why));
            assert_eq!(why.errno(), Some(errno));
        }
    }
    assert_eq!(route(&two_links(), "192.0.2.1"), Err(Unroutable::NoRoute));
    assert_eq!(route(&two_links(), "2001:db8::1"), Err(Unroutable::NoRoute));
}

#[test]
fn the_routes_mtu_goes_before_the_links() {
    let mut builder = two_links();
    builder.links[1].mtu = 9000;
    builder.links[1].mtu_v6 = Some(1280);
    builder.routes.push(RouteEntry { mtu: Some(1400), ..via("10.8.0.0/16", 2, "10.0.2.9") });
    let tables = builder.build(1);
    let mtu = |destination| tables.route(&Query::to(ip(destination))).map(|route| route.mtu);
    assert_eq!([mtu("10.8.1.1"), mtu("10.0.2.7"), mtu("fd00:2::7")], [Ok(1400), Ok(9000), Ok(1280)]);
    // RFC 791: no IPv4 packet is longer.
    assert_eq!([mtu("127.0.0.1"), mtu("::1")], [Ok(65_535), Ok(65_536)]);
}

#[test]
fn flows_spread_over_several_ways_by_weight_and_stay() {
    for destination in ["10.8.0.0/16", "fd00:8::/32"] {
        let gateways = if net(destination).family() == Family::V4 { ["10.0.2.9", "10.0.3.9"] } else { ["fd00:2::9", "fd00:3::9"] };
        let mut entry = via(destination, 2, gateways[0]);
        entry.next_hops.push(NextHop { weight: 3, ..NextHop::new(LinkId(3), Some(ip(gateways[1]))) });
        let mut builder = two_links();
        builder.routes.push(entry.clone());
        let tables = builder.clone().build(1);
        let link = |port| {
            let query = Query { protocol: 6, destination_port: port, ..Query::to(net(destination).last()) };
            let route = tables.route(&query).expect("a route");
            assert_eq!(tables.route(&query).as_ref(), Ok(&route), "the same each time");
            // Each way has its link's own source.
            assert_eq!(
                route.source,
                ip(["10.0.2.1", "10.0.3.1", "fd00:2::1", "fd00:3::1"]
                    [usize::from(net(destination).family() == Family::V6) * 2 + route.link.0 as usize - 2])
            );
            route.link.0
        };
        let heavy = (0..4000).filter(|&port| link(port) == 3).count();
        assert!((2800..3200).contains(&heavy), "{heavy} of 4000 for 3 of 4 parts");
        // What is dead takes no flow.
        builder.routes.last_mut().expect("it was added").next_hops[1].is_dead = true;
        let tables = builder.build(1);
        let all = (0..100).map(|port| Query { destination_port: port, ..Query::to(net(destination).last()) });
        assert!(all.map(|query| tables.route(&query)).all(|route| route.is_ok_and(|route| route.link == LinkId(2))));
    }
}

#[test]
fn a_bound_socket_goes_by_its_link() {
    let mut builder = two_links();
    builder.routes.extend([via("0.0.0.0/0", 2, "10.0.2.254"), via("::/0", 2, "fd00:2::fe")]);
    builder.links.push(Link { is_up: false, ..Link::new(4, "eth2", LinkKind::Ethernet) });
    let tables = builder.build(1);
    let bound = |destination, link| brief(tables.route(&Query { link: Some(LinkId(link)), ..Query::to(ip(destination)) }));
    assert_eq!(bound("192.0.2.1", 2), Ok((2, ip("10.0.2.1"), Some(ip("10.0.2.254")))));
    // IPv4 takes the destination for a neighbour then; IPv6 does not.
    assert_eq!(bound("192.0.2.1", 3), Ok((3, ip("10.0.3.1"), None)));
    assert_eq!(bound("2001:db8::1", 3), Err(Unroutable::NoRoute));
    assert_eq!(bound("192.0.2.1", 4), Err(Unroutable::LinkDown));
    assert_eq!(bound("192.0.2.1", 5), Err(Unroutable::UnknownLink));
}

#[test]
fn groups_and_broadcasts_have_no_router() {
    let mut builder = two_links();
    builder.routes.push(via("0.0.0.0/0", 2, "10.0.2.254"));
    let group = RouteEntry {
        table: Table::LOCAL,
        kind: RouteKind::Multicast,
        metric: 256,
        ..RouteEntry::new(net("ff00::/8"), NextHop::new(LinkId(3), None))
    };
    builder.routes.push(group);
    let tables = builder.build(1);
    let route = |query: &Query| tables.route(query).map(|route| (route.link.0, route.source, route.next_hop, route.delivery));
    let (own2, own3) = (ip("10.0.2.1"), ip("10.0.3.1"));
    assert_eq!(route(&Query::to(ip("239.1.1.1"))), Ok((2, own2, None, Delivery::Multicast)));
    let bound = Query { link: Some(LinkId(3)), ..Query::to(ip("224.0.0.1")) };
    assert_eq!(route(&bound), Ok((3, own3, None, Delivery::Multicast)));
    // Whoever binds an address means its link.
    let from = Query { source: Some(own3), ..Query::to(ip("239.1.1.1")) };
    assert_eq!(route(&from), Ok((3, own3, None, Delivery::Multicast)));
    assert_eq!(route(&Query::to(ip("10.0.3.255"))), Ok((3, own3, None, Delivery::Broadcast)));
    assert_eq!(route(&Query::to(ip("ff05::9"))), Ok((3, ip("fd00:3::1"), None, Delivery::Multicast)));
}

#[test]
fn a_source_must_be_this_hosts_and_fit_the_link() {
    let mut builder = two_links();
    builder.routes.push(via("0.0.0.0/0", 2, "10.0.2.254"));
    let tables = builder.build(1);
    let from = |source| brief(tables.route(&Query { source: Some(ip(source)), ..Query::to(ip("192.0.2.1")) }));
    assert_eq!(from("10.0.3.1"), Ok((2, ip("10.0.3.1"), Some(ip("10.0.2.254")))));
    assert_eq!(from("0.0.0.0"), Ok((2, ip("10.0.2.1"), Some(ip("10.0.2.254")))));
    assert_eq!(from("198.51.100.1"), Err(Unroutable::ForeignSource));
    assert_eq!(from("127.0.0.1"), Err(Unroutable::InvalidSource));
    assert_eq!(from("fd00:2::1"), Err(Unroutable::InvalidDestination));
}

#[test]
fn rules_choose_tables() {
    let mut builder = two_links();
    builder.routes.push(via("0.0.0.0/0", 2, "10.0.2.254"));
    builder.routes.push(RouteEntry { table: Table(100), ..via("0.0.0.0/0", 3, "10.0.3.254") });
    let link = |change: &dyn Fn(&mut Rule), query: &Query| {
        let mut builder = builder.clone();
        let mut rule = Rule::new(Family::V4, 7, Action::Lookup(Table(100)));
        change(&mut rule);
        builder.rules.push(rule);
        builder.build(1).route(query).map(|route| route.link.0)
    };
    let to = Query::to(ip("192.0.2.1"));
    let (plain, matched) = (Ok(2), Ok(3));
    assert_eq!(link(&|_| {}, &to), matched);
    assert_eq!(link(&|rule| rule.is_inverted = true, &to), plain);
    // Whoever has no source yet matches no prefix of sources.
    let from = |rule: &mut Rule| rule.from = Some(net("10.0.3.0/24"));
    assert_eq!([link(&from, &to), link(&from, &Query { source: Some(ip("10.0.3.1")), ..to })], [plain, matched]);
    let mark = |rule: &mut Rule| rule.mark = Some((4, 6));
    assert_eq!([link(&mark, &Query { mark: 2, ..to }), link(&mark, &Query { mark: 5, ..to })], [plain, matched]);
    let uid = |rule: &mut Rule| rule.uid = Some(1000..=1001);
    assert_eq!([link(&uid, &Query { uid: 999, ..to }), link(&uid, &Query { uid: 1001, ..to })], [plain, matched]);
    let port = |rule: &mut Rule| (rule.protocol, rule.destination_port) = (Some(6), Some(80..=90));
    assert_eq!(
        [link(&port, &Query { protocol: 17, destination_port: 80, ..to }), link(&port, &Query { protocol: 6, destination_port: 90, ..to })],
        [plain, matched]
    );
    let short = |rule: &mut Rule| rule.suppress_length = Some(0);
    assert_eq!(link(&short, &to), plain);
    assert_eq!(link(&|rule| rule.action = Action::Prohibit, &to), Err(Unroutable::Prohibited));
    assert_eq!(link(&|rule| rule.action = Action::Goto(0x7fff), &to), Err(Unroutable::NoRoute), "past main");
    assert_eq!(link(&|rule| rule.action = Action::Goto(8), &to), plain, "nowhere");
    assert_eq!(link(&|rule| rule.is_opaque = true, &to), Err(Unroutable::Opaque { priority: 7 }));
    assert_eq!(link(&|rule| rule.is_vrf = true, &to), plain);
    assert_eq!(link(&|rule| rule.input = Some("lo".into()), &to), matched);
    assert_eq!(link(&|rule| rule.input = Some("eth0".into()), &to), plain);
    assert_eq!(link(&|rule| rule.output = Some("eth1".into()), &Query { link: Some(LinkId(3)), ..to }), matched);
}

#[test]
fn without_rules_of_its_own_main_may_be_narrower_than_local() {
    // A host that has all of 10.8.0.0/16 for its own (`ip route add local`), but for a part behind a router.
    let mut builder = two_links();
    let local =
        RouteEntry { table: Table::LOCAL, kind: RouteKind::Local, ..RouteEntry::new(net("10.8.0.0/16"), NextHop::new(LinkId(1), None)) };
    builder.routes.extend([local, via("10.8.7.0/24", 2, "10.0.2.9")]);
    assert_eq!(route(&builder, "10.8.7.1"), Ok((2, ip("10.0.2.1"), Some(ip("10.0.2.9")))));
    builder.rules.push(Rule::new(Family::V4, 7, Action::Nop));
    assert_eq!(route(&builder, "10.8.7.1"), Ok((1, ip("10.8.7.1"), None)), "the local table comes first");
}

#[test]
fn routers_that_do_not_answer_come_last() {
    let mut builder = two_links();
    builder.routes.push(via("::/0", 2, "fd00:2::fe"));
    builder.routes.push(RouteEntry { metric: 2000, ..via("::/0", 3, "fd00:3::fe") });
    let gateway = |builder: &Builder| route(builder, "2001:db8::1").map(|(_, _, next_hop)| next_hop);
    assert_eq!(gateway(&builder), Ok(Some(ip("fd00:2::fe"))));
    let failed = |link, address| Neighbour {
        link: LinkId(link),
        address: ip(address),
        state: NeighbourState::Failed,
        link_address: None,
        is_router: true,
    };
    builder.neighbours.push(failed(2, "fd00:2::fe"));
    assert_eq!(gateway(&builder), Ok(Some(ip("fd00:3::fe"))));
    assert_eq!(gateway(&Builder { forwards_v6: true, ..builder.clone() }), Ok(Some(ip("fd00:2::fe"))));
    builder.neighbours.push(failed(3, "fd00:3::fe"));
    assert_eq!(gateway(&builder), Ok(Some(ip("fd00:2::fe"))), "if none does, the first");
}

#[test]
fn the_preferred_router_and_the_narrower_source_go_first() {
    let mut builder = two_links();
    builder.routes.push(via("::/0", 2, "fd00:2::fe"));
    builder.routes.push(RouteEntry { preference: Preference::High, ..via("::/0", 3, "fd00:3::fe") });
    assert_eq!(route(&builder, "2001:db8::1"), Ok((3, ip("fd00:3::1"), Some(ip("fd00:3::fe")))));
    builder.routes.push(RouteEntry { source: net("fd00:2::/64"), metric: 9000, ..via("::/0", 2, "fd00:2::fd") });
    let from = Query { source: Some(ip("fd00:2::1")), ..Query::to(ip("2001:db8::1")) };
    assert_eq!(brief(builder.build(1).route(&from)), Ok((2, ip("fd00:2::1"), Some(ip("fd00:2::fd")))));
}

#[test]
fn a_tunnel_is_the_kernels() {
    let mut builder = two_links();
    let mut entry = via("10.8.0.0/16", 2, "10.0.2.9");
    entry.next_hops[0].is_encapsulated = true;
    builder.routes.push(entry);
    assert_eq!(route(&builder, "10.8.1.1"), Err(Unroutable::Encapsulated));
    assert_eq!(Unroutable::Encapsulated.errno(), None);
}
