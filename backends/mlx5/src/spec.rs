//! Flow rules as verbs has them: an attribute and specifications behind it, in bytes (ibv_create_flow(3)).
//!
//! The kernel has sixteen priorities for a program's rules, of which the lowest number comes first; which of two rules of one priority takes a frame that both
//! match, nobody says. So the more a rule names, the lower its number: two numbers for each step, since a rule that is moved stands beside its old self for
//! a moment (`Place`).

use core::mem::offset_of;
use std::net::Ipv4Addr;

use rdma_core_sys as sys;
use ringway_stack::device::{EthernetMatch, FlowRule, HeaderMatch, IpMatch, MacAddr, Protocol, TransportMatch, VxlanMatch};

use crate::mutants::{self, Mutant};
use crate::verbs::HashOf;

/// Steps of priorities; what names less has the last one.
const STEPS: u16 = 8;
/// All bits of a tunnel's identifier.
const VNI: u32 = 0xff_ffff;
/// The Ethernet addresses of groups begin with this (RFC 1112 s6.4), and those of IPv6's (RFC 2464 s7).
const GROUPS_V4: [u8; 3] = [0x01, 0x00, 0x5e];
const GROUPS_V6: [u8; 2] = [0x33, 0x33];

/// What a rule matches, as the kernel is told of it; rules that match the same are equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spec {
    /// Specifications, one behind the other.
    bytes: Vec<u8>,
    count: u8,
    step: u16,
}

/// Which of a step's two numbers a rule has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    #[default]
    First,
    Second,
}

impl Place {
    /// The other one.
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// Words that any of the structures fits into.
const ROOM: usize = 12;

/// A structure's bytes: those that `fill` does not write are zero, gaps too.
fn bytes_of<T: Default>(fill: impl FnOnce(&mut T)) -> Vec<u8> {
    const { assert!(size_of::<T>() <= 8 * ROOM && align_of::<T>() <= 8) };
    let mut room = [0u64; ROOM];
    // SAFETY: the room is as large and aligned, and zeroes are a value of each of the library's structures, which have no more than integers in them.
    fill(unsafe { &mut *room.as_mut_ptr().cast::<T>() });
    room.iter().flat_map(|word| word.to_ne_bytes()).take(size_of::<T>()).collect()
}

/// All bits, or none, as a field is named or not.
fn mask<T, M>(named: Option<T>, all: M, none: M) -> M {
    if named.is_some() { all } else { none }
}

impl Spec {
    /// Of a rule whose frames come to this address, unless it names another one, or is for a group.
    pub(crate) fn of(rule: &FlowRule, own: MacAddr) -> Self {
        let HeaderMatch { ethernet, ip, .. } = rule.outer;
        let is_own = || rule.vxlan.is_some().then_some(own);
        let dst = ethernet.dst.or_else(|| ip.map(|ip| group_of(&ip).unwrap_or(own))).or_else(is_own);
        let mut spec = Self { bytes: Vec::new(), count: 0, step: (STEPS - 1).saturating_sub(rule.specificity() as u16) };
        let outer = HeaderMatch { ethernet: EthernetMatch { dst, ..ethernet }, ..rule.outer };
        spec.frame(&outer, 0);
        if let Some(VxlanMatch { vni, inner }) = rule.vxlan {
            spec.push(|spec: &mut sys::ibv_flow_spec_tunnel| {
                (spec.r#type, spec.size) = (sys::IBV_FLOW_SPEC_VXLAN_TUNNEL, size_of::<sys::ibv_flow_spec_tunnel>() as u16);
                (spec.val.tunnel_id, spec.mask.tunnel_id) = (vni.unwrap_or(0).to_be(), mask(vni, VNI, 0).to_be());
            });
            spec.frame(&inner, if mutants::is(Mutant::InnerIsOuter) { 0 } else { sys::IBV_FLOW_SPEC_INNER });
        }
        spec
    }

    /// Headers of the frame, or (with `inner`, a bit of the specifications' types) of the one in its tunnel.
    fn frame(&mut self, headers: &HeaderMatch, inner: u32) {
        let HeaderMatch { ethernet, vlan, ip, transport } = *headers;
        let filter = |dst: [u8; 6], src: [u8; 6], ether_type: u16, vlan_tag: u16| sys::ibv_flow_eth_filter {
            dst_mac: dst,
            src_mac: src,
            ether_type: ether_type.to_be(),
            vlan_tag: vlan_tag.to_be(),
        };
        let mac = |mac: Option<MacAddr>| mac.map_or([0; 6], |mac| mac.0);
        let all = |mac: Option<MacAddr>| mask(mac, [0xff; 6], [0; 6]);
        let value = filter(mac(ethernet.dst), mac(ethernet.src), ethernet.ethertype.unwrap_or(0), vlan.unwrap_or(0));
        let mask_of = filter(all(ethernet.dst), all(ethernet.src), mask(ethernet.ethertype, 0xffff, 0), mask(vlan, 0x0fff, 0));
        // (Inside of a tunnel, a header of which nothing is named is left out.)
        if inner == 0 || ethernet != EthernetMatch::default() || vlan.is_some() {
            self.ethernet(value, mask_of, inner);
        }
        ip.iter().for_each(|ip| self.ip(ip, inner));
        transport.iter().for_each(|transport| self.transport(transport, inner));
    }

    /// Of all frames to addresses that begin with these bytes: the last step.
    pub(crate) fn of_addresses(prefix: &[u8]) -> Self {
        let mut spec = Self { bytes: Vec::new(), count: 0, step: STEPS - 1 };
        let (mut value, mut mask) = (sys::ibv_flow_eth_filter::default(), sys::ibv_flow_eth_filter::default());
        value.dst_mac[..prefix.len()].copy_from_slice(prefix);
        mask.dst_mac[..prefix.len()].fill(0xff);
        spec.ethernet(value, mask, 0);
        spec
    }

    fn push<T: Default>(&mut self, fill: impl FnOnce(&mut T)) {
        self.bytes.extend(bytes_of(fill));
        self.count += 1;
    }

    fn ethernet(&mut self, value: sys::ibv_flow_eth_filter, mask: sys::ibv_flow_eth_filter, inner: u32) {
        self.push(|spec: &mut sys::ibv_flow_spec_eth| {
            (spec.r#type, spec.size) = (sys::IBV_FLOW_SPEC_ETH | inner, size_of::<sys::ibv_flow_spec_eth>() as u16);
            (spec.val, spec.mask) = (value, mask);
        });
    }

    fn ip(&mut self, ip: &IpMatch, inner: u32) {
        match *ip {
            IpMatch::V4 { src, dst, tos } => self.ipv4(src, dst, tos, inner),
            IpMatch::V6 { src, dst, traffic_class } => self.push(|spec: &mut sys::ibv_flow_spec_ipv6| {
                let all = [0xff; 16];
                (spec.r#type, spec.size) = (sys::IBV_FLOW_SPEC_IPV6 | inner, size_of::<sys::ibv_flow_spec_ipv6>() as u16);
                if let Some(src) = src {
                    (spec.val.src_ip, spec.mask.src_ip) = (src.octets(), all);
                }
                if let Some(dst) = dst {
                    (spec.val.dst_ip, spec.mask.dst_ip) = (dst.octets(), all);
                }
                if let Some(class) = traffic_class {
                    (spec.val.traffic_class, spec.mask.traffic_class) = (class, 0xff);
                }
            }),
        }
    }

    /// By the older specification where it has all that is named.
    fn ipv4(&mut self, src: Option<Ipv4Addr>, dst: Option<Ipv4Addr>, tos: Option<u8>, inner: u32) {
        let bits = |ip: Option<Ipv4Addr>| (ip.map_or(0, |ip| u32::from(ip).to_be()), mask(ip, !0, 0));
        let ((src, src_mask), (dst, dst_mask)) = (bits(src), bits(dst));
        match tos {
            None => self.push(|spec: &mut sys::ibv_flow_spec_ipv4| {
                (spec.r#type, spec.size) = (sys::IBV_FLOW_SPEC_IPV4 | inner, size_of::<sys::ibv_flow_spec_ipv4>() as u16);
                (spec.val.src_ip, spec.mask.src_ip, spec.val.dst_ip, spec.mask.dst_ip) = (src, src_mask, dst, dst_mask);
            }),
            Some(tos) => self.push(|spec: &mut sys::ibv_flow_spec_ipv4_ext| {
                (spec.r#type, spec.size) = (sys::IBV_FLOW_SPEC_IPV4_EXT | inner, size_of::<sys::ibv_flow_spec_ipv4_ext>() as u16);
                (spec.val.src_ip, spec.mask.src_ip, spec.val.dst_ip, spec.mask.dst_ip) = (src, src_mask, dst, dst_mask);
                (spec.val.tos, spec.mask.tos) = (tos, if mutants::is(Mutant::ServiceUnnamed) { 0 } else { 0xff });
            }),
        }
    }

    fn transport(&mut self, transport: &TransportMatch, inner: u32) {
        let TransportMatch { protocol, src_port, dst_port } = *transport;
        let bits = |port: Option<u16>| (port.map_or(0, u16::to_be), mask(port, !0, 0));
        let ((src, src_mask), (dst, dst_mask)) = (bits(src_port), bits(dst_port));
        self.push(|spec: &mut sys::ibv_flow_spec_tcp_udp| {
            spec.r#type = inner | if protocol == Protocol::Tcp { sys::IBV_FLOW_SPEC_TCP } else { sys::IBV_FLOW_SPEC_UDP };
            spec.size = size_of::<sys::ibv_flow_spec_tcp_udp>() as u16;
            (spec.val.src_port, spec.mask.src_port, spec.val.dst_port, spec.mask.dst_port) = (src, src_mask, dst, dst_mask);
        });
    }

    /// The attribute and what follows it, for a port. A tag of zero is none.
    pub(crate) fn attribute(&self, place: Place, tag: u32, port: u8) -> Vec<u64> {
        let mut bytes = self.bytes.clone();
        let mut count = self.count;
        if tag != 0 {
            bytes.extend(bytes_of(|spec: &mut sys::ibv_flow_spec_action_tag| {
                (spec.r#type, spec.size) = (sys::IBV_FLOW_SPEC_ACTION_TAG, size_of::<sys::ibv_flow_spec_action_tag>() as u16);
                spec.tag_id = tag;
            }));
            count += 1;
        }
        let attribute = bytes_of(|attribute: &mut sys::ibv_flow_attr| {
            attribute.r#type = sys::IBV_FLOW_ATTR_NORMAL;
            attribute.size = (size_of::<sys::ibv_flow_attr>() + bytes.len()) as u16;
            attribute.priority = 2 * self.step + u16::from(place == Place::Second);
            (attribute.num_of_specs, attribute.port) = (count, port);
        });
        let all = [attribute, bytes].concat();
        all.chunks(8).map(|chunk| u64::from_ne_bytes(core::array::from_fn(|at| chunk.get(at).copied().unwrap_or(0)))).collect()
    }
}

/// The Ethernet address of the group that a rule's frames are for.
fn group_of(ip: &IpMatch) -> Option<MacAddr> {
    match ip {
        IpMatch::V4 { dst: Some(dst), .. } if dst.is_multicast() => {
            let [_, b, c, d] = dst.octets();
            let [g0, g1, g2] = GROUPS_V4;
            Some(MacAddr([g0, g1, g2, b & 0x7f, c, d]))
        }
        IpMatch::V6 { dst: Some(dst), .. } if dst.is_multicast() => {
            let [.., a, b, c, d] = dst.octets();
            let [g0, g1] = GROUPS_V6;
            Some(MacAddr([g0, g1, a, b, c, d]))
        }
        IpMatch::V4 { dst: Some(Ipv4Addr::BROADCAST), .. } => Some(MacAddr([0xff; 6])),
        _ => None,
    }
}

/// Whether a rule's frames are copied to all who have one.
pub(crate) fn is_of_group(rule: &FlowRule) -> bool {
    let by_mac = rule.outer.ethernet.dst.is_some_and(|mac| mac.0[0] & 1 != 0);
    by_mac || rule.outer.ip.is_some_and(|ip| group_of(&ip).is_some())
}

/// What a group of rings is hashed by.
pub(crate) fn hash_of(rule: &FlowRule) -> HashOf {
    let protocol = rule.outer.transport.map(|transport| transport.protocol);
    match (rule.outer.ip, protocol) {
        (Some(IpMatch::V4 { .. }), Some(Protocol::Tcp)) => HashOf::TcpV4,
        (Some(IpMatch::V4 { .. }), Some(Protocol::Udp)) => HashOf::UdpV4,
        (Some(IpMatch::V6 { .. }), Some(Protocol::Tcp)) => HashOf::TcpV6,
        (Some(IpMatch::V6 { .. }), Some(Protocol::Udp)) => HashOf::UdpV6,
        _ => HashOf::Addresses,
    }
}

const _: () = assert!(offset_of!(sys::ibv_flow_attr, flags) + 4 == size_of::<sys::ibv_flow_attr>(), "specifications follow at once");

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn words(attribute: &[u64]) -> Vec<u8> {
        attribute.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_connection_s_rule_is_four_specifications_and_its_tag() {
        let rule = FlowRule::flow(Protocol::Tcp, "10.0.0.1:80".parse().unwrap(), Some("10.0.0.2:7".parse().unwrap()));
        let bytes = words(&Spec::of(&rule, OWN).attribute(Place::First, 0x12_3456, 1));
        let field = |at: usize, len: usize| &bytes[at..at + len];
        let size = 20 + 40 + 24 + 16 + 12;
        assert_eq!((field(8, 2), field(10, 2), bytes[12], bytes[13]), (&(size as u16).to_ne_bytes()[..], &[2, 0][..], 4, 1));
        assert_eq!((field(20, 6), field(26, 6)), (&[0x20, 0, 0, 0, 40, 0][..], &OWN.0[..]));
        assert_eq!(field(42, 6), [0xff; 6], "the destination counts, and nothing else");
        assert_eq!(field(48, 10), [0; 10]);
        assert_eq!((field(68, 8), field(76, 8)), (&[10, 0, 0, 2, 10, 0, 0, 1][..], &[0xff; 8][..]));
        assert_eq!((field(84, 6), field(90, 4)), (&[0x40, 0, 0, 0, 16, 0][..], &[0, 80, 0, 7][..]));
        assert_eq!(field(100 + 8, 4), 0x12_3456u32.to_ne_bytes());
    }

    #[test]
    fn the_more_a_rule_names_the_earlier_it_is_asked() {
        let (local, any) = ("10.0.0.1:80".parse().unwrap(), "0.0.0.0:80".parse().unwrap());
        let of = |rule: &FlowRule, place| Spec::of(rule, OWN).attribute(place, 0, 1)[1] >> 16 & 0xffff;
        let rules = [
            FlowRule::flow(Protocol::Udp, local, Some("10.0.0.2:7".parse().unwrap())),
            FlowRule::flow(Protocol::Udp, local, None),
            FlowRule::flow(Protocol::Udp, any, None),
            FlowRule::any(),
        ];
        assert_eq!(rules.map(|rule| [of(&rule, Place::First), of(&rule, Place::Second)]), [[2, 3], [6, 7], [8, 9], [14, 15]]);
    }

    #[test]
    fn groups_have_addresses_of_their_own() {
        let rule = |group: &str| FlowRule::flow(Protocol::Udp, group.parse().unwrap(), None);
        let mac = |group: &str| Spec::of(&rule(group), OWN).bytes[6..12].to_vec();
        assert_eq!(mac("239.129.2.3:5"), [1, 0, 0x5e, 1, 2, 3]);
        assert_eq!(mac("[ff02::1:ff00:9]:5"), [0x33, 0x33, 0xff, 0, 0, 9]);
        assert!(is_of_group(&rule("239.1.2.3:5")) && !is_of_group(&rule("10.0.0.1:5")));
    }
}
