//! What an interface steers to the card for a flow rule of it: the flow that the rule is about. Of what comes for that flow, the rule takes what it takes; the rest is lost.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ringway_sim::connectx::steering::{Kind, Layer, Rule};
use ringway_stack::device::{FiveTuple, Protocol};

/// What is to be steered. `None`: the rule names no port of an address of TCP or UDP, or is about VLANs, tunnels, or all that comes and goes, which the kernel's interface cannot
/// do without.
pub(crate) fn of(rule: &Rule) -> Option<FiveTuple> {
    let Kind::Normal(layers) = &rule.kind else { return None };
    let (mut addresses, mut ports) = (None, None);
    for layer in layers {
        match layer {
            Layer::Ethernet { vlan: (_, 0), .. } => {}
            Layer::Ip { v6, value, mask, .. } => addresses = Some((address(*v6, value[0], mask[0])?, address(*v6, value[1], mask[1])?)),
            Layer::Ports { udp, value, mask } => ports = Some((*udp, port(value[0], mask[0])?, port(value[1], mask[1])?)),
            Layer::Ethernet { .. } | Layer::Vxlan(..) | Layer::Inner(_) => return None,
        }
    }
    let ((from, to), (udp, from_port, to_port)) = (addresses?, ports?);
    let remote = match (from, from_port) {
        (None, None) => None,
        (Some(from), Some(port)) => Some(SocketAddr::new(from, port)),
        _ => return None,
    };
    let protocol = if udp { Protocol::Udp } else { Protocol::Tcp };
    Some(FiveTuple { protocol, local: SocketAddr::new(to?, to_port?), remote })
}

/// All of an address, or nothing of it. `None`: a part.
fn address(v6: bool, value: [u8; 16], mask: [u8; 16]) -> Option<Option<IpAddr>> {
    let len = if v6 { 16 } else { 4 };
    match &mask[..len] {
        mask if mask.iter().all(|byte| *byte == 0) => Some(None),
        mask if mask.iter().all(|byte| *byte == 0xff) => Some(Some(match v6 {
            true => Ipv6Addr::from(value).into(),
            false => Ipv4Addr::new(value[0], value[1], value[2], value[3]).into(),
        })),
        _ => None,
    }
}

/// All of a port, or nothing of it. `None`: a part.
fn port(value: u16, mask: u16) -> Option<Option<u16>> {
    match mask {
        0 => Some(None),
        0xffff => Some(Some(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ringway_sim::connectx::packet::TCP;

    use super::*;

    const ALL: [u8; 16] = [0xff; 16];
    const NONE: [u8; 16] = [0; 16];

    fn v4(last: u8) -> [u8; 16] {
        core::array::from_fn(|at| if at < 4 { [10, 0, 0, last][at] } else { 0 })
    }

    fn ip(mask: [[u8; 16]; 2]) -> Layer {
        Layer::Ip { v6: false, value: [v4(1), v4(2)], mask, protocol: (TCP, 0xff), tos: (0, 0), flow_label: (0, 0) }
    }

    fn ports(udp: bool, mask: [u16; 2]) -> Layer {
        Layer::Ports { udp, value: [1000, 80], mask }
    }

    fn rule(layers: Vec<Layer>) -> Rule {
        use ringway_sim::connectx::steering::Action;
        Rule { kind: Kind::Normal(layers), priority: 0, goes_on: false, action: Action::Receive { tag: None }, target: 1 }
    }

    #[test]
    fn a_listener_s_rule_and_a_connection_s_are_flows() {
        let local: SocketAddr = "10.0.0.2:80".parse().unwrap();
        let ethernet = |vlan| Layer::Ethernet { value: [[2; 6]; 2], mask: [[0xff; 6], [0; 6]], ethertype: (0, 0), vlan };
        let listener = rule(vec![ethernet((0, 0)), ip([NONE, ALL]), ports(false, [0, 0xffff])]);
        assert_eq!(of(&listener), Some(FiveTuple { protocol: Protocol::Tcp, local, remote: None }));
        let connection = rule(vec![ip([ALL; 2]), ports(true, [0xffff; 2])]);
        let remote = "10.0.0.1:1000".parse().ok();
        assert_eq!(of(&connection), Some(FiveTuple { protocol: Protocol::Udp, local, remote }));
        let tagged = rule(vec![ethernet((7, 0xfff)), ip([NONE, ALL]), ports(false, [0, 0xffff])]);
        assert_eq!(of(&tagged), None);
    }

    #[test]
    fn what_names_less_or_more_than_a_flow_is_none() {
        let part = core::array::from_fn(|at| if at < 3 { 0xff } else { 0 });
        for layers in [
            vec![],
            vec![ip([NONE, ALL])],
            vec![ports(true, [0, 0xffff])],
            vec![ip([NONE, part]), ports(true, [0, 0xffff])],
            vec![ip([NONE, NONE]), ports(true, [0, 0xffff])],
            vec![ip([NONE, ALL]), ports(true, [0xffff, 0xffff])],
            vec![ip([NONE, ALL]), ports(true, [0, 0xff00])],
            vec![ip([NONE, ALL]), ports(true, [0, 0xffff]), Layer::Vxlan(1, 0xff_ffff)],
        ] {
            assert_eq!(of(&rule(layers.clone())), None, "{layers:?}");
        }
        for kind in [Kind::AllDefault, Kind::GroupsDefault, Kind::Sniffer] {
            assert_eq!(of(&Rule { kind, ..rule(vec![]) }), None);
        }
    }
}
