//! A model without any index: it looks at every route for every question.

use core::cmp::Reverse;
use core::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

/// A route as drawn: its number tells it from others, for it is in its gateway.
#[derive(Clone, Debug)]
struct Drawn {
    destination: u16,
    length: u8,
    table: Table,
    metric: u32,
    tos: u8,
    kind: RouteKind,
    preference: Preference,
    is_dead: bool,
}

/// Sixteen bits of prefix are enough for all ways of nesting.
fn address(family: Family, bits: u16) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from_bits(0x0a00_0000 | u32::from(bits)).into(),
        Family::V6 => Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(bits)).into(),
    }
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let kind = prop_oneof![
        6 => Just(RouteKind::Unicast),
        1 => Just(RouteKind::Unreachable),
        1 => Just(RouteKind::Blackhole),
        1 => Just(RouteKind::Throw)
    ];
    let table = prop_oneof![Just(Table::MAIN), Just(Table::LOCAL), Just(Table(100))];
    let preference = prop_oneof![Just(Preference::Low), Just(Preference::Medium), Just(Preference::High)];
    let tos = prop_oneof![3 => Just(0u8), 1 => Just(0x10u8)];
    let numbers = (any::<u16>().prop_map(|bits| bits & 0x333f), 0u8..=16, 0u32..3, prop::bool::weighted(0.1));
    (numbers, table, kind, preference, tos).prop_map(|((destination, length, metric, is_dead), table, kind, preference, tos)| Drawn {
        destination,
        length,
        table,
        metric,
        tos,
        kind,
        preference,
        is_dead,
    })
}

fn entry(family: Family, number: usize, drawn: &Drawn) -> RouteEntry {
    let length = drawn.length + family.bits() - 16;
    let destination = Prefix::new(address(family, drawn.destination), length).expect("not too long");
    let gateway = address(family, 0xf000 + number as u16);
    let mut hop = NextHop::new(LinkId(2), Some(gateway));
    hop.is_dead = drawn.is_dead;
    let is_ending = drawn.kind != RouteKind::Unicast;
    let base = if is_ending { RouteEntry::ending(destination, drawn.kind) } else { RouteEntry::new(destination, hop) };
    let tos = if family == Family::V4 { drawn.tos } else { 0 };
    RouteEntry { table: drawn.table, metric: drawn.metric, preference: drawn.preference, tos, ..base }
}

/// The next hop, or why there is none; `None`: this table does not say.
fn search(routes: &[RouteEntry], tables: &[Table], query: &Query) -> Option<Result<IpAddr, Unroutable>> {
    let is_v6 = query.destination.is_ipv6();
    let mut usable: Vec<&RouteEntry> = routes
        .iter()
        .filter(|entry| tables.contains(&entry.table) && entry.destination.contains(query.destination))
        .filter(|entry| entry.tos == 0 || entry.tos == query.tos)
        .filter(|entry| entry.kind != RouteKind::Unicast || !entry.next_hops[0].is_dead)
        .collect();
    // (A stable sort: of equals, the first.)
    usable.sort_by_key(|entry| (Reverse(entry.destination.length()), Reverse(entry.table), Reverse(entry.tos), entry.metric));
    let mut best = *usable.first()?;
    if is_v6 {
        let of_prefix = || routes.iter().filter(|entry| tables.contains(&entry.table) && entry.destination == best.destination);
        // If the least metric has a route of use, it is among those; or else all others are equal in that.
        let least = of_prefix().map(|entry| entry.metric).min()?;
        let equals = usable.iter().filter(|entry| entry.destination == best.destination);
        let equals = equals.filter(|entry| best.metric != least || entry.metric == least);
        best = equals.rev().max_by_key(|entry| entry.preference)?;
    }
    match best.kind {
        RouteKind::Unreachable => Some(Err(Unroutable::Unreachable)),
        RouteKind::Blackhole => Some(Err(Unroutable::Blackhole)),
        RouteKind::Throw => None,
        _ => Some(Ok(best.next_hops[0].gateway?)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn the_index_finds_what_a_scan_finds(
        list in prop::collection::vec(drawn(), 0..40),
        destinations in prop::collection::vec(any::<u16>().prop_map(|bits| bits & 0x337f), 20),
        tos in prop_oneof![Just(0u8), Just(0x10u8)],
        rule in prop::option::of((prop_oneof![1u32..0x7fff, Just(32_766)], 0u32..2)),
        is_v6 in any::<bool>(),
    ) {
        let family = if is_v6 { Family::V6 } else { Family::V4 };
        let mut builder = Builder::default();
        builder.links.extend([Link::new(1, "lo", LinkKind::Loopback), Link::new(2, "eth0", LinkKind::Ethernet)]);
        builder.addresses.push(Address::new(LinkId(2), address(family, 1), 32).expect("an address"));
        builder.routes = list.iter().enumerate().map(|(number, drawn)| entry(family, number, drawn)).collect();
        if let Some((priority, mark)) = rule {
            let mut rule = Rule::new(family, priority, Action::Lookup(Table(100)));
            rule.mark = Some((mark, 1));
            builder.rules.push(rule);
        }
        let tables = builder.clone().build(1);
        for bits in destinations {
            let query = Query { tos, mark: 1, ..Query::to(address(family, bits)) };
            let (local, main, other) = (Table::LOCAL, Table::MAIN, Table(100));
            let order: Vec<Vec<Table>> = match rule {
                None if !is_v6 => vec![vec![local, main]],
                // (Of rules with one priority, the kernel's own was there first: fib_nl_newrule.)
                Some((32_766, 1)) => vec![vec![local], vec![main], vec![other]],
                Some((_, 1)) => vec![vec![local], vec![other], vec![main]],
                _ => vec![vec![local], vec![main]],
            };
            let model = order.iter().find_map(|tables| search(&builder.routes, tables, &query)).unwrap_or(Err(Unroutable::NoRoute));
            let found = tables.route(&query).map(|route| route.next_hop.expect("each has a gateway"));
            prop_assert_eq!(found, model, "{:?} of {:?}", query, builder.routes);
        }
    }
}
