//! Which source address: RFC 6724 s5, rule by rule, with the examples of its section 10.1; and IPv4's.

use super::*;

/// The source for `destination` by link 2, if that has `candidates` (and link 3 has `others`).
fn chosen(destination: &str, candidates: &[&str], others: &[&str], change: impl Fn(&mut Address)) -> Result<IpAddr, Unroutable> {
    let mut builder = Builder::default();
    builder.links.extend([Link::new(2, "eth0", LinkKind::Ethernet), Link::new(3, "eth1", LinkKind::Ethernet)]);
    for (link, list) in [(2, candidates), (3, others)] {
        let addresses = list.iter().map(|text| Address::new(LinkId(link), ip(text), 64).expect("an address"));
        builder.addresses.extend(addresses.map(|mut address| {
            change(&mut address);
            address
        }));
    }
    builder.routes.push(RouteEntry::new(Prefix::all(Family::V6), NextHop::new(LinkId(2), None)));
    builder.build(1).route(&Query::to(ip(destination))).map(|route| route.source)
}

#[test]
fn the_examples_of_rfc_6724() {
    let cases: [(&str, &[&str], &str); 8] = [
        // "prefer appropriate scope"
        ("2001:db8:1::1", &["2001:db8:3::1", "fe80::1"], "2001:db8:3::1"),
        ("ff05::1", &["2001:db8:3::1", "fe80::1"], "2001:db8:3::1"),
        ("fe80::1", &["fe80::2", "2001:db8:1::1"], "fe80::2"),
        // "prefer same address"
        ("2001:db8:1::1", &["2001:db8:1::1", "2001:db8:2::1"], "2001:db8:1::1"),
        // "longest matching prefix"
        ("2001:db8:1::1", &["2001:db8:2::2", "2001:db8:1::2"], "2001:db8:1::2"),
        // "prefer matching label"
        ("2002:c633:6401::1", &["2001:db8:1::2", "2002:c633:6401::d5e3:7953:13eb:22e8"], "2002:c633:6401::d5e3:7953:13eb:22e8"),
        ("fd11:2233:4455:1::1", &["2001:db8:1::2", "fd11:2233:4455:2::2"], "fd11:2233:4455:2::2"),
        ("2001:db8:1::1", &["fe80::2"], "fe80::2"),
    ];
    for (destination, candidates, wanted) in cases {
        assert_eq!(chosen(destination, candidates, &[], |_| {}), Ok(ip(wanted)), "{destination}");
        let mut turned = candidates.to_vec();
        turned.reverse();
        assert_eq!(chosen(destination, &turned, &[], |_| {}), Ok(ip(wanted)), "{destination}");
    }
}

#[test]
fn deprecated_tentative_and_temporary_addresses() {
    let (first, second) = ("2001:db8:1::2", "2001:db8:2::2");
    let is_first = |address: &Address| address.address == ip(first);
    let with = |change: &dyn Fn(&mut Address)| {
        chosen("2001:db8:1::1", &[first, second], &[], |address| {
            if is_first(address) {
                change(address);
            }
        })
    };
    assert_eq!(with(&|_| {}), Ok(ip(first)));
    assert_eq!(with(&|address| address.is_deprecated = true), Ok(ip(second)));
    assert_eq!(with(&|address| address.is_tentative = true), Ok(ip(second)));
    assert_eq!(with(&|address| (address.is_tentative, address.is_optimistic) = (true, true)), Ok(ip(second)));
    assert_eq!(with(&|address| address.is_temporary = true), Ok(ip(second)), "as long as its link does not prefer them");
    let only = |change: &dyn Fn(&mut Address)| chosen("2001:db8:1::1", &[first], &[], change);
    assert_eq!(only(&|address| address.is_tentative = true), Err(Unroutable::NoSource));
    assert_eq!(only(&|address| address.is_deprecated = true), Ok(ip(first)));
    assert_eq!(only(&|address| (address.is_tentative, address.is_optimistic) = (true, true)), Ok(ip(first)), "RFC 4429");
}

#[test]
fn the_outgoing_link_goes_before_others() {
    // Rule 5 before rule 8.
    assert_eq!(chosen("2001:db8:1::1", &["2001:db8:2::2"], &["2001:db8:1::2"], |_| {}), Ok(ip("2001:db8:2::2")));
    assert_eq!(chosen("2001:db8:1::1", &[], &["2001:db8:1::2"], |_| {}), Ok(ip("2001:db8:1::2")));
    // Section 4: link-local and multicast destinations have no candidates elsewhere.
    assert_eq!(chosen("fe80::1", &[], &["fe80::2"], |_| {}), Err(Unroutable::NoSource));
    assert_eq!(chosen("ff0e::1", &[], &["2001:db8:1::2"], |_| {}), Err(Unroutable::NoSource));
}

#[test]
fn ipv4_takes_the_routes_or_the_gateways_subnets_or_the_first() {
    let mut builder = two_links();
    add_address(&mut builder, 2, "10.7.0.1/16");
    builder.routes.push(via("192.0.2.0/24", 2, "10.7.0.254"));
    builder.routes.push(RouteEntry { preferred_source: Some(ip("10.0.3.1")), ..via("198.51.100.0/24", 2, "10.7.0.254") });
    builder.routes.push(RouteEntry::new(net("203.0.113.0/24"), NextHop::new(LinkId(2), None)));
    let source = |builder: &Builder, to| builder.clone().build(1).route(&Query::to(ip(to))).map(|route| route.source);
    assert_eq!(source(&builder, "192.0.2.1"), Ok(ip("10.7.0.1")));
    assert_eq!(source(&builder, "198.51.100.1"), Ok(ip("10.0.3.1")));
    assert_eq!(source(&builder, "203.0.113.1"), Ok(ip("10.0.2.1")));
    builder.addresses.iter_mut().filter(|own| own.address == ip("10.0.2.1")).for_each(|own| own.is_secondary = true);
    assert_eq!(source(&builder, "203.0.113.1"), Ok(ip("10.7.0.1")), "no secondary one");
    // A link without an address borrows another's, but for one of the link's scope.
    builder.addresses.retain(|own| own.link != LinkId(2) || own.address.is_ipv6());
    assert_eq!(source(&builder, "203.0.113.1"), Ok(ip("10.0.3.1")));
    builder.addresses.iter_mut().for_each(|own| own.scope = Scope::LINK);
    assert_eq!(source(&builder, "203.0.113.1"), Err(Unroutable::NoSource));
}
