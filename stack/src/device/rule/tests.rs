use super::*;

fn flow(local: &str, remote: Option<&str>) -> FlowRule {
    FlowRule::flow(Protocol::Tcp, local.parse().unwrap(), remote.map(|r| r.parse().unwrap()))
}

#[test]
fn a_socket_rule_is_read_back_as_it_was_made() {
    for (local, remote) in
        [("10.0.0.1:80", None), ("0.0.0.0:80", None), ("10.0.0.1:80", Some("10.0.0.2:9")), ("0.0.0.0:1", Some("1.2.3.4:5"))]
    {
        let read = flow(local, remote).as_five_tuple().unwrap();
        assert_eq!((read.protocol, read.local, read.remote), (Protocol::Tcp, local.parse().unwrap(), remote.map(|r| r.parse().unwrap())));
    }
}

#[test]
fn whatever_asks_for_more_is_no_socket_rule() {
    let rule = flow("10.0.0.1:80", None);
    for more in [rule.tag(1), rule.shared(), rule.priority(0)] {
        assert_eq!(more.as_five_tuple(), None);
        assert_eq!(more.addresses(), rule.as_five_tuple());
    }
    let with = |outer: HeaderMatch| FlowRule { outer, ..rule }.addresses();
    assert_eq!(with(HeaderMatch { vlan: Some(3), ..rule.outer }), None);
    assert_eq!(with(HeaderMatch { ip: Some(IpMatch::V4 { src: None, dst: None, tos: Some(4) }), ..rule.outer }), None);
    assert_eq!(with(HeaderMatch { ethernet: EthernetMatch { ethertype: Some(0x800), ..Default::default() }, ..rule.outer }), None);
    assert_eq!(FlowRule { vxlan: Some(VxlanMatch::default()), ..rule }.addresses(), None);
    assert_eq!(FlowRule::any().as_five_tuple(), None);
}

#[test]
fn naming_more_fields_is_more_specific() {
    let order = [
        FlowRule::any(),
        flow("0.0.0.0:80", None),
        flow("10.0.0.1:80", None),
        flow("0.0.0.0:80", Some("10.0.0.2:9")),
        flow("10.0.0.1:80", Some("10.0.0.2:9")),
    ];
    assert!(order.is_sorted_by(|a, b| a.specificity() < b.specificity()));
}

#[test]
fn a_rule_needs_what_it_names() {
    assert_eq!(flow("10.0.0.1:80", None).needs(), Steering::empty());
    let inner = HeaderMatch { ip: Some(IpMatch::V6 { src: None, dst: None, traffic_class: Some(1) }), ..HeaderMatch::default() };
    let rule = FlowRule { vxlan: Some(VxlanMatch { vni: Some(7), inner }), ..FlowRule::any() }.tag(1).shared().priority(3);
    assert_eq!(rule.needs(), Steering::all() - Steering::ETHERNET - Steering::VLAN);
}
