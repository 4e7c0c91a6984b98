use super::*;

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const GROUP: [u8; 6] = [1, 0, 0x5e, 1, 2, 3];
const FULL: [u8; 6] = [0xff; 6];

fn to(dst: [u8; 6]) -> Layer {
    Layer::Ethernet { value: [dst, [0; 6]], mask: [FULL, [0; 6]], ethertype: (0, 0), vlan: (0, 0) }
}

fn port(udp: bool, dst: u16) -> Layer {
    Layer::Ports { udp, value: [0, dst], mask: [0, 0xffff] }
}

fn rule(layers: Vec<Layer>, priority: u16, target: u32) -> Rule {
    Rule { kind: Kind::Normal(layers), priority, goes_on: false, action: Action::Receive { tag: None }, target }
}

/// A datagram of IPv4 to the port 7.
fn frame(dst: [u8; 6], vlan: Option<u16>) -> Vec<u8> {
    let mut out = [&dst[..], &[2, 0, 0, 0, 0, 0xb]].concat();
    out.extend(vlan.into_iter().flat_map(|tag| [0x81, 0, (tag >> 8) as u8, tag as u8]));
    out.extend([8, 0, 0x45, 0xb8, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 5, 0, 7, 0, 8, 0, 0]);
    out
}

fn headers(dst: [u8; 6]) -> Headers {
    Headers::parse(&frame(dst, None)).unwrap()
}

fn targets(table: &Table, headers: &Headers) -> Vec<u32> {
    table.steer(headers, None).iter().map(|delivery| delivery.target).collect()
}

#[test]
fn layers_match_what_they_name() {
    let plain = headers(A);
    let tagged = Headers::parse(&frame(A, Some(0x6005))).unwrap();
    let vlan = |value, mask| Layer::Ethernet { value: [[0; 6]; 2], mask: [[0; 6]; 2], ethertype: (0x0800, 0xffff), vlan: (value, mask) };
    assert!(to(A).matches(&plain, None) && !to(GROUP).matches(&plain, None) && to(A).matches(&tagged, None));
    assert!(!vlan(5, 0xfff).matches(&plain, None) && vlan(5, 0xfff).matches(&tagged, None) && !vlan(6, 0xfff).matches(&tagged, None));
    assert!(vlan(0x6000, 0xe000).matches(&tagged, None) && vlan(0, 0).matches(&tagged, None));
    let mut value = [[0; 16]; 2];
    value[1][..4].copy_from_slice(&[10, 0, 0, 2]);
    let mut mask = [[0; 16]; 2];
    mask[1][..3].fill(0xff);
    let ip = Layer::Ip { v6: false, value, mask, protocol: (17, 0xff), tos: (0xb8, 0xfc), flow_label: (0, 0) };
    assert!(ip.matches(&plain, None) && ip.matches(&tagged, None));
    for other in [
        Layer::Ip { v6: true, value, mask, protocol: (0, 0), tos: (0, 0), flow_label: (0, 0) },
        Layer::Ip { v6: false, value, mask, protocol: (6, 0xff), tos: (0, 0), flow_label: (0, 0) },
        Layer::Ip { v6: false, value, mask, protocol: (0, 0), tos: (0, 0xfc), flow_label: (0, 0) },
        port(false, 7),
        port(true, 8),
    ] {
        assert!(!other.matches(&plain, None), "{other:?}");
    }
    assert!(port(true, 7).matches(&tagged, None));
    // Not the first of its fragments: there are no ports to look at.
    let mut bytes = frame(A, None);
    bytes[21] = 1;
    assert!(!port(true, 7).matches(&Headers::parse(&bytes).unwrap(), None));
}

#[test]
fn the_lowest_priority_is_asked_first_and_of_equal_ones_the_older() {
    let mut table = Table::default();
    let low = table.add(rule(vec![to(A)], 1, 1)).unwrap();
    let wide = table.add(rule(vec![port(true, 7)], 0, 2)).unwrap();
    table.add(rule(vec![to(A), port(true, 7)], 0, 3)).unwrap();
    assert_eq!(targets(&table, &headers(A)), [2]);
    table.remove(wide);
    assert_eq!(targets(&table, &headers(A)), [3]);
    assert!(table.has(1) && !table.has(2));
    table.remove(low);
    table.remove(low);
    assert_eq!(table.rules().count(), 1);
    assert_eq!(targets(&table, &headers(GROUP)), [0; 0]);
}

#[test]
fn equal_rules_get_a_copy_each_and_may_not_differ() {
    let mut table = Table::default();
    table.add(rule(vec![to(A)], 3, 1)).unwrap();
    table.add(rule(vec![to(A)], 3, 2)).unwrap();
    let tagged = Rule { action: Action::Receive { tag: Some(9) }, ..rule(vec![to(A)], 3, 3) };
    assert_eq!(table.add(tagged.clone()), Err(Conflict));
    assert_eq!(table.add(Rule { action: Action::Drop, ..tagged.clone() }), Err(Conflict));
    assert_eq!(targets(&table, &headers(A)), [1, 2]);
    table.add(Rule { priority: 2, ..tagged }).unwrap();
    assert_eq!(table.steer(&headers(A), None), [Delivery { target: 3, tag: 9 }]);
}

#[test]
fn drops_end_the_search_and_what_goes_on_does_not() {
    let mut table = Table::default();
    table.add(Rule { goes_on: true, ..rule(vec![to(A)], 4, 1) }).unwrap();
    table.add(Rule { action: Action::Drop, ..rule(vec![port(true, 7)], 5, 2) }).unwrap();
    table.add(rule(vec![to(A)], 6, 3)).unwrap();
    assert_eq!(targets(&table, &headers(A)), [1]);
}

#[test]
fn groups_come_behind_all_priorities_and_defaults_behind_groups() {
    let mut table = Table::default();
    table.add(Rule { kind: Kind::AllDefault, ..rule(vec![], 0, 1) }).unwrap();
    table.add(Rule { kind: Kind::GroupsDefault, ..rule(vec![], 0, 2) }).unwrap();
    assert_eq!((targets(&table, &headers(A)), targets(&table, &headers(GROUP))), (vec![1], vec![1, 2]));
    table.add(rule(vec![to(GROUP)], 0, 3)).unwrap();
    assert_eq!((targets(&table, &headers(A)), targets(&table, &headers(GROUP))), (vec![1], vec![3]));
    table.add(rule(vec![port(true, 7)], 15, 4)).unwrap();
    assert_eq!((targets(&table, &headers(A)), targets(&table, &headers(GROUP))), (vec![4], vec![4]));
    assert_eq!(table.sniffers(), [0; 0]);
    table.add(Rule { kind: Kind::Sniffer, ..rule(vec![], 0, 5) }).unwrap();
    assert_eq!((targets(&table, &headers(A)), table.sniffers()), (vec![4], vec![5]));
}

#[test]
fn a_switch_can_tell_what_is_of_no_use() {
    let mut table = Table::default();
    assert_eq!(table.addresses(), Some(vec![]));
    table.add(rule(vec![to(A)], 0, 1)).unwrap();
    table.add(rule(vec![to(A), port(true, 7)], 1, 1)).unwrap();
    table.add(Rule { kind: Kind::GroupsDefault, ..rule(vec![], 0, 2) }).unwrap();
    assert_eq!(table.addresses(), Some(vec![[[1, 0, 0, 0, 0, 0]; 2], [A, FULL]]));
    table.add(rule(vec![port(true, 7)], 1, 1)).unwrap();
    assert_eq!(table.addresses(), None);
}

/// A tunnel with a frame inside; the byte at `at` has another value.
fn tunnelled(id: u32, change: Option<(usize, u8)>) -> Vec<u8> {
    let inside = frame(GROUP, None);
    let mut out = frame(A, None);
    let len = 8 + 8 + inside.len();
    out[16..18].copy_from_slice(&(20 + len as u16).to_be_bytes());
    out[36..38].copy_from_slice(&4789u16.to_be_bytes());
    out[38..40].copy_from_slice(&(len as u16).to_be_bytes());
    out.extend([8, 0, 0, 0]);
    out.extend((id << 8).to_be_bytes());
    out.extend(inside);
    if let Some((at, value)) = change {
        out[at] = value;
    }
    out
}

#[test]
fn a_tunnel_is_told_by_its_identifier_and_by_what_is_inside() {
    let mut table = Table::default();
    table.add(rule(vec![to(A), Layer::Vxlan(77, TAG_MAX), Layer::Inner(Box::new(port(true, 7)))], 0, 1)).unwrap();
    table.add(rule(vec![Layer::Inner(Box::new(to(GROUP))), Layer::Vxlan(78, TAG_MAX)], 0, 2)).unwrap();
    table.add(rule(vec![Layer::Inner(Box::new(to(A)))], 0, 3)).unwrap();
    let to_whom = |frame: &[u8]| {
        let headers = Headers::parse(frame).unwrap();
        let tunnel = Tunnel::parse(frame, &headers);
        table.steer(&headers, tunnel.as_ref()).iter().map(|delivery| delivery.target).collect::<Vec<_>>()
    };
    assert_eq!((to_whom(&tunnelled(77, None)), to_whom(&tunnelled(78, None))), (vec![1], vec![2]));
    // Another identifier; none; another port; another protocol; another port inside; too short for a header.
    let flags = 42;
    assert_eq!(to_whom(&tunnelled(77 + (1 << 16), None)), [0; 0]);
    for change in [(flags, 0), (37, 0), (23, 6), (flags + 8 + 37, 8)] {
        assert_eq!(to_whom(&tunnelled(77, Some(change))), [0; 0], "{change:?}");
    }
    for len in 0..tunnelled(77, None).len() {
        let cut = &tunnelled(77, None)[..len];
        let headers = Headers::parse(cut);
        assert_eq!(headers.and_then(|headers| Tunnel::parse(cut, &headers)), None, "{len} bytes");
    }
}
