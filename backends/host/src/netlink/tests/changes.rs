//! What changes in the kernel is told, once.

use core::net::IpAddr;

use ringway_stack::net::{Change, Family, LinkAddress, LinkId, LinkKind, Query, Table, Tables, Unroutable};

use super::world::{in_namespace, ip, try_ip, until};
use crate::netlink::Monitor;

const LINKS: &str = "link add a0 address 02:00:00:00:0a:00 type veth peer name a1 address 02:00:00:00:0a:01\n\
    link set a1 up\nlink set a0 up\naddr add 10.0.1.1/24 dev a0\naddr add 10.0.2.1/24 dev a0\naddr add fd00:1::1/64 dev a0\n";

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn id(tables: &Tables, name: &str) -> LinkId {
    tables.link_named(name).expect(name).id
}

/// All links have their carriers, and their addresses can be used.
fn settled() -> Monitor {
    ip(LINKS);
    let mut monitor = Monitor::open().expect("rtnetlink");
    until(&mut monitor, |monitor, _| {
        let own = monitor.tables().addresses();
        let link_local = own.iter().filter(|own| own.address.to_string().starts_with("fe80"));
        link_local.count() == 2 && !own.iter().any(|own| own.is_tentative)
    });
    monitor
}

#[test]
fn each_change_is_told() {
    in_namespace(|| {
        let mut monitor = settled();
        let link = id(monitor.tables(), "a0");
        let query = Query::to(address("10.0.1.9"));
        let route = monitor.tables().route(&query).expect("on the link");
        let mut told = |lines: &str, wanted: Change| {
            ip(lines);
            let generation = monitor.tables().generation();
            let changes = until(&mut monitor, |_, changes| changes.contains(&wanted));
            assert!(monitor.tables().generation() > generation, "{changes:?}");
            (monitor.tables().clone(), changes)
        };

        told("addr del 10.0.2.1/24 dev a0\n", Change::AddressGone { link, address: address("10.0.2.1") });
        let (tables, changes) = told("link set a0 mtu 1400\n", Change::MtuChanged { link, mtu: 1400, mtu_v6: 1400 });
        assert_eq!(tables.route(&query).map(|route| route.mtu), Ok(1400), "{changes:?}");

        let lladdr = |text: &[u8]| LinkAddress::new(text);
        let neighbour = |link_address| Change::NeighbourChanged { link, address: query.destination, link_address };
        let known = lladdr(&[2, 0, 0, 0, 0, 9]);
        let (tables, _) = told("neigh add 10.0.1.9 dev a0 lladdr 02:00:00:00:00:09\n", neighbour(known.clone()));
        let entry = tables.neighbour(link, query.destination).expect("it was added");
        assert_eq!(entry.destination(), known.as_ref());
        told("neigh replace 10.0.1.9 dev a0 lladdr 02:00:00:00:00:08\n", neighbour(lladdr(&[2, 0, 0, 0, 0, 8])));
        told("neigh del 10.0.1.9 dev a0\n", neighbour(None));

        let (table, destination) = (Table::MAIN, "10.0.1.0".parse().map(|net| ringway_stack::net::Prefix::new(net, 25)).expect("a prefix"));
        let destination = destination.expect("25 bits");
        let (tables, changes) = told("route add 10.0.1.0/25 via 10.0.1.7\n", Change::RoutesChanged { table, destination });
        assert_eq!(changes, [Change::RoutesChanged { table, destination }]);
        assert_eq!(tables.route(&query).map(|route| route.next_hop), Ok(Some(address("10.0.1.7"))));
        let (tables, _) = told("rule add to 10.0.1.9 prohibit pref 7\n", Change::RulesChanged(Family::V4));
        assert_eq!(tables.route(&query), Err(Unroutable::Prohibited));
        told("rule del pref 7\n", Change::RulesChanged(Family::V4));

        // The kernel tells of no route that goes with its link's carrier or with the link.
        told("link set a1 down\n", Change::LinkDown(link));
        told("link set a1 up\n", Change::LinkUp(link));
        let (tables, changes) = told("link set a0 down\n", Change::LinkDown(link));
        assert_eq!(tables.route(&query), Err(Unroutable::NoRoute), "{changes:?}");
        assert_eq!(tables.route(&Query { link: Some(link), ..query }), Err(Unroutable::LinkDown));
        assert!(ringway_stack::net::Changes::between(&tables, &tables).is_empty());
        let (_, changes) = told("link del a0\n", Change::LinkGone(link));
        assert!(changes.contains(&Change::AddressGone { link, address: address("10.0.1.1") }), "{changes:?}");
        assert_eq!(route.link, link);
    });
}

#[test]
fn a_neighbour_that_is_confirmed_is_no_change() {
    in_namespace(|| {
        let mut monitor = settled();
        ip("neigh add 10.0.1.9 dev a0 lladdr 02:00:00:00:00:09 nud reachable\n");
        until(&mut monitor, |_, changes| !changes.is_empty());
        ip("neigh change 10.0.1.9 dev a0 lladdr 02:00:00:00:00:09 nud stale\n");
        let generation = monitor.tables().generation();
        let changes = until(&mut monitor, |monitor, _| monitor.tables().generation() > generation);
        assert_eq!(changes, []);
        assert_eq!(monitor.refresh().expect("rtnetlink"), None, "nothing happened");
    });
}

#[test]
fn a_burst_makes_one_snapshot() {
    in_namespace(|| {
        let mut monitor = settled();
        let generation = monitor.tables().generation();
        let lines: String = (0..500).map(|i| format!("route add 10.{}.{}.0/24 via 10.0.1.9\n", 100 + i / 250, i % 250)).collect();
        ip(&lines);
        let changes = monitor.refresh().expect("rtnetlink").expect("there are new routes");
        assert_eq!((monitor.tables().generation(), changes.iter().count()), (generation + 1, 500));
    });
}

#[test]
fn events_that_were_lost_are_made_up_for() {
    in_namespace(|| {
        let mut monitor = settled();
        // (The kernel gives more, but not 2000 events' worth.)
        monitor.events.set_receive_buffer(1).expect("a smaller buffer");
        let lines: String = (0..2000).map(|i| format!("route add 10.{}.{}.0/24 via 10.0.1.9\n", 100 + i / 250, i % 250)).collect();
        ip(&lines);
        ip("addr del 10.0.2.1/24 dev a0\n");
        let sockets = std::fs::read_to_string("/proc/thread-self/net/netlink").expect("the kernel's list");
        let drops = sockets.lines().filter_map(|line| line.split_whitespace().nth(8)?.parse::<u64>().ok()).sum::<u64>();
        assert!(drops > 0, "nothing was lost:\n{sockets}");
        let changes = monitor.refresh().expect("rtnetlink").expect("there are new routes");
        let (gone, link) = (address("10.0.2.1"), id(monitor.tables(), "a0"));
        assert!(changes.iter().any(|change| *change == Change::AddressGone { link, address: gone }));
        assert!(monitor.tables().routes().len() > 2000);
    });
}

#[test]
fn what_is_read_while_it_changes_is_of_one_moment() {
    in_namespace(|| {
        let mut monitor = settled();
        let lines: String = (0..3000).map(|i| format!("route add 10.{}.{}.0/24 via 10.0.1.9\n", 100 + i / 250, i % 250)).collect();
        std::thread::scope(|scope| {
            let script = scope.spawn(|| try_ip(&(lines.clone() + &lines.replace("add", "del"))));
            while !script.is_finished() {
                // It may change too fast for a while, and is as it was then.
                _ = monitor.refresh();
            }
        });
        _ = monitor.refresh().expect("rtnetlink");
        let fresh = Monitor::open().expect("rtnetlink");
        assert_eq!(monitor.tables().routes(), fresh.tables().routes());
        assert_eq!(monitor.tables().addresses(), fresh.tables().addresses());
    });
}

#[test]
fn stacked_links_are_what_they_are() {
    in_namespace(|| {
        ip(LINKS);
        // A kernel may be built without either.
        let mut missing = Vec::new();
        let mut have = |what: &'static str, lines: &str| {
            let is_there = try_ip(lines).is_empty();
            missing.extend((!is_there).then_some(what));
            is_there
        };
        let has_vlan = have("vlan", "link add link a0 name v7 type vlan id 7\n");
        let has_bond = have("bond", "link add bond7 type bond mode active-backup\nlink set a1 down\nlink set a1 master bond7\n");
        let has_vrf = have("vrf", "link add vrf7 type vrf table 77\n");
        let has_bridge = have("bridge", "link add br7 type bridge\nlink set a0 master br7\n");
        let tables = Monitor::open().expect("rtnetlink").tables().clone();
        let a0 = id(&tables, "a0");
        if has_vlan {
            let vlan = tables.link_named("v7").expect("v7");
            assert_eq!((&vlan.kind, vlan.parent), (&LinkKind::Vlan { id: 7, protocol: 0x8100 }, Some(a0)));
        }
        if has_bond {
            let bond = tables.link_named("bond7").expect("bond7");
            assert!(matches!(bond.kind, LinkKind::Bond { mode: 1, .. }), "{bond:?}");
            assert_eq!(tables.members(bond.id).map(|link| &*link.name).collect::<Vec<_>>(), ["a1"]);
        }
        if has_vrf {
            assert_eq!(tables.link_named("vrf7").expect("vrf7").kind, LinkKind::Vrf { table: 77 });
        }
        if has_bridge {
            let bridge = tables.link_named("br7").expect("br7");
            assert_eq!((&bridge.kind, tables.link(a0).and_then(|link| link.master)), (&LinkKind::Bridge, Some(bridge.id)));
        }
        assert_eq!(tables.link(a0).map(|link| link.kind.clone()), Some(LinkKind::Other("veth".into())));
        if !missing.is_empty() {
            println!("left out: this kernel has no {missing:?}");
        }
    });
}
