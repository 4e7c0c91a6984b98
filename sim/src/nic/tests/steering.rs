use super::*;
use ringway_stack::device::{EthernetMatch, HeaderMatch, IpMatch, Steering, TransportMatch, VxlanMatch};

fn rings(nic: &Nic, count: usize) -> Vec<SimQueues> {
    (0..count).map(|_| nic.ring()).collect()
}

fn flow(local: &str, remote: Option<&str>) -> FlowRule {
    FlowRule::flow(Protocol::Udp, local.parse().unwrap(), remote.map(|remote| remote.parse().unwrap()))
}

fn datagram(src: &str, dst: &str) -> Vec<u8> {
    frames::udp(address(src), address(dst), b"payload")
}

#[test]
fn the_most_specific_rule_wins_and_its_tag_comes_along() {
    let nic = nic(NicConfig::default());
    let mut rings = rings(&nic, 4);
    rings[1].steer(&flow("0.0.0.0:7", None).tag(1)).unwrap();
    rings[2].steer(&flow("10.0.0.1:7", None).tag(2)).unwrap();
    let exact = rings[3].steer(&flow("10.0.0.1:7", Some("10.0.0.2:9")).tag(3)).unwrap();
    let mut tag = |frame: &[u8]| {
        receive(&nic, frame);
        rings.iter_mut().enumerate().find_map(|(i, ring)| Some((i, poll(ring).first()?.1.flow_tag))).unwrap()
    };
    assert_eq!(tag(&datagram("10.0.0.2:9", "10.0.0.1:7")), (3, 3));
    assert_eq!(tag(&datagram("10.0.0.2:8", "10.0.0.1:7")), (2, 2));
    assert_eq!(tag(&datagram("10.0.0.2:9", "10.0.0.5:7")), (1, 1));
    assert_eq!(tag(&datagram("10.0.0.2:9", "10.0.0.1:6")), (0, 0), "what nothing steers is the first ring's");
    rings[3].device().detach(exact.rule);
    assert_eq!(nic.outstanding().rules, 2);
    receive(&nic, &datagram("10.0.0.2:9", "10.0.0.1:7"));
    assert_eq!(who(&mut rings), [2]);
}

#[test]
fn a_lower_priority_goes_before_a_more_specific_rule() {
    let nic = nic(NicConfig::default());
    let mut rings = rings(&nic, 3);
    rings[1].steer(&flow("10.0.0.1:7", Some("10.0.0.2:9"))).unwrap();
    let first = rings[2].steer(&FlowRule::any().priority(3)).unwrap();
    receive(&nic, &datagram("10.0.0.2:9", "10.0.0.1:7"));
    assert_eq!(who(&mut rings), [2]);
    rings[2].device().detach(first.rule);
    rings[2].steer(&FlowRule::any().priority(90)).unwrap();
    receive(&nic, &datagram("10.0.0.2:9", "10.0.0.1:7"));
    assert_eq!(who(&mut rings), [1]);
    receive(&nic, &datagram("10.0.0.2:9", "10.0.0.1:8"));
    assert_eq!(who(&mut rings), [2]);
}

#[test]
fn every_field_steers() {
    let outer = |outer: HeaderMatch| FlowRule { outer, ..FlowRule::any() };
    let ethernet = |ethernet: EthernetMatch| outer(HeaderMatch { ethernet, ..HeaderMatch::default() });
    let ip = |ip: IpMatch| outer(HeaderMatch { ip: Some(ip), ..HeaderMatch::default() });
    let plain = datagram("10.0.0.2:9", "10.0.0.1:7");
    let mut marked = plain.clone();
    marked[15] = 0x28;
    let six = ipv6();
    let tunnel = frames::vxlan(77, &plain);
    let inner = HeaderMatch { ip: Some(IpMatch::V4 { src: Some([10, 0, 0, 2].into()), dst: None, tos: None }), ..HeaderMatch::default() };
    let vxlan = |vni, inner| FlowRule { vxlan: Some(VxlanMatch { vni, inner }), ..FlowRule::any() };
    let udp = |src_port, dst_port| {
        outer(HeaderMatch { transport: Some(TransportMatch { protocol: Protocol::Udp, src_port, dst_port }), ..HeaderMatch::default() })
    };
    let cases: [(&str, FlowRule, &[u8]); 13] = [
        ("destination", ethernet(EthernetMatch { dst: Some(frames::mac(1)), ..Default::default() }), &plain),
        ("source", ethernet(EthernetMatch { src: Some(frames::mac(0)), ..Default::default() }), &plain),
        ("ethertype", ethernet(EthernetMatch { ethertype: Some(0x86dd), ..Default::default() }), &six),
        ("vlan", outer(HeaderMatch { vlan: Some(5), ..HeaderMatch::default() }), &frames::tagged(&plain, 0xe005)),
        ("tos", ip(IpMatch::V4 { src: None, dst: None, tos: Some(0x28) }), &marked),
        ("source address", ip(IpMatch::V4 { src: Some([10, 0, 0, 2].into()), dst: None, tos: None }), &plain),
        ("traffic class", ip(IpMatch::V6 { src: None, dst: None, traffic_class: Some(0xb8) }), &six),
        ("v6 address", ip(IpMatch::V6 { src: None, dst: Some("fd00::1".parse().unwrap()), traffic_class: None }), &six),
        ("source port", udp(Some(9), None), &plain),
        ("v6 port", udp(None, Some(53)), &six),
        ("vni", vxlan(Some(77), HeaderMatch::default()), &tunnel),
        ("inner address", vxlan(None, inner), &tunnel),
        ("inner and vni", vxlan(Some(77), inner), &tunnel),
    ];
    // Nothing of this frame matches any of the rules.
    let mut stranger = datagram("10.0.0.3:1", "10.0.0.4:2");
    stranger[..12].fill(0x42);
    for (name, rule, frame) in cases {
        let nic = nic(NicConfig::default());
        let mut rings = rings(&nic, 2);
        rings[1].steer(&rule).unwrap();
        receive(&nic, frame);
        assert_eq!(who(&mut rings), [1], "{name}");
        receive(&nic, &stranger);
        assert_eq!(who(&mut rings), [0], "{name}: a stranger");
    }
    let nic = nic(NicConfig::default());
    let mut rings = rings(&nic, 2);
    rings[1].steer(&vxlan(Some(78), inner)).unwrap();
    receive(&nic, &tunnel);
    assert_eq!(who(&mut rings), [0], "another tunnel");
}

/// A UDP datagram to port 53 over IPv6, traffic class 0xb8.
fn ipv6() -> Vec<u8> {
    datagram_v6("[fd00::2]:12345", "[fd00::1]:53")
}

/// An empty one, of traffic class 0xb8.
fn datagram_v6(src: &str, dst: &str) -> Vec<u8> {
    let [src, dst] = [src, dst].map(|end| end.parse::<std::net::SocketAddrV6>().unwrap());
    let mut frame = [&frames::mac(0).0[..], &frames::mac(1).0[..], &[0x86, 0xdd, 0x6b, 0x80, 0, 0, 0, 8, 17, 64]].concat();
    frame.extend([src.ip().octets(), dst.ip().octets()].concat());
    frame.extend([src.port().to_be_bytes(), dst.port().to_be_bytes()].concat());
    frame.extend([0, 8, 0, 0]);
    frame
}

#[test]
fn the_most_specific_rule_of_ipv6_wins_and_ipv4_is_another_flow() {
    let nic = nic(NicConfig::default());
    let mut rings = rings(&nic, 6);
    let rules = [
        flow("[::]:7", None),
        flow("[fd00::1]:7", None),
        flow("[fd00::1]:7", Some("[fd00::2]:9")),
        flow("[fd00:0:0:1::1]:7", Some("[fd00::2]:9")),
        flow("0.0.0.0:7", None),
    ];
    for (ring, rule) in rings[1..].iter_mut().zip(&rules) {
        ring.steer(rule).unwrap();
    }
    assert_eq!(rings[0].steer(&rules[2]), Err(RuleError::Taken));
    let mut of = |frame: &[u8]| {
        receive(&nic, frame);
        who(&mut rings)
    };
    assert_eq!(of(&datagram_v6("[fd00::2]:9", "[fd00::1]:7")), [3]);
    assert_eq!(of(&datagram_v6("[fd00::2]:9", "[fd00::1]:7")), [3], "once more, as its flow was the last one");
    assert_eq!(of(&datagram_v6("[fd00::2]:9", "[fd00:0:0:1::1]:7")), [4], "all of an address counts");
    assert_eq!(of(&datagram_v6("[fd00:0:0:1::2]:9", "[fd00::1]:7")), [2]);
    assert_eq!(of(&datagram_v6("[fd00::2]:8", "[fd00::1]:7")), [2]);
    assert_eq!(of(&datagram_v6("[fd00::2]:9", "[fd00::5]:7")), [1]);
    assert_eq!(of(&datagram_v6("[fd00::2]:9", "[fd00::1]:6")), [0], "what nothing steers is the first ring's");
    assert_eq!(of(&datagram("10.0.0.2:9", "10.0.0.1:7")), [5]);
}

#[test]
fn a_rule_has_one_ring_unless_it_is_shared() {
    let nic = nic(NicConfig::default());
    let rings = rings(&nic, 3);
    let rule = flow("10.0.0.1:7", None);
    rings[0].steer(&rule).unwrap();
    assert_eq!(rings[1].steer(&rule), Err(RuleError::Taken));
    assert_eq!(rings[1].steer(&rule.shared()), Err(RuleError::Taken), "the first one is not");
    let other = flow("10.0.0.1:8", None).shared();
    rings[0].steer(&other).unwrap();
    rings[0].steer(&other).unwrap();
    rings[1].steer(&other).unwrap();
}

#[test]
fn a_group_spreads_flows_and_keeps_each_together() {
    let nic = nic(NicConfig::default());
    let mut rings = rings(&nic, 4);
    let rule = flow("10.0.0.1:7", None).shared();
    let ids: Vec<_> = rings.iter_mut().map(|ring| ring.steer(&rule).unwrap()).collect();
    let mut shares = [0; 4];
    for port in 1000..1400 {
        let frame = datagram(&format!("10.0.0.2:{port}"), "10.0.0.1:7");
        receive(&nic, &frame);
        let [first] = who(&mut rings)[..] else { panic!("one ring") };
        receive(&nic, &frame);
        assert_eq!(who(&mut rings), [first], "the same flow");
        shares[first] += 1;
    }
    assert!(shares.iter().all(|share| (60..=140).contains(share)), "{shares:?}");
    rings[2].device().detach(ids[2].rule);
    for port in 1000..1400 {
        receive(&nic, &datagram(&format!("10.0.0.2:{port}"), "10.0.0.1:7"));
    }
    let counts: Vec<_> = rings.iter().map(|ring| ring.outstanding().rx_frames).collect();
    assert_eq!((counts[2], counts.iter().sum::<usize>()), (0, 400));
}

#[test]
fn group_addresses_are_copied_and_what_is_no_ip_goes_to_every_stack() {
    let nic = nic(NicConfig::default());
    let mut rings = rings(&nic, 3);
    rings.push(nic.steered_ring());
    let mut frame = datagram("10.0.0.2:9", "239.1.1.1:7");
    frame[..6].copy_from_slice(&[1, 0, 0x5e, 1, 1, 1]);
    receive(&nic, &frame);
    assert_eq!(who(&mut rings), [0], "nobody joined");
    for ring in [1, 2] {
        rings[ring].steer(&flow("239.1.1.1:7", None)).unwrap();
    }
    receive(&nic, &frame);
    assert_eq!(who(&mut rings), [1, 2]);
    receive(&nic, &frames::experimental(frames::mac(0), frames::mac(1), b"no IP"));
    assert_eq!(who(&mut rings), [0, 1, 2], "not the one that only gets what is steered");
    rings[3].steer(&FlowRule::any()).unwrap();
    receive(&nic, &frames::experimental(frames::mac(0), frames::mac(1), b"no IP"));
    assert_eq!(who(&mut rings), [3]);
}

#[test]
fn what_a_nic_cannot_steer_by_is_refused() {
    let plain = flow("10.0.0.1:7", None);
    let vlan = FlowRule { outer: HeaderMatch { vlan: Some(1), ..HeaderMatch::default() }, ..FlowRule::any() };
    let tunnel = FlowRule { vxlan: Some(VxlanMatch::default()), ..FlowRule::any() };
    let cases = [
        (Steering::TAG, plain.tag(9)),
        (Steering::RSS, plain.shared()),
        (Steering::PRIORITY, plain.priority(1)),
        (Steering::VLAN, vlan),
        (Steering::VXLAN, tunnel),
    ];
    for (needed, rule) in cases {
        let without = nic(NicConfig { steering: Steering::all() - needed, ..NicConfig::default() }).ring();
        assert!(matches!(without.steer(&rule), Err(RuleError::Unsupported(_))), "{needed:?}");
        without.steer(&plain).unwrap();
        nic(NicConfig { steering: needed, ..NicConfig::default() }).ring().steer(&rule).unwrap();
    }
}

#[test]
fn a_ring_that_goes_takes_its_rules_along() {
    let nic = nic(NicConfig { rings_max: 2, ..NicConfig::default() });
    let mut first = nic.ring();
    {
        let second = nic.ring();
        second.steer(&flow("10.0.0.1:7", None)).unwrap();
        receive(&nic, &datagram("10.0.0.2:9", "10.0.0.1:7"));
    }
    assert_eq!(nic.outstanding(), Outstanding::default());
    receive(&nic, &datagram("10.0.0.2:9", "10.0.0.1:7"));
    assert_eq!(poll(&mut first).len(), 1);
    let mut again = nic.ring();
    assert_eq!(poll(&mut again).len(), 0);
}
