use proptest::prelude::*;
use ringway_stack::net::{Action, LinkAddress, LinkId, LinkKind, NeighbourState, NextHop, Prefix, RouteKind, Scope, Table};

use super::*;
use crate::netlink::dump::Messages;
use crate::netlink::monitor::attribute;

fn nested(attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut all = Vec::new();
    for &(kind, value) in attributes {
        attribute(&mut all, kind, value);
    }
    all
}

/// `struct ifinfomsg` of an Ethernet link that is up, and attributes.
fn link_message(attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut message = vec![0, 0, 1, 0, 7, 0, 0, 0];
    message.extend_from_slice(&0x1_0041u32.to_ne_bytes());
    message.extend_from_slice(&[0; 4]);
    message.extend(nested(attributes));
    message
}

#[test]
fn a_vlan_is_read() {
    // linux/if_link.h: IFLA_VLAN_ID 1, IFLA_VLAN_PROTOCOL 5 (in network order).
    let data = nested(&[(1, &100u16.to_ne_bytes()), (5, &[0x88, 0xa8])]);
    let info = nested(&[(1, b"vlan\0"), (2, &data)]);
    let link = link(&link_message(&[(3, b"eth0.100\0"), (4, &1496u32.to_ne_bytes()), (5, &2u32.to_ne_bytes()), (18, &info)]));
    let link = link.expect("well-formed").expect("a link");
    assert_eq!((&*link.name, link.mtu, link.parent), ("eth0.100", 1496, Some(LinkId(2))));
    assert_eq!(link.kind, LinkKind::Vlan { id: 100, protocol: 0x88a8 });
    assert!(link.is_up && link.has_carrier);
}

#[test]
fn a_bond_and_its_member_are_read() {
    // IFLA_BOND_MODE 1, IFLA_BOND_ACTIVE_SLAVE 2.
    let data = nested(&[(1, &[1]), (2, &3u32.to_ne_bytes())]);
    let info = nested(&[(1, b"bond\0"), (2, &data)]);
    let bond = link(&link_message(&[(3, b"bond0\0"), (18, &info)])).expect("well-formed").expect("a link");
    assert_eq!(bond.kind, LinkKind::Bond { mode: 1, active: Some(LinkId(3)) });
    // A member says so beside its own kind (IFLA_INFO_SLAVE_KIND 4).
    let info = nested(&[(4, b"bond\0")]);
    let member = link(&link_message(&[(3, b"eth0\0"), (10, &7u32.to_ne_bytes()), (1, &[2, 0, 0, 0, 0, 1]), (18, &info)]));
    let member = member.expect("well-formed").expect("a link");
    assert_eq!((member.kind, member.master), (LinkKind::Ethernet, Some(LinkId(7))));
    assert_eq!(member.address.ethernet(), Some([2, 0, 0, 0, 0, 1]));
}

#[test]
fn ipv6_settings_of_a_link_are_read() {
    // IFLA_AF_SPEC 26 of AF_INET6 10: IFLA_INET6_CONF 2. DEVCONF_MTU6 is the third, DEVCONF_USE_TEMPADDR the eleventh.
    let settings: Vec<u8> =
        [0, 64, 1280, 1, 1, 1, 1, -1, 4000, 1000, 2, 0].iter().flat_map(|setting: &i32| setting.to_ne_bytes()).collect();
    let families = nested(&[(2, &[0; 12]), (10, &nested(&[(2, &settings)]))]);
    let link = link(&link_message(&[(26, &families)])).expect("well-formed").expect("a link");
    assert_eq!((link.mtu_v6, link.prefers_temporary), (Some(1280), true));
}

#[test]
fn a_multipath_route_is_read() {
    // Two struct rtnexthop, the first with RTA_GATEWAY 5, the second with RTA_VIA 18 (AF_INET6) and dead.
    let gateway = nested(&[(5, &[10, 0, 0, 9])]);
    let mut via = vec![10, 0];
    via.extend_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    let via = nested(&[(18, &via)]);
    let mut hops = vec![8 + gateway.len() as u8, 0, 0, 2, 3, 0, 0, 0];
    hops.extend(&gateway);
    hops.extend([8 + via.len() as u8, 0, 1, 0, 4, 0, 0, 0]);
    hops.extend(&via);
    let mut message = vec![2, 16, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
    message.extend(nested(&[(1, &[10, 9, 0, 0]), (8, &nested(&[(2, &1400u32.to_ne_bytes())])), (9, &hops), (15, &1000u32.to_ne_bytes())]));
    let route = route(&message).expect("well-formed").expect("a route");
    assert_eq!((route.table, route.kind, route.mtu), (Table(1000), RouteKind::Unicast, Some(1400)));
    assert_eq!(Some(route.destination), Prefix::new([10, 9, 0, 0].into(), 16));
    let first = NextHop { weight: 3, ..NextHop::new(LinkId(3), Some([10, 0, 0, 9].into())) };
    let second = NextHop { is_dead: true, ..NextHop::new(LinkId(4), Some("fe80::9".parse().expect("an address"))) };
    assert_eq!(route.next_hops, [first, second]);
    // RTM_F_CLONED: an exception, no route.
    message[9] = 2;
    assert_eq!(super::route(&message).expect("well-formed"), None);
}

#[test]
fn a_tunnelled_route_is_the_kernels() {
    // RTA_OIF 4, RTA_ENCAP_TYPE 21, RTA_ENCAP 22.
    let mut message = vec![2, 0, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
    message.extend(nested(&[(4, &3u32.to_ne_bytes()), (21, &[1, 0]), (22, &[0; 4])]));
    let route = route(&message).expect("well-formed").expect("a route");
    assert!(route.next_hops[0].is_encapsulated);
}

#[test]
fn addresses_rules_and_neighbours_are_read() {
    // A point-to-point address: IFA_LOCAL 2, IFA_ADDRESS 1, IFA_FLAGS 8 (secondary, and a bit beyond the header's eight).
    let mut message = vec![2, 32, 0x80, 0, 3, 0, 0, 0];
    message.extend(nested(&[(1, &[10, 0, 0, 2]), (2, &[10, 0, 0, 1]), (8, &0x281u32.to_ne_bytes())]));
    let own = address(&message).expect("well-formed").expect("an address");
    assert_eq!((own.address, own.prefix, own.scope), ([10, 0, 0, 1].into(), Prefix::host([10, 0, 0, 2].into()), Scope::UNIVERSE));
    assert!(own.is_secondary && !own.is_temporary && !own.is_tentative);

    // from 10.0.0.0/8 not fwmark 0x4/0x6 lookup 1000, priority 9; FRA_SUPPRESS_PREFIXLEN -1.
    let mut message = vec![2, 0, 8, 0, 0, 0, 0, 1, 2, 0, 0, 0];
    let attributes: [(u16, &[u8]); 6] = [
        (2, &[10, 0, 0, 0]),
        (6, &9u32.to_ne_bytes()),
        (10, &4u32.to_ne_bytes()),
        (14, &u32::MAX.to_ne_bytes()),
        (15, &1000u32.to_ne_bytes()),
        (16, &6u32.to_ne_bytes()),
    ];
    message.extend(nested(&attributes));
    let rule = rule(&message).expect("well-formed").expect("a rule");
    assert_eq!((rule.priority, rule.action, rule.mark), (9, Action::Lookup(Table(1000)), Some((4, 6))));
    assert_eq!(rule.from, Prefix::new([10, 0, 0, 0].into(), 8));
    assert!(rule.is_inverted && !rule.is_opaque && rule.suppress_length.is_none());

    let mut message = vec![2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0x80, 1];
    message.extend(nested(&[(1, &[10, 0, 0, 9]), (2, &[2, 0, 0, 0, 0, 9])]));
    let entry = neighbour(&message).expect("well-formed").expect("a neighbour");
    assert_eq!((entry.link, entry.state, entry.is_router), (LinkId(3), NeighbourState::Stale, true));
    assert_eq!(entry.link_address, LinkAddress::new(&[2, 0, 0, 0, 0, 9]));
}

#[test]
fn what_is_too_short_is_malformed() {
    assert!(matches!(link(&[0; 15]), Err(Error::Malformed { what: "links" })));
    assert!(matches!(link(&link_message(&[(4, &[1, 2])])), Err(Error::Malformed { what: "links" })));
    // A prefix longer than an address.
    let mut message = vec![2, 33, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
    assert!(matches!(route(&message), Err(Error::Malformed { what: "routes" })));
    // An attribute that says it is longer than the message.
    message[1] = 0;
    message.extend([9, 0, 1, 0, 10]);
    assert!(matches!(route(&message), Err(Error::Malformed { what: "routes" })));
}

proptest! {
    /// Whatever stands in a message: an answer or an error.
    #[test]
    fn no_message_panics(start in proptest::collection::vec(any::<u8>(), 0..20), attributes in proptest::collection::vec((0u16..32, proptest::collection::vec(any::<u8>(), 0..40)), 0..8), family in prop_oneof![Just(0u8), Just(2), Just(10)]) {
        let mut message = start.clone();
        if let Some(first) = message.first_mut() {
            *first = family;
        }
        for length in [8, 12, 16, start.len()] {
            message.resize(length, 0);
            for (kind, value) in &attributes {
                attribute(&mut message, *kind, value);
            }
            _ = link(&message);
            _ = address(&message);
            _ = route(&message);
            _ = rule(&message);
            _ = neighbour(&message);
            prop_assert!(Messages(&message).count() <= message.len());
        }
    }
}
