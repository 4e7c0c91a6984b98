//! Flow rules: an attribute and the specifications behind it (ibv_create_flow(3)), as the card has them.

use core::ffi::c_int;

use rdma_core_sys as sys;
use ringway_sim::connectx::steering::{Action, Kind, Layer, PRIORITY_MAX, Rule};

use super::objects::Pair;
use super::{end, given, make, of};

pub(super) unsafe extern "C" fn create_flow(qp: *mut sys::ibv_qp, attr: *mut sys::ibv_flow_attr) -> *mut sys::ibv_flow {
    // SAFETY: the driver's queue pair; as many bytes lie there as the attribute says.
    let (pair, attr, bytes) = unsafe {
        let size = usize::from((*attr).size);
        (of::<_, Pair>(qp), *attr, core::slice::from_raw_parts(attr.cast::<u8>(), size))
    };
    let made = rule(pair, &attr, &bytes[size_of::<sys::ibv_flow_attr>()..]).and_then(|rule| pair.card.borrow_mut().make_rule(rule));
    given(made.map(|number| make(sys::ibv_flow { context: pair.verbs.context, ..Default::default() }, &pair.card, number)))
}

pub(super) unsafe extern "C" fn destroy_flow(flow: *mut sys::ibv_flow) -> c_int {
    // SAFETY: made above.
    let flow = unsafe { end::<_, u32>(flow) };
    let mut card = flow.card.borrow_mut();
    card.end_rule(flow.rest);
    card.end_answer()
}

fn rule(pair: &super::Of<sys::ibv_qp, Pair>, attr: &sys::ibv_flow_attr, mut rest: &[u8]) -> Result<Rule, c_int> {
    let Pair::Hashes(target) = pair.rest else { return Err(libc::EINVAL) };
    if attr.r#type != sys::IBV_FLOW_ATTR_NORMAL || attr.priority > PRIORITY_MAX || attr.port != 1 {
        return Err(libc::EINVAL);
    }
    let (mut layers, mut tag) = (Vec::new(), None);
    for _ in 0..attr.num_of_specs {
        let kind = u32::from_ne_bytes(*rest.first_chunk().ok_or(libc::EINVAL)?);
        let size = usize::from(u16::from_ne_bytes([rest[4], rest[5]]));
        let (spec, behind) = rest.split_at_checked(size).ok_or(libc::EINVAL)?;
        match kind {
            sys::IBV_FLOW_SPEC_ACTION_TAG => tag = Some(u32::from_ne_bytes(array(spec, 8))),
            kind => layers.push(layer(kind, spec)?),
        }
        rest = behind;
    }
    if !rest.is_empty() {
        return Err(libc::EINVAL);
    }
    Ok(Rule { kind: Kind::Normal(layers), priority: attr.priority, goes_on: false, action: Action::Receive { tag }, target })
}

/// So many bytes from an offset on. (A specification has as many, by its type.)
fn array<const N: usize>(spec: &[u8], at: usize) -> [u8; N] {
    *spec[at..].first_chunk().expect("a whole specification")
}

/// A specification: its type and size, and behind these (at 6, or where the field is aligned) a value and a mask.
fn layer(kind: u32, spec: &[u8]) -> Result<Layer, c_int> {
    match kind {
        kind if kind & sys::IBV_FLOW_SPEC_INNER != 0 => Ok(Layer::Inner(Box::new(layer(kind & !sys::IBV_FLOW_SPEC_INNER, spec)?))),
        sys::IBV_FLOW_SPEC_VXLAN_TUNNEL => Ok(Layer::Vxlan(u32::from_be_bytes(array(spec, 8)), u32::from_be_bytes(array(spec, 12)))),
        sys::IBV_FLOW_SPEC_ETH => {
            let both = |at: usize| [array(spec, at), array(spec, at + 6)];
            let word = |at: usize| (u16::from_be_bytes(array(spec, at)), u16::from_be_bytes(array(spec, at + 16)));
            Ok(Layer::Ethernet { value: both(6), mask: both(22), ethertype: word(18), vlan: word(20) })
        }
        sys::IBV_FLOW_SPEC_IPV4 => Ok(ip(false, spec, [8, 16])),
        sys::IBV_FLOW_SPEC_IPV4_EXT => {
            // (Behind both addresses, the protocol and the type of service: a filter of 12 bytes.)
            let tos = (spec[8 + 9], spec[20 + 9]);
            Ok(match ip(false, spec, [8, 20]) {
                Layer::Ip { v6, value, mask, protocol, flow_label, .. } => Layer::Ip { v6, value, mask, protocol, tos, flow_label },
                other => other,
            })
        }
        sys::IBV_FLOW_SPEC_IPV6 => Ok(ip(true, spec, [8, 48])),
        sys::IBV_FLOW_SPEC_TCP | sys::IBV_FLOW_SPEC_UDP => {
            let word = |at: usize| u16::from_be_bytes(array(spec, at));
            let udp = kind == sys::IBV_FLOW_SPEC_UDP;
            // (The destination's port comes first.)
            Ok(Layer::Ports { udp, value: [word(8), word(6)], mask: [word(12), word(10)] })
        }
        _ => Err(libc::EOPNOTSUPP),
    }
}

fn ip(v6: bool, spec: &[u8], [value, mask]: [usize; 2]) -> Layer {
    let len = if v6 { 16 } else { 4 };
    let both = |at: usize| {
        [0, 1].map(|which| {
            let mut address = [0; 16];
            address[..len].copy_from_slice(&spec[at + which * len..][..len]);
            address
        })
    };
    Layer::Ip { v6, value: both(value), mask: both(mask), protocol: (0, 0), tos: (0, 0), flow_label: (0, 0) }
}
