//! Flow rules: `ib_uverbs_flow_attr` and the layers behind it, and the errors that the kernel has for them (drivers/infiniband/core/uverbs_cmd.c,
//! drivers/infiniband/hw/mlx5/fs.c).

use ringway_preload::Errno;
use ringway_sim::connectx::packet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, TCP, UDP};
use ringway_sim::connectx::steering::{Action, Kind, Layer, PRIORITY_MAX, Rule, TAG_MAX};

use super::{Reply, Request};
use crate::abi::{Input, Output};
use crate::engine::Object;
use crate::log::say;

/// Where the layers begin, behind {comp_mask 0, qp_handle 4, type 8, size 12, priority 14, num_of_specs 16, reserved 17, port 19, flags 20}.
const LAYERS_AT: usize = 24;
/// `IB_FLOW_SPEC_SUPPORT_LAYERS`.
const LAYERS_MAX: u8 = 10;
/// Bytes of the longest layer.
const LAYER_LEN_MAX: usize = 88;
/// A layer's {type 0, size 4, reserved 6}.
const HEADER: usize = 8;
/// `IB_FLOW_ATTR_FLAGS_DONT_TRAP`, `IB_FLOW_ATTR_FLAGS_EGRESS`.
const GOES_ON: u32 = 1 << 1;
const EGRESS: u32 = 1 << 2;

/// `enum ib_flow_spec_type`.
mod layer {
    pub(super) const ETHERNET: u32 = 0x20;
    pub(super) const IPV4: u32 = 0x30;
    pub(super) const IPV6: u32 = 0x31;
    pub(super) const TCP: u32 = 0x40;
    pub(super) const UDP: u32 = 0x41;
    pub(super) const TAG: u32 = 0x1000;
    pub(super) const DROP: u32 = 0x1001;
    pub(super) const VXLAN: u32 = 0x50;
    /// What the card knows and the model does not: ESP, GRE, MPLS, actions by handle, counters.
    pub(super) const UNKNOWN: [u32; 5] = [0x34, 0x51, 0x60, 0x1002, 0x1003];
    pub(super) const INNER: u32 = 0x100;
}

const BAD: Errno = Errno(libc::EINVAL);
const LACKING: Errno = Errno(libc::EOPNOTSUPP);

/// `ib_uverbs_create_flow`; `ib_uverbs_create_flow_resp` {flow_handle 4}. ENOMEM: no such priority; EEXIST: an equal rule with another action.
pub(super) fn create(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let core = request.core();
    let (kind, size, priority, count) = (core.u32(8), usize::from(core.u16(12)), core.u16(14), core.u8(16));
    let (port, flags) = (core.u8(19), core.u32(20));
    let is_default = matches!(kind, 1 | 2);
    if core.u32(0) != 0 || flags & !(GOES_ON | EGRESS) != 0 || flags & GOES_ON != 0 && is_default {
        return Err(BAD);
    }
    let layers = request.core.get(LAYERS_AT..).and_then(|layers| layers.get(..size)).ok_or(BAD)?;
    if count > LAYERS_MAX || size > usize::from(count) * LAYER_LEN_MAX || core.u16(17) != 0 {
        return Err(BAD);
    }
    let Some(Object::Qp { qpn: target, .. }) = request.context()?.objects.get(&core.u32(4)).copied() else { return Err(BAD) };
    let is_raw = request.engine.raws.contains_key(&target);
    let mut spec = Spec::default();
    spec.read(layers, count)?;
    if priority > PRIORITY_MAX {
        return Err(Errno(libc::ENOMEM));
    }
    if port > 1 {
        return Err(BAD);
    }
    if !is_raw || flags & EGRESS != 0 {
        say(format_args!("flow rules of datagram queue pairs, and for what goes out, are not modelled"));
        return Err(LACKING);
    }
    let receive = Action::Receive { tag: None };
    let (kind, action) = match kind {
        0 => (Kind::Normal(spec.checked()?), if spec.drops { Action::Drop } else { Action::Receive { tag: spec.tag } }),
        1 => (Kind::AllDefault, receive),
        2 => (Kind::GroupsDefault, receive),
        3 => (Kind::Sniffer, receive),
        _ => return Err(LACKING),
    };
    let rule = Rule { kind, priority, goes_on: flags & GOES_ON != 0, action, target };
    let number = request.engine.add_rule(rule)?;
    let handle = request.context()?.add(Object::Flow(number));
    Ok(Reply { made: Some(handle), ..Reply::of(Output::new(8).u32(4, handle)) })
}

/// `ib_uverbs_destroy_flow` {comp_mask 0, flow_handle 4}.
pub(super) fn destroy(request: &mut Request<'_>) -> Result<Reply, Errno> {
    if request.core().u32(0) != 0 {
        return Err(BAD);
    }
    let object = request.remove(request.core().u32(4), |object| matches!(object, Object::Flow(_)))?;
    request.engine.end(object);
    Ok(Reply::nothing())
}

/// Makes a layer of a value and a mask.
type Make = fn(Input<'_>, Input<'_>) -> Result<Layer, Errno>;

/// What the layers say.
#[derive(Default)]
struct Spec {
    layers: Vec<Layer>,
    tag: Option<u32>,
    drops: bool,
    /// What is carried, and its mask: by IP's header, or by the layer behind it; outside of a tunnel, and inside.
    protocol: [(u8, u8); 2],
    lacking: bool,
}

impl Spec {
    /// Reads all layers. What the model lacks is refused after everything that the kernel refuses in any case.
    fn read(&mut self, mut rest: &[u8], count: u8) -> Result<(), Errno> {
        for _ in 0..count {
            let header = Input(rest);
            let (kind, size) = (header.u32(0), usize::from(header.u16(4)));
            let one = rest.get(..size).filter(|_| size >= HEADER && header.u16(6) == 0).ok_or(BAD)?;
            self.layer(kind, one)?;
            rest = &rest[size..];
        }
        if rest.is_empty() { Ok(()) } else { Err(BAD) }
    }

    fn layer(&mut self, kind: u32, bytes: &[u8]) -> Result<(), Errno> {
        match kind {
            layer::TAG if bytes.len() == 16 => {
                let tag = Input(bytes).u32(8);
                if Input(bytes).u32(12) != 0 || tag > TAG_MAX {
                    return Err(BAD);
                }
                self.tag = Some(tag);
                Ok(())
            }
            layer::DROP if bytes.len() == HEADER => {
                self.drops = true;
                Ok(())
            }
            layer::TAG | layer::DROP => Err(BAD),
            kind if layer::UNKNOWN.contains(&(kind & !layer::INNER)) => {
                say(format_args!("flow rules with layer {kind:#x} are not modelled"));
                self.lacking = true;
                Ok(())
            }
            layer::VXLAN => self.filter(bytes, (4, false), vxlan),
            _ => self.header(kind & !layer::INNER, bytes, kind & layer::INNER != 0),
        }
    }

    /// A header, outside of a tunnel or inside.
    fn header(&mut self, kind: u32, bytes: &[u8], inner: bool) -> Result<(), Errno> {
        match kind {
            layer::ETHERNET => self.filter(bytes, (16, inner), ethernet),
            layer::IPV4 => self.filter(bytes, (12, inner), ipv4),
            layer::IPV6 => self.filter(bytes, (40, inner), ipv6),
            layer::TCP | layer::UDP => {
                self.carries(if kind == layer::UDP { UDP } else { TCP }, 0xff, inner)?;
                self.filter(bytes, (4, inner), if kind == layer::UDP { udp } else { tcp })
            }
            _ => Err(BAD),
        }
    }

    /// A layer of a value and a mask, each of `len` bytes: an older program's are shorter, a newer one's may be longer and zero there.
    fn filter(&mut self, bytes: &[u8], (len, inner): (usize, bool), make: Make) -> Result<(), Errno> {
        let (value, mask) = bytes[HEADER..].split_at((bytes.len() - HEADER) / 2);
        let is_clear = |bytes: &[u8]| bytes.iter().skip(len).all(|byte| *byte == 0);
        if value.is_empty() || !is_clear(value) || !is_clear(mask) {
            return Err(BAD);
        }
        // Bits that do not count say nothing.
        let value: Vec<u8> = value.iter().zip(mask).map(|(value, mask)| value & mask).collect();
        let made = make(Input(&value), Input(mask))?;
        if let Layer::Ip { protocol, .. } = made {
            self.carries(protocol.0, protocol.1, inner)?;
        }
        self.layers.push(if inner { Layer::Inner(Box::new(made)) } else { made });
        Ok(())
    }

    /// Two layers may not name different protocols.
    fn carries(&mut self, protocol: u8, mask: u8, inner: bool) -> Result<(), Errno> {
        let there = &mut self.protocol[usize::from(inner)];
        match *there {
            _ if mask == 0 => Ok(()),
            (_, 0) => {
                *there = (protocol, mask);
                Ok(())
            }
            same if same == (protocol, mask) => Ok(()),
            _ => Err(BAD),
        }
    }

    /// The layers of a rule that is not a default one.
    fn checked(&mut self) -> Result<Vec<Layer>, Errno> {
        let types = self.layers.iter().rev().find_map(|layer| match layer {
            Layer::Ethernet { ethertype, .. } if ethertype.1 != 0 => Some(*ethertype),
            _ => None,
        });
        let version = self.layers.iter().rev().find_map(|layer| match layer {
            Layer::Ip { v6, .. } => Some(*v6),
            _ => None,
        });
        // A type and a version of IP must be the same thing said twice.
        if let (Some(found), Some(v6)) = (types, version)
            && found != (if v6 { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 }, 0xffff)
        {
            return Err(BAD);
        }
        if self.lacking { Err(LACKING) } else { Ok(std::mem::take(&mut self.layers)) }
    }
}

fn big(input: Input<'_>, at: usize) -> u16 {
    u16::from_be(input.u16(at))
}

/// {dst_mac 0, src_mac 6, ether_type 12, vlan_tag 14}.
fn ethernet(value: Input<'_>, mask: Input<'_>) -> Result<Layer, Errno> {
    let addresses = |from: Input<'_>| [0, 6].map(|at| core::array::from_fn(|i| from.u8(at + i)));
    let both = |at| (big(value, at), big(mask, at));
    Ok(Layer::Ethernet { value: addresses(value), mask: addresses(mask), ethertype: both(12), vlan: both(14) })
}

/// {src_ip 0, dst_ip 4, proto 8, tos 9, ttl 10, flags 11}; of the last two the card matches nothing.
fn ipv4(value: Input<'_>, mask: Input<'_>) -> Result<Layer, Errno> {
    if mask.u16(10) != 0 {
        return Err(LACKING);
    }
    let addresses = |from: Input<'_>| [0, 4].map(|at| core::array::from_fn(|i| if i < 4 { from.u8(at + i) } else { 0 }));
    let both = |at| (value.u8(at), mask.u8(at));
    let (protocol, tos) = (both(8), both(9));
    Ok(Layer::Ip { v6: false, value: addresses(value), mask: addresses(mask), protocol, tos, flow_label: (0, 0) })
}

/// {src_ip 0, dst_ip 16, flow_label 32, next_hdr 36, traffic_class 37, hop_limit 38}; of the last the card matches nothing.
fn ipv6(value: Input<'_>, mask: Input<'_>) -> Result<Layer, Errno> {
    if mask.u16(38) != 0 {
        return Err(LACKING);
    }
    let addresses = |from: Input<'_>| [0, 16].map(|at| core::array::from_fn(|i| from.u8(at + i)));
    let both = |at| (value.u8(at), mask.u8(at));
    let (protocol, tos) = (both(36), both(37));
    let flow_label = (u32::from_be(value.u32(32)), u32::from_be(mask.u32(32)));
    Ok(Layer::Ip { v6: true, value: addresses(value), mask: addresses(mask), protocol, tos, flow_label })
}

/// {dst_port 0, src_port 2}.
fn ports(udp: bool, value: Input<'_>, mask: Input<'_>) -> Result<Layer, Errno> {
    let both = |from: Input<'_>| [big(from, 2), big(from, 0)];
    Ok(Layer::Ports { udp, value: both(value), mask: both(mask) })
}

/// {tunnel_id 0}, of which the card has 24 bits.
fn vxlan(value: Input<'_>, mask: Input<'_>) -> Result<Layer, Errno> {
    let both = [value, mask].map(|from| u32::from_be(from.u32(0)));
    if both[1] > TAG_MAX {
        return Err(BAD);
    }
    Ok(Layer::Vxlan(both[0], both[1]))
}

fn tcp(value: Input<'_>, mask: Input<'_>) -> Result<Layer, Errno> {
    ports(false, value, mask)
}

fn udp(value: Input<'_>, mask: Input<'_>) -> Result<Layer, Errno> {
    ports(true, value, mask)
}
